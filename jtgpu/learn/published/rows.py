"""Rows of states as the published kernels read them: variable by variable, 16 bits, aligned and padded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 32  # bytes: a transaction of a GPU, and a vector register of a CPU


def aligned_rows(codes: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Copy states to rows of 16-bit numbers that begin at multiples of 32 bytes."""
    # codes: (n, N) ndarray of uint8
    # returns (n, W) ndarray of uint16: W is the next multiple of 16 after N; the padding is 0.
    n, n_rows = codes.shape
    width = -(-n_rows * 2 // ALIGNMENT) * ALIGNMENT // 2
    memory = np.zeros(n * width + ALIGNMENT // 2, np.uint16)
    first = -memory.ctypes.data % ALIGNMENT // 2
    rows = memory[first : first + n * width].reshape(n, width)
    rows[:, :n_rows] = codes
    return rows
