"""Files of sequences: answers equal those in memory, whatever the chunks, and a run can be continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

import jtgpu
from jtgpu.columns import csv_file
from jtgpu.dynamic import files
from jtgpu.dynamic.files import SequenceQuestion, answer_file
from jtgpu.dynamic.sequences import in_order
from jtgpu.errors import DataError, ImpossibleEvidence, JtgpuError, OutputExists, UnknownState
from jtgpu.options.tables import FileOptions
from tests.support.examples import slow

from ..formats.test_dynamic_files import umbrella

TREE = umbrella().compile("reference")


def long_table(n: int, seed: int = 1, longest: int = 9) -> dict[str, list[Any]]:
    """Sequences of different lengths with holes, in a table of columns."""
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {"place": [], "day": [], "umbrella": [], "note": []}
    for i in range(n):
        for t in range(int(rng.integers(1, longest))):
            rows["place"].append(f"p{i}")
            rows["day"].append(t + 3)
            rows["umbrella"].append([None, "no", "yes"][rng.integers(3)])
            rows["note"].append("x")
    return rows


@pytest.fixture(params=["csv", "csv.gz", "parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    table = pa.table(long_table(60))
    path = tmp_path / f"days.{request.param}"
    if request.param == "parquet":
        pa_parquet.write_table(table, path, row_group_size=50)
        return path
    with pa.CompressedOutputStream(str(path), "gzip") if request.param == "csv.gz" else path.open("wb") as out:
        pa_csv.write_csv(table, out)
    return path


def question(kind: str = "smooth", **more: Any) -> SequenceQuestion:
    return SequenceQuestion(kind, "place", "day", **more)


def read(path: Path) -> dict[str, list[Any]]:
    table = pa_parquet.read_table(path) if path.suffix == ".parquet" else pa_csv.read_csv(path)
    return dict(table.to_pydict())


@pytest.mark.parametrize("kind", ["filter", "smooth"])
@pytest.mark.parametrize("chunk", [7, *slow(None, 1)])
def test_answers_equal_those_in_memory(
    kind: str, chunk: int | None, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "MIN_BLOCK", 64)
    monkeypatch.setattr(files, "BLOCK_CELLS", 100)
    table = long_table(60)
    expected = (
        getattr(TREE, kind)(table, keys=jtgpu.learn.Keys(id="place", time="day"), targets="rain")
        .to_frame("pyarrow")
        .to_pydict()
    )
    report = answer_file(TREE, path, tmp_path / "o.parquet", question(kind), FileOptions(chunk=chunk))
    got = read(tmp_path / "o.parquet")
    assert list(got) == ["place", "day", "rain=no", "rain=yes"]
    assert (got["place"], got["day"]) == (table["place"], table["day"])
    assert np.allclose(got["rain=yes"], expected["rain=yes"], atol=1e-14)
    assert (report.sequences, report.rows, report.targets) == (60, len(table["day"]), ("rain",))
    assert (report.evidence, report.ignored) == (("umbrella",), ("note",))


def test_rows_keep_the_texts_of_their_own_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "MIN_BLOCK", 64)
    pa_csv.write_csv(pa.table(long_table(60)), tmp_path / "s.csv")
    most = []

    def record(codes: Any, rows: Any, *more: Any) -> Any:
        most.append(len(rows.places))
        return in_order(codes, rows, *more)

    monkeypatch.setattr(files, "in_order", record)
    answer_file(TREE, tmp_path / "s.csv", tmp_path / "o.csv", question(), FileOptions(chunk=1))
    assert len(most) > 20
    assert max(most) <= 10  # a sequence has up to nine rows


@pytest.mark.slow
def test_kinds_of_answers(path: Path, tmp_path: Path) -> None:
    table = long_table(60)
    last = TREE.filter(table, keys=jtgpu.learn.Keys(id="place", time="day"), targets="rain", at="last")
    answer_file(TREE, path, tmp_path / "o.csv", question("filter", last=True, log_evidence=True), FileOptions())
    got = read(tmp_path / "o.csv")
    assert got["place"] == [f"p{i}" for i in range(60)]
    assert np.allclose(got["rain=yes"], last["rain"][:, 1], atol=1e-14)
    assert np.allclose(got["log_evidence"], last.log_evidence, atol=1e-13)
    answer_file(TREE, path, tmp_path / "p.csv", question("predict", steps=2), FileOptions())
    ahead = TREE.predict(table, keys=jtgpu.learn.Keys(id="place", time="day"), ahead=2)
    got = read(tmp_path / "p.csv")
    assert got["step"] == [1, 2] * 60
    assert np.allclose(got["umbrella=no"], ahead["umbrella"][:, :, 0].ravel(), atol=1e-14)
    answer_file(TREE, path, tmp_path / "l.csv", question("filter", last=True, labels=True), FileOptions())
    assert read(tmp_path / "l.csv")["rain"] == last.modes()["rain"].tolist()


@pytest.mark.slow
def test_most_probable_states(path: Path, tmp_path: Path) -> None:
    table = long_table(60)
    best = TREE.mpe(table, keys=jtgpu.learn.Keys(id="place", time="day"))
    answer_file(TREE, path, tmp_path / "o.csv", question("mpe", log_evidence=True), FileOptions(chunk=20))
    got = read(tmp_path / "o.csv")
    assert got["rain"] == [best["rain"][int(p[1:]), t - 3] for p, t in zip(got["place"], got["day"], strict=True)]
    assert np.allclose(got["log_mpe"], best.log_joint[[int(p[1:]) for p in got["place"]]], atol=1e-13)


@pytest.mark.parametrize("what", ["codes", "escape_formulas"])
def test_a_run_is_not_continued_by_another(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_file, "MIN_BLOCK", 64)
    monkeypatch.setattr(files, "BLOCK_CELLS", 100)
    path, output = tmp_path / "days.csv", tmp_path / "o.csv"
    path.write_text("place,day,umbrella\n" + "".join(f"p{i},{t},{t % 2}\n" for i in range(40) for t in range(9)))
    one, other = ({"umbrella": {0: a, 1: b}} for a, b in (("no", "yes"), ("yes", "no")))

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    tree = umbrella().with_codes(one).compile("reference")
    with pytest.raises(KeyboardInterrupt):
        answer_file(tree, path, output, question(), FileOptions(chunk=20), stop)
    if what == "codes":
        tree = umbrella().with_codes(other).compile("reference")
    options = FileOptions(chunk=20, resume=True, escape_formulas=what == "escape_formulas")
    with pytest.raises(JtgpuError, match=f"holds a run with a different {what}"):
        answer_file(tree, path, output, question(), options)


@pytest.mark.slow
def test_a_run_that_was_interrupted_is_continued(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_file, "MIN_BLOCK", 64)
    monkeypatch.setattr(files, "BLOCK_CELLS", 100)
    whole, parts = tmp_path / "whole.parquet", tmp_path / "parts.parquet"
    answer_file(TREE, path, whole, question(), FileOptions(chunk=20))
    calls = 0

    def stop(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer_file(TREE, path, parts, question(), FileOptions(chunk=20), stop)
    assert not parts.exists()
    with pytest.raises(OutputExists, match="unfinished run"):
        answer_file(TREE, path, parts, question(), FileOptions(chunk=20))
    with pytest.raises(JtgpuError, match="different"):
        answer_file(TREE, path, parts, question("filter"), FileOptions(chunk=20, resume=True))
    report = answer_file(TREE, path, parts, question(), FileOptions(chunk=33, resume=True))
    assert 0 < report.resumed < report.rows
    assert read(parts) == read(whole)
    assert report.sequences == 60


@pytest.mark.parametrize(
    ("text", "more", "error", "message"),
    [
        ("a,1,yes\nb,1,yes\na,2,no\n", {}, DataError, r"s\.csv:4: rows of the sequence 'a' have come before; .* sort"),
        ("a,1,yes\n,2,yes\n", {}, DataError, r"s\.csv:3, column 'place': the sequence's id is missing"),
        ("a,1,yes\na,1,no\n", {}, DataError, r"sequence 0 \('a'\), .*s\.csv:3, column 'day': the time 1 occurs twice"),
        ("a,2,yes\na,1,no\n", {}, DataError, r"s\.csv:3, column 'day': the time 1 comes after 2"),
        ("a,1,yes\na,,no\n", {}, DataError, r"s\.csv:3, column 'day': the time is missing"),
        ("a,1,yes\na,3,no\n", {}, DataError, r"column 'day': time 2 is missing, 1 is followed by 3"),
        ("a,20260101,yes\na,20260201,no\n", {}, DataError, r"time 20260102 is missing, 20260101 is followed by 202602"),
        ("a,1,yes\na,soon,no\n", {}, DataError, r"s\.csv:3: column 'day' has the times and must hold numbers or dates"),
        ("a,1,yes\na,2,wet\n", {}, UnknownState, r"s\.csv:3: column 'umbrella': .*'wet'"),
        ("a,1,yes\na,2\n", {}, JtgpuError, r"s\.csv:3:1: 2 cells in a row of 3 columns"),
        ("", {}, DataError, "the file has no rows, and no sequences"),
        ("a,1,yes\n", {"time": "dy"}, DataError, "--time 'dy' is no column; the file has 'place', 'day', 'umbrella'"),
    ],
)
def test_errors_have_their_place(text: str, more: dict[str, Any], error: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("place,day,umbrella\n" + text)
    asked = SequenceQuestion("smooth", **{"id": "place", "time": "day", **more})
    with pytest.raises(error, match=message):
        answer_file(TREE, tmp_path / "s.csv", tmp_path / "o.csv", asked, FileOptions())
    assert not (tmp_path / "o.csv").exists()


def test_gaps_dates_and_words(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("place,day,umbrella\na,1,yes\na,4,NA\nb,2,yes\n")
    answer_file(TREE, tmp_path / "s.csv", tmp_path / "o.csv", question(on_gap="empty"), FileOptions())
    assert read(tmp_path / "o.csv")["day"] == [1, 2, 3, 4, 2]
    (tmp_path / "d.csv").write_text("place,day,umbrella\na,2024-01-01,yes\na,2024-02-01,no\n")
    answer_file(TREE, tmp_path / "d.csv", tmp_path / "p.csv", question(), FileOptions())
    assert [str(x)[:10] for x in read(tmp_path / "p.csv")["day"]] == ["2024-01-01", "2024-02-01"]
    assert "\na,2024-02-01," in (tmp_path / "p.csv").read_text().replace('"', "")  # as in the file: no time of day
    answer_file(TREE, tmp_path / "d.csv", tmp_path / "q.csv", SequenceQuestion("filter"), FileOptions())
    expected = TREE.filter({"umbrella": [["yes", "no"]]})["rain"][0, :, 1]
    assert np.allclose(read(tmp_path / "q.csv")["rain=yes"], expected)


def test_impossible_sequences(tmp_path: Path) -> None:
    dyn = umbrella().replace(cpt={"umbrella": [[1.0, 0.0], [0.0, 1.0]], "rain": np.eye(2)})
    tree = dyn.compile("reference")
    (tmp_path / "s.csv").write_text("place,day,umbrella\na,1,yes\na,2,yes\nb,1,yes\nb,2,no\nc,1,no\n")
    with pytest.raises(ImpossibleEvidence, match=r"sequence 1 \('b'\), slice 1"):
        answer_file(tree, tmp_path / "s.csv", tmp_path / "o.csv", question(), FileOptions(chunk=1))
    asked = question(on_error="flag", log_evidence=True)
    report = answer_file(tree, tmp_path / "s.csv", tmp_path / "o.csv", asked, FileOptions())
    got = read(tmp_path / "o.csv")
    assert got["rain=yes"] == [1.0, 1.0, None, None, 0.0]
    assert got["error"] == ["", "", "impossible evidence", "impossible evidence", ""]
    assert report.flagged == 1


def test_outputs_are_protected(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("place,day,umbrella\na,1,yes\n")
    with pytest.raises(JtgpuError, match="contains the sequences"):
        answer_file(TREE, tmp_path / "s.csv", tmp_path / "s.csv", question(), FileOptions(force=True))
    clash = jtgpu.DynamicNetwork(
        {"x": ["a", "b"]}, {"x": [("x", 1)]}, {"x": [[0.5, 0.5]] * 2}, start={"x": [0.5, 0.5]}
    ).compile("reference")
    (tmp_path / "c.csv").write_text("x=a,x\n1,a\n2,b\n")
    asked = SequenceQuestion("smooth", time="x=a")
    with pytest.raises(JtgpuError, match="two columns named 'x=a'"):
        answer_file(clash, tmp_path / "c.csv", tmp_path / "o.csv", asked, FileOptions())
