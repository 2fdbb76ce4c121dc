"""What a question needs of a model: the relevant variables, the states that its findings leave, and tables of these.

A factor that is the conditional density of a variable which is neither a target nor observed, nor an ancestor of such,
sums to one and is left out (Shachter 1988; Baker and Boult 1990). A state is impossible where every entry of some
factor that agrees with it is zero, given the states that are possible for the factor's other variables (arc
consistency; Mackworth 1977), findings included. A variable with one state left leaves every table, tables of one number
go into ln P, and tables of equal scope are multiplied. What remains is often small where the model's tree is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ImpossibleEvidence, TableTooLarge
from ..util.loops import loops
from .arrays import ragged, ranges
from .clique_tree import elimination_cliques, interaction_graph
from .compiler import build_plan, check_bound
from .ordering import find_order
from .specialise import conditional_heads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .plan import Plan

_loops = loops("jtgpu.plans.loops.possible")

SMALLEST = 2.0**-500  # numbers of a product that loses no digits
WORTH_SEARCHING = 2_000_000  # operations of a case from which a better order is searched for


@dataclass(frozen=True)
class Reduction:
    """The part of a model that a question needs.

    Variable w of the W that are left is variable ``free[w]`` of the model.
    """

    cards: NDArray[np.int64]  # (V,) of the model
    relevant: NDArray[np.bool_]  # (V,) variables whose posteriors can be read
    possible: NDArray[np.bool_]  # of each state of each variable of the model
    n_possible: NDArray[np.int64]  # (V,)
    free: NDArray[np.int64]  # (W,) ascending: relevant, with more than one state left
    scopes: tuple[tuple[int, ...], ...]  # of the tables, in variables that are left
    tables: list[NDArray[np.float64]]
    homes: Mapping[int, int]  # the table of each factor that has one
    log_constant: float  # ln of what the other tables contribute
    sets: tuple[tuple[int, ...], ...] = ()  # that stay together, in variables that are left, ascending

    @cached_property
    def key(self) -> tuple[bytes, bytes, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
        """What a plan depends on."""
        return self.free.tobytes(), self.n_possible[self.free].tobytes(), self.scopes, self.sets

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """(V+1,) first state of each variable of the model."""
        return np.concatenate([[0], np.cumsum(self.cards)])

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """States of the model that are states of the variables that are left, in their order."""
        inside = np.zeros(len(self.cards), np.bool_)
        inside[self.free] = True
        return np.flatnonzero(self.possible & np.repeat(inside, self.cards))

    @cached_property
    def certain(self) -> NDArray[np.int64]:
        """States of the model that hold with certainty."""
        return np.flatnonzero(self.possible & np.repeat(self.n_possible == 1, self.cards))

    @cached_property
    def state(self) -> NDArray[np.int32]:
        """(V,) state of each variable that has one left, -1 for the others."""
        first = np.flatnonzero(self.possible)[np.cumsum(self.n_possible) - self.n_possible] - self.first[:-1]
        return np.where(self.n_possible == 1, first, -1).astype(np.int32)

    def states(self, v: int) -> NDArray[np.int64]:
        """States of a variable of the model that are possible."""
        return np.flatnonzero(self.possible[self.first[v] : self.first[v + 1]])

    def posterior(self, inner: NDArray[np.float64]) -> NDArray[np.float64]:
        """Posteriors of all variables of the model from those of the variables that are left."""
        posterior = np.zeros(len(self.possible))
        posterior[self.certain] = 1.0
        posterior[self.cells] = inner
        return posterior

    def expanded(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """(n, V) configurations of the model from (n, W) of the variables that are left; -1 stays -1."""
        full = np.tile(self.state, (len(states), 1))
        numbers = np.concatenate([self.cells - np.repeat(self.first[self.free], self.n_possible[self.free]), [-1]])
        begin = np.cumsum(self.n_possible[self.free]) - self.n_possible[self.free]
        full[:, self.free] = numbers[np.where(states < 0, -1, states + begin)]
        return full

    def table(self, scope: Sequence[int], inner: NDArray[np.float64]) -> NDArray[np.float64]:
        """A table over variables of the model from one over those of them that are left: zeros for the other states."""
        table = np.zeros(self.cards[list(scope)].tolist())
        table[np.ix_(*(self.states(v) for v in scope))] = inner.reshape(self.n_possible[list(scope)].tolist())
        return table

    def inside(self, scope: Iterable[int]) -> tuple[int, ...]:
        """The variables of a scope of the model that are left, by their numbers among these."""
        return tuple(int(np.searchsorted(self.free, v)) for v in scope if self.n_possible[v] > 1)

    def plan(self, memory_limit: int, max_table: int) -> Plan:
        """A plan of what is left."""
        # raises TableTooLarge: with the fewest bits that a table can have, or the sizes of the best plan found
        cards = self.n_possible[self.free]
        neighbours = interaction_graph(len(cards), [*self.scopes, *self.sets])
        check_bound(cards.tolist(), neighbours, memory_limit, max_table)

        def of(method: str) -> Plan:
            order = find_order(cards, neighbours, method, seed=0, cache=False).order.tolist()
            return build_plan(
                cards, self.scopes, neighbours, order, self.sets, memory_limit=memory_limit, max_table=max_table
            )

        try:
            plan = of("min-fill")
        except TableTooLarge:
            return of("auto")
        if plan.cost().flops < WORTH_SEARCHING:
            return plan
        return min(plan, of("auto"), key=lambda p: p.cost().flops)

    def largest_clique(self) -> tuple[int, ...]:
        """The variables of the model in the largest clique of a fast elimination order."""
        cards = self.n_possible[self.free]
        neighbours = interaction_graph(len(cards), [*self.scopes, *self.sets])
        order = find_order(cards, neighbours, "min-fill", seed=0).order.tolist()
        cliques, _ = elimination_cliques(neighbours, order)
        best = max(cliques, key=lambda c: (math.prod(cards[list(c)].tolist()), c))
        degree = [len(neighbours[v]) for v in range(len(cards))]
        return tuple(self.free[sorted(best, key=lambda v: (-degree[v], v))].tolist())


class Reducer:
    """A model whose questions are reduced: what they have in common. Thread-safe."""

    def __init__(
        self, cards: NDArray[np.int64], scopes: Sequence[Sequence[int]], factors: Sequence[NDArray[np.float64]]
    ):
        self.cards, self.scopes, self.factors = cards, [tuple(s) for s in scopes], list(factors)
        self.first = np.concatenate([[0], np.cumsum(cards)])
        self._scope_ptr, self._scope = ragged(self.scopes)
        self._cells = np.concatenate([np.zeros(0), *(table.reshape(-1) for table in factors)])
        self._cell_ptr = np.concatenate([[0], np.cumsum([table.size for table in factors])]).astype(np.int64)
        self._support = (self._cells > 0).view(np.uint8)
        strides = [math.prod(table.shape[axis + 1 :]) for table in factors for axis in range(table.ndim)]
        self._strides = np.array(strides, np.int64)
        heads = conditional_heads(factors, self.scopes, len(cards))
        self._head = np.array(heads, np.int64)
        by_head = sorted((f for f, v in enumerate(heads) if v >= 0), key=heads.__getitem__)
        parents: list[list[int]] = [[] for _ in range(len(cards))]
        for f in by_head:
            parents[heads[f]] = [u for u in self.scopes[f] if u != heads[f]]
        self._parent_ptr, self._parents = ragged(parents)
        self._always = np.zeros(len(cards), np.bool_)  # variables of factors that are never left out
        for f in np.flatnonzero(self._head < 0).tolist():
            self._always[list(self.scopes[f])] = True
        self._possible = np.ones(int(self.first[-1]), np.bool_)
        self._narrow(self._possible)

    def _narrow(self, possible: NDArray[np.bool_]) -> None:
        """Clear the states that are impossible given those that are not set."""
        if not self._support.all():
            _loops.narrow(
                self._support, self._cell_ptr, np.array(self.cards), self._scope, self._scope_ptr,
                possible.view(np.uint8),
            )  # fmt: skip

    def _relevant(self, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Some variables, those that are always relevant, and their ancestors."""
        relevant = wanted | self._always
        front = np.flatnonzero(relevant)
        while len(front):
            parents = self._parents[ranges(self._parent_ptr[front], self._parent_ptr[front + 1])]
            front = np.unique(parents[~relevant[parents]])
            relevant[front] = True
        return relevant

    def reduce(
        self, state: NDArray[np.int32], more: Sequence[tuple[tuple[int, ...], NDArray[np.float64]]] = (),
        targets: Iterable[int] | None = None, sets: Sequence[Sequence[int]] = (), *, families: bool = False,
    ) -> Reduction:  # fmt: skip
        """What remains of the model for one case."""
        # state: (V,) -1 = not observed
        # more: Scopes and tables of likelihoods
        # targets: Variables whose posteriors are computed; default: all
        # sets: Sets of variables whose joint posteriors are computed
        # families: Whether every factor of more than one entry keeps a table of its own
        # raises ImpossibleEvidence: If a variable has no state left
        seen = np.flatnonzero(state >= 0)
        wanted = np.zeros(len(state), np.bool_)
        wanted[seen] = True
        wanted[slice(None) if targets is None else list(targets)] = True
        for scope in [*(scope for scope, _ in more), *sets]:
            wanted[list(scope)] = True
        relevant = self._relevant(wanted)
        possible = self._possible.copy()
        holds = self.first[seen] + state[seen]
        before = possible[holds]
        possible[ranges(self.first[seen], self.first[seen + 1])] = False
        possible[holds] = before
        for (v,), weights in ((s, w) for s, w in more if len(s) == 1):
            possible[self.first[v] : self.first[v + 1]] &= np.ravel(weights) > 0
        if len(seen) or more:
            self._narrow(possible)
        sums = np.concatenate([[0], np.cumsum(possible)])
        n_possible = np.diff(sums[self.first])
        if len(n_possible) and not n_possible.min():
            raise ImpossibleEvidence("the evidence has probability 0")
        relevant_factors = np.flatnonzero((self._head < 0) | relevant[self._head])
        free = np.flatnonzero(relevant & (n_possible > 1))
        left = Reduction(self.cards, relevant, possible, n_possible, free, (), [], {}, 0.0)
        return self._with_tables(left, relevant_factors, more, sets, families=families)

    def _with_tables(
        self, left: Reduction, factors: NDArray[np.int64],
        more: Sequence[tuple[tuple[int, ...], NDArray[np.float64]]], sets: Sequence[Sequence[int]], *, families: bool,
    ) -> Reduction:  # fmt: skip
        """The reduction with the possible part of each factor."""
        at = np.concatenate([[0], np.cumsum(np.maximum(left.state[self._scope], 0) * self._strides)])
        index = self._cell_ptr[:-1] + np.diff(at[self._scope_ptr])
        n_free = np.diff(np.concatenate([[0], np.cumsum(left.n_possible[self._scope] > 1)])[self._scope_ptr])
        known = factors[n_free[factors] == 0]
        tables = _Tables(merge=not families)
        tables.constants.extend(self._cells[index[known]].tolist())
        for f in factors[n_free[factors] > 0].tolist():
            tables.add(left, self.scopes[f], self.factors[f], f)
        for scope, table in more:
            tables.add(left, scope, table.reshape(self.cards[list(scope)].tolist()))
        inner = [left.inside(sorted(s)) for s in sets]
        mentioned = {v for scope in tables.scopes for v in scope}
        for w in range(len(left.free)):
            if w not in mentioned:  # only in tables whose entries are all equal
                tables.put((w,), np.ones(int(left.n_possible[left.free[w]])))
        return Reduction(
            left.cards, left.relevant, left.possible, left.n_possible, left.free, tuple(tables.scopes), tables.tables,
            tables.homes, tables.log_constant(), tuple(dict.fromkeys(s for s in inner if len(s) > 1)),
        )  # fmt: skip


class _Tables:
    """The tables of a reduction while they are collected."""

    def __init__(self, merge: bool):
        self._merge = merge
        self.scopes: list[tuple[int, ...]] = []
        self.tables: list[NDArray[np.float64]] = []
        self.homes: dict[int, int] = {}
        self.constants: list[float] = []
        self._exponent = 0
        self._place: dict[tuple[int, ...], int] = {}

    def log_constant(self) -> float:
        """ln of the product of all tables of one number."""
        if not all(self.constants):
            raise ImpossibleEvidence("the evidence has probability 0")
        return math.fsum([*(math.log(c) for c in self.constants if c != 1.0), self._exponent * math.log(2.0)])

    def add(self, left: Reduction, scope: Sequence[int], table: NDArray[np.float64], factor: int = -1) -> None:
        """Add the possible part of a table over variables of the model."""
        state = left.state
        part = table[tuple(slice(None) if state[v] < 0 else int(state[v]) for v in scope)]
        free = [v for v in scope if state[v] < 0]
        for axis, v in enumerate(free):
            if left.n_possible[v] < left.cards[v]:
                part = part.compress(left.possible[left.first[v] : left.first[v + 1]], axis=axis)
        low, high = float(part.min()), float(part.max())
        if not high:
            raise ImpossibleEvidence("the evidence has probability 0")
        if low == high and (self._merge or factor < 0):
            self.constants.append(low)
            return
        inner = left.inside(free)
        if self._merge and len(inner) > 1 and any(a > b for a, b in zip(inner, inner[1:])):
            axes = sorted(range(len(inner)), key=inner.__getitem__)
            inner, part = tuple(inner[a] for a in axes), part.transpose(axes)
        self.homes[factor] = self.put(inner, part)

    def put(self, scope: tuple[int, ...], table: NDArray[np.float64]) -> int:
        """Multiply a table into one of the same scope, or keep it; the place of it."""
        place = self._place.get(scope) if self._merge else None
        if place is not None:
            shift = math.frexp(float(table.max()))[1] + math.frexp(float(self.tables[place].max()))[1]
            product = np.ldexp(table, -math.frexp(float(table.max()))[1])
            product = product * np.ldexp(self.tables[place], -math.frexp(float(self.tables[place].max()))[1])
            support = (table > 0) & (self.tables[place] > 0)
            if not support.any():
                raise ImpossibleEvidence("the evidence has probability 0")
            if product.min(where=support, initial=1.0) > SMALLEST:
                self.tables[place] = product
                self._exponent += shift
                return place
        self._place[scope] = len(self.scopes)
        self.scopes.append(scope)
        self.tables.append(np.ascontiguousarray(table))
        return len(self.scopes) - 1
