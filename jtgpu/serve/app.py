"""`App`: the server as an ASGI application."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
from starlette._utils import get_route_path
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import ArgumentError
from ..util.arguments import described
from .editing import Editing, edit_routes
from .hosted import Hosted
from .metrics import Gauge, Metrics, Values
from .page_module import read_form
from .requests import PROBLEM, Refusal, Trace, kind_of, problem
from .routes import COMPRESSED, QuestionEndpoints, not_found, page_routes, routes, state_routes
from .settings import Guard, Head, Settings, headers_of
from .tables import Tables
from .trees import AnyTree

# A line for each request, on stderr.

def log_request(settings: Settings, method: str, trace: Trace, request_id: str, seconds: float) -> None:
    """Write a line about a request, as text or JSON; evidence only if that was requested."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    entry: dict[str, Any] = {
        "time": now.replace("+00:00", "Z"), "id": request_id, "method": method,
        "network": trace.network, "question": trace.question, "status": trace.status, "ms": round(1000 * seconds, 3),
        "batch": trace.cases,
    }
    if settings.log_evidence and trace.body:
        entry["body"] = trace.body[:10_000].decode("utf-8", "replace")
    if settings.log == "json":
        line = json.dumps(entry)
    else:
        line = " ".join(str(v) if not isinstance(v, str) or v.isprintable() else ascii(v) for v in entry.values() if v)
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


_log = logging.getLogger("jtgpu.serve")
_encode = msgspec.json.Encoder().encode
SAVE = 0.5  # seconds between two files of metrics, where there are several workers


class App:
    """Trees as a web service: a plain ASGI application.

    Parameters
    ----------
    trees : mapping of str to JunctionTree, DynamicTree, MixedTree, MixedDynamicTree or DecisionTree
        The networks by the names that clients use. The application does not close them.
    **options : `jtgpu.serve.settings.Settings`
        ``token``, ``allow_hosts``, ``allow_origins``, ``embed``, ``api_only``, ``read_only``, ``max_body``,
        ``max_upload``, ``max_cases``, ``max_batch``, ``queue``, ``timeout``, ``body_timeout``, ``exact``, ``log``,
        ``log_evidence``.

    Examples
    --------
    >>> import jtgpu, jtgpu.serve
    >>> tree = jtgpu.load("asia").compile("reference")
    >>> app = jtgpu.serve.App({"asia": tree})  # for example: uvicorn.run(app)
    """

    def __init__(self, trees: Mapping[str, AnyTree], **options: Any):
        self.settings = Settings(**options)
        if not isinstance(cast(object, trees), Mapping) or not trees:
            raise ArgumentError(f"trees must be a mapping such as {{'asia': tree}}, not {described(trees)}")
        for name, tree in trees.items():
            is_name = isinstance(cast(object, name), str) and name and "/" not in name
            if not is_name or not isinstance(cast(object, tree), AnyTree):
                raise ArgumentError(
                    f"trees must map names without slashes to compiled models, not {described(name)} to "
                    f"{described(tree)}"
                )
        self.networks = {name: Hosted(name, tree, self.settings) for name, tree in trees.items()}
        self._guard = Guard(self.settings)
        self._metrics = Metrics(self._gauges, self.settings.metrics_folder)
        self._tables = Tables(self.settings)
        self._questions = QuestionEndpoints(self.networks, self.settings, self._metrics)
        self._state = "starting"
        self._warming: asyncio.Future[None] | None = None
        self._saving: asyncio.TimerHandle | None = None
        self._ids = itertools.count(1)
        self._editing = Editing(self.networks, self._questions, self.settings)
        of_router = routes(self.networks, self._questions, self._tables)
        of_router += edit_routes(self.networks, self._editing)
        of_router += state_routes(self.networks, lambda: self._state, self._metrics)
        if not self.settings.api_only:
            models = {n: h.states for n, h in self.networks.items()}
            of_router += page_routes(read_form(self.settings.page, models) if self.settings.page else None)
        self._router = Router(of_router, redirect_slashes=False, default=not_found, lifespan=self._lifespan)
        self._others = GZipMiddleware(self._router, minimum_size=COMPRESSED, compresslevel=1)
        self._stack: ASGIApp = self._answer
        if self.settings.allow_origins:
            self._stack = CORSMiddleware(
                self._answer, self.settings.allow_origins, ("GET", "POST", "PUT", "DELETE"),
                ("authorization", "content-type"),
            )

    # Life -----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """``"starting"``, ``"ready"`` or ``"stopping"``."""
        return self._state

    def warm(self, progress: Callable[[str], None] = lambda line: None) -> None:
        """Load what answers need and measure how long they take; requests wait for it."""
        if self._state != "starting":
            return
        for name, hosted in self.networks.items():
            progress(f"warming up {name}")
            hosted.warm()
        self._state = "ready"

    def stop(self) -> None:
        """Stop soon: ``/readyz`` answers 503, and every response closes its connection."""
        self._state = "stopping"

    def close(self) -> None:
        """End all threads, after what they compute is finished."""
        self._state = "stopping"
        self._metrics.save()
        self._tables.close()
        for hosted in self.networks.values():
            hosted.close()
        self._editing.close()

    def use_hosts(self, *hosts: str) -> None:
        """Accept more names in the header Host."""
        self.settings = self.settings.replaced(allow_hosts=(*self.settings.allow_hosts, *hosts))
        self._guard = Guard(self.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._router(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        await asyncio.to_thread(self.warm)
        yield
        self.stop()
        await asyncio.to_thread(self.close)

    async def _ready(self) -> None:
        """Warm up before the first request, where nothing else did."""
        if self._warming is None:
            self._warming = asyncio.ensure_future(asyncio.to_thread(self.warm))
        await asyncio.shield(self._warming)

    def _gauges(self) -> list[Gauge]:
        waiting: Values = {(name,): float(h.waiting) for name, h in self.networks.items()}
        memory: Values = {(name,): h.memory for name, h in self.networks.items()}
        devices: Values = {}
        for h in self.networks.values():
            if device := h.status["device"]:
                devices[(device,)] = devices.get((device,), 0.0) + h.memory
        return [
            ("jtgpu_queue", "Requests that wait for an answer", ("network",), waiting),
            ("jtgpu_memory_bytes", "Bytes of the tables of a plan", ("network",), memory),
            ("jtgpu_device_bytes", "Bytes of the tables of all plans on a device", ("device",), devices),
        ]

    # Requests -------------------------------------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request: guards, the answer, problems, metrics and the log."""
        begun = time.perf_counter()
        trace = scope["jtgpu"] = Trace()
        scope["app"] = self  # then a route raises an error for methods that it does not have
        more = self._guard.headers
        if self._state == "stopping":
            more = [*more, (b"connection", b"close")]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            trace.path = get_route_path(scope)  # the path that the router sees: what is checked here is what it serves
            trace.headers = headers_of(scope)
            await self._check(trace.path, trace.headers, scope)
            await self._stack(scope, receive, send_with_headers)
        except ClientDisconnect:
            trace.status = 499
        except Exception as error:
            if trace.status:  # part of the response has been sent: the connection breaks
                raise
            with suppress(OSError):
                await self._problem(error, trace)(scope, receive, send_with_headers)
        finally:
            seconds = time.perf_counter() - begun
            self._metrics.record(trace.network, trace.question or "other", trace.status, seconds)
            if self.settings.metrics_folder and self._saving is None:
                self._saving = asyncio.get_running_loop().call_later(SAVE, self._save)
            if self.settings.log != "none":
                log_request(self.settings, scope["method"], trace, self._next_id(), seconds)

    def _save(self) -> None:
        """Let other workers know the counts."""
        self._saving = None
        self._metrics.save()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a question, or any other request by starlette's router."""
        if not await self._questions.respond(scope, receive, send):
            await self._others(scope, receive, send)

    async def _check(self, path: str, headers: Head, scope: Scope) -> None:
        """Raise `Refusal` for a client without access; wait until the networks are warm."""
        if path in ("/healthz", "/readyz"):
            return
        self._guard.check(headers, scope)
        if (path.startswith("/v1/") or path == "/metrics") and scope["method"] != "OPTIONS":
            self._guard.check_token(headers)
            if self._state == "starting":
                await self._ready()

    def _next_id(self) -> str:
        return f"{os.getpid():x}-{next(self._ids):x}"

    def _problem(self, error: Exception, trace: Trace) -> Response:
        """The response to an error."""
        headers = {}
        if isinstance(error, HTTPException):  # of a route, or of the files of the page
            headers = dict(error.headers or {})
            kind = "method-not-allowed" if error.status_code == 405 else "not-found"
            error = Refusal(kind, f"{error.detail}; /openapi.json lists all paths and methods")
        hosted = self.networks.get(trace.network)
        body: Any = None
        if hosted is not None and trace.body:
            with suppress(Exception):
                body = msgspec.json.decode(trace.body)
        answer = problem(error, hosted.network if hosted else None, body if isinstance(body, dict) else None)
        if answer["status"] == 500:
            answer["id"] = self._next_id()
            _log.error("internal error %s", answer["id"], exc_info=error)
        elif answer["status"] == 401:
            headers["www-authenticate"] = "Bearer"
        elif answer["status"] == 503:
            headers["retry-after"] = "1"
        if kind_of(error) == "impossible-evidence":
            self._metrics.record_impossible()
        return Response(_encode(answer), answer["status"], headers, PROBLEM)
