"""Tables of cases on a local Ray cluster, compared with the same call in one process: what Ray costs and gains.

    python bench/bench_cluster.py                           alarm, Parquet to Parquet, to bench/results
    python bench/bench_cluster.py hailfinder --cases 1000000
    python bench/bench_cluster.py --arithmetic              what docs/cluster-sizing.rst calculates 10^10 cases with
    python bench/bench_cluster.py --smoke                   asia, a few thousand cases, nothing kept

Cases are those of bench_cases.py (three in ten variables observed; ``whole``: every cell, ``holes``: one in twenty
empty), targets three variables. One process: `jtgpu.cases.answer_file` on one core and on two. Ray: a cluster of two
cores on this machine, one actor of one core and two of them. Times are those of a whole call: on Ray from a cluster
that is up, the actors' start within (`first`: seconds until the first part was answered; `steady`: cases a second from
then on); `start`: seconds that the cluster itself took. Before anything is timed, the answers are compared, bit by bit.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_cases import Bench, on_cores
from rows import child, network, parser_of, row, store, timed

from jtgpu import timing
from jtgpu.cases import answer_file
from jtgpu.cluster import Cluster, answer_files

CASES = 8_000_000
WORKERS = (1, 2)
PARTS = 8  # of a run, at least
ARITHMETIC = {"alarm": 1_000_000, "hailfinder": 200_000, "munin2": 4_000}  # networks and cases


def rows_of(bench: Bench, runs: int, part_rows: int, chunk: int | None) -> Iterator[dict[str, Any]]:
    """One process, then Ray."""
    ray = importlib.import_module("ray")
    plan, asked = bench.net.plan(memory_limit=None), bench.some
    parquet = importlib.import_module("pyarrow.parquet")
    kinds = {kind: bench.path(kind, "parquet") for kind in ("whole", "holes")}
    out = bench.folder / "out.parquet"
    for kind, cases in kinds.items():
        for threads in WORKERS:

            def alone(path: Path, threads: int = threads) -> Any:
                with on_cores(threads):
                    return answer_file(
                        bench.trees[threads], path, out, targets=asked, threads=threads, chunk=chunk, force=True
                    )

            spread = timed(alone, [cases], 0.0, runs)
            yield result(bench, "jtgpu cpu", spread, kind, workers=0, threads=threads, out=out)
        shutil.copy(out, bench.folder / f"{kind}.expected.parquet")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    begin = time.perf_counter()
    ray.init(address="local", num_cpus=max(WORKERS), include_dashboard=False, log_to_driver=False, logging_level=40)
    start = time.perf_counter() - begin
    target = bench.folder / "out"
    first: list[float | None] = []

    def on_ray(path: Path, workers: int) -> Any:
        begin = time.perf_counter()
        met: list[tuple[int, float]] = []

        def show(cases: int, done: int, total: int) -> None:
            met.append((cases, time.perf_counter() - begin))

        report = answer_files(
            plan, path, target, cluster=Cluster(workers=workers), backend="cpu", targets=asked, force=True,
            part_rows=part_rows, chunk=chunk, progress=show,
        )  # fmt: skip
        (cases, at), (all_cases, end) = met[1], met[-1]
        first[:] = [at, (all_cases - cases) / (end - at) if end > at else None]
        return report

    try:
        for kind, cases in kinds.items():
            on_ray(cases, 2)
            found = parquet.read_table(target)
            if not found.equals(parquet.read_table(bench.folder / f"{kind}.expected.parquet")):
                raise SystemExit(f"{bench.name}, {kind}: the answers differ; nothing is timed")
            for workers in WORKERS:
                spread = timed(lambda path, w=workers: on_ray(path, w), [cases], 0.0, runs)  # type: ignore[misc]
                yield result(bench, "jtgpu ray", spread, kind, workers=workers, threads=1, out=target, start=start,
                             first=first[0], steady=first[1], part_rows=part_rows)  # fmt: skip
    finally:
        ray.shutdown()

def result(bench: Bench, engine: str, spread: timing.Spread, kind: str, out: Path, **more: Any) -> dict[str, Any]:
    """A row."""
    size = sum(p.stat().st_size for p in out.iterdir()) if out.is_dir() else out.stat().st_size
    return row(
        "cluster", bench.name, engine, spread, kind=kind, files="parquet -> parquet", targets="3", cases=bench.n,
        cases_per_second=bench.n / spread.median, bytes_in=bench.path(kind, "parquet").stat().st_size, bytes_out=size,
        ray=importlib.metadata.version("ray"), **more,
    )  # fmt: skip


def one_core(bench: Bench, runs: int) -> Iterator[dict[str, Any]]:
    """What one core answers a second, file to file, and the bytes of a case; no Ray."""
    cases, out = bench.path("holes", "parquet"), bench.folder / "out.parquet"
    for targets in ("3", "all"):
        asked = bench.targets(targets)

        def alone(path: Path, asked: list[str] = asked) -> Any:
            with on_cores(1):
                return answer_file(bench.trees[1], path, out, targets=asked, threads=1, force=True)

        alone(bench.path("holes", "parquet", min(2000, bench.n)))
        spread = timed(alone, [cases], 0.0, runs)
        csv = bench.path("holes", "csv").stat().st_size
        yield {**result(bench, "jtgpu cpu", spread, "holes", out, workers=0, threads=1, bytes_csv=csv),
               "targets": targets, "columns": len(bench.seen)}  # fmt: skip


def calculated(r: dict[str, Any]) -> str:
    """A line of the table in docs/cluster-sizing.rst."""
    n, rate = r["cases"], r["cases_per_second"]
    each = {name: r[name] / n for name in ("bytes_in", "bytes_csv", "bytes_out")}
    terabytes = {name: each[name] / 100 for name in each}  # of 10^10 cases
    return (
        f"{r['network']:<12}{r['columns']:>4} columns {r['targets']:>4} targets: {rate:>10,.0f} cases/s a core; "
        f"{each['bytes_in']:.1f} bytes a case in ({each['bytes_csv']:.0f} as CSV), {each['bytes_out']:.1f} out; 10^10: "
        f"{1e10 / rate / 3600:,.1f} core hours, {terabytes['bytes_in']:.2f} TB in, {terabytes['bytes_out']:.2f} TB out"
    )


def summary(r: dict[str, Any]) -> str:
    """A line for people."""
    if "columns" in r:
        return calculated(r)
    who = f"{r['workers']} actors" if r["workers"] else f"{r['threads']} cores"
    line = f"{r['network']:<12}{r['kind']:<6}{r['engine']:<10}{who:>9}{r['cases_per_second']:>13,.0f} cases/s"
    if r["workers"]:
        line += (
            f", first part after {r['first']:.1f} s, then {r['steady']:,.0f} cases/s; cluster up in {r['start']:.1f} s"
        )
    return line


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__, "cluster.jsonl", runs=3, seed=1)
    parser.add_argument("networks", nargs="*", help="default: alarm")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--chunk", type=int, help="cases at a time")
    parser.add_argument("--arithmetic", action="store_true", help="one core alone: cases a second and bytes a case")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        timing.warm_up("cpu")
        with tempfile.TemporaryDirectory(prefix="jtgpu-cluster-") as folder:
            bench = Bench(network(arguments.one), arguments.cases, arguments.seed, Path(folder))
            if arguments.arithmetic:
                rows = one_core(bench, arguments.runs)
            else:
                rows = rows_of(bench, arguments.runs, arguments.cases // PARTS, arguments.chunk)
            for r in rows:
                print(json.dumps(r), flush=True)
        return
    if importlib.util.find_spec("ray") is None and not arguments.arithmetic:
        print("ray is not installed: pip install 'jtgpu[ray]'; nothing is timed")
        return
    if arguments.smoke:
        arguments.networks, arguments.cases, arguments.runs = arguments.networks or ["asia"], 8000, 1
        arguments.chunk = 1000
    words = ["--cases", str(arguments.cases), "--runs", str(arguments.runs), "--seed", str(arguments.seed)]
    words += ["--chunk", str(arguments.chunk)] if arguments.chunk else []
    words += ["--arithmetic"] if arguments.arithmetic else []
    for name in arguments.networks or (list(ARITHMETIC) if arguments.arithmetic else ["alarm"]):
        if arguments.arithmetic and not arguments.smoke:
            words[1] = str(ARITHMETIC.get(name, arguments.cases))
        found = [r for r in child(__file__, "--one", name, *words) if "bench" in r]
        for r in found:
            print(summary(r), flush=True)
        store(arguments, found)


if __name__ == "__main__":
    main()
