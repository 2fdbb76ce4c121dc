"""`Hosted`: a tree with everything that a server needs to answer its questions.

A GPU that fails does not end the service: the requests that it was computing get a 503, a warning says why, and a tree
on the CPU, made of the same plan, answers from then on.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

from ..errors import BackendUnavailable, JtgpuError
from ..inference.tree import JunctionTree
from . import networks
from .batching import Batcher, Rates, measure
from .questions import QUESTIONS
from .questions.bodies import BODIES
from .questions.cases import spans
from .questions.form import Form, with_labels
from .settings import Settings

T = TypeVar("T")
_log = logging.getLogger("jtgpu.serve")
SLOW = 0.5  # seconds of a case from which questions are not tried at start


class Hosted:
    """A tree that clients query.

    Two threads compute: one for posteriors of single cases, in batches, and one for all other questions, so that these
    do not hold up posteriors.
    """

    def __init__(self, name: str, tree: JunctionTree, settings: Settings):
        self.name, self.tree, self.settings = name, tree, settings
        ptr = [int(i) for i in tree.plan.posterior_ptr]
        self._cells = [slice(a, b) for a, b in pairwise(ptr)]
        self.decoders = {question: msgspec.json.Decoder(body) for question, body in BODIES.items()}
        self.digest = networks.digest(tree)
        self.rates = Rates(0.0, 0.0, 0.0, 1 << 30)
        self.batcher = Batcher(tree, self.rates, settings.max_batch, settings.exact, self.use_cpu)
        self.failure = ""  # of the GPU that this network was compiled for
        self._own: JunctionTree | None = None  # in place of one whose GPU failed
        self._lock = threading.Lock()
        self.description: dict[str, Any] = {}
        self.summary = networks.summary(name, tree)
        self.pending = 0  # questions that wait for the second thread, or are computed there
        self._pool = ThreadPoolExecutor(1, "jtgpu-questions")

    def warm(self) -> None:
        """Load everything that answers need, measure how long they take, and compute the priors."""
        try:
            self.rates = self.batcher.rates = measure(self.tree)
        except BackendUnavailable as error:
            if not self.use_cpu(error):
                raise
        self.description = networks.description(self.name, self.tree)
        if self.rates.single < SLOW:
            for question, body in _examples(self.tree).items():
                with suppress(JtgpuError):  # a sliced plan and a Markov network do not answer all questions
                    QUESTIONS[question](self.tree, msgspec.convert(body, BODIES[question]), Form())

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

    def named(
        self, flat: list[float], targets: Sequence[int] | None, form: Form
    ) -> dict[str, list[float] | dict[str, float]]:
        """Posteriors by variable, from those of the targets one after another."""
        if targets is None and not form.labels:
            return dict(zip(self.tree.model.variables, map(flat.__getitem__, self._cells), strict=True))
        model = self.tree.model
        found: dict[str, list[float] | dict[str, float]] = {}
        for v, at in spans(model, targets).items():
            found[model.variables[v]] = with_labels(model, v, flat[at]) if form.labels else flat[at]
        return found

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
        found = {"backend": self.tree.backend, "device": self.tree.device}
        return {**found, "failure": self.failure} if self.failure else found

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


def _examples(tree: JunctionTree) -> dict[str, Any]:
    """A question of each kind, about the first variables."""
    model = tree.model
    if not len(model):
        return {}
    first, last = model.variables[0], model.variables[-1]
    target, evidence = last, {}
    with suppress(JtgpuError):
        evidence = {first: tree.posterior(first).probabilities.argmax().item()} if first != last else {}
    return {
        "mpe": {"evidence": evidence},
        "map": {"variables": [target], "evidence": evidence},
        "voi": {"target": target, "evidence": evidence},
        "mi": {"target": target, "evidence": evidence},
        "sensitivity": {"target": [target, 0], "evidence": evidence},
        "importance": {"target": target, "evidence": evidence},
        "conflict": {"evidence": evidence},
        "joint": {"variables": [first, last] if first != last else [first]},
        "sample": {"n": 2, "seed": 0, "evidence": evidence},
    }
