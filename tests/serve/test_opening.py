"""Networks of every kind are opened and exported in every format; opening has limits of time and memory."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import jtgpu
from jtgpu.errors import FormatError
from jtgpu.formats.registry import FORMATS, dumps_dynamic, dumps_mixed
from jtgpu.inference.network_plan import NetworkPlan
from jtgpu.serve import App
from jtgpu.serve.networks import description, file, written_formats
from jtgpu.serve.opening import Opening, network_of_file
from jtgpu.serve.requests import Refusal
from tests.cli.test_dynamic_numbers import machine
from tests.decisions.test_policies import oil
from tests.dynamic.test_posteriors import umbrella
from tests.serve.client import Client

FILE = {"Content-Type": "application/octet-stream"}
ENDLESS = b"MARKOV\n200000\n" + b"2 " * 200000 + b"\n0\n"  # takes minutes to plan


def networks() -> dict[str, Any]:
    """A network of each of five kinds."""
    states = {"a": ["yes", "no"], "b": ["yes", "no"]}
    return {
        "Bayesian": jtgpu.load("asia"),
        "Markov": jtgpu.MarkovNetwork(states, [(["a", "b"], [[1.0, 2.0], [3.0, 5.0]])]),
        "decisions": oil(),
        "over time": umbrella(),
        "numbers": jtgpu.MixedNetwork(
            {**states, "x": float}, {"x": ["a"]},
            {"a": [0.2, 0.8], "b": [0.5, 0.5], "x": jtgpu.Gaussian([0.0, 3.0], sd=1)},
        ),
    }


@pytest.mark.parametrize("kind", ["Bayesian", "Markov", "decisions", "over time", "numbers"])
def test_each_kind_is_opened_and_exported_in_each_format(kind: str, tmp_path: Path) -> None:
    net = networks()[kind]
    every = [s[1:] for f in FORMATS for s in f.suffixes[:1]]
    opened, refused = 0, list[str]()
    for suffix in every:
        path = tmp_path / f"net.{suffix}"
        try:
            jtgpu.write(net, path)
        except FormatError:
            continue
        model: Any = network_of_file(path.read_bytes(), suffix, str(tmp_path))
        opened += 1
        assert type(model) is type(jtgpu.read(path))
        tree = model.compile("cpu")
        about = description("x", tree)
        assert about["formats"] == written_formats(model)
        for other in about["formats"]:
            try:
                text = file(model, other)
            except FormatError:  # of what such a network need not have
                refused.append(other)
                continue
            again: Any = network_of_file(text.encode(), other, str(tmp_path))
            assert len(again) == len(model), other
            if kind in ("decisions", "over time", "numbers"):
                assert type(again) is type(model), other
            if kind == "decisions":
                assert (again.decisions, again.utilities) == (net.decisions, net.utilities)
        tree.close()
    assert kind in ("Markov", "numbers") or not refused
    assert opened == {"Bayesian": 9, "Markov": 2, "decisions": 3, "over time": 2, "numbers": 2}[kind]


@pytest.mark.parametrize(
    ("kind", "question", "body"),
    [
        ("decisions", "policy", {}), ("numbers", "posteriors", {"evidence": {"x": 1.5}}),
        ("over time", "smooth", {"length": 2}),
    ],
)  # fmt: skip
def test_each_kind_is_served_by_its_tree(kind: str, question: str, body: Any) -> None:
    with networks()[kind].compile("cpu") as tree, tree.serve() as server:
        base = f"{server.url}v1/networks"
        [about] = httpx.get(base).json()["networks"]
        assert httpx.post(f"{base}/{about['name']}/{question}", json=body).status_code == 200


def test_a_network_with_decisions_over_http(tmp_path: Path) -> None:
    tree = jtgpu.load("asia").compile("cpu")
    client = Client(App({"asia": tree}))
    path = tmp_path / "oil.xdsl"
    jtgpu.write(oil(), path)
    found = client.request("PUT", "/v1/networks/oil?format=xdsl", content=path.read_bytes(), headers=FILE)
    assert found.status_code == 201, found.text
    assert client.ask("oil", "policy", {})["expected_utility"] == pytest.approx(22.5)
    assert client.get("/v1/networks/oil").json()["utilities"]
    assert "decision" in client.get("/v1/networks/oil/file?format=net").text
    model = client.get("/v1/networks/oil/model")  # not as chance variables, without a word
    assert model.status_code == 200
    assert "drill" in str(model.json())
    assert "decision" in str(model.json())
    refused = client.get("/v1/networks/oil/file?format=bif")
    assert refused.status_code == 422
    assert ".xdsl" in refused.json()["detail"]
    client.app.close()
    tree.close()


def test_opening_ends_with_its_time(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(Refusal, match="--timeout") as caught:
        Opening(ENDLESS, "uai", 0.5).read()
    assert caught.value.kind == "too-slow"
    assert time.monotonic() - begun < 20


def test_opening_ends_when_nobody_waits() -> None:
    opening = Opening(ENDLESS, "uai", 600.0)
    threading.Timer(0.5, opening.cancel).start()
    begun = time.monotonic()
    with pytest.raises(Refusal):
        opening.read()
    assert time.monotonic() - begun < 20


def test_questions_of_a_large_network_are_planned_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("jtgpu.serve.opening.free_memory", lambda: 1000)
    path = tmp_path / "alarm.net"
    jtgpu.write(jtgpu.load("alarm"), path)
    plan = Opening(path.read_bytes(), "net", 60.0).read()
    assert isinstance(plan, NetworkPlan)
    assert not plan.plan.is_planned


@pytest.mark.slow
def test_one_slow_network_does_not_hold_up_others(tmp_path: Path) -> None:
    tree = jtgpu.load("asia").compile("cpu")
    app = App({"asia": tree}, timeout=20.0)
    client = Client(app)
    editing = app._editing
    held = Opening(ENDLESS, "uai", 20.0)

    async def both() -> None:
        slow = editing._opened("slow", held)
        editing._under_way[held] = "slow"
        path = tmp_path / "asia.net"
        jtgpu.write(jtgpu.load("asia"), path)
        fast = Opening(path.read_bytes(), "net", 20.0)
        hosted = await editing._opened("fast", fast)
        assert not slow.done()
        hosted.close()
        hosted.tree.close()
        held.cancel()
        with pytest.raises(Refusal):
            await slow
        del editing._under_way[held]

    asyncio.run(both())
    assert client.get("/v1/networks").status_code == 200
    app.close()
    tree.close()


@pytest.mark.slow
def test_columns_of_a_wide_table_are_listed_quickly(client: Client) -> None:
    names = ",".join(f"{i:x}" for i in range(150_000))
    begun = time.monotonic()
    found = client.request(
        "POST", "/v1/networks/alarm/columns", content=f"HR,{names}\n", headers={"Content-Type": "text/csv"}
    )
    assert found.status_code == 200, found.text
    assert time.monotonic() - begun < 20
    columns = found.json()["columns"]
    assert len(columns) == 150_001
    assert columns[0]["variable"] is not None


@pytest.mark.slow
def test_networks_with_numbers_are_added(client: Client) -> None:
    texts = {"x": dumps_mixed(networks()["numbers"], "JSON"), "y": dumps_dynamic(machine(), "dynamic JSON")}
    for (name, text), suffix in zip(texts.items(), ("mixed.json", "dynamic.json"), strict=True):
        found = client.request("PUT", f"/v1/networks/{name}?format={suffix}", content=text.encode(), headers=FILE)
        assert found.status_code == 201, found.text
    assert client.ask("x", "posteriors", {"evidence": {"x": 3.0}})["numbers"]["x"]["mean"] == 3.0
    assert client.ask("y", "filter", {"evidence": {"load": [4.0]}})["posteriors"]["state"][0][1] > 0.9
    assert client.request("DELETE", "/v1/networks/x").json() == {"removed": "x"}
    client.request("DELETE", "/v1/networks/y")
