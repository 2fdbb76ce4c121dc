"""A client that calls an application directly, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import httpx

from jtgpu.serve import App

__all__ = ["Client", "posts", "together"]

LOCAL = "http://127.0.0.1:8080"


class Client:
    """Requests to an application; each runs in an event loop of its own."""

    def __init__(self, app: App, base: str = LOCAL, **headers: str):
        self.app, self.base, self.headers = app, base, headers

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request."""
        [found] = together(self.app, [lambda c: c.request(method, path, **more)], self.base, self.headers)
        return found

    def get(self, path: str, **more: Any) -> httpx.Response:
        """Send a GET request."""
        return self.request("GET", path, **more)

    def ask(self, network: str, question: str, body: Any, status: int = 200) -> Any:
        """Ask a question; the answer, or the problem of a status that is expected."""
        found = self.request("POST", f"/v1/networks/{network}/{question}", json=body)
        assert found.status_code == status, found.text
        if status != 200:
            assert found.headers["content-type"] == "application/problem+json"
            assert found.json()["status"] == status
        # neither NaN nor infinity is JSON
        return json.loads(found.text, parse_constant=lambda name: pytest_fail(name))


def pytest_fail(name: str) -> None:
    """Fail: a number that JSON does not have."""
    raise AssertionError(f"{name} in an answer")


Send = Callable[[httpx.AsyncClient], Coroutine[Any, Any, httpx.Response]]


def together(app: App, sends: list[Send], base: str = LOCAL, headers: Any = None) -> list[httpx.Response]:
    """Send requests at the same time."""

    async def run() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers, timeout=60) as client:
            return list(await asyncio.gather(*(send(client) for send in sends)))

    return asyncio.run(run())


def posts(path: str, bodies: Iterable[Any]) -> list[Send]:
    """A POST request for each body."""

    def one(body: Any) -> Send:
        return lambda client: client.post(path, json=body)

    return [one(body) for body in bodies]
