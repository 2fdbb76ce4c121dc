"""A few cases that observe different variables, as a server gets them: one program for all evidence patterns.

A program that is specialised to a pattern runs fastest, but deriving it takes longer than a run of a small network.
Here every variable counts as weighed, the weights of a lane being those of its states, so that one program for each
number of lanes answers every table, and nothing is derived after the first call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...util.loops import loops
from ...util.system import new_lock, reset_in_child
from ..base import BatchResult
from .batch import Table, answer_batch, lane_memory
from .lanes import CACHE
from .programs import CachedProgram
from .records import Cases, Memory, Posteriors
from .runner import Model, Runner, with_sets

if TYPE_CHECKING:
    from numpy.typing import NDArray

_lanes = loops("jtgpu.backends.cpu.loops.lanes")

WIDTHS = (8, 16, 32, 64)  # lanes
FEW = 4  # cases up to which one lane after another is as fast as eight at once
MOST_TERMS = 400_000  # of a case: above, a program of the pattern is faster, since evidence removes most of the work


class _Sweep(NamedTuple):
    """A program for some lanes, and memory to run it in."""

    cached: CachedProgram
    memory: Memory


class FewCases:
    """Answers tables of cases with one program of a model. Thread-safe."""
    # model: Its present numbers

    def __init__(self, runner: Runner, model: Model):
        program = runner.program
        self.model, self._runner = model, runner
        self._lock = new_lock()
        self._idle: dict[int, list[_Sweep]] = {}
        reset_in_child(self, FewCases._forget)
        self._seen = np.zeros(program.n_variables, np.bool_)
        self._soft = tuple(range(program.n_plain))
        cards = program.cardinality
        place = np.empty(program.n_variables, np.int64)
        place[program.axis_rank] = np.cumsum(cards) - cards
        place[program.n_plain :] = -1  # set variables, whose ranks are their numbers
        self._place, self._columns = place, int(cards[: program.n_plain].sum())
        self._hard = np.zeros(0, np.int64)
        self._no_likelihood = np.full(program.n_variables, -1, np.int64)
        one = model.programs.get(self._seen, self._soft)
        cells = one.records.cells - model.numbers.factor_cells
        self._widths = [n for n in WIDTHS if 8 * n * cells <= CACHE] or [1]
        self.is_suitable = one.terms <= MOST_TERMS

    def _forget(self) -> None:
        self._idle = {}

    def _acquire(self, lanes: int) -> _Sweep:
        """A program for so many lanes, and memory that nothing else uses."""
        with self._lock:
            idle = self._idle.setdefault(lanes, [])
            if idle:
                return idle.pop()
        runner, model = self._runner, self.model
        cached = model.programs.get(self._seen, self._soft, lanes=lanes)
        cached.leave_out_zeros(model.numbers, runner.cards, lanes, 1 << 20)
        space = runner.acquire(model)
        empty = Table(runner, np.zeros((0, len(self._seen)), np.int32), {}, None)
        return _Sweep(cached, lane_memory(space, empty, cached, lanes))

    def run(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]] | None = None
    ) -> BatchResult:
        n, runner = len(states), self._runner
        states = with_sets(states, runner.program.n_sets)
        lanes = 1 if n <= FEW else next((w for w in self._widths if w >= n), self._widths[-1])
        sweep = self._acquire(lanes)
        memory, weights, table = sweep.memory, _NO_WEIGHTS, None
        if likelihood:
            table = Table(runner, states, likelihood, None)
            weights = table.weights
            ptr = np.where(table.weight_ptr >= 0, table.weight_ptr * lanes, -1)
            memory = memory._replace(weights=np.empty(max(weights.shape[1] * lanes, 1)), weight_ptr=ptr)
        result = BatchResult(np.empty((n, self._columns)), np.empty(n), np.empty(n, np.bool_))
        lost = np.zeros(n, np.bool_) if table is None else table.lost
        cases = Cases(np.arange(n), states, runner.by_rank, weights, result.log_evidence, result.impossible, lost)
        out = Posteriors(result.posterior, self._place, runner.cards, self._hard)
        # a program for one lane does not tell what depends on the case: each call computes every table
        step = n if lanes > 1 else 1
        for first in range(0, n, step):
            _lanes.run_lanes(memory, sweep.cached.records, cases, out, runner.limit, first, first + step)
        with self._lock:
            self._idle.setdefault(lanes, []).append(sweep)
        if table is not None:
            result.log_evidence[:] += table.log_scale
        if self.model.numbers.is_lossy:
            lost[:] = True
        if lost.any():
            rows = np.flatnonzero(lost)
            exact = answer_batch(runner, states[rows], {v: w[rows] for v, w in (likelihood or {}).items()}, None)
            result.posterior[rows], result.log_evidence[rows] = exact.posterior, exact.log_evidence
            result.impossible[rows] = exact.impossible
        return result


_NO_WEIGHTS = np.zeros((0, 0))
