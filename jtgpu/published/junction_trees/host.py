"""The published propagation on the CPU: the definition of the engine, and its fallback for small tables.

Source: A. Gottoli, F. Pettenuzzo (2014). Hugin propagation: an update of a clique from a neighbour marginalises the
neighbour's table onto the separator (phi*), multiplies phi*/phi into the clique's table (0/0 = 0), and normalises it.

Scaling. The product of all clique tables divided by the product of all separator tables stays P(x, e) up to a factor:
every normalisation divides it by the sum s of a table. So ln P(e) is the sum of ln s over the collect sweep and over
the final sums of the roots; in the distribute sweep every s is 1 except for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import ImpossibleEvidence
from ...util.arrays import Floats
from .indextables import IndexTable
from .schedule import Message, Schedule

# The arithmetic of a message in NumPy, through index tables: the published algorithm on the CPU.

_CHUNK = 1 << 18  # cells gathered at once, so that values and widened indices stay in the cache


def marginalise(psi: NDArray[np.floating], index: NDArray[np.integer], out: NDArray[np.floating]) -> None:
    """``out[j] = sum over i of psi[index[i, j]]``."""
    # psi: (n * m,) float
    # index: (m, n) unsigned, or intp: An index table without its padding
    # out: (n,) float
    m, n = index.shape
    if index.size <= _CHUNK:
        np.add.reduce(psi.take(_wide(index)), axis=0, out=out)
        return
    rows = max(1, _CHUNK // n)
    out[:] = 0.0
    for i in range(0, m, rows):
        out += np.add.reduce(psi.take(_wide(index[i : i + rows])), axis=0)


def divide(new: NDArray[np.floating], old: NDArray[np.floating]) -> None:
    """``old[j] = new[j] / old[j]`` with 0/0 = 0."""
    np.divide(new, old, out=old, where=old != 0)  # where the old number is 0 it stays, and is the answer


def multiply(psi: NDArray[np.floating], index: NDArray[np.integer], ratio: NDArray[np.floating]) -> None:
    """``psi[index[i, j]] *= ratio[j]``; arguments as in `marginalise`."""
    m, n = index.shape
    rows = m if index.size <= _CHUNK else max(1, _CHUNK // n)
    for i in range(0, m, rows):
        at = _wide(index[i : i + rows])
        psi[at] = psi.take(at) * ratio


def columns_of(index: NDArray[np.integer]) -> NDArray[np.intp]:
    """The inverse of an index table: the separator configuration of every entry of the clique.

    With it `multiply` is one gather and one product, which is faster for small tables.
    """
    # index: (m, n) integers: An index table without its padding
    # returns (m * n,) intp
    columns = np.empty(index.size, np.intp)
    columns[index] = np.arange(index.shape[1])
    return columns


def _wide(index: NDArray[np.integer]) -> NDArray[np.intp]:
    return index.astype(np.intp, copy=False)


def scaled_weights(weights: Floats) -> tuple[Floats, float]:
    """Weights divided by the largest, and the natural logarithm of the largest: small likelihoods do not underflow."""
    # raises ImpossibleEvidence: If all weights are 0.
    greatest = float(weights.max(initial=0.0))
    if not greatest > 0.0:
        raise ImpossibleEvidence("the evidence has probability 0: a likelihood vector is all zeros")
    return weights / greatest, math.log(greatest)


def log_of_sums(sums: Floats) -> float:
    """Sum of natural logarithms."""
    # raises ImpossibleEvidence: If one of the sums is 0.
    if not (sums > 0.0).all():
        raise ImpossibleEvidence("the evidence has probability 0")
    return math.fsum(np.log(sums))


_SMALL = 5000  # entries up to which the indices are stored widened, ready for NumPy's take


class Clock(Protocol):
    """Receives the seconds of each phase of a measured propagation."""

    kernels_only: bool  # whether work on a device counts without its transfers

    def add(self, phase: str, seconds: float) -> None:
        """Add `seconds` to ``"marginalise"``, ``"scatter"`` or ``"normalise"``."""


class HostEngine:
    """The published algorithm on the CPU: NumPy, one message after another."""
    # tables: list of IndexTable: One for each shape of the schedule
    # initial: (clique_off[-1],) float: Clique tables before evidence; never written
    # work: Clique tables during a run. A clique's table is copied here when it is first changed.
    # separators: pair of (separator_off[-1],) float arrays: Old and new separator tables; None: allocated here

    def __init__(
        self,
        schedule: Schedule,
        tables: Sequence[IndexTable],
        initial: NDArray[np.floating],
        work: NDArray[np.floating],
        separators: tuple[NDArray[np.floating], NDArray[np.floating]] | None = None,
    ):
        self.schedule = schedule
        self.index = [t.inner.astype(np.intp) if t.n * t.m <= _SMALL else t.inner for t in tables]
        self.columns = [columns_of(index) if index.dtype == np.intp else None for index in self.index]
        self.initial, self.work = initial, work
        if separators is None:
            cells = int(schedule.separator_off[-1])
            separators = np.empty(cells, initial.dtype), np.empty(cells, initial.dtype)
        self.separators = separators
        cliques = range(len(schedule.clique_entries))
        self._initial = [schedule.table(initial, c) for c in cliques]
        self._work = [schedule.table(work, c) for c in cliques]
        self._separator = [[schedule.separator(s, c) for c in cliques] for s in separators]
        self.psi = list(self._initial)  # where each clique's table is now
        self.sums = np.ones(schedule.n_messages + len(schedule.isolated_cliques))

    # One run ---------------------------------------------------------------------------------------------------

    def load(self, vectors: Mapping[int, Floats]) -> float:
        """Multiply evidence into the initial tables; return ln of the factor by which the weights were scaled."""
        self.psi[:] = self._initial
        self.separators[0][:] = 1.0
        self.sums[:] = 1.0
        log_scale = 0.0
        for v, weights in vectors.items():
            scaled, log_factor = scaled_weights(weights)
            log_scale += log_factor
            c = self.schedule.evidence_clique[v]
            self.schedule.multiply_weights(self.writable(c), c, v, scaled)
        return log_scale

    def propagate(self, clock: Clock | None = None) -> None:
        """Collect to the roots, then distribute from them."""
        for message in self.schedule.messages():
            self.marginalise(message, clock)
            self.scatter(message, clock)
        for slot, c in enumerate(self.schedule.isolated_cliques, self.schedule.n_messages):
            self.normalise(c, slot)

    def log_evidence(self) -> float:
        """ln P(e): the logarithm of everything that normalisation divided by."""
        # raises ImpossibleEvidence: If a table summed to 0.
        half = self.schedule.n_messages // 2  # the collect sweep's messages come first
        removed = np.concatenate([self.sums[:half], self.sums[2 * half :]])
        return log_of_sums(removed)

    def posterior_table(self, v: int) -> NDArray[np.floating]:
        """The calibrated table that variable v's posterior is summed from."""
        source = self.schedule.posterior_source[v]
        return self.psi[source.clique] if source.clique >= 0 else self._separator[0][source.edge]

    def posteriors(self, targets: Sequence[int], out: Floats) -> None:
        """Write unnormalised posteriors of `targets` into their cells of `out`, (sum of cardinalities,)."""
        ptr = self.schedule.plan.posterior_ptr
        for v in targets:
            index = self.index[self.schedule.posterior_source[v].shape]
            marginalise(self.posterior_table(v), index, out[ptr[v] : ptr[v + 1]])

    def writable(self, c: int) -> NDArray[np.floating]:
        """Clique c's table in the work arena, copied from the initial one on the first call of a run."""
        if self.psi[c] is self._initial[c]:
            np.copyto(self._work[c], self._initial[c])
            self.psi[c] = self._work[c]
        return self.psi[c]

    # One message -----------------------------------------------------------------------------------------------

    def separator_pair(self, message: Message) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """The arrays of the new and of the old separator table, which swap roles between the sweeps."""
        new, old = (1, 0) if message.collect else (0, 1)
        return self._separator[new][message.edge], self._separator[old][message.edge]

    def marginalise(self, message: Message, clock: Clock | None = None) -> None:
        """First half of an update: the new separator table phi* from the source clique."""
        start = perf_counter()
        marginalise(self.psi[message.source], self.index[message.source_shape], self.separator_pair(message)[0])
        if clock is not None:
            clock.add("marginalise", perf_counter() - start)

    def scatter(self, message: Message, clock: Clock | None = None) -> None:
        """Second half: multiply phi*/phi into the target clique, then normalise it."""
        psi = self.writable(message.target)
        start = perf_counter()
        new, old = self.separator_pair(message)
        divide(new, old)
        columns = self.columns[message.target_shape]
        if columns is None:
            multiply(psi, self.index[message.target_shape], old)
        else:
            np.multiply(psi, old.take(columns), out=psi)
        if clock is not None:
            clock.add("scatter", perf_counter() - start)
            start = perf_counter()
        self.normalise(message.target, message.number)
        if clock is not None:
            clock.add("normalise", perf_counter() - start)

    def normalise(self, c: int, slot: int) -> None:
        """Scale clique c's table so that it sums to 1, and record the sum in `slot`."""
        psi = self.writable(c)
        total = float(np.add.reduce(psi, dtype=np.float64))
        self.sums[slot] = total
        if total > 0.0 and total != 1.0:
            np.divide(psi, total, out=psi)

    def close(self) -> None:
        """Nothing to release."""
