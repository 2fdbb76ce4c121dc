"""Betweenness as published by Wolonciej, for comparison: a CUDA stream for each source, virtual vertices, Stride-CSR.

`betweenness` computes what the report's program computes, on a GPU; `measure` times it over its parameters, next to
`jtgpu.graphs.betweenness`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..device.context import Device, Launch, Memory, open_device
from ..device.graph import Graph
from ..device.structs import struct
from ..errors import DataError
from ..graphs.engine import Target, dependencies
from ..graphs.inputs import Arcs, arcs_of, read_graph
from ..util.arguments import choice, flag, whole_number
from ..util.arrays import Floats

__all__ = [
    "SETTINGS",
    "Row",
    "Setting",
    "betweenness",
    "measure",
]

# The published program on a GPU (cuda/graphs/published/streams.cu), step by step as its author wrote it.

FILE = "graphs/published/streams"
SIGMA = ("float64", "uint32")

GRAPH = struct("graphs/published/streams.cu", "Graph")
STREAM = struct("graphs/published/streams.cu", "Stream")


class Setting(NamedTuple):
    """Parameters of the program; the defaults are its author's."""

    streams: int = 50  # sources at a time, NUMBER_OF_STREAMS
    neighbours: int = 8  # of a virtual vertex, NUMBER_OF_NEIGHBOURS_IN_STRIDE_GRAPH
    block: int = 256  # threads of a block, BLOCK_SIZE_X
    # Queue each step of all streams as one CUDA graph, which the report names as further work
    graph_capture: bool = False
    # {"float64", "uint32"}: Numbers of paths. 32 bits are as published, and wrap around: 40 diamonds in a chain are
    #     enough.
    sigma: str = "float64"


def betweenness(
    graph: Any,
    *,
    streams: int = 50,
    neighbours: int = 8,
    block: int = 256,
    graph_capture: bool = False,
    sigma: str = "float64",
) -> Any:
    """Betweenness of the vertices of an undirected graph without weights, as the published program computes it.

    Values count ordered pairs: they are twice those of ``jtgpu.graphs.betweenness(graph, normalized=False)``. Atomic
    sums make their last bits differ from run to run.
    """
    # graph: See `jtgpu.graphs.betweenness`; directions of edges are ignored
    # streams, neighbours, block, graph_capture, sigma: See `Setting`
    # returns dict, or ndarray of float64: For graphs with names a dictionary by vertex, otherwise an array.
    # raises BackendUnavailable: Without a GPU.
    # raises TableTooLarge: If the GPU has no memory for the streams.
    whole_number("streams", streams, 1)
    whole_number("block", block, 32, 1024)
    if whole_number("neighbours", neighbours, 1) & (neighbours - 1):
        raise DataError(f"neighbours must be a power of two, not {neighbours}")
    flag("graph_capture", graph_capture)
    choice("sigma", sigma, SIGMA)
    network = read_graph(graph, directed=False)
    setting = Setting(streams, neighbours, block, graph_capture, sigma)
    device = open_device()
    with device.active(), Program(device, arcs_of(network), setting) as program:
        values = program.run(range(network.n))
    return values if network.names is None else dict(zip(network.names, values.tolist(), strict=True))


class Program:
    """The program for one graph and setting. Used inside ``device.active()`` and as a context manager."""

    def __init__(self, device: Device, arcs: Arcs, setting: Setting):
        self.device, self.arcs, self.setting = device, arcs, setting
        self.memory = Memory(device)
        self.main = device.stream()
        self.streams = [device.stream() for _ in range(min(setting.streams, max(arcs.n, 1)))]
        self.graphs: dict[str, Graph] = {}
        self.fork = device.event()
        self.joins = [device.event() for _ in self.streams]

    def __enter__(self) -> Program:
        try:
            self._allocate()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.device.synchronize()
        for graph in self.graphs.values():
            graph.close()
        self.graphs.clear()
        self.memory.close()

    def _allocate(self) -> None:
        n, degree = self.arcs.n, np.diff(self.arcs.first)
        virtual = -(-degree // self.setting.neighbours)
        owner = np.repeat(np.arange(n), virtual)
        offset = np.arange(len(owner)) - np.repeat(np.cumsum(virtual) - virtual, virtual)
        self.n_virtual = len(owner)
        tables = self.arcs.first, self.arcs.head, virtual, owner, offset
        addresses = [self.memory.put(np.ascontiguousarray(t, np.uint32), self.main) for t in tables]
        self.bc = self.memory.put(np.zeros(n), self.main)
        graph = np.array([(*addresses, self.bc, n, self.n_virtual)], GRAPH)
        self.graph = self.memory.put(graph, self.main)
        pitch = -(-n * 8 // 512) * 512  # one pitched block for each array, as published
        self.state = np.zeros(len(self.streams), STREAM)
        for name in ("d", "sigma", "delta", "partial_bc"):
            self.state[name] = self.memory.empty(pitch * len(self.streams)) + pitch * np.arange(len(self.streams))
        self.table = self.memory.put(self.state, self.main)

    def run(self, sources: Sequence[int]) -> Floats:
        """Sums over ordered pairs from these sources."""
        if not self.arcs.n:
            return np.zeros(0)
        self._all(self._step("clear"))
        for first in range(0, len(sources), len(self.streams)):
            self._round(sources[first : first + len(self.streams)])
        for i in range(len(self.streams)):
            self._launch("add_up", i, self.main)
        values = np.empty(self.arcs.n)
        self.device.download(values, self.bc, self.main)
        self.device.synchronize()
        return values

    def _round(self, sources: Sequence[int]) -> None:
        """One source on each stream; all wait for the deepest one after every step."""
        self.state["l"] = self.state["cont"] = self.state["running"] = 0
        self.state["running"][: len(sources)] = 1
        self.state["curr_vertex"] = 0xFFFFFFFF  # of idle streams
        self.state["curr_vertex"][: len(sources)] = sources
        self.device.upload(self.table, self.state, self.main)
        self.device.synchronize()
        self._all(self._step(f"begin_{self.setting.sigma}"))
        while self.state["running"].any():
            self._replay("forward", self._step(f"forward_{self.setting.sigma}", "advance"))
            self.device.download(self.state, self.table, self.main)
            self.device.synchronize()
        self._all(self._step(f"invert_{self.setting.sigma}"))
        for _ in range(int(self.state["l"].max())):
            self._replay("backward", self._step("backward", "retreat"))
        self._all(self._step(f"gather_{self.setting.sigma}"))

    def _step(self, *names: str) -> Callable[[int, Any], None]:
        """Kernels, one after another on a stream."""

        def queue(i: int, stream: Any) -> None:
            for name in names:
                self._launch(name, i, stream)

        return queue

    def _launch(self, name: str, i: int, stream: Any) -> None:
        block = self.setting.block
        n = {"forward": self.n_virtual, "backward": self.n_virtual, "advance": 1, "retreat": 1}.get(
            name.split("_")[0], self.arcs.n
        )
        grid = (max(-(-n // block), 1), 1, 1)
        threads = (1 if n == 1 else block, 1, 1)
        function = self.device.function(FILE, name)
        self.device.launch(Launch(function, grid, threads, self.graph, self.table + i * STREAM.itemsize), stream)

    def _all(self, step: Callable[[int, Any], None]) -> None:
        """Run a step of every stream and wait for all of them, as published."""
        for i, stream in enumerate(self.streams):
            step(i, stream)
        self.device.synchronize()

    def _replay(self, name: str, step: Callable[[int, Any], None]) -> None:
        """Run a step, as a captured CUDA graph if the setting has graphs."""
        if name in self.graphs:
            self.graphs[name].launch(self.main)
            self.device.synchronize()
            return
        self._all(step)
        if self.setting.graph_capture:  # after a first launch, since loading kernels cannot be captured
            self.graphs[name] = self.device.capture(self.main, lambda: self._forked(step))

    def _forked(self, step: Callable[[int, Any], None]) -> None:
        """A step of every stream, forked from the main stream and joined to it."""
        self.fork.record(self.main)
        for i, (stream, join) in enumerate(zip(self.streams, self.joins, strict=True)):
            stream.wait_for_event(self.fork)
            step(i, stream)
            join.record(stream)
            self.main.wait_for_event(join)


# Times of the published program over its parameters, and those of `jtgpu.graphs.betweenness`.

SETTINGS = (
    *(Setting(streams=n) for n in (1, 10, 50, 200, 800, 1200)),
    *(Setting(streams=n, graph_capture=True) for n in (1, 10, 50, 200, 800)),
    *(Setting(neighbours=n) for n in (1, 2, 4, 16, 32)),
    *(Setting(block=n) for n in (64, 128, 512, 1024)),
)


class Row(NamedTuple):
    """One measurement."""

    setting: Setting | None  # none: `jtgpu.graphs.betweenness` on the same GPU, all sources
    seconds: float  # of all sources
    sources: int  # that were computed; `seconds` is in proportion

    def cells(self) -> tuple[Any, ...]:
        """For a table."""
        if self.setting is None:
            return "jtgpu.graphs.betweenness", "", "", "", self.seconds, self.sources
        streams, neighbours, block, capture, _ = self.setting
        return "published", streams, neighbours, f"{block}{', graph' * capture}", self.seconds, self.sources


def measure(
    graph: Any,
    settings: Sequence[Setting] = SETTINGS,
    rounds: int = 2,
    progress: Callable[[int, int, str], object] | None = None,
) -> Iterator[Row]:
    """Time the published program, with several rounds of sources for each setting, and today's."""
    # graph: See `jtgpu.graphs.betweenness`
    # rounds: Rounds of as many sources as there are streams, at least; 50 sources at least. All sources would take
    #     minutes.
    # progress: Called with the number of settings that are done, the number of all, and a text
    # raises BackendUnavailable: Without a GPU.
    arcs = arcs_of(read_graph(graph, directed=False))
    device = open_device()
    chosen = np.ones(arcs.n)
    target = Target("gpu")
    dependencies(arcs, np.eye(1, arcs.n).ravel(), edges=False, endpoints=False, target=target)  # compiles the kernels
    start = time.perf_counter()
    dependencies(arcs, chosen, edges=False, endpoints=False, target=target)
    yield Row(None, time.perf_counter() - start, arcs.n)
    for i, setting in enumerate(settings):
        sources = np.linspace(0, arcs.n - 1, min(max(rounds * setting.streams, 50), arcs.n)).astype(int).tolist()
        with device.active(), Program(device, arcs, setting) as program:
            program.run(sources[: setting.streams])  # loads the kernels, captures the graphs
            start = time.perf_counter()
            program.run(sources)
            seconds = time.perf_counter() - start
        yield Row(setting, seconds * arcs.n / len(sources), len(sources))
        if progress is not None:
            progress(i + 1, len(settings), f"{setting.streams} streams")
