"""The published times of ``durbin``, and those of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import BackendUnavailable
from ...util.options import EngineName
from ...util.text_table import format_table
from ..toeplitz import levinson
from . import VERSIONS, durbin32
from .gpu import KERNELS

# (N, version) -> seconds; the CUDA version with its copies and allocations. Hardware unknown, float
PUBLISHED = {
    (100, "sequential"): 0.00005, (1000, "sequential"): 0.01169, (10_000, "sequential"): 4.41561,
    (15_000, "sequential"): 38.55401, (100, "reworked"): 0.00004, (1000, "reworked"): 0.00267,
    (10_000, "reworked"): 0.29813, (15_000, "reworked"): 0.73846, (10_000, "cuda"): 0.762,
}  # fmt: skip
TODAY: dict[str, EngineName] = {"levinson": "cpu", "levinson, gpu": "gpu"}  # what solves the system, and where
WORST = 4000  # N from which "sequential", with its matrices, is left out


class Times(NamedTuple):
    """Seconds of one version."""

    n: int
    version: str
    seconds: float  # wall time, the least of several runs, after one that is not counted


def measure(sizes: Sequence[int], runs: int, progress: Callable[[str], object]) -> list[Times]:
    """Time every version; those of the GPU are left out where there is none."""
    # progress: Called with a line of text for each version
    found = []
    missing: set[str] = set()
    for n in sizes:
        r = np.random.default_rng(n).uniform(-1, 1, n) / np.sqrt(n) / 2
        c = np.concatenate([[1.0], r[:-1] / 2])
        for version in (*VERSIONS, *TODAY):
            if (version == "sequential" and n > WORST) or version in missing:
                continue
            progress(f"N = {n:,}, {version}")
            try:
                found.append(Times(n, version, min(_run(version, r, c) for _ in range(runs + 1))))
            except BackendUnavailable:
                missing |= {*KERNELS, "levinson, gpu"}
    return found


def _run(version: str, r: NDArray[np.float64], c: NDArray[np.float64]) -> float:
    start = time.perf_counter()
    if version in TODAY:
        levinson(c, backend=TODAY[version])
    else:
        durbin32(r, version)
    return time.perf_counter() - start


def report(found: Sequence[Times]) -> str:
    """A table: published milliseconds and those of this machine."""
    columns = [
        [f"{t.n:,}" for t in found], [t.version for t in found],
        [_published(t) for t in found], [t.seconds * 1e3 for t in found],
    ]  # fmt: skip
    return format_table(("N", "version", "published, ms", "here, ms"), columns, fixed=2, max_rows=None, digits=3)


def _published(t: Times) -> float | None:
    seconds = PUBLISHED.get((t.n, t.version))
    return None if seconds is None else seconds * 1e3
