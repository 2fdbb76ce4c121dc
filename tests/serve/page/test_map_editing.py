"""Editing on the map: nodes are moved and added, arcs drawn, in networks of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from tests.decisions.test_policies import oil
from tests.dynamic.test_posteriors import umbrella
from tests.serve.page.conftest import Site, Visit
from tests.serve.test_edited import body, noisy


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server of one network of each kind."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (pip install 'jtgpu[serve]')")
    asia: Any = jtgpu.load("asia")
    nets = {"asia": asia, "oil": oil(), "umbrella": umbrella(), "body": body(), "fever": noisy()}
    nets["alarm"] = jtgpu.load("alarm")
    server = Site({name: net.compile("cpu") for name, net in nets.items()})
    yield server
    server.close()


def node(visit: Visit, name: str) -> Any:
    return visit.page.locator(f'.map [data-name="{name}"]')


def title(visit: Visit, name: str) -> tuple[float, float]:
    """Where the title of a node is on the screen."""
    box = node(visit, name).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + min(10, box["height"] / 2)


def drag(visit: Visit, name: str, to: tuple[float, float]) -> None:
    mouse = visit.page.mouse
    mouse.move(*title(visit, name))
    mouse.down()
    mouse.move(to[0] - 9, to[1] - 9)
    mouse.move(*to)
    mouse.up()


def begin(visit: Visit, fragment: str) -> Any:
    page = visit.open(fragment)
    page.get_by_role("button", name="Edit", exact=True).click()
    page.get_by_role("button", name="Edit node").wait_for()
    return page


def edited(visit: Visit, count: int) -> None:
    """Wait until the server has the network after so many edits."""
    done = """n => document.querySelector('.network-select').value.includes('(edited ')
      && !document.querySelector('.map-edit').hasAttribute('aria-busy')
      && Number(document.querySelector('.map-edit').dataset.edits) === n"""
    visit.page.wait_for_function(done, arg=count)
    visit.ready(boxes=True)


def saved(visit: Visit, folder: Path, suffix: str) -> Any:
    page = visit.page
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog", name="Export")
    dialog.get_by_label("Format of the network").select_option(suffix)
    with page.expect_download() as waiting:
        dialog.get_by_role("button", name="Network as").click()
    path = folder / f"saved.{suffix}"
    waiting.value.save_as(path)
    dialog.get_by_role("button", name="Close").click()
    return jtgpu.read(path)


@pytest.mark.slow
def test_nodes_stay_where_they_are_put(visit: Visit, tmp_path: Path) -> None:
    page = begin(visit, "#n=asia&e=xray:yes")
    places = {name: title(visit, name) for name in ("smoke", "dysp", "tub")}
    drag(visit, "tub", (places["tub"][0] - 120, places["tub"][1] + 40))
    edited(visit, 1)
    assert title(visit, "tub") == pytest.approx((places["tub"][0] - 120, places["tub"][1] + 40), abs=3)
    for name in ("smoke", "dysp"):
        assert title(visit, name) == pytest.approx(places[name], abs=3)
    # put on another one, it goes to the nearest free place
    drag(visit, "tub", title(visit, "smoke"))
    edited(visit, 2)
    a, b = (node(visit, name).locator(".frame").bounding_box() for name in ("tub", "smoke"))
    assert a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"] or abs(a["y"] - b["y"]) >= b["height"]
    assert page.locator(".chip-text").all_text_contents() == ["xray = yes"]
    places = {name: title(visit, name) for name in ("smoke", "dysp", "tub")}
    net = saved(visit, tmp_path, "xdsl")
    assert net == jtgpu.load("asia").replace(name=net.name)
    at = {name: net.attributes["node"][name]["position"] for name in places}
    scale = (places["dysp"][1] - places["smoke"][1]) / (at["dysp"][1] - at["smoke"][1])
    assert (places["tub"][0] - places["dysp"][0]) / scale == pytest.approx(at["tub"][0] - at["dysp"][0], abs=3)
    page.get_by_role("button", name="Undo the edit").click()
    edited(visit, 1)


@pytest.mark.slow
def test_arcs_are_drawn_and_removed(visit: Visit) -> None:
    page = begin(visit, "#n=asia")
    page.get_by_role("button", name="Arc", exact=True).click()
    drag(visit, "asia", title(visit, "bronc"))
    edited(visit, 1)
    page.wait_for_function("() => document.querySelector('.status').textContent === '8 variables, 9 arcs'")
    drag(visit, "dysp", title(visit, "asia"))
    note = page.locator(".map-edit output")
    assert note.text_content() == "The arc from dysp to asia would close a cycle."
    # by two clicks, as on a telephone; once more removes it
    node(visit, "asia").locator(".title").click()
    page.wait_for_function("() => document.querySelector('.map-edit output').textContent === 'From asia to \u2026'")
    node(visit, "bronc").locator(".title").click()
    edited(visit, 2)
    page.wait_for_function("() => document.querySelector('.status').textContent === '8 variables, 8 arcs'")
    assert page.locator(".chip-text").count() == 0  # no click is a finding
    page.get_by_role("button", name="Done").click()
    assert page.locator(".map-edit").is_hidden()


@pytest.mark.slow
def test_a_decision_with_a_utility(visit: Visit, tmp_path: Path) -> None:
    page = begin(visit, "#n=asia")
    dialog = page.get_by_role("dialog", name="Edit the network")
    page.get_by_role("button", name="+ Decision").click()
    page.keyboard.type("treat")  # the name has the keyboard
    dialog.get_by_label("Add a parent").select_option("xray")
    dialog.get_by_role("button", name="New utility").click()
    page.keyboard.type("health")
    dialog.get_by_label("Add a parent").select_option("treat")
    dialog.get_by_label("Add a parent").select_option("lung")
    dialog.get_by_label("Utility, row 1").fill("60")
    page.keyboard.press("ArrowDown")
    page.keyboard.type("80")
    page.keyboard.press("Enter")
    page.keyboard.type("10")
    page.keyboard.press("ArrowDown")
    page.keyboard.type("1e2")
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    edited(visit, 1)
    asia = jtgpu.load("asia")
    states = {v: asia.states(v) for v in asia} | {"treat": ("yes", "no")}
    parents = {v: asia.parents(v) for v in asia} | {"treat": ("xray",), "health": ("treat", "lung")}
    expected = jtgpu.DecisionNetwork(
        states, parents, {v: asia.cpt(v) for v in asia}, decisions=["treat"],
        utilities={"health": [[60, 80], [10, 100]]},
    )  # fmt: skip
    found = saved(visit, tmp_path, "xdsl")
    assert isinstance(found, jtgpu.DecisionNetwork)
    assert found.utility("health").tolist() == [[60, 80], [10, 100]]
    page.wait_for_selector(".expected-utility")
    value = expected.compile().policy().expected_utility
    assert float(page.locator(".expected-utility").text_content() or "") == pytest.approx(value, rel=1e-5)
    # the arc of information is dashed, and the diamond has its expectation
    assert page.locator(".map .arc.information").count() == 1
    assert float(node(visit, "health").locator(".expected").text_content()) == pytest.approx(value, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "which", "label", "value", "suffix"),
    [
        ("oil", "gain", "Utility, row 1", "-60", "xdsl"), ("body", "height", "sd, row 2", "6", "mixed.json"),
        ("umbrella", "rain", "P(yes), row 1", "0.9", "dynamic.json"),
        ("fever", "fever", "P(yes), row 1", "0.6", "xdsl"),
    ],
)  # fmt: skip
def test_numbers_of_every_kind(
    visit: Visit, tmp_path: Path, name: str, which: str, label: str, value: str, suffix: str
) -> None:
    page = begin(visit, f"#n={name}")
    node(visit, which).locator(".title").first.dblclick()
    dialog = page.get_by_role("dialog", name="Edit the network")
    dialog.get_by_label(label).fill(value)
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    edited(visit, 1)
    net = saved(visit, tmp_path, suffix)
    if name == "oil":
        assert net.utility("gain").flat[0] == -60
        value = f"{net.compile().policy().expected_utility:.6g}"
        page.wait_for_function("u => document.querySelector('.expected-utility').textContent === u", arg=value)
    elif name == "body":
        assert net.gaussian("height").sd.tolist() == [7, 6]
    elif name == "umbrella":  # of the first slice; the row is divided by its sum
        assert net.cpt("rain", 0)[1] == pytest.approx(0.9 / 1.4)
    else:  # flu and no cold; so is the row of strengths
        assert net.cpt("fever")[0, 1, 0] == pytest.approx(1 - (1 - 0.6 / 0.8) * 0.9)


@pytest.mark.slow
def test_a_grid_takes_cells_of_a_spreadsheet(visit: Visit) -> None:
    page = begin(visit, "#n=asia&v=lung")
    page.get_by_role("button", name="Edit node").click()
    dialog = page.get_by_role("dialog", name="Edit the network")
    first = dialog.get_by_label("P(yes), row 1")
    first.focus()
    first.evaluate(
        """node => {
          const data = new DataTransfer();
          data.setData("text/plain", "3\\t7\\r\\n0,02\\t0,98");
          node.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
        }"""
    )
    values = "() => [...document.querySelectorAll('.grid input')].map((input) => input.value)"
    assert page.evaluate(values) == ["3", "7", "0.02", "0.98"]
    assert dialog.locator(".sum.off").all_text_contents() == ["10"]
    dialog.get_by_role("button", name="Normalise").click()
    assert page.evaluate(values) == ["0.3", "0.7", "0.02", "0.98"]
    first.fill("x")
    dialog.get_by_role("button", name="Apply").click()
    assert dialog.get_by_role("alert").text_content() == "Every cell needs a number that is 0 or more."
    assert first.evaluate("node => node === document.activeElement")


@pytest.mark.slow
def test_the_editor_on_a_telephone(phone: Visit) -> None:
    page = phone.open("#n=asia&v=dysp", boxes=False)
    page.get_by_role("button", name="Edit", exact=True).tap()
    page.get_by_role("button", name="Edit node").tap()
    dialog = page.get_by_role("dialog", name="Edit the network")
    cell = dialog.get_by_label("P(no), row 4").bounding_box()
    frame = dialog.bounding_box()
    assert frame["x"] <= cell["x"]
    assert cell["x"] + cell["width"] <= frame["x"] + frame["width"]
    dialog.get_by_role("button", name="Cancel").tap()
    page.get_by_role("button", name="Arc", exact=True).tap()
    node(phone, "asia").tap()
    page.wait_for_function("() => document.querySelector('.map-edit output').textContent === 'From asia to \u2026'")
    node(phone, "lung").tap()
    edited(phone, 1)
    assert page.locator(".status").text_content() == "8 variables, 9 arcs"
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.slow
def test_nodes_of_a_part_are_not_moved(visit: Visit) -> None:
    page = begin(visit, "#n=alarm&v=CVP")
    page.get_by_role("button", name="Show the neighbourhood of the selected variable only").click()
    page.wait_for_function("() => !document.querySelector('.map-note').hidden")
    x, y = title(visit, "CVP")
    drag(visit, "CVP", (x + 60, y + 30))
    said = "Nodes can be moved while the map shows the whole network."
    page.wait_for_function("text => document.querySelector('.map-edit output').textContent === text", arg=said)
    assert title(visit, "CVP") == pytest.approx((x, y), abs=1)


def test_the_keyboard_moves_a_node(visit: Visit) -> None:
    page = begin(visit, "#n=asia&v=xray")
    y = title(visit, "xray")[1]
    node(visit, "xray").focus()
    page.keyboard.press("Shift+ArrowDown")
    edited(visit, 1)
    assert title(visit, "xray")[1] > y + 10
    node(visit, "xray").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Edit the network")
    assert dialog.get_by_label("Name").input_value() == "xray"
    page.keyboard.press("Escape")
