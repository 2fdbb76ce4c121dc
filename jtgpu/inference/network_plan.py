"""`NetworkPlan`: a plan together with its model, as returned by ``net.plan()``."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..backends import make as auto
from ..backends.base import Backend
from ..backends.make import OPTIONS, TREE_OPTIONS, make
from ..backends.wrappers.cutset import Start
from ..backends.wrappers.questions import QuestionLimits
from ..errors import ArgumentError, PlanError, closest
from ..model.discrete import DiscreteModel
from ..plans.arrays import Cost
from ..plans.compiler import model_factors
from ..plans.plan import Plan
from ..util import late_imports
from ..util.arguments import check_keywords, described
from ..util.arrays import Floats, Ints
from .sets import Sets

if TYPE_CHECKING:
    from typing import Unpack

    import networkx

    from ..plans.ordering.files import OrderResult
    from ..util.late_imports import JunctionTree
    from ..util.options import BackendName, TreeOptions


class NamedTree(NamedTuple):
    """Cliques by name, and the parent of each."""

    cliques: tuple[tuple[str, ...], ...]
    parent: tuple[int, ...]  # number of a clique, -1 for a root

    @property
    def separators(self) -> tuple[tuple[str, ...], ...]:
        """The variables that each clique shares with its parent, in the order of the clique; empty for a root."""
        shared = []
        for clique, up in zip(self.cliques, self.parent, strict=True):
            above = frozenset(self.cliques[up]) if up >= 0 else frozenset[str]()
            shared.append(tuple(v for v in clique if v in above))
        return tuple(shared)

    def graph(self, model: DiscreteModel) -> networkx.Graph[tuple[str, ...]]:
        """The tree as a graph: cliques are nodes, separators are edges."""
        import networkx

        graph: networkx.Graph[tuple[str, ...]] = networkx.Graph(name=model.name)
        for number, clique in enumerate(self.cliques):
            graph.add_node(clique, size=_size(model, clique), number=number)
        for clique, up, separator in zip(self.cliques, self.parent, self.separators, strict=True):
            if up >= 0:
                graph.add_edge(self.cliques[up], clique, separator=separator, size=_size(model, separator))
        return graph


def named_tree(model: DiscreteModel, plan: Plan) -> NamedTree:
    """The junction tree of a plan, the variables of a clique in the order of the model."""
    cliques = tuple(tuple(model.variables[v] for v in sorted(clique)) for clique in plan.cliques)
    return NamedTree(cliques, tuple(plan.clique_parent.tolist()))


def _size(model: DiscreteModel, variables: Sequence[str]) -> int:
    """Entries of a table over some variables."""
    return math.prod(len(model.states(v)) for v in variables)


@check_keywords()
@dataclass(frozen=True)
class NetworkPlan(late_imports.Shown):
    """A plan together with its model, as returned by ``net.plan()``. It holds no tables.

    Attributes
    ----------
    model : DiscreteModel
    plan : Plan
        The flat arrays.
    search : OrderResult or None
        How the elimination order was found: ``search.method``, ``seed``, ``cost``, ``trace``. None if the order was
        given, and for a loaded plan.
    slices : tuple of str
        Variables whose states are enumerated; empty unless the plan was made with ``slices=``.
    n_slices : int
        Number of configurations of these variables: a query runs the plan once for each.

    Examples
    --------
    >>> import jtgpu
    >>> plan = jtgpu.load("asia").plan()
    >>> plan.order[:3], len(plan.cliques), plan.cost().entries
    (('asia', 'tub', 'xray'), 6, 40)
    """

    model: DiscreteModel
    plan: Plan
    search: OrderResult | None = None
    slices: tuple[str, ...] = ()
    n_slices: int = 1
    limits: QuestionLimits | None = None  # of each question, where questions are planned one by one

    def cost(self) -> Cost:
        """Cost of one run of the plan; see `jtgpu.Cost`."""
        return self.plan.cost()

    def check(self) -> None:
        """Raise `PlanError` if the plan violates an invariant or does not match the model."""
        self.plan.check()
        _check_fits(self.plan, self.model)

    def describe(self) -> str:
        """Describe the plan, and which backend ``backend="auto"`` would choose and why."""
        head = self.model.name or type(self.model).__name__
        backend, reason = auto.choose(self.plan)
        return f"{head}: {self.plan.describe()}\n{self._order_text()}\nbackend: {backend} ({reason})"

    def _order_text(self) -> str:
        """Describe where the elimination order comes from."""
        if self.search is None:
            return "elimination order: given by a file, a sequence or a saved plan"
        if self.search.from_cache:
            return 'elimination order: saved by an earlier search of order="best"'
        return f"elimination order: {self.search.method}, seed {self.search.seed}"

    @property
    def posterior_ptr(self) -> Ints:
        """(V+1,) bounds of each variable's cells in an array of all posteriors."""
        return self.plan.posterior_ptr

    @cached_property
    def sets(self) -> Sets:
        """The sets of variables that the plan keeps together, for likelihoods and joint posteriors of them."""
        return Sets(self.model, self.plan)

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the variables, first eliminated first. ``net.plan(order=plan.order)`` uses the same order."""
        return tuple(self.model.variables[v] for v in self.plan.elimination_order.tolist())

    @property
    def elimination_order(self) -> tuple[str, ...]:
        """The same as `order`."""
        return self.order

    @property
    def cliques(self) -> tuple[tuple[str, ...], ...]:
        """Names of the variables of each clique, in the order of the model.

        For a sliced plan, these are the cliques of a slice without the variables in `slices`.
        """
        return self._tree.cliques

    @property
    def separators(self) -> tuple[tuple[str, ...], ...]:
        """Names of the variables that each clique shares with its parent, in the order of `cliques`; () for a root."""
        return self._tree.separators

    @property
    def clique_parents(self) -> tuple[int, ...]:
        """Position in `cliques` of the parent of each clique in the junction tree; -1 for a root."""
        return self._tree.parent

    def junction_tree(self) -> networkx.Graph[tuple[str, ...]]:
        """Return the junction tree as a `networkx.Graph`, one component for each component of the network.

        Returns
        -------
        networkx.Graph
            Nodes are cliques, tuples of names, with the attributes ``size`` (entries of the clique's table) and
            ``number`` (its position in `cliques`). Edges have the attributes ``separator`` (the names that both
            cliques contain) and ``size``.

        Examples
        --------
        >>> import jtgpu
        >>> tree = jtgpu.network("a->b->c").plan("min-fill").junction_tree()
        >>> sorted(tree.nodes), [separator for _, _, separator in tree.edges(data="separator")]
        ([('a', 'b'), ('b', 'c')], [('b',)])
        """
        return self._tree.graph(self.model)

    @cached_property
    def _tree(self) -> NamedTree:
        return named_tree(self.model, self.plan)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan (not the model) to a file."""
        self.plan.save(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: DiscreteModel) -> NetworkPlan:
        """Read a saved plan for a model.

        Raises
        ------
        PlanError
            If the file holds no plan, or the plan of another model.
        """
        plan = Plan.load(path)
        _check_fits(plan, model)
        return cls(model, plan)

    def with_model(self, model: DiscreteModel) -> NetworkPlan:
        """Return this plan for a model with the same variables, states and scopes but other numbers.

        Raises
        ------
        PlanError
            If the models differ in more than numbers.
        """
        if not isinstance(model, DiscreteModel):
            raise ArgumentError(f"model must be a network, not {described(model)}")
        old = self.model
        same_states = model.variables == old.variables and all(
            model.states(v) == old.states(v) for v in range(len(model))
        )
        if not same_states or [f.scope for f in model.factors] != [f.scope for f in old.factors]:
            raise PlanError(f"{model!r} differs from {old!r} in variables, states or scopes, not only in numbers")
        return replace(self, model=model)

    @property
    def whole(self) -> Plan:
        """Return the plan for queries that need the whole model; raises `JtgpuError` if the plan is sliced."""
        return self.plan

    def prepare(
        self, backend: str, factors: Sequence[Floats], *, devices: object = None, replan: bool = True,
        executor: Start | None = None, **options: object,
    ) -> Backend:  # fmt: skip
        """Create a backend for this plan and the model's tables; for the parameters, see `jtgpu.JunctionTree`."""
        if executor is not None:
            raise PlanError("executor= runs the slices of a plan, and this plan has none; use net.plan(slices=...)")
        check_backend_options(backend, {name: value for name, value in options.items() if name != "limits"})
        return make(backend, self.plan, factors, devices=devices, replan=replan, **options)

    def compile(self, backend: BackendName = "auto", **options: Unpack[TreeOptions]) -> JunctionTree:
        """Create a `jtgpu.JunctionTree`: allocate the memory and copy the tables.

        Parameters
        ----------
        backend : {"auto", "cpu", "gpu", "indexed", "reference"}
        **options : `jtgpu.util.options.TreeOptions`
            See `jtgpu.JunctionTree`: ``replan``, ``devices``, ``executor``, ``progress``, and options of the backend
            such as ``threads`` and ``dtype``.

        Raises
        ------
        ArgumentError
            If the backend has no such option; the message suggests the closest one.
        """
        made: JunctionTree = late_imports.compiling().JunctionTree(self, backend, **options)
        return made

    def __repr__(self) -> str:
        c = self.cost()
        return f"NetworkPlan({self.model.name!r}, {c.cliques} cliques, {c.entries:,} entries)"


def _check_fits(plan: Plan, model: DiscreteModel) -> None:
    scopes = [tuple(f.scope) for f in model_factors(model)]
    n = plan.n_factors - len(plan.sets)
    if not np.array_equal(plan.cardinality, model.cardinality) or list(plan.factor_scopes[:n]) != scopes:
        raise PlanError(
            f"this plan is for another model: {plan.n_variables} variables and {n} factors; "
            f"{model!r} has {len(model)} and {len(scopes)}, or they differ in states or scopes"
        )


def check_backend_options(backend: str, options: Mapping[str, object]) -> None:
    """Raise `ArgumentError` for an option that a backend does not have; the message suggests the closest one."""
    known = OPTIONS.get(backend, ())
    for name in options:
        if name not in known:
            hint = closest(name, (*known, *TREE_OPTIONS))
            raise ArgumentError(f"the backend {backend!r} has no option {name!r}{hint}")
