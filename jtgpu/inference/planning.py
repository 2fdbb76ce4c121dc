"""`make_plan`, which ``net.plan()`` calls, its keywords, and `SlicedPlan`, a plan by cutset conditioning."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict

import numpy as np

from .. import backends
from ..backends.base import Backend
from ..backends.make import OPTIONS, TREE_OPTIONS, make_conditioned
from ..backends.wrappers.cutset import Start
from ..backends.wrappers.questions import QuestionLimits
from ..errors import ArgumentError, JtgpuError, PlanError, TableTooLarge, format_bytes
from ..model.discrete import DiscreteModel
from ..model.states import CodesByVariable
from ..plans.arrays import Cost
from ..plans.compiler import MAX_TABLE, MEMORY_SHARE, plan_model, unplanned
from ..plans.conditioning import SplitModel, plan_with_cutset, split_model
from ..plans.ordering import find_order
from ..plans.plan import Plan
from ..util.arguments import described, several, unknown_keyword
from ..util.arrays import Floats, Ints
from ..util.options import BackendName, Devices, Lowering, OnProblem, Order
from ..util.system import free_memory, parse_bytes
from ..util.text_table import counted
from .network_plan import NamedTree, NetworkPlan, check_backend_options


@dataclass(frozen=True)
class SlicedPlan(NetworkPlan):
    """A plan that runs once for each configuration of some variables (`jtgpu.plans.conditioning`).

    ``plan`` is the plan of one run, and ``cost()`` its cost.
    """

    def describe(self) -> str:
        """Describe the plan of one slice and the number of slices."""
        cards = ", ".join(f"{v} ({len(self.model.states(v))})" for v in self.slices)
        total = self.n_slices * self.cost().flops
        head = self.model.name or type(self.model).__name__
        return (
            f"{head}: {len(self.model)} variables, cut into {self.n_slices:,} slices by {cards}: {total:,} operations "
            f"in all, {format_bytes(self.cost().bytes)} at a time\n"
            f"one slice, with these variables split: {super().describe().partition(': ')[2]}"
        )

    @property
    def posterior_ptr(self) -> Ints:
        """(V+1,) bounds of each variable's cells in an array of all posteriors."""
        return np.concatenate([[0], np.cumsum(self.model.cardinality)]).astype(np.int64)

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the variables of a slice, first eliminated first."""
        split = self._split()
        order = split.origin[self.plan.elimination_order].tolist()
        return tuple(self.model.variables[v] for v in order if not split.observed[v])

    @cached_property
    def _tree(self) -> NamedTree:
        return named_tree_of_slice(self.model, self.plan, self._split())

    def _split(self) -> SplitModel:
        return split_model(self.model, [self.model.index(v) for v in self.slices])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Not supported: the file format has no slices."""
        raise PlanError("a sliced plan cannot be saved; save the variables in .slices and plan again")

    def check(self) -> None:
        """Raise `PlanError` if the plan of a slice violates an invariant."""
        self.plan.check()

    @property
    def whole(self) -> Plan:
        """Not available; raises `JtgpuError`."""
        raise JtgpuError(
            "this query needs the whole tree; a plan of slices answers posteriors, ln P(evidence) and what is derived "
            "from them"
        )

    def prepare(
        self, backend: str, factors: Sequence[Floats], *, devices: object = None, replan: bool = True,
        executor: Start | None = None, **options: object,
    ) -> Backend:  # fmt: skip
        """Create a backend that sums over the slices."""
        # executor: Creates an executor of the slices from a `jtgpu.backends.wrappers.cutset.SliceJob`. Default: the
        #     slices run in this process, one after another, or in parallel on `devices`.
        check_backend_options(backend, options)
        return make_conditioned(
            backend, self._split(), self.plan, factors, devices=devices, executor=executor, **options
        )


@dataclass(frozen=True)
class QuestionPlan(NetworkPlan):
    """A model whose whole tree does not fit: each question is planned by itself (`jtgpu.plans.reduction`).

    ``plan`` has the model's shape and no cliques.
    """

    refusal: TableTooLarge = field(default_factory=lambda: TableTooLarge("this plan has no tree"))

    @property
    def _reason(self) -> str:
        """The refusal without advice."""
        return self.refusal.message.split(";")[0]

    def describe(self) -> str:
        """Say why there is no whole tree."""
        head = f"{self.model.name or type(self.model).__name__}: {counted(len(self.model), 'variable')}"
        return (
            f"{head}; the whole tree does not fit: {self._reason}\n"
            "questions are planned one by one, with the relevant variables and the states that their findings leave"
        )

    @property
    def order(self) -> tuple[str, ...]:
        """Empty: there is no elimination order."""
        return ()

    def cost(self) -> Cost:
        """Not available; raises `TableTooLarge`. `jtgpu.JunctionTree.question_cost` has the cost of a question."""
        return self.whole.cost()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Not supported: there is no plan of the whole model."""
        raise PlanError(f"there is no plan to save: questions are planned one by one, since {self._reason}")

    def check(self) -> None:
        """Nothing to check."""

    @property
    def whole(self) -> Plan:
        """Not available; raises `TableTooLarge`."""
        error = self.refusal
        text = f"this query needs the whole tree, and {error.message}"
        raise TableTooLarge(text, error.entries, error.needed, error.limit)

    def prepare(
        self, backend: str, factors: Sequence[Floats], *, devices: object = None, replan: bool = True,
        executor: Start | None = None, **options: object,
    ) -> Backend:  # fmt: skip
        """Create a backend that plans question by question."""
        limits = None if self.limits is None else self.limits._replace(names=self.model.variables)
        return super().prepare(
            backend, factors, devices=devices, replan=replan, executor=executor, limits=limits, **options
        )

    def __repr__(self) -> str:
        return f"QuestionPlan({self.model.name!r}, {counted(len(self.model), 'variable')})"


def named_tree_of_slice(model: DiscreteModel, plan: Plan, split: SplitModel) -> NamedTree:
    """The junction tree of the plan of a slice, without the variables whose states are fixed.

    A clique that is part of a neighbour once these are left out is merged with it.
    """
    members = [
        frozenset(v for v in split.origin[list(clique)].tolist() if not split.observed[v]) for clique in plan.cliques
    ]
    parent = _absorb(members, plan.clique_parent.tolist())
    left = [c for c in parent if members[c]]
    number = {c: i for i, c in enumerate(left)}
    cliques = tuple(tuple(model.variables[v] for v in sorted(members[c])) for c in left)
    return NamedTree(cliques, tuple(number.get(parent[c], -1) for c in left))


def _absorb(members: Sequence[frozenset[int]], parents: Sequence[int]) -> dict[int, int]:
    """Merge each clique that is part of a neighbour with it; the parent of each clique that remains.

    A neighbour's variables include the separator, so the result is a junction tree, too.
    """
    parent = dict(enumerate(parents))
    changed = True
    while changed:
        changed = False
        for c in list(parent):
            up = parent.get(c, -1)
            if up < 0 or not (members[c] <= members[up] or members[up] <= members[c]):
                continue
            gone, into = (c, up) if members[c] <= members[up] else (up, c)
            if gone == up:
                parent[into] = parent[up]
            del parent[gone]
            for child, above in parent.items():
                if above == gone:
                    parent[child] = into
            changed = True
    return parent


# Keywords of `jtgpu.JunctionTree.predict_proba`.

class RowOptions(TypedDict, total=False):
    """Keywords that all functions on tables of cases share; `jtgpu.JunctionTree.predict_proba` documents them."""

    joints: Iterable[Sequence[str | int]] | None
    keep: str | Iterable[str]
    log_evidence: bool
    conflict: bool
    mpe: bool
    on_error: OnProblem
    na_values: str | Iterable[str] | None
    do: Mapping[Any, Any] | None
    codes: CodesByVariable | None


class FrameOptions(RowOptions, total=False):
    """Keywords of `jtgpu.JunctionTree.predict_proba`, which documents them."""

    cluster: Any  # str, jtgpu.cluster.Cluster or None
    progress: bool | Callable[[int, int, int], None] | None


def make_plan(  # noqa: PLR0913
    model: DiscreteModel,
    order: Order = "auto",
    *,
    time_limit: float | None = None,
    memory_limit: int | float | str | None = None,
    max_table: int | float | None = MAX_TABLE,
    seed: int = 0,
    lowering: Lowering = "pairwise",
    together: Sequence[Sequence[str | int]] = (),
    slices: Sequence[str | int] | str = (),
    backend: BackendName = "auto",
    devices: Devices = None,
    **search: object,
) -> NetworkPlan:
    """Choose an elimination order, build the junction tree and lower it. Allocates no tables."""
    # order: ``"auto"`` (takes about a second at most, and gives the same order whatever was computed before),
    #     ``"best"`` (searches for `time_limit` seconds and saves the order), ``"saved"`` (the order that ``"best"``
    #     saved on this machine; an error if there is none), the name of a greedy rule, the path of a ``.num`` or
    #     ``.td`` file, or the variables, first eliminated first
    # time_limit: Seconds that ``"best"`` may search
    # memory_limit: Bytes (or ``"8GiB"``) that one propagation may take. Default: 80 % of the free memory, of the GPU if
    #     `backend` names one. ``math.inf`` lifts the limit.
    # max_table: Entries of the largest table. None lifts the limit.
    # seed: Random seed of the order search: the same seed and options give the same plan
    # lowering: {"pairwise", "clique", "shallow"}: See `jtgpu.plans.lowering`. ``"clique"`` builds a table for each
    #     clique; ``"shallow"`` does more work on fewer levels.
    # together: sequence of sequences: Sets of variables that must share a clique, whether or not a factor contains them
    # slices: Variables whose states are enumerated (cutset conditioning), for models that do not fit into the memory:
    #     each configuration is a smaller inference problem. ``"auto"`` chooses the variables if any are needed. See
    #     `jtgpu.plans.conditioning`.
    # backend, devices: See ``compile``. They determine whose free memory limits the plan; the plan itself runs on every
    #     backend.
    # **search: Further options of `jtgpu.plans.ordering.find_order`
    # raises TableTooLarge: If the plan exceeds a limit, before any table is allocated; the message has the sizes and
    #     what to try.
    # raises OrderError: If the order is no permutation of the variables.
    # raises ArgumentError: If an option is unknown; the message suggests the closest one.
    _check_search_options(search)
    if memory_limit is None:
        limit = int(MEMORY_SHARE * _free_memory(backend, devices))
    else:
        limit = parse_bytes(memory_limit, "memory_limit")
    options: dict[str, Any] = {
        "order": order, "time_limit": time_limit, "memory_limit": limit, "max_table": max_table, "seed": seed,
        "lowering": lowering, **search,
    }  # fmt: skip
    if isinstance(slices, str) and slices != "auto" and slices in model.variables:
        slices = [slices]
    if not isinstance(slices, str):
        names = several(slices)
        if names is None:
            raise ArgumentError(f'slices must be "auto" or a list of variables, not {described(slices)}')
        slices = names
    elif slices not in ("", "auto"):
        raise ArgumentError(f'slices must be "auto" or a list of variables, not {described(slices)}')
    if not slices:
        plan, search_result = plan_model(model, together=together, by_networkx=backend == "indexed", **options)
        return NetworkPlan(model, plan, search_result)
    cut = plan_with_cutset(model, slices, together=together, **options)
    if not cut.cutset:
        return NetworkPlan(model, cut.plan, cut.order)
    return SlicedPlan(model, cut.plan, cut.order, tuple(model.variables[v] for v in cut.cutset), cut.n_runs)


def plan_or_questions(model: DiscreteModel, order: Order = "auto", **options: Any) -> NetworkPlan:
    """`make_plan`, or, where only the whole tree is too large, the plan whose questions are planned one by one."""
    try:
        return model.plan(order, **options)
    except TableTooLarge as error:
        if several(options.get("slices", "")) or options.get("slices") == "auto":
            raise
        return question_plan(model, error, **options)


def question_plan(model: DiscreteModel, refusal: TableTooLarge, **options: Any) -> QuestionPlan:
    """A plan whose questions are planned one by one, with the limits among the options of `make_plan`."""
    memory, most = options.get("memory_limit"), options.get("max_table", MAX_TABLE)
    if memory is None:
        memory = int(MEMORY_SHARE * _free_memory(options.get("backend", "auto"), options.get("devices")))
    limits = QuestionLimits(parse_bytes(memory, "memory_limit"), 2**62 if most is None else int(min(most, 2**62)))
    return QuestionPlan(model, unplanned(model, options.get("together", ())), refusal=refusal, limits=limits)


def split_options(backend: str, options: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords of ``net.compile``: those of `make_plan`, and those of `NetworkPlan.compile`."""
    # raises ArgumentError: If neither has an option of that name; the message suggests the closest one.
    plans = set(plan_options()) - {"progress"}  # net.compile(progress=...) is that of the tree
    trees = {*TREE_OPTIONS, *(option for known in OPTIONS.values() for option in known)}
    for name in options:
        if name not in plans and name not in trees:
            raise unknown_keyword("compile", name, {"backend", "order", *plans, *trees})
    for_plan = {"backend": backend} | {name: value for name, value in options.items() if name in plans}
    return for_plan, {name: value for name, value in options.items() if name in trees}


def plan_options() -> list[str]:
    """Names of the options of planning."""
    of_search = [*inspect.signature(find_order).parameters][3:]
    of_plan = [p for p in inspect.signature(make_plan).parameters if p not in ("model", "order", "search")]
    return [*dict.fromkeys((*of_plan, *of_search))]


def _check_search_options(search: Mapping[str, object]) -> None:
    """Raise `ArgumentError` for an option that planning does not have."""
    if not search:
        return
    known = ["order", *plan_options()]
    for name in search:
        if name in known:
            continue
        if any(name in options for options in (*OPTIONS.values(), TREE_OPTIONS)):
            raise ArgumentError(f"plan() has no argument {name!r}; it belongs to compile: net.compile({name}=...)")
        raise unknown_keyword("plan", name, known)


def _free_memory(backend: object, devices: object) -> int:
    """Bytes that are free where a plan is to run."""
    name = backends.resolve(backend, or_auto=True)
    if name == "auto" and devices is None:
        return free_memory()
    on_gpu = backends.free_on_devices(name, devices)
    return free_memory() if on_gpu is None else on_gpu
