"""One order of the whole graph from the orders of its atoms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .bitmasks import bits
from .reduce import Atom, Reduction, symmetric
from .triangulation import fill_masks, perfect_order


def join_orders(
    neighbours: Sequence[Iterable[int]], reduction: Reduction, orders: Sequence[Sequence[int]]
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
