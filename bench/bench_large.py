"""A Parquet file of any number of cases through little memory, with a kill in the middle.

    python bench/bench_large.py                        10^8 cases of alarm through 4 GiB, to bench/results
    python bench/bench_large.py --rows 1000000 --folder /data
    python bench/bench_large.py --smoke                asia, 200,000 cases, nothing kept

The cases are forward samples, made row group by row group: an id, and ten columns of which one cell in ten is empty.
``jtgpu batch`` answers for three targets in a process whose data may not grow beyond the limit (RLIMIT_DATA: the kernel
refuses more), is killed (SIGKILL) half-way and goes on with ``--resume``. The largest resident set of both processes is
read from the kernel. Then every row's id is looked at (nothing lost, nothing doubled), and the answers of some row
groups are compared with those of a table in memory. The files are deleted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rows import ROOT, network, parser_of, row, store

import jtgpu
from jtgpu.model.network import BayesianNetwork

COLUMNS, TARGETS, EMPTY = 10, 3, 0.1
GROUP = 1 << 20  # rows of a row group
LOOKED_AT = 5  # row groups of the answers that are compared
LONG = 10**7  # rows from which on a run is not over before its first chunks are made sure of
# `jtgpu batch`, slowed down: a short run would be over before it is killed
SHORT = """import time, jtgpu.cases.writing.resumable as o
o.SYNC_INTERVAL, append = 0.0, o.ResumableFile.append
def slow(*given):
    time.sleep(0.1)
    append(*given)
o.ResumableFile.append = slow
from jtgpu.cli import main; main()"""


class Large:
    """A network, the variables that are columns, and the targets."""

    def __init__(self, path: Path, seed: int):
        net = jtgpu.read(path)
        assert isinstance(net, BayesianNetwork)
        self.path, self.net, self.seed = path, net, seed
        order = np.random.default_rng(seed).permutation(len(net)).tolist()
        n = min(COLUMNS, len(net) - TARGETS)
        self.seen, self.asked = sorted(order[:n]), [net.variables[v] for v in sorted(order[n : n + TARGETS])]
        self.tree = net.plan(memory_limit=None).compile("cpu")

    def group(self, first: int, n: int) -> Any:
        """A row group as an Arrow table."""
        pa = importlib.import_module("pyarrow")
        states = self.tree.sample(n, seed=self.seed + first).states
        empty = np.random.default_rng([self.seed, first]).random((len(self.seen), n)) < EMPTY
        columns = {"id": pa.array(np.arange(first, first + n))}
        for j, v in enumerate(self.seen):
            indices = pa.array(states[:, v].astype(np.int8), mask=empty[j])
            columns[self.net.variables[v]] = pa.DictionaryArray.from_arrays(indices, pa.array(self.net.states(v)))
        return pa.table(columns)

    def write(self, path: Path, rows: int) -> None:
        """All cases."""
        parquet = importlib.import_module("pyarrow.parquet")
        with parquet.ParquetWriter(path, self.group(0, 1).schema) as writer:
            for first in range(0, rows, GROUP):
                writer.write_table(self.group(first, min(GROUP, rows - first)))

    def check(self, cases: Path, answers: Path, rows: int) -> float:
        """Every row once, in order; the largest difference of a probability in some row groups."""
        parquet = importlib.import_module("pyarrow.parquet")
        gap, first = 0.0, 0
        with parquet.ParquetFile(answers) as found, parquet.ParquetFile(cases) as given:
            n_groups = found.num_row_groups
            looked_at = set(np.linspace(0, n_groups - 1, LOOKED_AT).astype(int).tolist())
            for g in range(n_groups):
                ids = found.read_row_group(g, columns=["id"]).column("id").to_numpy()
                if not np.array_equal(ids, np.arange(first, first + len(ids))):
                    raise SystemExit(f"row group {g}: rows are lost or doubled behind row {first}")
                if g in looked_at:
                    table = found.read_row_group(g)
                    source = given.read_row_group(first // GROUP)
                    n = min(len(ids), GROUP - first % GROUP)
                    ours = self.tree.predict_proba(source.slice(first % GROUP, n), self.asked)
                    for name in ours.column_names:
                        away = np.abs(table[name].to_numpy()[:n] - ours[name].to_numpy())
                        gap = max(gap, float(away.max()))
                first += len(ids)
        if first != rows:
            raise SystemExit(f"{first:,} rows came out of {rows:,}")
        if not gap <= 1e-12:
            raise SystemExit(f"the answers differ by {gap:g}")
        return gap


def largest_resident(pid: int) -> int:
    """Bytes; 0: the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def rows_done(output: Path) -> int:
    """What the journal of an unfinished run holds."""
    journal = output.with_name(output.name + ".unfinished") / "journal.jsonl"
    try:
        with journal.open("rb") as file:
            file.seek(max(journal.stat().st_size - (1 << 16), 0))
            lines = file.read().splitlines()
        return int(json.loads(lines[-1]).get("rows", 0))
    except (OSError, ValueError, IndexError):
        return 0


def run(words: list[str], limit: int, output: Path, stop_at: int | None) -> tuple[float, int, dict[str, Any]]:
    """Run a command under a limit, perhaps until so many rows are done: seconds, largest resident set, its report."""
    begun, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            words, cwd=ROOT, stdout=out, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        )
        while process.poll() is None:
            peak = max(peak, largest_resident(process.pid))
            if stop_at is not None and rows_done(output) >= stop_at:
                process.send_signal(signal.SIGKILL)
                process.wait()
                break
            time.sleep(0.05)
        seconds = time.perf_counter() - begun
        expected = 0 if stop_at is None else -signal.SIGKILL
        if process.returncode != expected:
            raise SystemExit(f"{' '.join(words)}: ended with {process.returncode}, not {expected}")
        out.seek(0)
        text = out.read()
    return seconds, peak, json.loads(text) if text else {}


def large(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Make, answer, kill, resume, check."""
    task = Large(network(arguments.network), arguments.seed)
    cases, output = folder / "cases.parquet", folder / "answers.parquet"
    begun = time.perf_counter()
    task.write(cases, arguments.rows)
    print(f"made {arguments.rows:,} cases, {cases.stat().st_size:,} bytes, in {time.perf_counter() - begun:.0f} s",
          file=sys.stderr, flush=True)  # fmt: skip
    words = ["batch", str(task.path), str(cases), "-o", str(output), "-t", ",".join(task.asked), "--keep", "id",
             "--backend", "cpu", "--json", "--resume"]  # fmt: skip
    words = [sys.executable, "-m", "jtgpu", *words] if arguments.rows >= LONG else [sys.executable, "-c", SHORT, *words,
                                                                                    "--chunk", "10000"]  # fmt: skip
    limit = int(arguments.memory * 2**30)
    first, peak, _ = run(words, limit, output, arguments.rows // 2)
    print(f"killed after {first:.1f} s, {rows_done(output):,} cases done", file=sys.stderr, flush=True)
    second, peak_again, report = run(words, limit, output, None)
    if report["cases"] != arguments.rows or not report["resumed"]:
        raise SystemExit(f"the report is wrong: {report}")
    gap = task.check(cases, output, arguments.rows)
    peak = max(peak, peak_again)
    if peak > limit:
        raise SystemExit(f"{peak:,} bytes were resident, of {limit:,}")
    new = report["cases"] - report["resumed"]
    return row(
        "cases", task.path.stem, "jtgpu cpu", None, question="large", kind="holes", files="parquet -> parquet",
        targets=str(TARGETS), cases=arguments.rows, columns=len(task.seen), threads=len(os.sched_getaffinity(0)),
        killed_after=first, resumed=report["resumed"], resumed_seconds=report["seconds"], seconds=first + second,
        cases_per_second=new / report["seconds"], limit=limit, peak=peak, bytes_in=cases.stat().st_size,
        bytes_out=output.stat().st_size, gap=gap, version=jtgpu.__version__,
    )  # fmt: skip


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__, "cases.jsonl", seed=1)
    parser.add_argument("network", nargs="?", default="alarm")
    parser.add_argument("--rows", type=int, default=10**8)
    parser.add_argument("--memory", type=float, default=4.0, metavar="GIB")
    parser.add_argument("--folder", type=Path, help="with room for the files; default: where temporary files are")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.network, arguments.rows = "asia", 200_000
    with tempfile.TemporaryDirectory(prefix="jtgpu-large-", dir=arguments.folder) as folder:
        found = large(arguments, Path(folder))
    print(
        f"{found['network']}: {found['cases']:,} cases, killed after {found['killed_after']:.1f} s with "
        f"{found['resumed']:,} done, the rest in {found['resumed_seconds']:.1f} s: "
        f"{found['cases_per_second']:,.0f} cases/s; {found['peak'] / 2**30:.2f} GiB resident of "
        f"{found['limit'] / 2**30:g}"
    )
    store(arguments, [found])


if __name__ == "__main__":
    main()
