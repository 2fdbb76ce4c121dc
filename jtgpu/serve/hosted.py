"""A tree that clients query, with its threads, and positions for drawings of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from ..decisions.tree import DecisionTree
from ..draw.drawing import hub, neighbourhood
from ..errors import BackendUnavailable, JtgpuError
from ..inference.tree import JunctionTree
from ..util.lru import LRU
from .batching import Batcher, measure, measure_others
from .map_layout import CANVAS, MAX_NODES, map_layout, outline, overview
from .networks import description, digest, summary
from .questions import QUESTIONS
from .registry import AnswerRates, Form, answering, questions_of
from .replies import PosteriorReplies
from .requests import JSON, Refusal, parameters, unless_gone
from .settings import Settings
from .trees import AnyTree, core_of, network_of, states_of, where

# A GPU that fails does not end the service: the requests that it was computing get a 503, a warning says why, and a
# tree on the CPU, made of the same plan, answers from then on.

T = TypeVar("T")
_log = logging.getLogger("jtgpu.serve")
MOST = 150  # variables of a layout
CANVAS_STEP = 40  # pixels
MAPS = 64  # layouts that are remembered
SLOW = 0.5  # seconds of a case from which questions are not tried at start


class Hosted:
    """A tree that clients query, of any kind.

    Two threads compute: one for posteriors of single cases, in batches, and one for all other questions, so that these
    do not hold up posteriors.
    """

    def __init__(self, name: str, tree: AnyTree, settings: Settings):
        self.name, self.tree, self.settings = name, tree, settings
        self.network = network_of(tree)
        self.states = states_of(self.network)
        self.questions = questions_of(tree)
        self.decoders: dict[str, Any] = {name: msgspec.json.Decoder(QUESTIONS[name].body) for name in self.questions}
        self.digest = digest(tree)
        self.maps: LRU[Any, Any] = LRU(MAPS)
        self.rates = AnswerRates(0.0, 0.0, 0.0, 1 << 30)
        self.is_batched = isinstance(tree, (JunctionTree, DecisionTree))
        if self.is_batched:  # else there are no `replies` and no `batcher`
            core: Any = core_of(tree)
            self.replies = PosteriorReplies(core)
            self.batcher = Batcher(core, self.rates, settings.max_batch, settings.exact, self.use_cpu)
        self.failure = ""  # of the GPU that this network was compiled for
        self._own: JunctionTree | None = None  # in place of one whose GPU failed
        self._lock = threading.Lock()
        self.description: dict[str, Any] = {}
        self.summary = summary(name, tree)
        self.pending = 0  # questions that wait for the second thread, or are computed there
        self._pool = ThreadPoolExecutor(1, "jtgpu-questions")

    def warm(self) -> None:
        """Load everything that answers need, measure how long they take, and compute the priors."""
        if not self.is_batched:
            self.rates = measure_others(self.tree)
        else:
            try:
                self.rates = self.batcher.rates = measure(self.batcher.tree)
            except BackendUnavailable as error:
                if not self.use_cpu(error):
                    raise
            self.replies.reply(np.zeros(int(self.batcher.tree.plan.posterior_ptr[-1])), 0.0, None, Form(), False)
        self.description = description(self.name, self.tree, self.settings.sources.get(self.name, ""))
        if self.rates.single < SLOW:
            self._try_questions()

    def _try_questions(self) -> None:
        """Answer a question of each kind, about the first and the last variable."""
        names = self.states.variables
        if not names:
            return
        first, last, seen = names[0], names[-1], {}
        if self.is_batched and first != last:
            with suppress(JtgpuError):
                seen = {first: self.batcher.tree.posterior(first).probabilities.argmax().item()}
        for name in self.questions:
            question = QUESTIONS[name]
            if question.trial is not None:
                with suppress(JtgpuError):  # a sliced plan and a Markov network do not answer all questions
                    tree = answering(self.tree, name)
                    msgspec.convert(question.trial(first, last, seen), question.body).answer(tree, Form())

    def use_cpu(self, error: BaseException) -> bool:
        """Answer on the CPU from now on if a GPU failed."""
        # error: Of a computation; from any thread
        # returns Whether the GPU failed, now or before.
        if not isinstance(error, BackendUnavailable):
            return False
        with self._lock:
            if self.failure:
                return True
            if not isinstance(self.tree, JunctionTree) or not self.tree.device:
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
        about = {name: text for name, text in where(self.tree).items() if name != "dtype"}
        return {**about, "failure": self.failure} if self.failure else about

    @property
    def memory(self) -> float:
        """Bytes of the tables of the plan."""
        core = core_of(self.tree)
        return 0.0 if core is None else float(core.plan.plan.cost().bytes)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for an answer."""
        return self.pending + (len(self.batcher) if self.is_batched else 0)

    def close(self) -> None:
        """End the threads after what waits is answered; the tree stays open."""
        if self.is_batched:
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


class LayoutQuery(msgspec.Struct, kw_only=True):
    """Parameters of the query string."""

    nodes: Annotated[list[str], Meta(description="Numbers of variables, separated by commas.")] = []
    around: Annotated[list[str], Meta(description="Variables whose neighbourhood is shown.")] = []
    hops: Annotated[int, Meta(ge=0, le=1000, description="Arcs to the farthest variable.")] = 2
    most: Annotated[int, Meta(ge=1, le=MAX_NODES, description="Number of variables.")] = MOST
    width: Annotated[int, Meta(ge=1, le=100_000, description="Pixels of the window that shows it.")] = CANVAS[0]
    height: Annotated[int, Meta(ge=1, le=100_000, description="Pixels of the window that shows it.")] = CANVAS[1]
    page: Annotated[bool, Meta(description="Whether positions are pixels that the page stored.")] = False
    overview: Annotated[bool, Meta(description="A dot for every variable.")] = False


def _requested(request: Request, hosted: Hosted) -> Any:
    """A function that computes the positions that the query string describes."""
    net, maps, query = hosted.network, hosted.maps, parameters(request.query_params, LayoutQuery)
    if query.overview:
        return lambda: maps.get_or_make("overview", lambda: overview(net))
    nodes = _nodes(query, hosted)
    # in steps, so that a map that was computed serves again
    width, height = (max(CANVAS_STEP, n - n % CANVAS_STEP) for n in (query.width, query.height))
    key = (None if nodes is None else tuple(nodes), width, height, query.page)
    return lambda: maps.get_or_make(key, lambda: map_layout(net, nodes, (width, height), query.page))


def _nodes(query: LayoutQuery, hosted: Hosted) -> list[int] | None:
    """Numbers of the variables to place, ascending; None: all."""
    model = hosted.states
    words = [word for text in query.nodes for word in text.split(",")]
    if words:
        if not all(w.isascii() and w.isdigit() and len(w) < 10 for w in words):
            raise Refusal("invalid-argument", "nodes must be numbers of variables, separated by commas", field="nodes")
        nodes = sorted({model.index(int(w)) for w in words})
        if len(nodes) > MAX_NODES:
            raise Refusal("invalid-argument", f"a layout has at most {MAX_NODES:,} variables", field="nodes")
        return nodes
    if not len(model) or (not query.around and len(model) <= query.most):
        return None
    graph = outline(hosted.network).graph
    start = [*dict.fromkeys(v for name in query.around for v in _named(hosted, name))]
    return neighbourhood(graph, start or [hub(graph)], query.hops, query.most)


def _named(hosted: Hosted, name: str) -> list[int]:
    """The variable of a name, or of several that commas separate; of a number its parents that have states."""
    model, numbers = hosted.states, dict(outline(hosted.network).numbers)
    names = [name] if name in model or name in numbers else name.split(",")
    named = ([v for v in numbers[n] if v < len(model)] if n in numbers else [model.index(n)] for n in names)
    return [v for some in named for v in some]
