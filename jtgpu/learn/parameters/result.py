"""`Fit`: a fitted network, and how it was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ...errors import ArgumentError
from ...inference.results.result import Result
from ...model.dynamic import DynamicNetwork
from ...model.gaussian import Gaussian
from ...model.mixed import MixedNetwork
from ...model.mixed_dynamic import MixedDynamicNetwork
from ...model.network import BayesianNetwork
from ...util import late_imports
from ...util.arguments import check_keywords, number, whole_number
from ...util.arrays import Floats
from ...util.cells import MissingReport
from ...util.iteration import Iteration
from ...util.text_table import counted
from .information import GaussianErrors

if TYPE_CHECKING:
    from .em import EMState

N = TypeVar("N")
Errors = Floats | GaussianErrors
MAX_LISTED = 1000  # rows of CPTs, or entries, that a report lists


@check_keywords()
@dataclass(frozen=True, eq=False, repr=False)
class Fit(late_imports.Shown, Generic[N]):
    """The result of `jtgpu.learn.fit`.

    Attributes
    ----------
    network : BayesianNetwork, MixedNetwork, DynamicNetwork or MixedDynamicNetwork
        The structure with the estimated parameters.
    log_likelihood : float
        ln P(data | parameters), weighted, with densities in the units of the columns; in stepwise EM, the sum over the
        chunks, each under the CPTs before it.
    objective : float
        `log_likelihood` plus the ln prior of what was estimated, up to a constant: what was maximised.
    history : tuple of Iteration
        One entry a pass over the rows: ``number``, ``objective``, ``log_likelihood``, ``change``, ``seconds``,
        ``accelerated``; one entry a chunk in stepwise EM.
    converged : bool
        Whether the objective stayed the same within the tolerance; True if the rows were counted in one pass.
    interrupted : bool
        Whether Ctrl-C ended the iterations; the network is that of the last whole one.
    method : {"counts", "available", "em", "stepwise"}
    counts : mapping of str to ndarray
        (Expected) counts of each estimated CPT, without the prior; of a number the rows of each configuration of its
        discrete parents; of a noisy node the effects of each state of each parent, then of the leak. Of sequences they
        are summed over the slices in which the CPT holds: ``counts["rain"]``, and ``counts["rain[0]"]`` of its CPT in
        slice 0.
    n_rows, n_dropped, n_impossible, n_weightless : int
        Rows that were fitted; that were dropped because of missing cells; that were left out because their
        probability was 0 at the start; that were left out because their weight is 0. Equal rows that were merged count
        once in `n_impossible`.
    n_sequences : int
        Sequences that were fitted: `n_rows` is the number of their slices, and `n_impossible` and `n_weightless` count
        sequences. 0: the rows are no sequences.
    restarts : tuple of float
        The objective that each start reached.
    states_from_data : tuple of str
        Variables whose states were found in the data.
    unseen : mapping of str to tuple of str
        States that occur in no row, of each variable that has such states and is not hidden.
    missing : MissingReport
        Missing cells by column (``missing.cells``), and the words that were read as such (``missing.words``).

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> fit = jtgpu.learn.fit(jtgpu.load("asia"), data)
    >>> fit.converged, fit.n_rows, fit.network.cpt("smoke").tolist()
    (True, 500, [0.5, 0.5])
    """

    network: N
    log_likelihood: float
    objective: float
    history: tuple[Iteration, ...]
    converged: bool
    interrupted: bool
    method: str
    counts: Mapping[str, Floats]
    n_rows: int
    n_dropped: int = 0
    n_impossible: int = 0
    restarts: tuple[float, ...] = ()
    states_from_data: tuple[str, ...] = ()
    unseen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    missing: MissingReport = field(default_factory=MissingReport)
    n_weightless: int = 0
    n_sequences: int = 0
    _errors: Mapping[str, Errors] | None = field(default=None, repr=False)
    _rows: tuple[Any, ...] | None = field(default=None, repr=False)  # of numbers: see `value_steps.errors_of`
    # counts with the prior, of the CPT that some variables share
    _posteriors: Sequence[tuple[tuple[str, ...], Floats]] = field(default=(), repr=False)

    @classmethod
    def _of(
        cls, network: N, state: EMState, method: str, counts: Mapping[str, Floats], n_rows: int, **more: Any
    ) -> Fit[N]:
        """The fit of a network that EM or counting has reached."""
        return cls(
            network, state.evaluation.log_likelihood, state.objective, state.history, state.converged,
            state.interrupted, method, counts, n_rows, **more,
        )  # fmt: skip

    def credible(
        self, target: str, evidence: Mapping[str, object] | None = None, *, level: float = 0.95, draws: int = 1000,
        seed: int = 0,
    ) -> CredibleIntervals:  # fmt: skip
        """Credible intervals of P(target | evidence): how sure an answer is, given as many cases as were fitted.

        The CPTs are drawn from Dirichlet distributions with the counts and the prior as parameters, whose means are the
        fitted CPTs; each draw answers the query. EM's expected counts take the place of counts, so the intervals are
        too narrow where many cells are missing.

        Parameters
        ----------
        target : str
        evidence : mapping, optional
            See `jtgpu.JunctionTree.posteriors`.
        level : float
            Probability of an interval.
        draws : int
            Number of networks that are drawn.
        seed : int
            The same seed gives the same draws.

        Raises
        ------
        UnknownVariable, UnknownState, ImpossibleEvidence
            See `jtgpu.JunctionTree.posteriors`.
        ArgumentError
            If an option has no such value.

        Examples
        --------
        >>> import jtgpu
        >>> fit = jtgpu.learn.fit({"rain": []}, {"rain": ["yes"] * 3 + ["no"] * 17})
        >>> intervals = fit.credible("rain")
        >>> bool(0.05 < intervals.lower[1] < intervals.probabilities[1] < intervals.upper[1] < 0.4)
        True
        """
        if not isinstance(self.network, BayesianNetwork):
            raise ArgumentError("credible intervals are available for networks of states without slices only")
        if self.network.noisy:
            raise ArgumentError("credible intervals are not available for strengths; fit net.expand()")
        return credible_intervals(
            self.network, self._posteriors, target, evidence, level=level, draws=draws, seed=seed
        )  # fmt: skip

    def standard_errors(self, variable: str) -> Any:
        """Standard errors of the parameters of a variable; infinite where the data do not determine them.

        With missing cells they come from the observed information of all parameters together: the curvature of the
        objective, by differences of the expected score, a pass over incomplete rows for each parameter. With
        ``standard_errors="scores"`` it is the sum of outer products of the scores of cases, which takes one pass and
        is right only where the model is. Where nothing is missing, both are the closed form.

        Parameters
        ----------
        variable : str
            Of sequences, ``"rain[0]"`` is the CPT in slice 0.

        Returns
        -------
        ndarray or GaussianErrors
            An array of the shape of the CPT. Of a number: ``.mean``, ``.coefficients`` and ``.sd`` with the axes of its
            `jtgpu.Gaussian`.

        Raises
        ------
        ArgumentError
            If the network was fitted without ``EM(standard_errors=...)``, which numbers of rows do not need; if it has
            more than 2,000 parameters for "information".
        """
        errors, net = self._errors, self._any
        if errors is None and self._rows is None:
            raise ArgumentError('standard errors require fit(..., em=EM(standard_errors="information"))')
        if errors is None:
            errors = late_imports.number_fits().errors_of(net, self.method, *(self._rows or ()))
            object.__setattr__(self, "_errors", errors)
        return errors[variable if variable in errors else net.variables[net.index(variable)]]

    @property
    def _any(self) -> Any:
        """The network, of which kind is decided where it matters."""
        return self.network

    @property
    def empty_rows(self) -> dict[str, list[dict[str, str]]]:
        """Rows of CPTs and configurations of numbers without any count, as states of the parents.

        These are those of the prior or the start.
        """
        rows: dict[str, list[dict[str, str]]] = {}
        for title, weights in self._configurations():
            empty = np.argwhere(weights <= 0)[:MAX_LISTED].tolist()
            if empty:
                parents = _parents(self._any, title)
                rows[title] = [{p: own[s] for (p, own), s in zip(parents, row, strict=True)} for row in empty]
        return rows

    @property
    def n_empty_rows(self) -> dict[str, int]:
        """How many rows of each estimated CPT have no count; `empty_rows` lists at most 1,000 of them."""
        return {title: n for title, weights in self._configurations() if (n := int((weights <= 0).sum()))}

    def _configurations(self) -> list[tuple[str, Floats]]:
        """(Expected) rows of each configuration of the discrete parents of what was estimated."""
        numbers = self.network.numbers if isinstance(self.network, MixedNetwork) else ()
        noisy = getattr(self.network, "noisy", ())
        return [
            (title, counts if title in numbers else counts.sum(axis=-1)) for title, counts in self.counts.items()
            if title not in noisy
        ]  # fmt: skip

    @property
    def _case(self) -> str:
        """The noun of a case, which has a weight and a probability."""
        return "sequence" if self.n_sequences else "row"

    def _sizes(self) -> dict[str, int]:
        """Numbers of the cases that were fitted, by kind."""
        return {"sequences": self.n_sequences, "slices": self.n_rows} if self.n_sequences else {"rows": self.n_rows}

    def report(self) -> dict[str, Any]:
        """The summary of the fit as values that JSON can hold."""
        report: dict[str, Any] = {
            "network": self._any.name,
            "variables": len(self._any),
            "numbers": list(getattr(self.network, "numbers", ())),
            "parameters": _n_parameters(self.network),
            "method": self.method,
            **self._sizes(),
            "rows_dropped": self.n_dropped,
            "rows_impossible": self.n_impossible,
            "rows_weightless": self.n_weightless,
            "missing_cells": dict(self.missing.cells),
            "missing_words": {v: list(words) for v, words in self.missing.words.items()},
            "log_likelihood": _finite(self.log_likelihood),
            "objective": _finite(self.objective),
            "iterations": self.history[-1].number if self.history else 0,
            "converged": self.converged,
            "interrupted": self.interrupted,
            "restarts": [_finite(x) for x in self.restarts],
            "hidden": list(self.hidden),
            "fixed": list(self.fixed),
            "states_from_data": {v: list(self._any.states(v)) for v in self.states_from_data},
            "unseen_states": {v: list(s) for v, s in self.unseen.items()},
            "empty_rows": self.empty_rows,
            "n_empty_rows": self.n_empty_rows,
            "history": [
                {k: _finite(x) if isinstance(x, float) else x for k, x in entry._asdict().items()}
                for entry in self.history
            ],
        }
        if self._errors is not None:
            report["standard_errors"] = {v: _plain(e) for v, e in self._errors.items()}
            lost = {v: sum(int(np.isinf(x).sum()) for x in _arrays(e)) for v, e in self._errors.items()}
            report["undetermined"] = {v: n for v, n in lost.items() if n}
        return report

    def _curve(self) -> tuple[list[float], str, str]:
        """Values of the curve that notebooks show, its title, and what its steps are."""
        steps = "chunk" if self.method == "stepwise" else "pass"
        return [entry.objective for entry in self.history], "objective", steps

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """Some lines about the fit."""
        n = self.history[-1].number if self.history else 0
        how = {
            "counts": "complete rows, counted in one pass",
            "available": "each family counted over its complete rows",
            "em": f"EM, {counted(n, 'iteration')}, {'converged' if self.converged else 'not converged'}",
            "stepwise": f"stepwise EM, {counted(n, 'chunk')}",
        }[self.method]
        sizes = ", ".join(counted(n, kind.removesuffix("s")) for kind, n in self._sizes().items())
        lines = [
            f"Fit of {self.network!r}",
            f"  {sizes}: {how}{', interrupted' if self.interrupted else ''}",
            f"  ln P(data) = {self.log_likelihood:.6g}, objective {self.objective:.6g}",
        ]
        lines += [f"  {line}" for line in self.missing.lines(self.n_dropped, self.n_rows + self.n_dropped)]
        if self.n_impossible:
            lines.append(f"  left out: {counted(self.n_impossible, self._case)} of probability 0")
        if self.n_weightless:
            lines.append(f"  left out: {counted(self.n_weightless, self._case)} of weight 0")
        if len(self.restarts) > 1:
            lines.append(f"  objectives of {len(self.restarts)} starts: {', '.join(f'{x:.6g}' for x in self.restarts)}")
        for v, states in self.unseen.items():
            lines.append(f"  {v}: no row has {', '.join(map(repr, states))}")
        if empty := self.n_empty_rows:
            sizes_of = {title: weights.size for title, weights in self._configurations()}
            shares = [f"{v} ({n:,} of {sizes_of[v]:,})" for v, n in [*empty.items()][:8]]
            most = ", ".join(shares) + (", ..." if len(empty) > 8 else "")
            lines.append(f"  CPT rows without data, from the prior or the start: {most}")
        return "\n".join(lines)


def _parents(net: Any, title: str) -> list[tuple[str, tuple[str, ...]]]:
    """The discrete parents of what a title names, and their states."""
    if isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
        v, _, t = title.removesuffix("]").rpartition("[")
        cpt = net.cpt(title) if title in net else net.cpt(v, int(t))
        return [(p, cpt.states(p)) for p in cpt.variables[:-1]]
    return [(p, net.states(p)) for p in net.parents(title) if isinstance(net, BayesianNetwork) or not net.is_number(p)]


def _n_parameters(net: Any) -> int:
    """Free parameters of a network."""
    if isinstance(net, BayesianNetwork):
        return net.n_parameters
    tables: list[Any] = []
    for v in net:
        is_number = not isinstance(net, (BayesianNetwork, DynamicNetwork)) and net.is_number(v)
        tables.append(net.gaussian(v) if is_number else net.cpt(v))
        tables += net.start(v) if isinstance(net, (DynamicNetwork, MixedDynamicNetwork)) else ()
    sizes = [(2 + len(t.coefficients)) * t.mean.size if isinstance(t, Gaussian) else
             prod(np.shape(t)[:-1]) * (np.shape(t)[-1] - 1) for t in tables]  # fmt: skip
    return sum(sizes)


def _arrays(errors: Errors) -> list[Floats]:
    """The arrays of standard errors."""
    if isinstance(errors, GaussianErrors):
        return [errors.mean, *errors.coefficients.values(), errors.sd]
    return [errors]


def _plain(errors: Errors) -> Any:
    """Nested lists, with None for infinities."""
    if isinstance(errors, GaussianErrors):
        slopes = {p: _plain(c) for p, c in errors.coefficients.items()}
        return {"mean": _plain(errors.mean), "coefficients": slopes, "sd": _plain(errors.sd)}
    cells = np.asarray(errors).astype(object)
    cells[np.isinf(errors)] = None
    return cells.tolist()


def _finite(x: float) -> float | None:
    """JSON has no infinities."""
    return x if math.isfinite(x) else None


# Credible intervals of answers: the posterior of a query, by draws of CPTs from their Dirichlet posteriors.

@check_keywords()
@dataclass(frozen=True, eq=False, repr=False)
class CredibleIntervals(Result):
    """Intervals that contain the posterior probabilities of a variable's states with some probability.

    The data frame has a row for each state: ``probability``, ``lower`` and ``upper``; the target is its first column.

    Attributes
    ----------
    target : str
    states : tuple of str
    probabilities : (n_states,) ndarray
        P(state | evidence) in the fitted network.
    lower, upper : (n_states,) ndarray
        The ends of the intervals: quantiles (1 - level) / 2 and (1 + level) / 2 of `draws`.
    draws : (D, n_states) ndarray
        P(state | evidence) in networks whose CPTs are drawn from their posteriors.
    level : float

    Examples
    --------
    >>> import jtgpu
    >>> data = jtgpu.load("asia").compile("cpu").sample(500, seed=1)
    >>> fit = jtgpu.learn.fit(jtgpu.load("asia"), data)
    >>> print(fit.credible("lung", {"xray": "yes"}, seed=1))
    P(lung | evidence) with intervals of 95 %, by 1,000 draws
    lung  probability     lower     upper
    yes      0.590072  0.476514  0.693504
    no       0.409928  0.306496  0.523486
    """

    target: str
    states: tuple[str, ...]
    probabilities: Floats
    draws: Floats
    level: float

    @property
    def lower(self) -> Floats:
        return np.asarray(np.quantile(self.draws, (1 - self.level) / 2, axis=0))

    @property
    def upper(self) -> Floats:
        return np.asarray(np.quantile(self.draws, (1 + self.level) / 2, axis=0))

    def _title(self) -> str:
        return f"P({self.target} | evidence) with intervals of {100 * self.level:g} %, by {len(self.draws):,} draws"

    def _columns(self) -> dict[str, object]:
        numbers = {"probability": self.probabilities, "lower": self.lower, "upper": self.upper}
        return {self.target: [*self.states], **numbers}


def credible_intervals(
    network: BayesianNetwork, weights: Sequence[tuple[tuple[str, ...], Floats]], target: str,
    evidence: Mapping[str, object] | None, *, level: float, draws: int, seed: int,
) -> CredibleIntervals:  # fmt: skip
    """Intervals of a posterior, from counts with the prior of the CPTs that some variables share."""
    if not 0.0 < number("level", level) < 1.0:
        raise ArgumentError(f"level must be a probability between 0 and 1, not {level!r}")
    n, seed = whole_number("draws", draws, 2), whole_number("seed", seed, 0)
    with network.compile("cpu") as tree:
        name = network.variables[network.index(target)]
        own = np.asarray(tree.posteriors(evidence, targets=[name])[name].probabilities)
        samples = np.empty((n, len(own)))
        for i in range(n):
            rng = np.random.Generator(np.random.Philox(key=[seed, i]))
            cpts: dict[str, Floats] = {}
            for variables, counts in weights:
                drawn = _dirichlet(rng, counts, np.asarray(network.cpt(variables[0])))
                cpts |= dict.fromkeys(variables, drawn)
            tree.reload(network.replace(cpt=cpts))
            samples[i] = tree.posteriors(evidence, targets=[name])[name].probabilities
    return CredibleIntervals(name, network.states(name), own, samples, level)


def _dirichlet(rng: np.random.Generator, weights: Floats, cpt: Floats) -> Floats:
    """A CPT whose rows have Dirichlet distributions with these parameters; rows that have none stay."""
    drawn = rng.standard_gamma(weights)
    sums = drawn.sum(axis=-1, keepdims=True)
    return np.where(sums > 0.0, drawn / np.where(sums > 0.0, sums, 1.0), cpt)
