"""The definition: the plan's contractions one after the other, in NumPy float64, with nothing clever.

The fast backends are held to what this one answers.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ImpossibleEvidence
from ..plans.plan import POSTERIOR, Plan
from .base import BackendDefaults, Evidence, Result
from .forest import UNIT, Best, Derivatives, Forest, Uniforms

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Reference", "ReferenceSweep", "contract", "contract_maximal", "prepare"]


def contract(
    tables: Sequence[NDArray[np.float64]], scopes: Sequence[Sequence[int]], out: Sequence[int]
) -> NDArray[np.float64]:
    """``out[s] = sum_r prod_t tables[t][r, s]``: the one primitive of propagation.

    Parameters
    ----------
    tables : float64 arrays
    scopes : sequences of int
        Variables of each table's axes.
    out : sequence of int
        Variables of the result's axes; the others are summed out.
    """
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


class Reference(BackendDefaults):
    """`jtgpu.backends.base.Backend` in NumPy. Every table is scaled by a power of two, which rounds nothing."""

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]]):
        self._plan = plan
        self._factors = [
            np.transpose(table, [scope.index(v) for v in axes])
            for table, scope, axes in zip(factors, plan.factor_scopes, plan.table_scopes, strict=False)
        ]  # in axis order

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`; answers every variable whatever the targets."""
        plan = self._plan
        tables, exponent = {}, {}  # table t stands for tables[t] * 2**exponent[t]
        for f, factor in enumerate(self._factors):
            tables[f], exponent[f] = _scaled(factor)
        for v, given in evidence.vectors(plan.cardinality).items():
            f = int(plan.evidence_factor[v])
            axes = [1] * len(plan.table_scopes[f])
            axes[plan.table_scopes[f].index(v)] = -1
            weights, shift = _scaled(given)
            tables[f], more = _scaled(tables[f] * weights.reshape(axes))
            exponent[f] += shift + more
        posterior = np.empty(int(plan.posterior_ptr[-1]))
        variable = {int(t): v for v, t in enumerate(plan.posterior_table)}
        for kind, out, ins in zip(plan.op_kind.tolist(), plan.op_out.tolist(), plan.op_inputs, strict=True):
            scopes = [plan.table_scopes[t] for t in ins]
            tables[out], shift = _scaled(contract([tables[t] for t in ins], scopes, plan.table_scopes[out]))
            exponent[out] = shift + sum(exponent[t] for t in ins)
            if kind == POSTERIOR:
                v = variable[out]
                posterior[plan.posterior_ptr[v] : plan.posterior_ptr[v + 1]] = tables[out] / tables[out].sum()
        log_evidence = sum(
            math.log(float(tables[t])) + exponent[t] * math.log(2.0) for t in plan.root_table.tolist()
        )
        return Result(posterior, log_evidence)

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`."""
        self._factors = []


def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Reference:
    """See `jtgpu.backends.base.Prepare`."""
    return Reference(plan, factors)


# Questions that need messages: see `jtgpu.backends.forest` ----------------------------------------------------------


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


class ReferenceSweep:
    """`jtgpu.backends.forest.Sweep` in NumPy."""

    def __init__(self, forest: Forest, factors: Sequence[NDArray[np.float64]]):
        self.forest = forest
        self._factors = [
            np.transpose(table, [scope.index(v) for v in axes])
            for table, scope, axes in zip(factors, forest.factor_scopes, forest.scopes, strict=False)
        ]  # in axis order

    def _sweep(
        self, evidence: Evidence, zeros: bool = False
    ) -> tuple[dict[int, NDArray[np.float64]], dict[int, int]]:
        """Every table t as ``tables[t] * 2**exponent[t]``; with `zeros` also where one is all zeros."""
        forest = self.forest

        def scaled(table: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
            return (table, 0) if zeros and not table.any() else _scaled(table)

        tables, exponent = {}, {}
        for f, factor in enumerate(self._factors):
            tables[f], exponent[f] = scaled(factor * self._allowed(forest.scopes[f], evidence))
        for v, given in sorted(evidence.likelihood.items()):
            f = int(forest.evidence_factor[v])
            weights, shift = _scaled(np.asarray(given, np.float64))
            weighed = tables[f] * _widened(weights, [v], forest.scopes[f])
            tables[f], more = scaled(weighed)
            exponent[f] += shift + more
        for out, ins, maximal in zip(forest.outs, forest.ins, forest.maximal, strict=True):
            take = contract_maximal if maximal else contract
            made = take([tables[t] for t in ins], [forest.scopes[t] for t in ins], forest.scopes[out])
            tables[out], shift = scaled(made)
            exponent[out] = shift + sum(exponent[t] for t in ins)
        return tables, exponent

    def _allowed(self, scope: Sequence[int], evidence: Evidence) -> NDArray[np.float64]:
        """1 where a table over `scope` agrees with what is observed, 0 elsewhere."""
        allowed = np.ones([1] * len(scope))
        for v in scope:
            if evidence.state[v] >= 0:
                allowed = allowed * _widened(np.eye(int(self.forest.cardinality[v]))[evidence.state[v]], [v], scope)
        return allowed

    def _down(
        self, tables: dict[int, NDArray[np.float64]], evidence: Evidence, choose: Any
    ) -> NDArray[np.int32]:
        """States chosen node by node, from the roots to the leaves; ``choose(slice, variables)`` picks a cell."""
        forest = self.forest
        states = evidence.state.copy()
        states[forest.cardinality == 1] = 0
        for out, ins, maximal in zip(*(reversed(x) for x in (forest.outs, forest.ins, forest.maximal)), strict=True):
            if forest.chosen and not maximal:
                continue
            there = {v for t in ins for v in forest.scopes[t]}
            taken = sorted(
                (v for v in there if v not in forest.scopes[out] and states[v] < 0), key=forest.axis_rank.__getitem__
            )
            if not taken:
                continue
            product = np.ones([1] * len(taken))
            for t in ins:
                scope = forest.scopes[t]
                cut = tables[t][tuple(slice(None) if v in taken else states[v] for v in scope)]
                product = product * _widened(cut, [v for v in scope if v in taken], taken)
            cell = choose(product.ravel(), taken)
            states[taken] = np.unravel_index(cell, product.shape)
        if forest.chosen:
            states[[v not in forest.chosen for v in range(forest.n_variables)]] = -1
        return states

    def _best_one(self, evidence: Evidence) -> tuple[float, NDArray[np.int32]]:
        tables, exponent = self._sweep(evidence)
        log_value = sum(math.log(float(tables[t])) + exponent[t] * math.log(2.0) for t in self.forest.roots)
        return log_value, self._down(tables, evidence, lambda cells, _: int(cells.argmax()))

    def best(self, evidence: Evidence, k: int = 1) -> Best:
        """See `jtgpu.backends.forest.Sweep.best`.

        What is left after the best configuration falls into parts: in part i the variables before i are as they were,
        and i is not (Lawler, A procedure for computing the k best solutions, Management Science 18, 1972).
        """
        chosen = sorted(self.forest.chosen)
        waiting = [(-(first := self._best_one(evidence))[0], 0, first[1], evidence)]
        found: list[tuple[float, NDArray[np.int32]]] = []
        numbered = 1
        while waiting and len(found) < k:
            value, _, states, part = heapq.heappop(waiting)
            found.append((-value, states))
            for i in chosen:
                if part.state[i] >= 0:
                    continue
                rest = dict(part.likelihood)
                rest[i] = np.array(rest.get(i, np.ones(int(self.forest.cardinality[i]))))
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
        return Best(np.array([s for _, s in found]), np.array([x for x, _ in found]))

    def best_rows(self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]]) -> Best:
        """See `jtgpu.backends.forest.Sweep.best_rows`."""
        found = np.full(states.shape, -1, np.int32)
        logs = np.full(len(states), -np.inf)
        for i, row in enumerate(states):
            try:
                logs[i], found[i] = self._best_one(Evidence(row, {v: w[i] for v, w in likelihood.items()}))
            except ImpossibleEvidence:
                continue
        return Best(found, logs)

    def draw(self, evidence: Evidence, n: int, uniforms: Uniforms) -> NDArray[np.int32]:
        """See `jtgpu.backends.forest.Sweep.draw`."""
        tables, _ = self._sweep(evidence)
        samples = np.empty((n, self.forest.n_variables), np.int32)
        for row, numbers in enumerate(uniforms(n)):

            def choose(cells: NDArray[np.float64], taken: list[int], u: Any = numbers) -> int:
                sums = np.cumsum(cells)
                above = np.flatnonzero(sums > u[taken[0]] * sums[-1])
                return int(above[0]) if len(above) else int(np.flatnonzero(cells)[-1])

            samples[row] = self._down(tables, evidence, choose)
        return samples

    def draw_rows(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]], uniforms: Uniforms
    ) -> NDArray[np.int32]:
        """See `jtgpu.backends.forest.Sweep.draw_rows`."""
        out = np.full(states.shape, -1, np.int32)
        for i, row in enumerate(states):
            numbers = uniforms(1)
            case = Evidence(row, {v: w[i] for v, w in likelihood.items()})
            with suppress(ImpossibleEvidence):
                out[i] = self.draw(case, 1, lambda _, numbers=numbers: numbers)[0]  # type: ignore[misc]
        return out

    def derivatives(self, evidence: Evidence) -> Derivatives:
        """See `jtgpu.backends.forest.Sweep.derivatives`."""
        forest = self.forest
        tables, exponent = self._sweep(evidence, zeros=True)
        cells, exponents = [], np.zeros(forest.n_factors, np.int64)
        for f, (scope, t) in enumerate(zip(forest.factor_scopes, forest.factor_down, strict=True)):
            found = np.ones(tuple(int(forest.cardinality[v]) for v in scope))
            if t != UNIT:
                found = found * _widened(tables[t], forest.scopes[t], scope)
                exponents[f] = exponent[t]
            found = found * self._allowed(scope, evidence)
            for v in scope:
                if v in evidence.likelihood and forest.evidence_factor[v] == f:
                    weights, shift = _scaled(np.asarray(evidence.likelihood[v], np.float64))
                    found = found * _widened(weights, [v], scope)
                    exponents[f] += shift
            cells.append(found.ravel())
        return Derivatives(
            np.concatenate(cells),
            exponents,
            np.array([float(tables[t]) for t in forest.roots]),
            np.array([exponent[t] for t in forest.roots], np.int64),
        )

    def score(self, states: NDArray[np.int32], evidence: Evidence) -> NDArray[np.float64]:
        """See `jtgpu.backends.forest.Sweep.score`."""
        logs = np.zeros(len(states))
        with np.errstate(divide="ignore"):
            for factor, scope in zip(self._factors, self.forest.scopes, strict=False):
                logs += np.log(factor[tuple(states[:, v] for v in scope)])
            for v, weights in evidence.likelihood.items():
                logs += np.log(np.asarray(weights, np.float64)[states[:, v]])
        return logs
