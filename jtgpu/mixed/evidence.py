"""Cases of mixed networks: states of the discrete variables and values of the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns import as_numbers, at_row, open_table, read_states, reject_infinite
from ..columns.likelihoods import LikelihoodCells
from ..columns.memory import first_text
from ..columns.names import evidence_columns
from ..errors import EvidenceError, ImpossibleEvidence, shown
from ..inference.evidence import one_case, read_findings, row_findings
from ..inference.evidence_table import weight_rows
from ..util.arguments import mapping
from ..util.cells import is_missing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..columns import Table
    from ..model.mixed import MixedNetwork
    from ..util.arrays import Floats


@dataclass(frozen=True)
class MixedCases:
    """Evidence of B cases."""

    states: NDArray[np.int32]  # (B, V) of the discrete variables, -1: not observed
    values: Floats  # (B, G) of the numbers, in their units, NaN: not observed
    likelihood: Mapping[int, Floats] = field(default_factory=dict)  # discrete variable -> (B, card)
    bounds: Mapping[int, tuple[float, float]] = field(default_factory=dict)  # number -> interval, one case only
    do: Mapping[str, Any] = field(default_factory=dict)  # interventions on discrete variables
    cut: frozenset[int] = frozenset()  # numbers that are set by an intervention
    table: Table | None = None

    def part(self, rows: NDArray[np.intp]) -> MixedCases:
        """Some of the cases."""
        if len(rows) == len(self.states) and (rows[1:] > rows[:-1]).all():
            return self
        likelihood = {v: w[rows] for v, w in self.likelihood.items()}
        return MixedCases(self.states[rows], self.values[rows], likelihood, self.bounds, self.do, self.cut)

    def missing(self, v: int) -> NDArray[np.bool_]:
        """(B,) the cases that say nothing of a discrete variable."""
        nothing: NDArray[np.bool_] = self.states[:, v] < 0
        return nothing & (self.likelihood[v] == 1.0).all(axis=1) if v in self.likelihood else nothing

    def findings(self, net: MixedNetwork, row: int) -> list[str]:
        """The findings of a case, for messages."""
        own, names = net.discrete, net.numbers
        states = [f"{own.variables[v]}={own.states(v)[s]}" for v, s in enumerate(self.states[row].tolist()) if s >= 0]
        values = [f"{v}={x:g}" for v, x in zip(names, self.values[row].tolist(), strict=True) if not np.isnan(x)]
        return states + values + [f"{names[v]} in ({low:g}, {high:g})" for v, (low, high) in self.bounds.items()]


def read_case(net: MixedNetwork, evidence: Any, likelihood: Any, do: object) -> MixedCases:
    """Evidence of one case as a table of one row."""
    if not isinstance(evidence, Mapping) and evidence is not None:
        evidence = row_findings(net, evidence)
        if not isinstance(evidence, Mapping):
            one_case(net.discrete, evidence)
            raise EvidenceError(f"evidence must be a mapping or a row of a data frame, got {shown(evidence)}")
    values = np.full((1, len(net.numbers)), np.nan)
    bounds: dict[int, tuple[float, float]] = {}
    findings = {}
    places = {v: g for g, v in enumerate(net.numbers)}
    for variable, value in (evidence or {}).items():
        if type(value) is float and variable in places and math.isfinite(value):  # most findings of numbers
            values[0, places[variable]] = value
            continue
        name = net.variables[net.index(variable)]
        if is_missing(value):
            continue
        if name in findings or (net.is_number(name) and name != variable and name in (evidence or {})):
            raise EvidenceError(f"evidence has the variable {name!r} twice, by name and by number")
        if not net.is_number(name):
            findings[name] = value
            continue
        g = net.numbers.index(name)
        if isinstance(value, (tuple, list)):
            bounds[g] = _interval(name, value)
        else:
            values[0, g] = finite(name, value)
    for variable in mapping("likelihood", likelihood):
        _reject_number(net, variable, "likelihood")
    case = read_findings(net.discrete, findings, likelihood)
    cut, set_states = _interventions(net, do, values, bounds)
    return MixedCases(
        case.state[None], values, {v: w[None] for v, w in case.likelihood.items()}, bounds, set_states, cut
    )  # fmt: skip


def read_cases(net: MixedNetwork, cases: object, likelihood: object, do: object) -> MixedCases:
    """Evidence of a table of B cases."""
    table = open_table(net.graph, cases)
    names = evidence_columns(net.graph, table.names)
    values = np.full((table.n, len(net.numbers)), np.nan)
    discrete: dict[str, Any] = {}
    for name in _quick_numbers(net, table, names, values):
        column = table.column(name)
        variable = net.variables[net.index(name)]
        if not net.is_number(variable):
            discrete[variable] = column
            continue
        numbers = as_numbers(column)
        if numbers is None:
            row = first_text(column)
            raise EvidenceError(at_row(table, row[0], f"column {name!r}: expected a number, got {shown(row[1])}"))
        reject_infinite(table, name, numbers)
        values[:, net.numbers.index(variable)] = numbers
    states, cells = np.full((table.n, len(net.discrete)), -1, np.int32), LikelihoodCells(net.discrete)
    if discrete:
        states, _ = read_states(net.discrete, discrete, cells)
    given: dict[int, Floats] = {}
    for variable, value in mapping("likelihood", likelihood).items():
        _reject_number(net, variable, "likelihood")
        name = net.variables[net.index(variable)]
        v = net.discrete.index(name)
        if v in given:
            raise EvidenceError(f"likelihood has the variable {name!r} twice, by name and by number")
        given[v] = weight_rows(net.discrete, v, value, table.n)
    states = cells.taken(states, given)
    cut, set_states = _interventions(net, do, values, {})
    return MixedCases(states, values, given, {}, set_states, cut, table)


def _quick_numbers(net: MixedNetwork, table: Table, names: list[str], values: Floats) -> list[str]:
    """Enter the columns of a frame of floats at once, and return the columns that are still to be read."""
    matrix = table.matrix()
    if matrix is None or np.isinf(matrix).any():  # an infinite cell is an error that names its row
        return names
    place, at = {v: g for g, v in enumerate(net.numbers)}, {v: i for i, v in enumerate(table.names)}
    own = [v for v in names if v in place]
    values[:, [place[v] for v in own]] = matrix[:, [at[v] for v in own]]
    return [v for v in names if v not in place]


def finite(name: str, value: Any) -> float:
    """A finding of a number."""
    if isinstance(value, (str, bool, np.bool_, Mapping)) or np.ndim(value) or not hasattr(value, "__float__"):
        raise EvidenceError(f"{name!r} is a number; its evidence must be a number, got {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise EvidenceError(f"the evidence on the number {name!r} must be finite, got {shown(value)}")
    return number


def _interval(name: str, value: Any) -> tuple[float, float]:
    """An interval that contains a number; its ends may be infinite."""
    ends = [*value]
    if len(ends) != 2 or any(isinstance(x, (str, bool)) or not hasattr(x, "__float__") for x in ends):
        raise EvidenceError(f"{name!r} is a number; its evidence must be a number or (low, high), got {shown(value)}")
    low, high = float(ends[0]), float(ends[1])
    if math.isnan(low) or math.isnan(high):
        raise EvidenceError(f"the interval of {name!r} must have numbers as ends, got {shown(value)}")
    if low >= high:
        raise ImpossibleEvidence(f"the interval of {name!r} is empty: low is {low:g}, high is {high:g}")
    return low, high


def _interventions(
    net: MixedNetwork, do: object, values: Floats, bounds: Mapping[int, object]
) -> tuple[frozenset[int], dict[str, Any]]:
    """Numbers that are set, which are entered into `values`; and interventions on discrete variables."""
    if do is not None and not isinstance(do, Mapping):
        raise EvidenceError(f"do must be a mapping such as {{'smoke': 'yes'}}, not {shown(do)}")
    cut, others = set(), {}
    for variable, value in (do or {}).items():
        name = net.variables[net.index(variable)]
        if not net.is_number(name):
            others[name] = value
            continue
        g = net.numbers.index(name)
        if g in bounds or not np.isnan(values[:, g]).all():
            raise EvidenceError(f"the number {name!r} is observed and set by do; give one of the two")
        values[:, g] = finite(name, value)
        cut.add(g)
    return frozenset(cut), others


def _reject_number(net: MixedNetwork, variable: Any, what: str) -> None:
    name = net.variables[net.index(variable)]
    if net.is_number(name):
        raise EvidenceError(f"{what} has the number {name!r}: a {what} is for variables with states")
