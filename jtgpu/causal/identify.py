"""Identification: a formula for P(outcome | do(cause), given), or the hedge that proves that there is none.

J. Tian and J. Pearl, AAAI 2002; I. Shpitser and J. Pearl, AAAI and UAI 2006 (complete).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, DataError, EvidenceError, UnknownVariable, closest
from ..inference.results.tables import Conditional
from ..learn import fit as fit_parameters
from ..util.arguments import having, mapping, random_generator, whole_number
from .adjustment import AdjustableGraph, Names, NotIdentified
from .formula import Distribution, Expression, evaluate, leaves, product, quotient, total, written

if TYPE_CHECKING:
    from ..inference.tree import JunctionTree
    from ..util.arrays import Floats

Steps = list[tuple[set[int], set[int]]]  # districts, and the ancestors of a part within each


MOST_TRIED = 20  # adjustment sets, where conditions of the first one have probability 0
MOST_NAMED = 3  # common causes of which a refusal says that measuring them would help


class Estimand:
    """A formula of an effect in terms of the distribution of the measured variables.

    Attributes
    ----------
    outcome, do, given : tuple of str
    method : str
        ``"no effect"``, ``"back-door"``, ``"front-door"`` or ``"general"`` (the algorithm of Shpitser and Pearl).
    adjusted : frozenset of str
        The variables that are adjusted for, or those of the front door; otherwise empty.
    """

    def __init__(
        self, graph: AdjustableGraph, query: tuple[tuple[str, ...], ...], method: str, expression: Expression,
        adjusted: frozenset[str] = frozenset(),
    ):  # fmt: skip
        self.graph, self.method, self.expression, self.adjusted = graph, method, expression, adjusted
        self.outcome, self.do, self.given = query

    @property
    def formula(self) -> str:
        """The formula as text."""
        return f"{self._effect()} = {self.expression.text()}"

    @property
    def latex(self) -> str:
        """The formula for LaTeX."""
        done, given = ([written([v], latex=True) for v in names] for names in (self.do, self.given))
        conditions = ", ".join([*(rf"\mathrm{{do}}({v})" for v in done), *given])
        left = f"P({written(self.outcome, latex=True)} \\mid {conditions})"
        return f"{left} = {self.expression.text(latex=True)}"

    @property
    def uses(self) -> tuple[str, ...]:
        """The measured variables that the formula needs, in the order of the graph."""
        used = {v for leaf in leaves(self.expression) for v in leaf.free}
        return tuple(v for v in self.graph.variables if v in used)

    def _effect(self) -> str:
        conditions = ", ".join([f"do({', '.join(self.do)})", *self.given])
        return f"P({', '.join(self.outcome)} | {conditions})"

    def __repr__(self) -> str:
        return f"Estimand({self.method}: {self.formula})"

    def __str__(self) -> str:
        return self.formula

    def _repr_latex_(self) -> str:
        return f"$${self.latex}$$"

    def evaluate(self, tree: JunctionTree) -> Conditional:
        """Compute the effect exactly from a model of the measured variables.

        Parameters
        ----------
        tree : JunctionTree
            With every variable that the formula `uses`; only its distribution counts, not its arcs.

        Returns
        -------
        Conditional
            P(outcome | causes set to their states, given), a row for each configuration.

        Raises
        ------
        EvidenceError
            If the formula needs P(x | condition) for a condition of probability 0 (positivity), and so do the formulas
            of other adjustment sets and of the general algorithm.
        UnknownVariable
            If the tree lacks a variable.
        """
        having("tree", tree, "joint", "a JunctionTree, as net.compile() makes")
        names = (*self.do, *self.given, *self.outcome)
        for v in dict.fromkeys((*names, *self.uses)):
            if v not in tree.model.variables:
                raise UnknownVariable(f"the model has no variable {v!r}{closest(v, tree.model.variables)}")
        table = np.array(self._numbers(tree, names))
        n = len(self.do) + len(self.given)
        sums = table.sum(axis=tuple(range(n, table.ndim)), keepdims=True)  # 1 but for rounding
        possible = (sums > 0) & self._may_be_given(tree, names[:n]).reshape(sums.shape)
        table = np.divide(table, sums, out=np.zeros_like(table), where=possible)
        states = tuple(tree.model.states(v) for v in names)
        return Conditional(names[:n], names[n:], states, table, possible.reshape(table.shape[:n]))

    def _may_be_given(self, tree: JunctionTree, names: tuple[str, ...]) -> Any:
        """Where what is given has a probability after the intervention: all that is not known to be impossible."""
        # A condition that acts like an intervention is none in the formula, which has numbers for it all the same.
        states = [len(tree.model.states(v)) for v in names]
        if self.given:
            with suppress(_Hedge, EvidenceError):
                part = _effect(self.graph, *(self.graph.numbers(v) for v in (self.given, self.do)))
                if {v for leaf in leaves(part) for v in leaf.free} <= {*tree.model.variables}:
                    return evaluate(tree, part, names) > 0
        return np.ones(states, np.bool_)

    def _numbers(self, tree: JunctionTree, names: tuple[str, ...]) -> Floats:
        """The numbers of the formula, or of another one if a condition of this one has probability 0."""
        try:
            return evaluate(tree, self.expression, names)
        except EvidenceError:
            for other in self._others():
                if {*other.uses} <= {*tree.model.variables}:
                    with suppress(EvidenceError):
                        return evaluate(tree, other.expression, names)
            raise

    def _others(self) -> Iterator[Estimand]:
        """Other formulas of the effect: by other adjustment sets, and the one of the general algorithm."""
        query = self.outcome, self.do, self.given
        y, x, z = (self.graph.numbers(names) for names in query)
        if self.method == "back-door":
            for adjusted in islice(self.graph.iterate_adjustment_sets(self.do, self.outcome), MOST_TRIED):
                if adjusted != self.adjusted:
                    yield adjusting(self.graph, query, adjusted)
        if self.method != "general":
            yield Estimand(self.graph, query, "general", _conditional_effect(self.graph, y, x, z))

    def structure(self) -> dict[str, list[str]]:
        """Parents of the variables of formula and effect, in a network that can have any of their distributions.

        It has the independences that the causal graph implies in its order, and hidden common causes as arcs.
        """
        kept = {*self.uses, *self.do, *self.given, *self.outcome}
        part = self.graph.project([v for v in self.graph.variables if v not in kept])
        result: dict[str, list[str]] = {}
        seen: set[int] = set()
        for v in part.in_order(range(len(part.variables))):
            seen.add(v)
            result[part.variables[v]] = [part.variables[u] for u in _relevant(part, v, seen)]
        return result

    def fit(
        self, cases: Any, *, pseudo_counts: float = 1.0, states: Mapping[str, Any] | None = None
    ) -> EstimatedEffect:
        """Estimate the effect from a table of cases.

        The distributions that the formula needs are those of a network fitted to the columns that it uses; see
        `jtgpu.learn.fit`. Missing cells are summed out by EM.

        Parameters
        ----------
        cases : table or path
            See `jtgpu.learn.fit`.
        pseudo_counts : float
            Added to the count of each cell of a CPT.
        states : mapping, optional
            Names of the states of variables; default: those in the data.

        Returns
        -------
        EstimatedEffect
        """
        return EstimatedEffect(self, cases, pseudo_counts, states)


class EstimatedEffect:
    """An effect estimated from a table of cases: `Estimand.fit`.

    Attributes
    ----------
    table : Conditional
        P(outcome | causes set to their states, given).
    network : BayesianNetwork
        The fitted network of the measured variables.
    """

    def __init__(self, estimand: Estimand, cases: Any, pseudo_counts: float, states: Mapping[str, Any] | None):
        self.estimand, self._cases, self._pseudo_counts = estimand, cases, pseudo_counts
        self._structure = estimand.structure()
        given = mapping("states", states or {})
        estimand.graph.numbers(given, "states")
        used = {v: given[v] for v in given if v in self._structure}
        try:
            fitted = fit_parameters(self._structure, cases, pseudo_counts=pseudo_counts, states=used or None)
        except DataError as error:  # about a column: it is the graph that has hidden variables
            said, n = re.subn(r"declare it: hidden=\{(.*): \d+\}", r"make the graph with hidden=[\1]", str(error))
            raise (DataError(said) if n else error) from None
        self.network, self._n = fitted.network, fitted.n_rows
        self.table = estimand.evaluate(self.network.compile("cpu"))

    def __repr__(self) -> str:
        return f"EstimatedEffect({self.estimand.formula}, {self._n:,} cases)"

    def __str__(self) -> str:
        return f"{self.estimand.formula}\n{self.table}"

    def bootstrap(self, n: int = 200, *, seed: int = 0) -> Floats:
        """Estimate the effect from `n` resamples of the rows.

        Returns
        -------
        ndarray of float64, shape (n, ...)
            The numbers of `table` for each resample; their quantiles are confidence intervals.
        """
        whole_number("n", n, least=1)
        random = random_generator(seed)
        states = {v: self.network.states(v) for v in self.network.variables}
        draws = []
        for _ in range(n):
            weights = random.multinomial(self._n, np.full(self._n, 1.0 / self._n)).astype(np.float64)
            fitted = fit_parameters(
                self._structure, self._cases, pseudo_counts=self._pseudo_counts, states=states, weights=weights
            )  # fmt: skip
            draws.append(self.estimand.evaluate(fitted.network.compile("cpu")).probabilities)
        return np.array(draws)


def identify(graph: AdjustableGraph, outcome: Names, do: Names, given: Names = ()) -> Estimand:
    """Find a formula of an effect; see `CausalGraph.identify`."""
    y, x, z = graph.numbers(outcome, "outcome"), graph.numbers(do, "do"), graph.numbers(given, "given")
    for a, b, what in ((y, x, "the outcome and a cause"), (y, z, "the outcome and given"), (x, z, "a cause and given")):
        if a & b:
            raise ArgumentError(f"{', '.join(sorted(graph.names(a & b)))!r} is {what}")
    if not x or not y:
        raise ArgumentError("an outcome and a cause are needed: identify('cancer', do='smoke')")
    query = _listed(outcome), _listed(do), _listed(given)
    if not z:
        simple = _simple(graph, query, y, x)
        if simple is not None:
            return simple
    try:
        expression = _conditional_effect(graph, y, x, z)
    except _Hedge as result:
        raise NotIdentified(*_explained(graph, query, (y, x, z), result)) from None
    return Estimand(graph, query, "general", expression)


def _listed(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))


def _simple(graph: AdjustableGraph, query: tuple[tuple[str, ...], ...], y: set[int], x: set[int]) -> Estimand | None:
    """The effect by a method with a short formula."""
    outcome, do, _ = query
    if not graph.causal_vertices(x, y) & y:
        return Estimand(graph, query, "no effect", Distribution(outcome)) if not graph.descendants_of(x) & y else None
    if not y <= graph.descendants_of(x):
        return None
    adjusted = graph.adjustment_set(do, outcome)
    if adjusted is not None:
        return adjusting(graph, query, adjusted)
    if len(do) == 1 == len(outcome):
        door = graph.front_door_set(do[0], outcome[0])
        if door is not None:
            z = tuple(v for v in graph.variables if v in door)
            again = total(do, product([Distribution(outcome, do + z), Distribution(do)]))  # its cause is summed out
            expression = total(z, product([Distribution(z, do), again]))
            return Estimand(graph, query, "front-door", expression, frozenset(z))
    return None


def adjusting(graph: AdjustableGraph, query: tuple[tuple[str, ...], ...], adjusted: set[str]) -> Estimand:
    """The effect by adjustment for a set."""
    outcome, do, _ = query
    z = tuple(v for v in graph.variables if v in adjusted)
    factors = [Distribution(outcome, do + z), *([Distribution(z)] if z else [])]
    return Estimand(graph, query, "back-door", total(z, product(factors)), frozenset(z))


class _Hedge(Exception):
    """Two sets of vertices that prove that an effect is not identified."""

    def __init__(self, larger: set[int], smaller: set[int]):
        super().__init__()
        self.larger, self.smaller = larger, smaller


def _conditional_effect(graph: AdjustableGraph, y: set[int], x: set[int], z: set[int]) -> Expression:
    """P(y | do(x), z): the conditions that do not act like interventions are divided by."""
    x, z = _interventions(graph, y, x, z)
    joint = _effect(graph, y | z, x)
    return quotient(joint, total(sorted(graph.names(y)), joint)) if z else joint


def _interventions(graph: AdjustableGraph, y: set[int], x: set[int], z: set[int]) -> tuple[set[int], set[int]]:
    """The causes with the conditions that act like interventions, and the other conditions."""
    while True:
        v = next((v for v in sorted(z) if not graph.connected_after({v}, y, x | z - {v}, x, {v})), None)
        if v is None:
            return x, z
        x, z = x | {v}, z - {v}


def _effect(graph: AdjustableGraph, y: set[int], x: set[int]) -> Expression:
    """P(y | do(x)) by the districts of what is left without the causes."""
    order = graph.in_order(graph.ancestors_of(y))
    factors = []
    for part, shrinking in _parts(graph, y, x):
        district = shrinking[0][0]
        terms = []
        for i, v in enumerate(order):
            if v in district:
                given = _relevant(graph, v, set(order[: i + 1]))
                terms.append(Distribution((graph.variables[v],), tuple(graph.variables[u] for u in given)))
        factors.append(_shrunk(graph, part, shrinking, product(terms)))
    left = graph.ancestors_of(y, without=x) - x
    return total(_sorted_names(graph, left - y), product(factors))


def _parts(graph: AdjustableGraph, y: set[int], x: set[int]) -> list[tuple[set[int], Steps]]:
    """The districts of what is left without the causes, and how the district of each in the graph shrinks to it.

    The next district is one of the ancestors of the last step. The effect is identified unless `_Hedge` is raised.
    """
    whole = graph.districts(graph.ancestors_of(y))
    result = []
    for part in graph.districts(graph.ancestors_of(y, without=x) - x):
        district, steps = next(d for d in whole if part <= d), []
        while True:
            above = graph.ancestors_within(part, district)
            steps.append((district, above))
            if above == part:
                break
            if above == district:
                raise _Hedge(district, part)
            district = next(d for d in graph.districts(above) if part <= d)
        result.append((part, steps))
    return result


def _sorted_names(graph: AdjustableGraph, vertices: set[int]) -> list[str]:
    return [graph.variables[v] for v in sorted(vertices)]


def _relevant(graph: AdjustableGraph, v: int, before: set[int]) -> list[int]:
    """The variables that v depends on among the variables before it: its district and the parents of that."""
    district = next(d for d in graph.districts(before) if v in d)
    return graph.in_order(({p for u in district for p in graph.parents_of(u)} | district) - {v})


def _shrunk(graph: AdjustableGraph, part: set[int], steps: Steps, whole: Expression) -> Expression:
    """Q[part] from Q[district], where Q[S] is the distribution of S if all else is set; see `_parts`."""
    for (district, above), (inner, _) in pairwise(steps):
        known = total(_sorted_names(graph, district - above), whole)
        order, factors = graph.in_order(above), []
        for i, v in enumerate(order):
            if v in inner:
                after = [graph.variables[u] for u in order[i + 1 :]]
                factors.append(quotient(total(after, known), total([*after, graph.variables[v]], known)))
        whole = product(factors)
    return total(_sorted_names(graph, steps[-1][0] - part), whole)


def _explained(
    graph: AdjustableGraph, query: tuple[tuple[str, ...], ...], sets: tuple[set[int], set[int], set[int]], hedge: _Hedge
) -> tuple[str, tuple[frozenset[str], frozenset[str]]]:
    """The message of an effect that is not identified, and its hedge."""
    larger, smaller = (frozenset(graph.names(s)) for s in (hedge.larger, hedge.smaller))
    helps: list[str] = []
    for pair in [pair for pair in graph.common_causes if larger >= {*pair}]:
        name = f"the common cause of {pair[0]} and {pair[1]}"
        more = type(graph)(
            [*graph.variables, name], [*graph.arcs, (name, pair[0]), (name, pair[1])],
            [p for p in graph.common_causes if p != pair],
        )  # fmt: skip
        try:
            causes, conditions = _interventions(more, *sets)
            _parts(more, sets[0] | conditions, causes)
        except _Hedge:
            continue
        helps.append(name)
        if len(helps) == MOST_NAMED:
            break
    effect = Distribution(query[0]).text()[:-1] + " | " + ", ".join([f"do({', '.join(query[1])})", *query[2]]) + ")"
    hint = f"; it would be if {' or '.join(helps)} were measured" if helps else ""
    message = (
        f"{effect} is not determined by what is measured: hidden common causes join {', '.join(sorted(larger))}, and "
        f"within it {', '.join(sorted(smaller))} (a hedge){hint}"
    )
    return message, (larger, smaller)
