"""The emulated GPU (`tests.support.emulated`): the GPU tests on it, and the mistakes that it notices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.support.emulated import cards
from tests.support.emulated.install import needs_compiler
from tests.support.examples import slow

pytestmark = needs_compiler

# Tests of every file that take little time: -k expressions.
CHOSEN = {
    "single": "(small_networks and (asia or child or insurance)) or (test_batches and asia) or threads_share"
    " or out_of_memory or reloaded",
    "dataflow": "(small_networks and (asia or alarm)) or unsupported or improbable or saved",
    "batch": "(made_networks and (1 or 2 or 3)) or (networks and alarm) or chunks or no_table or users_call",
    "devices": "(bits and asia) or ctrl_c or single_cases or not_there or (slices and [0])",
    "patterns": "gives_all_back or patterns_and_threads or streams_of_others or not_quicker",
    "sharing": "full_at_any_step or reports",
}


@pytest.mark.parametrize("name", slow(*CHOSEN))
def test_the_gpu_tests(name: str) -> None:
    command = ["-m", "pytest", "-p", "tests.support.emulated.plugin", "-p", "no:cacheprovider", "-q"]
    order = "mixed" if name in ("batch", "devices") else "late"  # where several streams have work, and where one has
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JTGPU_EMULATED_ORDER": order}
    done = subprocess.run(
        [sys.executable, *command, "-k", CHOSEN[name], f"tests/on_gpu/test_{name}.py"],
        cwd=ROOT, env=environment, capture_output=True,
        text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout


# What it notices ------------------------------------------------------------------------------------------------


@pytest.fixture
def card() -> Iterator[cards.Card]:
    """A device of its own, whose context is current."""
    made = cards.Card(0)
    made.context.push()
    cards.violations.clear()
    yield made
    cards.violations.clear()
    made.context.pop()


@pytest.mark.skipif(cards.ORDER != "late", reason="work runs earlier")
def test_work_runs_when_something_waits_for_it(card: cards.Card) -> None:
    stream, other = cards.Stream(), cards.Stream()
    memory, given = cards.mem_alloc(80), cards.pagelocked_empty(10, np.float64)
    answer = cards.pagelocked_empty(10, np.float64)
    given[:], answer[:] = 1.0, 0.0
    cards.memcpy_htod_async(int(memory), given, stream)
    event = cards.Event().record(stream)
    other.wait_for_event(event)
    cards.memcpy_dtoh_async(answer, int(memory), other)
    given[:] = 2.0  # too early
    assert not answer.any()
    assert not event.query()
    other.synchronize()
    assert event.query()
    assert (answer == 2.0).all()
    memory.free()
    for array in (given, answer):
        array.base.free()
    assert not cards.violations


def test_mistakes_that_cuda_would_let_pass(card: cards.Card) -> None:
    memory = cards.mem_alloc(80)
    found = np.zeros(10)
    cards.memcpy_dtoh_async(found, int(memory))
    assert (found.view(np.uint8) == cards.POISON).all()  # never written
    memory.block.raw[cards.BORDER + 80] = 0
    memory.free()
    assert cards.violations == ["something was written outside of 80 bytes of memory"]
    with pytest.raises(cards.EmulatedLogicError, match="not memory of device"):
        cards.memcpy_htod_async(int(memory), found)
    with pytest.raises(cards.EmulatedMemoryError):
        cards.mem_alloc(cards.BYTES + 1)
    card.context.pop()
    with pytest.raises(cards.EmulatedLogicError, match="no context"):
        cards.mem_alloc(80)
    card.context.push()

