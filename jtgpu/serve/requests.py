"""Requests: parameters, bodies of a limited size, and answers that end when the client leaves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from .problems import Refusal

JSON, PROBLEM = "application/json", "application/problem+json"
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Trace:
    """What metrics, the log and problems need to know about a request."""

    network: str = ""
    question: str = ""
    status: int = 0  # of the response; 0 if there is none yet
    cases: int = 0  # of the batch it was part of
    body: bytes = b""


def trace_of(request: Request) -> Trace:
    """The trace of a request."""
    found: Trace = request.scope["jtgpu"]
    return found


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(_encode(value), status, headers, JSON)


def flag(request: Request, name: str) -> bool:
    """Whether a parameter is set: ``name=1``."""
    value = request.query_params.get(name, "0")
    if value not in ("0", "1", "", "true", "false"):
        raise Refusal("invalid-argument", f"{name} must be 0 or 1, not {value[:60]!r}", field=name)
    return value not in ("0", "false")


def number(request: Request, name: str, default: int | None, least: int = 0, most: int = 1_000_000_000) -> int | None:
    """A parameter that is a whole number."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
    if not least <= value <= most:
        expected = f"an integer from {least:,} to {most:,}"
        raise Refusal("invalid-argument", f"{name} must be {expected}, not {text[:60]!r}", field=name)
    return value


async def read(request: Request, limit: int) -> bytes:
    """Read a body of at most `limit` bytes."""
    trace = trace_of(request)
    if not trace.body:
        trace.body = await read_body(request.receive, request.headers.get("content-length", "").encode(), limit)
    return trace.body


async def read_body(receive: Receive, announced: bytes, limit: int) -> bytes:
    """Read a body."""
    # receive: Of the ASGI interface
    # announced: bytes: The header Content-Length, if there is one
    # limit: Bytes
    # raises Refusal: If the body is larger.
    if announced.isdigit() and len(announced) < 20 and int(announced) > limit:
        raise _too_large(limit)
    body, more = b"", True
    parts: list[bytes] = []
    size = 0
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body = message.get("body", b"")
        size += len(body)
        if size > limit:
            raise _too_large(limit)
        parts.append(body)
        more = message.get("more_body", False)
    return body if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> Refusal:
    return Refusal("too-large-body", f"the body has more than {limit:,} bytes", limit=limit)


async def unless_gone(receive: Receive, future: asyncio.Future[T], timeout: float) -> T:
    """Wait for an answer; cancel it when the client closes the connection, or after `timeout` seconds."""
    # raises Refusal: After the timeout.
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((future, gone), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if future.done():
            return future.result()
        future.cancel()
        if gone.done():
            raise ClientDisconnect
        raise Refusal("timeout", f"no answer within {timeout:g} s; see --timeout")
    finally:
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
