"""Products of packed matrices, compared with the loops over rows and with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.backends.cpu import records as rec
from jtgpu.backends.cpu.loops import panels
from jtgpu.util.loops import loops

_kernels, _panels = loops("jtgpu.backends.cpu.loops.kernels"), loops("jtgpu.backends.cpu.loops.panels")
PANEL_CELLS = 1 << 16  # more than `panels.CELLS`

# a group's letters are the axes of A, B and the output that a loop has
GROUPS = {"batch": "abo", "left": "ao", "right": "bo", "common": "ab", "only a": "a", "only b": "b"}


class Contraction:
    """A record of two random tables whose axes stand in a random order."""

    def __init__(self, loops_: list[tuple[str, int]], order: int, zeros: float):
        rng = np.random.default_rng(order)
        self.loops = loops_
        extents = {v: extent for v, (_, extent) in enumerate(loops_)}
        scopes = {t: [v for v, (group, _) in enumerate(loops_) if t in GROUPS[group]] for t in "abo"}
        strides, sizes = {}, {}
        for t, scope in scopes.items():
            step = np.cumprod([1, *(extents[v] for v in reversed(scope))])
            strides[t] = dict(zip(reversed(scope), step.tolist(), strict=False))
            sizes[t] = int(step[-1])
        self.tables = [rng.random(tuple(extents[v] for v in scopes[t])) for t in "ab"]
        for table in self.tables:
            table[rng.random(table.shape) < zeros] = 0.0
        last = len(loops_) - 1
        kept = [v for v in range(last) if "o" in GROUPS[loops_[v][0]]]
        reduced = [v for v in range(last) if "o" not in GROUPS[loops_[v][0]]]
        self.start = {"a": 8, "b": 8 + sizes["a"], "o": 8 + sizes["a"] + sizes["b"]}
        self.size = sizes["o"]
        self.arena = np.concatenate([np.ones(8), *(t.ravel() for t in self.tables), np.full(self.size + 8, -7.0)])
        self.record = record = np.zeros(rec.FIRST_LOOP + 4 * last, np.int64)
        record[rec.LENGTH], record[rec.INPUTS], record[rec.ANSWER] = len(record), 2, -1
        record[rec.OUT], record[rec.A], record[rec.B] = (self.start[t] for t in "oab")
        record[rec.SIZE], record[rec.KEPT], record[rec.REDUCED] = self.size, len(kept), len(reduced)
        record[rec.ROW] = extents[last]
        record[rec.ROW_OUT], record[rec.ROW_A], record[rec.ROW_B] = (strides[t].get(last, 0) for t in "oab")
        for j, v in enumerate([*kept, *reduced]):
            row = extents[v], *(strides[t].get(v, 0) for t in "oab")
            record[rec.FIRST_LOOP + 4 * j : rec.FIRST_LOOP + 4 * j + 4] = row
        self.scopes = scopes

    def run(self, packed: bool, maximal: bool = False) -> np.ndarray:
        """The output; checks the largest entry that is returned, and the cells behind it."""
        self.record[rec.PACKED] = packed
        work, offsets, buffer = np.zeros(256, np.int64), np.zeros(2 * rec.LIST, np.int64), np.zeros(PANEL_CELLS)
        contract = _kernels.contract_maximum if maximal else _kernels.contract_sum
        top = contract(*(x.ctypes.data for x in (self.arena, self.record, work, offsets, buffer)))
        out = self.arena[self.start["o"] : self.start["o"] + self.size].copy()
        assert top == out.max()
        assert (self.arena[self.start["o"] + self.size :] == -7.0).all()
        return out

    def reference(self) -> np.ndarray:
        a, b, o = ("".join(chr(ord("a") + v) for v in self.scopes[t]) for t in "abo")
        return np.asarray(np.einsum(f"{a},{b}->{o}", *self.tables)).ravel()


def check(contraction: Contraction) -> None:
    out = contraction.run(packed=True)
    np.testing.assert_allclose(out, contraction.reference(), rtol=1e-12, atol=0)
    np.testing.assert_array_equal(contraction.run(True, maximal=True), contraction.run(False, maximal=True))


@given(
    st.lists(st.tuples(st.sampled_from(sorted(GROUPS)), st.integers(2, 9)), min_size=1, max_size=6)
    .filter(lambda loops_: np.prod([extent for _, extent in loops_]) <= 100_000)
    .filter(lambda loops_: np.prod([n for group, n in loops_ if group.startswith("only")]) <= panels.MOST_ALONE)
    .map(lambda loops_: [("left", 3), *loops_]),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.3]),
)
def test_every_order_of_groups(loops_: list[tuple[str, int]], order: int, zeros: float) -> None:
    check(Contraction(loops_, order, zeros))


@pytest.mark.parametrize(
    "loops_",
    [
        [("left", 30), ("common", 600), ("right", 13)],  # terms in several blocks
        [("right", 30), ("left", 7), ("common", 600)],
        [("left", 11), ("right", 7), ("common", 300), ("batch", 21)],  # lanes are batch indices, in several blocks
        [("left", 11), ("right", 700), ("common", 9)],  # columns in several blocks
        [("right", 1300), ("common", 200), ("left", 9)],
        [("left", 2100), ("common", 5), ("right", 8)],  # rows in several blocks
        [("batch", 70), ("left", 9), ("right", 9), ("common", 9)],  # more batch indices than are listed
        [("left", 9), ("common", 9), ("batch", 40), ("right", 9)],
        [("left", 9), ("only a", 400), ("right", 9), ("only b", 300), ("common", 2)],
        [("left", 2100), ("right", 8), ("common", 5), ("batch", 3)],
    ],
)
def test_blocks(loops_: list[tuple[str, int]]) -> None:
    check(Contraction(loops_, 1, 0.1))


@pytest.mark.parametrize(
    "loops_",
    [
        [("left", 9), ("right", 10), ("left", 7), ("common", 40), ("batch", 11)],  # lanes: left and batch
        [("right", 12), ("left", 9), ("batch", 11), ("common", 100), ("right", 7)],  # batch and right
        [("right", 5), ("left", 30), ("common", 200), ("batch", 150)],  # lanes in several blocks
        [("batch", 3), ("left", 50), ("right", 100), ("common", 70), ("batch", 13)],  # columns and terms, too
        [("left", 40), ("right", 41), ("left", 11), ("common", 65), ("batch", 2), ("left", 5)],
        [("right", 15), ("batch", 5), ("left", 11), ("common", 30), ("only a", 7), ("batch", 12)],
    ],
)
def test_lanes_of_several_batch_indices(loops_: list[tuple[str, int]]) -> None:
    contraction = Contraction(loops_, 2, 0.2)
    check(contraction)
    if not any(group.startswith("only") for group, _ in loops_):
        np.testing.assert_array_equal(contraction.run(True), contraction.run(False))


def test_more_cells_of_one_input_than_are_listed_are_not_packed() -> None:
    """Their offsets would overwrite the scratch memory behind the list."""
    for alone, packed in [(panels.MOST_ALONE, 1), (panels.MOST_ALONE + 1, 0)]:
        strides = [[99, 512, 1, 0], [99, 8, 0, 1], [8, 0, 1, 1], [alone, 0, 0, 1]]  # left, right, common, only B
        assert _panels.is_packed(np.array(strides), len(strides)) == packed


@pytest.mark.parametrize(
    ("loops_", "packed"),
    [
        # extents and strides of the output, A and B: left, right, common, row
        ([[75, 20, 0, 50], [8, 160, 5, 0], [10, 0, 2, 5], [5, 1, 1, 1]], 1),  # a short row of batch indices
        ([[75, 200, 0, 50], [8, 25, 5, 0], [10, 0, 2, 5], [25, 1, 1, 1]], 1),  # a longer one with enough terms
        ([[6, 7, 0, 1], [200, 0, 7, 36], [7, 1, 1, 0]], 1),  # six columns
        ([[2, 7, 0, 1], [600, 0, 7, 36], [7, 1, 1, 0]], 0),  # two
        ([[6, 64, 0, 1], [200, 0, 64, 36], [64, 1, 1, 0]], 0),  # the row is long
        ([[3, 1600, 2000, 0], [4, 400, 0, 2000], [400, 1, 5, 5], [5, 0, 1, 1]], 0),  # many small products
        ([[3, 1600, 2000, 0], [4, 400, 0, 2000], [4, 1, 5, 5], [16, 0, 0, 7], [5, 0, 1, 1]], 0),  # too few terms
        ([[3, 1600, 2000, 0], [4, 400, 0, 2000], [8, 1, 5, 5], [16, 0, 0, 7], [5, 0, 1, 1]], 1),  # B is summed first
    ],
)
def test_which_contractions_are_packed(loops_: list[list[int]], packed: int) -> None:
    assert _panels.is_packed(np.array(loops_), len(loops_)) == packed


def test_terms_are_added_in_the_order_of_the_rows() -> None:
    """The bits are those of the loops over rows where the row is part of the output."""
    contraction = Contraction([("left", 20), ("common", 400), ("right", 21)], 3, 0.0)
    np.testing.assert_array_equal(contraction.run(True), contraction.run(False))
