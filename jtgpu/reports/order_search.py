"""A figure of the cost of the best elimination order during a search."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..plans.ordering import Improvement


def draw_search(
    trace: Sequence[Improvement], path: str | os.PathLike[str], *, title: str = "", seconds: float | None = None
) -> None:
    """Plot a search's trace as steps, cost (log scale) against seconds, and save it to a file."""
    # trace: sequence of Improvement: ``plan.search.trace``
    # path: The suffix selects the format: .png, .svg, .pdf
    # seconds: End of the search; the last step is extended to it
    # raises ImportError: If matplotlib is missing (``pip install 'jtgpu[plot]'``).
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    times = [step.seconds for step in trace]
    costs = [step.cost for step in trace]
    if seconds is not None and seconds > times[-1]:
        times.append(seconds)
        costs.append(costs[-1])
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.step(times, costs, where="post", marker="o", markersize=3)
    axes.set_yscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel("cost (entries)")
    axes.set_title(title)
    axes.annotate(
        f"{trace[-1].cost:,.0f}", (times[-1], costs[-1]), xytext=(0, 8), textcoords="offset points", ha="right"
    )
    axes.grid(visible=True, which="both", alpha=0.3)
    figure.savefig(path)
