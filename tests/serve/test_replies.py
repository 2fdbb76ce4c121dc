"""Forms of an answer: MessagePack, one array, and only what has changed; all say what the JSON by variable says."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App
from jtgpu.serve.registry import rounded
from jtgpu.serve.replies import decimals, encoding_of, flat_json, round_all
from tests.serve.client import Client, posts, together

SEEN = {"evidence": {"xray": "yes"}}
PATH = "/v1/networks/asia/posteriors"
MSGPACK = "application/vnd.msgpack"


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Equal but for the times."""
    assert {k: v for k, v in found.items() if k != "ms"} == {k: v for k, v in expected.items() if k != "ms"}


@pytest.mark.parametrize("path", [PATH, f"{PATH}?labels=1", f"{PATH}?digits=3", "/v1/networks/asia/mpe"])
def test_messagepack_says_the_same(client: Client, path: str) -> None:
    plain = client.request("POST", path, json=SEEN)
    packed = client.request("POST", path, json=SEEN, headers={"accept": MSGPACK})
    assert plain.headers["content-type"] == "application/json"
    assert packed.headers["content-type"] == MSGPACK
    same(msgspec.msgpack.decode(packed.content), plain.json())


def test_problems_stay_json(client: Client) -> None:
    body = {"evidence": {"xray": "maybe"}}
    found = client.request("POST", PATH, json=body, headers={"accept": MSGPACK})
    assert found.status_code == 422
    assert found.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("accept", "packed"),
    [
        ("", False), ("*/*", False), ("application/json", False), ("application/msgpack", True),
        ("application/x-msgpack, application/json;q=0.5", True), (f"{MSGPACK};q=0", False), (f"{MSGPACK};q=0.0", False),
        (f"text/html, {MSGPACK.upper()};q=0.9", True),
    ],
)  # fmt: skip
def test_accept(accept: str, packed: bool) -> None:
    assert (encoding_of(accept.encode()).kind == MSGPACK) is packed


@pytest.mark.parametrize("targets", [None, ["lung", "bronc"], []])
def test_one_array(client: Client, targets: Any) -> None:
    body = {**SEEN, "targets": targets}
    expected = client.ask("asia", "posteriors", body)
    flat = [x for p in expected["posteriors"].values() for x in p]
    found = client.ask("asia", "posteriors?flat=1", body)
    assert found["flat"] == flat
    assert "posteriors" not in found
    assert found["log_evidence"] == expected["log_evidence"]
    packed = client.request("POST", f"{PATH}?flat=1", json=body, headers={"accept": MSGPACK})
    np.testing.assert_array_equal(np.frombuffer(msgspec.msgpack.decode(packed.content)["flat"], "<f8"), flat)
    assert client.ask("asia", "posteriors?flat=1&digits=2", body)["flat"] == [float(f"{x:.2g}") for x in flat]


@pytest.mark.parametrize("form", ["", "&digits=4", "&labels=1", "&labels=1&digits=2"])
def test_only_what_changed(asia: JunctionTree, form: str) -> None:
    app = App({"asia": asia})
    app.warm()
    client = Client(app)
    held: dict[str, Any] = {}
    tag, sizes = "", []
    for evidence in ({}, {"xray": "yes"}, {"xray": "yes", "asia": "yes"}, {"xray": "yes", "asia": "yes"}, {}):
        body = {"evidence": evidence}
        found = client.ask("asia", f"posteriors?since={tag}{form}", body)
        assert found.get("since", "") == tag
        held |= found["posteriors"]
        sizes.append(len(found["posteriors"]))
        tag = found["tag"]
        expected = client.ask("asia", f"posteriors?{form[1:]}", body)
        assert held == expected["posteriors"]
        assert found["log_evidence"] == expected["log_evidence"]
    assert sizes[0] == 8
    assert 0 < sizes[2] < 8  # asia does not connect to all, to some digits
    assert sizes[3] == 0
    app.close()


@pytest.mark.parametrize("form", ["", "&labels=1", "&digits=6"])
@pytest.mark.parametrize("accept", ["", MSGPACK])
def test_what_a_client_merges_is_never_off_by_more_than_the_tolerance(
    asia: JunctionTree, form: str, accept: str
) -> None:
    app = App({"asia": asia})
    app.warm()
    client = Client(app)
    decode = msgspec.msgpack.decode if accept else msgspec.json.decode
    held: dict[str, Any] = {}
    tag, sizes = "", []
    for k in range(12):  # posteriors drift by less than the tolerance a step
        body = {"likelihood": {"smoke": [1.0, 1.0 + 0.03 * k]}}
        path = f"{PATH}?tolerance=0.01&since={tag}{form}"
        found = decode(client.request("POST", path, json=body, headers={"accept": accept}).content)
        assert found.get("since", "") == tag
        held |= found["posteriors"]
        sizes.append(len(found["posteriors"]))
        tag = found["tag"]
        expected = client.ask("asia", "posteriors", body)["posteriors"]
        for name, numbers in expected.items():
            seen = [*held[name].values()] if isinstance(held[name], dict) else held[name]
            np.testing.assert_allclose(seen, numbers, rtol=0, atol=0.01 + 1e-6)
    assert sizes[0] == 8
    assert 0 < sum(sizes[1:]) < 4 * 11
    app.close()


def test_a_tag_of_another_question_gives_everything(client: Client) -> None:
    tag = client.ask("asia", "posteriors?since=", SEEN)["tag"]
    for path, body in (
        ("posteriors?since=" + tag, {**SEEN, "targets": ["lung"]}), (f"posteriors?since={tag}&digits=3", SEEN),
        ("posteriors?since=unknown", SEEN),
    ):  # fmt: skip
        found = client.ask("asia", path, body)
        assert "since" not in found
        assert set(found["posteriors"]) == ({"lung"} if "targets" in body else set(client_variables(client)))
        assert found["tag"]


def client_variables(client: Client) -> list[str]:
    return [v["name"] for v in client.get("/v1/networks/asia").json()["variables"]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("posteriors?flat=1&labels=1", {}), ("posteriors?flat=1&since=", {}), ("mpe?since=", {}), ("mpe?flat=1", {}),
        ("posteriors?since=", {"cases": [{}]}), ("posteriors?flat=1", {"soft": {"lung": [0.5, 0.5]}}),
        ("posteriors?tolerance=0.1", {}),
    ],
)  # fmt: skip
def test_contradictions(client: Client, path: str, body: dict[str, Any]) -> None:
    found = client.ask("asia", path, body, 422)
    assert found["type"] == "/errors/invalid-argument"
    assert "flat" in found["detail"] or "tolerance" in found["detail"]


@pytest.mark.parametrize("text", ["2", "-1", "nan", "some"])
def test_invalid_tolerances(client: Client, text: str) -> None:
    assert client.ask("asia", f"posteriors?since=&tolerance={text}", SEEN, 422)["field"] == "tolerance"


def test_the_description_names_the_forms(client: Client) -> None:
    described = json.loads(client.get("/openapi.json").content)["paths"]["/v1/networks/{network}/posteriors"]["post"]
    assert {"flat", "since", "tolerance"} <= {p["name"] for p in described["parameters"]}
    assert MSGPACK in described["responses"]["200"]["content"]


NEAR = st.builds(
    lambda whole, e, ulps: whole * 10.0**-e * (1 + ulps * 2.0**-52),
    st.integers(1, 10**7), st.integers(7, 30), st.integers(-3, 3),
)  # fmt: skip


@given(st.lists(st.floats(0, 1) | NEAR), st.integers(1, 17))
def test_arrays_are_rounded_as_text_is(values: list[float], digits: int) -> None:
    values = [min(x, 1.0) for x in values]
    for found, x in zip(round_all(np.array(values, np.float64), digits).tolist(), values, strict=True):
        assert found in (rounded(x, digits), *((x,) if digits == 16 else ()))  # x itself is nearer than 16 digits


def test_many_random_numbers_are_rounded_as_text_is() -> None:
    rng = np.random.default_rng(1)
    for digits in (1, 3, 6, 12, 15, 17):
        values = np.concatenate([rng.random(3000), rng.random(1000) ** 20, np.round(rng.random(1000), 4), [0.0, 1.0]])
        assert round_all(values, digits).tolist() == rounded(values.tolist(), digits)


@pytest.mark.parametrize("bits", [52, 300])
def test_no_number_has_more_digits_than_it_needs(bits: int) -> None:
    rng = np.random.default_rng(1)
    rest = [0.0, np.nextafter(1.0, 0), 1 + 2.0**-52]
    values = np.concatenate([rng.random(3000) ** 20, 2.0 ** -np.arange(bits), rest])
    text = flat_json(decimals(values, None)).decode()
    assert json.loads(text) == values.tolist()
    for found, x in zip(text[1:-1].split(","), values.tolist(), strict=True):
        assert len(found) <= len(repr(x)), (found, x)


@pytest.mark.slow
def test_names_are_escaped_and_long_lists_have_their_length() -> None:
    rng = np.random.default_rng(1)
    names = ['a"b\\c', "\u00e4\n\u2028", *(f"v{i}" for i in range(20))]
    states = {name: [f'"{s}\t' for s in range(2 + 15 * (i % 2))] for i, name in enumerate(names)}
    tables = {name: rng.dirichlet(np.ones(len(states[name]))) for name in names}
    net = jtgpu.BayesianNetwork(states, {}, tables, name="odd")
    with net.compile("reference") as tree:
        expected = {name: dict(zip(states[name], p.probabilities.tolist(), strict=True))
                    for name, p in tree.posteriors().items()}  # fmt: skip
        app = App({"odd": tree})
        for labels in (0, 1):
            reference = expected if labels else {name: [*p.values()] for name, p in expected.items()}
            for accept, decode in (("", msgspec.json.decode), (MSGPACK, msgspec.msgpack.decode)):
                path = f"/v1/networks/odd/posteriors?labels={labels}"
                found = Client(app).request("POST", path, json={}, headers={"accept": accept})
                assert decode(found.content)["posteriors"] == reference
        app.close()


def test_several_threads_write_the_replies_of_a_batch(asia: JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jtgpu.serve.batching.LONG", 1)
    app = App({"asia": asia})
    app.warm()
    hosted = app.networks["asia"]
    hosted.rates = hosted.batcher.rates = hosted.rates._replace(single=1.0, batch=1.0, threshold=1)  # in the thread
    bodies: list[dict[str, Any]] = [
        {"evidence": {"xray": "yes", "smoke": ("yes", "no")[i % 2]}, "targets": ["lung", "bronc"][: 1 + i % 2]}
        for i in range(9)
    ]
    for body, found in zip(bodies, together(app, posts(PATH, bodies)), strict=True):
        expected = asia.posteriors(body["evidence"], targets=body["targets"])
        assert list(found.json()["posteriors"]) == body["targets"]
        for name, p in expected.items():
            assert found.json()["posteriors"][name] == pytest.approx(p.probabilities.tolist(), abs=1e-12)
    app.close()
