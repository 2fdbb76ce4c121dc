"""Who may ask: host, origin, token, and the headers of responses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from jtgpu.errors import ArgumentError
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App, make_app
from jtgpu.serve.settings import is_loopback, own_address, url_of
from tests.serve.client import Client


@pytest.fixture
def protected(asia: JunctionTree) -> Iterator[App]:
    app = App({"asia": asia}, token="secret", allow_origins=["https://example.org"], allow_hosts=["jt.example.org"])
    yield app
    app.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:80", "[::1]"])
def test_local_hosts(client: Client, host: str) -> None:
    assert client.get("/v1/networks", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil:80", "", "127.0.0.1@evil", "[::1].evil", "127.0.0.1:x"],
)
def test_foreign_hosts(client: Client, host: str) -> None:
    for path in ("/v1/networks", "/", "/metrics", "/openapi.json"):
        found = client.get(path, headers={"host": host})
        assert found.status_code == 421
        assert found.json()["type"] == "/errors/foreign-host"


def test_hosts_that_are_allowed(protected: App, asia: JunctionTree) -> None:
    headers = {"authorization": "Bearer secret", "host": "jt.example.org:443"}
    assert Client(protected).get("/v1/networks", headers=headers).status_code == 200
    app = App({"asia": asia}, allow_hosts="*")
    assert Client(app).get("/v1/networks", headers={"host": "any.example"}).status_code == 200
    app.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401), ({"authorization": "Bearer wrong"}, 401), ({"authorization": "secret"}, 401),
        ({"authorization": "Basic secret"}, 401), ({"authorization": "Bearer "}, 401),
        ({"authorization": "Bearer s\xe9cret".encode("latin-1")}, 401), ({"authorization": "Bearer secret"}, 200),
        ({"authorization": "bearer secret"}, 200),
    ],
)  # fmt: skip
def test_the_token(protected: App, headers: dict[str, Any], status: int) -> None:
    client = Client(protected)
    for path in ("/v1/networks", "/metrics", "/v1/networks/asia", "/v1/jobs/x"):
        found = client.get(path, headers=headers)
        assert found.status_code in ((401,) if status == 401 else (200, 404)), path
        if status == 401:
            assert found.headers["www-authenticate"] == "Bearer"
    assert client.request("POST", "/v1/networks/asia/posteriors", json={}, headers=headers).status_code == status
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert client.get(path).status_code in (200, 503)


@pytest.mark.parametrize("root", ["", "/app", "/v", "/v1", "/m", "/v1/networks", "/v1/networks/asia"])
def test_the_token_below_a_prefix(protected: App, root: str) -> None:
    """A prefix that ends within a name took it off the path that the guard saw: the answer came without a token."""
    for path in ("/v1/networks", "/v1/networks/asia", "/metrics"):
        for requested in (path, root + path):
            transport = httpx.ASGITransport(app=protected, root_path=root)

            async def get(headers: dict[str, str], transport: Any = transport, path: str = requested) -> int:
                async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
                    return (await client.get(path, headers=headers)).status_code

            with_token = asyncio.run(get({"authorization": "Bearer secret"}))
            assert with_token in (200, 404)
            assert asyncio.run(get({})) == (401 if with_token == 200 else 404), (root, requested)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8080", 200), ("https://example.org", 200), ("https://evil.example", 403), ("null", 403),
        ("http://127.0.0.1:8081", 403), ("https://127.0.0.1:8080", 403), ("https://example.org.evil", 403),
    ],
)  # fmt: skip
def test_origins(protected: App, origin: str, status: int) -> None:
    headers = {"authorization": "Bearer secret", "origin": origin}
    found = Client(protected).get("/v1/networks", headers=headers)
    assert found.status_code == status
    foreign = status == 200 and not origin.startswith("http://127")
    assert found.headers.get("access-control-allow-origin") == (origin if foreign else None)


def test_preflight(protected: App) -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    found = Client(protected).request(
        "OPTIONS", "/v1/networks/asia/posteriors", headers={"origin": "https://example.org", **asked}
    )
    assert found.status_code == 200
    assert found.headers["access-control-allow-origin"] == "https://example.org"
    assert "authorization" in found.headers["access-control-allow-headers"]
    found = Client(protected).request("OPTIONS", "/v1/networks", headers={"origin": "https://evil.example", **asked})
    assert found.status_code == 403


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonx"],
)
def test_bodies_of_forms_are_refused(client: Client, kind: str) -> None:
    for question in ("posteriors", "table", "columns"):
        found = client.request(
            "POST", f"/v1/networks/asia/{question}", content=b"{}", headers={"content-type": kind} if kind else {}
        )
        assert found.status_code == 415


def test_every_response_has_the_headers(client: Client) -> None:
    for path in ("/v1/networks", "/nothing", "/v1/networks/none", "/metrics", "/healthz", "/openapi.json"):
        found = client.get(path)
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["referrer-policy"] == "no-referrer"
        assert "default-src 'self'" in found.headers["content-security-policy"]


def test_frames(asia: JunctionTree) -> None:
    app = App({"asia": asia}, embed="https://example.org")
    assert (
        "frame-ancestors 'self' https://example.org" in Client(app).get("/healthz").headers["content-security-policy"]
    )
    app.close()


def test_other_machines_need_a_token(asia: JunctionTree) -> None:
    app = make_app({"asia": asia}, "0.0.0.0")
    assert len(app.settings.token) >= 32
    app.close()
    with pytest.raises(ArgumentError, match="token"):
        make_app({"asia": asia}, "192.168.0.1", with_token=False)
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""):
        assert not is_loopback(host)


def test_urls() -> None:
    assert url_of("127.0.0.1", 80) == "http://127.0.0.1:80/"
    own = own_address()  # what other machines can use, and no 127.0.0.1 that only this one does
    for host in ("0.0.0.0", "::", ""):
        assert url_of(host, 80, "t") == f"http://{f'[{own}]' if ':' in own else own}:80/#token=t"
    assert url_of("::1", 80) == "http://[::1]:80/"


def test_settings_are_checked(asia: JunctionTree) -> None:
    wrong: list[dict[str, Any]] = [
        {"timeout": 0}, {"queue": 0}, {"max_body": "many"}, {"log": "xml"}, {"exact": 3}, {"max_cases": 1.5},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(ValueError):
            App({"asia": asia}, **options)
    with pytest.raises(TypeError):
        App({"asia": asia}, nonsense=1)
    for trees in ({}, {"a/b": asia}, {"": asia}, {"asia": asia.model}, asia):
        with pytest.raises(ArgumentError):
            App(trees)  # type: ignore[arg-type]


def test_a_proxy_on_this_machine_reports_the_scheme(app: App) -> None:
    headers = {"origin": "https://127.0.0.1:8080"}
    assert Client(app).get("/v1/networks", headers=headers).status_code == 403
    assert Client(app).get("/v1/networks", headers={**headers, "x-forwarded-proto": "https"}).status_code == 200
    assert Client(app).get("/v1/networks", headers={**headers, "x-forwarded-proto": "ftp"}).status_code == 403


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip", "gzip"), ("br, gzip;q=0.5", "gzip"), ("gzip;q=0", None), ("gzip; q=0.00", None), ("br", None)],
)
def test_long_answers_are_compressed_for_clients_that_accept_it(
    client: Client, accepted: str, encoding: str | None
) -> None:
    headers = {"accept-encoding": accepted, "x-forwarded-for": "192.0.2.1"}
    found = client.request("POST", "/v1/networks/alarm/posteriors", json={}, headers=headers)
    assert found.headers.get("content-encoding") == encoding
    assert found.headers["vary"] == "Accept-Encoding"
    assert len(found.json()["posteriors"]) == 37
    short = client.request("POST", "/v1/networks/asia/posteriors", json={}, headers={"accept-encoding": accepted})
    assert "content-encoding" not in short.headers


def test_a_server_at_all_addresses_answers_addresses_but_not_foreign_names(asia: JunctionTree) -> None:
    app = make_app({"asia": asia}, "0.0.0.0", token="t")
    client = Client(app)
    head = {"Authorization": "Bearer t"}
    for host in ("192.0.2.7:8080", "[2001:db8::7]:8080", socket.gethostname(), f"{own_address()}:1"):
        found = client.request("GET", "/v1/networks", headers={**head, "Host": host})
        assert found.status_code == 200, host
    for host in ("evil.example", "192.0.2.7.evil.example"):
        assert client.request("GET", "/v1/networks", headers={**head, "Host": host}).status_code == 421
    app.close()
