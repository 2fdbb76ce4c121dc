"""Requests: parameters, bodies of a limited size, and answers that end when the client leaves."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from ..errors import (
    ArgumentError,
    BackendUnavailable,
    DataError,
    EvidenceError,
    ImpossibleEvidence,
    JtgpuError,
    ParseError,
    TableTooLarge,
    UnknownState,
    UnknownVariable,
)
from .trees import AnyNetwork, states_of

# Errors as problem details (RFC 9457): what a client gets in place of an answer.

EVIDENCE = ("evidence", "likelihood", "soft", "do")

# name -> status and title
KINDS: dict[str, tuple[int, str]] = {
    "not-json": (400, "The body is not JSON"),
    "bad-request": (400, "Bad request"),
    "missing-token": (401, "The token is missing or wrong"),
    "forbidden-origin": (403, "Foreign origin"),
    "read-only": (403, "Uploads are not accepted"),
    "not-found": (404, "Not found"),
    "unknown-network": (404, "Unknown network"),
    "wrong-kind": (404, "Not for this kind of network"),
    "method-not-allowed": (405, "Method not allowed"),
    "too-large-body": (413, "The body is too large"),
    "too-many-cases": (413, "Too many cases"),
    "unsupported-media-type": (415, "Unsupported media type"),
    "foreign-host": (421, "Foreign host"),
    "invalid-body": (422, "Invalid body"),
    "unknown-variable": (422, "Unknown variable"),
    "unknown-state": (422, "Unknown state"),
    "impossible-evidence": (422, "Impossible evidence"),
    "invalid-evidence": (422, "Invalid evidence"),
    "invalid-argument": (422, "Invalid argument"),
    "invalid-table": (422, "Invalid table"),
    "unsupported": (422, "Not supported"),
    "too-large": (422, "Too large"),
    "too-slow": (422, "Too slow"),
    "internal": (500, "Internal error"),
    "busy": (503, "Busy"),
    "stopping": (503, "Stopping"),
    "starting": (503, "Starting"),
    "timeout": (504, "Timeout"),
}

_OF_ERRORS: tuple[tuple[type[BaseException], str], ...] = (
    (ImpossibleEvidence, "impossible-evidence"),
    (UnknownVariable, "unknown-variable"),
    (UnknownState, "unknown-state"),
    (TableTooLarge, "too-large"),
    (EvidenceError, "invalid-evidence"),
    (ArgumentError, "invalid-argument"),
    (ParseError, "invalid-table"),
    (DataError, "invalid-evidence"),
    (BackendUnavailable, "busy"),
    (JtgpuError, "unsupported"),
    (msgspec.ValidationError, "invalid-body"),
    (OverflowError, "invalid-body"),  # integers of hundreds of digits
    (msgspec.DecodeError, "not-json"),
    (RecursionError, "not-json"),
    (UnicodeError, "not-json"),
    (MemoryError, "busy"),
)


class Refusal(JtgpuError):
    """A request that the server does not answer."""
    # kind: One of `KINDS`
    # **fields: More fields of the problem

    def __init__(self, kind: str, detail: str, **fields: Any):
        super().__init__(detail)
        self.kind, self.fields = kind, fields

    def __reduce__(self) -> tuple[object, ...]:
        return partial(Refusal, self.kind, str(self), **self.fields), ()


def kind_of(error: BaseException) -> str:
    """The kind of problem that an error is."""
    if isinstance(error, Refusal):
        return error.kind
    return next((kind for cls, kind in _OF_ERRORS if isinstance(error, cls)), "internal")


def problem(error: BaseException, model: AnyNetwork | None = None, body: object = None) -> dict[str, Any]:
    """Describe an error."""
    # model: The model of the question
    # body: The question: names in it that the model does not have are reported in the fields ``variable``, ``state``
    #     and ``closest``
    kind = kind_of(error)
    status, title = KINDS[kind]
    about: dict[str, Any] = {"type": f"/errors/{kind}", "title": title, "status": status}
    about["detail"] = _detail(error, kind)
    if isinstance(error, Refusal):
        return about | error.fields
    if isinstance(error, TableTooLarge):
        sizes = {"entries": error.entries, "needed": error.needed, "limit": error.limit}
        return about | {name: size for name, size in sizes.items() if size >= 0}
    if model is not None and body is not None:
        about |= _fields(kind, model, body)
    return about


def _detail(error: BaseException, kind: str) -> str:
    if kind == "internal":
        return "an internal error; the server's log has its traceback under this id"
    if isinstance(error, RecursionError):
        return "the body is nested too deeply"
    if isinstance(error, MemoryError):
        return "out of memory"
    return str(error) or type(error).__name__


def _fields(kind: str, model: AnyNetwork, body: object) -> dict[str, Any]:
    """The names in a body that an error is about."""
    if kind == "impossible-evidence":
        findings = dict.fromkeys(v for v, _ in _findings(body) if v in model)
        return {"findings": [*findings]} if findings else {}
    if kind == "unknown-variable":
        for name in _variables(body):
            if name not in model:
                return {"variable": name, "closest": closest_names(name, model.variables)}
    if kind == "unknown-state":
        states = states_of(model)
        with suppress(JtgpuError):
            states = states.with_codes(_get(body, "codes"))
        for name, value in _findings(body):
            if name not in states or value is None:
                continue
            for state in value if isinstance(value, (list, dict)) else [value]:
                try:
                    states.state_index(name, state)
                except UnknownState:
                    near = closest_names(state, states.states(name)) if isinstance(state, str) else []
                    return {"variable": name, "state": state, "closest": near}
                except EvidenceError:
                    continue
    return {}


def _get(body: object, name: str) -> Any:
    return body.get(name) if isinstance(body, Mapping) else getattr(body, name, None)


def _findings(body: object) -> Iterator[tuple[str, Any]]:
    """Variables and values of all kinds of evidence; arrays of numbers are no states."""
    for name in EVIDENCE:
        given = _get(body, name)
        if isinstance(given, Mapping):
            for variable, value in given.items():
                yield variable, [] if name != "evidence" and isinstance(value, list) else value


def _variables(body: object) -> Iterator[str]:
    for name in ("target", "targets", "variables", "candidates", "others"):
        given = _get(body, name)
        names = [given[0]] if isinstance(given, tuple) else given if isinstance(given, list) else [given]
        yield from (n for n in names if isinstance(n, str))
    yield from (variable for variable, _ in _findings(body))


def closest_names(word: str, known: Iterable[str]) -> list[str]:
    """The names that are most similar to a word, at most three."""
    if len(word) > 100:
        return []
    known = [k for k in known if len(k) <= 200]
    closest = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    if not closest:
        folded = {k.casefold(): k for k in known}
        closest = [folded[f] for f in difflib.get_close_matches(word.casefold(), list(folded), n=3, cutoff=0.6)]
    return closest


JSON, PROBLEM = "application/json", "application/problem+json"
T = TypeVar("T")
P = TypeVar("P", bound=msgspec.Struct)
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Trace:
    """Facts about a request, for metrics, the log and problems."""

    network: str = ""
    question: str = ""
    status: int = 0  # of the response; 0 if there is none yet
    cases: int = 0  # of the batch it was part of
    body: bytes = b""
    path: str = ""  # that the router sees
    headers: Mapping[bytes, bytes] = field(default_factory=dict)  # by their names in lower case


def trace_of(request: Request) -> Trace:
    """The trace of a request."""
    trace: Trace = request.scope["jtgpu"]
    return trace


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(_encode(value), status, headers, JSON)


def parameters(given: QueryParams, kind: type[P]) -> P:
    """The parameters of a query string as a struct; its lists have the values of all parameters of their name."""
    # raises Refusal: If one is not what the struct says, or the struct forbids others and there are some.
    fields = {f.name: f.default_factory is list for f in msgspec.structs.fields(kind)}
    names = [name for name in given if name in fields or kind.__struct_config__.forbid_unknown_fields]
    texts = {name: given.getlist(name) if fields.get(name) else given[name] for name in names}
    try:
        return msgspec.convert(texts, kind, strict=False)
    except msgspec.ValidationError as error:
        detail, _, place = str(error).partition(" - at `$.")
        name = next((name for name in fields if re.match(rf"{name}\b", place)), "")
        about = {"field": name} if name else {}
        raise Refusal("invalid-argument", f"{name}: {detail}" if name else detail, **about) from None


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
        future.cancel()  # if the server stops


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
