"""What the benchmarks here share: rows of JSON lines, runs within a budget of time, processes of their own."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jtgpu import timing
from jtgpu.formats import bundled
from jtgpu.util import system

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 1e-9  # largest difference of a probability between two engines

Answer = dict[str, NDArray[np.float64]]  # variable -> probabilities


def commit() -> str:
    """Short hash of the checkout, with a "+" where files differ from it; JTGPU_COMMIT where git is not at hand."""
    if given := os.environ.get("JTGPU_COMMIT"):
        return given

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!bench/results")  # rows that this run stores are no change
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if changed else "")


def row(bench: str, name: str, engine: str, spread: timing.Spread | None, **more: Any) -> dict[str, Any]:
    """One result; times are seconds."""
    times = {} if spread is None else {
        "median": spread.median, "low": spread.low, "high": spread.high, "minimum": spread.minimum, "runs": spread.runs
    }  # fmt: skip
    return {
        "bench": bench,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": system.cpu_name(),
        "network": name,
        "engine": engine,
        **times,
        **more,
    }


def timed(
    solve: Callable[[Any], Any], cases: Sequence[Any], budget: float, least: int = 5, most: int = 200
) -> timing.Spread:
    """Time runs that take turns among the cases, until the seconds of the budget are over or `most` are done."""
    seconds: list[float] = []
    started = time.perf_counter()
    while len(seconds) < most and (len(seconds) < least or time.perf_counter() - started < budget):
        case = cases[(1 + len(seconds)) % len(cases)]
        begin = time.perf_counter()
        solve(case)
        seconds.append(time.perf_counter() - begin)
    return timing.Spread.of(seconds)


def cpu_seconds(work: Callable[[], Any], runs: int) -> timing.Spread:
    """CPU seconds (`time.process_time`) of several runs, after one that is not counted."""
    work()
    seconds = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return timing.Spread.of(seconds)


def arrays(posteriors: Mapping[str, ArrayLike]) -> Answer:
    """Read every posterior as an array. A timed answer ends here: jtgpu makes results when they are read."""
    return {v: np.asarray(p) for v, p in posteriors.items()}


def compare(ours: Answer, theirs: Answer, name: str) -> float:
    """Largest difference of a probability; refuses to go on where it is too large."""
    gap = max(float(np.abs(ours[v] - theirs[v]).max()) for v in theirs)
    if not gap <= TOLERANCE:
        raise SystemExit(f"{name}: the answers differ by {gap:g}; nothing is timed")
    return gap


def child(script: str, *words: str) -> Iterator[dict[str, Any]]:
    """Run a script in a process of its own, so that no network's memory counts for another one, and yield its rows.

    The process ends with the generator.
    """
    one_core = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # threads are given by hand
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen(
            [sys.executable, script, *words], stdout=subprocess.PIPE, stderr=said, text=True,
            env={**os.environ, **one_core},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            yield from map(json.loads, process.stdout)
            if process.wait():
                said.seek(0)
                print(f"{' '.join(words)}: {said.read().strip()}", file=sys.stderr)
                raise SystemExit(1)
        finally:
            process.kill()
            process.wait()


def append(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows to a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(r) + "\n" for r in rows)


def network(name: str) -> Path:
    """A name of nets/, or a path."""
    return Path(name) if Path(name).exists() else bundled.benchmark_files([name])[0]


def parser_of(doc: str | None, results: str, **defaults: int) -> argparse.ArgumentParser:
    """The command line of a benchmark: ``--out`` and ``--smoke``, and options with these numbers as defaults."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / results, help="file that rows go to")
    parser.add_argument("--smoke", action="store_true", help="shortest run; nothing is stored")
    return parser


def store(given: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> None:
    """Append rows to the file of ``--out``, except in a smoke test."""
    if not given.smoke:
        append(given.out, rows)
