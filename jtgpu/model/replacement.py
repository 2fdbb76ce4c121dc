"""Changes to a Bayesian network: new states, parents and CPTs, and the numbers that remain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import EvidenceError, NetworkError, UnknownState, closest
from ..util.missing import is_missing
from .directed import descendants
from .discrete import DiscreteModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

Attributes = Mapping[str, Mapping[str, Any]]


def new_states(variable: str, labels: Sequence[str], given: Mapping[str, str] | Sequence[str]) -> tuple[str, ...]:
    """States after a change: a mapping from old to new names, or the sequence of all names."""
    if isinstance(given, str):
        raise NetworkError(f"variable {variable!r}: its states must be a mapping or a sequence of names, not {given!r}")
    if not isinstance(given, Mapping):
        return tuple(str(s) for s in given)
    for old in given:
        if labels.count(old) != 1:
            what = f"{labels.count(old)} states named" if old in labels else "no state"
            raise UnknownState(f"variable {variable!r} has {what} {old!r}{closest(str(old), labels)}")
    return tuple(str(given.get(s, s)) for s in labels)


def new_names(variables: Sequence[str], rename: Mapping[str, str]) -> dict[str, str]:
    """The new name of every variable; raises `NetworkError` if two variables would share one."""
    names = {v: rename.get(v, v) for v in variables}
    if len(set(names.values())) < len(names):
        taken: dict[str, str] = {}
        for old, new in names.items():
            if new in taken:
                raise NetworkError(f"{taken[new]!r} and {old!r} would both have the name {new!r}")
            taken[new] = old
    return names


def rearranged(
    variable: str, cpt: NDArray[np.float64], before: Sequence[str], after: Sequence[str]
) -> NDArray[np.float64]:
    """The CPT for the same parents in another order."""
    # raises NetworkError: If the parents are not the same.
    if list(before) == list(after):
        return cpt
    if sorted(before) != sorted(after):
        raise NetworkError(f"variable {variable!r} has other parents than before, so it needs a new CPT")
    return cpt.transpose([*(list(before).index(p) for p in after), cpt.ndim - 1])


def renamed_attributes(attributes: Attributes, names: Mapping[str, str], changed: Sequence[str]) -> dict[str, Any]:
    """Attributes of the variables in `names` under their new names.

    The attributes of potentials whose numbers have changed are dropped: they may describe the old numbers.
    """
    kept: dict[str, Any] = dict(attributes)
    for kind in ("node", "potential"):
        if kind in attributes:
            kept[kind] = {
                names[v]: values
                for v, values in attributes[kind].items()
                if v in names and not (kind == "potential" and v in changed)
            }
    return kept


# Which part of a Bayesian network determines the posterior of some variables.

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
