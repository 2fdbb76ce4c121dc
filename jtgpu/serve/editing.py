"""Networks that clients edit or open: ``GET .../model`` and ``PUT`` and ``DELETE /v1/networks/{network}``.

An edited network is a new one, under a name of its own; those that the server was started with never change. It is
held by one process and is gone with it, so there is no editing where several workers share a port.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..errors import JtgpuError
from ..formats import read as read_network
from ..formats.registry import file_suffixes
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..model.discrete_part import DiscretePart
from ..model.dynamic import DynamicNetwork
from ..model.first_slice import OVER_TIME, first_slice
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..model.network import BayesianNetwork
from .hosted import Hosted
from .requests import JSON, Refusal, json_response, read, trace_of
from .routes import QuestionEndpoints, of_network
from .settings import Settings, check_type, headers_of

MOST = 20  # networks that clients may add
FILE = "application/octet-stream"


class EditedVariable(Struct, forbid_unknown_fields=True, kw_only=True):
    """A variable with its CPT; the last axis, its own states, varies fastest."""

    name: str
    states: list[str]
    parents: list[str] = field(default_factory=list)
    cpt: list[float]


class EditedNetwork(Struct, forbid_unknown_fields=True, kw_only=True):
    """A network as the page edits it."""

    title: str = ""
    variables: list[EditedVariable]


def edited_network(model: DiscreteModel) -> EditedNetwork:
    """A network in the form that `network_of` takes."""
    # raises Refusal: If the model is a Markov network, which has no CPTs.
    if not isinstance(model, BayesianNetwork):
        raise Refusal("unsupported", "a Markov network has factors and no CPTs, and cannot be edited here")
    if isinstance(model, OVER_TIME):
        raise Refusal("unsupported", "a network over time cannot be edited here")
    if isinstance(model, DiscretePart):
        raise Refusal("unsupported", "a network with numbers cannot be edited here")
    variables = [
        EditedVariable(
            name=v, states=[*model.states(v)], parents=[*model.parents(v)],
            cpt=np.asarray(model.cpt(v)).ravel().tolist(),
        )
        for v in model.variables
    ]
    return EditedNetwork(title=model.name, variables=variables)


def network_of(edited: EditedNetwork) -> BayesianNetwork:
    """Check and build a network."""
    # raises Refusal: If names repeat, or a CPT has another number of entries than its states and parents need.
    states: dict[str, list[str]] = {}
    for v in edited.variables:
        if v.name in states:
            raise Refusal("invalid-body", f"there are two variables {v.name!r}", variable=v.name)
        states[v.name] = v.states
    cpts = {}
    for v in edited.variables:
        if not v.states:
            raise Refusal("invalid-body", f"variable {v.name!r} has no states", variable=v.name)
    for v in edited.variables:
        shape = [len(states.get(p, ())) for p in v.parents] + [len(v.states)]
        n = int(np.prod(shape, dtype=object))
        if len(v.cpt) != n and all(p in states for p in v.parents):
            raise Refusal(
                "invalid-body", f"the CPT of {v.name!r} has {len(v.cpt):,} entries, expected {n:,}", variable=v.name
            )
        cpts[v.name] = np.array(v.cpt).reshape(shape if len(v.cpt) == n else -1)
    parents = {v.name: v.parents for v in edited.variables}
    return BayesianNetwork(states, parents, cpts, name=edited.title)


def network_of_file(data: bytes, suffix: str) -> DiscreteModel:
    """Read the contents of a file with this suffix."""
    # raises Refusal: If no format has the suffix.
    if f".{suffix}" not in file_suffixes():
        raise Refusal("invalid-argument", f"no network format has the suffix {suffix[:20]!r}", field="format")
    with tempfile.TemporaryDirectory(prefix="jtgpu-open-") as folder:
        path = Path(folder) / f"network.{suffix}"
        path.write_bytes(data)
        try:
            net: Any = read_network(path)
            if isinstance(net, MixedNetwork):
                return DiscretePart(net)
            over_time = isinstance(net, (DynamicNetwork, MixedDynamicNetwork))
            return first_slice(net) if over_time else cast(DiscreteModel, net)
        except JtgpuError as error:  # without the name of our folder
            raise Refusal("invalid-body", str(error).replace(f"{folder}/", "")) from None


class Editing:
    """The networks that clients added."""

    def __init__(self, networks: dict[str, Hosted], questions: QuestionEndpoints, settings: Settings):
        self._networks, self._questions, self._settings = networks, questions, settings
        self._own = frozenset(networks)
        self._trees: dict[str, JunctionTree] = {}
        self._lock = asyncio.Lock()

    async def model(self, request: Request, hosted: Hosted) -> Response:
        """The network with its CPTs."""
        return json_response(msgspec.to_builtins(edited_network(hosted.tree.model)))

    async def serve(self, request: Request) -> Response:
        """Add, replace or remove a network."""
        name = request.path_params["network"]
        trace = trace_of(request)
        trace.question = "edit"
        self._check(name)
        if request.method == "DELETE":
            await self._remove(name)
            return json_response({"removed": name})
        kind = check_type(headers_of(request.scope), (JSON, FILE))
        body = await read(request, self._settings.max_body)
        suffix = request.query_params.get("format", "").lower()
        async with self._lock:
            if name not in self._networks and len(self._trees) >= MOST:
                raise Refusal("busy", f"there are {MOST} edited networks; remove one")
            tree, hosted = await asyncio.to_thread(self._compiled, name, kind, body, suffix)
            await self._remove(name)
            self._networks[name], self._trees[name] = hosted, tree
            self._questions.add(hosted)
        return json_response(hosted.summary, 201)

    def _check(self, name: str) -> None:
        if self._settings.read_only:
            raise Refusal("read-only", "this server accepts no networks; see --read-only")
        if self._settings.metrics_folder:
            raise Refusal("read-only", "several workers share this server, and none has the networks of another")
        if name in self._own:
            raise Refusal("read-only", f"{name[:100]!r} is a network of the server; edit it under another name")

    def _compiled(self, name: str, kind: str, body: bytes, suffix: str) -> tuple[JunctionTree, Hosted]:
        if kind == FILE:
            model = network_of_file(body, suffix)
        else:
            try:
                model = network_of(msgspec.json.decode(body, type=EditedNetwork))
            except Refusal:
                raise
            except JtgpuError as error:
                raise Refusal("invalid-body", str(error)) from None
        tree = model.compile("cpu", memory_limit=None)
        hosted = Hosted(name, tree, self._settings)
        hosted.warm()
        return tree, hosted

    async def _remove(self, name: str) -> None:
        hosted = self._networks.pop(name, None)
        if hosted is None:
            return
        self._questions.drop(hosted)
        tree = self._trees.pop(name)
        await asyncio.to_thread(hosted.close)
        tree.close()

    def close(self) -> None:
        """Close the trees; the application closes what is hosted."""
        for tree in self._trees.values():
            tree.close()


def edit_routes(networks: dict[str, Hosted], editing: Editing) -> list[BaseRoute]:
    """The routes of editing."""
    path = "/v1/networks/{network}"
    return [
        Route(f"{path}/model", of_network(networks, "model", editing.model)),
        Route(path, editing.serve, methods=["PUT", "DELETE"]),
    ]
