"""A plan's contractions as the GPU engines run them: at most two tables each, neighbouring axes merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....plans.arrays import POSTERIOR
from ....plans.plan import Plan

OUT, A, B = 0, 1, 2  # places of a loop's strides


@dataclass(frozen=True)
class Step:
    """One contraction of at most two tables; tables from T on are intermediate ones, not of the plan."""

    out: int
    ins: tuple[int, ...]
    posterior: bool


@dataclass(frozen=True)
class Binary:
    """A plan's program as contractions of at most two tables."""

    steps: tuple[Step, ...]  # in an order in which they can run
    scopes: tuple[tuple[int, ...], ...]  # of every table: the plan's, then the intermediate ones
    level: tuple[int, ...]  # of every step, from 1 on


def binary_program(plan: Plan) -> Binary:
    """Split contractions of more than two tables: multiply the two that leave the smallest table first."""
    kinds = [kind == POSTERIOR for kind in plan.op_kind.tolist()]
    steps = [Step(*x) for x in zip(plan.op_out.tolist(), plan.op_inputs, kinds, strict=True)]
    return binary_steps(plan, plan.table_scopes, steps)


def binary_steps(plan: Plan, table_scopes: Sequence[tuple[int, ...]], contractions: Iterable[Step]) -> Binary:
    """The same of any contractions of a plan's factors, which are the first tables."""
    scopes = list(table_scopes)
    steps: list[Step] = []
    for out, ins, posterior in ((x.out, x.ins, x.posterior) for x in contractions):
        left = list(ins)
        while len(left) > 2:
            pairs = [(i, j) for i in range(len(left)) for j in range(i)]
            options = []
            for i, j in pairs:
                others = set(scopes[out]).union(*(scopes[t] for k, t in enumerate(left) if k not in (i, j)))
                joint = set(scopes[left[i]]) | set(scopes[left[j]])
                options.append((plan.size(tuple(joint)), i, j, joint & others))
            _, i, j, kept = min(options, key=lambda o: o[:3])
            scopes.append(tuple(sorted(kept, key=lambda v: int(plan.axis_rank[v]))))
            made = len(scopes) - 1
            steps.append(Step(made, (left[j], left[i]), False))
            left = [t for k, t in enumerate(left) if k not in (i, j)] + [made]
        steps.append(Step(out, tuple(left), posterior))
    return Binary(tuple(steps), tuple(scopes), levels_of(plan, steps))


def levels_of(plan: Plan, steps: Iterable[Step]) -> tuple[int, ...]:
    """The level of each step, from 1 on: steps of one level are independent."""
    level_of = dict.fromkeys(range(plan.n_factors), 0)
    level = []
    for s in steps:
        level_of[s.out] = 1 + max(level_of[t] for t in s.ins)
        level.append(level_of[s.out])
    return tuple(level)


Loop = tuple[int, tuple[int, int, int]]  # extent; strides in the output, A and B


def loops_of(plan: Plan, scopes: Sequence[tuple[int, ...]], step: Step) -> tuple[Loop, ...]:
    """The joint axes of a contraction, slowest first; neighbours that every table walks alike are one axis."""
    cards = plan.cardinality
    ins = step.ins if len(step.ins) == 2 else (step.ins[0], None)
    strides: list[dict[int, int]] = []
    for t in (step.out, *ins):
        at, of = 1, {}
        for v in reversed(scopes[t] if t is not None else ()):
            of[v] = at
            at *= int(cards[v])
        strides.append(of)
    joint = sorted({v for of in strides for v in of if cards[v] > 1}, key=lambda v: int(plan.axis_rank[v]))
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


def offsets(loops: Iterable[Loop], table: int) -> list[int]:
    """Offsets in one table of every configuration of some axes, the last axis fastest."""
    at = [0]
    for n, s in loops:
        at = [x + i * s[table] for x in at for i in range(n)]
    return at
