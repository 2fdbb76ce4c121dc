"""What ``GET /v1/networks/{name}/...`` returns: the description of a network, CPTs, files and positions."""

from __future__ import annotations

from typing import Any

import msgspec

from ..draw.focus import Graph, graph_of, hub, neighbourhood
from ..errors import JtgpuError
from . import networks
from .exchange import JSON, Exchange
from .hosted import Hosted
from .map_layout import MAX_NODES, map_layout, overview
from .problems import Refusal
from .settings import Settings

__all__ = ["NetworkPages"]

MOST = 150  # variables of a layout
_encode = msgspec.json.Encoder().encode


class NetworkPages:
    """Answers of GET requests; they depend on the model alone, so clients may cache them."""

    def __init__(self, settings: Settings):
        self._settings = settings

    async def serve(self, exchange: Exchange, hosted: Hosted, parts: list[str]) -> None:
        """Respond; `parts` is the path below the name of the network."""
        if not parts:
            tag = f'"{hosted.digest}"'
            headers = {"etag": tag, "cache-control": "no-cache"}
            if exchange.headers.get(b"if-none-match", b"").decode("latin-1") == tag:
                await exchange.respond(b"", JSON, 304, headers)
                return
            settings = self._settings
            limits = {
                "cases": settings.max_cases, "body": settings.max_body, "upload": settings.max_upload,
                "seconds": settings.timeout, "read_only": settings.read_only,
            }  # fmt: skip
            await exchange.json({**hosted.description, "limits": limits}, headers=headers)
        elif parts[0] == "cpt" and len(parts) > 1:
            await exchange.json(networks.cpt(hosted.tree, "/".join(parts[1:])))
        elif parts == ["file"]:
            text, suffix = await exchange.unless_gone(
                hosted.submit(lambda: networks.file(hosted.tree.model, exchange.parameter("format", "net"))),
                self._settings.timeout,
            )
            headers = {"content-disposition": f'attachment; filename="network.{suffix}"'}
            await exchange.respond(text.encode("utf-8", "replace"), "text/plain; charset=utf-8", headers=headers)
        elif parts == ["layout"]:
            request = _requested(exchange, hosted)
            body = await exchange.unless_gone(hosted.submit(lambda: _encode(request())), self._settings.timeout)
            await exchange.respond(body, JSON)
        else:
            raise Refusal("not-found", f"there is nothing at {exchange.path[:200]!r}")


def _requested(exchange: Exchange, hosted: Hosted) -> Any:
    """A function that computes the positions that the query string describes."""
    tree = hosted.tree
    model = tree.model
    if exchange.flag("overview"):
        return lambda: tree.cached("serve-layout", "overview", lambda: overview(model))
    graph = graph_of(model)
    nodes = _nodes(exchange, hosted, graph)

    key = None if nodes is None else tuple(nodes)
    return lambda: tree.cached("serve-layout", key, lambda: map_layout(model, nodes))


def _nodes(exchange: Exchange, hosted: Hosted, graph: Graph) -> list[int] | None:
    """Numbers of the variables to place, ascending; None: all."""
    model = hosted.tree.model
    most = exchange.number("most", MOST, 1, MAX_NODES) or MOST
    hops = exchange.number("hops", 2, 0, 1000) or 0
    given = ",".join(exchange.query.get("nodes", []))
    if given:
        words = given.split(",")
        if not all(w.isascii() and w.isdigit() and len(w) < 10 for w in words):
            raise Refusal("invalid-argument", "nodes must be numbers of variables, separated by commas", field="nodes")
        nodes = sorted({model.index(int(w)) for w in words})
        if len(nodes) > MAX_NODES:
            raise Refusal("invalid-argument", f"a layout has at most {MAX_NODES:,} variables", field="nodes")
        return nodes
    around = exchange.query.get("around", [])
    if not around and len(model) <= most:
        return None
    if not len(model):
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
