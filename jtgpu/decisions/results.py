"""Results of decisions: options, policies, the distribution of the total utility, the value of information."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ArgumentError
from ..inference.results.result import ByName, Result
from ..util.arguments import number
from ..util.text_table import counted

if TYPE_CHECKING:
    from ..model.cpt import Cpt
    from ..util.arrays import Floats


class Options(Result, ByName[float]):
    """Expected utility of each option of a decision, the best first: a mapping from option to utility.

    The data frame has the columns ``option`` and ``expected_utility``.

    Attributes
    ----------
    decision : str
    best : str
        The option of the highest expected utility; the first one in case of a tie.
    """

    def __init__(self, decision: str, options: Sequence[str], utilities: Floats):
        self.decision = decision
        order = np.argsort(-utilities, kind="stable")
        self._parts = {options[i]: float(utilities[i]) for i in order.tolist()}
        self.best = next(iter(self._parts))

    def _title(self) -> str:
        return f"Options of {self.decision}"

    def _columns(self) -> dict[str, object]:
        return {"option": [*self], "expected_utility": np.array([*self.values()])}


class Policy(Result, ByName["Cpt"]):
    """The choice of every decision: a mapping to tables over their parents, 1 for the option that is chosen.

    The data frame has a row for each configuration: ``decision``, ``known``, ``option``.

    Attributes
    ----------
    expected_utility : float
    method : {"exact", "local optimum"}
        ``"local optimum"``: no decision can be improved alone, but several together might be.
    ties : dict
        Decision to the configurations of its parents where several options are best; the first one is chosen.
    unreached : dict
        Decision to the configurations that no policy reaches (probability 0); their row is uniform.
    """

    def __init__(
        self, tables: Mapping[str, Cpt], expected_utility: float, method: str,
        ties: Mapping[str, list[dict[str, str]]] | None = None,
        unreached: Mapping[str, list[dict[str, str]]] | None = None,
    ):  # fmt: skip
        self._parts = dict(tables)
        self.expected_utility, self.method = expected_utility, method
        self.ties, self.unreached = dict(ties or {}), dict(unreached or {})

    def rows(self, decision: str) -> Iterator[tuple[dict[str, str], str | None]]:
        """Configurations of a decision's parents, and the option that is chosen; None where the row is uniform."""
        table = self[decision]
        axes = table._axes
        for at in np.ndindex(*table.shape[:-1]):
            row = np.asarray(table)[at]
            chosen = axes[-1].states[int(row.argmax())] if row.max() > 1.0 / len(row) or len(row) == 1 else None
            yield {a.variable: a.states[i] for a, i in zip(axes, at, strict=False)}, chosen

    def _title(self) -> str:
        decisions = counted(len(self), "decision")
        return f"Policy of {decisions} ({self.method}): expected utility {self.expected_utility:.6g}"

    def _columns(self) -> dict[str, object]:
        decisions, known, options = [], [], []
        for d in self:
            for row, chosen in self.rows(d):
                decisions.append(d)
                known.append(", ".join(f"{v}={s}" for v, s in row.items()))
                options.append(chosen or "any")
        return {"decision": decisions, "known": known, "option": options}


class UtilityDistribution(Result):
    """Distribution of the total utility under a policy. The data frame has the columns ``utility``, ``probability``.

    Attributes
    ----------
    values : (n,) ndarray of float64
        Ascending.
    probabilities : (n,) ndarray of float64
    mean, sd : float
    error : float
        Largest error of a value that rounding to ``step`` made; 0 where the values are exact.
    """

    def __init__(self, values: Floats, probabilities: Floats, error: float = 0.0):
        self.values, self.probabilities, self.error = values, probabilities, error
        self.mean = float(values @ probabilities)
        self.sd = math.sqrt(max(float(probabilities @ (values - self.mean) ** 2), 0.0))

    def quantile(self, p: float) -> float:
        """The smallest value that the total does not exceed with probability `p`."""
        if not number("p", p, least=0) <= 1:
            raise ArgumentError(f"p must be a probability, not {p!r}")
        at = int(np.searchsorted(np.cumsum(self.probabilities), p - 1e-12))
        return float(self.values[min(at, len(self.values) - 1)])

    def _title(self) -> str:
        return f"Total utility: mean {self.mean:.6g}, sd {self.sd:.6g}"

    def _columns(self) -> dict[str, object]:
        return {"utility": self.values, "probability": self.probabilities}


class ValueOfInformation(Result, ByName[float]):
    """Gain in expected utility of observing a variable before a decision, the highest first, costs subtracted.

    The data frame has the columns ``variable`` and ``gain``, in units of utility.

    Attributes
    ----------
    decision : str
    expected_utility : float
        Without further information.
    """

    def __init__(self, decision: str, expected_utility: float, gains: Mapping[str, float]):
        self.decision, self.expected_utility = decision, expected_utility
        self._parts = dict(sorted(gains.items(), key=lambda item: -item[1]))

    def _title(self) -> str:
        return f"Observing before {self.decision}: gain over {self.expected_utility:.6g}"

    def _columns(self) -> dict[str, object]:
        return {"variable": [*self], "gain": np.array([*self.values()])}
