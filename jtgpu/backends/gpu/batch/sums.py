"""Long sums cut in two: with a lane a case nobody else helps a warp with its sum, so no sum may be long.

A contraction that sums over more than twice `MOST_SUM` configurations keeps its slowest summed variables in a table of
its own, which is summed out afterwards. One sum of 65,536 takes milliseconds and everything else waits for it (Link:
8,600 cases a second with such sums, 11,200 without, on an H100); the table costs an entry for every `MOST_SUM`
multiply-adds. Of 32, 64 and 128 the last is the quickest (Munin2: 107, 110 and 128 thousand cases a second; Pigs, Link
and Munin4 agree by 1 to 2 %).
"""

from __future__ import annotations

from ....plans.plan import Plan
from ..program.contractions import Binary, Step

__all__ = ["MOST_SUM", "split_sums"]

MOST_SUM = 128  # configurations


def split_sums(plan: Plan, program: Binary) -> Binary:
    """The same program without long sums; tables made here follow the others."""
    scopes = list(program.scopes)
    steps: list[Step] = []

    def add(step: Step) -> None:
        joint = set().union(*(scopes[t] for t in step.ins))
        summed = sorted(joint - set(scopes[step.out]), key=lambda v: int(plan.axis_rank[v]))
        length = plan.size(tuple(summed))
        if length <= 2 * MOST_SUM:
            steps.append(step)
            return
        kept: set[int] = set()
        for v in summed:
            if length <= MOST_SUM:
                break
            kept.add(v)
            length //= int(plan.cardinality[v])
        if len(step.ins) == 1 and len(kept) == len(summed):  # one variable of very many states
            steps.append(step)
            return
        scopes.append(tuple(sorted(kept | set(scopes[step.out]), key=lambda v: int(plan.axis_rank[v]))))
        made = len(scopes) - 1
        steps.append(Step(made, step.ins, False))
        add(Step(step.out, (made,), step.posterior))

    for step in program.steps:
        add(step)
    level_of = dict.fromkeys(range(plan.n_factors), 0)
    level = []
    for s in steps:
        level_of[s.out] = 1 + max(level_of[t] for t in s.ins)
        level.append(level_of[s.out])
    return Binary(tuple(steps), tuple(scopes), tuple(level))
