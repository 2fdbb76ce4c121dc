"""Cases of one model as cases of another: its variables are some of the model's, each with some of the states.

Two wrappers need that: models without impossible states (`jtgpu.backends.wrappers.possible_states`), and plans of split
models for patterns (`jtgpu.backends.wrappers.pattern`). The compiled loops read a map while they load the evidence and
write the answer, so that a case takes no longer for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..plans.arrays import ranges

if TYPE_CHECKING:
    from numpy.typing import NDArray

IMPOSSIBLE = -2  # the number of a state that the other model lacks
NOTHING = np.zeros(0, np.int64)  # the code of no map


class StateMap:
    """How the variables and states of a backend's model appear in another model, the outer one."""
    # source: (W,) int64: The outer variable of each variable; several may be copies of one that every case observes
    # cards: (V,) int64 of the outer variables
    # inside: bool of each state of each outer variable: whether the copies have it
    # seen: (W,) bool: The variables that every case observes; None: this differs from case to case
    # first: (V+1,) int64: First state of each outer variable
    # number: Of each outer state, `IMPOSSIBLE` where no copy has it
    # code: int64, what the loops read: the number of outer states; for each variable its source, the first outer state
    #     of that, and the place in this array of the numbers of these states, 0 where they stay the same; the outer
    #     state of each state; the numbers

    def __init__(
        self, source: NDArray[np.int64], cards: NDArray[np.int64], inside: NDArray[np.bool_],
        seen: NDArray[np.bool_] | None = None,
    ):  # fmt: skip
        self.source, self.cards, self.inside, self.seen = source, cards, inside, seen
        self.first = first = np.concatenate([[0], np.cumsum(cards)])
        before = np.concatenate([[0], np.cumsum(inside)])[first]  # states of the copies before those of each variable
        self.number = np.where(inside, np.cumsum(inside) - 1 - np.repeat(before[:-1], cards), IMPOSSIBLE)
        states = np.flatnonzero(inside)[ranges(before[source], before[source + 1])]
        changed = np.flatnonzero(np.diff(before) < cards)
        places = np.zeros(len(cards), np.int64)
        places[changed] = 1 + 3 * len(source) + len(states) + np.cumsum(cards[changed]) - cards[changed]
        numbers = self.number[ranges(first[changed], first[changed + 1])]
        self.code = np.concatenate([first[-1:], source, first[source], places[source], states, numbers])

    def case(self, state: NDArray[np.int32]) -> NDArray[np.int32] | None:
        """(W,) the observed states of a case; None if a variable lacks one of them."""
        n, own = len(self.source), state[self.source]
        at = self.code[1 + 2 * n : 1 + 3 * n]
        changed = np.flatnonzero((at > 0) & (own >= 0))
        own[changed] = self.code[at[changed] + own[changed]]
        return None if (own < -1).any() else own

    def within(self, outer: StateMap) -> StateMap:
        """The map into the outer model of an outer map, each of whose variables is its own source."""
        return StateMap(self.source, outer.cards, outer.inside, self.seen)
