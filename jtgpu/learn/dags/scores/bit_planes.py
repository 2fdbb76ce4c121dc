"""A table of states as bit planes: one bit for each row, one plane for each state of a variable but the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 4  # words of a plane are a multiple of this


class BitPlanes(NamedTuple):
    """Bit planes of a table."""

    # (P, W) ndarray of uint64: Bit t % 64 of word t // 64 is set if row t is in the plane's state. Bits beyond the last
    #     row are 0.
    words: NDArray[np.uint64]
    ptr: NDArray[np.int64]  # (n,) ndarray of int64: First plane of each variable


def bit_planes(codes: NDArray[np.uint8], card: NDArray[np.int64]) -> BitPlanes:
    """Make the bit planes of a table."""
    # codes: (n, N) ndarray of uint8
    # card: (n,) ndarray of int64
    ptr = np.concatenate([[0], np.cumsum(card - 1)])
    n_bytes = -(-codes.shape[1] // (64 * ALIGNMENT)) * 8 * ALIGNMENT
    packed = np.zeros((int(ptr[-1]), n_bytes), np.uint8)
    used = -(-codes.shape[1] // 8)
    for v, column in enumerate(codes):
        for s in range(int(card[v]) - 1):
            packed[ptr[v] + s, :used] = np.packbits(column == s, bitorder="little")
    return BitPlanes(packed.view("<u8").astype(np.uint64, copy=False), ptr[:-1].astype(np.int64))
