"""Markov networks on the page: opened, drawn, asked, edited, saved and reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from tests.serve.page.conftest import Site, Visit
from tests.serve.page.test_points import percent


def picture() -> jtgpu.MarkovNetwork:
    """Four pixels around a square, one of them seen dark."""
    states = {v: ["white", "black"] for v in ("NW", "NE", "SW", "SE")}
    pairs: Any = (("NW", "NE"), ("NW", "SW"), ("NE", "SE"), ("SW", "SE"))
    alike = [[3.0, 1.0], [1.0, 3.0]]
    return jtgpu.MarkovNetwork(states, [*((pair, alike) for pair in pairs), (("NW",), [1.0, 4.0])], name="Picture")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server of a Markov network."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'jtgpu[serve]')")
    server = Site({"picture": picture().compile("cpu"), "asia": jtgpu.load("asia").compile("cpu")})
    yield server
    server.close()


def test_probabilities_and_edges(visit: Visit) -> None:
    """ln P(e) is a probability: less the logarithm of the sum of all products."""
    page = visit.open("#n=picture&e=NW:black&v=SE&t=SE")
    tree = picture().compile("reference")
    assert visit.number("SE", "black") == percent(tree.posterior("SE", {"NW": "black"})["black"])
    log = tree.log_evidence({"NW": "black"}) - tree.log_evidence({})
    assert page.locator(".log-evidence").text_content() == f"ln P(e) = \u2212{-log:.6g}, P(e) = {np.exp(log):.4g}"
    arcs = page.locator(".map .arc")
    assert (arcs.count(), page.locator(".map .arc .head").count()) == (4, 0)
    page.locator(".card .near").wait_for()
    assert "Neighbours" in page.locator(".card .near").text_content()
    page.get_by_role("button", name="Clear all").click()
    page.wait_for_function("() => document.querySelector('.status').textContent === '4 variables, 4 edges'")


@pytest.mark.slow
def test_factors_edges_variables_and_names(visit: Visit) -> None:
    page = visit.open("#n=picture&v=NW")
    page.get_by_role("button", name="Edit", exact=True).click()
    bar = page.get_by_role("toolbar", name="Edit")
    bar.get_by_role("button", name="Edit node").click()
    dialog = page.get_by_role("dialog", name="Edit the network")
    # its factors, one after the other; the one of itself is changed
    choice = dialog.get_by_label("Factor", exact=True)
    assert choice.locator("option").all_text_contents() == ["factor of NW, NE", "factor of NW, SW", "factor of NW"]
    choice.select_option("factor of NW")
    dialog.get_by_label("black, row 1").fill("-1")
    dialog.get_by_role("button", name="Apply").click()
    assert "0 or more" in dialog.get_by_role("alert").text_content()
    dialog.get_by_label("black, row 1").fill("9")
    dialog.get_by_label("Name").fill("north west")
    dialog.get_by_label("Name").press("Tab")
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    visit.ready()
    net: Any = picture().remove_factor(["NW"]).add_factor(["NW"], [1, 9]).rename("NW", "north west")
    assert visit.number("SE", "black") == percent(net.compile("reference").posterior("SE")["black"])
    # a diagonal by two clicks, and one of the edges less
    bar.get_by_role("button", name="Edge", exact=True).click()
    for a, b, n in (("north west", "SE", 5), ("SW", "SE", 4)):
        visit.box(a).locator(".title").click()
        visit.box(b).locator(".title").click()
        page.wait_for_function("n => document.querySelectorAll('.map .arc').length === n", arg=n)
    visit.ready()
    # a new variable, in a factor of three
    bar.get_by_role("button", name="+ Variable").click()
    dialog.get_by_label("Name").fill("sky")
    dialog.get_by_label("Name").press("Tab")
    dialog.get_by_role("button", name="New factor").click()
    for other in ("NE", "SE"):
        dialog.get_by_label("Add a variable").select_option(other)
    dialog.get_by_label("yes, row 1").fill("5")
    dialog.get_by_role("button", name="Apply").click()
    visit.box("sky").wait_for()
    visit.ready()
    net = net.remove_factor(["SW", "SE"]).add_factor(["north west", "SE"], np.ones((2, 2))).add("sky", ["yes", "no"])
    table = np.ones((2, 2, 2))
    table[0, 0, 0] = 5
    net = net.add_factor(["NE", "SE", "sky"], table)
    assert visit.number("sky", "yes") == percent(net.compile("reference").posterior("sky")["yes"])
    visit.box("NE").locator(".title").click()
    visit.box("SE").locator(".title").click()
    page.wait_for_function("() => document.querySelector('.map-edit output').textContent.includes('in the factor of')")
    # without it, the others keep their distribution
    bar.get_by_role("button", name="Move", exact=True).click()
    visit.box("sky").locator(".title").click()
    bar.get_by_role("button", name="Remove", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('.map .box').length === 4")
    visit.ready()
    assert visit.number("SE", "black") == percent(net.compile("reference").posterior("SE")["black"])
    bar.get_by_role("button", name="Undo the edit").click()
    visit.box("sky").wait_for()
    # a node stays where it is put
    before = visit.box("SW").bounding_box()
    page.mouse.move(before["x"] + 20, before["y"] + 8)
    page.mouse.down()
    page.mouse.move(before["x"] + 20, before["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_function("() => !document.querySelector('.map-edit').hasAttribute('aria-busy')")
    visit.ready()
    after = visit.box("SW").bounding_box()
    assert abs(after["y"] - before["y"]) > 20


@pytest.mark.slow
def test_opened_saved_and_reported(visit: Visit, tmp_path: Path) -> None:
    path = tmp_path / "grid.uai"
    jtgpu.write(picture(), path)
    page = visit.open("#n=asia")
    page.get_by_label("Network file").set_input_files(path)
    page.wait_for_function("() => document.querySelector('.network-select').value === 'grid'")
    visit.ready()
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog", name="Export")
    formats = dialog.get_by_label("Format of the network")
    assert formats.locator("option").all_text_contents() == [".uai", ".fg"]
    for suffix in ("uai", "fg"):
        formats.select_option(suffix)
        with page.expect_download() as waiting:
            dialog.get_by_role("button", name="Network as").click()
        dialog.get_by_text(f"Saved grid.{suffix}, which has no names").wait_for()
        saved = tmp_path / f"saved.{suffix}"
        waiting.value.save_as(saved)
        again: Any = jtgpu.read(saved)
        tables = [[f.scope, f.table.tolist()] for f in again.factors]
        assert sorted(tables) == sorted([f.scope, f.table.tolist()] for f in picture().factors)
    with page.expect_download() as waiting:
        dialog.get_by_role("button", name="Report (HTML)").click()
    report = Path(waiting.value.path()).read_text(encoding="utf-8")
    assert "4 variables, 4 edges" in report
    assert "<svg" in report
