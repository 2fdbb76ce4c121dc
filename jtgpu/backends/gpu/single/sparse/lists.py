"""A network as lists of products, dealt out to the warps of a block or a cluster: what lists.cu reads."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .....plans.plan import Plan
from ...program.layout import scaled_factors
from ...program.nonzero import Contraction, Listed, contractions, lowest_root, needed_products
from ...program.structs import NONE
from .rounds import rounds_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["CLUSTERS", "LIST_WARPS", "MOST_GIVEN", "Lists", "make_lists"]

LIST_WARPS = 8  # of 4, 6, 8, 10, 12, 16, 20, 24 and 32 the quickest on Alarm, Child and Insurance (H100)
LEAST = -300.0  # log2 of the smallest P(e) that must not need the engine that scales
MOST_GIVEN = 1024  # variables: their states are a parameter of the kernel
MOST_PRODUCTS = 300_000
CLUSTERS = (1, 8, 16)  # blocks that share the work
NO_CELL = 0xFFFF
LANE_WORDS = 8  # of an output's list, from which on lanes share it
MOST_LANE = 252  # words of a lane that a record can count
AHEAD = 8  # rows that a warp fetches before it knows how many there are
STEP = 4  # rows that it takes at once: a round has a multiple of them
LAST, FOURS = 1 << 27, 1 << 28
EARLY = 3  # a third of the levels may run before the words of the others have come

# The time model, clocks of one SM. A round's latency: fixed, a product, an exchange between lanes. Its share of the
# SM's time: fixed and a product (two gathers and a row of words, with some conflicts of banks).
ROUND, PRODUCT, EXCHANGE = 300, 15, 60
SHARE, PRODUCT_SHARE = 25, 18
BARRIER = {1: 200, 8: 480, 16: 480}  # from the last store of a level to the first reading of the next
LEVEL = {1: 1200, 8: 1200, 16: 2500}  # what merging two levels saves, as swept on an H100
LEVEL_FOURS = 60  # less of it, as products have four entries then
WASTE = 1.8  # rows that rounds of unlike lengths take more, and heads
CLOCKS = 1700.0  # a microsecond
START = {1: 5.5, 8: 6.5, 16: 7.0}  # microseconds before the first level and after the last
BARRIERS = 16  # bytes of shared memory beside the image
MOST_LEVELS = 512  # barriers of a cluster; tests/played/cluster.hpp has as many


@dataclass(frozen=True)
class Lists:
    """What every block's shared memory holds at the start, and where.

    Attributes
    ----------
    n_blocks : int
    image : (blocks, 2 * n_image) uint64
        The cells after the evidence's, then the records.
    axes : (n_lambda,) uint32
        Variable and state of each cell of evidence.
    layout : (17,) uint32
        The numbers of `struct Lists`, from ``n_image`` on.
    exponent : int
        Power of two that was taken out of the factors.
    lowest : float
        P(e) below this asks for an engine that scales.
    microseconds : float
        By the time model.
    """

    n_blocks: int
    image: NDArray[np.uint64]
    axes: NDArray[np.uint32]
    layout: NDArray[np.uint32]
    exponent: int
    lowest: float
    microseconds: float

    @property
    def shared_bytes(self) -> int:
        """Shared memory that a block takes, its two barriers left out."""
        *_, n_levels, _, barriers = self.layout.tolist()
        return 8 * int(barriers + (n_levels if self.n_blocks > 1 else 0))


def make_lists(
    plan: Plan,
    factors: Sequence[NDArray[np.float64]],
    most_bytes: int,
    clusters: Sequence[int] = CLUSTERS,
    listed: Listed | None = None,
) -> Lists | None:
    """The fastest lists that fit, by the time model; None where there are too many products or cells.

    Parameters
    ----------
    plan : Plan
    factors : sequence of float64 arrays
    most_bytes : int
        Shared memory that a block may take.
    clusters : sequence of int
        How many blocks may work together.
    listed : Listed, optional
        What `needed_products` found, where it is known.
    """
    if plan.n_variables > MOST_GIVEN:
        return None
    scaled, shifts = zip(*scaled_factors(plan, factors), strict=True) if plan.n_factors else ((), ())
    listed = needed_products(plan, factors) if listed is None else listed
    if listed.n_products > MOST_PRODUCTS:
        return None
    lowest = lowest_root(plan, scaled, listed)
    if lowest > LEAST:
        return None
    best: Lists | None = None
    for n_blocks in clusters:
        for merge in (True, False):
            made = _made(plan, listed, scaled, n_blocks, merge, math.ldexp(1.0, math.ceil(lowest)))
            if made is None or made.shared_bytes > most_bytes - BARRIERS:
                continue
            if best is None or made.microseconds < best.microseconds:
                best = replace(made, exponent=sum(shifts))
    return best


def _made(
    plan: Plan, listed: Listed, factors: Sequence[NDArray[np.float64]], n_blocks: int, merge: bool, lowest: float
) -> Lists | None:
    """Lists for so many blocks, whether they fit or not; None where records cannot hold their numbers."""

    def cost(twos: int, fours: int) -> float:
        if fours and not merge:
            return math.inf
        return LEVEL[n_blocks] + LEVEL_FOURS * bool(fours) + (twos + 2 * fours) * WASTE * PRODUCT_SHARE / 32 / n_blocks

    work = contractions(plan, listed, cost)
    longest = max((int(np.bincount(c.o).max()) for members in work for c in members if len(c.o)), default=0)
    cells = _Cells(plan, listed, work)
    if cells.n_cells > NO_CELL or longest > MOST_LANE // 2 * 32 or len(work) > MOST_LEVELS:
        return None
    levels = [_rounds_of(cells, members) for members in work]
    return _layout(plan, listed, cells, levels, _deal(levels, n_blocks), factors, lowest)


class _Cells:
    """Which cell every live entry has, and at which level every step runs.

    Cells 0.. are the evidence's, then a one and a zero; then entries, whose cells are free again after the last
    level that reads them.
    """

    def __init__(self, plan: Plan, listed: Listed, levels: Sequence[Sequence[Contraction]]):
        roots = plan.root_table.tolist()
        last: dict[int, int] = {}
        for number, members in enumerate(levels, 1):
            for c in members:
                last.update(dict.fromkeys(c.ins, number))
        for t in (*roots, *plan.posterior_table.tolist()):
            last[t] = len(levels) + 1
        self.n_lambda = -(-int(plan.cardinality.sum()) // 2) * 2
        self.one, self.zero = self.n_lambda, self.n_lambda + 1
        self.n_cells = self.n_lambda + 2
        self.at: list[NDArray[np.int64]] = [np.full(len(x), NO_CELL, np.int64) for x in listed.live]
        free: list[int] = []
        ends: list[list[int]] = [[] for _ in range(len(levels) + 2)]
        for t in range(plan.n_factors):
            self._take(t, listed, free)
            ends[last.get(t, 0)].append(t)
        self.n_given = self.n_cells  # up to here a cell holds something at the start
        for number, members in enumerate(levels, 1):
            for t in ends[number - 1]:
                free += self.at[t][self.at[t] != NO_CELL].tolist()
            for c in members:
                self._take(c.out, listed, free)
                ends[last[c.out]].append(c.out)
        self.roots = [int(self.at[r][0]) if self.at[r][0] != NO_CELL else self.zero for r in roots]
        self.component = _components(plan, listed, roots)

    def _take(self, t: int, listed: Listed, free: list[int]) -> None:
        where = np.flatnonzero(listed.live[t])
        free.sort(reverse=True)
        reused = [free.pop() for _ in range(min(len(free), len(where)))]
        fresh = range(self.n_cells, self.n_cells + len(where) - len(reused))
        self.n_cells += len(fresh)
        self.at[t][where] = [*reused, *fresh]


def _components(plan: Plan, listed: Listed, roots: Sequence[int]) -> list[int]:
    """For every variable the number of the root that its posterior is divided by."""
    above: dict[int, int] = {t: i for i, t in enumerate(roots)}
    for step in reversed(listed.program.steps):
        for t in step.ins:
            if step.out in above:
                above.setdefault(t, above[step.out])
    found = [0] * plan.n_variables
    for t, scope in enumerate(listed.program.scopes[: plan.n_factors]):
        for v in scope:
            found[v] = above.get(t, 0)
    return found


@dataclass(frozen=True)
class _Rounds:
    """A level's rounds: heads (R, 32) and products (rows, 32), rows of a round one after the other."""

    what: NDArray[np.uint32]
    products: NDArray[np.uint32]
    first: NDArray[np.int64]  # (R+1,) first row of each round
    log: NDArray[np.int64]  # (R,)

    @property
    def latency(self) -> NDArray[np.int64]:
        """Clocks of each round by itself."""
        return ROUND + PRODUCT * np.diff(self.first) + EXCHANGE * self.log

    @property
    def share(self) -> NDArray[np.int64]:
        """Clocks of its SM that each round takes."""
        return SHARE + PRODUCT_SHARE * np.diff(self.first)


def _rounds_of(cells: _Cells, members: Sequence[Contraction]) -> _Rounds:
    """Cut the lists of one level over lanes, and lanes into rounds of like lengths; one or two words a product."""
    outs: dict[int, list[Ints]] = {1: [], 2: []}
    counts: dict[int, list[Ints]] = {1: [], 2: []}
    words: dict[int, list[Ints]] = {1: [], 2: []}
    for c in members:
        where, count = np.unique(c.o, return_counts=True)
        columns = [cells.at[t][at] for t, at in zip(c.ins, c.at, strict=True)]
        n = 1 if len(columns) <= 2 else 2
        columns += [np.full(len(c.o), cells.one)] * (2 * n - len(columns))
        outs[n].append(cells.at[c.out][where])
        counts[n].append(count)
        words[n].append(np.stack([columns[2 * k] | columns[2 * k + 1] << 16 for k in range(n)], axis=1))
    cut = [
        _cut(np.concatenate(outs[n]), np.concatenate(counts[n]), np.concatenate(words[n]), cells.zero)
        for n in (1, 2)
        if outs[n]
    ]
    n_rows = np.concatenate([c[2] for c in cut])
    return _Rounds(
        np.concatenate([c[0] for c in cut]).astype(np.uint32),
        np.concatenate([c[1] for c in cut]).astype(np.uint32),
        np.concatenate([[0], np.cumsum(n_rows)]),
        np.concatenate([c[3] for c in cut]),
    )


def _cut(out: Ints, count: Ints, word: Ints, zero: int) -> tuple[Ints, Ints, Ints, Ints]:
    """See `_rounds_of`: the rounds of outputs whose products have so many words each, (products, words): heads and
    rows of 32 words, rows of each round and log2 of the lanes that share an output."""
    n_words = word.shape[1]
    r = rounds_of(count, LANE_WORDS // n_words)
    n_rows = -(-r.n_rows * n_words // STEP) * STEP // n_words
    start = np.cumsum(n_rows) - n_rows
    rows = np.full((int(n_rows.sum()), n_words, 32), zero | zero << 16, np.int64)
    rows[start[r.round] + r.row, :, r.lane] = word
    heads = np.full((len(r.log), 32), NO_CELL, np.int64)
    heads[r.out_round, r.out_lane] = out
    heads |= (n_rows * n_words << 16 | r.log << 24 | (FOURS if n_words == 2 else 0))[:, None]
    return heads, rows.reshape(-1, 32), n_rows * n_words, r.log


@dataclass(frozen=True)
class _Dealt:
    """Who runs which round: for every level a list of rounds for each warp of all blocks."""

    n_blocks: int
    warps: list[list[list[int]]]
    microseconds: float


def _deal(levels: Sequence[_Rounds], n_blocks: int) -> _Dealt:
    """Longest rounds first, each to the warp that is free first."""
    n_warps = n_blocks * LIST_WARPS
    made, clocks = [], 0.0
    for r in levels:
        cost, share = r.latency, r.share
        # warp by warp over all blocks, so that few rounds spread over them
        free = [(0, w, w % n_blocks * LIST_WARPS + w // n_blocks) for w in range(n_warps)]
        mine: list[list[int]] = [[] for _ in range(n_warps)]
        busy = [0] * n_blocks
        for i in np.argsort(-cost, kind="stable").tolist():
            load, w, at = heapq.heappop(free)
            mine[at].append(i)
            busy[at // LIST_WARPS] += int(share[i])
            heapq.heappush(free, (load + int(cost[i]), w, at))
        latest = max(load for load, _, _ in free)
        clocks += BARRIER[n_blocks] + max(latest, *busy)
        made.append(mine)
    return _Dealt(n_blocks, made, START[n_blocks] + clocks / CLOCKS)


def _layout(
    plan: Plan,
    listed: Listed,
    cells: _Cells,
    levels: Sequence[_Rounds],
    dealt: _Dealt,
    factors: Sequence[NDArray[np.float64]],
    lowest: float,
) -> Lists:
    """Put every block's image together."""
    arena = np.zeros(cells.n_cells)
    arena[cells.one] = 1.0
    for f, table in enumerate(factors):
        at = cells.at[f]
        arena[at[at != NO_CELL]] = table[at != NO_CELL]
    entries, passes = _entries(plan, listed, cells)
    answers = _answers(plan, cells, levels, dealt)
    wanted = _readers(cells, levels, dealt, [len(a) > 1 for a in answers])
    streams = [_stream(levels, dealt, b, wanted) for b in range(dealt.n_blocks)]
    most, most_answers = max(len(rows) for _, rows, _ in streams), max(len(a) for a in answers)
    later = max(1, len(levels) // EARLY)
    early = max(int(ends[later - 1]) for _, _, ends in streams)
    n_given = cells.n_lambda + -(-(cells.n_given - cells.n_lambda) // 2) * 2
    first = -(-max(cells.n_cells, n_given) // 2) * 2
    images = []
    places: list[int] = []
    for b, (starts, rows, _) in enumerate(streams):
        arrivals = np.zeros((len(levels), 2), np.uint32)
        arrivals[:, 0] = [8 * int((w >> b & 1).sum()) for w in wanted]
        padded = (
            _padded(answers[b], 2 * most_answers),
            np.array(cells.roots, np.uint32),
            _padded(rows, most + 32 * AHEAD),
        )
        given = np.zeros(n_given - cells.n_lambda)
        given[: cells.n_given - cells.n_lambda] = arena[cells.n_lambda : cells.n_given]
        parts = [given.view(np.uint64)]
        places, place = [], first
        for record in (entries, passes, arrivals, starts, *padded):
            places.append(place)
            raw = record.tobytes()
            parts.append(np.frombuffer(raw + bytes(-len(raw) % 16), np.uint64))
            place += len(parts[-1])
        images.append(np.concatenate(parts))
    axes = np.zeros(cells.n_lambda, np.int64)
    pairs = [np.full(n, v) | np.arange(n) << 16 for v, n in enumerate(plan.cardinality.tolist())]
    axes[: int(plan.cardinality.sum())] = np.concatenate(pairs)
    image = np.stack(images)
    n_image, n_records = image.shape[1] // 2, image.shape[1] // 2 - (n_given - cells.n_lambda) // 2
    early += 32 * AHEAD  # that are fetched behind a round's last
    n_first = n_records if later >= len(levels) else min((places[-1] - first) // 2 + -(-early // 4), n_records)
    # no level waits for the rest where there is none: it would wait for ever
    shape = [n_image, n_image - n_records, n_first, later if n_first < n_records else 0, cells.n_lambda, first]
    counts = [len(passes) - 1, len(levels), len(cells.roots), first + 2 * n_records]
    layout = np.array([*shape, *places, *counts], np.uint32)
    return Lists(dealt.n_blocks, image, axes.astype(np.uint32), layout, 0, lowest, dealt.microseconds)


def _padded(record: NDArray[np.uint32], n: int) -> NDArray[np.uint32]:
    return np.concatenate([record.ravel(), np.zeros(n - record.size, np.uint32)])


def _answers(plan: Plan, cells: _Cells, levels: Sequence[_Rounds], dealt: _Dealt) -> list[NDArray[np.uint32]]:
    """For every block how many answers it makes, then of each: cell and cell of P(e), place among the answers."""
    place = np.full(cells.n_cells, -1)
    root = np.zeros(cells.n_cells, np.int64)
    for v, t in enumerate(plan.posterior_table.tolist()):
        states = np.flatnonzero(cells.at[t] != NO_CELL)
        place[cells.at[t][states]] = int(plan.posterior_ptr[v]) + states
        root[cells.at[t][states]] = cells.roots[cells.component[v]]
    made: list[list[tuple[int, int]]] = [[(0, 0)] for _ in range(dealt.n_blocks)]
    born: dict[int, int] = {}
    for r, warps in zip(levels, dealt.warps, strict=True):
        for w, mine in enumerate(warps):
            for i in mine:
                born.update(dict.fromkeys((r.what[i] & NO_CELL).tolist(), w // LIST_WARPS))
    for cell in np.flatnonzero(place >= 0).tolist():
        made[born[cell]].append((cell | int(root[cell]) << 16, int(place[cell])))
    for block in made:
        block[0] = (len(block) - 1, 0)
    return [np.array(block, np.uint32) for block in made]


def _entries(plan: Plan, listed: Listed, cells: _Cells) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """What multiplies evidence into the factors, two variables at a time: rounds that follow each other."""
    variables: dict[int, list[int]] = {}
    for v, f in enumerate(plan.evidence_factor.tolist()):
        variables.setdefault(f, []).append(v)
    rounds: list[list[NDArray[np.int64]]] = []
    for f, members in sorted(variables.items()):
        scope = plan.table_scopes[f]
        where = np.flatnonzero(listed.live[f])
        cell = cells.at[f][where]
        for k in range(0, len(members), 2):
            weights = []
            for v in members[k : k + 2]:
                inner = plan.size(scope[scope.index(v) + 1 :])
                weights.append(int(plan.posterior_ptr[v]) + where // inner % int(plan.cardinality[v]))
            if len(weights) == 1:
                weights.append(np.full(len(where), cells.one))
            if len(rounds) <= k // 2:
                rounds.append([])
            rounds[k // 2].append(np.stack([cell | cell << 16, weights[0] | weights[1] << 16], axis=1))
    made = [np.concatenate(r) for r in rounds]
    passes = np.concatenate([[0], np.cumsum([len(r) for r in made])]).astype(np.uint32)
    return (np.concatenate(made) if made else np.zeros((0, 2))).astype(np.uint32), passes


def _readers(
    cells: _Cells, levels: Sequence[_Rounds], dealt: _Dealt, has_answers: Sequence[bool]
) -> list[NDArray[np.uint32]]:
    """For each round's outputs, as bits, the blocks that read them: (R, 32) a level; none for answers."""
    made = [np.zeros(r.what.shape, np.uint32) for r in levels]
    reading = np.zeros(NO_CELL + 1, np.uint32)  # who reads what a cell holds now, from the last level backwards
    for cell in cells.roots:
        reading[cell] = sum(1 << b for b, has in enumerate(has_answers) if has or b == 0)
    for number in range(len(levels) - 1, -1, -1):
        r = levels[number]
        out = (r.what & NO_CELL).astype(np.int64)
        made[number] = np.where(out != NO_CELL, reading[out], 0).astype(np.uint32)
        reading[out] = 0
        for w, mine in enumerate(dealt.warps[number]):
            bit = np.uint32(1 << w // LIST_WARPS)
            for i in mine:
                rows = r.products[r.first[i] : r.first[i + 1]].ravel()
                reading[rows & NO_CELL] |= bit
                reading[rows >> 16] |= bit
    return made


def _stream(
    levels: Sequence[_Rounds], dealt: _Dealt, block: int, readers: Sequence[NDArray[np.uint32]]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.int64]]:
    """Where each warp's rounds of each level begin, (levels, warps), the words, and how many there are up to the end
    of each level."""
    starts = np.full((len(levels), LIST_WARPS), NONE, np.uint32)
    words: list[NDArray[np.uint32]] = []
    ends = np.zeros(len(levels), np.int64)
    at = 0
    for number, r in enumerate(levels):
        for warp in range(LIST_WARPS):
            mine = dealt.warps[number][block * LIST_WARPS + warp]
            if mine:
                starts[number, warp] = at
            for i in mine:
                words.append(r.what[i] | np.uint32(LAST if i == mine[-1] else 0))
                if dealt.n_blocks > 1:
                    words.append(readers[number][i])
                words.append(r.products[r.first[i] : r.first[i + 1]].ravel())
                at += 32 * ((2 if dealt.n_blocks > 1 else 1) + int(r.first[i + 1] - r.first[i]))
        ends[number] = at
    return starts, np.concatenate(words) if words else np.zeros(0, np.uint32), ends
