"""Questions as people write them: what is read, what is refused and where, and the commands that answer."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.causal import graph
from jtgpu.cli import app
from jtgpu.cli.query import observation_table
from jtgpu.inference.queries.information import Observation
from jtgpu.inference.queries.text import KINDS, parse
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT

ASIA = str(ROOT / "nets" / "asia.net")
REFERENCE = ("--backend", "reference")


def run(*words: str) -> Any:
    """One command within this process; a traceback is a failure, whatever was expected."""
    result = CliRunner().invoke(app, [*words])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def asia() -> jtgpu.JunctionTree:
    tree: jtgpu.JunctionTree = jtgpu.read(ASIA).compile("reference")
    return tree


# What is read -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("P(lung)", {"targets": ("lung",)}),
        (" p ( lung , bronc ) ", {"kind": "P", "targets": ("lung", "bronc")}),
        ("P(lung | xray=yes)", {"targets": ("lung",), "known": {"evidence": {"xray": 0}}}),
        ("P(lung | smoke = {yes, no})", {"known": {"evidence": {"smoke": frozenset({0, 1})}}}),
        ("P(lung | smoke={no})", {"known": {"evidence": {"smoke": 1}}}),
        ("P(lung=yes, bronc={yes,no} | smoke=no)", {"event": {"lung": 0, "bronc": frozenset({0, 1})}, "targets": ()}),
        ("P(lung | smoke, xray=yes)", {"given": ("smoke",), "known": {"evidence": {"xray": 0}}}),
        ("lnP(lung=yes)", {"kind": "lnP", "event": {"lung": 0}}),
        ("ln P(lung=yes)", {"kind": "lnP"}),
        ("h(lung, bronc)", {"kind": "H", "targets": ("lung", "bronc")}),
        ("MI(lung)", {"kind": "MI", "others": None}),
        ("MI(lung; smoke, bronc | xray=no)", {"others": ("smoke", "bronc"), "known": {"evidence": {"xray": 1}}}),
        ("VOI(lung ; smoke)", {"kind": "VOI", "others": ("smoke",)}),
        ("importance(lung | xray=yes)", {"kind": "IMPORTANCE"}),
        ("CONFLICT(xray=yes, dysp=no)", {"kind": "CONFLICT", "known": {"evidence": {"xray": 0, "dysp": 1}}}),
        ("CONFLICT(xray=yes | do(smoke=no))", {"known": {"evidence": {"xray": 0}, "do": {"smoke": 1}}}),
        ("MPE()", {"kind": "MPE", "k": 1}),
        ("MPE(|)", {"k": 1, "known": {}}),
        ("MPE(3 | xray=yes)", {"k": 3, "known": {"evidence": {"xray": 0}}}),
        ("MAP(lung, bronc | xray=yes)", {"kind": "MAP", "targets": ("lung", "bronc")}),
        ("P(lung | do(smoke=no))", {"known": {"do": {"smoke": 1}}}),
        ("P(lung | do(smoke: 0.25, 0.75))", {"known": {"do": {"smoke": [0.25, 0.75]}}}),
        ("P(lung | soft(smoke: no=.25, yes=7.5e-1))", {"known": {"soft": {"smoke": [0.75, 0.25]}}}),
        ("P(lung | likelihood( dysp : 1, 2 ), dysp={yes,no})", {"known": {
            "likelihood": {"dysp": [1.0, 2.0]}, "evidence": {"dysp": frozenset({0, 1})}}}),
    ],
)  # fmt: skip
def test_questions(asia: jtgpu.JunctionTree, text: str, found: dict[str, Any]) -> None:
    q = parse(asia.model, text)
    for name, value in found.items():
        assert getattr(q, name) == value
    assert q.kind in KINDS
    assert q.text == text


def odd() -> BayesianNetwork:
    """Names and states that hold every mark of a question."""
    states = {
        "a": ["yes", "no", "b=c"],
        "a=b": ["c", "d", "c,d"],
        "a, b": ["x|y", "x", ")"],
        "P(a)": ["{1}", "1", "0"],
        "do(a=yes)": ["0.5", "0.7"],
        "do": ["0", "1"],
        "größe | π": ["klein", "groß"],
        "soft(x: 1)": ["=", ""],
    }
    return BayesianNetwork(states, {}, {v: [1 / len(s)] * len(s) for v, s in states.items()})


@pytest.mark.parametrize(
    ("text", "targets", "evidence"),
    [
        ("P(a)", ("a",), {}),
        ("P(a=b)", ("a=b",), {}),  # the longest name that fits
        ("P(a, b)", ("a, b",), {}),
        ("P(a, a=b)", ("a", "a=b"), {}),
        ("P(a | a=b=c)", ("a",), {"a=b": 0}),
        ("P(do | a=b=c)", ("do",), {"a=b": 0}),
        ("P(do | a=b=c,d)", ("do",), {"a=b": 2}),
        ("P(do | a = b=c)", ("do",), {"a": 2}),  # "a=b" does not stand there, and "b=c" is a state of a
        ("P(do | a, b=x|y)", ("do",), {"a, b": 0}),
        ("P(do | a, b=))", ("do",), {"a, b": 2}),
        ("P(P(a) | P(a)=1)", ("P(a)",), {"P(a)": 1}),  # a state's name before its number
        ("P(a | P(a)={1})", ("a",), {"P(a)": 0}),
        ("P(a | P(a)={{1}, 0})", ("a",), {"P(a)": frozenset({0, 2})}),
        ("P(a | do(a=yes)=0.7)", ("a",), {"do(a=yes)": 1}),
        ("P(a | do=1)", ("a",), {"do": 1}),
        ("P(größe | π | do=0)", ("größe | π",), {"do": 0}),
        ("P(do | größe | π=groß)", ("do",), {"größe | π": 1}),
        ("P(a | soft(x: 1)==)", ("a",), {"soft(x: 1)": 0}),
    ],
)
def test_names_with_marks(text: str, targets: tuple[str, ...], evidence: dict[str, Any]) -> None:
    q = parse(odd(), text)
    assert q.targets == targets
    assert q.known.get("evidence", {}) == evidence


@pytest.mark.parametrize(
    ("text", "kind", "says", "column"),
    [
        ("P(lungs)", errors.UnknownVariable, "did you mean 'lung'", 3),
        ("P(lung | xrai=yes)", errors.UnknownVariable, "did you mean 'xray'", 10),
        ("P(lung | xray=ye)", errors.UnknownState, "did you mean 'yes'", 15),
        ("P(lung | xray=7)", errors.UnknownState, "no state '7'", 15),
        ("P(lung", errors.EvidenceError, "after 'lung'", 7),
        ("P lung)", errors.EvidenceError, "expected '(' after P, found 'l'", 3),
        ("(lung)", errors.EvidenceError, "unknown kind of question", 1),
        ("P", errors.EvidenceError, "expected '(' after P, found the end", 2),
        ("Q(lung)", errors.EvidenceError, "unknown kind of question", 1),
        ("VOL(lung)", errors.EvidenceError, "did you mean 'VOI'", 1),
        ("", errors.EvidenceError, "unknown kind of question", 1),
        ("P()", errors.EvidenceError, "needs a variable", 4),
        ("P(lung,, xray)", errors.EvidenceError, "expected a variable", 8),
        ("P(lung xray)", errors.UnknownVariable, "no variable 'lung xray'", 3),
        ("P(lung, lung)", errors.EvidenceError, "given twice", 9),
        ("P(lung) x", errors.EvidenceError, "unexpected text after", 9),
        ("P(lung=yes, xray)", errors.EvidenceError, "variables or an event, not both", 13),
        ("P(xray, lung=yes)", errors.EvidenceError, "variables or an event, not both", 9),
        ("P(lung=yes | xray)", errors.EvidenceError, "needs a state of 'xray'", 19),
        ("P(lung | lung)", errors.EvidenceError, "'lung' is given twice", 15),
        ("P(lung | xray, xray=yes)", errors.EvidenceError, "'xray' is given twice", 25),
        ("P(lung | xray=yes, xray=no)", errors.EvidenceError, "'xray' is given twice", 20),
        ("P(lung | xray=)", errors.EvidenceError, "expected a state of 'xray'", 15),
        ("P(lung | xray={yes, no)", errors.EvidenceError, "'no'", 21),
        ("lnP(lung)", errors.EvidenceError, "lung=...", 5),
        ("H(lung=yes)", errors.EvidenceError, "after 'lung'", 7),
        ("H()", errors.EvidenceError, "needs a variable", 4),
        ("MI(lung, xray)", errors.EvidenceError, "MI(lung; ...)", 14),
        ("MI(lung; xray=yes)", errors.EvidenceError, "after 'xray'", 14),
        ("MI(lung | smoke)", errors.EvidenceError, "smoke=...", 11),
        ("MPE(0)", errors.EvidenceError, "at least 1", 5),
        ("MPE(lung)", errors.EvidenceError, "expected ')'", 5),
        ("CONFLICT()", errors.EvidenceError, "needs findings", 11),
        ("CONFLICT(lung)", errors.EvidenceError, "lung=...", 10),
        ("CONFLICT(xray=yes | soft(smoke: 0.5, 0.5))", errors.EvidenceError, "does not support soft evidence", 43),
        ("IMPORTANCE(lung)", errors.EvidenceError, "needs findings", 17),
        ("EFFECT(dysp)", errors.EvidenceError, "EFFECT(dysp; ...)", 13),
        ("EFFECT(dysp; smoke, lung)", errors.EvidenceError, "takes one cause", 26),
        ("EFFECT(dysp; smoke | do(lung=yes))", errors.EvidenceError, "takes findings a=x after the bar", 35),
        ("ADJUST(dysp, lung)", errors.EvidenceError, "ADJUST(dysp, lung; ...)", 19),
        ("ADJUST(dysp; smoke | xray=yes)", errors.EvidenceError, "takes nothing after the bar", 31),
        ("P(lung | do(smoke))", errors.EvidenceError, "after 'smoke'", 18),
        ("P(lung | do(smoke=yes)", errors.EvidenceError, "expected ')' at the end", 23),
        ("P(lung | soft(smoke=yes))", errors.EvidenceError, "expected ':' after 'smoke'", 20),
        ("P(lung | soft(smoke: 0.2))", errors.EvidenceError, "needs a number for 'no'", 25),
        ("P(lung | soft(smoke: 0.2, 0.3, 0.5))", errors.EvidenceError, "too many numbers: 'smoke' has 2 states", 32),
        ("P(lung | soft(smoke: yes=0.2, 0.8))", errors.EvidenceError, "or each with its state", 31),
        ("P(lung | soft(smoke: 0.2, no=0.8))", errors.EvidenceError, "or each with its state", 27),
        ("P(lung | soft(smoke: yes=0.2, yes=0.8))", errors.EvidenceError, "already has a number", 31),
        ("P(lung | soft(smoke: yes=much, no=0.8))", errors.EvidenceError, "expected a number", 26),
        ("P(lung | soft(smoke: 0.2, 0.9))", errors.EvidenceError, "sum to 1.1", 0),
        ("P(lung | soft(smoke: 0.5, 0.5), soft(smoke: 0.5, 0.5))", errors.EvidenceError, "'smoke' is given twice", 33),
        ("P(lung | smoke=yes, soft(smoke: 0.5, 0.5))", errors.EvidenceError, "observed", 0),
    ],
)
def test_invalid_questions(asia: jtgpu.JunctionTree, text: str, kind: type[Exception], says: str, column: int) -> None:
    with pytest.raises(kind) as error:
        asia.ask(text)
    message = str(error.value)
    assert says in message
    assert isinstance(error.value, errors.EvidenceError)
    if column:
        head, line, caret = message.splitlines()
        assert f"(column {column})" in head
        assert line == f"    {text}"
        assert caret == " " * (4 + column - 1) + "^"


@given(text=st.text("PHMIlnung(|)=,;:{} \nxray0.5dosftäyes", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    model = jtgpu.read(ASIA)
    with contextlib.suppress(errors.EvidenceError):
        assert parse(model, text).kind in KINDS


# What is answered ---------------------------------------------------------------------------------------------------


def test_answers_are_those_of_the_methods(asia: jtgpu.JunctionTree) -> None:
    e = {"xray": "yes"}
    np.testing.assert_array_equal(asia.ask("P(lung | xray=yes)"), asia.posterior("lung", e))
    np.testing.assert_array_equal(asia.ask("P(lung, bronc | xray=yes)"), asia.joint(["lung", "bronc"], e))
    np.testing.assert_array_equal(
        asia.ask("P(lung | smoke, xray=yes)"), asia.conditional("lung", ["smoke"], e).probabilities
    )
    assert asia.ask("H(lung | xray=yes)") == asia.entropy("lung", e)
    assert asia.ask("MI(lung; smoke | xray=yes)") == asia.mutual_information("lung", ["smoke"], e)
    assert asia.ask("VOI(lung | xray=yes)") == asia.value_of_information("lung", None, e)
    assert asia.ask("CONFLICT(xray=yes, dysp=no)") == asia.conflict({"xray": "yes", "dysp": "no"})
    assert [i.variable for i in asia.ask("IMPORTANCE(lung | xray=yes, dysp=no)")] == ["xray", "dysp"]
    shown = asia.ask("EFFECT(dysp; smoke | xray=yes, tub={yes, no})")
    given = {"xray": "yes", "tub": ["yes", "no"], "lung": None}
    assert str(shown) == str(asia.effect("dysp", of="smoke", given=given))
    assert str(shown).startswith("P(dysp | do(smoke), xray = yes, tub = {yes, no})\n")
    assert asia.ask("ADJUST(xray, dysp; either)") == graph(asia.model).adjustment_sets("either", ["xray", "dysp"])
    known: dict[str, Any] = {"do": {"smoke": "no"}, "soft": {"bronc": [0.2, 0.8]}, "likelihood": {"dysp": [0.9, 0.1]}}
    text = "P(lung | xray=yes, do(smoke=no), soft(bronc: 0.2, 0.8), likelihood(dysp: 0.9, 0.1))"
    np.testing.assert_array_equal(asia.ask(text), asia.posterior("lung", e, **known))


def test_the_probability_of_an_event(asia: jtgpu.JunctionTree) -> None:
    table = asia.joint(["lung", "bronc", "smoke"], {"xray": "yes"})
    p = np.asarray(table)
    assert asia.ask("P(lung=yes, bronc=no | xray=yes)") == pytest.approx(p[0, 1].sum(), abs=1e-14)
    assert asia.ask("P(lung=yes, bronc={yes, no} | xray=yes)") == pytest.approx(p[0].sum(), abs=1e-14)
    assert asia.ask("P(lung=yes | xray=yes, smoke=yes)") == pytest.approx(p[0, :, 0].sum() / p[:, :, 0].sum())
    assert asia.ask("lnP(xray=yes)") == pytest.approx(asia.log_evidence({"xray": "yes"}))
    assert asia.ask("P(lung=yes, either=no)") == 0.0
    assert asia.ask("lnP(lung=yes, either=no)") == -math.inf
    assert asia.ask("P(lung=yes | lung=no)") == 0.0
    assert asia.ask("P(lung=yes | lung=yes)") == 1.0
    assert asia.ask("P(lung=yes | likelihood(lung: 0, 1))") == 0.0
    assert asia.ask("P(lung={yes,no} | likelihood(lung: 0.2, 0.1))") == 1.0
    assert asia.ask("P(lung=yes | soft(lung: 0.25, 0.75))") == pytest.approx(0.25, abs=1e-12)
    assert asia.ask("P(lung=yes | do(lung=yes))") == 1.0
    with pytest.raises(errors.ImpossibleEvidence):
        asia.ask("P(smoke=yes | lung=yes, either=no)")


# The commands -------------------------------------------------------------------------------------------------------


def test_query_answers_questions(asia: jtgpu.JunctionTree) -> None:
    result = run("query", ASIA, "P(lung | xray=yes)", "P(lung, bronc)", "H(lung)", "P(either=yes)", *REFERENCE)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "# P(lung | xray=yes)"
    assert lines[1] == "lung\tP"
    assert lines[2].split("\t") == ["yes", repr(asia.posterior("lung", {"xray": "yes"})["yes"])]
    assert "lung\tbronc\tP" in lines
    assert lines[lines.index("# H(lung)") + 1 :][:2] == ["nats", repr(asia.entropy("lung"))]
    assert lines[-2] == "probability"
    everything = run("query", ASIA, "VOI(lung)", "MI(lung; smoke)", "IMPORTANCE(lung | xray=yes)",
                     "CONFLICT(xray=yes, dysp=no)", "P(either | lung, tub)",
                     "EFFECT(dysp; smoke)", "ADJUST(dysp; bronc)", "ADJUST(dysp; smoke)", *REFERENCE)  # fmt: skip
    assert everything.exit_code == 0, everything.output
    assert "gain" in everything.stdout
    lines = everything.stdout.splitlines()
    assert lines[-8:] == ["# ADJUST(dysp; bronc)", "adjustment set", "either", "lung", "smoke", "# ADJUST(dysp; smoke)",
                          "adjustment set", "(none)"]  # fmt: skip
    effect = asia.effect("dysp", of="smoke").table.probabilities
    assert lines[-12].split("\t") == ["yes", "yes", repr(float(effect[0, 0]))]
    found = json.loads(run("query", ASIA, "EFFECT(dysp; smoke)", "ADJUST(dysp; bronc)", "--json", *REFERENCE).stdout)
    assert found["questions"][0]["probabilities"] == effect.tolist()
    assert found["questions"][1]["sets"] == [["either"], ["lung"], ["smoke"]]


def test_query_why(asia: jtgpu.JunctionTree, tmp_path: Path) -> None:
    findings = ("-e", "xray=yes", "-e", "smoke=no")
    why = asia.contributions("lung", {"xray": "yes", "smoke": "no"})
    result = run("query", ASIA, *findings, "-t", "lung,tub", "--why", *REFERENCE)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:3] == ["# P(lung = yes)", "variable\tfinding\tcontribution", f"without findings\t\t{why.base!r}"]
    assert lines[3] == f"xray\tyes\t{why['xray']!r}"
    assert "# P(tub = yes)" in lines
    result = run("query", ASIA, *findings, "-t", "lung", "--why", "--json", *REFERENCE)
    assert json.loads(result.stdout)["contributions"][0]["contributions"] == dict(why)
    net = tmp_path / "many.net"
    jtgpu.write(jtgpu.network("; ".join(f"a->b{i}" for i in range(17)), "{yes|no}", seed=1), net)
    found = [x for i in range(17) for x in ("-e", f"b{i}=yes")]
    lines = run("query", str(net), *found, "-t", "a", "--why", "--backend", "cpu").stdout.splitlines()
    assert lines[1] == "variable\tfinding\tcontribution\terror"  # they are estimates
    assert all(0 < float(line.split("\t")[3]) < 0.01 for line in lines[3:20])
    for wrong in (("-t", "lung"), findings, (*findings, "H(lung)")):
        result = run("query", ASIA, *wrong, "--why", *REFERENCE)
        assert result.exit_code == 2
        assert "--why" in result.stderr


def test_query_explains(asia: jtgpu.JunctionTree) -> None:
    result = run("query", ASIA, "MPE(2 | xray=yes)", "MAP(lung, bronc | xray=yes)", *REFERENCE)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[1] == "variable\t1\t2"
    best, second = asia.mpe({"xray": "yes"}, k=2).ranked
    assert f"lung\t{best['lung']}\t{second['lung']}" in lines
    assert f"P\t{best.probability!r}\t{second.probability!r}" in lines
    found = asia.map(["lung", "bronc"], {"xray": "yes"})
    at = lines.index("# MAP(lung, bronc | xray=yes)")
    assert lines[at + 2 :] == [f"lung\t{found['lung']}", f"bronc\t{found['bronc']}", f"P\t{found.probability!r}"]
    found = json.loads(run("query", ASIA, "MPE(2 | xray=yes)", "--json", *REFERENCE).stdout)["questions"][0]
    assert [e["states"] for e in found["explanations"]] == [dict(best), dict(second)]
    assert found["explanations"][0]["log_joint"] == best.log_joint


def test_query_takes_evidence_for_all_questions(asia: jtgpu.JunctionTree) -> None:
    words = ("query", ASIA, "P(lung)", "H(bronc)", "-e", "xray=yes", *REFERENCE)
    found = json.loads(run(*words, "--json").stdout)["questions"]
    assert found[0]["probabilities"] == asia.posterior("lung", {"xray": "yes"}).probabilities.tolist()
    assert found[1] == {
        "question": "H(bronc)", "kind": "H", "value": asia.entropy("bronc", {"xray": "yes"}), "unit": "nats"
    }  # fmt: skip
    again = run("query", ASIA, "P(lung | xray=no)", "-e", "xray=yes", *REFERENCE)
    assert again.exit_code == 2
    assert "'xray' is given twice" in again.stderr


def test_query_as_json(asia: jtgpu.JunctionTree) -> None:
    questions = ("P(lung)", "P(lung, bronc)", "P(lung | tub, either=no)", "lnP(lung=yes, either=no)", "MI(lung)",
                 "VOI(lung)", "IMPORTANCE(lung | xray={yes,no}, dysp=no)", "P(lung=yes)")  # fmt: skip
    result = run("query", ASIA, *questions, "--json", *REFERENCE)
    found = json.loads(result.stdout)
    assert found["file"] == ASIA
    answers = {a["question"]: a for a in found["questions"]}
    assert list(answers) == list(questions)
    assert answers["P(lung)"]["states"] == ["yes", "no"]
    assert np.array(answers["P(lung, bronc)"]["probabilities"]).shape == (2, 2)
    assert answers["P(lung | tub, either=no)"]["possible"] == [False, True]
    assert answers["P(lung | tub, either=no)"]["probabilities"][0] == [0.0, 0.0]
    assert answers["lnP(lung=yes, either=no)"]["value"] is None
    assert next(iter(answers["MI(lung)"]["nats"])) == "either"
    assert answers["VOI(lung)"]["observations"][0]["variable"] == "either"
    assert {f["variable"] for f in answers["IMPORTANCE(lung | xray={yes,no}, dysp=no)"]["findings"]} == {"xray", "dysp"}
    assert answers["P(lung=yes)"]["value"] == asia.ask("P(lung=yes)")


def test_what_went_well_is_printed_before_what_did_not() -> None:
    result = run("query", ASIA, "P(lung=yes)", "P(smoke | lung=yes, either=no)", "H(lung)", *REFERENCE)
    assert result.exit_code == 4
    assert result.stdout.splitlines()[:2] == ["# P(lung=yes)", "probability"]
    assert "H(lung)" not in result.stdout
    assert "lung = 'yes'" in result.stderr
    whole = run("query", ASIA, "P(lung=yes)", "P(smoke | lung=yes, either=no)", "--json", *REFERENCE)
    assert (whole.exit_code, whole.stdout) == (4, "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("query", ASIA, "P(lungs)"), 2, "did you mean 'lung'"),
        (("query", ASIA, "Q(lung)"), 2, "unknown kind of question"),
        (("query", ASIA, "P(lung)", "-t", "lung"), 2, "its own targets"),
        (("voi", ASIA), 2, "TARGET"),
        (("voi", ASIA, "lungs"), 2, "did you mean 'lung'"),
        (("voi", ASIA, "lung", "-c", "lung"), 2, "among the other variables"),
        (("voi", ASIA, "lung", "-c", "smok"), 2, "did you mean 'smoke'"),
        (("voi", ASIA, "lung", "-e", "lung=yes", "-e", "either=no"), 4, "probability 0"),
        (("voi", "no.net", "lung"), 2, "no.net"),
    ],
)
def test_bad_usage(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*words, *REFERENCE)
    assert result.exit_code == code, result.output
    assert said in " ".join(result.stderr.split())
    assert not result.stdout


def test_the_caret_is_shown_below_the_place() -> None:
    result = run("query", ASIA, "P(lung | xray=ye)", *REFERENCE)
    line, caret = result.stderr.splitlines()[-2:]
    assert line[caret.index("^")] == "y"
    assert line.strip() == "P(lung | xray=ye)"


def test_voi(asia: jtgpu.JunctionTree) -> None:
    expected = asia.value_of_information("lung", evidence={"dysp": "yes"})
    lines = run("voi", ASIA, "lung", "-e", "dysp=yes", *REFERENCE).stdout.splitlines()
    assert lines[0].startswith("# H(lung) now\t0.477")
    assert lines[0].endswith(" bits")
    best, bit = expected[0], math.log(2.0)
    assert lines[2].split("\t") == [
        "either", repr(best.gain / bit), repr(best.expected_entropy / bit), repr(best.expected_accuracy)
    ]  # fmt: skip
    found = json.loads(run("voi", ASIA, "lung", "-c", "smoke", "-c", "xray", "--json", *REFERENCE).stdout)
    assert [o["variable"] for o in found["observations"]] == ["xray", "smoke"]
    assert found["unit"] == "bits"
    assert found["entropy"] == asia.entropy("lung") / bit


def test_gains_below_rounding_error_are_printed_as_0() -> None:
    found = [Observation("a", 0.1, 0.5, 0.9), Observation("b", 0.6, 6.66e-18, 0.8), Observation("c", 0.6, -1e-17, 0.8)]
    assert [row[1] for row in observation_table(found)[1]] == [0.5 / math.log(2.0), 0.0, 0.0]


def test_evidence_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "case.txt"
    file.write_text("xray=yes\nsmoke=no\n")
    for words in (
        ("query", ASIA, "-t", "lung"), ("query", ASIA, "P(lung)"), ("mpe", ASIA), ("voi", ASIA, "lung"),
        ("sensitivity", ASIA, "lung=yes"), ("sample", ASIA, "3", "--seed", "1"),
    ):  # fmt: skip
        given = run(*words, "-e", "xray=yes", "-e", "smoke=no", *REFERENCE)
        assert given.exit_code == 0
        assert run(*words, "--evidence-file", str(file), *REFERENCE).stdout == given.stdout
    twice = run("query", ASIA, "-e", "xray=no", "--evidence-file", str(file))
    assert twice.exit_code == 2
    assert "'xray' is given twice" in twice.stderr
    assert run("query", ASIA, "--evidence-file", str(tmp_path / "none")).exit_code == 2


def test_likelihoods_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "case.json"
    file.write_text('{"xray": [0.9, 0.2]}')
    with jtgpu.load("asia").compile("reference") as tree:
        expected = tree.posterior("lung", likelihood={"xray": [0.9, 0.2]})["yes"]
    found = json.loads(run("query", ASIA, "-t", "lung", "--evidence-file", str(file), "--json", *REFERENCE).stdout)
    assert found["posteriors"]["lung"]["probabilities"][0] == expected
    assert run("query", ASIA, "P(lung)", "--evidence-file", str(file)).exit_code == 2
