"""Settings of all tests: hypothesis profiles, cache folders, the shared networks, the time that all tests took."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jtgpu.util import loops
from jtgpu.util.system import cores
from tests.support.emulated.install import emulated_gpu
from tests.support.examples import register_profiles
from tests.support.numba_lock import share_compilation

__all__ = ["ROOT", "SHARED", "emulated_gpu", "shared_nets"]

_STARTED = time.perf_counter()
ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "nets"

# No test reads or writes the user's own cache; processes that tests start inherit this one.
if "JTGPU_CACHE_DIR" not in os.environ:
    os.environ["JTGPU_CACHE_DIR"] = tempfile.mkdtemp(prefix="jtgpu-test-cache-")
    atexit.register(shutil.rmtree, os.environ["JTGPU_CACHE_DIR"], ignore_errors=True)
    # but compiled loops, which take minutes, stay for the next run
    LOOPS = ROOT / ".pytest_cache" / "loops"
    LOOPS.mkdir(parents=True, exist_ok=True)
    Path(os.environ["JTGPU_CACHE_DIR"], "loops").symlink_to(LOOPS)

# The parent process may ignore SIGINT (nohup, a shell's background), and child processes would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Test processes of pytest-xdist share what Numba compiles.
if "PYTEST_XDIST_WORKER" in os.environ:
    share_compilation()

register_profiles()


@pytest.fixture(autouse=True)
def _warnings_are_logged() -> None:
    """Every test: our loggers are on, although servers and linters of other tests configure logging for the process."""
    for logger in map(logging.getLogger, ("jtgpu", "jtgpu.serve")):
        logger.disabled, logger.propagate = False, True


@pytest.fixture(autouse=True)
def _signatures_are_declared() -> Iterator[None]:
    """Every test: compiled loops are called with the types of arguments that they declare."""
    before = len(loops.undeclared)
    yield
    assert loops.undeclared[before:] == []
    if "jtgpu.util.jit" in sys.modules:
        from jtgpu.util.jit import undeclared  # imports Numba

        assert undeclared() == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the modules of this folder, which has the longest tests, to the front: at the end no process waits."""
    items.sort(key=lambda item: item.path.parent != ROOT / "tests")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long all tests took."""
    n = sum(len(terminalreporter.getreports(outcome)) for outcome in ("passed", "failed", "xfailed", "xpassed"))
    seconds, workers = time.perf_counter() - _STARTED, terminalreporter.config.getoption("numprocesses", None) or 1
    terminalreporter.write_line(f"{n} tests in {seconds:.0f} s on {cores()} cores, {workers} processes")


@pytest.fixture(scope="session")
def shared_nets() -> Path:
    """The folder of shared networks next to the project; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("../shared/nets, the networks that may not be copied into the project, is absent")
    return SHARED
