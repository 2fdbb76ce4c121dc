"""`CountProblem`: families to count, shared by all GPUs, and the bit planes of their table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....errors import ArgumentError
from ..chain_records import BY_CELLS, BY_FAMILY
from .set_values import set_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .coded import CodedTable
    from .rules import CellFunctions, ScoreRule

# Bit planes of a table, as words of 32 rows.

class Planes(NamedTuple):
    """Bit planes of a table, variables by ascending number of states, words of 32 rows."""

    words: NDArray[np.uint32]  # (W, P) the plane of variable v in state s, not its last one, is column ``start[s] + v``
    lasts: NDArray[np.uint32]  # (W, n) the planes of the last states
    start: NDArray[np.int32]  # (S,)
    # (B + 1,) first words of the rows whose weights have a bit, the most significant bit first
    segments: NDArray[np.uint32]


def planes_of(codes: NDArray[np.uint8], cards: NDArray[np.int64], weights: NDArray[np.int64] | None) -> Planes:
    """Make the planes of a table whose variables are sorted by their number of states."""
    most = int(cards[-1])
    first = np.searchsorted(cards, np.arange(1, most) + 1)  # of the variables that have a plane of each state
    counts = len(cards) - first
    start = np.concatenate([[0], np.cumsum(counts)[:-1]]) - first
    parts = [np.ones(codes.shape[1], np.bool_)]
    if weights is not None:
        n_bits = int(weights.max()).bit_length()
        parts = [(weights >> bit & 1).astype(np.bool_) for bit in range(n_bits - 1, -1, -1)]
    words, lasts, segments = [], [], [0]
    for part in parts:
        rows = codes if weights is None else codes[:, part]
        packed = [_pack(rows[first[s] :] == s) for s in range(most - 1)]
        words.append(np.concatenate(packed))
        lasts.append(_pack(rows == (cards - 1)[:, None]))
        segments.append(segments[-1] + words[-1].shape[1])
    return Planes(
        np.ascontiguousarray(np.concatenate(words, axis=1).T),
        np.ascontiguousarray(np.concatenate(lasts, axis=1).T),
        start.astype(np.int32),
        np.array(segments, np.uint32),
    )


def _pack(bits: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Rows of bits as words of 32."""
    packed = np.packbits(bits, axis=1, bitorder="little")
    padded = np.zeros((len(bits), -(-packed.shape[1] // 4) * 4), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view("<u4").astype(np.uint32, copy=False)


MAX_PARENTS = 5
MAX_COMBOS = 384  # AND-combinations of a set, above which its rows are scanned


@dataclass
class CountProblem:
    """Families to count, shared by all devices."""

    coded: CodedTable
    rule: ScoreRule
    functions: CellFunctions
    max_parents: int
    max_cells: int
    order: NDArray[np.int64]  # the variables by ascending number of states
    cards: NDArray[np.int64]  # in this order
    planes: Planes
    small: list[NDArray[np.float64]]  # values of sets of 0 and 1 variables
    most_combos: int = MAX_COMBOS

    @property
    def n(self) -> int:
        return len(self.cards)

    @property
    def n_values(self) -> int:
        """Values of a set."""
        return 1 if self.functions.mode == BY_CELLS else len(self.functions.shapes)

    def value_bytes(self) -> int:
        """Bytes of the values of all sets."""
        return sum(8 * self.n_values * math.comb(self.n, size) for size in range(self.max_parents + 2))

    def is_scanned(self, size: int) -> bool:
        """Whether rows of some sets are scanned."""
        largest = [int(r) for r in self.cards[-size:]]
        combos = (largest[0] - 1) * (largest[1] - 1) * math.prod(largest[2:])
        return combos > self.most_combos or largest[0] > 8


def gpu_can_score(rule: ScoreRule, max_parents: int) -> bool:
    """Whether GPUs compute such scores."""
    return rule.score.runs_on_gpu and max_parents <= MAX_PARENTS


def count_problem(
    coded: CodedTable, rule: ScoreRule, functions: CellFunctions, max_parents: int, max_cells: int
) -> CountProblem:
    """Sort the variables, and make planes and the values of small sets."""
    if functions.mode == BY_FAMILY:
        raise ArgumentError(f"GPUs do not compute {rule.name!r} scores; use backend='cpu'")
    if max_parents > MAX_PARENTS:
        raise ArgumentError(f"GPUs score families of at most {MAX_PARENTS} parents; use backend='cpu'")
    order = np.argsort(coded.cardinality, kind="stable")
    cards = coded.cardinality[order]
    planes = planes_of(coded.codes[order], cards, coded.weights)
    small = set_values(coded, functions, 0, ess=float(rule.ess), max_cells=max_cells)
    return CountProblem(coded, rule, functions, max_parents, max_cells, order, cards, planes, small)
