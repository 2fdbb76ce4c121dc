"""``jtgpu learn``: a table in, a network out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import jtgpu
from jtgpu.cli import app

PAIRS = [("no", "no"), ("no", "no"), ("yes", "yes"), ("yes", "yes"), ("no", "yes")]
ROWS = [(*pair, noise) for pair in PAIRS for noise in "01"] * 4


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "cases.csv"
    path.write_text("rain,wet,noise\n" + "".join(",".join(row) + "\n" for row in ROWS))
    return path


def run(*words: Any) -> Any:
    return CliRunner().invoke(app, ["learn", *map(str, words)])


def test_a_network_is_written(data: Path, tmp_path: Path) -> None:
    net = tmp_path / "learned.net"
    done = run(data, "-o", net, "--require", "rain,wet", "--tier", "rain", "--tier", "wet,noise")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == ["parent\tchild", "rain\twet"]
    assert "40 cases, 1 arc, ln score" in done.stderr
    model = jtgpu.read(net)
    assert isinstance(model, jtgpu.BayesianNetwork)
    assert model.parents("wet") == ("rain",)
    found = jtgpu.learn.structure(data, constraints=jtgpu.learn.Constraints(required=[("rain", "wet")]))
    assert model.cpt("wet") == pytest.approx(found.network().cpt("wet"), abs=1e-6)
    again = run(data, "-o", net)
    assert again.exit_code == 6
    first = net.read_bytes()
    assert run(data, "-o", net, "--require", "rain,wet", "--force").exit_code == 0
    assert net.read_bytes() == first  # equal options, equal bytes


def test_json(data: Path) -> None:
    done = run(data, "--forbid", "rain,wet", "--forbid", "wet,rain", "--score", "bic", "--json")
    found = json.loads(done.stdout)
    assert found["arcs"] == []
    assert found["method"] == "exact"
    assert found["cases"] == 40
    assert found["score"] == pytest.approx(jtgpu.learn.structure(data, score="bic", max_parents=0).score)


def test_states_of_a_network_and_missing_cells(data: Path, tmp_path: Path) -> None:
    data.write_text(data.read_text() + "yes,,1\n")
    states = {"rain": ["no", "yes"], "wet": ["no", "yes"], "noise": ["0", "1", "2"]}
    net = jtgpu.BayesianNetwork(states, {}, {v: [1 / len(s)] * len(s) for v, s in states.items()})
    jtgpu.write(net, tmp_path / "states.net")
    refused = run(data, "--states", tmp_path / "states.net")
    assert refused.exit_code == 2
    assert f"{data}:42: column 'wet' has a missing value" in refused.stderr
    assert "--missing drop leaves the rows out" in refused.stderr
    done = run(data, "--states", tmp_path / "states.net", "--missing", "drop", "-o", tmp_path / "a.net")
    assert done.exit_code == 0, done.output
    assert "1 rows left out" in done.stderr
    model = jtgpu.read(tmp_path / "a.net")
    assert model.states("noise") == ("0", "1", "2")
    data.write_text("rain,wet\nno,no\nno,yes\n")
    refused = run(data)
    assert refused.exit_code == 2
    assert "column 'rain' has only one value" in refused.stderr
    assert "a network file with --states" in refused.stderr


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--require", "rain,snow"), 2, "no column 'snow'"),
        (("--require", "rain"), 2, "is not an arc A,B"),
        (("--score", "bdue"), 2, "'bdue' is not one of bdeu"),
        (("--require", "rain,wet", "--require", "wet,rain"), 2, "cycle"),
        (("--ess", "0"), 2, "ess must be"),
        (("-o", "learned.xyz"), 2, "xyz"),
    ],
)
def test_usage_errors(data: Path, words: tuple[str, ...], code: int, text: str) -> None:
    done = run(data, *words)
    assert done.exit_code == code, done.output
    assert text in done.output


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    done = run(tmp_path / "nowhere.csv")
    assert done.exit_code == 2
    assert "No such file" in done.stderr


def test_probabilities_of_arcs_are_written(data: Path, tmp_path: Path) -> None:
    net, edges, drawn = tmp_path / "learned.net", tmp_path / "edges.csv", tmp_path / "edges.svg"
    words = data, "-o", net, "--edges", edges, "--draw", drawn
    done = run(*words)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "parent\tchild\tprobability"
    assert len(lines) == 8
    assert lines[-1] == "# exact probabilities"
    assert "3 variables, 40 cases, prior uniform: exact" in done.stderr
    found = jtgpu.learn.posterior(data)
    rows = [line.split(",") for line in edges.read_text().splitlines()]
    header = "parent,child,probability,mcse,skeleton,path,path_mcse,compelled,compelled_mcse"
    assert rows[0] == header.split(",")
    assert len(rows) == 7
    for parent, child, p, *_ in rows[1:]:
        assert float(p) == found.edge(parent, child)
    assert drawn.read_text().startswith("<svg")
    assert jtgpu.read(net).variables == ("rain", "wet", "noise")
    assert run(*words).exit_code == 6
    first = [path.read_bytes() for path in (net, edges, drawn)]
    assert run(*words, "--force").exit_code == 0
    assert [path.read_bytes() for path in (net, edges, drawn)] == first


@pytest.mark.slow
def test_markov_chains(data: Path, tmp_path: Path) -> None:
    edges, net = tmp_path / "edges.csv", tmp_path / "learned.net"
    words = (
        data,
        "--edges",
        edges,
        "--method",
        "mcmc",
        "--tolerance",
        "0.05",
        "--json",
        "--checkpoint",
        tmp_path / "run.npz",
        "--progress",
    )
    done = run(*words, "--threshold", "0.9", "-o", net)
    found = json.loads(done.stdout)
    assert found["method"] == "partition MCMC"
    assert found["converged"] is True
    assert "8 chains over orders look for the graphs" in done.stderr
    assert "partition MCMC: 8 chains, " in done.stderr
    assert " a second in all; largest standard error 0.0" in done.stderr
    assert found["largest_mcse"] <= 0.05
    assert (tmp_path / "run.npz").exists()
    model = jtgpu.read(net)
    assert isinstance(model, jtgpu.BayesianNetwork)
    assert [*model.arcs] == [(u, v) for u, v, p, _ in found["edges"] if p > 0.9]
    done = run(data, "--edges", edges, "--force", "--method", "mcmc", "--tolerance", "1e-9", "--seconds", "0.01")
    assert done.exit_code == 0
    assert "not converged" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("# NOT converged (largest standard error 0.")
    done = run(data, "--method", "mcmc", "--tempering", "2", "--tolerance", "0.05", "--json")
    assert json.loads(done.stdout)["converged"] is True
    done = run(data, "--method", "mcmc", "--steps", "1", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["converged"] is False


@pytest.mark.slow
def test_runs_are_continued(data: Path, tmp_path: Path) -> None:
    run_file, whole, parts = tmp_path / "run.npz", tmp_path / "whole.npz", tmp_path / "parts.npz"
    words = data, "--method", "mcmc", "--tolerance", "1e-9", "--seed", "3"
    assert run(*words, "--steps", "33000", "--save", whole).exit_code == 0
    missing = run(*words, "--checkpoint", run_file, "--resume")
    assert missing.exit_code == 2
    assert "there is no run to continue" in " ".join(missing.stderr.replace("│", " ").split())
    assert run(*words, "--steps", "8000", "--checkpoint", run_file).exit_code == 0
    refused = run(*words, "--steps", "33000", "--checkpoint", run_file)
    assert refused.exit_code == 6
    assert run(*words, "--steps", "33000", "--checkpoint", run_file, "--resume", "--save", parts).exit_code == 0
    assert parts.read_bytes() == whole.read_bytes()
    assert run(*words, "--steps", "8000", "--checkpoint", run_file, "--force").exit_code == 0
    other = run(*words, "--steps", "9000", "--checkpoint", run_file, "--resume", "--ess", "2")
    assert other.exit_code == 1
    assert "another run: other score" in other.stderr


def test_pictures_and_saved_posteriors(data: Path, tmp_path: Path) -> None:
    graph, page, saved = tmp_path / "graph.svg", tmp_path / "heat.html", tmp_path / "post.npz"
    done = run(data, "--draw-network", graph, "--draw", page, "--save", saved, "--json")
    assert done.exit_code == 0, done.output
    post = jtgpu.learn.load(saved)
    assert graph.read_text() == post.draw_network().text(".svg")
    assert page.read_text() == post.draw().text(".html")
    assert json.loads(done.stdout)["saved"] == str(saved)


def test_constraints_from_files(data: Path, tmp_path: Path) -> None:
    tiers, start = tmp_path / "tiers.txt", tmp_path / "start.net"
    tiers.write_text("# causes first\nrain, noise\n\nwet  # effects\n")
    done = run(data, "--tiers", tiers, "--no-within-tiers", "--json")
    assert json.loads(done.stdout)["arcs"] == [["rain", "wet"]]
    assert run(data, "--require", "wet,rain", "-o", start).exit_code == 0
    done = run(data, "--start", start, "--method", "greedy", "--json")
    assert json.loads(done.stdout)["arcs"] == [["wet", "rain"]]
    refused = run(data, "--start", start, "--tiers", tiers)
    assert refused.exit_code == 1
    assert "the start graph has the arc 'wet' -> 'rain', which is forbidden" in refused.stderr
    assert run(data, "--tiers", tiers, "--tier", "rain").exit_code == 2
    assert run(data, "--tiers", tmp_path / "no.txt").exit_code == 2


def test_missing_cells_and_dialects(tmp_path: Path) -> None:
    data = tmp_path / "cases.csv"
    data.write_text("rain;wet\n" + "no;no\nyes;yes\n;yes\nno;\n" * 9)
    done = run(data, "--score", "bic", "--missing", "available", "--delimiter", ";", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["cases"] == 36
    refused = run(data, "--missing", "available")
    assert refused.exit_code == 2
    assert "--missing available scores each family by the rows" in refused.stderr
    assert "requires --score bic" in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--edges", "e.csv", "--method", "tabu"], "tabu finds a graph, not the probabilities"),
        (["--graph-prior", "order", "--method", "greedy"], "greedy finds a graph, not the probabilities"),
        (["--resume"], "--resume requires --checkpoint"),
        (["--threshold", "1.5"], "neither a number from 0 to 1, nor map"),
        (["--tempering", "1"], "neither a number above 1, nor auto"),
        (["--candidates", "0"], "neither a number above 0, nor auto or all"),
        (["--backend", "cpu", "--devices", "0"], "are GPUs, but --backend cpu"),
        (["--draw-network", "e.png"], "neither .svg nor .html"),
        (["--save", "nowhere/e.npz"], "does not exist"),
        (["--draw", "e.png"], "neither .svg nor .html"),
        (["--edges", "e.csv", "--tolerance", "0"], "tolerance"),
    ],
)
def test_options_of_the_posterior(data: Path, words: list[str], message: str) -> None:
    done = run(data, *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("name", ["asia", "survey", "sachs", "child", "insurance", "hailfinder"])
def test_bundled_networks(name: str, tmp_path: Path) -> None:
    """Samples with states that do not occur, equal columns, and a state called None."""
    net = jtgpu.load(name)
    assert isinstance(net, jtgpu.BayesianNetwork)
    found = net.compile("cpu").sample(300, seed=1)
    lines = [net.variables, *zip(*(found[v] for v in net.variables), strict=True)]
    path, graph, learned = tmp_path / "cases.csv", tmp_path / "graph.svg", tmp_path / "learned.net"
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    declared = tmp_path / "declared.net"
    jtgpu.write(net, declared)
    words = "--states", declared, "--max-parents", "2", "--steps", "2000", "--draw-network", graph, "-o", learned
    done = run(path, *words, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["converged"] == (len(net.variables) <= 13)
    assert jtgpu.read(learned).variables == net.variables
    assert graph.read_text().startswith("<svg")


def test_columns_are_left_out_and_numbers_become_intervals(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    lines = [f"{i},{i // 10}.5,{'yes' if i >= 200 else 'no'},{'?' if i == 7 else i % 3}" for i in range(400)]
    path.write_text("id,size,large,noise\n" + "".join(line + "\n" for line in lines))
    refused = run(path)
    assert refused.exit_code == 2
    assert "it looks like an identifier; leave it out with --exclude" in refused.stderr
    refused = run(path, "--exclude", "id")
    assert "numbers with fractions, such as 0.5: make intervals with --bins N" in refused.stderr
    assert "take them as numbers, --continuous size with --score bic-cg" in refused.stderr
    net = tmp_path / "learned.net"
    done = run(path, "--exclude", "id", "--bins", "4", "--missing", "drop", "--na-values", "?", "-o", net, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["variables"] == ["size", "large", "noise"]
    assert (found["cases"], found["dropped"], found["missing_cells"]) == (399, 1, {"noise": 1})
    assert [sorted(arc) for arc in found["arcs"]] == [["large", "size"]]
    model = jtgpu.read(net)
    assert isinstance(model, jtgpu.BayesianNetwork)
    assert len(model.states("size")) == 4
    assert model.states("noise") == ("0", "1", "2")
    again = run(
        path, "--exclude", "id", "--bins", "9", "--missing", "drop", "--na-values", "?", "--states", net, "--json"
    )
    assert json.loads(again.stdout)["score"] == found["score"]  # declared states are intervals of their own
    wrong = run(path, "--exclude", "idd")
    assert wrong.exit_code == 2
    assert "did you mean 'id'" in wrong.stderr
