"""Answer datasets of Ray Data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..backends.wrappers.cutset import in_order
from ..cases.answer_table import answer_table
from ..cases.query import TableKeywords, TableQuery, resolve_query
from ..cases.solver import CaseAnswers, CaseSolver, ExplainedCases
from ..columns.arrow import arrow
from ..errors import BackendUnavailable, JtgpuError
from ..inference.network_plan import NetworkPlan
from ..inference.tree import JunctionTree
from ..options.tables import TableOptions
from ..util.arguments import check_keywords
from ..util.options import BackendName
from .connect import Cluster, Share, as_cluster, completed, connect, connected
from .parts import WorkerSpec, plan_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..backends.wrappers.cutset import Executor, Partial, SliceJob, SliceTask
    from ..columns.likelihoods import LikelihoodCells

# Frames in memory whose rows are answered by the workers of a cluster.

class _SolverActor:
    """An actor that answers blocks of cases, given by state numbers."""

    def __init__(self, spec: list[Any]):
        import ray

        received: WorkerSpec = ray.get(spec[0])
        self._solver = received.solver()

    def solve(self, codes: NDArray[np.integer], cells: LikelihoodCells | None) -> dict[str, Any]:
        """Answers of n cases, one for each of them, as arrays."""
        solved = self._solver.solve(codes, cells)
        arrays: dict[str, Any] = {
            "posterior": np.ascontiguousarray(solved.expand(solved.posterior.T).T),
            "log_evidence": solved.expand(solved.log_evidence), "impossible": solved.expand(solved.impossible),
        }  # fmt: skip
        if solved.explanations is not None:
            states = solved.explanations.states
            arrays["states"] = states if solved.inverse is None else states[solved.inverse]
            arrays["log_joint"] = solved.expand(solved.explanations.log_joint)
        return arrays


class _ClusterSolver(CaseSolver):
    """A solver whose cases are answered on a cluster, in blocks of the same size as locally."""

    def __init__(
        self, tree: JunctionTree, query: TableQuery, options: TableOptions, ray: Any, cluster: Cluster, *,
        by_index: bool,
    ):  # fmt: skip
        super().__init__(tree, query, options, by_index=by_index)
        self.by_columns = False  # workers return rows
        self._options, self._ray, self._cluster = options, ray, cluster

    def solve(self, codes: NDArray[np.integer], cells: LikelihoodCells | None = None) -> CaseAnswers:
        step = self.query.rows_per_call(self.model)
        blocks = [codes[:, first : first + step] for first in range(0, max(codes.shape[1], 1), step)]
        solved = self._solve_blocks(blocks, cells or None)  # without likelihoods there is nothing to send
        joined = {name: np.concatenate([part[name] for part in solved]) for name in solved[0]}
        answers = CaseAnswers(joined["posterior"], joined["log_evidence"], joined["impossible"])
        if "states" in joined:
            answers.explanations = ExplainedCases(joined["states"], joined["log_joint"])
        return answers

    def _solve_blocks(
        self, blocks: Sequence[NDArray[np.integer]], cells: LikelihoodCells | None
    ) -> list[dict[str, Any]]:
        """The answers of each block, in order, by a pool of actors."""
        ray, tree = self._ray, self.tree
        share = Share.of(self._cluster, ray.cluster_resources(), tree.backend, len(blocks))
        spec = WorkerSpec(tree.plan, share, share.options(tree.options), self.query, self._options)
        reference = [ray.put(spec)]
        kind = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=-1, max_task_retries=-1)(_SolverActor)
        actors = [kind.remote(reference) for _ in range(share.workers)]

        def submit(actor: Any, block: NDArray[np.integer]) -> Any:
            return actor.solve.remote(np.ascontiguousarray(block), cells)

        try:
            solved, done, n = [], 0, sum(block.shape[1] for block in blocks)
            for part in in_order(completed(ray, actors, submit, blocks)):
                solved.append(part)
                done += len(part["log_evidence"])
                if self.report is not None:
                    self.report(done, done, n)
            return solved
        finally:
            for actor in actors:
                ray.kill(actor)


@contextmanager
def solver_on(
    cluster: str | Cluster, tree: JunctionTree, query: TableQuery, options: TableOptions, *, by_index: bool = False
) -> Iterator[CaseSolver]:
    """A solver for frames in memory: encoding is local, results come from a cluster, bit-identical to local ones.

    If evidence patterns get plans of their own (`JunctionTree.is_adaptive`), the last digits may differ, as they may
    locally between two calls.
    """
    where = as_cluster(cluster)
    with connected(where) as ray:
        yield _ClusterSolver(tree, query, options, ray, where, by_index=by_index)


class _BatchActor:
    """An actor that answers batches of a dataset."""

    def __init__(self, spec: list[Any], kept: list[str]):
        import ray

        received: WorkerSpec = ray.get(spec[0])
        self._solver, self._kept = received.solver(), kept
        self._names = [self._solver.model.variables[v] for v in received.query.evidence]

    def __call__(self, batch: Any) -> Any:
        """Convert an Arrow table of cases to one of answers."""

        def error(row: int, reason: str, kind: type[JtgpuError]) -> JtgpuError:
            return kind(f"{self._row_name(batch, row)}: {reason}")

        rows = self._solver.answer([batch.column(name) for name in self._names], batch.num_rows, error)
        return answer_table(self._solver, rows, [(batch.schema.field(k), batch.column(k)) for k in self._kept])

    def _row_name(self, batch: Any, row: int) -> str:
        """A row by the columns that are copied, because its number in the dataset is unknown."""
        shown = {k: batch.column(k)[row].as_py() for k in self._kept}
        if "path" in batch.column_names:  # of read_parquet(..., include_paths=True)
            shown = {"path": batch.column("path")[row].as_py(), **shown}
        values = ", ".join(f"{k} {v!r}" for k, v in shown.items())
        return f"row {row} of a batch of {batch.num_rows} rows ({values or 'pass keep= with a column that names rows'})"


def answer_dataset(
    plan: NetworkPlan | JunctionTree,
    dataset: Any,
    *,
    cluster: str | Cluster = "auto",
    backend: BackendName = "auto",
    batch_size: int | None = None,
    **keywords: Unpack[TableKeywords],
) -> Any:
    """Convert a Ray dataset of cases to one of answers, lazily: `map_batches` with one actor per worker.

    Parameters
    ----------
    plan : NetworkPlan or JunctionTree
        A plan needs no memory and no GPU in this process.
    dataset : ray.data.Dataset
    cluster : str or Cluster
        The share that each worker uses; see `Cluster`.
    backend : str
        Backend of the workers; ``"auto"``: GPUs, if the cluster has any.
    batch_size : int, optional
        Cases per batch. Default: some tens of megabytes.
    targets, evidence_columns, keep, labels, log_evidence, conflict, mpe, on_error, na_values, do
        See `jtgpu.JunctionTree.predict_proba`.

    Returns
    -------
    ray.data.Dataset
        In the order of the rows if Ray Data preserves it (``execution_options.preserve_order``). Errors of rows are
        raised when the dataset is consumed. They name the row by the columns that are copied, and by the file if the
        dataset has a column ``path``. Ray Data repeats the batches of a lost worker; a sink must be able to discard
        duplicates, as `answer_files` does.
    """
    where, options = as_cluster(cluster), TableOptions(**keywords)
    ray = connect(where)
    plan, chosen, backend_options = plan_of(plan, backend)
    model = plan.model
    query, kept = resolve_query(model, list(dataset.schema().names), options, source="the dataset")
    query.schema(model, [(k, arrow().null()) for k in kept])  # rejects duplicate names before the computation
    share = Share.of(where, ray.cluster_resources(), chosen)
    spec = WorkerSpec(plan, share, share.options(backend_options), query, options)
    answered = dataset.map_batches(
        _BatchActor, fn_constructor_args=([ray.put(spec)], kept), batch_size=batch_size or query.rows_per_call(model),
        batch_format="pyarrow", num_cpus=share.cpus, num_gpus=share.gpus or None,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=share.workers),
    )  # fmt: skip
    answered.context.raise_original_map_exception = True  # ours, which programs can catch, not a wrapper
    return answered


# Slices of a model too large for one memory, answered by actors of a Ray cluster.
#
# A slice is a pure function, so Ray may restart a lost actor and run its tasks again. The process with the case adds
# the results in the order of the slices, so a result is bit-identical on any cluster.

TASKS_PER_ACTOR = 2  # one runs and one waits


@check_keywords()
class RaySlices:
    """Makes executors on a cluster: ``plan.compile("cpu", executor=RaySlices("auto"))``.

    Parameters
    ----------
    cluster : str or Cluster
        See `jtgpu.cluster.Cluster`. Its workers are reserved until the tree is closed, and the connection stays open
        between queries.
    """

    def __init__(self, cluster: str | Cluster = "auto"):
        self.cluster = as_cluster(cluster)

    def __call__(self, job: SliceJob) -> Executor:
        """Start the actors; the job is sent to each once."""
        ray = connect(self.cluster)
        share = Share.of(self.cluster, ray.cluster_resources(), job.backend, 2**31)
        return _RayExecutor(ray, replace(job, options=share.options(job.options)), share)


class _SliceActor:
    """The class of the actors."""

    def __init__(self, job: list[Any]):
        import ray

        opened: SliceJob = ray.get(job[0])
        self._worker = opened.open()

    def run(self, task: SliceTask) -> Partial:
        return self._worker.run(task)


class _RayExecutor:
    """`jtgpu.backends.wrappers.cutset.Executor` with workers on a cluster."""

    def __init__(self, ray: Any, job: SliceJob, share: Share):
        self._ray = ray
        self._job = [ray.put(job)]  # the reference keeps the job alive for actors that are restarted
        kind = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=-1, max_task_retries=-1)(_SliceActor)
        self._actors = [kind.remote(self._job) for _ in range(share.workers)]

    def run(self, tasks: Iterable[SliceTask]) -> Iterator[tuple[int, Partial]]:
        if not self._actors:
            raise BackendUnavailable("this executor is closed")
        yield from completed(self._ray, self._actors * TASKS_PER_ACTOR, self._submit, tasks, BackendUnavailable)

    @staticmethod
    def _submit(actor: Any, task: SliceTask) -> Any:
        return actor.run.remote(task)

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()
        self._job.clear()
