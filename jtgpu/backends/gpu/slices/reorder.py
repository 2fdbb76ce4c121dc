"""The contractions of a slice in an order in which tables of constants stay apart from evidence. Knows no device.

A plan multiplies what is observed into a CPT first: a small table, but one that differs between sequences, which every
product then has to read. Here the message is multiplied by constants, which code can hold, and by what is observed
where the message is smallest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence

from ..program.records import Step

Axes = frozenset[int]


class Reorder:
    """Rewrites contractions; the answers are the same but for rounding."""

    def __init__(
        self, steps: Sequence[Step], axes: Callable[[int], Axes], size: Callable[[Axes], int],
        new: Callable[[Axes], int], consts: Container[int], answers: Sequence[int],
    ):  # fmt: skip
        # axes: Of a table, those with several states
        # new: Makes a table
        self.steps, self.axes, self.size, self.new, self.consts = list(steps), axes, size, new, consts
        self.answers = set(answers)

    def done(self) -> list[Step]:
        """The new contractions."""
        self._split()
        for step in reversed(self._elementwise()):
            self._later(step)
        for step in self._elementwise():
            self._earlier(step)
        return self.steps

    def _uses(self) -> Counter[int]:
        return Counter(t for s in self.steps for t in s.ins)

    def _table(self, t: int) -> int:
        return self.size(self.axes(t))

    def _main(self, s: Step) -> tuple[int, int]:
        """The input that is not constant, or the larger one, and the other one."""
        a, b = s.ins
        return (b, a) if (b not in self.consts, self._table(b)) > (a not in self.consts, self._table(a)) else (a, b)

    # products of constants and evidence

    def _split(self) -> None:
        """Multiply by the factors of a product one by one."""
        uses, making = self._uses(), {s.out: s for s in self.steps}
        gone: set[int] = set()
        made: list[list[Step]] = []

        def factors(t: int) -> list[int]:
            s = making.get(t)
            if s is None or uses[t] != 1 or t in self.answers or len(s.ins) != 2:
                return [t]
            if self.axes(t) != self.axes(s.ins[0]) | self.axes(s.ins[1]):
                return [t]
            return [f for u in s.ins for f in factors(u)]

        def absorbed(t: int, leaves: Sequence[int]) -> None:
            if t not in leaves:
                gone.add(t)
                for u in making[t].ins:
                    absorbed(u, leaves)

        for s in reversed(self.steps):
            if s.out in gone:
                continue
            one_by_one = None
            if len(s.ins) == 2:
                main, side = self._main(s)
                if side not in self.consts and len(factors(side)) == 1 < len(factors(main)):
                    main, side = side, main
                leaves = factors(side)
                if len(leaves) > 1:
                    one_by_one = self._one_by_one(main, leaves, s)
                if one_by_one:
                    absorbed(side, leaves)
            made.append(one_by_one or [s])
        self.steps = [s for part in reversed(made) for s in part]

    def _one_by_one(self, main: int, leaves: Sequence[int], step: Step) -> list[Step] | None:
        """A table times some others; None if this takes a larger table."""
        out = self.axes(step.out)
        late = [f for f in leaves if f not in self.consts and self.axes(f) <= out]
        early = [f for f in leaves if f not in self.consts and f not in late and self.axes(f) <= self.axes(main)]
        rest = [f for f in leaves if f not in late and f not in early]
        if not any(f in self.consts for f in rest):
            return None
        most, made, at = max(self._table(main), self.size(out)), list[Step](), main

        def multiply(f: int, left: Sequence[int]) -> int:
            live = out.union(*map(self.axes, left))
            made.append(Step(self.new((self.axes(at) | self.axes(f)) & live), (at, f), False))
            return made[-1].out

        order = [*early]
        while rest:
            joint = self.axes(main).union(*map(self.axes, order))
            order.append(min(rest, key=lambda f: self.size(joint | self.axes(f))))
            rest.remove(order[-1])
        order += late
        for i, f in enumerate(order):
            at = multiply(f, order[i + 1 :])
            if self._table(at) > most:
                return None
        made[-1] = Step(step.out, made[-1].ins, False)
        return made

    # evidence where the message is small

    def _elementwise(self) -> list[Step]:
        """Products by smaller tables that are loaded."""
        making = {s.out for s in self.steps}
        products = []
        for s in self.steps:
            if len(s.ins) == 2:
                main, side = self._main(s)
                loaded = side not in self.consts and side not in making
                if loaded and self.axes(s.out) == self.axes(main) > self.axes(side) and main not in self.consts:
                    products.append(s)
        return products

    def _later(self, step: Step) -> None:
        """Move a product behind contractions that make the table smaller."""
        skip = self._elementwise()
        while True:
            users = [s for s in self.steps if step.out in s.ins]
            if len(users) != 1 or step.out in self.answers or users[0] in skip or len(users[0].ins) != 2:
                return
            user, (main, side) = users[0], self._main(step)
            if self._main(user)[0] != step.out or not self.axes(side) <= self.axes(user.out):
                return
            if self._table(user.out) > self._table(main):
                return
            between = self.new(self.axes(user.out))
            first = Step(between, tuple(main if t == step.out else t for t in user.ins), False)
            moved = Step(user.out, (between, side), False)
            at = self.steps.index(user)
            self.steps[at : at + 1] = [first, moved]
            self.steps.remove(step)
            step = moved

    def _earlier(self, step: Step) -> None:
        """Move a product before contractions that make the table larger."""
        while True:
            main, side = self._main(step)
            maker = next((s for s in self.steps if s.out == main), None)
            if maker is None or len(maker.ins) != 2 or self._uses()[main] != 1 or main in self.answers:
                return
            source, _ = self._main(maker)
            if source in self.consts or not self.axes(side) <= self.axes(source):
                return
            if self._table(source) >= self._table(main):
                return
            between = self.new(self.axes(source))
            moved = Step(between, (source, side), False)
            then = Step(step.out, tuple(between if t == source else t for t in maker.ins), False)
            at = self.steps.index(maker)
            self.steps.remove(step)
            self.steps[at : at + 1] = [moved, then]
            step = moved
