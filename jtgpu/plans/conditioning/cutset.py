"""A tree too large for one memory, as a sum over the states of a few variables: conditioning, or slicing.

With the variables S fixed the network falls into smaller ones, one for each configuration s, and exactly

    P(x, e) = sum_s P(x, e, s).

Every slice is the same plan with S observed in other states (`jtgpu.plans.conditioning.split`), so memory is that of one slice and the
work is that of all of them (Pearl, Probabilistic Reasoning in Intelligent Systems, section 4.3; Darwiche, Recursive
conditioning, AIJ 126, 2001). Which variables: one after another the one that leaves the least work in all, tried among
those of the largest clique, until a slice fits.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.wrappers.conditioned import Sliced, SliceJob, on_devices, one_after_another
from ...backends.wrappers.devices import OnDevices
from ...errors import JtgpuError, PlanError, TableTooLarge, format_bytes
from ..clique_tree import elimination_cliques
from ..compiler import NetworkPlan, model_factors
from ..moral import interaction_graph, neighbour_lists
from .split import Apart

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...backends.base import Backend, Prepare
    from ...backends.wrappers.conditioned import Start
    from ...model.network import DiscreteModel
    from ..plan import Plan

__all__ = ["SlicedPlan", "make_sliced_plan"]

CANDIDATES = 6  # variables of the largest clique that are tried for the next slice
MOST_SLICES = 1_000_000


@dataclass(frozen=True)
class SlicedPlan(NetworkPlan):
    """A plan that is run once for every configuration of some variables.

    ``plan`` is that of one slice, in which these variables are taken apart; so is ``cost()``.

    Attributes
    ----------
    slices : tuple of str
        The variables that are fixed.
    n_slices : int
        Configurations of theirs.
    """

    slices: tuple[str, ...] = ()
    n_slices: int = 1

    def describe(self) -> str:
        """The plan of one slice in words, and how many there are."""
        cards = ", ".join(f"{v} ({len(self.model.states(v))})" for v in self.slices)
        total = self.n_slices * self.cost().flops
        head = self.model.name or type(self.model).__name__
        return (
            f"{head}: {len(self.model)} variables, cut into {self.n_slices:,} slices by {cards}: {total:,} operations "
            f"in all, {format_bytes(self.cost().bytes)} at a time\n"
            f"a slice, with those taken apart, is {super().describe().partition(': ')[2]}"
        )

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) where each variable's cells begin in an answer."""
        return np.concatenate([[0], np.cumsum(self.model.cardinality)]).astype(np.int64)

    @property
    def elimination_order(self) -> tuple[str, ...]:
        """Names of the variables of a slice, first eliminated first."""
        apart = _apart(self.model, [self.model.index(v) for v in self.slices])
        order = apart.of[self.plan.elimination_order].tolist()
        return tuple(self.model.variables[v] for v in order if not apart.seen[v])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Not for slices: a saved plan knows nothing of them."""
        raise PlanError("a plan of slices cannot be saved; save the variables in .slices and plan again")

    def check(self) -> None:
        """Hold the plan of a slice to its rules; raises `PlanError`."""
        self.plan.check()

    @property
    def whole(self) -> Plan:
        """There is none."""
        raise JtgpuError(
            "this question needs the whole tree; cut into slices it answers posteriors and ln P(evidence), and what is "
            "made of them"
        )

    def prepare(
        self, prepare: Prepare, factors: Sequence[NDArray[np.float64]], executor: Start | None = None, **options: Any
    ) -> Backend:
        """A backend that sums over the slices.

        Parameters
        ----------
        executor : callable, optional
            Makes what answers the slices from a `jtgpu.backends.wrappers.conditioned.SliceJob`; default: they are answered here, dealt out
            where there are several devices, else one after the other.
        """
        apart = _apart(self.model, [self.model.index(v) for v in self.slices])
        start = executor or one_after_another
        if isinstance(prepare, OnDevices):
            start, prepare = executor or on_devices(prepare), prepare.prepare
        job = SliceJob(apart, self.plan, list(factors), prepare, options)
        return Sliced(apart, start(job), self.cost().flops)


def make_sliced_plan(model: DiscreteModel, slices: Sequence[str | int] | str, **options: Any) -> NetworkPlan:
    """A plan of slices.

    Parameters
    ----------
    model : DiscreteModel
    slices : sequence, or "auto"
        Variables to fix; ``"auto"`` finds them, none where the model fits as it is.
    **options
        Of `jtgpu.plans.compiler.make_plan`, but an order of the variables themselves: a slice has others.

    Raises
    ------
    TableTooLarge
        When a slice does not fit; of "auto", when a million slices would not do.
    """
    chosen = [] if isinstance(slices, str) else sorted({model.index(v) for v in slices})
    cards = model.cardinality.tolist()
    while True:
        try:
            return _plan(model, chosen, options)
        except TableTooLarge as error:
            if slices != "auto":
                raise
            best = _next(model, chosen)
            if best is None or math.prod(cards[v] for v in [*chosen, best]) > MOST_SLICES:
                raise TableTooLarge(
                    f"{error.message}; cut into up to {MOST_SLICES:,} slices it does not fit either",
                    error.entries, error.needed, error.limit,
                ) from None  # fmt: skip
            chosen = sorted([*chosen, best])


def _plan(model: DiscreteModel, chosen: list[int], options: dict[str, Any]) -> NetworkPlan:
    if not chosen:
        made: NetworkPlan = model.plan(**options)
        return made
    apart = _apart(model, chosen)
    made = apart.model([f.table for f in model_factors(model)]).plan(**options)
    names = tuple(model.variables[v] for v in chosen)
    n_slices = math.prod(int(model.cardinality[v]) for v in chosen)
    return SlicedPlan(model, made.plan, made.order, names, n_slices)


def _apart(model: DiscreteModel, chosen: Sequence[int]) -> Apart:
    seen = np.zeros(len(model), np.bool_)
    seen[list(chosen)] = True
    return Apart(model.cardinality, [f.scope for f in model_factors(model)], seen)


def _next(model: DiscreteModel, chosen: list[int]) -> int | None:
    """The variable whose states, one more slice each, leave the least work in all."""
    before = _cliques(model, chosen)
    cards = model.cardinality.tolist()
    apart = _apart(model, chosen)
    largest = max(before, key=lambda c: (_size(c, apart), c))
    members = sorted({int(apart.of[v]) for v in largest}.difference(chosen))
    members.sort(key=lambda v: (-sum(v in f.scope for f in model.factors), -cards[v], v))
    best: tuple[int, int] | None = None
    for v in members[:CANDIDATES]:
        if cards[v] < 2:
            continue
        tried = [*chosen, v]
        after = _apart(model, tried)
        work = cards[v] * sum(_size(c, after) for c in _cliques(model, tried))
        if best is None or (work, v) < best:
            best = work, v
    return None if best is None else best[1]


def _cliques(model: DiscreteModel, chosen: Sequence[int]) -> list[tuple[int, ...]]:
    """Cliques of a quick elimination order of the network with these variables taken apart."""
    from .. import ordering

    apart = _apart(model, chosen)
    neighbours = neighbour_lists(interaction_graph(len(apart.of), apart.scopes))
    order = ordering.find_order(apart.cardinality[apart.of], neighbours, "min-fill", seed=0)
    cliques, _ = elimination_cliques(neighbours, order.order.tolist())
    return [tuple(c) for c in cliques]


def _size(clique: Sequence[int], apart: Apart) -> int:
    return math.prod(int(apart.cardinality[apart.of[v]]) for v in clique)
