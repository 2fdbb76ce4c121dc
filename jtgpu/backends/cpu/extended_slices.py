"""Slices of a dynamic network in extended numbers, for sequences in which ordinary ones lose digits.

Every entry of a message is a mantissa and an exponent, so a state that falls below 1e-308 of another one can come back.
A group is one sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...util.loops import loops
from ..slices import Between, Side, observed
from ..state_map import NOTHING
from .batch import MOST_MEMORY
from .engine import Cpu
from .programs import CachedProgram
from .records import ExtendedWeights
from .runner import Runner, on_all_cores
from .slice_records import Ends, Line

_loops = loops("jtgpu.backends.cpu.loops.extended_slices")

BLOCK = 1 << 16  # entries of messages of slices that are answered together

_Messages = tuple["NDArray[np.float64]", "NDArray[np.int64]"]  # (n, K) mantissas and exponents


class _Way(NamedTuple):
    """A program's pattern, and where its weights stand."""

    soft: tuple[int, ...]
    first: NDArray[np.int64]  # (V,) first weight of each variable, by rank
    ends: Ends


class ExtendedSliceTable:
    """`jtgpu.backends.slices.SliceTable` in extended numbers."""
    # states, likelihood: As of `SlicePasses.slice_table`
    # exponents: Variable to powers of two that its likelihoods are multiplied by, (R, card); of some variables
    # sides: Where messages into and out of a slice stand; `place` is the entry of each cell of their numbers
    # targets: Variables and sets whose distributions are answered

    lanes, takes_others, chooses, counts, adds, with_evidence = 1, True, True, True, False, True

    def __init__(
        self, backend: Cpu, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]],
        exponents: Mapping[int, NDArray[np.int64]], sides: tuple[Side, Side], most_kept: int,
        targets: Sequence[int] = (),
    ):  # fmt: skip
        self._runner, self.most_kept = backend.runner, most_kept
        self.before, self.after = before, after = sides
        self.maximal = backend.runner.model.numbers.is_maximal
        program = self.program = backend.runner.program
        some, always = observed(states)
        weighed = {u for v in (before.number, after.number, *targets) for u in program.weighed_scope(v)}
        soft = {*likelihood, *(v for v in np.flatnonzero(some).tolist() if v in weighed or not always[v])}
        self.seen = np.zeros(program.n_variables, np.bool_)
        self.seen[: len(always)] = always
        self.seen[list(soft)] = False
        self.states = np.full((len(states), program.n_variables), -1, np.int32)
        self.states[:, self.seen] = states[:, self.seen[: states.shape[1]]]
        self._soft, self._first, values, powers, self._width = soft, {}, [np.zeros((len(states), 0))], [], 1
        for v in sorted(soft):
            given = likelihood.get(v, np.ones((len(states), int(program.cardinality[v]))))
            value, power = np.frexp(given)
            power = power + exponents.get(v, 0)
            if some[v]:
                value[(states[:, v, None] >= 0) & (states[:, v, None] != np.arange(value.shape[1]))] = 0.0
            self._first[v] = self._width
            self._width += value.shape[1]
            values.append(value)
            powers.append(power.astype(np.int64))
        self.value = np.ascontiguousarray(np.hstack(values))
        self.power = np.ascontiguousarray(np.hstack([np.zeros((len(states), 0), np.int64), *powers]))
        self.ahead, self.back = self._way(True, False), self._way(False, True)
        self.both = self._way(True, True)

    def _way(self, ahead: bool, back: bool) -> _Way:
        """A program with weights of the interface before a slice, after it, or both."""
        program, before, after = self.program, self.before.number, self.after.number
        first = np.zeros(program.n_variables, np.int64)
        for v, at in self._first.items():
            first[program.axis_rank[v]] = at
        own_before, own_after = self._first.get(before, 0), self._first.get(after, 0)
        at_before, at_after = self._width, self._width + len(self.before.place)
        if ahead:
            first[program.axis_rank[before]] = at_before
        if back:
            first[program.axis_rank[after]] = at_after
        if ahead and back and before == after:  # the second message is multiplied with the first one
            own_after = at_before
        soft = tuple(sorted({*self._soft, *([before] if ahead else []), *([after] if back else [])}))
        ends = Ends(self.before.place, self.after.place, at_before, at_after, own_before, own_after, self.maximal)
        return _Way(soft, first, ends)

    @property
    def n_weights(self) -> int:
        """Weights of a program."""
        return self._width + len(self.before.place) + len(self.after.place)

    def group(
        self, first: NDArray[np.int64], lengths: NDArray[np.int64], message: NDArray[np.float64]
    ) -> ExtendedSliceGroup:
        return ExtendedSliceGroup(self, first, lengths, message)

    def leave_room(self, n_bytes: int) -> None:
        raise NotImplementedError

    def run_all(self, work: Callable[[Any], None], parts: Sequence[object], each: int) -> None:
        on_all_cores([partial(work, part) for part in parts], self._runner, max(MOST_MEMORY // max(each, 1), 1))


class ExtendedSliceGroup:
    """`jtgpu.backends.slices.SliceGroup` of one sequence."""

    def __init__(
        self, table: ExtendedSliceTable, first: NDArray[np.int64], lengths: NDArray[np.int64],
        message: NDArray[np.float64],
    ):  # fmt: skip
        self.table, self.first, self.lengths = table, first, lengths
        self._rows = slice(int(first[0]), int(first[0] + lengths[0]))
        cell, power = np.frexp(np.asarray(message, np.float64))
        self._line = Line(
            table.value[self._rows], table.power[self._rows], cell, power.astype(np.int64), np.ones(1),
            np.zeros(1, np.int64), np.full(1, -1),
        )  # fmt: skip

    @property
    def failed(self) -> NDArray[np.int64]:
        return self._line.failed

    @property
    def log_evidence(self) -> NDArray[np.float64]:
        total = np.log(self._line.total) + self._line.exponent * np.log(2.0)
        return np.where(self.failed >= 0, -np.inf, total)

    def messages(self, n: int) -> _Messages:
        return np.empty((n, len(self._line.cell))), np.empty((n, len(self._line.cell)), np.int64)

    def ones(self) -> _Messages:
        k = len(self._line.cell)
        return np.full((1, k), 0.5), np.ones((1, k), np.int64)

    def load(self, messages: _Messages, i: int) -> None:
        self._line.cell[:], self._line.power_of[:] = messages[0][i], messages[1][i]

    def store(self, messages: _Messages, i: int) -> None:
        messages[0][i], messages[1][i] = self._line.cell, self._line.power_of

    def read(self, messages: _Messages) -> NDArray[np.float64]:
        raise NotImplementedError

    def marginals(self, between: Between | None, rows: NDArray[np.int64]) -> tuple[Between, int] | None:
        return None if between is None else (between, int(rows[0]))

    def forward(
        self, passes: Any, begin: int, end: int, kept: _Messages, base: int, stride: int, out: Any
    ) -> None:
        if out is None:
            self._forward(passes, begin, end, kept, (base, stride))
            return
        size = max(BLOCK // len(self._line.cell), 1)
        own = self.messages(min(size, end - begin) + 1)
        for first in range(begin, end, size):
            last = min(first + size, end)
            self._forward(passes, first, last, own, (first, 1))
            for t in range(first, last + 1):
                n = (t - base) // stride
                if t >= base and (t - base) % stride == 0 and n < len(kept[0]):
                    kept[0][n], kept[1][n] = own[0][t - first], own[1][t - first]
            self._write(passes, first, last, own, None, out)

    def _forward(self, passes: Any, begin: int, end: int, kept: _Messages, grid: tuple[int, int]) -> None:
        way, where = self.table.ahead, (begin, end, *grid)
        self._run(passes.runner, way, (self.table.after.number,), _loops.forward, *kept, where)

    def again(self, passes: Any, begin: int, end: int, kept: _Messages, base: int) -> None:
        line = self._line
        self._line = line._replace(total=line.total.copy(), exponent=line.exponent.copy(), failed=line.failed.copy())
        self._forward(passes, begin, end, kept, (base, 1))
        self._line = line

    def backward(
        self, passes: Any, begin: int, end: int, kept: _Messages, base: int, later: _Messages, out: Any
    ) -> bool:
        if self.failed[0] >= 0:
            return False
        mine = self.messages(end - begin) if out is not None else (later[0][begin - base :], later[1][begin - base :])
        where, nothing = (begin, end, begin, int(self.lengths[0])), (_NONE_INT, _NO_NUMBERS)
        here = kept[0][begin - base :], kept[1][begin - base :]
        target = (self.table.before.number,)
        self._run(passes.without_evidence, self.table.back, target, _loops.backward, *here, *mine, *nothing, where)
        if out is not None:
            for to, x in zip(later, mine, strict=True):
                to[begin - base : end - base] = x[: max(len(to) - (begin - base), 0)]
            self._write(passes, begin, end, here, mine, out)
        return False

    def choose(
        self, passes: Any, begin: int, end: int, kept: _Messages, base: int, chosen: NDArray[np.int64],
        uniforms: NDArray[np.float64],
    ) -> None:  # fmt: skip
        if self.failed[0] >= 0:
            return
        where = (begin, end, base, int(self.lengths[0]))
        more = (*self.messages(0), chosen[self._rows], uniforms[self._rows] if len(uniforms) else uniforms)
        target = (self.table.before.number,)
        self._run(passes.without_evidence, self.table.back, target, _loops.backward, *kept, *more, where)

    def count(
        self, passes: Any, begin: int, end: int, messages: Sequence[_Messages], base: int,
        weights: NDArray[np.float64], cells: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:  # fmt: skip
        runner = passes.families
        cells = np.zeros(runner.model.numbers.factor_cells) if cells is None else cells
        if self.failed[0] < 0:
            both, where = (*messages[0], *messages[1]), (begin, end, base)
            self._run(runner, self.table.both, None, _loops.count, *both, where, float(weights[0]), cells)
        return cells

    def families(self, passes: Any, cells: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        return list(passes.families.model.numbers.factor_views(cells))

    def adding(self, *_: Any) -> None:
        raise NotImplementedError

    def added(self, *_: Any) -> NDArray[np.float64]:
        raise NotImplementedError

    def finish(self) -> NDArray[np.bool_]:
        return np.zeros(1, np.bool_)

    def _write(
        self, passes: Any, begin: int, end: int, kept: _Messages, later: _Messages | None, out: tuple[Between, int]
    ) -> None:
        """Write distributions of slices `begin` to `end`, between the messages from slice `begin` on."""
        between, row = out
        length, failed = int(self.lengths[0]), int(self.failed[0])
        t = np.arange(begin, min(end, length if failed < 0 else failed))
        t = t[t == length - 1] if not len(between.place) else t[between.place[t] >= 0]
        if not len(t):
            return
        rows = row + (between.place[t] if len(between.place) else np.zeros(len(t), np.int64))
        n, columns = t - begin, between.columns
        if len(between.states):
            cell, power = kept[0][n + 1], kept[1][n + 1]
            if later is not None:
                cell, power = cell * later[0][n], power + later[1][n]
            top = np.max(power, axis=1, keepdims=True, where=cell > 0, initial=_LEAST)
            joint = np.where(cell > 0, np.ldexp(cell, np.where(cell > 0, power - top, 0)), 0.0)
            joint /= joint.sum(axis=1, keepdims=True)
            for states, first, last in zip(between.states, columns[:-1], columns[1:], strict=False):
                between.cells[rows, first:last] = joint @ (states[:, None] == np.arange(last - first))
        if between.others:
            first, last = int(n[0]), int(n[-1]) + 1
            here = [x[first:last] for x in kept], [x[first:last] for x in later or self.messages(0)]
            way, others = self.table.ahead if later is None else self.table.both, between.others
            runner = passes.runner
            widths = runner.program.cardinality[list(others)]
            written = np.ones((last - first, int(widths.sum())))
            more = (begin + first, begin + last), runner.cards, written
            cached = self._run(runner, way, others, _loops.answer, *here[0], *here[1], *more)
            at, ends = 0, np.cumsum(widths)
            for rank in cached.records.answers[:, 0].tolist():  # in the order of the program
                j = others.index(int(runner.by_rank[rank]))
                to, width = int(columns[len(between.states) + j]), int(widths[j])
                between.cells[rows, to : to + width] = written[n - first, at : at + width]
                at += width
            assert at == ends[-1]

    def _run(self, runner: Runner, way: _Way, targets: Any, call: Callable[..., object], *more: Any) -> CachedProgram:
        """Call a loop with a program of some targets; None: of all families."""
        table = self.table
        cached = runner.model.programs.get(table.seen, way.soft, targets)
        space = runner.acquire(runner.model)
        try:
            cached.leave_out_zeros(space.numbers, runner.cards, 1, int(self.lengths[0]))
            space.fit_program(cached)
            n = table.n_weights
            weights = ExtendedWeights(np.zeros(n), np.zeros(n, np.int64), way.first)
            last = (space.arena, space.block) if targets is None else (space.arena,)
            call(
                space.extended(cached.cells), cached.records, runner.by_rank, table.states[self._rows], NOTHING,
                self._line, way.ends, weights, *more, *last,
            )  # fmt: skip
        finally:
            runner.release(space)
        return cached


_NONE_INT, _NO_NUMBERS, _LEAST = np.zeros(0, np.int64), np.zeros(0), -(1 << 40)
