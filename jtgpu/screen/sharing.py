"""Screening on a cluster: each worker has all rows, and searches a part of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..util import doors
from .table import Progress, Screened, Top, check_finite
from .workers import Target

if TYPE_CHECKING:
    from numpy.typing import NDArray

Part = tuple[int, int]


def top_on(cluster: Any, screened: Screened, n: int, progress: Progress | None = None) -> tuple[Top, dict[str, int]]:
    top, searched, pairs, n_done = Top.of(n), 0, 0, 0
    for (found, stats), n_parts in _results(cluster, screened, _top_of_part, n):
        top.add(found.weight, found.index)
        searched, pairs, n_done = searched + stats["searched"], pairs + stats["pairs"], n_done + 1
        if progress is not None:
            progress(len(screened.rows) * n_done // n_parts, len(screened.rows), "outliers")
    check_finite(top.weight)
    return top, {"rows": len(screened.rows), "different": stats["different"], "searched": searched, "pairs": pairs}


def weights_on(cluster: Any, screened: Screened, progress: Progress | None = None) -> tuple[NDArray[np.float64], int]:
    kinds, pairs, n_done = screened.kinds[1], 0, 0
    found = np.empty(len(screened.kinds[0]))
    for (items, weights, more), n_parts in _results(cluster, screened, _weights_of_part, None):
        found[items] = weights
        pairs, n_done = pairs + more, n_done + 1
        if progress is not None:
            progress(len(kinds) * n_done // n_parts, len(kinds), "weights")
    return found[kinds], pairs


def _results(cluster: Any, screened: Screened, work: Any, more: Any) -> Any:
    """The result of each part, and the number of parts."""
    parts: list[Part] = []

    def divide(n_workers: int) -> list[Part]:
        n = max(min(n_workers, len(screened.kinds[0])), 1)
        parts.extend((i, n) for i in range(n))
        return parts

    shared = replace(screened), more
    for found in doors.cluster().run_tasks(cluster, work, shared, divide, screened.target.backend):
        yield found, len(parts)


def _on_worker(screened: Screened, threads: int) -> Screened:
    devices = (0,) if screened.target.backend == "gpu" else ()  # a worker sees its own GPU only
    return replace(screened, target=Target(screened.target.backend, threads, devices))


def _top_of_part(shared: tuple[Screened, int], part: Part, threads: int) -> tuple[Top, dict[str, int]]:
    """The task of a worker."""
    screened, n = shared
    return _on_worker(screened, threads).top(n, None, *part)


def _weights_of_part(shared: tuple[Screened, None], part: Part, threads: int) -> Any:
    """The task of a worker."""
    return _on_worker(shared[0], threads).weights_of_part(*part)
