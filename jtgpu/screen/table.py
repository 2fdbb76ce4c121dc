"""A table that is screened: encoded rows, equal rows merged, and the searches over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import BackendUnavailable, DataError, TableTooLarge
from ..util.arrays import Floats, Ints
from ..util.rows import find_equal_rows
from . import reference
from .columns import LearnedColumns
from .engine import Engine, Measure, Ranking, Rows, ScreenTarget
from .gpu_engine import GpuEngine, SeveralGpus
from .planes import BoxTree, PlaneEngine

# The engine of a backend: reference, CPU or GPUs.

def make_engine(measure: Measure, references: Rows, counts: Ints, k: int, target: ScreenTarget) -> Engine:
    """The engine for some rows, each of which stands for `counts` equal rows of the table."""
    if target.backend == "reference":
        return Everything(measure, references, counts, k)
    if target.backend == "gpu":
        if len(target.devices) == 1:
            return GpuEngine(measure, references, counts, k, target.devices[0])
        return SeveralGpus(measure, references, counts, k, target.devices)
    return PlaneEngine(measure, references, counts, k) if measure.is_share else BoxTree(measure, references, k)


class Everything(Engine):
    """All distances of every row, by the reference."""

    def __init__(self, measure: Measure, references: Rows, counts: Ints, k: int):
        self._measure, self._k, self._references = measure, k, references
        self._repeated = references.take(np.repeat(np.arange(len(references)), counts))

    def ranking(self) -> Ranking:
        return Ranking.of_rows(self.similar())

    def similar(self) -> Ints:
        return np.arange(len(self._references))

    def search(self, rows: Rows, cuts: Floats, threads: int | None) -> tuple[Floats, int]:
        return reference.weights(self._measure, rows, self._repeated, self._k), len(rows) * len(self._repeated)


Progress = Callable[[int, int, str], object]

SMALLEST_STEP = 32  # rows that a solving set starts with, and that it grows by, at least
SAMPLE = 4  # times the square root of the number of rows: the sample that a solving set starts with
GROWTH = 4  # part of the solving set that one step adds: a quarter


@dataclass
class Top:
    """The n rows of largest weight so far; of equal weights those of the first rows."""

    n: int
    weight: Floats
    index: Ints

    @classmethod
    def of(cls, n: int) -> Top:
        """No rows yet."""
        return cls(n, np.empty(0), np.empty(0, np.int64))

    def add(self, weight: Floats, index: Ints) -> None:
        """Add rows."""
        weight, index = np.concatenate([self.weight, weight]), np.concatenate([self.index, index])
        best = np.lexsort((index, -weight))[: self.n]
        self.weight, self.index = weight[best], index[best]

    def cuts(self, index: Ints) -> Floats:
        """For each row the weight that it must reach to be among the n."""
        if len(self.weight) < self.n:
            return np.full(len(index), -np.inf)
        cut = self.weight[-1]
        limits: Floats = np.where(index > self.index[-1], np.nextafter(cut, np.inf), cut)
        return limits


@dataclass
class Screened:
    """Encoded rows of a table, and an engine over them."""

    columns: LearnedColumns
    k: int
    target: ScreenTarget

    def __getstate__(self) -> dict[str, object]:
        """All attributes except the engine, which is made again on use."""
        return {name: value for name, value in self.__dict__.items() if name != "_engine"}

    @property
    def rows(self) -> Rows:
        """All rows."""
        return self.columns.rows

    @cached_property
    def kinds(self) -> tuple[Ints, Ints]:
        """The first of each kind of equal rows, ascending, and the kind of each row.

        Only rows of states are merged.
        """
        equal = None
        if not self.rows.numbers.shape[1] and self.target.backend != "reference":
            equal = find_equal_rows(self.rows.codes)
        if equal is not None:
            return equal.first, equal.kind
        each = np.arange(len(self.rows))
        return each, each

    @cached_property
    def counts(self) -> Ints:
        """Number of rows of each kind."""
        first, kind = self.kinds
        if len(first) == len(kind):
            return np.ones(len(kind), np.int64)
        return np.bincount(kind, minlength=len(first)).astype(np.int64)

    @cached_property
    def _members(self) -> tuple[Ints, Ints]:
        """Rows by kind, and where those of each kind start."""
        return np.argsort(self.kinds[1], kind="stable"), np.concatenate([[0], np.cumsum(self.counts)])

    def members(self, kinds: Ints, most: int) -> tuple[Ints, Ints]:
        """The first rows of some kinds, at most so many of each, and for each row the place of its kind in `kinds`."""
        if len(self.kinds[0]) == len(self.rows):
            return kinds, np.arange(len(kinds))
        rows, starts = self._members
        sizes = np.minimum(self.counts[kinds], most)
        places = np.repeat(np.arange(len(kinds)), sizes)
        within = np.arange(len(places)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return rows[starts[kinds][places] + within], places

    @cached_property
    def _engine(self) -> Engine:
        first, _ = self.kinds
        references = self.rows if len(first) == len(self.rows) else self.rows.take(first)
        try:
            return self._made(references, self.counts)
        except (BackendUnavailable, TableTooLarge) as error:
            if not self.target.is_auto:
                raise
            self.target = ScreenTarget("cpu", self.target.threads, reason=f"auto: {error}")
            return self._made(references, self.counts)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The engine over all rows. On a GPU it exists for a block only, so that no call leaves memory allocated."""
        try:
            yield self._engine
        finally:
            if self.target.backend == "gpu" and "_engine" in self.__dict__:
                self.__dict__.pop("_engine").close()

    def weights(self, progress: Progress | None = None) -> tuple[Floats, int]:
        """Weights of all rows, and the number of distances."""
        all_weights = np.empty(len(self.kinds[0]))
        items, weights, pairs = self.weights_of_part(0, 1, progress)
        all_weights[items] = weights
        return all_weights[self.kinds[1]], pairs

    def weights_of_part(self, part: int, n_parts: int, progress: Progress | None = None) -> tuple[Ints, Floats, int]:
        """Some kinds of rows, part `part` of `n_parts`; their weights, and the number of distances."""
        pairs = 0
        with self.engine() as engine:
            items, (_, size) = engine.similar(), engine.batches
            items = items[len(items) * part // n_parts : len(items) * (part + 1) // n_parts]
            weights = np.empty(len(items))
            for at in range(0, len(items), size):
                some = items[at : at + size]
                cuts = np.full(len(some), -np.inf)
                weights[at : at + size], more = engine.search_own(some, cuts, self.target.threads)
                pairs += more
                if progress is not None:
                    progress(min(at + size, len(items)) * len(self.rows) // len(items), len(self.rows), "weights")
        return items, weights, pairs

    def top(
        self, n: int, progress: Progress | None = None, part: int = 0, n_parts: int = 1
    ) -> tuple[Top, dict[str, int]]:
        """The n rows of largest weight, of all or of part `part` of `n_parts`.

        Rows are searched in batches, those that are probably outliers first. The search of a row ends as soon as its
        weight is below that of the n-th row of the batches before.
        """
        first, _ = self.kinds
        top, at, done, pairs, searched = Top.of(n), 0, 0, 0, 0
        with self.engine() as engine:
            ranking = engine.ranking().part(part, n_parts)
            bounds, ends = ranking.bounds, np.cumsum(ranking.sizes)
            size, largest = max(engine.batches[0], 2 * n), engine.batches[1]
            while at < len(ends) and (len(top.weight) < n or bounds[at] >= top.weight[-1]):
                last = max(int(np.searchsorted(ends, done + size, "right")), at + 1)
                some, bound = ranking.rows(at, last), np.repeat(bounds[at:last], ranking.sizes[at:last])
                cuts = top.cuts(first[some])
                open_ = bound >= cuts
                some, cuts = some[open_], cuts[open_]
                weight, more = engine.search_own(some, cuts, self.target.threads)
                is_exact = weight >= cuts
                rows, places = self.members(some[is_exact], n)
                top.add(weight[is_exact][places], rows)
                pairs, searched = pairs + more, searched + len(some)
                at, done, size = last, int(ends[last - 1]), min(2 * size, largest)
                if progress is not None:
                    progress(done * len(self.rows) // int(ends[-1]), len(self.rows), "outliers")
        if progress is not None:
            progress(len(self.rows), len(self.rows), "outliers")
        check_finite(top.weight)
        return top, {"rows": len(self.rows), "different": len(first), "searched": searched, "pairs": pairs}

    def solving_set(self, top: Top) -> Ints:
        """Rows S with ``w(q, S) < w*`` for every other row q, where w* is the n-th largest weight, ascending.

        S starts with the outliers and a sample of the rows, and grows by rows that it does not settle: those farthest
        from it, and a sample of the others.
        """
        threshold = float(top.weight[-1])
        if not threshold > 0:
            return np.arange(len(self.rows))
        with self.engine() as whole:
            return self._solving_set(whole, top, threshold)

    def _solving_set(self, whole: Engine, top: Top, threshold: float) -> Ints:
        first, kind = self.kinds
        n_kinds, threads, order = len(first), self.target.threads, whole.similar()
        chosen = np.zeros(n_kinds, np.bool_)
        chosen[kind[top.index]] = True
        chosen[_sample(order, max(2 * self.k, SMALLEST_STEP, int(SAMPLE * n_kinds**0.5)))] = True
        if np.minimum(self.counts, self.k)[chosen].sum() < self.k:
            chosen[:] = True
        others = order[~chosen[order]]
        while len(others):
            inside = np.flatnonzero(chosen)
            counts = np.minimum(self.counts[inside], self.k)
            with closing(self._made(self.rows.take(first[inside]), counts)) as engine:
                others = others[~whole.settled(engine, threshold, threads)[others]]
                weight, _ = engine.search(self.rows.take(first[others]), np.full(len(others), threshold), threads)
            far = weight >= threshold
            others, weight = others[far], weight[far]
            most = max(len(inside) // GROWTH, SMALLEST_STEP)
            chosen[others[np.lexsort((others, -weight))[: most // 2]]] = True
            chosen[_sample(others, most // 2)] = True
            others = others[~chosen[others]]
        return np.sort(self.members(np.flatnonzero(chosen), self.k)[0])

    def _made(self, references: Rows, counts: Ints) -> Engine:
        return make_engine(self.columns.measure, references, counts, self.k, self.target)

    def against(self, rows: Rows, some: Ints | None) -> Floats:
        """Weights of new rows against some rows of the table, or all."""
        cuts, threads = np.full(len(rows), -np.inf), self.target.threads
        if some is None:
            with self.engine() as engine:
                weights, _ = engine.search(rows, cuts, threads)
        else:
            with closing(self._made(self.rows.take(some), np.ones(len(some), np.int64))) as engine:
                weights, _ = engine.search(rows, cuts, threads)
        check_finite(weights)
        return weights


def _sample(rows: Ints, n: int) -> Ints:
    """At most n rows, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(n, len(rows))).astype(np.int64)]


def check_finite(weights: Any) -> None:
    """Raise if weights overflow."""
    if not np.isfinite(weights).all():
        raise DataError("distances overflow float64; use scale='std', or divide the columns by their magnitude")
