"""`App`: the server as an ASGI application."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec

from ..errors import ArgumentError
from ..inference.evidence import read_findings
from ..inference.queries.scope import targets_of
from ..inference.tree import JunctionTree
from ..util.arguments import described
from ..util.version import __version__
from .admission import admit
from .exchange import JSON, PROBLEM, Exchange, Gone, Receive, Scope, Send
from .guard import Guard
from .hosted import Hosted
from .metrics import Gauge, Metrics, Values
from .network_pages import NetworkPages
from .openapi import openapi
from .page_files import page_file
from .problems import Refusal, kind_of, problem
from .questions import QUESTIONS
from .questions.bodies import Posteriors
from .questions.form import Form
from .questions.rounding import rounded
from .request_log import log_request
from .settings import Settings
from .tables import Tables

__all__ = ["App"]

_log = logging.getLogger("jtgpu.serve")
_encode = msgspec.json.Encoder().encode


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
        self.settings = Settings(**options)
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
        self._pages = NetworkPages(self.settings)
        self._state = "starting"
        self._warming: asyncio.Future[None] | None = None
        self._ids = itertools.count(1)
        self._under_way = 0

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
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:  # websocket
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await asyncio.to_thread(self.warm)
        except Exception as error:
            _log.exception("the server cannot start")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.stop()
        await asyncio.to_thread(self.close)
        await send({"type": "lifespan.shutdown.complete"})

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
        begun = time.perf_counter()
        exchange = Exchange(scope, receive, send, [*self._guard.headers])
        if self._state == "stopping":
            exchange.more_headers.append((b"connection", b"close"))
        self._under_way += 1
        try:
            await self._answer(exchange)
        except Gone:
            exchange.status = 499
        except Exception as error:
            await self._fail(exchange, error)
        finally:
            self._under_way -= 1
            seconds = time.perf_counter() - begun
            self._metrics.record(exchange.network, exchange.question or "other", exchange.status, seconds)
            if self.settings.log != "none":
                log_request(self.settings, exchange, self._next_id(), seconds)

    def _next_id(self) -> str:
        return f"{os.getpid():x}-{next(self._ids):x}"

    async def _fail(self, exchange: Exchange, error: BaseException, hosted: Hosted | None = None) -> None:
        """Respond with the problem that an error is."""
        if exchange.status:  # part of the response is on its way: the connection breaks
            raise error
        hosted = hosted or self.networks.get(exchange.network)
        body: Any = None
        if hosted is not None and exchange.body:
            with suppress(Exception):
                body = msgspec.json.decode(exchange.body)
        found = problem(error, hosted.tree.model if hosted else None, body if isinstance(body, dict) else None)
        headers = {}
        if found["status"] == 500:
            found["id"] = self._next_id()
            _log.error("internal error %s", found["id"], exc_info=error)
        elif found["status"] == 401:
            headers["www-authenticate"] = "Bearer"
        elif found["status"] == 503:
            headers["retry-after"] = "1"
        elif found["status"] == 405:
            headers["allow"] = ", ".join(found.get("allowed", ()))
        if kind_of(error) == "impossible-evidence":
            self._metrics.record_impossible()
        with suppress(OSError):
            await exchange.respond(_encode(found), PROBLEM, found["status"], headers)

    async def _answer(self, exchange: Exchange) -> None:
        path = exchange.path
        if path == "/healthz":
            exchange.question = "health"
            await exchange.json({"status": "alive"})
            return
        if path == "/readyz":
            exchange.question = "health"
            await self._report_readiness(exchange)
            return
        more = self._guard.check(exchange.headers, exchange.scope.get("scheme", "http"))
        exchange.more_headers += more
        if exchange.method == "OPTIONS":
            await self._preflight(exchange, bool(more))
            return
        if path.startswith("/v1/") or path == "/metrics":
            self._guard.check_token(exchange.headers)
            if self._state == "starting":
                await self._ready()
            await self._serve(exchange)
            return
        _only(exchange, "GET", "HEAD")
        if path == "/openapi.json":
            exchange.question = "openapi"
            await exchange.respond(openapi(), JSON)
            return
        await self._serve_page(exchange)

    async def _preflight(self, exchange: Exchange, is_allowed: bool) -> None:
        if is_allowed:
            exchange.more_headers += [
                (b"access-control-allow-methods", b"GET, POST, DELETE"),
                (b"access-control-allow-headers", b"authorization, content-type"),
                (b"access-control-max-age", b"600"),
            ]
        exchange.status = 204
        await exchange.send({"type": "http.response.start", "status": 204, "headers": exchange.more_headers})
        await exchange.send({"type": "http.response.body"})

    async def _report_readiness(self, exchange: Exchange) -> None:
        networks = {n: {"backend": h.tree.backend, "device": h.tree.device} for n, h in self.networks.items()}
        status = 200 if self._state == "ready" else 503
        await exchange.json({"status": self._state, "networks": networks}, status)

    async def _serve_page(self, exchange: Exchange) -> None:
        exchange.question = "page"
        name = exchange.path.removeprefix("/page/") if exchange.path.startswith("/page/") else ""
        name = "index.html" if exchange.path in ("/", "") else name
        found = None if self.settings.api_only else page_file(name)
        if found is None:
            raise Refusal("not-found", f"there is nothing at {exchange.path[:200]!r}")
        headers = {"etag": found.tag, "cache-control": "no-cache"}
        if exchange.headers.get(b"if-none-match", b"").decode("latin-1") == found.tag:
            await exchange.respond(b"", found.kind, 304, headers)
            return
        await exchange.respond(found.body, found.kind, headers=headers)

    async def _serve(self, exchange: Exchange) -> None:
        """``/v1/...`` and ``/metrics``."""
        parts = exchange.path.split("/")[2:]
        if exchange.path == "/metrics":
            _only(exchange, "GET", "HEAD")
            exchange.question = "metrics"
            await exchange.respond(self._metrics.text(), "text/plain; version=0.0.4; charset=utf-8")
        elif parts == ["networks"]:
            _only(exchange, "GET", "HEAD")
            exchange.question = "networks"
            found = [h.summary for h in self.networks.values()]
            await exchange.json({"networks": found, "version": __version__, "questions": [*QUESTIONS]})
        elif parts[0] == "networks":
            hosted = self.networks.get(parts[1])
            if hosted is None:
                raise Refusal("unknown-network", f"there is no network {parts[1][:200]!r}", networks=[*self.networks])
            exchange.network = hosted.name
            question = parts[2] if len(parts) == 3 else ""
            if question in QUESTIONS:
                _only(exchange, "POST")
                exchange.question = question
                await self._question(exchange, hosted)
            elif question in ("table", "columns"):
                _only(exchange, "POST")
                exchange.question = question
                self._refuse_if_full()
                await self._tables.serve(exchange, hosted, question)
            else:
                _only(exchange, "GET", "HEAD")
                exchange.question = question or "network"
                await self._pages.serve(exchange, hosted, parts[2:])
        elif parts[0] == "jobs" and len(parts) in (2, 3):
            exchange.question = "job"
            _only(exchange, *(("GET", "HEAD", "DELETE") if len(parts) == 2 else ("GET", "HEAD")))
            await self._tables.serve_job(exchange, parts[1], parts[2] if len(parts) == 3 else "")
        else:
            raise Refusal("not-found", f"there is nothing at {exchange.path[:200]!r}")

    def _refuse_if_full(self) -> None:
        waiting = sum(h.waiting for h in self.networks.values())
        if waiting >= self.settings.queue:
            raise Refusal("busy", f"{waiting:,} requests are waiting; try again later")

    async def _question(self, exchange: Exchange, hosted: Hosted) -> None:
        self._guard.check_type(exchange.headers, (JSON,))
        question, settings = exchange.question, self.settings
        body: Any = hosted.decoders[question].decode(await exchange.read(settings.max_body) or b"{}")
        self._refuse_if_full()
        form = _form(exchange)
        if question == "posteriors" and body.cases is None and not body.soft and not body.do:
            await self._posteriors(exchange, hosted, body, form)
            return
        if question == "posteriors" and body.cases is not None and len(body.cases) > settings.max_cases:
            raise Refusal(
                "too-many-cases", f"{len(body.cases):,} cases are more than {settings.max_cases:,}; use table",
                needed=len(body.cases), limit=settings.max_cases,
            )  # fmt: skip
        arrived = time.perf_counter()

        def compute() -> tuple[bytes, float, float]:
            begun = time.perf_counter()
            admit(hosted.tree, hosted.rates, body, settings.timeout)
            found = QUESTIONS[question](hosted.tree, body, form)
            computed = time.perf_counter() - begun
            found["ms"] = _milliseconds(begun - arrived, computed)
            return _encode(rounded(found, form.digits)), begun - arrived, computed

        answer, exchange.queued, exchange.computed = await exchange.unless_gone(
            hosted.submit(compute), settings.timeout
        )
        exchange.cases = len(body.cases) if question == "posteriors" and body.cases is not None else 1
        self._metrics.record_cases(exchange.cases, exchange.cases)
        await exchange.respond(answer, JSON)

    async def _posteriors(self, exchange: Exchange, hosted: Hosted, body: Posteriors, form: Form) -> None:
        """Posteriors of one case: the most frequent question."""
        model = hosted.tree.model
        case = read_findings(model, body.evidence or {}, body.likelihood)
        targets = None if body.targets is None else targets_of(model, body.targets)
        future = hosted.batcher.submit(case, targets)
        if hosted.batcher.is_inline:
            answered = await future
        else:
            answered = await exchange.unless_gone(future, self.settings.timeout)
        exchange.queued, exchange.cases = answered.queued, answered.cases
        self._metrics.record_cases(1, answered.cases)
        found: dict[str, Any] = {
            "log_evidence": answered.log_evidence,
            "posteriors": hosted.named(answered.flat, targets, form),
            "ms": _milliseconds(answered.queued, answered.computed),
        }
        await exchange.respond(_encode(rounded(found, form.digits)), JSON)


def _milliseconds(queued: float, computed: float) -> dict[str, float]:
    return {"queued": round(1000 * queued, 3), "computed": round(1000 * computed, 3)}


def _form(exchange: Exchange) -> Form:
    if not exchange.scope.get("query_string"):
        return _PLAIN
    return Form(exchange.flag("labels"), exchange.number("digits", None, 1, 17))


_PLAIN = Form()


def _only(exchange: Exchange, *methods: str) -> None:
    """Raise `Refusal` for another method."""
    if exchange.method not in methods:
        raise Refusal(
            "method-not-allowed",
            f"{exchange.method[:20]} is not allowed here; use {' or '.join(m for m in methods if m != 'HEAD')}",
            allowed=[*methods],
        )
