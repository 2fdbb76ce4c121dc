"""The published propagation as a schedule of messages, and its sequential form in NumPy through the index tables.

Source: A. Gottoli, F. Pettenuzzo (2014). Hugin propagation: one update of a clique from a neighbour marginalises the
neighbour's table onto the separator (phi*), multiplies phi*/phi into the clique's table (0/0 = 0), and normalises it.

Scaling. The product of all clique tables over the product of all separator tables stays the joint P(x, e) up to a
factor: every normalisation divides it by the sum s that it removes. So ln P(e) is the sum of ln s over the collect
sweep and over the roots' final sums; in the distribute sweep every s is 1 but for rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...errors import ImpossibleEvidence, TableTooLarge
from .indextables import IndexTable, Shape, separator_shapes, shape_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...plans.plan import Plan

__all__ = ["Clock", "HostEngine", "Message", "Schedule", "Source", "columns_of", "divide", "marginalise", "multiply"]

_CHUNK = 1 << 18  # cells gathered at once: their values and widened indices stay in the cache
_SMALL = 5000  # entries up to which the indices are kept widened, ready for NumPy's take


class Clock(Protocol):
    """What a measured propagation reports to: seconds of one phase.

    Attributes
    ----------
    kernels_only : bool
        Whether work on a device counts without its transfers.
    """

    kernels_only: bool

    def add(self, phase: str, seconds: float) -> None:
        """Count `seconds` of ``"marginalise"``, ``"scatter"`` or ``"normalise"``."""


@dataclass(frozen=True)
class Message:
    """One update of clique `target` from clique `source` through the separator of clique `edge` to its parent."""

    number: int  # slot of its normaliser
    edge: int
    source: int
    target: int
    source_shape: int  # numbers of the two index tables
    target_shape: int
    collect: bool


@dataclass(frozen=True)
class Source:
    """The table that a variable's posterior is summed from: the smallest calibrated one that holds it."""

    clique: int  # -1: the separator `edge` instead
    edge: int
    shape: int
    entries: int


class Schedule:
    """What is done in which order, and where tables lie; made once a plan.

    Attributes
    ----------
    shapes : list of Shape
        Distinct index tables: messages first, then posteriors and single cliques.
    collect, distribute : lists of levels, each a list of rounds, each a list of Message
        The marginalisations of one level are independent of each other; so are the scatterings of one round (a
        clique with several children takes one child's message a round).
    lone_roots : list of int
        Cliques without neighbours.
    clique_off, separator_off : (C+1,) int64
        First cell of each clique's and separator's table, aligned to 32 cells.
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self.shapes: list[Shape] = []
        self._shape_number: dict[Shape, int] = {}
        self.clique_entries = [plan.size(c) for c in plan.cliques]
        self.separator_entries = [
            plan.size(s) if up >= 0 else 0 for s, up in zip(plan.separators, plan.clique_parent.tolist(), strict=True)
        ]
        self.clique_off = _offsets(self.clique_entries)
        self.separator_off = _offsets(self.separator_entries)
        self._messages()
        self.message_shapes = list(self.shapes)
        self.posterior_source = self._posterior_sources()
        has_child = set(plan.clique_parent.tolist())
        self.lone_roots = [c for c, up in enumerate(plan.clique_parent.tolist()) if up < 0 and c not in has_child]
        self.evidence_clique = self._smallest_clique()

    @property
    def n_messages(self) -> int:
        """Messages of both sweeps."""
        return 2 * int((self.plan.clique_parent >= 0).sum())

    def _shape(self, shape: Shape) -> int:
        if shape not in self._shape_number:
            self._shape_number[shape] = len(self.shapes)
            self.shapes.append(shape)
        return self._shape_number[shape]

    def _messages(self) -> None:
        plan = self.plan
        child, parent = separator_shapes(plan)
        levels: list[list[int]] = [[] for _ in range(int(plan.clique_depth.max(initial=0)) + 1)]
        for c, depth in enumerate(plan.clique_depth.tolist()):
            levels[depth].append(c)
        self.collect: list[list[list[Message]]] = []
        self.distribute: list[list[list[Message]]] = []
        number = 0

        def message(c: int, collect: bool) -> Message:
            nonlocal number
            number += 1
            up, own = int(plan.clique_parent[c]), child[c]
            other = parent[c]
            assert own is not None
            assert other is not None
            low, high = self._shape(own), self._shape(other)
            if collect:
                return Message(number - 1, c, c, up, low, high, True)
            return Message(number - 1, c, up, c, high, low, False)

        for level in reversed(levels[1:]):
            rounds: list[list[Message]] = []
            taken: dict[int, int] = {}
            for c in level:
                m = message(c, True)
                turn = taken[m.target] = taken.get(m.target, -1) + 1
                if turn == len(rounds):
                    rounds.append([])
                rounds[turn].append(m)
            self.collect.append(rounds)
        for level in levels[1:]:
            self.distribute.append([[message(c, False) for c in level]])

    def _smallest_clique(self) -> list[int]:
        best = [-1] * self.plan.n_variables
        for c in sorted(range(len(self.clique_entries)), key=lambda c: (self.clique_entries[c], c)):
            for v in self.plan.cliques[c]:
                if best[v] < 0:
                    best[v] = c
        return best

    def _posterior_sources(self) -> list[Source]:
        plan = self.plan
        best: list[tuple[int, int, int]] = [(2**63, 0, 0)] * plan.n_variables  # entries, 1 for a separator, number
        for kind, scopes, sizes in (
            (0, plan.cliques, self.clique_entries),
            (1, plan.separators, self.separator_entries),
        ):
            for i, scope in enumerate(scopes):
                for v in scope:
                    best[v] = min(best[v], (sizes[i], kind, i))
        found = []
        for v, (entries, kind, i) in enumerate(best):
            scope = (plan.separators if kind else plan.cliques)[i]
            shape = self._shape(shape_of(scope, [v], plan.cardinality))
            found.append(Source(-1 if kind else i, i if kind else -1, shape, entries))
        return found

    def initial_tables(self, factors: Sequence[NDArray[np.float64]], out: NDArray[np.floating]) -> None:
        """Write every clique's product of its factors into `out`, (clique_off[-1],)."""
        plan = self.plan
        out[:] = 1.0
        for f, (table, scope) in enumerate(zip(factors, plan.factor_scopes, strict=True)):
            c = int(plan.factor_clique[f])
            clique = plan.cliques[c]
            axes = sorted(range(len(scope)), key=lambda a: int(plan.axis_rank[scope[a]]))
            shape = [int(plan.cardinality[v]) if v in scope else 1 for v in clique]
            psi = self.table(out, c).reshape([int(plan.cardinality[v]) for v in clique])
            psi *= np.transpose(np.asarray(table), axes).reshape(shape)

    def table(self, arena: NDArray[np.floating], c: int) -> NDArray[np.floating]:
        """Clique c's table in an arena of clique tables, a view."""
        start = int(self.clique_off[c])
        return arena[start : start + self.clique_entries[c]]

    def separator(self, arena: NDArray[np.floating], c: int) -> NDArray[np.floating]:
        """The table of clique c's separator in an arena of separator tables, a view."""
        start = int(self.separator_off[c])
        return arena[start : start + self.separator_entries[c]]

    def weigh(self, psi: NDArray[np.floating], c: int, v: int, weights: NDArray[np.float64]) -> None:
        """Multiply one weight a state of variable v into clique c's table, in place."""
        clique = self.plan.cliques[c]
        card = [int(self.plan.cardinality[u]) for u in clique]
        at = clique.index(v)
        psi.reshape(math.prod(card[:at]), card[at], -1)[...] *= weights[:, None].astype(psi.dtype)


def _offsets(entries: list[int]) -> NDArray[np.int64]:
    """Bounds of tables laid end to end, each start aligned to 32 cells (256 bytes of float64)."""
    off = np.zeros(len(entries) + 1, np.int64)
    np.cumsum([-(-n // 32) * 32 for n in entries], out=off[1:])
    return off


# The three operations through an index table (its (m, n) part) -------------------------------------------------


def marginalise(psi: NDArray[np.floating], index: NDArray[np.integer], out: NDArray[np.floating]) -> None:
    """``out[j] = sum over i of psi[index[i, j]]``.

    Parameters
    ----------
    psi : (n * m,) float
    index : (m, n) unsigned, or intp
        An index table without its padding.
    out : (n,) float
    """
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
    """An index table the other way round: the separator configuration of every entry of the clique.

    For small tables `multiply` spends its time on calls; with this it is one gather and one product.

    Parameters
    ----------
    index : (m, n) integers
        An index table without its padding.

    Returns
    -------
    (m * n,) intp
    """
    columns = np.empty(index.size, np.intp)
    columns[index] = np.arange(index.shape[1])
    return columns


def _wide(index: NDArray[np.integer]) -> NDArray[np.intp]:
    return index.astype(np.intp, copy=False)


class HostEngine:
    """The published algorithm on the CPU: every message in NumPy, one after the other.

    Parameters
    ----------
    schedule : Schedule
    tables : list of IndexTable
        One a shape of the schedule.
    initial : (clique_off[-1],) float
        Clique tables before evidence; read only.
    work : like `initial`
        Clique tables during a run. A clique's part is written when it is first changed.
    """

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
        self.sums = np.ones(schedule.n_messages + len(schedule.lone_roots))

    # One run ---------------------------------------------------------------------------------------------------

    def load(self, vectors: Mapping[int, NDArray[np.float64]]) -> float:
        """Start from the initial tables, with evidence multiplied in; ln of the factor taken out of the weights."""
        self.psi[:] = self._initial
        self.separators[0][:] = 1.0
        self.sums[:] = 1.0
        taken = 0.0
        for v, weights in vectors.items():
            scaled, log_factor = scaled_weights(weights)
            taken += log_factor
            c = self.schedule.evidence_clique[v]
            self.schedule.weigh(self.writable(c), c, v, scaled)
        return taken

    def propagate(self, clock: Clock | None = None) -> None:
        """Collect to the roots, distribute from them."""
        for sweep in (self.schedule.collect, self.schedule.distribute):
            for level in sweep:
                for round_ in level:
                    for message in round_:
                        self.marginalise(message, clock)
                        self.scatter(message, clock)
        for slot, c in enumerate(self.schedule.lone_roots, self.schedule.n_messages):
            self.normalise_host(c, slot)

    def log_evidence(self) -> float:
        """ln of what normalisation has removed.

        Raises
        ------
        ImpossibleEvidence
            When a table summed to 0.
        """
        half = self.schedule.n_messages // 2  # the collect sweep's messages come first
        removed = np.concatenate([self.sums[:half], self.sums[2 * half :]])
        return log_of_sums(removed)

    def posterior_table(self, v: int) -> NDArray[np.floating]:
        """The calibrated table that variable v's posterior is summed from."""
        source = self.schedule.posterior_source[v]
        return self.psi[source.clique] if source.clique >= 0 else self._separator[0][source.edge]

    def posteriors(self, targets: Sequence[int], out: NDArray[np.float64]) -> None:
        """Posteriors of `targets`, not normalised, into their cells of `out`, (sum of cardinalities,)."""
        ptr = self.schedule.plan.posterior_ptr
        for v in targets:
            index = self.index[self.schedule.posterior_source[v].shape]
            marginalise(self.posterior_table(v), index, out[ptr[v] : ptr[v + 1]])

    def writable(self, c: int) -> NDArray[np.floating]:
        """Clique c's table in the work arena, copied there first if it was still the initial one."""
        if self.psi[c] is self._initial[c]:
            np.copyto(self._work[c], self._initial[c])
            self.psi[c] = self._work[c]
        return self.psi[c]

    # One message -----------------------------------------------------------------------------------------------

    def separator_pair(self, message: Message) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Where the new separator table goes, and the old one. The two swap, so nothing is copied."""
        new, old = (1, 0) if message.collect else (0, 1)
        return self._separator[new][message.edge], self._separator[old][message.edge]

    def marginalise(self, message: Message, clock: Clock | None = None) -> None:
        """First half of an update: phi* from the source clique."""
        start = perf_counter()
        marginalise(self.psi[message.source], self.index[message.source_shape], self.separator_pair(message)[0])
        if clock is not None:
            clock.add("marginalise", perf_counter() - start)

    def scatter(self, message: Message, clock: Clock | None = None) -> None:
        """Second half: phi*/phi multiplied into the target clique, which is then normalised."""
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
        self.normalise_host(message.target, message.number)
        if clock is not None:
            clock.add("normalise", perf_counter() - start)

    def normalise_host(self, c: int, slot: int) -> None:
        """Scale clique c's table so that it sums to 1, and keep the sum."""
        psi = self.writable(c)
        total = float(np.add.reduce(psi, dtype=np.float64))
        self.sums[slot] = total
        if total > 0.0 and total != 1.0:
            np.divide(psi, total, out=psi)

    def close(self) -> None:
        """Nothing to give back."""


def scaled_weights(weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Weights over their greatest, and its natural logarithm: tiny likelihoods do not underflow.

    Raises
    ------
    ImpossibleEvidence
        When all are 0.
    """
    greatest = float(weights.max(initial=0.0))
    if not greatest > 0.0:
        raise ImpossibleEvidence("the evidence has probability 0: a likelihood vector is all zeros")
    return weights / greatest, math.log(greatest)


def log_of_sums(sums: NDArray[np.float64]) -> float:
    """Sum of natural logarithms.

    Raises
    ------
    ImpossibleEvidence
        When one of the sums is 0.
    """
    if not (sums > 0.0).all():
        raise ImpossibleEvidence("the evidence has probability 0")
    return math.fsum(np.log(sums))


def check_entries(schedule: Schedule, max_entries: int | None) -> None:
    """Refuse clique tables over the limit before any memory is taken.

    Raises
    ------
    TableTooLarge
    """
    largest = max(schedule.clique_entries, default=0)
    if max_entries is not None and largest > max_entries:
        raise TableTooLarge(
            f"a clique table of {largest:,} entries is over the limit of {max_entries:,}", entries=largest
        )
