"""Systems are independent: large batches are divided between threads, without effect on any bit of the results."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from ..errors import ArgumentError
from ..util.arguments import choice, whole_number
from ..util.options import EngineName
from ..util.system import cores

BACKENDS = ("auto", "cpu", "gpu", "reference")
ENOUGH = 4_000_000  # multiplications, some milliseconds, that pay for a thread


def resolve_backend(name: EngineName, *, on_device: bool = False, has_gpu: bool = True) -> EngineName:
    """The backend that computes."""
    # on_device: Whether the input is in a GPU's memory. ``"auto"`` is the GPU then, and the CPU otherwise: for systems
    #     of the host, copies take longer than the CPU's work, unless a single one is very long.
    # has_gpu: Whether the function runs on GPUs, too
    choice("backend", name, BACKENDS if has_gpu else [b for b in BACKENDS if b != "gpu"])
    if name == "auto":
        return "gpu" if on_device else "cpu"
    if on_device and name != "gpu":
        raise ArgumentError(f"the array is in a GPU's memory; use backend='gpu', or copy it to the host for {name!r}")
    return name


def on_threads(work: Callable[[slice], object], n: int, cost: float, threads: int | None) -> None:
    """Call `work` with slices that cover n systems, each of which takes `cost` multiplications."""
    if threads is not None:
        whole_number("threads", threads, 1)
    n_threads = min(n, int(n * cost / ENOUGH))
    if n_threads > 1:
        n_threads = min(n_threads, threads or cores())
    if n_threads <= 1:
        work(slice(0, n))
        return
    bounds = [n * i // n_threads for i in range(n_threads + 1)]
    with ThreadPoolExecutor(n_threads, "jtgpu-series") as pool:
        for done in [pool.submit(work, slice(*pair)) for pair in pairwise(bounds)]:
            done.result()
