"""`warm_up`: compile every loop of the CPU backend, so that no later query waits for a compiler."""

from __future__ import annotations

import numpy as np

from ...plans.plan import Plan
from ..base import Evidence
from .batch import ENOUGH
from .engine import Cpu
from .parallel import run_tasks
from .programs import without_zeros


def warm_up(plan: Plan) -> None:
    """Run one case, a session, a table of cases, counts, two threads, and what leaves out zeros, on tables of ones."""
    # plan: Any; a small one
    backend = Cpu(plan, [np.ones(plan.cardinality[list(scope)]) for scope in plan.factor_scopes], threads=2)
    nothing, rows = Evidence.none(plan.n_variables), np.full((ENOUGH, plan.n_variables), -1, np.int32)
    backend.run(nothing)
    session = backend.session()
    session.run(nothing)
    session.close()
    backend.run_batch(rows)
    backend.run_counts(rows)
    backend.run_counts(rows[:1])
    runner = backend.runner
    cached = runner.model.programs.get(nothing.state >= 0)
    space = runner.acquire()
    space.fit_program(cached)
    tasks = cached.tasks(cached.records, len(space.exponent), 2)
    run_tasks(tasks, cached.records.records, space, runner.limit, 2)
    without_zeros(cached.records, space.numbers, runner.cards, 1)
    backend.close()
