"""Tables of cases on the CPU: rows sorted by what they have observed, many rows in one sweep, all cores.

Rows that observe the same variables share a program that is cut to them. What is left over runs either with a program
that takes any evidence on the variables that some row observes, or row by row, whichever has fewer terms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ImpossibleEvidence
from ..base import BatchResult, Evidence, columns_of
from .lanes import run_lanes
from .workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .engine import Cpu, Kept

__all__ = ["answer_batch"]

LANES = (64, 32, 16, 8)  # cases side by side: the most whose tables still fit CACHE
CACHE = 1 << 20  # bytes
ENOUGH = 16  # rows of one pattern that pay for a program of their own
DERIVE = 2_000_000  # terms that take as long as deriving a program
MOST_MEMORY = 512 << 20  # bytes of all threads' arenas; where eight cases take more, rows are answered one by one
BLOCK = 64  # rows, at least, that a thread takes at a time


class _Table:
    """The rows of one call, and where their answers go."""

    def __init__(
        self, backend: Cpu, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]],
        targets: Sequence[int] | None,
    ):  # fmt: skip
        plan = backend.plan
        self.backend, self.targets = backend, targets
        self.states = np.asarray(states, np.int32)
        self.by_rank = np.ascontiguousarray(self.states[:, backend.by_rank])
        self.likelihood = {int(v): np.asarray(w, np.float64) for v, w in sorted(likelihood.items())}
        self.weights, self.weight_ptr, self.log_scale = self._weights()
        self.place = np.full(plan.n_variables, -1, np.int64)  # by rank
        at = 0
        for v in range(plan.n_variables) if targets is None else dict.fromkeys(targets):
            self.place[plan.axis_rank[v]] = at
            at += int(plan.cardinality[v])
        n = len(self.states)
        self.posterior = np.empty((n, at))
        self.log_evidence = np.empty(n)
        self.impossible = np.zeros(n, np.bool_)

    def _weights(self) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """The likelihoods side by side, each scaled by a power of two; where they begin, by rank; and what was taken
        out of each row, as a natural logarithm."""
        n = len(self.states)
        ptr = np.full(self.backend.plan.n_variables, -1, np.int64)
        log_scale = np.zeros(n)
        parts, at = [], 0
        for v, w in self.likelihood.items():
            top = w.max(axis=1, initial=0.0)
            shift = np.where(top > 0, np.frexp(top)[1], 0)
            log_scale += shift * np.log(2.0)
            ptr[self.backend.plan.axis_rank[v]] = at
            parts.append(np.ldexp(w, -shift[:, None]))
            at += w.shape[1]
        return (np.ascontiguousarray(np.hstack(parts)) if parts else np.zeros((n, 0))), ptr, log_scale

    def run(self, kept: Kept, lanes: int, rows: NDArray[np.int64]) -> None:
        """Answer rows with a program of so many lanes, on all cores."""
        backend = self.backend
        kept.leave_out_zeros(backend.numbers, backend.cards, lanes, -(-len(rows) // lanes))
        hard = backend.plan.axis_rank[kept.hard]
        p = kept.program

        def block(first: int, last: int) -> None:
            space = backend.take()
            try:
                exponent, scaled = self._room(space, kept, lanes)
                run_lanes(
                    space.arena, exponent, scaled, p.records, p.record_ptr, p.loads, p.load_ptr, p.roots, p.answers,
                    hard, backend.cards, self.place, rows, self.by_rank, self.weights, self.weight_ptr, backend.limit,
                    first, last, lanes, self.posterior, self.log_evidence, self.impossible, *space.arrays,
                )  # fmt: skip
            finally:
                backend.give_back(space)

        step = max(BLOCK, -(-len(rows) // (8 * backend.threads * lanes)) * lanes)
        cuts = [*range(0, len(rows), -(-step // lanes) * lanes), len(rows)]
        on_all_cores(list(pairwise(cuts)), block, backend.threads)

    def _room(self, space: Workspace, kept: Kept, lanes: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        space.fit(kept.program)
        space.fit_arena(int(kept.program.counts[0]))
        numbers = self.backend.numbers
        exponent = np.zeros((len(numbers.exponent), lanes), np.int64)
        exponent[:] = numbers.exponent[:, None]
        return exponent, numbers.exponent != 0

    def run_rows(self, rows: NDArray[np.int64]) -> None:
        """Answer rows one by one, each with a program of its own, on all cores."""
        columns = columns_of(self.backend.plan.posterior_ptr, self.targets)

        def block(first: int, last: int) -> None:
            for row in rows[first:last].tolist():
                case = Evidence(self.states[row], {v: w[row] for v, w in self.likelihood.items()})
                try:
                    result = self.backend.run(case, self.targets)
                except ImpossibleEvidence:
                    self.posterior[row], self.log_evidence[row], self.impossible[row] = 0.0, -np.inf, True
                    continue
                self.posterior[row] = result.posterior[columns]
                self.log_evidence[row] = result.log_evidence - self.log_scale[row]

        on_all_cores([(i, i + 1) for i in range(len(rows))], block, self.backend.threads)


def answer_batch(
    backend: Cpu,
    states: NDArray[np.int32],
    likelihood: Mapping[int, NDArray[np.float64]],
    targets: Sequence[int] | None,
) -> BatchResult:
    """See `jtgpu.backends.base.Backend.run_batch`."""
    table = _Table(backend, states, likelihood, targets)
    soft = tuple(table.likelihood)
    seen = table.states >= 0
    seen[:, list(soft)] = False  # weighed and observed: the weights of a lane take the state in
    rest = []
    for rows in _patterns(seen):
        if len(rows) >= ENOUGH:
            kept, lanes = _program(backend, seen[rows[0]], soft, targets)
            if lanes:
                table.run(kept, lanes, rows)
            else:
                table.run_rows(rows)
        else:
            rest.append(rows)
    if rest:
        _run_rest(table, np.sort(np.concatenate(rest)), seen, soft)
    posterior = table.posterior
    if targets is not None and len(set(targets)) < len(targets):  # a target that is asked for twice stands twice
        once = list(dict.fromkeys(targets))
        start = dict(zip(once, np.cumsum([0, *backend.plan.cardinality[once]]).tolist(), strict=False))
        columns = [np.arange(start[v], start[v] + backend.plan.cardinality[v]) for v in targets]
        posterior = posterior[:, np.concatenate(columns)]
    return BatchResult(posterior, table.log_evidence + table.log_scale, table.impossible)


def _run_rest(table: _Table, rows: NDArray[np.int64], seen: NDArray[np.bool_], soft: tuple[int, ...]) -> None:
    """Rows of patterns that are rare."""
    backend = table.backend
    always = np.asarray(seen[rows].all(axis=0))
    weighed = tuple(np.flatnonzero(seen[rows].any(axis=0) & ~always).tolist())
    kept, lanes = _program(backend, always, tuple(sorted({*soft, *weighed})), table.targets)
    one = backend.programs.get(seen[rows[0]], soft, table.targets)
    if not lanes or one.terms + DERIVE < kept.terms / lanes or len(rows) == 1:
        table.run_rows(rows)
    else:
        table.run(kept, lanes, rows)


def _program(
    backend: Cpu, seen: NDArray[np.bool_], soft: tuple[int, ...], targets: Sequence[int] | None
) -> tuple[Kept, int]:
    """The program of a pattern and how many lanes it has: the most whose tables fit the cache, else eight; none where
    eight take too much memory."""
    single = backend.programs.get(seen, soft, targets)
    cells = int(single.program.counts[0]) - backend.numbers.answers
    lanes = next((n for n in LANES if 8 * n * cells <= CACHE), LANES[-1])
    if 8 * lanes * cells * backend.threads > MOST_MEMORY:
        return single, 0
    return backend.programs.get(seen, soft, targets, lanes=lanes), lanes


def _patterns(seen: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Rows by what they have observed, in ascending order."""
    if not len(seen):
        return []
    if (seen == seen[0]).all():
        return [np.arange(len(seen))]
    packed = np.ascontiguousarray(np.packbits(seen, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    order = np.argsort(keys, kind="stable")
    ends = np.flatnonzero(keys[order][1:] != keys[order][:-1]) + 1
    return sorted(np.split(order, ends), key=lambda rows: int(rows[0]))


def on_all_cores(blocks: list[tuple[int, int]], work: Callable[[int, int], None], threads: int) -> None:
    """Call ``work(first, last)`` for every block, on some threads; the first error ends it all."""
    if threads == 1 or len(blocks) < 2:
        for first, last in blocks:
            work(first, last)
        return
    turn = iter(blocks)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def serve() -> None:
        while not errors:
            with lock:
                block = next(turn, None)
            if block is None:
                return
            try:
                work(*block)
            except BaseException as error:
                errors.append(error)

    others = [threading.Thread(target=serve, name="jtgpu-batch") for _ in range(min(threads, len(blocks)) - 1)]
    for thread in others:
        thread.start()
    serve()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
