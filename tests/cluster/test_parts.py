"""What runs on a cluster, without one: places, parts, and folders of answers."""

from __future__ import annotations

import errno
import gzip
import importlib
import json
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cases import answer_file
from jtgpu.cases.options import CsvDialect
from jtgpu.cli.console import exit_code
from jtgpu.cluster import Cluster, answer_files
from jtgpu.cluster import files as files_module
from jtgpu.cluster import parts as parts_module
from jtgpu.cluster import worker as worker_module
from jtgpu.cluster.find_cases import find_cases
from jtgpu.cluster.folder import SUCCESS
from jtgpu.cluster.part_writer import part_name
from jtgpu.cluster.parts import Division, Part, divide
from jtgpu.cluster.storage import locate
from jtgpu.cluster.tables import inspect_files
from jtgpu.errors import JtgpuError, ParseError
from tests.conftest import ROOT
from tests.support.examples import slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

NAMES = ["smoke", "xray", "dysp", "asia"]
N = 2000
ASK: dict[str, Any] = {"targets": "lung", "keep": "id", "log_evidence": True, "chunk": 100}


@pytest.fixture(scope="module")
def plan() -> Any:
    return jtgpu.read(ROOT / "nets" / "asia.net").plan("min-fill")


@pytest.fixture(scope="module")
def tree(plan: Any) -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = plan.compile("reference")
    return made


def table(n: int = N, seed: int = 5, first: int = 0) -> Any:
    """Cases with empty cells, numbered."""
    random = np.random.default_rng(seed)
    kinds = np.array(["yes", "no", None], object)
    columns = {v: pa.array(kinds[random.choice(3, n, p=[0.4, 0.4, 0.2])], pa.string()) for v in NAMES}
    return pa.table({"id": np.arange(first, first + n), **columns})


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """A folder of two Parquet files with uneven row groups, and what a reader leaves out."""
    folder = tmp_path / "cases"
    folder.mkdir()
    pq.write_table(table(1300), folder / "a.parquet", row_group_size=170)
    pq.write_table(table(700, 6, 1300), folder / "b.parquet", row_group_size=900)
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden").write_text("no table")
    return folder


@pytest.fixture
def expected(tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path) -> Any:
    """What one process makes of the two files, one behind the other."""
    found = []
    for name in ("a", "b"):
        out = tmp_path / f"{name}.expected.parquet"
        answer_file(tree, cases / f"{name}.parquet", out, **ASK)
        found.append(pq.read_table(out))
    return pa.concat_tables(found)


class Cruel:
    """Workers of this process in place of Ray's: some parts are answered twice, some after others, one may fail."""

    def __init__(self, fail: int | None = None, error: Exception | None = None):
        self.fail, self.error = fail, error
        self.answered: list[int] = []

    def lines(self, ray: Any, job: Any, parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
        job = pickle.loads(pickle.dumps(job))
        worker = worker_module.Worker(job)
        done = {}
        for part in reversed(parts):
            if part.number == self.fail:
                done[part.number] = {"number": part.number, "rows": 0, "flagged": 0, "error": pickle.dumps(self.error)}
                continue
            self.answered.append(part.number)
            line = {"number": part.number, "rows": 0, "flagged": 0, "error": b""}
            for _ in range(2 if part.number % 3 == 0 else 1):
                try:
                    line["rows"], line["flagged"] = worker.answer_with_retries(part)
                except (JtgpuError, OSError) as wrong:
                    line["error"] = pickle.dumps(wrong)
            done[part.number] = line
        yield from (done[p.number] for p in parts)


class _NoRay:
    @staticmethod
    def cluster_resources() -> dict[str, float]:
        return {"CPU": 2.0}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Cruel:
    """Make `answer_files` work without Ray."""
    cruel = Cruel()

    @contextmanager
    def connected(cluster: Cluster) -> Iterator[Any]:
        yield _NoRay

    monkeypatch.setattr(files_module, "connected", connected)
    monkeypatch.setattr(worker_module, "_results", cruel.lines)
    return cruel


def files_of(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def in_order(folder: Path) -> Any:
    """A folder of answers, read by the names of its files."""
    return pa.concat_tables([pq.read_table(p) for p in sorted(folder.glob("part-*.parquet"))])


# Answers ----------------------------------------------------------------------------------------------------------


def test_a_folder_of_answers_is_what_one_process_answers(
    here: Cruel, plan: Any, cases: Path, expected: Any, tmp_path: Path
) -> None:
    told: list[tuple[int, int, int]] = []
    report = answer_files(
        plan, cases, tmp_path / "out", backend="reference", part_rows=300, progress=lambda *a: told.append(a), **ASK
    )
    assert in_order(tmp_path / "out").equals(expected)
    n_parts = 5 + 3
    assert files_of(tmp_path / "out") == sorted([SUCCESS, "_run.json", *map(part_name, range(n_parts))])
    assert (report.cases, report.flagged, report.resumed, report.parts) == (N, 0, 0, n_parts)
    assert json.loads((tmp_path / "out" / SUCCESS).read_text())["rows"] == N
    assert told == sorted(told)
    assert told[0][0] == 0
    assert told[-1][0] == N
    assert told[-1][1] == told[-1][2] == sum(p.stat().st_size for p in cases.glob("*.parquet"))
    assert not (tmp_path / "out.unfinished").exists()


@pytest.mark.parametrize("name", ["out.csv", *slow("out.parquet", "out.tsv.gz")])
def test_one_file_when_asked(
    here: Cruel, tree: jtgpu.JunctionTree, cases: Path, expected: Any, tmp_path: Path, name: str
) -> None:
    report = answer_files(tree, [cases / "a.parquet", cases / "b.parquet"], tmp_path / name, part_rows=300, **ASK)
    assert report.cases == N
    assert (tmp_path / name).is_file()
    assert not (tmp_path / f"{name}.unfinished").exists()
    if name.endswith(".parquet"):
        assert pq.read_table(tmp_path / name).equals(expected)
        return
    data = (tmp_path / name).read_bytes()
    lines = (gzip.decompress(data) if name.endswith(".gz") else data).decode().splitlines()
    assert len(lines) == N + 1
    delimiter = "\t" if ".tsv" in name else ","
    assert [r.split(delimiter)[0] for r in lines[1:]] == [str(i) for i in range(N)]


def test_csv_files_packed_or_not(
    here: Cruel, tree: jtgpu.JunctionTree, expected: Any, cases: Path, tmp_path: Path
) -> None:
    writing = pytest.importorskip("pyarrow.csv")
    folder = tmp_path / "text"
    folder.mkdir()
    writing.write_csv(pq.read_table(cases / "a.parquet"), folder / "1.csv")
    with pa.CompressedOutputStream(str(folder / "2.csv.gz"), "gzip") as file:
        writing.write_csv(pq.read_table(cases / "b.parquet"), file)
    report = answer_files(tree, folder, tmp_path / "out", **ASK)
    assert report.parts == 2
    found = in_order(tmp_path / "out")
    assert found["id"].to_pylist() == [str(i) for i in range(N)]
    np.testing.assert_array_equal(found["lung=yes"], expected["lung=yes"])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("size", [400, *slow(60, 5000)])
@pytest.mark.parametrize("block", [7, *slow(1 << 20)])
def test_a_large_csv_is_cut_between_rows(
    here: Cruel, tree: jtgpu.JunctionTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, block: int,
    end: str,
) -> None:  # fmt: skip
    """Cells with commas, quotes and line ends in them, empty lines before the header, no line end at the end."""
    random = np.random.default_rng(size)
    notes = ["plain", '"a, b"', f'"two{end}lines"', '"he said ""yes"""', '""""', f'"{end}{end},"', ""]
    lines = [f"{i},{notes[random.integers(7)]},{['yes', 'no', ''][random.integers(3)]}" for i in range(150)]
    cases = tmp_path / "cases.csv"
    text = "\ufeff" + end + end.join(["id,note,xray", *lines])
    cases.write_bytes(text.encode())
    out = tmp_path / "one.parquet"
    ask: dict[str, Any] = {"targets": "lung", "keep": ["id", "note"], "chunk": 10}
    answer_file(tree, cases, out, **ask)
    monkeypatch.setattr(parts_module, "CSV_BYTES", size)
    monkeypatch.setattr(parts_module, "READ_SIZE", block)
    report = answer_files(tree, cases, tmp_path / "out", **ask)
    assert in_order(tmp_path / "out").equals(pq.read_table(out))
    assert (report.parts > 1) == (size < 5000)
    assert report.parts <= 1 + len(text) // size
    # the line of a wrong cell is that of the file
    row = 97
    lines[row] = f"{row},x,perhaps"
    text = "\ufeff" + end + end.join(["id,note,xray", *lines])
    cases.write_bytes(text.encode())
    line = 1 + (end + end.join(["id,note,xray", *lines[:row]]) + end).count("\n")
    with pytest.raises(jtgpu.errors.UnknownState, match=rf"cases\.csv:{line}: column 'xray': 'perhaps'"):
        answer_files(tree, cases, tmp_path / "out2", **ask)
    lines[row] = "1,2,3,4,5"
    cases.write_bytes(("\ufeff" + end + end.join(["id,note,xray", *lines])).encode())
    with pytest.raises(ParseError, match=rf"cases\.csv:{line}:.*5 cells in a row of 3 columns"):
        answer_files(tree, cases, tmp_path / "out3", **ask)


def test_a_csv_with_a_quote_that_stands_alone_is_not_cut_behind_it(
    here: Cruel, tree: jtgpu.JunctionTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{i},{'yes' if i % 3 else 'no'},{'5 inch' if i != 30 else '5 inch' + chr(34)}" for i in range(60)]
    cases = tmp_path / "cases.csv"
    cases.write_text("\n".join(["id,xray,note", *lines]) + "\n")
    monkeypatch.setattr(parts_module, "CSV_BYTES", 100)
    ask: dict[str, Any] = {"targets": "lung", "keep": "id", "chunk": 10}
    report = answer_files(tree, cases, tmp_path / "out", **ask)
    assert in_order(tmp_path / "out")["id"].to_pylist() == [str(i) for i in range(60)]
    assert 1 < report.parts < 6


@pytest.mark.parametrize("options", [{}, {"rows": 500}, {"rows": 1}])
def test_parts_hold_every_row_once(cases: Path, plan: Any, options: dict[str, int]) -> None:
    tables = inspect_files(find_cases(cases), plan.model, CsvDialect())
    parts, rows = divide(tables, '"', Division(100, 3, **options))
    assert rows % 100 == 0
    assert [p.number for p in parts] == list(range(len(parts)))
    for t in tables:
        covered = [r for p in parts if p.file == t.file.place.uri for r in range(p.first, p.first + p.rows)]
        assert covered == list(range(t.rows))
    assert divide(tables, '"', Division(100, 3, **options))[0] == parts


def test_a_file_without_rows_has_an_answer_without_rows(
    here: Cruel, tree: jtgpu.JunctionTree, tmp_path: Path
) -> None:
    pq.write_table(table(0), tmp_path / "none.parquet")
    report = answer_files(tree, tmp_path / "none.parquet", tmp_path / "out", **ASK)
    assert report.cases == 0
    assert in_order(tmp_path / "out").column_names == ["id", "lung=yes", "lung=no", "log_evidence"]


# What goes wrong --------------------------------------------------------------------------------------------------


def bad(cases: Path, row: int, column: str, value: str) -> None:
    """Put a cell into the first file."""
    found = pq.read_table(cases / "a.parquet")
    cells = found[column].to_pylist()
    cells[row] = value
    at = found.column_names.index(column)
    pq.write_table(found.set_column(at, column, pa.array(cells, pa.string())), cases / "a.parquet", row_group_size=170)


def test_a_bad_row_is_named_and_parts_before_it_stay(
    here: Cruel, tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path
) -> None:
    bad(cases, 750, "xray", "perhaps")
    with pytest.raises(jtgpu.errors.UnknownState, match=r"a\.parquet: row 751: column 'xray': 'perhaps' is not a state"):
        answer_files(tree, cases, tmp_path / "out", part_rows=300, **ASK)
    assert not (tmp_path / "out").exists()
    assert part_name(1) in files_of(tmp_path / "out.unfinished")
    assert part_name(2) not in files_of(tmp_path / "out.unfinished")
    assert not any(n.startswith("_tmp") for n in files_of(tmp_path / "out.unfinished"))
    report = answer_files(tree, cases, tmp_path / "out", part_rows=300, on_error="flag", force=True, **ASK)
    assert (report.cases, report.flagged) == (N, 1)
    found = in_order(tmp_path / "out")
    assert [i for i, e in enumerate(found["error"].to_pylist()) if e] == [750]
    assert found["lung=yes"][750].as_py() is None


def test_a_run_that_did_nothing_is_not_in_the_way_of_the_next(
    here: Cruel, tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path
) -> None:
    good = (cases / "a.parquet").read_bytes()
    bad(cases, 0, "xray", "perhaps")
    with pytest.raises(jtgpu.errors.UnknownState, match="row 1:"):
        answer_files(tree, cases / "a.parquet", tmp_path / "out", **ASK)
    assert not (tmp_path / "out.unfinished").exists()
    (cases / "a.parquet").write_bytes(good)
    assert answer_files(tree, cases / "a.parquet", tmp_path / "out", **ASK).cases == 1300


def test_the_first_error_in_the_order_of_the_rows_is_told(
    here: Cruel, tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path
) -> None:
    bad(cases, 1250, "asia", "later")
    bad(cases, 310, "asia", "sooner")
    with pytest.raises(jtgpu.errors.UnknownState, match=r"row 311.*sooner"):
        answer_files(tree, cases, tmp_path / "out", part_rows=300, **ASK)


def test_a_run_goes_on_with_what_is_done(
    here: Cruel, tree: jtgpu.JunctionTree, cases: Path, expected: Any, tmp_path: Path
) -> None:
    here.fail, here.error = 3, JtgpuError("the machine burned down")
    with pytest.raises(JtgpuError, match="burned"):
        answer_files(tree, cases, tmp_path / "out", part_rows=300, **ASK)
    unfinished = tmp_path / "out.unfinished"
    (unfinished / "_tmp-part-000003.parquet-abc").write_bytes(b"half")
    (unfinished / part_name(6)).write_bytes(b"PAR1 no more")  # a disk that lost something
    (unfinished / part_name(99)).write_bytes((unfinished / part_name(1)).read_bytes())
    with pytest.raises(JtgpuError, match="pass --resume to continue"):
        answer_files(tree, cases, tmp_path / "out", part_rows=300, **ASK)
    with pytest.raises(JtgpuError, match="different targets"):
        answer_files(tree, cases, tmp_path / "out", resume=True, **{**ASK, "targets": "bronc"})
    here.fail, here.answered = None, []
    report = answer_files(tree, cases, tmp_path / "out", resume=True, **ASK)  # parts are as they were settled
    assert sorted(set(here.answered)) == [3, 6]
    assert report.resumed == N - 300 - 300
    assert in_order(tmp_path / "out").equals(expected)
    assert part_name(99) not in files_of(tmp_path / "out")
    with pytest.raises(JtgpuError, match="exists; pass --force"):
        answer_files(tree, cases, tmp_path / "out", **ASK)
    pq.write_table(table(10), cases / "c.parquet")
    assert answer_files(tree, cases, tmp_path / "out", force=True, **ASK).cases == N + 10


def test_one_file_goes_on_between_parts_and_whole(
    here: Cruel, tree: jtgpu.JunctionTree, cases: Path, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    with pytest.raises(JtgpuError, match=r"no space left.*--resume"):
        answer_files(tree, cases, out, part_rows=300, **ASK)
    assert not out.exists()
    here.answered = []
    answer_files(tree, cases, out, resume=True, **ASK)
    assert here.answered == []
    assert pq.read_table(out).equals(expected)


class _Full:
    """A disk that is full after so many bytes, between the file system and whoever writes."""

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


def test_a_full_disk_loses_nothing_and_leaves_nothing_half(
    here: Cruel, tree: jtgpu.JunctionTree, cases: Path, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jtgpu.cluster import part_writer as writer_module

    room = [20_000]

    def located(uri: str) -> Any:
        place = locate(uri)
        return type(place)(place.uri, _Full(place.fs, room), place.path)

    with monkeypatch.context() as full:
        full.setattr(writer_module, "locate", located)
        with pytest.raises(JtgpuError, match=r"no space left for .*out: finished parts are saved in .*--resume"):
            answer_files(tree, cases, tmp_path / "out", part_rows=300, **ASK)
    left = files_of(tmp_path / "out.unfinished")
    assert not (tmp_path / "out").exists()
    assert not any(n.startswith("_tmp-part") for n in left)
    n_done = sum(n.startswith("part-") for n in left)
    assert 0 < n_done < 8
    here.answered = []
    answer_files(tree, cases, tmp_path / "out", resume=True, **ASK)
    assert len(set(here.answered)) == 8 - n_done
    assert in_order(tmp_path / "out").equals(expected)


def test_storage_that_fails_once_is_asked_again(
    tree: jtgpu.JunctionTree, here: Cruel, cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, left = worker_module.Worker.answer, [2]

    def failing(self: Any, part: Part) -> Any:
        if part.number == 1 and left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, "the network hung")
        return answer(self, part)

    monkeypatch.setattr(worker_module.Worker, "answer", failing)
    monkeypatch.setattr(worker_module, "FIRST_PAUSE", 0.0)
    assert answer_files(tree, cases, tmp_path / "out", part_rows=1000, **ASK).cases == N
    assert left == [0]


def test_files_that_do_not_belong_together(
    here: Cruel, tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path
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


def test_two_runs_do_not_write_to_one_folder(tree: jtgpu.JunctionTree, cases: Path, tmp_path: Path) -> None:
    from jtgpu.cluster.folder import Folder

    first = Folder(str(tmp_path / "out"), {"a": 1}, resume=False, force=False)
    first.begin({})
    with pytest.raises(JtgpuError, match="another run is writing there"):
        Folder(str(tmp_path / "out"), {"a": 1}, resume=True, force=False).begin({})
    first.close()
    second = Folder(str(tmp_path / "out"), {"a": 1}, resume=True, force=False)
    second.begin({})
    second.close()


# Places -----------------------------------------------------------------------------------------------------------


def test_files_are_found_by_folder_pattern_and_name(tmp_path: Path) -> None:
    for name in ("a/1.csv", "a/b/2.csv", "a/b/_3.csv", "a/.c/4.csv", "a/5.txt", "a/[6].csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    def found(given: Any) -> list[str]:
        return [f.place.path[len(str(tmp_path)) + 1 :] for f in find_cases(given)]

    assert found(tmp_path) == ["a/5.txt", "a/[6].csv", "a/1.csv", "a/b/2.csv"] or found(tmp_path) == sorted(
        ["a/1.csv", "a/5.txt", "a/[6].csv", "a/b/2.csv"]
    )
    assert found(f"{tmp_path}/a/*.csv") == ["a/1.csv", "a/[6].csv"]
    assert found(f"{tmp_path}/a/**/?.csv") == ["a/1.csv", "a/b/2.csv"]
    assert found(f"{tmp_path}/a/[15].*") == ["a/1.csv", "a/5.txt"]
    assert found(f"{tmp_path}/a/[6].csv") == ["a/[6].csv"]
    assert found([f"{tmp_path}/a/b/2.csv", f"file://{tmp_path}/a/1.csv"]) == ["a/b/2.csv", "a/1.csv"]
    with pytest.raises(JtgpuError, match="no such file or folder"):
        find_cases(tmp_path / "nothing.csv")
    with pytest.raises(JtgpuError, match="no file matches") as missing:
        find_cases(f"{tmp_path}/a/*.xyz")
    assert exit_code(missing.value) == 2
    with pytest.raises(JtgpuError, match="given twice"):
        find_cases([tmp_path / "a" / "1.csv", tmp_path / "a" / "1.csv"])
    with pytest.raises(JtgpuError, match="unsupported kind of storage"):
        find_cases("nonsense://bucket/file.csv")


def test_storage_that_is_no_disk(
    here: Cruel, tree: jtgpu.JunctionTree, cases: Path, expected: Any, tmp_path: Path
) -> None:
    """By fsspec, as object storage is reached: no folder is renamed there, and `_SUCCESS` tells that all is there."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    local = importlib.import_module("fsspec.implementations.local").LocalFileSystem
    strip = staticmethod(lambda path: local._strip_protocol(str(path).removeprefix("bucket://")))
    fsspec.register_implementation("bucket", type("Bucket", (local,), {"_strip_protocol": strip}), clobber=True)
    writing = pytest.importorskip("pyarrow.csv")
    out = f"bucket://{tmp_path}/bucket/out"
    assert not locate(out).local
    answer_files(tree, f"bucket://{cases}/*.parquet", out, part_rows=700, **ASK)
    assert in_order(tmp_path / "bucket" / "out").equals(expected)
    assert SUCCESS in files_of(tmp_path / "bucket" / "out")
    assert not any(n.startswith("_tmp") for n in files_of(tmp_path / "bucket" / "out"))
    with pytest.raises(JtgpuError, match="exists; pass --force"):
        answer_files(tree, f"bucket://{cases}/*.parquet", out, part_rows=700, **ASK)
    (tmp_path / "bucket" / "out" / SUCCESS).unlink()
    (tmp_path / "bucket" / "out" / part_name(1)).unlink()
    here.answered = []
    assert answer_files(tree, f"bucket://{cases}/*.parquet", out, resume=True, **ASK).resumed == N - 600
    assert set(here.answered) == {1}
    with pytest.raises(JtgpuError, match="object storage requires a folder"):
        answer_files(tree, f"bucket://{cases}/*.parquet", f"bucket://{tmp_path}/bucket/out.parquet", **ASK)
    # a CSV is fetched; its rows are named by what the user knows
    writing.write_csv(table(50).set_column(2, "xray", pa.array(["yes"] * 40 + ["so"] * 10)), tmp_path / "x.csv")
    with pytest.raises(jtgpu.errors.UnknownState, match=rf"^bucket://{tmp_path}/x\.csv:42: column 'xray': 'so'"):
        answer_files(tree, f"bucket://{tmp_path}/x.csv", tmp_path / "out2", **ASK)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An empty bucket of a server that speaks S3, on this machine."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    s3 = pytest.importorskip("pyarrow.fs").S3FileSystem
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anything")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fs = s3(endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True)
    fs.create_dir("bucket")
    yield fs
    server.stop()


@pytest.mark.slow
def test_s3(here: Cruel, tree: jtgpu.JunctionTree, expected: Any, bucket: Any) -> None:
    """Cases and answers in object storage; a run that is stopped leaves no `_SUCCESS`, and goes on."""
    pq.write_table(table(1300), "bucket/cases/a.parquet", filesystem=bucket, row_group_size=170)
    pq.write_table(table(700, 6, 1300), "bucket/cases/b.parquet", filesystem=bucket, row_group_size=900)

    def names() -> list[str]:
        found = bucket.get_file_info(pa.fs.FileSelector("bucket/out", allow_not_found=True))
        return sorted(f.base_name for f in found)

    here.fail, here.error = 2, OSError(errno.EIO, "the worker's machine is gone")
    with pytest.raises(OSError, match="machine is gone"):
        answer_files(tree, "s3://bucket/cases/*.parquet", "s3://bucket/out", part_rows=700, **ASK)
    assert SUCCESS not in names()
    there = sum(n.startswith("part-") for n in names())
    assert there
    with pytest.raises(JtgpuError, match="pass --resume to continue"):
        answer_files(tree, "s3://bucket/cases/*.parquet", "s3://bucket/out", part_rows=700, **ASK)
    here.fail, here.answered = None, []
    report = answer_files(tree, "s3://bucket/cases/*.parquet", "s3://bucket/out", part_rows=700, resume=True, **ASK)
    assert (report.cases, report.resumed > 0) == (N, True)
    parts = [n for n in names() if n.startswith("part-")]
    assert len(here.answered) == len(parts) - there
    assert pa.concat_tables(pq.read_table(f"bucket/out/{n}", filesystem=bucket) for n in parts).equals(expected)
    assert SUCCESS in names()
    assert not any(n.startswith("_tmp") for n in names())
    with pytest.raises(JtgpuError, match="exists; pass --force"):
        answer_files(tree, "s3://bucket/cases", "s3://bucket/out", **ASK)
    with pytest.raises(JtgpuError, match="no such file or folder"):
        answer_files(tree, "s3://bucket/nothing.parquet", "s3://bucket/other", **ASK)
