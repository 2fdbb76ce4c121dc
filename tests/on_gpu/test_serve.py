"""The server with a tree on a GPU: concurrent clients get the answers of the reference."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import jtgpu

pytestmark = pytest.mark.gpu
for package in ("starlette", "uvicorn", "msgspec", "prometheus_client"):
    pytest.importorskip(package)


def _ask(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.mark.parametrize("name", ["asia", "alarm"])
def test_concurrent_clients(name: str) -> None:
    from jtgpu.serve import serve

    net = jtgpu.load(name)
    with net.compile("gpu") as tree, net.compile("reference") as reference:
        rows = reference.sample(40, seed=1)
        some = net.variables[:: max(len(net.variables) // 5, 1)]
        cases = [{v: str(rows[v][i]) for v in some[: 1 + i % 4]} for i in range(40)]
        bodies: list[dict[str, Any]] = [{"evidence": case, **({"targets": [net.variables[-1]]} if i % 3 == 0 else {})}
                  for i, case in enumerate(cases)]  # fmt: skip
        with serve({name: tree}) as server:
            url = f"{server.url}v1/networks/{name}/posteriors"
            with urllib.request.urlopen(f"{server.url}readyz", timeout=60) as answer:
                assert json.load(answer)["networks"][name]["backend"] == "gpu"
            with ThreadPoolExecutor(16) as pool:
                found = list(pool.map(lambda body: _ask(url, body), bodies))
        for body, answer_ in zip(bodies, found, strict=True):
            expected = reference.posteriors(body["evidence"], targets=body.get("targets"))
            assert answer_["log_evidence"] == pytest.approx(expected.log_evidence, rel=1e-9, abs=1e-9)
            for variable, p in expected.items():
                assert answer_["posteriors"][variable] == pytest.approx(p.probabilities.tolist(), abs=1e-9)
