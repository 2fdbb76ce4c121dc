"""`Stream`: one sequence whose slices come one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.base import Evidence
from ..backends.reference import ExtendedEvidence, exponents_of
from ..backends.slices import Between
from ..columns.arrow import number_array
from ..errors import ArgumentError, EvidenceError, ImpossibleEvidence, shown
from ..inference.evidence import plain_states, read_findings
from ..inference.results.marginals import Posterior
from ..model.editing import coefficient_name
from ..util.arguments import check_keywords, mapping
from ..util.cells import is_missing
from ..util.elementary import log, logs
from ..util.equality import ByValue
from .number_rows import HALF_LOG_2PI, LEAST_EXPONENT, LN2, regression, scaled_densities, too_far
from .propagation import LEAST
from .sequences import Sequences
from .side_by_side import extended_table

if TYPE_CHECKING:
    from ..inference.evidence import Findings
    from ..model.mixed_dynamic import MixedDynamicNetwork
    from ..util.arrays import Floats, Ints
    from .step import Step


class Stream:
    """A sequence whose slices come one by one; created by ``tree.stream()``.

    Examples
    --------
    >>> import jtgpu
    >>> dyn = jtgpu.DynamicNetwork(
    ...     {"rain": ["no", "yes"], "umbrella": ["no", "yes"]},
    ...     {"rain": [("rain", 1)], "umbrella": ["rain"]},
    ...     {"rain": [[0.7, 0.3], [0.3, 0.7]], "umbrella": [[0.8, 0.2], [0.1, 0.9]]},
    ...     start={"rain": [0.5, 0.5]},
    ... )
    >>> live = dyn.compile(backend="reference").stream()
    >>> round(live.step({"umbrella": "yes"})["rain"]["yes"], 3)
    0.818
    >>> round(live.step({"umbrella": "yes"})["rain"]["yes"], 3)
    0.883

    Attributes
    ----------
    log_evidence : float
        Natural logarithm of the probability of all evidence so far.
    """

    def __init__(self, step: Step):
        self._step, self._t = step, 0
        # the message is `_alpha` times 2**`_power`; no positive entry is below 2**`_low`
        self._alpha: Floats = step.first()
        self._power, self._low, self._is_ordinary = np.zeros(step.cells, np.int64), 0, True  # all of `_power` are 0
        self._least = [step.least(t, frozenset()) for t in range(step.order + 1)]
        self._trees = [step.tree(t) for t in range(step.order + 1)]
        self.log_evidence = 0.0
        ptr: list[int] = step.backend(0).cell_ptr.tolist()
        self._own = ptr[step.after_number], ptr[step.after_number + 1]
        # variables with children in later slices have marginals of the message to the next slice
        inner = {v: axis for axis, v in enumerate(step.after) if v < step.n}
        self._targets = (*(v for v in range(step.n) if v not in inner), step.after_number)
        states = np.unravel_index(np.arange(step.cells), step.shape)
        cards = {v: len(step.net.states(v)) for v in inner}
        self._states = np.array([states[axis] for axis in inner.values()], np.int64).reshape(-1, step.cells)
        self._sums = np.concatenate([np.arange(cards[v])[:, None] == states[axis] for v, axis in inner.items()])
        self._sums = self._sums.astype(np.float64)  # (cells of those variables, K)
        self._alone = len(step.after) == 1 and step.after[0] in inner  # the message is the posterior
        ends = np.cumsum([0, *cards.values()]).tolist()
        places = dict(zip(inner, pairwise(ends), strict=True))
        self._read: list[tuple[str, tuple[str, ...], bool, int, int]] = []  # variable, states, whether inner, cells
        for v, name in enumerate(step.net.variables):
            first, last = places.get(v, (ptr[v], ptr[v + 1]))
            self._read.append((name, step.net.states(v), v in places, first, last))

    def step(self, evidence: Findings | None = None, *, likelihood: Findings | None = None) -> Mapping[str, Posterior]:
        """Take the evidence of the next slice, and return the posteriors of all its variables.

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability zero; the stream stays as it was.
        """
        return self.advance(evidence, likelihood)

    def advance(
        self, evidence: Findings | None, likelihood: Findings | None, exponents: Mapping[int, Ints] | None = None
    ) -> Mapping[str, Posterior]:
        """`step` with powers of two that likelihoods of some variables are multiplied by."""
        step = self._step
        state = None
        weights: dict[int, Floats] = {}
        if likelihood is None and type(evidence) is dict:
            state = plain_states(step.net, evidence, step.n_variables)
        if state is None:
            given = read_findings(step.net, evidence, likelihood)
            state, weights = np.full(step.n_variables, -1, np.int32), dict(given.likelihood)
            state[: step.n] = given.state
        kind = self._t if self._t < step.order else -1
        low = self._least[kind]
        for table in weights.values():
            low += math.frexp(table.min(where=table > 0, initial=1.0))[1] - 1
        if self._low + low < LEAST:
            self._low = math.frexp(self._alpha.min(where=self._alpha > 0, initial=1.0))[1] - 1
        if self._low + low < LEAST or exponents or not self._is_ordinary:
            return self._extended(ExtendedEvidence(state, weights, exponents or {}))
        self._low += low
        number, cells = step.before_number, self._alpha
        if len(step.before) > 1:
            cells = step.cells_of(number, step.before, cells[None])[0]
        weights[number] = weights[number] * cells if number in weights else cells
        try:
            result = step.backend_of(self._trees[kind]).run_case(Evidence(state, weights), self._targets)
        except ImpossibleEvidence:
            raise ImpossibleEvidence(f"slice {self._t}: the evidence up to this slice has probability 0") from None
        answer, (first, last) = result.posterior, self._own
        between = answer[first:last]
        if self._alone:
            self._alpha = between.copy()
        else:
            self._alpha = step.joint_of(step.after_number, step.after, between[None])[0]
            between = self._sums @ self._alpha
        self._t += 1
        self.log_evidence += result.log_evidence
        return {
            v: Posterior(v, names, between[first:last] if inner else answer[first:last])
            for v, names, inner, first, last in self._read
        }

    def _extended(self, case: Evidence) -> Mapping[str, Posterior]:
        """`step` in extended numbers: an entry of the message may be too small for a number."""
        step, t = self._step, self._t
        weights = {v: x[None] for v, x in case.likelihood.items()}
        exponents = {v: x[None] for v, x in exponents_of(case).items()}
        one = Sequences(case.state[None, : step.n], np.array([0, 1]), weights, exponents)
        table = extended_table(step, one, targets=self._targets[:-1])
        group: Any = table.group(np.zeros(1, np.int64), np.ones(1, np.int64), self._alpha)
        group.load((self._alpha[None], self._power[None]), 0)
        widths = [len(names) for _, names, is_inner, _, _ in self._read if not is_inner]
        columns = np.cumsum([0, *(step.width(v) for v in step.after if v < step.n), *widths])
        cells, rows = np.zeros((1, int(columns[-1]))), np.zeros(1, np.int64)
        fixed = [v for v in self._targets[:-1] if case.state[v] >= 0]
        others = [v for v in self._targets[:-1] if v not in fixed]
        out = group.marginals(Between(cells, rows, self._states, columns, tuple(others)), rows)
        passes = step.on_cpu(step.tree(t)).slices()
        group.forward(passes, 0, 1, group.messages(0), 0, 1, out)
        if group.failed[0] >= 0:
            raise ImpossibleEvidence(f"slice {t}: the evidence up to this slice has probability 0")
        before, powers = self._alpha, self._power
        log_sum = log(float(np.ldexp(before, powers - int(powers.max())).sum())) + int(powers.max()) * log(2.0)
        kept = group.messages(1)
        group.store(kept, 0)
        self._alpha, self._power = kept[0][0], kept[1][0]
        self._is_ordinary = bool(self._power.min() > LEAST / 2)
        if self._is_ordinary:
            self._alpha = np.ldexp(self._alpha, self._power)
            self._alpha, self._power = self._alpha / self._alpha.sum(), np.zeros_like(self._power)
        self._low = LEAST
        self._t += 1
        self.log_evidence += float(group.log_evidence[0]) - (log_sum if t else 0.0)
        inner, answer = int(columns[len(self._states)]), np.zeros(int(step.backend(0).cell_ptr[-1]))
        at = inner
        for v in others:
            to, n = int(step.backend(0).cell_ptr[v]), step.width(v)
            answer[to : to + n] = cells[0, at : at + n]
            at += n
        for v in fixed:
            answer[int(step.backend(0).cell_ptr[v]) + case.state[v]] = 1.0
        return {
            v: Posterior(v, names, cells[0, first:last] if is_inner else answer[first:last])
            for v, names, is_inner, first, last in self._read
        }

    @property
    def state(self) -> Floats:
        """All that the stream knows: (2 K + 2,) float64, the slice, `log_evidence`, and the weights of the interface's
        states given the evidence, followed by the powers of two that these are multiplied by.
        """
        return np.concatenate([[self._t, self.log_evidence], self._alpha, self._power])

    def restore(self, state: object) -> None:
        """Continue from a `state`, of this stream or of another one of the same network."""
        k = self._step.cells
        given = read_state(state, 2 * k + 2)
        t, alpha, power = given[0], given[2 : k + 2], given[k + 2 :]
        whole = np.concatenate([given[:1], power])
        if (
            t < 0 or (whole != np.floor(whole)).any() or (np.abs(whole) > 2**31).any()
            or (alpha < 0).any() or not alpha.any()
        ):  # fmt: skip
            raise ArgumentError(
                "state is not the state of a stream: expected the slice, ln P, weights >= 0, and powers of two"
            )
        self._t, self.log_evidence, self._alpha = int(t), float(given[1]), alpha.copy()
        self._power, self._low, self._is_ordinary = power.astype(np.int64), LEAST, not power.any()


def read_state(state: object, n: int) -> Floats:
    """The numbers of a stream's state, which has n of them."""
    given = number_array(state, "state")
    if given.shape != (n,) or not np.isfinite(given).all():
        raise ArgumentError(
            f"state has shape {given.shape}, expected {n} finite numbers: the state of a stream of this network"
        )
    return given


# `MixedStream`: one sequence with numbers whose slices come one by one.

class SliceNumber(ByValue):
    """The posterior of a number in a slice: a mixture of normal distributions; an observed one has sd 0.

    Attributes
    ----------
    mean, sd : float
        In the units of the number.
    weights, means, sds : (K,) ndarray of float64
        The mixture, a part for each configuration of the states of its parents.
    """

    __slots__ = ("mean", "means", "sd", "sds", "variable", "weights")

    def __init__(self, variable: str, weights: Floats, means: Floats, sds: Floats):
        self.variable, self.weights, self.means, self.sds = variable, weights, means, sds
        self.mean = float(weights @ means)
        self.sd = math.sqrt(float(weights @ (sds**2 + (means - self.mean) ** 2)))

    def __float__(self) -> float:
        return self.mean

    def __repr__(self) -> str:
        return f"{self.variable}: mean {self.mean:.6g}, sd {self.sd:.6g}"


@check_keywords()
class MixedStream:
    """A sequence with numbers whose slices come one by one; created by ``tree.stream()``.

    Examples
    --------
    >>> import jtgpu
    >>> dyn = jtgpu.MixedDynamicNetwork(
    ...     {"state": ["calm", "busy"], "load": float}, {"state": [("state", 1)], "load": ["state"]},
    ...     {"state": [[0.9, 0.1], [0.2, 0.8]], "load": jtgpu.Gaussian([1.0, 4.0], sd=1.0)},
    ...     start={"state": [0.5, 0.5]},
    ... )
    >>> live = dyn.compile("reference").stream()
    >>> round(live.step({"load": 3.9})["state"]["busy"], 3)
    0.985
    >>> live.step()["load"]
    load: mean 3.36897, sd 1.57952
    """

    def __init__(self, net: MixedDynamicNetwork, live: Stream):
        self._net, self._live = net, live
        self._lags: dict[str, int] = {}  # numbers that are parents later, and how long they are needed
        for y in net.numbers:
            for p, lag in net.numeric_parents(y):
                self._lags[p] = max(self._lags.get(p, 0), lag)
        self._past = {p: [math.nan] * lag for p, lag in self._lags.items()}  # values 1, 2 ... slices ago
        self._regressions = {y: [(g, *regression(g)) for g in net.gaussians(y)] for y in net.numbers}

    @property
    def log_evidence(self) -> float:
        """ln of the density of all evidence so far."""
        return self._live.log_evidence

    def step(
        self, evidence: Mapping[str, object] | None = None, *, likelihood: Mapping[str, object] | None = None
    ) -> Mapping[str, Posterior | SliceNumber]:
        """Take the evidence of the next slice: states, and numbers; return the posteriors of its variables.

        A number with numeric parents is among them where it or all of these are observed.

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability zero, or the numbers density 0; the stream stays as it was.
        """
        net = self._net
        row: Any = evidence  # of a pandas frame: its other columns are ignored
        if hasattr(row, "items") and not isinstance(row, Mapping):
            row = {v: x for v, x in row.items() if v in net.variables}
        t, given = int(self._live.state[0]), dict(mapping("evidence", row))
        values = {y: x for y in net.numbers if not is_missing(x := self._value(y, given.pop(y, None)))}
        means = {y: m for y in net.numbers if (m := self._means(y, t, values)) is not None}
        offset = 0.0
        weights: dict[str, Floats] = {}
        exponents: dict[int, Ints] = {}
        for y, x in values.items():
            if y not in means:
                raise EvidenceError(
                    f"slice {t}: {y!r} is observed, and not all of its numeric parents are; leave {y!r} out, too"
                )
            b, sd = means[y]
            with np.errstate(over="ignore"):  # density 0
                z = (x - b) / sd
                density = -0.5 * z * z - logs(sd) - HALF_LOG_2PI
            name = net.component[y]
            if name is None:
                offset += float(density[0])
            else:
                weights[name] = weights[name] + density if name in weights else density
        soft = dict(mapping("likelihood", likelihood))
        offset += sum(float(density.max()) for density in weights.values())
        if offset > -math.inf:
            for name, density in weights.items():
                own = read_findings(net.discrete, None, {name: soft[name]}).likelihood if name in soft else {}
                table = own.get(net.discrete.index(name), np.ones(len(density)))
                made_weights, powers = scaled_densities((density - density.max())[None], table[None])
                soft[name] = made_weights[0]
                if powers.any():
                    exponents[net.discrete.index(name)] = powers[0]
        else:
            raise ImpossibleEvidence(f"slice {t}: the numbers have density 0 in every state")
        before = self._live.log_evidence
        posteriors = self._live.advance(given, soft or None, exponents)
        if self._live.log_evidence - before < 0.5 * LEAST_EXPONENT * LN2:
            raise too_far(f"slice {t}")
        self._live.log_evidence += offset
        made: dict[str, Posterior | SliceNumber] = {v: posteriors[v] for v in net if v not in net.numbers}
        for y, (b, sd) in means.items():
            name = net.component[y]
            mixture = posteriors[name].probabilities if name is not None else np.ones(1)
            if y in values:
                mixture, b, sd = np.ones(1), np.array([values[y]]), np.zeros(1)
            made[y] = SliceNumber(y, mixture, b, sd)
        for p, past in self._past.items():
            self._past[p] = [values.get(p, math.nan), *past][: len(past)]
        return {v: made[v] for v in net if v in made}

    def _value(self, y: str, given: Any) -> Any:
        if is_missing(given):
            return None
        try:
            x = math.nan if isinstance(given, (bool, str)) else float(given)
        except (TypeError, ValueError, OverflowError):
            x = math.nan
        if not math.isfinite(x):
            raise EvidenceError(f"{y!r} is a number; its value must be a finite number, not {shown(given)}")
        return x

    def _means(self, y: str, t: int, values: Mapping[str, float]) -> tuple[Floats, Floats] | None:
        """Means and standard deviations by configuration; None if a numeric parent is not known."""
        g, b, sd = self._regressions[y][min(t, len(self._regressions[y]) - 1)]
        design = [1.0]
        for p, lag in self._net.numeric_parents(y):
            if coefficient_name(p, lag) in g.coefficients:
                design.append(self._past[p][lag - 1] if lag else values.get(p, math.nan))
        return None if math.isnan(sum(design)) else (b @ np.array(design), sd)

    @property
    def state(self) -> Floats:
        """All that the stream knows: the state of a `Stream`, then earlier values that are needed, 0 if not observed,
        and 1 for each of these that was observed, else 0.
        """
        past = np.array([x for values in self._past.values() for x in values])
        return np.concatenate([self._live.state, np.nan_to_num(past), ~np.isnan(past)])

    def restore(self, state: object) -> None:
        """Continue from a `state`, of this stream or of another one of the same network."""
        given, n = read_state(state, len(self.state)), sum(self._lags.values())
        self._live.restore(given[: len(given) - 2 * n])
        past = iter(np.where(given[len(given) - n :] > 0, given[len(given) - 2 * n : len(given) - n], np.nan).tolist())
        self._past = {p: [next(past) for _ in range(lag)] for p, lag in self._lags.items()}
