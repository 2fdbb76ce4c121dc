"""The part of a model that a question needs: relevant variables, states that its findings leave, tables of these.

A factor that is the conditional density of a variable which is neither a target nor observed, nor an ancestor of such,
sums to one and is left out (Shachter 1988; Baker and Boult 1990). A state is impossible where every entry of some
factor that agrees with it is zero, given the states that are possible for the factor's other variables (arc
consistency; Mackworth 1977), findings included. A variable with one state left leaves every table, tables of one number
go into ln P, and tables of equal scope are multiplied. What remains is often small where the model's tree is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ImpossibleEvidence, TableTooLarge
from ..model.noisy import NoisyMax, is_noisy
from ..util.elementary import exps, log, logs
from ..util.loops import loops
from .arrays import ragged, ranges
from .clique_tree import elimination_cliques, interaction_graph
from .compiler import build_plan, check_bound, fast_order
from .lowering import lay_out
from .noisy import Absorbed, Chain, NoisyNodes, Table, split_vector
from .ordering import find_order, order_cost
from .plan import Plan
from .specialise import conditional_heads

_loops = loops("jtgpu.plans.loops.possible")

LARGE_CLIQUE = 64  # bits of a clique that is named without looking for a larger one
HUGE_CLIQUE = 128  # bits of a clique at which a fast elimination order ends
SMALLEST = 2.0**-500  # numbers of a product that loses no digits
LARGE = 10_000_000  # entries of the cliques of an order from which a second one is tried
_NONE = np.zeros(0)
EQUAL = 1e-14  # of its largest entry: how far the entries of a sum may differ to be equal but for rounding


class Outside(NamedTuple):
    """Variables whose posteriors follow from those of what is left: no table has them."""

    apart: NDArray[np.int64]  # states of variables that nothing connects with others
    posterior: NDArray[np.float64]
    absorbed: NDArray[np.int64]  # states of parents of one noisy child (`jtgpu.plans.noisy.Absorbed`)
    given: NDArray[np.float64]  # (states, s) their probabilities given the states of a hidden variable
    at: NDArray[np.int64]  # (states, s) and where the posterior of these is
    hidden: Mapping[int, int]  # this variable, by parent

    def fill(self, posterior: NDArray[np.float64]) -> None:
        """Add them to a posterior of all states."""
        posterior[self.apart] = self.posterior
        posterior[self.absorbed] = (self.given * posterior[self.at]).sum(axis=1)


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
    n_hidden: int = 0  # variables behind those of the model, of chains of noisy children (`jtgpu.plans.noisy`)
    outside: Outside | None = None
    may_be_searched: bool = True  # with a hope that a search is shorter than a plan (`jtgpu.plans.search`)

    @cached_property
    def key(self) -> tuple[bytes, bytes, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
        """All that a plan depends on."""
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

    @property
    def model_state(self) -> NDArray[np.int32]:
        """The same for the variables of the model alone."""
        return self.state[: len(self.cards) - self.n_hidden]

    def states(self, v: int) -> NDArray[np.int64]:
        """States of a variable of the model that are possible."""
        return np.flatnonzero(self.possible[self.first[v] : self.first[v + 1]])

    def posterior(self, inner: NDArray[np.float64]) -> NDArray[np.float64]:
        """Posteriors of all variables of the model from those of the variables that are left."""
        posterior = np.zeros(len(self.possible))
        posterior[self.certain] = 1.0
        posterior[self.cells] = inner
        if self.outside is not None:
            self.outside.fill(posterior)
        return posterior[: self.first[-1 - self.n_hidden]]

    def expanded(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """(n, V) configurations of the model from (n, W) of the variables that are left; -1 stays -1."""
        full = np.tile(self.state, (len(states), 1))
        numbers = np.concatenate([self.cells - np.repeat(self.first[self.free], self.n_possible[self.free]), [-1]])
        begin = np.cumsum(self.n_possible[self.free]) - self.n_possible[self.free]
        full[:, self.free] = numbers[np.where(states < 0, -1, states + begin)]
        return full[:, : len(self.cards) - self.n_hidden]

    def table(self, scope: Sequence[int], inner: NDArray[np.float64]) -> NDArray[np.float64]:
        """A table over variables of the model from one over those of them that are left: zeros for the other states."""
        table = np.zeros(self.cards[list(scope)].tolist())
        table[np.ix_(*(self.states(v) for v in scope))] = inner.reshape(self.n_possible[list(scope)].tolist())
        return table

    def inside(self, scope: Iterable[int]) -> tuple[int, ...]:
        """The variables of a scope of the model that are left, by their numbers among these."""
        own = np.array([v for v in scope if self.n_possible[v] > 1], np.int64)
        if self.outside is not None:
            own = own[np.isin(own, self.free)]
        return tuple(np.searchsorted(self.free, own).tolist())

    def hidden_of(self, scope: Iterable[int]) -> list[int]:
        """Hidden variables whose posteriors those of some variables follow from."""
        of = {} if self.outside is None else self.outside.hidden
        return sorted({of[v] for v in scope if v in of})

    def with_hidden(self, sizes: Sequence[int]) -> Reduction:
        """The same with variables of these numbers of states behind those of the model."""
        more, n = np.array(sizes, np.int64), len(self.cards)
        return replace(
            self, n_hidden=len(sizes), cards=np.concatenate([self.cards, more]),
            relevant=np.concatenate([self.relevant, np.ones(len(sizes), np.bool_)]),
            possible=np.concatenate([self.possible, np.ones(int(more.sum()), np.bool_)]),
            n_possible=np.concatenate([self.n_possible, more]),
            free=np.concatenate([self.free, n + np.flatnonzero(more > 1)]),
        )  # fmt: skip

    def plan(self, memory_limit: int, max_table: int, *, search: bool | None = None) -> Plan:
        """A plan of what is left: of a fast order, or of one that is searched for if that does not fit."""
        # search: Whether the order is searched for: True: in any case; False: never
        # raises TableTooLarge: With the fewest bits that a table can have, or the sizes of the plan of the last order
        cards, neighbours = self.n_possible[self.free], self.neighbours

        def of(order: Sequence[int]) -> Plan:
            return build_plan(
                cards, self.scopes, neighbours, order, self.sets, memory_limit=memory_limit, max_table=max_table
            )

        if self.least_work > LARGE:
            check_bound(cards.tolist(), neighbours, memory_limit, max_table)
        if not search:
            order = self.order
            if self.least_work > LARGE:
                other = find_order(cards, neighbours, "min-fill", seed=0).order.tolist()
                order = min(order, other, key=lambda o: order_cost(cards, neighbours, o).entries)
            try:
                return of(order)
            except TableTooLarge:
                if search is False:
                    raise
        return of(find_order(cards, neighbours, "auto", seed=0).order.tolist())

    @cached_property
    def neighbours(self) -> list[tuple[int, ...]]:
        """The interaction graph of the variables that are left."""
        return interaction_graph(len(self.free), [*self.scopes, *self.sets])

    @cached_property
    def order(self) -> list[int]:
        """A fast elimination order of the variables that are left; it ends before a huge clique."""
        return fast_order(self.n_possible[self.free].tolist(), self.neighbours, HUGE_CLIQUE)[0]

    @cached_property
    def least_work(self) -> float:
        """Entries of the cliques of the fast order: a case takes about as many multiplications or more."""
        if len(self.order) < len(self.free):
            return math.inf
        return order_cost(self.n_possible[self.free].tolist(), self.neighbours, self.order).entries

    def largest_clique(self) -> tuple[int, ...]:
        """The variables of the model in the largest clique of a fast elimination order, or in the first huge one."""
        cards, neighbours = self.n_possible[self.free], self.neighbours
        order, best = fast_order(cards.tolist(), neighbours, LARGE_CLIQUE)
        if not best:
            cliques, _ = elimination_cliques(neighbours, order)
            best = [*max(cliques, key=lambda c: (math.prod(cards[list(c)].tolist()), c))]
        degree = [len(around) for around in neighbours]
        clique = self.free[sorted(best, key=lambda v: (-degree[v], v))]
        return tuple(clique[clique < len(self.cards) - self.n_hidden].tolist())


class Reducer:
    """A model whose questions are reduced: what they have in common. Thread-safe."""

    def __init__(
        self, cards: NDArray[np.int64], scopes: Sequence[Sequence[int]], factors: Sequence[NDArray[np.float64]]
    ):
        self.cards, self.scopes, self.factors = cards, [tuple(s) for s in scopes], list(factors)
        self.first = np.concatenate([[0], np.cumsum(cards)])
        heads = conditional_heads(factors, self.scopes, len(cards))
        self._head = np.array(heads, np.int64)
        parents: list[list[int]] = [[] for _ in range(len(cards))]
        for f, v in enumerate(heads):
            if v >= 0:
                parents[v] = [u for u in self.scopes[f] if u != v]
        self._parent_ptr, self._parents = ragged(parents)
        self._always = np.zeros(len(cards), np.bool_)  # variables of factors that are never left out
        for f in np.flatnonzero(self._head < 0).tolist():
            self._always[list(self.scopes[f])] = True
        self.noisy = self._separated()
        factors = self.factors
        self.scope_ptr, self.scope = ragged(self.scopes)
        self._cells = np.concatenate([np.zeros(0), *(table.reshape(-1) for table in factors)])
        self._cell_ptr = np.concatenate([[0], np.cumsum([table.size for table in factors])]).astype(np.int64)
        self._support = (self._cells > 0).view(np.uint8)
        strides = [math.prod(table.shape[axis + 1 :]) for table in factors for axis in range(table.ndim)]
        self._strides = np.array(strides, np.int64)
        self._possible = np.ones(int(self.first[-1]), np.bool_)
        self._narrow(self._possible)
        single = np.flatnonzero(np.diff(self.scope_ptr) == 1)
        self.prior = np.ones(int(self.first[-1]))  # the product of the tables of one variable
        variables = self.scope[self.scope_ptr[single]]
        np.multiply.at(
            self.prior, ranges(self.first[variables], self.first[variables + 1]),
            self._cells[ranges(self._cell_ptr[single], self._cell_ptr[single + 1])],
        )  # fmt: skip

    def _separated(self) -> NoisyNodes | None:
        """The noisy children; a table of ones stands in place of each."""
        nodes: dict[int, tuple[list[int], NoisyMax]] = {}
        for f, noisy in enumerate(self.factors):
            if is_noisy(noisy):
                *above, child = self.scopes[f]
                nodes[child] = above, noisy
                self.scopes[f], self.factors[f] = (child,), np.ones(noisy.shape[-1])
        return NoisyNodes(self.first, nodes) if nodes else None

    def _narrow(self, possible: NDArray[np.bool_]) -> None:
        """Clear the states that are impossible given those that are not set."""
        if not self._support.all():
            _loops.narrow(
                self._support, self._cell_ptr, np.array(self.cards), self.scope, self.scope_ptr,
                possible.view(np.uint8),
            )  # fmt: skip

    def ancestral(self, state: NDArray[np.int32], more: Iterable[Sequence[int]]) -> list[int]:
        """Variables that findings, and weights of some scopes, depend on, these included."""
        wanted = state >= 0
        wanted[[v for scope in more for v in scope]] = True
        return np.flatnonzero(self._relevant(wanted)).tolist()

    def forward(self, states: NDArray[np.int32], uniforms: NDArray[np.float64]) -> None:
        """Draw the variables of which no state is known, -1, given their parents; (n, V) both."""
        # Each of them is the head of a density, and so are all its descendants.
        parents = self.noisy.nodes if self.noisy is not None else {}
        waiting = np.flatnonzero((states < 0).any(axis=0)).tolist()
        factor = {int(v): f for f, v in enumerate(self._head.tolist()) if v >= 0}
        while waiting:
            v = waiting.pop(0)
            above = parents[v][0] if v in parents else [u for u in self.scopes[factor[v]] if u != v]
            if (states[:, above] < 0).any():
                waiting.append(v)
                continue
            if v in parents:
                every = [np.full(len(states), s) for s in range(int(self.cards[v]))]
                rows = np.stack([parents[v][1].at(np.column_stack([states[:, above], s])) for s in every], axis=1)
            else:
                scope = self.scopes[factor[v]]
                rows = np.moveaxis(self.factors[factor[v]], scope.index(v), -1)[tuple(states[:, u] for u in above)]
                rows = np.broadcast_to(rows, (len(states), rows.shape[-1]))
            ends = np.cumsum(rows, axis=1)
            states[:, v] = (uniforms[:, v, None] * ends[:, -1:] >= ends[:, :-1]).sum(axis=1)

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
        targets: Iterable[int] | None = None, sets: Sequence[Sequence[int]] = (), *,
        families: bool = False, expand: bool = False, apart: bool = False,
    ) -> Reduction:  # fmt: skip
        """The part of the model that is left for one case."""
        # state: (V,) -1 = not observed
        # more: Scopes and tables of likelihoods
        # targets: Variables whose posteriors are computed; default: all
        # sets: Sets of variables whose joint posteriors are computed
        # families: Whether every factor of more than one entry keeps a table of its own
        # expand: Whether noisy children keep an axis for each parent, for a maximum over all variables
        # apart: Whether the answer is posteriors alone: in models with noisy children, those of variables that no table
        #     has with others are then computed at once
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
        absent, vectors, leak = np.zeros(0, np.int64), np.zeros(0), 0.0
        if self.noisy is not None:
            absent = self.noisy.without_effect(seen, state)
            vectors, leak = self.noisy.vectors(absent)
            possible &= vectors > -math.inf
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
        keep = None if targets is None or families else frozenset([*targets, *(v for scope in sets for v in scope)])
        tables: list[Table] = []
        unary = _Unary(self, left, more, vectors) if apart and self.noisy is not None else None
        if self.noisy is not None:
            for v in np.flatnonzero(np.logical_or.reduceat(vectors < 0, self.first[:-1])).tolist():
                if unary is None or not unary.has[v]:
                    parts, high = split_vector(vectors[self.first[v] : self.first[v + 1]][left.states(v)])
                    tables += [((v,), part) for part in parts]
                    leak += high
            present = np.setdiff1d(self.noisy.children[relevant[self.noisy.children]], absent)
            chains = self.noisy.chains(left.states, present.tolist())
            hidden: list[int] = []
            absorbed: dict[int, Absorbed] = {}
            if expand:
                whole, divisor = self.noisy.expanded(left.states, chains)
                tables, leak = [*tables, *whole], leak + divisor
            else:
                own = {} if unary is None else unary.loose(relevant_factors, [*(s for s, _ in more), *sets], chains)
                tables += self.noisy.tables(left.states, chains, len(state), hidden, own, absorbed)
            keep = frozenset(range(len(state))) if hidden and keep is None and not families else keep
            searched = not hidden or self.noisy.is_certain or not self._support.all()
            left = replace(left.with_hidden(hidden), log_constant=leak, may_be_searched=searched)
            if unary is not None:
                left = unary.without_loose(left, absorbed)
                tables += unary.tables()
                keep = None if keep is None else keep.union(left.hidden_of(keep))
        collected = _CollectedTables(left, merge=not families)
        for scope, table in tables:
            collected.add_possible(scope, table)
        self._add_tables(collected, left, relevant_factors, more, unary)
        if keep is not None:
            collected.sum_out(keep)
        return collected.reduction(sets, keep)

    def _add_tables(
        self, tables: _CollectedTables, left: Reduction, factors: NDArray[np.int64],
        more: Sequence[tuple[tuple[int, ...], NDArray[np.float64]]], unary: _Unary | None,
    ) -> None:  # fmt: skip
        """Add the possible part of each factor that `unary` has not."""
        at = np.concatenate([[0], np.cumsum(np.maximum(left.state[self.scope], 0) * self._strides)])
        index = self._cell_ptr[:-1] + np.diff(at[self.scope_ptr])
        n_free = np.diff(np.concatenate([[0], np.cumsum(left.n_possible[self.scope] > 1)])[self.scope_ptr])
        known = factors[n_free[factors] == 0]
        tables.constants.extend(self._cells[index[known]].tolist())
        rest = factors[n_free[factors] > 0]
        if unary is not None:
            rest = rest[~unary.has_factor(rest)]
        for f in rest.tolist():
            tables.add(self.scopes[f], self.factors[f], f)
        for scope, table in more:
            if unary is None or len(scope) > 1 or not unary.has[scope[0]]:
                tables.add(scope, table.reshape(self.cards[list(scope)].tolist()))


class _Unary:
    """Products of the tables of one variable, for each variable that is left.

    Variables in no other table are *loose*; those that one noisy child alone has are absorbed by its
    chain.
    """

    def __init__(
        self, reducer: Reducer, left: Reduction, more: Sequence[tuple[tuple[int, ...], NDArray[np.float64]]],
        vectors: NDArray[np.float64],
    ):  # fmt: skip
        # vectors: ln of what noisy children without effect say of each state
        self._reducer, self._left = reducer, left
        first, n = left.first, len(left.cards)
        weights = np.where(left.possible, reducer.prior, 0.0)
        self._logs = np.zeros(n)  # ln of what the weights of each variable were divided by
        for (v,), table in ((scope, table) for scope, table in more if len(scope) == 1):
            high = float(np.max(table))
            weights[first[v] : first[v + 1]] *= np.ravel(table) / high
            self._logs[v] += log(high)
        cells = np.flatnonzero(vectors < 0)
        highest = np.maximum.reduceat(np.where(left.possible, vectors, -math.inf), first[:-1])
        owner = np.searchsorted(first, cells, "right") - 1
        weights[cells] *= exps(vectors[cells] - highest[owner])
        self._logs[np.unique(owner)] += highest[np.unique(owner)]
        low = np.minimum.reduceat(np.where(left.possible, weights, math.inf), first[:-1])
        self.has = np.zeros(n, np.bool_)
        self.has[left.free] = (low > SMALLEST)[left.free]
        self._weights, self._sums = weights, np.add.reduceat(weights, first[:-1])
        self._loose = self._own = np.zeros(n, np.bool_)

    def has_factor(self, factors: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each factor is part of the products."""
        ptr = self._reducer.scope_ptr
        inside: NDArray[np.bool_] = (np.diff(ptr)[factors] == 1) & self.has[self._reducer.scope[ptr[factors]]]
        return inside

    def loose(
        self, factors: NDArray[np.int64], scopes: Iterable[Sequence[int]], chains: Sequence[Chain]
    ) -> dict[int, NDArray[np.float64]]:
        """Find loose variables; the distributions of those that chains absorb."""
        ptr, tied = self._reducer.scope_ptr, ~self.has
        large = factors[np.diff(ptr)[factors] > 1]
        tied[self._reducer.scope[ranges(ptr[large], ptr[large + 1])]] = True
        for scope in (*(s for s in scopes if len(s) > 1), [chain.scope[-1] for chain in chains]):
            tied[list(scope)] = True
        parents = np.array([p for chain in chains for p in chain.scope[:-1]], np.int64)
        n_chains = np.bincount(parents, minlength=len(tied))
        self._loose, self._own = ~tied & (n_chains == 0), ~tied & (n_chains == 1)
        own = {v: self._of(v) / self._sums[v] for v in np.flatnonzero(self._own).tolist()}
        for v in [v for chain in chains for v in chain.far(own)]:
            self._own[v] = False
            del own[v]
        return own

    def _of(self, v: int) -> NDArray[np.float64]:
        begin, end = self._left.first[v : v + 2]
        return self._weights[begin:end][self._left.possible[begin:end]]

    def tables(self) -> list[Table]:
        """The products of all others."""
        return [((v,), self._of(v)) for v in np.flatnonzero(self.has & ~self._loose & ~self._own).tolist()]

    def without_loose(self, left: Reduction, absorbed: Mapping[int, Absorbed]) -> Reduction:
        """The reduction, with hidden variables, without variables that are loose or absorbed."""
        outside = self._loose | self._own
        possible = np.flatnonzero(self._left.possible & np.repeat(self._loose, self._left.cards))
        owner = np.searchsorted(left.first, possible, "right") - 1
        width = max((len(made.before) for made in absorbed.values()), default=1)
        own = sorted(
            ((p, h, rows) for h, made in absorbed.items() for p, rows in zip(made.parents, made.given, strict=True)),
            key=lambda one: one[0],
        )
        absorber = np.repeat(np.array([h for _, h, _ in own], np.int64), [len(rows) for *_, rows in own])
        at = left.first[absorber][:, None] + np.arange(width)
        given, begin = np.zeros(at.shape), 0
        for *_, rows in own:
            given[begin : begin + len(rows), : rows.shape[1]] = rows
            begin += len(rows)
        log_constants = [*self._logs[self.has].tolist(), *logs(self._sums[outside]).tolist()]
        return replace(
            left, free=left.free[~np.isin(left.free, np.flatnonzero(outside))],
            log_constant=math.fsum([left.log_constant, *log_constants]),
            outside=Outside(
                possible, self._weights[possible] / self._sums[owner],
                np.flatnonzero(self._left.possible & np.repeat(self._own, self._left.cards)), given,
                np.minimum(at, left.first[absorber + 1][:, None] - 1), {p: h for p, h, _ in own},
            ),
        )  # fmt: skip


class _CollectedTables:
    """The tables of a reduction while they are collected."""

    # left: What is known of the variables and states
    # merge: Whether tables of equal scope are multiplied, and those of one number left out

    def __init__(self, left: Reduction, merge: bool):
        self._left, self._merge = left, merge
        self.constants: list[float] = []
        self._tables: dict[int, tuple[tuple[int, ...], NDArray[np.float64]]] = {}  # in variables of the model
        self._homes: dict[int, int] = {}
        self._place: dict[tuple[int, ...], int] = {}
        self._summed: set[int] = set()
        self._n = 0
        self._exponent = 0

    def add(self, scope: Sequence[int], table: NDArray[np.float64], factor: int = -1) -> None:
        """Add the possible part of a table."""
        left = self._left
        state = left.state
        part = table[tuple(slice(None) if state[v] < 0 else int(state[v]) for v in scope)]
        free = [v for v in scope if state[v] < 0]
        for axis, v in enumerate(free):
            if left.n_possible[v] < left.cards[v]:
                part = part.compress(left.possible[left.first[v] : left.first[v + 1]], axis=axis)
        self._add_free(free, part, factor)

    def add_possible(self, scope: Sequence[int], table: NDArray[np.float64]) -> None:
        """Add a table over the possible states."""
        state = self._left.state
        self._add_free([v for v in scope if state[v] < 0], table.reshape([n for n in table.shape if n > 1]), -1)

    def _add_free(self, free: Sequence[int], part: NDArray[np.float64], factor: int) -> None:
        if not free:
            self.constants.append(float(part))
        elif self._merge:
            axes = sorted(range(len(free)), key=free.__getitem__)
            self._put(tuple(free[a] for a in axes), part.transpose(axes))
        else:
            self._homes[factor] = self._keep(tuple(free), part)

    def _put(self, scope: tuple[int, ...], table: NDArray[np.float64]) -> None:
        """Multiply a table into one of the same scope, or into the constants if its entries are equal, or keep it."""
        high = float(table.max())
        if not high:
            raise ImpossibleEvidence("the evidence has probability 0")
        if high == float(table.min()):
            self.constants.append(high)
            return
        place = self._place.get(scope)
        if place is None:
            self._place[scope] = self._keep(scope, table)
            return
        _, other = self._tables[place]
        shifts = math.frexp(high)[1], math.frexp(float(other.max()))[1]
        product = np.ldexp(table, -shifts[0]) * np.ldexp(other, -shifts[1])
        support = (table > 0) & (other > 0)
        if not support.any():
            raise ImpossibleEvidence("the evidence has probability 0")
        if product.min(where=support, initial=1.0) > SMALLEST:
            self._tables[place] = scope, product
            self._exponent += sum(shifts)
        else:
            self._keep(scope, table)

    def _keep(self, scope: tuple[int, ...], table: NDArray[np.float64]) -> int:
        self._tables[self._n] = scope, table
        self._n += 1
        return self._n - 1

    def sum_out(self, keep: frozenset[int]) -> None:
        """Sum variables out that one table alone has, until there is none.

        Where the sum is the same for all states of the others, as that of a conditional density is, the table connects
        them no more, and what it separates from the findings is left out.
        """
        around: dict[int, set[int]] = {}
        for place, (scope, _) in self._tables.items():
            for v in scope:
                around.setdefault(v, set()).add(place)
        ready = [v for v, places in around.items() if len(places) == 1 and v not in keep]
        while ready:
            v = ready.pop()
            if len(around[v]) != 1:
                continue
            place = min(around[v])
            scope, table = self._tables[place]
            high = float(table.max())
            if not table.min(where=table > 0, initial=high) > SMALLEST * high:
                continue
            shift = math.frexp(high)[1]
            table = np.ldexp(table, -shift).sum(axis=scope.index(v))
            self._exponent += shift
            self._summed.add(v)
            around[v].clear()
            scope = tuple(u for u in scope if u != v)
            low, high = float(table.min()), float(table.max())
            self._tables[place] = scope, table
            if high - low <= EQUAL * high:
                self.constants.append(high)
                del self._tables[place]
                for u in scope:
                    around[u].discard(place)
            ready.extend(u for u in scope if len(around[u]) == 1 and u not in keep)

    def reduction(self, sets: Sequence[Sequence[int]], keep: frozenset[int] | None) -> Reduction:
        """The reduction to the variables of the tables, and those of `keep` that only constants mention."""
        left = self._left
        mentioned = {v for scope, _ in self._tables.values() for v in scope}
        for v in left.free.tolist():
            if v in mentioned:
                continue
            if keep is None or v in keep:
                self._keep((v,), np.ones(int(left.n_possible[v])))
                mentioned.add(v)
            elif v not in self._summed:
                self.constants.append(float(left.n_possible[v]))
        if not all(self.constants):
            raise ImpossibleEvidence("the evidence has probability 0")
        log_constant = math.fsum(
            [left.log_constant, *(log(c) for c in self.constants if c != 1.0), self._exponent * log(2.0)]
        )
        free = np.array(sorted(mentioned), np.int64)
        number = {v: w for w, v in enumerate(free.tolist())}
        places = {place: i for i, place in enumerate(self._tables)}
        inner = [tuple(sorted(number[v] for v in scope if v in number)) for scope in sets]
        return replace(
            left, free=free, scopes=tuple(tuple(number[v] for v in scope) for scope, _ in self._tables.values()),
            tables=[np.ascontiguousarray(table) for _, table in self._tables.values()],
            homes={f: places[place] for f, place in self._homes.items()}, log_constant=log_constant,
            sets=tuple(dict.fromkeys(s for s in inner if len(s) > 1)),
        )  # fmt: skip


def possible_states(
    cards: NDArray[np.int64], scopes: Sequence[Sequence[int]], factors: Sequence[NDArray[np.float64]]
) -> list[NDArray[np.bool_]] | None:
    """Which states of each variable are possible; None if all are, or if no configuration is."""
    # cards: (V,) int64
    # scopes: Of the factors
    flat = [np.zeros(0), *(table.reshape(-1) for table in factors)]
    support = np.concatenate(flat, dtype=np.bool_, casting="unsafe")
    if support.all():
        return None
    possible = np.ones(int(cards.sum()), np.bool_)
    scope_ptr, scope = ragged(scopes)
    _loops.narrow(
        support.view(np.uint8), np.cumsum([*map(len, flat)]), np.array(cards), scope, scope_ptr,
        possible.view(np.uint8),
    )  # fmt: skip
    if possible.all():
        return None
    by_variable = np.split(possible, np.cumsum(cards)[:-1])
    return by_variable if all(states.any() for states in by_variable) else None


def restricted_plan(plan: Plan, cards: NDArray[np.int64]) -> Plan:
    """The same contractions of tables with fewer states of some variables, (V,) int64."""
    own = cards.tolist()
    sizes = [math.prod([own[v] for v in scope]) for scope in plan.table_scopes]
    offsets, cells = lay_out(sizes, plan.n_factors, plan.op_out.tolist(), plan.posterior_table.tolist())
    return replace(
        plan, cardinality=cards, table_off=np.array(offsets, np.int64), arena_cells=np.array([cells], np.int64)
    )
