"""Changes to a Bayesian network: new states, parents and CPTs, and the numbers that remain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError, UnknownState, closest

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
