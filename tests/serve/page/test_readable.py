"""Maps of 37 to 1,041 variables as they first appear: names can be read, and nothing is cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

import jtgpu
from jtgpu.serve.map_layout import COMPACT, title_lines
from tests.serve.page.conftest import Site, Visit

NETWORKS = ("alarm", "hepar2", "win95pts", "andes", "munin")
SIZES = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 360, "height": 740}}


@pytest.fixture(scope="module")
def large() -> Iterator[Site]:
    """A server of large networks."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'jtgpu[serve]')")
    server = Site({name: jtgpu.load(name).compile("cpu") for name in NETWORKS})
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NETWORKS)
def test_names_are_readable_at_first_sight(browser: Any, large: Site, name: str, size: str) -> None:
    touch = {"is_mobile": True, "has_touch": True} if size == "phone" else {}
    context = browser.new_context(viewport=SIZES[size], reduced_motion="reduce", **touch)
    visit = Visit(context, large.url)
    page = visit.open(f"#n={name}", boxes=False)
    if touch:
        page.get_by_role("button", name="Map", exact=True).tap()
    page.wait_for_selector(".map .box")
    titles = page.locator(".map .title").evaluate_all(
        "nodes => nodes.map(n => [n.getBoundingClientRect().height / n.children.length, n.textContent])"
    )
    assert 6 <= len(titles) <= 60
    assert min(height for height, _ in titles) >= 7.5  # pixels of a line
    assert not any("\u2026" in text[1:] for _, text in titles)
    assert len({text for _, text in titles}) == len(titles)
    boxes = page.locator(".map .box .frame").evaluate_all(
        "nodes => nodes.map(n => n.getBoundingClientRect()).map(r => [r.x, r.y, r.right, r.bottom])"
    )
    frame = page.locator(".map").bounding_box()
    for a, b in combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    for left, top, right, bottom in boxes:  # the whole drawing is on the canvas
        assert frame["x"] <= left <= right <= frame["x"] + frame["width"]
        assert frame["y"] <= top <= bottom <= frame["y"] + frame["height"]
    assert visit.problems == []
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "n"), [("hepar2", 70), ("andes", 223)])
def test_names_of_a_whole_network_are_readable(browser: Any, large: Site, name: str, n: int, size: str) -> None:
    """A network that does not fit begins at its hub; the button used to show 41 variables of andes as all."""
    context = browser.new_context(viewport=SIZES[size], reduced_motion="reduce")
    visit = Visit(context, large.url)
    page = visit.open(f"#n={name}", boxes=False)
    if size == "phone":
        page.get_by_role("button", name="Map", exact=True).click()
        assert page.locator(".network-select").bounding_box()["width"] > 120
    page.get_by_role("button", name="Show the whole network").click()
    page.wait_for_function("n => document.querySelectorAll('.map .box').length === n", arg=n)
    heights = page.locator(".map .title").evaluate_all(
        "nodes => nodes.map(n => n.getBoundingClientRect().height / n.children.length)"
    )
    assert min(heights) > 6.9  # pixels of a line
    context.close()


@pytest.mark.slow
def test_a_click_on_a_box_without_names_of_states_only_selects(browser: Any, large: Site) -> None:
    context = browser.new_context(viewport=SIZES["desktop"], reduced_motion="reduce")
    visit = Visit(context, large.url)
    page = visit.open("#n=alarm")
    assert visit.box("HR").locator("text.summary").all_text_contents() == ["HIGH", "81"]  # in place of rows
    place = visit.box("HR").locator("text.summary").first.bounding_box()
    page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    assert page.locator(".card h2").inner_text() == "HR"
    assert page.locator(".chip").count() == 0
    for _ in range(3):
        page.keyboard.press("+")
    place = visit.box("HR").locator(".row").first.bounding_box()
    assert visit.box("HR").locator(".row .label").first.is_visible()
    page.mouse.click(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    visit.ready()
    assert page.locator(".chip").count() == 1
    context.close()


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("CVP", ["CVP"]),
        ("HYPOVOLEMIA", ["HYPOVOLEMIA"]),
        ("PrntrAccptsTrtyp", ["PrntrAccpts", "Trtyp"]),
        ("R_DIFFN_MEDD2_DISP", ["R_DIFFN_", "MEDD2_DISP"]),
        ("choledocholithotomy", ["choledoch", "olithotomy"]),
        ("R_DIFFN_LNLW_MEDD2_BLOCK_AMPLITUDE_WD", ["\u2026DIFFN_LNLW_", "MEDD2_BLOCK_AMPLITUDE_WD"]),
        ("", [""]),
    ],
)
def test_titles_break_where_words_end(name: str, lines: list[str]) -> None:
    others = [name, "R_DIFFN_LNLW_MEDD2_BLOCK_AMPLITUDE_WA", "R_OTHER"]
    found = title_lines(name, COMPACT, others)
    assert found == lines or (found[0].startswith("\u2026") and name.endswith("".join(found)[1:]))
