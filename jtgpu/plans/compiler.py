"""From a model to a plan: the only module that sees network, graph and plan together."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError, OrderError, PlanError, TableTooLarge, format_bytes
from ..model.network import DiscreteModel, Factor
from ..util import doors
from ..util.system import free_memory, parse_bytes
from .clique_tree import CliqueTree, clique_tree, elimination_cliques
from .lowering import lay_out, lower, program_arrays
from .moral import interaction_graph, neighbour_lists
from .plan import Cost, Plan, ragged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..backends.base import Backend, Prepare
    from .ordering import OrderResult

__all__ = ["MAX_TABLE", "NetworkPlan", "build_plan", "make_plan", "model_factors", "order_graph"]

MAX_TABLE = 100_000_000  # entries: the published system's limit (published-system.md, "Safety")
MEMORY_SHARE = 0.8  # of what is free, where no memory_limit is given


@dataclass(frozen=True)
class NetworkPlan:
    """A plan together with the model that it is for: what ``net.plan()`` returns. Holds no tables of its own.

    Attributes
    ----------
    model : DiscreteModel
    plan : Plan
        The flat arrays.
    order : OrderResult or None
        How the elimination order was found; None for a loaded plan.
    """

    model: DiscreteModel
    plan: Plan
    order: OrderResult | None = None

    def cost(self) -> Cost:
        """What the plan costs: see `jtgpu.plans.plan.Cost`."""
        return self.plan.cost()

    def check(self) -> None:
        """Hold the plan to its rules and to the model; raises `PlanError`."""
        self.plan.check()
        _check_fits(self.plan, self.model)

    def describe(self) -> str:
        """The plan in words, and where ``backend="auto"`` would run it and why."""
        from ..backends.auto import choose

        head = self.model.name or type(self.model).__name__
        how = f"\nelimination order: {self.order.method}, seed {self.order.seed}" if self.order is not None else ""
        backend, reason = choose(self.plan)
        return f"{head}: {self.plan.describe()}{how}\nbackend: {backend} ({reason})"

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) where each variable's cells begin in an answer."""
        return self.plan.posterior_ptr

    @property
    def elimination_order(self) -> tuple[str, ...]:
        """Names of the variables, first eliminated first."""
        return tuple(self.model.variables[v] for v in self.plan.elimination_order.tolist())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan (not the model) to a file."""
        self.plan.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: DiscreteModel) -> NetworkPlan:
        """Read a saved plan for a model.

        Raises
        ------
        PlanError
            For a file that holds no plan, or a plan of another model.
        """
        plan = Plan.load(path)
        _check_fits(plan, model)
        return cls(model, plan)

    @property
    def whole(self) -> Plan:
        """The plan, for questions that need one of the whole model; raises `JtgpuError` where there is none."""
        return self.plan

    def prepare(self, prepare: Prepare, factors: Sequence[NDArray[np.float64]], **options: Any) -> Backend:
        """What a backend's ``prepare`` makes of the plan and the model's numbers."""
        return prepare(self.plan, factors, **options)

    def compile(self, backend: str = "auto", **options: Any) -> Any:
        """Prepare a backend: takes the memory, copies the tables; see `jtgpu.inference.tree.JunctionTree`."""
        return doors.compiling().JunctionTree(self, backend, **options)

    def tune(self, device: int | None = None) -> tuple[str, list[Any]]:
        """Measure what answers single cases quickest on a GPU, and keep it: seconds, once a plan and kind of card.

        From then on ``compile("gpu")`` takes it, in every process, as long as the file lies in the cache folder.

        Parameters
        ----------
        device : int, optional
            Number of the CUDA device; default: the best.

        Returns
        -------
        name : str
            Of the card.
        tried : list of jtgpu.backends.gpu.single.configs.Tried
            ``way`` and device ``microseconds`` of a case, the best first; inf where the network is none for a way.

        Raises
        ------
        BackendUnavailable
            Without a GPU, PyCUDA or cuda-bindings.
        JtgpuError
            Where no engine can answer.
        OSError
            When what was found cannot be kept.
        """
        from .. import backends

        return backends.tune_gpu(self.plan, [f.table for f in model_factors(self.model)], device)

    def __repr__(self) -> str:
        c = self.cost()
        return f"NetworkPlan({self.model.name!r}, {c.cliques} cliques, {c.entries:,} entries)"


def model_factors(model: DiscreteModel) -> list[Factor]:
    """The model's factors, and a factor of ones for every variable that none mentions."""
    mentioned = {v for f in model.factors for v in f.scope}
    ones = [
        Factor((v,), np.ones(int(model.cardinality[v]))) for v in range(len(model.variables)) if v not in mentioned
    ]
    return [*model.factors, *ones]


def order_graph(model: DiscreteModel, together: Sequence[Sequence[str | int]] = ()) -> list[tuple[int, ...]]:
    """Sorted neighbours of every variable in the model's interaction (moral) graph; sets of variables that stand
    together are neighbours too."""
    sets = [sorted({model.index(v) for v in variables}) for variables in together]
    return neighbour_lists(interaction_graph(len(model), [*(f.scope for f in model.factors), *sets]))


def make_plan(
    model: DiscreteModel,
    order: Any = "auto",
    *,
    time_limit: float | None = None,
    memory_limit: int | float | str | None = None,
    max_table: int | float | None = MAX_TABLE,
    seed: int = 0,
    lowering: str = "pairwise",
    together: Sequence[Sequence[str | int]] = (),
    slices: Sequence[str | int] | str = (),
    backend: str = "auto",
    devices: Any = None,
    **search: Any,
) -> NetworkPlan:
    """Choose an elimination order, build the junction tree and lower it. Allocates no tables.

    Parameters
    ----------
    model : DiscreteModel
    order : str, path or sequence, default "auto"
        ``"auto"`` (about a second at most), ``"best"`` (searches for `time_limit` seconds), a greedy rule's name,
        the path of a ``.num`` or ``.td`` file, or the variables themselves, first eliminated first.
    time_limit : float, optional
        Seconds that ``"best"`` may search.
    memory_limit : int or str, optional
        Bytes (``"8GiB"``) that one propagation may take; default: 80 % of what is free, on the GPU where `backend`
        says so. ``math.inf`` lifts it.
    max_table : int or None, default 100,000,000
        Entries that the largest table built may have: the published system's limit. None lifts it.
    seed : int
        Of the order's search: the same seed and options give the same plan.
    lowering : {"pairwise", "clique", "shallow"}
        See `jtgpu.plans.lowering`. ``"clique"`` multiplies whole cliques out; ``"shallow"`` trades products for fewer levels.
    together : sequence of sequences, optional
        Sets of variables that stand in one clique of the junction tree, whether or not a factor mentions them together.
    slices : sequence or "auto"
        Variables whose states are gone through one by one, each a smaller inference, for what does not fit otherwise;
        ``"auto"`` finds them where they are needed. See `jtgpu.plans.conditioning.cutset`.
    backend, devices : optional
        What the plan is for, as ``compile`` has it: its memory is the one that counts. The plan runs anywhere.
    **search
        Further options of `jtgpu.plans.ordering.find_order`.

    Raises
    ------
    TableTooLarge
        With the sizes and what to try, before any table is made.
    OrderError
        For an order that is no permutation of the variables.
    """
    if not len(model):
        raise NetworkError("the model has no variables")
    if len(slices):
        from .conditioning.cutset import make_sliced_plan

        return make_sliced_plan(
            model, slices, order=order, time_limit=time_limit, memory_limit=memory_limit, max_table=max_table,
            seed=seed, lowering=lowering, together=together, backend=backend, devices=devices, **search,
        )  # fmt: skip
    neighbours = order_graph(model, together)
    chosen, result = _choose_order(model, neighbours, order, time_limit=time_limit, seed=seed, **search)
    limit = int(MEMORY_SHARE * _free(backend, devices)) if memory_limit is None else parse_bytes(memory_limit)
    entries = 2**62 if max_table is None else int(min(max_table, 2**62))
    plan = build_plan(
        model.cardinality,
        [f.scope for f in model_factors(model)],
        neighbours,
        chosen,
        lowering=lowering,
        memory_limit=limit,
        max_table=entries,
    )
    return NetworkPlan(model, plan, result)


def _free(backend: str, devices: Any) -> int:
    """Bytes that are free where a plan is to run."""
    if backend == "auto" and devices is None:
        return free_memory()
    from .. import backends

    on_card = backends.free_on_devices(backend, devices)
    return free_memory() if on_card is None else on_card


def _choose_order(
    model: DiscreteModel, neighbours: Sequence[Sequence[int]], order: Any, **search: Any
) -> tuple[list[int], OrderResult | None]:
    """The elimination order that an ``order`` argument asks for, and how it was found where it was searched for."""
    from . import ordering

    if isinstance(order, str) and order in ordering.METHODS:
        result = ordering.find_order(model.cardinality, neighbours, order, **search)
        return result.order.tolist(), result
    if isinstance(order, os.PathLike) or (isinstance(order, str) and Path(order).suffix in (".num", ".td")):
        read = ordering.read_td if Path(order).suffix == ".td" else ordering.read_num
        return [int(v) for v in read(order, model)], None
    if isinstance(order, str):
        raise OrderError(
            f"order={order!r} is neither a method ({', '.join(ordering.METHODS)}) nor the path of a .num or .td file"
        )
    return [int(v) for v in ordering.as_order(model, order)], None


def build_plan(
    cardinality: NDArray[np.int64],
    factor_scopes: Sequence[Sequence[int]],
    neighbours: Sequence[Sequence[int]],
    order: Sequence[int],
    *,
    lowering: str = "pairwise",
    memory_limit: int = 2**62,
    max_table: int = 2**62,
) -> Plan:
    """The plan of a given elimination order: integers in, integers out; the same input gives the same bytes."""
    cards = [int(c) for c in cardinality]
    cliques, links = elimination_cliques(neighbours, order)
    tree = clique_tree(cliques, links, cards)
    rank = _axis_ranks(tree, cards)
    homes = _factor_homes(cliques, factor_scopes, cards)
    program = lower(cards, factor_scopes, homes, tree.parent, tree.depth, rank, lowering)
    sizes = [math.prod(cards[v] for v in s) for s in program.scopes]
    offsets, cells = lay_out(sizes, len(factor_scopes), program.outs, program.posterior_table)
    _check_limits(sizes, cells, [math.prod(cards[v] for v in c) for c in cliques], memory_limit, max_table)

    def ordered(scope: Sequence[int]) -> list[int]:
        return sorted(scope, key=rank.__getitem__)

    factor_ptr, factor_var = ragged([list(s) for s in factor_scopes])
    clique_ptr, clique_var = ragged([ordered(c) for c in cliques])
    separator_ptr, separator_var = ragged([ordered(tree.separator(c)) for c in range(len(cliques))])
    return Plan(
        cardinality=np.array(cards, np.int64),
        factor_ptr=factor_ptr,
        factor_var=factor_var,
        elimination_order=np.array(order, np.int64),
        clique_ptr=clique_ptr,
        clique_var=clique_var,
        clique_parent=np.array(tree.parent, np.int64),
        clique_depth=np.array(tree.depth, np.int64),
        separator_ptr=separator_ptr,
        separator_var=separator_var,
        factor_clique=np.array(homes, np.int64),
        axis_rank=np.array(rank, np.int64),
        evidence_factor=np.array(_evidence_factors(cards, factor_scopes), np.int64),
        **program_arrays(program, offsets, cells),
    )


def _axis_ranks(tree: CliqueTree, cards: Sequence[int]) -> list[int]:
    """One order of the variables for the axes of every table: those of the deepest top cliques outermost.

    A clique's own variables then come before its separator's, so a message to the root sums over the slow axes
    and keeps the fast ones; the largest cardinality last, so that inner loops are long.
    """
    tops = tree.top_cliques(len(cards))
    by_rank = sorted(range(len(cards)), key=lambda v: (-tree.depth[tops[v]], tops[v], cards[v], v))
    rank = [0] * len(cards)
    for r, v in enumerate(by_rank):
        rank[v] = r
    return rank


def _factor_homes(
    cliques: Sequence[Sequence[int]], scopes: Sequence[Sequence[int]], cards: Sequence[int]
) -> list[int]:
    """The smallest clique that contains each factor's scope."""
    members = [frozenset(c) for c in cliques]
    by_size = sorted(range(len(cliques)), key=lambda c: (math.prod(cards[v] for v in cliques[c]), c))
    holders: list[list[int]] = [[] for _ in cards]
    for c in by_size:
        for v in cliques[c]:
            holders[v].append(c)
    homes = []
    for scope in scopes:
        rarest = min(scope, key=lambda v: (len(holders[v]), v), default=None)
        candidates = by_size if rarest is None else holders[rarest]
        homes.append(next(c for c in candidates if members[c].issuperset(scope)))
    return homes


def _evidence_factors(cards: Sequence[int], scopes: Sequence[Sequence[int]]) -> list[int]:
    """For every variable the smallest factor that contains it."""
    best: list[tuple[int, int] | None] = [None] * len(cards)
    for f, scope in enumerate(scopes):
        key = (math.prod(cards[v] for v in scope), f)
        for v in scope:
            old = best[v]
            if old is None or key < old:
                best[v] = key
    return [b[1] for b in best if b is not None]


def _check_limits(
    sizes: Sequence[int], cells: int, clique_sizes: Sequence[int], memory_limit: int, max_table: int
) -> None:
    largest = max(sizes, default=0)
    needed = 8 * cells
    tree = f"the junction tree's cliques have {sum(clique_sizes):,} entries, the largest {max(clique_sizes):,}"
    advice = (
        'try order="best" with a longer time_limit, an elimination order of your own (order="file.num"), or '
        'slices="auto", which goes through the states of some variables one by one; '
        "evidence that is always observed can be made part of the model"
    )
    if largest > max_table:
        raise TableTooLarge(
            f"the largest table would have {largest:,} entries ({format_bytes(8 * largest)}), more than the limit of "
            f"{max_table:,} (max_table); {tree}; {advice}, or raise max_table",
            largest,
            needed,
            -1,
        )
    if needed > memory_limit:
        raise TableTooLarge(
            f"one propagation would take {format_bytes(needed)} ({sum(sizes):,} entries, the largest table "
            f"{largest:,}), more than the limit of {format_bytes(memory_limit)} (memory_limit; default: 80 % of what "
            f"is free); {tree}; {advice}, or raise memory_limit",
            largest,
            needed,
            memory_limit,
        )


def _check_fits(plan: Plan, model: DiscreteModel) -> None:
    scopes = [tuple(f.scope) for f in model_factors(model)]
    if not np.array_equal(plan.cardinality, model.cardinality) or list(plan.factor_scopes) != scopes:
        raise PlanError(
            f"this plan is for another model: {plan.n_variables} variables and {plan.n_factors} factors, "
            f"{model!r} has {len(model)} and {len(scopes)}, or they differ in states or scopes"
        )


