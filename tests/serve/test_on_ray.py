"""Networks on Ray Serve: arguments, and a replica of a cluster on this machine."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest

import jtgpu
from jtgpu.errors import ArgumentError
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import deployment


@pytest.mark.parametrize(
    ("plans", "options", "message"),
    [
        ({}, {}, "plans must be"),
        ({"asia": 3}, {}, "plans must be"),
        (None, {"replicas": 0}, "replicas"),
        (None, {"gpus": -1}, "gpus"),
        (None, {"tokens": "x"}, "no argument 'tokens'"),
    ],
)
def test_arguments(plans: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((ArgumentError, ValueError), match=message):
        deployment(jtgpu.load("asia").plan() if plans is None else plans, token="", **options)


def _ask(url: str, body: Any, token: str) -> Any:
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_a_replica_answers(asia: JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = pytest.importorskip("ray.serve", reason="ray[serve] is not installed", exc_type=ImportError)
    import ray

    monkeypatch.setenv("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60")  # 5 s are short on a busy machine
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        app = deployment(jtgpu.load("asia").plan(), token="secret", backend="reference", cpus=0.5)
        serve.run(app, route_prefix="/jt")
        url = f"http://127.0.0.1:{port}/jt/v1/networks/asia/posteriors"
        found = _ask(url, {"evidence": {"xray": "yes"}}, "secret")
        expected = asia.posterior("lung", {"xray": "yes"}).probabilities.tolist()
        assert found["posteriors"]["lung"] == pytest.approx(expected, abs=1e-12)
        some = _ask(f"{url}?digits=3", {"targets": ["lung"]}, "secret")
        assert some["posteriors"] == {"lung": [0.055, 0.945]}
        with pytest.raises(urllib.error.HTTPError) as refused:
            _ask(url, {}, "wrong")
        assert refused.value.code == 401
    finally:
        serve.shutdown()
        ray.shutdown()
