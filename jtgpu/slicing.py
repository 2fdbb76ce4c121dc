"""A tree too large for one memory, as a sum over the states of a few variables: conditioning, or slicing.

With the variables S fixed the network falls into smaller ones, one for each configuration s, and exactly

    P(x, e) = sum_s P(x, e, s).

Every slice is the same plan with S observed in other states (`jtgpu.apart`), so memory is that of one slice and the
work is that of all of them (Pearl, Probabilistic Reasoning in Intelligent Systems, section 4.3; Darwiche, Recursive
conditioning, AIJ 126, 2001). Which variables: one after another the one that leaves the least work in all, tried among
those of the largest clique, until a slice fits.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .apart import Apart, ApartBackend
from .backends.base import Backend, CaseByCase, Evidence, Result, columns_of
from .compiler import NetworkPlan, model_factors
from .errors import ImpossibleEvidence, JtgpuError, PlanError, TableTooLarge

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .backends.base import Prepare
    from .network import DiscreteModel
    from .plan import Plan

__all__ = ["Sliced", "SlicedPlan", "make_sliced_plan"]

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
        return (
            f"{super().describe()}\ncut into {self.n_slices:,} slices by {cards}, one after the other: "
            f"{total:,} operations in all"
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

    def prepare(self, prepare: Prepare, factors: Sequence[NDArray[np.float64]], **options: Any) -> Backend:
        """A backend that sums over the slices."""
        apart = _apart(self.model, [self.model.index(v) for v in self.slices])
        return Sliced(apart, prepare(self.plan, factors, **options))


class Sliced(CaseByCase):
    """`jtgpu.backends.base.Backend`: a case is a case of every slice.

    Parameters
    ----------
    apart : Apart
        The sliced variables are its `seen` ones.
    backend : Backend
        Of the plan of a slice.
    """

    def __init__(self, apart: Apart, backend: Backend):
        self._parts = ApartBackend(apart, backend)
        self._apart = apart
        self._fixed = np.flatnonzero(apart.seen).tolist()
        self._ptr = np.concatenate([[0], np.cumsum(apart.cardinality)]).astype(np.int64)

    @property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) where each variable's cells begin in an answer."""
        return self._ptr

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        """See `jtgpu.backends.base.Backend.run`."""
        total = np.zeros(int(self.posterior_ptr[-1]))
        top = -math.inf  # logarithm of the largest slice so far; `total` and `mass` are relative to it
        mass = 0.0
        cells = columns_of(self.posterior_ptr, targets)
        for states in self._slices(evidence):
            try:
                found = self._parts.run(Evidence(states, evidence.likelihood), targets)
            except ImpossibleEvidence:
                continue
            if found.log_evidence > top:
                scale = math.exp(top - found.log_evidence)
                total *= scale
                mass *= scale
                top = found.log_evidence
            weight = math.exp(found.log_evidence - top)
            total[cells] += weight * found.posterior[cells]
            mass += weight
        if not mass > 0:
            raise ImpossibleEvidence("the evidence has probability 0")
        return Result(total / mass, top + math.log(mass))

    def _slices(self, evidence: Evidence) -> Iterator[NDArray[np.int32]]:
        """The case's states with the sliced variables in every configuration that it leaves possible."""
        choices = []
        for v in self._fixed:
            known = int(evidence.state[v])
            weights = evidence.likelihood.get(v)
            possible = [known] if known >= 0 else range(int(self._apart.cardinality[v]))
            choices.append([s for s in possible if weights is None or weights[s] > 0])
        for chosen in itertools.product(*choices):
            states = evidence.state.copy()
            states[self._fixed] = chosen
            yield states

    def close(self) -> None:
        """See `jtgpu.backends.base.Backend.close`."""
        self._parts.close()


def make_sliced_plan(model: DiscreteModel, slices: Sequence[str | int] | str, **options: Any) -> NetworkPlan:
    """A plan of slices.

    Parameters
    ----------
    model : DiscreteModel
    slices : sequence, or "auto"
        Variables to fix; ``"auto"`` finds them, none where the model fits as it is.
    **options
        Of `jtgpu.compiler.make_plan`, but an order of the variables themselves: a slice has others.

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
    from . import graph, ordering

    apart = _apart(model, chosen)
    neighbours = graph.neighbour_lists(graph.interaction_graph(len(apart.of), apart.scopes))
    order = ordering.find_order(apart.cardinality[apart.of], neighbours, "min-fill", seed=0)
    cliques, _ = graph.elimination_cliques(neighbours, order.order.tolist())
    return [tuple(c) for c in cliques]


def _size(clique: Sequence[int], apart: Apart) -> int:
    return math.prod(int(apart.cardinality[apart.of[v]]) for v in clique)
