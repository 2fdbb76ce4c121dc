"""``jtgpu screen``: cases in, outliers out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jtgpu
from tests.cli.commands import run

pytest.importorskip("pyarrow")
pytest.importorskip("narwhals")


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Cases of Asia with a number of each row and some missing cells; row 7 is improbable."""
    net = jtgpu.load("asia")
    rows = net.compile("reference").sample(120, seed=1).states
    lines = [[net.states(v)[s] if (i + v) % 17 else "" for v, s in enumerate(row)] for i, row in enumerate(rows)]
    lines[7] = ["yes", "yes", "no", "yes", "no", "yes", "no", "no"]
    path = tmp_path / "cases.csv"
    header = ["id", *net.variables]
    path.write_text("\n".join(",".join(r) for r in [header, *([f"0{i}", *r] for i, r in enumerate(lines))]) + "\n")
    return path


def test_outliers_with_surprise_and_files(cases: Path, tmp_path: Path) -> None:
    out, clean = tmp_path / "out.csv", tmp_path / "clean.csv"
    done = run(
        "screen", str(cases), "--net", "asia", "-n", "3", "-k", "5", "--surprise", "-o", str(out), "--drop", str(clean)
    )
    assert done.exit_code == 0, done.output
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert lines[0] == ["row", "weight", "nearest", "surprise", "cell"]
    assert lines[1][0] == "7"
    assert len(lines) == 4
    written = out.read_text().replace('"', "").splitlines()
    assert written[0].endswith("dysp,rank,weight,nearest,surprise,cell")
    before = cases.read_text().splitlines()
    after = clean.read_text().replace('"', "").splitlines()
    rows = {int(line[0]) for line in lines[1:]}
    assert after == [line for i, line in enumerate(before) if i - 1 not in rows]  # cells as they were: 07, empty
    again = run("screen", str(cases), "-o", str(out))
    assert again.exit_code == 6


def test_json_and_weights_of_all_rows(cases: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.parquet"
    words = ["screen", str(cases), "--columns", "smoke,lung,xray", "-n", "2", "-k", "4", "--all", "-o", str(out)]
    done = run(*words, "--json", "--progress")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["metric"], found["missing"], len(found["outliers"])) == ("hamming", "ignore", 2)
    from pyarrow import parquet

    weights = parquet.read_table(out)["weight"].to_pylist()
    assert weights[found["outliers"][0]["row"]] == found["outliers"][0]["weight"] == max(weights)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--surprise"], 2, "--surprise requires a network"),
        (["--all"], 2, "--all requires a file"),
        (["--metric", "haming"], 2, "did you mean 'hamming'"),
        (["-k", "500"], 2, "fewer than k=500"),
        (["--columns", "smoke,lungs"], 2, "lungs"),
        (["--drop", "clean.txt"], 2, "clean.txt"),
        (["--devices", "0", "--cluster", "auto"], 2, "each worker of a cluster uses one GPU"),
        (["--devices", "first"], 2, "GPU numbers"),
    ],
)
def test_errors(cases: Path, words: list[str], code: int, message: str) -> None:
    done = run("screen", str(cases), *words)
    assert done.exit_code == code, done.output
    assert message in " ".join(done.output.replace("│", " ").split())


def test_a_table_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text("a,b\n", encoding="utf-8")
    done = run("screen", str(path))
    assert done.exit_code == 2, done.output
    assert "the table has no rows" in done.output


def test_advice_for_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,2\n,3\n4,5\n")
    done = run("screen", str(path), "-n", "1", "-k", "2")
    assert done.stderr == (
        f"jtgpu: error: {path}:3, column 'x': the value is missing (NaN); fill it, or use --metric gower\n"
    )
    path.write_bytes("x:y\n1:caf\xe9\n2:u\n".encode("latin-1"))
    assert "t.csv:2:1: byte 0xe9 is not UTF-8" in run("screen", str(path), "-n", "1", "-k", "2").stderr
    done = run("screen", str(path), "-n", "1", "-k", "2", "--encoding", "latin-1", "--delimiter", ":")
    assert done.exit_code == 0, done.output


def test_one_file_for_two_purposes(cases: Path, tmp_path: Path) -> None:
    for more in (
        ["-o", str(cases)],
        ["--drop", str(cases)],
        ["-o", str(tmp_path / "a.csv"), "--drop", str(tmp_path / "a.csv")],
    ):
        done = run("screen", str(cases), *more, "--force")
        assert (done.exit_code, "must be different" in done.stderr) == (2, True), done.stderr
