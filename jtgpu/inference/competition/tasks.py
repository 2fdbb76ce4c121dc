"""`solve_text`: the solution file of a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import ImpossibleEvidence
from ...model.discrete import DiscreteModel
from ...util.options import BackendName
from .limits import Limits, fitting_plan
from .observed_model import Finding, conditioned

TASKS = ("PR", "MAR", "MPE", "MMAP")
DIGITS = 10


def solve_text(
    net: DiscreteModel,
    cases: Sequence[Mapping[str, Finding]],
    task: str,
    query: Sequence[int] = (),
    *,
    limits: Limits | None = None,
    backend: BackendName = "auto",
    step: Callable[[str], None] = lambda _: None,
) -> str:
    """Solve a task and return the text of its solution file."""
    # cases: sequence of mappings: Cases as returned by `jtgpu.read_evidence`. The solution file has one line for a
    #     single case; for several cases it has their number and then one line for each, as in the competitions of 2008
    #     and 2010.
    # task: ``"PR"``: log10 of the partition function, or of the probability of evidence. ``"MAR"``: posteriors of all
    #     variables. ``"MPE"`` (also ``"MAP"``): most probable states of all variables. ``"MMAP"``: most probable states
    #     of the query's variables, all others summed out.
    # query: sequence of int: Numbers of variables, for MMAP
    # step: Called with the name of each step as it begins
    # raises TableTooLarge: If the model does not fit; the message has the width.
    # raises ImpossibleEvidence: If a case has probability zero.
    if task not in (*TASKS, "MAP"):
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {task!r}")
    limits = limits or Limits()
    lines = []
    for case in cases or [{}]:
        model = conditioned(net, case, only_evidence=task == "PR")
        if task == "PR" and not any(f.scope for f in model.factors):  # there is nothing to propagate
            free = math.fsum(map(math.log, model.cardinality.tolist()))
            lines.append(_pr(free + math.fsum(_log(float(f.table)) for f in model.factors)))
            continue
        step("planning")
        plan = fitting_plan(model, limits)
        step("compiling")
        with plan.compile(backend) as tree:
            step("propagating")
            lines.append(_SOLUTIONS[task](tree, net, case, query))
    return "\n".join([task, *([str(len(lines))] if len(lines) > 1 else []), *lines, ""])


def _log(x: float) -> float:
    if x == 0:
        raise ImpossibleEvidence("this evidence has probability 0")
    return math.log(x)


def _pr(log_z: float) -> str:
    return f"{log_z / math.log(10):.{DIGITS}g}"


def _solution_pr(tree: Any, net: DiscreteModel, case: Mapping[str, Finding], query: Sequence[int]) -> str:
    return _pr(tree.log_evidence())


def _solution_mar(tree: Any, net: DiscreteModel, case: Mapping[str, Finding], query: Sequence[int]) -> str:
    post = tree.posteriors()
    words = [str(len(net))]
    for v, name in enumerate(net.variables):
        card = int(net.cardinality[v])
        state = case.get(name)
        words.append(str(card))
        if isinstance(state, int):
            words += ["1" if s == state else "0" for s in range(card)]
        else:
            words += [f"{p:.{DIGITS}g}" for p in np.asarray(post[v]).tolist()]
    return " ".join(words)


def _solution_mpe(tree: Any, net: DiscreteModel, case: Mapping[str, Finding], query: Sequence[int]) -> str:
    states = _states(net, tree.mpe().states, case)
    return " ".join(map(str, [len(net), *states]))


def _solution_mmap(tree: Any, net: DiscreteModel, case: Mapping[str, Finding], query: Sequence[int]) -> str:
    hidden = [v for v in query if not isinstance(case.get(net.variables[v]), int)]
    if not hidden:  # raises if the case is impossible
        tree.log_evidence()
    found = tree.map(hidden).states if hidden else np.full(len(net), -1)
    states = _states(net, found, case)
    return " ".join(map(str, [len(query), *(x for v in query for x in (v, states[v]))]))


def _states(net: DiscreteModel, found: Any, case: Mapping[str, Finding]) -> list[int]:
    """State numbers of all variables in `net`: as observed, else as found in the conditioned model."""
    states = [int(s) for s in found]
    for v, s in case.items():
        if isinstance(s, int):
            states[net.index(v)] = s
    return states


_SOLUTIONS = {
    "PR": _solution_pr,
    "MAR": _solution_mar,
    "MPE": _solution_mpe,
    "MAP": _solution_mpe,
    "MMAP": _solution_mmap,
}
