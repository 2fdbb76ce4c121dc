"""``jtgpu rank``: networks and tables of edges in, a ranking and a picture out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jtgpu
from tests.cli.commands import run

EDGES = "from,to,km\na,b,1.5\nb,c,2\nc,d,1\na,d,7\n"


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_variables_of_a_network() -> None:
    done = run("rank", "alarm", "--skeleton", "--top", "3")
    assert done.exit_code == 0, done.output
    values = jtgpu.graphs.betweenness(jtgpu.load("alarm"), directed=False)
    best = sorted(values, key=values.__getitem__, reverse=True)[:3]
    assert rows(done.stdout) == [
        ["rank", "variable", "betweenness"],
        *([str(i), name, repr(values[name])] for i, name in enumerate(best, 1)),
    ]


def test_edges_as_json() -> None:
    done = run("rank", "asia", "--edges", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["edges"] == 8
    values = jtgpu.graphs.betweenness(jtgpu.load("asia"), edges=True)
    assert {(r["from"], r["to"]): r["betweenness"] for r in found["ranking"]} == values
    assert [r["rank"] for r in found["ranking"]] == sorted(r["rank"] for r in found["ranking"])


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_tables_of_edges(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("narwhals")
    from jtgpu.cases.answer_table import write_file
    from jtgpu.columns.files import read_file

    plain, path = tmp_path / "plain.csv", tmp_path / f"edges{suffix}"
    plain.write_text(EDGES, encoding="utf-8")
    write_file(read_file(plain), path)
    done = run("rank", str(path), "--weight", "km")
    assert done.exit_code == 0, done.output
    assert [row[:2] for row in rows(done.stdout)[1:]] == [["1", "b"], ["1", "c"], ["3", "a"], ["3", "d"]]
    directed = run("rank", str(path), "--directed", "--samples", "3", "--seed", "1")
    assert directed.exit_code == 0, directed.output


def test_picture(tmp_path: Path) -> None:
    path = tmp_path / "asia.svg"
    done = run("rank", "asia", "--skeleton", "-o", str(path))
    assert done.exit_code == 0, done.output
    assert path.read_text(encoding="utf-8").startswith("<svg")
    assert run("rank", "asia", "-o", str(path)).exit_code == 6


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["asia", "--directed"], 2, "direction already"),
        (["{edges}", "--skeleton"], 2, "unless --directed"),
        (["{edges}", "-o", "x.svg"], 2, "only the variables of a network"),
        (["asia", "-o", "x.png"], 2, "neither .svg nor .html"),
        (["{edges}", "--weight", "miles"], 2, "no column 'miles' of weights"),
        (["asia", "--samples", "9"], 2, "--samples is 9, but there are 8 vertices"),
        (["nowhere.csv"], 2, "nowhere.csv"),
    ],
)
def test_errors(tmp_path: Path, words: list[str], code: int, text: str) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "edges.csv"
    path.write_text(EDGES, encoding="utf-8")
    done = run("rank", *(word.format(edges=path) for word in words))
    assert text in " ".join(done.output.replace("│", " ").split()), done.output
    assert done.exit_code == code


def test_cells_that_are_not_single_values(tmp_path: Path) -> None:
    from pyarrow import parquet, table

    parquet.write_table(table({"from": [[1, 2]], "to": [[3]]}), tmp_path / "t.parquet")
    done = run("rank", str(tmp_path / "t.parquet"))
    assert (done.exit_code, done.stderr) == (2, "jtgpu: error: column 'from' has cells that are not single values\n")


def test_a_table_of_cases_is_no_table_of_edges_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("id,weight,hit\n1,48,yes\n2,61,no\n")
    assert "cases.csv has no columns from and to: its edges are those between id and weight" in run(
        "rank", str(tmp_path / "cases.csv")
    ).stderr
    (tmp_path / "pairs.csv").write_text("u,v\na,b\nb,c\n")
    assert not run("rank", str(tmp_path / "pairs.csv")).stderr
