"""`Fit`: a fitted network, and how it was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...errors import ArgumentError
from ...model.network import BayesianNetwork
from ...util import late_imports
from ...util.arguments import check_keywords
from ...util.arrays import Floats
from ...util.cells import MissingReport
from ...util.iteration import Iteration
from ...util.text_table import counted
from .credible import CredibleIntervals, credible_intervals

if TYPE_CHECKING:
    pass

MAX_LISTED = 1000  # rows of CPTs, or entries, that a report lists


@check_keywords()
@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """The result of `jtgpu.learn.fit`.

    Attributes
    ----------
    network : BayesianNetwork
        The structure with the estimated CPTs.
    log_likelihood : float
        ln P(data | CPTs), weighted; in stepwise EM, the sum over the chunks, each under the CPTs before it.
    objective : float
        `log_likelihood` plus the ln prior of the estimated CPTs, up to a constant: what was maximised.
    history : tuple of Iteration
        One entry a pass over the rows: ``number``, ``objective``, ``log_likelihood``, ``change``, ``seconds``,
        ``accelerated``; one entry a chunk in stepwise EM.
    converged : bool
        Whether the objective stayed the same within the tolerance; True if the rows were counted in one pass.
    interrupted : bool
        Whether Ctrl-C ended the iterations; the network is that of the last whole one.
    method : {"counts", "available", "em", "stepwise"}
    counts : mapping of str to ndarray
        (Expected) counts of each estimated CPT, without the prior.
    n_rows, n_dropped, n_impossible, n_weightless : int
        Rows that were fitted; that were dropped because of missing cells; that were left out because their
        probability was 0 at the start; that were left out because their weight is 0. Equal rows that were merged count
        once in `n_impossible`.
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

    network: BayesianNetwork
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
    _errors: Mapping[str, Floats] | None = field(default=None, repr=False)
    # counts with the prior, of the CPT that some variables share
    _posteriors: Sequence[tuple[tuple[str, ...], Floats]] = field(default=(), repr=False)

    def credible(
        self, target: str, evidence: Mapping[str, Any] | None = None, *, level: float = 0.95, draws: int = 1000,
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
        return credible_intervals(
            self.network, self._posteriors, target, evidence, level=level, draws=draws, seed=seed
        )  # fmt: skip

    def standard_errors(self, variable: str) -> Floats:
        """Standard errors of the entries of a CPT; infinite where the data do not determine an entry.

        Raises
        ------
        ArgumentError
            If the network was fitted without ``errors=True``.
        """
        if self._errors is None:
            raise ArgumentError("standard errors require fit(..., em=EM(standard_errors=True))")
        if variable in self._errors:
            return self._errors[variable]
        return self._errors[self.network.variables[self.network.index(variable)]]

    @property
    def empty_rows(self) -> dict[str, list[dict[str, str]]]:
        """Rows of estimated CPTs without any count, as states of the parents: these are those of the prior or start."""
        rows: dict[str, list[dict[str, str]]] = {}
        for v, counts in self.counts.items():
            parents = self.network.parents(v)
            empty = np.argwhere(counts.sum(axis=-1) <= 0)
            if len(empty):
                rows[v] = [
                    {p: self.network.states(p)[s] for p, s in zip(parents, row, strict=True)}
                    for row in empty[:MAX_LISTED].tolist()
                ]
        return rows

    @property
    def n_empty_rows(self) -> dict[str, int]:
        """How many rows of each estimated CPT have no count; `empty_rows` lists at most 1,000 of them."""
        numbers = {v: int((counts.sum(axis=-1) <= 0).sum()) for v, counts in self.counts.items()}
        return {v: n for v, n in numbers.items() if n}

    _CASES: ClassVar[str] = "rows"  # what has a weight and a probability

    def _parameters(self) -> int:
        """Free parameters of the CPTs."""
        return self.network.n_parameters

    def _sizes(self) -> dict[str, int]:
        """Numbers of the cases that were fitted, by kind."""
        return {"rows": self.n_rows}

    def report(self) -> dict[str, Any]:
        """The summary of the fit as values that JSON can hold."""
        report: dict[str, Any] = {
            "network": self.network.name,
            "variables": len(self.network),
            "parameters": self._parameters(),
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
            "states_from_data": {v: list(self.network.states(v)) for v in self.states_from_data},
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
            report["undetermined"] = {v: int(np.isinf(e).sum()) for v, e in self._errors.items() if np.isinf(e).any()}
        return report

    def _curve(self) -> tuple[list[float], str, str]:
        """Values of the curve that notebooks show, its title, and what its steps are."""
        steps = "chunk" if self.method == "stepwise" else "pass"
        return [entry.objective for entry in self.history], "objective", steps

    def _repr_html_(self) -> str:
        return late_imports.html(self)

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
            lines.append(f"  {self.n_impossible:,} {self._CASES} of probability 0 were left out")
        if self.n_weightless:
            lines.append(f"  {self.n_weightless:,} {self._CASES} of weight 0 were left out")
        if len(self.restarts) > 1:
            lines.append(f"  objectives of {len(self.restarts)} starts: {', '.join(f'{x:.6g}' for x in self.restarts)}")
        for v, states in self.unseen.items():
            lines.append(f"  {v}: no row has {', '.join(map(repr, states))}")
        if empty := self.n_empty_rows:
            shares = [f"{v} ({n:,} of {self.counts[v][..., 0].size:,})" for v, n in [*empty.items()][:8]]
            most = ", ".join(shares) + (", ..." if len(empty) > 8 else "")
            lines.append(f"  CPT rows without data, from the prior or the start: {most}")
        return "\n".join(lines)


def _plain(errors: Floats) -> Any:
    """Nested lists, with None for infinities."""
    cells = errors.astype(object)
    cells[np.isinf(errors)] = None
    return cells.tolist()


def _finite(x: float) -> float | None:
    """JSON has no infinities."""
    return x if math.isfinite(x) else None
