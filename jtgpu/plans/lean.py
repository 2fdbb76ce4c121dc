"""Rearrange a binary contraction tree so that tables of many cases move fewer numbers.

On a GPU a table of all cases is written to and read from device memory, and how often an operand is loaded again
depends on what the contraction's other edges have for themselves. Two neighbouring vertices exchange branches
(`jtgpu.plans.balance`) as long as that makes the sum smaller: small tables are multiplied with each other before they
meet a large one, which is then read once and not written in between.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from .balance import Tree

CELL = 6.0  # two messages go over an edge, each is written once and read twice
LOAD = 0.7  # of an operand from the L2, in cells of device memory
SIDE = 16.0  # most outputs of a block that share an operand
LEAST_GAIN = 0.98  # otherwise the tree stays as it is
MAX_SWEEPS = 64


def slim(
    scopes: Sequence[frozenset[int]], children: Mapping[int, tuple[int, int]], top: int, cardinality: Sequence[int]
) -> dict[int, tuple[int, int]] | None:
    """Another tree over the same leaves that moves fewer numbers; None if there is none nearby."""
    # See `jtgpu.plans.balance.shorten`
    tree = _Slim(scopes, children, top, cardinality)
    before = tree.cost()
    for _ in range(MAX_SWEEPS):
        if not tree.descend():
            break
    if tree.cost() > LEAST_GAIN * before:
        return None
    return {n: (a, b) for n, (a, b) in tree.kids.items()}


class _Slim(Tree):
    """The tree while branches are exchanged."""

    def __init__(
        self, scopes: Sequence[frozenset[int]], children: Mapping[int, tuple[int, int]], top: int,
        cardinality: Sequence[int],
    ):  # fmt: skip
        super().__init__(scopes, children, top, cardinality)
        self._loads = functools.lru_cache(1 << 16)(self.loads)
        self._waiting = {n for n in self.kids if n != top}  # vertices near which something has changed

    def descend(self) -> int:
        """Make every exchange that pays, vertex after vertex; their number."""
        moved = 0
        for n in self.kids:
            if n not in self._waiting:
                continue
            self._waiting.remove(n)
            other = self.across(n)
            if other is None:
                continue
            third, last = self.beyond(n, other)
            a, b = self.kids[n]
            now = self._cost(a, b, third, last)
            cost, given = min((self._cost(a, third, b, last), b), (self._cost(b, third, a, last), a))
            if cost < now * (1.0 - 1e-9):
                self.give(n, other, given, third)
                near = (n, other, *self.kids[n], *self.kids[other])
                self._waiting.update(x for x in near if x in self.kids)
                moved += 1
        return moved

    def cost(self) -> float:
        """Cells that all messages move, but for those of the root."""
        inner = [n for n in self.kids if n != self.top]
        loads = sum(self._loads(*(self.scope[c] for c in self.kids[n]), self.scope[n]) for n in inner)
        return CELL * sum(self.size(self.scope[n]) for n in inner) + LOAD * loads

    def _cost(self, a: int, b: int, c: int, d: int) -> float:
        """Cells that edges a and b at one vertex and c and d at its neighbour make them move."""
        here, there, far, last = self.scope[a], self.scope[b], self.scope[c], self.scope[d]
        between = (here | there) & (far | last)
        loads = self._loads(here, there, between) + self._loads(far, last, between)
        return CELL * self.size(between) + LOAD * loads

    def loads(self, a: frozenset[int], b: frozenset[int], c: frozenset[int]) -> float:
        """Operands that the three messages of a vertex load, by the scopes of its edges."""
        common = a & b & c
        own = [min(self.size((x & y) - common), SIDE) for x, y in ((b, c), (a, c), (a, b))]
        return self.size(a | b | c) * 2.0 * sum(1.0 / n for n in own)
