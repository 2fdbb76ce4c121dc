"""A network as clients see it: variables, arcs, priors, the cost of its plan, CPTs and files."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from ..cases.query import model_fingerprint
from ..draw.drawing import Graph, graph_of, hub, neighbourhood
from ..errors import ArgumentError, BackendUnavailable, EvidenceError, JtgpuError, closest
from ..formats.bundled import networks
from ..formats.conversion import carry
from ..formats.dynamic_writers import dumps_dynamic
from ..formats.mixed_writers import dumps_mixed
from ..formats.registry import FORMATS
from ..inference.tree import JunctionTree
from ..model.decisions import PolicyNetwork
from ..model.discrete import DiscreteModel
from ..model.discrete_part import DiscretePart
from ..model.first_slice import SliceNetwork
from ..model.network import BayesianNetwork
from .batching import Batcher, measure
from .map_layout import CANVAS, MAX_NODES, map_layout, overview, positions
from .numbers import QUANTILES, mixed_tree, number_reply
from .questions import QUESTIONS
from .registry import Form, Rates
from .replies import PosteriorReplies
from .requests import JSON, Refusal, flag, number, unless_gone
from .settings import Settings


def digest(tree: JunctionTree) -> str:
    """A digest of the model and of where it is computed."""
    model = tree.model
    own = model_fingerprint(model)
    if isinstance(model, SliceNetwork):  # and the other slices
        net = model.dynamic_network
        tables = [np.asarray(cpt).tobytes() for v in net.variables for cpt in (net.cpt(v), *net.start(v))]
        parents = [net.parents(v) for v in net.variables]
        own = hashlib.sha256(b"".join([f"{own}{parents}{net.static}".encode(), *tables])).hexdigest()
    if isinstance(model, DiscretePart):  # and the densities of the numbers
        own = hashlib.sha256(f"{own}{dumps_mixed(model.mixed_network, 'JSON')}".encode()).hexdigest()
    return own[:32]


def summary(name: str, tree: JunctionTree) -> dict[str, Any]:
    """One line about a network."""
    model = tree.model
    net = model.mixed_network if isinstance(model, DiscretePart) else None
    return {
        "name": name, "title": model.name, "variables": len(model if net is None else net),
        "arcs": len(graph_of(model).arcs if net is None else net.arcs),
        "states": int(model.cardinality.sum()), "backend": tree.backend, "device": tree.device, "dtype": tree.dtype,
        "digest": digest(tree),
    }


def description(name: str, tree: JunctionTree, source: str = "") -> dict[str, Any]:
    """Everything about a network except its numbers."""
    # returns Variables with their states and the numbers of their parents, arcs, prior probabilities in the order of
    #     the variables, and the cost of the plan.
    model = tree.model
    graph = graph_of(model)
    prior = tree.posteriors()
    cost = tree.plan.cost()
    return {
        "name": name,
        "title": model.name,
        "source": source or (name if name in networks() else ""),
        "kind": "bayesian" if graph.is_directed else "markov",
        "digest": digest(tree),
        "backend": tree.backend,
        "device": tree.device,
        "dtype": tree.dtype,
        "variables": _variables(model, graph) if _has_states(model) else [],
        **_decisions(model),
        **_slices(model),
        **_numbers(tree),
        "arcs": [[*arc] for arc in graph.arcs],
        "prior": [p.probabilities.tolist() for p in prior.values()] if _has_states(model) else [],
        "log_evidence": prior.log_evidence,
        "plan": {
            "description": tree.plan.describe(), "cliques": cost.cliques, "entries": cost.entries,
            "largest": cost.largest, "bytes": cost.bytes, "flops": cost.flops, "levels": cost.levels,
        },
    }


def _has_states(model: DiscreteModel) -> bool:
    """Whether the variables are not those of a network of numbers only."""
    return not isinstance(model, DiscretePart) or model.has_states


def _variables(model: DiscreteModel, graph: Graph) -> list[dict[str, Any]]:
    attributes = model.attributes.get("node", {}) if isinstance(model, BayesianNetwork) else {}
    labels = [attributes.get(v, {}).get("label") for v in model.variables]
    places = positions(model)
    return [
        {
            "name": name, "label": label if isinstance(label, str) and label else name, "states": [*model.states(name)],
            "parents": parents if graph.is_directed else [], "position": position,
        }
        for name, label, parents, position in zip(model.variables, labels, graph.parents, places, strict=True)
    ]


def _decisions(model: DiscreteModel) -> dict[str, Any]:
    """Numbers of the decisions, and the utilities with the numbers of their parents, of a network with a policy."""
    if not isinstance(model, PolicyNetwork):
        return {}
    net = model.decision_network
    utilities = [{"name": u, "parents": [net.index(p) for p in net.parents(u)]} for u in net.utilities]
    return {"decisions": [net.index(d) for d in net.decisions], "utilities": utilities}


def _slices(model: DiscreteModel) -> dict[str, Any]:
    """Order, static variables, and parents in earlier slices as pairs of number and lag, of a network over time."""
    if not isinstance(model, SliceNetwork):
        return {}
    net = model.dynamic_network
    earlier = [[[net.index(p), lag] for p, lag in net.parents(v) if lag] for v in net.variables]
    return {"slices": {"order": net.order, "static": [net.index(v) for v in net.static], "earlier": earlier}}


def _numbers(tree: JunctionTree) -> dict[str, Any]:
    """The numbers of a network that has some: parents, by number of the variable or from V on, and priors."""
    model = tree.model
    if not isinstance(model, DiscretePart):
        return {}
    net = model.mixed_network
    place = {v: i for i, v in enumerate((*net.discrete.variables, *net.numbers))}
    prior = mixed_tree(tree).posteriors(targets=[*net.numbers])
    return {"numbers": [
        {"name": v, "parents": [place[p] for p in net.parents(v)], "prior": number_reply(prior[v], QUANTILES, POINTS)}
        for v in net.numbers
    ]}  # fmt: skip


def cpt(tree: JunctionTree, variable: str | int) -> dict[str, Any]:
    """The CPT of a variable; the last axis, its own states, varies fastest."""
    # raises EvidenceError: If the model is a Markov network, which has no CPTs.
    model = tree.model
    v = model.index(variable)
    if not isinstance(model, BayesianNetwork):
        raise EvidenceError("a Markov network has factors and no CPTs")
    table: Any = model.dynamic_network.cpt(v) if isinstance(model, SliceNetwork) else model.cpt(v)
    names = table.variables
    return {
        "variable": model.variables[v], "parents": [*names[:-1]],
        "states": [[*table.states(name)] for name in names], "shape": [*table.shape],
        "probabilities": table.ravel().tolist(),
    }


_WITH_NUMBERS = {"mixed.json": "JSON", "net": "Hugin net", "xdsl": "XDSL"}  # suffix -> format
_OVER_TIME = {"dynamic.json": "dynamic JSON", "xdsl": "XDSL"}  # suffix -> format


def file(model: DiscreteModel, name: str) -> tuple[str, str]:
    """The network as text in a format, and the suffix of its file."""
    # name: A suffix without the dot, such as ``"bif"``
    # raises ArgumentError: If there is no such format that can be written.
    # raises FormatError: If the format cannot represent the model.
    if isinstance(model, SliceNetwork):
        if name not in _OVER_TIME:
            raise ArgumentError(f"a network over time is written as {' or '.join(_OVER_TIME)}, not {name[:60]!r}")
        return dumps_dynamic(model.dynamic_network, _OVER_TIME[name]), name
    if isinstance(model, DiscretePart):
        if name not in _WITH_NUMBERS:
            raise ArgumentError(f"a network with numbers is written as {', '.join(_WITH_NUMBERS)}, not {name[:60]!r}")
        return dumps_mixed(model.mixed_network, _WITH_NUMBERS[name]), name
    suffixes = {s[1:]: f for f in FORMATS if f.writer for s in f.suffixes if s not in f.only_read}
    if name not in suffixes:
        raise ArgumentError(f"format must be one of {', '.join(suffixes)}, not {name[:60]!r}{closest(name, suffixes)}")
    return carry(model, suffixes[name]).text, name


def written_formats() -> list[str]:
    """Suffixes of the formats that a network can be saved in."""
    return [s[1:] for f in FORMATS if f.writer for s in f.suffixes[:1]]


# `Hosted`: a tree with everything that a server needs to answer its questions.
#
# A GPU that fails does not end the service: the requests that it was computing get a 503, a warning says why, and a
# tree on the CPU, made of the same plan, answers from then on.

T = TypeVar("T")
_log = logging.getLogger("jtgpu.serve")
MOST = 150  # variables of a layout
CANVAS_STEP = 40  # pixels
POINTS = 60  # of the density of a number
SLOW = 0.5  # seconds of a case from which questions are not tried at start


class Hosted:
    """A tree that clients query.

    Two threads compute: one for posteriors of single cases, in batches, and one for all other questions, so that these
    do not hold up posteriors.
    """

    def __init__(self, name: str, tree: JunctionTree, settings: Settings):
        self.name, self.tree, self.settings = name, tree, settings
        self.replies = PosteriorReplies(tree)
        self.decoders: dict[str, Any] = {name: msgspec.json.Decoder(q.body) for name, q in QUESTIONS.items()}
        self.digest = digest(tree)
        self.rates = Rates(0.0, 0.0, 0.0, 1 << 30)
        self.batcher = Batcher(tree, self.rates, settings.max_batch, settings.exact, self.use_cpu)
        self.failure = ""  # of the GPU that this network was compiled for
        self._own: JunctionTree | None = None  # in place of one whose GPU failed
        self._lock = threading.Lock()
        self.description: dict[str, Any] = {}
        self.summary = summary(name, tree)
        self.pending = 0  # questions that wait for the second thread, or are computed there
        self._pool = ThreadPoolExecutor(1, "jtgpu-questions")

    def warm(self) -> None:
        """Load everything that answers need, measure how long they take, and compute the priors."""
        try:
            self.rates = self.batcher.rates = measure(self.tree)
        except BackendUnavailable as error:
            if not self.use_cpu(error):
                raise
        self.description = description(self.name, self.tree, self.settings.sources.get(self.name, ""))
        if self.rates.single < SLOW:
            self._try_questions()

    def _try_questions(self) -> None:
        """Answer a question of each kind, about the first and the last variable."""
        names = self.tree.model.variables
        if not names:
            return
        first, last, seen = names[0], names[-1], {}
        with suppress(JtgpuError):
            seen = {first: self.tree.posterior(first).probabilities.argmax().item()} if first != last else {}
        for question in QUESTIONS.values():
            if question.trial is not None:
                with suppress(JtgpuError):  # a sliced plan and a Markov network do not answer all questions
                    msgspec.convert(question.trial(first, last, seen), question.body).answer(self.tree, Form())

    def use_cpu(self, error: BaseException) -> bool:
        """Answer on the CPU from now on if a GPU failed."""
        # error: Of a computation; from any thread
        # returns Whether the GPU failed, now or before.
        if not isinstance(error, BackendUnavailable):
            return False
        with self._lock:
            if self.failure:
                return True
            if not self.tree.device:
                return False
            _log.warning("the GPU of %s failed; the CPU is used from now on: %s", self.name, error)
            self._own = self.tree.plan.compile("cpu")
            rates = measure(self._own)
            self.failure = str(error)
            self.tree = self.batcher.tree = self._own
            self.rates = self.batcher.rates = rates
        return True

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a function in the second thread; cancelling the future removes it if it has not started."""
        self.pending += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, self._guarded, function)
        future.add_done_callback(self._finished)
        return future

    def _guarded(self, function: Callable[[], T]) -> T:
        try:
            return function()
        except BackendUnavailable as error:
            self.use_cpu(error)
            raise

    def _finished(self, future: asyncio.Future[Any]) -> None:
        self.pending -= 1
        if not future.cancelled():
            future.exception()  # is retrieved, if nobody waits any more

    @property
    def status(self) -> dict[str, str]:
        """Where questions are answered."""
        where = {"backend": self.tree.backend, "device": self.tree.device}
        return {**where, "failure": self.failure} if self.failure else where

    @property
    def waiting(self) -> int:
        """Number of requests that wait for an answer."""
        return len(self.batcher) + self.pending

    def close(self) -> None:
        """End the threads after what waits is answered; the tree stays open."""
        self.batcher.close()
        self._pool.shutdown(wait=True)
        if self._own is not None:
            self._own.close()


# ``GET .../layout``: positions for a drawing.

async def layout(request: Request, hosted: Hosted) -> Response:
    """Positions for a drawing."""
    compute = _requested(request, hosted)
    future = hosted.submit(lambda: msgspec.json.encode(compute()))
    body = await unless_gone(request.receive, future, hosted.settings.timeout)
    return Response(body, media_type=JSON)


def _requested(request: Request, hosted: Hosted) -> Any:
    """A function that computes the positions that the query string describes."""
    tree = hosted.tree
    model = tree.model
    if flag(request, "overview"):
        return lambda: tree.cached("serve-layout", "overview", lambda: overview(model))
    nodes = _nodes(request, hosted, graph_of(model))
    canvas = _canvas(request)
    key = (None if nodes is None else tuple(nodes), canvas)
    return lambda: tree.cached("serve-layout", key, lambda: map_layout(model, nodes, canvas))


def _canvas(request: Request) -> tuple[int, int]:
    """Pixels of the window that shows the positions, in steps, so that a map that was computed serves again."""
    width, height = (
        number(request, name, given, 1, 100_000) or given
        for name, given in zip(("width", "height"), CANVAS, strict=True)
    )
    return max(CANVAS_STEP, width - width % CANVAS_STEP), max(CANVAS_STEP, height - height % CANVAS_STEP)


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
