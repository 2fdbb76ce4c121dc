"""Contractions that a thread runs one after the other in registers. Knows no device.

A chain is a sequence of contractions each of which reads the answer of the one before. It is cut into blocks. Threads
walk some axes of a block (`outer`), so that none needs what another one computes, and the text of the code walks all
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from ..program.records import Step
from .reorder import Axes

MOST_INNER = 36  # numbers of a table that a thread keeps
MOST_SUMMED = 100  # that it reads, if it uses each once
MOST_TEXT = 600  # products that are written out, of a block
BARRIER = 100.0  # cost of a block in numbers read
ENOUGH = 512  # threads that keep an SM busy


@dataclass(frozen=True)
class Block:
    """Some contractions of a chain."""

    steps: tuple[Step, ...]
    mains: tuple[int, ...]  # the input of each that is the answer of the one before
    outer: tuple[int, ...]  # variables
    level: int = 0

    @property
    def inputs(self) -> list[int]:
        """Tables that it does not compute."""
        inside = {s.out for s in self.steps}
        return [t for s in self.steps for t in s.ins if t not in inside]


class Blocks:
    """Cuts contractions into blocks."""

    def __init__(
        self, axes: Callable[[int], Axes], size: Callable[[Axes], int], consts: Container[int],
        rank: Callable[[int], int], room: int,
    ):  # fmt: skip
        # room: Numbers of all sequences that an SM has room for
        self.axes, self.size, self.consts, self.rank, self.room = axes, size, consts, rank, room
        self._lanes, self._summed = 1.0, MOST_INNER

    def cut(self, steps: Sequence[Step], answers: Sequence[int]) -> list[Block] | None:
        """The blocks, in an order in which they can run; None if some contraction is too large."""
        tables = {t for s in steps for t in (s.out, *s.ins) if t not in self.consts}
        largest = max((self.size(self.axes(t)) for t in tables), default=1)
        self._lanes = self.room / (1.5 * largest)
        made: list[Block] = []
        for chain in self._chains(steps, answers):
            self._summed = MOST_INNER
            blocks = self._best(*chain)
            if blocks is None:
                self._summed = MOST_SUMMED
                blocks = self._best(*chain)
            if blocks is None:
                return None
            made += blocks
        level: dict[int, int] = {}
        ordered: list[Block] = []
        while made:
            mine = {s.out for b in made for s in b.steps}
            ready = next(b for b in made if not any(t in mine for t in b.inputs))
            made.remove(ready)
            at = 1 + max((level.get(t, 0) for t in ready.inputs), default=0)
            level[ready.steps[-1].out] = at
            ordered.append(Block(ready.steps, ready.mains, ready.outer, at))
        return sorted(ordered, key=lambda b: b.level)

    def _chains(self, steps: Sequence[Step], answers: Sequence[int]) -> list[tuple[list[Step], list[int]]]:
        uses, making = Counter(t for s in steps for t in s.ins), {s.out for s in steps}
        passed_on = {t for t in making if uses[t] == 1 and t not in answers}
        chain_of: dict[int, tuple[list[Step], list[int]]] = {}
        chains: list[tuple[list[Step], list[int]]] = []
        for s in steps:
            tables = [t for t in s.ins if t not in self.consts] or [s.ins[0]]
            main = max(tables, key=lambda t: (self.size(self.axes(t)), t in passed_on))
            if main in passed_on:
                chain = chain_of[main]
            else:
                chain = ([], [])
                chains.append(chain)
            chain[0].append(s)
            chain[1].append(main)
            chain_of[s.out] = chain
        return chains

    def _best(self, steps: list[Step], mains: list[int]) -> list[Block] | None:
        """The cheapest cuts of a chain."""
        best: list[tuple[float, list[Block]] | None] = [(0.0, [])]
        for j in range(1, len(steps) + 1):
            options = []
            for i in range(max(j - 14, 0), j):
                before = best[i]
                made = self._block(steps[i:j], mains[i:j]) if before is not None else None
                if before is not None and made is not None:
                    options.append((before[0] + made[0], [*before[1], made[1]]))
            best.append(min(options, key=lambda x: x[0], default=None))
        return best[-1][1] if best[-1] else None

    def _block(self, steps: list[Step], mains: list[int]) -> tuple[float, Block] | None:
        """The best outer axes, found by giving them up one by one."""
        outer = frozenset.intersection(*(self.axes(s.out) for s in steps))
        cost = self._cost(steps, mains, outer)
        while outer:
            lower, v = min((self._cost(steps, mains, outer - {v}), v) for v in outer)
            if lower >= cost:
                break
            outer, cost = outer - {v}, lower
        if cost == float("inf"):
            return None
        return cost, Block(tuple(steps), tuple(mains), tuple(sorted(outer, key=self.rank)))

    def _cost(self, steps: list[Step], mains: list[int], outer: Axes) -> float:
        """Numbers that are read and written, of a sequence."""
        each, text = self.size(self.axes(mains[0]) - outer) + self.size(self.axes(steps[-1].out) - outer), 0
        for s, main in zip(steps, mains, strict=True):
            inner = [self.size(self.axes(t) - outer) for t in (main, s.out)]
            joint = self.size(frozenset[int]().union(*map(self.axes, s.ins)) - outer)
            text += joint
            alone = len(steps) == 1 and joint == inner[0] <= self._summed
            if max(inner[alone:]) > MOST_INNER or text > MOST_TEXT:
                return float("inf")
            for t in s.ins:
                if t != main and (t not in self.consts or self.axes(t) & outer):
                    each += self.size(self.axes(t) - outer)
        n = self.size(outer)
        return (n * (each + 0.25 * text) + BARRIER) * max(1.0, ENOUGH / (n * self._lanes))
