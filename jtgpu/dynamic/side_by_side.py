"""Posteriors of sequences by a backend whose compiled code runs all slices, with sequences side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ..backends.cpu.extended_slices import ExtendedSliceTable
from ..backends.slices import Between, Side
from ..backends.table import Table
from . import propagation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..backends.slices import Messages, SliceGroup, SlicePasses, SliceTable
    from ..util.arrays import Floats, Ints
    from .sequences import Sequences
    from .step import Step

# Each group of sequences passes all slices forward in a few compiled calls, one for each table of CPTs, and backward in
# blocks of slices. Variables with children in the next slice have the product of two messages as their posterior, which
# the compiled code writes. The other targets of a block are rows of one table of cases, with both messages as weights.


class SliceTargets(NamedTuple):
    """Targets and slices of a call, and where their posteriors go."""

    targets: list[int]  # variables and sets of `step`
    slices: Ints | None  # (S,) slices of the answer; None: the last of each sequence
    smooth: bool
    arrays: dict[int, Floats]  # gets the posteriors, (B, [S,] cells)


class GroupPasses:
    """The passes over all sequences of a call, a group of them at a time."""

    def __init__(self, plain: Step, read: Sequences, table: SliceTable, maximal: bool = False):
        self.plain, self.read, self.table, self._maximal = plain, read, table, maximal
        self.lengths = read.lengths
        self.log_evidence, self.failed = np.zeros(read.n), np.full(read.n, -1)
        self._made: dict[Any, SlicePasses | None] = {}
        self._open = [plain.tree(0)]
        self._copies = 1  # of messages, those of the backend included
        # sequences that take extended numbers
        self.unsure = np.zeros(read.n, np.bool_) if isinstance(table, ExtendedSliceTable) else read.extended

    def run(self) -> None:
        """Work on all groups, on all cores."""
        n, order = self.table.lanes, np.argsort(-self.lengths, kind="stable")
        parts = [order[i : i + n] for i in range(0, len(order), n)]
        for t, _ in self._segments(0, int(self.lengths.max())):  # in one thread, since each is compiled once
            tree = self.plain.tree(t, self.read.cut(t))
            self._open.append(tree)
            of = self.plain.on_cpu if isinstance(self.table, ExtendedSliceTable) else self.plain.backend_of
            self._made[self._kind(t)] = of(tree, self._maximal).slices()
        length = int(self.lengths.max())
        size = self._size(length)
        kept = length + 1 if size == length else -(-length // size) + size + 1
        self.table.run_all(self._group, parts, 8 * self.plain.cells * n * (kept + size) * self._copies)

    def _group(self, part: Ints) -> None:
        raise NotImplementedError

    def _kind(self, t: int) -> tuple[int, frozenset[int]]:
        return min(t, self.plain.order), self.read.cut(t)

    def _passes(self, t: int) -> SlicePasses | None:
        return self._made[self._kind(t)]

    def _segments(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Parts of a range of slices whose slices have the same tables."""
        single = {t for t in (*range(self.plain.order), *self.read.cuts) if begin <= t < end}
        return list(pairwise(sorted({begin, end, *single, *(t + 1 for t in single)})))

    def _start(self, part: Ints) -> tuple[SliceGroup, int, int]:
        """A group, its number of slices, and the number in a block."""
        group = self.table.group(self.read.ptr[:-1][part], self.lengths[part], self.plain.first())
        length = int(self.lengths[part].max())
        return group, length, self._size(length)

    def _size(self, length: int) -> int:
        """Slices of a block, whose messages are kept."""
        fits = 8 * self.plain.cells * self.table.lanes * (length + 1) <= self.table.most_kept
        return length if fits else max(math.isqrt(length), 1)

    def _forward(
        self, group: SliceGroup, begin: int, end: int, kept: Messages, base: int, stride: int, out: object
    ) -> None:
        for first, last in self._segments(begin, end):
            group.forward(self._passes(first), first, last, kept, base, stride, out)

    def _note(self, group: SliceGroup, part: Ints) -> None:
        self.log_evidence[part], self.failed[part] = group.log_evidence, group.failed[: len(part)]

    def _ahead(self, group: SliceGroup, length: int, size: int) -> Messages:
        """Pass all slices; the messages into every slice, or into the first one of each block."""
        starts = group.messages(length + 1 if size == length else -(-length // size))
        self._forward(group, 0, length, starts, 0, 1 if size == length else size, group.marginals(None, _NONE))
        return starts

    def _blocks(
        self, group: SliceGroup, starts: Messages, length: int, size: int
    ) -> Iterator[tuple[int, int, Messages]]:
        """Blocks of slices, the last first, and the messages into each slice; the group's passes them backward."""
        beta = group.ones()
        again = starts if size == length else group.messages(size + 1)
        for begin in range((length - 1) // size * size, -1, -size):
            end = min(begin + size, length)
            if size < length:
                group.load(starts, begin // size)
                for first, last in self._segments(begin, end):
                    group.again(self._passes(first), first, last, again, begin)
            group.load(beta, 0)
            yield begin, end, again
            group.store(beta, 0)


class SideBySide(GroupPasses):
    """Posteriors of all sequences of a call."""

    def __init__(self, step: Step, plain: Step, read: Sequences, table: SliceTable, wanted: SliceTargets):
        # step: with the joints of the call; plain: without
        super().__init__(plain, read, table)
        self.step, self.wanted, self.slices = step, wanted, wanted.slices
        self.place = np.zeros(0, np.int64)
        if wanted.slices is not None:
            longest = max(self.lengths.max(), wanted.slices.max(initial=-1) + 1)  # of some sequences, or of all
            self.place = np.full(int(longest), -1)
            self.place[wanted.slices] = np.arange(len(wanted.slices))
        self.smooth = wanted.smooth and wanted.slices is not None  # the filtered last slice has all evidence
        maybe = [v for v in wanted.targets if v < plain.n and read.codes[0, v] >= 0]  # most targets are not observed
        self.fixed = [v for v in maybe if (read.codes[:, v] >= 0).all()]
        self.inner = [v for v in wanted.targets if v < plain.n and v in plain.after and v not in self.fixed]
        self.rest = [v for v in wanted.targets if v not in self.inner and v not in self.fixed]
        others: list[int] = []  # that the backend writes as well
        if table.takes_others and step is plain:
            others, self.rest = self.rest, []
        self._copies += bool(self.rest)
        self._written, self._others_written = [*self.inner, *others], tuple(others)
        states = np.unravel_index(np.arange(plain.cells), plain.shape)
        self._states = np.array([states[plain.after.index(v)] for v in self.inner], np.int64).reshape(-1, plain.cells)
        self._columns = np.cumsum([0, *(plain.width(v) for v in self._written)])
        rows = read.n * (1 if self.slices is None else len(self.slices))
        self._cells = np.zeros((rows, int(self._columns[-1])))

    def run(self) -> None:
        super().run()
        for v, first, last in zip(self._written, self._columns[:-1], self._columns[1:], strict=True):
            shape = self.wanted.arrays[v].shape
            self.wanted.arrays[v] = self._cells[:, first:last].reshape(shape)
        self._write_fixed()

    def _write_fixed(self) -> None:
        """Posteriors of variables that are observed in every row."""
        if not self.fixed:
            return
        at = self.read.slices
        sequence = np.repeat(np.arange(self.read.n), self.lengths)
        end = np.where(self.failed >= 0, 0 if self.smooth else self.failed, self.lengths)
        valid = at < end[sequence]
        if self.slices is None:
            rows = np.flatnonzero(valid & (at + 1 == self.lengths[sequence]))
            where: tuple[Ints, ...] = (sequence[rows],)
        else:
            rows = np.flatnonzero(valid & (self.place[at] >= 0))
            where = (sequence[rows], self.place[at[rows]])
        for v in self.fixed:
            self.wanted.arrays[v][(*where, self.read.codes[rows, v])] = 1.0

    def _group(self, part: Ints) -> None:
        group, length, size = self._start(part)
        out = self._marginals(group, part)
        if self.smooth:
            starts = self._ahead(group, length, size)
            self._note(group, part)
            if self._written or self.rest:
                self._backward(group, part, starts, length, size, out)
            self.unsure[part] |= group.finish()
            return
        for begin in range(0, length, size) if self.rest else (0,):
            end = min(begin + size, length) if self.rest else length
            kept = group.messages(end - begin if self.rest else 0)
            self._forward(group, begin, end, kept, begin, 1, out)
            self._others(group, part, (begin, end), kept, None)
        self._note(group, part)
        self.unsure[part] |= group.finish()

    def _backward(
        self, group: SliceGroup, part: Ints, starts: Messages, length: int, size: int, out: object
    ) -> None:
        least = int(self.slices.min()) if self.slices is not None else 0
        for begin, end, kept in self._blocks(group, starts, length, size):
            if end <= least:
                break
            later = group.messages(end - begin if self.rest else 0)
            for first, last in reversed(self._segments(begin, end)):
                if group.backward(self._passes(first), first, last, kept, begin, later, out):
                    self.unsure[part] = True
            if self.rest:
                self._others(group, part, (begin, end), kept, later)

    def _marginals(self, group: SliceGroup, part: Ints) -> Any:
        between = None
        if self._written:
            between = Between(self._cells, self.place, self._states, self._columns, self._others_written)
        return group.marginals(between, part * (1 if self.slices is None else len(self.slices)))

    def _others(
        self, group: SliceGroup, part: Ints, block: tuple[int, int], kept: Messages, later: Messages | None
    ) -> None:
        """The other targets of a block of slices, as a table of cases for each table of CPTs."""
        if not self.rest:
            return
        begin, kept = block[0], group.read(kept)
        later = None if later is None else group.read(later)
        for first, last in self._segments(*block):
            t, lane = np.divmod(np.arange(first * len(part), last * len(part)), len(part))
            valid = t < np.where(group.failed >= 0, 0 if self.smooth else group.failed, group.lengths)[lane]
            if self.slices is None:
                valid &= t + 1 == group.lengths[lane]
            else:
                valid &= self.place[t] >= 0
            t, lane = t[valid], lane[valid]
            if not len(t):
                continue
            messages = [kept[t - begin, :, lane], None if later is None else later[t - begin, :, lane]]
            states, weights = propagation.case_of(self.step, self.read, group.first[lane] + t, *messages)
            tree = self.step.tree(first, self.read.cut(first))
            cells = self.step.backend_of(tree).run(Table.of(states, weights, self.rest)).posterior
            where = (part[lane],) if self.slices is None else (part[lane], self.place[t])
            at = 0
            for v in self.rest:
                width = self.step.width(v)
                self.wanted.arrays[v][where] = cells[:, at : at + width]
                at += width


class Choosing(GroupPasses):
    """Configurations between slices, chosen backward: the best ones, or n at random for each sequence.

    At random the configuration after the last slice is unknown.
    """

    def __init__(self, plain: Step, read: Sequences, table: SliceTable, uniforms: Floats | None):
        # uniforms: (n, R) numbers in [0, 1) that choose; None: the best configurations
        super().__init__(plain, read, table, uniforms is None)
        self._uniforms = [_NO_NUMBERS] if uniforms is None else [*uniforms]
        self.chosen = np.full((len(self._uniforms), len(read.codes)), -1)  # after each row; -1: unknown

    def _group(self, part: Ints) -> None:
        group, length, size = self._start(part)
        starts = self._ahead(group, length, size)
        self._note(group, part)
        certain = [group.ones() for _ in self._uniforms]
        for begin, end, kept in self._blocks(group, starts, length, size):
            for own, chosen, uniforms in zip(certain, self.chosen, self._uniforms, strict=True):
                group.load(own, 0)
                for first, last in reversed(self._segments(begin, end)):
                    group.choose(self._passes(first), first, last, kept, begin, chosen, uniforms)
                group.store(own, 0)
        self.unsure[part] |= group.finish()


def side_by_side(step: Step, plain: Step, read: Sequences, wanted: SliceTargets) -> SideBySide | None:
    """The passes in compiled code; None where the backend has none, or there is no memory for it."""
    table = table_of(plain, read, False)
    return SideBySide(step, plain, read, table, wanted) if table else None


def choosing(plain: Step, read: Sequences, uniforms: Floats | None, with_evidence: bool = True) -> Choosing | None:
    """The passes in compiled code; None as of `side_by_side`."""
    table = table_of(plain, read, uniforms is None)
    if not table or not table.chooses:
        return None
    table.with_evidence = with_evidence
    return Choosing(plain, read, table, uniforms)


def table_of(plain: Step, read: Sequences, maximal: bool) -> SliceTable | None:
    """The compiled passes of a call; None where the backend has none, or there is no memory for it."""
    tree = plain.tree(0)
    passes = plain.backend_of(tree, maximal).slices()
    before, after = _side(plain, plain.before_number, plain.before), _side(plain, plain.after_number, plain.after)
    if passes is None or before is None or after is None or before.number == after.number:
        return None
    return passes.slice_table(read.codes, read.likelihood, before, after, read.lengths, propagation.KEPT)


def extended_table(step: Step, read: Sequences, maximal: bool = False, targets: Sequence[int] = ()) -> SliceTable:
    """`table_of` in extended numbers, on the CPU."""
    backend: Any = step.on_cpu(step.tree(0), maximal).slices()
    before = Side(step.before_number, step.entries(step.before_number, step.before))
    after = Side(step.after_number, step.entries(step.after_number, step.after))
    table = ExtendedSliceTable(
        backend, read.codes, read.likelihood, read.exponents, (before, after), propagation.KEPT, targets
    )
    return cast("SliceTable", table)


def _side(step: Step, number: int, scope: Sequence[int]) -> Side | None:
    """Where the messages of an interface stand in the step network; None if it is part of a larger set."""
    if step.width(number) != step.cells:
        return None
    entry: NDArray[np.float64] = step.cells_of(number, tuple(scope), np.arange(float(step.cells))[None])[0]
    place = np.empty(step.cells, np.int64)
    place[entry.astype(np.int64)] = np.arange(step.cells)
    return Side(number, place)


_NONE, _NO_NUMBERS = np.zeros(0, np.int64), np.zeros(0)
