"""matplotlib plots: on given axes, and with the numbers of the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.draw import plots

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure


def widths(axes: Any) -> list[float]:
    """Widths of the bars."""
    return [bar.get_width() for bar in axes.patches]


@pytest.fixture(scope="module")
def asia() -> jtgpu.JunctionTree:
    return jtgpu.load("asia").compile("reference")


def test_posterior(asia: jtgpu.JunctionTree) -> None:
    axes = Figure().add_subplot()
    found = asia.posteriors({"xray": "yes"})
    assert plots.posterior(found, "lung", prior=asia.posteriors(), ax=axes) is axes
    assert widths(axes) == pytest.approx([*found["lung"].values()])
    plots.posterior(found["lung"], ax=Figure().add_subplot())
    with pytest.raises(ValueError, match="8 variables"):
        plots.posterior(found, ax=axes)
    with pytest.raises(ValueError, match="expected a Posterior"):
        plots.posterior([0.5, 0.5], ax=axes)  # type: ignore[arg-type]


def test_tornado(asia: jtgpu.JunctionTree) -> None:
    axes = Figure().add_subplot()
    found = asia.sensitivity(("lung", "yes"), {"xray": "yes"})
    plots.tornado(found, 5, ax=axes)
    first = found.tornado(5)[0]
    assert widths(axes)[0] == pytest.approx(first.at_low - found.probability)
    assert len(axes.patches) == 10


def test_roc() -> None:
    axes = Figure().add_subplot()
    plots.roc({"good": [0.9, 0.8, 0.3, 0.1], "equal": [0.5] * 4}, [True, True, False, False], ax=axes)
    assert [line.get_label() for line in axes.lines[1:]] == ["good: area 1.0000", "equal: area 0.5000"]
    false, true = plots.roc_points(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    assert false.tolist() == [0, 0, 1, 2]
    assert true.tolist() == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("scores", "truth", "message"),
    [([0.1], [True, False], "same length"), ([np.nan, 1], [True, False], "finite"), ([1, 2], [True, True], "negative")],
)
def test_roc_of_wrong_input(scores: list[float], truth: list[bool], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plots.roc(scores, truth, ax=Figure().add_subplot())


def test_screening() -> None:
    axes = plots.screening([1.0, 2.0, 3.0], [5.0, np.inf, 4.0], [1, 2], ["$a", "b"], ax=Figure().add_subplot())
    points = np.vstack([np.asarray(c.get_offsets()) for c in axes.collections])
    assert sorted(points.tolist()) == [[1.0, 5.0], [2.0, 5.5], [3.0, 4.0]]
    assert [t.get_text() for t in axes.texts] == [r"\$a", "b"]
    with pytest.raises(jtgpu.ArgumentError, match="the same length"):
        plots.screening([1.0], [1.0, 2.0], ax=Figure().add_subplot())
    with pytest.raises(jtgpu.ArgumentError, match="the same length"):
        plots.screening([1.0], [1.0], [0], [], ax=Figure().add_subplot())


def test_names_are_no_formulas() -> None:
    net = jtgpu.BayesianNetwork({"$x_$": ["$\\bad{$", "b"]}, {}, {"$x_$": [0.5, 0.5]})
    figure = Figure()
    plots.posterior(net.compile("reference").posterior("$x_$"), ax=figure.add_subplot())
    figure.draw_without_rendering()
