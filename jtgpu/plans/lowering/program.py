"""The program of a contraction forest: messages to the roots, derivatives back, posteriors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..arrays import COLLECT, DISTRIBUTE, POSTERIOR
from ..balance import ContractionForest

UNIT = -1  # in place of a table of empty scope that contains 1


@dataclass
class ContractionProgram:
    """Tables and contractions before they become arrays of a plan; table t < F is factor t."""

    scopes: list[tuple[int, ...]]  # of every table, in axis order
    kinds: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)
    ins: list[tuple[int, ...]] = field(default_factory=list)
    posterior_table: list[int] = field(default_factory=list)
    root_table: list[int] = field(default_factory=list)


class _Writer:
    """Collects tables and contractions, and the level of each."""

    def __init__(self, scopes: Sequence[Iterable[int]], axis_rank: Sequence[int]):
        self.rank = axis_rank
        self.program = ContractionProgram([self.ordered(s) for s in scopes])
        self.table_level = [0] * len(scopes)

    def ordered(self, scope: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(scope, key=self.rank.__getitem__))

    def add(self, kind: int, scope: Iterable[int], ins: Iterable[int]) -> int:
        used = tuple(t for t in ins if t != UNIT)
        out = len(self.program.scopes)
        level = 1 + max(self.table_level[t] for t in used)
        self.program.scopes.append(self.ordered(scope))
        self.table_level.append(level)
        self.program.kinds.append(kind)
        self.program.levels.append(level)
        self.program.outs.append(out)
        self.program.ins.append(used)
        return out


def emit(
    forest: ContractionForest, roots: list[int], axis_rank: Sequence[int], all_derivatives: bool = True
) -> ContractionProgram:
    """The forward sweep, the reverse sweep and all posteriors of a finished forest."""
    # roots: list of int: Its roots
    # axis_rank: (V,): Position of each variable in the axis order
    # all_derivatives: Compute D of every inner node; False: only where a posterior is read at the node or below
    n_factors = sum(1 for c in forest.children if not c)
    writer = _Writer([forest.scope[f] for f in range(n_factors)], axis_rank)
    up = list(range(n_factors))  # table of U of each node
    for n in range(n_factors, len(forest.children)):
        up.append(writer.add(COLLECT, forest.scope[n], (up[c] for c in forest.children[n])))
    down: dict[int, int] = dict.fromkeys(roots, UNIT)  # table of D of each node; children on demand for leaves
    where = _posterior_places(forest, n_factors)
    wanted = _wanted(forest, where)
    if all_derivatives:
        wanted.update(range(n_factors, len(forest.children)))
    scopes = writer.program.scopes
    for n in reversed(range(n_factors, len(forest.children))):
        for a in forest.children[n]:
            if a not in wanted:
                continue
            ins = [down[n], *(up[b] for b in forest.children[n] if b != a)]
            used = [t for t in ins if t != UNIT]
            seen = frozenset(v for t in used for v in scopes[t]) & forest.scope[a]
            if not used:
                down[a] = UNIT
            elif len(used) == 1 and len(seen) == len(scopes[used[0]]):
                down[a] = used[0]  # nothing to sum or multiply: the same table
            else:
                down[a] = writer.add(DISTRIBUTE, seen, used)
    posterior = []
    for v, (n, through) in enumerate(where):
        above = [up[n]] if through == "down" else [up[c] for c in forest.children[n]]
        posterior.append(writer.add(POSTERIOR, (v,), [*above, down[n]]))
    program = writer.program
    program.posterior_table, program.root_table = posterior, [up[r] for r in roots]
    by_level = sorted(range(len(program.outs)), key=lambda i: (program.levels[i], i))
    program.kinds = [program.kinds[i] for i in by_level]
    program.levels = [program.levels[i] for i in by_level]
    program.outs = [program.outs[i] for i in by_level]
    program.ins = [program.ins[i] for i in by_level]
    return program


def _wanted(forest: ContractionForest, where: Sequence[tuple[int, str]]) -> set[int]:
    """Nodes whose D is needed for posteriors read at the given places."""
    parent = {c: n for n, children in enumerate(forest.children) for c in children}
    wanted: set[int] = set()
    for n in {n for n, _ in where}:
        at: int | None = n
        while at is not None and at not in wanted:
            wanted.add(at)
            at = parent.get(at)
    return wanted


def _posterior_places(forest: ContractionForest, n_factors: int) -> list[tuple[int, str]]:
    """Where each variable's posterior is computed: ``(node, "down")`` from U and D of the node, ``(node, "joint")``
    from the children of the node and its D.

    A variable in the scope of inner nodes is read at the smallest of them. Any other variable is summed out where its
    factors meet; computing the D of a leaf pays off if several such variables share the leaf.
    """
    parent = [-1] * len(forest.children)
    for n, children in enumerate(forest.children):
        for c in children:
            parent[c] = n
    place: list[tuple[int, str] | None] = [None] * len(forest.cardinality)
    best = [math.inf] * len(forest.cardinality)
    for n in range(n_factors, len(forest.children)):
        size = forest.size(forest.scope[n])
        for v in forest.scope[n]:
            if size < best[v]:
                best[v], place[v] = size, (n, "down")
    leaf_only: dict[int, list[int]] = {}
    smallest: dict[int, tuple[int, int]] = {}
    for f in range(n_factors):
        size = forest.size(forest.scope[f])
        for v in sorted(forest.scope[f]):
            if place[v] is None and (v not in smallest or (size, f) < smallest[v]):
                smallest[v] = (size, f)
    for v, (_, f) in sorted(smallest.items()):
        leaf_only.setdefault(f, []).append(v)
    for f, variables in leaf_only.items():
        n = parent[f]
        joint = forest.size(frozenset().union(*(forest.scope[c] for c in forest.children[n])))
        # D of the leaf from two tables over the joint scope, then products over the leaf, against one product of
        # three tables over the joint scope per variable
        with_leaf = 2 * joint + 2 * len(variables) * forest.size(forest.scope[f])
        alone = len(forest.children[n]) == 1
        choice = "down" if alone or with_leaf < 3 * joint * len(variables) else "joint"
        for v in variables:
            place[v] = (f, "down") if choice == "down" else (n, "joint")
    assert all(p is not None for p in place)
    return [p for p in place if p is not None]
