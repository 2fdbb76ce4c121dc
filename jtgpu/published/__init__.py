"""Published systems, to compare with: each computes what its authors describe.

`ordering` samples orders of variables (Trosztel, 2012), `outliers` has the solving sets and selection kernels of a
thesis (Zanirati, 2012), `betweenness` a stream for each source (Wolonciej), `durbin` a recurrence of PolyBench (Bianco,
Burchiellaro and Uguzzoni). ``net.compile("indexed")`` is the system for junction trees (Gottoli and Pettenuzzo, 2014).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..util.late_imports import public_names

if TYPE_CHECKING:
    from . import betweenness, durbin, ordering, outliers

__all__ = ["betweenness", "durbin", "ordering", "outliers"]

__getattr__, __dir__ = public_names(__name__, {}, "betweenness durbin ordering outliers")
