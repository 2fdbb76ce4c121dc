"""Evidence of one case: `read_findings` for observations and likelihoods, `read_known` for all kinds."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import Evidence
from ...errors import EvidenceError, ImpossibleEvidence, shown
from ...model.discrete import DiscreteModel
from ...model.state_values import StateNumber
from .kinds import Findings, Known
from .values import by_number, check_intervention, is_distribution, one_case, probabilities, product, weights

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_findings(model: DiscreteModel, findings: Findings | None, likelihood: Findings | None = None) -> Evidence:
    """Convert observations and likelihoods from names to numbers."""
    # findings: mapping or row of a data frame: Variable to its state, or to a set (list, tuple) of states one of which
    #     holds; see `one_case`. The attribute ``likelihood`` of a mapping from `jtgpu.read_evidence` is used, too.
    # likelihood: Variable to weights >= 0: an array in the order of the states, or a mapping from every state to its
    #     weight
    # raises UnknownVariable, UnknownState: If the model has no such name; the message suggests the closest ones.
    # raises EvidenceError: If a value has the wrong type or length, a weight is negative, or a variable is given twice.
    # raises ImpossibleEvidence: If a set of states is empty, or all weights are zero.
    if likelihood is None and type(findings) is dict:
        simple = _read_states(model, findings)
        if simple is not None:
            return simple
    findings = one_case(model, findings)
    state = np.full(len(model), -1, np.int32)
    given: dict[int, NDArray[np.float64]] = {}
    for v, value in by_number(model, findings, "evidence"):
        if type(value) is str or type(value) is int:  # the common case, without the checks below
            state[v] = model.state_index(v, value)
            continue
        chosen = _observed_states(model, v, value)
        if len(chosen) == 1:
            state[v] = chosen[0]
        else:
            given[v] = np.zeros(int(model.cardinality[v]))
            given[v][chosen] = 1.0
    for more in (getattr(findings, "likelihood", None), likelihood):
        if more is None:
            continue
        for v, value in by_number(model, more, "likelihood"):
            vector = weights(model, v, value)
            given[v] = product(model, v, given[v], vector) if v in given else vector
    return Evidence(state, given)


def _read_states(model: DiscreteModel, findings: dict[Any, Any]) -> Evidence | None:
    """The common case: variables by name, each with the name or number of a state; None for anything else."""
    codes, state = model.codes, array("i", (-1,)) * len(model)
    for variable, value in findings.items():
        kind = type(value)
        if kind is not str and kind is not int:
            return None
        try:
            entry = codes[variable]
        except KeyError:
            return None
        s = entry[1].get(value)
        if s is None:
            return None
        state[entry[0]] = s
    return Evidence(np.frombuffer(state, np.int32))


def _observed_states(model: DiscreteModel, v: int, value: Any) -> list[StateNumber]:
    """Numbers of the states that an observation allows, ascending."""
    name = model.variables[v]
    if isinstance(value, (AbstractSet, list, tuple)):
        chosen = sorted({model.state_index(v, s) for s in value})
        if not chosen:
            raise ImpossibleEvidence(f"the evidence on {name!r} is an empty set of states")
        return chosen
    if isinstance(value, Mapping) or np.ndim(value) > 0:
        raise EvidenceError(
            f"the evidence on {name!r} must be a state or a set of states, got {shown(value)}; pass weights as "
            f"likelihood={{{name!r}: ...}}"
        )
    return [model.state_index(v, value)]


def read_known(
    model: DiscreteModel,
    evidence: Findings | None = None,
    likelihood: Findings | None = None,
    soft: Findings | None = None,
    do: Findings | None = None,
) -> Known:
    """Convert all kinds of evidence from names to numbers; see `More`."""
    # raises UnknownVariable, UnknownState, EvidenceError, ImpossibleEvidence: As `read_findings`; also if probabilities
    #     do not sum to 1, if a variable with soft evidence is observed or set, if a variable is set to one state and
    #     observed in another one, or if a model without arcs gets an intervention.
    case = read_findings(model, evidence, likelihood)
    if soft is None and do is None:
        return Known(case)
    given = dict(case.likelihood)
    intervened = set()
    for v, value in by_number(model, do, "do"):
        check_intervention(model)
        intervened.add(v)
        if is_distribution(value):
            vector = probabilities(model, v, value, "do")
            given[v] = product(model, v, given[v], vector) if v in given else vector
            continue
        state = model.state_index(v, value)
        if case.state[v] >= 0 and case.state[v] != state:
            raise ImpossibleEvidence(
                f"{model.variables[v]!r} is set to {model.states(v)[state]!r} by do, but observed to be "
                f"{model.states(v)[case.state[v]]!r}"
            )
        case.state[v] = state
    found: dict[int, NDArray[np.float64]] = {}
    for v, value in by_number(model, soft, "soft"):
        if v in intervened or case.state[v] >= 0:
            how = "set by do" if v in intervened else "observed"
            raise EvidenceError(f"{model.variables[v]!r} is {how} and cannot have soft evidence")
        found[v] = probabilities(model, v, value, "soft evidence")
    return Known(Evidence(case.state, given), dict(sorted(found.items())), tuple(sorted(intervened)))
