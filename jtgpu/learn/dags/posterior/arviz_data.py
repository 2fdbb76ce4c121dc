"""Chains over graphs as data of ArviZ, whose R-hat, effective samples and plots then apply."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....errors import ArgumentError, BackendUnavailable
from ....util.arrays import Floats, Ints
from .averaging import arcs_of


def arviz_data(names: tuple[str, ...], graphs: Ints, parents: Ints, trace: Floats) -> Any:
    """Kept graphs as ``arc``, (chain, draw, parent, child), and the trace as ``log_weight`` of the statistics."""
    # graphs: (T, C, n) bits of the candidates `parents`, (n, m); trace: (C, S), with the burn-in
    # raises ArgumentError: If there are no chains.
    if not trace.size:
        raise ArgumentError("an exact posterior has no chains; to_arviz requires method='mcmc'")
    try:
        import arviz
    except ImportError:
        raise BackendUnavailable("to_arviz requires the package arviz: pip install arviz") from None
    arcs = arcs_of(graphs.swapaxes(0, 1), parents)
    groups = {"posterior": {"arc": arcs.astype(np.int8)}, "sample_stats": {"log_weight": trace}}
    named: dict[str, Any] = {
        "coords": {"parent": [*names], "child": [*names]}, "dims": {"arc": ["parent", "child"]},
    }  # fmt: skip
    if hasattr(arviz, "InferenceData"):  # before 1.0
        return arviz.from_dict(**groups, **named)
    return arviz.from_dict(groups, **named)
