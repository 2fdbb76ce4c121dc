"""Descriptions of networks, CPTs, files, positions, metrics, the OpenAPI description and the files of the page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu.formats import read
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App
from jtgpu.serve.page_module import FOLDER
from tests.serve.client import Client
from tests.serve.test_answers import ELSEWHERE
from tests.support.examples import slow


def test_networks(client: Client) -> None:
    found = client.get("/v1/networks").json()
    assert [n["name"] for n in found["networks"]] == ["asia", "alarm"]
    assert found["version"] == jtgpu.__version__
    assert "posteriors" in found["questions"]


def test_description(client: Client, asia: JunctionTree) -> None:
    response = client.get("/v1/networks/asia")
    found, model = response.json(), asia.model
    assert [v["name"] for v in found["variables"]] == list(model.variables)
    assert [v["states"] for v in found["variables"]] == [list(model.states(v)) for v in model.variables]
    for v, p in zip(found["variables"], found["prior"], strict=True):
        np.testing.assert_allclose(p, asia.posterior(v["name"]).probabilities, atol=1e-12)
    assert found["variables"][1]["parents"] == [0]
    assert [0, 1] in found["arcs"]
    assert found["limits"]["cases"] == 10_000
    tag = response.headers["etag"]
    again = client.get("/v1/networks/asia", headers={"if-none-match": tag})
    assert again.status_code == 304
    assert again.content == b""


def test_positions_of_a_file_point_down() -> None:
    net = jtgpu.load("asia")
    assert isinstance(net, jtgpu.BayesianNetwork)
    for sign in (1, -1):
        node = {v: {"position": (10 * i, sign * 10 * i)} for i, v in enumerate(net.variables)}
        placed = jtgpu.BayesianNetwork(
            {v: net.states(v) for v in net.variables}, {v: net.parents(v) for v in net.variables},
            {v: net.cpt(v) for v in net.variables}, attributes={"node": node},
        )  # fmt: skip
        with placed.compile("cpu") as tree:
            app = App({"n": tree})
            found = Client(app).get("/v1/networks/n").json()["variables"]
            assert [v["position"] for v in found] == [[10 * i, 10 * i] for i in range(len(net))]
            app.close()


def test_cpt_and_file(client: Client, asia: JunctionTree, tmp_path: object) -> None:
    found = client.get("/v1/networks/asia/cpt/dysp").json()
    assert isinstance(asia.model, jtgpu.BayesianNetwork)
    np.testing.assert_array_equal(np.reshape(found["probabilities"], found["shape"]), asia.model.cpt("dysp"))
    for suffix in ("bif", "net", "xdsl", "uai"):
        text = client.get(f"/v1/networks/asia/file?format={suffix}")
        assert text.status_code == 200
        assert f'filename="network.{suffix}"' in text.headers["content-disposition"]
        path = f"{tmp_path}/asia.{suffix}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.text)
        assert len(read(path)) == 8
    assert client.get("/v1/networks/asia/file?format=exe").json()["type"] == "/errors/invalid-argument"
    assert client.get("/v1/networks/asia/cpt/nobody").json()["type"] == "/errors/unknown-variable"


def test_layout(client: Client) -> None:
    found = client.get("/v1/networks/alarm/layout").json()
    assert found["nodes"] == list(range(37))
    assert all(len(box) == 4 for box in found["boxes"])
    assert client.get("/v1/networks/alarm/layout?nodes=3,17,3").json()["nodes"] == [3, 17]
    near = client.get("/v1/networks/alarm/layout", params={"around": ["HR", "CO"], "hops": 1, "most": 9}).json()
    assert len(near["nodes"]) <= 9
    assert client.get("/v1/networks/alarm/layout?around=HR,CO&hops=0").json()["nodes"] == sorted(near_numbers(client))
    assert len(client.get("/v1/networks/alarm/layout?overview=1").json()["x"]) == 37
    for bad in (
        "nodes=999",
        "nodes=a",
        "nodes=-1",
        "around=nobody",
        "hops=x",
        "most=0",
        "overview=2",
        "nodes=99999999999",
    ):
        assert client.get(f"/v1/networks/alarm/layout?{bad}").status_code == 422, bad


def near_numbers(client: Client) -> list[int]:
    variables = [v["name"] for v in client.get("/v1/networks/alarm").json()["variables"]]
    return [variables.index("HR"), variables.index("CO")]


def test_health_and_readiness(asia: JunctionTree) -> None:
    app = App({"asia": asia})
    client = Client(app)
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    assert client.get("/readyz").json()["status"] == "starting"
    app.warm()
    assert client.get("/readyz").json() == {"status": "ready", "networks": {"asia": {"backend": "cpu", "device": ""}}}
    app.stop()
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["status"] == "stopping"
    assert response.headers["connection"] == "close"
    app.close()


def test_metrics(asia: JunctionTree) -> None:
    app = App({"asia": asia})
    client = Client(app)
    client.ask("asia", "posteriors", {})
    client.ask("asia", "posteriors", {"cases": [{}, {}]})
    client.ask("asia", "posteriors", {"evidence": {"tub": "yes", "either": "no"}}, 422)
    text = client.get("/metrics").text
    assert 'jtgpu_requests_total{network="asia",question="posteriors",status="200"} 2.0' in text
    assert 'jtgpu_requests_total{network="asia",question="posteriors",status="422"} 1.0' in text
    assert "jtgpu_cases_total 3.0" in text
    assert "jtgpu_impossible_total 1.0" in text
    assert 'jtgpu_queue{network="asia"} 0.0' in text
    assert "jtgpu_seconds_bucket" in text
    assert "process_resident_memory_bytes" in text
    app.close()


@pytest.mark.slow
def test_openapi_is_valid_and_its_examples_pass(client: Client) -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    found = client.get("/openapi.json").json()
    validator.validate(found)
    n = 0
    for path, methods in found["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json")
        if content:
            question = path.rpartition("/")[2]
            of_others = question in ELSEWHERE  # asia has neither decisions nor slices
            client.ask("asia", question, content["example"], 404 if of_others else 200)
            n += 1
    assert n == 22


GENERATORS = {
    "openapi-python-client": ("generate", "--meta", "none", "--path", "{json}", "--output-path", "{out}"),
    "openapi-python-generator": ("{json}", "{out}"),
    "datamodel-codegen": ("--input-file-type", "openapi", "--input", "{json}", "--output", "{out}/models.py"),
}


@pytest.mark.parametrize("program", [*slow(*list(GENERATORS)[:2]), "datamodel-codegen"])
def test_clients_can_be_generated(program: str, client: Client, tmp_path: Path) -> None:
    """`items: false` was rejected."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    path = shutil.which(program, path=folders)
    if path is None:
        pytest.skip(f"{program} is not installed")
    text, out = tmp_path / "openapi.json", tmp_path / "out"
    text.write_bytes(client.get("/openapi.json").content)
    if program == "datamodel-codegen":
        out.mkdir()
    words = [word.format(json=text, out=out) for word in GENERATORS[program]]
    done = subprocess.run([path, *words], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    sources = {file: file.read_text() for file in out.rglob("*.py")}
    for file, source in sources.items():
        compile(source, str(file), "exec")
    assert "SensitivityReply" in "".join(sources.values())


def test_a_page_lists_all_paths(client: Client) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"].startswith("text/html")
    for path in client.get("/openapi.json").json()["paths"]:
        assert f"<code>{path}</code>" in response.text
    assert "//" not in response.text  # nothing from elsewhere


@pytest.mark.skipif(not (FOLDER / "index.html").exists(), reason="the page is not there")
def test_the_page(client: Client, asia: JunctionTree) -> None:
    response = client.get("/")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in response.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert client.get("/", headers={"if-none-match": response.headers["etag"]}).status_code == 304
    app = App({"asia": asia}, api_only=True)
    assert Client(app).get("/").status_code == 404
    app.close()


@pytest.mark.parametrize(
    "name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", ".hidden", "app.py", "a\\b.js", "x%00.js", ""]
)
def test_no_other_file_is_served(client: Client, name: str) -> None:
    assert client.get(f"/page/{name}").status_code in (404, 422)


def test_large_answers_are_compressed(client: Client) -> None:
    small = client.get("/v1/networks", headers={"accept-encoding": "gzip"})
    large = client.get("/v1/networks/alarm", headers={"accept-encoding": "gzip"})
    plain = client.get("/v1/networks/alarm", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in small.headers
    assert large.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert json.loads(large.text) == json.loads(plain.text)


def test_strengths_in_place_of_a_table() -> None:
    names = [f"d{i}" for i in range(40)]
    links = {v: i / 64 for i, v in enumerate(names)}
    net = jtgpu.BayesianNetwork(
        {v: ["no", "yes"] for v in [*names, "f", "g"]}, {"f": names, "g": names[:2]},
        {**{v: [0.5, 0.5] for v in names}, "f": jtgpu.NoisyOr(links, 0.25), "g": jtgpu.NoisyOr({"d1": 0, "d0": 1})},
    )  # fmt: skip
    with net.compile("cpu") as tree:
        app = App({"n": tree})
        client = Client(app)
        large, small = (client.get(f"/v1/networks/n/cpt/{v}").json() for v in "fg")
        app.close()
    assert large["probabilities"] == []
    assert large["strengths"] == net.noisy["f"].rows.tolist()
    assert large["strengths"][-1] == [0.75, 0.25]
    assert large["shape"] == [2] * 41
    assert np.reshape(small["probabilities"], small["shape"]).tolist() == net.cpt("g").tolist()
    assert small["strengths"] == [[1, 0], [0, 1], [1, 0], [1, 0], [1, 0]]
