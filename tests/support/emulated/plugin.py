"""A GPU played by the host: `pycuda.driver` and `cuda.bindings.driver` over host memory, kernels compiled by g++.

    python -m pytest -p tests.support.emulated.plugin tests/on_gpu/test_resident.py ...   the GPU tests on the played device
    python -m tests.support.emulated.plugin bench/bench_gpu.py ...                    a script on it

Everything of jtgpu above the two drivers is what runs on a card: contexts, memory, streams, events, graphs, launches
and their parameters, and the kernels themselves, block after block (`host_cuda.hpp`). The players are stricter
than CUDA where CUDA would let a mistake pass for a while:

- work that is queued runs as late as it may: when something waits for it. A copy or an answer that nobody waited for is
  not there yet; page-locked memory that is written too early has changed when the copy runs.
- device memory is full of rubbish at first and when it is given back, and has borders that are looked at then.
- parameters are as long as the kernel reads; copies lie inside of one allocation; nothing runs without a context.

What it does not show: the order of memory, time; blocks at the same time but where they wait for each other (flow.cu,
and lists.cu over a cluster, whose few lines of PTX are played, too: cluster.hpp). Variables of the environment:
JTGPU_PLAYED_CARDS (2), JTGPU_PLAYED_BYTES of a card (4 GiB), JTGPU_PLAYED_CAPABILITY (9.0),
JTGPU_PLAYED_MULTIPROCESSORS (2), JTGPU_PLAYED_ORDER: "late", "early", which is when it is queued,
or "mixed", where other streams get on when one is waited for.
"""

from __future__ import annotations

import runpy
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jtgpu.device import driver
from jtgpu.device import nvcc as kernels
from tests.support.emulated import drivers, host_cuda
from tests.support.emulated.built import library, names_of
from tests.support.emulated.cards import cards, counts, violations


def install() -> None:
    """From now on this process has GPUs."""
    cuda, pycuda = types.ModuleType("cuda"), types.ModuleType("pycuda")
    bindings = types.ModuleType("cuda.bindings")
    made: dict[str, Any] = {
        "pycuda": pycuda, "pycuda.driver": drivers.pycuda_driver(), "cuda": cuda, "cuda.bindings": bindings,
        "cuda.bindings.driver": drivers.bindings_driver(), "skcuda": types.ModuleType("skcuda"),
        "skcuda.cublas": drivers.cublas(),
    }  # fmt: skip
    pycuda.driver, cuda.bindings = made["pycuda.driver"], bindings  # type: ignore[attr-defined]
    bindings.driver = made["cuda.bindings.driver"]  # type: ignore[attr-defined]
    made["skcuda"].cublas = made["skcuda.cublas"]
    for module in (pycuda, cuda, bindings, made["skcuda"]):
        module.__path__ = []
    sys.modules.update(made)
    kernels.compiled = compiled
    kernels.find_nvcc = host_cuda.compiler  # type: ignore[assignment]
    driver._launch_call = lambda: drivers.launch_kernel_ex  # type: ignore[assignment]
    first = driver.Arguments.__init__

    def known(self: driver.Arguments, *values: Any) -> None:
        first(self, *values)
        drivers.remember(self)

    driver.Arguments.__init__ = known  # type: ignore[method-assign]


def compiled(name: str, text: str, arch: str, *, cache: Path | None = None) -> bytes:
    """In place of nvcc: the source, which a module builds when it is loaded, and at once if it is written for one plan
    (several at the same time)."""
    if name in ("single/shaped", "batch/lane"):
        library(text, names_of(text))
    return b"played\n" + text.encode()


def pytest_configure(config: pytest.Config) -> None:
    """``-p tests.support.emulated.plugin``."""
    install()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test in which CUDA would have let a mistake pass fails."""
    violations.clear()
    yield
    for card in cards():
        for block in card.memory.values():
            block.look()
    if violations:
        found, n = sorted(set(violations)), len(violations)
        violations.clear()
        pytest.fail(f"{n} mistakes:\n" + "\n".join(found))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was played."""
    told = "played GPU: {launches} kernels queued, {graphs} graphs, {seconds:.1f} s in kernels, {built:.1f} s of g++"
    terminalreporter.write_line(told.format(**counts))
    for card in cards():
        if card.memory:
            terminalreporter.write_line(f"device {card.ordinal}: {len(card.memory)} pieces of memory never given back")


def main() -> None:
    """Run a script on the played device."""
    install()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    from tests.support.emulated import plugin as host_device

    host_device.main()
