"""What ``GET /v1/networks/{network}/...`` returns: the description of a network, CPTs, files and positions."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..draw.focus import Graph, graph_of, hub, neighbourhood
from ..errors import JtgpuError
from . import networks
from .hosted import Hosted
from .map_layout import MAX_NODES, map_layout, overview
from .problems import Refusal
from .requests import JSON, flag, json_response, number, unless_gone

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
