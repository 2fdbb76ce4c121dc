"""Keywords of `jtgpu.JunctionTree.predict_proba`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from ..util.options import OnProblem


class FrameOptions(TypedDict, total=False):
    """Keywords of `jtgpu.JunctionTree.predict_proba`, which documents them."""

    keep: str | Iterable[str]
    log_evidence: bool
    conflict: bool
    mpe: bool
    on_error: OnProblem
    na_values: str | Iterable[str] | None
    do: Mapping[Any, Any] | None
    cluster: Any  # str, jtgpu.cluster.Cluster or None
    progress: bool | Callable[[int, int, int], None] | None
