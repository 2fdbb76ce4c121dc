"""One program and one model's numbers, ready to run: programs by pattern, workspaces, threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import ImpossibleEvidence, JtgpuError
from ...plans.program import Program
from ...util.loops import loops
from ...util.system import cores, new_lock, reset_in_child
from ..base import Evidence, slice_of
from ..state_map import NOTHING, StateMap
from .parallel import run_tasks
from .programs import CachedProgram, ProgramCache
from .records import IMPOSSIBLE
from .workspace import ROOM, ModelNumbers, Workspace, extended_weights, scaled_weights

_sweep, _extended = loops("jtgpu.backends.cpu.loops.sweep"), loops("jtgpu.backends.cpu.loops.extended")

DOUBLE = 800  # log2 of what a contraction may multiply together, far from where doubles lose digits
PARALLEL = 3_000_000  # terms from which several threads run a program, 300 us of one core


class PreparedModel:
    """Numbers and the programs that hold for them; never changed, so that a query sees one or the other."""

    def __init__(self, numbers: ModelNumbers, programs: ProgramCache):
        self.numbers, self.programs = numbers, programs


class Runner:
    """Runs a program for cases. Thread-safe; each query that runs at the same time has its own workspace."""
    # factors: sequence of arrays: The model's tables, axes in the model's order
    # threads: Cores that one query or table may use. Default: for a table all that the process may use, for one case as
    #     many of these as pay. The bits are the same for every number.

    def __init__(self, program: Program, factors: Sequence[NDArray[np.float64]], threads: int | None = None):
        self.program = program
        self.threads = cores() if threads is None else max(1, threads)
        self.asked = threads
        self.by_rank = program.by_rank
        self.cards = program.cardinality[self.by_rank]
        most = max((len(tables) for tables in program.ins), default=2)
        self.limit = min(ROOM, DOUBLE // max(most, 2))  # log2
        numbers = ModelNumbers(program, factors)
        self.model = PreparedModel(numbers, ProgramCache(program, factors, numbers.layout))
        self._lock = new_lock()
        reset_in_child(self, Runner._reset_spare)
        self._reset_spare()
        self._idle: list[Workspace] = []
        self._open = True

    def _reset_spare(self) -> None:
        self.spare = threading.Semaphore(self.threads - 1)  # threads that a table of cases may start

    def reload(self, factors: Sequence[NDArray[np.float64]], serves: bool = False) -> bool:
        """Replace the numbers; a query that is running finishes with the old ones. Returns whether programs stay.

        They stay if the same factors are conditional densities and the same entries are zero.
        """
        # serves: Whether this is known, of another runner of the plan
        numbers, programs = self.model.numbers.with_factors(factors), self.model.programs
        serves = serves or programs.serves(factors)
        if not serves:
            programs = ProgramCache(self.program, factors, numbers.layout)
        self.model = PreparedModel(numbers, programs)
        return serves

    def acquire(self, model: PreparedModel | None = None) -> Workspace:
        """A workspace that no other query uses, with the numbers of a model (default: the present one)."""
        if model is None:
            model = self.model
        with self._lock:
            if not self._open:
                raise JtgpuError("this backend is closed")
            space = self._idle.pop() if self._idle else Workspace(model.numbers)
        if space.numbers is not model.numbers:
            space.use(model.numbers)
        return space

    def release(self, space: Workspace) -> None:
        """Let other queries use a workspace."""
        with self._lock:
            if self._open:
                self._idle.append(space)

    def close(self) -> None:
        """Free all memory."""
        with self._lock:
            self._open, self._idle = False, []
        self.model.programs.clear()

    def run(
        self, space: Workspace, cached: CachedProgram, evidence: Evidence, zeros: bool = False, tables: bool = True,
        states: StateMap | None = None,
    ) -> float:  # fmt: skip
        """Run a program for one case; its tables are in the workspace then."""
        # cached: Of the evidence's pattern and the workspace's numbers
        # zeros: Whether to continue where a table is zero everywhere, as derivatives do
        # tables: Whether other tables than the answers are read afterwards
        # states: Of a case of another model, without likelihoods
        # returns ln P(e).
        # raises ImpossibleEvidence: If P(e) = 0 and not `zeros`, or if a likelihood is zero everywhere.
        weights, weight_ptr, log_scale = scaled_weights(evidence, self.program)
        cached.leave_out_zeros(space.numbers, self.cards)
        code = cached.code if tables else cached.answering()
        space.fit_program(cached)
        log_evidence = IMPOSSIBLE
        state = with_sets(evidence.state, self.program.n_sets)
        space.tables = space.arena, _NO_POWER
        if log_scale != IMPOSSIBLE and (log_scale != log_scale or space.numbers.is_lossy):
            log_evidence = math.nan
        elif log_scale != IMPOSSIBLE:
            n = 1
            if self.threads > 1 and cached.terms >= PARALLEL and not zeros:
                n = cached.threads(self.threads) if self.asked is None else self.threads
            if n > 1:
                own = state if states is None else states.case(state)
                if own is not None:
                    log_evidence = self._run_with_threads(space, cached, (own[self.by_rank], weights, weight_ptr), n)
            else:
                log_evidence = _sweep.run(
                    code, space.arena, space.exponent, self.by_rank, state, NOTHING if states is None else states.code,
                    weights, weight_ptr, self.limit, zeros, space.block,
                )  # fmt: skip
        if log_evidence != log_evidence:
            t = space.extended(cached.cells)
            space.tables = t.cell, t.power
            extended, log_scale = extended_weights(evidence, self.program)
            log_evidence = _extended.run(
                t, cached.records, self.by_rank, state, NOTHING if states is None else states.code, extended, zeros,
                space.arena,
            )  # fmt: skip
        if log_evidence == IMPOSSIBLE and not (zeros and log_scale != IMPOSSIBLE):
            raise ImpossibleEvidence("the evidence has probability 0")
        return float(log_evidence + log_scale)

    def posteriors(
        self, space: Workspace, cached: CachedProgram, evidence: Evidence, states: StateMap | None = None
    ) -> NDArray[np.float64]:
        """The posteriors that a program left in the arena, variable after variable, with the observed variables'."""
        program = self.program
        posterior: NDArray[np.float64] = _sweep.copy_posteriors(
            cached.code, space.arena, self.by_rank, with_sets(evidence.state, program.n_sets), program.posterior_ptr,
            NOTHING if states is None else states.code,
        )  # fmt: skip
        for v in cached.set_targets:
            scope, cells = program.weighed_scope(v), posterior[program.posterior_ptr[v] : program.posterior_ptr[v + 1]]
            table = np.zeros(program.shape(scope))
            agreeing = table[slice_of(scope, evidence.state)]
            table[slice_of(scope, evidence.state)] = cells[: agreeing.size].reshape(agreeing.shape)
            cells[:] = table.ravel()
        return posterior

    def _run_with_threads(
        self,
        space: Workspace,
        cached: CachedProgram,
        case: tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]],
        threads: int,
    ) -> float:
        """`sweep.run` on several cores."""
        p = cached.records
        tasks = cached.tasks(p, len(space.exponent), threads)
        run = _sweep.load_all(space.arena, p.loads, p.load_ptr, *case, space.exponent, self.limit, space.block)
        if run == 0.0:
            run = run_tasks(tasks, p.records, space, self.limit, threads)
        return float(_sweep.evidence_log(space.arena, p.roots, space.exponent) if run == 0.0 else run)


_NO_POWER = np.zeros(0, np.int64)


def with_sets(state: NDArray[np.int32], n_sets: int) -> NDArray[np.int32]:
    """(V+S,) int32 observed states, of one case or of each row: set variables are not observed."""
    if n_sets:
        state = np.concatenate([state, np.full((*state.shape[:-1], n_sets), -1, state.dtype)], axis=-1)
    return np.ascontiguousarray(state, np.int32)


def soft_of(evidence: Evidence) -> tuple[int, ...]:
    """Variables with weights that are not observed, and set variables with weights."""
    if not evidence.likelihood:
        return ()
    state = evidence.state
    return tuple(sorted(int(v) for v in evidence.likelihood if v >= len(state) or state[v] < 0))


def on_all_cores(tasks: Sequence[Callable[[], None]], runner: Runner, most: int) -> None:
    """Call every task on this thread and as many others as are idle, at most so many; the first error ends the run."""
    queue, lock = iter(tasks), threading.Lock()
    errors: list[BaseException] = []

    def serve() -> None:
        while not errors:
            with lock:
                task = next(queue, None)
            if task is None:
                return
            try:
                task()
            except BaseException as error:
                errors.append(error)

    def help_out() -> None:
        try:
            serve()
        finally:
            runner.spare.release()

    others: list[threading.Thread] = []
    try:
        # calls at the same time share the threads
        while len(others) < min(len(tasks), most) - 1 and runner.spare.acquire(blocking=False):
            others.append(threading.Thread(target=help_out, name="jtgpu-batch"))
            try:
                others[-1].start()
            except RuntimeError:  # the system has no more threads: these do all tasks
                runner.spare.release()
                break
        serve()
    except BaseException as error:  # Ctrl-C between two tasks: the others write until they end
        errors.append(error)
    for thread in others:
        if thread.ident is not None:
            thread.join()
    if errors:
        raise errors[0]
