"""The files of the page: what they may contain, and that they are one module for a notebook."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from jtgpu.serve.page_module import FOLDER, page_module
from tests.serve.client import Client

MODULES = sorted(FOLDER.glob("*.js"))
DECLARED = re.compile(
    r"^(?:export )?(?:async )?(?:function|class) (\w+)|^(?:export )?(?:const|let) (?:(\w+)|\[([^\]]*)\]|\{([^}]*)\})",
    re.MULTILINE,
)


def declared(text: str) -> list[str]:
    """Names at the top level of a module."""
    found = []
    for single, variable, array, fields in DECLARED.findall(text):
        found += [name.strip() for name in (single or variable or array or fields).split(",") if name.strip()]
    return found


def test_the_page_is_small() -> None:
    assert sum(p.stat().st_size for p in FOLDER.iterdir()) <= 296_000  # with factors; 297,000 before


def test_nothing_comes_from_elsewhere() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|@import|\burl\(", text), path.name


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.name)
def test_names_reach_the_page_as_text_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert not re.search(r"""setAttribute\([^,]*,?\s*["']style|style:|cssText""", text)  # the CSP forbids it


def test_html_has_no_inline_script_or_style() -> None:
    text = "".join((FOLDER / name).read_text(encoding="utf-8") for name in ("index.html", "form.html"))
    assert "<style" not in text
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=", text)
    for name in re.findall(r'(?:src|href)="page/([^"]+)"', text):
        assert (FOLDER / name.replace("all-", "")).is_file()


def test_the_server_has_the_modules_as_one(client: Client) -> None:
    for page, entry in (("index.html", "main"), ("form.html", "form")):
        assert f'<script type="module" src="page/all-{entry}.js">' in (FOLDER / page).read_text(encoding="utf-8")
        found = client.get(f"/page/all-{entry}.js")
        assert found.headers["content-type"].startswith("text/javascript")
        assert found.text == page_module(f"{entry}.js")
    assert client.get("/page/all-nothing.js").status_code == 404


def test_imports_name_what_exists() -> None:
    exported = {
        p.name: set(re.findall(r"^export (?:async )?(?:function|class|const|let) (\w+)", p.read_text(), re.M))
        for p in MODULES
    }
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        lines = re.findall(r"^import .*$", text, re.MULTILINE)
        found = re.findall(r'^import \{([^}]*)\} from "\./([\w.]+)";$', text, re.MULTILINE)
        assert len(lines) == len(found), path.name
        for names, module in found:
            wanted = {name.strip() for name in names.split(",") if name.strip()}
            assert wanted <= exported[module], (path.name, wanted - exported[module])
            rest = text.replace(f"import {{{names}}} from", "")
            for name in wanted:
                assert re.search(rf"\b{name}\b", rest), f"{path.name} does not use {name}"


@pytest.mark.parametrize(("entry", "exports"), [("widget", ["export default { render };"]), ("main", []), ("form", [])])
def test_one_module(entry: str, exports: list[str]) -> None:
    text = page_module(f"{entry}.js")
    assert not re.search(r"^import ", text, re.MULTILINE)
    assert re.findall(r"^export .*", text, re.MULTILINE) == exports
    assert [name for name, n in Counter(declared(text)).items() if n > 1] == []


def test_the_module_of_a_notebook() -> None:
    names = Counter(declared(page_module()))
    assert {"App", "Store", "MapView", "messageApi"} <= names.keys()
    assert "httpApi" in names  # in the module of Problem; a notebook does not call it
