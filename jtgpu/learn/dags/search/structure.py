"""`learn.structure`: the graph of the highest score, and its network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ....errors import ArgumentError
from ....model.network import BayesianNetwork
from ....util.arguments import choice, flag, whole_number
from ....util.missing import MissingReport
from ....util.options import Data, Devices, LearnBackend, MissingCells, Score, SearchMethod, StructurePriorLike
from ....util.system import free_memory, parse_bytes
from ....util.text_table import counted
from ..candidate_tables import candidate_tables, family_weights
from ..constraints import StructurePrior, make_constraints, make_prior
from ..graphs import adjacency, compelled_arcs, digraph, fitted_network, start_graph, start_order
from ..preparation import (
    MAX_SCREENED,
    number_of_candidates,
    require_same,
    scores_up_to,
    screened_candidates,
    screened_size,
)
from ..scores.coded import CodedTable, cases_like, code_table
from ..scores.rules import ScoreRule, n_parent_sets, parent_masks
from ..scores.score_table import ScoreTable
from .best_graph import BestGraph, best_by_orders, exact_best
from .greedy import climb

if TYPE_CHECKING:
    import networkx
    from numpy.typing import NDArray

METHODS = ("auto", "exact", "order", "greedy", "tabu")
AUTO_EXACT = 18  # variables up to which the exact search takes a second or less


@dataclass(frozen=True, eq=False)
class Structure:
    """A directed acyclic graph of high score.

    Attributes
    ----------
    names : tuple of str
        Names of the variables.
    score : float
        ln score of the graph: the sum of the scores of its families.
    log_weight : float
        The same with the ln prior weights of the families.
    method : str
        ``"exact"``: no graph has a higher weight. Otherwise the search that found it.
    order : list of str
        An order of the variables that the graph allows.
    candidates : dict
        Candidate parents of each variable; None if all variables were candidates.
    missing : MissingReport
        Missing cells of the data by column (``missing.cells``), and the words that were read as such.
    n_dropped : int
        Rows that were left out because of missing cells.
    steps : int
        Moves of single arcs (``"greedy"``, ``"tabu"``) or relocations of a variable (``"order"``); 0 if exact.
    """

    names: tuple[str, ...]
    score: float
    log_weight: float
    method: str
    order: list[str]
    candidates: dict[str, list[str]] | None
    _arcs: NDArray[np.bool_] = field(repr=False)
    _table: CodedTable = field(repr=False)
    _ess: float = field(repr=False)
    steps: int = 0

    def __repr__(self) -> str:
        sizes = f"{counted(len(self.names), 'variable')}, {counted(len(self.arcs), 'arc')}"
        text = f"{sizes}, score {self.score:.2f}, {self.method}"
        return f"<Structure: {'; '.join([text, *self._table.missing_lines()])}>"

    @property
    def missing(self) -> MissingReport:
        return self._table.missing

    @property
    def n_dropped(self) -> int:
        return self._table.dropped

    @cached_property
    def arcs(self) -> list[tuple[str, str]]:
        """The arcs (parent, child), by child and parent in the order of the variables."""
        return [(self.names[u], self.names[v]) for v, u in np.argwhere(self._arcs.T)]

    def parents(self, name: str) -> tuple[str, ...]:
        """Parents of a variable."""
        return tuple(u for u, v in self.arcs if v == name)

    @cached_property
    def dag(self) -> networkx.DiGraph[str]:
        """The graph."""
        return digraph(self.names, self._arcs)

    def to_networkx(self) -> networkx.DiGraph[str]:
        """The graph, as `dag`: what `jtgpu.learn.fit` takes."""
        return self.dag

    @cached_property
    def cpdag(self) -> networkx.DiGraph[str]:
        """The equivalence class of the graph: an undirected edge is a pair of arcs in both directions."""
        free = self._arcs & ~compelled_arcs(self._arcs)
        return digraph(self.names, self._arcs | free.T)

    @property
    def clique_entries(self) -> int:
        """Entries of the clique tables of the network's junction tree: what exact inference in it costs."""
        return int(self.network().plan().cost().entries)

    def network(self, data: Any = None, *, ess: float | None = None) -> BayesianNetwork:
        """The network of this graph, with CPTs from data.

        Each CPT is the posterior mean under the Dirichlet prior of BDeu: (count + ess / (q r)) / (n + ess / q).

        Parameters
        ----------
        data : table, optional
            Cases with the same columns and states. Default: those that the graph was learned from.
        ess : float, optional
            Equivalent sample size. Default: that of the score, else 1.
        """
        return fitted_network(cases_like(self._table, data), self._arcs, self._ess if ess is None else ess)


def structure(  # noqa: PLR0913
    data: Data | CodedTable,
    *,
    method: SearchMethod = "auto",
    score: Score = "bdeu",
    ess: float = 1.0,
    prior: StructurePriorLike = "uniform",
    max_parents: int | Mapping[str, int] = 4,
    candidates: int | Literal["auto", "all"] = "auto",
    forbidden: Iterable[tuple[str, str]] = (),
    required: Iterable[tuple[str, str]] = (),
    tiers: Iterable[Iterable[str]] | None = None,
    within_tiers: bool = True,
    states: Mapping[str, Sequence[Any]] | BayesianNetwork | None = None,
    missing: MissingCells = "error",
    na_values: str | Iterable[str] | None = None,
    weights: Any = None,
    table: ScoreTable | None = None,
    seed: int = 0,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    start: Any = None,
    restarts: int = 0,
    backend: LearnBackend = "cpu",
    devices: Devices = None,
) -> Structure:
    """Find the directed acyclic graph of the highest score.

    Parameters
    ----------
    data : data frame, mapping of columns, list of mappings, (N, n) array, or path of a CSV or Parquet file
        Discrete data.
    method : {"auto", "exact", "order", "greedy", "tabu"}
        ``"exact"``: dynamic programming over all sets of variables, for up to 24 of them. ``"order"``: annealed search
        over orders of the variables, with `candidates`. ``"greedy"``, ``"tabu"``: hill climbing and tabu search by
        single arcs, from the graph of the required arcs; they find worse graphs. ``"auto"``: exact for up to 18
        variables, else order.
    score, ess : str, float
        See `jtgpu.learn.ScoreRule`.
    prior : {"uniform", "fair"} or ("edge", p)
        Prior weights of graphs: uniform; 1 / C(n - 1, k) for each set of k parents; or p / (1 - p) for each arc, with a
        number or an (n, n) matrix [parent, child].
    max_parents : int or mapping
        Largest number of parents, of all variables or of those in a mapping; the others have at most 4.
    candidates : int or "auto" or "all"
        Method ``"order"``: number of candidate parents of each variable. Default: 16, or fewer if memory is short.
    forbidden, required : iterable of (parent, child)
        Arcs that the graph must not have, and must have.
    tiers : iterable of iterables of str, optional
        No arc points from a later tier to an earlier one.
    within_tiers : bool
        Whether arcs between variables of the same tier are possible.
    states : mapping or network, optional
        States of variables, in order. Default: the categories of a categorical column, otherwise the values in the
        data, sorted.
    missing : {"error", "drop", "available"}
        How to treat rows with missing cells: refuse them, leave them out, or score each family by the rows in which its
        variables are known. The last one requires ``score="bic"``, and method ``"exact"`` or ``"order"``.
    na_values : str or iterable of str, optional
        Words that mean a missing cell unless they are declared states. Default: those of ``pandas.read_csv``
        (`jtgpu.cases.NA_VALUES`) in a CSV file, in which empty cells are always missing; no words in other tables.
    weights : (N,) array_like of int, optional
        How often each row occurs.
    table : ScoreTable, optional
        Scores of the same data with the same score, from `score_table`; they are computed otherwise.
    seed : int
        Of method ``"order"``: the same seed gives the same graph, for any number of threads.
    memory_limit : int or str, optional
        Bytes, or a text such as ``"8GiB"``. Default: 80 % of the free memory.
    threads : int, optional
        Default: the number of cores.
    start : network, graph, mapping from child to parents, or iterable of (parent, child), optional
        A graph to start from: the search returns none that is worse. Exact search ignores it.
    restarts : int
        Of methods ``"greedy"`` and ``"tabu"``: how often to search again, from the best graph after random moves.
    backend : {"cpu", "gpu"}
        Where families are scored for the exact search, and for the choice of candidates.
    devices : "all" or sequence of int, optional
        GPUs that share the work. Default: one. The graph does not depend on it.

    Raises
    ------
    DataError
        If the data cannot be learned from; the message names column and row.
    NetworkError
        If the constraints contradict each other, or the start graph breaks them.
    TableTooLarge
        If the tables exceed the memory limit, or an exact search would have too many variables.
    ValueError
        If an option has no such value.

    Examples
    --------
    >>> import jtgpu
    >>> data = {"rain": ["no", "no", "yes", "yes", "no"], "wet": ["no", "no", "yes", "yes", "yes"]}
    >>> found = jtgpu.learn.structure(data, forbidden=[("wet", "rain")])
    >>> found.arcs, found.method
    ([('rain', 'wet')], 'exact')
    >>> found.network().variables
    ('rain', 'wet')
    """
    choice("method", method, METHODS)
    choice("backend", backend, ("cpu", "gpu"))
    restarts = whole_number("restarts", restarts, 0)
    rule, seed = ScoreRule(score, ess), whole_number("seed", seed, 0, 2**63 - 1)
    threads = None if threads is None else whole_number("threads", threads, 1)
    coded = code_table(data, states=states, missing=missing, weights=weights, na_values=na_values)
    rule.require_scorable(coded.has_gaps)
    if coded.has_gaps and method in ("greedy", "tabu"):
        raise ArgumentError(f"method={method!r} requires complete rows; use method='order', or missing='drop'")
    n = len(coded.names)
    weigh = make_prior(prior, n)
    if weigh.name == "order":
        raise ArgumentError("prior='order' weighs orders, not graphs; use 'uniform', 'fair' or ('edge', p)")
    if table is not None:
        require_same(table, coded, rule)
    constraints = make_constraints(
        coded.names, max_parents, forbidden=forbidden, required=required, tiers=tiers,
        within_tiers=flag("within_tiers", within_tiers),
    )  # fmt: skip
    begin = start_graph(start, coded.names, constraints)
    limit = int(0.8 * free_memory()) if memory_limit is None else parse_bytes(memory_limit)
    most = int(constraints.max_parents.max())
    needed = constraints.required if begin is None else constraints.required | begin
    k = max(number_of_candidates(candidates, n, limit), int(needed.sum(axis=0).max()))
    if method in ("greedy", "tabu"):
        best = climb(
            coded, rule, weigh, constraints, tabu=method == "tabu", start=begin, restarts=restarts, seed=seed
        )
        return structure_of(best, coded, rule, method, None, prior_of(best, weigh))
    if method == "exact" or (method == "auto" and n <= AUTO_EXACT and _fits(n, most)):
        scores = scores_up_to(table, coded, rule, most, limit, threads, backend, devices)
        rows = family_weights(scores, weigh, constraints)
        best = exact_best(rows, parent_masks(n, scores.max_parents), memory_limit=limit, threads=threads)
        return structure_of(best, coded, rule, "exact", None, prior_of(best, weigh))
    if k == n - 1:
        chosen = np.array([[u for u in range(n) if u != v] for v in range(n)], np.int64)
    else:
        few = scores_up_to(table, coded, rule, screened_size(n, most), limit, threads, backend, devices)
        chosen = screened_candidates(few, weigh, constraints if begin is None else constraints.requiring(begin), k)
    tables = candidate_tables(coded, rule, weigh, constraints, chosen, most, memory_limit=limit, threads=threads)
    first = None if begin is None else start_order(begin)
    best = best_by_orders(tables, constraints, seed=seed, threads=threads, first=first)
    named = {v: [coded.names[u] for u in row if u >= 0] for v, row in zip(coded.names, chosen, strict=True)}
    return structure_of(best, coded, rule, "order", named if k < n - 1 else None, prior_of(best, weigh))


def _fits(n: int, max_parents: int) -> bool:
    """Whether all families of up to so many parents are few enough for an exact search."""
    return n * n_parent_sets(n, max_parents) <= MAX_SCREENED // 10


def prior_of(best: BestGraph, prior: StructurePrior) -> float:
    """ln prior weight of a graph."""
    n = len(best.parents)
    sets = (np.array(members, np.int64).reshape(1, -1) for members in best.parents)
    return math.fsum(float(prior.log_weights(v, members, n)[0]) for v, members in enumerate(sets))


def structure_of(
    best: BestGraph,
    table: CodedTable,
    rule: ScoreRule,
    method: str,
    candidates: dict[str, list[str]] | None,
    log_prior: float,
) -> Structure:
    return Structure(
        table.names,
        best.weight - log_prior,
        best.weight,
        method,
        [table.names[v] for v in best.order],
        candidates,
        adjacency(best.parents),
        table,
        rule.ess if rule.name in ("bdeu", "bds") else 1.0,
        best.n_steps,
    )
