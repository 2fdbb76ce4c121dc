"""`warm_up`: every compiled loop of the CPU backend made at once, so that no later query waits for a compiler."""

from __future__ import annotations

import numpy as np

from ...plans.plan import Plan
from ..base import Evidence
from .batch import ENOUGH
from .engine import Cpu
from .zeros import without_zeros

__all__ = ["warm_up"]


def warm_up(plan: Plan) -> None:
    """Run one case, a session, a table of cases, two threads, and what leaves out zeros, on tables of nothing but ones.

    Parameters
    ----------
    plan : Plan
        Any; a small one.
    """
    backend = Cpu(plan, [np.ones(plan.cardinality[list(scope)]) for scope in plan.factor_scopes], threads=2)
    nothing = Evidence.none(plan.n_variables)
    backend.run(nothing)
    session = backend.session()
    session.run(nothing)
    session.close()
    backend.run_batch(np.full((ENOUGH, plan.n_variables), -1, np.int32))
    kept = backend.programs.get(nothing.state >= 0)
    space = backend.take()
    space.fit(kept.program)
    space.fit_arena(int(kept.program.counts[0]))
    backend.run_with_threads(space, kept, nothing.state, *backend.weights(nothing)[:2])
    without_zeros(kept.program, backend.numbers, backend.cards, 1)
    backend.close()
