"""Distributions of single variables from a table over all variables between two slices. Knows no device.

Large tables are summed over some variables first, for groups of the others: each number is read once for a group, not
for a variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_TERMS = 16  # of a sum that needs no groups
MOST_GROUP = 36  # configurations

Wanted = Sequence[tuple["NDArray[np.int64]", int]]  # the state of a variable in each entry; first column


class EqualSums(NamedTuple):
    """Sums of the same number of terms."""

    terms: NDArray[np.int64]  # (sums, terms) places in the table, groups behind it
    to: int  # place, or column, of the first


def sums_of(wanted: Wanted, n: int) -> tuple[list[EqualSums], list[EqualSums]]:
    """Sums for groups, and those for each variable."""
    # n: Entries of the table
    states = [s for s, _ in wanted]
    cards = [int(s.max()) + 1 for s in states]
    groups: list[EqualSums] = []
    variables: list[EqualSums] = []
    if n <= MOST_TERMS * min(cards, default=1):
        made = [_by_kind(s, np.arange(n), card) for s, card in zip(states, cards, strict=True)]
        variables = [EqualSums(x, column) for x, (_, column) in zip(made, wanted, strict=True)]
    else:
        at = n
        for own, members in _groups(cards):
            size = int(np.prod([cards[v] for v in members]))
            kind = np.ravel_multi_index([states[v] for v in members], [cards[v] for v in members])
            groups.append(EqualSums(_by_kind(kind, np.arange(n), size), at))
            digits = np.unravel_index(np.arange(size), [cards[v] for v in members])
            for v in own:
                terms = _by_kind(digits[members.index(v)], at + np.arange(size), cards[v])
                variables.append(EqualSums(terms, wanted[v][1]))
            at += size
    return groups, variables


def _by_kind(kind: NDArray[np.int64], places: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """(n, terms) the places of each kind, which all kinds have equally often."""
    return places[np.argsort(kind, kind="stable")].reshape(n, -1)


def _groups(cards: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Variables that a group serves, and all of its variables."""
    made, first = [], 0
    while first < len(cards):
        own, size = [first], cards[first]
        while own[-1] + 1 < len(cards) and size * cards[own[-1] + 1] <= MOST_GROUP:
            own.append(own[-1] + 1)
            size *= cards[own[-1]]
        members = list(own)
        while members[0] > 0 and size * cards[members[0] - 1] <= MOST_GROUP:  # more sums of fewer terms
            members.insert(0, members[0] - 1)
            size *= cards[members[0]]
        made.append((own, members))
        first = own[-1] + 1
    return made
