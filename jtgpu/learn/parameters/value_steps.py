"""EM of networks with numbers: densities as families, and the E-step over rows of states and values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ImpossibleEvidence
from ...inference.tables import at_row
from ...mixed.fitting import (
    Strength,
    density_of,
    far_from_zero,
    lines_of,
    log_prior_of,
    moved,
    one_pass,
    pooled_prior,
    regressions,
)
from ...mixed.regressions import FamilyRows
from ...mixed.tree import MixedTree
from ...util.elementary import exps, logs
from .em import EMState, Problem, Theta, first_state, maximise
from .expectation import Evaluation
from .families import Sharing, Table

if TYPE_CHECKING:
    from ...inference.tables import Table as Cells
    from ...mixed.components import Numbers
    from ...mixed.evidence import MixedCases
    from ...model.mixed import MixedNetwork
    from ...util.arrays import Floats, Ints
    from ...util.iteration import Iteration

LEAST_SD = 0.1  # of a standard deviation: what an extrapolation leaves of it


class Density(NamedTuple):
    """The density of a number, as EM estimates it: (K, m + 2) intercept, slopes and sd, scaled."""

    members: tuple[int, ...]
    numbers: Numbers
    g: int  # its number among the numbers
    prior: Floats  # (K, m + 2, m + 2) sums of z z', z = (1, numeric parents, number), as those of rows
    rows: FamilyRows | None  # where all are complete
    errors: dict[str, float]  # gets what rounding of sums may have changed, relative

    def maximise(self, sums: Theta, old: Floats) -> Floats:
        lines, error = regressions(self.numbers, self.g, sums[self.members[0]] + self.prior, old, self.rows)
        self.errors[self.numbers.names[self.g]] = error
        return lines

    def log_prior(self, theta: Floats) -> float:
        rows, g = self.rows, self.g
        return log_prior_of(self.prior, theta, None if rows is None else lambda contrast: rows.squares(g, contrast))

    def extrapolated(self, first: Floats, second: Floats, third: Floats, length: float) -> Floats:
        a, b, c = (np.column_stack([x[:, :-1], logs(x[:, -1])]) for x in (first, second, third))
        lines = a + 2 * length * (b - a) + length**2 * (c - 2 * b + a)
        lines[:, -1] = np.clip(exps(np.clip(lines[:, -1], -700, 700)), LEAST_SD * third[:, -1], third[:, -1] / LEAST_SD)
        return lines


class Values:
    """Rows of states and values: where EM starts, what it estimates, and its passes."""

    def __init__(  # noqa: PLR0913
        self, start: MixedNetwork, cases: MixedCases, weights: Floats, strength: Strength,
        options: Mapping[str, Any], *, fixed: Sequence[str] = (), sharing: Sharing | None = None,
        hidden: Sequence[str] = (), source: tuple[Cells, Ints] | None = None,
    ):  # fmt: skip
        # start: gives the units, too
        # fixed: variables whose parameters stay
        # sharing: of variables with states, by number among these; None: each by itself
        # source: the table, and the row of each case in it
        self._far = far_from_zero(start, cases, weights)
        shift = np.array([self._far.get(y, 0.0) for y in start.numbers])
        if self._far:
            cases = replace(cases, values=cases.values - shift)
            start = moved(start, {y: -x for y, x in self._far.items()})
        self.cases, self.weights, self.hidden, self._source = cases, weights, hidden, source
        self.tree = MixedTree(start, "cpu", max_configurations=1 << 22, options=options)
        self.is_complete = not hidden and not np.isnan(cases.values).any() and not (cases.states < 0).any()
        self.errors: dict[str, float] = {}
        numbers, prior = self.tree.answerer.numbers, pooled_prior(self.tree, cases, weights, strength)
        rows = FamilyRows(numbers, cases, weights, strength.rows, shift) if self.is_complete else None
        names = start.discrete.variables
        groups = [(i,) for i, v in enumerate(names) if v not in fixed] if sharing is None else sharing.groups
        families: list[Any] = [
            Table(tuple(start.index(names[i]) for i in group), prior.counts[names[group[0]]]) for group in groups
        ]
        families += [
            Density((start.index(v),), numbers, g, prior.moments[g], rows, self.errors)
            for g, v in enumerate(start.numbers) if v not in fixed
        ]  # fmt: skip
        self.families = tuple(families)

        self._first: Theta = [
            lines_of(numbers, start.numbers.index(v), start.gaussian(v)) if start.is_number(v) else
            np.asarray(start.cpt(v)) for v in start
        ]  # fmt: skip

    def start_tables(self, complete_counts: Any, seed: int, n: int) -> Theta:
        """The n-th start: the network's, and random ones."""
        if n == 0 and not self.hidden:
            return self._first
        rng, net, theta = np.random.default_rng([seed, n]), self.tree.network, [*self._first]
        chosen: dict[Any, Ints] = {}  # the same rows for all numbers with the same parents
        for family in self.families:
            first, *others = family.members
            own = np.array(theta[first])
            if not isinstance(family, Density):
                own = rng.standard_exponential(own.shape) + 1e-9
                own /= own.sum(axis=-1, keepdims=True)
            elif len(own) > 1:  # around rows
                parents, values = net.discrete_parents(first), self.cases.values[:, family.g]
                if parents not in chosen:
                    chosen[parents] = rng.choice(len(values), len(own), replace=len(values) < len(own))
                x = values[chosen[parents]] / family.numbers.scale[family.g]
                own[:, 0] = np.where(np.isnan(x), own[:, 0], x)
                own[:, 1:-1] = 0.0
            for v in (first, *others):
                theta[v] = own
        return theta

    def _network(self, theta: Theta) -> MixedNetwork:
        net, numbers = self.tree.network, self.tree.answerer.numbers
        return net.replace({
            v: density_of(numbers, net.numbers.index(v), own) if net.is_number(v) else own
            for v, own in zip(net, theta, strict=True)
        })  # fmt: skip

    def network(self, theta: Theta) -> MixedNetwork:
        """The network with some parameters, in the units of the rows."""
        return moved(self._network(theta), self._far)

    def evaluate(self, theta: Theta) -> Evaluation:
        """Expected counts and sums of all rows under some parameters."""
        net = self._network(theta)
        self.tree.reload(net)
        sums = one_pass(self.tree, self.cases, self.weights)
        own = [sums.moments[net.numbers.index(v)] if net.is_number(v) else sums.counts[v] for v in net]
        dead = sums.impossible & (self.weights > 0)
        return Evaluation(own, sums.log_likelihood, [dead], float(self.weights[~dead].sum()))

    def counted(self, listen: Callable[[Iteration], None]) -> EMState:
        """The parameters where nothing is missing: one M-step."""
        problem = Problem(self.evaluate, self.families)
        start = first_state(problem, self._first)
        listen(start.history[0])
        state = first_state(problem, maximise(self.families, start.evaluation.sums, start.tables))
        last = state.history[0]._replace(number=1, change=state.objective - start.objective)
        listen(last)
        return replace(state, history=(*start.history, last), converged=True)

    def complete_counts(self) -> Theta:
        """Not needed: starts are the network, or random."""
        return []

    def error(self, evaluation: Evaluation) -> ImpossibleEvidence | None:
        """The error for the first row of probability 0."""
        row = next(iter(np.flatnonzero(evaluation.impossible[0]).tolist()), None)
        if row is None:
            return None
        listed = ", ".join(self.cases.findings(self.tree.network, row))
        reason = f"this row has probability 0 at the start: {listed} (on_impossible=\"flag\" leaves such rows out)"
        if self._source is not None:
            reason = at_row(self._source[0], int(self._source[1][row]), reason)
        return ImpossibleEvidence(reason)

    def leave_out(self, evaluation: Evaluation) -> tuple[int, bool]:
        """Leave out the rows of probability 0."""
        dead = evaluation.impossible[0]
        self.weights = np.where(dead, 0.0, self.weights)
        return int(dead.sum()), bool((self.weights > 0).any())

    def digests(self) -> dict[str, str]:
        """What decides the result of a run, by name."""
        def digest(*arrays: Any) -> str:
            data = hashlib.sha256()
            for array in arrays:
                data.update(np.ascontiguousarray(array).tobytes())
            return data.hexdigest()

        net = self.tree.network
        return {
            "data": digest(self.cases.states, self.cases.values, self.weights),
            "structure": repr([(v, net.states(v), net.parents(v)) for v in net]), "start": digest(*self._first),
            "prior": digest(*(f.prior for f in self.families)), "hidden variables": repr(self.hidden),
            "tied or fixed variables": repr([f.members for f in self.families]),
        }  # fmt: skip

    def close(self) -> None:
        """Free the memory."""
        self.tree.close()
