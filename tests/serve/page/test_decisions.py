"""Decisions on the page: rectangles, diamonds, options and policies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.serve.map_layout import map_layout
from tests.decisions.test_policies import oil, pigs
from tests.dynamic.test_posteriors import umbrella
from tests.serve.page.conftest import Site, Visit


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server of two networks with decisions, one over time and one of neither kind."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'jtgpu[serve]')")
    nets: dict[str, Any] = {"oil": oil(), "pigs": pigs(4), "umbrella": umbrella(), "asia": jtgpu.load("asia")}
    server = Site({name: net.compile("cpu") for name, net in nets.items()})
    yield server
    server.close()


def test_utilities_are_placed_below_what_they_depend_on() -> None:
    net = oil()
    layout = map_layout(net)
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
    part = map_layout(net, [net.index("seismic")])
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


@pytest.mark.slow
def test_any_network_after_any_other(visit: Visit) -> None:
    visit.open("#n=asia")
    page = visit.page
    panels = {"oil": "decisions", "umbrella": "time"}
    for name in ("umbrella", "oil", "umbrella", "asia", "oil", "asia", "umbrella"):
        page.get_by_label("Network", exact=True).select_option(name)
        page.wait_for_function("n => location.hash.startsWith(`#n=${n}`)", arg=name)
        visit.ready(boxes=True)
        for of, panel in panels.items():
            assert page.locator(f".panel-{panel}").is_visible() == (of == name)
            if of == name:
                page.wait_for_selector(f".panel-{panel}:not(.stale)")
        n = {"asia": "8 variables", "oil": "4 variables, 7 arcs", "umbrella": "2 variables, 2 arcs"}[name]
        page.wait_for_function("n => document.querySelector('.status').textContent.startsWith(n)", arg=n)
    assert not visit.problems


@pytest.mark.slow
def test_decisions_are_opened_saved_and_reported(visit: Visit, tmp_path: Path) -> None:
    path = tmp_path / "wells.xdsl"
    jtgpu.write(oil(), path)
    page = visit.open("#n=asia")
    page.get_by_label("Network file").set_input_files(path)
    page.wait_for_function("() => document.querySelector('.network-select').value === 'wells'")
    visit.ready()
    page.wait_for_selector(".expected-utility")
    assert page.get_by_role("button", name="Edit", exact=True).is_visible()
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog", name="Export")
    formats = dialog.get_by_label("Format of the network")
    assert formats.locator("option").all_text_contents() == [".net", ".xdsl", ".dsl"]
    for suffix in ("net", "xdsl", "dsl"):
        formats.select_option(suffix)
        with page.expect_download() as waiting:
            dialog.get_by_role("button", name="Network as").click()
        saved = tmp_path / f"saved.{suffix}"
        waiting.value.save_as(saved)
        again = jtgpu.read(saved, kind=jtgpu.DecisionNetwork)
        assert (again.decisions, again.utilities) == (oil().decisions, oil().utilities)
    with page.expect_download() as waiting:
        dialog.get_by_role("button", name="Report (HTML)").click()
    report = Path(waiting.value.path()).read_text(encoding="utf-8")
    assert "Expected utility <b>22.5</b>" in report
    for part in (*oil().utilities, "best policy: if it is known that", "test = "):
        assert part in report


@pytest.mark.slow
def test_what_waits_is_dropped_when_another_network_is_chosen(visit: Visit) -> None:
    """The words of a selected variable wait 100 ms, and were said about the next network, which may be smaller."""
    page = visit.open("#n=asia")
    for _ in range(3):
        page.locator(".list-row").last.click()
        page.get_by_label("Network", exact=True).select_option("umbrella")
        page.wait_for_function("() => document.querySelector('.status').textContent.startsWith('2 variables')")
        page.wait_for_timeout(150)
        page.get_by_label("Network", exact=True).select_option("asia")
        page.wait_for_function("() => document.querySelector('.status').textContent.startsWith('8 variables')")
        visit.ready(boxes=True)
