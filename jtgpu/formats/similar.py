"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ..errors import closest


def near(word: str, known: Iterable[str]) -> str:
    """`jtgpu.errors.closest` for names from files, whose number and length are unbounded.

    Comparison takes time quadratic in a name's length, so only a limited number of short names are considered.
    """
    short = [k for k in islice(known, 5000) if abs(len(k) - len(word)) < 20]
    return closest(word, short) if len(word) <= 60 else ""
