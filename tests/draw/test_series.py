"""The picture of autoregressive models: stems, bounds and residuals."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import jtgpu
from jtgpu import DataError, draw, series
from jtgpu.errors import ArgumentError

SVG = "{http://www.w3.org/2000/svg}"


def simulated(n_times: int) -> dict[str, np.ndarray]:
    """A series with memory of one step, and one without."""
    e = np.random.default_rng(1).standard_normal((2, n_times))
    for t in range(1, n_times):
        e[0, t] += 0.8 * e[0, t - 1]
    return {"load<1>": e[0], "noise": e[1]}


def test_lags_outside_of_the_bounds_are_blue() -> None:
    x = simulated(900)
    fit = series.ar(x, max_order=6)
    drawing = draw.show_series(x, fit, alpha=1e-4)
    root = ElementTree.fromstring(drawing.svg)
    assert len([r for r in root.iter(f"{SVG}rect") if r.attrib["class"] == "b"]) == 1
    assert len(list(root.iter(f"{SVG}rect"))) == 12
    texts = [str(t.text) for t in root.iter(f"{SVG}text")]
    assert texts[0].startswith("load<1>: order 1, variance ")
    assert "lag 1 to 6; dashed: ±0.13" in texts
    assert any(t.startswith("residuals at times 0 to 899, up to ") for t in texts)
    assert drawing.svg == draw.show_series(x, fit, alpha=1e-4).svg
    assert len(draw.show_series({k: np.tile(v, 50) for k, v in x.items()}, fit).svg) < 15_000


def test_arrays_few_series_and_none() -> None:
    x = np.array([*simulated(60).values()])
    drawing = draw.show_series(x, series.ar(x, order=0), most=1)
    assert "1 more series are left out" in drawing.svg
    assert "nan" not in drawing.svg
    assert draw.show_series(x[0], series.ar(x[0])).title == "Partial autocorrelations and residuals of 1 series"
    empty = np.zeros((0, 30))
    assert draw.show_series(empty, series.ar(empty)).svg


def test_wrong_arguments() -> None:
    x = simulated(60)
    fit = jtgpu.series.ar(x)
    with pytest.raises(ArgumentError, match=r"fit must be the result of jtgpu\.series\.ar, not "):
        draw.show_series(x, x)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="alpha must be between 0 and 1"):
        draw.show_series(x, fit, alpha=2.0)
    with pytest.raises(DataError, match="must have a column for each series"):
        draw.show_series({"noise": x["noise"]}, fit)
