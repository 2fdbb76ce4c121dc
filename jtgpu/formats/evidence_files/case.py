"""The evidence of one case, as read from a file."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


class Case(dict[str, "int | frozenset[int]"]):
    """The evidence of one case: a mapping from name to state number, or to a set of numbers one of which is true.

    Every query of a `jtgpu.JunctionTree` takes a `Case` as ``evidence``, weights included.

    Attributes
    ----------
    likelihood : dict of str to (card,) float64
        Virtual evidence: weights in the order of the variable's states.
    """

    def __init__(self, findings: Mapping[str, int | frozenset[int]] | None = None):
        super().__init__(findings or {})
        self.likelihood: dict[str, NDArray[np.float64]] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Case):
            return not self.likelihood and super().__eq__(other)
        mine, theirs = self.likelihood, other.likelihood
        return (
            super().__eq__(other) and mine.keys() == theirs.keys()
            and all(np.array_equal(mine[v], theirs[v]) for v in mine)
        )  # fmt: skip

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        weights = f", likelihood={self.likelihood!r}" if self.likelihood else ""
        return f"Case({super().__repr__()}{weights})"
