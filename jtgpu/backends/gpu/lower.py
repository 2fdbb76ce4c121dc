"""A plan's contractions as every GPU engine reads them: at most two tables each, neighbouring axes merged.

The plan's factors are the first tables. What an engine's kernels read is written from this: its records, or its text.
Arrays only; knows no device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...plans.program import UNIT, derivative_program

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan

OUT, A, B = 0, 1, 2  # places of a loop's strides
MAX_AXES = 64  # variables of a factor that evidence may be multiplied into
MOST_SUM = 128  # configurations of a sum, where long sums are split

Loop = tuple[int, tuple[int, int, int]]  # extent; strides in the output, A and B
Scope = tuple[int, ...]


class Contraction(NamedTuple):
    """One contraction of at most two tables."""

    out: int
    ins: tuple[int, ...]


@dataclass(frozen=True)
class Lowered:
    """Contractions of at most two tables; the plan's factors are the first tables."""

    plan: Plan
    steps: tuple[Contraction, ...]  # in an order in which they can run
    scopes: tuple[Scope, ...]  # of every table
    roots: tuple[int, ...]  # tables of P(e), one a component
    answers: tuple[int, ...]  # the other tables that are wanted

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Cells of every table."""
        return tuple(self.plan.size(s) for s in self.scopes)

    @cached_property
    def loops(self) -> tuple[tuple[Loop, ...], ...]:
        """The joint axes of every step."""
        return tuple(loops_of(self.plan.cardinality, self.plan.axis_rank, self.scopes, s) for s in self.steps)

    @cached_property
    def level(self) -> tuple[int, ...]:
        """The level of every step, from 1 on: steps of one level are independent."""
        level_of = dict.fromkeys(range(self.plan.n_factors), 0)
        for s in self.steps:
            level_of[s.out] = 1 + max(level_of[t] for t in s.ins)
        return tuple(level_of[s.out] for s in self.steps)

    @cached_property
    def maker(self) -> dict[int, int]:
        """The step that makes each table."""
        return {s.out: i for i, s in enumerate(self.steps)}

    @cached_property
    def component(self) -> tuple[int, ...]:
        """Of every table, the place of its component's P(e) among the roots."""
        leader = list(range(len(self.scopes)))

        def find(t: int) -> int:
            while leader[t] != t:
                leader[t] = leader[leader[t]]
                t = leader[t]
            return t

        for s in self.steps:
            for t in s.ins:
                leader[find(t)] = find(s.out)
        root = {find(t): i for i, t in enumerate(self.roots)}
        return tuple(root.get(find(t), -1) for t in range(len(self.scopes)))

    def needed(self, tables: Iterable[int]) -> set[int]:
        """The steps on which some tables depend."""
        steps, waiting = set[int](), list(tables)
        while waiting:
            i = self.maker.get(waiting.pop())
            if i is not None and i not in steps:
                steps.add(i)
                waiting += self.steps[i].ins
        return steps

    def with_steps(self, steps: Iterable[Contraction], scopes: Iterable[Scope], answers: Sequence[int]) -> Lowered:
        """Other contractions of the same plan."""
        return replace(self, steps=tuple(steps), scopes=tuple(scopes), answers=tuple(answers))


def lowered(plan: Plan) -> Lowered:
    """The contractions of a plan's posteriors."""
    steps, scopes = _pairs(plan, plan.table_scopes, map(Contraction, plan.op_out.tolist(), plan.op_inputs))
    return Lowered(plan, steps, scopes, tuple(plan.root_table.tolist()), tuple(plan.posterior_table.tolist()))


def _pairs(
    plan: Plan, table_scopes: Sequence[Scope], steps: Iterable[Contraction]
) -> tuple[tuple[Contraction, ...], tuple[Scope, ...]]:
    """Split contractions of more than two tables: multiply the two that leave the smallest table first."""
    scopes = list(table_scopes)
    made: list[Contraction] = []
    for out, ins in steps:
        left = list(ins)
        while len(left) > 2:
            options = []
            for j, i in combinations(range(len(left)), 2):
                others = set(scopes[out]).union(*(scopes[t] for k, t in enumerate(left) if k not in (i, j)))
                joint = set(scopes[left[i]]) | set(scopes[left[j]])
                options.append((plan.size(tuple(joint)), i, j, joint & others))
            _, i, j, kept = min(options, key=lambda o: o[:3])
            scopes.append(tuple(sorted(kept, key=lambda v: int(plan.axis_rank[v]))))
            made.append(Contraction(len(scopes) - 1, (left[j], left[i])))
            left = [t for k, t in enumerate(left) if k not in (i, j)] + [len(scopes) - 1]
        made.append(Contraction(out, tuple(left)))
    return tuple(made), tuple(scopes)


def split_sums(program: Lowered) -> Lowered:
    """The same contractions without long sums; new tables follow the others.

    With a lane a case no other warp helps with a sum, so every sum must be short: one that runs over more than twice
    `MOST_SUM` configurations leaves its slowest summed variables in a table of its own, which a second contraction sums
    out. A single sum of 65,536 configurations takes milliseconds, and the whole level waits for it; the table costs one
    entry for every `MOST_SUM` multiply-adds.
    """
    plan, scopes = program.plan, list(program.scopes)
    steps: list[Contraction] = []

    def add(step: Contraction) -> None:
        joint = set().union(*(scopes[t] for t in step.ins))
        summed = sorted(joint - set(scopes[step.out]), key=lambda v: int(plan.axis_rank[v]))
        length = plan.size(tuple(summed))
        left: set[int] = set()
        if length > 2 * MOST_SUM:
            for v in summed:
                if length <= MOST_SUM:
                    break
                left.add(v)
                length //= int(plan.cardinality[v])
        if not left or (len(step.ins) == 1 and len(left) == len(summed)):  # the latter: a variable of very many states
            steps.append(step)
            return
        scopes.append(tuple(sorted(left | set(scopes[step.out]), key=lambda v: int(plan.axis_rank[v]))))
        made = len(scopes) - 1
        steps.append(Contraction(made, step.ins))
        add(Contraction(step.out, (made,)))

    for step in program.steps:
        add(step)
    return program.with_steps(steps, scopes, program.answers)


@dataclass(frozen=True)
class CountProgram:
    """The contractions of expected counts: messages to the roots, derivatives of P(e), factors times their own."""

    whole: Lowered  # messages and derivatives, then the products of the families, which are its answers
    n_messages: int  # steps before these products
    derivative: tuple[int, ...]  # (F,) table of the derivative by each factor; UNIT for the number 1
    root: tuple[int, ...]  # (F,) component of each factor, as a place among the roots

    @property
    def messages(self) -> Lowered:
        """The steps without the products of the families."""
        n = len(self.whole.scopes) - len(self.derivative)
        return self.whole.with_steps(self.whole.steps[: self.n_messages], self.whole.scopes[:n], ())


def count_program(plan: Plan, *, split: bool) -> CountProgram:
    """The contractions of a plan's expected counts; `split`: without long sums."""
    base = derivative_program(plan)
    number: dict[int, int] = {f: f for f in range(plan.n_factors)}
    for out in base.outs:
        number[out] = len(number)
    contractions = (
        Contraction(number[out], tuple(number[t] for t in ins)) for out, ins in zip(base.outs, base.ins, strict=True)
    )
    steps, scopes = _pairs(plan, [base.scopes[t] for t in number], contractions)
    program = Lowered(plan, steps, scopes, tuple(number[t] for t in base.roots), ())
    if split:
        program = split_sums(program)
    derivative = tuple(UNIT if t == UNIT else number[t] for t in base.factor_derivative)
    n = len(program.scopes)
    products = [Contraction(n + f, (f,) if d == UNIT else (f, d)) for f, d in enumerate(derivative)]
    families = program.scopes[: plan.n_factors]
    whole = program.with_steps([*program.steps, *products], [*program.scopes, *families], [x.out for x in products])
    return CountProgram(whole, len(program.steps), derivative, base.factor_root)


# Axes and cells.


def loops_of(
    cards: NDArray[np.int64], rank: NDArray[np.int64], scopes: Sequence[Scope], step: Contraction
) -> tuple[Loop, ...]:
    """The joint axes of a contraction, slowest first; neighbours that every table walks alike are one axis."""
    # cards, rank: (V,) States of every variable, and its place in the order of axes
    ins = step.ins if len(step.ins) == 2 else (step.ins[0], None)
    strides: list[dict[int, int]] = []
    for t in (step.out, *ins):
        at, of = 1, {}
        for v in reversed(scopes[t] if t is not None else ()):
            of[v] = at
            at *= int(cards[v])
        strides.append(of)
    joint = sorted({v for of in strides for v in of if cards[v] > 1}, key=lambda v: int(rank[v]))
    loops: list[Loop] = []
    for v in joint:
        n, walk = int(cards[v]), (strides[OUT].get(v, 0), strides[A].get(v, 0), strides[B].get(v, 0))
        if loops and all(before == here * n for before, here in zip(loops[-1][1], walk, strict=True)):
            loops[-1] = (loops[-1][0] * n, walk)
        else:
            loops.append((n, walk))
    return tuple(loops)


def mirrored(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The loops of the same contraction with its inputs exchanged."""
    return tuple((n, (s[OUT], s[B], s[A])) for n, s in loops)


def offsets(loops: Iterable[Loop], table: int) -> NDArray[np.int32]:
    """Offsets in one table of every configuration of some axes, the last axis fastest."""
    at = np.zeros(1, np.int32)
    for n, strides in loops:
        at = np.add.outer(at, np.arange(n, dtype=np.int32) * np.int32(strides[table])).ravel()
    return at


def placed(sizes: Iterable[int], unit: int = 1) -> tuple[list[int], int]:
    """First cell of each of some tables, one after the other at multiples of `unit`, and the cell behind all."""
    at = np.cumsum([0, *(-(-n // unit) * unit for n in sizes)]).tolist()
    return at[:-1], at[-1]


# Factors.


def evidence_of(plan: Plan) -> dict[int, list[int]]:
    """The variables whose evidence is multiplied into each factor; factors without any are left out."""
    variables: dict[int, list[int]] = {}
    for v, f in enumerate(plan.evidence_factor.tolist()):
        variables.setdefault(f, []).append(v)
    return dict(sorted(variables.items()))


def known_axes(plan: Plan, factor: int, variables: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Rows of struct Known: variable, entries inside its axis, states, and its first weight."""
    if len(variables) > MAX_AXES:  # a table of 2^64 entries at least, unless variables have one state
        variables = [v for v in variables if plan.cardinality[v] > 1]
    scope = plan.table_scopes[factor]
    return [
        (v, plan.size(scope[scope.index(v) + 1 :]), int(plan.cardinality[v]), int(plan.posterior_ptr[v]))
        for v in variables
    ]


def flat_factors(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """The factors' entries, axes in the plan's order."""
    axes = zip(factors, plan.factor_scopes, plan.table_scopes, strict=False)
    return [np.transpose(table, [scope.index(v) for v in turned]).ravel() for table, scope, turned in axes]
