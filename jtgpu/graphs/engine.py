"""Sums of the dependencies of all sources: which backend computes the groups of batches, and their sum in order."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ..errors import ArgumentError, BackendUnavailable, TableTooLarge
from ..util import late_imports
from ..util.arguments import callback, choice, whole_number
from ..util.system import cores
from . import cpu, gpu, reference
from .layout import Group, Layout, RawSums, divide, runs, with_trees
from .records import LANES, Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .inputs import Arcs

# Groups of batches, shared by the workers of a cluster.

RUNS = 4  # tasks for each worker without a GPU


def group_sums(
    cluster: Any, layout: Layout, *, backend: str, edges: bool, endpoints: bool
) -> Iterator[tuple[Group, Sums]]:
    """The sums of each group, in order; bit-identical on any cluster."""
    # backend: {"cpu", "gpu"}
    # edges, endpoints: See `jtgpu.graphs.cpu.group_sums`
    on_gpu = backend == "gpu"
    shared = layout, on_gpu, {"edges": edges, "endpoints": endpoints}
    results = late_imports.cluster().run_tasks(
        cluster, _sums_of_run, shared, lambda n: runs(layout.groups, n * (1 if on_gpu else RUNS)), backend
    )
    groups = iter(layout.groups)
    for result in results:
        for out in result:
            yield next(groups), out


def _sums_of_run(shared: Any, groups: Sequence[Group], threads: int) -> list[Sums]:
    """The task of a worker."""
    layout, on_gpu, options = copy.deepcopy(shared)  # compiled loops do not take read-only arrays
    if on_gpu:
        return [out for _, out in gpu.group_sums(layout, groups, gpu.numbers_of(None), **options)]
    return [out for _, out in cpu.group_sums(layout, [*groups], threads=threads, **options)]


BACKENDS = ("auto", "cpu", "gpu", "reference")
RATE = 1e8  # sources times arcs that a core does in a second
GPU_RATE, GPU_START = 2e10, 1.0  # the same for an H100, and the seconds until it starts
Progress = Callable[[int, int, str], object]  # done, total, what


class Running(NamedTuple):
    """Engine, devices and threads of one run; see `jtgpu.graphs.betweenness`."""

    backend: str = "auto"
    threads: int | None = None
    devices: Any = None
    cluster: Any = None
    progress: Progress | None = None

    @classmethod
    def checked(cls, backend: str, threads: int | None, devices: Any, cluster: Any, progress: Progress | None) -> Self:
        """The options, if they are of the right types."""
        choice("backend", backend, BACKENDS)
        if threads is not None:
            whole_number("threads", threads, 1)
        callback("progress", progress)
        return cls(backend, threads, devices, cluster, progress)


def dependencies(
    arcs: Arcs, chosen: NDArray[np.float64], *, edges: bool, endpoints: bool, running: Running
) -> RawSums:  # fmt: skip
    """Sum the shortest paths through every vertex, or every edge."""
    # chosen: (n,) ndarray of float64: 1 for sources, else 0. All vertices are targets.
    # edges: Sum paths through edges, too
    # endpoints: Count the ends of a path
    # raises BackendUnavailable: If there is no GPU, and one is requested.
    # raises TableTooLarge: If the memory of one thread, or of one block of a GPU, is not available.
    if running.devices is not None and running.cluster is not None:
        raise ArgumentError("devices are GPUs of this machine; a cluster's workers have one each")
    if running.devices is not None and running.backend in ("cpu", "reference"):
        raise ArgumentError(f"devices are GPUs, which backend={running.backend!r} does not use")
    if running.backend == "reference":
        return reference.dependencies(arcs, chosen, edges=edges, endpoints=endpoints)
    task = _Task(arcs, chosen, edges, endpoints)
    numbers = _devices(task, running)
    if not _is_optional(running):
        return task.run(running, numbers)
    try:
        return task.run(running, numbers)
    except (BackendUnavailable, TableTooLarge) as error:
        if not numbers:
            raise
        logging.getLogger("jtgpu").warning('backend="auto" uses the CPU, since the GPU failed: %s', error)
        return task.run(running, [])


class _Task(NamedTuple):
    """One computation; see `dependencies`."""

    arcs: Arcs
    chosen: NDArray[np.float64]
    edges: bool
    endpoints: bool

    def run(self, running: Running, numbers: list[int]) -> RawSums:
        """The sums, on these GPUs; without any on the CPU."""
        shape = (gpu.LANES, gpu.CHUNKS) if numbers else (LANES, cpu.GROUPS)
        layout = divide(self.arcs, self.chosen, self.edges, *shape)
        options = {"edges": self.edges, "endpoints": self.endpoints and self.arcs.directed}
        results: Iterator[tuple[Group, Sums]]
        if running.cluster is not None:
            backend = "gpu" if numbers else "cpu"
            results = group_sums(running.cluster, layout, backend=backend, **options)
        elif numbers:
            results = gpu.group_sums(layout, layout.groups, numbers, **options)
        else:
            results = cpu.group_sums(layout, layout.groups, threads=running.threads, **options)
        raw = _add_in_order(results, layout, self.edges, running.progress)
        return with_trees(self.arcs, layout, self.chosen, raw, edges=self.edges, endpoints=self.endpoints)


def _is_optional(running: Running) -> bool:
    """Whether a GPU is used only if it is there and pays."""
    return running.backend == "auto" and running.devices is None and running.cluster is None


def _devices(task: _Task, running: Running) -> list[int]:
    """The GPUs to use; an empty list for the CPU."""
    if running.backend == "cpu" or (running.cluster is not None and running.backend != "gpu"):
        return []
    reason = gpu.reason_against(task.arcs)
    if _is_optional(running):
        if reason or not _pays(float(task.chosen.sum()), len(task.arcs.head), running.threads or cores()):
            return []
        with suppress(BackendUnavailable):
            return gpu.numbers_of(None)
        return []
    if reason:
        logging.getLogger("jtgpu").warning("betweenness runs on the CPU: %s", reason)
        return []
    return [0] if running.cluster is not None else gpu.numbers_of(running.devices)  # on a cluster a worker's own


def _pays(n_sources: float, n_arcs: int, n_cores: int) -> bool:
    """Whether a GPU takes less time than the cores."""
    work = n_sources * n_arcs
    share = min(n_sources / gpu.FULL, 1.0)  # of the GPU that has batches
    return work / (RATE * n_cores) > GPU_START + work / (GPU_RATE * max(share, 1e-9))


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
