"""Pictures of posteriors over time, as a notebook shows them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

import jtgpu
from jtgpu.draw.html import MOST_PANELS, draw_courses

from ..cli.test_dynamic_numbers import machine
from ..formats.test_dynamic_files import umbrella


def test_states_have_lines_and_numbers_bands() -> None:
    tree = machine().compile("reference")
    answer = tree.smooth({"load": [[0.8, 3.9, None, 4.4]]})
    drawing = draw_courses(*answer._courses())
    assert drawing is not None
    root = ET.fromstring(drawing.svg)
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"state", "calm", "busy", "load", "mean, 2 sd", "slice 0", "3"} <= {*texts}
    assert drawing.title == "Posteriors of 1 variable and 1 number in 1 sequence: sequence 0"
    shapes = [p.get("class") for p in root.iter("{http://www.w3.org/2000/svg}path")]
    assert (shapes.count("t"), shapes.count("l"), shapes.count("g")) == (1, 4, 2)
    html = answer._repr_html_()
    assert html.startswith(drawing._repr_html_())
    assert "load.mean" in html
    assert "<script" not in html


def test_other_answers_are_tables() -> None:
    tree = umbrella().compile("reference")
    days = {"umbrella": [["yes", "no", None]]}
    for at in ("last", [1]):
        assert "<svg" not in tree.smooth(days, at=at)._repr_html_()
    assert "<svg" not in tree.mpe(days)._repr_html_()
    assert "<svg" in tree.predict(days, ahead=3)._repr_html_()
    frame = {"who": ["<b>", "<b>", "c"], "umbrella": ["yes", "no", "no"]}
    assert "sequence 0 (&lt;b&gt;)" in tree.filter(frame, keys=jtgpu.learn.Keys(id="who"))._repr_html_()


@pytest.mark.slow
def test_size_is_bounded() -> None:
    names = [f"v{i}" for i in range(9)]
    wide = jtgpu.DynamicNetwork(
        {v: list("abcdef") for v in names}, {v: ["v0"] for v in names[1:]} | {"v0": [("v0", 1)]},
        {v: np.full((6, 6), 1 / 6) for v in names}, start={"v0": np.full(6, 1 / 6)},
    )  # fmt: skip
    answer = wide.compile("reference").filter({"v0": [["a"] * 1500]}, targets=names)
    drawing = draw_courses(*answer._courses())
    assert drawing is not None
    assert f"; {MOST_PANELS} of 9 variables" in drawing.svg
    assert len(answer._repr_html_().encode()) < 200_000
