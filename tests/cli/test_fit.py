"""``jtgpu fit``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cluster import Cluster
from jtgpu.learn.parameters import em
from tests.cli.commands import ASIA, run
from tests.support.bundled import bundled

pytest.importorskip("pyarrow")


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """300 rows of asia with missing cells, a column of weights and one of numbers."""
    net = jtgpu.read(ASIA)
    states = net.compile("reference").sample(300, seed=1).states
    rng = np.random.default_rng(0)
    lines = [",".join([*net, "w", "age"])]
    for row in states.tolist():
        cells = [net.states(v)[s] if rng.random() > 0.1 else "" for v, s in enumerate(row)]
        lines.append(",".join([*cells, "2", str(rng.integers(20, 80))]))
    path = tmp_path / "cases.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_network_is_fitted(cases: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "fitted.bif", tmp_path / "report.json"
    result = run("fit", ASIA, str(cases), "-o", str(out), "--weights", "w", "--report", str(report), "--threads", "1")
    assert result.exit_code == 0, result.output
    assert "300 rows: EM" in result.stdout
    found = json.loads(report.read_text())
    direct = jtgpu.learn.fit(jtgpu.read(ASIA), cases, weights="w")
    assert found["objective"] == pytest.approx(direct.objective, rel=1e-12)
    assert found["method"] == "em"
    assert found["output"] == str(out)
    fitted = jtgpu.read(out)
    assert isinstance(fitted, jtgpu.BayesianNetwork)
    for v in fitted:
        np.testing.assert_allclose(np.asarray(fitted.cpt(v)), np.asarray(direct.network.cpt(v)), atol=1e-12)
    assert not (tmp_path / "fitted.bif.unfinished").exists()
    assert run("fit", ASIA, str(cases), "-o", str(out)).exit_code == 6
    assert run("fit", ASIA, str(cases), "-o", str(out), "--force", "--json").exit_code == 0


def test_files_are_read_in_chunks_and_folders_as_one(cases: Path, tmp_path: Path) -> None:
    head, *rows = cases.read_text().splitlines()
    folder = tmp_path / "parts"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.csv").write_text("\n".join([head, *rows[100 * i : 100 * i + 100]]) + "\n")
    net = jtgpu.read(ASIA)
    whole = jtgpu.learn.fit(net, cases)
    for given in (folder, [folder / "0.csv", folder / "1.csv", folder / "2.csv"]):
        parts = jtgpu.learn.fit(net, given, read=jtgpu.ReadOptions(chunk=7))
        assert parts.network == whole.network
        assert parts.n_rows == 300
    result = run("fit", ASIA, str(folder), "-o", str(tmp_path / "a.net"), "--chunk", "50", "--json")
    assert json.loads(result.stdout)["rows"] == 300


def test_options_of_the_model(cases: Path, tmp_path: Path) -> None:
    head, *rows = cases.read_text().splitlines()
    names = head.split(",")
    keep = [i for i, n in enumerate(names) if n != "smoke"]
    table = tmp_path / "hidden.csv"
    table.write_text("\n".join(",".join(line.split(",")[i] for i in keep) for line in [head, *rows]))
    result = run(
        "fit", ASIA, str(table), "-o", str(tmp_path / "h.net"), "--hidden", "smoke=2", "--restarts", "2",
        "--pseudo-counts", "bdeu:5", "--fixed", "asia", "--iterations", "10",
        "--standard-errors", "information", "--json",
    )  # fmt: skip
    found = json.loads(result.stdout)
    assert found["hidden"] == ["smoke"]
    assert found["fixed"] == ["asia"]
    assert len(found["restarts"]) == 2
    assert len(found["standard_errors"]["lung"]) == 2
    fitted = jtgpu.read(tmp_path / "h.net")
    assert isinstance(fitted, jtgpu.BayesianNetwork)
    np.testing.assert_array_equal(fitted.cpt("asia"), bundled("asia").cpt("asia"))


def test_cells_may_be_likelihoods(cases: Path, tmp_path: Path) -> None:
    head, first, *rows = cases.read_text().splitlines()
    column = head.split(",").index("lung")
    cells = first.split(",")
    texts = {}
    for cell in ("[1;0.25]", "[1;0.25;1]"):
        cells[column] = cell
        table = tmp_path / "soft.csv"
        table.write_text("\n".join([head, ",".join(cells), *rows]) + "\n")
        texts[cell] = run("fit", ASIA, str(table), "-o", str(tmp_path / "soft.net"), "--force", "--iterations", "2")
    assert texts["[1;0.25]"].exit_code == 0, texts["[1;0.25]"].output
    assert texts["[1;0.25;1]"].exit_code == 2
    assert "has 3 weights, but the variable has 2 states" in " ".join(texts["[1;0.25;1]"].output.split())


def test_bins_make_intervals(cases: Path, tmp_path: Path) -> None:
    net = jtgpu.network("age->smoke", cpts={"age": [0.5, 0.5], "smoke": [[0.5, 0.5]] * 2})
    source, out = tmp_path / "n.net", tmp_path / "m.net"
    jtgpu.write(net, source)
    assert run("fit", str(source), str(cases), "-o", str(out), "--bins", "4").exit_code == 0
    made = jtgpu.read(out)
    assert len(made.states("age")) == 4
    assert made.states("age")[0].startswith("(-inf, ")
    many = run("fit", str(source), str(cases), "-o", str(out), "--force", "--states", "data")
    assert many.exit_code == 0  # 60 different numbers may be states


def test_an_interrupted_run_resumes(cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "fitted.net"
    words = ["fit", ASIA, str(cases), "-o", str(out), "--tolerance", "1e-12"]
    step = em.step

    def stop(problem: Any, state: Any, rule: Any) -> Any:
        if state.passes >= 2:
            raise KeyboardInterrupt
        return step(problem, state, rule)

    with monkeypatch.context() as patch:
        patch.setattr(em, "step", stop)
        result = run(*words)
    assert result.exit_code == 130
    assert "--resume continues" in result.stderr
    assert out.exists()
    assert run(*words).exit_code == 6
    assert run(*words, "--resume").exit_code == 0
    direct = jtgpu.learn.fit(jtgpu.read(ASIA), cases, em=jtgpu.learn.EM(tolerance=1e-12))
    fitted = jtgpu.read(out)
    assert isinstance(fitted, jtgpu.BayesianNetwork)
    for v in fitted:
        np.testing.assert_allclose(np.asarray(fitted.cpt(v)), np.asarray(direct.network.cpt(v)), atol=1e-12)
    assert not Path(f"{out}.unfinished").exists()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--fixed", "smok"], 2, "did you mean 'smoke'"),
        (["--hidden", "smoke"], 2, "is declared hidden, but the table has a column"),
        (["--weights", "v"], 2, "there is no column 'v' of weights"),
        (["--pseudo-counts", "bdeu"], 2, "equivalent sample size"),
        (["--missing", "error"], 2, "is missing"),
        (["--start", "givn"], 2, "did you mean 'given'"),
        (["--backend", "indexed"], 2, "'indexed' is not one of auto, cpu, gpu, reference"),
        (["--backend", "cpu", "--devices", "0"], 2, "devices are GPUs, which --backend cpu does not use"),
        (["--tie", "smoke,lung"], 2, "cannot be one"),
    ],
)
def test_errors(cases: Path, tmp_path: Path, words: list[str], code: int, text: str) -> None:
    result = run("fit", ASIA, str(cases), "-o", str(tmp_path / "out.net"), *words)
    assert result.exit_code == code, result.output
    assert text in " ".join(result.output.split()).replace("│ ", "").replace(" │", "")
    assert not (tmp_path / "out.net").exists()


def test_a_file_without_variables_is_named(tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text("wet,dry\n1,2\n")
    text = r"no column of .*cases\.csv is a variable of the network \('b', 'a'\)"
    with pytest.raises(jtgpu.UnknownVariable, match=text):
        jtgpu.learn.fit({"b": ["a"]}, cases)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--devices", "0,1"], {"devices": [0, 1]}),
        (["--backend", "gpu"], {"backend": "gpu"}),
        (["--cluster", "local", "--workers", "2"], {"cluster": Cluster("local", 2, None)}),
    ],
)
def test_where_a_fit_runs(
    options: list[str], expected: dict[str, Any], cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    original = jtgpu.learn.fit

    def noted(*arguments: Any, **keywords: Any) -> Any:
        given.update(keywords)
        return original(*arguments, **keywords | {"compute": jtgpu.Compute()})

    monkeypatch.setattr("jtgpu.learn.parameters.fit.fit", noted)
    result = run("fit", ASIA, str(cases), "-o", str(tmp_path / "out.net"), *options)
    assert result.exit_code == 0, result.output
    assert {k: getattr(given["compute"], k) for k in expected} == expected


def test_workers_need_a_cluster(cases: Path, tmp_path: Path) -> None:
    result = run("fit", ASIA, str(cases), "-o", str(tmp_path / "out.net"), "--workers", "2")
    assert result.exit_code == 2
    assert "require --cluster" in result.output


def test_rows_in_which_variables_were_set(tmp_path: Path) -> None:
    net = jtgpu.BayesianNetwork(
        {"rain": ["yes", "no"], "wet": ["yes", "no"]}, {"wet": ["rain"]},
        {"rain": [0.5, 0.5], "wet": [[0.9, 0.1], [0.2, 0.8]]},
    )  # fmt: skip
    jtgpu.write(net, tmp_path / "n.bif")
    cases, output = tmp_path / "c.csv", str(tmp_path / "o.net")
    cases.write_text("rain,wet,target\nyes,yes,\nno,no,\nyes,no,wet\nno,yes,rain;wet\nyes,yes,\n")
    words = ("fit", str(tmp_path / "n.bif"), str(cases), "-o", output, "--interventions")
    assert run(*words, "target", "--pseudo-counts", "0").exit_code == 0
    assert jtgpu.read(output).cpt("wet").tolist() == [[1, 0], [0, 1]]
    assert jtgpu.read(output).cpt("rain").tolist() == [0.75, 0.25]
    expected = jtgpu.learn.fit(net, cases, interventions="target", pseudo_counts=0).network
    assert jtgpu.read(output).cpt("rain").tolist() == expected.cpt("rain").tolist()
    assert "--interventions targt must name a column" in run(*words, "targt", "--force").stderr
    done = run(*words, "target", "--force", "--hidden", "rain")
    assert "--interventions takes no sequences, continuous or hidden variables" in done.stderr
    cases.write_text("rain,wet,target\nyes,yes,\nno,no,wett\n")
    assert "c.csv:3: column 'target' names 'wett', which is no variable; did you mean 'wet'" in run(
        *words, "target", "--force"
    ).stderr
