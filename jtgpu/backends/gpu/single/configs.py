"""Which engine answers single cases of a network on a card, and how: measured when asked for, kept for later.

A time model chooses in a moment and is wrong by a tenth or two; measuring takes seconds and is right. What was found
is kept in a file a network and card, as FFTW keeps its wisdom (Frigo and Johnson, Proceedings of the IEEE 93, 2005),
and taken from there by every process to come: as long as it lies there, answers have the same bits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import JtgpuError
from ....plans.plan import Plan
from ....util import atomic_file
from ....util.system import cache_folder
from ...base import Evidence
from .dataflow.schedule import FLOW_WARPS, USUAL, FlowWay

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .levels.engine import CaseEngine

__all__ = ["ENGINES", "Tried", "Way", "best_way", "keep_way", "kept_way", "network_key", "ways_file"]

ENGINES = ("lists", "flow", "levels")
FORMAT_VERSION = 2
RUNS = 60  # propagations of which the median counts
GAIN = 0.98  # of the best time, from which on another way is better: less is noise
NEAR = 1.3  # times the best engine's time, up to which an engine's variants are looked at
PRICES = (64.0, 0.0, 3000.0, 300.0, 16.0, 4.0)  # of lowerings of few levels; 0: the plan as it is
SIMULATED: tuple[tuple[str, tuple[Any, ...]], ...] = (("longer", (True, False)), ("kept", (0, 4)))
FEW = FLOW_WARPS[1]
VARIANTS: tuple[dict[str, Any], ...] = (  # some gain together only
    {"blocks": True},
    *({"blocks": True, "warps": FEW, "longer": longer, "kept": 0} for longer in (True, False)),
    *({name: value} for name, values in SIMULATED for value in values),
    *({"warps": n} for n in (FEW, FLOW_WARPS[0])),
    *({"slow": value} for value in (4.0, 16.0, 24.0)),
    *({"quick": value} for value in (1.5, 4.0, 6.0, 12.0)),
)


@dataclass(frozen=True)
class Way:
    """How single cases are answered.

    Attributes
    ----------
    engine : {"lists", "flow", "levels"}
    codes : bool
        Of a kernel a level: whether heavy contractions have code of their own.
    flow : FlowWay
        Of the engine without levels: how its work is laid out.
    shallow : float
        Price at which the plan is lowered again, so that it has fewer levels (`jtgpu.plans.lowering.relowered`); 0: not.
    """

    engine: str
    codes: bool = True
    flow: FlowWay = USUAL
    shallow: float = 0.0

    def __str__(self) -> str:
        told = [self.engine]
        if self.shallow:
            told.append(f"shallow {self.shallow:g}")
        if self.engine == "levels" and self.codes:
            told.append("code per shape")
        if self.engine == "flow":
            usual = asdict(USUAL)
            told += [f"{name} {value}" for name, value in asdict(self.flow).items() if value != usual[name]]
        return ", ".join(told)


@dataclass(frozen=True)
class Tried:
    """A way and what it took: device microseconds of a case, the median; inf where the network or the card is none for
    it."""

    way: Way
    microseconds: float


def best_way(
    make: Callable[[Way], CaseEngine], n_variables: int, told: Callable[[str], None] = lambda _: None
) -> list[Tried]:
    """Every way that was tried, the best one first.

    Parameters
    ----------
    make : callable
        Makes an engine; it is closed again. Raises `JtgpuError` for a way that cannot be.
    n_variables : int
    told : callable, optional
        Is told what is being measured.
    """
    tried: dict[Way, float] = {}
    nothing = [Evidence.none(n_variables)]

    def measured(way: Way) -> float:
        if way not in tried:
            told(f"measuring {way}")
            tried[way] = math.inf
            with contextlib.suppress(JtgpuError):
                engine = make(way)
                try:
                    tried[way] = statistics.median(engine.measure(RUNS, nothing))
                finally:
                    engine.close()
        return tried[way]

    firsts = [Way(engine, shallow=PRICES[0]) for engine in ENGINES]
    best = min(firsts, key=measured)
    for way in firsts:
        if measured(way) <= NEAR * measured(best) < math.inf:
            while way != (better := _better(way, measured)):  # one thing after another, as long as it gains
                way = better
    ends = sorted(tried, key=lambda w: (tried[w], w.engine, str(w)))
    return [Tried(w, tried[w]) for w in ends]


def _better(way: Way, measured: Callable[[Way], float]) -> Way:
    """A way from which no change was seen to gain when it was tried."""
    if way.engine == "flow":
        for name, values in SIMULATED:  # what the simulation would choose anew each time
            if getattr(way.flow, name) is None:
                sides = [replace(way, flow=replace(way.flow, **{name: value})) for value in values]
                way = min(sides, key=measured)
    for price in PRICES:
        other = replace(way, shallow=price)
        way = other if measured(other) < GAIN * measured(way) else way
    if way.engine == "levels":
        other = replace(way, codes=False)
        way = other if measured(other) < GAIN * measured(way) else way
    if way.engine == "flow":
        for changes in VARIANTS:
            other = replace(way, flow=replace(way.flow, **changes))
            way = other if measured(other) < GAIN * measured(way) else way
    return way


def network_key(plan: Plan, factors: Sequence[NDArray[np.float64]]) -> str:
    """What the time of a case depends on: the plan, and where factors are zero."""
    digest = hashlib.sha256(plan.to_bytes())
    for table in factors:
        digest.update(np.packbits(np.ascontiguousarray(table) > 0).tobytes())
    return digest.hexdigest()[:24]


def ways_file(device: str, plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Path | None:
    """Where the way for a network is kept; None where nothing was ever kept for this card."""
    folder = _folder(device)
    return folder / f"{network_key(plan, factors)}.json" if folder.is_dir() else None


def _folder(device: str) -> Path:
    name = "-".join("".join(c if c.isascii() and c.isalnum() else " " for c in device).split())
    return cache_folder() / "ways" / name


def kept_way(device: str, plan: Plan, factors: Sequence[NDArray[np.float64]]) -> Way | None:
    """The way that was found for a network on a card of this name; None where there is none, or it cannot be read."""
    path = ways_file(device, plan, factors)
    if path is None:
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != FORMAT_VERSION:
            return None
        found = data["way"]
        way = Way(found["engine"], bool(found["codes"]), FlowWay(**found["flow"]), float(found["shallow"]))
        known = way.engine in ENGINES and way.flow.warps in FLOW_WARPS and way.flow.longer in (None, True, False)
        known = known and way.flow.kept in (None, *range(FLOW_WARPS[0])) and way.flow.blocks in (True, False)
        numbers = (way.flow.quick, way.flow.slow, way.shallow)
        return way if known and all(0 <= float(x) < math.inf for x in numbers) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_way(device: str, plan: Plan, factors: Sequence[NDArray[np.float64]], tried: Sequence[Tried]) -> Path:
    """Keep the first of the ways tried, whole or not at all; the file's path.

    Raises
    ------
    OSError
        When it cannot be written.
    """
    path = _folder(device) / f"{network_key(plan, factors)}.json"
    rows = [{"way": asdict(t.way), "microseconds": t.microseconds} for t in tried if t.microseconds < math.inf]
    data = {"version": FORMAT_VERSION, "device": device, "way": asdict(tried[0].way), "tried": rows}
    text = json.dumps(data, indent=1)
    atomic_file.write_text(path, text, durable=False, make_folders=True)
    return path
