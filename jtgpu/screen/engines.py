"""Engines that compute weights: a tree of boxes for numbers, bit planes for states, NumPy for the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..util.loops import loops
from . import reference
from .arrays import Coded, CodedRows, Tree
from .rows import MISSING, UNSEEN, Measure, Rows
from .workers import on_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray


_points, _shares = loops("jtgpu.screen.loops.points"), loops("jtgpu.screen.loops.shares")

__all__ = ["BitPlanes", "BoxTree", "Engine", "Everything", "make_engine"]

SMALLEST_LEAF = 16  # rows
MARGIN = 1 + 1e-9  # of bounds that are added in another order than distances
WORD = 64  # columns of a group of bit planes


class Engine(Protocol):
    """Computes weights of rows against a fixed set of at least k references."""

    def promising(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """All references, those that are probably outliers first, and a descending upper bound of their weights."""

    def similar(self) -> NDArray[np.int64]:
        """All references, similar ones close to each other."""

    def settled(self, other: Engine, threshold: float, threads: int | None) -> NDArray[np.bool_]:
        """References whose weight against those of another engine is certainly below a threshold; others may be."""

    def search(self, rows: Rows, cuts: NDArray[np.float64], threads: int | None) -> tuple[NDArray[np.float64], int]:
        """Weights of rows, and how many distances were computed.

        A weight that is less than the row's cut is an upper bound; others are exact.
        """


def make_engine(measure: Measure, references: Rows, counts: NDArray[np.int64], k: int, backend: str) -> Engine:
    """The engine for some rows, each of which stands for `counts` equal rows of the table."""
    if backend == "reference":
        return Everything(measure, references, counts, k)
    return BitPlanes(measure, references, counts, k) if measure.is_share else BoxTree(measure, references, k)


class Everything:
    """All distances of every row, by the reference."""

    def __init__(self, measure: Measure, references: Rows, counts: NDArray[np.int64], k: int):
        self._measure, self._k = measure, k
        self._references = references.take(np.repeat(np.arange(len(references)), counts))
        self._n = len(counts)

    def promising(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """See `Engine`."""
        return np.arange(self._n), np.full(self._n, np.inf)

    def similar(self) -> NDArray[np.int64]:
        """See `Engine`."""
        return np.arange(self._n)

    def settled(self, other: Engine, threshold: float, threads: int | None) -> NDArray[np.bool_]:
        """See `Engine`."""
        return np.zeros(self._n, np.bool_)

    def search(self, rows: Rows, cuts: NDArray[np.float64], threads: int | None) -> tuple[NDArray[np.float64], int]:
        """See `Engine`."""
        return reference.weights(self._measure, rows, self._references, self._k), len(rows) * len(self._references)


class BoxTree:
    """A tree of median splits, whose leaves have at least k rows: these bound the weights of their rows."""

    def __init__(self, measure: Measure, references: Rows, k: int):
        self._measure, self._k = measure, k
        x = np.ascontiguousarray(references.numbers)
        n, a = x.shape
        self._levels = max((n // max(k, SMALLEST_LEAF)).bit_length() - 1, 0)
        self._order, points = np.empty(n, np.int64), np.empty(n * a)
        boxes = np.empty((2 << self._levels, 2 * a))
        boxes[0] = 0.0
        _points.build(x, self._levels, self._order, boxes, points)
        self._tree = Tree(points, boxes, n, measure.is_squared)

    def promising(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """See `Engine`. No row of a leaf is farther from k-1 others than the diagonal of the leaf's box."""
        n, bounds, starts = len(self._order), (self._k - 1) * MARGIN * self._diagonals(), self._starts()
        leaves = np.argsort(-bounds, kind="stable")
        sizes = np.diff(starts)[leaves]
        within = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self._order[np.repeat(starts[leaves], sizes) + within], np.repeat(bounds[leaves], sizes)

    def similar(self) -> NDArray[np.int64]:
        """See `Engine`."""
        return self._order

    def settled(self, other: Engine, threshold: float, threads: int | None) -> NDArray[np.bool_]:
        """See `Engine`. A row is no farther from any point than the centre of its leaf's box and half the diagonal."""
        found = np.zeros(len(self._order), np.bool_)
        a, n_leaves = self._tree.boxes.shape[1] // 2, 1 << self._levels
        low, high = self._tree.boxes[n_leaves:, :a], self._tree.boxes[n_leaves:, a:]
        cuts = threshold - self._k * MARGIN * self._diagonals() / 2
        small = np.flatnonzero(cuts > 0)
        codes = np.empty((len(small), 0), np.int32)
        centres = Rows(low[small] + (high[small] - low[small]) / 2, codes, np.full(len(small), a))
        weights, _ = other.search(centres, cuts[small], threads)
        starts = self._starts()
        for leaf in small[weights < cuts[small]]:
            found[self._order[starts[leaf] : starts[leaf + 1]]] = True
        return found

    def _starts(self) -> NDArray[np.int64]:
        """Where the rows of each leaf start."""
        return np.array([(len(self._order) * i) >> self._levels for i in range((1 << self._levels) + 1)])

    def _diagonals(self) -> NDArray[np.float64]:
        """Diagonal of each leaf's box: no two of its rows have a larger distance."""
        a = self._tree.boxes.shape[1] // 2
        with np.errstate(over="ignore"):
            sides = self._tree.boxes[1 << self._levels :, a:] - self._tree.boxes[1 << self._levels :, :a]
            found: NDArray[np.float64] = sides.sum(axis=1)
            return np.sqrt((sides**2).sum(axis=1)) if self._measure.is_squared else found

    def search(self, rows: Rows, cuts: NDArray[np.float64], threads: int | None) -> tuple[NDArray[np.float64], int]:
        """See `Engine`."""
        x, weights = np.ascontiguousarray(rows.numbers), np.empty(len(rows))

        def work(some: slice) -> int:
            return int(_points.search(self._tree, x[some], self._k, cuts[some], weights[some]))

        return weights, on_threads(work, len(rows), threads)


class BitPlanes:
    """Blocks of rows as bit planes, ordered so that equal states are close to each other."""

    def __init__(self, measure: Measure, references: Rows, counts: NDArray[np.int64], k: int):
        self._measure, self._k = measure, k
        codes, numbers = references.codes, references.numbers
        bits = [int(column.max(initial=0)).bit_length() or 1 for column in codes.T]
        by_bits = sorted(range(len(bits)), key=bits.__getitem__)
        self._groups = [by_bits[i : i + WORD] for i in range(0, len(by_bits), WORD)]
        self._planes = [max(bits[j] for j in group) for group in self._groups]
        self._rarity = [-np.log((np.bincount(c[c >= 0], minlength=1) + 1) / (len(c) + 1)) for c in codes.T]
        self._edges = [np.quantile(c, np.arange(1, 8) / 8) if len(c) else c for c in map(_known, numbers.T)]
        spread = [float((r * np.exp(-r)).sum()) for r in self._rarity] + [2.0] * len(self._edges)  # entropies
        self._by_spread = sorted(range(len(spread)), key=lambda j: -spread[j])
        places = self._places(references)
        self._order = np.argsort(places, kind="stable")
        self._sorted_places = places[self._order]
        self._score = self._rareness(references)
        planes, observed, _, by_rows = self._coded(references.take(self._order))
        first = np.concatenate([[0], np.cumsum(self._planes, dtype=np.int64)]).astype(np.int64)
        self._coded_references = Coded(
            np.ascontiguousarray(planes.T), np.ascontiguousarray(observed.T), np.ascontiguousarray(by_rows.T),
            counts[self._order], first, measure.has_holes,
        )  # fmt: skip

    def promising(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """See `Engine`. Rows of rare states come first; there is no bound."""
        return np.argsort(-self._score, kind="stable"), np.full(len(self._score), np.inf)

    def similar(self) -> NDArray[np.int64]:
        """See `Engine`."""
        return self._order

    def settled(self, other: Engine, threshold: float, threads: int | None) -> NDArray[np.bool_]:
        """See `Engine`."""
        return np.zeros(len(self._order), np.bool_)

    def search(self, rows: Rows, cuts: NDArray[np.float64], threads: int | None) -> tuple[NDArray[np.float64], int]:
        """See `Engine`."""
        weights = np.empty(len(rows))
        starts = np.searchsorted(self._sorted_places, self._places(rows)).clip(max=len(self._order) - 1)
        coded = CodedRows(*self._coded(rows), starts.astype(np.int64), rows.divisors(self._measure))

        def work(some: slice) -> int:
            part = CodedRows._make(column[some] for column in coded)
            return int(_shares.search(self._coded_references, part, self._k, cuts[some], weights[some]))

        return weights, on_threads(work, len(rows), threads)

    def _coded(self, rows: Rows) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], Any]:
        """Planes, observed and unseen columns as bits, and numbers, all by rows."""
        n = len(rows)
        planes = np.zeros((n, sum(self._planes)), np.uint64)
        observed, unseen = np.zeros((2, n, len(self._groups)), np.uint64)
        at = 0
        for g, group in enumerate(self._groups):
            for bit, j in enumerate(group):
                codes, shift = rows.codes[:, j], np.uint64(bit)
                observed[:, g] |= (codes != MISSING).astype(np.uint64) << shift
                unseen[:, g] |= (codes == UNSEEN).astype(np.uint64) << shift
                known = codes.clip(min=0).astype(np.uint64)
                for p in range(self._planes[g]):
                    planes[:, at + p] |= ((known >> np.uint64(p)) & np.uint64(1)) << shift
            at += self._planes[g]
        return planes, observed, unseen, np.ascontiguousarray(rows.numbers)

    def _places(self, rows: Rows) -> NDArray[np.int64]:
        """A number for each row that is similar for similar rows: the columns of most information in mixed radix."""
        places, room = np.zeros(len(rows), np.int64), 1 << 62
        for j in self._by_spread:
            n_codes = len(self._rarity)
            radix = len(self._rarity[j]) + 1 if j < n_codes else 9
            room //= radix
            if not room:
                break
            if j < n_codes:
                digits = rows.codes[:, j].clip(min=-1).astype(np.int64) + 1
            else:
                digits = np.searchsorted(self._edges[j - n_codes], rows.numbers[:, j - n_codes])
            places = places * radix + digits
        return places

    def _rareness(self, rows: Rows) -> NDArray[np.float64]:
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
