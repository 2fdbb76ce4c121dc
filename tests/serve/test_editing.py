"""Networks that clients edit or open."""

from __future__ import annotations

from typing import Any

import pytest

import jtgpu
from jtgpu.serve import App
from tests.serve.client import Client
from tests.support.examples import slow

FILE = {"Content-Type": "application/octet-stream"}


@pytest.fixture
def client() -> Any:
    tree = jtgpu.load("asia").compile("cpu")
    app = App({"asia": tree})
    yield Client(app)
    app.close()


def put(client: Client, name: str, body: Any, status: int = 201) -> Any:
    found = client.request("PUT", f"/v1/networks/{name}", json=body)
    assert found.status_code == status, found.text
    return found.json()


@pytest.mark.slow
def test_an_edited_network_answers(client: Client) -> None:
    model = client.get("/v1/networks/asia/model").json()
    lung = next(v for v in model["variables"] if v["name"] == "lung")
    assert lung == {"name": "lung", "states": ["yes", "no"], "parents": ["smoke"], "cpt": [0.1, 0.9, 0.01, 0.99]}
    assert put(client, "mine", model)["variables"] == 8
    same = client.ask("mine", "posteriors", {"evidence": {"xray": "yes"}})
    assert same["posteriors"] == client.ask("asia", "posteriors", {"evidence": {"xray": "yes"}})["posteriors"]
    lung["cpt"] = [0.3, 0.7, 0.05, 0.95]
    cough = {"name": "cough", "states": ["yes", "no"], "parents": ["lung"], "cpt": [0.8, 0.2, 0.1, 0.9]}
    model["variables"].append(cough)
    assert put(client, "mine", model)["variables"] == 9
    net = jtgpu.load("asia").replace(cpt={"lung": [[0.3, 0.7], [0.05, 0.95]]})
    expected = net.compile("reference").posterior("lung", {"xray": "yes"}).probabilities.tolist()
    found = client.ask("mine", "posteriors", {"evidence": {"xray": "yes"}, "targets": ["lung"]})["posteriors"]["lung"]
    assert found == pytest.approx(expected, abs=1e-12)
    assert client.get("/v1/networks/mine/file?format=bif").text.count("probability") == 9
    assert client.request("DELETE", "/v1/networks/mine").status_code == 200
    assert client.get("/v1/networks/mine").status_code == 404
    client.ask("mine", "posteriors", {}, 404)


def test_a_file_is_opened(client: Client, tmp_path: Any) -> None:
    path = tmp_path / "alarm.bif.gz"
    jtgpu.write(jtgpu.load("alarm"), path)
    for name, suffix, data in (("alarm", "bif.gz", path.read_bytes()),):
        found = client.request("PUT", f"/v1/networks/{name}?format={suffix}", content=data, headers=FILE)
        assert found.status_code == 201, found.text
    assert [n["name"] for n in client.get("/v1/networks").json()["networks"]] == ["asia", "alarm"]
    assert client.ask("alarm", "posteriors", {"targets": ["HR"]})["posteriors"]["HR"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v[1].update(cpt=[0.5, 0.5]), "has 2 entries, expected"),
        (lambda v: v[1].update(cpt=[0.5, 0.6, 0.1, 0.9]), "sum"),
        *slow(
            (lambda v: v[0].update(parents=["xray"], cpt=[0.5] * 4), "xray"),
            (lambda v: v[0].update(parents=["nobody"], cpt=[1.0]), "nobody"),
            (lambda v: v[0].update(name="tub"), "two variables 'tub'"),
            (lambda v: v[0].update(states=[], cpt=[]), "state"),
            (lambda v: v.append({"name": "x"}), "states"),
        ),
    ],
)
def test_mistakes_are_named(client: Client, change: Any, message: str) -> None:
    model = client.get("/v1/networks/asia/model").json()
    change(model["variables"])
    assert message in put(client, "mine", model, 422)["detail"]
    assert client.get("/v1/networks/mine").status_code == 404


@pytest.mark.slow
def test_a_bad_file_is_named_without_our_folder(client: Client) -> None:
    found = client.request("PUT", "/v1/networks/x?format=net", content=b"net {} node a {", headers=FILE)
    assert found.status_code == 422
    assert "network.net" in found.json()["detail"]
    assert "/tmp" not in found.json()["detail"]
    wrong = client.request("PUT", "/v1/networks/x?format=exe", content=b"", headers=FILE)
    assert wrong.status_code == 422


def test_networks_of_the_server_do_not_change() -> None:
    tree = jtgpu.load("asia").compile("cpu")
    client = Client(App({"asia": tree}))
    model = client.get("/v1/networks/asia/model").json()
    put(client, "asia", model, 403)
    assert client.request("DELETE", "/v1/networks/asia").status_code == 403
    client.app.close()
    closed = Client(App({"asia": tree}, read_only=True))
    assert "read-only" in put(closed, "mine", model, 403)["detail"]
    closed.app.close()
    # a form of another site cannot send these types
    other = Client(App({"asia": tree}))
    found = other.request("PUT", "/v1/networks/mine", content=b"{}", headers={"Content-Type": "text/plain"})
    assert found.status_code == 415
    other.app.close()
