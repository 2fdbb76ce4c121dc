"""All paths of the server and what answers them."""

from __future__ import annotations

import functools
import gzip
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from ..inference.evidence import read_findings
from ..inference.queries.posteriors import targets_of
from ..util.version import __version__
from . import networks
from .batching import Answered
from .hosted import Hosted, layout
from .networks import written_formats
from .openapi import docs_page, openapi
from .page_module import FOLDER as PAGE
from .page_module import page_module
from .posteriors import PosteriorsQuestion
from .questions import QUESTIONS
from .registry import Form, admit, answering, decode, rounded, wrong_kind
from .replies import Encoding, accepts, encoding_of, form_of
from .requests import JSON, Refusal, Trace, json_response, read_body, trace_of, unless_gone
from .sequences import MAX_SLICES
from .settings import Head, Settings, check_type
from .tables import Tables

if TYPE_CHECKING:
    from .metrics import Metrics

COMPRESSED = 2048  # bytes of a body from which it is compressed
LOCAL = ("127.0.0.1", "::1")


class QuestionEndpoints:
    """``POST /v1/networks/NAME/mpe`` and all others of `QUESTIONS`.

    They have no use for starlette's routes, requests, responses and middleware, which take longer than the answer of a
    small network does.
    """

    def __init__(self, networks: Mapping[str, Hosted], settings: Settings, metrics: Metrics):
        self._networks, self._settings, self._metrics = networks, settings, metrics
        self._of_path: dict[str, tuple[Hosted, str]] = {}
        for hosted in networks.values():
            self.add(hosted)

    def add(self, hosted: Hosted) -> None:
        """Answer the questions of a network from now on."""
        for name in hosted.questions:
            self._of_path[f"/v1/networks/{hosted.name}{QUESTIONS[name].path}"] = (hosted, name)

    def drop(self, hosted: Hosted) -> None:
        """Answer them no more."""
        for name in hosted.questions:
            self._of_path.pop(f"/v1/networks/{hosted.name}{QUESTIONS[name].path}", None)

    def refuse_if_full(self) -> None:
        """Raise `Refusal` if too many requests are waiting."""
        waiting = sum(h.waiting for h in self._networks.values())
        if waiting >= self._settings.queue:
            raise Refusal("busy", f"{waiting:,} requests are waiting; try again later")

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer a question; false for any other request."""
        trace: Trace = scope["jtgpu"]
        if scope["method"] != "POST" or trace.path not in self._of_path:
            return False
        hosted, trace.question = self._of_path[trace.path]
        trace.network = hosted.name
        check_type(trace.headers, (JSON,))
        trace.body = await read_body(receive, trace.headers.get(b"content-length", b""), self._settings.max_body)
        body: Any = hosted.decoders[trace.question].decode(trace.body or b"{}")
        decode(body, hosted.states)
        self.refuse_if_full()
        encoding = encoding_of(trace.headers.get(b"accept", b""))
        if isinstance(body, PosteriorsQuestion) and body.is_single and hosted.is_batched:
            reply = await self._posteriors(hosted, body, form_of(scope, True), encoding, receive, trace)
        else:
            reply = await self._computed(hosted, body, form_of(scope, False), encoding.encode, receive, trace)
        fields = [(b"content-type", encoding.kind.encode())]
        if len(reply) >= COMPRESSED:
            fields.append((b"vary", b"Accept-Encoding"))
            if _pays(scope, trace.headers) and accepts(trace.headers.get(b"accept-encoding", b""), (b"gzip",)):
                reply = gzip.compress(reply, 1, mtime=0)
                fields.append((b"content-encoding", b"gzip"))
        fields.append((b"content-length", b"%d" % len(reply)))
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": reply})
        return True

    async def _computed(
        self, hosted: Hosted, body: Any, form: Form, encode: Callable[[Any], bytes], receive: Receive, trace: Trace
    ) -> bytes:
        """The encoded reply to a question that has the second thread for itself."""
        settings = self._settings
        n = body.n_cases
        if n > settings.max_cases:
            raise Refusal(
                "too-many-cases", f"{n:,} cases are more than {settings.max_cases:,}; use table",
                needed=n, limit=settings.max_cases,
            )  # fmt: skip
        arrived = time.perf_counter()

        def compute() -> bytes:
            begun = time.perf_counter()
            tree: Any = answering(hosted.tree, trace.question)
            admit(tree, hosted.rates, body, settings.timeout)
            reply = body.answer(tree, form)
            reply["ms"] = _milliseconds(begun - arrived, time.perf_counter() - begun)
            return encode(rounded(reply, form.digits))

        reply = await unless_gone(receive, hosted.submit(compute), settings.timeout)
        trace.cases = n
        self._metrics.record_cases(n, n)
        return reply

    async def _posteriors(
        self, hosted: Hosted, body: PosteriorsQuestion, form: Form, encoding: Encoding, receive: Receive, trace: Trace
    ) -> bytes:
        """Posteriors of one case, computed with those of other requests."""
        model = hosted.states
        case = read_findings(model, body.evidence or {}, body.likelihood)
        targets = None if body.targets is None else targets_of(model, body.targets)

        def write(answered: Answered) -> tuple[bytes, int]:
            flat, log_evidence, queued, computed, n = answered
            reply = hosted.replies.reply(flat, log_evidence, targets, form, encoding.is_binary)
            reply["ms"] = _milliseconds(queued, computed)
            return encoding.encode(reply), n

        future = hosted.batcher.submit(case, targets, write)
        if hosted.batcher.is_inline:
            reply, trace.cases = await future
        else:
            reply, trace.cases = await unless_gone(receive, future, self._settings.timeout)
        self._metrics.record_cases(1, trace.cases)
        return reply


def _pays(scope: Scope, headers: Head) -> bool:
    """Whether compression saves time: not for a client on this machine, unless that is a proxy."""
    client = scope.get("client")
    return not client or client[0] not in LOCAL or b"x-forwarded-for" in headers


def _milliseconds(queued: float, computed: float) -> dict[str, float]:
    return {"queued": round(1000 * queued, 3), "computed": round(1000 * computed, 3)}


# What ``GET /v1/networks/{network}/...`` returns.


async def describe(request: Request, hosted: Hosted) -> Response:
    """Everything about a network except its numbers."""
    headers = {"etag": f'"{hosted.digest}"', "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    settings = hosted.settings
    limits = {
        "cases": settings.max_cases, "body": settings.max_body, "upload": settings.max_upload,
        "seconds": settings.timeout, "read_only": settings.read_only, "slices": MAX_SLICES,
    }  # fmt: skip
    return json_response({**hosted.description, "limits": limits}, headers=headers)


async def cpt(request: Request, hosted: Hosted) -> Response:
    """A CPT."""
    return json_response(networks.cpt(hosted.tree, request.path_params["variable"]))


async def file(request: Request, hosted: Hosted) -> Response:
    """The network as a file."""
    name = request.query_params.get("format", "net")
    text = await unless_gone(
        request.receive, hosted.submit(lambda: networks.file(hosted.network, name)), hosted.settings.timeout
    )
    headers = {"content-disposition": f'attachment; filename="network.{name}"'}
    return Response(text.encode("utf-8", "replace"), headers=headers, media_type="text/plain")


Handler = Callable[[Request, Hosted], Awaitable[Response]]


def routes(networks: Mapping[str, Hosted], questions: QuestionEndpoints, tables: Tables) -> list[BaseRoute]:
    """The routes of the API but those of questions."""

    async def table(request: Request, hosted: Hosted) -> Response:
        questions.refuse_if_full()
        return await tables.table(request, hosted)

    async def list_networks(request: Request) -> Response:
        trace_of(request).question = "networks"
        of_networks = [h.summary for h in networks.values()]
        about = {"version": __version__, "questions": [*QUESTIONS], "formats": written_formats()}
        return json_response({"networks": of_networks, **about})

    async def refuse(request: Request, hosted: Hosted) -> Response:
        raise wrong_kind(hosted.tree, trace_of(request).question)

    network = "/v1/networks/{network}"
    of_networks: list[BaseRoute] = [
        # of other kinds of networks, and of networks that do not exist: `QuestionEndpoints` answers all others
        *(Route(network + q.path, of_network(networks, name, refuse), methods=["POST"])
          for name, q in QUESTIONS.items()),
        Route(f"{network}/table", of_network(networks, "table", table), methods=["POST"]),
        Route(f"{network}/columns", of_network(networks, "columns", tables.columns), methods=["POST"]),
    ]  # fmt: skip
    for path, handler in (("", describe), ("/cpt/{variable:path}", cpt), ("/file", file), ("/layout", layout)):
        of_networks.append(Route(f"{network}{path}", of_network(networks, handler.__name__, handler)))
    job = tables.serve_job
    return [
        *of_networks, Route("/v1/networks", list_networks), Route("/v1/jobs/{job}", job, methods=["GET", "DELETE"]),
        Route("/v1/jobs/{job}/{part}", job), Route("/openapi.json", _openapi), Route("/docs", _docs),
    ]


def state_routes(networks: Mapping[str, Hosted], state: Callable[[], str], metrics: Metrics) -> list[BaseRoute]:
    """The routes that report on the server itself."""

    async def health(request: Request) -> Response:
        return json_response({"status": "alive"})

    async def readiness(request: Request) -> Response:
        now = state()
        statuses = {name: hosted.status for name, hosted in networks.items()}
        return json_response({"status": now, "networks": statuses}, 200 if now == "ready" else 503)

    async def measured(request: Request) -> Response:
        trace_of(request).question = "metrics"
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return [Route("/healthz", health), Route("/readyz", readiness), Route("/metrics", measured)]


def page_routes(form: Mapping[str, object] | None) -> list[BaseRoute]:
    """The routes of the page: of the form, if there is one, and of the network."""
    files = StaticFiles(directory=PAGE, check_dir=False)

    def page(name: str) -> Callable[[Request], Awaitable[Response]]:
        return functools.partial(_page, files, name)

    of_page: list[BaseRoute] = [Route("/page/all-{entry}.js", _page_module), Mount("/page", files)]
    of_page.append(Route("/map", page("index.html")))
    if form is None:
        return [*of_page, Route("/", page("index.html"))]

    async def describe_form(request: Request) -> Response:
        trace_of(request).question = "form"
        return json_response(form)

    return [*of_page, Route("/", page("form.html")), Route("/v1/form", describe_form)]


def of_network(
    networks: Mapping[str, Hosted], question: str, handler: Handler
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint: the handler gets the network that the path names."""

    async def endpoint(request: Request) -> Response:
        name = request.path_params["network"]
        hosted = networks.get(name)
        if hosted is None:
            raise Refusal("unknown-network", f"there is no network {name[:200]!r}", networks=[*networks])
        trace = trace_of(request)
        trace.network, trace.question = name, question
        return await handler(request, hosted)

    return endpoint


async def _openapi(request: Request) -> Response:
    return Response(openapi(), media_type=JSON)


async def _docs(request: Request) -> Response:
    return Response(docs_page(), media_type="text/html")


async def _page_module(request: Request) -> Response:
    """A module of the page with all that it imports: its more than 30 modules took longer to ask for than to run."""
    entry = request.path_params["entry"]
    if entry not in ("main", "form"):
        raise HTTPException(404, f"there is no module {entry[:100]!r}")
    trace_of(request).question = "page"
    return Response(page_module(f"{entry}.js"), media_type="text/javascript")


async def _page(files: StaticFiles, name: str, request: Request) -> Response:
    """A page."""
    trace_of(request).question = "page"
    return await files.get_response(name, request.scope)


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a path without a route."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    raise HTTPException(404, f"there is nothing at {scope['path'][:200]!r}")
