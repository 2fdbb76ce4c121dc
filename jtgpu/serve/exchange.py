"""`Exchange`: one request and its response."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from .guard import Headers, headers_of
from .problems import Refusal

__all__ = ["JSON", "PROBLEM", "Exchange", "Gone", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

JSON, PROBLEM = "application/json", "application/problem+json"
NONE: Mapping[str, str] = {}
COMPRESSED = 2048  # bytes of a body from which it is compressed
LARGE = 1 << 18  # bytes of a body that a thread compresses
_encode = msgspec.json.Encoder().encode


class Gone(Exception):
    """The client has closed the connection."""


class Exchange:
    """One request and its response.

    Attributes
    ----------
    headers : dict of bytes
    path : str
        Without the prefix at which the application is mounted.
    more_headers : list
        Headers of the response.
    status : int
        Of the response; 0 if there is none yet.
    network, question : str
        For metrics and the log.
    queued, cases : float, int
        Seconds that the request waited; cases of the batch it was part of.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, more_headers: list[tuple[bytes, bytes]]):
        self.scope, self.receive, self.send = scope, receive, send
        self.headers: Headers = headers_of(scope)
        root, path = scope.get("root_path", ""), scope["path"]
        self.path: str = path[len(root) :] if root and path.startswith(root) else path
        self.method: str = scope["method"]
        self.more_headers = more_headers
        self.status = 0
        self.network = self.question = ""
        self.queued, self.cases = 0.0, 0
        self.computed: float | None = None
        self.body = b""
        self._query: dict[str, list[str]] | None = None

    @property
    def query(self) -> dict[str, list[str]]:
        """The values of each parameter of the query string."""
        if self._query is None:
            self._query = {}
            text = self.scope.get("query_string", b"")
            try:
                pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=10_000)
            except (UnicodeError, ValueError):
                raise Refusal("bad-request", "the query string is malformed") from None
            for name, value in pairs:
                self._query.setdefault(name, []).append(value)
        return self._query

    def parameter(self, name: str, default: str = "") -> str:
        """The last value of a parameter."""
        return self.query.get(name, [default])[-1]

    def flag(self, name: str) -> bool:
        """Whether a parameter is set: ``name=1``."""
        value = self.parameter(name, "0")
        if value not in ("0", "1", "", "true", "false"):
            raise Refusal("invalid-argument", f"{name} must be 0 or 1, not {value[:60]!r}", field=name)
        return value not in ("0", "false")

    def number(self, name: str, default: int | None, least: int = 0, most: int = 1_000_000_000) -> int | None:
        """A parameter that is a whole number."""
        text = self.parameter(name)
        if not text:
            return default
        value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
        if not least <= value <= most:
            expected = f"an integer from {least:,} to {most:,}"
            raise Refusal("invalid-argument", f"{name} must be {expected}, not {text[:60]!r}", field=name)
        return value

    async def read(self, limit: int) -> bytes:
        """Read the body, of at most `limit` bytes."""
        announced = self.headers.get(b"content-length", b"")
        if announced.isdigit() and len(announced) < 20 and int(announced) > limit:
            raise _too_large(limit)
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            parts = [body]
            size = len(body)
            async for part in self.chunks():
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
            body = b"".join(parts)
        elif message["type"] == "http.disconnect":
            raise Gone
        if len(body) > limit:
            raise _too_large(limit)
        self.body = body
        return body

    async def chunks(self) -> Any:
        """Iterate over the body in parts."""
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            more = message.get("more_body", False)
            yield message.get("body", b"")

    async def unless_gone(self, future: asyncio.Future[T], timeout: float) -> T:
        """Wait for an answer; cancel it when the client closes the connection, or after `timeout` seconds.

        Raises
        ------
        Gone
        Refusal
            After the timeout.
        """
        gone = asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait((future, gone), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            future.cancel()
            if gone.done():
                raise Gone
            raise Refusal("timeout", f"no answer within {timeout:g} s; see --timeout")
        finally:
            gone.cancel()

    async def _disconnected(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def json(self, value: Any, status: int = 200, headers: Mapping[str, str] = NONE) -> None:
        """Respond with a value as JSON."""
        await self.respond(_encode(value), JSON, status, headers)

    async def respond(self, body: bytes, kind: str, status: int = 200, headers: Mapping[str, str] = NONE) -> None:
        """Respond with a body, compressed if it is large and the client accepts that.

        Parameters
        ----------
        body : bytes
        kind : str
            Media type.
        status : int
        headers : mapping
            More headers.
        """
        sent = [(b"content-type", kind.encode()), *self.more_headers]
        for name, value in headers.items():
            sent.append((name.encode(), value.encode("latin-1", "replace")))
        if len(body) > COMPRESSED and b"gzip" in self.headers.get(b"accept-encoding", b""):
            if len(body) > LARGE:
                body = await asyncio.to_thread(gzip.compress, body, 1, mtime=0)
            else:
                body = gzip.compress(body, 1, mtime=0)
            sent += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
        sent.append((b"content-length", str(len(body)).encode()))
        self.status = status
        await self.send({"type": "http.response.start", "status": status, "headers": sent})
        await self.send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})


def _too_large(limit: int) -> Refusal:
    return Refusal("too-large-body", f"the body has more than {limit:,} bytes", limit=limit)
