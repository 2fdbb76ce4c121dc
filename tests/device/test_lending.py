"""Answers in page-locked memory (`jtgpu.device.lending`), on the emulated GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from jtgpu.device.context import Device
from jtgpu.device.lending import AT_ONCE, IDLE, LEAST, MOST, Lender
from tests.support.emulated.install import needs_compiler

pytestmark = needs_compiler
CELLS = LEAST // 8


@pytest.fixture
def lender(emulated_gpu: Device) -> Iterator[Lender]:
    made = Lender(emulated_gpu.pinned, emulated_gpu.unpin)
    with emulated_gpu.active():
        yield made
        gc.collect()
        made.close()


def taken(lender: Lender, cells: int = CELLS) -> NDArray[np.float64]:
    lent = lender.lend(cells)
    assert lent is not None
    return lent


def address(lent: NDArray[np.float64]) -> int:
    return int(lent.__array_interface__["data"][0])


def test_memory_comes_back_with_the_last_view(lender: Lender) -> None:
    lent = taken(lender)
    first, view = address(lent), lent.reshape(-1, 8)[3:, 1][::2]
    view[:] = 5.0
    del lent
    other = taken(lender)
    assert address(other) != first  # a view of a view of it is left
    other[:] = 7.0
    assert (view == 5.0).all()
    del view
    assert address(taken(lender)) == first


def test_who_keeps_all_answers_gets_ordinary_memory(lender: Lender) -> None:
    kept = [taken(lender) for _ in range(AT_ONCE)]
    assert lender.lend(CELLS) is None
    kept.pop()
    assert lender.lend(CELLS) is not None


def test_a_loop_needs_no_new_memory(lender: Lender) -> None:
    seen: set[int] = set()
    answer = None
    for _ in range(10):
        answer = taken(lender)  # the one before is dropped when this one is there
        seen.add(address(answer))
    assert len(seen) == AT_ONCE


def test_few_arrays_wait_for_the_next_call(
    lender: Lender, emulated_gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[int] = []

    def counted(array: NDArray[np.float64]) -> None:
        freed.append(len(array))
        emulated_gpu.unpin(array)

    monkeypatch.setattr(lender, "_unpin", counted)
    sizes = [CELLS * 3**n for n in range(3)]  # none is large enough for the next one
    first = [address(taken(lender, n)) for n in sizes]
    assert IDLE == 2
    again = [address(taken(lender, n)) for n in sizes[1:]]
    assert again == first[1:]
    assert freed == [sizes[0]]


@pytest.mark.parametrize("cells", [1, CELLS - 1, MOST // 8 + 1])
def test_small_and_huge_answers_are_not_lent(lender: Lender, cells: int) -> None:
    assert lender.lend(cells) is None


def test_what_is_lent_outlives_the_lender(emulated_gpu: Device) -> None:
    with emulated_gpu.active():
        made = Lender(emulated_gpu.pinned, emulated_gpu.unpin)
        lent = taken(made)
        made.close()
    lent[:] = 3.0
    assert lent.sum() == 3.0 * CELLS
    del lent
    with emulated_gpu.active():
        made.close()
