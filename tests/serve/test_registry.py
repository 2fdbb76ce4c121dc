"""A new kind of question is one class: the server, OpenAPI and Python answer it without another change."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import jtgpu
from jtgpu.decisions.tree import DecisionTree
from jtgpu.dynamic.numbers import MixedDynamicTree
from jtgpu.dynamic.tree import DynamicTree
from jtgpu.inference.tree import JunctionTree
from jtgpu.mixed.tree import MixedTree
from jtgpu.serve import App
from jtgpu.serve.openapi import openapi
from jtgpu.serve.questions import QUESTIONS, answer
from jtgpu.serve.registry import Body, CaseBody, Form, Reply, question
from tests.decisions.test_policies import oil
from tests.serve.client import Client


class EntropyReply(Reply):
    """An entropy in nats."""

    entropy: float


@pytest.fixture
def entropy() -> Iterator[None]:
    """A question that the server does not have."""

    @question("/entropy", "entropy", EntropyReply, {"variables": "lung"})
    class Entropy(CaseBody, kw_only=True):
        """The entropy of variables."""

        variables: str

        def reply(self, made: float, tree: JunctionTree, form: Form) -> Any:
            return {"entropy": made}

    openapi.cache_clear()
    yield
    del QUESTIONS["entropy"]
    openapi.cache_clear()


@pytest.mark.usefixtures("entropy")
def test_a_question_is_a_class(asia: JunctionTree) -> None:
    app = App({"asia": asia})
    app.warm()
    client = Client(app)
    nats = asia.entropy("lung", {"xray": "yes"})
    body = {"variables": "lung", "evidence": {"xray": "yes"}}
    assert client.ask("asia", "entropy", body)["entropy"] == nats == answer(asia, "entropy", body)["entropy"]
    assert client.ask("asia", "entropy", {"variables": 1}, 422)["type"] == "/errors/invalid-body"
    assert client.get("/v1/networks/asia/entropy").status_code == 405
    assert "entropy" in client.get("/v1/networks").json()["questions"]
    described = client.get("/openapi.json").json()["paths"]["/v1/networks/{network}/entropy"]["post"]
    assert described["requestBody"]["content"]["application/json"]["example"] == {"variables": "lung"}
    assert described["summary"] == "The entropy of variables."
    app.close()


TREES: dict[str, type] = {
    "bayesian": JunctionTree, "markov": JunctionTree, "decision": DecisionTree, "mixed": MixedTree,
    "dynamic": DynamicTree, "mixed dynamic": MixedDynamicTree,
}  # fmt: skip


@pytest.mark.parametrize("kind", QUESTIONS)
def test_fields_of_bodies_are_arguments(kind: str) -> None:
    one = QUESTIONS[kind]
    assert one.summary.endswith(".")
    for of in one.kinds:
        tree = JunctionTree if of == "decision" and "bayesian" in one.kinds else TREES[of]
        method = getattr(tree, one.body.method)
        if one.body.answer is not Body.answer:  # the body says by itself what the method gets
            continue
        known = [name for name in inspect.signature(method).parameters if name != "self"]
        evidence = {"evidence", "likelihood", "soft", "do", "codes"}
        fields = {*one.body.__struct_fields__} - evidence - {*one.body.of_reply}
        assert fields <= {*known}, of
        assert {*one.body.of_reply} <= {*one.body.__struct_fields__}


@pytest.mark.parametrize("question", ["sensitivity", "filter"])
def test_a_question_of_another_kind(question: str) -> None:
    net = jtgpu.MarkovNetwork({"a": ["yes", "no"]}, [(["a"], [1.0, 2.0])])
    with net.compile("cpu") as tree, pytest.raises(jtgpu.JtgpuError, match=f"{question} is not for .* .markov."):
        answer(tree, question, {"target": ["a", "yes"]})


def test_null_is_not_observed_in_every_question(asia: JunctionTree) -> None:
    umbrella = jtgpu.DynamicNetwork(
        {"rain": ["no", "yes"], "umbrella": ["no", "yes"]}, {"rain": [("rain", 1)], "umbrella": ["rain"]},
        {"rain": [[0.7, 0.3], [0.3, 0.7]], "umbrella": [[0.8, 0.2], [0.1, 0.9]]}, start={"rain": [0.5, 0.5]},
    )  # fmt: skip
    load = jtgpu.MixedNetwork(
        {"w": ["a", "b"], "x": float}, {"x": ["w"]}, {"w": [0.5, 0.5], "x": jtgpu.Gaussian([0.0, 1.0])}
    )
    trees: list[tuple[Any, Any, dict[str, Any]]] = [
        (asia, {"xray": None}, {"target": "lung", "variables": ["lung"], "n": 2}),
        (oil().compile(), {"seismic": None}, {"decision": "drill"}),
        (load.compile("cpu"), {"w": None}, {}),
        (umbrella.compile("cpu"), {"umbrella": None}, {"length": 3}),
    ]
    asked = set()
    for tree, nulls, more in trees:
        for kind, one in QUESTIONS.items():
            fields = {f.name for f in msgspec.structs.fields(one.body)}
            body: dict[str, Any] = {name: value for name, value in {"seed": 1, **more}.items() if name in fields}
            if kind == "sensitivity":
                body["target"] = ["lung", "yes"]
            try:
                expected = answer(tree, kind, body)
            except (jtgpu.JtgpuError, msgspec.ValidationError):  # of other networks, or no question without evidence
                continue
            if "evidence" in fields:
                assert answer(tree, kind, {**body, "evidence": nulls}) == expected, kind
                asked.add(kind)
    mixed = trees[2][0]
    assert answer(mixed, "posteriors", {"evidence": {"w": None, "x": None}}) == answer(mixed, "posteriors", {})
    assert asked > {"posteriors", "joint", "mpe", "map", "voi", "mi", "options", "policy", "sample", "step", "smooth"}
    cases = [{"evidence": {"xray": None, "smoke": "yes"}}, {"evidence": {"xry": None}}]
    found, other = answer(asia, "posteriors", {"cases": cases, "targets": ["lung"]})["results"]
    assert found["posteriors"]["lung"][0] == pytest.approx(0.1)
    assert other["error"]["variable"] == "xry"


def test_bodies_say_what_codes_mean(asia: JunctionTree) -> None:
    codes = {"xray": {"1": "yes", "0": "no"}, "lung": {"1": "yes"}, "smoke": {"1": "yes", "2": "no"}}
    own = {"evidence": {"xray": 1, "smoke": [1, "no"], "bronc": "yes"}, "do": {"asia": "no"}, "codes": codes}
    named = {"evidence": {"xray": "yes", "smoke": ["yes", "no"], "bronc": "yes"}, "do": {"asia": "no"}}
    assert answer(asia, "posteriors", own) == answer(asia, "posteriors", named)
    bodies: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"likelihood": {"xray": {"1": 0.9, "0": 0.2}}, "soft": {"smoke": {"1": 0.3, "2": 0.7}}, "codes": codes},
         {"likelihood": {"xray": {"yes": 0.9, "no": 0.2}}, "soft": {"smoke": {"yes": 0.3, "no": 0.7}}}),
        ({"do": {"smoke": 2}, "evidence": {"xray": None}, "codes": codes}, {"do": {"smoke": "no"}}),
        ({"cases": [{"evidence": {"xray": 0}}, {"evidence": {"xray": 0}, "codes": "index"}], "codes": codes},
         {"cases": [{"evidence": {"xray": "no"}}, {"evidence": {"xray": "yes"}}]}),
    ]  # fmt: skip
    for coded, plain in bodies:
        assert answer(asia, "posteriors", coded) == answer(asia, "posteriors", plain)
    some = {"cases": [{"evidence": {"xray": 1}}, {"evidence": {"smoke": 2, "xray": 7}}], "codes": codes}
    found, refused = answer(asia, "posteriors", some)["results"]  # the second refused the first, too
    assert found == answer(asia, "posteriors", {"evidence": {"xray": "yes"}})
    assert (refused["error"]["variable"], refused["error"]["state"]) == ("xray", 7)
    target = {"target": ["lung", 1], "evidence": {"xray": 1}, "codes": codes}
    assert answer(asia, "sensitivity", target)["target"] == ("lung", "yes")
    asked = {"question": "P(lung | xray=1)", "codes": codes}
    assert answer(asia, "ask", asked)["probabilities"] == answer(
        asia, "ask", {"question": "P(lung | xray=yes)"})["probabilities"]  # fmt: skip
    net = jtgpu.DynamicNetwork(
        {"rain": ["no", "yes"], "wet": ["no", "yes"]}, {"rain": [("rain", 1)], "wet": ["rain"]},
        {"rain": [[0.7, 0.3], [0.3, 0.7]], "wet": [[0.8, 0.2], [0.1, 0.9]]}, start={"rain": [0.5, 0.5]},
    )  # fmt: skip
    slices = net.compile("cpu")
    wet = {"wet": {"1": "yes", "0": "no"}}
    given = {"evidence": {"wet": [1, None, [0, 1]]}, "do": {"rain": {0: "yes"}}}
    right = {"evidence": {"wet": ["yes", None, ["no", "yes"]]}, "do": {"rain": {0: "yes"}}}
    assert answer(slices, "smooth", {**given, "codes": wet}) == answer(slices, "smooth", right)
    many = answer(slices, "smooth", {"sequences": [given, {"evidence": {"wet": [7]}}], "codes": wet})["results"]
    assert many[0] == answer(slices, "smooth", right)
    assert many[1]["error"]["variable"] == "wet"
    mixed = jtgpu.MixedNetwork({"s": ["a", "b"], "x": float}, {}, {"s": [0.5, 0.5], "x": jtgpu.Gaussian(0.0, sd=1)})
    some = {"cases": [{"evidence": {"s": 7}}, {"evidence": {"s": 1, "x": 0.5}}], "codes": {"s": {"1": "b"}}}
    refused, found = answer(mixed.compile("cpu"), "posteriors", some)["results"]
    assert refused["error"]["variable"] == "s"
    assert found["posteriors"]["s"] == [0, 1]
    app = App({"asia": asia})
    app.warm()
    client = Client(app)
    assert client.ask("asia", "posteriors", own)["posteriors"] == answer(asia, "posteriors", named)["posteriors"]
    refused = client.ask("asia", "posteriors", {"evidence": {"xray": 1, "smoke": 7}, "codes": codes}, 422)
    assert (refused["variable"], refused["state"]) == ("smoke", 7)
    assert "'ja' is not one state" in client.ask("asia", "mpe", {"codes": {"xray": {"1": "ja"}}}, 422)["detail"]
