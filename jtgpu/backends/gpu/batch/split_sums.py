"""Long sums split in two: with a lane a case no other warp helps with a sum, so every sum must be short.

A contraction that sums over more than twice `MOST_SUM` configurations leaves its slowest summed variables in a table of
its own, which a second contraction sums out. A single sum of 65,536 configurations takes milliseconds, and the whole
level waits for it; the table costs one entry for every `MOST_SUM` multiply-adds.
"""

from __future__ import annotations

from ....plans.plan import Plan
from ..program.contractions import Binary, Step, levels_of

MOST_SUM = 128  # configurations


def split_sums(plan: Plan, program: Binary) -> Binary:
    """The same program without long sums; new tables follow the others."""
    scopes = list(program.scopes)
    steps: list[Step] = []

    def add(step: Step) -> None:
        joint = set().union(*(scopes[t] for t in step.ins))
        summed = sorted(joint - set(scopes[step.out]), key=lambda v: int(plan.axis_rank[v]))
        length = plan.size(tuple(summed))
        if length <= 2 * MOST_SUM:
            steps.append(step)
            return
        left: set[int] = set()
        for v in summed:
            if length <= MOST_SUM:
                break
            left.add(v)
            length //= int(plan.cardinality[v])
        if len(step.ins) == 1 and len(left) == len(summed):  # one variable of very many states
            steps.append(step)
            return
        scopes.append(tuple(sorted(left | set(scopes[step.out]), key=lambda v: int(plan.axis_rank[v]))))
        made = len(scopes) - 1
        steps.append(Step(made, step.ins, False))
        add(Step(step.out, (made,), step.posterior))

    for step in program.steps:
        add(step)
    return Binary(tuple(steps), tuple(scopes), levels_of(plan, steps))
