"""Rounding of all numbers of an answer to significant digits."""

from __future__ import annotations

from typing import Any


def rounded(found: Any, digits: int | None) -> Any:
    """Return plain data with every float rounded; the data itself if `digits` is None."""
    if digits is None:
        return found
    if isinstance(found, float):
        return float(f"{found:.{digits}g}")
    if isinstance(found, dict):
        return {name: rounded(value, digits) for name, value in found.items()}
    if isinstance(found, (list, tuple)):
        return [rounded(value, digits) for value in found]
    return found
