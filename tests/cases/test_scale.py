"""Files of cases at scale: memory that does not grow, several chunks at a time, and stops at the worst moments."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cases import answer_file
from jtgpu.cases.pipeline import MAX_CONCURRENCY, default_concurrency
from jtgpu.cases.writing import resumable
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT
from tests.support.examples import slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
arrow_csv = pytest.importorskip("pyarrow.csv", reason="pyarrow is not installed")

ASIA = str(ROOT / "nets" / "asia.net")
SEEN, TARGETS = ("smoke", "xray", "dysp"), ("lung", "tub")
MIB = 1 << 20


def table(n: int, seed: int = 7) -> Any:
    """Cases with an id; one cell in five is empty."""
    random = np.random.default_rng(seed)
    kinds = pa.array(["yes", "no", None])
    columns = {"id": pa.array(np.arange(n))}
    for name in SEEN:
        columns[name] = kinds.take(pa.array(random.choice(3, n, p=[0.5, 0.3, 0.2])))
    return pa.table(columns)


def written(path: Path, n: int, **options: Any) -> Path:
    if path.suffix == ".csv":
        arrow_csv.write_csv(table(n), path)
    else:
        pq.write_table(table(n), path, **{"row_group_size": 100_000, **options})
    return path


@pytest.fixture(scope="module")
def expected() -> Any:
    """The answers of 20,000 cases, by the definition."""
    net = jtgpu.read(ASIA)
    assert isinstance(net, BayesianNetwork)
    with net.compile(backend="reference") as tree:
        return tree.predict_proba(table(20_000), TARGETS, keep="id", log_evidence=True)


def assert_whole(path: Path, expected: Any) -> None:
    """Every row once, in order, with its answer."""
    found = pq.read_table(path)
    assert found.column_names == expected.column_names
    assert found["id"].to_pylist() == expected["id"].to_pylist()
    for name in expected.column_names[1:]:
        np.testing.assert_allclose(found[name].to_numpy(), expected[name].to_numpy(), rtol=0, atol=1e-12)


# Memory ---------------------------------------------------------------------------------------------------------

PEAK = """
import json, sys
from pathlib import Path
import jtgpu
from jtgpu.cases import answer_file
from jtgpu.util.system import peak_memory
net = jtgpu.read(sys.argv[1])
with net.plan().compile("cpu", threads=2) as tree:
    for cases in sys.argv[2:4]:
        report = answer_file(tree, cases, sys.argv[4], targets=["lung", "tub"], keep="id", chunk=20_000, force=True)
        print(json.dumps([report.cases, peak_memory()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, suffix: str) -> None:
    n = 3_000_000
    small, large = (written(tmp_path / f"{k}.{suffix}", k) for k in (300_000, n))
    out = tmp_path / "o.parquet"
    done = subprocess.run(
        [sys.executable, "-c", PEAK, ASIA, str(small), str(large), str(out)], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    (few, before), (many, after) = map(json.loads, done.stdout.splitlines())
    assert (few, many) == (300_000, n)
    metadata = pq.read_metadata(out)
    assert metadata.num_rows == n
    assert sum(metadata.row_group(g).total_byte_size for g in range(metadata.num_row_groups)) > 80 * MIB
    assert after - before < 40 * MIB  # every thread's share of the heap grows to what chunks want; then no more


def test_one_row_group_of_all_rows_is_read_in_chunks(tmp_path: Path, expected: Any) -> None:
    net = jtgpu.read(ASIA)
    cases = written(tmp_path / "c.parquet", 20_000, row_group_size=1 << 30)
    with net.compile(backend="cpu") as tree:
        report = answer_file(tree, cases, tmp_path / "o.parquet", targets=TARGETS, keep="id", log_evidence=True,
                             chunk=3000)  # fmt: skip
    assert report.cases == 20_000
    assert pq.read_metadata(tmp_path / "o.parquet").num_row_groups == 7
    assert_whole(tmp_path / "o.parquet", expected)


# Several chunks at a time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_same_bytes_for_any_number_of_threads(tmp_path: Path, suffix: str, expected: Any) -> None:
    net = jtgpu.read(ASIA)
    cases = written(tmp_path / f"c.{suffix}", 20_000)
    found = set()
    for threads in (1, 2, 4):
        with net.plan().compile("cpu", threads=threads) as tree:
            assert tree.max_concurrent_tables == threads
            for name in ("o.parquet", "o.csv.gz"):
                answer_file(tree, cases, tmp_path / name, targets=TARGETS, keep="id", log_evidence=True, chunk=700,
                            threads=threads, force=True)  # fmt: skip
            found.add(((tmp_path / "o.parquet").read_bytes(), (tmp_path / "o.csv.gz").read_bytes()))
    assert len(found) == 1
    if suffix == "parquet":
        assert_whole(tmp_path / "o.parquet", expected)


def test_chunks_are_answered_concurrently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jtgpu.cases.solver import CaseSolver

    net = jtgpu.read(ASIA)
    cases = written(tmp_path / "c.parquet", 6000)
    solve, both = CaseSolver.solve, threading.Barrier(3, timeout=30)

    def together(*given: Any) -> Any:
        both.wait()  # no thread continues before three have arrived
        return solve(*given)

    monkeypatch.setattr(CaseSolver, "solve", together)
    with net.plan().compile("cpu", threads=3) as tree:
        report = answer_file(tree, cases, tmp_path / "o.csv", targets="lung", chunk=1000)
    assert report.cases == 6000


def test_all_cores_encode_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = jtgpu.read(ASIA)
    cases = written(tmp_path / "c.parquet", 6000)
    write_table, both = pq.write_table, threading.Barrier(3, timeout=30)

    def together(*given: Any, **more: Any) -> None:
        both.wait()  # no thread continues before three have arrived
        write_table(*given, **more)

    monkeypatch.setattr(pq, "write_table", together)
    monkeypatch.setattr(jtgpu.JunctionTree, "device", "a GPU")
    monkeypatch.setattr("jtgpu.cases.pipeline.cores", lambda: 3)
    with net.plan().compile("cpu", threads=1) as tree:
        assert (
            tree.max_concurrent_tables,
            default_concurrency(tree),
            default_concurrency(tree, 1),
            default_concurrency(tree, 99),
        ) == (1, 3, 1, MAX_CONCURRENCY)
        report = answer_file(tree, cases, tmp_path / "o.parquet", targets="lung", chunk=1000)
    assert report.cases == 6000


def test_the_first_invalid_row_is_raised_whichever_thread_finds_one_first(tmp_path: Path) -> None:
    net = jtgpu.read(ASIA)
    rows = ["id,smoke,xray", *(f"{i},yes,no" for i in range(4000))]
    for bad in (1500, 1600, 2500, 3900):
        rows[bad] = f"{bad},maybe,no"
    (tmp_path / "c.csv").write_text("\n".join(rows) + "\n")
    with net.plan().compile("cpu", threads=4) as tree:
        for _ in range(5):
            with pytest.raises(jtgpu.UnknownState, match=r"c\.csv:1501: column 'smoke': 'maybe'"):
                answer_file(tree, tmp_path / "c.csv", tmp_path / "o.csv", targets="lung", chunk=100, force=True)
        report = answer_file(tree, tmp_path / "c.csv", tmp_path / "o.csv", targets="lung", chunk=100, force=True,
                             on_error="flag")  # fmt: skip
    assert (report.cases, report.flagged) == (4000, 4)


# Stops ----------------------------------------------------------------------------------------------------------

# a process that stops itself in the middle of a piece of work, the k-th time it comes there
STOPPED = """
import os, signal, sys
import jtgpu.cases.writing.resumable as output
from jtgpu.cases.solver import CaseSolver
output.SYNC_INTERVAL = 0.0
where, k, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
count = [0]
def stop():
    count[0] += 1
    if count[0] == k:
        os.kill(os.getpid(), how)
if where == "solve":
    original = CaseSolver.solve
    def solve(self, *given):
        stop()
        return original(self, *given)
    CaseSolver.solve = solve
elif where == "write":
    original = output.ResumableFile._open
    class Half:
        def __init__(self, file): self.file = file
        def write(self, data):
            half = len(data) // 2
            self.file.write(bytes(data)[:half])
            self.file.flush()
            stop()
            self.file.write(bytes(data)[half:])
        def __getattr__(self, name): return getattr(self.file, name)
    def opened(self, resume):
        original(self, resume)
        self._data = Half(self._data)
    output.ResumableFile._open = opened
elif where == "journal":
    original = output.os.fsync
    def fsync(n):
        stop()
        original(n)
    output.os.fsync = fsync
elif where == "rename":
    original = output.os.replace
    def replace(*names):
        stop()
        original(*names)
    output.os.replace = replace
from jtgpu.cli import main
sys.argv = ["jtgpu", *sys.argv[4:]]
main()
"""


def rows_done(output: Path) -> int:
    lines = (output.with_name(output.name + ".unfinished") / "journal.jsonl").read_bytes().splitlines()
    return int(json.loads(lines[-1]).get("rows", 0))


@pytest.mark.parametrize(
    ("where", "k"), [("solve", 7), *slow(("write", 5), ("journal", 9), ("journal", 10), ("rename", 1))]
)
@pytest.mark.parametrize("how", [signal.SIGKILL, *slow(signal.SIGINT)])
def test_a_run_stopped_at_any_step_can_be_resumed(
    tmp_path: Path, expected: Any, where: str, k: int, how: signal.Signals
) -> None:
    cases, out = written(tmp_path / "c.parquet", 20_000, row_group_size=7000), tmp_path / "o.parquet"
    words = ["batch", ASIA, str(cases), "-o", str(out), "-t", ",".join(TARGETS), "--keep", "id", "--log-evidence",
             "--chunk", "1000", "--threads", "2", "--resume"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", STOPPED, where, str(k), str(int(how)), *words], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == (-9 if how == signal.SIGKILL else 130), done.stderr
    assert not out.exists() or (where, how) == ("rename", signal.SIGINT)
    if out.exists():  # the signal came when everything was over but the call
        assert_whole(out, expected)
        return
    assert how == signal.SIGKILL or "finished work is saved" in done.stderr
    kept = rows_done(out)
    again = subprocess.run(
        [sys.executable, "-m", "jtgpu", *words, "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    report = json.loads(again.stdout)
    assert (report["cases"], report["resumed"]) == (20_000, kept)
    assert kept >= 1000
    assert_whole(out, expected)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.parquet", "o.parquet"]


@pytest.mark.parametrize("where", ["data", "journal", "both"])
def test_a_disk_that_is_full_at_fsync(
    tmp_path: Path, expected: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written, and refused by fsync, as file systems do that take room late."""
    net = jtgpu.read(ASIA)
    cases, out = written(tmp_path / "c.parquet", 20_000), tmp_path / "o.parquet"
    question: dict[str, Any] = {"targets": TARGETS, "keep": "id", "log_evidence": True, "chunk": 1000}
    fsync, calls = os.fsync, [0]

    def full(n: int) -> None:
        calls[0] += 1
        turn = calls[0] > 12 and where in ("both", ("data", "journal")[calls[0] % 2])
        if turn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(n)

    with net.plan().compile("cpu", threads=2) as tree:
        with monkeypatch.context() as patch:
            patch.setattr(resumable, "SYNC_INTERVAL", 0.0)
            patch.setattr(os, "fsync", full)
            with pytest.raises(jtgpu.JtgpuError, match="no space left") as error:
                answer_file(tree, cases, out, **question)
        assert not out.exists()
        report = answer_file(tree, cases, out, resume=True, **question)
        saved = int(str(error.value).split(": ")[1].split()[0].replace(",", ""))
        assert 20_000 > report.resumed >= saved >= 1000
    assert_whole(out, expected)


@pytest.mark.slow
def test_a_second_interrupt_loses_nothing(tmp_path: Path, expected: Any) -> None:
    """A second Ctrl-C while chunks are being finished does no harm."""
    cases, out = written(tmp_path / "c.parquet", 20_000), tmp_path / "o.parquet"
    slow = STOPPED.replace(
        "        stop()\n        return original(self, codes)",
        """        import time
        time.sleep(0.1)
        return original(self, codes)""",
    )
    words = ["batch", ASIA, str(cases), "-o", str(out), "-t", ",".join(TARGETS), "--keep", "id", "--log-evidence",
             "--chunk", "500", "--threads", "2", "--resume"]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", slow, "solve", "0", "0", *words], cwd=ROOT, stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    journal = tmp_path / "o.parquet.unfinished" / "journal.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") >= 5:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    time.sleep(0.03)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in (130, -2)
    net = jtgpu.read(ASIA)
    with net.compile(backend="cpu") as tree:
        report = answer_file(tree, cases, out, targets=TARGETS, keep="id", log_evidence=True, chunk=500, resume=True)
    assert report.resumed >= 2000
    assert_whole(out, expected)
