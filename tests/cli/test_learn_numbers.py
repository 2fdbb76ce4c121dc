"""``jtgpu learn`` and ``jtgpu fit`` with columns of numbers: a first file, with all that such files have."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from tests.cli import commands
from tests.conftest import ROOT
from tests.test_docs import blocks

pytest.importorskip("pyarrow")


def run(*words: object) -> Any:
    return commands.run(*map(str, words))


def write_patients(path: Path, n: int = 400) -> None:
    """An identifier, a date, floats and a scale with gaps, and free text; age and smoking -> pressure -> dose."""
    rng = np.random.default_rng(4)
    age = rng.normal(55, 12, n)
    smoker = rng.choice(["never", "former", "current"], n, p=[0.5, 0.3, 0.2])
    pressure = 90 + 0.6 * age + 8 * (smoker == "current") + rng.normal(0, 8, n)
    dose = 0.05 * pressure + rng.normal(0, 1, n)
    pain = np.clip(rng.normal(1.5, 1, n) + 2 * (smoker == "current"), 0, 4).astype(int)
    words = np.array(["free", "mild", "moderate", "severe", "worst"])
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "visit", "age", "smoker", "pain", "pressure", "dose", "note"])
        for i in range(n):
            day = str(np.datetime64("2024-01-01") + int(rng.integers(0, 300)))
            cells = [f"{age[i]:.1f}", smoker[i], words[pain[i]], f"{pressure[i]:.1f}", f"{dose[i]:.2f}"]
            for gap in (0, 2, 3):
                if rng.random() < 0.03:
                    cells[gap] = str(rng.choice(["", "NA"]))
            rows.writerow([1000 + i, day, *cells, f"seen by AB, case {rng.integers(10**6)}"])


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("patients") / "patients.csv"
    write_patients(path)
    return path


ARCS = [["age", "pressure"], ["pressure", "dose"], ["smoker", "pain"], ["smoker", "pressure"]]
EXCLUDED = ("--exclude", "id,visit,note", "--score", "bic-cg", "--missing", "drop")


def test_from_the_file_to_network_and_picture_in_one_command(patients: Path, tmp_path: Path) -> None:
    net, picture = tmp_path / "patients.mixed.json", tmp_path / "patients.svg"
    done = run("learn", patients, *EXCLUDED, "-o", net, "--draw-network", picture, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    turned = [sorted(a, key=["age", "smoker", "pressure", "pain", "dose"].index) for a in answer["arcs"]]
    assert sorted(turned) == ARCS
    assert answer["cases"] + answer["dropped"] == 400
    assert picture.read_text().startswith("<svg")
    model: Any = jtgpu.read(net)
    assert isinstance(model, jtgpu.MixedNetwork)
    assert model.numbers == ("age", "pressure", "dose")
    answered = run("query", net, "-e", "smoker=current", "-e", "age=60", "-t", "pressure", "--json")
    assert json.loads(answered.stdout)["posteriors"]["pressure"]["mean"] == pytest.approx(134, abs=4)


def test_the_example_of_the_documentation(patients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/numbers.rst").read_text(encoding="utf-8").split("From a file\n")[1]
    monkeypatch.chdir(patients.parent)
    lines = blocks(page, "code-block:: console")[0].splitlines()
    results = [run(*shlex.split(line.removeprefix("$ jtgpu "))) for line in lines]
    assert [done.exit_code for done in results] == [0] * 3
    assert "pressure" in results[-1].stdout
    pytest.importorskip("pandas", reason="pandas is not installed")
    code = blocks(page, "code-block:: python")[0]
    assert len([line for line in code.splitlines() if line]) <= 8
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "example", "exec"), {})
    assert len(out.getvalue().strip(" []\n").split()) == 400


def test_predictions_are_better_than_the_mean(patients: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.read_csv(patients).drop(columns=["id", "visit", "note"])
    post = jtgpu.learn.posterior(frame, score="bic-cg", missing="drop")
    jtgpu.draw.arcs(post).save(tmp_path / "patients.svg")
    fit: Any = jtgpu.learn.fit(post.structure, frame, continuous="gaussian")  # EM: every row counts
    tree: Any = fit.network.compile()
    predicted = tree.predict(frame.drop(columns="pressure"), "pressure")
    assert (tmp_path / "patients.svg").read_text().startswith("<svg")
    known = frame["pressure"].notna()
    error = float(np.sqrt(np.mean((predicted[known] - frame["pressure"][known]) ** 2)))
    assert error < 0.85 * float(frame["pressure"].std())


@pytest.mark.slow
def test_explore_does_all_in_one_command(patients: Path, tmp_path: Path) -> None:
    net, picture = tmp_path / "patients.mixed.json", tmp_path / "patients.svg"
    done = run(
        "explore", patients, "--continuous", "-t", "pressure", "-o", net, "--draw", picture, "--no-serve", "--json"
    )
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    use = {column["name"]: (column["kind"], column["use"]) for column in answer["columns"]}
    assert use["id"] == ("identifier", "left out: a different value in each of its 400 rows")
    assert use["visit"] == ("dates", "left out: 225 different dates")
    assert use["age"] == ("numbers", "number")
    turned = [sorted(a, key=["age", "smoker", "pressure", "pain", "dose"].index) for a in answer["arcs"]]
    assert sorted(turned) == ARCS
    assert answer["accuracy"]["rmse"] < 0.85 * answer["accuracy"]["baseline_rmse"]
    assert answer["accuracy"]["n"] > 350
    assert jtgpu.read(net, kind=jtgpu.MixedNetwork).numbers == ("age", "pressure", "dose")
    assert picture.read_text().startswith("<svg")
    of_states = run("explore", patients, "--continuous", "-t", "pain", "--seconds", "0", "--no-serve")
    assert "Accuracy for pain: " in of_states.stdout
    for args, message in (
        (("--draw", "a.pdf"), "ends in neither .svg nor .html"),
        (("--draw", tmp_path / "b.svg", "--seconds", "0"), "--draw needs probabilities of arcs"),
    ):
        wrong = run("explore", patients, "--continuous", *args)
        assert wrong.exit_code != 0
        assert message in " ".join(wrong.stderr.replace("│", " ").split())


def test_explore_serves_the_page_of_numbers(patients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []

    class Closed:
        url = "http://page"

        def __init__(self, tree: Any):
            served.append(tree.network)

        def __enter__(self) -> Closed:
            return self

        def __exit__(self, *_: object) -> None: ...

        def wait(self) -> None: ...

    monkeypatch.setattr("jtgpu.serve.serve", Closed)
    done = run("explore", patients, "--continuous", "-t", "pressure", "--seconds", "0", "--serve")
    assert "http://page" in done.stdout
    assert served[0].numbers == ("age", "pressure", "dose")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "column 'id' has a different value in each of its 400 rows: it looks like an identifier; leave it out"),
        (("--exclude", "id"), "different dates: make intervals with --bins N, or leave it out with --exclude"),
        (("--columns", "smoker,pressure,dose"), "with --bins N, take them as numbers, --continuous pressure"),
        (("--columns", "smoker,dosis"), "there is no column 'dosis'; did you mean 'dose'?"),
        (("--score", "bge"), "column 'id' counts the rows, from 1000 to 1399: it looks like an identifier; leave"),
        (("--columns", "dose,smoker", "--score", "bge"), "takes numbers only; use --score bic-cg, which takes both"),
        (("--columns", "dose,smoker", "--continuous", "all"), "--score bdeu takes states only; use --score bic-cg"),
        (("--columns", "dose,smoker", "--score", "bic-cg", "--method", "tabu"), "use --method exact or"),
        ((*EXCLUDED, "-o", "x.bif"), "a BIF file cannot contain numbers; formats that can are Hugin net"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(args: tuple[str, ...], message: str, patients: Path) -> None:
    done = run("learn", patients, *args)
    assert done.exit_code != 0
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_numbers_and_intervals(patients: Path) -> None:
    done = run(
        "learn", patients, "--columns", "age,smoker,pressure,dose", "--continuous", "pressure,dose", "--bins", "3",
        "--score", "bic-cg", "--missing", "drop", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert ["age", "pressure"] in json.loads(done.stdout)["arcs"]


@pytest.fixture(scope="module")
def learned(patients: Path) -> Path:
    net = patients.with_name("learned.mixed.json")
    assert run("learn", patients, *EXCLUDED, "-o", net).exit_code == 0
    return net


def test_fit(patients: Path, learned: Path, tmp_path: Path) -> None:
    net, report = tmp_path / "fitted.net", tmp_path / "fit.json"
    done = run("fit", learned, patients, "-o", net, "--report", report, "--standard-errors", "information")
    assert done.exit_code == 0, done.output
    assert "400 rows: EM" in done.stdout
    written = json.loads(report.read_text())
    direct: Any = jtgpu.learn.fit(jtgpu.read(learned), patients)
    assert written["log_likelihood"] == direct.log_likelihood
    assert written["standard_errors"]["dose"]["sd"] == direct.standard_errors("dose").sd.tolist()
    assert (written["rows"], written["method"], written["numbers"]) == (400, "em", ["age", "pressure", "dose"])
    assert jtgpu.read(net, kind=jtgpu.MixedNetwork).numbers == ("age", "pressure", "dose")


def test_fit_of_numbers_takes_the_options_of_fit(patients: Path, learned: Path, tmp_path: Path) -> None:
    out, before = tmp_path / "fitted.mixed.json", jtgpu.read(learned, kind=jtgpu.MixedNetwork)
    done = run(
        "fit", learned, patients, "-o", out, "--fixed", "dose", "--restarts", "2", "--seed", "3", "--no-accelerate",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert jtgpu.read(out, kind=jtgpu.MixedNetwork).gaussian("dose") == before.gaussian("dose")
    assert not list(tmp_path.glob("*.unfinished"))


def test_fit_of_kinds(patients: Path, tmp_path: Path) -> None:
    jtgpu.write(jtgpu.BayesianNetwork(
        {"smoker": ["current", "former", "never"], "age": ["0", "1"], "pressure": ["0", "1"]},
        {"pressure": ["smoker", "age"]},
        {"smoker": [0.2, 0.3, 0.5], "age": [0.5, 0.5], "pressure": np.full((3, 2, 2), 0.5)},
    ), tmp_path / "start.net")  # fmt: skip
    out = tmp_path / "a.mixed.json"
    kinds = "pressure=gaussian,age=intervals"
    done = run("fit", tmp_path / "start.net", patients, "-o", out, "--continuous", kinds, "--bins", "4")
    assert done.exit_code == 0, done.output
    fitted: Any = jtgpu.read(out)
    assert (fitted.numbers, len(fitted.states("age"))) == (("pressure",), 4)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--continuous", "dose=normal"), "'dose=normal' is neither gaussian, intervals, states, nor NAME=KIND"),
        (("--continuous", "dosis=gaussian"), "there is no variable 'dosis'; did you mean 'dose'?"),
        (("--stepwise", "0.7"), "--stepwise is not offered with continuous variables"),
        (("-o", "x.bif"), "a BIF file cannot contain numbers"),
    ],
)
def test_errors_of_fit(args: tuple[str, ...], message: str, patients: Path, learned: Path, tmp_path: Path) -> None:
    done = run("fit", learned, patients, *(() if "-o" in args else ("-o", tmp_path / "a.mixed.json")), *args)
    assert done.exit_code != 0
    assert message in " ".join(done.stderr.replace("│", " ").split())
