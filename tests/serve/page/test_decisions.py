"""Decisions on the page: rectangles, diamonds, options and policies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import jtgpu
from jtgpu.serve.map_layout import map_layout
from tests.decisions.test_policies import oil, pigs
from tests.serve.page.conftest import Site, Visit


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server of two networks with decisions, and one without."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'jtgpu[serve]')")
    trees: dict[str, jtgpu.JunctionTree] = {}
    for name, net in (("oil", oil()), ("pigs", pigs(4))):
        trees[name] = net.with_policy(net.compile().policy()).compile("cpu")
    trees["asia"] = jtgpu.load("asia").compile("cpu")
    server = Site(trees)
    yield server
    server.close()


def test_utilities_are_placed_below_what_they_depend_on() -> None:
    net = oil()
    layout = map_layout(net.with_policy({}))
    assert [u[0] for u in layout["utilities"]] == list(net.utilities)
    n = len(net)
    assert len(layout["boxes"]) == n
    arcs = {(a, b) for a, b, *_ in layout["arcs"]} | {(a, -1) for a, _ in layout["spines"]}
    for i, u in enumerate(net.utilities):
        for p in net.parents(u):
            assert (net.index(p), n + i) in arcs or (net.index(p), -1) in arcs
    for name, x, y, w, h in layout["utilities"]:
        assert 0 <= x <= x + w <= layout["width"], name
        assert 0 <= y <= y + h <= layout["height"], name
        for left, top, width, height in layout["boxes"]:
            assert x + w <= left or left + width <= x or y + h <= top or top + height <= y, name
    part = map_layout(net.with_policy({}), [net.index("seismic")])
    assert all("seismic" in net.parents(u) for u, *_ in part["utilities"])
    assert map_layout(jtgpu.load("asia"))["utilities"] == []


@pytest.mark.slow
def test_options_policies_and_gains(visit: Visit) -> None:
    visit.open("#n=oil")
    page = visit.page
    net = oil()
    assert page.locator(".map .box.decision").count() == len(net.decisions)
    assert page.locator(".map .utility").count() == len(net.utilities)
    panel = visit.panel("decisions")
    page.wait_for_selector(".expected-utility")
    assert panel.locator(".expected-utility").text_content() == "22.5"
    solved = net.compile()
    options = solved.options("test")
    shown = dict(zip(
        panel.locator(".options .link").all_text_contents(),
        panel.locator(".options tbody .figure").all_text_contents(), strict=True,
    ))  # fmt: skip
    numbers = {o: float(value.replace("\u2212", "-")) for o, value in shown.items()}
    assert numbers == pytest.approx(dict(options), rel=1e-5)
    assert panel.locator(".best-option .link").text_content() == options.best
    worse = next(o for o in options if o != options.best)
    panel.locator(".options .link", has_text=worse).first.click()
    visit.ready()
    page.wait_for_function(
        "u => document.querySelector('.expected-utility')?.textContent === u",
        arg=f"{solved.policy({'test': worse}).expected_utility:.6g}",
    )
    visit.box("drill").locator(".title").click()
    chosen = "() => document.querySelector('.panel-decisions select')?.selectedOptions[0].text === 'drill'"
    page.wait_for_function(chosen)
    visit.open("#n=asia")
    assert page.locator(".panel-decisions").is_hidden()


@pytest.mark.slow
def test_a_policy_is_a_table_on_a_telephone(phone: Visit) -> None:
    phone.open("#n=pigs", boxes=False)
    phone.page.locator('.tabs button[data-tab="side"]').click()
    panel = phone.panel("decisions")
    phone.page.wait_for_selector(".panel-decisions .scroll tbody tr", state="attached")
    assert panel.locator(".scroll tbody tr").count() == 2
    assert phone.page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
