"""The questions of the UAI inference competitions, answered exactly: PR, MAR, MPE and MMAP, as their files have it.

A case is made part of the model before anything is planned: what is observed leaves every table that it stands in,
and for PR so does what neither is observed nor has a descendant that is. Trees get narrow by that, and models fit that
otherwise would not. A model that does not fit is refused with its width before memory is taken.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ImpossibleEvidence, TableTooLarge, format_bytes
from ..model.network import BayesianNetwork, DiscreteModel, Factor, MarkovNetwork
from ..util.system import free_memory, parse_bytes

__all__ = ["TASKS", "Limits", "conditioned", "fitting_plan", "solve_text", "width_at_least"]

TASKS = ("PR", "MAR", "MPE", "MMAP")
SEARCH_SECONDS = 10.0  # for a better elimination order where the first one found does not fit
LARGE_WORK = 5e9  # operations above which a better order is worth looking for, if there is time
DIGITS = 10

Finding = int | frozenset[int]


@dataclass(frozen=True)
class Limits:
    """What a solver may take.

    Attributes
    ----------
    memory : int, float or str, optional
        Bytes; default: 80 % of what is free.
    max_table : int or float, optional
        Entries of the largest table; default: no limit of its own.
    seconds : float, optional
        Of all the work: a part of it goes into the search for an elimination order.
    options : mapping
        Further options of `jtgpu.plans.compiler.make_plan`; an ``order`` of one's own is taken as it is.
    """

    memory: int | float | str | None = None
    max_table: int | float | None = None
    seconds: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def solve_text(
    net: DiscreteModel,
    cases: Sequence[Mapping[str, Finding]],
    task: str,
    query: Sequence[int] = (),
    *,
    limits: Limits | None = None,
    backend: str = "auto",
    step: Callable[[str], None] = lambda _: None,
) -> str:
    """The text of the solution file of a task.

    Parameters
    ----------
    net : DiscreteModel
    cases : sequence of mappings
        As `jtgpu.read_evidence` gives them. Of one case the file has the solution's line; of several, as the
        competitions of 2008 and 2010 had it, their number, and then a line for each.
    task : str
        ``"PR"``: log10 of the partition function, or of the probability of evidence. ``"MAR"``: the posteriors of all
        variables. ``"MPE"`` (``"MAP"`` means the same): the most probable states of all variables. ``"MMAP"``: those
        of the query, all others summed out.
    query : sequence of int
        Numbers of variables, for MMAP.
    limits : Limits, optional
    backend : str
    step : callable
        Is told what is done next.

    Raises
    ------
    TableTooLarge
        Naming the width, before memory is taken.
    ImpossibleEvidence
        For a case of probability zero.
    """
    if task not in (*TASKS, "MAP"):
        raise ValueError(f"the task is one of {', '.join(TASKS)}, not {task!r}")
    limits = limits or Limits()
    lines = []
    for case in cases or [{}]:
        model = conditioned(net, case, only_evidence=task == "PR")
        if task == "PR" and not any(f.scope for f in model.factors):  # nothing is left to propagate
            free = math.fsum(map(math.log, model.cardinality.tolist()))
            lines.append(_pr(free + math.fsum(_log(float(f.table)) for f in model.factors)))
            continue
        step("planning")
        plan = fitting_plan(model, limits)
        step("compiling")
        with plan.compile(backend) as tree:
            step("propagating")
            lines.append(_ANSWERS[task](tree, net, case, query))
    return "\n".join([task, *([str(len(lines))] if len(lines) > 1 else []), *lines, ""])


def conditioned(net: DiscreteModel, case: Mapping[str, Finding], *, only_evidence: bool = False) -> MarkovNetwork:
    """The model that is left when a case is observed: the same variables, those observed with one state.

    Its partition function is that of `net` times the case's probability; nothing is normalised.

    Parameters
    ----------
    net : DiscreteModel
    case : mapping
        Variable to the number of its state, or to a set of numbers of which one holds; with an attribute
        ``likelihood``, to weights.
    only_evidence : bool
        Of a Bayesian network, leave out the tables that sum to one whatever is observed: those of variables that
        neither are observed nor have a descendant that is.
    """
    known = {net.index(v): s for v, s in case.items()}
    weights = {net.index(v): np.asarray(w, np.float64) for v, w in getattr(case, "likelihood", {}).items()}
    hard = {v: s for v, s in known.items() if isinstance(s, int)}
    factors = list(net.factors)
    if only_evidence and isinstance(net, BayesianNetwork):
        wanted = _ancestors(net, {*known, *weights})
        factors = [f for f in factors if f.scope[-1] in wanted]
        unused = set(range(len(net))) - wanted
    else:
        unused = set()
    for v, s in known.items():
        if not isinstance(s, int):
            one_of = np.zeros(int(net.cardinality[v]))
            one_of[sorted(s)] = 1.0
            factors.append(Factor((v,), one_of))
    factors += [Factor((v,), w) for v, w in weights.items()]
    sliced = []
    for scope, table in factors:
        if hard.keys() & set(scope):
            table = table[tuple(hard.get(v, slice(None)) for v in scope)]
            scope = tuple(v for v in scope if v not in hard)
        table = np.array(table, np.float64, order="C")
        table.flags.writeable = False
        sliced.append(Factor(scope, table))
    states = {name: ("",) if v in hard or v in unused else net.states(v) for v, name in enumerate(net.variables)}
    return MarkovNetwork.of_checked(states, sliced, name=net.name)


def _ancestors(net: BayesianNetwork, observed: set[int]) -> set[int]:
    """The observed variables and all their ancestors."""
    found, ready = set(observed), sorted(observed)
    while ready:
        for p in net.factors[ready.pop()].scope[:-1]:
            if p not in found:
                found.add(p)
                ready.append(p)
    return found


# Does it fit? -------------------------------------------------------------------------------------------------


def width_at_least(model: DiscreteModel) -> tuple[int, int]:
    """A lower bound of the width, and of the entries of the largest clique: the maximum of minimum degrees.

    Every elimination order has a clique as large as the subgraph in which every variable has so many neighbours;
    some variable of it is eliminated first (Koster, Wolle, Bodlaender, "Degree-based treewidth lower bounds", 2005).
    """
    around: list[set[int]] = [set() for _ in model.variables]
    for scope, _ in model.factors:
        for v in scope:
            around[v].update(scope)
    for v, near in enumerate(around):
        near.discard(v)
    heap = [(len(near), v) for v, near in enumerate(around)]
    heapq.heapify(heap)
    cards = model.cardinality.tolist()
    left = sorted(cards)
    width = 0
    gone: set[int] = set()
    while heap:
        degree, v = heapq.heappop(heap)
        if v in gone or degree > len(around[v]):
            continue
        width = max(width, degree)
        gone.add(v)
        for u in around[v]:
            around[u].discard(v)
            heapq.heappush(heap, (len(around[u]), u))
    return width, math.prod(left[: width + 1])


def fitting_plan(model: DiscreteModel, limits: Limits) -> Any:
    """A `jtgpu.plans.compiler.NetworkPlan` within the limits; a longer search for an order if the first does not fit."""
    memory = int(0.8 * free_memory()) if limits.memory is None else parse_bytes(limits.memory)
    table = 2**62 if limits.max_table is None else int(min(limits.max_table, 2**62))
    width, entries = width_at_least(model)
    if entries > table or 8 * entries > memory:
        raise TableTooLarge(
            f"too wide: every elimination order has a width of {width} or more ({_power(entries)} entries in the "
            f"largest clique at least); {_allowed(memory, table)}",
            entries,
            8 * entries,
            memory,
        )
    options = {"memory_limit": math.inf, "max_table": None, **limits.options}
    searches: list[dict[str, Any]] = [options]
    if "order" not in options:
        seconds = SEARCH_SECONDS if limits.seconds is None else min(SEARCH_SECONDS, 0.2 * limits.seconds)
        searches.append(options | {"order": "best", "time_limit": seconds})
    best, best_key = None, (True, math.inf)
    for search in searches:
        try:
            plan = model.plan(**search)
        except TableTooLarge:  # more than any machine has
            continue
        cost = plan.cost()
        fits = cost.bytes <= memory and cost.largest_table <= table
        key = (not fits, cost.flops if fits else cost.bytes)
        if best is None or key < best_key:
            best, best_key = plan, key
        if fits and (cost.flops < LARGE_WORK or limits.seconds is None):
            break
    if best is None:
        raise TableTooLarge(
            f"too wide: no elimination order found makes tables that any machine has; the width is {width} or more; "
            + _allowed(memory, table)
        )
    cost = best.cost()
    if best_key[0]:
        raise TableTooLarge(
            f"too wide: the elimination order found has a width of {cost.width} ({cost.largest:,} entries in the "
            f"largest clique) and would take {format_bytes(cost.bytes)}; {_allowed(memory, table)}",
            cost.largest,
            cost.bytes,
            memory,
        )
    return best


def _power(entries: int) -> str:
    return f"{entries:,}" if entries < 10**15 else f"2^{entries.bit_length() - 1}"


def _allowed(memory: int, table: int) -> str:
    most = f", {table:,} entries of one table" if table < 2**62 else ""
    return f"allowed are {format_bytes(memory)}{most}"


# Answers ------------------------------------------------------------------------------------------------------


def _log(x: float) -> float:
    if x == 0:
        raise ImpossibleEvidence("this evidence has probability 0")
    return math.log(x)


def _pr(log_z: float) -> str:
    return f"{log_z / math.log(10):.{DIGITS}g}"


def _answer_pr(tree: Any, net: DiscreteModel, case: Mapping[str, Finding], query: Sequence[int]) -> str:
    return _pr(tree.log_evidence())


def _answer_mar(tree: Any, net: DiscreteModel, case: Mapping[str, Finding], query: Sequence[int]) -> str:
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


def _answer_mpe(tree: Any, net: DiscreteModel, case: Mapping[str, Finding], query: Sequence[int]) -> str:
    states = _states(net, tree.mpe().states, case)
    return " ".join(map(str, [len(net), *states]))


def _answer_mmap(tree: Any, net: DiscreteModel, case: Mapping[str, Finding], query: Sequence[int]) -> str:
    hidden = [v for v in query if not isinstance(case.get(net.variables[v]), int)]
    if not hidden:  # nothing to find out, but whether the case is possible
        tree.log_evidence()
    found = tree.map(hidden).states if hidden else np.full(len(net), -1)
    states = _states(net, found, case)
    return " ".join(map(str, [len(query), *(x for v in query for x in (v, states[v]))]))


def _states(net: DiscreteModel, found: Any, case: Mapping[str, Finding]) -> list[int]:
    """Every variable's state by its number; what is observed, which has one state in the model, is as observed."""
    states = [int(s) for s in found]
    for v, s in case.items():
        if isinstance(s, int):
            states[net.index(v)] = s
    return states


_ANSWERS = {"PR": _answer_pr, "MAR": _answer_mar, "MPE": _answer_mpe, "MAP": _answer_mpe, "MMAP": _answer_mmap}
