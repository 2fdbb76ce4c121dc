"""``jtgpu decide``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import jtgpu
from tests.cli.commands import run
from tests.decisions.test_policies import oil, pigs
from tests.dynamic.test_posteriors import umbrella


@pytest.fixture
def well(tmp_path: Path) -> str:
    path = tmp_path / "oil.net"
    jtgpu.write(oil(), path)
    return str(path)


def test_policy(well: str, tmp_path: Path) -> None:
    result = run("decide", well, "--json")
    found = json.loads(result.stdout)
    assert (found["expected_utility"], found["method"]) == (22.5, "exact")  # without digits that rounding made
    assert found["policy"]["test"] == [{"known": {}, "option": "yes"}]
    out = tmp_path / "policy.csv"
    printed = run("decide", well, "--policy", str(out)).stdout
    assert "drill\ttest=yes, seismic=none\tno" in printed
    assert printed.endswith("22.5\texact\n# any: in a situation that does not occur\n")  # not 22.49999999999983
    assert out.read_text().splitlines()[1] == "test,,yes"
    assert run("decide", well, "--policy", str(out)).exit_code == 6


def test_options_and_value_of_information(well: str) -> None:
    lines = run("decide", well, "-e", "test=yes", "-e", "seismic=closed", "--option", "drill").stdout.splitlines()
    assert lines[1].startswith("yes\t77.5")
    assert run("decide", well, "--voi", "drill").stdout.splitlines()[1] == "oil\t32.5"
    lines = run("decide", well, "-e", "test=yes", "-e", "seismic=none", "--option", "drill").stdout.splitlines()
    assert lines[1] == "no\t-10.0"
    assert run("decide", well, "--voi", "drill", "--option", "test").exit_code == 2
    assert "# as if" not in "".join(lines)
    early = run("decide", well, "--option", "drill", "-e", "test=yes").stdout.splitlines()
    assert early[-1] == "# as if seismic was not known when deciding; --evidence says what is"
    refused = run("decide", well, "-e", "cost=3")
    assert (refused.exit_code, "'cost' is a utility, which cannot be observed" in refused.stderr) == (2, True)


def test_recall(tmp_path: Path) -> None:
    path = tmp_path / "pigs.xdsl"
    jtgpu.write(pigs(4), path)
    assert "729.225" in run("decide", str(path), "--recall", "--digits", "6").stdout
    assert "726.812" in run("decide", str(path), "--digits", "6").stdout


def test_networks_without_decisions(tmp_path: Path) -> None:
    dynamic = str(tmp_path / "rain.dynamic.json")
    jtgpu.write(umbrella(), dynamic)
    for file, said in (("asia", "has no decisions; jtgpu query"), (dynamic, "is a dynamic network: jtgpu dynamic")):
        result = run("decide", file)
        assert said in result.stderr
        assert result.exit_code == 2


@pytest.mark.parametrize("words", ["voi FILE oil", "sensitivity FILE oil=dry", "plan", "time"])
def test_commands_without_decisions(words: str, well: str) -> None:
    command, *more = words.replace("FILE", well).split()
    result = run(command, *(more or [well]))
    assert "has decisions: jtgpu decide finds the best policy" in result.stderr
    assert result.exit_code == 2


def test_questions_under_the_best_policy(well: str) -> None:
    """A decision among the findings is fixed; several states of a finding change the policy."""
    tree = oil().compile("reference")
    out = json.loads(run("query", well, "-e", "test=no", "-e", "drill=yes", "--json", "--backend", "reference").stdout)
    assert out["posteriors"]["oil"]["probabilities"] == pytest.approx([0.5, 0.3, 0.2])
    assert out["expected_utility"] == pytest.approx(tree.utility({"test": "no", "drill": "yes"}).mean)
    printed = run("query", well, "--digits", "6", "--backend", "reference").stdout
    assert printed.splitlines()[-1] == "# Under the best policy (jtgpu decide), whose expected utility is 22.5."
    asked = ("P(drill=yes)", "P(oil, drill)", "P(drill | seismic)", "MPE(2 | test=yes)", "VOI(drill)")
    found = json.loads(run("query", well, *asked, "--json", "--backend", "reference").stdout)["questions"]
    assert found[0]["value"] == pytest.approx(tree.posterior("drill")["yes"])
    assert found[2]["probabilities"] == tree.conditional("drill", ["seismic"]).probabilities.tolist()
    assert [*found[4]["gains"]] == ["oil"]
    assert run("query", well, "VOI(drill)").stdout.startswith("# VOI(drill)\nvariable\tgain (utility)\noil\t")
    assert "under(policy) is the Bayesian network's tree" in run("query", well, "MI(oil)").stderr
    assert "oil.net has decisions: --backend, --threads" in run("query", well, "--plan", "a.plan").stderr
    best = json.loads(run("mpe", well, "-e", "test=no", "--json").stdout)["explanations"][0]
    assert best["states"] == dict(tree.mpe({"test": "no"}))
    lines = run("sample", well, "9", "-e", "drill=no", "--seed", "1").stdout.splitlines()
    assert lines[0].split(",") == [*oil().variables]
    assert {line.split(",")[oil().variables.index("drill")] for line in lines[1:]} == {"no"}
    assert run("decide", well, "-e", "oil=wet,soaking", "--digits", "6").stdout.splitlines()[-2] == "110\texact"


@pytest.mark.parametrize("command", ["decide", "show"])
def test_repaired_rows_are_reported(command: str) -> None:
    file = Path(__file__).parents[1] / "formats/data/fuzz/hugin/decisions.net"
    assert run(command, str(file)).stderr.count("did not sum to 1 and were normalised") == 1
