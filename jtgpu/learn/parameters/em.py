"""The EM algorithm: passes over the rows, each followed by the parameters of the highest posterior given its sums.

The objective, ln P(data) + ln prior, never falls (Dempster, Laird, Rubin, JRSS B 39, 1977), which is checked.
Accelerated steps extrapolate two steps (SQUAREM, Varadhan and Roland, Scandinavian Journal of Statistics 35, 2008) and
are taken only where the objective rises.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ...errors import DataError, ImpossibleEvidence, JtgpuError
from ...options.learning import EM
from ...util.arrays import Floats
from ...util.iteration import Iteration
from ..state_file import DAMAGED, StateFile
from .coded_cases import RowBlock
from .expectation import PassResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .setup import Setup

FALL = 1e-9  # fall of the objective that rounding explains, relative to its size and the weight of the rows
CALM = 1e-6  # of the weight of the rows: below it, an objective near 0 counts as this much for the tolerance
LARGER = 4.0  # factor of the longest extrapolation, after one that reached it

Theta = list[Floats]  # parameters or sums, an array a variable: CPTs and counts; see `DensityFamily` for numbers


class Family(Protocol):
    """Parameters that are estimated together; those of tied variables are one."""

    @property
    def members(self) -> tuple[int, ...]:
        """The variables, by number."""

    def maximise(self, sums: Theta, old: Floats) -> Floats:
        """The M-step; what neither rows nor the prior determine stays as it is."""

    def log_prior(self, theta: Floats) -> float:
        """ln prior, up to a constant."""

    def extrapolated(self, first: Floats, second: Floats, third: Floats, length: float) -> Floats:
        """Parameters beyond the third ones."""


@dataclass(frozen=True)
class Problem:
    """A pass over the rows, and what is estimated."""

    evaluate: Callable[[Theta], PassResult]
    families: Sequence[Family]

    def objective(self, evaluation: PassResult, theta: Theta) -> float:
        """ln P(data) + ln prior of the parameters that are estimated."""
        return evaluation.log_likelihood + log_prior(self.families, theta)


def log_prior(families: Sequence[Family], theta: Theta) -> float:
    """ln prior of all families."""
    total = 0.0
    for family in families:
        total += family.log_prior(theta[family.members[0]])
    return total


def maximise(families: Sequence[Family], sums: Theta, theta: Theta) -> Theta:
    """The parameters of the highest posterior given the sums of a pass: the M-step."""
    best = list(theta)
    for family in families:
        own = family.maximise(sums, theta[family.members[0]])
        for v in family.members:
            best[v] = own
    return best


@dataclass(frozen=True)
class EMState:
    """CPTs, what a pass with them has shown, and how they were reached."""

    tables: Theta
    evaluation: PassResult
    objective: float
    history: tuple[Iteration, ...]
    before: Theta | None = None  # CPTs from which one step led to these, for an extrapolation
    reach: float = 1.0  # longest extrapolation; 1: none
    calm: int = 0  # successive changes below the tolerance
    converged: bool = False
    interrupted: bool = False
    passes: int = field(default=0)


def first_state(problem: Problem, tables: Theta, evaluation: PassResult | None = None) -> EMState:
    """The state at the start."""
    begun = time.perf_counter()
    evaluation = problem.evaluate(tables) if evaluation is None else evaluation
    objective = problem.objective(evaluation, tables)
    first = Iteration(0, objective, evaluation.log_likelihood, 0.0, time.perf_counter() - begun, False)
    return EMState(tables, evaluation, objective, (first,))


def run_em(
    problem: Problem, state: EMState, rule: EM, listener: Callable[[EMState], None] = lambda _: None
) -> EMState:
    """Iterate until the objective stays the same, or the passes are used up, or Ctrl-C."""
    # listener: Called after every iteration
    try:
        while state.passes < rule.iterations and not state.converged:
            state = step(problem, state, rule)
            listener(state)
    except KeyboardInterrupt:
        return replace(state, interrupted=True)
    except SystemError as error:  # inside Python code that Numba calls from C
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        return replace(state, interrupted=True)
    return state


def step(problem: Problem, state: EMState, rule: EM) -> EMState:
    """One iteration; if an extrapolation is not taken, the ordinary step follows at once."""
    begun = time.perf_counter()
    ordinary = maximise(problem.families, state.evaluation.sums, state.tables)
    passes = state.passes
    if rule.accelerate and state.before is not None and passes + 2 <= rule.iterations:
        length = _length(state.before, state.tables, ordinary, problem.families)
        if length > 1.0:
            used = min(length, state.reach * LARGER)
            tables = _extrapolated(state.before, state.tables, ordinary, used, problem.families)
            evaluation = problem.evaluate(tables)
            passes += 1
            objective = problem.objective(evaluation, tables)
            if objective > state.objective and not _any_lost(state.evaluation, evaluation):
                reach = used if used >= state.reach * LARGER else state.reach
                new = replace(state, passes=passes, reach=reach)
                return _next(new, tables, evaluation, objective, rule, (begun, True))
            state = replace(state, reach=1.0)
    evaluation = problem.evaluate(ordinary)
    objective = problem.objective(evaluation, ordinary)
    passes += 1
    lost = _any_lost(state.evaluation, evaluation)
    if lost or objective < state.objective - FALL * (abs(state.objective) + evaluation.weight):
        reason = "a row became impossible" if lost else f"the objective fell from {state.objective!r} to {objective!r}"
        raise JtgpuError(f"iteration {passes}: {reason}; this is a bug in jtgpu")
    return _next(replace(state, passes=passes), ordinary, evaluation, objective, rule, (begun, False))


def _next(
    state: EMState, tables: Theta, evaluation: PassResult, objective: float, rule: EM, how: tuple[float, bool]
) -> EMState:
    """The state after a step that began at some time, accelerated or not."""
    begun, accelerated = how
    change = objective - state.objective if np.isfinite(state.objective) else np.inf
    calm = state.calm + 1 if change <= rule.tolerance * max(abs(objective), CALM * evaluation.weight) else 0
    entry = Iteration(
        state.passes, objective, evaluation.log_likelihood, change, time.perf_counter() - begun, accelerated
    )
    return replace(
        state, tables=tables, evaluation=evaluation, objective=objective, history=(*state.history, entry),
        before=None if accelerated else state.tables, calm=calm, converged=calm >= 2,
    )  # fmt: skip


def _any_lost(before: PassResult, after: PassResult) -> bool:
    """Whether a row that was possible is impossible now."""
    return any(a is not b and (b & ~a).any() for a, b in zip(before.impossible, after.impossible, strict=True))


def _length(first: Theta, second: Theta, third: Theta, families: Sequence[Family]) -> float:
    """The length of the extrapolation: of the first step, over that of the change between the steps."""
    step_size = change = 0.0
    for v in (family.members[0] for family in families):
        r = second[v] - first[v]
        step_size += float((r * r).sum())
        change += float(((third[v] - second[v] - r) ** 2).sum())
    return float(np.sqrt(step_size / change)) if change > 0 else 1.0


def _extrapolated(
    first: Theta, second: Theta, third: Theta, length: float, families: Sequence[Family]
) -> Theta:
    """Parameters beyond the third ones."""
    theta = list(third)
    for family in families:
        v = family.members[0]
        own = family.extrapolated(first[v], second[v], third[v], length)
        for u in family.members:
            theta[u] = own
    return theta


# Stepwise EM for rows that are passed once (Cappe and Moulines, JRSS B 71, 2009).
#
# After each chunk of rows the average counts move towards those of the chunk, by a share that falls from chunk to
# chunk, and the CPTs follow.

DELAY = 2  # added to the number of a chunk, so that the first ones do not replace everything


class Passed(NamedTuple):
    """The result of one pass."""

    tables: Theta
    counts: Theta  # scaled to the weight of all rows
    history: tuple[Iteration, ...]
    log_likelihood: float  # sum over the chunks, each under the CPTs before it
    n_rows: int
    n_impossible: int
    interrupted: bool


def run_stepwise(
    evaluate: Callable[[RowBlock, Theta], PassResult],
    chunks: Iterable[RowBlock],
    tables: Theta,
    families: Sequence[Family],
    power: float,
    *,
    flag: bool = False,
    listener: Callable[[Iteration], None] = lambda _: None,
) -> Passed:
    """Pass over chunks of rows once."""
    # evaluate: The E-step for a chunk
    # tables: list of arrays: The CPTs to start from
    # power: Chunk k = 1, 2, ... has the share ``(k + 2) ** -power``; the first has all.
    # flag: Whether rows of probability zero are left out
    # listener: Called after each chunk
    average: Theta = []
    history: list[Iteration] = []
    weight = log_likelihood = 0.0
    n_rows = n_impossible = 0
    interrupted = False
    try:
        for k, block in enumerate(chunks):
            begun = time.perf_counter()
            total = float(block.weights.sum())
            n_rows += len(block.states)
            if not total > 0:
                continue
            evaluation = evaluate(block, tables)
            dead = evaluation.impossible[0] & (block.weights > 0)
            if dead.any() and not flag:
                row = int(block.rows[int(np.argmax(dead))])
                raise ImpossibleEvidence(f"row {row}: this row has probability 0 under the CPTs before its chunk")
            n_impossible += int(dead.sum())
            possible = total - float(block.weights[dead].sum())
            if not possible > 0:
                continue
            share = 1.0 if not average else (k + DELAY) ** -power
            each = [c / possible for c in evaluation.sums]
            average = each if not average else [(1 - share) * a + share * e for a, e in zip(average, each, strict=True)]
            weight += possible
            tables = maximise(families, [weight * a for a in average], tables)
            log_likelihood += evaluation.log_likelihood
            objective = evaluation.log_likelihood + log_prior(families, tables)
            entry = Iteration(
                len(history) + 1, objective, evaluation.log_likelihood, 0.0, time.perf_counter() - begun, False
            )
            history.append(entry)
            listener(entry)
    except KeyboardInterrupt:
        if not average:
            raise
        interrupted = True
    if not average:
        raise DataError("there are no rows to fit")
    counts = [weight * a for a in average]
    return Passed(tables, counts, tuple(history), log_likelihood, n_rows, n_impossible, interrupted)


# Checkpoints of EM: the CPTs of the last whole iteration, so that an interrupted run can continue.

INTERVAL = 2.0  # seconds between two writes

NOTHING = PassResult([], 0.0, [])


def fingerprints(setup: Setup, data: str) -> dict[str, str]:
    """Digests of all that decides the result of a run, by name; `data` is that of the cases."""
    model, network = setup.model, setup.network
    # a network that only gives the structure does not decide the result
    uses_network = network is not None and (setup.start == "given" or bool(setup.sharing.fixed))
    cpts = [network.cpt(v) for v in network] if network is not None and uses_network else []
    return {
        "data": data,
        "structure": digest(repr([(v, model.states(v), model.parents(v)) for v in model])),
        "CPTs of the given network": digest(*cpts),
        "prior": digest(*setup.prior),
        "tied or fixed variables": digest(repr(setup.sharing)),
        "hidden variables": digest(repr(setup.hidden)),
        "start": f"{setup.start}, {setup.keep_zeros}",
    }


def digest(*parts: str | NDArray[Any]) -> str:
    """A hash of texts and arrays."""
    data = hashlib.sha256()
    for part in parts:
        data.update(part.encode() if isinstance(part, str) else repr(part.shape).encode() + part.tobytes())
    return data.hexdigest()


class Checkpoint:
    """A file with the state of a run."""

    # resume: Whether to continue from the file if it exists. Without it the file is replaced.
    # objectives: Of the starts that are done
    # best: The best of these, without counts
    # raises JtgpuError: If the file cannot be read, or is that of another run; the message names what differs.

    def __init__(self, path: str | os.PathLike[str], fingerprints: dict[str, str], *, resume: bool):
        self._file = StateFile(path, fingerprints, interval=INTERVAL, advice="delete it, or run without resume")
        self.objectives: list[float] = []
        self.best: EMState | None = None
        self._present: EMState | None = None
        saved = self._file.read() if resume else None
        if saved is not None:
            meta, arrays = saved
            try:
                self.objectives = [float(x) for x in meta["objectives"]]
                self.best = _restored(meta["best"], arrays, "b")
                self._present = _restored(meta["present"], arrays, "s")
            except DAMAGED as error:
                raise self._file.damaged(error) from None

    def resumed(self) -> EMState | None:
        """The state to continue from, without counts; None: begin with the next start. Used once."""
        state, self._present = self._present, None
        return state

    def write(
        self, state: EMState | None, objectives: Sequence[float], best: EMState | None, *, now: bool = False
    ) -> None:
        """Write the state, unless that has been done a moment ago."""
        if not now and not self._file.is_due():
            return
        arrays: dict[str, NDArray[Any]] = {}
        meta = {
            "objectives": list(objectives),
            "best": _stored(best, arrays, "b"),
            "present": _stored(state, arrays, "s"),
        }
        self._file.write(meta, arrays, durable=now)

    def finish(self) -> None:
        """Delete the file: the run is complete."""
        self._file.delete()


def _stored(state: EMState | None, arrays: dict[str, NDArray[Any]], letter: str) -> dict[str, Any] | None:
    """A state as JSON; its CPTs go to `arrays`."""
    if state is None:
        return None
    for v, table in enumerate(state.tables):
        arrays[f"{letter}{v}"] = table
    for v, table in enumerate(state.before or ()):
        arrays[f"{letter}before{v}"] = table
    return {
        "variables": len(state.tables), "before": state.before is not None, "objective": state.objective,
        "history": [list(entry) for entry in state.history], "reach": state.reach, "calm": state.calm,
        "converged": state.converged, "passes": state.passes,
    }  # fmt: skip


def _restored(stored: dict[str, Any] | None, arrays: dict[str, NDArray[Any]], letter: str) -> EMState | None:
    if stored is None:
        return None
    n = range(stored["variables"])
    return EMState(
        [arrays[f"{letter}{v}"] for v in n], NOTHING, stored["objective"],
        tuple(Iteration(*entry) for entry in stored["history"]),
        [arrays[f"{letter}before{v}"] for v in n] if stored["before"] else None,
        stored["reach"], stored["calm"], stored["converged"], passes=stored["passes"],
    )  # fmt: skip
