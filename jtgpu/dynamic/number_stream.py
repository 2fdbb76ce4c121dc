"""`MixedStream`: one sequence with numbers whose slices come one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import EvidenceError, ImpossibleEvidence, shown
from ..inference.evidence import read_findings
from ..inference.results.marginals import Posterior
from ..model.editing import coefficient_name
from ..util.arguments import check_keywords, mapping
from ..util.cells import is_missing
from ..util.elementary import logs
from ..util.equality import ByValue
from .number_rows import HALF_LOG_2PI, LEAST, LN2, regression, scaled_densities, too_far
from .stream import read_state

if TYPE_CHECKING:
    from ..model.mixed_dynamic import MixedDynamicNetwork
    from ..util.arrays import Floats, Ints
    from .stream import Stream


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
        self, evidence: Mapping[str, Any] | None = None, *, likelihood: Mapping[str, Any] | None = None
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
        if self._live.log_evidence - before < 0.5 * LEAST * LN2:
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

    def restore(self, state: Any) -> None:
        """Continue from a `state`, of this stream or of another one of the same network."""
        given, n = read_state(state, len(self.state)), sum(self._lags.values())
        self._live.restore(given[: len(given) - 2 * n])
        past = iter(np.where(given[len(given) - n :] > 0, given[len(given) - 2 * n : len(given) - n], np.nan).tolist())
        self._past = {p: [next(past) for _ in range(lag)] for p, lag in self._lags.items()}
