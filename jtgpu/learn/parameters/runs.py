"""The ways to fit: counting in one pass, EM, and stepwise EM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ...util.arrays import Floats
from ...util.iteration import Iteration
from .coded_cases import CodedCases, RowBlock
from .em import (
    Checkpoint,
    EMState,
    Family,
    Problem,
    fingerprints,
    first_state,
    log_prior,
    maximise,
    run_em,
    run_stepwise,
)
from .expectation import Expectation, PassResult, Steps
from .families import available_counts, family_shapes, log_score, network_of
from .information import Passes, standard_errors
from .result import Fit
from .setup import Setup

if TYPE_CHECKING:
    from ...model.network import BayesianNetwork
    from ...options.compute import Compute
    from ...options.learning import EM

Tables = list[Floats]


class FitRun(NamedTuple):
    """How EM runs, and where its passes run; see `jtgpu.learn.fit`."""

    em: EM
    compute: Compute
    backend: str
    listen: Callable[[Iteration], None]
    tell: Callable[[str], None] = lambda _: None  # what happens after EM

    @property
    def flag(self) -> bool:
        """Whether cases of probability 0 are left out."""
        return self.em.on_error == "flag"

    @property
    def kind_of_errors(self) -> dict[str, Any]:
        """The keywords of `standard_errors`."""
        return {"scores": self.em.standard_errors == "scores", "tell": self.tell}


def counted(setup: Setup, complete_counts: Callable[[], Tables], seed: int) -> EMState:
    """The CPTs of the highest posterior given counts of complete cases."""
    counts = complete_counts()
    if setup.start == "given":
        current = setup.start_tables(complete_counts, seed, 0)
    else:
        current = [np.full(shape, 1.0 / shape[-1]) for shape in family_shapes(setup.model)]
    tables = maximise(setup.families, counts, current)
    log_likelihood = log_score(counts, tables, range(len(tables)))
    objective = log_likelihood + log_prior(setup.families, tables)
    history = (Iteration(0, objective, log_likelihood, 0.0, 0.0, False),)
    return EMState(tables, PassResult(counts, log_likelihood, []), objective, history, converged=True)


def _result(setup: Setup, cases: CodedCases, state: EMState, method: str, **more: object) -> Fit[BayesianNetwork]:
    """The fit of some CPTs and counts."""
    model = setup.model
    estimated = sorted(v for group in setup.sharing.groups for v in group)
    unseen = {
        name: tuple(s for s, was in zip(model.states(v), cases.seen[v], strict=True) if not was)
        for v, name in enumerate(model)
        if name not in setup.hidden and not cases.seen[v].all()
    }
    counts = state.evaluation.sums
    posteriors = [
        (tuple(model.variables[v] for v in g), setup.prior[g[0]] + np.sum([counts[v] for v in g], axis=0))
        for g in setup.sharing.groups
    ]
    network = network_of(model, state.tables, setup.network, ends=setup.ends)
    return Fit._of(
        network, state, method, {model.variables[v]: counts[v] for v in estimated}, cases.n_rows,
        n_dropped=cases.n_dropped, states_from_data=setup.states_from_data, unseen=unseen, hidden=setup.hidden,
        fixed=tuple(model.variables[v] for v in setup.sharing.fixed), missing=cases.missing(setup.columns),
        n_weightless=cases.n_weightless, _posteriors=posteriors, **more,
    )  # fmt: skip


def named_errors(setup: Setup, state: EMState, passes: Passes | None, run: FitRun) -> dict[str, Floats]:
    """Standard errors of all entries of the CPTs by variable; 0 for fixed ones."""
    errors = standard_errors(setup.families, state.tables, state.evaluation.sums, passes, **run.kind_of_errors)
    return {name: errors.get(v, np.zeros(state.tables[v].shape)) for v, name in enumerate(setup.model)}


def fit_rows(setup: Setup, cases: CodedCases, run: FitRun, *, available: bool) -> Fit[BayesianNetwork]:
    """Count in one pass, or EM from every start."""
    # available: each family over the rows in which it is complete
    if available or (cases.is_complete and not setup.keeps_zeros):
        state = counted(setup, partial(available_counts, cases), run.em.seed)
        more: dict[str, Any] = {"restarts": (state.objective,)}
        if run.em.standard_errors:
            more["_errors"] = named_errors(setup, state, None, run)
        return _result(setup, cases, state, "counts" if cases.is_complete else "available", **more)
    cases.merge_equal_rows()
    first = setup.start_tables(partial(available_counts, cases), run.em.seed, 0)
    at = run.compute
    engine = Expectation(
        cases, first, run.backend, run.em.order, at.threads, at.devices, at.cluster, by_rows=bool(setup.strengths)
    )
    with closing(engine):
        state, more = best_of_starts(setup, engine, run, lambda: fingerprints(setup, cases.digest()))
        if run.em.standard_errors:
            more["_errors"] = named_errors(setup, state, engine, run)
    return _result(setup, cases, state, "em", **more)


class Starts(Protocol):
    """Where EM starts, and what it estimates."""

    @property
    def families(self) -> Sequence[Family]: ...

    def start_tables(self, complete_counts: Callable[[], Tables], seed: int, n: int) -> Tables:
        """The n-th start."""


def best_of_starts(
    setup: Starts, engine: Steps, run: FitRun, decisive: Callable[[], dict[str, str]]
) -> tuple[EMState, dict[str, Any]]:
    """The best state that EM reaches from some starts, and entries of the result."""
    # decisive: Digests of what decides the result, by name, for a checkpoint
    saved = None
    if run.em.checkpoint is not None:
        options = {"seed": run.em.seed, "accelerate": run.em.accelerate, "flag": run.flag}
        digests = {**decisive(), **{name: repr(value) for name, value in options.items()}}
        saved = Checkpoint(run.em.checkpoint, digests, resume=run.em.resume)
    objectives = list(saved.objectives) if saved is not None else []
    best = saved.best if saved is not None else None
    problem = Problem(engine.evaluate, setup.families)
    n_left_out = 0

    def keep(state: EMState) -> None:
        run.listen(state.history[-1])
        if saved is not None:
            saved.write(state, objectives, best)

    for n in range(len(objectives), run.em.restarts):
        resumed = saved.resumed() if saved is not None else None
        tables = setup.start_tables(engine.complete_counts, run.em.seed, n) if resumed is None else resumed.tables
        evaluation, left_out = _possible(engine, tables, run.flag)
        n_left_out += left_out
        if resumed is None:
            state = first_state(problem, tables, evaluation)
            run.listen(state.history[-1])
        else:
            state = replace(resumed, evaluation=evaluation)
        state = run_em(problem, state, run.em, keep)
        if saved is not None and state.interrupted:
            saved.write(state, objectives, best, now=True)
        if best is None or state.objective > best.objective:
            best = state
        if state.interrupted:
            best = replace(best, interrupted=True, converged=False)
            break
        objectives.append(state.objective)
    assert best is not None
    if not best.evaluation.sums:  # read from a checkpoint
        best = replace(best, evaluation=engine.evaluate(best.tables))
    if saved is not None and not best.interrupted:
        saved.finish()
    return best, {"restarts": tuple(objectives) or (best.objective,), "n_impossible": n_left_out}


def _possible(engine: Steps, tables: Tables, leave_out: bool) -> tuple[PassResult, int]:
    """A pass over the cases, without those of probability zero; how many of these were left out now."""
    # raises ImpossibleEvidence: For the first such case, unless `leave_out`; also if no other one is left.
    evaluation = engine.evaluate(tables)
    error = engine.error(evaluation)
    if error is None:
        return evaluation, 0
    if not leave_out:
        raise error
    n, are_left = engine.leave_out(evaluation)
    if not are_left:
        raise error
    return engine.evaluate(tables), n


def _in_chunks(blocks: Iterator[RowBlock], rows: int) -> Iterator[RowBlock]:
    """Blocks of at most so many rows."""
    for block in blocks:
        for at in range(0, len(block.states), rows):
            some = slice(at, at + rows)
            yield RowBlock(block.states[some], block.weights[some], block.rows[some])


def fit_stepwise(
    setup: Setup, cases: CodedCases, blocks: Iterator[RowBlock], chunk: tuple[int, float], run: FitRun
) -> Fit[BayesianNetwork]:
    """Stepwise EM in one pass; CPTs that `start` would count are uniform at the start."""
    # cases: Without rows: those of the blocks are noted there
    # chunk: (int, float): Rows of a chunk, and the power of the shares
    rows, power = chunk
    tables = setup.start_tables(partial(available_counts, cases), run.em.seed, 0)
    engine = Expectation(cases, tables, run.backend, run.em.order, run.compute.threads, run.compute.devices)

    def noted() -> Iterator[RowBlock]:
        for block in _in_chunks(map(cases.without_weightless, blocks), rows):
            cases.note(block)
            yield block

    try:
        outcome = run_stepwise(
            engine.evaluate_block, noted(), tables, setup.families, power, flag=run.flag,
            listener=run.listen,
        )  # fmt: skip
    finally:
        engine.close()
    objective = outcome.log_likelihood + log_prior(setup.families, outcome.tables)
    state = EMState(
        outcome.tables, PassResult(outcome.counts, outcome.log_likelihood, []), objective, outcome.history,
        interrupted=outcome.interrupted,
    )  # fmt: skip
    return _result(setup, cases, state, "stepwise", n_impossible=outcome.n_impossible, restarts=(objective,))
