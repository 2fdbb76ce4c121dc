"""Runs on a cluster that fail can be resumed, and name the error."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.cluster import answer_files
from jtgpu.cluster import worker as worker_module
from jtgpu.cluster.parts import FilePart, part_name
from jtgpu.cluster.tables import locate
from jtgpu.errors import JtgpuError, ParseError
from tests.cluster.local_workers import ASK, LocalWorkers, N, files_of, read_parts, table

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


def bad(cases: Path, row: int, column: str, value: str) -> None:
    """Put a cell into the first file."""
    found = pq.read_table(cases / "a.parquet")
    cells = found[column].to_pylist()
    cells[row] = value
    at = found.column_names.index(column)
    pq.write_table(found.set_column(at, column, pa.array(cells, pa.string())), cases / "a.parquet", row_group_size=170)


@pytest.mark.slow
def test_an_invalid_row_is_named_and_finished_parts_are_saved(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path
) -> None:
    bad(cases, 750, "xray", "perhaps")
    with pytest.raises(
        jtgpu.errors.UnknownState, match=r"a\.parquet: row 751: column 'xray': 'perhaps' is not a state"
    ):
        answer_files(tree, cases, tmp_path / "out", part_rows=300, **ASK)
    assert not (tmp_path / "out").exists()
    assert part_name(1) in files_of(tmp_path / "out.unfinished")
    assert part_name(2) not in files_of(tmp_path / "out.unfinished")
    assert not any(n.startswith("_tmp") for n in files_of(tmp_path / "out.unfinished"))
    report = answer_files(tree, cases, tmp_path / "out", part_rows=300, on_error="flag", force=True, **ASK)
    assert (report.cases, report.flagged) == (N, 1)
    found = read_parts(tmp_path / "out")
    assert [i for i, e in enumerate(found["error"].to_pylist()) if e] == [750]
    assert found["lung=yes"][750].as_py() is None


@pytest.mark.slow
def test_a_run_without_parts_leaves_no_folder(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path
) -> None:
    good = (cases / "a.parquet").read_bytes()
    bad(cases, 0, "xray", "perhaps")
    with pytest.raises(jtgpu.errors.UnknownState, match="row 1:"):
        answer_files(tree, cases / "a.parquet", tmp_path / "out", **ASK)
    assert not (tmp_path / "out.unfinished").exists()
    (cases / "a.parquet").write_bytes(good)
    assert answer_files(tree, cases / "a.parquet", tmp_path / "out", **ASK).cases == 1300


@pytest.mark.slow
def test_the_first_error_in_the_order_of_the_rows_is_raised(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path
) -> None:
    bad(cases, 1250, "asia", "later")
    bad(cases, 310, "asia", "sooner")
    with pytest.raises(jtgpu.errors.UnknownState, match=r"row 311.*sooner"):
        answer_files(tree, cases, tmp_path / "out", part_rows=300, **ASK)


@pytest.mark.slow
def test_a_run_resumes_with_the_finished_parts(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, cases: Path, expected: Any, tmp_path: Path
) -> None:
    workers.fail, workers.error = 3, JtgpuError("the machine burned down")
    with pytest.raises(JtgpuError, match="burned"):
        answer_files(tree, cases, tmp_path / "out", part_rows=300, **ASK)
    unfinished = tmp_path / "out.unfinished"
    (unfinished / "_tmp-part-000003.parquet-abc").write_bytes(b"half")
    (unfinished / part_name(6)).write_bytes(b"PAR1 no more")  # a disk that lost something
    (unfinished / part_name(99)).write_bytes((unfinished / part_name(1)).read_bytes())
    with pytest.raises(JtgpuError, match="pass resume=True to continue"):
        answer_files(tree, cases, tmp_path / "out", part_rows=300, **ASK)
    with pytest.raises(JtgpuError, match="different targets"):
        answer_files(tree, cases, tmp_path / "out", resume=True, **{**ASK, "targets": "bronc"})
    workers.fail, workers.answered = None, []
    report = answer_files(tree, cases, tmp_path / "out", resume=True, **ASK)  # parts are as they were settled
    assert sorted(set(workers.answered)) == [3, 6]
    assert report.resumed == N - 300 - 300
    assert read_parts(tmp_path / "out").equals(expected)
    assert part_name(99) not in files_of(tmp_path / "out")
    with pytest.raises(JtgpuError, match="exists; pass force=True"):
        answer_files(tree, cases, tmp_path / "out", **ASK)
    pq.write_table(table(10), cases / "c.parquet")
    assert answer_files(tree, cases, tmp_path / "out", force=True, **ASK).cases == N + 10


@pytest.mark.slow
def test_joining_the_parts_can_be_resumed(
    workers: LocalWorkers,
    tree: jtgpu.JunctionTree,
    cases: Path,
    expected: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from jtgpu.cases.writing import ResumableFile as Unfinished

    append = Unfinished.append
    full = [3]

    def failing(self: Any, *args: Any) -> None:
        full[0] -= 1
        if not full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, *args)

    monkeypatch.setattr(Unfinished, "append", failing)
    out = tmp_path / "out.parquet"
    with pytest.raises(JtgpuError, match=r"no space left.*resume=True"):
        answer_files(tree, cases, out, part_rows=300, **ASK)
    assert not out.exists()
    workers.answered = []
    answer_files(tree, cases, out, resume=True, **ASK)
    assert workers.answered == []
    assert pq.read_table(out).equals(expected)


class _Full:
    """A disk that is full after so many bytes, between the file system and the writer."""

    def __init__(self, fs: Any, room: list[int]):
        self._fs, self._room = fs, room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def open_output_stream(self, path: str) -> Any:
        room, stream = self._room, self._fs.open_output_stream(path)

        class Stream:
            closed = False

            def write(self, data: Any) -> int:
                room[0] -= len(data)
                if room[0] < 0:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return int(stream.write(data) or len(data))

            def close(self) -> None:
                self.closed = True
                stream.close()

            def flush(self) -> None:
                stream.flush()

        return pa.PythonFile(Stream(), "w")


@pytest.mark.slow
def test_a_full_disk_leaves_only_complete_parts(
    workers: LocalWorkers,
    tree: jtgpu.JunctionTree,
    cases: Path,
    expected: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from jtgpu.cluster import parts as writer_module

    room = [20_000]

    def located(uri: str) -> Any:
        place = locate(uri)
        return type(place)(place.uri, _Full(place.fs, room), place.path)

    with monkeypatch.context() as full:
        full.setattr(writer_module, "locate", located)
        with pytest.raises(JtgpuError, match=r"no space left for .*out: finished parts are saved in .*resume=True"):
            answer_files(tree, cases, tmp_path / "out", part_rows=300, **ASK)
    left = files_of(tmp_path / "out.unfinished")
    assert not (tmp_path / "out").exists()
    assert not any(n.startswith("_tmp-part") for n in left)
    n_done = sum(n.startswith("part-") for n in left)
    assert 0 < n_done < 8
    workers.answered = []
    answer_files(tree, cases, tmp_path / "out", resume=True, **ASK)
    assert len(set(workers.answered)) == 8 - n_done
    assert read_parts(tmp_path / "out").equals(expected)


@pytest.mark.slow
def test_a_part_is_repeated_if_its_storage_fails(
    tree: jtgpu.JunctionTree, workers: LocalWorkers, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, left = worker_module.PartWorker.answer, [2]

    def failing(self: Any, part: FilePart) -> Any:
        if part.number == 1 and left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, "the network hung")
        return answer(self, part)

    monkeypatch.setattr(worker_module.PartWorker, "answer", failing)
    monkeypatch.setattr(worker_module, "FIRST_PAUSE", 0.0)
    assert answer_files(tree, cases, tmp_path / "out", part_rows=1000, **ASK).cases == N
    assert left == [0]


def test_files_with_different_columns_are_rejected(
    workers: LocalWorkers, tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path
) -> None:
    other = cases / "c.parquet"
    pq.write_table(table(10).drop_columns(["asia"]), other)
    with pytest.raises(jtgpu.errors.EvidenceError, match=r"c\.parquet has no column 'asia', unlike .*a\.parquet"):
        answer_files(tree, cases, tmp_path / "out", **ASK)
    pq.write_table(table(10).append_column("tub", pa.array(["yes"] * 10)), other)
    with pytest.raises(jtgpu.errors.EvidenceError, match="has the column 'tub', which is a variable"):
        answer_files(tree, cases, tmp_path / "out", **ASK)
    ids = pa.array([str(i) for i in range(10)])
    pq.write_table(table(10).set_column(0, "id", ids), other)
    with pytest.raises(jtgpu.errors.EvidenceError, match="the column 'id' has type string"):
        answer_files(tree, cases, tmp_path / "out", **ASK)
    other.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(ParseError, match=r"c\.parquet.*cannot be read"):
        answer_files(tree, cases, tmp_path / "out", **ASK)
    other.write_bytes(b"")
    with pytest.raises(ParseError, match=r"c\.parquet.*empty"):
        answer_files(tree, cases, tmp_path / "out", **ASK)


def test_two_runs_cannot_write_to_the_same_folder(tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path) -> None:
    from jtgpu.cluster.files import Folder

    first = Folder(str(tmp_path / "out"), {"a": 1}, resume=False, force=False)
    first.begin({})
    with pytest.raises(JtgpuError, match="another run is writing there"):
        Folder(str(tmp_path / "out"), {"a": 1}, resume=True, force=False).begin({})
    first.close()
    second = Folder(str(tmp_path / "out"), {"a": 1}, resume=True, force=False)
    second.begin({})
    second.close()
