"""Compiled models that do not depend on the cache of elimination orders."""

from __future__ import annotations

import jtgpu
from jtgpu.model.discrete import DiscreteModel
from jtgpu.util.options import BackendName

__all__ = ["compiled"]


def compiled(model: DiscreteModel, backend: BackendName) -> jtgpu.JunctionTree:
    """Compile a model with the min-fill order."""
    tree: jtgpu.JunctionTree = model.plan(order="min-fill", cache=False).compile(backend)
    return tree
