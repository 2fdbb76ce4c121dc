"""Slices of a dynamic network: messages of many sequences pass all of them in one compiled call.

The program of a message is the same for every slice, so the loop over slices is compiled, with a sequence in each lane.
A message is a likelihood of the variables on one side of the slice, the answer is the joint posterior of those on the
other side: the next message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...util.loops import loops
from ..slices import Between, Side, observed
from .batch import MOST_MEMORY
from .costs import Config
from .lanes import config_of, memory_of, weight_columns
from .programs import CachedProgram
from .records import LaneMemory
from .runner import Runner, on_all_cores
from .slice_records import Choices, LaneCounts, Marginals, Passing, Slices

_loops, _counts = loops("jtgpu.backends.cpu.loops.slices"), loops("jtgpu.backends.cpu.loops.slice_counts")
_choices = loops("jtgpu.backends.cpu.loops.slice_choices")

RUNS = 100  # slices that a program is expected to run for, at least
LANES = (128, 64, 32, 16, 8)  # sequences side by side: larger tables than `lanes.CACHE` allows pay here
MOST_LOST = 2.0**-42  # share of P of a sequence that numbers which are too small may have
MOST = 8 << 20  # bytes of the tables of so many
ENOUGH = 32  # at least so many sequences side by side pay more than messages that are kept


class _Runners(Protocol):
    """The runners of a backend."""

    runner: Runner

    @property
    def without_evidence(self) -> Runner: ...

    @property
    def families(self) -> Runner: ...


class _Direction(NamedTuple):
    """A program's pattern, and where its messages stand."""

    seen: NDArray[np.bool_]  # (V,)
    soft: tuple[int, ...]
    source: Side
    target: Side
    numbers: NDArray[np.int64]  # see `Passing`
    weight_ptr: NDArray[np.int64]  # (V,) by rank
    other: int  # first column of weights of the interface before a slice, where entries of it are chosen
    columns: int  # of weights, with those of messages


class _KnownSource(NamedTuple):
    """A direction whose source has known states."""

    way: _Direction
    ranks: NDArray[np.int64]  # of the source's variables
    states: NDArray[np.int32]  # (variables, K) in each entry of a message


class CpuSliceTable:
    """The evidence of a call: rows of slices, and the programs that are right for every row.

    What is observed in every row is a fixed state in these programs; other observed variables are weighed.
    """
    # runners: Of one of the backends, whose plan all of them have: with P(e), for the way ahead, and without
    # states: (R, V) observed states, -1 = not observed
    # likelihood: Variable to weights, (R, card)
    # before, after: Where messages stand; their variables may be observed
    # lengths: Slices of each sequence
    # most_kept: Bytes of messages of a group that may be kept

    takes_others, chooses, counts, adds = False, True, True, False
    with_evidence = True  # whether `CpuSliceGroup.forward` computes P of the evidence

    def __init__(
        self, runners: tuple[Runner, Runner], states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]], before: Side, after: Side, lengths: NDArray[np.int64],
        most_kept: int,
    ):  # fmt: skip
        self._runner, self.most_kept = runners[0], most_kept
        self.states, self.program = np.ascontiguousarray(states, np.int32), runners[0].program
        given = {int(v): np.asarray(w, np.float64) for v, w in sorted(likelihood.items())}
        self.weights, self._ptr, self.log_scale, self.lost = weight_columns(self.program, given, len(states))
        if any(runner.model.numbers.is_lossy for runner in runners):
            self.lost[:] = True
        self._likelihood = given.keys()
        self.log_scale = self.log_scale if self.log_scale.any() else np.zeros(0)
        self._some, self._always = (np.zeros(self.program.n_variables, np.bool_) for _ in range(2))
        self._some[: states.shape[1]], self._always[: states.shape[1]] = observed(states)
        self.ahead, self.back = self._direction(before, after), self._direction(after, before)
        self.choosing = self._direction(after, before, before)
        self.known = self._known(after, before)
        configs = [self._config(runner, way) for runner, way in zip(runners, (self.ahead, self.back), strict=True)]
        self.lanes = 0  # not possible, for want of memory
        fitting = most_kept // (8 * len(before.place) * (int(lengths.max()) + 1))
        n = min(len(lengths), fitting) if fitting >= ENOUGH else len(lengths)
        if all(config.lanes for config in configs):
            self.lanes = min(_lanes(config, n) for config in configs)

    def _direction(self, source: Side, target: Side, other: Side | None = None) -> _Direction:
        # other: A second interface that has weights
        program = self.program
        members = {u for side in (source, target) for u in program.weighed_scope(side.number)}
        partly = np.flatnonzero(self._some & ~self._always).tolist()
        observed = [u for u in members if self._some[u]]
        weighed = {source.number} if other is None else {source.number, other.number}
        soft = tuple(sorted({*self._likelihood, *partly, *observed, *weighed}))
        hard = self._always.copy()
        hard[list(soft)] = False
        ptr, width = self._ptr.copy(), self.weights.shape[1]
        rank = program.axis_rank[source.number]
        own, ptr[rank] = int(ptr[rank]), width
        column = width + int(program.cardinality[source.number])
        if other is not None:
            ptr[program.axis_rank[other.number]] = column
        columns = column + (0 if other is None else int(program.cardinality[other.number]))
        return _Direction(hard, soft, source, target, np.array([width, own]), ptr, column, columns)

    def _known(self, after: Side, before: Side) -> _KnownSource | None:
        """`choosing` with known states of the interface after a slice; None if both interfaces share variables."""
        program = self.program
        members, way = program.weighed_scope(after.number), self.choosing
        if {*members} & {*program.weighed_scope(before.number)}:
            return None
        soft = tuple(v for v in way.soft if v not in members and v != after.number)
        seen = self._always.copy()
        seen[list(members)] = True
        seen[list(soft)] = False
        states = np.array(np.unravel_index(after.place, program.shape(members)), np.int32)
        nowhere = way.source._replace(place=_NONE)
        known = way._replace(seen=seen, soft=soft, source=nowhere)
        return _KnownSource(known, program.axis_rank[list(members)], states)

    def _get(self, runner: Runner, way: _Direction, lanes: int, families: bool = False) -> CachedProgram:
        targets = None if families else (way.target.number,)
        return runner.model.programs.get(way.seen, way.soft, targets, lanes=lanes)

    def _config(self, runner: Runner, way: _Direction) -> Config:
        return config_of(lambda lanes: self._get(runner, way, lanes), runner.model.numbers.factor_cells)

    def group(
        self, first: NDArray[np.int64], lengths: NDArray[np.int64], message: NDArray[np.float64]
    ) -> CpuSliceGroup:
        """Some sequences, at most as many as there are lanes."""
        # first, lengths: (n,) first row of each, and slices
        # message: (K,) into slice 0
        return CpuSliceGroup(self, first, lengths, message)

    def ready(
        self, runner: Runner, way: _Direction, families: bool = False
    ) -> tuple[CachedProgram, NDArray[np.int64]]:
        """The program of a direction without structural zeros, and the ranks of the variables that are observed."""
        cached = self._get(runner, way, self.lanes, families)
        cached.leave_out_zeros(runner.model.numbers, runner.cards, self.lanes, RUNS)
        needed = way.seen.copy()
        needed[list(way.soft)] = True
        return cached, np.flatnonzero(needed & self._some)

    def leave_room(self, n_bytes: int) -> None:
        raise NotImplementedError

    def run_all(self, work: Callable[[Any], None], parts: Sequence[object], each: int) -> None:
        """Call a function with every part, on all cores; each call takes so many bytes."""
        on_all_cores([partial(work, part) for part in parts], self._runner, max(MOST_MEMORY // max(each, 1), 1))


class CpuSliceGroup:
    """Sequences side by side, and their messages; for one thread."""

    def __init__(
        self, table: CpuSliceTable, first: NDArray[np.int64], lengths: NDArray[np.int64], message: NDArray[np.float64]
    ):
        n, lanes = len(first), table.lanes
        self.table, self.n = table, n
        self.first, self.lengths = np.full(lanes, first[-1]), np.zeros(lanes, np.int64)
        self.first[:n], self.lengths[:n] = first, lengths
        self.message = np.repeat(np.asarray(message, np.float64)[:, None], lanes, axis=1)
        self.total, self.exponent, self.log_scale = np.ones(lanes), np.zeros(lanes, np.int64), np.zeros(lanes)
        self.failed = np.full(lanes, -1)
        self.loss, self.late, self.unsure = np.zeros(lanes), np.zeros(lanes), np.zeros(lanes, np.bool_)
        if table.lost.any():
            self.unsure[:n] = [table.lost[i : i + t].any() for i, t in zip(first, lengths, strict=True)]

    @property
    def log_evidence(self) -> NDArray[np.float64]:
        """(n,) ln P of the evidence of each sequence; -inf if it is impossible."""
        total, shift = np.frexp(self.total)  # when numbers were scaled depends on the other sequences
        log_evidence = np.log(total) + (self.exponent + shift) * np.log(2.0) + self.log_scale
        return np.where(self.failed >= 0, -np.inf, log_evidence)[: self.n]

    def messages(self, n: int) -> NDArray[np.float64]:
        return np.empty((n, *self.message.shape))

    def ones(self) -> NDArray[np.float64]:
        return np.ones((1, *self.message.shape))

    def load(self, messages: NDArray[np.float64], i: int) -> None:
        self.message[:] = messages[i]

    def store(self, messages: NDArray[np.float64], i: int) -> None:
        messages[i] = self.message

    def read(self, messages: NDArray[np.float64]) -> NDArray[np.float64]:
        return messages

    def marginals(self, between: Between | None, rows: NDArray[np.int64]) -> Marginals:
        if between is None:
            return Marginals(_NONE_2, _NONE, _NONE, np.zeros((0, len(self.message)), np.int64), _NONE)
        of_lanes = np.zeros(len(self.lengths), np.int64)
        of_lanes[: len(rows)] = rows
        return Marginals(between.cells, of_lanes, between.place, between.states, between.columns)

    def adding(self, *_: Any) -> None:
        raise NotImplementedError

    def added(self, *_: Any) -> NDArray[np.float64]:
        raise NotImplementedError

    def finish(self) -> NDArray[np.bool_]:
        return (self.unsure | ~(self.loss < MOST_LOST))[: self.n]

    def forward(
        self, passes: _Runners, begin: int, end: int, kept: NDArray[np.float64], base: int, stride: int, out: Marginals
    ) -> None:
        """`message` passes some slices; messages into slices base, base + stride ... are kept."""
        way, runner = self.table.ahead, self._ahead(passes)
        p = self._passing(way, kept, base, stride)
        ones = p._replace(message=np.ones(self.message.shape if len(out.states) else (0, 0)))
        self._run(runner, way, lambda m, code, s: _loops.forward(m, code, s, p, ones, out, runner.limit, begin, end))

    def _ahead(self, passes: _Runners) -> Runner:
        return passes.runner if self.table.with_evidence else passes.without_evidence

    def again(self, passes: _Runners, begin: int, end: int, kept: NDArray[np.float64], base: int) -> None:
        """`forward` through slices whose evidence has been counted."""
        way, runner = self.table.ahead, self._ahead(passes)
        p = self._passing(way, kept, base, 1)
        p = p._replace(total=p.total.copy(), exponent=p.exponent.copy(), log_scale=p.log_scale.copy())
        p = p._replace(failed=p.failed.copy(), loss=p.loss.copy())
        ones, out = p._replace(message=np.ones((0, 0))), self.marginals(None, _NONE)
        self._run(runner, way, lambda m, code, s: _loops.forward(m, code, s, p, ones, out, runner.limit, begin, end))

    def backward(
        self, passes: _Runners, begin: int, end: int, kept: NDArray[np.float64], base: int, later: NDArray[np.float64],
        out: Marginals,
    ) -> bool:  # fmt: skip
        """`message` passes some slices from the last one to the first; whether a product was too small for a number."""
        # kept: into slices base, base + 1 ..., one more than the last slice; later: out of the same slices
        way, runner = self.table.back, passes.without_evidence
        p = self._passing(way, kept, base, 1)._replace(later=later)
        self._run(runner, way, lambda m, code, s: _loops.backward(m, code, s, p, out, runner.limit, begin, end))
        return False

    def choose(
        self, passes: _Runners, begin: int, end: int, kept: NDArray[np.float64], base: int, chosen: NDArray[np.int64],
        uniforms: NDArray[np.float64],
    ) -> None:  # fmt: skip
        """`message` passes some slices backward and becomes certain of the entry that is chosen before each."""
        # chosen: (R,) gets the entry after each row's slice; the last of a sequence only where the best ones are chosen
        # uniforms: (R,) numbers in [0, 1) that choose the entry before each slice; empty: the best entries
        if int(self.lengths[: self.n].min()) > 1:
            begin = max(begin, 1)  # before slice 0 nothing is chosen
        if begin >= end:
            return
        table, runner = self.table, passes.without_evidence
        way, ranks, states = table.choosing, _NONE, np.zeros((0, 0), np.int32)
        if table.known is not None and not len(uniforms):  # at random, slices at an end have to be weighed
            way, ranks, states = table.known
        p = self._passing(way, kept, base, 1)._replace(before=way.target.place, before_column=way.other)
        c = Choices(chosen, uniforms, np.zeros(len(self.lengths), np.int64), ranks, states)
        self._run(runner, way, lambda m, code, s: _choices.choose(m, code, s, p, c, runner.limit, begin, end))

    def count(
        self, passes: _Runners, begin: int, end: int, messages: Sequence[NDArray[np.float64]], base: int,
        weights: NDArray[np.float64], cells: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:  # fmt: skip
        """Add the expected counts of some slices, the last first, to `cells`; see `families`."""
        # messages: Into and out of slices base, base + 1 ...
        # weights: (n,) of the sequences
        way, runner = self.table.choosing, passes.families
        if cells is None:
            cells = np.zeros(runner.model.numbers.factor_cells)
        p = self._passing(way, messages[0], base, 1)
        p = p._replace(later=messages[1], before=way.target.place, before_column=way.other)
        each = np.zeros(len(self.lengths))
        each[: self.n] = weights
        out = LaneCounts(cells, each, np.empty(len(each)))
        add = _counts.add_counts
        self._run(runner, way, lambda m, code, s: add(m, code, s, p, out, runner.limit, begin, end), True)
        return cells

    def families(self, passes: _Runners, cells: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """The expected counts of every factor, with the model's axes."""
        return passes.families.model.numbers.factor_views(cells)

    def _passing(self, way: _Direction, kept: NDArray[np.float64], base: int, stride: int) -> Passing:
        return Passing(
            self.message, way.source.place, way.target.place, way.numbers, self.total, self.exponent, self.log_scale,
            self.failed, self.loss, self.late, self.unsure, kept, self.messages(0), base, stride, _NONE, 0,
        )  # fmt: skip

    def _run(
        self, runner: Runner, way: _Direction, call: Callable[..., bool | None], families: bool = False
    ) -> bool | None:
        table = self.table
        cached, variables = table.ready(runner, way, families)
        space = runner.acquire(runner.model)
        try:
            memory: LaneMemory = memory_of(space, cached, runner.cards, way.weight_ptr, way.columns, table.lanes)
            memory.chunk[:] = -1
            slices = Slices(
                self.first, self.lengths, table.states, runner.program.axis_rank[variables], variables, table.weights,
                table.log_scale,
            )  # fmt: skip
            return call(memory, cached.records, slices)
        finally:
            runner.release(space)


def _lanes(config: Config, n: int) -> int:
    """The number of lanes that answers n sequences in least time."""
    most = [w for w in LANES if w * config.bytes <= MOST * config.lanes] or [LANES[-1]]
    return min(most, key=lambda w: -(-n // w) * (config.sweep + w * config.lane))


_NONE, _NONE_2 = np.zeros(0, np.int64), np.zeros((0, 0))
