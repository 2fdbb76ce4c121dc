"""Which part of a Bayesian network determines the posterior of some variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import EvidenceError
from ..util.missing import is_missing
from .discrete import DiscreteModel
from .graph import descendants


class KnownStates(NamedTuple):
    """Evidence as far as the graph is concerned."""

    observed: dict[int, int]  # variable -> its state
    uncertain: set[int]  # variables known to be in one of several states


def known_states(model: DiscreteModel, evidence: Mapping[Any, Any] | None) -> KnownStates:
    """Convert evidence from names to numbers."""
    # evidence: Variable to its state, or to a collection of states one of which holds
    # raises EvidenceError: If `evidence` is not a mapping, a collection is empty, or a variable is given twice.
    if evidence is not None and not isinstance(evidence, Mapping):
        raise EvidenceError(f"evidence must be a mapping such as {{'xray': 'yes'}}, not a {type(evidence).__name__}")
    found = KnownStates({}, set())
    for variable, value in (evidence or {}).items():
        if is_missing(value):
            continue  # not observed
        v = model.index(variable)
        if v in found.observed or v in found.uncertain:
            raise EvidenceError(f"evidence on {model.variables[v]!r} is given twice")
        several = isinstance(value, Iterable) and not isinstance(value, str)
        states = {model.state_index(v, s) for s in (value if several else (value,))}
        if not states:
            raise EvidenceError(f"evidence on {model.variables[v]!r} has no state")
        if len(states) == 1:
            found.observed[v] = states.pop()
        else:
            found.uncertain.add(v)
    return found


def relevant_part(parents: Sequence[Sequence[int]], targets: Iterable[int], known: KnownStates) -> list[int]:
    """The variables that determine the posterior of the targets, sorted.

    Arcs from observed variables are cut, which is exact if the tables of their children are restricted to the observed
    states. Two kinds of variables are left out: barren ones, which are no ancestors of a target or of evidence
    (Shachter, Operations Research 34, 1986), and those that are not connected to a target after the cuts, which are
    d-separated from the targets (Lauritzen et al., Networks 20, 1990).
    """
    targets = list(targets)
    ancestral = descendants(parents, [*targets, *known.observed, *known.uncertain])
    neighbours: dict[int, list[int]] = {v: [] for v in ancestral}
    for v in ancestral:
        for p in parents[v]:
            if p not in known.observed:
                neighbours[v].append(p)
                neighbours[p].append(v)
    found = set(targets)
    stack = list(found)
    while stack:
        for v in neighbours[stack.pop()]:
            if v not in found:
                found.add(v)
                stack.append(v)
    return sorted(found)
