"""Every question against the tree's own answer."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest

import jtgpu
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App
from jtgpu.serve.questions import QUESTIONS, answer
from tests.serve.client import Client, posts, together

# tested in test_decisions.py, test_slices.py and test_numbers.py
ELSEWHERE = {"options", "policy", "decision-value", "filter", "smooth", "predict", "step", "sequence-mpe"}
SEEN = {"xray": "yes", "smoke": ["yes", "no"]}
CASES: list[dict[str, Any]] = [
    {},
    {"evidence": {"xray": "yes"}},
    {"evidence": {"xray": "yes", "smoke": "no"}},
    {"evidence": {"smoke": ["yes", "no"], "xray": ["yes"]}},
    {"evidence": {"xray": "yes"}, "likelihood": {"dysp": [0.9, 0.2]}},
    {"likelihood": {"dysp": {"yes": 0.9, "no": 0.2}}},
    {"soft": {"lung": [0.7, 0.3]}},
    {"do": {"smoke": "no"}, "evidence": {"xray": "yes"}},
    {"do": {"smoke": [0.5, 0.5]}},
]


def keywords(case: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in case.items() if k in ("evidence", "likelihood", "soft", "do")}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("targets", [None, ["lung", "bronc"], "dysp", 3, []])
def test_posteriors(client: Client, asia: JunctionTree, case: dict[str, Any], targets: Any) -> None:
    found = client.ask("asia", "posteriors", {**case, "targets": targets})
    expected = asia.posteriors(**keywords(case), targets=targets)
    assert found["log_evidence"] == pytest.approx(expected.log_evidence, abs=1e-12)
    assert list(found["posteriors"]) == list(expected)
    for name, p in expected.items():
        np.testing.assert_allclose(found["posteriors"][name], p.probabilities, atol=1e-12)
    assert set(found["ms"]) == {"queued", "computed"}


def test_many_cases(client: Client, asia: JunctionTree) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"evidence": {"xray": "maybe"}}, "unknown-state"),
        ({"evidence": {"x-ray": "yes"}}, "unknown-variable"),
        ({"evidence": {"tub": "yes", "either": "no"}}, "impossible-evidence"),
        ({"likelihood": {"dysp": [1.0]}}, "invalid-evidence"),
        ({"evidence": {"lung": "yes"}, "soft": {"lung": [0.5, 0.5]}}, "invalid-evidence"),
    ]
    cases = [c for pair in zip(CASES, [b for b, _ in bad] + CASES, strict=False) for c in pair]
    found = client.ask("asia", "posteriors", {"cases": cases, "targets": ["lung"]})["results"]
    assert len(found) == len(cases)
    kinds = {repr(c): kind for c, kind in bad}
    for case, result in zip(cases, found, strict=True):
        if repr(case) in kinds:
            assert result["error"]["type"] == f"/errors/{kinds[repr(case)]}"
            continue
        expected = asia.posteriors(**keywords(case), targets=["lung"])
        np.testing.assert_allclose(result["posteriors"]["lung"], expected["lung"].probabilities, atol=1e-12)
        assert result["log_evidence"] == pytest.approx(expected.log_evidence, abs=1e-12)


def test_mpe_and_map(client: Client, asia: JunctionTree) -> None:
    found = client.ask("asia", "mpe", {"evidence": SEEN, "k": 3})
    best = asia.mpe(SEEN, k=3)
    assert found["variables"] == list(asia.model.variables)
    assert [e["states"] for e in found["explanations"]] == [e.states.tolist() for e in best.ranked]
    for one, expected in zip(found["explanations"], best.ranked, strict=True):
        assert one["log_joint"] == pytest.approx(expected.log_joint, abs=1e-12)
        assert one["log_posterior"] == pytest.approx(expected.log_posterior, abs=1e-12)
    found = client.ask("asia", "map?labels=1", {"variables": ["lung", "bronc"], "evidence": {"xray": "yes"}, "k": 2})
    top = asia.map(["lung", "bronc"], {"xray": "yes"}, k=2)
    assert [e["states"] for e in found["explanations"]] == [dict(e) for e in top.ranked]


def test_rankings(client: Client, asia: JunctionTree) -> None:
    evidence = {"xray": "yes", "smoke": "no"}
    found = client.ask("asia", "voi", {"target": "lung", "evidence": evidence})
    expected = asia.value_of_information("lung", None, evidence)
    assert [o["variable"] for o in found["observations"]] == [o.variable for o in expected]
    assert found["observations"][0]["gain"] == pytest.approx(expected[0].gain, abs=1e-12)
    found = client.ask("asia", "voi", {"target": "lung", "candidates": ["bronc", "dysp"], "most": 1})
    assert found["unit"] == "nats"
    bits = client.ask("asia", "voi", {"target": "lung", "candidates": ["bronc", "dysp"], "most": 1, "unit": "bits"})
    assert bits["unit"] == "bits"
    assert bits["observations"][0]["gain"] == pytest.approx(found["observations"][0]["gain"] / math.log(2))
    assert [o["variable"] for o in found["observations"]] == [
        asia.value_of_information("lung", ["bronc", "dysp"])[0].variable
    ]
    found = client.ask("asia", "mi", {"target": "lung", "evidence": evidence})
    scores = asia.mutual_information("lung", None, evidence)
    assert {s["variable"]: s["information"] for s in found["scores"]} == pytest.approx(scores, abs=1e-12)
    found = client.ask("asia", "importance", {"target": "lung", "evidence": evidence})
    ranked = asia.evidence_importance("lung", evidence)
    assert [f["variable"] for f in found["findings"]] == [i.variable for i in ranked]
    np.testing.assert_allclose(found["findings"][0]["without"], ranked[0].without, atol=1e-12)
    found = client.ask("asia", "contributions", {"target": "lung", "evidence": evidence})
    why = asia.contributions("lung", evidence)
    assert {c["variable"]: c["contribution"] for c in found["contributions"]} == pytest.approx(dict(why), abs=1e-12)
    assert (found["state"], found["base"], found["total"]) == ("yes", pytest.approx(why.base), pytest.approx(why.total))
    found = client.ask("asia", "conflict", {"evidence": evidence})
    assert found["conflict"] == pytest.approx(asia.conflict(evidence), abs=1e-12)


def test_sensitivity(client: Client, asia: JunctionTree) -> None:
    found = client.ask("asia", "sensitivity", {"target": ["lung", "yes"], "evidence": {"xray": "yes"}, "n": 4})
    expected = asia.sensitivity(("lung", "yes"), {"xray": "yes"})
    assert found["probability"] == pytest.approx(expected.probability, abs=1e-12)
    assert [(p["variable"], p["entry"]) for p in found["parameters"]] == [
        (p.variable, list(p.entry)) for p in expected.top(4)
    ]
    for bar, wanted in zip(found["tornado"], expected.tornado(4), strict=True):
        assert bar["at_low"] == pytest.approx(wanted.at_low, abs=1e-12)
        assert bar["at_high"] == pytest.approx(wanted.at_high, abs=1e-12)


def test_joint_and_samples(client: Client, asia: JunctionTree) -> None:
    found = client.ask("asia", "joint", {"variables": ["lung", "bronc"], "evidence": {"xray": "yes"}})
    expected = asia.joint(["lung", "bronc"], {"xray": "yes"})
    assert found["shape"] == [2, 2]
    np.testing.assert_allclose(found["probabilities"], expected.probabilities.ravel(), atol=1e-12)
    found = client.ask("asia", "sample", {"n": 5, "seed": 1, "evidence": {"xray": "yes"}})
    rows = asia.sample(5, {"xray": "yes"}, seed=1)
    assert found["samples"] == rows.states.tolist()
    found = client.ask("asia", "sample?labels=1", {"n": 2, "seed": 1})
    assert found["samples"][0] == [asia.sample(2, seed=1)[v][0] for v in asia.model.variables]


@pytest.mark.parametrize(
    "question",
    ["P(lung | xray=yes)", "P(lung, bronc)", "P(lung | bronc)", "P(lung=yes)", "lnP(lung=yes)", "H(lung)", "MI(lung)",
     "VOI(lung)", "IMPORTANCE(lung | xray=yes)", "CONFLICT(xray=yes, smoke=no)", "MPE(2 | xray=yes)", "MAP(lung)",
     "EFFECT(dysp; smoke)", "ADJUST(dysp; bronc)"],
)  # fmt: skip
def test_questions_as_text(client: Client, question: str) -> None:
    found = client.ask("asia", "ask", {"question": question})
    assert found["kind"] == question.partition("(")[0]


def test_effects(client: Client, asia: JunctionTree) -> None:
    found = client.ask("asia", "effect?labels=1", {"outcome": "dysp", "of": "smoke", "evidence": {"xray": "yes"}})
    made = asia.effect("dysp", of="smoke", given={"xray": "yes"})
    assert found["probabilities"][0]["yes"] == pytest.approx(made["yes"]["yes"], abs=1e-12)
    assert (found["states"], found["difference"]) == (["yes", "no"], pytest.approx(made.difference(), abs=1e-12))
    found = client.ask("asia", "identify", {"outcome": "dysp", "do": "lung", "hidden": ["smoke"]})
    assert (found["identified"], found["method"], found["adjustment_sets"]) == (True, "back-door", [["bronc"]])
    assert (found["best"], found["uses"]) == (["bronc", "tub"], ["lung", "bronc", "dysp"])
    found = client.ask("asia", "identify", {"outcome": "bronc", "do": ["lung"], "given": ["dysp"], "hidden": ["smoke"]})
    assert (found["method"], found["adjustment_sets"]) == ("general", [])
    assert client.ask("asia", "identify", {"outcome": "dysp", "do": "smok"}, 422)["type"] == "/errors/unknown-variable"


def test_an_effect_that_is_not_identified() -> None:
    net = jtgpu.network("u->x; u->y; x->y", "{no|yes}", seed=1)
    app = App({"bow": net.compile("cpu")})
    found = Client(app).ask("bow", "identify", {"outcome": "y", "do": "x", "hidden": ["u"]})
    assert (found["identified"], found["hedge"]) == (False, [["x", "y"], ["y"]])
    assert "it would be if the common cause of x and y were measured" in found["reason"]
    app.close()


def test_states_by_name_and_rounding(client: Client, asia: JunctionTree) -> None:
    found = client.ask("asia", "posteriors?labels=1&digits=3", {"targets": ["lung"], "evidence": {"xray": "yes"}})
    assert found["posteriors"] == {"lung": {"yes": 0.489, "no": 0.511}}
    found = client.ask("asia", "posteriors?labels=1", {"cases": [{}], "targets": ["lung"]})
    assert set(found["results"][0]["posteriors"]["lung"]) == {"yes", "no"}


def test_equal_names_of_states_have_no_labels() -> None:
    net = jtgpu.BayesianNetwork({"a": ["x", "x", ""]}, {}, {"a": [0.2, 0.3, 0.5]})
    with net.compile("cpu") as tree:
        app = App({"n": tree})
        client = Client(app)
        assert client.ask("n", "posteriors?labels=1", {}, 422)["type"] == "/errors/invalid-argument"
        assert client.ask("n", "posteriors", {"evidence": {"a": "x"}}, 422)["type"] == "/errors/unknown-state"
        app.close()


def test_a_markov_network() -> None:
    net = jtgpu.MarkovNetwork({"a": ["0", "1"], "b": ["0", "1"]}, [(("a", "b"), [[1.0, 2.0], [3.0, 4.0]])])
    with net.compile("cpu") as tree:
        app = App({"n": tree})
        client = Client(app)
        about = client.get("/v1/networks/n").json()
        assert about["kind"] == "markov"
        assert about["log_evidence"] == pytest.approx(np.log(10))
        assert client.get("/v1/networks/n/cpt/a").status_code == 422
        assert client.ask("n", "posteriors", {})["posteriors"]["a"] == pytest.approx([0.3, 0.7])
        assert client.ask("n", "posteriors", {"do": {"a": 0}}, 422)["type"] == "/errors/invalid-evidence"
        app.close()


def test_a_sliced_plan_answers_posteriors(asia: JunctionTree) -> None:
    with jtgpu.load("asia").plan(slices=["either"]).compile("cpu") as tree:
        app = App({"n": tree})
        client = Client(app)
        found = client.ask("n", "posteriors", {"evidence": {"xray": "yes"}, "targets": ["lung"]})
        np.testing.assert_allclose(
            found["posteriors"]["lung"], asia.posterior("lung", {"xray": "yes"}).probabilities, atol=1e-12
        )
        assert client.ask("n", "mpe", {}, 422)["type"] == "/errors/unsupported"
        app.close()


def test_the_answers_have_the_documented_types(asia: JunctionTree) -> None:
    bodies: dict[str, Any] = {
        "posteriors": {"evidence": SEEN}, "mpe": {"k": 2}, "map": {"variables": ["lung"]}, "voi": {"target": "lung"},
        "mi": {"target": "lung"}, "sensitivity": {"target": ["lung", "yes"]},
        "importance": {"target": "lung", "evidence": {"xray": "yes"}}, "conflict": {"evidence": {"xray": "yes"}},
        "contributions": {"target": "lung", "evidence": {"xray": "yes"}, "of": "log-odds"},
        "joint": {"variables": ["lung", "bronc"]}, "sample": {"n": 2}, "ask": {"question": "P(lung)"},
        "effect": {"outcome": "dysp", "of": "lung"}, "identify": {"outcome": "dysp", "do": "lung", "hidden": ["smoke"]},
    }  # fmt: skip
    assert set(bodies) == set(QUESTIONS) - ELSEWHERE
    for question, body in bodies.items():
        found = answer(asia, question, body)
        msgspec.convert(found, QUESTIONS[question].reply, strict=True)


def test_batches_have_the_answers_of_single_requests(alarm: JunctionTree) -> None:
    from jtgpu.serve.registry import AnswerRates

    states = {v: alarm.model.states(v) for v in alarm.model.variables}
    cases = [{"evidence": {v: s[i % len(s)]}} for i, (v, s) in enumerate(states.items())]
    found = []
    for threshold in (1, 1 << 30):
        app = App({"alarm": alarm})
        app.warm()
        hosted = app.networks["alarm"]
        hosted.rates = hosted.batcher.rates = AnswerRates(1e-4, 1e-4, 1e-5, threshold)
        sends = posts("/v1/networks/alarm/posteriors", cases)
        found.append([r.json() for r in together(app, sends)])
        app.close()
    for batched, single, case in zip(*found, cases, strict=True):
        if "posteriors" not in single:
            assert batched["type"] == single["type"] == "/errors/impossible-evidence", case
            continue
        assert batched["log_evidence"] == pytest.approx(single["log_evidence"], abs=1e-12)
        for name, p in single["posteriors"].items():
            np.testing.assert_allclose(batched["posteriors"][name], p, atol=1e-12)


@pytest.mark.parametrize(("small", "expected"), [(1 << 30, [5]), (4, [9]), (None, [9])])
def test_small_requests_join_a_batch_only_if_that_is_faster_for_them(
    alarm: JunctionTree, monkeypatch: pytest.MonkeyPatch, small: int | None, expected: list[int]
) -> None:
    from jtgpu.serve.batching import Batcher
    from jtgpu.serve.registry import AnswerRates

    app = App({"alarm": alarm})
    app.warm()
    rates = AnswerRates(1e-4, 1e-4, 1e-5, 1)
    of_small = None if small is None else AnswerRates(1e-4, 1e-4, 1e-5, small)
    app.networks["alarm"].batcher.rates = rates._replace(small=of_small)
    sizes: list[int] = []
    batch = Batcher._batch

    def counting(self: Batcher, items: Any) -> Any:
        sizes.append(len(items))
        return batch(self, items)

    monkeypatch.setattr(Batcher, "_batch", counting)
    few, many = [*alarm.model.variables[:2]], [*alarm.model.variables[:20]]
    bodies: list[dict[str, Any]] = [{"targets": few}, {"evidence": {"CO": "LOW"}, "targets": few}] * 2
    bodies += [{}, {"targets": many}, {"evidence": {"CO": "NORMAL"}}]
    bodies += [{"evidence": {v: alarm.model.states(v)[0] for v in many}, "targets": few}] * 2  # with many findings
    found = [r.json() for r in together(app, posts("/v1/networks/alarm/posteriors", bodies))]
    assert sizes == expected
    for body, answered in zip(bodies[:-2], found[:-2], strict=True):
        assert [*answered["posteriors"]] == body.get("targets", [*alarm.model.variables])
    app.close()


def test_measured_cases_do_not_repeat_an_evidence_pattern(alarm: JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    from jtgpu.serve.batching import measure

    # a batch of one case that repeats the pattern of a single case finds its program in the cache
    backend = alarm.intervened().backend
    seen: set[bytes] = set()
    repeated = 0
    run, run_table = backend.run_case, backend.run

    def record(states: Any) -> None:
        nonlocal repeated
        pattern = (states >= 0).tobytes()
        repeated += pattern in seen
        seen.add(pattern)

    def one(evidence: Any, targets: Any = None) -> Any:
        record(evidence.state)
        return run(evidence, targets)

    def mixed(table: Any) -> Any:
        if table.n == 1 and not table.recurs:
            record(table.feed.rows()[0])
        return run_table(table)

    monkeypatch.setattr(backend, "run_case", one)
    monkeypatch.setattr(backend, "run", mixed)
    rates = measure(alarm)
    assert len(seen) >= 20
    assert repeated <= 2  # by chance
    assert rates.small is not None
    assert rates.small.single > 0
