"""Questions about sequences with numbers over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cli.networks import load_any_kind
from jtgpu.serve import App
from tests.cli.test_dynamic_numbers import machine
from tests.dynamic.test_numbers import autoregression
from tests.serve.client import Client


def pair() -> jtgpu.MixedDynamicNetwork:
    """Two hidden variables that a number depends on together, one static, and a number with an earlier one."""
    return jtgpu.MixedDynamicNetwork(
        {"kind": ["old", "new"], "state": ["calm", "busy"], "load": float, "heat": float},
        {"state": [("state", 1)], "load": ["kind", "state"], "heat": ["load", ("heat", 1)]},
        {"kind": [0.3, 0.7], "state": [[0.9, 0.1], [0.2, 0.8]],
         "load": jtgpu.Gaussian([[1.0, 4.0], [2.0, 6.0]], sd=1.0),
         "heat": jtgpu.Gaussian(0.0, {"load": 0.5, "heat[t-1]": 0.5}, sd=1.0)},
        start={"state": [0.5, 0.5], "heat": jtgpu.Gaussian(0.0, {"load": 0.5}, sd=1.0)}, static=["kind"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a server of these networks."""
    app = App({"machine": machine().compile("cpu"), "pair": pair().compile("cpu")}, max_cases=5)
    app.warm()
    yield Client(app)
    app.close()


LOADS = [0.8, 3.9, None, 4.4]


def test_answers_are_those_of_python(client: Client) -> None:
    expected = machine().compile("cpu").smooth({"load": [LOADS]})
    found = client.ask("machine", "smooth", {"evidence": {"load": LOADS}})
    assert found["posteriors"]["state"] == expected["state"][0].tolist()
    assert [n["mean"] for n in found["numbers"]["load"]] == expected.mean["load"][0].tolist()
    assert [n["sd"] for n in found["numbers"]["load"]] == expected.sd["load"][0].tolist()
    assert found["log_evidence"] == expected.log_evidence[0]
    body: dict[str, Any] = {"evidence": {"load": LOADS}, "points": 40}
    last = client.ask("machine", "filter", {**body, "at": "last", "targets": ["load"]})
    assert last["numbers"]["load"] == [{"mean": 4.4, "sd": 0.0, "quantiles": []}]
    hole = client.ask("machine", "smooth", {**body, "at": [2]})["numbers"]["load"][0]
    x, y = np.array(hole["density"]["x"]), np.array(hole["density"]["y"])
    assert np.trapezoid(y, x) == pytest.approx(1.0, abs=0.01)
    assert np.trapezoid(x * y, x) == pytest.approx(hole["mean"], abs=0.02)
    ahead = client.ask("machine", "predict", {"evidence": {"load": LOADS}, "steps": 2})
    assert ahead["slices"] == [4, 5]
    assert len(ahead["numbers"]["load"]) == 2
    best = client.ask("machine", "sequence-mpe?labels=1", {"evidence": {"load": LOADS}})
    assert best["states"] == {"state": ["calm", "busy", "busy", "busy"]}


def test_many_sequences_and_joined_parents(client: Client) -> None:
    tree = pair().compile("cpu")
    body = {"sequences": [
        {"evidence": {"load": LOADS, "kind": "old"}}, {"evidence": {"load": [1.0], "heat": ["hot"]}},
        {"evidence": {"load": [2.0, 3.0], "heat": [1.0, None]}, "likelihood": {"state": [[0.5, 1.0], None]}},
        {"evidence": {"load": [1.0, 1e300]}}, {"evidence": {"load": [2.0, None]}, "do": {"state": {"1": "busy"}}},
    ]}  # fmt: skip
    results = client.ask("pair", "smooth", body)["results"]
    data: Any = {"load": [[2.0, 3.0]], "heat": [[1.0, None]]}
    weights = {"state": np.array([[0.5, 1.0], [1.0, 1.0]])}
    expected = tree.smooth(data, likelihood=weights)
    assert results[2]["posteriors"]["state"] == pytest.approx(expected["state"][0].ravel().reshape(2, 2))
    assert results[2]["posteriors"].keys() == {"kind", "state"}
    assert results[2]["numbers"].keys() == {"load"}
    first = tree.smooth({"load": [LOADS], "kind": [["old", None, None, None]]})
    assert np.allclose(results[0]["posteriors"]["state"], first["state"][0], atol=1e-12)
    assert "'heat' is a number, got 'hot'" in results[1]["error"]["detail"]
    assert "probability 0" in results[3]["error"]["detail"]
    done = tree.smooth({"load": [[2.0, None]]}, do={"state": {1: "busy"}})
    assert np.allclose(results[4]["posteriors"]["state"], done["state"][0], atol=1e-12)
    assert results[4]["numbers"]["load"][1]["mean"] == pytest.approx(done.mean["load"][0, 1])


def test_numbers_with_earlier_ones_as_parents_are_targets(client: Client) -> None:
    body: dict[str, Any] = {"evidence": {"heat": [1.0, None], "load": [1.0, 2.0]}, "targets": ["heat"], "points": 3}
    own = client.ask("pair", "filter", body)["numbers"]["heat"]
    assert own[0] == {"mean": 1.0, "sd": 0.0, "quantiles": []}
    assert (own[1]["mean"], own[1]["sd"]) == pytest.approx((0.5 * 1.0 + 0.5 * 2.0, 1.0))
    assert own[1]["density"]["x"][1] == pytest.approx(1.5)
    refused = client.ask("pair", "predict", {"evidence": body["evidence"], "targets": ["heat"]}, 422)
    assert refused["type"] == "/errors/invalid-evidence"
    assert "'heat' is a target, and a numeric parent of it is not observed" in refused["detail"]


def test_numbers_are_set(client: Client) -> None:
    evidence: Any = {"heat": [1.0, None]}
    body = {"evidence": evidence, "do": {"load": {"0": 2.0, "1": 3.0}}, "targets": ["heat"]}
    own = client.ask("pair", "smooth", body)["numbers"]["heat"]
    assert own[1]["mean"] == pytest.approx(0.5 * 1.0 + 0.5 * 3.0)
    assert "must be a number" in client.ask("pair", "smooth", {"length": 1, "do": {"load": "high"}}, 422)["detail"]


def test_steps_are_those_of_a_stream(client: Client) -> None:
    live: Any = pair().compile("cpu").stream()
    state, found = None, dict[str, Any]()
    for case in ({"load": 2.5, "heat": 1.0}, {"kind": "old"}, {"state": "busy", "load": 3}):
        found = client.ask("pair", "step", {"state": state, "evidence": case})
        expected = live.step(case)
        assert found["log_evidence"] == live.log_evidence
        assert found["posteriors"].keys() == {"kind", "state"}
        assert found["posteriors"]["state"] == expected["state"].probabilities.tolist()
        assert {y: (n["mean"], n["sd"]) for y, n in found["numbers"].items()} == {
            y: (x.mean, x.sd) for y in ("load", "heat") if (x := expected.get(y)) is not None
        }
        state = found["state"]
    assert "heat" not in found["numbers"]  # heat of the slice before was not observed
    assert client.ask("pair", "step", {"targets": ["load"]})["posteriors"] == {}


def test_description_files_and_refusals(client: Client) -> None:
    about = client.get("/v1/networks/machine").json()
    assert about["slices"] == {"order": 1, "static": [], "earlier": [[[0, 1]]], "prior": 0}
    assert [n["name"] for n in about["numbers"]] == ["load"]
    assert about["numbers"][0]["prior"]["mean"] == pytest.approx(2.5)
    for words, detail in {
        "filter": ({"evidence": {"load": 1.0}}, "must be a list with a value for each slice"),
        "smooth": ({"evidence": {"load": [True]}}, "slice 0: 'load' is a number, got True"),
        "filter?": ({"evidence": {"load": [[1.0, 2.0]]}}, "slice 0: 'load' is a number, got [1.0, 2.0]"),
        "predict": ({"evidence": {"laod": [1.0]}}, "laod"),
        "step": ({"evidence": {"load": "high"}}, "'load' is a number; its value must be a finite number, not 'high'"),
    }.items():  # fmt: skip
        reply = client.request("POST", f"/v1/networks/machine/{words}", json=detail[0])
        assert reply.status_code in (400, 422), words
        assert detail[1] in reply.json()["detail"]
    text = client.get("/v1/networks/machine/file?format=dynamic.json").text
    assert '"gaussian"' in text


@pytest.mark.parametrize("states", [False, True])
def test_slices_that_only_numbers_join(states: bool) -> None:
    app = App({"ar": autoregression(states).compile("reference")})
    app.warm()
    client = Client(app)
    about = client.get("/v1/networks/ar").json()
    assert about["slices"] == {"order": 1, "static": [], "earlier": [[]] * states, "prior": 0}
    assert [v["name"] for v in about["variables"]] == ["s"] * states
    body: dict[str, Any] = {"evidence": {"y": [1.0, 2.0]}, "targets": ["y"]}
    assert client.ask("ar", "predict", body)["numbers"]["y"][0]["mean"] == pytest.approx(1.0 + 0.7 * states)
    assert client.ask("ar", "step", {"evidence": {"y": 1.0}})["posteriors"].keys() == {*["s"] * states}
    assert len(client.ask("ar", "sequence-mpe", {"evidence": body["evidence"]})["states"]) == states
    app.close()


def test_the_command_serves_them(tmp_path: Path) -> None:
    jtgpu.write(machine(), tmp_path / "m.dynamic.json")
    assert load_any_kind(str(tmp_path / "m.dynamic.json")) == machine()
