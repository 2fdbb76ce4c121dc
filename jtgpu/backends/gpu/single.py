"""What answers single cases: engines by name, chosen by models of their time, by what was kept, or by measuring."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...errors import BackendUnavailable, JtgpuError, TableTooLarge
from ...plan import Plan
from ..crew import Once
from ..kernels import find_nvcc, tell
from .driver import most_shared
from .engine import CaseEngine, Engine
from .flow_engine import flow_engine
from .list_engine import ListEngine
from .lists import CLUSTERS, Lists, make_lists
from .places import LEAST, smallest_entries
from .products import Listed, needed_products
from .schedule import Schedule, make_schedule
from .ways import Tried, Way, best_way, keep_way, kept_way

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..device import Device

__all__ = ["MOST_LISTED", "Maker", "tune"]

MOST_LISTED = 60_000_000  # operations of a propagation up to which products that are not zero are counted
LEVEL_US, START_US = 1.4, 6.0  # microseconds that a kernel a level takes at least: a level, and the rest


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
        tell("preparing the GPU engine")
        if engine is not None or lists:
            return self.made(Way(engine or "lists"))
        if lists is None and self.dtype == "float64":
            kept = kept_way(self.device.name, self.plan, self.factors)
            if kept is not None:
                try:
                    return self.made(kept)
                except TableTooLarge:
                    raise
                except JtgpuError:  # kept for a whole card, and this is a share of one
                    pass
        if lists is None and self._lists_pay():
            with contextlib.suppress(BackendUnavailable):  # a card, or a share of one, that cannot hold the cluster
                return self.made(Way("lists"))
        if lists is None and self.dtype == "float64":
            flow = flow_engine(self.plan, self.factors, self.device, self._in_float64)
            if flow is not None:
                return flow
        return self.made(Way("levels"))

    def made(self, way: Way) -> CaseEngine:
        """The engine of a way.

        Raises
        ------
        JtgpuError
            Where the network is none for it.
        BackendUnavailable
            Where the card is none for it.
        """
        if way.engine == "lists":
            lists = self._lists()
            if lists is None:
                raise JtgpuError("this network has too many products that are not zero to be run as lists")
            return ListEngine(self.plan, lists, self.device, self._in_float64)
        if way.engine == "flow":
            flow = flow_engine(
                self.plan, self.factors, self.device, self._in_float64, forced=True, way=way.flow
            )
            assert flow is not None
            return flow
        if self.dtype == "float64":
            return self._in_float64(way.codes)
        schedule = self._schedule(self.dtype, way.codes)
        return Engine(self.plan, self.factors, schedule, self.device, self._in_float64, _told)

    def tune(self) -> list[Tried]:
        """Measure what is quickest, and keep it; what was tried, the best first.

        Raises
        ------
        JtgpuError
            Where no engine can answer.
        OSError
            When it cannot be kept.
        """
        found = best_way(self.made, self.plan.n_variables, tell)
        if not found[0].microseconds < math.inf:
            raise JtgpuError(f"no engine can answer cases of this network on {self.device.name}")
        keep_way(self.device.name, self.plan, self.factors, found)
        return found

    def _in_float64(self, codes: bool = True) -> CaseEngine:
        return Engine(self.plan, self.factors, self._schedule("float64", codes), self.device, progress=_told)

    def _listed(self) -> Listed | None:
        if self.plan.cost().flops > MOST_LISTED:
            return None
        return self._once("products", lambda: needed_products(self.plan, self.factors))

    def _schedule(self, real: str, codes: bool) -> Schedule:
        own = codes and find_nvcc() is not None  # code of their own, for heavy contractions
        make = partial(make_schedule, self.plan, listed=self._listed(), real=real, codes=own)
        return self._once(("schedule", real, own), make)

    def _lists(self) -> Lists | None:
        listed = self._listed()
        if listed is None:
            return None
        room, clusters = most_shared(self.device), CLUSTERS if self.device.capability >= (9, 0) else CLUSTERS[:1]
        make = partial(make_lists, self.plan, self.factors, room, clusters, listed)
        return self._once(("lists", room, clusters), make)

    def _lists_pay(self) -> bool:
        lists = self._lists()
        return lists is not None and lists.microseconds <= LEVEL_US * self.plan.cost().program_levels + START_US


def _told(done: int, n: int) -> None:
    tell(f"compiling this network's kernels: {done} of {n}")


def tune(
    plan: Plan, factors: Sequence[NDArray[np.float64]], device: int | None = None
) -> tuple[str, list[Tried]]:
    """Measure what answers single cases of a network quickest on a card, and keep it.

    Parameters
    ----------
    plan : Plan
    factors : sequence of float64 arrays
    device : int, optional
        Number of the CUDA device; default: the best.

    Returns
    -------
    name : str
        Of the card.
    tried : list of Tried
        The best first.

    Raises
    ------
    BackendUnavailable
        Without a GPU, PyCUDA or cuda-bindings.
    JtgpuError
        Where no engine can answer.
    OSError
        When what was found cannot be kept.
    """
    from ..device import open_device

    card = open_device(device)
    return card.name, Maker(plan, factors, card).tune()
