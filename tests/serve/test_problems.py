"""Whatever a client sends, it gets an answer or a problem that says what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App
from jtgpu.serve.questions import QUESTIONS
from tests.serve.client import Client
from tests.serve.test_answers import ELSEWHERE

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("question", "body", "kind", "fields"),
    [
        ("posteriors", {"evidence": {"xra": "yes"}}, "unknown-variable", {"variable": "xra", "closest": ["xray"]}),
        ("posteriors", {"targets": ["lun"]}, "unknown-variable", {"variable": "lun", "closest": ["lung"]}),
        ("voi", {"target": "Lung"}, "unknown-variable", {"variable": "Lung", "closest": ["lung"]}),
        ("posteriors", {"evidence": {"xray": "yess"}}, "unknown-state",
         {"variable": "xray", "state": "yess", "closest": ["yes"]}),
        ("posteriors", {"evidence": {"xray": ["yes", "maybe"]}}, "unknown-state", {"state": "maybe"}),
        ("posteriors", {"evidence": {"xray": 7}}, "unknown-state", {"variable": "xray", "state": 7, "closest": []}),
        ("posteriors", {"evidence": {"tub": "yes", "either": "no"}}, "impossible-evidence",
         {"findings": ["tub", "either"]}),
        ("posteriors", {"likelihood": {"xray": [1]}}, "invalid-evidence", {}),
        ("posteriors", {"likelihood": {"xray": [-1, 1]}}, "invalid-evidence", {}),
        ("posteriors", {"likelihood": {"xray": [0, 0]}}, "impossible-evidence", {"findings": ["xray"]}),
        ("posteriors", {"soft": {"xray": [0.5, 0.6]}}, "invalid-evidence", {}),
        ("posteriors", {"evidnce": {}}, "invalid-body", {}),
        ("posteriors", {"evidence": [1]}, "invalid-body", {}),
        ("posteriors", [], "invalid-body", {}),
        ("posteriors", {"cases": [{}], "evidence": {"xray": "yes"}}, "invalid-argument", {}),
        ("posteriors", {"targets": [99]}, "unknown-variable", {}),
        ("mpe", {"k": 0}, "invalid-body", {}),
        ("mpe", {"k": 1001}, "invalid-body", {}),
        ("mpe", {"k": 10**400}, "invalid-body", {}),
        ("map", {}, "invalid-body", {}),
        ("map", {"variables": []}, "invalid-evidence", {}),
        ("voi", {"target": "lung", "candidates": ["lung"]}, "invalid-evidence", {}),
        ("sensitivity", {"target": ["lung"]}, "invalid-body", {}),
        ("sensitivity", {"target": ["lung", "maybe"]}, "unknown-state", {}),
        ("sensitivity", {"target": ["lung", "yes"], "spread": -1}, "invalid-argument", {}),
        ("importance", {"target": "lung"}, "invalid-evidence", {}),
        ("importance", {"target": "lung", "soft": {"xray": [0.5, 0.5]}}, "invalid-argument", {}),
        ("conflict", {}, "invalid-evidence", {}),
        ("joint", {"variables": ["lung", "lung"]}, "invalid-evidence", {}),
        ("sample", {"n": -1}, "invalid-body", {}),
        ("sample", {"n": 10**12}, "too-large", {"limit": 40_000_000}),
        ("sample", {"n": 1, "seed": -1}, "invalid-body", {}),
        ("ask", {"question": "P(lung"}, "invalid-evidence", {}),
        ("ask", {"question": "P(nobody)"}, "unknown-variable", {}),
        ("ask", {"question": ""}, "invalid-evidence", {}),
    ],
)  # fmt: skip
def test_problems(client: Client, question: str, body: Any, kind: str, fields: dict[str, Any]) -> None:
    found = client.ask("asia", question, body, 422)
    assert found["type"] == f"/errors/{kind}"
    assert found["detail"]
    assert {name: found.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"{", 400), (b"nonsense", 400), (b'{"evidence": NaN}', 400), (b"\xff\xfe", 400), (b"{}{}", 400),
        (b'{"likelihood": {"xray": [1e999, 1]}}', 422), (b"[" * 100_000, 422), (b'{"a":' * 100_000, 422),
        (b'{"evidence": {"xray": "\xff"}}', 400), (b'{"evidence": {"xray": "\\ud800"}}', 400),
        (b"null", 422), (b"1", 422), (b'"text"', 422), (b'{"mpe": 1}', 422),
        (b'{"evidence": {"xray": 99999999999999999999999999}}', 422), (b"", 200), (b" {} ", 200),
    ],
)  # fmt: skip
def test_bodies_that_are_not_json(client: Client, raw: bytes, status: int) -> None:
    found = client.request("POST", "/v1/networks/asia/posteriors", content=raw, headers=JSON)
    assert found.status_code == status, found.text
    if status >= 400:
        assert found.headers["content-type"] == "application/problem+json"
        assert found.json()["detail"]


def test_paths_and_methods(client: Client) -> None:
    for path, status in [
        ("/v1/networks/none", 404), ("/v1/networks/asia/none", 404), ("/v1/networks/asia/cpt", 404), ("/v1", 404),
        ("/v1/", 404), ("/v1/networks/", 404), ("/v1/networks/asia/", 404), ("/v1/jobs", 404), ("/v1/jobs/x", 404),
        ("/v1/jobs/..%2f..%2fetc", 404), ("/nothing", 404), ("/v1/networks/asia/posteriors", 405),
        ("/v1/networks/asia/layout/x", 404), ("/v1/networks/asia?%ff", 200), ("/v1/networks/asia/layout?%ff=%ff", 200),
    ]:  # fmt: skip
        found = client.get(path)
        assert found.status_code == status, path
        if status >= 400:
            assert found.json()["status"] == status
    assert client.request("DELETE", "/v1/networks/asia").status_code == 403  # of the server; those of clients can go
    found = client.request("DELETE", "/v1/networks/asia/model")
    assert found.status_code == 405
    assert set(found.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert client.request("PUT", "/").status_code == 405
    assert (
        client.request(
            "POST", "/v1/networks/asia/posteriors", json={}, headers={"content-type": "text/plain"}
        ).status_code
        == 415
    )
    head = client.request("HEAD", "/v1/networks")
    assert head.status_code == 200
    assert head.content == b""


def test_limits(asia: JunctionTree) -> None:
    app = App({"asia": asia}, max_body="1KiB", max_cases=3, max_upload=100)
    client = Client(app)
    large = {"evidence": {"x" * 2000: "yes"}}
    found = client.ask("asia", "posteriors", large, 413)
    assert (found["type"], found["limit"]) == ("/errors/too-large-body", 1024)

    async def parts() -> Any:
        for _ in range(100):
            yield b" " * 100

    response = client.request("POST", "/v1/networks/asia/posteriors", content=parts(), headers=JSON)
    assert response.status_code == 413
    found = client.ask("asia", "posteriors", {"cases": [{}] * 4}, 413)
    assert (found["type"], found["needed"], found["limit"]) == ("/errors/too-many-cases", 4, 3)
    response = client.request(
        "POST", "/v1/networks/asia/table", content=b"xray\n" * 100, headers={"content-type": "text/csv"}
    )
    assert response.status_code == 413
    app.close()


def test_questions_that_would_take_too_long_are_refused_before(asia: JunctionTree) -> None:
    from jtgpu.serve.registry import AnswerRates

    app = App({"asia": asia}, timeout=2)
    client = Client(app)
    client.get("/v1/networks")
    app.networks["asia"].rates = AnswerRates(1.0, 0.5, 0.01, 4)
    found = client.ask("asia", "posteriors", {"cases": [{}] * 1000}, 422)
    assert found["type"] == "/errors/too-slow"
    assert found["predicted"] == pytest.approx(10.5)
    assert client.ask("asia", "mpe", {"k": 3}, 422)["type"] == "/errors/too-slow"
    client.ask("asia", "posteriors", {"cases": [{}] * 100})
    app.close()


def test_unexpected_errors_have_a_number_and_no_traceback(
    asia: JunctionTree, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("secret")

    app = App({"asia": asia})
    monkeypatch.setattr(QUESTIONS["mpe"].body, "answer", broken)
    found = Client(app).ask("asia", "mpe", {}, 500)
    assert "secret" not in json.dumps(found)
    assert found["id"] in caplog.text
    assert "ZeroDivisionError" in caplog.text
    app.close()


NAMES = st.sampled_from(["lung", "xray", "smoke", "either", "tub", "nobody", "", "\x00", "ä" * 300])
STATES = st.one_of(
    st.sampled_from(["yes", "no", "", "maybe"]), st.integers(-3, 3), st.integers(),
    st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none(),
)  # fmt: skip
WEIGHTS = st.one_of(
    st.lists(st.floats(-1, 2), max_size=3),
    st.dictionaries(st.sampled_from(["yes", "no", "x"]), st.floats(-1, 2)),
    STATES,
)
ANYTHING = st.recursive(
    STATES | NAMES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)
VARIABLES = st.one_of(NAMES, st.integers(-2, 9), st.lists(NAMES | st.integers(-2, 9), max_size=3))
FIELDS: dict[str, Any] = {
    "evidence": st.dictionaries(NAMES, STATES | st.lists(STATES, max_size=3), max_size=4),
    "likelihood": st.dictionaries(NAMES, WEIGHTS, max_size=3),
    "soft": st.dictionaries(NAMES, WEIGHTS, max_size=2),
    "do": st.dictionaries(NAMES, STATES | WEIGHTS, max_size=2),
    "targets": VARIABLES, "variables": VARIABLES, "target": VARIABLES | st.tuples(NAMES, STATES),
    "candidates": VARIABLES, "others": VARIABLES, "cases": st.lists(st.fixed_dictionaries({}, optional={
        "evidence": st.dictionaries(NAMES, STATES, max_size=3), "do": st.dictionaries(NAMES, STATES, max_size=2),
    }), max_size=4),
    "k": st.integers(-2, 5), "n": st.integers(-2, 5), "seed": st.integers(), "most": st.integers(-2, 5),
    "spread": st.floats(allow_nan=False, allow_infinity=False), "question": st.text(max_size=20),
}  # fmt: skip
BODIES = st.one_of(
    ANYTHING,
    st.fixed_dictionaries({}, optional={name: kind | ANYTHING for name, kind in FIELDS.items()}),
    st.fixed_dictionaries({}, optional=FIELDS),
)


@given(
    st.sampled_from(list(QUESTIONS)), BODIES, st.sampled_from(["", "?labels=1", "?digits=3", "?digits=x", "?labels=2"])
)
def test_no_body_is_an_internal_error(client: Client, question: str, body: Any, query: str) -> None:
    raw = json.dumps(body, allow_nan=False).encode()
    found = client.request("POST", f"/v1/networks/asia/{question}{query}", content=raw, headers=JSON)
    assert found.status_code < 500, found.text
    assert found.status_code in ((404,) if question in ELSEWHERE else (200, 400, 413, 422))
    assert "NaN" not in found.text
    found.json()


@given(st.binary(max_size=200))
def test_no_bytes_are_an_internal_error(client: Client, raw: bytes) -> None:
    found = client.request("POST", "/v1/networks/asia/posteriors", content=raw, headers=JSON)
    assert found.status_code in (200, 400, 422)
