"""`Problem`: checked data and options of a posterior, and the tables that they make."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ....util.options import Devices, LearnBackend
from ..candidate_tables import CandidateTables, all_parents, candidate_tables, family_weights
from ..constraints import Constraints, StructurePrior
from ..exact.gpu_exact import GpuExact
from ..exact.posteriors import draw_by_orders, draw_by_partitions, exact_by_orders, exact_by_partitions
from ..graphs import start_order
from ..preparation import scores_up_to
from ..scores.coded import CodedTable
from ..scores.rules import ScoreRule, n_parent_sets, parent_masks
from ..search.best_graph import BestGraph, best_by_orders, exact_best
from ..search.structure import Structure, prior_of, structure_of
from .sources import DRAWS, ExactSource, Given

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..chain_records import SetTables
    from ..exact.posteriors import ExactPosterior
    from ..scores.score_table import ScoreTable
    from .result import StructurePosterior

# The exact posterior of a problem, on CPUs or a GPU.

def exact_posterior(problem: Problem, by_orders: bool) -> StructurePosterior:
    """The posterior by sums over all orders, or all partitions."""
    n = len(problem.coded.names)
    limit, seed, threads = problem.limit, problem.seed, problem.threads
    on_gpu = None
    if problem.backend == "gpu":
        on_gpu = GpuExact(problem.devices, by_orders, seed, threads)
        on_gpu.require_memory(n, n_parent_sets(n, problem.most))
    scores = problem.scores(problem.most)
    rows, masks = family_weights(scores, problem.prior, problem.constraints), parent_masks(n, scores.max_parents)
    tables = all_parents(rows, masks)
    if on_gpu is not None:
        exact, drawn = on_gpu.posterior(tables, DRAWS)
        given = problem.given(tables, on_gpu.best(tables), "exact")
        options = problem.devices, by_orders, seed, threads
        return ExactSource(given, exact, partial(_draw_on_gpu, options, tables), by_orders, drawn).posterior()
    if by_orders:
        exact = exact_by_orders(rows, masks, memory_limit=limit, threads=threads)
    else:
        exact = exact_by_partitions(rows, masks, memory_limit=limit)

    best = exact_best(rows, masks, memory_limit=limit, threads=threads)
    draw = partial(_draw, tables, exact if by_orders else None, seed, threads)
    return ExactSource(problem.given(tables, best, "exact"), exact, draw, by_orders).posterior()


def _draw(
    tables: CandidateTables, by_orders: ExactPosterior | None, seed: int, threads: int | None, n: int
) -> NDArray[np.int64]:
    """n graphs; a function of the module, because posteriors are pickled."""
    if by_orders is not None:
        return draw_by_orders(tables, by_orders, n, seed, threads)
    return draw_by_partitions(tables, n, seed, threads)


def _draw_on_gpu(options: tuple[Any, bool, int, int | None], tables: CandidateTables, n: int) -> NDArray[np.int64]:
    return GpuExact(*options).posterior(tables, n)[1]


@dataclass(frozen=True)
class Problem:
    """Checked data and options."""

    coded: CodedTable
    rule: ScoreRule
    prior: StructurePrior
    constraints: Constraints
    table: ScoreTable | None
    seed: int
    limit: int
    threads: int | None
    backend: LearnBackend = "cpu"
    devices: Devices = None
    start: NDArray[np.bool_] | None = None
    notes: tuple[str, ...] = ()  # what users should know about the data
    say: Callable[[str], None] = lambda _: None  # takes a line about each stage

    @property
    def first(self) -> NDArray[np.int64] | None:
        """The order from which the first chain starts."""
        return None if self.start is None else start_order(self.start)

    @property
    def most(self) -> int:
        """The largest number of parents."""
        return int(self.constraints.max_parents.max())

    def scores(self, max_parents: int) -> ScoreTable:
        n = len(self.coded.names)
        self.say(f"scoring {n * n_parent_sets(n, min(max_parents, n - 1)):,} families")
        begin = perf_counter()
        found = scores_up_to(
            self.table, self.coded, self.rule, max_parents, self.limit, self.threads, self.backend, self.devices
        )
        seconds = max(perf_counter() - begin, 1e-9)
        self.say(f"{len(found):,} families scored, {len(found) / seconds:,.0f} a second; selecting candidate parents")
        return found

    def tables(self, candidates: NDArray[np.int64]) -> CandidateTables:
        return candidate_tables(
            self.coded, self.rule, self.prior, self.constraints, candidates, self.most, memory_limit=self.limit,
            threads=self.threads,
        )  # fmt: skip

    def best(self, tables: CandidateTables) -> BestGraph:
        """A graph of high weight, by search."""
        return best_by_orders(tables, self.constraints, seed=self.seed, threads=self.threads, first=self.first)

    def given(self, tables: CandidateTables, best: BestGraph, method: str, notes: tuple[str, ...] = ()) -> Given:
        named = None
        if method != "exact" and tables.candidates.shape[1] < len(self.coded.names) - 1:
            names = self.coded.names
            named = {v: [names[u] for u in row if u >= 0] for v, row in zip(names, tables.candidates, strict=True)}

        structure = partial(_structure, self.coded, self.rule, self.prior, method, named)
        ess = self.rule.ess if self.rule.name in ("bdeu", "bds") else 1.0
        return Given(
            self.coded, tables, structure(best), structure, self.prior.name, ess, self.seed, self.threads,
            (*self.notes, *notes),
        )  # fmt: skip


def _structure(
    coded: CodedTable, rule: ScoreRule, prior: StructurePrior, method: str, named: dict[str, list[str]] | None,
    best: BestGraph,
) -> Structure:  # fmt: skip
    """The structure of a graph; a function of the module, because posteriors are pickled."""
    return structure_of(best, coded, rule, method, named, prior_of(best, prior))


def digests(problem: Problem, tables: SetTables, chains: str) -> dict[str, str]:
    """What a run depends on, by name."""

    def digest(*arrays: NDArray[Any]) -> str:
        return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()

    c = problem.constraints
    return {
        "data": problem.coded.digest,
        "score": str(problem.rule),
        "prior": problem.prior.name + digest(*problem.prior.parts(len(problem.coded.names))),
        "constraints": digest(c.forbidden, c.required, c.max_parents),
        "candidates": digest(tables.candidates, tables.masks, tables.weights),
        "chains": chains,
        "seed": str(problem.seed),
        "start": "" if problem.start is None else digest(problem.start),
    }
