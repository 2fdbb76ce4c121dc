"""Numbers on the page: curves, and fields for values."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jtgpu.serve.map_layout import map_layout
from jtgpu.serve.page_module import FOLDER
from tests.mixed.test_lauritzen import incinerator
from tests.serve.page.conftest import Site, Visit
from tests.serve.test_numbers import heights


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server of two networks with numbers."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'jtgpu[serve]')")
    nets = {"waste": incinerator(), "heights": heights()}
    server = Site({name: net.compile("cpu") for name, net in nets.items()})
    yield server
    server.close()


def test_numbers_have_boxes_and_arcs() -> None:
    net = incinerator()
    layout = map_layout(net)
    n = len(net.discrete)
    assert [g for g, *_ in layout["numbers"]] == [*range(len(net.numbers))]
    order = [*net.discrete.variables, *net.numbers]
    arcs = {(order[a], order[b]) for a, b, *_ in layout["arcs"]}
    assert arcs <= set(net.arcs)
    boxes = [*layout["boxes"], *(box for _, *box in layout["numbers"])]
    for i, (x, y, w, h) in enumerate(boxes):
        for left, top, width, height in boxes[:i]:
            assert x + w <= left or left + width <= x or y + h <= top or top + height <= y
    assert len(layout["boxes"]) == n
    assert map_layout(heights())["boxes"] == []


def test_links_undo_and_scenarios_have_values() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    check = Path(__file__).with_name("numbers_check.mjs")
    done = subprocess.run([node, str(check), str(FOLDER)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_numbers_are_listed_and_found(visit: Visit) -> None:
    """Behind the variables with states; choosing one goes to the field for its value."""
    visit.open("#n=waste")
    page = visit.page
    rows = page.locator(".list-row")
    assert page.locator(".list-count").inner_text() == str(rows.count()) == "9"
    page.locator(".search").fill("mout")
    assert rows.count() == 1
    assert "\u00b1" in rows.first.inner_text()
    rows.first.click()
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    page.wait_for_selector(".list-row.has-evidence")
    rows.first.filter(has_text="= 3").wait_for()
    assert page.locator(".panel-group > h2").all_inner_texts() == ["THIS CASE", "TABLES AND SCENARIOS"]


@pytest.mark.slow
def test_a_value_changes_curves_and_bars(visit: Visit) -> None:
    visit.open("#n=waste")
    page = visit.page
    assert page.locator(".map .number-box").count() == 6
    row = page.locator(".number-row", has_text="Mout")
    page.wait_for_function("() => document.querySelector('.number-row .figure').textContent")
    assert row.locator(".figure").text_content() == "2.825 \u00b1 0.86"
    field = page.get_by_label("Value of C", exact=True)
    field.fill("-0.9")
    field.press("Enter")
    page.get_by_label("Value of L", exact=True).fill("1.1")
    page.get_by_label("Value of L", exact=True).press("Enter")
    expected = incinerator().compile("reference").posteriors({"C": -0.9, "L": 1.1})
    mean = float(f"{expected['Mout'].mean:.4g}")
    page.wait_for_function(
        "m => document.querySelectorAll('.number-row .figure')[5].textContent.startsWith(m)", arg=f"{mean:g}"
    )
    bar = page.locator(".map .box .row", has_text="unstable").locator(".number").text_content()
    assert bar is not None
    assert abs(float(bar) - 100 * expected["B"]["unstable"]) < 0.1
    field.fill("warm")
    field.press("Enter")
    assert field.evaluate("e => e.validity.customError")
    field.fill("")
    field.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.number-row .figure')[1].textContent.includes('\u00b1')")


@pytest.mark.slow
def test_a_network_of_numbers_only(visit: Visit) -> None:
    visit.open("#n=heights", boxes=False)
    page = visit.page
    page.wait_for_selector(".map .number-box")
    field = page.get_by_label("Value of weight", exact=True)
    field.fill("90")
    field.press("Enter")
    page.wait_for_function("() => document.querySelector('.number-row .figure').textContent.startsWith('177.')")
    assert page.locator(".number-row").count() == 2
    page.locator(".tray .clear-all").click()
    page.wait_for_function("() => document.querySelector('.number-row .figure').textContent.startsWith('170 ')")


@pytest.mark.slow
def test_a_report_has_the_values(visit: Visit) -> None:
    visit.open("#n=waste&x=C:-0.9")
    page = visit.page
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Report (HTML)").click()
    report = Path(waiting.value.path()).read_text(encoding="utf-8")
    assert "<li>C = -0.9</li>" in report
    assert "ln of the density of the evidence: " in report
    assert page.locator(".map .number-box.has-evidence .mark[d]").count() == 1
