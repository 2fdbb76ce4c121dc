"""Evidence as marks: the kind of evidence on each variable, and the states that it allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from ..inference.evidence import Known


class Mark(NamedTuple):
    """Evidence on one variable."""

    kind: str  # a key of `jtgpu.draw.svg.MARKS`
    states: frozenset[int] = frozenset()  # numbers of the observed state, or of those that the evidence allows


def marks(known: Known) -> dict[int, Mark]:
    """Return the marks of all variables with evidence, by number."""
    found = {}
    for v, weights in known.case.likelihood.items():
        allowed = frozenset(np.flatnonzero(weights).tolist())
        is_set = bool((weights[weights > 0] == 1.0).all())
        found[int(v)] = Mark("one of", allowed) if is_set else Mark("likelihood")
    for v in np.flatnonzero(known.case.state >= 0).tolist():
        found[v] = Mark("observed", frozenset([int(known.case.state[v])]))
    found.update({v: Mark("soft") for v in known.soft})
    for v in known.intervened:
        found[v] = Mark("do", found[v].states if v in found else frozenset())
    return found
