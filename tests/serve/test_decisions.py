"""Questions about decisions over HTTP."""

from __future__ import annotations

import msgspec
import pytest

from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App
from jtgpu.serve.questions import QUESTIONS, answer
from tests.decisions.test_policies import oil
from tests.serve.client import Client


def test_options_and_policies(asia: JunctionTree) -> None:
    net = oil()
    solved = net.compile()
    app = App({"oil": solved, "asia": asia})
    app.warm()
    client = Client(app)
    seen = {"test": "yes", "seismic": "open"}
    body = {"decision": "drill", "evidence": seen}
    found = client.ask("oil", "options", body)
    options = solved.options("drill", seen)
    assert found["decision"] == "drill"
    assert {o["option"]: o["expected_utility"] for o in found["options"]} == pytest.approx(dict(options))
    best = client.ask("oil", "policy", {})
    assert best["expected_utility"] == pytest.approx(22.5)
    assert best["policy"]["test"] == [{"known": {}, "option": "yes"}]
    assert {"known": {"test": "yes", "seismic": "not done"}, "option": None} in best["policy"]["drill"]
    assert client.ask("oil", "policy", {"evidence": {"test": "no"}})["expected_utility"] == pytest.approx(20.0)
    worth = client.ask("oil", "decision-value", {"decision": "test", "candidates": ["oil"]})
    assert worth["gains"] == [{"variable": "oil", "gain": pytest.approx(solved.value_of_information("test")["oil"])}]
    assert client.ask("oil", "posteriors", {})["posteriors"]["test"] == pytest.approx([1.0, 0.0])
    for question, wrong, status in [
        ("options", {"decision": "oil"}, 422), ("options", {}, 422), ("policy", {"restarts": -1}, 422),
        ("options", {"decision": "drill", "evidence": {"gain": 1}}, 422),
    ]:  # fmt: skip
        client.ask("oil", question, wrong, status)
    assert "(bayesian)" in client.ask("asia", "policy", {}, 404)["detail"]
    with_policy = net.with_policy(solved.policy()).compile("cpu")
    assert client.ask("oil", "joint", {"variables": ["test", "oil"]})["probabilities"] == pytest.approx(
        with_policy.joint(["test", "oil"]).probabilities.ravel().tolist()
    )
    about = client.get("/v1/networks/oil").json()
    assert about["kind"] == "decision"
    assert {"posteriors", "mpe", "policy"} < {*about["questions"]}
    for question in ("options", "policy", "decision-value"):
        msgspec.convert(answer(solved, question, QUESTIONS[question].example), QUESTIONS[question].reply, strict=True)
    app.close()
