"""Questions about sequences over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

import jtgpu
from jtgpu.serve import App
from jtgpu.serve.networks import digest
from jtgpu.serve.questions import QUESTIONS, answer
from jtgpu.serve.registry import AnswerRates
from tests.serve.client import Client

OF_SLICES = ("filter", "smooth", "predict", "sequence-mpe", "step")


def umbrella() -> jtgpu.DynamicNetwork:
    """Russell and Norvig's umbrella world."""
    return jtgpu.DynamicNetwork(
        {"rain": ["no", "yes"], "umbrella": ["no", "yes"]}, {"rain": [("rain", 1)], "umbrella": ["rain"]},
        {"rain": [[0.7, 0.3], [0.3, 0.7]], "umbrella": [[0.8, 0.2], [0.1, 0.9]]}, start={"rain": [0.5, 0.5]},
        name="umbrella",
    )  # fmt: skip


def clinic() -> jtgpu.DynamicNetwork:
    """A network of order 2 with a static variable and three states."""
    rng = np.random.default_rng(5)
    return jtgpu.DynamicNetwork(
        {"sex": ["f", "m"], "stage": ["a", "b", "c"], "drug": ["no", "yes"], "test": ["low", "high"]},
        {"stage": ["sex", ("stage", 1), ("drug", 2)], "test": ["stage"]},
        {"sex": [0.4, 0.6], "stage": rng.dirichlet(np.ones(3), (2, 3, 2)), "drug": [0.5, 0.5],
         "test": rng.dirichlet(np.ones(2), 3)},
        start={"stage": [rng.dirichlet(np.ones(3), 2), rng.dirichlet(np.ones(3), (2, 3))]}, static=["sex"],
        name="clinic",
    )  # fmt: skip


@pytest.fixture(scope="module")
def trees() -> dict[str, Any]:
    """Compiled networks over time."""
    return {"umbrella": umbrella().compile("cpu"), "clinic": clinic().compile("cpu")}


@pytest.fixture(scope="module")
def client(trees: dict[str, Any]) -> Iterator[Client]:
    """A client of a server of these and of asia."""
    app = App({**trees, "asia": jtgpu.load("asia").compile("cpu")}, max_cases=5)
    app.warm()
    yield Client(app)
    app.close()


def test_umbrella_world(client: Client) -> None:
    body = {"evidence": {"umbrella": ["yes", "yes", "no"]}, "targets": "rain"}
    found = client.ask("umbrella", "filter", body)
    assert [p[1] for p in found["posteriors"]["rain"]] == pytest.approx([0.8182, 0.8834, 0.1907], abs=5e-5)
    assert found["slices"] == [0, 1, 2]
    assert client.ask("umbrella", "filter", {**body, "at": "last"})["slices"] == [2]
    smoothed = client.ask("umbrella", "smooth?labels=1", {**body, "at": [2, 0]})
    assert smoothed["slices"] == [2, 0]
    assert [p["yes"] for p in smoothed["posteriors"]["rain"]] == pytest.approx([0.1907, 0.8619], abs=5e-5)
    ahead = client.ask("umbrella", "predict", {**body, "steps": 2})
    assert ahead["slices"] == [3, 4]
    assert [p[1] for p in ahead["posteriors"]["rain"]] == pytest.approx([0.3763, 0.4505], abs=5e-5)


def test_answers_are_those_of_the_unrolled_network(client: Client) -> None:
    net = clinic()
    tree = net.unroll(4).compile("reference")
    body: dict[str, Any] = {
        "evidence": {"sex": "m", "test": ["low", None, None, "high"], "drug": ["no", "yes", None, None]},
        "likelihood": {"test": [None, [0.2, 0.9], {"low": 1, "high": 0.5}, None]}, "do": {"stage": {"1": "b"}},
    }  # fmt: skip
    expected = tree.posteriors(
        {"sex": "m", "test[0]": "low", "test[3]": "high", "drug[0]": "no", "drug[1]": "yes"},
        likelihood={"test[1]": [0.2, 0.9], "test[2]": [1, 0.5]}, do={"stage[1]": "b"},
    )  # fmt: skip
    found = client.ask("clinic", "smooth", body)
    assert found["log_evidence"] == pytest.approx(expected.log_evidence, abs=1e-10)
    for v in net:
        for t in range(4):
            name = v if v == "sex" else f"{v}[{t}]"
            np.testing.assert_allclose(found["posteriors"][v][t], expected[name].probabilities, atol=1e-10)


def test_most_probable_sequences(client: Client) -> None:
    body = {"evidence": {"umbrella": ["yes", "yes", "no", "yes", "yes"]}}
    found = client.ask("umbrella", "sequence-mpe?labels=1", body)
    assert found["states"]["rain"] == ["yes", "yes", "no", "yes", "yes"]  # Russell and Norvig, figure 14.5
    other = {"evidence": {"sex": "m", "test": ["low", None, "high"]}, "do": {"drug": {"1": "yes"}}}
    known = {"sex": "m", "test[0]": "low", "test[2]": "high"}
    expected = clinic().unroll(3).compile("reference").mpe(known, do={"drug[1]": "yes"})
    found = client.ask("clinic", "sequence-mpe", {"sequences": [other, {"length": 2}, {"evidence": {"sex": "x"}}]})
    first, second, third = found["results"]
    assert first["log_joint"] == pytest.approx(expected.log_joint, abs=1e-10)
    assert len(second["states"]["stage"]) == 2
    assert third["error"]["type"] == "/errors/unknown-state"


def test_many_sequences_of_which_some_are_bad(client: Client) -> None:
    sound = {"evidence": {"umbrella": ["yes", "no"]}}
    listed: list[dict[str, Any]] = [
        sound, {"evidence": {"umbrella": ["maybe"]}}, {"length": 3}, {**sound, "do": {"rain": {"1": "no"}}},
        {"evidence": {"umbrella": ["no"]}, "likelihood": {"rain": [[1.0, 0.5]]}},
    ]  # fmt: skip
    found = client.ask("umbrella", "smooth", {"sequences": listed, "targets": "rain"})["results"]
    assert found[1]["error"]["type"] == "/errors/unknown-state"
    assert (found[1]["error"]["variable"], found[1]["error"]["state"]) == ("umbrella", "maybe")
    for i in (0, 2, 3, 4):
        alone = client.ask("umbrella", "smooth", {**listed[i], "targets": "rain"})
        assert found[i]["slices"] == alone["slices"]
        np.testing.assert_allclose(found[i]["posteriors"]["rain"], alone["posteriors"]["rain"], atol=1e-14)
        assert found[i]["log_evidence"] == pytest.approx(alone["log_evidence"], abs=1e-14)


def test_impossible_sequences() -> None:
    net = jtgpu.DynamicNetwork(
        {"x": ["a", "b"]}, {"x": [("x", 1)]}, {"x": [[1.0, 0.0], [0.5, 0.5]]}, start={"x": [0.5, 0.5]}, name="x"
    )
    app = App({"x": net.compile("cpu")})
    app.warm()
    client = Client(app)
    bad = {"evidence": {"x": ["b", "a", "b"]}}
    refused = client.ask("x", "filter", bad, 422)
    assert refused["type"] == "/errors/impossible-evidence"
    assert refused["detail"] == "sequence 0, slice 2: the evidence up to this slice has probability 0"
    found = client.ask("x", "filter", {"sequences": [bad, {"evidence": {"x": ["b", "a"]}}]})["results"]
    assert found[0]["error"]["type"] == "/errors/impossible-evidence"
    assert found[1]["log_evidence"] == pytest.approx(np.log(0.25))
    app.close()


def test_evidence_may_allow_several_states(client: Client) -> None:
    evidence: Any = {"test": ["low", ["low", "high"], None], "stage": [None, ["a", "c"], None]}
    found = client.ask("clinic", "smooth", {"evidence": evidence})
    plain: Any = {"evidence": {"test": ["low", None, None]}, "likelihood": {"stage": [None, [1, 0, 1], None]}}
    expected = client.ask("clinic", "smooth", plain)
    for v, rows in expected["posteriors"].items():
        np.testing.assert_allclose(found["posteriors"][v], rows, atol=1e-12)
    assert found["log_evidence"] == pytest.approx(expected["log_evidence"], rel=1e-12)
    static = client.ask("clinic", "smooth", {"evidence": {"test": ["low", None], "sex": [None, ["m"]]}})
    assert static["posteriors"]["sex"] == [[0.0, 1.0]] * 2


def test_steps_are_those_of_a_stream(client: Client, trees: dict[str, Any]) -> None:
    live, state = trees["clinic"].stream(), ""
    cases: list[dict[str, Any]] = [{"test": "low", "sex": "f"}, {}, {"drug": "yes"}, {"test": ["low", "high"]}]
    for t, case in enumerate(cases):
        found = client.ask("clinic", "step", {"state": state or None, "evidence": case})
        expected = live.step(case)
        assert (found["slice"], found["log_evidence"]) == (t, live.log_evidence)
        for v, posterior in expected.items():
            assert found["posteriors"][v] == posterior.probabilities.tolist()
        state = found["state"]
        np.testing.assert_array_equal(np.frombuffer(base64.b64decode(state), "<f8"), live.state)
    other = client.ask("umbrella", "step", {"evidence": {"umbrella": "yes"}})["state"]
    for wrong in (other, state[:-8], "###", base64.b64encode(np.full(len(live.state), np.nan).tobytes()).decode()):
        assert "state" in client.ask("clinic", "step", {"state": wrong}, 422)["detail"]


@pytest.mark.parametrize(
    ("question", "body", "words"),
    [
        ("filter", {"evidence": {"umbrella": "yes"}}, "a list with a state for each slice"),
        ("filter", {"evidence": {"umbrella": ["yes"], "rain": ["no", None]}}, "has 2 slices and that of 'umbrella' 1"),
        ("filter", {"evidence": {"umbrella": [None, ["yes"]]}, "likelihood": {"umbrella": [[1, 2]]}}, "has 1 slices"),
        ("filter", {"evidence": {"umbrella": ["yes", None]}, "length": 1}, "more than length"),
        ("filter", {"evidence": {"umbrella": []}}, "no slices"),
        ("filter", {"evidence": {"umbrela": ["yes"]}}, "umbrela"),
        ("filter", {"evidence": {"umbrella": ["yes", "maybe"]}}, "maybe"),
        ("filter", {"evidence": {"umbrella": ["yes", ["maybe"]]}}, "maybe"),
        ("filter", {"likelihood": {"umbrella": [[1, 2, 3]]}}, "slice 0 must be 2 numbers"),
        ("filter", {"likelihood": {"umbrella": [[0, 0]]}}, "not all zero"),
        ("filter", {"do": {"rain": {"4": "yes"}}, "length": 3}, "slices are 0 to 2"),
        ("filter", {"length": 0}, "length"),
        ("filter", {"length": 3, "at": 3}, "slices 0 to 2"),
        ("filter", {"length": 3, "at": "first"}, "at must be"),
        ("filter", {"length": 100_001}, "slices are more than 100,000"),
        ("filter", {"length": 2, "sequences": []}, "put all of it into sequences"),
        ("smooth", {"targets": ["snow"]}, "snow"),
        ("predict", {"steps": 0}, "steps"),
        ("predict", {"steps": 100_001}, "steps"),
        ("step", {"evidence": {"rain": "maybe"}}, "maybe"),
    ],
)  # fmt: skip
def test_bad_questions(client: Client, question: str, body: dict[str, Any], words: str) -> None:
    assert words in client.ask("umbrella", question, body, 422)["detail"]


def test_limits(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.ask("umbrella", "filter", {"sequences": [{}] * 6}, 413)["type"] == "/errors/too-many-cases"
    described = client.get("/v1/networks/umbrella").json()
    assert described["limits"]["slices"] == 100_000
    refused = client.ask("umbrella", "filter", {"sequences": [{"length": 30_000}] * 4}, 422)
    assert (refused["needed"], refused["limit"]) == (120_000, 100_000)
    monkeypatch.setattr(client.app.networks["umbrella"], "rates", AnswerRates(1.0, 1.0, 0.5, 2))
    refused = client.ask("umbrella", "filter", {"length": 1000}, 422)
    assert (refused["type"], refused["predicted"]) == ("/errors/too-slow", 1500.0)


def test_a_network_over_time_is_described_with_its_earlier_parents(client: Client) -> None:
    found = client.get("/v1/networks/clinic").json()
    assert found["slices"] == {"order": 2, "static": [0], "earlier": [[], [[1, 1], [2, 2]], [], []], "prior": 0}
    assert found["arcs"] == [[0, 1], [1, 3]]
    table = client.get("/v1/networks/clinic/cpt/stage").json()
    assert table["parents"] == ["sex", "stage[t-1]", "drug[t-2]"]
    assert table["probabilities"] == np.asarray(clinic().cpt("stage")).ravel().tolist()
    assert "slices" not in client.get("/v1/networks/asia").json()
    assert client.get("/v1/networks/clinic/model").status_code == 200
    prior = client.ask("clinic", "filter", {"length": 1})["posteriors"]
    for v, expected in zip(("sex", "stage", "drug", "test"), found["prior"], strict=True):  # of the first slice
        assert expected == pytest.approx(prior[v][0])
    assert found["questions"] == [*OF_SLICES]
    for question in OF_SLICES:
        refused = client.ask("asia", question, {}, 404)
        assert refused["type"] == "/errors/wrong-kind"
        assert "not for this kind of network (bayesian)" in refused["detail"]
    assert client.ask("umbrella", "posteriors", {}, 404)["questions"] == [*OF_SLICES]
    net = umbrella()
    other = net.replace(cpt={"rain": [[0.6, 0.4], [0.4, 0.6]]})
    assert len({digest(n.compile("reference")) for n in (net, other)}) == 2


def test_answers_have_the_types_of_their_replies() -> None:
    tree = umbrella().compile("cpu")
    for question in OF_SLICES:
        msgspec.convert(answer(tree, question, QUESTIONS[question].example), QUESTIONS[question].reply, strict=True)
    both = answer(tree, "smooth", {"sequences": [{"length": 2}, {"evidence": {"rain": ["maybe"]}}]})
    msgspec.convert(both, QUESTIONS["smooth"].reply, strict=True)


@pytest.mark.slow
def test_networks_over_time_are_saved_and_opened(client: Client) -> None:
    for suffix in ("dynamic.json", "xdsl"):
        text = client.get(f"/v1/networks/clinic/file?format={suffix}").text
        url = f"/v1/networks/opened?format={suffix}"
        headers = {"content-type": "application/octet-stream"}
        assert client.request("PUT", url, content=text.encode(), headers=headers).status_code == 201
        body = {"evidence": {"test": ["low", None, "high"]}}
        assert client.ask("opened", "smooth", body)["posteriors"] == client.ask("clinic", "smooth", body)["posteriors"]
        assert client.request("DELETE", "/v1/networks/opened").status_code in (200, 204)
    assert "dynamic.json" in client.get("/v1/networks/clinic/file?format=bif").json()["detail"]


def test_serve_takes_a_compiled_network_over_time() -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'jtgpu[serve]')")
    from jtgpu.serve import serve

    with serve(umbrella().compile("cpu")) as server:
        assert [*server.app.networks] == ["umbrella"]
