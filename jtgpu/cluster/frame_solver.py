"""Frames in memory whose rows are answered by the workers of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cases.options import TableOptions
from ..cases.query import TableQuery
from ..cases.solver import Answers, Explanations, Solver
from ..inference.tree import JunctionTree
from .connect import Cluster, Share, as_cluster, connected, translate_error
from .worker_spec import WorkerSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _SolverActor:
    """An actor that answers blocks of cases, given by state numbers."""

    def __init__(self, spec: list[Any]):
        import ray

        received: WorkerSpec = ray.get(spec[0])
        self._solver = received.solver()

    def solve(self, codes: NDArray[Any]) -> dict[str, Any]:
        """Answers of n cases, one for each of them, as arrays."""
        found = self._solver.solve(codes)
        arrays: dict[str, Any] = {
            "posterior": np.ascontiguousarray(found.expand(found.posterior.T).T),
            "log_evidence": found.expand(found.log_evidence), "impossible": found.expand(found.impossible),
        }  # fmt: skip
        if found.explanations is not None:
            states = found.explanations.states
            arrays["states"] = states if found.inverse is None else states[found.inverse]
            arrays["log_joint"] = found.expand(found.explanations.log_joint)
        return arrays


class _ClusterSolver(Solver):
    """A solver whose cases are answered on a cluster, in blocks of the same size as locally."""

    def __init__(
        self, tree: JunctionTree, query: TableQuery, options: TableOptions, ray: Any, cluster: Cluster, *,
        by_index: bool,
    ):  # fmt: skip
        super().__init__(tree, query, options, by_index=by_index)
        self.by_columns = False  # workers return rows
        self._options, self._ray, self._cluster = options, ray, cluster

    def solve(self, codes: NDArray[Any]) -> Answers:
        step = self.query.rows_per_call(self.model)
        blocks = [codes[:, first : first + step] for first in range(0, max(codes.shape[1], 1), step)]
        found = self._solve_blocks(blocks)
        joined = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
        answers = Answers(joined["posterior"], joined["log_evidence"], joined["impossible"])
        if "states" in joined:
            answers.explanations = Explanations(joined["states"], joined["log_joint"])
        return answers

    def _solve_blocks(self, blocks: Sequence[NDArray[Any]]) -> list[dict[str, Any]]:
        """The answers of each block, in order, by a pool of actors."""
        ray, tree = self._ray, self.tree
        share = Share.of(self._cluster, ray.cluster_resources(), tree.backend, len(blocks))
        spec = WorkerSpec(tree.plan, share, share.options(tree.options), self.query, self._options)
        reference = [ray.put(spec)]
        kind = ray.remote(num_cpus=share.cpus, num_gpus=share.gpus, max_restarts=-1, max_task_retries=-1)(_SolverActor)
        actors = [kind.remote(reference) for _ in range(share.workers)]
        pool = ray.util.ActorPool(actors)
        try:
            found, done, n = [], 0, sum(block.shape[1] for block in blocks)
            for part in pool.map(lambda actor, block: actor.solve.remote(np.ascontiguousarray(block)), blocks):
                found.append(part)
                done += len(part["log_evidence"])
                if self.report is not None:
                    self.report(done, done, n)
            return found
        except ray.exceptions.RayError as error:
            raise translate_error(error) from None
        finally:
            for actor in actors:
                ray.kill(actor)


@contextmanager
def solver_on(
    cluster: str | Cluster, tree: JunctionTree, query: TableQuery, options: TableOptions, *, by_index: bool = False
) -> Iterator[Solver]:
    """A solver for frames in memory: encoding is local, results come from a cluster, bit-identical to local ones.

    If evidence patterns get plans of their own (`JunctionTree.is_adaptive`), the last digits may differ, as they may
    locally between two calls.
    """
    where = as_cluster(cluster)
    with connected(where) as ray:
        import ray.util

        yield _ClusterSolver(tree, query, options, ray, where, by_index=by_index)
