"""``jtgpu causal``: sets, formulas and effects are those of `jtgpu.causal`; effects equal do() in the network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu.causal import graph
from tests.cli.commands import on_terminal, run

FRONT = "smoke -> tar -> cancer; smoke <-> cancer"
OF, ON = ("--of", "smoke"), ("--on", "dysp")


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("causal") / "cases.csv"
    jtgpu.load("asia").compile("cpu").sample(20_000, seed=1).to_frame("pandas").to_csv(path, index=False)
    return str(path)


def test_sets() -> None:
    words = "sets", "alarm", "--of", "HR", "--on", "BP", "--hidden", "LVFAILURE"
    found = json.loads(run("causal", *words, "--json").stdout)
    assert sorted(found["sets"]) == [["CATECHOL"], ["TPR"]]
    assert (found["best"], found["front_door"]) == (["STROKEVOLUME", "TPR"], ["CO"])
    lines = run("causal", *words).stdout.splitlines()
    assert lines[0] == "variables\tadjustment set"
    assert lines[-2:] == ["# least variance: STROKEVOLUME, TPR", "# front door: CO"]
    assert "there is no adjustment set" in run("causal", "sets", FRONT, *OF, "--on", "cancer").stdout


def test_identify() -> None:
    lines = run("causal", "identify", FRONT, *OF, "--on", "cancer").stdout.splitlines()
    estimand = graph(FRONT).identify("cancer", do="smoke")
    assert lines == [estimand.formula, "# front-door; needs smoke, tar, cancer"]
    found = json.loads(run("causal", "identify", FRONT, *OF, "--on", "cancer", "--json").stdout)
    assert (found["method"], found["latex"]) == ("front-door", estimand.latex)
    refused = run("causal", "identify", "x -> y; x <-> y", "--of", "x", "--on", "y")
    assert refused.exit_code == 1
    assert "it would be if the common cause of x and y were measured" in refused.stderr


@pytest.mark.parametrize("more", ["", "--hidden tub", "--given xray=yes", "--given xray=yes --hidden tub"])
def test_effects_equal_interventions(more: str) -> None:
    found = json.loads(run("causal", "effect", "asia", *OF, *ON, *more.split(), "--json").stdout)
    tree, seen = jtgpu.load("asia").compile("reference"), {"xray": "yes"} if "--given" in more else {}
    for state, row in zip(found["states"][0], found["probabilities"], strict=True):
        assert np.allclose(row, tree.posterior("dysp", seen, do={"smoke": state}).probabilities, atol=1e-12)
    assert np.isclose(found["difference"], found["probabilities"][0][0] - found["probabilities"][1][0])
    assert (found["method"] == "network") == ("--hidden" not in more)


@pytest.mark.parametrize("more", ["", "--hidden tub"])
def test_one_of_several_states_may_be_given(more: str, tmp_path: Path) -> None:
    net = jtgpu.network("u->x; x->c{low|mid|high}; u->c; x->y; c->y; u->y; y->tub; b->y", seed=3)
    jtgpu.write(net, tmp_path / "n.bif")
    expected = net.compile("reference").effect("y", of="x", given={"c": ["low", "high"]}).table.probabilities
    words = "causal", "effect", str(tmp_path / "n.bif"), "--of", "x", "--on", "y", "--given"
    found = json.loads(run(*words, "c=low,high", *more.split(), "--json").stdout)
    assert np.allclose(found["probabilities"], expected, atol=1e-12)
    assert found["given"] == {"c": ["low", "high"]}
    single = json.loads(run(*words, "c=low,high", "--given", "b=0", *more.split(), "--json").stdout)
    given = {"c": ["low", "high"], "b": "0"}
    expected = net.compile("reference").effect("y", of="x", given=given).table.probabilities
    assert np.allclose(single["probabilities"], expected, atol=1e-12)


def test_one_of_several_states_of_cases(cases: str) -> None:
    words = "causal", "effect", "smoke -> dysp", cases, "--of", "smoke", "--on", "dysp", "--bootstrap", "20", "--json"
    whole = json.loads(run(*words).stdout)
    assert json.loads(run(*words[:2], "smoke -> dysp; xray", *words[3:], "--given", "xray=yes,no").stdout)["low"]
    found = json.loads(run("causal", "effect", "asia", *words[3:], "--given", "xray=yes,no").stdout)
    assert np.allclose(found["probabilities"], np.flip(whole["probabilities"]), atol=0.02)  # sorted states
    assert found["low"][0][0] < found["probabilities"][0][0] < found["high"][0][0]
    done = run("causal", "effect", "smoke -> dysp; xray", *words[3:], "--given", "xray=yes,na")
    assert "'na'" in done.stderr


def test_effects_of_several_causes() -> None:
    found = json.loads(run("causal", "effect", "asia", "--of", "lung,tub", "--on", "xray,dysp", "--json").stdout)
    tree = jtgpu.load("asia").compile("reference")
    expected = tree.joint(["xray", "dysp"], do={"lung": "yes", "tub": "no"}).probabilities
    assert np.allclose(np.array(found["probabilities"])[0, 1], expected, atol=1e-12)
    assert found["difference"] is None


def test_effects_from_cases(cases: str) -> None:
    words = "causal", "effect", "asia", cases, "--of", "lung", *ON, "--hidden", "smoke", "--bootstrap", "40"
    found = json.loads(run(*words, "--json").stdout)
    truth = jtgpu.load("asia").compile("cpu").effect("dysp", of="lung").table.probabilities
    low, middle, high = (np.array(found[name]) for name in ("low", "probabilities", "high"))
    assert (low < middle).all()
    assert (middle < high).all()
    assert (np.abs(middle - truth) < 2 * (high - low)).all()
    assert found["difference_interval"][0] < found["difference"] < found["difference_interval"][1]
    assert (found["method"], found["uses"]) == ("back-door", ["lung", "bronc", "dysp"])
    lines = run(*words).stdout.splitlines()
    assert lines[0] == "do(lung)\tdysp\tP\t2.5 %\t97.5 %"
    assert lines[-2].startswith("# difference 0.3")
    bare = run("causal", "effect", "lung -> dysp", cases, "--of", "lung", *ON, "--bootstrap", "0").stdout
    assert "2.5 %" not in bare


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("effect asia --of lunk --on dysp", 2, "there is no variable 'lunk'; did you mean 'lung'"),
        ("effect asia --of lung --on dysp --given smoke", 2, "'smoke' needs a state: smoke=..."),
        ("effect asia --of lung --on dysp --given smoke=maybe", 2, "has no state 'maybe'"),
        ("effect asia --of lung --on dysp --given smok=yes", 2, "'smok'; did you mean 'smoke'"),
        ("effect a->b --of a --on b", 2, "a graph has no CPTs: name a file of cases"),
        ("sets asia cases.csv --of lung --on dysp", 2, "cases are for effect"),
        ("identify asia --of smoke --on lung --hidden smoke", 2, "a hidden variable is not measured"),
        ("effect asia --of lung --on lung", 2, "'lung' is the cause and the outcome"),
        ("effect asia --of smoke,smoke --on dysp", 2, "'smoke' is there more than once"),
        ("effect asia --of smoke --on dysp,dysp", 2, "'dysp' is there more than once"),
        ("effect asia --of smoke --on dysp --given lung=yes --given lung=no", 2, "'lung' is there more than once"),
        ("effect asia none.csv --of lung --on dysp", 2, "none.csv: No such file"),
        ("effect ../shared/nets/none.uai --of lung --on dysp", 2, "no such file"),
    ],
)
def test_mistakes(words: str, code: int, said: str) -> None:
    result = run("causal", *words.split())
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


def test_a_missing_column_may_be_hidden(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("lung,bronc,dysp\nyes,no,no\nno,yes,no\n")
    words = "causal", "effect", "asia", str(path), "--of", "lung", *ON, "--bootstrap", "0"
    refused = run(*words)
    assert refused.exit_code == 2
    assert "no column 'smoke'; if the variable is never observed, use --hidden smoke" in refused.stderr
    assert run(*words, "--hidden", "smoke").exit_code == 0
    with pytest.raises(jtgpu.DataError, match=r"make the graph with hidden=\['smoke'\]"):
        graph(jtgpu.load("asia")).identify("dysp", do="lung").fit(path)


def test_a_difference_from_an_impossible_case_is_none() -> None:
    words = "effect", "asia", "--of", "lung", *ON, "--given", "either=no", "--hidden", "tub"
    made = json.loads(run("causal", *words, "--json").stdout)
    assert (made["possible"], made["difference"]) == ([False, True], None)
    lines = run("causal", *words).stdout.splitlines()
    assert lines[1] == "yes\tyes\timpossible"
    assert not any(line.startswith("# difference") for line in lines)


def test_a_terminal_shows_bars() -> None:
    shown = on_terminal("causal", "effect", "asia", *OF, *ON)
    assert "0.552808" in shown
    assert "█" in shown
    assert "an arc of a learned network is no proof of a cause" in " ".join(shown.split())
