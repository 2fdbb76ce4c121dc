"""The definition: a program's contractions one after the other, in NumPy float64, with nothing clever.

The fast backends are tested against it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ImpossibleEvidence, JtgpuError
from ..plans.plan import Plan
from ..plans.program import UNIT, Program, family_program, posterior_program
from .base import Backend, Counts, Evidence, Likelihood, Result
from .sweep import Best, Derivatives, Uniforms

if TYPE_CHECKING:
    from numpy.typing import NDArray


def contract(
    tables: Sequence[NDArray[np.float64]], scopes: Sequence[Sequence[int]], out: Sequence[int]
) -> NDArray[np.float64]:
    """``out[s] = sum_r prod_t tables[t][r, s]``: the one primitive of propagation."""
    # scopes: sequences of int: Variables of each table's axes
    # out: sequence of int: Variables of the result's axes; the others are summed out
    # einsum takes at most 52 labels and 32 axes; axes of length one need neither
    wide = sorted({v for t, s in zip(tables, scopes, strict=True) for v, n in zip(s, t.shape, strict=True) if n > 1})
    label = {v: i for i, v in enumerate(wide)}
    operands: list[Any] = []
    for table, scope in zip(tables, scopes, strict=True):
        operands += [table.reshape([n for n in table.shape if n > 1]), [label[v] for v in scope if v in label]]
    result = np.einsum(*operands, [label[v] for v in out if v in label])
    shape = {v: n for t, s in zip(tables, scopes, strict=True) for v, n in zip(s, t.shape, strict=True)}
    return np.asarray(result, np.float64).reshape([shape[v] for v in out])


def _scaled(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """The table divided by the power of two that brings its largest entry into [0.5, 1), and the exponent."""
    top = float(table.max())
    if not top > 0:
        raise ImpossibleEvidence("the evidence has probability 0")
    shift = math.frexp(top)[1]
    return np.ldexp(table, -shift), shift


def contract_maximal(
    tables: Sequence[NDArray[np.float64]], scopes: Sequence[Sequence[int]], out: Sequence[int]
) -> NDArray[np.float64]:
    """``out[s] = max_r prod_t tables[t][r, s]``; see `contract`."""
    joint = list(dict.fromkeys(v for s in scopes for v in s))
    result = np.ones((1,) * len(joint))
    for table, scope in zip(tables, scopes, strict=True):
        result = result * _widened(table, scope, joint)
    gone = [v for v in joint if v not in out]
    result = result.max(axis=tuple(joint.index(v) for v in gone))
    left = [v for v in joint if v in out]
    return np.transpose(result, [left.index(v) for v in out])


def _widened(table: NDArray[np.float64], scope: Sequence[int], joint: Sequence[int]) -> NDArray[np.float64]:
    """The table with an axis for every variable of `joint`, of length one where it has none."""
    present = [v for v in joint if v in scope]
    turned = np.transpose(table, [scope.index(v) for v in present])
    shape = dict(zip(present, turned.shape, strict=True))
    return turned.reshape([shape.get(v, 1) for v in joint])


class _Tables:
    """All tables of a program for one case: table t stands for ``tables[t] * 2**exponent[t]``.

    Scaling by powers of two rounds nothing.
    """

    def __init__(
        self, program: Program, factors: Sequence[NDArray[np.float64]], evidence: Evidence, zeros: bool = False
    ):
        """`factors`: axes in the model's order; `zeros`: whether a table may be zero everywhere."""
        self._program, self._zeros = program, zeros
        self.tables: dict[int, NDArray[np.float64]] = {}
        self.exponent: dict[int, int] = {}
        scopes = program.scopes
        for f, (factor, scope) in enumerate(zip(factors, program.factor_scopes, strict=True)):
            table = np.transpose(factor, [scope.index(v) for v in scopes[f]])
            if program.chosen:  # contractions may sum an observed variable out of each table by itself
                table = table * allowed(scopes[f], evidence, program.cardinality)
            self._put(f, table, 0)
        n = program.n_plain
        for v, given in evidence.vectors(program.cardinality[:n]).items():
            f = int(program.evidence_factor[v])
            weights, shift = _scaled(given)
            self._put(f, self.tables[f] * _widened(weights, [v], scopes[f]), self.exponent[f] + shift)
        for v in (v for v in sorted(evidence.likelihood) if v >= n):
            f = int(program.evidence_factor[v])
            weights, shift = _scaled(np.reshape(evidence.likelihood[v], self.tables[f].shape))
            self._put(f, self.tables[f] * weights, self.exponent[f] + shift)
        for out, ins, maximal in zip(program.outs, program.ins, program.maximal, strict=True):
            take = contract_maximal if maximal else contract
            table = take([self.tables[t] for t in ins], [scopes[t] for t in ins], scopes[out])
            self._put(out, table, sum(self.exponent[t] for t in ins))

    def _put(self, t: int, table: NDArray[np.float64], exponent: int) -> None:
        shift = 0
        if table.any() or not self._zeros:
            table, shift = _scaled(table)
        self.tables[t], self.exponent[t] = table, exponent + shift

    @property
    def log_root(self) -> float:
        """ln of the product of the roots."""
        return sum(math.log(float(self.tables[t])) + self.exponent[t] * math.log(2.0) for t in self._program.roots)

    def distributions(self) -> dict[int, NDArray[np.float64]]:
        """By variable or factor the normalised tables of the contractions that are answers."""
        program = self._program
        return {
            answer: self.tables[out] / self.tables[out].sum()
            for out, answer in zip(program.outs, program.answers, strict=True)
            if answer >= 0
        }


def allowed(scope: Sequence[int], evidence: Evidence, cardinality: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 where a table over `scope` agrees with the observed states, 0 elsewhere."""
    table = np.ones([1] * len(scope))
    for v in scope:
        if evidence.state[v] >= 0:
            table = table * _widened(np.eye(int(cardinality[v]))[evidence.state[v]], [v], scope)
    return table


class Reference(Backend):
    """`jtgpu.backends.base.Backend` in NumPy."""

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], maximal: bool = False):
        # maximal: Whether posteriors are those by maximum, see `jtgpu.plans.program.posterior_program`
        self._plan = plan
        self._factors: Sequence[NDArray[np.float64]] | None = factors
        self._posteriors, self._families = posterior_program(plan, maximal), family_program(plan)

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`; computes every variable whatever the targets."""
        tables = _Tables(self._posteriors, self._numbers(), evidence)
        by_variable = tables.distributions()
        parts = [by_variable[v].ravel() for v in range(self._posteriors.n_variables)]
        return Result(np.concatenate(parts) if parts else np.zeros(0), tables.log_root)

    def run_counts(
        self, states: NDArray[np.int32], weights: NDArray[np.float64] | None = None,
        likelihood: Likelihood | None = None,
    ) -> Counts:  # fmt: skip
        plan, n, factors = self._plan, len(states), self._numbers()
        counts = Counts([np.zeros(f.shape) for f in factors], np.full(n, -np.inf), np.zeros(n, np.bool_))
        for row, weight in enumerate(np.ones(n) if weights is None else weights):
            try:
                case = Evidence(states[row], {v: w[row] for v, w in (likelihood or {}).items()})
                tables = _Tables(self._families, factors, case)
            except ImpossibleEvidence:
                counts.impossible[row] = True
                continue
            counts.log_evidence[row] = tables.log_root
            for f, table in tables.distributions().items():
                axes = [plan.table_scopes[f].index(v) for v in plan.factor_scopes[f]]
                counts.families[f][...] += weight * np.transpose(table, axes)
        return counts

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        self._factors = factors

    def close(self) -> None:
        self._factors = None

    def _numbers(self) -> Sequence[NDArray[np.float64]]:
        if self._factors is None:
            raise JtgpuError("this backend is closed")
        return self._factors


def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Reference:
    return Reference(plan, factors, **options)


class ReferenceSweep:
    """`jtgpu.backends.sweep.Sweep` in NumPy."""

    def __init__(self, program: Program, factors: Sequence[NDArray[np.float64]]):
        self.program = program
        self._factors = factors

    def _backward(self, tables: dict[int, NDArray[np.float64]], evidence: Evidence, choose: Any) -> NDArray[np.int32]:
        """States chosen node by node, from the roots to the leaves; ``choose(slice, variables)`` picks a cell."""
        program = self.program
        states = evidence.state.copy()
        states[program.cardinality[: program.n_plain] == 1] = 0
        for out, ins, maximal in zip(*(reversed(x) for x in (program.outs, program.ins, program.maximal)), strict=True):
            if program.chosen and not maximal:
                continue
            there = {v for t in ins for v in program.scopes[t]}
            taken = sorted(
                (v for v in there if v not in program.scopes[out] and states[v] < 0), key=program.axis_rank.__getitem__
            )
            if not taken:
                continue
            product = np.ones([1] * len(taken))
            for t in ins:
                scope = program.scopes[t]
                cut = tables[t][tuple(slice(None) if v in taken else states[v] for v in scope)]
                product = product * _widened(cut, [v for v in scope if v in taken], taken)
            cell = choose(product.ravel(), taken)
            states[taken] = np.unravel_index(cell, product.shape)
        if program.chosen:
            states[[v not in program.chosen for v in range(program.n_plain)]] = -1
        return states

    def _best_one(self, evidence: Evidence) -> tuple[float, NDArray[np.int32]]:
        tables = _Tables(self.program, self._factors, evidence)
        return tables.log_root, self._backward(tables.tables, evidence, lambda cells, _: int(cells.argmax()))

    def best(self, evidence: Evidence, k: int = 1) -> Best:
        """See `jtgpu.backends.sweep.Sweep.best`.

        What is left after the best configuration falls into parts: in part i the variables before i are as they were,
        and i is not (Lawler, A procedure for computing the k best solutions, Management Science 18, 1972).
        """
        chosen = sorted(self.program.chosen)
        waiting = [(-(first := self._best_one(evidence))[0], 0, first[1], evidence)]
        ranked: list[tuple[float, NDArray[np.int32]]] = []
        numbered = 1
        while waiting and len(ranked) < k:
            value, _, states, part = heapq.heappop(waiting)
            ranked.append((-value, states))
            for i in chosen:
                if part.state[i] >= 0:
                    continue
                rest = dict(part.likelihood)
                rest[i] = np.array(rest.get(i, np.ones(int(self.program.cardinality[i]))))
                rest[i][states[i]] = 0.0
                try:
                    log_value, best = self._best_one(replace(part, likelihood=rest))
                    heapq.heappush(waiting, (-log_value, numbered, best, replace(part, likelihood=rest)))
                    numbered += 1
                except ImpossibleEvidence:
                    pass
                fixed = part.state.copy()
                fixed[i] = states[i]
                part = replace(part, state=fixed)
        return Best(np.array([s for _, s in ranked]), np.array([x for x, _ in ranked]))

    def best_rows(self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]]) -> Best:
        best = np.full(states.shape, -1, np.int32)
        logs = np.full(len(states), -np.inf)
        for i, row in enumerate(states):
            try:
                logs[i], best[i] = self._best_one(Evidence(row, {v: w[i] for v, w in likelihood.items()}))
            except ImpossibleEvidence:
                continue
        return Best(best, logs)

    def draw(self, evidence: Evidence, n: int, uniforms: Uniforms) -> NDArray[np.int32]:
        tables = _Tables(self.program, self._factors, evidence)
        samples = np.empty((n, self.program.n_plain), np.int32)
        for row, numbers in enumerate(uniforms(n)):

            def choose(cells: NDArray[np.float64], taken: list[int], u: Any = numbers) -> int:
                sums = np.cumsum(cells)
                above = np.flatnonzero(sums > u[taken[0]] * sums[-1])
                return int(above[0]) if len(above) else int(np.flatnonzero(cells)[-1])

            samples[row] = self._backward(tables.tables, evidence, choose)
        return samples

    def draw_rows(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]], uniforms: Uniforms
    ) -> NDArray[np.int32]:
        out = np.full(states.shape, -1, np.int32)
        for i, row in enumerate(states):
            numbers = uniforms(1)
            case = Evidence(row, {v: w[i] for v, w in likelihood.items()})
            with suppress(ImpossibleEvidence):
                out[i] = self.draw(case, 1, lambda _, numbers=numbers: numbers)[0]  # type: ignore[misc]
        return out

    def derivatives(self, evidence: Evidence) -> Derivatives:
        program = self.program
        tables = _Tables(program, self._factors, evidence, zeros=True)
        cells, exponents = [], np.zeros(program.n_factors, np.int64)
        for f, (scope, t) in enumerate(zip(program.factor_scopes, program.factor_derivative, strict=True)):
            derivative = np.ones(tuple(int(program.cardinality[v]) for v in scope))
            if t != UNIT:
                derivative = derivative * _widened(tables.tables[t], program.scopes[t], scope)
                exponents[f] = tables.exponent[t]
            derivative = derivative * allowed(scope, evidence, program.cardinality)
            for v in scope:
                if v in evidence.likelihood and program.evidence_factor[v] == f:
                    weights, shift = _scaled(np.asarray(evidence.likelihood[v], np.float64))
                    derivative = derivative * _widened(weights, [v], scope)
                    exponents[f] += shift
            for v in range(program.n_plain, program.n_variables):
                if v in evidence.likelihood and program.evidence_factor[v] == f:
                    weights, shift = _scaled(np.reshape(evidence.likelihood[v], derivative.shape))
                    derivative = derivative * weights
                    exponents[f] += shift
            cells.append(derivative.ravel())
        return Derivatives(
            np.concatenate(cells),
            exponents,
            np.array([float(tables.tables[t]) for t in program.roots]),
            np.array([tables.exponent[t] for t in program.roots], np.int64),
        )

    def score(self, states: NDArray[np.int32], evidence: Evidence) -> NDArray[np.float64]:
        logs = np.zeros(len(states))
        with np.errstate(divide="ignore"):
            for factor, scope in zip(self._factors, self.program.factor_scopes, strict=True):
                logs += np.log(factor[tuple(states[:, v] for v in scope)])
            for v, weights in evidence.likelihood.items():
                scope = self.program.weighed_scope(v)
                logs += np.log(np.reshape(weights, self.program.shape(scope))[tuple(states[:, u] for u in scope)])
        return logs
