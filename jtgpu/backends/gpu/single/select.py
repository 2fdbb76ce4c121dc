"""What answers single cases: engines by name, chosen by models of their time, by what was kept, or by measuring."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ....device.driver import most_shared
from ....device.nvcc import find_nvcc
from ....errors import BackendUnavailable, JtgpuError, TableTooLarge
from ....plans.lowering import PRICE, relowered
from ....plans.plan import Plan
from ....util.progress import report
from ...wrappers.workers import Once
from ..program.layout import LEAST, smallest_entries
from ..program.nonzero import Listed, needed_products
from .configs import Tried, Way, best_way, keep_way, kept_way
from .dataflow.engine import flow_engine, levels_microseconds
from .levels.engine import CaseEngine, Engine, level_nanoseconds
from .levels.schedule import Schedule, make_schedule
from .sparse.engine import ListEngine
from .sparse.lists import CLUSTERS, Lists, make_lists
from .specialised.slab_code import MOST_BYTES as SLAB_BYTES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ....device.context import Device

__all__ = ["MOST_LISTED", "Maker", "tune"]

MOST_LISTED = 60_000_000  # operations of a propagation up to which products that are not zero are counted
LEVEL_US, START_US = 1.4, 6.0  # microseconds that a kernel a level takes at least: a level, and the rest
LIST_PRICES = (0.0,)  # of lowerings that are looked at; half the levels gained nothing on Alarm
MOST_LARGER, SMALL = 1.5, 1 << 28  # times the plan's memory that its lowering of fewer levels may take, or bytes


class Maker:
    """Makes engines for one plan on one card.

    Parameters
    ----------
    plan : Plan
    factors : sequence of float64 arrays
    device : Device
    dtype : {"float64", "float32"}
    once : Once, optional
        What engines of the same plan on other cards have in common with these.
    """

    def __init__(
        self,
        plan: Plan,
        factors: Sequence[NDArray[np.float64]],
        device: Device,
        dtype: str = "float64",
        once: Once | None = None,
    ):
        self.plan, self.factors, self.device, self.dtype = plan, factors, device, dtype
        self._once = once or Once()
        if dtype == "float32" and smallest_entries(factors).min(initial=0.0) < LEAST:
            self.dtype = "float64"  # float32 does not hold what the factors say

    def chosen(self, engine: str | None = None, lists: bool | None = None) -> CaseEngine:
        """The engine asked for; else what was found by measuring, else what a model of their time finds quickest.

        Raises
        ------
        JtgpuError
            Where the engine asked for cannot be.
        """
        report("preparing the GPU engine")
        if engine is not None or lists:
            named = engine or "lists"
            return self.made(Way(named, shallow=self._quickest_lists()[1] if named == "lists" else self._shallow()))
        if lists is None and self.dtype == "float64":
            kept = kept_way(self.device.name, self.plan, self.factors)
            if kept is not None:
                try:
                    return self.made(kept)
                except TableTooLarge:
                    raise
                except JtgpuError:  # kept for a whole card, and this is a share of one
                    pass
        if lists is None:
            takes, price = self._quickest_lists()
            if takes <= LEVEL_US * self._lowered(self._shallow()).cost().program_levels + START_US:
                with contextlib.suppress(BackendUnavailable):  # a card, or a share of one, that cannot hold the cluster
                    return self.made(Way("lists", shallow=price))
        price = self._shallow()
        if lists is None and self.dtype == "float64":
            flow = flow_engine(self._lowered(price), self.factors, self.device, self._in_float64)
            if flow is not None:
                return flow
        return self.made(Way("levels", shallow=price))

    def made(self, way: Way) -> CaseEngine:
        """The engine of a way.

        Raises
        ------
        JtgpuError
            Where the network is none for it.
        BackendUnavailable
            Where the card is none for it.
        """
        plan = self._lowered(way.shallow)
        if way.engine == "lists":
            lists = self._lists(way.shallow)
            if lists is None:
                raise JtgpuError("this network has too many products that are not zero to be run as lists")
            return ListEngine(plan, lists, self.device, self._in_float64)
        if way.engine == "flow":
            flow = flow_engine(plan, self.factors, self.device, self._in_float64, forced=True, way=way.flow)
            assert flow is not None
            return flow
        if self.dtype == "float64":
            return self._in_float64(way.codes, way.shallow)
        schedule = self._schedule(self.dtype, way.codes, way.shallow)
        return Engine(plan, self.factors, schedule, self.device, self._in_float64, _told)

    def tune(self) -> list[Tried]:
        """Measure what is quickest, and keep it; what was tried, the best first.

        Raises
        ------
        JtgpuError
            Where no engine can answer.
        OSError
            When it cannot be kept.
        """
        found = best_way(self.made, self.plan.n_variables, report)
        if not found[0].microseconds < math.inf:
            raise JtgpuError(f"no engine can answer cases of this network on {self.device.name}")
        keep_way(self.device.name, self.plan, self.factors, found)
        return found

    def _in_float64(self, codes: bool = True, shallow: float = 0.0, slabs: bool = True) -> CaseEngine:
        schedule = self._schedule("float64", codes, shallow, slabs)
        make = partial(Engine, self._lowered(shallow), self.factors, device=self.device, progress=_told)
        if schedule.slab is None:
            return make(schedule)
        usual = self._schedule("float64", codes, shallow)
        if level_nanoseconds(schedule) < level_nanoseconds(usual):
            # what is so small that digits may be lost in a slab is asked again without
            second = partial(self._in_float64, codes, shallow, False)
            with contextlib.suppress(TableTooLarge):  # blocks' sums take memory
                return make(schedule, second=second)
        return make(usual)

    def _lowered(self, shallow: float) -> Plan:
        """The plan, or the one of fewer levels that a price gives."""
        if not shallow:
            return self.plan
        return self._once(("plan", shallow), lambda: relowered(self.plan, shallow))

    def _shallow(self) -> float:
        """The price at which the plan should be quicker on this card; 0: as it is."""
        other = self._lowered(PRICE)
        fits = other.cost().bytes <= max(MOST_LARGER * self.plan.cost().bytes, SMALL)
        return PRICE if fits and levels_microseconds(other) < levels_microseconds(self.plan) else 0.0

    def _listed(self, shallow: float) -> Listed | None:
        plan = self._lowered(shallow)
        if plan.cost().flops > MOST_LISTED:
            return None
        return self._once(("products", shallow), lambda: needed_products(plan, self.factors))

    def _schedule(self, real: str, codes: bool, shallow: float, slabs: bool = False) -> Schedule:
        own = codes and find_nvcc() is not None  # code of their own, for heavy contractions
        slabs = slabs and own and most_shared(self.device) >= SLAB_BYTES
        plan, listed = self._lowered(shallow), self._listed(shallow)
        make = partial(make_schedule, plan, listed=listed, real=real, codes=own, slabs=slabs)
        return self._once(("schedule", real, own, shallow, slabs), make)

    def _lists(self, shallow: float) -> Lists | None:
        listed = self._listed(shallow)
        if listed is None:
            return None
        room, clusters = most_shared(self.device), CLUSTERS if self.device.capability >= (9, 0) else CLUSTERS[:1]
        make = partial(make_lists, self._lowered(shallow), self.factors, room, clusters, listed)
        return self._once(("lists", room, clusters, shallow), make)

    def _quickest_lists(self) -> tuple[float, float]:
        """Microseconds by the time model, inf where there are none, and the price."""
        made = ((lists.microseconds, price) for price in LIST_PRICES if (lists := self._lists(price)) is not None)
        return min(made, default=(math.inf, 0.0))


def _told(done: int, n: int) -> None:
    report(f"compiling this network's kernels: {done} of {n}")


def tune(
    plan: Plan, factors: Sequence[NDArray[np.float64]], device: int | None = None
) -> tuple[str, list[Tried]]:
    """The name of a card, and what was tried on it for a plan and its factors, the best first.

    See `jtgpu.plans.compiler.NetworkPlan.tune`; the quickest way is kept.
    """
    from ....device.context import open_device

    card = open_device(device)
    return card.name, Maker(plan, factors, card).tune()
