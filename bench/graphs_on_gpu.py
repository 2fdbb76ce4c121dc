"""Betweenness on GPUs, for ``bench_graphs.py --gpu``: wall-clock seconds of whole calls, with copies.

Before anything is timed, answers are compared with the CPU's: small graphs whole, large ones from a share of their
sources, which are consecutive in breadth-first order, as they are in a whole run. The CPU computes this share of the
large graphs with all cores. The graph of Gowalla (196,591 vertices, 1.9 million arcs) cannot be downloaded here: a
graph of Barabasi and Albert has its size.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent))
from rows import append, row

from jtgpu import graphs, timing
from jtgpu.device.context import open_device
from jtgpu.graphs import gpu, layout, posterior
from jtgpu.graphs.engine import Target, dependencies
from jtgpu.graphs.inputs import Arcs, arcs_of, read_graph
from jtgpu.options.compute import Compute
from jtgpu.published import betweenness as published
from jtgpu.util.system import cores

Rows = Iterator[dict[str, Any]]
SHAPES = tuple(
    gpu.Shape(*x)
    for x in ((512, 2, 8), (512, 2, 4), (512, 2, 16), (512, 2, 32), (1024, 1, 8))
)
# NVIDIA's figure for networkx's backend of cuGraph (networkx: 461 s); not run here, its card was not looked up
PUBLISHED = ("cit-Patents, 3,774,768 vertices, k=10", "cuGraph (published)", 5.32)


def attached(n: int, m: int, seed: int = 1) -> tuple[int, NDArray[np.int64]]:
    """A graph of Barabasi and Albert."""
    return n, np.array(nx.barabasi_albert_graph(n, m, seed=seed).edges)


def grid(side: int) -> tuple[int, NDArray[np.int64]]:
    """A square grid."""
    at = np.arange(side * side).reshape(side, side)
    down, right = (at[:-1], at[1:]), (at[:, :-1], at[:, 1:])
    ends = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in (down, right)])
    return side * side, ends


def consecutive(arcs: Arcs, count: int) -> NDArray[np.float64]:
    """Sources that are consecutive in breadth-first order, from the middle."""
    number = layout.divide(arcs, np.ones(arcs.n), False, gpu.LANES, 1).folded.number
    first = max((number.max() + 1 - count) // 2, 0)
    found: NDArray[np.float64] = ((number >= first) & (number < first + count)).astype(np.float64)
    return found


def timed(work: Callable[[], Any], most: int, seconds: float) -> timing.Spread:
    """Some runs within a number of seconds, at least one."""
    found: list[float] = []
    while len(found) < most and sum(found) < seconds:
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return timing.Spread.of(found)


def check(name: str, found: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    """Largest relative difference of values; ends the program if it is too large."""
    worst = float((np.abs(found - wanted) / np.maximum(np.abs(wanted), 1e-300 + wanted.max() * 1e-12)).max())
    if not worst < 1e-10:
        raise SystemExit(f"{name}: the answers differ by {worst:g}; nothing is timed")
    return worst


def node_sums(arcs: Arcs, sources: NDArray[np.float64], target: Target) -> NDArray[np.float64]:
    """Sums of vertices from some sources."""
    return dependencies(arcs, sources, edges=False, endpoints=False, target=target).node


def scaled(spread: timing.Spread, by: float) -> timing.Spread:
    """Seconds of all sources from those of a share."""
    fields = ("median", "minimum", "maximum", "low", "high")
    return timing.Spread(spread.runs, **{name: by * getattr(spread, name) for name in fields})


def large(smoke: bool, devices: list[int]) -> Rows:
    """Large graphs: shapes of launches, all sources on the GPUs, a share on the CPU."""
    n, side, share = (600, 20, 1) if smoke else (196_591, 500, 8)
    device = open_device(devices[0])
    on_gpu, on_cpu = Target("gpu", devices=devices), Target("cpu")
    for name, graph in (("Barabasi-Albert, m = 5", attached(n, 5)), ("grid", grid(side))):
        title = f"{name}, {graph[0]:,}"
        arcs = arcs_of(read_graph(graph))
        some = consecutive(arcs, min(64 if smoke else 2048, graph[0]))
        error = check(title, node_sums(arcs, some, on_gpu), node_sums(arcs, some, on_cpu))
        spread = scaled(timed(partial(node_sums, arcs, some, on_cpu), 2, 3), arcs.n / some.sum())
        yield row("graphs gpu", title, f"CPU, {cores()} threads", spread, sources=float(some.sum()))
        part = consecutive(arcs, graph[0] // share)
        for shape in SHAPES[: 1 if smoke or len(devices) > 1 else None]:
            gpu.SHAPE = shape
            spread = scaled(timed(partial(node_sums, arcs, part, on_gpu), 1, 9), arcs.n / part.sum())
            engine = f"GPU, {shape.threads} threads, {shape.blocks} blocks, {shape.few_lanes} lanes"
            yield row("graphs gpu shape", title, engine, spread, device=device.name)
        gpu.SHAPE = None
        for used in ([devices[0]], devices)[-1 if len(devices) == 1 else 0 :]:
            spread = timed(partial(graphs.betweenness, graph, compute=Compute(backend="gpu", devices=used)), 3, 8)
            engine = f"GPU x{len(used)}"
            yield row("graphs gpu", title, engine, spread, device=device.name, error=error, arcs=len(arcs.head))


def middle(smoke: bool, devices: list[int]) -> Rows:
    """Smaller graphs, nodes and edges, whole calls on both."""
    device = open_device(devices[0])
    made = {"Barabasi-Albert, m = 4": attached(400 if smoke else 20_000, 4), "grid": grid(20 if smoke else 141)}
    for name, graph in made.items():
        for edges in (False, True):
            title = f"{name}, {graph[0]:,}{', edges' * edges}"
            found, wanted = (graphs.betweenness(graph, compute=b, edges=edges) for b in ("gpu", "cpu"))
            error = check(title, found, wanted)
            for engine, on in engines(devices).items():
                spread = timed(partial(graphs.betweenness, graph, edges=edges, compute=on), 5, 2)
                yield row("graphs gpu", title, engine, spread, device=device.name, error=error)


def engines(devices: list[int]) -> dict[str, Compute]:
    """The CPU and the GPUs."""
    on_gpu = Compute(backend="gpu", devices=devices)
    return {f"CPU, {cores()} threads": Compute(backend="cpu"), f"GPU x{len(devices)}": on_gpu}


def dags(smoke: bool, devices: list[int]) -> Rows:
    """Many graphs at once: their betweenness without the ranks."""
    n_graphs, n = 200 if smoke else 100_000, 37
    random = np.random.default_rng(1)
    sample = np.triu(random.random((n_graphs, n, n), np.float32) < 46 / (n * (n - 1) / 2), 1)
    arcs = arcs_of(posterior._read(sample, False)[2])
    everything = np.ones(arcs.n)
    title = f"{n_graphs:,} DAGs of {n} variables"
    found = []
    for engine, on in engines(devices).items():
        target = Target(on.backend, on.threads, on.devices)
        found.append(node_sums(arcs, everything, target))
        spread = timed(partial(node_sums, arcs, everything, target), 5, 2)
        yield row("graphs gpu", title, engine, spread, device=open_device(devices[0]).name)
    check(title, found[1], found[0])


def threads(smoke: bool, devices: list[int]) -> Rows:
    """The CPU with one thread and with all: seconds of wall-clock time, which need an idle machine."""
    random = np.random.default_rng(1)
    for kind in ("equal", "whole", "real"):
        n, ends = attached(200 if smoke else 4000, 4)
        whole, real = random.integers(1, 8, len(ends)).astype(np.float64), random.uniform(1, 7, len(ends))
        weight = {"equal": None, "whole": whole, "real": real}[kind]
        for n_threads in (1, cores()):
            on_cpu = Compute(backend="cpu", threads=n_threads)
            work = partial(graphs.betweenness, (n, ends), weight=weight, compute=on_cpu)
            work()
            title = f"Barabasi-Albert, m = 4, {n:,}, {kind} lengths"
            yield row("graphs threads", title, f"CPU, {n_threads} threads", timed(work, 5, 4))


def as_published(smoke: bool, devices: list[int]) -> Rows:
    """The published program over its parameters, on a share of the sources, next to today's."""
    n = 300 if smoke else 196_591
    settings = published.SETTINGS[:1] if smoke else published.SETTINGS
    for found in published.measure(attached(n, 5), settings):
        name, streams, neighbours, block, seconds, sources = found.cells()
        engine = f"{name} {streams} streams, {neighbours} neighbours, {block}" if streams else "GPU x1"
        spread = timing.Spread.of([seconds])
        device = open_device(devices[0]).name
        yield row("graphs published", f"Barabasi-Albert, m = 5, {n:,}", engine, spread, device=device, sources=sources)


def main(words: list[str] | None = None) -> None:
    """Print and store a line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1, help="GPUs to use")
    parser.add_argument("--smoke", action="store_true", help="small graphs, nothing stored")
    parser.add_argument("--only", nargs="*", default=["large", "middle", "dags", "as_published", "threads"])
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "results" / "graphs.jsonl")
    options = parser.parse_args(words)
    for part in options.only:
        for found in globals()[part](options.smoke, list(range(options.devices))):
            s = found["minimum"]
            print(f"{found['bench']:16} {found['network']:38} {found['engine']:48} {s:10.4f} s", flush=True)
            if not options.smoke:
                append(options.out, [found])
    name, engine, seconds = PUBLISHED
    print(f"{'published':16} {name:38} {engine:48} {seconds:10.4f} s")


if __name__ == "__main__":
    main()
