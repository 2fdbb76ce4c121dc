"""The documentation site: every public name has one page, tables for users of other libraries and notebooks run.

``make docs`` builds the site; its links are checked by tools/check_site.py.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import importlib
import io
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

import jtgpu
from jtgpu.cli.declared import COMMANDS
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from any_in_signatures import PUBLIC

DOCS = ROOT / "docs"
TREE = r"\.\. toctree::\n   :caption: (.+)\n   :hidden:\n\n((?:   .+\n)+)"


def test_every_public_name_is_on_exactly_one_reference_page(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    monkeypatch.syspath_prepend(str(DOCS))
    public_names = importlib.import_module("extensions.public_names")
    pages = [DOCS / "errors.rst", *(DOCS / "reference").glob("*.rst")]
    found = Counter(name for page in pages for name in public_names.documented_on(page.read_text(encoding="utf-8")))
    assert not [name for name, n in found.items() if n > 1]
    assert sorted(n for names in public_names.every_name(DOCS).values() for n in names) == sorted(found)
    submodules = {f"jtgpu.published.{name}" for name in ("betweenness", "durbin", "ordering", "outliers")}
    wanted = {f"{module}.{name}" for module in PUBLIC for name in public_names.exported(module)} - submodules
    assert not wanted - set(found)


def test_long_lists_of_parameters_are_shown_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    monkeypatch.syspath_prepend(str(DOCS))
    grouped = importlib.import_module("extensions.object_pages").grouped
    few = ["Text.", "", ":Parameters:", "", "    **seed** : int", "        Of chains.", ""]
    assert grouped(few) == few
    names = ["seed", "cases, states", r"\*\*options", "backend", "x, y, z, u, v"]
    items = [line for name in names for line in (f"    **{name}** : int", "        Its **text**.", "")]
    shown = grouped(["Text.", "", ":Parameters:", "", *items, ":Returns:", "", "    **x**"])
    assert [line for line in shown if line and not line.startswith(" ")] == [
        "Text.", ":Parameters:", ":Data:", ":Search and sampling:", ":Where it runs:", ":Returns:",
    ]  # fmt: skip
    assert sorted(line for line in shown if line.startswith(" ")) == sorted([*filter(None, items), "    **x**"])


def test_long_objects_have_pages_and_the_files_differ_in_more_than_case(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    monkeypatch.syspath_prepend(str(DOCS))
    public_names = importlib.import_module("extensions.public_names")
    texts = [p.read_text(encoding="utf-8") for p in sorted((DOCS / "reference").glob("*.rst"))]
    listed = [n for text in texts for names, inline in public_names.listed_on(text) if not inline for n in names]
    names = [n for n in listed if public_names.has_row(n)]
    assert len(names) > 120
    assert not [n for n in names if not public_names.summary(n)]
    files = [public_names.file_of(name).lower() for name in names if public_names.has_page(name)]
    assert 10 < len(files) == len(set(files)) < 30


def test_the_guide_has_at_most_twenty_pages() -> None:
    index = (DOCS / "index.rst").read_text(encoding="utf-8")
    pages = {title: re.findall(r"^   ([\w/-]+)$", text, re.MULTILINE) for title, text in re.findall(TREE, index)}
    assert [*pages] == ["First steps", "Guide", "Reference", "More", "Project"]
    assert len(pages["First steps"]) + len(pages["Guide"]) <= 20
    assert {"cluster", "tensors", "screening", "graphs", "series", "published"} <= {*pages["More"]}


def test_the_theme_alone_lists_the_contents_of_a_page() -> None:
    pages = [p for p in DOCS.rglob("*.rst") if ".. contents::" in p.read_text(encoding="utf-8")]
    assert not pages  # furo shows an error in their place


def test_packages_that_pages_name_need_no_import_of_their_own() -> None:
    code = "import jtgpu; print(jtgpu.cases.answer_file.__name__, jtgpu.cluster.Cluster.__name__, jtgpu.serve.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["answer_file", "Cluster", "jtgpu.serve"]


def test_every_error_has_an_example() -> None:
    text = (DOCS / "errors.rst").read_text(encoding="utf-8")
    classes = {n for n, e in vars(jtgpu.errors).items() if isinstance(e, type) and issubclass(e, jtgpu.JtgpuError)}
    assert classes <= {*jtgpu.__all__}
    assert {*re.findall(r"^jtgpu\.errors\.(\w+): ", text, re.MULTILINE)} == classes - {"JtgpuError"}


def test_errors_are_raised_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, n = doctest.testfile(str(DOCS / "errors.rst"), module_relative=False, optionflags=flags, encoding="utf-8")
    assert not failed
    assert n > 12


COMING = {"pgmpy": "pgmpy", "pyagrum": "pyagrum", "genie": None, "hugin": None, "netica": None, "bnlearn": None}


def columns(page: str) -> list[tuple[list[str], list[str]]]:
    """The code of the two cells of each row."""
    rows = re.findall(r"^   \* - (.+)\n     - (.+)$", page, re.MULTILINE)[1:]
    return [(re.findall(r"``(.+?)``", a), re.findall(r"``(.+?)``", b)) for a, b in rows]


def setup_code(page: str) -> list[str]:
    """The Python blocks before the table: the names of both columns, then those of the other library."""
    pattern = r"^\.\. code-block:: python\n\n((?:   .*\n|\n)+)"
    return [textwrap.dedent(m) for m in re.findall(pattern, page, re.MULTILINE)]


@pytest.mark.parametrize("name", COMING)
def test_counterparts_of_other_libraries_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "coming" / f"{name}.rst").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    exec(setup_code(page)[0], names)
    names["cases"].to_csv("cases.csv", index=False)  # type: ignore[attr-defined]
    rows = columns(page)
    assert len(rows) >= 15
    for _, ours in rows:
        for code in ours:
            exec(code, names)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, package in COMING.items() if package])
def test_calls_of_other_libraries_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(str(COMING[name]), reason=f"{COMING[name]} is not installed")
    pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "coming" / f"{name}.rst").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for code in setup_code(page):
        exec(code, names)
    for theirs, _ in columns(page):
        for code in theirs:
            exec(code, names)


NOTEBOOKS = sorted((DOCS / "gallery").glob("*.md"))
QUICK = {"fitting", "sensitivity"}


def run_cell(code: str, names: dict[str, object]) -> None:
    """Run a cell; what its last line evaluates to is shown as a notebook does."""
    *body, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        exec(compile(code, "cell", "exec"), names)
        return
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    show = getattr(value, "_repr_html_", None)
    assert show is None or show()


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=() if p.stem in QUICK else pytest.mark.slow, id=p.stem) for p in NOTEBOOKS]
)
def test_notebooks_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("matplotlib", reason="matplotlib is not installed").use("Agg")
    monkeypatch.chdir(path.parent)
    cells = re.findall(r"^```\{code-cell\} ipython3\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.S)
    assert len(cells) >= 3
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in cells:
            run_cell(cell, names)


def test_there_are_nine_notebooks_and_all_are_listed() -> None:
    index = (DOCS / "gallery" / "index.rst").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 9
    assert all(re.search(rf"^   {p.stem}$", index, re.MULTILINE) for p in NOTEBOOKS)


def test_the_commands_page_lists_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    monkeypatch.syspath_prepend(str(DOCS))
    command_pages = importlib.import_module("extensions.command_pages")
    text = "\n".join(command_pages.command_lines())
    assert all(f"\njtgpu {name}\n~~~" in text for name in COMMANDS)
    assert "``-e``, ``--evidence`` ``NAME=STATE``" in text


def test_the_http_page_lists_every_path(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    pytest.importorskip("msgspec", reason="msgspec is not installed")
    monkeypatch.syspath_prepend(str(DOCS))
    http_pages = importlib.import_module("extensions.http_pages")
    text = "\n".join(http_pages.api_lines())
    assert "POST /v1/networks/{network}/posteriors\n---" in text
    assert ".. _object-Problem:" in text
