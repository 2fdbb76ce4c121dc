"""The tasks of the UAI inference competitions, solved exactly: PR, MAR, MPE and MMAP, in their file format.

A case is conditioned on before planning: observed variables are removed from every table, and for PR so are barren
variables. This makes trees narrower, and models fit into memory that otherwise would not. A model that does not fit
raises an error with its width before memory is allocated.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ImpossibleEvidence, TableTooLarge, format_bytes
from ..model.decisions import DecisionNetwork
from ..model.discrete import DiscreteModel, Factor
from ..model.markov import MarkovNetwork
from ..model.network import BayesianNetwork
from ..plans.compiler import check_bound, order_graph, plan_tables
from ..plans.reduction import Reducer
from ..util.options import BackendName
from ..util.system import free_memory, parse_bytes
from .network_plan import NetworkPlan
from .planning import QuestionPlan, question_plan

# Limits of memory, table size and time, and a plan that respects them.

SEARCH_SECONDS = 10.0  # for a better elimination order if the first one does not fit
LARGE_WORK = 5e9  # operations above which a better order is searched for, if there is time
UNLIMITED = 2**62  # entries of a table


@dataclass(frozen=True)
class TaskLimits:
    """Resources that a task may use."""

    memory: int | float | str | None = None  # bytes. Default: 80 % of the free memory.
    max_table: int | float | None = None  # entries of the largest table. Default: no limit.
    seconds: float | None = None  # time for the whole task; a part of it is used to search for an elimination order
    # Further options of `jtgpu.BayesianNetwork.plan`; with ``order``, no other order is searched for
    options: Mapping[str, Any] = field(default_factory=dict)


def fitting_plan(model: DiscreteModel, limits: TaskLimits, *, all_posteriors: bool = True) -> NetworkPlan:
    """Plan a model within limits; if the first elimination order does not fit, plan the question; search longer."""
    # all_posteriors: Whether the question is about all variables; otherwise it is about P(evidence) alone
    # raises TableTooLarge: If no plan within the limits is found; the message has the width.
    memory = int(0.8 * free_memory()) if limits.memory is None else parse_bytes(limits.memory)
    table = UNLIMITED if limits.max_table is None else int(min(limits.max_table, UNLIMITED))
    try:
        check_bound(model.cardinality.tolist(), order_graph(model), memory, table)
    except TableTooLarge as error:
        if (questions := _questions(model, error, memory, table, all_posteriors)) is not None:
            return questions
    width, entries = width_at_least(model)
    if entries > table or 8 * entries > memory:
        raise TableTooLarge(
            f"too wide: every elimination order has width {width} or more (at least {_power(entries)} entries in the "
            f"largest clique); {_allowed(memory, table)}",
            entries,
            8 * entries,
            memory,
        )
    best: NetworkPlan | None = None
    best_key = (True, math.inf)
    for options in _searches(limits):
        try:
            plan: NetworkPlan = model.plan(**options)
        except TableTooLarge:  # more entries than can be counted
            continue
        cost = plan.cost()
        fits = cost.bytes <= memory and cost.largest_table <= table
        key = (not fits, cost.flops if fits else cost.bytes)
        if best is None or key < best_key:
            best, best_key = plan, key
        if fits and (cost.flops < LARGE_WORK or limits.seconds is None):
            break
        if not fits and best is plan:
            large = TableTooLarge(f"its tables take {format_bytes(cost.bytes)}", cost.largest_table, cost.bytes, memory)
            if (questions := _questions(model, large, memory, table, all_posteriors)) is not None:
                return questions
    if best is None:
        raise TableTooLarge(
            f"too wide: no elimination order was found whose tables could fit into any memory; the width is {width} or "
            f"more; {_allowed(memory, table)}"
        )
    cost = best.cost()
    if best_key[0]:
        raise TableTooLarge(
            f"too wide: the best elimination order found has width {cost.width} ({cost.largest:,} entries in the "
            f"largest clique) and needs {format_bytes(cost.bytes)}; {_allowed(memory, table)}",
            cost.largest,
            cost.bytes,
            memory,
        )
    return best


def _questions(
    model: DiscreteModel, refusal: TableTooLarge, memory: int, table: int, all_posteriors: bool
) -> QuestionPlan | None:  # fmt: skip
    """The plan that plans each question by itself, if the question fits."""
    made = question_plan(model, refusal, memory_limit=memory, max_table=table)
    factors = plan_tables(made.plan, model)
    reducer = Reducer(model.cardinality, made.plan.factor_scopes, factors)
    try:
        left = reducer.reduce(np.full(len(model), -1, np.int32), targets=None if all_posteriors else ())
        if len(left.free):
            left.plan(memory, table)
    except TableTooLarge:
        return None
    except ImpossibleEvidence:
        pass  # so is the answer
    return made


def _searches(limits: TaskLimits) -> list[dict[str, Any]]:
    """Options of the plans to try, one after the other."""
    options = {"memory_limit": math.inf, "max_table": None, **limits.options}
    if "order" in options:
        return [options]
    seconds = SEARCH_SECONDS if limits.seconds is None else min(SEARCH_SECONDS, 0.2 * limits.seconds)
    return [options, options | {"order": "best", "time_limit": seconds}]


def width_at_least(model: DiscreteModel) -> tuple[int, int]:
    """Lower bounds of the treewidth and of the entries of the largest clique: the degeneracy of the moral graph.

    Any elimination order first eliminates some variable of the subgraph in which every variable has at least this many
    neighbours (Koster, Wolle, Bodlaender, "Degree-based treewidth lower bounds", 2005).
    """
    around: list[set[int]] = [set() for _ in model.variables]
    for scope, _ in model.factors:
        for v in scope:
            around[v].update(scope)
    for v, near in enumerate(around):
        near.discard(v)
    heap = [(len(near), v) for v, near in enumerate(around)]
    heapq.heapify(heap)
    smallest_cards = sorted(model.cardinality.tolist())
    width = 0
    removed: set[int] = set()
    while heap:
        degree, v = heapq.heappop(heap)
        if v in removed or degree > len(around[v]):
            continue
        width = max(width, degree)
        removed.add(v)
        for u in around[v]:
            around[u].discard(v)
            heapq.heappush(heap, (len(around[u]), u))
    return width, math.prod(smallest_cards[: width + 1])


def _power(entries: int) -> str:
    return f"{entries:,}" if entries < 10**15 else f"2^{entries.bit_length() - 1}"


def _allowed(memory: int, table: int) -> str:
    most = f" and {table:,} entries in one table" if table < UNLIMITED else ""
    return f"the limit is {format_bytes(memory)}{most}"


# `conditioned`: the model that remains when a case is observed.

Finding = int | frozenset[int]  # number of a state, or of several states one of which holds


def conditioned(net: DiscreteModel, case: Mapping[str, Finding], *, only_evidence: bool = False) -> MarkovNetwork:
    """Condition a model on a case: the same variables, but observed ones have a single state.

    The partition function of the result is that of `net` times the probability of the case; nothing is normalised.
    """
    # case: Variable to the number of its state, or to a set of numbers one of which holds. The attribute
    #     ``likelihood``, if there is one, maps variables to weights.
    # only_evidence: For a Bayesian network, leave out the CPTs of barren variables: those that are not observed and
    #     have no observed descendants. Their product sums to 1.
    known = {net.index(v): s for v, s in case.items()}
    weights = {net.index(v): np.asarray(w, np.float64) for v, w in getattr(case, "likelihood", {}).items()}
    hard = {v: s for v, s in known.items() if isinstance(s, int)}
    factors = list(net.factors)
    unused: set[int] = set()
    if only_evidence and isinstance(net, BayesianNetwork):
        relevant = _ancestors(net, {*known, *weights})
        factors = [f for f in factors if f.scope[-1] in relevant]
        unused = set(range(len(net))) - relevant
    for v, s in known.items():
        if not isinstance(s, int):
            one_of = np.zeros(int(net.cardinality[v]))
            one_of[sorted(s)] = 1.0
            factors.append(Factor((v,), one_of))
    factors += [Factor((v,), w) for v, w in weights.items()]
    states = {name: ("",) if v in hard or v in unused else net.states(v) for v, name in enumerate(net.variables)}
    return MarkovNetwork.of_checked(states, [_restricted(f, hard) for f in factors], name=net.name)


def _restricted(factor: Factor, hard: Mapping[int, int]) -> Factor:
    """The slice of a factor at the observed states."""
    scope, table = factor
    if hard.keys() & set(scope):
        table = table[tuple(hard.get(v, slice(None)) for v in scope)]
        scope = tuple(v for v in scope if v not in hard)
    table = np.array(table, np.float64, order="C")
    table.flags.writeable = False
    return Factor(scope, table)


def _ancestors(net: BayesianNetwork, observed: set[int]) -> set[int]:
    """The observed variables and all their ancestors."""
    ancestors, ready = set(observed), sorted(observed)
    while ready:
        for p in net.factors[ready.pop()].scope[:-1]:
            if p not in ancestors:
                ancestors.add(p)
                ready.append(p)
    return ancestors


# `solve_text`: the solution file of a task.

TASKS = ("PR", "MAR", "MPE", "MMAP")
DIGITS = 10


def solve_text(
    net: DiscreteModel,
    cases: Sequence[Mapping[str, Finding]],
    task: str,
    query: Sequence[int] = (),
    *,
    limits: TaskLimits | None = None,
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
    if isinstance(net, DecisionNetwork):
        net.plan()  # raises: decisions have no probabilities
    limits = limits or TaskLimits()
    lines = []
    for case in cases or [{}]:
        model = conditioned(net, case, only_evidence=task == "PR")
        if task == "PR" and not any(f.scope for f in model.factors):  # there is nothing to propagate
            free = math.fsum(map(math.log, model.cardinality.tolist()))
            lines.append(_pr(free + math.fsum(_log(float(f.table)) for f in model.factors)))
            continue
        step("planning")
        plan = fitting_plan(model, limits, all_posteriors=task != "PR")
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
    best = tree.map(hidden).states if hidden else np.full(len(net), -1)
    states = _states(net, best, case)
    return " ".join(map(str, [len(query), *(x for v in query for x in (v, states[v]))]))


def _states(net: DiscreteModel, given: Any, case: Mapping[str, Finding]) -> list[int]:
    """State numbers of all variables in `net`: as observed, else as found in the conditioned model."""
    states = [int(s) for s in given]
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


__all__ = ["TASKS", "TaskLimits", "conditioned", "fitting_plan", "solve_text", "width_at_least"]
