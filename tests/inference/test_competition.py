"""``jtgpu solve`` and `jtgpu.inference.competition`: the competitions' files, limits, and their reference answers."""

from __future__ import annotations

import json
import math
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.cli import app
from jtgpu.errors import ImpossibleEvidence, ParseError, TableTooLarge
from jtgpu.formats import Case, read, read_evidence_cases, read_query, write
from jtgpu.inference import competition
from jtgpu.inference.competition import TaskLimits, conditioned, solve_text, width_at_least
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT
from tests.support import oracle
from tests.support.examples import examples
from tests.support.random_nets import bayesian_networks, markov_networks

PLAIN = TaskLimits(options={"order": "min-fill"})
GRID = """MARKOV
3
2 2 3
3
1 0
2 0 1
2 1 2
2 0.4 0.6
4 0.1 0.9 0.9 0.1
6 0.2 0.3 0.5 0.8 0 0.2
"""


def run(*words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["solve", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    assert result.exit_code == code, result.output
    return result


def test_decisions_have_no_marginals(tmp_path: Path) -> None:
    file = ROOT / "tests" / "formats" / "data" / "fuzz" / "hugin" / "decisions.net"
    done = run(str(file), "MAR", "-o", str(tmp_path / "out"), code=1)
    assert "network with decisions" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model, evidence and a query; an environment without limits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INF_TIME", raising=False)
    monkeypatch.delenv("INF_MEMORY", raising=False)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.uai").write_text(GRID)
    (tmp_path / "m.evid").write_text("1 2 1")
    (tmp_path / "m.query").write_text("2 1 0")
    return tmp_path


# The command ----------------------------------------------------------------------------------------------------


def test_partition_function(folder: Path) -> None:
    z = 0.4 * (0.1 * 1.0 + 0.9 * 1.0) + 0.6 * (0.9 + 0.1)
    assert run("models/m.uai", "PR", "--backend", "reference").stdout == ""
    assert (folder / "m.uai.PR").read_text() == f"PR\n{math.log10(z):.10g}\n"
    run("models/m.uai", "m.evid", "m.query", "pr", "--backend", "reference")
    z = 0.4 * (0.1 * 0.3) + 0.6 * (0.9 * 0.3)
    kind, value = (folder / "m.uai.PR").read_text().split()
    assert kind == "PR"
    assert float(value) == pytest.approx(math.log10(z), rel=1e-9)


def test_marginals(folder: Path) -> None:
    run("models/m.uai", "m.evid", "MAR", "--backend", "reference")
    text = (folder / "m.uai.MAR").read_text()
    assert text.startswith("MAR\n3 2 ")
    assert text.endswith(" 3 0 1 0\n")
    p = [0.4 * 0.03, 0.6 * 0.27]
    words = text.split()
    assert [float(w) for w in words[3:5]] == pytest.approx([p[0] / sum(p), p[1] / sum(p)])
    assert words[5:8] == ["2", "1", "0"]


def test_most_probable_states(folder: Path) -> None:
    run("models/m.uai", "m.evid", "MPE", "--backend", "reference")
    assert (folder / "m.uai.MPE").read_text() == "MPE\n3 1 0 1\n"
    run("models/m.uai", "m.evid", "MAP", "--backend", "reference")
    assert (folder / "m.uai.MAP").read_text() == "MAP\n3 1 0 1\n"
    run("models/m.uai", "m.evid", "m.query", "MMAP", "--backend", "reference")
    assert (folder / "m.uai.MMAP").read_text() == "MMAP\n2 1 0 0 1\n"
    (folder / "m.query").write_text("2 2 0")
    assert run("models/m.uai", "m.evid", "m.query", "MMAP", "-o", "-").stdout == "MMAP\n2 2 1 0 1\n"
    (folder / "m.query").write_text("1 2")
    assert run("models/m.uai", "m.evid", "m.query", "MMAP", "-o", "-").stdout == "MMAP\n1 2 1\n"


def test_letters_outputs_and_json(folder: Path) -> None:
    letters = ("-f", "models/m.uai", "-e", "m.evid", "-t", "PR", "--backend", "reference")
    printed = run(*letters, "-o", "-").stdout
    assert printed.startswith("PR\n")
    run(*letters, "-o", "out.txt")
    assert (folder / "out.txt").read_text() == printed
    assert not (folder / "m.uai.PR").exists()
    # letters and places mix: what has a letter has no place
    assert run("models/m.uai", "m.evid", "-t", "PR", "-o", "-", "--backend", "reference").stdout == printed
    assert run("m.evid", "PR", "-f", "models/m.uai", "-o", "-", "--backend", "reference").stdout == printed
    found = json.loads(run(*letters, "--json").stdout)
    assert (found["task"], found["output"], found["solution"]) == ("PR", "m.uai.PR", printed.splitlines()[1:])
    assert (folder / "m.uai.PR").read_text() == printed


def test_other_formats_and_several_cases(folder: Path) -> None:
    asia = str(ROOT / "nets" / "asia.net")
    (folder / "a.json").write_text('[{"smoke": "yes"}, {"smoke": "no", "xray": [0.5, 1]}, {}]')
    text = run(asia, "a.json", "PR", "-o", "-", "--backend", "reference").stdout.splitlines()
    assert text[:2] == ["PR", "3"]
    assert [float(x) for x in text[2:]] == pytest.approx(
        [math.log10(0.5), math.log10(0.5 * (0.5 * 0.0667 + 0.9333)), 0.0], abs=1e-3
    )
    assert len(run(asia, "a.json", "MAR", "-o", "-", "--backend", "reference").stdout.splitlines()) == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "missing task: PR, MAR, MPE, MMAP"),
        (("PR",), "missing model"),
        (("models/m.uai",), "'MODELS/M.UAI' is not a task"),
        (("models/m.uai", "MARR"), "did you mean 'MAR'"),
        (("models/m.uai", "m.evid", "MMAP"), "MMAP requires a query file"),
        (("a", "b", "c", "d", "PR"), "unexpected argument 'd'"),
        (("nowhere.uai", "PR"), "cannot read 'nowhere.uai': no such file"),
        (("models/m.uai", "m.evif", "PR"), "no such file; did you mean 'm.evid'"),
        (("models/m.uai", "PR", "-o", "no/where"), "cannot write the solution: folder"),
    ],
)
def test_wrong_usage(folder: Path, words: tuple[str, ...], message: str) -> None:
    result = run(*words, code=2)
    assert message in " ".join(result.output.replace("│", " ").split())
    assert not [p for p in folder.iterdir() if p.suffix in (".PR", ".MAR", ".MMAP")]


def test_malformed_files(folder: Path) -> None:
    (folder / "bad.evid").write_text("1 0 7")
    assert (
        "bad.evid:1:5: found '7', expected the number of a state"
        in run("models/m.uai", "bad.evid", "PR", code=5).output
    )
    (folder / "bad.uai").write_text("MARKOV 1 2 x")
    assert "bad.uai:1:12: found 'x', expected a number" in run("bad.uai", "PR", code=5).output
    (folder / "bad.query").write_text("1 3")
    assert "bad.query:1:3: found '3'" in run("models/m.uai", "m.evid", "bad.query", "MMAP", code=5).output


def test_impossible_evidence(folder: Path) -> None:
    (folder / "e").write_text("2 1 1 2 1")
    for task in ("PR", "MAR"):
        assert "probability 0" in run("models/m.uai", "e", task, "--backend", "reference", code=4).output
        assert not (folder / f"m.uai.{task}").exists()
    (folder / "e").write_text("3 0 0 1 1 2 1")  # nothing is left to sum
    assert "probability 0" in run("models/m.uai", "e", "PR", code=4).output
    (folder / "e").write_text("3 0 0 1 1 2 0")
    assert run("models/m.uai", "e", "PR", "-o", "-").stdout == f"PR\n{math.log10(0.4 * 0.9 * 0.8):.10g}\n"
    assert run("models/m.uai", "e", "MAR", "-o", "-", "--backend", "reference").stdout == "MAR\n3 2 1 0 2 0 1 3 1 0 0\n"


# Limits -----------------------------------------------------------------------------------------------------------


def grid(n: int) -> MarkovNetwork:
    """An n x n grid of binary variables."""
    pairs = [((i, j), (i + 1, j)) for i in range(n - 1) for j in range(n)]
    pairs += [((i, j), (i, j + 1)) for i in range(n) for j in range(n - 1)]
    names = [f"v{i}" for i in range(n * n)]
    factors = [([a[0] * n + a[1], b[0] * n + b[1]], np.array([[2.0, 1.0], [1.0, 2.0]])) for a, b in pairs]
    return MarkovNetwork({name: ["0", "1"] for name in names}, factors)


def test_too_wide_reports_the_width_and_writes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(competition, "SEARCH_SECONDS", 0.1)
    write(grid(12), folder / "grid.uai")
    output = run("grid.uai", "PR", "--memory-limit", "40kB", code=3).output
    assert re.search(r"too wide: the best elimination order found has width 1[2-9] \(\d+,\d+ entries", output)
    assert "the limit is 39.1 KiB" in output
    output = run("grid.uai", "MAR", "--max-table", "10", code=3).output
    assert "too wide" in output
    assert "10 entries in one table" in output
    assert not list(folder.glob("grid.uai.*"))
    monkeypatch.setenv("INF_MEMORY", "0.000001")
    output = run("grid.uai", "PR", code=3).output
    assert "too wide: every elimination order has width 2 or more (at least 8 entries" in output
    monkeypatch.setenv("INF_MEMORY", "4")
    run("grid.uai", "PR", "--backend", "reference")
    assert (folder / "grid.uai.PR").exists()


def test_a_width_far_too_large_is_found_immediately(folder: Path) -> None:
    n = 150
    factors = [((i, j), np.array([[1.0, 2.0], [3.0, 4.0]])) for i in range(n) for j in range(i)]
    net = MarkovNetwork({f"v{i}": ["0", "1"] for i in range(n)}, factors)
    assert width_at_least(net) == (n - 1, 2**n)
    with pytest.raises(TableTooLarge, match=r"too wide: .* width 149 or more \(at least 2\^150 entries") as caught:
        solve_text(net, [], "PR")
    assert caught.value.entries == 2**n


def test_no_order_fits_although_the_lower_bound_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of every order found are too large to count, unlike the lower bound: the message has the width."""

    def plan(*_: Any, **__: Any) -> Any:
        raise TableTooLarge("more than 2^62")

    monkeypatch.setattr(MarkovNetwork, "plan", plan)
    with pytest.raises(TableTooLarge, match=r"too wide: .* the width is 2 or more; the limit is"):
        solve_text(grid(3), [], "PR")


@pytest.mark.parametrize("value", ["x", "-1", "0", "inf", "nan"])
@pytest.mark.parametrize("name", ["INF_TIME", "INF_MEMORY"])
def test_wrong_limits_in_the_environment(name: str, value: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    output = " ".join(run("models/m.uai", "PR", code=2).output.replace("│", " ").split())
    assert f"environment variable {name} must be a positive number, not '{value}'" in output


def test_time_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INF_TIME", "0.05")

    def slow(*_: Any, **__: Any) -> str:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    monkeypatch.setattr("jtgpu.cli.solve.solve_text", slow)
    before = signal.getsignal(signal.SIGALRM)
    assert "not finished within INF_TIME (0.05 s); nothing is written" in run("models/m.uai", "PR", code=3).output
    assert not (folder / "m.uai.PR").exists()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    monkeypatch.setenv("INF_TIME", "100")
    monkeypatch.setattr("jtgpu.cli.solve.solve_text", lambda *_, **__: "PR\n0\n")
    run("models/m.uai", "PR")
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


# Answers ----------------------------------------------------------------------------------------------------------


def case_of(draw: st.DrawFn, net: DiscreteModel) -> Case:
    """Hard findings, sets of states and weights, as a file gives them."""
    case = Case()
    for v, card in zip(net.variables, net.cardinality.tolist(), strict=True):
        match draw(st.sampled_from(["", "", "state", "state", "set", "weights"])):
            case "state":
                case[v] = draw(st.integers(0, card - 1))
            case "set":
                case[v] = frozenset(draw(st.sets(st.integers(0, card - 1), min_size=1)))
            case "weights":
                case.likelihood[v] = np.array(draw(st.lists(st.floats(0.1, 2.0), min_size=card, max_size=card)))
    return case


def weights_of(net: DiscreteModel, case: Case) -> dict[int, Any]:
    found: dict[int, Any] = {net.index(v): w for v, w in case.likelihood.items()}
    for name, value in case.items():
        v = net.index(name)
        found[v] = np.zeros(int(net.cardinality[v]))
        found[v][sorted(value) if isinstance(value, frozenset) else value] = 1.0
    return found


@st.composite
def models_with_cases(draw: st.DrawFn) -> tuple[DiscreteModel, Case]:
    net: DiscreteModel = draw(st.one_of(bayesian_networks(6), markov_networks(6)))
    return net, case_of(draw, net)


@examples(120)
@given(models_with_cases())
def test_solutions_agree_with_the_oracle(made: tuple[DiscreteModel, Case]) -> None:
    net, case = made
    weights = weights_of(net, case)
    expected = oracle.log_evidence(net, weights)
    if expected == -math.inf:
        for task in ("PR", "MAR"):
            with pytest.raises(ImpossibleEvidence):
                solve_text(net, [case], task, limits=PLAIN, backend="reference")
        return
    text = solve_text(net, [case], "PR", limits=PLAIN, backend="reference")
    assert float(text.split()[1]) == pytest.approx(expected / math.log(10), rel=1e-8, abs=1e-9)
    words = solve_text(net, [case], "MAR", limits=PLAIN, backend="reference").split()[1:]
    assert int(words.pop(0)) == len(net)
    for p in oracle.posteriors(net, weights):
        assert int(words.pop(0)) == p.size
        assert [float(words.pop(0)) for _ in p] == pytest.approx(p.tolist(), rel=1e-8, abs=1e-12)
    assert not words


@given(models_with_cases(), st.data())
def test_most_probable_states_agree_with_the_oracle(made: tuple[DiscreteModel, Case], data: st.DataObject) -> None:
    net, case = made
    weights = weights_of(net, case)
    joint = oracle.joint(net, weights)
    query = data.draw(st.lists(st.integers(0, len(net) - 1), unique=True, max_size=3))
    if not joint.any():
        for task in ("MPE", "MMAP"):
            with pytest.raises(ImpossibleEvidence):
                solve_text(net, [case], task, [v for v in range(len(net)) if net.variables[v] not in case] or [0],
                           limits=PLAIN, backend="reference")  # fmt: skip
        return
    for task in ("MPE", "MAP"):
        kind, *words = solve_text(net, [case], task, limits=PLAIN, backend="reference").split()
        assert (kind, words.pop(0)) == (task, str(len(net)))
        states = tuple(map(int, words))
        assert joint[states] == pytest.approx(joint.max(), rel=1e-9)
        assert all(states[net.index(v)] == s for v, s in case.items() if isinstance(s, int))
    kind, *words = solve_text(net, [case], "MMAP", query, limits=PLAIN, backend="reference").split()
    assert (kind, words.pop(0)) == ("MMAP", str(len(query)))
    assert list(map(int, words[::2])) == query
    table = joint.sum(axis=tuple(v for v in range(len(net)) if v not in query))
    ordered = sorted(query)
    best = tuple(int(words[1::2][query.index(v)]) for v in ordered)
    assert table[best] == pytest.approx(table.max(), rel=1e-9)


@given(models_with_cases())
def test_conditioned_models(made: tuple[DiscreteModel, Case]) -> None:
    net, case = made
    left = conditioned(net, case)
    assert left.variables == net.variables
    assert oracle.log_evidence(left) == pytest.approx(oracle.log_evidence(net, weights_of(net, case)), rel=1e-9)
    observed = {net.index(v) for v, s in case.items() if isinstance(s, int)}
    assert all(not observed & set(f.scope) for f in left.factors)
    less = conditioned(net, case, only_evidence=True)
    assert oracle.log_evidence(less) == pytest.approx(oracle.log_evidence(left), rel=1e-9, abs=1e-9)


def test_barren_variables_are_left_out() -> None:
    net = read(ROOT / "nets" / "asia.net")
    assert isinstance(net, BayesianNetwork)
    left = conditioned(net, {"lung": 0}, only_evidence=True)
    assert sorted(net.variables[v] for f in left.factors for v in f.scope) == ["smoke", "smoke"]
    assert [f.scope for f in conditioned(net, {}, only_evidence=True).factors] == []
    assert solve_text(net, [], "PR") == "PR\n0\n"
    with pytest.raises(ValueError, match="task must be one of PR, MAR, MPE, MMAP, got 'SUM'"):
        solve_text(net, [], "SUM")


@given(markov_networks(7))
def test_width_at_least_is_a_lower_bound(net: MarkovNetwork) -> None:
    cost = net.plan("min-fill").cost()
    width, entries = width_at_least(net)
    assert width <= cost.width
    assert entries <= cost.largest


def test_queries(tmp_path: Path) -> None:
    net = read(ROOT / "nets" / "asia.net")
    (tmp_path / "q").write_text("2 3 0\n")
    assert read_query(tmp_path / "q", net) == [3, 0]
    (tmp_path / "q").write_text("0")
    assert read_query(tmp_path / "q", net) == []
    (tmp_path / "q").write_text(" lung\n\nsmoke \n")
    assert [net.variables[v] for v in read_query(tmp_path / "q", net)] == ["lung", "smoke"]
    for text, message in (
        ("2 3", "q:1:4: found the end of the file, expected the number of a variable, 0 to 7"),
        ("1 8", "q:1:3: found '8', expected the number of a variable"),
        ("1 1 1", "q:1:5: found '1', expected the end of the file"),
        ("2 1 1", "q:1:5: found 'tub' a second time"),
        ("lung\n long", "q:2:2: there is no variable 'long'"),
        ("lung\nlung", "q:2:1: found 'lung' a second time"),
    ):
        (tmp_path / "q").write_text(text)
        with pytest.raises(ParseError) as caught:
            read_query(tmp_path / "q", net)
        assert message in str(caught.value)


# The competition of 2014 ------------------------------------------------------------------------------------------

QUICK = (  # noqa: SIM905 - a list of names reads better as words
    "Grids_14 ObjectDetection_40 Pedigree_12 Promedus_15 Promedus_22 Promedus_27 Segmentation_14 Segmentation_15 "
    "linkage_21"
).split()
PR_TOLERANCE = 1e-4  # relative, of log10
MAR_TOLERANCE = 1e-5


@pytest.mark.parametrize("name", QUICK)
def test_reference_answers(name: str, shared_nets: Path) -> None:
    path = shared_nets / "uai2014" / f"{name}.uai"
    net = read(path)
    cases = read_evidence_cases(f"{path}.evid", net)
    found = float(solve_text(net, cases, "PR").split()[1])
    assert found == pytest.approx(float(Path(f"{path}.PR").read_text().split()[1]), rel=PR_TOLERANCE)
    marginals = solve_text(net, cases, "MAR").split()
    expected = Path(f"{path}.MAR").read_text().split()
    assert marginals[:2] == expected[:2]
    assert len(marginals) == len(expected)
    gap = np.abs(np.array(marginals[1:], np.float64) - np.array(expected[1:], np.float64))
    assert gap.max() <= MAR_TOLERANCE


def test_a_reference_that_is_none(shared_nets: Path) -> None:
    """The sum over all configurations is no more than their number times the largest product."""
    path = shared_nets / "uai2014" / "relational_3.uai"
    net = read(path)
    most = len(net) * math.log10(2) + sum(math.log10(float(f.table.max())) for f in net.factors)
    assert float(Path(f"{path}.PR").read_text().split()[1]) > most + 100
    assert jtgpu.read_evidence(f"{path}.evid", net) == {f"v{v}": 1 for v in (756, 646, 1, 219, 929, 932, 971)}
    assert os.path.getsize(path) > 100_000
