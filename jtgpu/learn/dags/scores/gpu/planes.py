"""Bit planes of a table, as words of 32 rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Planes(NamedTuple):
    """Bit planes of a table, variables by ascending number of states, words of 32 rows."""

    # (W, P) ndarray of uint32: The plane of variable v in state s, not its last one, is column ``start[s] + v``
    words: NDArray[np.uint32]
    lasts: NDArray[np.uint32]  # (W, n) ndarray of uint32: The planes of the last states
    start: NDArray[np.int32]  # (S,) ndarray of int32
    # (B + 1,) ndarray of uint32: First words of the rows whose weights have a bit, the most significant bit first
    segments: NDArray[np.uint32]


def planes_of(codes: NDArray[np.uint8], cards: NDArray[np.int64], weights: NDArray[np.int64] | None) -> Planes:
    """Make the planes of a table whose variables are sorted by their number of states."""
    most = int(cards[-1])
    first = np.searchsorted(cards, np.arange(1, most) + 1)  # of the variables that have a plane of each state
    counts = len(cards) - first
    start = np.concatenate([[0], np.cumsum(counts)[:-1]]) - first
    parts = [np.ones(codes.shape[1], np.bool_)]
    if weights is not None:
        n_bits = int(weights.max()).bit_length()
        parts = [(weights >> bit & 1).astype(np.bool_) for bit in range(n_bits - 1, -1, -1)]
    words, lasts, segments = [], [], [0]
    for part in parts:
        rows = codes if weights is None else codes[:, part]
        packed = [_pack(rows[first[s] :] == s) for s in range(most - 1)]
        words.append(np.concatenate(packed))
        lasts.append(_pack(rows == (cards - 1)[:, None]))
        segments.append(segments[-1] + words[-1].shape[1])
    return Planes(
        np.ascontiguousarray(np.concatenate(words, axis=1).T),
        np.ascontiguousarray(np.concatenate(lasts, axis=1).T),
        start.astype(np.int32),
        np.array(segments, np.uint32),
    )


def _pack(bits: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Rows of bits as words of 32."""
    packed = np.packbits(bits, axis=1, bitorder="little")
    padded = np.zeros((len(bits), -(-packed.shape[1] // 4) * 4), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view("<u4").astype(np.uint32, copy=False)
