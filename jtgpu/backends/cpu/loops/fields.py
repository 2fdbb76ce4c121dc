"""Fields of records that compiled loops look up."""

from __future__ import annotations

from ....util.jit import inlined
from ..records import FIRST_LOOP, A, B

__all__ = ["input_field"]


@inlined
def input_field(t):  # type: ignore[no-untyped-def]
    """The field of a record that holds the first cell of input t (int64); exponent and row stride follow it."""
    return A if t == 0 else B if t == 1 else FIRST_LOOP + 3 * (t - 2)
