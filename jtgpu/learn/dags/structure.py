"""`learn.structure`: the graph of the highest score, and its network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...errors import ArgumentError
from ...model.equivalence import cpdag_of, digraph, experimental_arcs
from ...model.network import BayesianNetwork
from ...options.compute import Compute
from ...options.learning import Constraints, Search
from ...options.tables import ReadOptions
from ...util import late_imports
from ...util.arguments import check_keywords, choice
from ...util.arrays import Bools, Ints
from ...util.cells import MissingReport
from ...util.options import Data, Interventions, LearnBackend, MissingCells, SearchMethod, StructurePriorLike
from ...util.text_table import counted
from .best_graph import BestGraph, climb, exact_best
from .graphs import adjacency, fitted_network
from .scores.coded import MISSING_CHOICES, CodedTable
from .scores.numeric_table import NumericTable, cases_like
from .scores.ranks import parent_masks
from .scores.rules import Score, ScoreFunction
from .structural_em import improved
from .task import learning_task

if TYPE_CHECKING:
    import networkx

    from .constraints import StructurePrior
    from .scores.rules import ScoreRule
    from .task import LearningTask

METHODS = ("auto", "exact", "order", "greedy", "tabu")
MAX_PRINTED = 60  # families
AUTO_EXACT = 18  # variables up to which the exact search takes a second or less


@check_keywords()
@dataclass(frozen=True, eq=False)
class Structure(late_imports.Shown):
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
        ``"exact"``: no graph has a higher weight. Otherwise the search that found it; ``"em"``: structural EM.
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

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> print(jtgpu.learn.structure({v: data[v] for v in ("smoke", "bronc", "lung", "dysp")}))
    4 variables, 4 arcs, score -1034.09, exact
    lung -> smoke
    smoke -> bronc
    bronc, lung -> dysp
    """

    names: tuple[str, ...]
    score: float
    log_weight: float
    method: str
    order: list[str]
    candidates: dict[str, list[str]] | None
    _arcs: Bools = field(repr=False)
    _table: CodedTable = field(repr=False)
    _ess: float = field(repr=False)
    steps: int = 0
    _network: BayesianNetwork | None = field(default=None, repr=False)  # whose CPTs come from EM

    def __repr__(self) -> str:
        return f"<Structure: {self._title()}>"

    def __str__(self) -> str:
        parents: dict[str, list[str]] = {}
        for parent, child in self.arcs:
            parents.setdefault(child, []).append(parent)
        lines = [f"{', '.join(sorted(parents[v]))} -> {v}" for v in self.order if v in parents]
        more = [f"and {len(lines) - MAX_PRINTED:,} more families"] if len(lines) > MAX_PRINTED else []
        return "\n".join([self._title(), *lines[:MAX_PRINTED], *more])

    def _title(self) -> str:
        sizes = f"{counted(len(self.names), 'variable')}, {counted(len(self.arcs), 'arc')}"
        return "; ".join([f"{sizes}, score {self.score:.6g}, {self.method}", *self._table.missing_lines()])

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
        """The equivalence class of the graph: an undirected edge is a pair of arcs in both directions.

        With interventions, an arc between a variable that was set in a row and one that was not has one direction.
        """
        known = experimental_arcs(self._arcs, self._table.targets)
        if isinstance(self._table, NumericTable):  # arcs from states to numbers have one direction
            known |= self._arcs & ~self._table.is_number[:, None] & self._table.is_number
        return digraph(self.names, cpdag_of(self._arcs, known))

    @property
    def clique_entries(self) -> int:
        """Entries of the clique tables of the network's junction tree: what exact inference in it costs.

        Raises
        ------
        ArgumentError
            If there are numbers.
        """
        if isinstance(self._table, NumericTable):
            raise ArgumentError("a network with numbers has no single junction tree; see MixedNetwork.compile")
        return int(self.network().plan().cost().entries)

    def network(self, data: object = None, *, ess: float | None = None) -> BayesianNetwork:
        """The network of this graph, with CPTs from data; a `jtgpu.MixedNetwork` if there are numbers.

        Each CPT is the posterior mean under the Dirichlet prior of BDeu: (count + ess / (q r)) / (n + ess / q). Numbers
        are fitted as by `jtgpu.learn.fit`, with one row of the regression of all rows for each configuration.

        Parameters
        ----------
        data : table, optional
            Cases with the same columns and states. Default: those that the graph was learned from.
        ess : float, optional
            Equivalent sample size. Default: that of the score, else 1.
        """
        if self._network is not None and data is None and ess is None:
            return self._network
        return fitted_network(cases_like(self._table, data), self._arcs, self._ess if ess is None else ess)


def structure(  # noqa: PLR0913
    data: Data | CodedTable,
    *,
    method: SearchMethod = "auto",
    score: Score | ScoreFunction = "bdeu",
    ess: float = 1.0,
    graph_prior: StructurePriorLike = "uniform",
    max_parents: int | Mapping[str, int] = 4,
    states: Mapping[str, Sequence[object]] | BayesianNetwork | None = None,
    continuous: bool | Iterable[str] | None = None,
    missing: MissingCells = "error",
    weights: object = None,
    interventions: Interventions = None,
    seed: int = 0,
    seconds: float | None = None,
    constraints: Constraints = Constraints(),
    search: Search = Search(),
    read: ReadOptions = ReadOptions(),
    compute: Compute | LearnBackend | Literal["auto"] = Compute(),
) -> Structure:
    """Find the directed acyclic graph of the highest score.

    Parameters
    ----------
    data : data frame, mapping of columns, list of mappings, (N, n) array, or path of a CSV or Parquet file
        States, or numbers with the scores ``"bge"`` and ``"bic-cg"``.
    method : {"auto", "exact", "order", "greedy", "tabu"}
        ``"exact"``: dynamic programming over all sets of variables, for up to 24 of them. ``"order"``: annealed search
        over orders of the variables, with `candidates`. ``"greedy"``, ``"tabu"``: hill climbing and tabu search by
        single arcs, from the graph of the required arcs; they find worse graphs. ``"auto"``: exact for up to 18
        variables, else order.
    score, ess : str or callable, float
        Name and equivalent sample size of a `jtgpu.learn.ScoreRule`, or a function of counts: see `score_table`.
    graph_prior : {"uniform", "fair"} or ("edge", p)
        Prior weights of graphs: uniform; 1 / C(n - 1, k) for each set of k parents; or p / (1 - p) for each arc, with a
        number or an (n, n) matrix [parent, child].
    max_parents : int or mapping
        Largest number of parents, of all variables or of those in a mapping; the others have at most 4.
    states : mapping or network, optional
        States of variables, in order. Default: the categories of a categorical column, otherwise the values in the
        data, sorted.
    continuous : bool or list of str, optional
        Columns that are numbers, for the scores ``"bge"`` and ``"bic-cg"``: their names, or True for all columns of
        numbers, but those of at most 20 different whole ones. Default: True for these scores.
    missing : {"error", "drop", "available", "em"}
        How to treat rows with missing cells: refuse them, leave them out, or score each family by the rows in which its
        variables are known. That requires ``score="bic"``, and method ``"exact"`` or ``"order"``. ``"em"``: structural
        EM (Friedman, 1998): the gaps are drawn given the best graph so far, whose CPTs EM estimates, until no better
        graph is found. `Structure.score` is then the BIC of the observed cells, and `Structure.network` has those CPTs.
    weights : (N,) array_like of int, optional
        How often each row occurs.
    interventions : str or mapping, optional
        Experiments: the name of a column, which is no variable, that names the variables that were set in each row
        (empty: none; several: ``"a;b"``), or a mapping from variable to the rows in which it was set, (N,) of bool.
        Such a row does not count in the variable's own family (Cooper and Yoo, 1999), so that data may tell the
        directions of arcs between graphs that observations cannot tell apart.
    seed : int
        Of method ``"order"``: the same seed gives the same graph, for any number of threads.
    seconds : float, optional
        Time that it should take at most: fewer families are scored, with a warning if that leaves fewer parents, and
        the search is shorter. The graph then depends on the machine.
    constraints : Constraints
        Graphs that are possible: arcs that are forbidden, or required, and tiers.
    search : Search
        Method ``"order"``: the number of candidate parents of each variable. ``start`` is a graph to start from: the
        search returns none that is worse; exact search ignores it. ``scores`` is a `ScoreTable` of the same data with
        the same score, or of a score file, with ``score="given"``.
    read : ReadOptions
        How the table is read: words that mean missing cells, and columns with only one value.
    compute : Compute or {"cpu", "gpu"}
        Where families are scored for the exact search, and for the choice of candidates. The graph does not depend on
        threads and devices.

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
    >>> found = jtgpu.learn.structure(data, constraints=jtgpu.learn.Constraints(forbidden=[("wet", "rain")]))
    >>> found.arcs, found.method
    ([('rain', 'wet')], 'exact')
    >>> found.network().variables
    ('rain', 'wet')
    """
    choice("method", method, METHODS)
    choice("missing", missing, (*MISSING_CHOICES, "em"))
    task = learning_task(
        data, score=score, ess=ess, graph_prior=graph_prior, max_parents=max_parents, states=states,
        continuous=continuous, missing=missing, weights=weights, interventions=interventions, seed=seed,
        seconds=seconds, constraints=constraints,
        search=search, read=read, compute=Compute.of(compute, "backend threads devices memory_limit", "structure"),
    )  # fmt: skip
    if missing == "em" and task.coded.has_gaps:
        return _by_em(task, method, search)
    return _found(task, method, search)


def _by_em(task: LearningTask, method: str, search: Search) -> Structure:
    """The graph that structural EM finds."""
    if task.rule.takes_numbers or task.table is not None or task.coded.interventions is not None:
        raise ArgumentError("missing='em' takes scores of states, no interventions and no scores=")

    def find(filled: CodedTable) -> tuple[Structure, Bools]:
        made = _found(replace(task, coded=filled), method, search)
        return made, made._arcs

    best, score, net = improved(task, find)
    weight = score + best.log_weight - best.score
    return replace(best, score=score, log_weight=weight, method="em", _network=net)


def _found(task: LearningTask, method: str, search: Search) -> Structure:
    """The graph that a search finds."""
    if task.rule.takes_numbers and method in ("greedy", "tabu"):
        raise ArgumentError(f"method={method!r} takes states only; use method='exact' or 'order' for numbers")
    if task.coded.interventions is not None and method in ("greedy", "tabu"):
        raise ArgumentError(f"method={method!r} takes no interventions; use method='exact' or 'order'")
    if task.coded.has_gaps and method in ("greedy", "tabu"):
        raise ArgumentError(f"method={method!r} requires complete rows; use method='order', or missing='drop'")
    if task.prior.name == "order":
        raise ArgumentError("graph_prior='order' weighs orders, not graphs; use 'uniform', 'fair' or ('edge', p)")
    possible = task.constraints if task.start is None else task.constraints.requiring(task.start)
    k = max(task.number_of_candidates(search.candidates), int(possible.required.sum(axis=0).max()))
    if method in ("greedy", "tabu"):
        best = climb(
            task.coded, task.rule, task.prior, task.constraints, tabu=method == "tabu", start=task.start,
            restarts=search.restarts, seed=task.seed,
        )  # fmt: skip
        return structure_of(best, task.coded, task.rule, task.prior, method)
    if method == "exact" or (method == "auto" and task.n <= AUTO_EXACT and task.has_few_families):
        scores = task.scores(task.most)
        masks = parent_masks(task.n, scores.max_parents)
        best = exact_best(task.family_weights(scores), masks, memory_limit=task.limit, threads=task.threads)
        return structure_of(best, task.coded, task.rule, task.prior, "exact")
    if k == task.n - 1:
        return structure_of(task.best(task.tables(task.all_others())), task.coded, task.rule, task.prior, "order")
    chosen = task.screened_candidates(task.scores(task.screened_size), possible, k)
    best = task.best(task.tables(chosen))
    return structure_of(best, task.coded, task.rule, task.prior, "order", named_candidates(task.coded.names, chosen))


def named_candidates(names: Sequence[str], candidates: Ints) -> dict[str, list[str]]:
    """Names of the candidate parents of each variable."""
    return {v: [names[u] for u in row if u >= 0] for v, row in zip(names, candidates, strict=True)}


def structure_of(
    best: BestGraph, table: CodedTable, rule: ScoreRule, prior: StructurePrior, method: str,
    candidates: dict[str, list[str]] | None = None,
) -> Structure:  # fmt: skip
    """The structure of a graph."""
    n = len(best.parents)
    sets = (np.array(members, np.int64).reshape(1, -1) for members in best.parents)
    log_prior = math.fsum(float(prior.log_weights(v, members, n)[0]) for v, members in enumerate(sets))
    return Structure(
        table.names, best.weight - log_prior, best.weight, method, [table.names[v] for v in best.order], candidates,
        adjacency(best.parents), table, rule.network_ess, best.n_steps,
    )  # fmt: skip
