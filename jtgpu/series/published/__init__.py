"""PolyBench's ``durbin`` in the versions that Bianco, Burchiellaro and Uguzzoni published, for comparison.

The recurrence is PolyBench 3.2's. It is not a solver of Toeplitz systems: it multiplies by ``beta`` where Durbin's
algorithm divides, and starts with ``+r[0]``. Use `jtgpu.series.levinson` and `jtgpu.series.solve_toeplitz` to solve.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import TableTooLarge, format_bytes
from ...util.arguments import choice, whole_number
from ...util.loops import loops
from ...util.system import cores, free_memory
from ..inputs import as_floats, as_rows
from .gpu import KERNELS, durbin_on_gpu

if TYPE_CHECKING:
    from numpy.typing import NDArray

_durbin = loops("jtgpu.series.loops.durbin")

__all__ = ["VERSIONS", "durbin32"]

VERSIONS = ("sequential", "reworked", "openmp", *KERNELS)
BLOCK = 512  # products that are added before the sums of blocks are; independent of the number of threads


def durbin32(r: Any, version: str = "reworked", *, threads: int | None = None) -> NDArray[np.float64]:
    """The recurrence of PolyBench's ``durbin``.

    ``y[0] = r[0]; beta = 1; alpha = r[0]``, and for k = 1..N-1: ``beta -= alpha**2 beta``, ``sum = r[k] + sum_{i<k}
    r[k-1-i] y[i]``, ``alpha = -sum beta``, ``y'[i] = y[i] + alpha y[k-1-i]``, ``y'[k] = alpha``.

    Parameters
    ----------
    r : (N,) array
    version : {"reworked", "sequential", "openmp", "cuda", "cuda-warp", "cuda-paired"}
        ``"sequential"``: PolyBench's, with matrices of N x N that are read by columns. ``"reworked"``: two rows.
        ``"openmp"``: two rows, the inner loops divided between threads; sums are added in a fixed order, so results do
        not depend on the number of threads. ``"cuda"``: two kernels a step. ``"cuda-warp"`` and ``"cuda-paired"``: what
        the authors propose, sums by warps, and also each entry read once for two updates. The published versions'
        races, their atomic additions in any order and the wrong row for odd N are fixed.
    threads : int, optional
        For ``"openmp"``. Default: one for each core.

    Returns
    -------
    (N,) ndarray of float64

    Raises
    ------
    TableTooLarge
        If the matrices of ``"sequential"`` exceed the free memory.
    BackendUnavailable
        If the CUDA versions find no GPU.
    """
    choice("version", version, VERSIONS)
    values: NDArray[np.float64] = as_rows(as_floats("r", r).reshape(1, -1))[0]
    n = len(values)
    out: NDArray[np.float64] = np.empty(n)
    if not n:
        return out
    if version == "sequential":
        needed = (2 * n + 1) * n * values.itemsize
        if needed > free_memory():
            raise TableTooLarge(
                f"the matrices of version='sequential' take {format_bytes(needed)} for {n:,} numbers; use 'reworked'",
                n * n, needed, free_memory(),
            )  # fmt: skip
        _durbin.sequential(values, np.empty((n, n)), np.empty((n + 1, n)), out)
    elif version == "reworked":
        _durbin.reworked(values, np.empty((2, n)), out)
    elif version in KERNELS:
        return durbin_on_gpu(values, version)
    else:
        _on_threads(values, out, cores() if threads is None else whole_number("threads", threads, 1))
    return out


def _on_threads(r: NDArray[np.float64], out: NDArray[np.float64], n_threads: int) -> None:
    """Version ``"openmp"``."""
    n = len(r)
    rows, sums = np.empty((2, n)), np.empty(-(-n // BLOCK))
    states = np.empty((n_threads, 2))
    states[:] = r[0], 1
    rows[0, 0] = r[0]
    arrived = np.zeros(1, np.int64)

    def work(thread: int) -> None:
        phase = 0
        while phase < 2 * (n - 1):
            phase = _durbin.run_phases(r, rows, sums, states[thread], arrived, BLOCK, thread, n_threads, phase)
            time.sleep(0)  # after long waiting: there are more threads than idle cores

    others = [threading.Thread(target=work, args=(t,), name="jtgpu-durbin") for t in range(1, n_threads)]
    for other in others:
        other.start()
    work(0)
    for other in others:
        other.join()
    out[:] = rows[(n - 1) % 2]
