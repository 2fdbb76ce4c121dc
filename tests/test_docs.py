"""Examples in the documentation run and print what they claim: README, user guide, commands, docstrings."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import re
import shlex
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner

import jtgpu
from jtgpu.cli import app
from tests.conftest import ROOT

README = (ROOT / "README.rst").read_text(encoding="utf-8")
START = (ROOT / "docs" / "start.rst").read_text(encoding="utf-8")
CONCEPTS = (ROOT / "docs" / "concepts.rst").read_text(encoding="utf-8")
TABLES = (ROOT / "docs" / "tables.rst").read_text(encoding="utf-8")
COMMAND_LINE = (ROOT / "docs" / "commands.rst").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide.rst").read_text(encoding="utf-8")
NETWORKS = (ROOT / "docs" / "networks.rst").read_text(encoding="utf-8")
PARAMETERS = (ROOT / "docs" / "parameters.rst").read_text(encoding="utf-8")
LEARNING = (ROOT / "docs" / "learning.rst").read_text(encoding="utf-8")
PUBLISHED = (ROOT / "docs" / "published.rst").read_text(encoding="utf-8")
DECISIONS = (ROOT / "docs" / "decisions.rst").read_text(encoding="utf-8")
CAUSAL = (ROOT / "docs" / "causal.rst").read_text(encoding="utf-8")
GRAPHS = (ROOT / "docs" / "graphs.rst").read_text(encoding="utf-8")
SCREENING = (ROOT / "docs" / "screening.rst").read_text(encoding="utf-8")
SERIES = (ROOT / "docs" / "series.rst").read_text(encoding="utf-8")
DYNAMIC = (ROOT / "docs" / "dynamic.rst").read_text(encoding="utf-8")
NUMBERS = (ROOT / "docs" / "numbers.rst").read_text(encoding="utf-8")
MODULES = sorted(
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for p in (ROOT / "jtgpu").rglob("*.py")
    if p.name != "__main__.py"
)


def blocks(text: str, directive: str) -> list[str]:
    """The indented blocks below ``.. directive``."""
    pattern = re.compile(rf"^\.\. {re.escape(directive)}\n\n((?:   .*\n|\n)+)", re.MULTILINE)
    return [textwrap.dedent(found[1]).strip("\n") for found in pattern.finditer(text)]


PAGES = {
    "README": (README, 1),
    "start": (START, 5),
    "concepts": (CONCEPTS, 4),
    "guide": (GUIDE, 1),
    "tables": (TABLES, 2),
    "networks": (NETWORKS, 8),
    "learning": (LEARNING, 3),
    "published": (PUBLISHED, 1),
    "parameters": (PARAMETERS, 2),
    "screening": (SCREENING, 1),
    "series": (SERIES, 1),
    "graphs": (GRAPHS, 1),
    "causal": (CAUSAL, 6),
    "decisions": (DECISIONS, 1),
    "dynamic": (DYNAMIC, 7),
    "numbers": (NUMBERS, 1),
}


@pytest.mark.parametrize(("page", "n"), PAGES.values(), ids=PAGES)
def test_python_examples_print_what_the_page_says(
    page: str, n: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path if "jtgpu.write(" in page else ROOT)
    codes = re.split(r"^(?=\.\. code-block:: python\n)", page, flags=re.MULTILINE)[1:]
    assert len(blocks(page, "code-block:: text")) == n
    names: dict[str, object] = {}
    for text in codes:
        (code,), expected = blocks(text, "code-block:: python"), "".join(blocks(text, "code-block:: text"))
        if page is NUMBERS and "patients.csv" in code:  # a file of the reader's own
            continue
        if "pandas" in code:
            pytest.importorskip("pandas", reason="pandas is not installed")
            pytest.importorskip("narwhals", reason="narwhals is not installed")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "example", "exec"), names)
        assert textwrap.dedent(out.getvalue()).strip() == textwrap.dedent(expected).strip()


def commands() -> list[str]:
    """Every ``jtgpu ...`` line in the literal blocks of README and of the page about the command line, once.

    But for ``jtgpu serve``, which runs until it is stopped.
    """
    lines = [*README.splitlines(), *COMMAND_LINE.splitlines()]
    return list(dict.fromkeys(line.strip() for line in lines if re.match("    jtgpu (?!serve)", line)))


def test_the_readme_shows_every_command() -> None:
    assert {shlex.split(c)[1] for c in commands()} >= {"info", "plan", "query", "time"}


@pytest.mark.parametrize("line", commands())
def test_the_commands_of_the_documentation_work(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    words = shlex.split(line.partition(" > ")[0].partition("   #")[0])[1:]
    # the same command on less work: one small network, one run, a fifth of a second of search
    small = {"nets": "nets/asia.net", "nets/munin1.net": "nets/alarm.net", "munin1": "alarm"}
    small["wells.net"] = "tests/formats/data/fuzz/hugin/decisions.net"
    words = [str(tmp_path / w) if w in ("asia.xdsl", "asia.svg") else small.get(w, w) for w in words]
    for option, value in (("--runs", "1"), ("--time", "0.2")):
        if option in words:
            words[words.index(option) + 1] = value
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert result.output or words[0] in ("convert", "show")


def questions() -> list[str]:
    """Every line of code in the guide's table of questions."""
    table = GUIDE.partition(".. questions begin")[2].partition(".. questions end")[0]
    cells = [line.strip()[2:] for line in table.splitlines() if line.strip().startswith("- ``")]
    return [code for cell in cells for code in re.findall(r"``(.+?)``", cell)]


def test_the_table_of_questions_is_complete() -> None:
    listed = {found[1] for code in questions() if (found := re.match(r"tree\.(\w+)", code))}
    public = {n for n in vars(jtgpu.JunctionTree) if not n.startswith("_") and callable(getattr(jtgpu.JunctionTree, n))}
    others = {"map_cost", "mpe_batch", "posteriors_on_device", "predict", "predict_proba", "serve", "with_numbers"}
    others |= {"reload", "resolve"}  # new numbers; evidence as a backend has it
    others |= {"counterfactual", "counterfactual_batch"}  # of functions of noise: docs/causal.rst
    assert public - listed <= others


@pytest.mark.parametrize("code", questions())
def test_the_questions_of_the_guide_have_answers(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with jtgpu.read("nets/asia.net").compile("cpu") as tree:
        assert eval(code, {"jtgpu": jtgpu, "tree": tree, "e": {"xray": "yes"}}) is not None


def test_the_readme_says_first_how_to_install() -> None:
    order = ["pip install '.[pandas,serve]'", "make run", "make test", "import jtgpu", "jtgpu query"]
    places = [README.index(text) for text in order]
    assert places == sorted(places)
    assert README.index(".venv/bin/activate") < places[0]
    (line,) = (line.strip() for line in README.splitlines() if order[0] in line)
    assert line in START  # one line on both pages


def test_the_api_page_has_all_names() -> None:
    """N25: four kinds of network, `validate` and `compare` were missing."""
    page = (ROOT / "docs" / "api.rst").read_text(encoding="utf-8")
    names = {*jtgpu.__all__} - {"__version__"}
    for package in (jtgpu.learn, jtgpu.graphs, jtgpu.causal, jtgpu.screen, jtgpu.series):
        names |= {name for name in package.__all__ if name[0].islower()}
    assert not {name for name in names if not re.search(rf"\b{name}\b", page)}


def test_no_page_installs_from_an_index() -> None:
    """jtgpu is on no package index: ``pip install 'jtgpu[serve]'`` finds nothing."""
    pages = [*PAGE_FILES, *(ROOT / "docs" / "coming").glob("*.rst"), *(ROOT / "docs" / "gallery").iterdir()]
    pages += [p for p in (ROOT / "jtgpu").rglob("*.py") if p.parts[-2:] != ("backends", "make.py")]  # N23
    wrong = [p.name for p in pages if re.search(r"pip install [^-`\n]*jtgpu", p.read_text(encoding="utf-8"))]
    assert not wrong


PAGE_FILES = [ROOT / "README.rst", ROOT / "CONTRIBUTING.rst", ROOT / "CHANGELOG.rst", ROOT / "bench" / "README.rst"]
PAGE_FILES += [ROOT / "cuda" / "README.rst", *sorted((ROOT / "docs").glob("*.rst"))]


@pytest.mark.parametrize("page", PAGE_FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"``((?:jtgpu|cuda|tests|docs|bench|tools|nets)/[\w/.]*)``", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"<([\w./-]+)>`_", text):
        assert (page.parent / name).exists(), name
    for name in re.findall(r":file: (\S+)", text):
        assert (page.parent / name).is_file(), name
    for name in re.findall(r"`(jtgpu(?:\.\w+)+)`", text):
        assert resolves(name), name


SOURCES = ("jtgpu/**/*.py", "cuda/**/*.cu*", "docs/**/*.rst", "docs/**/*.md", "bench/*.*", "tools/**/*.py", "*.rst")
NAMED = re.compile(r"(?<![\w/.:$-])((?:jtgpu|cuda|tests|docs|bench|tools)/[\w/.-]*\.(?:py|cu|cuh|rst|md|js|c))\b")
HISTORY = ("docs/notes/", "CHANGELOG.rst")  # name files of their day


def test_files_that_sources_name_exist() -> None:
    """Comments of kernels named modules that had been split."""
    texts = {p.relative_to(ROOT).as_posix(): p.read_text("utf-8") for pattern in SOURCES for p in ROOT.glob(pattern)}
    named = [(place, n) for place, text in texts.items() if not place.startswith(HISTORY) for n in NAMED.findall(text)]
    assert not [(place, name) for place, name in named if not (ROOT / name).exists() and "NAME" not in name]


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            continue
        for part in parts[i:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 130


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    try:
        module = importlib.import_module(name)
    except ImportError as error:  # a GPU package at the top would be a finding of test_imports
        pytest.fail(str(error))
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert not failed


def test_the_docstrings_do_hold_examples() -> None:
    """The test above would pass on docstrings without any."""
    n = sum(
        len(t.examples)
        for m in ("jtgpu", "jtgpu.model.network", "jtgpu.inference.tree")
        for t in doctest.DocTestFinder().find(importlib.import_module(m))
    )
    assert n >= 9


def test_make_help_lists_the_targets_of_the_readme() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("run", "test", "check", "bench", "gpu-test", "gpu-bench"):
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE), target


def variables(files: Iterable[Path]) -> set[str]:
    """The environment variables of our own that files name."""
    text = "\n".join(p.read_text(encoding="utf-8", errors="replace") for p in files)
    return set(re.findall(r"(?<![A-Z_])JTGPU_[A-Z_]*[A-Z]\b", text))


def test_the_documentation_lists_every_environment_variable() -> None:
    package = variables([ROOT / "setup.py", *(ROOT / "jtgpu").rglob("*.py")])
    tests = variables(p for name in ("tests", "bench", "tools") for p in (ROOT / name).rglob("*.py"))
    pages = [ROOT / "docs" / "installing.rst", ROOT / "CONTRIBUTING.rst"]
    users, developers = ({*re.findall(r"^``(JTGPU_\w+)``", p.read_text(encoding="utf-8"), re.MULTILINE)} for p in pages)
    assert package
    assert package <= users
    assert tests - {"JTGPU_ROWS"} <= users | developers  # an attribute of DSL files
    assert developers <= tests
