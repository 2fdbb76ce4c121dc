"""The fast CPU backend: a plan specialised to what is observed and asked, run by compiled code in one call.

Programs are kept, the last used ones first; each query that runs at the same time has an arena of its own.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ImpossibleEvidence, JtgpuError
from ...plans.plan import Plan
from ...plans.specialise import FREE, HARD, SOFT, conditional_heads, skeleton
from ...util.numba_cache import is_compiled
from ...util.system import cores
from ..base import BackendDefaults, BatchResult, Evidence, Result
from .batch import answer_batch
from .parallel import Tasks, make_tasks, run_tasks
from .records import Layout, Program, specialise
from .sweep import IMPOSSIBLE, evidence_log, hashes, load_all, run, run_changed
from .workspace import ROOM, Numbers, Scratch, Workspace, scaled_weights
from .zeros import without_zeros

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cpu", "CpuSession", "Kept", "prepare"]

DOUBLE = 800  # log2 of what a contraction may multiply together, far from where doubles lose digits
MOST_PROGRAMS = 256  # kept; a table of cases with many missing cells meets more patterns than come again
MOST_PROGRAM_BYTES = 64 << 20
FEW = 50_000  # terms below which zeros are not worth a look
LOOK = 40  # queries that take as long as to look for zeros
MOST_ROOM = 1 << 20  # numbers of scratch memory for deriving a program
SMALL = 400_000  # terms up to which a session makes everything again: looking for what changed takes as long
MOST_AT_ONCE = 4  # tables of cases
PARALLEL = 3_000_000  # terms from which several threads take a program, 300 us of one core


class Kept:
    """A program, and what else a query of its pattern needs."""

    def __init__(self, plan: Plan, program: Program, seen: NDArray[np.bool_], wanted: NDArray[np.bool_]):
        self.program = program
        self.hard = np.flatnonzero(seen)  # observed variables
        self.first = plan.posterior_ptr[self.hard]  # the first cell of each among the posteriors
        self.blank = np.flatnonzero(~np.repeat(wanted & ~seen, plan.cardinality))  # cells that the program leaves
        self.terms = int(program.counts[3])
        self.bytes = 8 * (len(program.records) + len(program.loads)) + 1000
        self.spent = 0  # terms of all the queries that it answered
        self.looked = False  # for zeros that can be left out
        self._tasks: tuple[int, Tasks] | None = None
        self._hashes: tuple[NDArray[np.uint64], NDArray[np.uint64]] | None = None

    def tasks(self, n_exponents: int, threads: int) -> Tasks:
        """The program cut up for some threads."""
        if self._tasks is None or self._tasks[0] != threads:
            self._tasks = threads, make_tasks(self.program, n_exponents, threads)
        return self._tasks[1]

    def leave_out_zeros(
        self, numbers: Numbers, cards: NDArray[np.int64], lanes: int = 1, coming: int = 1, cells: int = 0
    ) -> None:
        """Note that the program will answer this many more times, and look for zeros once that pays.

        `cells`: of the arena, where the program's own count is not all of it.
        """
        self.spent += coming * self.terms
        if self.looked or self.terms < FEW or self.spent < LOOK * self.terms:
            return
        self.looked = True
        self.program = without_zeros(self.program, numbers, cards, lanes, cells)
        self._tasks = self._hashes = None

    @property
    def hashes(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Of the records and of the loads."""
        if self._hashes is None:
            p = self.program
            self._hashes = hashes(p.records, p.record_ptr), hashes(p.loads, p.load_ptr)
        return self._hashes


class Programs:
    """Programs by pattern, targets and lanes; derived when they are not at hand."""

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], layout: Layout):
        self._plan, self._layout = plan, layout
        self._by_rank = np.argsort(plan.axis_rank)
        heads = conditional_heads(factors, plan.factor_scopes, plan.n_variables)
        self._skeleton = skeleton(plan, heads)
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, Kept] = OrderedDict()
        self._bytes = 0
        self._rooms: list[NDArray[np.int64]] = []  # scratch memory that nobody uses

    def get(
        self,
        seen: NDArray[np.bool_],
        soft: tuple[int, ...] = (),
        targets: Sequence[int] | None = None,
        lanes: int = 1,
        layout: Layout | None = None,
    ) -> Kept:
        """The program for observed variables and weighed ones; `layout`: another one than the usual."""
        key = (seen.tobytes(), soft, None if targets is None else tuple(targets), lanes, layout is None)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept
        kept = self._derive(seen, soft, targets, lanes, self._layout if layout is None else layout)
        with self._lock:
            if key in self._kept:  # another thread was faster
                return self._kept[key]
            self._kept[key] = kept
            self._bytes += kept.bytes
            while len(self._kept) > MOST_PROGRAMS or (self._bytes > MOST_PROGRAM_BYTES and len(self._kept) > 1):
                self._bytes -= self._kept.popitem(last=False)[1].bytes
        return kept

    def _derive(
        self,
        seen: NDArray[np.bool_],
        soft: tuple[int, ...],
        targets: Sequence[int] | None,
        lanes: int,
        layout: Layout,
    ) -> Kept:
        plan = self._plan
        pattern = np.full(plan.n_variables, FREE, np.uint8)
        pattern[seen] = HARD
        pattern[list(soft)] = SOFT
        wanted = np.full(plan.n_variables, targets is None)
        if targets is not None:
            wanted[list(targets)] = True
        by_rank = self._by_rank
        try:
            room = self._rooms.pop()
        except IndexError:
            room = np.empty(MOST_ROOM, np.int64)
        program = specialise(self._skeleton, layout, pattern[by_rank], wanted[by_rank], lanes, room)
        self._rooms.append(room)
        return Kept(plan, program, seen, wanted)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0


class Cpu(BackendDefaults):
    """`jtgpu.backends.base.Backend` in compiled code. Safe to use from several threads, which run side by side.

    Parameters
    ----------
    plan : Plan
    factors : sequence of arrays
    threads : int, optional
        Cores that one query or one table of cases may use; default: all that the process may use. The answers are
        the same, to the bit, for every number.
    """

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], threads: int | None = None):
        self.plan = self._plan = plan
        self.threads = cores() if threads is None else max(1, threads)
        self.by_rank = np.argsort(plan.axis_rank)
        self.cards = plan.cardinality[self.by_rank]
        self.numbers = Numbers(plan, factors)
        self.programs = Programs(plan, factors, self.numbers.layout)
        most = int(np.diff(plan.op_in_ptr).max(initial=2))
        self.limit = min(ROOM, DOUBLE // max(most, 2))  # log2
        self._lock = threading.Lock()
        self._idle: list[Workspace] = []
        self.spare = threading.Semaphore(self.threads - 1)  # threads that a table of cases may start
        self._open = True

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`."""
        space = self.take()
        try:
            kept = self.programs.get(evidence.state >= 0, soft_of(evidence), targets)
            kept.leave_out_zeros(self.numbers, self.cards)
            weights, weight_ptr, log_scale = self.weights(evidence)
            p = kept.program
            space.fit(p)
            space.fit_arena(int(p.counts[0]))
            states = evidence.state[self.by_rank]
            if self.threads > 1 and kept.terms >= PARALLEL:
                log_evidence = self.run_with_threads(space, kept, states, weights, weight_ptr)
            else:
                log_evidence = run(
                    space.arena, space.exponent, p.records, p.record_ptr, p.loads, p.load_ptr, p.roots, states, weights,
                    weight_ptr, self.limit, *space.arrays,
                )  # fmt: skip
            return self.result(space, kept, evidence, log_evidence + log_scale)
        finally:
            self.give_back(space)

    def run_batch(
        self,
        states: NDArray[np.int32],
        likelihood: Mapping[int, NDArray[np.float64]] | None = None,
        targets: Sequence[int] | None = None,
    ) -> BatchResult:
        """See `jtgpu.backends.base.Backend.run_batch`."""
        return answer_batch(self, states, likelihood or {}, targets)

    def work(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Multiplications of a case that observes these variables, (V,) bool, zeros included."""
        return self.programs.get(seen, (), targets).terms

    def memory(self, seen: NDArray[np.bool_], targets: Sequence[int] | None = None) -> int:
        """Bytes of the tables of such a case, the model's factors among them."""
        return 8 * int(self.programs.get(seen, (), targets).program.counts[0])

    @property
    def max_concurrent_tables(self) -> int:
        """Tables of cases that may usefully be asked at the same time: some of what each takes is done by one core."""
        return min(self.threads, MOST_AT_ONCE)

    def session(self) -> CpuSession:
        """See `jtgpu.backends.base.Backend.session`."""
        return CpuSession(self)

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`."""
        with self._lock:
            self._open, self._idle = False, []
        self.programs.clear()

    # For what runs programs --------------------------------------------------------------------------------------

    def take(self) -> Workspace:
        """A workspace that nobody uses."""
        with self._lock:
            if not self._open:
                raise JtgpuError("this backend is closed")
            return self._idle.pop() if self._idle else Workspace(self.numbers)

    def give_back(self, space: Workspace) -> None:
        """Let others use a workspace."""
        with self._lock:
            if self._open:
                self._idle.append(space)

    def run_with_threads(
        self,
        space: Workspace,
        kept: Kept,
        states: NDArray[np.int32],
        weights: NDArray[np.float64],
        weight_ptr: NDArray[np.int64],
    ) -> float:
        """A program in a workspace that fits it, on several cores; ln P(e), or `IMPOSSIBLE`."""
        p = kept.program
        tasks = kept.tasks(len(space.exponent), self.threads)

        def scratch() -> tuple[Any, ...]:
            own = Scratch()
            own.fit(p)
            return own.arrays

        possible = load_all(
            space.arena, p.loads, p.load_ptr, states, weights, weight_ptr, space.exponent, space.work, 2.0**-self.limit
        ) and run_tasks(tasks, p, space.arena, space.exponent, self.limit, self.threads, scratch)
        return float(evidence_log(space.arena, p.roots, space.exponent)) if possible else IMPOSSIBLE

    def weights(self, evidence: Evidence) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
        """See `scaled_weights`; raises `ImpossibleEvidence` where they leave nothing."""
        found = scaled_weights(evidence, self.plan.axis_rank)
        if found[2] == IMPOSSIBLE:
            raise ImpossibleEvidence("the evidence has probability 0")
        return found

    def result(self, space: Workspace, kept: Kept, evidence: Evidence, log_evidence: float) -> Result:
        """What a program left in the arena, with the observed variables."""
        if log_evidence == IMPOSSIBLE:
            raise ImpossibleEvidence("the evidence has probability 0")
        first = self.numbers.answers
        posterior = space.arena[first : first + int(self.plan.posterior_ptr[-1])].copy()
        posterior[kept.blank] = 0.0
        posterior[kept.first + evidence.state[kept.hard]] = 1.0
        return Result(posterior, log_evidence)


class CpuSession:
    """`jtgpu.backends.base.Session`: tables stay from query to query, and only what changed is made again.

    Every table has its own cells, so what one pattern made serves another one. Small programs run as they do outside.
    """

    def __init__(self, backend: Cpu):
        self._backend = backend
        self._layout, self._cells = backend.numbers.fixed_layout(backend.plan)
        self._space: Workspace | None = Workspace(backend.numbers)
        n = len(self._space.exponent)
        # factors never change: any number will do, as long as it is theirs alone
        self._signature = np.zeros(n, np.uint64)
        self._signature[: backend.plan.n_factors] = np.arange(1, backend.plan.n_factors + 1)
        self._signature[len(backend.plan.table_off)] = backend.plan.n_factors + 1  # the number 1
        self._lock = threading.Lock()
        self.made = np.zeros(2, np.int64)  # contractions that the last query made, and all of its program

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Session.run`."""
        backend = self._backend
        with self._lock:
            space = self._space
            if space is None:
                raise JtgpuError("this session is closed")
            seen, soft = evidence.state >= 0, soft_of(evidence)
            if backend.programs.get(seen, soft, targets).terms <= SMALL:
                return backend.run(evidence, targets)
            kept = backend.programs.get(seen, soft, targets, layout=self._layout)
            kept.leave_out_zeros(backend.numbers, backend.cards, cells=self._cells)
            weights, weight_ptr, log_scale = backend.weights(evidence)
            p = kept.program
            space.fit(p)
            space.fit_arena(self._cells)
            log_evidence = run_changed(
                space.arena, space.exponent, p.records, p.record_ptr, p.loads, p.load_ptr, p.roots,
                evidence.state[backend.by_rank], weights, weight_ptr, backend.limit, *space.arrays, *kept.hashes,
                self._signature, weights.view(np.uint64), self.made,
            )  # fmt: skip
            return backend.result(space, kept, evidence, log_evidence + log_scale)

    def close(self) -> None:
        """See `jtgpu.backends.base.Session.close`."""
        with self._lock:
            self._space = None


def soft_of(evidence: Evidence) -> tuple[int, ...]:
    """Variables with weights that are not observed."""
    if not evidence.likelihood:
        return ()
    return tuple(sorted(int(v) for v in evidence.likelihood if evidence.state[v] < 0))


def prepare(plan: Plan, factors: Sequence[NDArray[np.float64]], **options: Any) -> Cpu:
    """See `jtgpu.backends.base.Prepare`. Says so, as a warning of the logger "jtgpu", where the first query will have
    to wait for a compiler."""
    if not is_compiled(run):
        logging.getLogger("jtgpu").warning(
            "the first query on the CPU waits about half a minute while its loops are compiled for this machine; once"
        )
    return Cpu(plan, factors, **options)
