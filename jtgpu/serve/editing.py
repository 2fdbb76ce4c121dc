"""Networks that clients edit or open: ``GET .../model`` and ``PUT`` and ``DELETE /v1/networks/{network}``.

An edited network is a new one, under a name of its own; those that the server was started with never change. It is
held by one process and is gone with it, so there is no editing where several workers share a port.
"""

from __future__ import annotations

import asyncio
import threading

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..inference.network_plan import NetworkPlan
from .edited import edited_network
from .hosted import Hosted
from .opening import Opening, too_slow
from .registry import RATE
from .requests import JSON, Refusal, json_response, read, trace_of, unless_gone
from .routes import QuestionEndpoints, of_network
from .settings import Settings, check_type, headers_of

MOST = 20  # networks that clients may add
AT_ONCE = 4  # networks that are opened at the same time
FIRST_ANSWERS = 10  # questions that are answered before a network is served, at least
FILE = "application/octet-stream"


class Editing:
    """The networks that clients added."""

    def __init__(self, networks: dict[str, Hosted], questions: QuestionEndpoints, settings: Settings):
        self._networks, self._questions, self._settings = networks, questions, settings
        self._own = frozenset(networks)
        self._under_way: dict[Opening, str] = {}  # names of networks that are being opened

    async def model(self, request: Request, hosted: Hosted) -> Response:
        """The network with its CPTs."""
        return json_response(msgspec.to_builtins(edited_network(hosted.network)))

    async def serve(self, request: Request) -> Response:
        """Add, replace or remove a network."""
        name = request.path_params["network"]
        trace = trace_of(request)
        trace.question = "edit"
        self._check(name)
        if request.method == "DELETE":
            await asyncio.to_thread(_discard, self._forget(name))
            return json_response({"removed": name})
        kind = check_type(headers_of(request.scope), (JSON, FILE))
        body = await read(request, self._settings.max_body)
        seconds = self._settings.timeout
        opening = Opening(body, request.query_params.get("format", "").lower() if kind == FILE else None, seconds)
        if len(self._under_way) >= AT_ONCE:
            raise Refusal("busy", f"{AT_ONCE} networks are being opened; try again later")
        if name not in self._networks and len({*self._networks, *self._under_way.values()} - self._own) >= MOST:
            raise Refusal("busy", f"there are {MOST} edited networks; remove one")
        self._under_way[opening] = name
        try:
            hosted = await unless_gone(request.receive, self._opened(name, opening), seconds)
        except Refusal as error:
            if error.kind == "timeout":
                raise too_slow(seconds) from None
            raise
        except asyncio.CancelledError:  # after --grace
            raise Refusal("stopping", "the server stops") from None
        finally:
            opening.cancel()
            del self._under_way[opening]
        before = self._forget(name)
        self._networks[name] = hosted
        self._questions.add(hosted)
        await asyncio.to_thread(_discard, before)
        return json_response(hosted.summary, 201)

    def _check(self, name: str) -> None:
        if self._settings.read_only:
            raise Refusal("read-only", "this server accepts no networks; see --read-only")
        if self._settings.metrics_folder:
            raise Refusal("read-only", "several workers share this server, and none has the networks of another")
        if name in self._own:
            raise Refusal("read-only", f"{name[:100]!r} is a network of the server; edit it under another name")

    def _opened(self, name: str, opening: Opening) -> asyncio.Future[Hosted]:
        """Open a network in a thread that does not keep the server from stopping."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Hosted] = loop.create_future()

        def deliver(made: Hosted | None, error: BaseException | None) -> None:
            if future.done():  # the client is gone
                _discard(made)
            elif made is not None:
                future.set_result(made)
            else:
                future.set_exception(error or RuntimeError("a network without a result"))

        def work() -> None:
            made: Hosted | None = None
            error: BaseException | None = None
            try:
                made = self._compiled(name, opening)
            except BaseException as raised:  # becomes that of the future
                error = raised
            try:
                loop.call_soon_threadsafe(deliver, made, error)
            except RuntimeError:  # the server has stopped
                _discard(made)

        threading.Thread(target=work, name="jtgpu-open", daemon=True).start()
        return future

    def _compiled(self, name: str, opening: Opening) -> Hosted:
        made = opening.read()
        seconds = FIRST_ANSWERS * made.plan.cost().flops / RATE if isinstance(made, NetworkPlan) else 0.0
        if seconds > self._settings.timeout:
            raise Refusal(
                "too-slow", f"to answer questions about this network would take too long: {seconds:,.0f} s before the "
                f"first one; the limit is {self._settings.timeout:g} s (--timeout)",
                predicted=round(seconds, 3), limit=self._settings.timeout,
            )  # fmt: skip
        # a network that is no plan was compiled within the limits already
        hosted = Hosted(name, made.compile("cpu"), self._settings)
        try:
            if opening.is_cancelled:
                raise Refusal("timeout", "nobody waits for the network")
            hosted.warm()
        except BaseException:
            _discard(hosted)
            raise
        return hosted

    def _forget(self, name: str) -> Hosted | None:
        """Answer questions about a network no more."""
        hosted = self._networks.pop(name, None)
        if hosted is not None:
            self._questions.drop(hosted)
        return hosted

    def close(self) -> None:
        """Close the trees; the application closes what is hosted."""
        for name in self._networks.keys() - self._own:
            self._networks[name].tree.close()


def _discard(hosted: Hosted | None) -> None:
    """Close a network that nobody asks any more."""
    if hosted is not None:
        hosted.close()
        hosted.tree.close()


def edit_routes(networks: dict[str, Hosted], editing: Editing) -> list[BaseRoute]:
    """The routes of editing."""
    path = "/v1/networks/{network}"
    return [
        Route(f"{path}/model", of_network(networks, "model", editing.model)),
        Route(path, editing.serve, methods=["PUT", "DELETE"]),
    ]
