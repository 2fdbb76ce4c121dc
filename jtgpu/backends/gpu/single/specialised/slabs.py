"""Contractions that run together, state by state of the variables that all their tables have in common.

Of a plan with tables of many megabytes, what is done with these is a tree of contractions that share some variables:
for a given state of these it is a propagation of its own, small enough for an SM's shared memory. One kernel then goes
through all states (slices), and tables between its contractions never exist as a whole. Here it is decided which
contractions and which variables; `jtgpu.backends.gpu.single.specialised.slab_code` lays a slice out and writes the kernel.

The idea is conditioning (Pearl 1988, section 4.3), for the sake of memory traffic.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .....plans.plan import Plan
from ...program.tiling import Binary, Step

__all__ = ["Region", "regions", "without"]

HEAVY_BYTES = 4 << 20  # of a contraction's tables
LEAST_BYTES = 200 << 20  # of all heavy ones, from which on a slab pays
FEWEST, MOST = 264, 20_000  # slices
MOST_TABLES = 32  # that come in, and that go out: a bit each
MOST_COMMON = 10  # variables of which subsets are tried


@dataclass(frozen=True)
class Region:
    """Contractions that are done slice by slice.

    Attributes
    ----------
    variables : tuple of int
        Fixed in a slice, the one that changes fastest last.
    levels : tuple of tuples of int
        Contractions of the program; those of one level need nothing of each other.
    inputs, outputs : tuple of int
        Tables that come in, and that are wanted outside.
    """

    variables: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """All contractions, in an order in which they can run."""
        return tuple(i for level in self.levels for i in level)


def _scope(program: Binary, step: Step) -> frozenset[int]:
    return frozenset().union(*(program.scopes[t] for t in (*step.ins, step.out)))


def regions(plan: Plan, program: Binary) -> Iterator[Region]:
    """Every region that could be taken: one for each set of variables worth a look."""
    scopes = [_scope(program, s) for s in program.steps]
    tables = [sum(plan.size(program.scopes[t]) for t in (*s.ins, s.out)) for s in program.steps]
    heavy = [i for i, n in enumerate(tables) if 8 * n >= HEAVY_BYTES]
    if 8 * sum(tables[i] for i in heavy) < LEAST_BYTES:
        return
    common: frozenset[int] = frozenset()
    for i in sorted(heavy, key=lambda i: (-tables[i], i)):
        left = common & scopes[i] if common else scopes[i]
        if plan.size(tuple(left)) < FEWEST:
            break
        common = left
    candidates = sorted(common, key=lambda v: (-int(plan.cardinality[v]), v))[:MOST_COMMON]
    for n in range(1, len(candidates) + 1):
        for chosen in itertools.combinations(candidates, n):
            if FEWEST <= plan.size(chosen) <= MOST:
                made = _region(plan, program, scopes, frozenset(chosen))
                if made is not None:
                    yield made


def _region(
    plan: Plan, program: Binary, scopes: Sequence[frozenset[int]], common: frozenset[int]
) -> Region | None:
    """The contractions that have all these variables; None where they cannot be done slice by slice."""
    inside = {i for i, scope in enumerate(scopes) if common <= scope}
    readers: dict[int, list[int]] = {}
    for i, step in enumerate(program.steps):
        for t in step.ins:
            readers.setdefault(t, []).append(i)
    asked = {*plan.posterior_table.tolist(), *plan.root_table.tolist()}
    made = {program.steps[i].out for i in inside}
    inputs = tuple(sorted({t for i in inside for t in program.steps[i].ins} - made))
    outputs = []
    for t in sorted(made):
        mine = [r in inside for r in readers.get(t, ())]
        if any(mine) and not common <= set(program.scopes[t]):
            return None  # it would have to be whole before it is read
        if t in asked or not all(mine) or not mine:
            outputs.append(t)
    if max(len(inputs), len(outputs)) > MOST_TABLES:
        return None
    behind = set(outputs)  # tables that come after the region
    for i, step in enumerate(program.steps):
        if i not in inside and behind.intersection(step.ins):
            behind.add(step.out)
    if behind.intersection(inputs):
        return None
    digits = _ordered(plan, program, common, (*inputs, *outputs))
    return Region(digits, _levels(program, inside), inputs, tuple(outputs))


def _ordered(plan: Plan, program: Binary, common: frozenset[int], tables: Sequence[int]) -> tuple[int, ...]:
    """The variables so that parts of tables change as seldom as can be from slice to slice."""
    size = {t: plan.size(tuple(set(program.scopes[t]) - common)) for t in tables}
    left, fastest = set(common), []
    still = list(tables)  # that no variable so far changes
    while left:
        best = max(sorted(left), key=lambda v: sum(size[t] for t in still if v not in program.scopes[t]))
        still = [t for t in still if best not in program.scopes[t]]
        fastest.append(best)
        left.remove(best)
    return tuple(reversed(fastest))


def _levels(program: Binary, inside: set[int]) -> tuple[tuple[int, ...], ...]:
    """The contractions by how many of them must be done one after the other before."""
    level: dict[int, int] = {}
    made: dict[int, list[int]] = {}
    for i in sorted(inside):  # of a program, whose order is one in which it can run
        step = program.steps[i]
        level[step.out] = 1 + max(level.get(t, 0) for t in step.ins)
        made.setdefault(level[step.out], []).append(i)
    return tuple(tuple(made[n]) for n in sorted(made))


def without(plan: Plan, program: Binary, region: Region) -> tuple[Binary, int]:
    """The program without a region's contractions, on levels of their own, and the level that is done before the
    region begins: its outputs are there two levels later."""
    inside = set(region.steps)
    level = dict.fromkeys(range(plan.n_factors), 0)
    pending = [i for i in range(len(program.steps)) if i not in inside]
    before = -1
    numbers: dict[int, int] = {}
    while pending or before < 0:
        if before < 0 and all(t in level for t in region.inputs):
            before = max((level[t] for t in region.inputs), default=0)
            level.update(dict.fromkeys(region.outputs, before + 2))
        later = []
        for i in pending:
            step = program.steps[i]
            if all(t in level for t in step.ins):
                numbers[i] = level[step.out] = 1 + max(level[t] for t in step.ins)
            else:
                later.append(i)
        pending = later
    kept = sorted(numbers)
    return Binary(tuple(program.steps[i] for i in kept), program.scopes, tuple(numbers[i] for i in kept)), before
