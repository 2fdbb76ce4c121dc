"""Noisy children in a question: factors of their parents, in place of tables with an axis for each parent.

A child whose state is that of no effect contributes a product of vectors, one for each parent. Any other one becomes a
chain of the strongest effects so far, a_i = max(a_{i-1}, c_i), over the effects c_i of its parents, which are summed
into the tables of (a_{i-1}, parent, a_i) (Heckerman, UAI 1989; Heckerman and Breese, 1996; Diez and Galan, 2003). No
number is subtracted from a larger product, so no digits are lost. The parents of all chains are in one order, in which
few chains have begun and not ended, so that these alone are the frontier of an elimination.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..errors import ImpossibleEvidence, TableTooLarge
from ..model.noisy import NoisyMax
from ..util.elementary import exps, log, logs
from .arrays import ragged, ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

    States = Callable[[int], NDArray[np.int64]]  # the possible states of a variable

LEAST = 1e-290  # product of positive numbers that may be computed
MOST_EXPANDED = 1 << 20  # entries of a table of a noisy child, for a maximum over all variables
MOST_DECADES = 300.0  # natural logarithm of the range of numbers in one vector

Table = tuple[tuple[int, ...], "NDArray[np.float64]"]


class EffectRows(NamedTuple):
    """Effects of the possible states of a parent, ascending."""

    weaker: NDArray[np.float64]  # (states, s) P(effect no stronger than s)
    equal: NDArray[np.float64]  # P(effect s)


class Chain(NamedTuple):
    """A noisy child in a question."""

    scope: tuple[int, ...]  # parents that are left, then the child
    rest: list[NDArray[np.float64]]  # P(effect s) of all else: of several parts where one would lose small numbers
    parents: list[EffectRows]

    def far(self, own: Mapping[int, NDArray[np.float64]]) -> list[int]:
        """Those of some parents, with their distributions, that `absorb` would lose small numbers with."""
        least, far = _least(*self.rest), []
        for p, rows in zip(self.scope, self.parents, strict=False):
            if p in own:
                low = _least(own[p] @ rows.equal, own[p] @ rows.weaker)
                if least * low < LEAST:
                    far.append(p)
                else:
                    least *= low
        return far


class Absorbed(NamedTuple):
    """Parents that one chain alone has, summed into the strongest of their effects, the chain's first hidden variable.

    Once its posterior is known, so are theirs.
    """

    parents: list[int]
    before: NDArray[np.float64]  # (s,) P(strongest effect s)
    given: list[NDArray[np.float64]]  # for each of them, (states, s): P(state | strongest effect s)


class NoisyNodes:
    """The noisy children of a model."""

    def __init__(self, first: NDArray[np.int64], nodes: Mapping[int, tuple[Sequence[int], NoisyMax]]):
        # first: (V+1,) first state of each variable
        # nodes: By child: its parents and strengths
        self.nodes, self._first = nodes, first
        self.children = np.array(list(nodes), np.int64)
        self._place = np.full(len(first) - 1, -1, np.int64)
        self._place[self.children] = np.arange(len(nodes))
        self._least = np.array([noisy.least for _, noisy in nodes.values()], np.int64)
        scopes = [parents for parents, _ in nodes.values()]
        ptr, parents = ragged(scopes)
        self._cells = ranges(first[parents], first[parents + 1])
        self._cell_ptr = np.concatenate([[0], np.cumsum(np.diff(first)[parents])])[ptr]
        # whether some cause is certain to have an effect, or not to have it, in states other than that of no effect
        self.is_certain = any(
            bool(((rows == 0).any(axis=1) & (rows[:, 0] < 1)).any()) for _, noisy in nodes.values()
            for rows in noisy.ascending[:-1]
        )  # fmt: skip
        numbers = [np.zeros(0), *(rows[:, 0] for _, noisy in nodes.values() for rows in noisy.weaker[:-1])]
        with np.errstate(divide="ignore"):
            self._logs = logs(np.concatenate(numbers))
            self._leaks = logs(np.array([noisy.weaker[-1][0, 0] for _, noisy in nodes.values()]))

    def without_effect(self, seen: NDArray[np.int64], state: NDArray[np.int32]) -> NDArray[np.int64]:
        """Observed noisy children in their states of no effect."""
        places = self._place[seen]
        noisy = seen[places >= 0]
        absent: NDArray[np.int64] = noisy[state[noisy] == self._least[places[places >= 0]]]
        return absent

    def vectors(self, children: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
        """ln of what children without effect say of each state of the model, and of all else."""
        places = self._place[children]
        at = ranges(self._cell_ptr[places], self._cell_ptr[places + 1])
        totals = np.zeros(int(self._first[-1]))
        np.add.at(totals, self._cells[at], self._logs[at])
        leak = float(self._leaks[places].sum())
        if leak == -math.inf:
            raise ImpossibleEvidence("the evidence has probability 0")
        return totals, leak

    def chains(self, states: States, children: Iterable[int]) -> list[Chain]:
        """Some children, with the parents and states that are left."""
        chains = []
        for child in children:
            scope, noisy = self.nodes[child]
            rest, free, parents = [noisy.ascending[-1][0]], [], []
            for p, weaker, equal in zip(scope, noisy.weaker, noisy.ascending, strict=False):
                possible = states(p)
                rows = EffectRows(weaker, equal)
                if len(possible) < len(weaker):
                    rows = EffectRows(weaker[possible], equal[possible])
                if len(possible) == 1 and _least(rest[-1]) * _least(rows.equal, rows.weaker) < LEAST:
                    rest.append(rows.equal[0])
                elif len(possible) == 1:
                    rest[-1] = _joined(rest[-1], rows)[0]
                else:
                    free.append(p)
                    parents.append(rows)
            chains.append(Chain((*free, child), rest, parents))
        return chains

    def tables(
        self, states: States, chains: Sequence[Chain], begin: int, hidden: list[int],
        outside: Mapping[int, NDArray[np.float64]], absorbed: dict[int, Absorbed],
    ) -> Iterable[Table]:  # fmt: skip
        """Tables of some children over the possible states of variables, and of hidden ones from `begin`."""
        # hidden: filled with the numbers of states of the hidden variables
        # outside: Distributions of parents that one chain and no table has
        # absorbed: filled with these parents, by hidden variable
        orders = parent_orders([[p for p in chain.scope[:-1] if p not in outside] for chain in chains])
        for (scope, rest, parents), order in zip(chains, orders, strict=True):
            child, noisy = scope[-1], self.nodes[scope[-1]][1]
            effects = np.abs(states(child) - noisy.least)
            top = int(effects.max()) + 1
            last: tuple[int, ...] = ()
            before = rest[0][:top]
            own = {p: (rows, outside[p]) for p, rows in zip(scope, parents, strict=False) if p in outside}
            if own:
                last = (begin + len(hidden),)
                hidden.append(top)
                absorbed[last[0]] = made = absorb(before, own)
                before = np.diag(made.before)
                left = [(p, rows) for p, rows in zip(scope, parents, strict=False) if p not in outside]
                scope, parents = (*(p for p, _ in left), child), [rows for _, rows in left]
            steps = [((), _of_known(more)) for more in rest[1:]] + [((scope[i],), parents[i]) for i in order]
            ones = np.eye(top)
            for k, (own_scope, rows) in enumerate(steps, 1):
                if before is not ones and _least(before) * _least(rows.equal, rows.weaker) < LEAST:
                    if not last:
                        last = (begin + len(hidden),)
                        hidden.append(top)
                    yield last, before if before.ndim == 1 else np.diag(before)
                    before = ones
                table = _joined(before, rows) if own_scope else _joined(before, rows)[..., 0, :]
                if k == len(steps) and own_scope:
                    last, before = (*last, *own_scope), table
                    continue
                now = begin + len(hidden)
                hidden.append(top)
                yield (*last, *own_scope, now), table
                last, before = (now,), ones
            yield (*last, child), before[..., effects]

    def expanded(self, states: States, chains: Sequence[Chain]) -> tuple[list[Table], float]:
        """Tables of some children with an axis for each parent, and ln of what they were divided by."""
        # raises TableTooLarge: If one has too many entries
        tables, divisor = [], 0.0
        for scope, rest, parents in chains:
            child, noisy = scope[-1], self.nodes[scope[-1]][1]
            effects = np.abs(states(child) - noisy.least)
            table, divided = _together(rest, int(effects.max()) + 1)
            divisor += divided
            entries = math.prod(len(rows.equal) for rows in parents) * len(table)
            if entries > MOST_EXPANDED:
                raise TableTooLarge(
                    f"a most probable configuration needs the table of a noisy variable, here of "
                    f"{entries:,} entries, more than {MOST_EXPANDED:,}; ask for the most "
                    "probable states of fewer variables (map), or observe some of its parents",
                    entries,
                )  # fmt: skip
            for rows in parents:
                table = _joined(table, rows)
            tables.append((scope, table[..., effects]))
        return tables, divisor


def split_vector(given: NDArray[np.float64]) -> tuple[list[NDArray[np.float64]], float]:
    """Vectors whose product is exp(given) but for a constant, whose ln is returned."""
    high = float(given.max())
    low = float(given.min(where=given > -math.inf, initial=high))
    n = 1 + int((high - low) / MOST_DECADES)
    return [exps((given - high) / n)] * n, high


def _joined(before: NDArray[np.float64], rows: EffectRows) -> NDArray[np.float64]:
    """(..., p, s) P(s is the stronger one of an effect with the distributions `before`, (..., s), and a parent's)."""
    s = before.shape[-1]
    below = np.zeros(before.shape)
    np.cumsum(before[..., :-1], axis=-1, out=below[..., 1:])
    return before[..., None, :] * rows.weaker[:, :s] + below[..., None, :] * rows.equal[:, :s]


def _together(rest: Sequence[NDArray[np.float64]], top: int) -> tuple[NDArray[np.float64], float]:
    """P(effect s) of several parts, s < top, divided by the largest one, and ln of that."""
    if len(rest) == 1:
        return rest[0][:top], 0.0
    equal = [Fraction(p) for p in rest[0][:top].tolist()]
    for more in rest[1:]:
        other = [Fraction(p) for p in more[:top].tolist()]
        up_to, others = accumulate(equal), accumulate(other)
        equal = [p * b + (a - p) * q for p, q, a, b in zip(equal, other, up_to, others, strict=True)]
    high = max(equal)
    if not high:
        return np.zeros(top), 0.0
    shift = high.numerator.bit_length() - high.denominator.bit_length()
    return np.array([float(p / high) for p in equal]), log(float(high / Fraction(2) ** shift)) + shift * log(2.0)


def _of_known(effect: NDArray[np.float64]) -> EffectRows:
    """The rows of a parent whose state is known, or of several."""
    return EffectRows(np.cumsum(effect)[None], effect[None])


def _least(*tables: NDArray[np.float64]) -> float:
    """The least positive number."""
    return min(float(table.min(where=table > 0, initial=1.0)) for table in tables)


def absorb(rest: NDArray[np.float64], own: Mapping[int, tuple[EffectRows, NDArray[np.float64]]]) -> Absorbed:
    """Sum parents, given their rows and distributions, into the strongest effect of theirs and of all else, `rest`."""
    # The strongest effect is s if that of some cause is s, those of all causes before it are weaker and those of all
    # after it no stronger: a sum of products, without a difference.
    s, n = len(rest), len(own)
    equal, weaker, below = np.empty((3, n + 1, s))
    equal[0], weaker[0] = rest, np.cumsum(rest)
    for i, (rows, weights) in enumerate(own.values(), 1):
        equal[i], weaker[i] = weights @ rows.equal[:, :s], weights @ rows.weaker[:, :s]
    below[:, 0], below[:, 1:] = 0.0, weaker[:, :-1]
    ones = np.ones((1, s))
    earlier = np.cumprod(np.concatenate([ones, below[:-1]]), axis=0)  # all before are weaker
    later = np.cumprod(np.concatenate([ones, below[:0:-1]]), axis=0)[::-1]  # all after are weaker
    after = np.cumprod(np.concatenate([ones, weaker[:0:-1]]), axis=0)[::-1]  # all after are no stronger
    first, last = np.zeros((n + 2, s)), np.zeros((n + 2, s))  # P(strongest s) of those before, of this one and later
    for i in range(n + 1):
        first[i + 1] = first[i] * weaker[i] + earlier[i] * equal[i]
    for i in range(n, -1, -1):
        last[i] = equal[i] * after[i] + below[i] * last[i + 1]
    total = first[-1]
    others = first[:-1] * after + earlier * last[1:]  # P(strongest s) of all others
    weakest = earlier * later  # P(all others weaker than s)
    known = np.where(total > 0, total, 1.0)
    given = [
        weights[:, None] * (rows.weaker[:, :s] * others[i] + rows.equal[:, :s] * weakest[i]) / known
        for i, (rows, weights) in enumerate(own.values(), 1)
    ]
    return Absorbed(list(own), total, given)


def parent_orders(families: Sequence[Sequence[int]]) -> list[list[int]]:
    """An order of the members of each family: those of one family first, the others in an order that all share.

    Greedily, the next one is the one after which the fewest families have begun and not ended.
    """
    waiting: dict[int, set[int]] = {}
    for f, family in enumerate(families):
        for p in family:
            waiting.setdefault(p, set()).add(f)
    shared = {p: fs for p, fs in waiting.items() if len(fs) > 1}
    left = [sum(p in shared for p in family) for family in families]
    begun = [False] * len(families)
    rank = dict.fromkeys(waiting, -1)
    for step in range(len(shared)):
        chosen = min(shared, key=lambda p: (sum((not begun[f]) - (left[f] == 1) for f in shared[p]), p))
        for f in shared.pop(chosen):
            begun[f], left[f] = True, left[f] - 1
        rank[chosen] = step
    return [sorted(range(len(family)), key=lambda i: (rank[family[i]], family[i])) for family in families]
