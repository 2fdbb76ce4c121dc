"""The definition: a program's contractions one after the other, in NumPy, with nothing clever.

Numbers are *extended*: a mantissa, float64, and an exponent of two for every cell. So no number is too small, whatever
the others are. The fast backends are tested against it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

from ..errors import ImpossibleEvidence, JtgpuError
from ..plans.plan import Plan
from ..plans.program import UNIT, Program, family_program, posterior_program
from .base import Backend, Evidence, Result
from .sweep import Best, Derivatives, Uniforms
from .table import COUNTS, CountSums, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .state_map import StateMap

A = TypeVar("A")


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


@dataclass(frozen=True)
class ExtendedEvidence(Evidence):
    """A case with weights that are no ordinary numbers: ``weight * 2**exponent``."""

    exponents: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)  # of variables with weights: (card,)


def exponents_of(evidence: Evidence) -> Mapping[int, NDArray[np.int64]]:
    """Exponents of the weights, by variable; none for most cases."""
    return evidence.exponents if isinstance(evidence, ExtendedEvidence) else {}


class Extended(NamedTuple):
    """Numbers >= 0 as ``mantissa * 2**exponent``: mantissas in [0.5, 1), or both 0; arrays of one shape."""

    mantissa: NDArray[np.float64]
    exponent: NDArray[np.int64]

    @classmethod
    def of(cls, table: Any, exponent: Any = 0) -> Extended:
        """``table * 2**exponent``."""
        mantissa, shift = np.frexp(np.asarray(table, np.float64))
        return cls(mantissa, np.where(mantissa > 0, shift + np.asarray(exponent, np.int64), 0))

    def map(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Extended:
        """The same change of both arrays' axes."""
        return Extended(change(self.mantissa), change(self.exponent))

    def times(self, other: Extended) -> Extended:
        """The product, broadcast."""
        return Extended.of(self.mantissa * other.mantissa, self.exponent + other.exponent)

    @property
    def top(self) -> int:
        """The largest exponent of a number above 0; 0 if there is none."""
        return int(self.exponent.max(where=self.mantissa > 0, initial=_LEAST)) if self.mantissa.any() else 0

    def plain(self, top: int) -> NDArray[np.float64]:
        """The numbers divided by ``2**top``, as float64."""
        return np.ldexp(self.mantissa, self.exponent - top)

    @property
    def log(self) -> float:
        """The natural logarithm of a single number above 0."""
        return math.log(float(self.mantissa)) + int(self.exponent) * math.log(2.0)


_LEAST = -(1 << 40)  # below all exponents


def contract_extended(
    tables: Sequence[Extended], scopes: Sequence[Sequence[int]], out: Sequence[int], maximal: bool = False
) -> Extended:
    """`contract`, or with maxima in place of sums, of extended numbers."""
    joint = list(dict.fromkeys(v for s in scopes for v in s))
    if not maximal and all(_is_moderate(t, len(tables)) for t in tables):  # no product of these numbers is too small
        tops = [t.top for t in tables]
        plain = [t.plain(top) for t, top in zip(tables, tops, strict=True)]
        return Extended.of(contract(plain, scopes, out), sum(tops))
    product = Extended.of(np.ones((1,) * len(joint)))
    for table, scope in zip(tables, scopes, strict=True):
        product = product.times(table.map(partial(_widened, scope=scope, joint=joint)))
    gone = tuple(joint.index(v) for v in joint if v not in out)
    possible = product.mantissa > 0
    top = np.max(product.exponent, axis=gone, keepdims=True, where=possible, initial=_LEAST)
    terms = np.where(possible, np.ldexp(product.mantissa, np.where(possible, product.exponent - top, 0)), 0.0)
    combined = terms.max(axis=gone) if maximal else terms.sum(axis=gone)
    left = [v for v in joint if v in out]
    order = [left.index(v) for v in out]
    return Extended.of(combined, np.where(combined > 0, top.reshape(combined.shape), 0)).map(
        lambda cells: np.transpose(cells, order)
    )


def _is_moderate(table: Extended, n: int) -> bool:
    """Whether products with n - 1 other such tables, each relative to its largest entry, are ordinary numbers."""
    least = table.exponent.min(where=table.mantissa > 0, initial=-_LEAST)
    return bool(table.top - least < 1000 // max(n, 1))


def _widened(table: NDArray[Any], scope: Sequence[int], joint: Sequence[int]) -> NDArray[Any]:
    """The table with an axis for every variable of `joint`, of length one where it has none."""
    present = [v for v in joint if v in scope]
    turned = np.transpose(table, [scope.index(v) for v in present])
    shape = dict(zip(present, turned.shape, strict=True))
    return turned.reshape([shape.get(v, 1) for v in joint])


class _Tables:
    """All tables of a program for one case."""

    def __init__(
        self, program: Program, factors: Sequence[NDArray[np.float64]], evidence: Evidence, zeros: bool = False
    ):
        """`factors`: axes in the model's order; `zeros`: whether a table may be zero everywhere."""
        self._program, self._zeros = program, zeros
        self.tables: dict[int, Extended] = {}
        scopes = program.scopes
        for f, (factor, scope) in enumerate(zip(factors, program.factor_scopes, strict=True)):
            table = Extended.of(np.transpose(factor, [scope.index(v) for v in scopes[f]]))
            if program.chosen:  # contractions may sum an observed variable out of each table by itself
                table = table.times(Extended.of(allowed(scopes[f], evidence, program.cardinality)))
            self._put(f, table)
        n = program.n_plain
        for v, given in evidence.vectors(program.cardinality[:n]).items():
            f = int(program.evidence_factor[v])
            weights = Extended.of(given, exponents_of(evidence).get(v, 0))
            self._put(f, self.tables[f].times(weights.map(partial(_widened, scope=[v], joint=scopes[f]))))
        for v in (v for v in sorted(evidence.likelihood) if v >= n):
            f = int(program.evidence_factor[v])
            weights = Extended.of(evidence.likelihood[v], exponents_of(evidence).get(v, 0))
            self._put(f, self.tables[f].times(weights.map(partial(np.reshape, shape=self.tables[f].mantissa.shape))))
        for out, ins, maximal in zip(program.outs, program.ins, program.maximal, strict=True):
            tables = [self.tables[t] for t in ins]
            self._put(out, contract_extended(tables, [scopes[t] for t in ins], scopes[out], maximal))

    def _put(self, t: int, table: Extended) -> None:
        if not (table.mantissa.any() or self._zeros):
            raise ImpossibleEvidence("the evidence has probability 0")
        self.tables[t] = table

    @property
    def log_root(self) -> float:
        """ln of the product of the roots."""
        return sum(self.tables[t].log for t in self._program.roots)

    def distributions(self) -> dict[int, NDArray[np.float64]]:
        """By variable or factor the normalised tables of the contractions that are answers."""
        program = self._program
        relative = {
            answer: self.tables[out].plain(self.tables[out].top)
            for out, answer in zip(program.outs, program.answers, strict=True)
            if answer >= 0
        }
        return {answer: table / table.sum() for answer, table in relative.items()}


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

    def run_case(
        self, evidence: Evidence, targets: Sequence[int] | None = None, states: StateMap | None = None
    ) -> Result:
        """See `jtgpu.backends.base.Backend.run_case`; computes every variable whatever the targets."""
        tables = _Tables(self._posteriors, self._numbers(), evidence)
        by_variable = tables.distributions()
        parts = [by_variable[v].ravel() for v in range(self._posteriors.n_variables)]
        return Result(np.concatenate(parts) if parts else np.zeros(0), tables.log_root)

    def run(self, table: Table[A]) -> A:
        return cast("A", self._count(table)) if table.deliver is COUNTS else super().run(table)

    def _count(self, table: Table[Any]) -> CountSums:
        plan, states, factors = self._plan, table.feed.rows(), self._numbers()
        families, log_evidence = [np.zeros(f.shape) for f in factors], np.full(len(states), -np.inf)
        weights = table.weights_or_ones
        for row, weight in enumerate(weights):
            try:
                case = Evidence(states[row], {v: w[row] for v, w in table.likelihood.items()})
                tables = _Tables(self._families, factors, case)
            except ImpossibleEvidence:
                continue
            log_evidence[row] = tables.log_root
            for f, distribution in tables.distributions().items():
                axes = [plan.table_scopes[f].index(v) for v in plan.factor_scopes[f]]
                families[f][...] += weight * np.transpose(distribution, axes)
        return CountSums.of(families, log_evidence, weights)

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

    def _backward(self, tables: dict[int, Extended], evidence: Evidence, choose: Any) -> NDArray[np.int32]:
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
            product = Extended.of(np.ones([1] * len(taken)))
            for t in ins:
                scope = program.scopes[t]
                part = tuple(slice(None) if v in taken else states[v] for v in scope)
                widened = partial(_widened, scope=[v for v in scope if v in taken], joint=taken)
                product = product.times(tables[t].map(itemgetter(part)).map(widened))
            relative = product.plain(product.top)
            states[taken] = np.unravel_index(choose(relative.ravel(), taken), relative.shape)
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
        parts = []
        for f, (scope, t) in enumerate(zip(program.factor_scopes, program.factor_derivative, strict=True)):
            derivative = Extended.of(np.ones(tuple(int(program.cardinality[v]) for v in scope)))
            if t != UNIT:
                own = program.scopes[t]
                derivative = derivative.times(tables.tables[t].map(partial(_widened, scope=own, joint=scope)))
            derivative = derivative.times(Extended.of(allowed(scope, evidence, program.cardinality)))
            for v in evidence.likelihood:
                if program.evidence_factor[v] != f:
                    continue
                weights = Extended.of(evidence.likelihood[v], exponents_of(evidence).get(v, 0))
                if v < program.n_plain:
                    weights = weights.map(partial(_widened, scope=[v], joint=scope))
                else:
                    weights = weights.map(partial(np.reshape, shape=derivative.mantissa.shape))
                derivative = derivative.times(weights)
            parts.append(derivative.map(np.ravel))
        roots = [tables.tables[t] for t in program.roots]
        return Derivatives(
            np.concatenate([part.mantissa for part in parts]),
            np.concatenate([part.exponent for part in parts]),
            np.array([float(root.mantissa) for root in roots]),
            np.array([int(root.exponent) for root in roots], np.int64),
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
