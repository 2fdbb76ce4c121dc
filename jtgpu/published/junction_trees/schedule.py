"""The messages of Hugin propagation in their order, and the layout of the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import TableTooLarge
from ...plans.plan import Plan
from ...util.arrays import Floats, Ints
from .indextables import Shape, separator_shapes, shape_of


@dataclass(frozen=True)
class Message:
    """An update of clique `target` from clique `source` through the separator between `edge` and its parent."""

    number: int  # slot of its normalisation sum
    edge: int  # the clique whose separator it is
    source: int
    target: int
    source_shape: int  # numbers of the two index tables
    target_shape: int
    collect: bool


@dataclass(frozen=True)
class Source:
    """The smallest calibrated table that contains a variable; the posterior is summed from it."""

    clique: int  # -1: the separator `edge` instead
    edge: int
    shape: int
    entries: int


class Schedule:
    """Messages, index tables and table layout of a plan."""
    # shapes: list of Shape: Distinct index tables: messages first, then posteriors and isolated cliques
    # collect, distribute: lists of levels, each a list of rounds, each a list of Message: The marginalisations of a
    #     level are independent of each other; so are the scatterings of a round. A clique with several children
    #     receives one child's message per round.
    # isolated_cliques: list of int: Cliques without neighbours
    # clique_off, separator_off: (C+1,) int64: First cell of each clique's and separator's table, aligned to 32 cells

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
        self._add_messages()
        self.posterior_source = self._posterior_sources()
        has_child = set(plan.clique_parent.tolist())
        self.isolated_cliques = [c for c, up in enumerate(plan.clique_parent.tolist()) if up < 0 and c not in has_child]
        self.evidence_clique = self._smallest_clique()

    @property
    def n_messages(self) -> int:
        """Messages of both sweeps."""
        return 2 * int((self.plan.clique_parent >= 0).sum())

    def messages(self) -> list[Message]:
        """All messages in order."""
        return [
            message
            for sweep in (self.collect, self.distribute)
            for level in sweep
            for messages in level
            for message in messages
        ]

    def check_entries(self, max_entries: int | None) -> None:
        """Reject clique tables over the limit before memory is allocated."""
        largest = max(self.clique_entries, default=0)
        if max_entries is not None and largest > max_entries:
            raise TableTooLarge(
                f"a clique table of {largest:,} entries is over the limit of {max_entries:,}", entries=largest
            )

    def _shape(self, shape: Shape) -> int:
        if shape not in self._shape_number:
            self._shape_number[shape] = len(self.shapes)
            self.shapes.append(shape)
        return self._shape_number[shape]

    def _add_messages(self) -> None:
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
            n_received: dict[int, int] = {}
            for c in level:
                m = message(c, True)
                i = n_received.get(m.target, 0)
                n_received[m.target] = i + 1
                if i == len(rounds):
                    rounds.append([])
                rounds[i].append(m)
            self.collect.append(rounds)
        for level in levels[1:]:
            self.distribute.append([[message(c, False) for c in level]])

    def _smallest_clique(self) -> list[int]:
        """For each variable the smallest clique that contains it."""
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
        sources = []
        for v, (entries, kind, i) in enumerate(best):
            scope = (plan.separators if kind else plan.cliques)[i]
            shape = self._shape(shape_of(scope, [v], plan.cardinality))
            sources.append(Source(-1 if kind else i, i if kind else -1, shape, entries))
        return sources

    def initial_tables(self, factors: Sequence[Floats], out: NDArray[np.floating]) -> None:
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

    def multiply_weights(self, psi: NDArray[np.floating], c: int, v: int, weights: Floats) -> None:
        """Multiply a weight for each state of variable v into clique c's table, in place."""
        clique = self.plan.cliques[c]
        card = [int(self.plan.cardinality[u]) for u in clique]
        at = clique.index(v)
        psi.reshape(math.prod(card[:at]), card[at], -1)[...] *= weights[:, None].astype(psi.dtype)


def _offsets(entries: list[int]) -> Ints:
    """Bounds of consecutive tables, each start aligned to 32 cells (256 bytes of float64)."""
    off = np.zeros(len(entries) + 1, np.int64)
    np.cumsum([-(-n // 32) * 32 for n in entries], out=off[1:])
    return off
