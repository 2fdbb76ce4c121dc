"""Records of a posterior: its data and settings, its diagnostics, and the `GraphSource` of its graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from ....util.arrays import Floats, Ints
from ..best_graph import BestGraph
from ..candidate_tables import CandidateTables
from ..scores.coded import CodedTable
from ..structure import Structure, named_candidates, structure_of
from ..task import LearningTask

MIN_COVERAGE = 0.99


class GraphSource(Protocol):
    """Where graphs come from: an exact posterior, chains, or a file."""

    def graphs(self, n: int | None = None) -> Ints:
        """Graphs as bits of the candidates, (T, C, n): T graphs of C chains, or of C groups of independent draws."""

    def property_of_graphs(self, name: str) -> tuple[Floats, Floats]:
        """Probabilities of ``"path"`` or ``"compelled"`` for each pair, and standard errors: 0 where they are exact."""

    def parent_sets(self, v: int) -> list[tuple[tuple[int, ...], float, float]] | None:
        """Exact probabilities of the parent sets of a variable, the largest first; None if they are estimated."""

    def more(self, steps: int | None, seconds: float | None) -> Any:
        """A `StructurePosterior` after more steps."""


class Diagnostics(NamedTuple):
    """How a posterior was computed, and how precise it is."""

    method: str
    prior: str
    log_evidence: float | None = None
    converged: bool = True
    rhat: float = 1.0
    ess_samples: float = math.inf
    max_difference: float = 0.0
    n_steps: int = 0
    n_chains: int = 0
    n_samples: int = 0
    coverage: float | None = None
    low_coverage: str = ""
    candidates: dict[str, list[str]] | None = None
    moves: dict[str, float] | None = None
    notes: tuple[str, ...] = ()
    betas: Sequence[float] = ()  # levels of tempered chains
    swap_rates: Sequence[float] = ()  # shares of accepted exchanges of neighbouring levels
    shortfall: Sequence[str] = ()  # the criteria of convergence that chains do not meet

    def summary(self, largest_error: float) -> str:
        """How precise the posterior is, in one line."""
        if not self.n_chains:
            return "exact probabilities"
        text = f"largest standard error {largest_error:.4f}, R-hat {self.rhat:.3f}"
        if self.converged:
            return f"converged: {text}"
        return f"NOT converged ({'; '.join(self.shortfall)}): {text}" if self.shortfall else f"NOT converged: {text}"

    def describe(self, largest_error: float) -> list[str]:
        """How precise the posterior is, in some lines."""
        lines = []
        if self.n_chains:
            lines.append(
                f"{self.summary(largest_error)}, largest difference between halves of the chains "
                f"{self.max_difference:.4f}"
            )
            lines.append(
                f"{self.n_chains} chains of {self.n_steps:,} steps, {self.n_samples:,} samples after the burn-in, "
                f"effective samples {self.ess_samples:,.0f}"
            )
        if self.moves:
            lines.append("accepted: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.moves.items()))
        if self.betas:
            rates = ", ".join(f"{rate:.2f}" for rate in self.swap_rates)
            lines.append(
                f"tempered: {len(self.betas)} replicas of each chain, beta "
                f"{', '.join(f'{beta:.3g}' for beta in self.betas)}; exchanges accepted {rates}"
            )
        if self.candidates is not None:
            k = max(map(len, self.candidates.values()))
            coverage = "" if self.coverage is None else f", coverage at least {self.coverage:.4f}"
            lines.append(f"{k} candidate parents of each variable{coverage}")
        if self.low_coverage:
            lines.append(self.low_coverage)
        return [*lines, *self.notes]


class MissingCells(NamedTuple):
    """Missing cells, and the probabilities of their states.

    Attributes
    ----------
    names : tuple of str
    rows, columns : (M,) ndarray of int64
        Places of the cells in the data without rows of weight 0. A cell of a row with weight k has k entries.
    probabilities : (M, S) ndarray of float64
        Shares of the states in the draws of each cell, in the order of the states.
    missing_mean : dict of str to float
        By variable, the mean over its gaps of the largest probability: 1 if all of them are known.
    """

    names: tuple[str, ...]
    rows: Ints
    columns: Ints
    probabilities: Floats

    @property
    def missing_mean(self) -> dict[str, float]:
        """How well the gaps of each variable are known."""
        best = self.probabilities.max(axis=1)
        return {self.names[v]: float(best[self.columns == v].mean()) for v in np.unique(self.columns).tolist()}


class PosteriorRecord(NamedTuple):
    """Everything that a posterior shows and saves, apart from graphs, which its source has."""

    table: CodedTable
    arcs: Floats  # (n, n) probability of each arc [parent, child]
    errors: Floats  # (n, n) their standard errors
    structure: Structure
    diagnostics: Diagnostics
    parents: Ints  # (n, m) variables whose bits graphs have; -1 where there are fewer
    trace: Floats  # (C, T) ln weight of the states of the chains
    ess: float  # equivalent sample size of CPTs
    seed: int


class DataSummary(NamedTuple):
    """The data and settings a posterior was computed from."""

    table: CodedTable
    tables: CandidateTables
    best: Structure  # the graph of the highest weight
    structure_of: Callable[[BestGraph], Structure]  # makes a `Structure` of another graph
    prior: str
    ess: float  # equivalent sample size of CPTs
    seed: int
    notes: tuple[str, ...] = ()


def data_summary(
    task: LearningTask, tables: CandidateTables, best: BestGraph, method: str, notes: tuple[str, ...] = ()
) -> DataSummary:
    """The data and settings of a posterior, and its best graph."""
    candidates = None
    if method != "exact" and tables.candidates.shape[1] < task.n - 1:
        candidates = named_candidates(task.coded.names, tables.candidates)
    structure = partial(  # no function in a function: posteriors are pickled
        structure_of, table=task.coded, rule=task.rule, prior=task.prior, method=method, candidates=candidates
    )
    return DataSummary(
        task.coded, tables, structure(best), structure, task.prior.name, task.rule.network_ess, task.seed,
        (*task.notes, *notes),
    )  # fmt: skip


class CandidateCoverage(NamedTuple):
    """Parent sets that chains sum."""

    parents: Ints  # (n, m) possible parents; -1 where there are fewer
    # (n,) shares of the posterior of each variable's parents that are summed; None: 1
    shares: Floats | None
    by_lists: bool  # whether other parents are impossible

    def summary(self, names: Sequence[str]) -> tuple[float | None, str]:
        """The least share, and a warning if it is low."""
        if self.shares is None:
            return None, ""
        v = int(self.shares.argmin())
        share = float(self.shares[v])
        if self.by_lists or share >= MIN_COVERAGE:
            return share, ""
        return share, (
            f"the sums cover {share:.3f} of the posterior of the parents of {names[v]!r}; try more candidates, or "
            f"graph_prior='fair', which weighs large parent sets less"
        )
