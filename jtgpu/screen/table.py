"""A table that is screened: encoded rows, equal rows merged, and the searches over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from ..util.equal_rows import find_equal_rows
from .columns import Columns
from .engines import Engine, make_engine
from .rows import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Progress", "Screened", "Top", "check_finite"]

Progress = Callable[[int, int, str], object]

FIRST_BATCH, LARGEST_BATCH = 32, 1 << 14  # rows between which the cut is raised
SAMPLE = 4  # times the square root of the number of rows: the sample that a solving set starts with
GROWTH = 4  # part of the solving set that one step adds: a quarter


@dataclass
class Top:
    """The n rows of largest weight so far; of equal weights those of the first rows."""

    n: int
    weight: NDArray[np.float64]
    index: NDArray[np.int64]

    @classmethod
    def of(cls, n: int) -> Top:
        """No rows yet."""
        return cls(n, np.empty(0), np.empty(0, np.int64))

    def add(self, weight: NDArray[np.float64], index: NDArray[np.int64]) -> None:
        """Add rows."""
        weight, index = np.concatenate([self.weight, weight]), np.concatenate([self.index, index])
        best = np.lexsort((index, -weight))[: self.n]
        self.weight, self.index = weight[best], index[best]

    def cuts(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """For each row the weight that it must reach to be among the n."""
        if len(self.weight) < self.n:
            return np.full(len(index), -np.inf)
        cut = self.weight[-1]
        found: NDArray[np.float64] = np.where(index > self.index[-1], np.nextafter(cut, np.inf), cut)
        return found


@dataclass
class Screened:
    """Encoded rows of a table, and an engine over them."""

    columns: Columns
    k: int
    backend: str
    threads: int | None

    def __getstate__(self) -> dict[str, Any]:
        """All attributes except the engine, which is made again on use."""
        return {name: value for name, value in self.__dict__.items() if name != "engine"}

    @property
    def rows(self) -> Rows:
        """All rows."""
        return self.columns.rows

    @cached_property
    def kinds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first of each kind of equal rows, ascending, and the kind of each row.

        Only rows of states are merged.
        """
        each = np.arange(len(self.rows))
        if self.rows.numbers.shape[1] or self.backend == "reference":
            return each, each
        found = find_equal_rows(np.ascontiguousarray(self.rows.codes))
        return (each, each) if found is None else (found.first, found.kind)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of rows of each kind."""
        return np.bincount(self.kinds[1], minlength=len(self.kinds[0])).astype(np.int64)

    @cached_property
    def _members(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows by kind, and where those of each kind start."""
        return np.argsort(self.kinds[1], kind="stable"), np.concatenate([[0], np.cumsum(self.counts)])

    def members(self, kinds: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first rows, at most so many, of some kinds; and for each of them the place of its kind in `kinds`."""
        if len(self.kinds[0]) == len(self.rows):
            return kinds, np.arange(len(kinds))
        rows, starts = self._members
        sizes = np.minimum(self.counts[kinds], most)
        places = np.repeat(np.arange(len(kinds)), sizes)
        within = np.arange(len(places)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return rows[starts[kinds][places] + within], places

    @cached_property
    def engine(self) -> Engine:
        """The engine over all rows."""
        return make_engine(self.columns.measure, self.rows.take(self.kinds[0]), self.counts, self.k, self.backend)

    def weights(self, progress: Progress | None = None) -> tuple[NDArray[np.float64], int]:
        """Weights of all rows, and the number of distances."""
        first, kind = self.kinds
        items, _ = self.engine.promising()
        found, pairs = np.empty(len(first)), 0
        for at in range(0, len(items), LARGEST_BATCH):
            some = items[at : at + LARGEST_BATCH]
            found[some], more = self.engine.search(
                self.rows.take(first[some]), np.full(len(some), -np.inf), self.threads
            )
            pairs += more
            if progress is not None:
                progress(min(at + LARGEST_BATCH, len(items)) * len(self.rows) // len(items), len(self.rows), "weights")
        return found[kind], pairs

    def top(self, n: int, progress: Progress | None = None) -> tuple[Top, dict[str, int]]:
        """The n rows of largest weight.

        Rows are searched in batches, those that are probably outliers first. The search of a row ends as soon as its
        weight is below that of the n-th row of the batches before.
        """
        first, _ = self.kinds
        items, bounds = self.engine.promising()
        top, at, size, pairs, searched = Top.of(n), 0, max(FIRST_BATCH, 2 * n), 0, 0
        while at < len(items) and (len(top.weight) < n or bounds[at] >= top.weight[-1]):
            some = items[at : at + size]
            cuts = top.cuts(first[some])
            open_ = bounds[at : at + size] >= cuts
            at, size = at + size, min(2 * size, LARGEST_BATCH)
            some, cuts = some[open_], cuts[open_]
            weight, more = self.engine.search(self.rows.take(first[some]), cuts, self.threads)
            is_exact = weight >= cuts
            rows, places = self.members(some[is_exact], n)
            top.add(weight[is_exact][places], rows)
            pairs, searched = pairs + more, searched + len(some)
            if progress is not None:
                progress(min(at, len(items)) * len(self.rows) // len(items), len(self.rows), "outliers")
        if progress is not None:
            progress(len(self.rows), len(self.rows), "outliers")
        check_finite(top.weight)
        return top, {"rows": len(self.rows), "different": len(first), "searched": searched, "pairs": pairs}

    def solving_set(self, top: Top) -> NDArray[np.int64]:
        """Rows S with ``w(q, S) < w*`` for every other row q, where w* is the n-th largest weight, ascending.

        S starts with the outliers and a sample of the rows, and grows by rows that it does not settle: those farthest
        from it, and a sample of the others.
        """
        first, kind = self.kinds
        threshold, n_kinds = float(top.weight[-1]), len(first)
        if not threshold > 0:
            return np.arange(len(self.rows))
        order = self.engine.similar()
        chosen = np.zeros(n_kinds, np.bool_)
        chosen[kind[top.index]] = True
        chosen[_sample(order, max(2 * self.k, FIRST_BATCH, int(SAMPLE * n_kinds**0.5)))] = True
        if np.minimum(self.counts, self.k)[chosen].sum() < self.k:
            chosen[:] = True
        others = order[~chosen[order]]
        while len(others):
            inside = np.flatnonzero(chosen)
            engine = make_engine(
                self.columns.measure, self.rows.take(first[inside]), np.minimum(self.counts[inside], self.k), self.k,
                self.backend,
            )  # fmt: skip
            others = others[~self.engine.settled(engine, threshold, self.threads)[others]]
            weight, _ = engine.search(self.rows.take(first[others]), np.full(len(others), threshold), self.threads)
            far = weight >= threshold
            others, weight = others[far], weight[far]
            most = max(len(inside) // GROWTH, FIRST_BATCH)
            chosen[others[np.lexsort((others, -weight))[: most // 2]]] = True
            chosen[_sample(others, most // 2)] = True
            others = others[~chosen[others]]
        return np.sort(self.members(np.flatnonzero(chosen), self.k)[0])

    def against(self, rows: Rows, some: NDArray[np.int64] | None) -> NDArray[np.float64]:
        """Weights of new rows against some rows of the table, or all."""
        engine = self.engine
        if some is not None:
            engine = make_engine(
                self.columns.measure, self.rows.take(some), np.ones(len(some), np.int64), self.k, self.backend
            )
        found, _ = engine.search(rows, np.full(len(rows), -np.inf), self.threads)
        check_finite(found)
        return found


def _sample(rows: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """At most n rows, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(n, len(rows))).astype(np.int64)]


def check_finite(weights: Any) -> None:
    """Raise if weights overflow."""
    if not np.isfinite(weights).all():
        raise DataError("distances overflow float64; use scale='std', or divide the columns by their magnitude")
