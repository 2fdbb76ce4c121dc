"""matplotlib plots, on given axes or new ones: posteriors, tornado diagrams, ROC curves, counts, fits, outliers.

matplotlib is imported when a function is called (``pip install matplotlib``). `jtgpu.draw.show` needs no matplotlib.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..inference.results.marginals import Posterior, Posteriors, distinct_names
from ..util.arguments import described
from ..util.roc import TIE, roc_area, roc_counts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from ..inference.results.sensitivities import Sensitivity
    from ..plans.ordering import Improvement

__all__ = ["convergence", "counts", "posterior", "roc", "screening", "tornado"]

BLUE, GREEN = "#4a90d9", "#5aa469"


def _axes(ax: Axes | None, height: float = 3.6) -> Any:
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.figure(figsize=(6, height), layout="constrained").add_subplot()


def _plain(text: str) -> str:
    """A text in which matplotlib finds no formulas."""
    return text.replace("$", r"\$")


def posterior(
    result: Posterior | Posteriors, variable: str | int | None = None, *, prior: Posterior | Posteriors | None = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Plot the probabilities of a variable's states as horizontal bars.

    Parameters
    ----------
    found : Posterior or Posteriors
    variable : str or int, optional
        The variable; needed for `Posteriors` of several.
    prior : Posterior or Posteriors, optional
        Probabilities to compare with, drawn as lines.
    ax : matplotlib.axes.Axes, optional
        Default: new axes of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> axes = jtgpu.draw.plots.posterior(tree.posterior("lung", {"xray": "yes"}))  # doctest: +SKIP
    """
    one = _one(result, variable)
    axes = _axes(ax, 0.9 + 0.3 * min(len(one), 40))
    places = np.arange(len(one))
    axes.barh(places, one.probabilities, color=BLUE)
    if prior is not None:
        ticks = _one(prior, one.variable).probabilities
        axes.vlines(ticks, places - 0.45, places + 0.45, color="black", label="prior")
        axes.legend()
    axes.set_yticks(places, [_plain(s) for s in distinct_names(one.states)])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("probability")
    axes.set_title(_plain(one.variable))
    return axes  # type: ignore[no-any-return]


def _one(result: Posterior | Posteriors, variable: str | int | None) -> Posterior:
    if isinstance(result, Posterior):
        return result
    if not isinstance(result, Posteriors):
        raise ArgumentError(f"expected a Posterior or Posteriors, not {described(result)}")
    names = [*result]
    if variable is None and len(names) != 1:
        raise ArgumentError(f"these are posteriors of {len(names)} variables; name one of them")
    return result[names[0] if variable is None else variable]


def tornado(sensitivity: Sensitivity, n: int = 10, spread: float = 0.1, *, ax: Axes | None = None) -> Axes:
    """Plot the parameters that change a probability most.

    Parameters
    ----------
    sensitivity : Sensitivity
        Result of ``tree.sensitivity(...)``.
    n, spread
        See ``sensitivity.tornado``.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("cpu")
    >>> axes = jtgpu.draw.plots.tornado(tree.sensitivity(("lung", "yes"), {"xray": "yes"}))  # doctest: +SKIP
    """
    bars = [bar for bar in sensitivity.tornado(n, spread) if np.isfinite([bar.at_low, bar.at_high]).all()]
    axes = _axes(ax, 1.2 + 0.3 * len(bars))
    p = sensitivity.probability
    places = np.arange(len(bars))
    for end, colour, text in (("at_low", BLUE, "lower"), ("at_high", GREEN, "higher")):
        axes.barh(places, [getattr(bar, end) - p for bar in bars], left=p, color=colour, label=f"{text} value")
    axes.axvline(p, color="black", linewidth=1)
    axes.set_yticks(places, [_plain(str(bar.parameter)) for bar in bars])
    axes.invert_yaxis()
    variable, state = sensitivity.target
    axes.set_xlabel(_plain(f"P({variable} = {state})"))
    axes.set_title(f"parameters changed by {100 * spread:g} %")
    axes.legend()
    return axes  # type: ignore[no-any-return]


def roc(
    scores: ArrayLike | Mapping[str, ArrayLike], truth: ArrayLike | Sequence[bool], *, ax: Axes | None = None
) -> Axes:
    """Plot the receiver operating characteristic of one classifier or several; the legend has the areas.

    Parameters
    ----------
    scores : (B,) array or mapping from name to array
        Probability of the positive class, such as a column of ``classifier.predict_proba(X)``.
    truth : (B,) array of bool
        Whether each case is positive.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ArgumentError
        If the lengths differ, a score is NaN, or `truth` has one class only.
    """
    positive = np.asarray(truth, np.bool_).ravel()
    curves = scores if isinstance(scores, Mapping) else {"": scores}
    axes = _axes(ax, 5)
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle=":")
    for name, given in curves.items():
        negative, hits = roc_points(np.asarray(given, np.float64).ravel(), positive)
        label = f"{name}{': ' if name else ''}area {roc_area(negative, hits):.4f}"
        axes.plot(negative / negative[-1], hits / hits[-1], label=_plain(label))
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    axes.set_aspect("equal")
    axes.legend(loc="lower right")
    return axes  # type: ignore[no-any-return]


def counts(check: object, *, ax: Axes | None = None) -> Axes:
    """Plot the counts of a predictive check: observed ones as bars, expected ones with two standard deviations.

    Parameters
    ----------
    check : jtgpu.learn.PredictiveCheck
        Result of ``jtgpu.learn.check(network, cases, variables)``.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    if not hasattr(check, "_counts"):
        raise ArgumentError(f"expected the result of jtgpu.learn.check, not {described(check)}")
    labels, (observed, expected, deviation), title = check._counts()
    axes = _axes(ax, 1.2 + 0.3 * min(len(labels), 60))
    places = np.arange(len(labels))
    axes.barh(places, observed, color=BLUE, label="observed")
    wide = 2 * np.asarray(deviation)
    low = np.minimum(wide, expected)
    axes.errorbar(expected, places, xerr=[low, wide], fmt="|", color="black", markersize=10, label="expected")
    axes.set_yticks(places, [_plain(x) for x in labels])
    axes.invert_yaxis()
    axes.set_xlabel("count")
    axes.set_title(_plain(title))
    axes.legend()
    return axes  # type: ignore[no-any-return]


def convergence(fit: object, *, ax: Axes | None = None) -> Axes:
    """Plot the objective of a fit over its passes.

    Parameters
    ----------
    fit : jtgpu.learn.Fit
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    if not hasattr(fit, "_curve"):
        raise ArgumentError(f"expected the result of jtgpu.learn.fit, not {described(fit)}")
    values, title, steps = fit._curve()
    axes = _axes(ax)
    shown = [(i, x) for i, x in enumerate(values) if np.isfinite(x)]
    axes.plot([i for i, _ in shown], [x for _, x in shown], color=BLUE, marker=".")
    axes.set_xlabel(steps)
    axes.set_ylabel(title)
    return axes  # type: ignore[no-any-return]


def roc_points(scores: Any, positive: Any) -> tuple[Any, Any]:
    """Numbers of negative and positive cases at every threshold, from 0; scores equal but for rounding are one."""
    if len(scores) != len(positive):
        raise ArgumentError(f"scores and truth must have the same length, not {len(scores)} and {len(positive)}")
    if not np.isfinite(scores).all():
        raise ArgumentError("scores must be finite numbers")
    if int(positive.sum()) in (0, len(positive)):
        raise ArgumentError("an ROC curve needs positive and negative cases")
    return roc_counts(scores, positive, TIE * float(np.abs(scores).max()))[:2]


def screening(
    weight: ArrayLike, surprise: ArrayLike, rows: Sequence[int] = (), names: Sequence[object] | None = None, *,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Plot the surprise of each row of a table against its weight, and name some rows.

    Parameters
    ----------
    weight : (N,) array
        See `jtgpu.screen.weights`, or ``all_weights`` of the result of ``top_outliers(..., method="all")``.
    surprise : (N,) array
        See `jtgpu.screen.surprise`. Rows of infinite surprise are drawn as triangles above the others.
    rows : sequence of int
        Rows to name, such as ``found.index``.
    names : sequence, optional
        Their names. Default: their numbers.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ArgumentError
        If the lengths differ.
    """
    x, y = np.asarray(weight, np.float64).ravel(), np.asarray(surprise, np.float64).ravel()
    if len(x) != len(y):
        raise ArgumentError(f"weight and surprise must have the same length, not {len(x)} and {len(y)}")
    chosen = [int(r) for r in rows]
    labels = chosen if names is None else list(names)
    if len(labels) != len(chosen):
        raise ArgumentError(f"rows and names must have the same length, not {len(chosen)} and {len(labels)}")
    axes = _axes(ax, 4.5)
    finite = np.isfinite(y)
    top = float(y[finite].max(initial=0.0)) * 1.1 or 1.0
    y = np.where(finite, y, top)
    is_named = np.zeros(len(x), np.bool_)
    is_named[chosen] = True
    for some, colour in ((~is_named, BLUE), (is_named, GREEN)):
        for part, marker in ((some & finite, "o"), (some & ~finite, "^")):
            if part.any():
                axes.scatter(x[part], y[part], s=12, color=colour, marker=marker, linewidths=0)
    for row, label in zip(chosen, labels, strict=True):
        axes.annotate(_plain(str(label)), (x[row], y[row]), xytext=(4, 2), textcoords="offset points", fontsize=8)
    axes.set_xlabel("weight: distance to the nearest rows")
    axes.set_ylabel("surprise: -ln P(row)")
    return axes  # type: ignore[no-any-return]


def draw_search(
    trace: Sequence[Improvement], path: str | os.PathLike[str], *, title: str = "", seconds: float | None = None
) -> None:
    """Plot a search's trace as steps, cost (log scale) against seconds, and save it to a file."""
    # trace: sequence of Improvement: ``plan.search.trace``
    # path: The suffix selects the format: .png, .svg, .pdf
    # seconds: End of the search; the last step is extended to it
    # raises ImportError: If matplotlib is missing (``pip install matplotlib``).
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
