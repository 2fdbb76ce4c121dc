"""cuBLAS by ``skcuda.cublas``, the one module of scikit-cuda 0.5.3 that can still be imported."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..errors import BackendUnavailable

_INSTALL = "install it with: pip install 'jtgpu[cuda]' (needs the CUDA toolkit)"


class Blas:
    """The functions asum and scal of cuBLAS. Used inside ``device.active()``."""
    # dtype: {"float64", "float32"}
    # raises BackendUnavailable: If scikit-cuda or the cuBLAS library is missing.

    def __init__(self, stream: Any, dtype: DTypeLike):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-cuda imports pkg_resources, which is deprecated
            try:
                from skcuda import cublas
            except (ImportError, OSError, AttributeError) as error:
                raise BackendUnavailable(
                    f"normalise='cublas' needs skcuda.cublas, which cannot be imported ({error}); {_INSTALL}, or use "
                    "normalise='kernel'"
                ) from None
        double = np.dtype(dtype) == np.float64
        self._asum = cublas.cublasDasum if double else cublas.cublasSasum
        self._scal = cublas.cublasDscal if double else cublas.cublasSscal
        self._destroy = cublas.cublasDestroy
        self._handle: Any = cublas.cublasCreate()
        cublas.cublasSetStream(self._handle, stream.handle)

    def normalise(self, address: int, cells: int) -> float:
        """Scale a table of non-negative numbers so that it sums to 1; return its previous sum. Waits for the stream."""
        total = float(self._asum(self._handle, cells, address, 1))
        if total > 0.0 and total != 1.0:
            self._scal(self._handle, cells, 1.0 / total, address, 1)
        return total

    def close(self) -> None:
        """Destroy the handle."""
        if self._handle is not None:
            self._destroy(self._handle)
        self._handle = None
