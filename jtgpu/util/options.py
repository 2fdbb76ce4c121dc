"""Names of backends, methods and options, for the signatures of all layers.

The options themselves are documented where they are used: `jtgpu.DiscreteModel.plan`, `jtgpu.JunctionTree` and
`jtgpu.inference.planning.make_plan`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypedDict

__all__ = [
    "BackendName",
    "CompileOptions",
    "Devices",
    "Dtype",
    "ImputeMethod",
    "JointMethod",
    "Lowering",
    "Objective",
    "OnProblem",
    "Order",
    "OrderMethod",
    "PlanOptions",
    "TreeOptions",
    "ZeroRows",
]

BackendName = Literal["auto", "cpu", "gpu", "reference", "indexed"]
Dtype = Literal["float64", "float32"]
Devices = Literal["all"] | int | Sequence[int] | None
Lowering = Literal["pairwise", "clique", "shallow"]
Objective = Literal["entries", "largest", "time"]
OnProblem = Literal["error", "flag"]  # raise, or mark the row
ZeroRows = Literal["error", "uniform"]  # of a CPT
JointMethod = Literal["auto", "cases", "together"]
ImputeMethod = Literal["sample", "mpe"]
OrderMethod = Literal["auto", "best", "saved", "min-fill", "min-weight", "weighted-min-fill", "min-neighbours"]
# a method, the path of a .num or .td file, or the variables, first eliminated first
Order = OrderMethod | str | os.PathLike[str] | Iterable[str | int]


class _OrderOptions(TypedDict, total=False):
    """How an order is found, and what the plan may take."""

    time_limit: float | None
    n_steps: int | None
    memory_limit: float | str | None
    max_table: float | None
    seed: int
    objective: Objective
    workers: int | None
    cache: bool
    lowering: Lowering
    together: Sequence[Sequence[str | int]]
    slices: Sequence[str | int] | str


class PlanOptions(_OrderOptions, total=False):
    """Keywords of ``net.plan``."""

    backend: BackendName
    devices: Devices
    progress: Callable[[float, float, float], None] | None  # of the search: cost, seconds, share that is done


class TreeOptions(TypedDict, total=False):
    """Keywords of ``plan.compile`` and `jtgpu.JunctionTree`; each backend has some of them."""

    devices: Devices
    dtype: Dtype
    threads: int | None
    replan: bool
    executor: Callable[..., Any] | None
    progress: Callable[[str], None] | None  # a message before a step that takes seconds
    # gpu
    device: int | None
    engine: str
    single: bool
    stream: Any
    tune: bool
    # indexed
    thresholds: Any
    transfers: str
    split_n: int
    marginalise_threads: int
    scatter_threads: int
    min_entries: int
    normalise: bool
    ways: Any
    scatter_ways: Any
    marginalise_m: Any
    scatter: str
    index_transfers: str
    streams: int
    graph: bool
    max_entries: int


class CompileOptions(_OrderOptions, TreeOptions, total=False):
    """Keywords of ``net.compile``: those of ``net.plan`` and of ``plan.compile``."""
