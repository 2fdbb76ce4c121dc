"""Settings of all tests: seeded hypothesis, and where the shared networks lie."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "nets"

# No test reads or writes the user's own cache; processes that tests start inherit this one.
if "JTGPU_CACHE_DIR" not in os.environ:
    os.environ["JTGPU_CACHE_DIR"] = tempfile.mkdtemp(prefix="jtgpu-test-cache-")
    atexit.register(shutil.rmtree, os.environ["JTGPU_CACHE_DIR"], ignore_errors=True)

# Who starts the tests may have SIGINT ignored (nohup, a shell's background), and so would all that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "jtgpu",
    derandomize=True,  # the same examples in every run; a failure prints the example itself
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("jtgpu")


@pytest.fixture(scope="session")
def shared_nets() -> Path:
    """The folder of shared networks beside the project; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("../shared/nets is not here: the networks that may not be copied into the project")
    return SHARED
