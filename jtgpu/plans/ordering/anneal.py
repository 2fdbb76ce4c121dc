"""Local search on an atom's elimination forest: chains of the compiled annealer.

A chain starts from a given order, optionally anneals the whole forest with a softened cost, and then anneals one small
connected region of the forest after another with the rest fixed, accepting results that are not worse. A chain depends
only on its seed and budget, so the number of threads affects nothing but the time. The compiled code releases the GIL
and stops at a flag.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...util.array_types import Matrix
from ...util.elementary import exp, log
from ...util.loops import loops
from .elimination import fill_masks, remove_needless_fill
from .reduce import Atom, bits

_loops = loops("jtgpu.plans.ordering.loops.regions")

Cost = tuple[int, int]


class Graph(NamedTuple):
    """A graph of n vertices with two costs."""

    adjacent: Matrix[np.uint64]  # (n, W) rows of bits
    weight: NDArray[np.float64]  # (n,) factor of each vertex in the cost of a clique
    soft: NDArray[np.float64]  # (n,) the same to a power below 1: a smoother cost, annealed before the true one


class Chain(NamedTuple):
    """One run of the annealer."""

    # n_steps, n_start: Rotations in total, and those of the whole forest with the softened cost
    n_steps: int
    n_start: int
    start_hot: float  # initial temperature of the latter relative to the total cost
    power: float  # exponent of the softened cost
    high_size: int  # size of the largest region
    soft_share: float  # share of regions that are annealed with the softened cost first
    seed: int


def chains_of_round(n: int, turn: int, n_chains: int, steps: int, seed: int) -> list[Chain]:
    """The chains of one round on an atom of n vertices: half anneal the whole forest first, half only regions.

    The parameters were found by experiment: small regions suit graphs of many loosely connected parts (Munin2); a
    softened cost and large regions escape the local optima of Link.
    """
    out = []
    for k in range(n_chains):
        chance = random.Random(f"{seed}/{turn}/{k}")
        from_scratch = (k + turn) % 2 == 1
        out.append(
            Chain(
                n_steps=steps,
                n_start=steps // 2 if from_scratch else 0,
                start_hot=exp(chance.uniform(log(0.05), log(0.4))),
                power=chance.uniform(0.3, 0.5) if from_scratch else chance.choice((0.3, 0.4, 0.5, 0.6)),
                high_size=min(n, chance.choice((40, 60, 120) if turn % 2 else (60, 60, 200))),
                soft_share=chance.choice((0.1, 0.5, 0.8)),
                seed=chance.getrandbits(62),
            )
        )
    return out


def run_chain(
    atom: Atom,
    order: Sequence[int],
    chain: Chain,
    exponent: float,
    stop: NDArray[np.uint8],
    measure: Callable[[Atom, Sequence[int]], Cost],
) -> tuple[Cost, list[int]]:
    """Run one chain from an order; the better of its result and of the same without needless fill."""
    # exponent: The sum of the clique sizes to this power is annealed: 1 for the total, higher to emphasise the largest
    # stop: (1,) uint8: Ends the chain early when another thread sets it to 1
    # measure: The true cost of an order of the atom, smaller is better
    n = len(atom.card)
    logs = [log(c) for c in atom.card]
    exponent = min(exponent, 600.0 / max(math.fsum(logs), 1.0))  # sums of powers must not overflow
    n_words = (n + 63) // 64
    words = (1 << 64) - 1
    adjacent = np.array([[m >> 64 * k & words for k in range(n_words)] for m in atom.masks], np.uint64)
    weight = np.array([float(c) for c in atom.card] if exponent == 1.0 else [exp(exponent * x) for x in logs])
    soft = np.array([exp(exponent * chain.power * x) for x in logs])
    parent = forest_of_order(atom.masks, order)
    _loops.improve(Graph(adjacent, weight, soft), parent, chain, stop)
    found = order_of_forest(parent.tolist())
    cleaned = remove_needless_fill(atom.masks, found)
    return min((measure(atom, found), found), (measure(atom, cleaned), cleaned))


def forest_of_order(masks: Sequence[int], order: Sequence[int]) -> NDArray[np.int64]:
    """(n,) int64: the elimination forest, -1 at roots."""
    position = [0] * len(order)
    for i, v in enumerate(order):
        position[v] = i
    later = fill_masks(masks, order)
    return np.array([min(bits(m), key=position.__getitem__) if m else -1 for m in later], np.int64)


def order_of_forest(parent: Sequence[int]) -> list[int]:
    """An order with this elimination forest: children before parents, otherwise by number."""
    waiting = [0] * len(parent)
    for p in parent:
        if p >= 0:
            waiting[p] += 1
    stack = [v for v in reversed(range(len(parent))) if waiting[v] == 0]
    order = []
    while stack:
        v = stack.pop()
        order.append(v)
        p = parent[v]
        if p >= 0:
            waiting[p] -= 1
            if waiting[p] == 0:
                stack.append(p)
    return order
