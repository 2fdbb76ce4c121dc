"""All paths of the server and what answers them."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from ..draw.drawing import Graph, graph_of, hub, neighbourhood
from ..errors import JtgpuError
from ..util.version import __version__
from . import networks
from .asking import QuestionEndpoints
from .networks import Hosted
from .openapi import docs_page, openapi
from .page_module import FOLDER as PAGE
from .page_module import MAX_NODES, map_layout, overview, page_module
from .questions import QUESTIONS
from .requests import JSON, Refusal, flag, json_response, number, trace_of, unless_gone
from .tables import Tables

if TYPE_CHECKING:
    from .metrics import Metrics

# What ``GET /v1/networks/{network}/...`` returns: the description of a network, CPTs, files and positions.

MOST = 150  # variables of a layout
_encode = msgspec.json.Encoder().encode


async def describe(request: Request, hosted: Hosted) -> Response:
    """Everything about a network except its numbers."""
    headers = {"etag": f'"{hosted.digest}"', "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    settings = hosted.settings
    limits = {
        "cases": settings.max_cases, "body": settings.max_body, "upload": settings.max_upload,
        "seconds": settings.timeout, "read_only": settings.read_only,
    }  # fmt: skip
    return json_response({**hosted.description, "limits": limits}, headers=headers)


async def cpt(request: Request, hosted: Hosted) -> Response:
    """A CPT."""
    return json_response(networks.cpt(hosted.tree, request.path_params["variable"]))


async def file(request: Request, hosted: Hosted) -> Response:
    """The network as a file."""
    name = request.query_params.get("format", "net")
    text, suffix = await unless_gone(
        request.receive, hosted.submit(lambda: networks.file(hosted.tree.model, name)), hosted.settings.timeout
    )
    headers = {"content-disposition": f'attachment; filename="network.{suffix}"'}
    return Response(text.encode("utf-8", "replace"), headers=headers, media_type="text/plain")


async def layout(request: Request, hosted: Hosted) -> Response:
    """Positions for a drawing."""
    compute = _requested(request, hosted)
    body = await unless_gone(request.receive, hosted.submit(lambda: _encode(compute())), hosted.settings.timeout)
    return Response(body, media_type=JSON)


def _requested(request: Request, hosted: Hosted) -> Any:
    """A function that computes the positions that the query string describes."""
    tree = hosted.tree
    model = tree.model
    if flag(request, "overview"):
        return lambda: tree.cached("serve-layout", "overview", lambda: overview(model))
    nodes = _nodes(request, hosted, graph_of(model))
    key = None if nodes is None else tuple(nodes)
    return lambda: tree.cached("serve-layout", key, lambda: map_layout(model, nodes))


def _nodes(request: Request, hosted: Hosted, graph: Graph) -> list[int] | None:
    """Numbers of the variables to place, ascending; None: all."""
    model = hosted.tree.model
    most = number(request, "most", MOST, 1, MAX_NODES) or MOST
    hops = number(request, "hops", 2, 0, 1000) or 0
    given = ",".join(request.query_params.getlist("nodes"))
    if given:
        words = given.split(",")
        if not all(w.isascii() and w.isdigit() and len(w) < 10 for w in words):
            raise Refusal("invalid-argument", "nodes must be numbers of variables, separated by commas", field="nodes")
        nodes = sorted({model.index(int(w)) for w in words})
        if len(nodes) > MAX_NODES:
            raise Refusal("invalid-argument", f"a layout has at most {MAX_NODES:,} variables", field="nodes")
        return nodes
    around = request.query_params.getlist("around")
    if not len(model) or (not around and len(model) <= most):
        return None
    start = [*dict.fromkeys(v for name in around for v in _named(hosted, name))]
    return neighbourhood(graph, start or [hub(graph)], hops, most)


def _named(hosted: Hosted, name: str) -> list[int]:
    """The variable of a name, or of several that commas separate."""
    model = hosted.tree.model
    try:
        return [model.index(name)]
    except JtgpuError:
        if "," not in name:
            raise
    return [model.index(part) for part in name.split(",")]


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
