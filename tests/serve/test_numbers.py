"""Questions about networks with numbers over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cli.networks import load_any_kind
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App
from jtgpu.serve.questions import answer
from tests.mixed.test_lauritzen import incinerator
from tests.serve.client import Client

SEEN = {"W": "industrial", "L": 1.1, "C": -0.9}


def heights() -> jtgpu.MixedNetwork:
    """Numbers only."""
    return jtgpu.MixedNetwork(
        {"height": float, "weight": float}, {"weight": ["height"]},
        {"height": jtgpu.Gaussian(170.0, sd=8.0), "weight": jtgpu.Gaussian(-80.0, {"height": 0.9}, sd=9.0)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def client(asia: JunctionTree) -> Iterator[Client]:
    app = App({"waste": incinerator().compile("reference"), "heights": heights().compile("reference"), "asia": asia})
    app.warm()
    yield Client(app)
    app.close()


def test_posteriors_of_states_and_numbers(client: Client) -> None:
    found = client.ask("waste", "posteriors", {"evidence": SEEN, "quantiles": [0.1, 0.9], "points": 50})
    expected = incinerator().compile("reference").posteriors(SEEN)
    assert found["log_evidence"] == pytest.approx(expected.log_evidence, rel=1e-12)
    assert found["posteriors"]["B"] == pytest.approx(expected["B"].probabilities.tolist(), rel=1e-12)
    assert found["numbers"]["E"]["mean"] == pytest.approx(expected["E"].mean, rel=1e-12)
    assert found["numbers"]["E"]["sd"] == pytest.approx(expected["E"].sd, rel=1e-12)
    np.testing.assert_allclose(found["numbers"]["E"]["quantiles"], expected["E"].quantiles([0.1, 0.9]), rtol=1e-12)
    assert found["numbers"]["C"] == {"mean": -0.9, "sd": 0.0, "quantiles": [-0.9, -0.9]}
    curve = found["numbers"]["E"]["density"]
    assert np.trapezoid(curve["y"], curve["x"]) == pytest.approx(1.0, abs=0.02)
    np.testing.assert_allclose(curve["y"], expected["E"].density(curve["x"]), rtol=1e-12)


def test_bad_cases_name_what_is_wrong_in_every_kind(client: Client) -> None:
    for network, v, state, near in (("waste", "W", "industrail", "industrial"), ("asia", "xray", "yess", "yes")):
        cases = [{"evidence": {v: state}}, {"evidence": {f"{v}_": "yes"}}, {}]
        first, second, third = client.ask(network, "posteriors", {"cases": cases})["results"]
        assert (first["error"]["variable"], first["error"]["state"]) == (v, state)
        assert first["error"]["closest"][0] == near
        assert second["error"]["variable"] == f"{v}_"
        assert third["log_evidence"] == pytest.approx(0.0, abs=1e-12)


def test_the_map_around_a_number_has_its_parents(client: Client) -> None:
    found = client.get("/v1/networks/waste/layout?around=E&hops=0&most=2")
    assert found.json() == client.get("/v1/networks/waste/layout?around=F,W&hops=0&most=2").json()
    assert client.get("/v1/networks/heights/layout?around=weight").status_code == 200
    refused = client.get("/v1/networks/waste/layout?around=EE&most=2")
    assert refused.json()["type"] == "/errors/unknown-variable"


def test_states_with_equal_names_are_not_merged() -> None:
    net = jtgpu.MixedNetwork(
        {"w": ["a", "a"], "x": float}, {"x": ["w"]}, {"w": [0.5, 0.5], "x": jtgpu.Gaussian([0.0, 1.0], sd=1)}
    )
    tree = net.compile("cpu")
    assert answer(tree, "posteriors", {})["posteriors"]["w"] == pytest.approx([0.5, 0.5])
    with pytest.raises(jtgpu.JtgpuError, match="equal names"):
        answer(tree, "posteriors", {}, labels=True)


def test_intervals_sets_interventions_and_targets(client: Client) -> None:
    tree = incinerator().compile("reference")
    body = {"evidence": {"C": [-2, None], "W": ["industrial", "household"]}, "targets": ["B", "C"]}
    found = client.ask("waste", "posteriors", body)
    expected = tree.posteriors({"C": (-2.0, np.inf)}, targets=["B", "C"])
    assert (list(found["posteriors"]), list(found["numbers"])) == (["B"], ["C"])
    assert found["posteriors"]["B"] == pytest.approx(expected["B"].probabilities.tolist(), rel=1e-12)
    assert found["numbers"]["C"]["mean"] == pytest.approx(expected["C"].mean, rel=1e-12)
    done = client.ask("waste", "posteriors?labels=1", {"do": {"E": -3.0}, "evidence": {"B": "stable"}, "targets": "D"})
    assert done["numbers"]["D"]["mean"] == pytest.approx(tree.posterior("D", {"B": "stable"}, do={"E": -3.0}).mean)


def test_many_cases(client: Client) -> None:
    tree = incinerator().compile("reference")
    cases: list[Any] = [
        {"evidence": {"W": "industrial", "C": -0.9}}, {"evidence": {"L": "much"}}, {},
        {"evidence": {"L": 1.5}}, {"evidence": {"C": [-1, None]}}, {"likelihood": {"B": [0.9, 0.2]}},
    ]  # fmt: skip
    found = client.ask("waste", "posteriors", {"cases": cases, "targets": ["B", "E", "D"]})["results"]
    assert "'L' is a number" in found[1]["error"]["detail"]
    known: list[Any] = [{"W": "industrial", "C": -0.9}, None, {}, {"L": 1.5}, {"C": (-1, np.inf)}, {}]
    for i, evidence in enumerate(known):
        if i == 1:
            continue
        expected = tree.posteriors(evidence, likelihood=cases[i].get("likelihood"))
        assert found[i]["log_evidence"] == pytest.approx(expected.log_evidence, rel=1e-12, abs=1e-12)
        assert found[i]["posteriors"]["B"] == pytest.approx(expected["B"].probabilities.tolist(), rel=1e-12)
        assert found[i]["numbers"]["E"]["mean"] == pytest.approx(expected["E"].mean, rel=1e-12)
        np.testing.assert_allclose(
            found[i]["numbers"]["D"]["quantiles"], expected["D"].quantiles([0.05, 0.5, 0.95]), rtol=1e-10
        )


def test_wrong_questions(client: Client) -> None:
    for body, text in [
        ({"evidence": {"L": [1, 2, 3]}}, "expected a value, or"), ({"evidence": {"L": "high"}}, "must be a number"),
        ({"evidence": {"Z": 1}}, "Z"), ({"points": 100_000}, "points"), ({"quantiles": [5]}, "above 0 and below 1"),
        ({"evidence": {"L": 1}, "cases": [{}]}, "put all of it into cases"),
    ]:  # fmt: skip
        assert text in client.ask("waste", "posteriors", body, 422)["detail"], body
    assert "soft evidence" in client.ask("waste", "posteriors", {"soft": {"B": [0.5, 0.5]}}, 422)["detail"]
    assert "xray" in client.ask("asia", "posteriors", {"evidence": {"xray": [None, 1.0]}}, 422)["detail"]


@pytest.mark.slow
def test_information_and_samples(client: Client) -> None:
    tree = incinerator().compile("reference")
    for target, measure in (("B", "expected_accuracy"), ("E", "expected_sd")):
        found = client.ask("waste", "voi", {"target": target, "evidence": SEEN})["observations"]
        expected = tree.value_of_information(target, evidence=SEEN)
        assert [o["variable"] for o in found] == [o.variable for o in expected]
        assert found[0]["gain"] == pytest.approx(expected[0].gain)
        assert found[0][measure] == pytest.approx(getattr(expected[0], measure))
    scores = client.ask("waste", "mi", {"target": "B", "evidence": {"L": 1.1}, "others": ["E"]})["scores"]
    assert scores[0]["information"] == pytest.approx(tree.mutual_information("B", ["E"], {"L": 1.1})["E"])
    body = {"n": 2, "seed": 1, "evidence": {"L": 1.1}}
    drawn, labelled = client.ask("waste", "sample", body), client.ask("waste", "sample?labels=1", body)
    net, rows = incinerator(), drawn["samples"]
    assert drawn["variables"] == [*net.discrete, *net.numbers]
    assert rows[0][drawn["variables"].index("L")] == 1.1
    assert labelled["samples"][0][0] == net.states(drawn["variables"][0])[rows[0][0]]
    assert rows[0][3:] == labelled["samples"][0][3:]


def test_tables_are_refused(client: Client) -> None:
    for path in ("table?targets=B", "columns"):
        done = client.request(
            "POST", f"/v1/networks/waste/{path}", content=b"L,C\n1,2\n", headers={"content-type": "text/csv"}
        )
        assert done.status_code == 422
        assert "jtgpu batch" in done.json()["detail"]


def test_the_description_has_the_numbers(client: Client) -> None:
    about = client.get("/v1/networks/waste").json()
    net = incinerator()
    assert [v["name"] for v in about["variables"]] == list(net.discrete)
    order = [*net.discrete.variables, *net.numbers]
    for number in about["numbers"]:
        assert [order[p] for p in number["parents"]] == list(net.parents(number["name"]))
    assert about["numbers"][0]["prior"]["mean"] == pytest.approx(-3.253571, abs=1e-6)
    alone = client.get("/v1/networks/heights").json()
    assert (alone["variables"], [n["name"] for n in alone["numbers"]]) == ([], ["height", "weight"])
    assert client.ask("heights", "posteriors", {"evidence": {"weight": 90}})["numbers"]["height"]["mean"] > 170


def test_files(client: Client, tmp_path: Path) -> None:
    for suffix in ("mixed.json", "net", "xdsl"):
        name = "waste" if suffix != "xdsl" else "heights"  # XDSL has no densities by states
        text = client.get(f"/v1/networks/{name}/file?format={suffix}").content
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(text)
        assert jtgpu.read(path) == (incinerator() if name == "waste" else heights())
    assert load_any_kind(str(tmp_path / "a.net")) == incinerator()
