"""Networks over time on the page: the slider, the course of the target, and findings by slice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

import jtgpu
from jtgpu.draw.svg import percent
from jtgpu.serve.map_layout import map_layout
from jtgpu.serve.registry import Form
from jtgpu.serve.slices import Smooth
from tests.cli.test_dynamic_numbers import machine
from tests.serve.page.conftest import Site, Visit
from tests.serve.test_slices import clinic, umbrella


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server of networks over time, and of one that is none."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'jtgpu[serve]')")
    trees: dict[str, Any] = {net.name: net.compile("cpu") for net in (umbrella(), clinic(), machine(), plant())}
    server = Site({**trees, "asia": jtgpu.load("asia").compile("cpu")})
    yield server
    server.close()


def plant() -> jtgpu.MixedDynamicNetwork:
    """A temperature that depends on the one before, and on a load."""
    gaussian = jtgpu.Gaussian
    return jtgpu.MixedDynamicNetwork(
        {"state": ["calm", "busy"], "load": float, "heat": float},
        {"state": [("state", 1)], "load": ["state"], "heat": ["load", ("heat", 1)]},
        {
            "state": [[0.9, 0.1], [0.2, 0.8]], "load": gaussian([1.0, 4.0], sd=[0.5, 1.0]),
            "heat": gaussian(2.0, {"load": 0.3, "heat[t-1]": 0.8}, sd=0.4),
        },
        start={"state": [0.5, 0.5], "heat": gaussian(20.0, {"load": 0.3}, sd=1.0)}, name="plant",
    )  # fmt: skip


def go(visit: Visit, t: int) -> None:
    """Show a slice."""
    visit.page.locator(".time-bar [type=range]").evaluate(
        "(node, t) => { node.value = t; node.dispatchEvent(new Event('input')); }", t
    )
    visit.ready()


def test_findings_of_slices_and_their_course(visit: Visit) -> None:
    visit.open("#n=umbrella&t=rain")
    page = visit.page
    tree = umbrella().compile("cpu")
    assert page.locator(".time-bar").is_visible()
    visit.row("umbrella", "yes").click()
    visit.ready()
    go(visit, 1)
    assert page.locator(".map .has-evidence").count() == 0
    visit.row("umbrella", "yes").click()
    visit.ready()
    go(visit, 2)
    visit.row("umbrella", "no").click()
    visit.ready()
    days = {"umbrella": [["yes", "yes", "no", *[None] * 9]]}
    smoothed, filtered = tree.smooth(days)["rain"][0, :, 1], tree.filter(days)["rain"][0, :, 1]
    for t in (0, 2, 5):
        go(visit, t)
        assert visit.number("rain", "yes") == f"{100 * smoothed[t]:.1f}"
    visit.panel("time")
    line = page.locator(".course polyline").nth(1)
    heights = [float(pair.split(",")[1]) for pair in str(line.get_attribute("points")).split()]
    np.testing.assert_allclose(heights, 6 + 126 * (1 - smoothed), atol=0.06)
    texts = page.locator(".chip-text").all_text_contents()
    assert texts == [f"{t}: umbrella = {state}" for t, state in enumerate(("yes", "yes", "no"))]
    assert page.locator(".panel:visible").count() == 1
    page.locator(".time-bar select").select_option("filter")
    visit.ready()
    go(visit, 0)
    assert visit.number("rain", "yes") == f"{100 * filtered[0]:.1f}"
    page.locator(".course").click(position={"x": 2, "y": 40})
    visit.ready()
    page.keyboard.press("u")
    visit.ready()
    assert page.locator(".chip").count() == 2
    assert page.locator(".time-bar output").text_content() == "Slice 2"  # the one that has changed


def test_links_have_the_evidence_of_all_slices(visit: Visit) -> None:
    visit.open("#n=clinic&k=3,6&i=0&e=sex:m&e=test:low&i=2&d=drug:yes&l=test:0.2,0.8&t=stage")
    page = visit.page
    found = clinic().compile("cpu").smooth(
        {"sex": [["m", *[None] * 5]], "test": [["low", *[None] * 5]]}, do={"drug": {2: "yes"}},
        likelihood={"test": np.array([[[1, 1]] * 2 + [[0.2, 0.8]] + [[1, 1]] * 3])},
    )  # fmt: skip
    assert visit.number("stage", "b") == f"{100 * found['stage'][0, 3, 1]:.1f}"
    visit.panel("time")
    assert page.locator(".course polyline").count() == 3
    texts = page.locator(".chip-text").all_text_contents()
    assert texts == ["sex = m", "0: test = low", "2: do(drug = yes)", "2: test, likelihood 0.2 : 0.8"]
    page.wait_for_function("() => location.hash.includes('k=3,6') && location.hash.includes('i=2')")
    page.locator(".chip-text", has_text="drug").click()
    visit.ready()
    assert visit.number("stage", "b") == f"{100 * found['stage'][0, 2, 1]:.1f}"
    page.locator(".head-tools button", has_text="Export").click()
    command = str(page.locator(".share pre", has_text="curl").text_content())
    assert "/clinic/smooth" in command
    body = msgspec.json.decode(command.partition("-d '")[2].rpartition("'")[0], type=Smooth)
    reply: Any = body.answer(clinic().compile("cpu"), Form())
    np.testing.assert_allclose(reply["posteriors"]["stage"], found["stage"][0], atol=1e-12)


@pytest.mark.slow
def test_a_static_variable_and_a_network_that_is_not_over_time(visit: Visit) -> None:
    visit.open("#n=clinic")
    page = visit.page
    go(visit, 4)
    visit.row("sex", "f").click()
    visit.ready()
    go(visit, 1)
    assert "sex = f" in str(page.locator(".tray").text_content())
    visit.panel("time")
    page.locator(".chip-clear").click()
    visit.ready()
    assert page.locator(".chip").count() == 0
    page.locator(".time-bar [aria-label='Number of slices']").fill("30")
    page.keyboard.press("Tab")
    visit.ready()
    page.wait_for_function("() => [...document.querySelectorAll('.course text')].at(-1)?.textContent === '29'")
    visit.open("#n=asia")
    assert page.locator(".time-bar").is_hidden()
    assert page.locator(".panel-time").is_hidden()
    assert page.locator(".panel:visible").count() > 3


@pytest.mark.slow
def test_the_slider_on_a_telephone(phone: Visit) -> None:
    phone.open("#n=umbrella", boxes=False)
    go(phone, 3)
    phone.page.locator('.tabs button[data-tab="side"]').click()
    phone.page.wait_for_selector(".course polyline", state="attached")
    assert phone.page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_numbers_of_slices(visit: Visit) -> None:
    """Values are entered by slice, shown by slice, and taken back."""
    visit.open("#n=machine")
    page, tree = visit.page, machine().compile("cpu")
    field = page.get_by_label("Value of load")
    field.fill("4.4")
    field.press("Enter")
    field.blur()
    visit.ready()
    go(visit, 2)
    assert field.input_value() == ""
    field.fill("0.8")
    field.press("Enter")
    field.blur()
    visit.ready()
    values: list[float | None] = [4.4, None, 0.8, *[None] * 9]
    answer = tree.smooth({"load": [values]})
    for t in (0, 1, 2, 5):
        go(visit, t)
        assert visit.number("state", "busy") == percent(answer["state"][0, t, 1])
        mean, sd = answer.mean["load"][0, t], answer.sd["load"][0, t]
        shown = page.locator(".number-row .figure").inner_text()
        assert float(shown.lstrip("= ").split()[0]) == pytest.approx(mean, abs=max(sd / 100, 1e-9))
        assert ("\u00b1" in shown) == (sd > 0)
    page.wait_for_function("() => location.hash.endsWith('&i=0&x=load:4.4&i=2&x=load:0.8')")
    page.reload()  # the link has the values
    visit.ready()
    page.get_by_label("Clear 2: load = 0.8").click()
    visit.ready()
    go(visit, 2)
    assert field.input_value() == ""
    alone = tree.smooth({"load": [[4.4, *[None] * 11]]})["state"][0, 2, 1]
    assert visit.number("state", "busy") == percent(alone)


def test_arcs_between_slices_of_numbers() -> None:
    """A number of the next slice stands at the right."""
    layout = map_layout(plant())
    assert [(v, lag) for v, lag, *_ in layout["later"]] == [(0, 1), (2, 1)]
    assert max(x + w for _, _, x, _, w, *_ in layout["later"]) == layout["width"]
    assert all(line and head for *_, line, head in layout["later"])


def test_a_number_that_is_not_known_is_not_shown(visit: Visit) -> None:
    """The prior of slice 0 was shown in all slices."""
    visit.open("#n=plant&k=1,4")
    page = visit.page

    def wait_for(text: str) -> None:
        shown = "t => document.querySelectorAll('.number-row .figure')[1].textContent.startsWith(t)"
        page.wait_for_function(shown, arg=text)

    def enter(name: str, value: str) -> None:
        page.get_by_label(f"Value of {name}").fill(value)
        page.get_by_label(f"Value of {name}").press("Enter")
        visit.ready()

    wait_for("observe its parents")
    assert page.locator(".status").text_content() == "3 variables, 4 arcs"
    go(visit, 0)
    wait_for("20.75 \u00b1")
    enter("load", "3")
    enter("heat", "20")
    assert page.locator(".map .number-box.has-evidence .mark[d]").count() == 2
    go(visit, 1)
    enter("load", "4")
    wait_for("19.2 \u00b1 0.4")
    go(visit, 0)
    assert page.locator(".map .later .number-box").text_content() == "heat, slice 119.2 \u00b1 0.4"
