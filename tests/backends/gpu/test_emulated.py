"""The GPU tests themselves on a GPU that the host plays (`tests.support.emulated.plugin`), and what that player notices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.support.emulated import cards, host_cuda
from tests.support.examples import slow

pytestmark = pytest.mark.skipif(host_cuda.compiler() is None, reason="there is no g++ to build the kernels with")

# Quick ones of every file: engines, tables, several cards, full cards, threads, patterns, streams of others, float32.
CHOSEN = {
    "resident": "(small_networks and (asia or child or insurance)) or (test_batches and asia) or threads_share"
    " or too_small or out_of_memory",
    "flow": "(small_networks and (asia or alarm)) or refused or scaled or kept",
    "batch": "(made_networks and (1 or 2 or 3)) or (networks and alarm) or chunks or no_table or users_call",
    "devices": "(bits and asia) or ctrl_c or single_cases or not_there or (slices and [0])",
    "slabs": "(networks and (alarm or insurance)) or made_networks or small or raised or pays",
    "patterns": "gives_all_back or patterns_and_threads or streams_of_others",
    "precision": "(small_networks and alarm) or far_below or loses or impossible",
    "sharing": "full_at_any_step or says_so",
}


@pytest.mark.parametrize("name", ["sharing", *slow(*(n for n in CHOSEN if n != "sharing"))])
def test_the_gpu_tests(name: str) -> None:
    command = ["-m", "pytest", "-p", "tests.support.emulated.plugin", "-p", "no:cacheprovider", "-q", "-k", CHOSEN[name]]
    order = "mixed" if name in ("batch", "devices") else "late"  # where several streams have work, and where one has
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JTGPU_EMULATED_ORDER": order}
    done = subprocess.run(
        [sys.executable, *command, f"tests/on_gpu/test_{name}.py"], cwd=ROOT, env=environment, capture_output=True,
        text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout


INTERRUPTED = """
import numpy as np, pytest, jtgpu
import pytest
from tests.support.emulated import install
install.install(pytest.MonkeyPatch())
from jtgpu.plans import compiler
from jtgpu.backends import gpu
from jtgpu.backends.deal import Deal
from jtgpu.backends.gpu import batch
from tests.support.emulated import cards
batch.LARGE = 64
net = jtgpu.read("nets/asia.net")
plan, tables = net.plan("min-fill", cache=False).plan, [f.table for f in compiler.model_factors(net)]
backend = gpu.prepare(plan, tables, single=False)
states = np.random.default_rng(1).integers(-1, 2, (1000, len(net)), np.int32)
expected = backend.run_batch(states).posterior
take, asked = Deal.take, []
def interrupted(self, *arguments):
    asked.append(1)
    if len(asked) == 3:
        raise KeyboardInterrupt
    return take(self, *arguments)
Deal.take = interrupted
with pytest.raises(KeyboardInterrupt):
    backend.run_batch(states)
assert len(asked) == 3 and not any(s.waiting for s in cards.Stream.all), "chunks are on their way still"
np.testing.assert_array_equal(backend.run_batch(states).posterior, expected)
backend.close()
"""


def test_a_table_that_is_interrupted_leaves_nothing_on_its_way() -> None:
    """The next one has the same scratch memory, on another stream."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


# What it notices ------------------------------------------------------------------------------------------------


@pytest.fixture
def card() -> Iterator[cards.Card]:
    """A card of its own, current."""
    made = cards.Card(0)
    made.context.push()
    cards.violations.clear()
    yield made
    cards.violations.clear()
    made.context.pop()


@pytest.mark.skipif(cards.ORDER != "late", reason="work runs earlier")
def test_work_runs_when_somebody_waits_for_it(card: cards.Card) -> None:
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


def test_what_a_card_would_not_say(card: cards.Card) -> None:
    memory = cards.mem_alloc(80)
    found = np.zeros(10)
    cards.memcpy_dtoh_async(found, int(memory))
    assert (found.view(np.uint8) == cards.POISON).all()  # nobody wrote it
    memory.block.raw[cards.BORDER + 80] = 0
    memory.free()
    assert cards.violations == ["something was written outside of 80 bytes of memory"]
    with pytest.raises(cards.EmulatedLogicError, match="not of device"):
        cards.memcpy_htod_async(int(memory), found)
    with pytest.raises(cards.EmulatedMemoryError):
        cards.mem_alloc(cards.BYTES + 1)
    card.context.pop()
    with pytest.raises(cards.EmulatedLogicError, match="no context"):
        cards.mem_alloc(80)
    card.context.push()

