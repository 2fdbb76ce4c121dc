"""Cases of one model as cases of another, and the answers back: its variables are some of the model's, each with some
of the states.

Models without impossible states, plans of split models for patterns, and slices of a cutset are such models
(`jtgpu.backends.wrappers.mapped`). Where variables have no sets, the compiled loops read a map while they load the
evidence and write the answer, so that a case takes no longer for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plans.arrays import ranges
from ..util.lru import LRU

IMPOSSIBLE = -2  # the number of a state that the other model lacks
NOTHING = np.zeros(0, np.int64)  # the code of no map
MOST_TARGETS = 64  # lists of targets whose columns are cached, the last used ones


class Columns(NamedTuple):
    """Columns of an answer about some targets."""

    targets: list[int] | None  # of the inner model
    width: int
    kept: NDArray[np.int64]  # columns that the inner answer has, in their order
    fixed: NDArray[np.int64]  # variables that every case observes
    begin: NDArray[np.int64]  # the first column of each of these


class StateMap:
    """How the variables and states of a backend's model appear in another model, the outer one."""
    # source: (W,) int64: The outer variable of each variable; several may be copies of one that every case observes
    # cards: (V,) int64 of the outer variables
    # inside: bool of each state of each outer variable: whether the copies have it
    # fixed: (V,) bool: The outer variables that every case observes; None: this differs from case to case
    # seen: (W,) bool: Where cases observe no others, these among the variables; else None
    # n_sets: The last outer variables are sets of others
    # first: (V+1,) int64: First state of each outer variable
    # code: int64, what the loops read: the number of outer states; for each variable its source, the first outer state
    #     of that, and the place in this array of the numbers of these states, 0 where they stay the same; the outer
    #     state of each state; the numbers

    def __init__(
        self, source: NDArray[np.int64], cards: NDArray[np.int64], inside: NDArray[np.bool_],
        fixed: NDArray[np.bool_] | None = None, *, is_whole: bool = False, n_sets: int = 0,
    ):  # fmt: skip
        # is_whole: Whether cases observe no other variables than the fixed ones
        self.source, self.cards, self.inside, self.n_sets = source, cards, inside, n_sets
        self.fixed = np.zeros(len(cards), np.bool_) if fixed is None else fixed
        self.seen = self.fixed[source] if is_whole else None
        self.first = first = np.concatenate([[0], np.cumsum(cards)])
        before = np.concatenate([[0], np.cumsum(inside)])[first]  # states of the copies before those of each variable
        number = np.where(inside, np.cumsum(inside) - 1 - np.repeat(before[:-1], cards), IMPOSSIBLE)
        size = np.diff(before)
        states = np.flatnonzero(inside)[ranges(before[source], before[source + 1])]
        changed = np.flatnonzero(size < cards)
        places = np.zeros(len(cards), np.int64)
        places[changed] = 1 + 3 * len(source) + len(states) + np.cumsum(cards[changed]) - cards[changed]
        numbers = number[ranges(first[changed], first[changed + 1])]
        self.code = np.concatenate([first[-1:], source, first[source], places[source], states, numbers])
        self.is_code = not n_sets and (is_whole or not self.fixed.any())  # whether the loops can read it
        self.is_identity = not self.fixed.any() and np.array_equal(source, np.arange(len(cards)))
        # the number of state s of outer variable v is numbers[begin[v] + s]; -1 stays -1
        self.begin = first[:-1] + np.arange(1, len(cards) + 1)
        self.numbers = np.full(len(number) + len(cards), -1, np.int32)
        self.numbers[ranges(self.begin, self.begin + cards)] = number
        self._source = source[: len(source) - n_sets]
        self._changed = np.flatnonzero(size[self._source] < cards[self._source])
        self._has_changed = len(self._changed) > 0
        self._begin_changed = self.begin[self._source[self._changed]]
        self.inner = np.full(len(cards), -1, np.int64)  # the first copy of each outer variable
        self.inner[source[::-1]] = np.arange(len(source))[::-1]
        self.states_inside = np.split(inside, first[1:-1])  # bool of the states of each outer variable
        end = np.cumsum(size[source])[self.inner]
        free = ~self.fixed
        self._inner_cells = ranges((end - size)[free], end[free])
        self._is_kept = inside & np.repeat(free, cards)
        self._cells = np.flatnonzero(self._is_kept)
        self._n_cells = int(first[-1 - n_sets]), int(first[-1])  # without sets, and with them
        self._fixed = np.flatnonzero(self.fixed)
        self._fixed_cells, self._has_fixed = first[self._fixed], len(self._fixed) > 0
        self._columns: LRU[tuple[int, ...] | None, Columns] = LRU(MOST_TARGETS)

    def within(self, outer: StateMap) -> StateMap:
        """The map into the outer model of an outer map, each of whose variables is its own source."""
        return StateMap(self.source, outer.cards, outer.inside, self.fixed, is_whole=self.seen is not None)

    # Cases ----------------------------------------------------------------------------------------------------

    def case(self, state: NDArray[np.int32]) -> NDArray[np.int32] | None:
        """(W,) the observed states of a case; None if a variable lacks one of them."""
        own = state if self.is_identity else state[self._source]
        if self._has_changed:
            numbers = self.numbers.take(self._begin_changed + own.take(self._changed))
            if numbers.min() < -1:
                return None
            own = own.copy()
            own[self._changed] = numbers
        return own

    def rows(self, states: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The observed states of cases, and those that observe a state that a variable lacks: it is left out."""
        own = np.array(states if self.is_identity else states[:, self._source], np.int32, order="C")
        numbers = self.numbers[self._begin_changed + own[:, self._changed]]
        impossible = numbers < -1
        rows = np.flatnonzero(impossible.any(axis=1))
        if len(rows):
            numbers[impossible] = -1
        own[:, self._changed] = numbers
        return own, rows

    def weights(self, likelihood: Mapping[int, NDArray[np.float64]] | None) -> dict[int, NDArray[np.float64]]:
        """Weights of the states that there are, of one case or many."""
        return {
            int(self.inner[v]): np.ascontiguousarray(np.asarray(w)[..., self.states_inside[v]])
            for v, w in (likelihood or {}).items()
        }

    # Answers --------------------------------------------------------------------------------------------------

    def columns(self, targets: Sequence[int] | None) -> Columns:
        """The columns of an answer about some targets; cached."""
        key = None if targets is None else tuple(targets)
        return self._columns.get_or_make(key, lambda: self._made(key))

    def _made(self, targets: tuple[int, ...] | None) -> Columns:
        wanted = np.array(range(len(self.cards) - self.n_sets) if targets is None else targets, np.int64)
        fixed, cells = self.fixed[wanted], ranges(self.first[wanted], self.first[wanted + 1])
        asked = None if targets is None and self.is_identity else self.inner[wanted[~fixed]].tolist()
        begin = np.cumsum(self.cards[wanted]) - self.cards[wanted]
        return Columns(asked, len(cells), np.flatnonzero(self._is_kept[cells]), wanted[fixed], begin[fixed])

    def posterior(self, inner: NDArray[np.float64], state: NDArray[np.int32]) -> NDArray[np.float64]:
        """Posteriors of all outer variables, with those of the sets if the answer has them, zeros for other states."""
        cells = inner if self.is_identity else inner[self._inner_cells]
        has_sets = len(cells) == len(self._cells)
        posterior = np.zeros(self._n_cells[has_sets])
        posterior[self._cells if has_sets else self._cells[: len(cells)]] = cells
        if self._has_fixed:
            posterior[self._fixed_cells + state[self._fixed]] = 1.0
        return posterior

    def table(
        self, inner: NDArray[np.float64], columns: Columns, states: NDArray[np.int32], rows: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The posteriors of cases, zeros for other states; `rows` of the cases have an answer."""
        if len(columns.kept) == columns.width:
            return inner
        posterior = np.zeros((len(inner), columns.width))
        posterior[:, columns.kept] = inner
        if len(columns.fixed):
            posterior[rows[:, None], columns.begin + states[np.ix_(rows, columns.fixed)]] = 1.0
        return posterior
