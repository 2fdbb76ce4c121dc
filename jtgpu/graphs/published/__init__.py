"""Betweenness as published by Wolonciej, for comparison: a CUDA stream for each source, virtual vertices, Stride-CSR.

`betweenness` computes what the report's program computes, on a GPU; `measure` times it over its parameters, next to
`jtgpu.graphs.betweenness`.
"""

from __future__ import annotations

from .gpu import Setting, betweenness
from .table import SETTINGS, Row, measure

__all__ = ["SETTINGS", "Row", "Setting", "betweenness", "measure"]
