"""`App`: the server as an ASGI application."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import ArgumentError
from ..inference.evidence import read_findings
from ..inference.queries.scope import targets_of
from ..inference.tree import JunctionTree
from ..util.arguments import described
from ..util.version import __version__
from .admission import admit
from .guard import Guard, check_type
from .hosted import Hosted
from .metrics import Gauge, Metrics, Values
from .network_pages import cpt, describe, file, layout
from .openapi import openapi
from .page_files import FOLDER as PAGE
from .problems import Refusal, kind_of, problem
from .questions import QUESTIONS
from .questions.bodies import Posteriors
from .questions.form import Form
from .questions.rounding import rounded
from .request_log import log_request
from .requests import JSON, PROBLEM, Trace, flag, json_response, number, read, trace_of, unless_gone
from .settings import Settings
from .tables import Tables

__all__ = ["App"]

_log = logging.getLogger("jtgpu.serve")
_encode = msgspec.json.Encoder().encode
COMPRESSED = 2048  # bytes of a body from which it is compressed
Handler = Callable[[Request, Hosted], Awaitable[Response]]


class App:
    """Trees as a web service: a plain ASGI application.

    Parameters
    ----------
    trees : mapping of str to JunctionTree
        The networks by the names that clients use. The application does not close them.
    **options : `jtgpu.serve.settings.Settings`
        ``token``, ``allow_hosts``, ``allow_origins``, ``embed``, ``api_only``, ``read_only``, ``max_body``,
        ``max_upload``, ``max_cases``, ``max_batch``, ``queue``, ``timeout``, ``exact``, ``log``, ``log_evidence``.

    Examples
    --------
    >>> import jtgpu, jtgpu.serve
    >>> tree = jtgpu.load("asia").compile("reference")
    >>> app = jtgpu.serve.App({"asia": tree})  # for example: uvicorn.run(app)
    """

    def __init__(self, trees: Mapping[str, JunctionTree], **options: Any):
        self.settings = Settings.of(options)
        if not isinstance(cast(object, trees), Mapping) or not trees:
            raise ArgumentError(f"trees must be a mapping such as {{'asia': tree}}, not {described(trees)}")
        for name, tree in trees.items():
            if (
                not isinstance(cast(object, name), str)
                or not name
                or "/" in name
                or not isinstance(cast(object, tree), JunctionTree)
            ):
                raise ArgumentError(
                    f"trees must map names without slashes to compiled models, not {described(name)} to "
                    f"{described(tree)}"
                )
        self.networks = {name: Hosted(name, tree, self.settings) for name, tree in trees.items()}
        self._guard = Guard(self.settings)
        self._metrics = Metrics(self._gauges)
        self._tables = Tables(self.settings)
        self._state = "starting"
        self._warming: asyncio.Future[None] | None = None
        self._ids = itertools.count(1)
        self._router = Router(self._routes(), redirect_slashes=False, default=_not_found, lifespan=self._lifespan)
        self._stack: ASGIApp = GZipMiddleware(self._router, minimum_size=COMPRESSED, compresslevel=1)
        if self.settings.allow_origins:
            self._stack = CORSMiddleware(
                self._stack, self.settings.allow_origins, ("GET", "POST", "DELETE"), ("authorization", "content-type")
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
        self._tables.close()
        for hosted in self.networks.values():
            hosted.close()

    def use_hosts(self, *hosts: str) -> None:
        """Accept more names in the header Host."""
        self.settings = self.settings.with_hosts(hosts)
        self._guard = Guard(self.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._router(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
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
        memory: Values = {(name,): float(h.tree.plan.cost().bytes) for name, h in self.networks.items()}
        devices: Values = {}
        for h in self.networks.values():
            if h.tree.device:
                devices[(h.tree.device,)] = devices.get((h.tree.device,), 0.0) + h.tree.plan.cost().bytes
        return [
            ("jtgpu_queue", "Requests that wait for an answer", ("network",), waiting),
            ("jtgpu_memory_bytes", "Bytes of the tables of a plan", ("network",), memory),
            ("jtgpu_device_bytes", "Bytes of the tables of all plans on a device", ("device",), devices),
        ]

    # Requests -------------------------------------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request: guards, the route, problems, metrics and the log."""
        begun = time.perf_counter()
        trace = scope["jtgpu"] = Trace()
        scope["app"] = self  # then a route raises an error for methods that it does not have
        more = [*self._guard.headers]
        if self._state == "stopping":
            more.append((b"connection", b"close"))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            await self._check(scope)
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
            if self.settings.log != "none":
                log_request(self.settings, scope["method"], trace, self._next_id(), seconds)

    async def _check(self, scope: Scope) -> None:
        """Raise `Refusal` for a client that may not ask; wait until the networks are warm."""
        path, root = scope["path"], scope.get("root_path", "")
        path = path.removeprefix(root)
        if path in ("/healthz", "/readyz"):
            return
        headers = Headers(scope=scope)
        self._guard.check(headers, scope.get("scheme", "http"))
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
        found = problem(error, hosted.tree.model if hosted else None, body if isinstance(body, dict) else None)
        if found["status"] == 500:
            found["id"] = self._next_id()
            _log.error("internal error %s", found["id"], exc_info=error)
        elif found["status"] == 401:
            headers["www-authenticate"] = "Bearer"
        elif found["status"] == 503:
            headers["retry-after"] = "1"
        if kind_of(error) == "impossible-evidence":
            self._metrics.record_impossible()
        return Response(_encode(found), found["status"], headers, PROBLEM)

    def _routes(self) -> list[BaseRoute]:
        """All paths; the first ones are those with most requests."""
        network = "/v1/networks/{network}"
        questions: dict[str, Handler] = dict.fromkeys(QUESTIONS, self._question)
        questions |= {"table": self._table, "columns": self._tables.columns}
        found: list[BaseRoute] = [
            Route(f"{network}/{question}", self._of_network(question, handler), methods=["POST"])
            for question, handler in questions.items()
        ]
        for path, handler in (("", describe), ("/cpt/{variable:path}", cpt), ("/file", file), ("/layout", layout)):
            found.append(Route(f"{network}{path}", self._of_network(handler.__name__, handler)))
        job = self._tables.serve_job
        found += [
            Route("/v1/networks", self._list_networks),
            Route("/v1/jobs/{job}", job, methods=["GET", "DELETE"]),
            Route("/v1/jobs/{job}/{part}", job),
            Route("/healthz", self._report_health),
            Route("/readyz", self._report_readiness),
            Route("/metrics", self._report_metrics),
            Route("/openapi.json", self._report_openapi),
        ]
        if not self.settings.api_only:
            files = StaticFiles(directory=PAGE, check_dir=False)
            found.append(Mount("/page", files))
            found.append(Route("/", functools.partial(_index, files)))
        return found

    def _of_network(self, question: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint: the handler gets the network that the path names."""

        async def endpoint(request: Request) -> Response:
            name = request.path_params["network"]
            hosted = self.networks.get(name)
            if hosted is None:
                raise Refusal("unknown-network", f"there is no network {name[:200]!r}", networks=[*self.networks])
            trace = trace_of(request)
            trace.network, trace.question = name, question
            return await handler(request, hosted)

        return endpoint

    async def _list_networks(self, request: Request) -> Response:
        trace_of(request).question = "networks"
        found = [h.summary for h in self.networks.values()]
        return json_response({"networks": found, "version": __version__, "questions": [*QUESTIONS]})

    async def _report_health(self, request: Request) -> Response:
        return json_response({"status": "alive"})

    async def _report_readiness(self, request: Request) -> Response:
        networks = {n: {"backend": h.tree.backend, "device": h.tree.device} for n, h in self.networks.items()}
        return json_response({"status": self._state, "networks": networks}, 200 if self._state == "ready" else 503)

    async def _report_metrics(self, request: Request) -> Response:
        trace_of(request).question = "metrics"
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _report_openapi(self, request: Request) -> Response:
        return Response(openapi(), media_type=JSON)

    async def _table(self, request: Request, hosted: Hosted) -> Response:
        self._refuse_if_full()
        return await self._tables.table(request, hosted)

    def _refuse_if_full(self) -> None:
        waiting = sum(h.waiting for h in self.networks.values())
        if waiting >= self.settings.queue:
            raise Refusal("busy", f"{waiting:,} requests are waiting; try again later")

    async def _question(self, request: Request, hosted: Hosted) -> Response:
        check_type(request.headers, (JSON,))
        trace, settings = trace_of(request), self.settings
        question = trace.question
        body: Any = hosted.decoders[question].decode(await read(request, settings.max_body) or b"{}")
        self._refuse_if_full()
        form = _form(request)
        if question == "posteriors" and body.cases is None and not body.soft and not body.do:
            return await self._posteriors(request, hosted, body, form)
        if question == "posteriors" and body.cases is not None and len(body.cases) > settings.max_cases:
            raise Refusal(
                "too-many-cases", f"{len(body.cases):,} cases are more than {settings.max_cases:,}; use table",
                needed=len(body.cases), limit=settings.max_cases,
            )  # fmt: skip
        arrived = time.perf_counter()

        def compute() -> bytes:
            begun = time.perf_counter()
            admit(hosted.tree, hosted.rates, body, settings.timeout)
            found = QUESTIONS[question](hosted.tree, body, form)
            computed = time.perf_counter() - begun
            found["ms"] = _milliseconds(begun - arrived, computed)
            return _encode(rounded(found, form.digits))

        answer = await unless_gone(request, hosted.submit(compute), settings.timeout)
        trace.cases = len(body.cases) if question == "posteriors" and body.cases is not None else 1
        self._metrics.record_cases(trace.cases, trace.cases)
        return Response(answer, media_type=JSON)

    async def _posteriors(self, request: Request, hosted: Hosted, body: Posteriors, form: Form) -> Response:
        """Posteriors of one case: the most frequent question."""
        model = hosted.tree.model
        case = read_findings(model, body.evidence or {}, body.likelihood)
        targets = None if body.targets is None else targets_of(model, body.targets)
        future = hosted.batcher.submit(case, targets)
        if hosted.batcher.is_inline:
            answered = await future
        else:
            answered = await unless_gone(request, future, self.settings.timeout)
        trace_of(request).cases = answered.cases
        self._metrics.record_cases(1, answered.cases)
        found: dict[str, Any] = {
            "log_evidence": answered.log_evidence,
            "posteriors": hosted.named(answered.flat, targets, form),
            "ms": _milliseconds(answered.queued, answered.computed),
        }
        return json_response(rounded(found, form.digits))


def _milliseconds(queued: float, computed: float) -> dict[str, float]:
    return {"queued": round(1000 * queued, 3), "computed": round(1000 * computed, 3)}


def _form(request: Request) -> Form:
    if not request.scope.get("query_string"):
        return _PLAIN
    return Form(flag(request, "labels"), number(request, "digits", None, 1, 17))


_PLAIN = Form()


async def _index(files: StaticFiles, request: Request) -> Response:
    """The page."""
    trace_of(request).question = "page"
    return await files.get_response("index.html", request.scope)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    raise HTTPException(404, f"there is nothing at {scope['path'][:200]!r}")
