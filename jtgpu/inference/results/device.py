"""`DevicePosteriors`: posteriors of a table of cases that stay in the memory of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...backends.base import BatchResult, DeviceResult
from ...model.discrete import DiscreteModel
from .marginals import CasePosteriors


class DevicePosteriors(Mapping[str, Any]):
    """Posteriors of B cases on a GPU: a mapping from variable name to a (B, n_states) array of float64.

    Arrays have ``__dlpack__`` and ``__cuda_array_interface__``, so that PyTorch, CuPy and JAX share their memory:
    ``torch.from_dlpack(found["lung"])``. The memory is freed with the last array or tensor that shares it.

    Attributes
    ----------
    flat : (B, n) array
        All posteriors, contiguous; the columns of each variable are in the order of the mapping. Posteriors of
        impossible cases are zeros.
    log_evidence : (B,) array
        ln P(evidence) of each case; -inf if the case is impossible.
    """

    def __init__(self, model: DiscreteModel, result: DeviceResult, targets: Sequence[int] | None):
        self._model, self._targets = model, targets
        self.flat, self.log_evidence = result.posterior, result.log_evidence
        self._columns: dict[int, tuple[int, int]] = {}
        first = 0
        for v in range(len(model)) if targets is None else targets:
            self._columns[v] = first, first + int(model.cardinality[v])
            first = self._columns[v][1]

    def __getitem__(self, variable: str | int) -> Any:
        v = self._model.index(variable)
        if v not in self._columns:
            raise KeyError(f"{self._model.variables[v]!r} is not a target of this query; add it to targets=")
        return self.flat.columns(*self._columns[v])

    def __iter__(self) -> Iterator[str]:
        return (self._model.variables[v] for v in self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def to_host(self) -> CasePosteriors:
        """Copy the answers to the host."""
        log_evidence = self.log_evidence.to_host()
        result = BatchResult(self.flat.to_host(), log_evidence, np.isneginf(log_evidence))
        return CasePosteriors(self._model, result, self._targets)

    def __repr__(self) -> str:
        variables = f"{len(self)} variable{'s' if len(self) != 1 else ''}"
        return f"DevicePosteriors of {variables} in {self.flat.shape[0]:,} cases on {self.flat.device.name}"
