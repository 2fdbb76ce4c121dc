"""Runs that stop at any moment can be resumed and lose nothing."""

from __future__ import annotations

import base64
import errno
import gzip
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.cases.query import file_fingerprint
from jtgpu.cases.writing import resumable
from jtgpu.columns import csv_file
from tests.cases.asia_files import N, answers, assert_same, csv_text, only, parquet, rows_done, run
from tests.support.examples import slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


@pytest.mark.parametrize("source", ["plain", *slow("gzip", "parquet")])
@pytest.mark.parametrize("name", ["o.parquet", "o.csv", "o.csv.gz"])
def test_an_invalid_row_keeps_the_chunks_before_it(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, source: str,
    name: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(csv_file, "MIN_BLOCK", 300)
    cases, out = tmp_path / "cases", tmp_path / name

    def write(r: list[list[str]]) -> None:
        if source == "parquet":
            parquet(cases, r, row_group_size=64)
        else:
            cases.write_bytes(gzip.compress(csv_text(r), mtime=0) if source == "gzip" else csv_text(r))
        os.utime(cases, (1e9, 1e9))  # as if it had never been touched

    wrong = [list(r) for r in rows]
    wrong[321][2] = "ja"
    write(wrong)
    with pytest.raises(jtgpu.UnknownState, match=r"row 322: column|cases:323: column"):
        run(tree, cases, out, chunk=20)
    assert not out.exists()
    with pytest.raises(jtgpu.JtgpuError, match="pass resume=True to continue it or force=True"):
        run(tree, cases, out, chunk=20)
    # repaired; the size and what is hashed of the file differ, which is another file to the journal
    write(rows)
    with pytest.raises(jtgpu.JtgpuError, match=r"different (size|digest)"):
        run(tree, cases, out, chunk=20, resume=True)
    journal = tmp_path / f"{name}.unfinished" / "journal.jsonl"
    first, *rest = journal.read_text().splitlines()
    head = json.loads(first)
    head["identity"]["cases"] = file_fingerprint(cases)
    journal.write_text("\n".join([json.dumps(head), *rest]) + "\n")
    report = run(tree, cases, out, chunk=20, resume=True)
    assert 250 < report.resumed < 322
    assert report.cases == N
    assert_same(answers(out), expected)
    only(tmp_path, "cases", name)


@pytest.mark.parametrize("stop", ["solve", *slow("read", "write")])
@pytest.mark.parametrize("name", ["o.parquet", "o.tsv"])
def test_a_run_interrupted_anywhere_can_be_resumed(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, stop: str,
    name: str,
) -> None:  # fmt: skip
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / name
    resumed = -1
    for after in (0, 1, 3, 7):
        with pytest.MonkeyPatch.context() as patch:
            place = {
                "read": ("jtgpu.columns.coded.Encoder.encode"), "solve": "jtgpu.cases.solver.CaseSolver.solve",
                "write": "jtgpu.cases.writing.resumable.ResumableFile.append",
            }[stop]  # fmt: skip
            module, kind, method = place.rsplit(".", 2)
            owner = getattr(sys.modules[module], kind)
            original, count = getattr(owner, method), [0]

            def failing(
                *given: Any, original: Any = original, count: list[int] = count, after: int = after, **more: Any
            ) -> Any:
                count[0] += 1
                if count[0] > after:
                    raise KeyboardInterrupt
                return original(*given, **more)

            patch.setattr(owner, method, failing)
            with pytest.raises(KeyboardInterrupt):
                run(tree, cases, out, chunk=20, resume=True)
        assert not out.exists()
        done = rows_done(tmp_path / f"{name}.unfinished")
        assert done >= max(resumed, 0)
        resumed = done
    report = run(tree, cases, out, chunk=20, resume=True)
    assert report.resumed == resumed >= 20 * (0 + 1 + 3 + 7 - 3)
    assert_same(answers(out), expected)
    only(tmp_path, "cases", name)


@pytest.mark.parametrize("room", [10, 9000])
def test_a_run_resumes_after_a_limit_of_the_file_size(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, room: int
) -> None:
    import resource

    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.csv"
    run(tree, cases, tmp_path / "first.csv", chunk=20)  # whatever is compiled, is cached now
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(jtgpu.JtgpuError) as error:
            run(tree, cases, out, chunk=20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = str(error.value)
    assert said.startswith(f"{out} would exceed the limit of the file size (ulimit -f): ")
    if room == 10:
        assert said.endswith("no case is saved; raise the limit and start again")
        assert not out.with_name(f"{out.name}.unfinished").exists()
    else:
        assert f"cases are saved in {out}.unfinished" in said
        assert "resume=True" in said
    report = run(tree, cases, out, chunk=20, resume=True)
    assert report.resumed == 0 if room == 10 else 0 < report.resumed < N
    assert_same(answers(out), expected)


@pytest.mark.parametrize("name", ["o.parquet", "o.csv"])
def test_a_run_resumes_after_a_full_disk(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / name
    original = resumable.ResumableFile._open

    class Full:
        """A file on a disk with room for so many bytes."""

        def __init__(self, file: Any, room: int):
            self.file, self.room = file, room

        def write(self, data: Any) -> int:
            if len(data) > self.room:
                self.file.write(bytes(data)[: self.room])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room -= len(data)
            return int(self.file.write(data))

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    def opened(self: Any, resume: bool) -> None:
        original(self, resume)
        self._data = Full(self._data, 9000)

    with monkeypatch.context() as patch:
        patch.setattr(resumable.ResumableFile, "_open", opened)
        with pytest.raises(jtgpu.JtgpuError, match=r"no space left.*cases are saved.*resume=True"):
            run(tree, cases, out, chunk=20)
    assert not out.exists()
    folder = tmp_path / f"{name}.unfinished"
    done = rows_done(folder)
    assert 0 < done < N
    assert (folder / "data").stat().st_size <= 9004
    report = run(tree, cases, out, chunk=20, resume=True)
    assert report.resumed == done
    assert_same(answers(out), expected)


@pytest.mark.parametrize(
    "damage", ["torn line", *slow("lost data", "no data", "more data", "finished but for the name")]
)
def test_a_run_resumes_after_a_crash(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path, damage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.parquet"
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tree, cases, out, chunk=20)
    folder = tmp_path / "o.parquet.unfinished"
    data, journal = folder / "data", folder / "journal.jsonl"
    if damage == "torn line":
        journal.write_bytes(journal.read_bytes()[:-30])
    elif damage == "lost data":
        data.write_bytes(data.read_bytes()[:5000])
    elif damage == "no data":
        data.unlink()
    elif damage == "more data":
        data.write_bytes(data.read_bytes() + b"half a chunk")
    report = run(tree, cases, out, chunk=33, resume=True)
    low, high = {"torn line": (1, N - 1), "lost data": (1, N - 1), "no data": (0, 0)}.get(damage, (N, N))
    assert low <= report.resumed <= high
    assert_same(answers(out), expected)
    only(tmp_path, "cases", "o.parquet")


def test_two_runs_cannot_write_the_same_output(tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path) -> None:
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.csv"
    said: list[str] = []

    def progress(*_: int) -> None:
        if not said:
            for how in ({"resume": True}, {"force": True}):
                with pytest.raises(jtgpu.JtgpuError, match="another run is writing") as error:
                    run(tree, cases, out, **how)
                said.append(str(error.value))

    run(tree, cases, out, progress=progress, chunk=100)
    assert len(said) == 2
    assert len(answers(out)["id"]) == N


def test_a_run_without_answers_leaves_no_files(tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes(b"xray\nja\n")
    for _ in range(2):  # a typing error, and the next try is not in the way of itself
        with pytest.raises(jtgpu.UnknownState):
            run(tree, tmp_path / "c.csv", tmp_path / "o.csv", keep=())
        only(tmp_path, "c.csv")


def test_a_killed_run_without_answers_is_discarded(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    cases, folder = parquet(tmp_path / "cases", rows), tmp_path / "o.parquet.unfinished"
    folder.mkdir()
    (folder / "data").write_bytes(b"PAR1")
    (folder / "journal.jsonl").write_bytes(b'{"identity": {"cases": "others"}, "end": 4}\n')
    run(tree, cases, tmp_path / "o.parquet")
    assert_same(answers(tmp_path / "o.parquet"), expected)
    only(tmp_path, "cases", "o.parquet")


def test_a_resumed_run_can_be_interrupted_immediately(
    tree: jtgpu.JunctionTree, rows: list[list[str]], expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """What an earlier run did is in the journal at every moment of the next one."""
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tree, cases, out, chunk=50)
    journal = tmp_path / "o.parquet.unfinished" / "journal.jsonl"
    whole = journal.read_bytes()
    cut = whole[: whole.rindex(b"\n", 0, len(whole) - 1) + 20]  # the last line is torn
    journal.write_bytes(cut)
    seen: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: seen.append(journal.read_bytes()))
        patch.setattr(resumable.ResumableFile, "append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tree, cases, out, chunk=50, resume=True)
    seen.append(journal.read_bytes())
    assert all(s == cut[: cut.rindex(b"\n") + 1] for s in seen)
    assert run(tree, cases, out, chunk=50, resume=True).resumed == 450
    assert_same(answers(out), expected)


def test_a_run_resumes_only_with_the_same_query(
    tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path
) -> None:
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tree, cases, out)
    for changed in ({"targets": "tub"}, {"keep": ()}, {"on_error": "flag"}, {"do": {"asia": "no"}}):
        with pytest.raises(jtgpu.JtgpuError, match=r"different (targets|keep|flag|do)"):
            run(tree, cases, out, resume=True, **changed)
    os.utime(cases)
    with pytest.raises(jtgpu.JtgpuError, match="different modified"):
        run(tree, cases, out, resume=True)
    run(tree, cases, out, force=True)
    with pytest.raises(jtgpu.JtgpuError, match="force=True to overwrite it"):
        run(tree, cases, out)


def test_reading_is_at_most_five_chunks_ahead_of_writing(
    tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jtgpu.columns.coded import Encoder

    cases = parquet(tmp_path / "cases", rows)
    encode, append = Encoder.encode, resumable.ResumableFile.append
    ahead, most = 0, 0
    lock = threading.Lock()

    def reading(*given: Any, **more: Any) -> Any:
        nonlocal ahead, most
        with lock:
            ahead += 1
            most = max(most, ahead)
        return encode(*given, **more)

    def writing(*given: Any) -> None:
        nonlocal ahead
        time.sleep(0.01)
        append(*given)
        with lock:
            ahead -= 1

    monkeypatch.setattr(Encoder, "encode", reading)
    monkeypatch.setattr(resumable.ResumableFile, "append", writing)
    run(tree, cases, tmp_path / "o.csv", chunk=10)
    assert ahead == 0
    assert most <= 5  # read, waiting, answered, waiting, written


def test_the_journal_is_json_lines(tree: jtgpu.JunctionTree, rows: list[list[str]], tmp_path: Path) -> None:
    cases, out = parquet(tmp_path / "cases", rows), tmp_path / "o.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tree, cases, out, chunk=100)
    first, *entries = map(json.loads, (tmp_path / "o.parquet.unfinished" / "journal.jsonl").read_text().splitlines())
    assert set(first) == {"identity", "end"}
    assert [e["rows"] for e in entries] == [100, 200, 300, 400, 500]
    assert base64.b64decode(entries[0]["chunk"]["footer"])
