"""States as bit planes, and an order in which similar rows are close to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..util.elementary import exps, logs
from .rows import MISSING, UNSEEN, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD = 64  # columns of a group of bit planes


class Planes:
    """Encodes rows as the bit planes of some references."""
    # first: (G+1,) ndarray of int64: First plane of each group of up to 64 columns

    def __init__(self, references: Rows):
        codes, numbers = references.codes, references.numbers
        self._largest = np.maximum(codes.max(axis=0, initial=0), 0)
        bits = [int(largest).bit_length() or 1 for largest in self._largest]
        by_bits = sorted(range(len(bits)), key=bits.__getitem__)
        self._groups = [by_bits[i : i + WORD] for i in range(0, len(by_bits), WORD)]
        self._planes = [max(bits[j] for j in group) for group in self._groups]
        self._rarity = [-logs((np.bincount(c[c >= 0], minlength=1) + 1) / (len(c) + 1)) for c in codes.T]
        self._edges = [np.quantile(c, np.arange(1, 8) / 8) if len(c) else c for c in map(_known, numbers.T)]
        spread = [float((r * exps(-r)).sum()) for r in self._rarity] + [2.0] * len(self._edges)  # entropies
        self._by_spread = sorted(range(len(spread)), key=lambda j: -spread[j])
        self.first = np.concatenate([[0], np.cumsum(self._planes, dtype=np.int64)]).astype(np.int64)

    def known(self, rows: Rows) -> NDArray[np.bool_]:
        """Rows without missing cells and without states above those of the references, (B,)."""
        if rows.codes.min(initial=0) >= 0 and (rows.codes.max(axis=0, initial=0) <= self._largest).all():
            return np.ones(len(rows), np.bool_)
        found: NDArray[np.bool_] = ((rows.codes >= 0) & (rows.codes <= self._largest)).all(axis=1)
        return found

    def words(self, rows: Rows) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
        """Planes, (B, P); observed and unseen columns as bits, (B, G)."""
        n = len(rows)
        planes = np.zeros((sum(self._planes), n), np.uint64)
        observed, unseen = np.zeros((2, len(self._groups), n), np.uint64)
        for g, group in enumerate(self._groups):
            always = 0  # columns without missing cells
            for bit, j in enumerate(group):
                codes, shift = np.ascontiguousarray(rows.codes[:, j]), np.uint64(bit)
                if codes.max(initial=0) > self._largest[j]:  # the references may be some rows of a table
                    codes = np.where(codes > self._largest[j], np.int32(UNSEEN), codes)
                if codes.min(initial=0) >= 0:
                    always |= 1 << bit
                else:
                    observed[g] |= (codes != MISSING).astype(np.uint64) << shift
                    unseen[g] |= (codes == UNSEEN).astype(np.uint64) << shift
                    codes = codes.clip(min=0)
                known = codes.astype(np.uint64)
                for p in range(int(codes.max(initial=0)).bit_length()):
                    planes[self.first[g] + p] |= ((known >> np.uint64(p)) & np.uint64(1)) << shift
            observed[g] |= np.uint64(always)
        return planes.T, observed.T, unseen.T

    def sliced(self, rows: Rows) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """The bit of each plane of columns in groups of eight, (B, P), and the first plane of each group, (G+1,).

        Plane ``8 p + j`` of a group is bit p of its column j. The rows must be `known`.
        """
        by_bits = [j for group in self._groups for j in group]
        bits = np.array([len(self._rarity[j]) - 1 for j in by_bits])
        widths = [int(bits[at : at + 8].max()).bit_length() or 1 for at in range(0, len(by_bits), 8)]
        first = np.concatenate([[0], np.cumsum(8 * np.array(widths, np.int64))]).astype(np.int64)
        found = np.zeros((len(rows), int(first[-1])), np.bool_)
        for at, j in enumerate(by_bits):
            codes, plane = rows.codes[:, j], int(first[at // 8]) + at % 8
            for p in range(widths[at // 8]):
                found[:, plane + 8 * p] = (codes >> p) & 1
        return found, first

    def places(self, rows: Rows) -> NDArray[np.int64]:
        """A number for each row that is similar for similar rows: the columns of most information in mixed radix."""
        places, room = np.zeros(len(rows), np.int64), 1 << 62
        for j in self._by_spread:
            n_codes = len(self._rarity)
            radix = len(self._rarity[j]) + 1 if j < n_codes else 9
            room //= radix
            if not room:
                break
            if j < n_codes:
                digits = np.maximum(rows.codes[:, j], -1) + np.int64(1)
            else:
                digits = np.searchsorted(self._edges[j - n_codes], rows.numbers[:, j - n_codes])
            places = places * radix + digits
        return places

    def rareness(self, rows: Rows) -> NDArray[np.float64]:
        """Information of a row's states and distance of its numbers from the medians."""
        score = np.zeros(len(rows))
        for j, rarity in enumerate(self._rarity):
            score += np.append(rarity, 0.0)[rows.codes[:, j].clip(min=-1)]
        for j, edges in enumerate(self._edges):
            if len(edges):
                off = np.abs(rows.numbers[:, j] - edges[3])
                known = _known(off)
                score += np.nan_to_num(off / (float(known.mean()) or 1.0)) if len(known) else 0.0
        return score


def _known(column: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers that are not missing."""
    return column[~np.isnan(column)]
