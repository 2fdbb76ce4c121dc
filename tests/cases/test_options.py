"""Every option of a table of cases means the same for a file, for a frame and on the command line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import jtgpu
from jtgpu.cases import answer_file
from jtgpu.cli import app
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT
from tests.support.examples import slow

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
pytest.importorskip("narwhals", reason="narwhals is not installed")

ASIA = str(ROOT / "nets" / "asia.net")
N = 400
SEEN = ["smoke", "xray", "dysp", "tub", "either"]

ALL = "all of them"
OPTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "targets": ({"targets": ["lung", "asia"]}, ["-t", "lung,asia"]),
    "a target": ({"targets": "lung"}, ["--target", "lung"]),
    "no targets": ({}, []),
    "evidence columns": (
        {"targets": ["lung", "tub"], "evidence_columns": ["smoke", "tub", "either"]},
        ["-t", "lung", "-t", "tub", "--evidence-columns", "smoke,tub,either"],
    ),
    "keep": ({"targets": "lung", "keep": ["id", "note"]}, ["-t", "lung", "--keep", "id,note"]),
    "labels": ({"targets": ["lung", "bronc"], "labels": True}, ["-t", "lung,bronc", "--labels"]),
    "log_evidence": ({"targets": "lung", "log_evidence": True}, ["-t", "lung", "--log-evidence"]),
    "conflict": ({"targets": "lung", "conflict": True}, ["-t", "lung", "--conflict"]),
    "mpe": ({"targets": ["lung", "asia"], "mpe": True}, ["-t", "lung,asia", "--mpe"]),
    ALL: (
        {"targets": ["asia", "lung"], "labels": True, "keep": "id", "log_evidence": True, "conflict": True,
         "mpe": True},
        ["-t", "asia,lung", "--labels", "--log-evidence", "--conflict", "--mpe", "--keep", "id"],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def net() -> BayesianNetwork:
    found = jtgpu.read(ASIA)
    assert isinstance(found, BayesianNetwork)
    return found


@pytest.fixture(scope="module")
def tree(net: BayesianNetwork) -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = net.compile(backend="reference")
    return made


@pytest.fixture(scope="module")
def table(net: BayesianNetwork) -> Any:
    """Cases with an id, a note, empty cells, an unknown state and a case that cannot be."""
    with net.compile(backend="reference") as tree:
        states = tree.sample(N, seed=4).states
    random = np.random.default_rng(8)
    columns: dict[str, Any] = {
        "id": [f"r{i}" for i in range(N)],
        "note": [None if i % 3 else f"n{i}" for i in range(N)],
    }
    for v in SEEN:
        names = [net.states(v)[s] for s in states[:, net.index(v)].tolist()]
        columns[v] = [None if empty else s for s, empty in zip(names, random.random(N) < 0.3, strict=True)]
    columns["smoke"][77] = "perhaps"
    for v, s in (("tub", "yes"), ("either", "no")):
        columns[v][222] = s
    return pa.table({k: pa.array(c, pa.string()) for k, c in columns.items()})


def good(table: Any) -> Any:
    return table.filter(pa.array([i not in (77, 222) for i in range(N)]))


def written(path: Path, table: Any) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=150)
    else:
        out = io.StringIO()
        rows = zip(*(["" if x is None else x for x in c.to_pylist()] for c in table.columns), strict=True)
        csv.writer(out).writerows([table.column_names, *rows])
        path.write_text(out.getvalue())
    return path


def assert_equal(found: Any, expected: Any) -> None:
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        one, other = found[name].to_pylist(), expected[name].to_pylist()
        assert [x is None for x in one] == [x is None for x in other], name
        if pa.types.is_floating(expected[name].type):
            np.testing.assert_allclose(
                [0 if x is None else x for x in one], [0 if x is None else x for x in other], rtol=0, atol=1e-12
            )
        else:
            assert one == other


@pytest.mark.parametrize("option", [ALL, *slow(*(o for o in OPTIONS if o != ALL))])
@pytest.mark.parametrize("suffix", ["csv", *slow("parquet")])
def test_a_file_is_answered_as_a_frame(
    tree: jtgpu.JunctionTree, table: Any, tmp_path: Path, option: str, suffix: str
) -> None:
    options = dict(OPTIONS[option][0])
    for flag, cases in ((False, good(table)), (True, table)):
        given = {**options, "on_error": "flag"} if flag else options
        labels = given.get("labels", False)
        ask: Callable[..., Any] = tree.predict if labels else tree.predict_proba
        expected = ask(cases, **{k: v for k, v in given.items() if k != "labels"})
        path = written(tmp_path / f"c{flag}.{suffix}", cases)
        report = answer_file(tree, path, tmp_path / "o.parquet", chunk=90, force=True, **given)
        assert_equal(pq.read_table(tmp_path / "o.parquet"), expected)
        assert (report.cases, report.flagged) == (len(cases), 2 * flag)
        if flag:
            bad = {i for i, e in enumerate(expected["error"].to_pylist()) if e}
            assert bad == {77, 222}
            break_off = [c for c in expected.column_names if c not in ("id", "note", "error")]
            assert all(expected[c][i].as_py() is None for c in break_off for i in bad)


@pytest.mark.parametrize("option", [ALL, *slow(*(o for o in OPTIONS if o != ALL))])
def test_the_command_takes_every_option(tree: jtgpu.JunctionTree, table: Any, tmp_path: Path, option: str) -> None:
    options, words = OPTIONS[option]
    path = written(tmp_path / "c.parquet", table)
    answer_file(tree, path, tmp_path / "one.parquet", on_error="flag", **options)
    done = CliRunner().invoke(
        app, ["batch", ASIA, str(path), "-o", str(tmp_path / "other.parquet"), *words, "--on-error", "flag",
              "--backend", "reference"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "have no result" in done.stderr
    assert_equal(pq.read_table(tmp_path / "other.parquet"), pq.read_table(tmp_path / "one.parquet"))


def test_words_for_nothing_of_ones_own(tree: jtgpu.JunctionTree, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("smoke,xray\n-9,yes\nunknown,no\n,yes\n")
    done = CliRunner().invoke(
        app, ["batch", ASIA, str(tmp_path / "c.csv"), "-o", str(tmp_path / "o.parquet"), "-t", "lung",
              "--na-values", "-9", "--na-values", "unknown", "--backend", "reference"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    yes, no = (tree.posterior("lung", {"xray": s})["yes"] for s in ("yes", "no"))
    np.testing.assert_allclose(
        pq.read_table(tmp_path / "o.parquet")["lung=yes"].to_pylist(), [yes, no, yes], atol=1e-12
    )


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_progress_counts_cases_and_how_far_reading_has_come(
    tree: jtgpu.JunctionTree, table: Any, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    from jtgpu.columns import csv_file

    monkeypatch.setattr(csv_file, "MIN_BLOCK", 500)
    path = written(tmp_path / ("c.parquet" if suffix == "parquet" else "c.csv"), good(table))
    if suffix == "csv.gz":
        path = tmp_path / "c.csv.gz"
        path.write_bytes(gzip.compress((tmp_path / "c.csv").read_bytes()))
    calls: list[tuple[int, int, int]] = []
    answer_file(tree, path, tmp_path / "o.csv", targets="lung", chunk=50, progress=lambda *x: calls.append(x))
    cases, done, total = zip(*calls, strict=True)
    assert len(calls) > 3
    assert list(cases) == sorted(set(cases))
    assert list(done) == sorted(done)
    assert set(total) == {len(good(table)) if suffix == "parquet" else path.stat().st_size}
    assert (cases[-1], done[-1]) == (len(good(table)), total[-1])
