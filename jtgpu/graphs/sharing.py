"""Groups of batches, shared by the workers of a cluster."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from ..util import doors
from . import cpu, gpu
from .layout import Group, Layout, runs
from .records import Sums

RUNS = 4  # tasks for each worker without a GPU


def group_sums(
    cluster: Any, layout: Layout, *, backend: str, edges: bool, endpoints: bool
) -> Iterator[tuple[Group, Sums]]:
    """The sums of each group, in order; bit-identical on any cluster."""
    # backend: {"cpu", "gpu"}
    # edges, endpoints: See `jtgpu.graphs.cpu.group_sums`
    on_gpu = backend == "gpu"
    shared = layout, on_gpu, {"edges": edges, "endpoints": endpoints}
    results = doors.cluster().run_tasks(
        cluster, _sums_of_run, shared, lambda n: runs(layout.groups, n * (1 if on_gpu else RUNS)), backend
    )
    groups = iter(layout.groups)
    for found in results:
        for out in found:
            yield next(groups), out


def _sums_of_run(shared: Any, groups: Sequence[Group], threads: int) -> list[Sums]:
    """The task of a worker."""
    layout, on_gpu, options = copy.deepcopy(shared)  # compiled loops do not take read-only arrays
    if on_gpu:
        return [out for _, out in gpu.group_sums(layout, groups, gpu.numbers_of(None), **options)]
    return [out for _, out in cpu.group_sums(layout, [*groups], threads=threads, **options)]
