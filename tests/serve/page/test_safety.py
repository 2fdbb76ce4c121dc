"""The page against hostile networks, lost servers, newer clicks and long use."""

from __future__ import annotations

from typing import Any

import pytest

import jtgpu
from jtgpu.serve.map_layout import map_layout
from tests.serve.page.conftest import Site
from tests.serve.page.hostile import EQUAL, MANY, MARKUP, PROTO, hostile_network


def test_a_hostile_network_has_a_layout() -> None:
    net = hostile_network()
    assert map_layout(net)["nodes"] == [*range(9)]
    assert net.states(MANY)[777] == "state 777"


@pytest.mark.slow
def test_a_hostile_network_draws_and_runs_nothing(visit: Any) -> None:
    page = visit.open("#n=hostile")
    assert page.locator(".map .box").count() == 9
    assert page.locator("img, .jtgpu script, iframe").count() == 0
    for panel in ("voi", "mpe", "tornado", "joint", "importance", "scenarios"):
        page.locator(f".panel-{panel}").evaluate("node => { node.open = true }")
    for v in range(9):
        page.locator(f'.map .box[data-v="{v}"] .title').click(force=True)
        page.locator(".card .state").first.click()
        visit.ready()
        assert page.locator(".chip").count() == v + 1
    page.keyboard.press("?")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Export").click()
    page.keyboard.press("Escape")
    assert page.locator("img, .jtgpu script, iframe").count() == 0
    fragment = page.evaluate("() => new Promise(r => setTimeout(() => r(location.hash), 300))")
    texts = page.locator(".chip-text").all_text_contents()
    visit.open(fragment)
    assert page.locator(".chip-text").all_text_contents() == texts
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_answers_of_a_hostile_network(visit: Any) -> None:
    page = visit.open("#n=hostile")
    net = hostile_network()
    v = net.index(PROTO)
    page.locator(f'.map .box[data-v="{v}"] .row').first.click()
    visit.ready()
    found = net.compile("reference").posteriors({PROTO: "constructor"})
    shown = page.locator(f'.map .box[data-v="{net.index(EQUAL)}"] .row .number').all_text_contents()
    assert shown == [f"{100 * p:.1f}" for p in found[EQUAL].probabilities]
    page.locator(f'.map .box[data-v="{net.index(EQUAL)}"] .row').nth(1).click()
    visit.ready()
    found = net.compile("reference").posteriors({PROTO: "constructor", EQUAL: "#1"})
    assert page.locator(".status").text_content().startswith(f"ln P(e) = \u2212{abs(found.log_evidence):.5g}")
    assert "same (1)" in page.locator(".tray").inner_text()


@pytest.mark.slow
def test_a_thousand_states(visit: Any) -> None:
    page = visit.open("#n=hostile")
    page.keyboard.press("/")
    page.keyboard.type("many states")
    page.keyboard.press("Enter")
    assert page.locator(".card .state").count() == 60
    page.get_by_role("button", name="Show all 1,000 states").click()
    assert page.locator(".card .state").count() == 1000
    page.locator(".card .state").nth(777).click()
    visit.ready()
    assert page.locator(".chip-text").text_content() == f"{MANY} = state 777"
    page.keyboard.press("e")
    page.keyboard.press("Escape")


@pytest.mark.slow
def test_names_with_markup_are_text(visit: Any) -> None:
    page = visit.open("#n=hostile")
    names = page.locator(".list-row").evaluate_all("rows => rows.map(row => row.title)")
    assert MARKUP in names
    names += page.locator(".list-row bdi").all_text_contents()
    assert not any("\u202e" in name for name in names)


@pytest.mark.slow
def test_headers_and_policy(visit: Any) -> None:
    response = visit.page.goto(visit.url)
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    visit.ready()
    visit.allowed = ("Content Security Policy",)
    ran = visit.page.evaluate(
        """() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';
          document.body.append(s); return window.ran }"""
    )
    assert ran is None  # the policy is in force


@pytest.mark.slow
def test_a_lost_server_is_said_and_tried_again(visit: Any) -> None:
    page = visit.open("#n=asia")
    visit.allowed = ("ERR_", "Failed to load resource")
    page.context.set_offline(True)
    visit.row("xray", "yes").click()
    page.locator(".banner.is-lost").wait_for()
    assert "do not show the posteriors" in page.locator(".banner").inner_text()
    assert "is-lost" in page.locator(".jtgpu").get_attribute("class")
    assert visit.number("lung", "yes") == "5.5"
    page.context.set_offline(False)
    visit.ready()
    page.locator(".banner").wait_for(state="hidden")
    assert visit.number("lung", "yes") == "48.9"


@pytest.mark.slow
def test_nothing_but_the_own_server(browser: Any, site: Any) -> None:
    """All that the page needs comes from one host; every other one is unreachable."""
    context = browser.new_context()
    blocked: list[str] = []

    def other(route: Any) -> None:
        blocked.append(route.request.url)
        route.abort()

    context.route(lambda url: not url.startswith(site.url), other)
    page = context.new_page()
    page.goto(site.url)
    page.wait_for_selector('.jtgpu[data-state="ready"]')
    page.wait_for_selector(".map .box")
    context.close()
    assert blocked == []


@pytest.mark.slow
def test_the_newest_click_wins(visit: Any) -> None:
    page = visit.open("#n=munin")
    tree = jtgpu.load("munin").compile("cpu")
    net = tree.model
    found = page.evaluate(
        """async () => {
          const boxes = [...document.querySelectorAll('.map .box')].slice(0, 12);
          for (const box of boxes) box.querySelector('.row').dispatchEvent(new MouseEvent('click', { bubbles: true }));
          return boxes.map(box => Number(box.dataset.v));
        }"""
    )
    visit.allowed = ("status of 422",)
    visit.ready()
    assert len(found) == 12
    chips = page.locator(".chip-text").all_text_contents()
    evidence = dict(text.split(" = ", 1) for text in chips)
    log = tree.log_evidence(evidence)
    assert page.locator(".status").text_content().startswith(f"ln P(e) = {log:.5g}".replace("-", "\u2212"))
    assert set(evidence) <= set(net.variables)


@pytest.mark.slow
def test_a_token(browser: Any) -> None:
    tree = jtgpu.load("asia").compile("reference")
    site = Site({"asia": tree}, token="a token of 32 characters or more, yes")
    try:
        context = browser.new_context()
        page = context.new_page()
        page.goto(site.url)
        dialog = page.get_by_role("dialog", name="Token")
        dialog.wait_for()
        dialog.get_by_label("Token").fill("a token of 32 characters or more, yes")
        dialog.get_by_role("button", name="Continue").click()
        page.wait_for_selector(".map .box")
        context.close()
        context = browser.new_context()
        page = context.new_page()
        urls: list[str] = []
        page.on("request", lambda request: urls.append(request.url))
        page.goto(site.url + "#token=a%20token%20of%2032%20characters%20or%20more%2C%20yes&n=asia&e=xray:yes")
        page.wait_for_selector(".map .box")
        page.wait_for_function("() => location.hash === '#n=asia&e=xray:yes'")
        assert not any("characters" in url for url in urls)
        context.close()
    finally:
        site.close()


@pytest.mark.slow
def test_a_thousand_clicks_leave_memory_flat(visit: Any) -> None:
    page = visit.open("#n=asia")
    session = page.context.new_cdp_session(page)

    def megabytes() -> float:
        session.send("HeapProfiler.collectGarbage")
        return float(page.evaluate("performance.memory.usedJSHeapSize")) / 1e6

    clicks = """async n => {
      const root = document.querySelector('.jtgpu');
      const rows = [...document.querySelectorAll('.map .row')];
      for (let i = 0; i < n; i += 1) {
        rows[(7 * i) % rows.length].dispatchEvent(new MouseEvent('click', { bubbles: true }));
        if (root.dataset.state !== 'ready') await new Promise(done => {
          const watch = new MutationObserver(() => {
            if (root.dataset.state === 'ready') { watch.disconnect(); done(); } });
          watch.observe(root, { attributes: true }); });
      }
    }"""
    visit.allowed = ("status of 422",)
    page.evaluate(clicks, 100)
    before = megabytes()
    page.evaluate(clicks, 1000)
    assert megabytes() - before < 10
    assert page.evaluate("document.querySelectorAll('*').length") < 1500
