"""The cases of one table on the host: states, weights, likelihoods, and the rows of each part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....errors import EvidenceError
from ..batch.table import Weights, scale_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CaseArrays(NamedTuple):
    """Host arrays of a table of B cases."""

    states: NDArray[Any]  # (B, V) signed integers, -1 = not observed
    of_case: NDArray[np.float64]  # (B,) weights of the cases
    likelihood: Weights
    dtype: np.dtype[Any]  # of the states on the device

    @property
    def n(self) -> int:
        """B."""
        return int(self.states.shape[0])

    @property
    def is_scaled(self) -> bool:
        """Whether powers of two were taken out of likelihoods."""
        return bool(self.likelihood.values.shape[1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on the device, without ln P(e)."""
        n_weights = self.likelihood.values.shape[1]
        return int(self.dtype.itemsize * self.states.shape[1] + 8 * (1 + n_weights + self.is_scaled))

    def rows(self, which: slice | NDArray[np.int64]) -> CaseArrays:
        """Some of the rows, contiguous."""
        w = self.likelihood
        some = w._replace(values=np.ascontiguousarray(w.values[which]), log_scale=w.log_scale[which])
        states = np.ascontiguousarray(self.states[which], self.dtype)
        return CaseArrays(states, np.ascontiguousarray(self.of_case[which]), some, self.dtype)


def read_cases(
    states: NDArray[Any], weights: NDArray[np.float64] | None, likelihood: Mapping[int, NDArray[np.float64]] | None,
    cardinality: NDArray[np.int64],
) -> CaseArrays:  # fmt: skip
    """The arguments of `jtgpu.backends.base.Backend.run_counts`, checked for shape; states are copied part by part."""
    if states.ndim != 2 or states.shape[1] != len(cardinality):
        raise EvidenceError(f"cases have shape {states.shape}, not (B, {len(cardinality)})")
    of_case = np.ones(len(states)) if weights is None else np.ascontiguousarray(weights, np.float64)
    most = int(cardinality.max(initial=1))
    dtype = np.dtype(np.int8 if most <= 128 else np.int16 if most <= 32768 else np.int32)
    return CaseArrays(states, of_case, scale_weights(likelihood, len(states), cardinality), dtype)
