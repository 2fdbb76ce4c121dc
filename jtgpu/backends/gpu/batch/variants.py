"""Which cases of a table are answered by kernels without some of the variables that they observe.

An observed variable need not be an axis of any table (`jtgpu.backends.gpu.batch.fixed`). Cases differ in what they
observe, and each set of fixed variables has records of its own, which take up to seconds to make. So few sets are
chosen: the cases that observe the variable whose axis costs most are one part of the table, of the others those that
observe the next variable, and so on; and again within each part. A set is used once the cases of this table and of
earlier ones for which it would have been used cost as much more without it as its records do. So the same tables in the
same order are answered by the same kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .fixed import Costs

LEAST = 0.03  # least share of a case's cost that fixing a variable saves
MOST_VARIABLES = 48  # that may be fixed
MOST_KNOWN = 1024  # sets that are remembered
MOST_PARTS = 12  # of a table, besides the cases without fixed variables
PADDING, LEVEL = 32, 1.2e-5  # cases that a part costs, and seconds for each level
COPIED = 1e9  # bytes of answers for each second of kernels, from which on calls wait for copies
CELL = 2.5e-12  # seconds that a cell of a table costs, on an H100
STEP, RECORD = 2.2e-4, 5e-8  # seconds to make records: for each contraction, and for each cell of a case


class Room(NamedTuple):
    """Cells and products that kernels of a warp a case have for a case; others are answered by a block each."""

    cells: int
    products: int


class Part(NamedTuple):
    """Cases of a table that the same kernels answer: those up to `last`, in the table's order."""

    last: int
    fixed: frozenset[int] | Room  # variables; or a warp a case


class Layout(Protocol):
    """The fields that are read of a `jtgpu.backends.gpu.batch.records.BatchLayout`."""

    @property
    def costs(self) -> Costs:
        """Costs of a case."""

    @property
    def levels(self) -> Sequence[object]:
        """Contractions that run one after another."""


class _Cases(NamedTuple):
    """Cases that all observe the fixed variables."""

    fixed: frozenset[int]
    rows: NDArray[np.int64]
    counts: NDArray[np.int64]  # (variables,) of cases that observe each


class Variants:
    """The sets of fixed variables of a network, and what they would have saved so far."""
    # layout: Of all cases
    # cardinality: (V,)
    # n_steps: Contractions of a case
    # price: Scales what records cost; 0: every set that saves more than its launches take is used

    def __init__(self, layout: Layout, cardinality: NDArray[np.int64], n_steps: int, price: float = 1.0):
        self._costs, self._card, self._n_steps, self.price = layout.costs, cardinality, n_steps, price
        self._launches = LEVEL * len(layout.levels)
        self._saved: dict[frozenset[int], float] = {}
        self._known: dict[frozenset[int], tuple[float, NDArray[np.float64]]] = {}
        total, each = self._of_each(frozenset())
        worth = np.flatnonzero(each <= (1.0 - LEAST) * total)
        self.variables: list[int] = worth[np.argsort(each[worth], kind="stable")][:MOST_VARIABLES].tolist()

    def parts(
        self, n: int, observed: Callable[[Sequence[int]], NDArray[np.bool_]], answer_bytes: int = 0
    ) -> tuple[NDArray[np.int64] | None, list[Part]]:
        """An order of a table's n cases, and its parts; no parts where none pays."""
        # observed: Of some variables, whether each case observes them, (variables, n)
        # answer_bytes: Of a case: if copying them takes as long as the kernels, quicker kernels gain nothing
        seconds = CELL * self._of_each(frozenset())[0]
        if not self.variables or n * seconds <= self._launches or answer_bytes > COPIED * seconds:
            return None, []
        seen = observed(self.variables)
        made = [_Cases(frozenset(), np.arange(n), np.count_nonzero(seen, axis=1))]
        splits = self._splits(0, made[0])
        while splits and len(made) <= MOST_PARTS:
            best = max(splits)
            splits.remove(best)
            seconds, i, k = best
            cases = made[i]
            fixed = cases.fixed | {self.variables[k]}
            if not self._pays(fixed, seconds):
                continue
            splits = [s for s in splits if s[1] != i]
            if cases.counts[k] == len(cases.rows):
                made[i] = cases._replace(fixed=fixed)
            else:
                mine = seen[k, cases.rows]
                rows = cases.rows[mine]
                counts = np.count_nonzero(seen[:, rows], axis=1)
                made[i] = _Cases(cases.fixed, cases.rows[~mine], cases.counts - counts)
                made.append(_Cases(fixed, rows, counts))
                splits += self._splits(len(made) - 1, made[-1])
            splits += self._splits(i, made[i])
        if len(made) == 1 and not made[0].fixed:
            return None, []
        ends = np.cumsum([len(x.rows) for x in made]).tolist()
        return np.concatenate([x.rows for x in made]), [Part(e, x.fixed) for e, x in zip(ends, made, strict=True)]

    def _splits(self, i: int, cases: _Cases) -> list[tuple[float, int, int]]:
        """Seconds that fixing one more variable saves, of the cases that observe it; the cases; the variable."""
        total, each = self._of_each(cases.fixed)
        made = []
        for k, n in enumerate(cases.counts.tolist()):
            left = float(each[self.variables[k]])
            if n and left < (1.0 - LEAST) * total:
                seconds = CELL * (n * (total - left) - PADDING * left) - self._launches
                if seconds > 0:
                    made.append((seconds, i, k))
        return made

    def _of_each(self, fixed: frozenset[int]) -> tuple[float, NDArray[np.float64]]:
        if fixed not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[fixed] = self._costs.of_each(self._card, fixed)
        return self._known[fixed]

    def _pays(self, fixed: frozenset[int], seconds: float) -> bool:
        """Whether a set has saved, or would have saved, what its records cost."""
        if len(self._saved) >= MOST_KNOWN and fixed not in self._saved:
            self._saved.clear()
        saved = self._saved[fixed] = self._saved.get(fixed, 0.0) + seconds
        return saved >= self.price * (STEP * self._n_steps + RECORD * self._of_each(fixed)[0])
