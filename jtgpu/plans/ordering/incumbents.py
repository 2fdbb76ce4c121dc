"""The state of a search: the reduced graph, the best order found of every atom, and how it was found."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...util.elementary import log
from . import files as store
from .anneal import RULES, Rule, greedy_order
from .elimination import (
    OrderCost,
    as_float,
    as_order_array,
    atom_cost,
    fill_masks,
    order_cost,
    perfect_order,
    remove_needless_fill,
)
from .files import Improvement, OrderResult
from .reduce import Atom, ReducedGraph, bits, reduce_graph, symmetric

# One order of the whole graph from the orders of its atoms.

def join_orders(
    neighbours: Sequence[Iterable[int]], reduction: ReducedGraph, orders: Sequence[Sequence[int]]
) -> list[int]:
    """The order of the whole graph whose triangulation is the union of the atoms' triangulations."""
    # neighbours: sequence of int iterables: The graph that was reduced
    # orders: sequence of sequence of int: For each atom, an order of its local vertices
    # returns list of int
    filled = symmetric(neighbours)
    for clique in reduction.prefix_cliques:
        filled_in = set(clique)
        for v in clique:
            filled[v] |= filled_in
            filled[v].discard(v)
    for atom, order in zip(reduction.atoms, orders, strict=True):
        _add_fill(filled, atom, order)
    gone = set(reduction.prefix)
    rest = [v for v in range(len(filled)) if v not in gone]
    return [*reduction.prefix, *perfect_order(filled, rest)]


def _add_fill(filled: list[set[int]], atom: Atom, order: Sequence[int]) -> None:
    later = fill_masks(atom.masks, order)
    for v, names in enumerate(atom.vertices):
        # twins are joined to each other already
        above = [u for w in bits(later[v] & ~atom.masks[v]) for u in atom.vertices[w]]
        for a in names:
            filled[a].update(above)
            for u in above:
                filled[u].add(a)


MIXTURE_WORK = 100_000  # vertices x edges of an atom up to which mixtures of rules are tried

Progress = Callable[[float, float, float], None]


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search; see `jtgpu.plans.ordering.find_order`."""

    method: str
    seed: int
    objective: str
    workers: int
    progress: Progress | None
    clock: Callable[[], float]


class Incumbents:
    """The best order of every atom so far."""

    def __init__(self, cards: list[int], neighbours: Sequence[Iterable[int]], options: SearchOptions):
        self.cards, self.neighbours = cards, [tuple(around) for around in neighbours]
        self.options, self.objective = options, options.objective
        self.started = options.clock()
        self.trace: list[Improvement] = []
        self.n_steps = 0
        self.interrupted = False
        self.reduction: ReducedGraph = reduce_graph(cards, self.neighbours, largest=self.objective == "largest")
        self.atoms = self.reduction.atoms
        self.orders: list[list[int]] = [list(range(len(a.card))) for a in self.atoms]
        self.costs = [(0, 0)] * len(self.atoms)
        self.has_orders = False  # whether `orders` and `costs` come from a rule; before, any order replaces them
        self.proven = [False] * len(self.atoms)
        self.prefix_cliques = [math.prod(cards[v] for v in c) for c in _maximal_prefix(self.reduction)]

    def elapsed(self) -> float:
        return self.options.clock() - self.started

    def key(self) -> str:
        """The key of the graph and the objective among saved orders."""
        return store.digest(self.cards, self.neighbours, self.objective)

    def measure(self, atom: Atom, order: Sequence[int]) -> tuple[int, int]:
        """The objective on an atom: (total, largest), or the other way round."""
        total, largest = atom_cost(atom, order)
        return (largest, total) if self.objective == "largest" else (total, largest)

    def offer(self, i: int, cost: tuple[int, int], order: list[int], rule: str) -> bool:
        """Take an atom's order if it is better than what there is."""
        if self.has_orders and cost >= self.costs[i]:
            return False
        self.costs[i], self.orders[i] = cost, order
        if self.has_orders:
            self.note(rule)
        return True

    def note(self, rule: str) -> None:
        value = self.estimate()
        if not self.trace or value < self.trace[-1].cost:
            self.trace.append(Improvement(self.elapsed(), value, rule))

    def estimate(self) -> float:
        """The objective's value now, without building the whole order (levels are left out)."""
        parts = [c[0] for c in self.costs] + self.prefix_cliques
        return as_float(max(parts, default=0) if self.objective == "largest" else sum(parts))

    def greedy(self, rules: Sequence[Rule], seed: int | None, clean: bool = False) -> None:
        """Run rules on every atom, each rule on all atoms first."""
        for rule in rules:
            for i, atom in enumerate(self.atoms):
                logs = [log(c) for c in atom.card]
                order = greedy_order(atom.masks, logs, atom.card, rule, seed)
                cost = self.measure(atom, order)
                if not self.trace or cost < self.costs[i]:
                    self.costs[i], self.orders[i] = cost, order
                if clean:
                    cleaned = remove_needless_fill(atom.masks, order)
                    self.costs[i], self.orders[i] = min(
                        (self.costs[i], self.orders[i]), (self.measure(atom, cleaned), cleaned)
                    )
            self.note(rule.name)
        self.has_orders = True

    def portfolio(self) -> None:
        """The classic rules; then, on what is small enough, mixtures with random ties and noise."""
        self.greedy(list(RULES.values()), None)
        chance = random.Random(self.options.seed)
        for turn in range(6):
            rule = Rule(
                f"mixture {turn}",
                weighted_fill=chance.uniform(0.3, 1.0),
                weight=chance.uniform(0.0, 0.7),
                fill=chance.uniform(0.0, 0.3),
                own=-chance.uniform(0.0, 0.5),
                noise=chance.uniform(0.0, 0.3),
            )
            for i, atom in enumerate(self.atoms):
                n_edges = sum(m.bit_count() for m in atom.masks) // 2
                if len(atom.card) > 2 and len(atom.card) * n_edges < MIXTURE_WORK:
                    logs = [log(c) for c in atom.card]
                    order = greedy_order(atom.masks, logs, atom.card, rule, chance.getrandbits(32))
                    self.offer(i, self.measure(atom, order), order, rule.name)

    def begin_with(self, order: Sequence[int]) -> None:
        """Offer the parts of an order of the whole graph to the atoms."""
        place = {v: i for i, v in enumerate(order)}
        for i, atom in enumerate(self.atoms):
            own = sorted(range(len(atom.card)), key=lambda v: max(place[u] for u in atom.vertices[v]))
            self.offer(i, self.measure(atom, own), own, "saved")

    def assemble(self) -> tuple[list[int], OrderCost]:
        """The whole order and its exact cost."""
        order = join_orders(self.neighbours, self.reduction, self.orders)
        return order, order_cost(self.cards, self.neighbours, order, self.objective)

    def result(self, order: Sequence[int], cost: OrderCost, rule: str, *, from_cache: bool = False) -> OrderResult:
        trace = self.trace
        if from_cache or not trace or trace[-1].cost != cost.cost:
            trace = [*trace, Improvement(self.elapsed(), cost.cost, rule)]
        bound = self.lower_bound()
        return OrderResult(
            order=as_order_array(order), cost=cost.cost, entries=cost.entries, largest=cost.largest,
            n_cliques=cost.n_cliques, levels=cost.levels, method=self.options.method, objective=self.objective,
            trace=tuple(trace), lower_bound=as_float(bound), seed=self.options.seed, n_steps=self.n_steps,
            optimal=bound == (cost.largest if self.objective == "largest" else cost.entries)
            and self.objective != "time" and min(self.cards, default=2) > 1,
            seconds=self.elapsed(), from_cache=from_cache, interrupted=self.interrupted,
        )  # fmt: skip

    def lower_bound(self) -> int:
        """Tables that every triangulation has: those of simplicial vertices and complete atoms, and proven totals."""
        if min(self.cards, default=2) < 2:
            return 0
        parts = list(self.prefix_cliques)
        for i, atom in enumerate(self.atoms):
            if self.proven[i]:
                parts.append(self.costs[i][0])
                continue
            full = all(m.bit_count() == len(atom.card) - 1 for m in atom.masks)
            if full and (1 << len(atom.card)) - 1 not in atom.free:
                parts.append(math.prod(atom.card))
        return max(parts, default=0) if self.objective == "largest" else sum(parts)


def _maximal_prefix(reduction: ReducedGraph) -> list[tuple[int, ...]]:
    """The cliques of the vertices eliminated first that are maximal."""
    place = {v: i for i, v in enumerate(reduction.prefix)}
    members = {c[0]: frozenset(c) for c in reduction.prefix_cliques}
    covered = set()
    for v, clique in members.items():
        inner = [u for u in clique if u != v and u in place]
        if inner:
            p = min(inner, key=place.__getitem__)
            if members[p] == clique - {v}:
                covered.add(p)
    return [c for c in reduction.prefix_cliques if c[0] not in covered]
