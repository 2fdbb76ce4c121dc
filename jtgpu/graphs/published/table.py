"""Times of the published program over its parameters, and those of `jtgpu.graphs.betweenness`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...device.context import open_device
from ..arcs import arcs_of
from ..engine import Running, dependencies
from ..inputs import read_graph
from .gpu import Program, Setting

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
    running = Running("gpu")
    dependencies(arcs, np.eye(1, arcs.n).ravel(), edges=False, endpoints=False, running=running)  # compiles the kernels
    start = time.perf_counter()
    dependencies(arcs, chosen, edges=False, endpoints=False, running=running)
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
