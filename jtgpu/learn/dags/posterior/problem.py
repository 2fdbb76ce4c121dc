"""The exact posterior of a task, on CPUs or a GPU, and the data and settings that posteriors keep."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..best_graph import BestGraph, exact_best
from ..candidate_tables import CandidateTables, all_parents
from ..exact.gpu_exact import GpuExact
from ..exact.posteriors import draw_by_orders, draw_by_partitions, exact_by_orders, exact_by_partitions
from ..scores.rules import n_parent_sets, parent_masks
from ..structure import named_candidates, structure_of
from .sources import DRAWS, ExactSource, Given

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..chain_records import SetTables
    from ..exact.posteriors import ExactPosterior
    from ..task import LearningTask
    from .result import StructurePosterior


def exact_posterior(task: LearningTask, by_orders: bool) -> StructurePosterior:
    """The posterior by sums over all orders, or all partitions."""
    n = task.n
    limit, seed, threads = task.limit, task.seed, task.threads
    on_gpu = None
    if task.backend == "gpu":
        on_gpu = GpuExact(task.devices, by_orders, seed, threads)
        on_gpu.require_memory(n, n_parent_sets(n, task.most))
    scores = task.scores(task.most)
    rows, masks = task.family_weights(scores), parent_masks(n, scores.max_parents)
    tables = all_parents(rows, masks)
    if on_gpu is not None:
        exact, drawn = on_gpu.posterior(tables, DRAWS)
        given = data_summary(task, tables, on_gpu.best(tables), "exact")
        options = task.devices, by_orders, seed, threads
        return ExactSource(given, exact, partial(_draw_on_gpu, options, tables), by_orders, drawn).posterior()
    if by_orders:
        exact = exact_by_orders(rows, masks, memory_limit=limit, threads=threads)
    else:
        exact = exact_by_partitions(rows, masks, memory_limit=limit)

    best = exact_best(rows, masks, memory_limit=limit, threads=threads)
    draw = partial(_draw, tables, exact if by_orders else None, seed, threads)
    return ExactSource(data_summary(task, tables, best, "exact"), exact, draw, by_orders).posterior()


def _draw(
    tables: CandidateTables, by_orders: ExactPosterior | None, seed: int, threads: int | None, n: int
) -> NDArray[np.int64]:
    """n graphs; a function of the module, because posteriors are pickled."""
    if by_orders is not None:
        return draw_by_orders(tables, by_orders, n, seed, threads)
    return draw_by_partitions(tables, n, seed, threads)


def _draw_on_gpu(options: tuple[Any, bool, int, int | None], tables: CandidateTables, n: int) -> NDArray[np.int64]:
    return GpuExact(*options).posterior(tables, n)[1]


def data_summary(
    task: LearningTask, tables: CandidateTables, best: BestGraph, method: str, notes: tuple[str, ...] = ()
) -> Given:
    """The data and settings of a posterior, and its best graph."""
    candidates = None
    if method != "exact" and tables.candidates.shape[1] < task.n - 1:
        candidates = named_candidates(task.coded.names, tables.candidates)
    structure = partial(  # no function in a function: posteriors are pickled
        structure_of, table=task.coded, rule=task.rule, prior=task.prior, method=method, candidates=candidates
    )
    return Given(
        task.coded, tables, structure(best), structure, task.prior.name, task.rule.network_ess, task.seed,
        task.threads, (*task.notes, *notes),
    )  # fmt: skip


def digests(task: LearningTask, tables: SetTables, chains: str) -> dict[str, str]:
    """What a run depends on, by name."""

    def digest(*arrays: NDArray[Any]) -> str:
        return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()

    c = task.constraints
    return {
        "data": task.coded.digest,
        "score": str(task.rule),
        "prior": task.prior.name + digest(*task.prior.parts(len(task.coded.names))),
        "constraints": digest(c.forbidden, c.required, c.max_parents),
        "candidates": digest(tables.candidates, tables.masks, tables.weights),
        "chains": chains,
        "seed": str(task.seed),
        "start": "" if task.start is None else digest(task.start),
    }
