"""Types of arguments for the signatures of all layers: tables, and names of backends, methods and options.

The options themselves are documented where they are used: `jtgpu.DiscreteModel.plan`, `jtgpu.JunctionTree` and
`jtgpu.inference.planning.make_plan`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict

__all__ = [
    "Against", "BackendName", "CompileOptions", "DLPackArray", "Data", "Decisions", "Devices", "Dtype",
    "EngineName", "Explained", "Frame", "FrameLibrary", "ImputeMethod", "InformationUnit", "Interventions",
    "JointMethod", "LearnBackend", "Lowering", "Metric", "MissingCells", "Objective", "OnProblem", "Order",
    "OrderMethod", "OutlierMethod", "PlanOptions", "PosteriorMethod", "Scale", "ScreenMissing", "SearchMethod",
    "StructurePriorLike", "TableLike", "TreeOptions", "ZeroRows",
]  # fmt: skip


class Frame(Protocol):
    """A data frame of pandas, Polars, PyArrow or another library that narwhals reads."""

    @property
    def columns(self) -> Any: ...


class DLPackArray(Protocol):
    """An array of NumPy, PyTorch, JAX or another library."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


# data frame, mapping of columns, list of mappings, or rows of states; see `jtgpu.JunctionTree.posteriors_batch`
TableLike = Frame | DLPackArray | Mapping[Any, Any] | list[Any] | tuple[Any, ...]
Data = TableLike | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]  # a table, or files of one
FrameLibrary = Literal["pandas", "polars", "pyarrow"]

BackendName = Literal["auto", "cpu", "gpu", "reference", "indexed"]
EngineName = Literal["auto", "cpu", "gpu", "reference"]  # of computations without a junction tree
LearnBackend = Literal["cpu", "gpu"]  # of structures
SearchMethod = Literal["auto", "exact", "order", "greedy", "tabu"]
PosteriorMethod = Literal["auto", "exact", "mcmc"]
MissingCells = Literal["error", "drop", "available", "augment", "em"]  # the last two: of posteriors, of a graph
# of learned tables: a column with the variables that were set in each row, or variable to rows
Interventions = str | Mapping[str, Any] | None
StructurePriorLike = Literal["uniform", "fair", "order"] | tuple[Literal["edge"], Any]  # ("edge", probabilities)
InformationUnit = Literal["nats", "bits"]
Explained = Literal["probability", "log-odds", "log-evidence", "mean"]
Metric = Literal["auto", "euclidean", "manhattan", "hamming", "gower"]
Scale = Literal["std", "range"]
ScreenMissing = Literal["auto", "ignore", "state", "error"]
OutlierMethod = Literal["auto", "search", "all"]
Against = Literal["all", "solving_set"]
Dtype = Literal["float64", "float32"]
Devices = Literal["all"] | Sequence[int] | None
Lowering = Literal["pairwise", "clique", "shallow"]
Objective = Literal["entries", "largest", "time"]
OnProblem = Literal["error", "flag"]  # raise, or mark the row
ZeroRows = Literal["error", "uniform"]  # of a CPT
Decisions = Literal["network", "chance"]  # what a file with decisions becomes
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
