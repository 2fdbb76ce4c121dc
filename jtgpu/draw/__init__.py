"""Pictures of networks, posteriors, plans and results as SVG, for notebooks and files; nothing else is needed.

>>> import jtgpu
>>> tree = jtgpu.load("asia").compile("reference")
>>> jtgpu.draw.show(tree, {"xray": "yes"}).title
'Bayesian network asia, 8 variables with posteriors'
"""

from __future__ import annotations

from . import plots  # noqa: F401 (jtgpu.draw.plots needs no import of its own)
from .drawing import Drawing
from .pictures import Layout, layout, show
from .ranks import show_ranks, show_series
from .structures import arcs, heat_map, trace

__all__ = ["Drawing", "Layout", "arcs", "heat_map", "layout", "show", "show_ranks", "show_series", "trace"]
