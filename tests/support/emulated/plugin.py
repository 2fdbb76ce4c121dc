"""Emulated GPUs for a whole process: run the GPU tests, or a script, on a machine without a GPU.

    python -m pytest -p tests.support.emulated.plugin tests/on_gpu/test_single.py      tests
    python -m tests.support.emulated.plugin bench/bench_gpu.py --only asia --smoke     a script

Everything of jtgpu above `pycuda.driver` and `cuda.bindings.driver` runs as on a GPU: contexts, memory, streams,
events, graphs, launches and their parameters, and the kernels themselves, which g++ compiles and which run block after
block in host memory (`host_cuda.hpp`). The emulation is stricter than CUDA:

- Queued work runs as late as possible: when something waits for it. A copy or an answer that nothing waited for has not
  arrived yet; if page-locked memory is overwritten too early, the copy transfers the new contents.
- Device memory is filled with poison when it is allocated and when it is freed, and has guard bytes at both ends.
- Parameters must have the size that the kernel reads, copies must stay within one allocation, and every call needs a
  current context.

It shows nothing about memory ordering or time. Blocks run at the same time only in kernels whose blocks wait for each
other (dataflow.cu).

Environment: JTGPU_EMULATED_CARDS (2), JTGPU_EMULATED_BYTES of each (4 GiB), JTGPU_EMULATED_CAPABILITY (9.0),
JTGPU_EMULATED_MULTIPROCESSORS (2), JTGPU_EMULATED_ORDER: "late"; "early", when work is queued; or "mixed", which also
advances other streams. JTGPU_EMULATED_THREADS: how threads run between two barriers (0: in order; host_cuda.hpp).
JTGPU_EMULATED_KERNELS: the folder of compiled kernels (.pytest_cache/emulated-kernels).
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.emulated import install
from tests.support.emulated.cards import cards, counts, violations


def pytest_configure(config: pytest.Config) -> None:
    """Start with ``-p tests.support.emulated.plugin``."""
    install.install(pytest.MonkeyPatch())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test in which CUDA would have let a mistake pass."""
    violations.clear()
    yield
    install.raise_violations()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what ran on the emulated GPUs."""
    line = "emulated GPU: {launches} kernels queued, {graphs} graphs, {seconds:.1f} s in kernels, {built:.1f} s of g++"
    terminalreporter.write_line(line.format(**counts))
    for card in cards():
        if card.memory:
            terminalreporter.write_line(f"device {card.ordinal}: {len(card.memory)} allocations leaked")


def main() -> None:
    """Run a script on emulated GPUs."""
    install.install(pytest.MonkeyPatch())
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
