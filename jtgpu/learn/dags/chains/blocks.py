"""Chains over partitions with exact moves of blocks: the parents of a few variables are drawn together.

Single moves seldom pass between graphs in which several arcs are turned at once. Here the families of a block of
variables are drawn from their joint posterior given all other families: those of a variable count together that make it
depend on the same members of the block, directly or by paths through other variables, and all acyclic graphs of the
block are summed. The blocks, a variable and some of its best candidate parents, do not depend on the graph.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ....util.arrays import Floats, Ints
from ....util.elementary import exps, logs
from . import partitions
from .movers import PartitionMover

if TYPE_CHECKING:
    from ..candidate_tables import CandidateTables
    from ..chain_records import SetTables
    from .diagnostics import Block

SIZE, NEAR = 4, 6  # variables of a block; candidates of which the others are drawn


@cache
def acyclic_graphs(k: int) -> Ints:
    """All acyclic graphs of k variables, (G, k) parents as bits."""
    sets = [[m for m in range(1 << k) if not m >> v & 1] for v in range(k)]
    graphs = []
    for parents in itertools.product(*sets):
        left = (1 << k) - 1
        while free := [v for v in range(k) if left >> v & 1 and not parents[v] & left]:
            left &= ~sum(1 << v for v in free)
        if not left:
            graphs.append(parents)
    return np.array(graphs, np.int64)


class BlockMover(PartitionMover):
    """Chains over partitions that draw the families of blocks after each block of steps."""

    # dense: the families of the candidates; a block with another family stays as it is
    # n_blocks: that are drawn at a time

    name = "partition MCMC with blocks"

    def __init__(
        self, tables: SetTables, dense: CandidateTables, seed: int, threads: int | None = None, n_blocks: int = 50
    ):
        super().__init__(tables, seed, threads)
        self._dense, self._n_blocks = dense, n_blocks
        bits = np.arange(dense.candidates.shape[1])
        self._members = (dense.masks[:, None] >> bits & 1).astype(np.bool_)  # (M, k)
        alone = self._members.sum(axis=1) == 1
        single = np.full(dense.candidates.shape, -np.inf)  # ln weight of each candidate as the only parent
        single[:, self._members[alone].argmax(axis=1)] = dense.log_weights[:, alone]
        first = np.argsort(-single, axis=1, kind="stable")[:, :NEAR]
        near = np.take_along_axis(dense.candidates, first, axis=1)
        self._near = [row[row >= 0] for row in near]

    def step(self, state: Any, n_steps: int) -> tuple[Any, Block]:
        state, block = super().step(state, n_steps)
        parents = state.parents.copy()
        for c, own in enumerate(parents):
            rng = np.random.default_rng([self._seed, self._first_chain + c, state.n_steps])
            graph = _BitGraph(own, self._tables.candidates)
            for _ in range(self._n_blocks):
                self._draw(graph, rng)
            parents[c] = graph.bits
        return state._replace(parents=parents, part=partitions.parts_of(parents, self._tables.candidates)), block

    def _draw(self, graph: _BitGraph, rng: np.random.Generator) -> None:
        """Draw the families of a block given the others."""
        v = int(rng.integers(len(self._near)))
        others = self._near[v]
        members = [v, *rng.choice(others, min(SIZE - 1, len(others)), replace=False).tolist()]
        dense, reached = self._dense, graph.reached(members)
        if any(not dense.bit_in[u, s] for s in members for u in graph.parents[s]):
            return
        graphs = acyclic_graphs(len(members))
        log_p, families = np.zeros(len(graphs)), []
        for i, s in enumerate(members):
            # the members of the block on which s depends by each candidate, and by each family
            by = np.array([reached[u] if u >= 0 else 0 for u in dense.candidates[s].tolist()], np.int64)
            depends = np.bitwise_or.reduce(np.where(self._members, by, 0), axis=1)
            top = np.full(1 << len(members), -np.inf)
            np.maximum.at(top, depends, dense.log_weights[s])
            least = np.where(np.isfinite(top), top, 0.0)
            weights = exps(np.maximum(dense.log_weights[s] - least[depends], -700.0))
            weights[np.isneginf(dense.log_weights[s])] = 0.0
            sums = np.bincount(depends, weights, len(top))
            log_p += np.where(sums > 0, logs(np.maximum(sums, 1e-300)) + least, -np.inf)[graphs[:, i]]
            families.append((depends, weights))
        p = exps(np.maximum(log_p - log_p.max(), -700.0))
        chosen = graphs[_place(p, rng)]
        for s, among, (depends, weights) in zip(members, chosen.tolist(), families, strict=True):
            family = self._members[_place(np.where(depends == among, weights, 0.0), rng)]
            graph.turn(s, dense.candidates[s][family].tolist())


def _place(weights: Floats, rng: np.random.Generator) -> int:
    """A place that is drawn by its weight."""
    ends = np.cumsum(weights)
    return int(np.searchsorted(ends, rng.random() * ends[-1], side="right").clip(0, np.flatnonzero(weights)[-1]))


class _BitGraph:
    """A graph as bits of the possible parents, and as lists."""

    def __init__(self, bits: Ints, candidates: Ints):
        self.bits, self._candidates = bits.copy(), candidates
        members = bits[:, None] >> np.arange(candidates.shape[1]) & 1 > 0
        self.parents = [row[own].tolist() for row, own in zip(candidates, members, strict=True)]
        self.children: list[set[int]] = [set() for _ in bits]
        for v, own in enumerate(self.parents):
            for u in own:
                self.children[u].add(v)

    def turn(self, v: int, parents: list[int]) -> None:
        """Give a variable other parents."""
        for u in self.parents[v]:
            self.children[u].discard(v)
        for u in parents:
            self.children[u].add(v)
        self.parents[v] = parents
        at = np.isin(self._candidates[v], parents)
        self.bits[v] = np.where(at, np.int64(1) << np.arange(len(at)), 0).sum()

    def reached(self, members: list[int]) -> list[int]:
        """For each variable the members that it is, or that have a path to it through others, as bits."""
        result = [0] * len(self.children)
        for i, s in enumerate(members):
            stack = list(self.children[s].difference(members))
            while stack:
                w = stack.pop()
                if not result[w] >> i & 1:
                    result[w] |= 1 << i
                    stack += self.children[w].difference(members)
        for i, s in enumerate(members):
            result[s] = 1 << i
        return result
