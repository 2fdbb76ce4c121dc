"""Commands on files with numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jtgpu
from jtgpu.mixed.files import answer_file
from jtgpu.options.tables import FileOptions, TableOptions

from ..mixed.test_lauritzen import incinerator
from .commands import run


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("numbers") / "waste.net"
    jtgpu.write(incinerator(), path)
    return str(path)


def test_query(file: str) -> None:
    done = run("query", file, "-e", "W=industrial", "-e", "L=1.1", "-e", "C=-0.9", "--json", "--backend", "reference")
    answer: dict[str, Any] = json.loads(done.stdout)
    expected = incinerator().compile("reference").posteriors({"W": "industrial", "L": 1.1, "C": -0.9})
    assert answer["posteriors"]["B"]["probabilities"] == expected["B"].probabilities.tolist()
    assert (answer["posteriors"]["E"]["mean"], answer["posteriors"]["E"]["sd"]) == (
        expected["E"].mean,
        expected["E"].sd,
    )
    assert list(answer["posteriors"]["E"]["quantiles"]) == ["0.05", "0.95"]


def test_interval_and_targets(file: str) -> None:
    done = run("query", file, "-e", "C=-2..", "-t", "B,C", "--backend", "reference")
    expected = incinerator().compile("reference").posteriors({"C": (-2.0, float("inf"))})
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert lines[0] == ["variable", "state", "P"]
    assert float(lines[1][2]) == pytest.approx(expected["B"]["stable"], rel=1e-12)
    assert lines[3][:2] == ["number", "mean"]
    assert lines[4][0] == "C"
    assert float(lines[4][1]) == pytest.approx(expected["C"].mean, rel=1e-12)


def test_queries_as_text(file: str) -> None:
    """Once, they were refused."""
    tree = incinerator().compile("reference")
    words = ["query", file, "P(B | C=-0.9)", "P(E)", "MAP(B, W)", "-e", "L=1.1", "--backend", "reference"]
    answers = json.loads(run(*words, "--json").stdout)["questions"]
    expected = tree.posterior("B", {"L": 1.1, "C": -0.9})
    np.testing.assert_allclose(answers[0]["probabilities"], expected.probabilities, rtol=1e-12)
    assert answers[1]["mean"] == pytest.approx(tree.posterior("E", {"L": 1.1}).mean, rel=1e-12)
    assert answers[2]["explanations"][0]["states"] == dict(tree.map(["B", "W"], {"L": 1.1}))
    text = run(*words).stdout
    assert text.index("# P(B | C=-0.9)") < text.index("# P(E)\nnumber\tmean\tsd") < text.index("# MAP(B, W)")


def test_probability_of_evidence(file: str) -> None:
    tree = incinerator().compile("reference")
    cases: tuple[tuple[list[str], dict[str, Any], str], ...] = (
        (["W=industrial"], {"W": "industrial"}, "P"),
        (["W=industrial", "L=1.1"], {"W": "industrial", "L": 1.1}, "density"),
        (["L=..1.1", "C=0"], {"L": (-np.inf, 1.1), "C": 0.0}, "density"),
    )
    for given, evidence, what in cases:
        if what == "density" and "C" in evidence:
            evidence |= {"E": 1.0, "D": 1.0, "Min": 1.0, "Mout": 1.0}
            given = [*given, "E=1", "D=1", "Min=1", "Mout=1"]
        done = run("query", file, *[x for e in given for x in ("-e", e)], "--backend", "reference")
        label, number = done.stdout.splitlines()[-1].split("\t\t")
        assert label == f"# ln {what}(evidence)"
        assert float(number) == pytest.approx(tree.log_evidence(evidence), rel=1e-12)
    assert "evidence" not in run("query", file, "--backend", "reference").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["query", "FILE", "-e", "C=warm"], "'C' is a number: expected a value such as C=41.5"),
        (["query", "FILE", "-e", "C=nan"], "'C' is a number: expected a value such as C=41.5"),
        (["query", "FILE", "-e", "C=inf..3"], "or an interval such as C=30..40"),
        (["query", "FILE", "-e", "C=1", "-e", "C=2"], "evidence on 'C' is given twice"),
        (["query", "FILE", "MPE()"], "the highest density depends on the units"),
        (["query", "FILE", "P(B | C=1)", "-e", "C=1"], "evidence on 'C' is given twice"),
        (["plan", "FILE"], "this command needs variables with states only"),
        (["sample", "FILE", "2", "--inside"], "numbers are drawn as such"),
        (["sample", "FILE", "2", "--plan", "a.plan"], "whose plans depend on what is observed"),
        (["batch", "FILE", "x.csv", "-o", "OUT.csv", "--quantiles", "5,95"], "above 0 and below 1, such as 0.05,0.95"),
        (["batch", "asia", "x.csv", "-o", "OUT.csv", "--quantiles", "0.5"], "asia has no variable that is a number"),
        (["batch", "FILE", "x.csv", "-o", "OUT.csv", "--mpe"], "--mpe is not offered with networks with numbers"),
    ],
)
@pytest.mark.slow
def test_errors(args: list[str], message: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("W\nindustrial\n")
    files = {"FILE": file} | {name: str(tmp_path / name) for name in ("x.csv", "OUT.csv")}
    done = run(*[files.get(a, a) for a in args])
    assert done.exit_code != 0
    words = " ".join(done.stderr.replace("│", " ").split())
    assert message in words
    assert "Traceback" not in done.stderr


def test_info_prints_no_empty_row(file: str) -> None:
    lines = run("info", file).stdout.splitlines()
    assert all(len(line.split("  ", 1)) == 2 and line.split("  ", 1)[1].strip() for line in lines)
    assert ["name", "(no name)"] in [line.split(maxsplit=1) for line in lines]


def test_answer_file_takes_networks_with_numbers(file: str, tmp_path: Path) -> None:
    tree, cases = incinerator().compile("reference"), tmp_path / "cases.csv"
    tree.sample(9, seed=2).to_frame()[["W", "L"]].to_csv(cases, index=False)
    report = jtgpu.cases.answer_file(tree, cases, tmp_path / "a.csv", quantiles=[0.05], targets=["B", "C"])
    given = ["batch", file, str(cases), "-o", str(tmp_path / "b.csv")]
    assert run(*given, "--quantiles", ".05", "-t", "B,C").exit_code == 0
    assert report.cases == 9
    assert [*pd.read_csv(tmp_path / "a.csv")] == ["B=stable", "B=unstable", "C.mean", "C.sd", "C.q5"]
    np.testing.assert_allclose(pd.read_csv(tmp_path / "a.csv"), pd.read_csv(tmp_path / "b.csv"), rtol=1e-12)
    with pytest.raises(jtgpu.ArgumentError, match="quantiles are those of numbers"):
        jtgpu.cases.answer_file(jtgpu.load("asia").compile("reference"), cases, tmp_path / "c.csv", quantiles=[0.5])
    with pytest.raises(jtgpu.ArgumentError, match="mpe"):
        jtgpu.cases.answer_file(tree, cases, tmp_path / "c.csv", mpe=True)
    with pytest.raises(jtgpu.ArgumentError, match="a cluster does not answer networks with numbers"):
        jtgpu.cases.answer_file(tree, cases, tmp_path / "c.csv", cluster="auto")


def test_info_and_convert(file: str, tmp_path: Path) -> None:
    about = json.loads(run("info", file, "--json").stdout)
    assert (about["kind"], about["numbers"]) == ("mixed network", ["E", "C", "D", "L", "Min", "Mout"])
    for name in ("a.mixed.json", "a.mixed.json.gz"):
        target = tmp_path / name
        assert run("convert", file, str(target)).exit_code == 0
        assert jtgpu.read(target) == jtgpu.read(file)


def test_batch(file: str, tmp_path: Path) -> None:
    tree = incinerator().compile("reference")
    drawn = tree.sample(40, seed=2).to_frame()
    cases = drawn[["W", "L", "C"]].assign(id=range(40))
    cases.loc[3, "L"] = None
    cases.loc[4, "W"] = None
    cases.to_csv(tmp_path / "cases.csv", index=False)
    out = tmp_path / "answers.csv"
    given = ["batch", file, str(tmp_path / "cases.csv"), "--backend", "reference"]
    done = run(*given, "-o", str(out), "--keep", "id", "--quantiles", ".05,.95", "--log-evidence", "--json")
    report = json.loads(done.stdout)
    assert (report["cases"], report["targets"]) == (40, ["F", "B", "E", "D", "Min", "Mout"])
    made, expected = pd.read_csv(out), tree.posteriors_batch(cases.drop(columns="id"), targets=report["targets"])
    frame = expected.to_frame(quantiles=[0.05, 0.95])
    assert [*made.columns] == ["id", *frame.columns]
    np.testing.assert_allclose(made[frame.columns], frame, rtol=1e-14)
    labels = tmp_path / "labels.parquet"
    assert run(*given, "-o", str(labels), "--labels", "-t", "B,Mout").exit_code == 0
    read = pd.read_parquet(labels)
    assert read["B"].tolist() == [("stable", "unstable")[p.argmax()] for p in expected["B"]]
    np.testing.assert_allclose(read["Mout"], expected["Mout"].mean, rtol=1e-14)
    warned = run(*given, "-o", str(tmp_path / "L.csv"), "-t", "L").stderr.splitlines()[0]
    assert warned.endswith("ignored columns that are not variables: id")  # nor the target


@pytest.mark.slow
def test_batch_names_the_row_of_a_text(file: str, tmp_path: Path) -> None:
    (tmp_path / "cases.csv").write_text("W,L\nindustrial,1.5\nhousehold,much\n")
    done = run("batch", file, str(tmp_path / "cases.csv"), "-o", str(tmp_path / "out.csv"))
    assert done.exit_code != 0
    assert "cases.csv:3: column 'L': expected a number, got 'much'" in " ".join(done.stderr.split())
    assert not (tmp_path / "out.csv").exists()
    (tmp_path / "cases.csv").write_text('W,L\nindustrial,1.5\nindustrial,"1,234"\n')  # not 1.234
    done = run("batch", file, str(tmp_path / "cases.csv"), "-o", str(tmp_path / "out.csv"))
    assert "cases.csv:3: column 'L': expected a number, got '1,234'" in " ".join(done.stderr.split())
    (tmp_path / "cases.csv").write_text("W;L\nindustrial;1,5\nN/A;\nhouse;0\n")
    done = run("batch", file, str(tmp_path / "cases.csv"), "-o", str(tmp_path / "out.csv"), "--na-values", "N/A")
    assert "cases.csv:4, column 'W': 'house' is not a state" in " ".join(done.stderr.split())


def test_batch_continues(file: str, tmp_path: Path) -> None:
    tree = incinerator().compile("cpu")
    cases = tree.sample(60, seed=2).to_frame()[["W", "L", "C"]]
    cases.to_parquet(tmp_path / "cases.parquet", row_group_size=20)
    expected = tree.posteriors_batch(cases).to_frame(quantiles=[0.25])
    out = tmp_path / "out.parquet"

    def answer(progress: Any, **options: Any) -> Any:
        files, query = FileOptions(chunk=20, **options), TableOptions(log_evidence=True)
        return answer_file(tree, tmp_path / "cases.parquet", out, query, files, [0.25], progress)

    def stop(rows: int, *_: int) -> None:
        if rows == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer(stop)
    assert not out.exists()
    with pytest.raises(jtgpu.OutputExists, match="resume=True"):
        answer(None)
    report = answer(None, resume=True)
    assert (report.cases, report.resumed) == (60, 40)
    read = pd.read_parquet(out)
    np.testing.assert_allclose(read, expected[read.columns], rtol=1e-14)


@pytest.mark.slow
def test_value_of_information(file: str) -> None:
    tree = incinerator().compile("cpu")
    given = ["voi", file, "D", "-e", "L=1.1", "--candidate", "B,C", "--backend", "cpu"]
    answer = json.loads(run(*given, "--json").stdout)
    expected = tree.value_of_information("D", ["B", "C"], {"L": 1.1}, unit="bits")
    assert [o["variable"] for o in answer["observations"]] == [o.variable for o in expected]
    assert [o["gain"] for o in answer["observations"]] == pytest.approx([o.gain for o in expected])
    assert answer["observations"][0]["expected_sd"] == pytest.approx(expected[0].expected_sd)
    assert "expected sd" in run(*given).stdout
    assert "expected accuracy" in run("voi", file, "B", "--backend", "cpu").stdout


@pytest.mark.slow
def test_options_of_plans_and_times(file: str) -> None:
    plain = run("query", file, "-e", "L=1.1", "--backend", "cpu").stdout
    assert run("query", file, "-e", "L=1.1", "--backend", "cpu", "--order", "min-weight", "--no-cache").stdout == plain
    timed = json.loads(run("time", file, "--runs", "2", "--observed", "40", "--backend", "cpu", "--json").stdout)
    (found,) = timed["networks"]
    assert (found["variables"], found["observed"], found["propagate"]["runs"]) == (9, 4, 2)


def test_sample(file: str, tmp_path: Path) -> None:
    done = run("sample", file, "3", "-e", "W=industrial", "-e", "C=-0.9", "--seed", "4", "--backend", "reference")
    lines = done.stdout.splitlines()
    expected = incinerator().compile("reference").sample(3, {"W": "industrial", "C": -0.9}, seed=4)
    assert lines[0].split(",") == [*expected]
    for i, line in enumerate(lines[1:]):
        cells = dict(zip(expected, line.split(","), strict=True))
        assert cells["W"] == "industrial"
        assert float(cells["Mout"]) == expected["Mout"][i]
        assert cells["B"] == expected["B"][i]
    inside = run("sample", file, "50", "-e", "C=1..2", "--seed", "4", "--backend", "reference").stdout.splitlines()
    assert all(1 <= float(line.split(",")[lines[0].split(",").index("C")]) <= 2 for line in inside[1:])
    ages = tmp_path / "age.net"
    jtgpu.write(jtgpu.BayesianNetwork({"age": ["[0, 5)", "[5, 9)"]}, {}, {"age": [0.5, 0.5]}), ages)
    drawn = run("sample", str(ages), "4", "--seed", "1", "--inside").stdout.splitlines()
    assert all(0 <= float(x) < 9 for x in drawn[1:])
    answer = json.loads(run("sample", file, "2", "-e", "C=-0.9", "--seed", "1", "--json").stdout)
    assert answer["evidence"] == {"C": -0.9}
    assert [len(row) for row in answer["samples"]] == [9, 9]
