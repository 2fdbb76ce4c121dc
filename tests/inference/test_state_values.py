"""One rule for numbers as states, whichever way evidence comes in."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.formats.evidence_files import parse_evidence
from jtgpu.inference.queries.text import parse
from jtgpu.inference.tree import JunctionTree
from jtgpu.model.quick import parse_finding
from tests.cli.commands import run

STATES = {
    "score": ["1", "2", "3"],
    "mixed": ["none", "1", "2"],
    "real": ["3.0", "7"],
    "range": ["(-inf, 2)", "[2, 5)", "[5, inf)"],
    "flag": ["True", "False"],
    "plain": ["no", "yes", "maybe"],
    "twice": ["1", "1.0"],
    "code": ["007", "12"],
}
NET = jtgpu.BayesianNetwork(STATES, {}, {v: [1 / len(s)] * len(s) for v, s in STATES.items()})

# variable, value, and the state that it means; None: an error
RULE: list[tuple[str, Any, str | None]] = [
    ("score", 1, "1"), ("score", 3, "3"), ("score", 3.0, "3"), ("score", 0, None), ("score", True, "1"),
    ("mixed", 2, "2"), ("mixed", 0, None), ("real", 3, "3.0"), ("real", 7.0, "7"), ("real", 0, None),
    ("range", 3, "[2, 5)"), ("range", 1.5, "(-inf, 2)"), ("flag", True, "True"), ("flag", False, "False"),
    ("flag", 1, "True"), ("flag", 0, "False"), ("plain", 1, None), ("plain", 0, None), ("plain", -1, None),
    ("plain", 3, None), ("plain", True, None), ("plain", 1.5, None), ("twice", 1, "1"), ("code", 7, None),
    ("code", 12, "12"), ("score", -1, None), ("range", -1, "(-inf, 2)"),
]  # fmt: skip

Entry = Callable[[JunctionTree, str, Any], Any]


def _session(tree: JunctionTree, v: str, value: Any) -> Any:
    with tree.session() as session:
        session.observe(v, value)
        return session.posterior(v)


def _batch(tree: JunctionTree, v: str, cases: Any, **more: Any) -> Any:
    return tree.posteriors_batch(cases, **more)[v][0]


def _do_in_table(tree: JunctionTree, v: str, value: Any) -> Any:
    return _batch(tree, v, {"mixed" if v != "mixed" else "score": [None]}, do={v: np.array([value], object)})


def _weights(tree: JunctionTree, v: str, value: Any) -> Any:
    wanted, names = NET.state_index(v, value), STATES[v]
    return tree.posterior(v, likelihood={v: {value: 1, **{s: 0 for i, s in enumerate(names) if i != wanted}}})


def _server(tree: JunctionTree, v: str, value: Any) -> Any:
    pytest.importorskip("starlette")
    from jtgpu.serve import App
    from tests.serve.client import Client

    app = App({"net": tree})
    try:
        reply = Client(app).request("POST", "/v1/networks/net/posteriors", json={"evidence": {v: value}})
    finally:
        app.close()
    if reply.status_code != 200:
        raise jtgpu.UnknownState(reply.text)
    return reply.json()["posteriors"][v]


# each gives the probabilities of the states, given the value, or the number of a state
ENTRIES: dict[str, Entry] = {
    "state": lambda t, v, x: t.posterior(v, {v: x}),
    "NumPy's": lambda t, v, x: t.posterior(v, {v: np.array([x])[0]}),
    "with another kind": lambda t, v, x: t.posterior(v, {v: x}, likelihood={}),
    "list of states": lambda t, v, x: t.posterior(v, {v: [x]}),
    "do": lambda t, v, x: t.posterior(v, do={v: x}),
    "likelihood": _weights,
    "session": _session,
    "columns": lambda t, v, x: _batch(t, v, {v: [x]}),
    "array": lambda t, v, x: _batch(t, v, {v: np.array([x])}),
    "rows": lambda t, v, x: _batch(t, v, [{v: x}]),
    "pandas": lambda t, v, x: _batch(t, v, pytest.importorskip("pandas").DataFrame({v: [x]})),
    "polars": lambda t, v, x: _batch(t, v, pytest.importorskip("polars").DataFrame({v: [x]})),
    "do of a table": _do_in_table,
    "server": _server,
    "JSON": lambda t, v, x: t.posterior(v, parse_evidence(json.dumps({v: x}), NET)[0]),
    "text": lambda t, v, x: parse_finding(NET, f"{v}={x}")[1],
    "question": lambda t, v, x: parse(NET, f"P({v} | {v}={x})").known["evidence"][v],
    "result": lambda t, v, x: [t.posterior(v, {v: s})[x] for s in STATES[v]],
}


@pytest.fixture(scope="module")
def tree() -> JunctionTree:
    return NET.compile("cpu")


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_number_means_the_same_state_everywhere(tree: JunctionTree, entry: str) -> None:
    for v, value, state in RULE:
        if entry == "result" and v in ("plain", "flag") and type(value) is int:
            continue  # a position in the table
        if state is None:
            with pytest.raises(jtgpu.JtgpuError, match=r"state|interval"):
                ENTRIES[entry](tree, v, value)
            continue
        found = ENTRIES[entry](tree, v, value)
        number = found if isinstance(found, int) else int(np.argmax(np.asarray(found)))
        assert STATES[v][number] == state, (v, value)


def test_the_error_shows_both_readings(tree: JunctionTree, tmp_path: Any) -> None:
    says = r"no state 1 \(its states are 'no', 'yes', 'maybe'\): state number 1 is 'yes' \(net\.with_codes\('index'\)\)"
    with pytest.raises(jtgpu.UnknownState, match=says):
        tree.posterior("score", {"plain": 1})
    with pytest.raises(jtgpu.UnknownState, match=r"state number 1 is 'yes' \(net\.with_codes\('index'\)\)"):
        tree.posteriors_batch({"plain": [1, 0]})
    with pytest.raises(jtgpu.UnknownState, match=r"'code' has no state 7, did you mean '007'\?"):
        tree.posterior("score", {"code": 7})
    jtgpu.write(NET, tmp_path / "rule.net")
    shown = run("query", str(tmp_path / "rule.net"), "-e", "plain=1").output
    assert "state number 1 is 'yes' (--codes index); or say what codes mean, --codes plain:0=no,1=yes" in shown


def test_codes_say_what_numbers_mean() -> None:
    asia = jtgpu.load("asia")
    right = asia.compile("cpu").posterior("lung", {"xray": "yes"})["yes"]
    given: list[tuple[Any, Any]] = [({"xray": {1: "yes", 0: "no"}}, 1), ({"xray": {"pos": "yes"}}, "pos"), ("index", 0)]
    for codes, cell in given:
        tree = asia.with_codes(codes).compile("cpu")
        assert tree.posterior("lung", {"xray": cell})["yes"] == right
        assert tree.posteriors_batch({"xray": [cell]})["lung"][0, 0] == pytest.approx(right)
        assert tree.posterior("lung", {"xray": "yes"})["yes"] == right
    with pytest.raises(jtgpu.UnknownState, match="no state 1"):
        asia.with_codes({"xray": {1: "yes"}}).compile("cpu").posterior("lung", {"smoke": 1})
    wrong: list[tuple[Any, str]] = [
        ({"xray": {1: "maybe"}}, "'maybe' is not one state"), ({"xray": {1: 1}}, "1 is not one state"),
        ({"xray": {math.nan: "yes"}}, "must be a number or a text, not nan"), ({"xray": ["no"]}, "must be a mapping"),
        ("indx", "did you mean 'index'"), ({"x-ray": {1: "yes"}}, "did you mean 'xray'"),
    ]  # fmt: skip
    for codes, message in wrong:
        with pytest.raises(jtgpu.JtgpuError, match=message):
            asia.with_codes(codes)
    text = asia.with_codes({"xray": {"1": "yes", "0": "no"}})
    for tree in (text.compile("cpu"), pickle.loads(pickle.dumps(text)).compile("cpu")):
        assert tree.posterior("lung", {"xray": "1"})["yes"] == tree.posterior("lung", {"xray": 1})["yes"] == right
    coded = {v: [1, 0] if v == "xray" else ["yes", "no"] for v in asia}
    fitted = jtgpu.learn.fit(text, coded).network  # reads its own table
    assert fitted.compile("cpu").posteriors_batch({"xray": [1]})["xray"].tolist() == [[1.0, 0.0]]


def test_numbers_of_states_that_jtgpu_returns_are_evidence(tree: JunctionTree) -> None:
    # not the state "1", although this is number 0
    assert tree.posterior("score", {"score": NET.state_index("score", "2")})["2"] == 1.0
    cases = parse_evidence("1 0 1", NET)  # UAI: variable 0 is in its state number 1
    assert tree.posterior("score", cases[0])["2"] == 1.0
    assert tree.posteriors_batch(np.array([[1, *[-1] * 7]]))["score"][0, 1] == 1.0  # an array has no names


def test_decimal_numbers_are_numbers(tree: JunctionTree) -> None:
    for name, given, number in [("score", "1", 1), ("real", "3.00", 3), ("range", "2.5", 2.5)]:
        expected = tree.posterior(name, {name: number})
        for evidence in (Decimal(given), [Decimal(given)]):
            assert dict(tree.posterior(name, {name: evidence})) == dict(expected)
    for missing in ("NaN", "sNaN"):
        assert tree.posterior("score", {"score": Decimal(missing)})["1"] < 1
    for wrong in ("7", "1E+5000000", "Infinity"):
        with pytest.raises(jtgpu.UnknownState, match="'score'"):
            tree.posterior("real", {"score": Decimal(wrong)})
    codes: Any = {"xray": {Decimal(1): "yes", 0: "no"}}
    assert jtgpu.load("asia").with_codes(codes).state_index("xray", 1) == 0
