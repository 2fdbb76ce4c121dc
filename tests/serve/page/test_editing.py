"""Editing on the page: CPTs, states, variables and arcs, files in and out, scenarios and reports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.serve.page_module import FOLDER
from tests.serve.page.test_points import percent


def test_the_changes_of_a_network_need_no_page() -> None:
    """model.js is pure: it imports nothing and touches no document."""
    text = (FOLDER / "model.js").read_text(encoding="utf-8")
    assert "import" not in text
    assert "document" not in text


def edit_node(page: Any) -> None:
    """Open the dialog of the selected node."""
    if page.get_by_role("toolbar", name="Edit").is_hidden():
        page.get_by_role("button", name="Edit", exact=True).click()
    page.get_by_role("button", name="Edit node").click()


@pytest.mark.slow
def test_cpts_states_variables_and_arcs(visit: Any) -> None:
    page = visit.open("#n=asia&e=xray:yes&v=lung&t=lung")
    edit_node(page)
    dialog = page.get_by_role("dialog", name="Edit the network")
    assert dialog.get_by_label("Variable", exact=True).input_value() == "lung"
    dialog.get_by_label("P(yes), row 1").fill("0.3")
    dialog.get_by_label("P(no), row 1").fill("0.7")
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    visit.ready()
    net = jtgpu.load("asia")
    expected = net.replace(cpt={"lung": [[0.3, 0.7], [0.01, 0.99]]}).compile("cpu")
    page.wait_for_function("() => document.querySelector('.network-select').value.startsWith('asia (edited')")
    assert visit.number("lung", "yes") == percent(expected.posterior("lung", {"xray": "yes"})["yes"])
    assert page.locator(".chip-text").all_text_contents() == ["xray = yes"]  # the evidence stays

    edit_node(page)
    dialog.get_by_role("button", name="New variable").click()
    dialog.get_by_label("Name").fill("cough")
    dialog.get_by_label("Name").press("Tab")
    dialog.get_by_label("States, one a line").fill("often\nseldom\nnever")
    dialog.get_by_label("States, one a line").press("Tab")
    dialog.get_by_label("Add a parent").select_option("lung")
    for row, numbers in ((1, (6, 3, 1)), (2, (0.1, 0.2, 0.7))):  # the first is divided by its sum
        for state, number in zip(("often", "seldom", "never"), numbers, strict=True):
            dialog.get_by_label(f"P({state}), row {row}").fill(str(number))
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    visit.box("cough").wait_for()
    visit.ready()
    lung = expected.posterior("lung", {"xray": "yes"})["yes"]
    assert visit.number("cough", "often") == percent(0.6 * lung + 0.1 * (1 - lung))
    # a state less, and an arc less
    edit_node(page)
    dialog.get_by_label("Variable", exact=True).select_option("cough")
    dialog.get_by_label("States, one a line").fill("often\nnever")
    dialog.get_by_label("States, one a line").press("Tab")
    shown = "value => document.querySelector('[aria-label=\"P(often), row 1\"]')?.value === value"
    page.wait_for_function(shown, arg=str(round(0.6 / 0.7, 6)))  # drawn when the next field has the keyboard
    dialog.get_by_role("button", name="Apply").click()
    dialog.wait_for(state="hidden")
    visit.box("xray").locator(".title").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('.map .box').length === 8")
    visit.ready()
    assert page.locator(".chip-text").count() == 0
    page.get_by_role("button", name="Undo the edit").click()
    page.wait_for_function("() => document.querySelectorAll('.map .box').length === 9")


@pytest.mark.slow
def test_the_keyboard_stays_in_the_dialog(visit: Any) -> None:
    page = visit.open("#n=asia&v=smoke")
    edit_node(page)
    dialog = page.get_by_role("dialog", name="Edit the network")
    dialog.get_by_label("P(yes), row 1").fill("0.7")
    dialog.get_by_role("button", name="New variable").click()
    page.keyboard.type("cough")  # the name has the keyboard
    page.keyboard.press("Tab")
    assert dialog.get_by_label("States, one a line").evaluate("node => node === document.activeElement")
    page.keyboard.press("Control+A")
    page.keyboard.type("often\nseldom\nnever")
    page.keyboard.press("Tab")
    dialog.get_by_label("P(seldom), row 1").wait_for()
    assert dialog.get_by_label("Add a parent").evaluate("node => node === document.activeElement")
    dialog.get_by_label("Add a parent").select_option("smoke")
    assert dialog.get_by_label("Add a parent").evaluate("node => node === document.activeElement")
    # a click after a new name goes where it points, and what was typed before is not lost
    dialog.get_by_label("Name").fill("Cough")
    dialog.get_by_label("States, one a line").click()
    assert dialog.get_by_label("States, one a line").evaluate("node => node === document.activeElement")
    assert dialog.get_by_label("Variable", exact=True).input_value() == "Cough"
    dialog.get_by_label("Variable", exact=True).select_option("smoke")
    assert dialog.get_by_label("P(yes), row 1").input_value() == "0.7"
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.type("1te")  # keys of the page do nothing behind a dialog
    assert page.locator(".chip-text").count() == 0
    assert page.get_by_role("dialog").count() == 1
    dialog.get_by_role("button", name="Cancel").click()


@pytest.mark.slow
def test_a_mistake_is_said_in_the_dialog(visit: Any) -> None:
    page = visit.open("#n=asia&v=either")
    edit_node(page)
    dialog = page.get_by_role("dialog", name="Edit the network")
    parents = dialog.get_by_label("Add a parent").locator("option")
    parents.filter(has_text="asia").wait_for(state="attached")  # the dialog is empty until the CPTs are there
    options = parents.all_text_contents()
    assert "xray" not in options  # a child: the arc would close a cycle
    dialog.get_by_label("Name").fill("lung")
    dialog.get_by_label("Name").press("Tab")
    assert dialog.get_by_role("alert").text_content() == "There is a variable lung."
    dialog.get_by_label("States, one a line").fill("a\na")
    dialog.get_by_label("States, one a line").press("Tab")
    assert "different names" in dialog.get_by_role("alert").text_content()


@pytest.mark.slow
def test_files_in_and_out(visit: Any, tmp_path: Path) -> None:
    path = tmp_path / "sprinkler.bif"
    jtgpu.write(jtgpu.load("sprinkler") if "sprinkler" in jtgpu.networks() else jtgpu.load("cancer"), path)
    page = visit.open("#n=asia")
    page.get_by_label("Network file").set_input_files(path)
    page.wait_for_function("() => document.querySelector('.network-select').value === 'sprinkler'")
    visit.ready()
    page.get_by_role("button", name="Export").click()
    dialog = page.get_by_role("dialog", name="Export")
    dialog.get_by_label("Format of the network").select_option("xdsl")
    with page.expect_download() as waiting:
        dialog.get_by_role("button", name="Network as").click()
    saved = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(saved)
    assert saved.suffix == ".xdsl"
    assert jtgpu.read(saved).variables == jtgpu.read(path).variables
    dialog.get_by_role("button", name="Close").click()
    bad = tmp_path / "bad.net"
    bad.write_text("net {} node a {", encoding="utf-8")
    visit.allowed = ("status of 422",)
    page.get_by_label("Network file").set_input_files(bad)
    page.wait_for_function("() => document.querySelector('.banner').textContent.includes('bad.net')")


@pytest.mark.slow
def test_scenarios_as_a_file_and_a_report(visit: Any, tmp_path: Path) -> None:
    page = visit.open("#n=asia&e=xray:yes&t=lung")
    panel = visit.panel("scenarios")
    panel.get_by_role("button", name="Save the evidence as a scenario").click()
    panel.locator("th input").first.wait_for()
    with page.expect_download() as waiting:
        panel.get_by_role("button", name="To a file").click()
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    scenario = {"title": "A", "evidence": {"xray": "yes"}}
    assert json.loads(path.read_text(encoding="utf-8")) == {"network": "asia", "scenarios": [scenario]}
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Report (HTML)").click()
    report = Path(waiting.value.path()).read_text(encoding="utf-8")
    page.get_by_role("dialog", name="Export").get_by_role("button", name="Close").click()
    for part in ("<li>xray = yes</li>", "What changed most", "What to observe next about lung", "Scenarios", "<svg"):
        assert part in report
    assert not re.search(r"<script|src=|<link", report)
    tree = jtgpu.load("asia").compile("cpu")
    assert f">{percent(tree.posterior('lung', {'xray': 'yes'})['yes'])} %<" in report
    visit.open("#n=asia")
    panel = visit.panel("scenarios")
    panel.get_by_label("Scenario file").set_input_files(path)
    panel.locator("th input").first.wait_for()
    assert panel.locator("th input").first.input_value() == "A"


@pytest.mark.slow
def test_the_panel_of_a_table_leaves_the_map_whole(visit: Any, tmp_path: Path) -> None:
    page = visit.open("#n=asia")
    path = tmp_path / "cases.csv"
    path.write_text("smoke,xray\nyes,no\nno,yes\n", encoding="utf-8")
    panel = page.locator(".panel-tables")
    panel.locator("summary").click()
    panel.locator("input[type=file]").set_input_files(path)
    panel.locator("table").wait_for()
    page.wait_for_function(
        """() => {
          const all = document.querySelector(".map").getBoundingClientRect();
          return [...document.querySelectorAll(".map .box")].every((box) => {
            const { left, right, top, bottom } = box.getBoundingClientRect();
            return left >= all.left && right <= all.right && top >= all.top && bottom <= all.bottom;
          });
        }"""
    )
