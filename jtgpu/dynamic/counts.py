"""Expected counts of the families of a slice, added over slices and sequences: the E-step of learning over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends.table import Table
from .propagation import Propagation, case_of, chunks
from .side_by_side import GroupPasses, extended_table, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backends.slices import SliceGroup, SliceTable
    from ..util.arrays import Bools, Floats, Ints
    from .sequences import Sequences
    from .step import Step

# Given the messages into a slice and from what follows, a slice is a case of the step network, whose expected
# counts are those given the whole sequence. Slices of one kind are counted together.

BLOCK_CELLS = 1 << 19  # of the messages of slices that are counted together


class SliceCounts(NamedTuple):
    """Expected counts, and which sequences they are of."""

    cpts: list[Floats]  # of every CPT, over the slices in which it holds; of static variables once a sequence
    start: list[list[Floats]]  # of the CPTs in the first slices
    log_evidence: Floats  # (N,) -inf if impossible: such a sequence adds nothing
    failed: Ints  # (N,) the first impossible slice; -1: none


class _Sum:
    """Counts of the step network, added up as counts of CPTs."""

    def __init__(self, step: Step):
        self._step = step
        self.cpts, self.start = step.zeros()

    def add(self, kind: int, families: Sequence[Floats], cut: frozenset[int] = frozenset()) -> None:
        """Add counts of some slices of a kind; variables in `cut` are set, so their CPTs do not hold."""
        for v, above in enumerate(self._step.parents):
            if v in cut or (v in self._step.static and kind > 0):
                continue
            if kind < len(self.start[v]):
                absent = tuple(i for i, (_, lag) in enumerate(above) if lag > kind)
                self.start[v][kind] += families[v].sum(axis=absent)
            else:
                self.cpts[v] += families[v]

    def join(self, other: _Sum) -> None:
        """Add other counts."""
        for mine, theirs in zip(self.cpts, other.cpts, strict=True):
            mine += theirs
        for first, tables in zip(self.start, other.start, strict=True):
            for mine, theirs in zip(first, tables, strict=True):
                mine += theirs


class _Counting(GroupPasses):
    """The passes in compiled code, each block of slices followed by its counts."""

    def __init__(self, step: Step, read: Sequences, table: SliceTable, weights: Floats):
        super().__init__(step, read, table)
        self._weights = weights
        self._sums: dict[int, _Sum] = {}  # of each group, by its first sequence
        self._added: dict[int, dict[Any, Floats]] = {}  # of each group, what the backend has added up
        self.numbers = [step.joints[s] for s in step.families] if table.adds and step.joints else []
        self._columns = np.cumsum([0, *map(step.width, self.numbers)]).tolist()
        if self.numbers:
            table.leave_room(8 * self._columns[-1] * (step.order + 1 + len(read.cuts)))

    def total(self) -> _Sum:
        """The counts of all sequences, in an order that does not depend on threads."""
        total = _Sum(self.plain)
        for i in sorted(self._sums):
            total.join(self._sums[i])
        groups = [self._added[i] for i in sorted(self._added, key=lambda i: (-self.lengths[i], i))]
        for kind, cut in {key: None for own in groups for key in own}:
            cells = np.concatenate([own[kind, cut] for own in groups if (kind, cut) in own]).sum(axis=0)
            total.add(kind, self._tables(cells), cut)
        return total

    def _tables(self, cells: Floats) -> list[Floats]:
        """Sums of distributions as the tables of the families."""
        step, parts = self.plain, np.split(cells, self._columns[1:-1])
        each = zip(step.families, self.numbers, parts, strict=True)
        return [step.joint(number, scope, x) if len(scope) > 1 else x for scope, number, x in each]

    def _group(self, part: Ints) -> None:
        unsure = self.unsure[part]
        while not self._count(part, unsure):  # some sequences take extended numbers: the others without these
            unsure = self.unsure[part]

    def _count(self, part: Ints, unsure: Bools) -> bool:
        """Count a group without some of its sequences; whether no more than these have no answer."""
        group, length, size = self._start(part)
        starts = self._ahead(group, length, size)
        self._note(group, part)
        total = self._sums[int(part[0])] = _Sum(self.plain)
        each = np.where(unsure, 0.0, self._weights[part])
        own: dict[tuple[int, frozenset[int]], Any] = {}  # of slices with the same tables: cells, and their passes
        adding: dict[tuple[int, frozenset[int]], Any] = {}
        for begin, end, kept in self._blocks(group, starts, length, size):
            later = group.messages(0 if self.numbers else end - begin)
            nothing = group.marginals(None, part)
            for first, last in reversed(self._segments(begin, end)):
                passes, key = self._passes(first), (min(first, self.plain.order), self.read.cut(first))
                if self.numbers and key not in adding:
                    adding[key] = group.adding(self.numbers, self._columns)
                group.backward(passes, first, last, kept, begin, later, adding.get(key, nothing))
                if self.table.counts:  # from the last slice to the first: no bit depends on blocks
                    cells = own[key][0] if key in own else None
                    own[key] = group.count(passes, first, last, (kept, later), begin, each, cells), passes
            if self.table.counts or self.numbers:
                continue
            kept, later = group.read(kept), group.read(later)
            for first, last in self._segments(begin, end):
                t, lane = np.divmod(np.arange(first * len(part), last * len(part)), len(part))
                valid = (group.failed[lane] < 0) & (t < group.lengths[lane]) & ~unsure[lane]
                self._add(total, group, part, (t[valid], lane[valid]), (kept, later), begin)
        self._added[int(part[0])] = {key: group.added(out, each) for key, out in adding.items()}
        for (kind, cut), (cells, passes) in own.items():
            total.add(kind, group.families(passes, cells), cut)
        self.unsure[part] |= group.finish()
        return bool(self.numbers) or not (self.unsure[part] & ~unsure).any()

    def _add(
        self, total: _Sum, group: SliceGroup, part: Ints, cases: tuple[Ints, Ints], messages: tuple[Floats, Floats],
        begin: int,
    ) -> None:  # fmt: skip
        """Add the counts of slices with the same tables; `messages` are those into and out of slices begin ..."""
        step, rows = self.plain, max(BLOCK_CELLS // (2 * self.plain.cells), 1)
        for at in range(0, len(cases[0]), rows):
            t, lane = (x[at : at + rows] for x in cases)
            both = [m[t - begin, :, lane] for m in messages]
            first = int(t[0])
            cut = self.read.cut(first)
            states, likelihood = case_of(step, self.read, group.first[lane] + t, *both)
            tree = step.tree(first, cut)
            counts = step.backend_of(tree).run(Table.counts(states, self._weights[part[lane]], likelihood))
            total.add(min(first, step.order), counts.families, cut)


def expected_counts(step: Step, sequences: Sequences, weights: Floats) -> SliceCounts:
    """Expected counts of sequences, each with a weight."""
    # weights: (N,)
    total, left, unsure = _Sum(step), np.ones(sequences.n, np.bool_), sequences.extended
    log_evidence, failed = np.zeros(sequences.n), np.full(sequences.n, -1)
    table = table_of(step, sequences, False)
    if table is not None:
        passes = _Counting(step, sequences, table, weights)
        if table.lanes:
            passes.run()
            total, left, unsure = passes.total(), ~left, passes.unsure
            log_evidence, failed = passes.log_evidence, passes.failed
    for chosen in chunks(step, sequences, step.cells, left & ~unsure) if left.any() else ():
        run = Propagation(step, sequences, chosen)
        done = run.forward(keep=True)
        log_evidence[chosen], failed[chosen] = done.log_evidence, done.failed
        for _ in run.backward():  # which sequences have to be left out
            pass
        unsure[chosen] = run.unsure
        _count_slices(run, weights, total)
    if unsure.any():
        rows = np.flatnonzero(unsure)
        some = sequences.some(rows)
        again = _Counting(step, some, extended_table(step, some), weights[rows])
        again.run()
        total.join(again.total())
        log_evidence[rows], failed[rows] = again.log_evidence, again.failed
    return SliceCounts(total.cpts, total.start, log_evidence, failed)


def _count_slices(run: Propagation, weights: Floats, total: _Sum) -> None:
    """Add the slices of some sequences, after their forward pass."""
    step = run.step
    waiting: list[tuple[int, Ints, Floats, Floats]] = []
    cells, group = 0, (0, frozenset[int]())

    def flush() -> None:
        if not waiting:
            return
        cases = [run.case(*one) for one in waiting]
        states = np.concatenate([s for s, _ in cases])
        likelihood = {v: np.concatenate([w[v] for _, w in cases]) for v in cases[0][1]}
        each = np.concatenate([weights[run.chosen[which]] for _, which, _, _ in waiting])
        kind, cut = group
        tree = step.tree(kind, cut)
        total.add(kind, step.backend_of(tree).run(Table.counts(states, each, likelihood)).families, cut)
        waiting.clear()

    for t, which, alpha, beta in run.backward():
        own = (min(t, step.order), run.sequences.cut(t))
        if own != group or cells > BLOCK_CELLS:
            flush()
            cells, group = 0, own
        waiting.append((t, which, alpha, beta))
        cells += alpha.size + beta.size
    flush()


def complete_counts(step: Step, sequences: Sequences, weights: Floats) -> SliceCounts:
    """Counts of every family over the slices in which it is observed."""
    codes = sequences.codes.copy()
    at = sequences.slices
    for v in step.static:  # observed in any slice
        codes[:, v] = np.repeat(np.maximum.reduceat(codes[:, v], sequences.ptr[:-1]), sequences.lengths)
    columns = np.full((step.n_variables, len(codes)), -1, np.int32)
    for (v, lag), number in step.number.items():
        columns[number, lag:] = codes[: len(codes) - lag, v]
        columns[number, at < lag] = 0  # the state of copies that do not exist
    total, each = _Sum(step), np.repeat(weights, sequences.lengths)
    for kind in range(step.order + 1):
        rows = at == kind if kind < step.order else at >= kind
        families = []
        for v, above in enumerate(step.parents):
            scope = [*(step.number[p] for p in above), v]
            shape = tuple(len(step.net.states(step.origin[u])) for u in scope)
            used = rows & (columns[scope] >= 0).all(axis=0)
            flat = np.ravel_multi_index(tuple(columns[u][used] for u in scope), shape)
            counted = np.bincount(flat, each[used], minlength=int(np.prod(shape)))
            families.append(np.asarray(counted, np.float64).reshape(shape))
        total.add(kind, families)
    return SliceCounts(total.cpts, total.start, np.zeros(sequences.n), np.full(sequences.n, -1))
