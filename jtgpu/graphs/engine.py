"""Sums of the dependencies of all sources: which backend computes the groups of batches, and their sum in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, BackendUnavailable
from ..util.system import cores
from . import cpu, gpu, reference, sharing
from .layout import Group, Layout, divide
from .records import LANES
from .trees import RawSums, with_trees

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .arcs import Arcs
    from .records import Sums

__all__ = ["BACKENDS", "RATE", "Progress", "Running", "dependencies"]

BACKENDS = ("auto", "cpu", "gpu", "reference")
RATE = 1e8  # sources times arcs that a core does in a second
GPU_RATE, GPU_START = 1e10, 1.0  # the same for a GPU, and the seconds until it starts
Progress = Callable[[int, int, str], object]  # done, total, what


class Running(NamedTuple):
    """What computes, and where; see `jtgpu.graphs.betweenness`."""

    backend: str = "auto"
    threads: int | None = None
    devices: Any = None
    cluster: Any = None
    progress: Progress | None = None


def dependencies(
    arcs: Arcs, chosen: NDArray[np.float64], *, edges: bool, endpoints: bool, running: Running
) -> RawSums:  # fmt: skip
    """Sum the shortest paths through every vertex, or every edge.

    Parameters
    ----------
    arcs : Arcs
    chosen : (n,) ndarray of float64
        1 for sources, else 0. All vertices are targets.
    edges : bool
        Sum paths through edges, too.
    endpoints : bool
        Count the ends of a path.
    running : Running

    Raises
    ------
    BackendUnavailable
        If there is no GPU, and one is requested.
    TableTooLarge
        If the memory of one thread, or of one block of a GPU, is not available.
    """
    if running.devices is not None and running.cluster is not None:
        raise ArgumentError("devices are GPUs of this machine; a cluster's workers have one each")
    if running.backend == "reference":
        return reference.dependencies(arcs, chosen, edges=edges, endpoints=endpoints)
    numbers = _devices(arcs, chosen, running)
    layout = divide(arcs, chosen, edges, *((gpu.LANES, gpu.CHUNKS) if numbers else (LANES, cpu.GROUPS)))
    options = {"edges": edges, "endpoints": endpoints and arcs.directed}
    results: Iterator[tuple[Group, Sums]]
    if running.cluster is not None:
        results = sharing.group_sums(running.cluster, layout, backend="gpu" if numbers else "cpu", **options)
    elif numbers:
        results = gpu.group_sums(layout, layout.groups, numbers, **options)
    else:
        results = cpu.group_sums(layout, layout.groups, threads=running.threads, **options)
    raw = _add_in_order(results, layout, edges, running.progress)
    return with_trees(arcs, layout, chosen, raw, edges=edges, endpoints=endpoints)


def _devices(arcs: Arcs, chosen: NDArray[np.float64], running: Running) -> list[int]:
    """The GPUs to use; none for the CPU."""
    if running.devices is not None and running.backend == "cpu":
        raise ArgumentError("devices are GPUs, which backend='cpu' does not use")
    if running.backend == "cpu" or (running.cluster is not None and running.backend != "gpu"):
        return []
    wanted = running.backend == "gpu" or running.devices is not None
    reason = gpu.reason_against(arcs)
    if reason:
        if wanted:
            logging.getLogger("jtgpu").warning("betweenness runs on the CPU: %s", reason)
        return []
    if not wanted:
        work = float(chosen.sum()) * len(arcs.head)
        if work / (RATE * (running.threads or cores())) < GPU_START + work / GPU_RATE:
            return []
    if running.cluster is not None:
        return [0]  # a worker's own
    try:
        return gpu.numbers_of(running.devices)
    except BackendUnavailable:
        if wanted:
            raise
        return []


def _add_in_order(
    results: Iterator[tuple[Group, Sums]], layout: Layout, edges: bool, progress: Progress | None
) -> RawSums:
    node, edge = np.zeros(len(layout.graph.reach)), np.zeros(len(layout.graph.head) if edges else 0)
    done, total = 0, len(layout.sources)
    for group, out in results:
        node[group.vertices] += out.node
        if edges:
            edge[group.arcs] += out.edge
        done += group.n_sources
        if progress is not None:
            progress(done, total, f"{done:,} of {total:,} sources")
    return RawSums(node, edge)
