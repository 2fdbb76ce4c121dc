"""Parent sets by ranges of ranks: what the published system sends to its workers in place of sets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..dags.scores.combinations import binomial_table

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SetRange(NamedTuple):
    """Sets of `size` of the first `n_predecessors` variables of an order, ranks begin to end - 1, as parents."""

    child: int
    size: int
    n_predecessors: int
    begin: int
    end: int


def ranges_of_node(child: int, first_new: int, n_predecessors: int, max_parents: int) -> list[SetRange]:
    """The sets of a child's predecessors that contain one of position `first_new` or later; 0: all sets.

    In the combinatorial number system, the sets without these positions have the first ranks.
    """
    found = []
    for size in range(min(max_parents, n_predecessors) + 1):
        begin = math.comb(first_new, size) if first_new else 0
        if size == 0 and first_new:
            continue  # the empty set contains none
        found.append(SetRange(child, size, n_predecessors, begin, math.comb(n_predecessors, size)))
    return [r for r in found if r.end > r.begin]


def split(ranges: list[SetRange], most: int) -> list[SetRange]:
    """Divide ranges into ranges of at most `most` sets."""
    return [
        r._replace(begin=first, end=min(first + most, r.end)) for r in ranges for first in range(r.begin, r.end, most)
    ]


def members_of_ranks(begin: int, end: int, size: int, n: int) -> NDArray[np.int64]:
    """Members, ascending, of the sets of `size` of n elements, by rank, (end - begin, size).

    The published search is linear, element by element; this one is binary, for all sets at once.
    """
    members = np.empty((end - begin, size), np.int64)
    left = np.arange(begin, end)
    columns = binomial_table(n, size)
    for j in range(size, 0, -1):
        largest = np.searchsorted(columns[:, j], left, side="right") - 1
        members[:, j - 1] = largest
        left -= columns[largest, j]
    return members
