"""The server with trees on a GPU, an emulated one: its answers, and what happens when the GPU fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import jtgpu
from jtgpu.errors import BackendUnavailable
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App
from tests.serve.client import Client, posts, together
from tests.support.emulated.install import installed, needs_compiler

PATH = "/v1/networks/asia/posteriors"
BODIES: list[dict[str, Any]] = [
    {"evidence": {"xray": "yes"}}, {"evidence": {"smoke": "no", "dysp": "yes"}}, {"targets": ["lung"]},
    {"likelihood": {"dysp": [0.9, 0.2]}}, {"evidence": {"either": "no", "lung": "yes"}}, {},
]  # fmt: skip


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[JunctionTree]:
    monkeypatch.setattr("jtgpu.serve.batching.SIZES", (1, 4))  # an emulated GPU takes seconds for 256 cases
    monkeypatch.setattr("jtgpu.serve.batching.PATIENCE", 0.0)
    monkeypatch.setattr("jtgpu.serve.hosted.SLOW", 0.0)
    with installed(), jtgpu.load("asia").compile("gpu") as tree:
        yield tree


def _check(found: Any, tree: JunctionTree, body: dict[str, Any]) -> None:
    known = {name: body[name] for name in ("evidence", "likelihood") if name in body}
    expected = tree.posteriors(**known, targets=body.get("targets"))
    assert found["log_evidence"] == pytest.approx(expected.log_evidence, rel=1e-10)
    for name, p in expected.items():
        assert found["posteriors"][name] == pytest.approx(p.probabilities.tolist(), abs=1e-10)


@pytest.mark.slow
@needs_compiler
def test_answers_alone_and_together(gpu: JunctionTree, asia: JunctionTree) -> None:
    app = App({"asia": gpu})
    try:
        client = Client(app)
        state = client.get("/readyz").json()
        client.get("/v1/networks")
        assert client.get("/readyz").json()["networks"]["asia"]["backend"] == "gpu", state
        alone = [client.request("POST", PATH, json=body) for body in BODIES]
        together_ = together(app, posts(PATH, BODIES * 2))
        for found, body in zip(alone + together_, BODIES * 3, strict=True):
            if body.get("evidence", {}).get("lung") == "yes":
                assert found.status_code == 422, found.text
            else:
                assert found.status_code == 200, found.text
                _check(found.json(), asia, body)
        assert 'jtgpu_device_bytes{device="' in client.get("/metrics").text
    finally:
        app.close()


@pytest.mark.slow
@needs_compiler
def test_the_cpu_answers_after_a_failure(
    gpu: JunctionTree, asia: JunctionTree, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = App({"asia": gpu})
    try:
        client = Client(app)
        client.get("/v1/networks")

        def fails(*_: Any) -> None:
            raise BackendUnavailable("the GPU failed: an illegal memory access")

        backend = gpu.intervened().backend
        for name in ("run_case", "run"):
            monkeypatch.setattr(backend, name, fails)
        first = client.request("POST", PATH, json=BODIES[0])
        assert first.status_code == 503
        assert first.headers["retry-after"] == "1"
        for found, body in zip(together(app, posts(PATH, BODIES[:4])), BODIES, strict=False):
            _check(found.json(), asia, body)
        assert client.ask("asia", "mpe", {})["explanations"]
        state = client.get("/readyz").json()["networks"]["asia"]
        assert state == {"backend": "cpu", "device": "", "failure": "the GPU failed: an illegal memory access"}
        warnings = [r.getMessage() for r in caplog.records if "the CPU is used from now on" in r.getMessage()]
        assert len(warnings) == 1
    finally:
        app.close()


def test_a_failure_while_warming_up(asia: JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise BackendUnavailable("the GPU failed")

    with jtgpu.load("asia").compile("cpu") as tree:
        monkeypatch.setattr(JunctionTree, "device", property(lambda self: "a GPU" if self is tree else ""))
        monkeypatch.setattr(tree.intervened().backend, "run_case", fails)
        app = App({"asia": tree})
        try:
            app.warm()
            _check(Client(app).ask("asia", "posteriors", BODIES[0]), asia, BODIES[0])
            assert Client(app).get("/readyz").json()["networks"]["asia"]["failure"] == "the GPU failed"
        finally:
            app.close()
