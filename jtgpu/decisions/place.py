"""Policies by number, and where a backend has their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Policies = dict[int, "Floats"]  # decision -> (extents of its information, options), rows sum to 1


class PolicyPlace(NamedTuple):
    """Where the weights of a policy are."""

    number: int  # of the variable, or of the set of a decision and its information
    axes: tuple[int, ...]  # of a policy, in the order of the set
    inverse: tuple[int, ...]
    extents: tuple[int, ...]  # in the order of the set

    @classmethod
    def of(cls, number: int, own: tuple[int, ...], scope: tuple[int, ...], shape: tuple[int, ...]) -> PolicyPlace:
        """The place of a policy over `scope` in a set that has the same variables in another order."""
        axes = tuple(map(scope.index, own))
        return cls(number, axes, tuple(map(own.index, scope)), tuple(shape[i] for i in axes))

    def cells(self, policy: Floats) -> Floats:
        """The policy in the order of the set."""
        return policy.transpose(self.axes).ravel()

    def table(self, cells: Floats) -> Floats:
        """Cells of the set as a table over the information and the decision."""
        return cells.reshape(self.extents).transpose(self.inverse)
