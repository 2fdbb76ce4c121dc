"""Answers to a question whose tables would be too large: recursive conditioning.

A state of one variable after the other is chosen, and the states that this makes impossible are removed (arc
consistency; Mackworth 1977). Tables that are constant then connect nothing: the variables that are left fall into
parts, which are searched apart and remembered by their states and tables (Bacchus, Dalmao and Pitassi 2003; Sang, Beame
and Kautz 2005). The trace of sums and products gives P(e), and all posteriors in a pass from its root (Darwiche 2001).
Where many entries are zero, it is small although every junction tree has huge cliques.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..errors import ImpossibleEvidence, TableTooLarge, format_bytes
from ..util.elementary import log
from ..util.loops import loops
from .arrays import ragged
from .search_records import (
    CHILDREN,
    DEPTH,
    DONE,
    EDGES,
    FIXED,
    FULL,
    MEMBERS,
    MORE,
    N_COLUMNS,
    N_COUNTERS,
    NODES,
    PARTS,
    WIDEST,
    WORK,
    Factors,
    Position,
    SearchTrace,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .reduction import Reduction

_loops = loops("jtgpu.plans.loops.search")
_Arrays = TypeVar("_Arrays", Position, SearchTrace)
Table = tuple[Sequence[int], "NDArray[np.float64]"]
Weight = tuple[int, "NDArray[np.float64]", "NDArray[np.int64]"]

STEPS = 2_000_000  # of the loop between two looks at signals: 0.05 s
START = 1 << 12  # nodes and edges that a trace has memory for at first
MOST_POWER = 1000  # of two in a table
NODE_ARRAYS = "node_value", "node_exponent", "node_edge"
EDGE_ARRAYS = "edge_value", "edge_exponent", "edge_before", "fixed_ptr", "child_ptr"


class Search:
    """A reduction that was searched. Variables behind those that are left stand for its sets, in their order."""

    def __init__(self, left: Reduction, memory_limit: int, most: int, weights: Sequence[Weight] = ()):
        # most: Steps of the search
        # weights: of variables, those of sets included: each a number of [0.5, 1) and a power of two
        # raises TableTooLarge: If it takes more steps, or its trace more bytes
        # raises ImpossibleEvidence: If P(e) = 0
        self.sets, self._n_own = left.sets, len(left.free)
        cards = left.n_possible[left.free]
        sizes = [math.prod(cards[list(scope)].tolist()) for scope in left.sets]
        if any(8 * size**2 > memory_limit for size in sizes):
            raise TableTooLarge(
                f"the search for a joint posterior has a table of {max(sizes) ** 2:,} entries", max(sizes) ** 2
            )
        own = [*zip(left.scopes, left.tables, strict=True)]
        for i, (scope, size) in enumerate(zip(left.sets, sizes, strict=True)):
            shape = [*cards[list(scope)].tolist(), size]
            own.append(((*scope, self._n_own + i), np.eye(size).reshape(shape)))
        for w, mantissa, powers in weights:
            own.append(((w,), mantissa))
            rest = np.where(mantissa > 0, powers, 0)
            while rest.any():
                part = np.clip(rest, -MOST_POWER, MOST_POWER)
                own.append(((w,), np.ldexp(1.0, part)))
                rest = rest - part
        self.cards = np.array([*cards.tolist(), *sizes], np.int64)
        rank = np.full(len(self.cards), len(self.cards), np.int64)  # first, if a huge clique contains it
        rank[left.order] = np.arange(len(left.order))
        rank[self._n_own :] = -1  # others fix it
        self._factors = _factors_of(self.cards, own, rank)
        # entries: Edges of the trace
        self._trace, self._root, self.entries = _searched(self._factors, memory_limit, most)
        value, exponent = self._trace.node_value[self._root], self._trace.node_exponent[self._root]
        if not value:
            raise ImpossibleEvidence("the evidence has probability 0")
        self.log_evidence = log(float(value)) + int(exponent) * log(2.0)
        self.bytes = sum(array.nbytes for array in self._trace)
        self.largest_table = int(np.diff(self._factors.cell_ptr).max(initial=0))

    @property
    def flops(self) -> int:
        """Multiplications and additions of a pass."""
        return 2 * (self.entries + int(self._trace.child_ptr[self.entries]))

    @cached_property
    def posterior(self) -> NDArray[np.float64]:
        """Posteriors of all variables, those of the sets included."""
        states = np.zeros(int(self._factors.first[-1]))
        _loops.posterior(self._trace, np.zeros(self._root + 1), states)
        return states

    def best(self) -> tuple[NDArray[np.int32], float]:
        """The most probable configuration, and ln of its probability with the evidence."""
        n = self._root + 1
        value, exponent, chosen = np.zeros(n), np.zeros(n, np.int64), np.zeros(n, np.int64)
        _loops.maximise(self._trace, value, exponent, chosen)
        states = np.zeros(len(self.cards), np.int32)
        _loops.follow(self._factors, self._trace, chosen, states, self._root)
        return states[: self._n_own], log(float(value[-1])) + int(exponent[-1]) * log(2.0)

    def draw(self, uniforms: NDArray[np.float64]) -> NDArray[np.int32]:
        """Configurations given the evidence, by a number of [0, 1) for each variable."""
        # uniforms: (n, W)
        more = np.zeros((len(uniforms), len(self.sets)))  # not needed: the others fix these
        states = np.zeros((len(uniforms), len(self.cards)), np.int32)
        _loops.draw(self._factors, self._trace, np.hstack([uniforms, more]), states, self._root)
        return np.ascontiguousarray(states[:, : self._n_own])


def _offsets(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _factors_of(cards: NDArray[np.int64], tables: Sequence[Table], rank: NDArray[np.int64]) -> Factors:
    """The arrays of some tables."""
    scopes = [scope for scope, _ in tables]
    scope_ptr, scope = ragged([list(s) for s in scopes])
    sizes = np.array([table.size for _, table in tables], np.int64)
    row_ptr, words = _offsets(cards[scope]), (sizes + 63) // 64
    mask_ptr = _offsets(np.repeat(words, np.diff(scope_ptr)) * cards[scope])
    factors = Factors(
        cells=np.concatenate([np.zeros(0), *(table.ravel() for _, table in tables)]),
        cell_ptr=_offsets(sizes), cards=cards, first=_offsets(cards), var_of=np.repeat(np.arange(len(cards)), cards),
        scope=scope, scope_ptr=scope_ptr,
        strides=np.array([math.prod(t.shape[a + 1 :]) for _, t in tables for a in range(t.ndim)], np.int64),
        row_ptr=row_ptr, mask_ptr=mask_ptr, words=words, masks=np.zeros(int(mask_ptr[-1]), np.uint64),
        keys=np.zeros((int(cards.sum() + row_ptr[-1]), 2), np.uint64),
        reader_ptr=_offsets(np.bincount(scope, minlength=len(cards))),
        readers=np.repeat(np.arange(len(tables)), np.diff(scope_ptr))[np.argsort(scope, kind="stable")], rank=rank,
    )  # fmt: skip
    _loops.prepare(factors)
    return factors


def _begin(factors: Factors) -> tuple[Position, SearchTrace]:
    """The arrays before the first step."""
    n, n_states, n_tables = len(factors.cards), len(factors.var_of), len(factors.words)

    def zeros(*shape: int) -> NDArray[np.int64]:
        return np.zeros(shape, np.int64)

    at = Position(
        counters=zeros(N_COUNTERS), possible=np.ones(n_states, np.uint8), n_possible=factors.cards.copy(),
        trail=zeros(n_states), off=zeros(n_tables), active=np.ones(n_tables, np.uint8), queue=zeros(n_tables + 1),
        waits=np.zeros(n_tables, np.uint8), supported=np.zeros(n_states, np.uint8),
        digits=zeros(int(np.diff(factors.scope_ptr).max(initial=0))), mark=zeros(n), table_mark=zeros(n_tables),
        members=zeros(2 * n), levels=zeros(START, N_COLUMNS), values=np.zeros((START, 3)), parts=zeros(2 * n, 4),
        part_keys=np.zeros((2 * n, 2), np.uint64),
    )  # fmt: skip
    at.members[:n], at.counters[MEMBERS] = np.arange(n), n
    at.counters[WIDEST] = int(factors.cards.max(initial=0))
    trace = SearchTrace(
        node_value=np.zeros(START), node_exponent=zeros(START), node_edge=zeros(START), edge_value=np.zeros(START),
        edge_exponent=zeros(START), edge_before=zeros(START), fixed_ptr=zeros(START), child_ptr=zeros(START),
        fixed=zeros(START), children=zeros(START), known=np.full(START, -1), known_keys=np.zeros((START, 2), np.uint64),
    )  # fmt: skip
    return at, trace


def _longer(arrays: _Arrays, *names: str, room: int = 0) -> _Arrays:
    """The same arrays, some of them twice as long, or longer for so many more entries."""
    more: dict[str, Any] = {}
    for name in names:
        old: NDArray[Any] = getattr(arrays, name)
        more[name] = np.zeros((max(2 * len(old), len(old) + room), *old.shape[1:]), old.dtype)
        more[name][: len(old)] = old
    return arrays._replace(**more)


def _extended(at: Position, trace: SearchTrace) -> tuple[Position, SearchTrace]:
    """Longer arrays for those that the next step may exceed, as `_has_room` of the loops has it."""
    c, n = at.counters, len(at.n_possible)
    room = n + int(c[WIDEST]) + 2
    if c[MEMBERS] + n > len(at.members):
        at = _longer(at, "members")
    if c[PARTS] + n > len(at.parts):
        at = _longer(at, "parts", "part_keys")
    if c[DEPTH] + 2 > len(at.levels):
        at = _longer(at, "levels", "values")
    if c[NODES] + 2 > len(trace.node_value):
        trace = _longer(trace, *NODE_ARRAYS)
    for place, names in ((EDGES, EDGE_ARRAYS), (FIXED, ("fixed",)), (CHILDREN, ("children",))):
        if c[place] + room > len(getattr(trace, names[0])):
            trace = _longer(trace, *names, room=room)
    if 2 * c[NODES] + 2 > len(trace.known):
        known, keys = trace.known, trace.known_keys
        trace = trace._replace(known=np.full(2 * len(known), -1), known_keys=np.zeros((2 * len(known), 2), np.uint64))
        _loops.rehash(trace, known, keys)
    return at, trace


def _searched(factors: Factors, memory_limit: int, most: int) -> tuple[SearchTrace, int, int]:
    """The trace, its root, and the number of its edges."""
    at, trace = _begin(factors)
    outcome = MORE
    while outcome != DONE:
        steps, n_bytes = int(at.counters[WORK]), sum(array.nbytes for array in (*at, *trace))
        if steps > most or n_bytes > memory_limit:
            limit = f"{most:,} steps" if steps > most else f"{format_bytes(memory_limit)} of memory"
            raise TableTooLarge(
                f"a search over its states was given up after {limit}, with {int(at.counters[NODES]):,} parts solved",
                -1, n_bytes, memory_limit,
            )  # fmt: skip
        if outcome == FULL:
            at, trace = _extended(at, trace)
        outcome = _loops.search(factors, at, trace, STEPS)
    return trace, int(at.counters[NODES]) - 1, int(at.counters[EDGES])
