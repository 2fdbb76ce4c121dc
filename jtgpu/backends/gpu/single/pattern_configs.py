"""How cases of an evidence pattern could be answered, by models of their time: the ways, before an engine is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....device.context import Device
from ....device.driver import multiprocessors
from ....plans.lowering import relowered
from ....plans.plan import Plan
from .dataflow.engine import MOST_FLOPS, FlowEngine, levels_microseconds
from .dataflow.pattern import CutFlow
from .dataflow.schedule import make_flow
from .levels.engine import CaseEngine, level_nanoseconds
from .levels.pattern import CutEngine, Whole, cut_schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CutWay", "cut_ways"]

LEVEL = 2_000_000  # multiplications and additions that a card does while a level is handed over


@dataclass(frozen=True)
class CutWay:
    """An engine that could be made.

    Attributes
    ----------
    kind : str
        `CaseEngine.kind` of it.
    like : str
        Of the usual engines the one whose time model is wrong alike; empty where none is. Not ``"levels"`` for a kernel
        a level, since the usual engine has code of its own for heavy contractions.
    nanoseconds : int
        Of a case, by the time model.
    make : callable
        Makes it; closed by who asked for it. Raises `TableTooLarge` where the card has not enough memory, and
        `BackendUnavailable` where it is none for such an engine.
    """

    kind: str
    like: str
    nanoseconds: int
    make: Callable[[], CaseEngine]


class _Left:
    """Plans of what is left, and what else all ways need."""

    def __init__(
        self,
        factors: Sequence[NDArray[np.float64]],
        scopes: Sequence[Sequence[int]],
        seen: NDArray[np.bool_],
        device: Device,
        dtype: str,
    ):
        self.device, self.dtype = device, dtype
        self._given = factors, scopes, seen

    def whole(self, plan: Plan) -> Whole:
        return Whole(plan, *self._given)

    def levels(self, plan: Plan) -> CutWay:
        whole = self.whole(plan)
        schedule = cut_schedule(plan, whole, self.dtype)

        def make() -> CaseEngine:
            second = self.in_float64(plan, whole) if self.dtype == "float32" else None
            return CutEngine(plan, whole, schedule, self.device, second)

        return CutWay(CutEngine.kind, "", level_nanoseconds(schedule), make)

    def in_float64(self, plan: Plan, whole: Whole) -> Callable[[], CaseEngine]:
        return lambda: CutEngine(plan, whole, cut_schedule(plan, whole), self.device)

    def flow(self, plan: Plan) -> CutWay | None:
        whole = self.whole(plan)
        flow = make_flow(plan, whole.largest, multiprocessors(self.device), whole=whole)
        if flow is None:
            return None

        def make() -> CaseEngine:
            return CutFlow(plan, whole, flow, self.device, self.in_float64(plan, whole))

        return CutWay(CutFlow.kind, FlowEngine.kind, round(1000 * flow.microseconds), make)


def cut_ways(
    plans: Sequence[Plan],
    factors: Sequence[NDArray[np.float64]],
    scopes: Sequence[Sequence[int]],
    seen: NDArray[np.bool_],
    device: Device,
    dtype: str = "float64",
    flows: bool = True,
) -> Iterator[CutWay]:
    """The ways, the most promising first; each is laid out, on the host alone, when it is asked for.

    Parameters
    ----------
    plans : sequence of Plan
        Of what is left of the network, at least one.
    factors : sequence of arrays
        Of the network.
    scopes : sequence of sequences of int
        Of the factors, in the network's variables.
    seen : (V,) bool
        What is observed in every case.
    device : Device
    dtype : {"float64", "float32"}
    flows : bool
        Whether the engine without levels is among them, where it can take a plan and tables are float64.
    """
    left = _Left(factors, scopes, seen, device, dtype)
    plans = [min(plan, relowered(plan), key=_as_levels) for plan in plans]
    most = MOST_FLOPS if flows and dtype == "float64" and device.capability >= (7, 0) else -1
    laid_out = [left.flow(plan) for plan in plans if plan.cost().flops <= most]
    flow = min((way for way in laid_out if way is not None), key=lambda way: way.nanoseconds, default=None)
    by_levels = min(plans, key=_as_levels)
    if flow is not None and flow.nanoseconds < 1e3 * levels_microseconds(by_levels):
        yield flow
        yield left.levels(by_levels)
        return
    levels = left.levels(by_levels)
    yield from sorted((way for way in (flow, levels) if way is not None), key=lambda way: way.nanoseconds)


def _as_levels(plan: Plan) -> int:
    """What a plan costs as a kernel a level, in operations."""
    return LEVEL * plan.cost().program_levels + plan.cost().flops
