"""How cases of an evidence pattern could be answered, by models of their time: the ways, before an engine is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...plan import Plan
from ..device import Device
from .cut_engine import CutEngine, Whole, cut_schedule
from .engine import CaseEngine, level_nanoseconds

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


def cut_ways(
    plans: Sequence[Plan],
    factors: Sequence[NDArray[np.float64]],
    scopes: Sequence[Sequence[int]],
    seen: NDArray[np.bool_],
    device: Device,
    dtype: str = "float64",
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
    """
    yield _levels(min(plans, key=_as_levels), factors, scopes, seen, device, dtype)


def _as_levels(plan: Plan) -> int:
    """What a plan costs as a kernel a level, in operations."""
    return LEVEL * plan.cost().program_levels + plan.cost().flops


def _levels(
    plan: Plan,
    factors: Sequence[NDArray[np.float64]],
    scopes: Sequence[Sequence[int]],
    seen: NDArray[np.bool_],
    device: Device,
    dtype: str,
) -> CutWay:
    whole = Whole(plan, factors, scopes, seen)
    schedule = cut_schedule(plan, whole, dtype)

    def in_float64() -> CaseEngine:
        return CutEngine(plan, whole, cut_schedule(plan, whole), device)

    def make() -> CaseEngine:
        return CutEngine(plan, whole, schedule, device, in_float64 if dtype == "float32" else None)

    return CutWay(CutEngine.kind, "", level_nanoseconds(schedule), make)
