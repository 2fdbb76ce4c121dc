"""Arrays that grow."""

from __future__ import annotations

import numpy as np

from ....util.jit import compiled

__all__ = ["longer"]


@compiled()
def longer(numbers):  # type: ignore[no-untyped-def]
    """A copy of an array of int64 with room for twice as many."""
    copy = np.empty(2 * len(numbers), np.int64)
    for i in range(len(numbers)):
        copy[i] = numbers[i]
    return copy
