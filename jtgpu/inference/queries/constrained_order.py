"""Elimination orders for marginal MAP: every summed variable before every maximised one.

Sums and maxima do not commute, so the order is constrained, and its tables may be far larger than those of the tree.
Otherwise the order is as good as an unconstrained one: if the observed and the maximised variables are removed, the
summed ones form connected components. Summing out a component connects all its neighbours in any case, so an order of
the component and its neighbours, which are connected first, can end with the neighbours at no extra cost: any perfect
elimination order of its triangulation that ends with them has the same cliques. The maximised variables that remain are
ordered freely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from ...plans.ordering import find_order


def components(scopes: Sequence[frozenset[int]], summed: frozenset[int]) -> list[list[int]]:
    """Connected components of the summed variables: no factor contains variables of two of them."""
    group = {v: v for v in summed}

    def head(v: int) -> int:
        while group[v] != v:
            group[v] = v = group[group[v]]
        return v

    for scope in scopes:
        inside = sorted(scope & summed)
        for v in inside[1:]:
            a, b = sorted((head(inside[0]), head(v)))
            group[b] = a
    found: dict[int, list[int]] = {}
    for v in sorted(summed):
        found.setdefault(head(v), []).append(v)
    return [found[h] for h in sorted(found)]


def order_before(
    scopes: Iterable[frozenset[int]], cards: Sequence[int], variables: Sequence[int], last: Sequence[int]
) -> list[int]:
    """An elimination order of `variables` in a graph in which the variables of `last` are connected and remain."""
    # scopes: iterable of frozenset of int: Scopes of the factors
    # cards: sequence of int: Numbers of states
    both = [*variables, *last]
    number = {v: i for i, v in enumerate(both)}
    neighbours: list[set[int]] = [set() for _ in both]
    for scope in [*scopes, frozenset(last)]:
        for a, b in combinations(sorted(number[v] for v in scope if v in number), 2):
            neighbours[a].add(b)
            neighbours[b].add(a)
    found = find_order([cards[v] for v in both], neighbours, "auto").order.tolist()
    if last:
        found = ending_with(neighbours, found, range(len(variables), len(both)))
    return [both[i] for i in found if i < len(variables)]


def ending_with(neighbours: Sequence[set[int]], order: Sequence[int], last: Iterable[int]) -> list[int]:
    """A perfect elimination order of the triangulation given by `order` that ends with one of its cliques.

    Maximum cardinality search from the clique, reversed (Tarjan and Yannakakis, SIAM Journal on Computing 13, 1984).
    """
    filled = [set(n) for n in neighbours]
    position = {v: i for i, v in enumerate(order)}
    for v in order:
        later = [u for u in filled[v] if position[u] > position[v]]
        for a, b in combinations(later, 2):
            filled[a].add(b)
            filled[b].add(a)
    weight = [0] * len(order)
    reverse: list[int] = []
    left = dict.fromkeys(range(len(order)))
    first = list(last)
    while left:
        v = first.pop() if first else max(left, key=lambda u: (weight[u], -u))
        del left[v]
        reverse.append(v)
        for u in filled[v]:
            weight[u] += 1
    return reverse[::-1]
