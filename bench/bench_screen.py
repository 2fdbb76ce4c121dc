"""Outliers by distance, compared with SciPy, scikit-learn, FAISS and PyOD, in the same run.

    python bench/bench_screen.py                      everything
    python bench/bench_screen.py numbers              some parts: numbers, states, certificate, corrupted
    python bench/bench_screen.py --gpu [--devices 2]  on GPUs, compared with the CPU first; seconds of wall time
    python bench/bench_screen.py --smoke              small data, one run, nothing stored

Times are CPU seconds of all threads (`time.process_time`), minima of several runs that alternate between the engines.
Answers are compared before anything is timed. SciPy is timed for a share of the queries
where all would take minutes; its tree is built in full. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import parser_of, row, store
from screen_on_gpu import on_gpu

import jtgpu
from jtgpu import screen, timing

PARTS = ("numbers", "states", "certificate", "corrupted")
TOP = 10
SHOWN = ("minimum", "pairs", "solving_set", "precision", "read_s", "merge_s", "build_s", "search_s")

Rows = Iterator[dict[str, Any]]
Work = Callable[[], float]  # runs, and returns the share of the whole problem that it did
Floats = NDArray[np.float64]


def compare_times(bench: str, name: str, engines: dict[str, Callable[[], float]], runs: int) -> Rows:
    """CPU seconds of some engines in alternation, after one run that is not counted; each returns its seconds."""
    seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    for i in range(runs + 1):
        for engine, work in engines.items():
            found = work()
            if i or not runs:
                seconds[engine].append(found)
    for engine, times in seconds.items():
        yield row(bench, name, engine, timing.Spread.of(times))


def seconds_of(work: Callable[[], Any]) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def check(found: Floats, wanted: Floats, tolerance: float, what: str) -> None:
    """Raise if two answers differ."""
    worst = float(np.abs(found - wanted).max(initial=0.0) / max(float(np.abs(wanted).max(initial=0.0)), 1e-300))
    if not worst <= tolerance:
        raise SystemExit(f"{what}: answers differ by {worst:g}")


def peer(name: str) -> Any:
    """A module, or None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed")
        return None


def numbers(smoke: bool, runs: int) -> Rows:
    """Top 10 of columns of numbers; the peers compute all weights."""
    from scipy.spatial import cKDTree

    shapes = [(2000, 3, 21, 1.0)] if smoke else [
        (100_000, 3, 21, 1.0), (1_000_000, 2, 51, 0.03), (100_000, 10, 21, 0.02), (20_000, 32, 21, 0.1)
    ]  # fmt: skip
    neighbors, faiss, pyod = peer("sklearn.neighbors"), peer("faiss"), peer("pyod.models.knn")
    for n, a, k, share in shapes:
        x = np.random.default_rng(n + a).standard_normal((n, a))
        found = screen.top_outliers(x, TOP, k, compute=jtgpu.Compute(threads=1))
        some = np.random.default_rng(1).choice(n, int(n * share), replace=False)

        def scipy_(x: Floats = x, k: int = k, some: Any = some, share: float = share) -> float:
            start = time.process_time()
            tree = cKDTree(x)
            built = time.process_time()
            tree.query(x[some], k)
            return built - start + (time.process_time() - built) / share

        d, _ = cKDTree(x).query(x[found.index], k)
        check(d.reshape(TOP, -1).sum(axis=1), found.weight, 1e-12, "SciPy")
        engines: dict[str, Work] = {
            "jtgpu, top 10": lambda x=x, k=k: seconds_of(
                lambda: screen.top_outliers(x, TOP, k, compute=jtgpu.Compute(threads=1))
            ),  # type: ignore[misc]
            "SciPy cKDTree": scipy_,
        }
        if a <= 3 and n <= 100_000:
            engines["jtgpu, all weights"] = lambda x=x, k=k: seconds_of(
                lambda: screen.weights(x, k, compute=jtgpu.Compute(threads=1))
            )  # type: ignore[misc]
        if n <= 20_000 and neighbors:

            def brute(x: Floats = x, k: int = k) -> Floats:
                model = neighbors.NearestNeighbors(n_neighbors=k, algorithm="brute").fit(x)
                weights: Floats = model.kneighbors(x)[0].sum(axis=1)
                return weights

            check(np.sort(brute())[: -TOP - 1 : -1], found.weight, 1e-6, "scikit-learn")
            engines["scikit-learn brute"] = lambda: seconds_of(brute)
        if n <= 20_000 and faiss:
            faiss.omp_set_num_threads(1)

            def flat(x: Floats = x, k: int = k) -> Floats:
                single = x.astype(np.float32)
                index = faiss.IndexFlatL2(x.shape[1])
                index.add(single)
                weights: Floats = np.sqrt(np.maximum(index.search(single, k)[0], 0)).sum(axis=1)
                return weights

            check(np.sort(flat())[: -TOP - 1 : -1].astype(float), found.weight, 1e-3, "FAISS")
            engines["FAISS flat, float32"] = lambda: seconds_of(flat)
        if a <= 3 and n <= 100_000 and pyod:

            def mean(x: Floats = x, k: int = k) -> Floats:
                weights: Floats = pyod.KNN(n_neighbors=k - 1, method="mean", contamination=0.01).fit(x).decision_scores_
                return weights * (k - 1)

            check(np.sort(mean())[: -TOP - 1 : -1], found.weight, 1e-9, "PyOD")
            engines["PyOD KNN"] = lambda: seconds_of(mean)
        yield from compare_times("screen numbers", f"{n} x {a}, k={k}", engines, 0 if smoke else runs)


def states(smoke: bool, runs: int) -> Rows:
    """All weights by Hamming distance of random states, and of cases of Alarm."""
    n = 1000 if smoke else 20_000
    neighbors, faiss = peer("sklearn.neighbors"), peer("faiss")
    rng = np.random.default_rng(3)
    with jtgpu.load("alarm").compile("reference") as tree:
        alarm = tree.sample(n, seed=1).states.copy()
        tables: dict[str, Any] = {"32 columns, 4 states": rng.integers(0, 4, (n, 32)), "Alarm": alarm}
    k = 21
    for name, codes in tables.items():
        found = screen.weights(codes, k, "hamming", compute=jtgpu.Compute(threads=1))
        few = codes[: n // 10].astype(np.float64)

        def sklearn_(codes: Any = codes, few: Any = few) -> Floats:
            model = neighbors.NearestNeighbors(n_neighbors=k, metric="hamming", algorithm="brute", n_jobs=1)
            weights: Floats = model.fit(codes.astype(np.float64)).kneighbors(few)[0].sum(axis=1)
            return weights

        one_hot = np.concatenate([codes == s for s in range(int(codes.max()) + 1)], axis=1)
        bits = np.packbits(np.pad(one_hot, ((0, 0), (0, -one_hot.shape[1] % 64))), axis=1)

        def binary(bits: Any = bits) -> Any:
            index = faiss.IndexBinaryFlat(8 * bits.shape[1])
            index.add(bits)
            return index.search(bits, k)[0].sum(axis=1)

        engines: dict[str, Work] = {
            "jtgpu, all weights": lambda c=codes: seconds_of(
                lambda: screen.weights(c, k, "hamming", compute=jtgpu.Compute(threads=1))
            ),  # type: ignore[misc]
            "jtgpu, top 10": lambda c=codes: seconds_of(
                lambda: screen.top_outliers(c, TOP, k, "hamming", compute=jtgpu.Compute(threads=1))
            ),  # type: ignore[misc]
        }
        if neighbors:
            check(sklearn_(), found[: len(few)], 1e-12, "scikit-learn")
            engines["scikit-learn brute"] = lambda: seconds_of(sklearn_) * 10
        if faiss:
            faiss.omp_set_num_threads(1)
            check(binary() / 2 / codes.shape[1], found, 1e-12, "FAISS")
            engines[f"FAISS binary, {8 * bits.shape[1]} bits"] = lambda: seconds_of(binary)
            engines["FAISS binary, 64 bits (other distances)"] = (
                lambda b=bits: seconds_of(  # type: ignore[misc]
                    lambda: binary(np.ascontiguousarray(b[:, :8]))
                )
            )
        yield from compare_times("screen states", f"{n} rows, {name}", engines, 0 if smoke else min(runs, 2))


def certificate(smoke: bool, runs: int) -> Rows:
    """What the search computes: distances as a share of all pairs; and the certificate: its rows and seconds."""
    for n, a, k in (
        [(2000, 3, 21)] if smoke else [(100_000, 3, 21), (1_000_000, 2, 51), (100_000, 10, 21), (20_000, 32, 21)]
    ):
        found = screen.top_outliers(
            np.random.default_rng(n + a).standard_normal((n, a)), TOP, k, compute=jtgpu.Compute(threads=1)
        )
        seconds = seconds_of(lambda: found.solving_set)  # noqa: B023 (called at once)
        yield row(
            "screen certificate", f"{n} x {a}, k={k}", "jtgpu", timing.Spread.of([seconds]),
            pairs=found.stats["pairs"] / n**2, solving_set=len(found.solving_set),
        )  # fmt: skip


def corrupted(smoke: bool, runs: int) -> Rows:
    """Precision at 100 of weight, surprise and both, for Alarm cases of which 0.5 % have redrawn cells."""
    n, bad = (2000, 10) if smoke else (20_000, 100)
    net = jtgpu.load("alarm")
    with net.compile("cpu") as tree:
        for cells in (2, 4, 8):
            cases = tree.sample(n, seed=1).states.copy()
            rng = np.random.default_rng(cells)
            rows = rng.choice(n, bad, replace=False)
            for r in rows:
                for v in rng.choice(len(net.variables), cells, replace=False):
                    cases[r, v] = rng.integers(net.cardinality[v])
            weight = screen.weights(cases, 21, "hamming")
            surprise = screen.surprise(tree, cases)
            both = np.argsort(np.argsort(weight)) + np.argsort(np.argsort(surprise))
            for name, score in (("weight", weight), ("surprise", surprise), ("both", both)):
                top = np.lexsort((np.arange(n), -score))[:bad]
                precision = len(np.intersect1d(top, rows)) / bad
                yield row("screen corrupted", f"{n} Alarm cases, {cells} cells", name, None, precision=precision)


def main() -> None:
    """Run parts and print a line for each engine."""
    parser = parser_of(__doc__, "screen.jsonl")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all")
    parser.add_argument("--gpu", action="store_true", help="on GPUs instead")
    parser.add_argument("--devices", type=int, default=1, help="number of GPUs, with --gpu")
    options = parser.parse_args()
    if options.gpu:
        _print(on_gpu(options.smoke, options.devices), options)
        return
    for part in options.parts or PARTS:
        _print(globals()[part](options.smoke, 3), options)


def _print(rows: Rows, given: argparse.Namespace) -> None:
    """Print and store rows."""
    for found in rows:
        more = {key: f"{found[key]:.4g}" for key in SHOWN if key in found}
        figure = f"{found['median'] * 1e3:12.2f} ms" if "median" in found else ""
        print(f"{found['bench']:18} {found['network']:32} {found['engine']:34} {figure} {more or ''}", flush=True)
        store(given, [found])


if __name__ == "__main__":
    main()
