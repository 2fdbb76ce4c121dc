"""States as bit planes, and an order in which similar rows are close to each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..util.arrays import Bools, Floats, Ints
from ..util.elementary import exps, logs
from ..util.loops import loops
from .arrays import Coded, CodedRows, PointTree, Sliced, SlicedRows
from .engine import MISSING, UNSEEN, Engine, Measure, Ranking, Rows, on_threads

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

    def known(self, rows: Rows) -> Bools:
        """Rows without missing cells and without states above those of the references, (B,)."""
        if rows.codes.min(initial=0) >= 0 and (rows.codes.max(axis=0, initial=0) <= self._largest).all():
            return np.ones(len(rows), np.bool_)
        known: Bools = ((rows.codes >= 0) & (rows.codes <= self._largest)).all(axis=1)
        return known

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

    def sliced(self, rows: Rows) -> tuple[Bools, Ints]:
        """The bit of each plane of columns in groups of eight, (B, P), and the first plane of each group, (G+1,).

        Plane ``8 p + j`` of a group is bit p of its column j. The rows must be `known`.
        """
        by_bits = [j for group in self._groups for j in group]
        bits = np.array([len(self._rarity[j]) - 1 for j in by_bits])
        widths = [int(bits[at : at + 8].max()).bit_length() or 1 for at in range(0, len(by_bits), 8)]
        first = np.concatenate([[0], np.cumsum(8 * np.array(widths, np.int64))]).astype(np.int64)
        sliced = np.zeros((len(rows), int(first[-1])), np.bool_)
        for at, j in enumerate(by_bits):
            codes, plane = rows.codes[:, j], int(first[at // 8]) + at % 8
            for p in range(widths[at // 8]):
                sliced[:, plane + 8 * p] = (codes >> p) & 1
        return sliced, first

    def places(self, rows: Rows) -> Ints:
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

    def rareness(self, rows: Rows) -> Floats:
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


def _known(column: Floats) -> Floats:
    """Numbers that are not missing."""
    return column[~np.isnan(column)]


# The engine for columns of numbers on the CPU: a tree of boxes.

_points = loops("jtgpu.screen.point_loops")

SMALLEST_LEAF = 16  # rows
MARGIN = 1 + 1e-9  # of bounds that are added in another order than distances


class BoxTree(Engine):
    """A tree of median splits, whose leaves have at least k rows: these bound the weights of their rows."""

    def __init__(self, measure: Measure, references: Rows, k: int):
        self._measure, self._k = measure, k
        self._references = references
        x = np.ascontiguousarray(references.numbers)
        n, a = x.shape
        self._levels = max((n // max(k, SMALLEST_LEAF)).bit_length() - 1, 0)
        self._order, points = np.empty(n, np.int64), np.empty(n * a)
        boxes = np.empty((2 << self._levels, 2 * a))
        boxes[0] = 0.0
        _points.build(x, self._levels, self._order, boxes, points)
        self._tree = PointTree(points, boxes, n, measure.is_squared)

    def ranking(self) -> Ranking:
        """See `Engine`. No row of a leaf is farther from k-1 others than the diagonal of the leaf's box."""
        bounds, starts = (self._k - 1) * MARGIN * self._diagonals(), self._starts()
        leaves = np.argsort(-bounds, kind="stable")
        return Ranking(self._order, starts[leaves], np.diff(starts)[leaves], bounds[leaves])

    def similar(self) -> Ints:
        return self._order

    def settled(self, other: Engine, threshold: float, threads: int | None) -> Bools:
        """See `Engine`. A row is no farther from any point than the centre of its leaf's box and half the diagonal."""
        settled = np.zeros(len(self._order), np.bool_)
        a, n_leaves = self._tree.boxes.shape[1] // 2, 1 << self._levels
        low, high = self._tree.boxes[n_leaves:, :a], self._tree.boxes[n_leaves:, a:]
        cuts = threshold - self._k * MARGIN * self._diagonals() / 2
        small = np.flatnonzero(cuts > 0)
        codes = np.empty((len(small), 0), np.int32)
        centres = Rows(low[small] + (high[small] - low[small]) / 2, codes, np.full(len(small), a))
        weights, _ = other.search(centres, cuts[small], threads)
        starts = self._starts()
        for leaf in small[weights < cuts[small]]:
            settled[self._order[starts[leaf] : starts[leaf + 1]]] = True
        return settled

    def _starts(self) -> Ints:
        """Where the rows of each leaf start."""
        return np.array([(len(self._order) * i) >> self._levels for i in range((1 << self._levels) + 1)])

    def _diagonals(self) -> Floats:
        """Diagonal of each leaf's box: no two of its rows have a larger distance."""
        a = self._tree.boxes.shape[1] // 2
        with np.errstate(over="ignore"):
            sides = self._tree.boxes[1 << self._levels :, a:] - self._tree.boxes[1 << self._levels :, :a]
            lengths: Floats = sides.sum(axis=1)
            return np.sqrt((sides**2).sum(axis=1)) if self._measure.is_squared else lengths

    def search(self, rows: Rows, cuts: Floats, threads: int | None) -> tuple[Floats, int]:
        x, weights = np.ascontiguousarray(rows.numbers), np.empty(len(rows))

        def work(some: slice) -> int:
            return int(_points.search(self._tree, x[some], self._k, cuts[some], weights[some]))

        return weights, on_threads(work, len(rows), threads)


# The engine for tables with states on the CPU: bit planes.

_plane_loops = loops("jtgpu.screen.plane_loops")

SLICE_BLOCK, SLICE_WORD = 1024, 64  # rows, of a block and of a word of `Sliced`
MOST_COLUMNS = 1 << 16


class PlaneEngine(Engine):
    """Blocks of rows as bit planes, ordered so that equal states are close to each other."""

    def __init__(self, measure: Measure, references: Rows, counts: Ints, k: int):
        self._measure, self._k, self._references = measure, k, references
        self._planes = Planes(references)
        places = self._planes.places(references)
        self._order = np.argsort(places, kind="stable")
        self._sorted_places = places[self._order]
        ordered = references.take(self._order)
        planes, observed, _ = self._planes.words(ordered)
        self._coded = Coded(
            np.ascontiguousarray(planes.T), np.ascontiguousarray(observed.T), np.ascontiguousarray(ordered.numbers.T),
            counts[self._order], self._planes.first, measure.has_holes,
        )  # fmt: skip
        is_plain = not (measure.has_holes or references.numbers.shape[1]) and references.codes.shape[1] < MOST_COLUMNS
        self._sliced = self._slice(ordered, counts[self._order]) if is_plain else None

    def _slice(self, rows: Rows, counts: Ints) -> Sliced:
        n_blocks = -(-len(rows) // SLICE_BLOCK)
        bits, first = self._planes.sliced(rows)
        padded = np.zeros((n_blocks * SLICE_BLOCK, bits.shape[1]), np.bool_)
        padded[: len(rows)] = bits
        words = np.packbits(np.ascontiguousarray(padded.T), axis=1, bitorder="little").view(
            np.uint64
        )  # (P, blocks * 16)
        by_block = words.reshape(len(words), n_blocks, SLICE_BLOCK // SLICE_WORD).transpose(1, 0, 2)
        more = np.zeros(n_blocks * SLICE_BLOCK, np.int64)
        more[: len(rows)] = counts
        n_columns = rows.codes.shape[1]
        return Sliced(np.ascontiguousarray(by_block).reshape(-1), first, more, len(rows), n_columns.bit_length())

    def ranking(self) -> Ranking:
        return Ranking.of_rows(np.argsort(-self._planes.rareness(self._references), kind="stable"))

    def similar(self) -> Ints:
        return self._order

    def search(self, rows: Rows, cuts: Floats, threads: int | None) -> tuple[Floats, int]:
        if self._sliced is None:
            return self._search_columns(rows, cuts, threads)
        is_known = self._planes.known(rows)
        if is_known.all():
            return self._search_slices(self._sliced, rows, cuts, threads)
        weights, pairs = np.empty(len(rows)), 0
        known, others = np.flatnonzero(is_known), np.flatnonzero(~is_known)
        if len(known):
            weights[known], pairs = self._search_slices(self._sliced, rows.take(known), cuts[known], threads)
        weights[others], more = self._search_columns(rows.take(others), cuts[others], threads)
        return weights, pairs + more

    def _starts(self, rows: Rows) -> Ints:
        """For each row a reference that is probably near."""
        starts = np.searchsorted(self._sorted_places, self._planes.places(rows)).clip(max=len(self._order) - 1)
        return starts.astype(np.int64)

    def _search_slices(self, sliced: Sliced, rows: Rows, cuts: Floats, threads: int | None) -> tuple[Floats, int]:
        """`search` of rows whose states the references have."""
        weights = np.empty(len(rows))
        masks = np.where(self._planes.sliced(rows)[0], ~np.uint64(0), np.uint64(0))
        encoded = SlicedRows(masks, self._starts(rows), rows.divisors(self._measure))

        def work(some: slice) -> int:
            part = SlicedRows._make(column[some] for column in encoded)
            return int(_plane_loops.search_slices(sliced, part, self._k, cuts[some], weights[some]))

        return weights, on_threads(work, len(rows), threads)

    def _search_columns(self, rows: Rows, cuts: Floats, threads: int | None) -> tuple[Floats, int]:
        """`search` of any rows."""
        weights = np.empty(len(rows))
        planes, observed, unseen = map(np.ascontiguousarray, self._planes.words(rows))
        numbers, divisors = np.ascontiguousarray(rows.numbers), rows.divisors(self._measure)
        coded = CodedRows(planes, observed, unseen, numbers, self._starts(rows), divisors)

        def work(some: slice) -> int:
            part = CodedRows._make(column[some] for column in coded)
            return int(_plane_loops.search_shares(self._coded, part, self._k, cuts[some], weights[some]))

        return weights, on_threads(work, len(rows), threads)
