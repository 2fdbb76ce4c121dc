"""`CpuHeldCase`: one case whose weights change from run to run, without any set-up between runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ImpossibleEvidence
from ...util.loops import loops
from ..base import Evidence, slice_of
from ..reference import ExtendedEvidence, exponents_of
from ..state_map import NOTHING
from .records import IMPOSSIBLE
from .runner import Runner, soft_of, with_sets
from .workspace import loses_digits, scaled_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_sweep = loops("jtgpu.backends.cpu.loops.sweep")


class CpuHeldCase:
    """`jtgpu.backends.base.HeldCase` in compiled code: a run is one compiled call."""

    def __init__(self, runner: Runner, evidence: Evidence, targets: Sequence[int]):
        program = runner.program
        self._runner, self._model = runner, runner.model
        self._space = runner.acquire(self._model)
        self._cached = self._model.programs.get(evidence.state >= 0, soft_of(evidence), targets)
        self._space.fit_program(self._cached)
        self._evidence = evidence.state
        self._slices: dict[int, tuple[tuple[int, ...], Any] | None] = {}  # see `_slice`
        self._state = with_sets(evidence.state, program.n_sets)
        self._weights, self._ptr, total = scaled_weights(evidence, program)
        self._log_scale = dict.fromkeys(evidence.likelihood, 0.0)
        self._rest = total  # of the weights that were not replaced
        self._first = dict(evidence.likelihood)
        self._present, self._exponents = dict(evidence.likelihood), dict(exponents_of(evidence))
        self._lost = {-1} if math.isnan(total) else set[int]()  # variables whose weights lose digits when scaled
        ptr = program.posterior_ptr
        self._cell: dict[int, tuple[int, int]] = {}  # of each target: first cell of its posterior, and cells
        for rank, cell, _ in self._cached.records.answers.tolist():
            v = int(runner.by_rank[rank])
            self._cell[v] = cell, int(ptr[v + 1] - ptr[v])

    def set(self, v: int, weights: Floats) -> None:
        vector = self._sliced(v, weights)
        top = float(vector.max())
        self._present[v] = weights
        (self._lost.add if top >= 1.0 and loses_digits(vector, top) else self._lost.discard)(v)
        shift = math.frexp(top)[1] if top > 0 else 0
        if v in self._first:
            before = self._sliced(v, np.asarray(self._first.pop(v), np.float64))
            self._rest -= math.frexp(float(before.max()))[1] * math.log(2.0)
        self._log_scale[v] = shift * math.log(2.0)
        at = int(self._ptr[self._runner.program.axis_rank[v]])
        np.ldexp(vector, -shift, out=self._weights[at : at + len(vector)])

    def _sliced(self, v: int, weights: Floats) -> Floats:
        part = self._slice(v)
        if part is None:
            return weights.ravel()
        shape, agreeing = part
        return np.ravel(weights.reshape(shape)[agreeing])

    def _slice(self, v: int) -> tuple[tuple[int, ...], Any] | None:
        """Extents of a set variable and its cells that agree with the evidence; None if these are all."""
        if v not in self._slices:
            program = self._runner.program
            scope = program.weighed_scope(v)
            whole = v < program.n_plain or (self._evidence[list(scope)] < 0).all()
            self._slices[v] = None if whole else (program.shape(scope), slice_of(scope, self._evidence))
        return self._slices[v]

    def run(self) -> float:
        space, runner = self._space, self._runner
        log_evidence = math.nan
        if not self._lost and not space.numbers.is_lossy:
            log_evidence = _sweep.run(
                self._cached.code, space.arena, space.exponent, runner.by_rank, self._state, NOTHING, self._weights,
                self._ptr, runner.limit, False, space.block,
            )  # fmt: skip
        if log_evidence != log_evidence:
            try:
                return runner.run(space, self._cached, ExtendedEvidence(self._evidence, self._present, self._exponents))
            except ImpossibleEvidence:
                return -math.inf
        if log_evidence == IMPOSSIBLE:
            return -math.inf
        return float(log_evidence) + self._rest + math.fsum(self._log_scale.values())

    def cells(self, v: int) -> Floats:
        cell, size = self._cell[v]
        own = self._space.arena[cell : cell + size]
        part = self._slice(v)
        if part is None:
            return own
        shape, inside = part
        table = np.zeros(shape)
        agreeing = table[inside]
        table[inside] = own[: agreeing.size].reshape(agreeing.shape)
        return table.ravel()

    def close(self) -> None:
        self._runner.release(self._space)
