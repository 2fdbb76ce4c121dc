"""Betweenness, compared with igraph, NetworKit and networkx, in the same run.

    python bench/bench_graphs.py                      everything
    python bench/bench_graphs.py lengths dags         some parts: large, lengths, small, dags
    python bench/bench_graphs.py --smoke              small graphs, one run, nothing stored
    python bench/bench_graphs.py --gpu [--devices 2]  GPUs next to all cores: bench/graphs_on_gpu.py

Times are CPU seconds of all threads (`time.process_time`), which other processes disturb little, and minima of several
runs that alternate between the engines, each with one thread. Slow engines compute a share of the sources, and the time
is divided by it; jtgpu computes all. Before anything is timed, answers for a smaller graph of the same kind are
compared. igraph and NetworKit are left out where they are not installed (``pip install igraph networkit``).
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import graphs_on_gpu
import networkx as nx
import numpy as np
from numpy.typing import NDArray
from rows import parser_of, row, store

from jtgpu import graphs, load, timing
from jtgpu.graphs import nx_backend
from jtgpu.options.compute import Compute

PARTS = ("large", "lengths", "small", "dags")

Rows = Iterator[dict[str, Any]]
Graph = tuple[int, NDArray[np.int64], NDArray[np.float64] | None]  # vertices, edges, lengths
Engine = Callable[[Graph, float], NDArray[np.float64]]  # sums of unordered pairs, from a share of the sources


def barabasi_albert(n: int) -> Graph:
    """A graph with hubs: each new vertex has 4 edges."""
    return n, np.array(nx.barabasi_albert_graph(n, 4, seed=1).edges), None


def grid(n: int) -> Graph:
    """A square grid of about n vertices."""
    side = int(n**0.5)
    found = nx.convert_node_labels_to_integers(nx.grid_2d_graph(side, side + 1))
    return len(found), np.array(found.edges), None


def with_lengths(graph: Graph, whole: bool) -> Graph:
    """Lengths 1 to 7, or numbers in this range that are not multiples of each other."""
    random = np.random.default_rng(1)
    n = len(graph[1])
    return *graph[:2], random.integers(1, 8, n).astype(np.float64) if whole else random.uniform(1, 7, n)


def jtgpu(graph: Graph, share: float) -> NDArray[np.float64]:
    """All sources, whatever the share is."""
    n, ends, lengths = graph
    found: NDArray[np.float64] = graphs.betweenness(
        (n, ends), weight=lengths, normalized=False, compute=Compute(threads=1)
    )
    return found


@functools.cache
def _igraph(key: int) -> Any:
    import igraph

    n, ends, _ = _KEPT[key]
    return igraph.Graph(n=n, edges=ends.tolist())


_KEPT: dict[int, Graph] = {}  # the graphs that other libraries have converted; conversions are not timed


def igraph(graph: Graph, share: float) -> NDArray[np.float64]:
    """igraph, with a range of sources."""
    _KEPT[id(graph[1])] = graph
    sources = None if share == 1 else range(0, graph[0], round(1 / share))
    return np.array(_igraph(id(graph[1])).betweenness(directed=False, weights=graph[2], sources=sources))


@functools.cache
def _networkit(key: int) -> Any:
    import networkit

    n, ends, lengths = _KEPT[key]
    networkit.setNumberOfThreads(1)
    found = networkit.Graph(n, weighted=lengths is not None)
    for (u, v), w in zip(ends.tolist(), np.ones(len(ends)) if lengths is None else lengths, strict=True):
        found.addEdge(u, v, w)
    return found


def networkit(graph: Graph, share: float) -> NDArray[np.float64]:
    """NetworKit, whose sums are of ordered pairs; a share of the sources by its class for samples."""
    import networkit as nk

    _KEPT[id(graph[1])] = graph
    made = _networkit(id(graph[1]))
    n_samples = max(round(graph[0] * share), 1)
    work = nk.centrality.Betweenness(made) if share == 1 else nk.centrality.EstimateBetweenness(made, n_samples)
    return np.array(work.run().scores()) / 2


@functools.cache
def _networkx(key: int) -> Any:
    n, ends, lengths = _KEPT[key]
    made: Any = nx.empty_graph(n)
    made.add_edges_from(ends.tolist())
    if lengths is not None:
        nx.set_edge_attributes(made, dict(zip(map(tuple, ends.tolist()), lengths.tolist(), strict=True)), "length")
    return made


def networkx(graph: Graph, share: float) -> NDArray[np.float64]:
    """networkx, with sampled sources."""
    n, _, lengths = graph
    _KEPT[id(graph[1])] = graph
    found = nx.betweenness_centrality(
        _networkx(id(graph[1])), k=None if share == 1 else max(round(n * share), 2), normalized=False, seed=1,
        weight=None if lengths is None else "length",
    )  # fmt: skip
    return np.array([found[v] for v in range(n)])


def engines(shares: dict[str, float]) -> dict[str, tuple[Engine, float]]:
    """The engines that are installed, with their shares of the sources."""
    known: dict[str, Engine] = {"jtgpu": jtgpu, "igraph": igraph, "NetworKit": networkit, "networkx": networkx}
    return {
        name: (engine, shares.get(name, 1.0))
        for name, engine in known.items()
        if importlib.util.find_spec(name.lower()) is not None
    }


def compare(bench: str, name: str, graph: Graph, small: Graph, shares: dict[str, float], runs: int) -> Rows:
    """Compare answers for a small graph, then CPU seconds for a large one."""
    used = engines(shares)
    for work, _ in used.values():
        if work is not jtgpu:
            work(graph, 2 / graph[0])  # converts the graph
    wanted = jtgpu(small, 1.0)
    for engine, (work, _) in used.items():
        worst = float(np.abs(work(small, 1.0) - wanted).max() / wanted.max())
        if not worst < 1e-9:
            raise SystemExit(f"{name}: the answers of {engine} differ by {worst:g}")
    seconds: dict[str, list[float]] = {engine: [] for engine in used}
    for _ in range(runs):
        for engine, (work, share) in used.items():
            work(small, 1.0)
            start = time.process_time()
            work(graph, share)
            seconds[engine].append((time.process_time() - start) / share)
    for engine, found in seconds.items():
        yield row(bench, name, engine, timing.Spread.of(found), sources=used[engine][1])


def large(smoke: bool) -> Rows:
    """Large graphs, all edges of length 1."""
    n = 300 if smoke else 20_000
    shares = {} if smoke else {"igraph": 0.02, "NetworKit": 0.01, "networkx": 0.001}
    for name, make in (("Barabasi-Albert, m = 4", barabasi_albert), ("grid", grid)):
        graph = make(n)
        yield from compare("graphs large", f"{name}, {graph[0]:,}", graph, make(min(n, 600)), shares, 1 if smoke else 2)


def lengths(smoke: bool) -> Rows:
    """Edges with lengths."""
    n = 200 if smoke else 3_000
    shares = {} if smoke else {"igraph": 0.1, "NetworKit": 0.1, "networkx": 0.01}
    for name, make in (("Barabasi-Albert, m = 4", barabasi_albert), ("grid", grid)):
        for kind, whole in (("whole", True), ("real", False)):
            graph, small = with_lengths(make(n), whole), with_lengths(make(min(n, 400)), whole)
            title = f"{name}, {graph[0]:,}, {kind} lengths"
            yield from compare("graphs lengths", title, graph, small, shares, 1 if smoke else 3)


def small(smoke: bool) -> Rows:
    """A network of 37 variables through networkx's functions: what a call costs."""
    net: Any = load("alarm").to_networkx().to_undirected()
    calls: dict[str, Callable[[], Any]] = {
        "jtgpu, converted each time": lambda: nx_backend.betweenness_centrality(nx_backend.convert_from_nx(net)),
        "networkx": lambda: nx.betweenness_centrality(net),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(3 if smoke else 200):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    for name, found in times.items():
        yield row("graphs small", "alarm", name, timing.Spread.of(found))


def sampled_dags(n_graphs: int, n: int) -> NDArray[np.bool_]:
    """Random directed acyclic graphs with about 46 arcs."""
    random = np.random.default_rng(1)
    order = random.permuted(np.tile(np.arange(n), (n_graphs, 1)), axis=1)
    upper = np.triu(random.random((n_graphs, n, n)) < 46 / (n * (n - 1) / 2), 1)
    dags = np.zeros_like(upper)
    for s in range(n_graphs):
        dags[s][np.ix_(order[s], order[s])] = upper[s]
    return dags


def dags(smoke: bool) -> Rows:
    """Ranks over many graphs."""
    n_graphs = 100 if smoke else 10_000
    sample = sampled_dags(n_graphs, 37)
    for dag, found in zip(sample[:20], graphs.betweenness_posterior(sample[:20]).values, strict=True):
        wanted = nx.betweenness_centrality(nx.from_numpy_array(dag | dag.T))
        if not np.allclose(found, [*wanted.values()], rtol=1e-9, atol=1e-12):
            raise SystemExit("answers differ")
    seconds: dict[str, list[float]] = {"jtgpu, 1 thread": [], "jtgpu, 2 threads": []}
    for _ in range(1 if smoke else 7):
        for threads, name in enumerate(seconds, 1):
            start = time.process_time()
            graphs.betweenness_posterior(sample, compute=Compute(threads=threads))
            seconds[name].append(time.process_time() - start)
    for name, times in seconds.items():
        yield row("graphs dags", f"{n_graphs:,} DAGs of 37 variables", name, timing.Spread.of(times))


def main() -> None:
    """Run parts and print a line for each engine."""
    parser = parser_of(__doc__, "graphs.jsonl")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all")
    parser.add_argument("--gpu", action="store_true", help="measure GPUs; the other options are of graphs_on_gpu.py")
    if "--gpu" in sys.argv:
        graphs_on_gpu.main([word for word in sys.argv[1:] if word != "--gpu"])
        return
    options = parser.parse_args()
    for part in options.parts or PARTS:
        for found in globals()[part](options.smoke):
            s = found["minimum"]
            print(f"{found['bench']:15} {found['network']:45} {found['engine']:27} {s:12.6f} s", flush=True)
            store(options, [found])


if __name__ == "__main__":
    main()
