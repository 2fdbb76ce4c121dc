"""All paths of the server and what answers them."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from ..util.version import __version__
from .asking import QuestionEndpoints
from .hosted import Hosted
from .network_pages import cpt, describe, file, layout
from .openapi import docs_page, openapi
from .page_files import FOLDER as PAGE
from .page_module import page_module
from .problems import Refusal
from .questions import QUESTIONS
from .requests import JSON, json_response, trace_of
from .tables import Tables

if TYPE_CHECKING:
    from .metrics import Metrics

Handler = Callable[[Request, Hosted], Awaitable[Response]]


def routes(networks: Mapping[str, Hosted], questions: QuestionEndpoints, tables: Tables) -> list[BaseRoute]:
    """The routes of the API; the first ones are those with most requests."""

    async def table(request: Request, hosted: Hosted) -> Response:
        questions.refuse_if_full()
        return await tables.table(request, hosted)

    async def list_networks(request: Request) -> Response:
        trace_of(request).question = "networks"
        found = [h.summary for h in networks.values()]
        return json_response({"networks": found, "version": __version__, "questions": [*QUESTIONS]})

    network = "/v1/networks/{network}"
    handlers: dict[str, Handler] = dict.fromkeys(QUESTIONS, questions.question)
    handlers |= {"table": table, "columns": tables.columns}
    found: list[BaseRoute] = [
        Route(f"{network}/{question}", _of_network(networks, question, handler), methods=["POST"])
        for question, handler in handlers.items()
    ]
    for path, handler in (("", describe), ("/cpt/{variable:path}", cpt), ("/file", file), ("/layout", layout)):
        found.append(Route(f"{network}{path}", _of_network(networks, handler.__name__, handler)))
    job = tables.serve_job
    return [
        *found,
        Route("/v1/networks", list_networks),
        Route("/v1/jobs/{job}", job, methods=["GET", "DELETE"]),
        Route("/v1/jobs/{job}/{part}", job),
        Route("/openapi.json", _openapi),
        Route("/docs", _docs),
    ]


def state_routes(networks: Mapping[str, Hosted], state: Callable[[], str], metrics: Metrics) -> list[BaseRoute]:
    """The routes that report on the server itself."""

    async def health(request: Request) -> Response:
        return json_response({"status": "alive"})

    async def readiness(request: Request) -> Response:
        now = state()
        found = {name: hosted.status for name, hosted in networks.items()}
        return json_response({"status": now, "networks": found}, 200 if now == "ready" else 503)

    async def measured(request: Request) -> Response:
        trace_of(request).question = "metrics"
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return [Route("/healthz", health), Route("/readyz", readiness), Route("/metrics", measured)]


def page_routes(form: dict[str, Any] | None) -> list[BaseRoute]:
    """The routes of the page: of the form, if there is one, and of the network."""
    files = StaticFiles(directory=PAGE, check_dir=False)

    def page(name: str) -> Callable[[Request], Awaitable[Response]]:
        return functools.partial(_page, files, name)

    found: list[BaseRoute] = [Route("/page/all-{entry}.js", _page_module), Mount("/page", files)]
    found.append(Route("/map", page("index.html")))
    if form is None:
        return [*found, Route("/", page("index.html"))]

    async def describe_form(request: Request) -> Response:
        trace_of(request).question = "form"
        return json_response(form)

    return [*found, Route("/", page("form.html")), Route("/v1/form", describe_form)]


def _of_network(
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
