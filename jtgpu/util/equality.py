"""`ByValue`: results that hold arrays compare by what they hold, with one answer: True or False."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal: arrays cell by cell, mappings and sequences item by item; NaN equals NaN."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not (type(a) is type(b) and a.shape == b.shape):
            return False
        if not np.array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b)):
            return False
        if a.dtype.kind in "fc" and b.dtype.kind in "fc":
            return bool(np.array_equal(np.ma.filled(a, np.nan), np.ma.filled(b, np.nan), equal_nan=True))
        return same(a.tolist(), b.tolist()) if "O" in (a.dtype.kind, b.dtype.kind) else np.array_equal(a, b)
    if isinstance(a, ByValue | str):
        return bool(a == b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return len(a) == len(b) and all(key in b and same(x, b[key]) for key, x in a.items())
    if isinstance(a, Sequence) and isinstance(b, Sequence):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b or bool(a == b) or bool(a != a and b != b)


class ByValue:
    """Two objects of a class are equal if their public attributes are, and the items that they have.

    A mapping equals mappings of other types that have the same items.

    They have no hash: arrays can change.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is type(other):
            return same(self._compared(), other._compared())
        if isinstance(self, Mapping) and isinstance(other, Mapping):
            return same(dict(self), dict(other))
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def _compared(self) -> list[Any]:
        """All that `==` compares."""
        slots = [name for cls in type(self).__mro__ for name in getattr(cls, "__slots__", ())]
        public = [name for name in (*slots, *getattr(self, "__dict__", ())) if not name.startswith("_")]
        held: list[Any] = [{name: getattr(self, name) for name in public}]
        if isinstance(self, Mapping):
            held.append(dict(self))
        elif isinstance(self, list):
            held.append([*self])
        return held
