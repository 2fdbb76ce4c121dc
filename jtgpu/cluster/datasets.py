"""Ray's own datasets, in and out, and frames in memory whose rows are answered by a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..cases.arrow import arrow
from ..cases.encode import MISSING, Encoder
from ..cases.solve import Answers, Question, Solver, Wanted, ask
from ..errors import ImpossibleEvidence, JtgpuError, UnknownState
from ..inference.tree import JunctionTree
from ..util.version import __version__
from .connect import Cluster, Share, as_cluster, connect, connected, understood

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..inference.network_plan import NetworkPlan

__all__ = ["answer_dataset", "solver_on"]


@dataclass(frozen=True)
class Asked:
    """What a worker is told, once."""

    plan: NetworkPlan
    backend: str
    options: dict[str, Any]
    question: Question
    do: Mapping[Any, Any] | None
    missing: tuple[str, ...] = MISSING
    kept: list[str] = field(default_factory=list)
    version: str = __version__

    def solver(self) -> Solver:
        """On the worker."""
        if self.version != __version__:
            raise JtgpuError(f"this worker has jtgpu {__version__}, the run is led by jtgpu {self.version}")
        return Solver(self.plan.compile(self.backend, **self.options), self.question, self.do)


# Datasets -------------------------------------------------------------------------------------------------------


class Blocks:
    """An actor that answers batches of a dataset."""

    def __init__(self, asked: list[Any]):
        import ray

        self._asked: Asked = ray.get(asked[0])
        self._solver = self._asked.solver()
        model = self._solver.model
        self._names = [model.variables[v] for v in self._solver.question.evidence]
        self._encoder = Encoder(model, self._solver.question.evidence, self._asked.missing)

    def __call__(self, batch: Any) -> Any:
        """An Arrow table of cases as one of answers."""
        solver, n = self._solver, batch.num_rows
        encoded = self._encoder.encode([batch.column(name) for name in self._names], n)
        if encoded.refused and not solver.question.flag:
            row, why = next(iter(encoded.refused.items()))
            raise UnknownState(f"{self._place(batch, row)}, {why}")
        answers = solver.solve(encoded.codes)
        impossible = solver.impossible_rows(answers, encoded)
        flagged = encoded.refused | {r: why for r, why in impossible.items() if r not in encoded.refused}
        if flagged and not solver.question.flag:
            row, why = next(iter(flagged.items()))
            raise ImpossibleEvidence(f"{self._place(batch, row)}: {why}")
        kept = [(batch.schema.field(k), batch.column(k)) for k in self._asked.kept]
        return solver.table(answers, encoded, flagged, kept)

    def _place(self, batch: Any, row: int) -> str:
        """A row by what is kept of it, for its number in the dataset is known to nobody."""
        shown = {k: batch.column(k)[row].as_py() for k in self._asked.kept}
        if "path" in batch.column_names:  # of read_parquet(..., include_paths=True)
            shown = {"path": batch.column("path")[row].as_py(), **shown}
        told = ", ".join(f"{k} {v!r}" for k, v in shown.items())
        return f"row {row} of a batch of {batch.num_rows} rows ({told or 'keep= a column that names rows'})"


def answer_dataset(
    plan: NetworkPlan | JunctionTree,
    dataset: Any,
    *,
    cluster: str | Cluster = "auto",
    backend: str = "auto",
    missing: Iterable[str] = MISSING,
    do: Mapping[Any, Any] | None = None,
    batch_size: int | None = None,
    **wanted: Unpack[Wanted],
) -> Any:
    """A Ray dataset of cases as one of answers: `map_batches` with an actor a worker, and as lazy.

    Parameters
    ----------
    plan : NetworkPlan or JunctionTree
        A plan needs no memory and no GPU where this is called.
    dataset : ray.data.Dataset
    cluster : str or Cluster
        The share that each worker takes; see `Cluster`.
    backend : str
        Of the workers; ``"auto"``: GPUs where the cluster has any.
    targets, evidence_columns, keep, labels, log_evidence, conflict, mpe, on_error, missing, do
        See `jtgpu.JunctionTree.predict_proba`.
    batch_size : int, optional
        Cases at a time; default: what takes some tens of megabytes.

    Returns
    -------
    ray.data.Dataset
        In the order of the rows where Ray Data keeps it (``execution_options.preserve_order``). Errors of rows come
        when it is consumed, and name the row by the columns that are kept, and by the file where the dataset has a
        column ``path``. Ray Data does batches of lost workers again. Whether what is written of it
        is written once is the affair of the sink: `answer_files` sees to that for files.
    """
    where = as_cluster(cluster)
    ray = connect(where)
    options: dict[str, Any] = {}
    if isinstance(plan, JunctionTree):
        backend, options, plan = plan.backend, plan.options, plan.plan
    model = plan.model
    question, kept = ask(model, list(dataset.schema().names), source="the dataset", **wanted)
    question.schema(model, [(k, arrow().null()) for k in kept])  # refuses names that stand twice, before the work
    share = Share.of(where, ray.cluster_resources(), backend, 2**31)
    asked = Asked(plan, share.backend, share.options(options), question, do, tuple(missing), kept)
    size = batch_size or question.rows_at_once(model)
    answered = dataset.map_batches(
        Blocks, fn_constructor_args=([ray.put(asked)],), batch_size=size, batch_format="pyarrow",
        num_cpus=share.cpus, num_gpus=share.gpus or None,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=share.workers),
    )  # fmt: skip
    answered.context.raise_original_map_exception = True  # ours, that programs can catch, and not one around it
    return answered


# Frames ---------------------------------------------------------------------------------------------------------


class Codes:
    """An actor that answers blocks of numbers of states."""

    def __init__(self, asked: list[Any]):
        import ray

        told: Asked = ray.get(asked[0])
        self._told = told
        self._solver = told.solver()

    def solve(self, codes: NDArray[Any]) -> dict[str, Any]:
        """Answers of n cases, for each of them: arrays alone."""
        found = self._solver.solve(codes)
        told: dict[str, Any] = {
            "posterior": np.ascontiguousarray(found.spread(found.posterior.T).T),
            "log_evidence": found.spread(found.log_evidence), "impossible": found.spread(found.impossible),
        }  # fmt: skip
        if found.explanations is not None:
            states = found.explanations.states
            told["states"] = states if found.inverse is None else states[found.inverse]
            told["log_joint"] = found.spread(found.explanations.log_joint)
        return told


@dataclass(frozen=True)
class _Explanations:
    """As much of `jtgpu.inference.queries.mpe.CaseExplanations` as a table needs."""

    states: NDArray[np.int32]
    log_joint: NDArray[np.float64]


class _ClusterSolver(Solver):
    """A solver whose cases are answered elsewhere, as many at a time as here."""

    def __init__(self, tree: JunctionTree, question: Question, do: Mapping[Any, Any] | None, ray: Any, where: Cluster):
        super().__init__(tree, question, do)
        self._ray, self._where, self._do = ray, where, do

    @property
    def by_columns(self) -> bool:
        """Never: what comes from workers is rows."""
        return False

    def solve(self, codes: NDArray[Any]) -> Answers:
        """See `Solver.solve`."""
        step = self.question.rows_at_once(self.model)
        blocks = [codes[:, first : first + step] for first in range(0, max(codes.shape[1], 1), step)]
        found = self._answered(blocks)
        joined = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
        answers = Answers(joined["posterior"], joined["log_evidence"], joined["impossible"])
        if "states" in joined:
            answers.explanations = _Explanations(joined["states"], joined["log_joint"])
        return answers

    def _answered(self, blocks: Sequence[NDArray[Any]]) -> list[dict[str, Any]]:
        """What actors say of each block, in order; Ray's pool of actors gives the blocks out."""
        ray, tree = self._ray, self.tree
        share = Share.of(self._where, ray.cluster_resources(), tree.backend, len(blocks))
        asked = Asked(tree.plan, share.backend, share.options(tree.options), self.question, self._do)
        held = [ray.put(asked)]
        kind = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=-1, max_task_retries=-1)(Codes)
        actors = [kind.remote(held) for _ in range(share.workers)]
        pool = ray.util.ActorPool(actors)
        try:
            return list(pool.map(lambda actor, block: actor.solve.remote(np.ascontiguousarray(block)), blocks))
        except ray.exceptions.RayError as error:
            raise understood(error) from None
        finally:
            for actor in actors:
                ray.kill(actor)


@contextmanager
def solver_on(
    cluster: str | Cluster, tree: JunctionTree, question: Question, do: Mapping[Any, Any] | None
) -> Iterator[Solver]:
    """A solver for frames in memory: encoded here, answered there, the same bits as here.

    For networks whose patterns get plans of their own (`JunctionTree.is_adaptive`) the last digits may differ, as they may
    there from one call to the next.
    """
    where = as_cluster(cluster)
    with connected(where) as ray:
        import ray.util

        yield _ClusterSolver(tree, question, do, ray, where)
