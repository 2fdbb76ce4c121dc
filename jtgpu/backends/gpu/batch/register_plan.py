"""Where the numbers of a case wait in kernels written for a network that registers cannot hold.

A thread has registers, some hundred numbers in shared memory, and scratch memory on the card, which is what bounds such
kernels: a number that goes there and comes back is 16 bytes a case. Left to itself the compiler keeps what was made
last. Here it is known when each number is read next, so what goes to scratch memory is what is read latest, the best
that can be done (Belady 1966, "A study of replacement algorithms for a virtual-storage computer"). Products in which
nothing is summed, and short sums, are made anew wherever they are read: a multiplication costs nothing here.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ....plans.plan import Plan
from .codegen import Part, Piece, Writer
from .live import Live

__all__ = ["kept_parts"]

REGISTERS = 40  # numbers that wait in registers; a tile needs some thirty more, and a thread can have 126
AHEAD = 24  # numbers that are asked for from scratch memory at once
MOST_TERMS, FEWER = 4, 3  # of short sums that are made anew: terms of a number; times as many as are read for them
DELAY = 64  # numbers that are freed before the place of one is taken anew
MOST_CONSTANTS = 8192  # doubles of constant memory that a kernel has
MOST_GROWTH = 3  # times the lines of a kernel without products, from which on they are stored after all
FAR = 1 << 60  # read by a later part, or by none

Key = tuple[int, int]  # table and cell; below zero: what posteriors of a component are multiplied by


@dataclass(frozen=True)
class _Op:
    """What is done at one go: a tile of outputs, ln P(e), or a posterior."""

    part: int
    piece: Piece | None = None
    tile: Sequence[tuple[int, int, int]] = ()
    variable: int = -1  # of a posterior
    reads: tuple[Key, ...] = ()


@dataclass
class _Scratch:
    """Scratch memory of a thread. What has just been read is not written at once: its line may still be on its way."""

    size: int = 0
    free: deque[int] = field(default_factory=deque)

    def take(self) -> int:
        if len(self.free) > DELAY:
            return self.free.popleft()
        self.size += 1
        return self.size - 1


class _Store:
    """Who is where, from operation to operation."""

    def __init__(self, ops: Sequence[_Op], slots: int):
        self.uses: dict[Key, list[int]] = {}
        for i in range(len(ops) - 1, -1, -1):
            for key in ops[i].reads:
                self.uses.setdefault(key, []).append(i)
        self.end = [0] * len(ops)  # the first operation of the next part
        for i in range(len(ops) - 1, -1, -1):
            last = i + 1 == len(ops) or ops[i + 1].part != ops[i].part
            self.end[i] = i + 1 if last else self.end[i + 1]
        self.slots = slots
        self.scratch = _Scratch()
        self.place: dict[Key, int] = {}  # in scratch memory
        self.clear()

    def clear(self) -> None:
        """Nothing is in registers or shared memory."""
        self.slot: dict[Key, int] = {}
        self.next: dict[Key, int] = {}
        self.free = list(range(self.slots + REGISTERS - 1, -1, -1))  # registers are the first
        self.order: list[tuple[int, Key]] = []  # of those in slots, the one read last first; some entries are old

    def read_next(self, key: Key, i: int) -> int | None:
        """The operation after `i` that reads a number next; None: nobody does."""
        uses = self.uses.get(key, [])
        while uses and uses[-1] <= i:
            uses.pop()
        return (uses[-1] if uses[-1] < self.end[i] else FAR) if uses else None

    def drop(self, key: Key) -> None:
        """Nobody reads it any more."""
        if key in self.slot:
            self.free.append(self.slot.pop(key))
        if key in self.place:
            self.scratch.free.append(self.place.pop(key))

    def settle(self, key: Key, when: int) -> None:
        """It is in a slot, and read next then."""
        self.next[key] = when
        heapq.heappush(self.order, (-when, key))

    def latest(self) -> Key:
        """Of what is in slots that which is read last."""
        while True:
            when, key = self.order[0]
            if key in self.slot and self.next[key] == -when:
                return key
            heapq.heappop(self.order)


Products = dict[int, tuple[int, dict[int, list[tuple[int, int]]]]]


def _products(plan: Plan, live: Live) -> Products:
    """Tables that are never stored, but made anew wherever they are read: products in which nothing is summed, and that
    take no less room than what they are made of, and short sums over numbers that are few. Of each the step, and for
    each cell its terms, cells of A and B (-1: there is none)."""
    asked = {*plan.posterior_table.tolist(), *plan.root_table.tolist()}
    found: Products = {}
    for i, s in enumerate(live.program.steps):
        cells, terms = int(live.live(s.out).sum()), int(live.count[i])
        stored = sum(int(live.live(t).sum()) for t in s.ins if t >= plan.n_factors)
        if s.out in asked or not terms:
            continue
        if (terms == cells and stored <= cells) or (terms <= MOST_TERMS * cells and stored * FEWER <= cells):
            t = live.terms(i)
            b = t.b.tolist() if len(t.b) else [-1] * len(t.out)
            of_cell: dict[int, list[tuple[int, int]]] = {}
            for out, pair in zip(t.out.tolist(), zip(t.a.tolist(), b, strict=True), strict=True):
                of_cell.setdefault(out, []).append(pair)
            found[s.out] = i, of_cell
    return found


def _register(slot: int) -> str:
    return f"g{slot}"


class _Keeper(Writer):
    """Writes one part; what waits, waits where `_Store` says."""

    def __init__(self, plan: Plan, live: Live, store: _Store, products: Products, *, weights: bool):
        super().__init__(plan, live, weights=weights)
        self.store, self.products = store, products
        self.values: dict[Key, str] = {}  # products that this operation has made
        self.names: dict[Key, str] = {}  # of this operation
        self.fetched: list[Key] = []  # from scratch memory, in this operation
        self.coming: dict[Key, str] = {}  # from there, for this operation and the next ones
        self.asked = 0

    def of_slot(self, slot: int) -> str:
        return _register(slot) if slot < REGISTERS else f"S({slot - REGISTERS})"

    def fetch(self, ops: Sequence[_Op], i: int) -> None:
        """Where an operation reads from scratch memory, ask for that, and for what the next ones read, all at once: one
        number after another would be a trip of a microsecond each."""
        if not any(self.absent(key) for key in ops[i].reads):
            return
        for j in range(i, self.store.end[i]):
            for key in ops[j].reads:
                if len(self.coming) >= AHEAD and j > i:
                    return
                if self.absent(key):
                    self.coming[key] = f"p{self.asked}"
                    self.asked += 1
                    self.lines.append(f"const double {self.coming[key]} = L({self.store.place[key]});")

    def absent(self, key: Key) -> bool:
        """Whether a number is in scratch memory alone, and was not asked for."""
        return key in self.store.place and key not in self.store.slot and key not in self.coming

    def made(self, table: int, cell: int) -> str:
        """See `Writer.made`."""
        return self.waiting((table, cell))

    def number(self, table: int, cell: int) -> str:
        """A number of any table; of those that are never stored, made here."""
        if table not in self.products:
            return self.cell(table, cell)
        if (table, cell) not in self.values:
            step, cells = self.products[table]
            s, scopes, known = self.live.program.steps[step], self.live.program.scopes, self.placed(step)
            value = ""
            for term in cells[cell]:
                parts = [
                    self.given(self.number(t, c), self.digits(scopes[t], c, known[t]))
                    for t, c in zip(s.ins, term, strict=False)
                ]
                product = " * ".join(parts)
                value = f"fma({', '.join(parts)}, {value})" if value and len(parts) == 2 else (
                    f"({value} + {product})" if value else product
                )
            value = self.given(value, self.digits(scopes[table], cell, known[table]))
            self.values[table, cell] = name = f"v{len(self.values)}"
            self.lines.append(f"const double {name} = {value};")
        return self.values[table, cell]

    def looked_at(self, step: int) -> set[int]:
        """Variables whose evidence comes in with a contraction, and with the products that it reads."""
        s = self.live.program.steps[step]
        found = {v for members in self.placed(step).values() for v in members}
        return found.union(*(self.looked_at(self.products[t][0]) for t in s.ins if t in self.products))

    def inverse(self, component: int) -> str:
        """See `Writer.inverse`."""
        return self.waiting((-1 - component, 0))

    def waiting(self, key: Key) -> str:
        """The name of a number that was made before, here and now."""
        if key not in self.names:
            slot = self.store.slot.get(key)
            if slot is None:
                self.names[key] = self.coming.pop(key)
                self.fetched.append(key)
            elif slot < REGISTERS:
                self.names[key] = _register(slot)
            else:
                self.names[key] = f"y{len(self.names)}"
                self.lines.append(f"const double {self.names[key]} = {self.of_slot(slot)};")
        return self.names[key]

    def operation(self, i: int, op: _Op) -> None:
        """One of them, and where its numbers wait afterwards."""
        self.names, self.values, self.fetched = {}, {}, []
        made: dict[Key, str] = {}
        if op.piece is not None:
            self.lines.append("{")
            made = self.tile(op.piece, op.tile)
        elif op.variable >= 0:
            self.lines.append("{")
            self.answer(op.variable, -1 - op.reads[-1][0])
            self.lines.append("}")
            self.fetched = []  # within a condition
        else:
            made = self.known_total()
        store = self.store
        for key in op.reads:
            when = store.read_next(key, i)
            if when is None:
                store.drop(key)
            elif key in store.slot:
                store.settle(key, when)
        arriving = [(store.read_next(k, i), k, name) for k, name in made.items()]
        arriving += [(store.read_next(k, i), k, self.names[k]) for k in self.fetched]
        for when, key, name in sorted((w, k, n) for w, k, n in arriving if w is not None):
            self.arrive(key, when, name)
        if op.piece is not None:
            self.lines.append("}")

    def arrive(self, key: Key, when: int, name: str) -> None:
        """A number that is read then: into a slot where it is worth one, else to scratch memory."""
        store = self.store
        if when < FAR and not store.free and store.slot:
            other = store.latest()
            if store.next[other] > when:
                slot = store.slot.pop(other)
                self.save(other, self.of_slot(slot))
                store.free.append(slot)
        if when < FAR and store.free:
            slot = store.slot[key] = store.free.pop()
            store.settle(key, when)
            text = f"{_register(slot)} = {name};" if slot < REGISTERS else f"KEEP({slot - REGISTERS}, {name});"
            self.lines.append(text)
        else:
            self.save(key, name)

    def save(self, key: Key, name: str) -> None:
        """To scratch memory, where it is not there yet."""
        store = self.store
        if key not in store.place:
            store.place[key] = store.scratch.take()
            self.lines.append(f"M({store.place[key]}) = {name};")

    def tile(self, piece: Piece, tile: Sequence[tuple[int, int, int]]) -> dict[Key, str]:
        """Some outputs of a contraction, whole: their names."""
        s, scopes = self.live.program.steps[piece.step], self.live.program.scopes
        known = self.placed(piece.step)
        self.look(sorted(self.looked_at(piece.step)))
        names: dict[tuple[int, int], str] = {(1, -1): ""}
        made: dict[int, str] = {}
        for o, *cells in tile:
            for side, (t, c) in enumerate(zip(s.ins, cells, strict=False)):
                if (side, c) not in names:
                    names[side, c] = value = self.number(t, c)
                    if known[t]:
                        names[side, c] = f"x{side}_{c}"
                        value = self.given(value, self.digits(scopes[t], c, known[t]))
                        self.lines.append(f"const double {names[side, c]} = {value};")
            left, right, name = names[0, cells[0]], names[1, cells[1]], f"o{o}"
            if o in made:
                text = f"{name} = fma({left}, {right}, {name});" if right else f"{name} += {left};"
            else:
                text = f"double {name} = {left} * {right};" if right else f"double {name} = {left};"
            made[o] = name
            self.lines.append(text)
        for o, name in sorted(made.items()):
            if known[s.out]:
                self.lines.append(f"{name} = {self.given(name, self.digits(scopes[s.out], o, known[s.out]))};")
        return {(s.out, o): name for o, name in made.items()}

    def known_total(self) -> dict[Key, str]:
        """ln P(e), and what posteriors are multiplied by: their names."""
        roots = self.plan.root_table.tolist()
        self.total(roots)
        return {(-1 - i, 0): f"inverse{i}" for i in range(len(roots))}

    def flush(self) -> None:
        """At the end of a part: what later ones read is in scratch memory."""
        for key, slot in sorted(self.store.slot.items()):
            self.save(key, self.of_slot(slot))
        self.store.clear()


def kept_parts(
    plan: Plan, live: Live, parts: Sequence[tuple[Sequence[Piece], Sequence[Piece]]], home: Sequence[int], *,
    weights: bool, blocks: int, slots: int, most_lines: int,
) -> tuple[list[Part], int]:  # fmt: skip
    """The kernels that answer a case, and the numbers of a thread's scratch memory.

    Parameters
    ----------
    plan : Plan
    live : Live
    parts : pieces of each part, those up to the roots and those away from them
    home : (V,) ints
        The component of each variable.
    weights, blocks
        See `jtgpu.backends.gpu.batch.partition.lane_parts`.
    slots : int
        Numbers of a thread in shared memory.
    most_lines : int
        Of a part, as they were counted: products made anew take their readers some times as many, or nothing is.
    """
    numbers, writers, cells = _written(plan, live, _products(plan, live), parts, home, weights=weights, slots=slots)
    constants, lines = max(len(w.constants) for w in writers), max(len(w.lines) for w in writers)
    if constants > MOST_CONSTANTS or lines > MOST_GROWTH * most_lines:
        numbers, writers, cells = _written(plan, live, {}, parts, home, weights=weights, slots=slots)
    with_total = _with_total(parts)
    made = zip(numbers, writers, strict=True)
    return [w.kernel(blocks, cells, slots, answers=p > with_total) for p, w in made], cells


def _with_total(parts: Sequence[tuple[Sequence[Piece], Sequence[Piece]]]) -> int:
    """The part that knows P(e)."""
    return max((p for p, (up, _) in enumerate(parts) if up), default=0)


def _written(
    plan: Plan, live: Live, products: Products, parts: Sequence[tuple[Sequence[Piece], Sequence[Piece]]],
    home: Sequence[int], *, weights: bool, slots: int,
) -> tuple[list[int], list[_Keeper], int]:  # fmt: skip
    """The parts that do anything, who wrote each, and the numbers of scratch memory."""
    ops = _operations(plan, live, products, parts, _with_total(parts), home)
    store = _Store(ops, slots)
    writers: list[_Keeper] = []
    numbers: list[int] = []
    for i, op in enumerate(ops):
        if not numbers or numbers[-1] != op.part:
            numbers.append(op.part)
            writers.append(_Keeper(plan, live, store, products, weights=weights))
            writers[-1].lines.append("double " + ", ".join(f"{_register(k)} = 0.0" for k in range(REGISTERS)) + ";")
        writers[-1].fetch(ops, i)
        writers[-1].operation(i, op)
        if op.piece is None and op.variable < 0:
            writers[-1].lines.append("if (b.n_out == 0) return;")
        if store.end[i] == i + 1:
            writers[-1].flush()
    return numbers, writers, store.scratch.size


def _operations(
    plan: Plan, live: Live, products: Products, parts: Sequence[tuple[Sequence[Piece], Sequence[Piece]]],
    with_total: int, home: Sequence[int],
) -> list[_Op]:  # fmt: skip
    """Everything in order, with what it reads and makes."""
    steps = live.program.steps
    answered = {int(t): v for v, t in enumerate(plan.posterior_table.tolist())}
    made: list[_Op] = []

    def numbers(table: int, cells: Sequence[int]) -> list[Key]:
        """What is stored of these numbers, or of what they are made of."""
        if table not in products:
            return [(table, c) for c in cells] if table >= plan.n_factors else []
        step, made_of = products[table]
        pairs = [pair for c in cells for pair in made_of[c]]
        return [k for side, t in enumerate(steps[step].ins) for k in numbers(t, [x[side] for x in pairs])]

    def add(part: int, piece: Piece) -> None:
        s = steps[piece.step]
        if s.out in products:
            return
        for tile in piece.tiles:
            reads = [k for side, t in enumerate(s.ins) for k in numbers(t, [x[1 + side] for x in tile])]
            made.append(_Op(part, piece, tile, -1, tuple(dict.fromkeys(reads))))

    for p, (up, down) in enumerate(parts):
        for piece in up:
            add(p, piece)
        if p == with_total:
            roots = [k for t in plan.root_table.tolist() if live.support[t][0] for k in numbers(t, [0])]
            made.append(_Op(p, reads=tuple(roots)))
        for piece in down:
            add(p, piece)
            table = steps[piece.step].out
            if piece.last and table in answered:
                v = answered[table]
                cells = numbers(table, np.flatnonzero(live.support[table]).tolist())
                made.append(_Op(p, variable=v, reads=(*cells, (-1 - home[v], 0))))
    return made
