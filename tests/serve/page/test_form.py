"""The form in a real browser: answers move the bars of the targets, and the address has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.serve.page_module import FOLDER
from tests.serve.page.conftest import Site, Visit
from tests.serve.page.hostile import PROTO, hostile_network
from tests.serve.test_form_page import EXAMPLE


@pytest.fixture(scope="module")
def form_site() -> Iterator[Site]:
    server = Site({"asia": jtgpu.load("asia").compile("reference")}, page=str(EXAMPLE))
    yield server
    server.close()


@pytest.fixture
def form(browser: Any, form_site: Site) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": 1000, "height": 800}, reduced_motion="reduce")
    found = Visit(context, form_site.url)
    yield found
    context.close()
    assert found.problems == []


def test_the_form_has_a_style_for_each_of_its_classes() -> None:
    """A class of the script that no style names is a mistake in one of them."""
    script, *styles = ((FOLDER / name).read_text(encoding="utf-8") for name in ("form.js", "form.css", "page.css"))
    used = set(re.findall(r'class: "([^"]+)"', script))
    for name in {part for names in used for part in names.split()} - {"form-questions"}:
        assert any(f".{name}" in style for style in styles), name


def _number(page: Any, target: str, row: int = 0) -> str:
    return str(page.get_by_role("region", name=target).locator(".state-number").nth(row).text_content())


def _expected(evidence: dict[str, str], target: str) -> str:
    p = 100 * jtgpu.load("asia").compile("reference").posterior(target, evidence)["yes"]
    return f"{p:.1f} %"


@pytest.mark.slow
def test_answers_move_the_bars(form: Visit) -> None:
    page = form.open("", boxes=False)
    assert page.title() == "Chest clinic"
    assert _number(page, "Lung cancer") == _expected({}, "lung")
    page.get_by_role("group", name="What does the X-ray show?").get_by_label("a shadow").check()
    form.ready()
    page.wait_for_function("() => location.hash === '#xray=yes'")
    form.ready()
    assert _number(page, "Lung cancer") == _expected({"xray": "yes"}, "lung")
    assert page.get_by_role("region", name="Bronchitis").locator(".form-state").count() == 1
    form.open("#xray=yes&smoke=no", boxes=False)
    assert page.get_by_role("group", name="Does the patient smoke?").get_by_label("no", exact=True).is_checked()
    assert _number(page, "Tuberculosis") == _expected({"xray": "yes", "smoke": "no"}, "tub")
    page.get_by_role("button", name="Clear all").click()
    form.ready()
    assert _number(page, "Lung cancer") == _expected({}, "lung")


@pytest.mark.slow
def test_the_network_is_one_link_away(form: Visit) -> None:
    page = form.open("", boxes=False)
    page.get_by_role("link", name="Network").click()
    form.ready(boxes=True)
    assert page.locator(".map .box").count() == 8


@pytest.mark.slow
def test_names_that_objects_have_are_names(browser: Any, tmp_path: Path) -> None:
    """States called "constructor" and "toString" had functions as their texts."""
    page = {"title": "t", "groups": [{"questions": [{"variable": PROTO}]}],
            "targets": [{"variable": PROTO, "states": {"toString": "in words"}}]}  # fmt: skip
    (tmp_path / "page.json").write_text(json.dumps(page), encoding="utf-8")
    server = Site({"hostile": hostile_network().compile("reference")}, page=str(tmp_path / "page.json"))
    context = browser.new_context()
    visit = Visit(context, server.url)
    form = visit.open("", boxes=False)
    group = form.get_by_role("group", name=PROTO)
    assert group.locator("label").all_text_contents() == ["Not known", "constructor", "toString"]
    assert form.locator(".form-state > bdi").all_text_contents() == ["constructor", "in words"]
    group.get_by_label("toString").check()
    form.wait_for_function("() => location.hash === '#__proto__=toString'")
    visit.ready()
    assert form.locator(".state-number").all_text_contents() == ["0 %", "100 %"]
    context.close()
    server.close()
    assert visit.problems == []
