"""The architecture: imports point down, heavy packages are imported on use, and `import jtgpu` stays small.

The layers stand in pyproject.toml (``[tool.importlinter]``); `make check` and the first test here run the contracts.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from jtgpu.plans.plan import Plan
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import import_circles

PACKAGE = ROOT / "jtgpu"

# heavy or optional packages -> the files that may import them, at the top or within functions
PACKAGES: dict[str, tuple[str, ...]] = {
    "numba": ("util/jit.py", "util/ahead.py", "util/machine_code.py", "util/signatures.py", "**/loops/*.py",
              "**/*_loops.py"),
    "llvmlite": ("util/jit.py", "util/machine_code.py", "backends/cpu/loops/*.py", "graphs/lane_loops.py",
                 "util/elementary/loops/functions.py"),
    "networkx": (
        "plans/clique_tree.py", "model/network.py", "model/mixed.py", "inference/network_plan.py",
        "interop/networkx.py", "model/equivalence.py", "graphs/nx_backend.py", "causal/separators.py",
        "learn/dags/posterior/result.py",
    ),
    "pgmpy": ("interop/pgmpy.py", "compat/pgmpy.py"),
    "pycuda": ("device/*.py", "published/junction_trees/*.py", "backends/gpu/**/*.py"),
    "arviz": ("learn/dags/posterior/result.py",),
    "skcuda": ("device/*.py",),
    "cuda": ("device/*.py", "published/junction_trees/*.py", "backends/gpu/**/*.py"),
    "matplotlib": ("published/junction_trees/measure.py", "draw/plots.py"),
    "click": ("cli/*.py",),
    "narwhals": ("columns/arrow.py",),
    "pandas": ("inference/results/frames.py",),
    "polars": ("inference/results/frames.py",),
    "pyarrow": ("columns/arrow.py", "cluster/tables.py"),
    "fsspec": ("cluster/tables.py",),
    "ray": ("cluster/*.py", "serve/workers.py"),
    "platformdirs": ("util/system.py",),
    "starlette": ("serve/*.py",),
    "uvicorn": ("serve/server.py", "serve/http_protocol.py"),
    "msgspec": ("serve/*.py",),
    "prometheus_client": ("serve/metrics.py",),
    "anywidget": ("serve/notebook.py",),
    "traitlets": ("serve/notebook.py",),
    "numpy": ("**/*.py",),
}
# packages that are imported within functions only, in any file
ON_USE = {
    "arviz", "cuda", "fsspec", "matplotlib", "narwhals", "networkx", "pandas", "pgmpy", "platformdirs", "polars",
    "pyarrow", "pycuda", "ray", "skcuda",
}  # fmt: skip
# files that may import modules of jtgpu by name, which hides the import from the layers contract
BY_NAME = {
    "__init__.py",  # names imported on first use
    "util/late_imports.py",  # net.plan, net.compile, tree.predict_proba
    "backends/__init__.py",  # a backend's module on first use
    "backends/gpu/backend.py",  # engines of patterns, which name the backend
    "cli/__init__.py",  # the commands, on the first call
    "formats/__init__.py",  # evidence files
    "graphs/__init__.py",
    "learn/__init__.py",
    "screen/__init__.py",
    "screen/estimator.py",  # scikit-learn, which calls it
    "series/__init__.py",
    "serve/__init__.py",  # what needs jtgpu[serve]
    "formats/registry.py",  # a format's modules
    "cli/commands.py",  # a command's module when it runs
    "util/loops.py",  # compiled loops, which the extension module replaces
    "util/machine_code.py",
}


class Import(NamedTuple):
    """One import of another package."""

    file: Path  # relative to the package
    line: int
    package: str
    is_top: bool  # at the top of the file, neither within a function nor for types only


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def files_of(pattern: str) -> frozenset[Path]:
    """The files of the package that a pattern names."""
    return frozenset(PACKAGE.glob(pattern))


def imports_of(path: Path) -> Iterator[Import]:
    """Imports of other packages in a file, without those for types only."""

    def walk(node: ast.AST, is_top: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):  # no import is inside
                continue
            if isinstance(child, ast.If) and any(getattr(n, "id", "") == "TYPE_CHECKING" for n in ast.walk(child.test)):
                continue
            inner = is_top and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            if isinstance(child, ast.Import):
                names = [a.name for a in child.names]
            elif isinstance(child, ast.ImportFrom) and not child.level:
                names = [child.module or ""]
            else:
                names = []
            for name in names:
                line = child.lineno if isinstance(child, ast.stmt) else 0
                yield Import(path.relative_to(PACKAGE), line, name.split(".")[0], is_top)
            yield from walk(child, inner)

    yield from walk(parsed(path), True)


def python(code: str) -> str:
    """The output of code in a new interpreter at the root of the checkout."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_imports_point_down() -> None:
    pytest.importorskip("importlinter")
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), is_debug_mode=False) == 0


def test_no_circles_of_imports() -> None:
    assert import_circles.circles(import_circles.imports(PACKAGE)) == []


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str]()}
    assert import_circles.circles(graph) == [["a", "b", "c"]]


def test_few_files_import_our_own_modules_by_name() -> None:
    found = set()
    for path in sorted(p for p in PACKAGE.rglob("*.py") if "import_module" in p.read_text(encoding="utf-8")):
        for node in ast.walk(parsed(path)):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module")):
                continue
            named = node.args[0].value if isinstance(node.args[0], ast.Constant) else "."
            if str(named).startswith((".", "jtgpu")):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found <= BY_NAME


def test_packages_are_imported_where_they_belong() -> None:
    wrong = []
    for i in (i for path in sorted(PACKAGE.rglob("*.py")) for i in imports_of(path)):
        if i.package in ("jtgpu", "__future__") or i.package in sys.stdlib_module_names:
            continue
        if i.package not in PACKAGES:
            wrong.append(f"{i.file}:{i.line}: {i.package} is not a known dependency")
        elif not any(PACKAGE / i.file in files_of(pattern) for pattern in PACKAGES[i.package]):
            wrong.append(f"{i.file}:{i.line}: {i.package} does not belong here")
        elif i.is_top and i.package in ON_USE:
            wrong.append(f"{i.file}:{i.line}: import {i.package} within functions")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("room", ["inference", "cases", "cluster", "learn", "cli", "timing.py"])
def test_rooms_above_the_backends_do_not_inspect_backends_or_plans(room: str) -> None:
    """They ask a backend what it can do (`jtgpu.backends.base`), and never what it is."""
    files = [PACKAGE / room] if room.endswith(".py") else sorted((PACKAGE / room).rglob("*.py"))
    wrong = []
    for path in files:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "hasattr", "getattr"):
                inspected = ast.unparse(node.args[0]).lower()
                # an argument that may be a plan or a tree, or that has to be a name
                if ast.unparse(node).endswith((", JunctionTree)", ", str)")):
                    continue
                if "backend" in inspected or inspected in ("plan", "made", "self._plan", "self.plan"):
                    wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)


def test_the_command_line_uses_no_array_of_a_plan() -> None:
    arrays = {f.name for f in fields(Plan)} - {"elimination_order", "cardinality"}  # models have these names, too
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute):
                assert node.attr not in arrays, f"{path.name}:{node.lineno}: .{node.attr}"


def test_the_oracle_imports_only_the_network() -> None:
    tree = ast.parse((ROOT / "tests" / "support" / "oracle.py").read_text(encoding="utf-8"))
    found = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    found |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert {m for m in found if m and m.startswith("jtgpu")} <= {"jtgpu.model.discrete", "jtgpu.model.network"}


def test_the_cuda_folder_holds_no_python() -> None:
    assert not list((ROOT / "cuda").rglob("*.py")), "an __init__.py there would hide NVIDIA's package cuda"


def _command(*words: str) -> str:
    """Code that runs a command and prints nothing else."""
    return (
        "import contextlib, io, sys; from jtgpu.cli import main\n"
        f"sys.argv = ['jtgpu', *{words}]\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()\n"
        "pass"
    )


# packages and modules that a query of one case does not need
OF_OTHER_COMMANDS = {
    "numba", "llvmlite", "networkx", "scipy", "pandas", "pyarrow", "narwhals", "platformdirs",
    "ray", "jtgpu.cases.files", "jtgpu.cluster", "jtgpu.learn.classifier", "jtgpu.compat", "jtgpu.cli.batch",
    "jtgpu.cli.speed",
    "jtgpu.timing", "jtgpu.formats.bif", "jtgpu.formats.evidence_files", "jtgpu.formats.conversion",
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "import jtgpu",
            {"numpy", "numba", "networkx", "click", "pandas", "pycuda", "matplotlib", "platformdirs"},
        ),
        # reading a file and building a network: no graph, no compiler
        ("import jtgpu; jtgpu.read('nets/asia.net')", {"numba", "networkx", "click", "pycuda", "matplotlib"}),
        ("import jtgpu.cli", {"numba", "networkx", "pycuda", "matplotlib", "pandas", "scipy"}),
        (
            "import jtgpu; jtgpu.read('nets/asia.net').plan('min-fill').compile('reference').posteriors()",
            {"click", "pycuda", "matplotlib", "pandas", "networkx", "pyarrow", "narwhals"},
        ),
        (
            "import jtgpu; jtgpu.load('asia').plan()",
            {"numba", "networkx", "scipy", "jtgpu.formats.bif", "jtgpu.formats.evidence_files", "jtgpu.cases"},
        ),
        ("import jtgpu.cli.commands", {"numpy", "jtgpu.cli.query", "jtgpu.inference.tree"}),
        (_command("--help"), {"numpy", "numba", "jtgpu.cli.query", "jtgpu.inference.tree"}),
        (_command("learn", "--help-all"), {"numpy", "numba", "jtgpu.cli.learn", "jtgpu.learn"}),
        (_command("query", "asia", "-t", "lung", "-e", "xray=yes", "--backend", "reference"), OF_OTHER_COMMANDS),
        (_command("query", "asia", "P(lung | xray=yes)", "--backend", "reference", "--json"), OF_OTHER_COMMANDS),
        (_command("plan", "asia", "--order-seed", "1"), OF_OTHER_COMMANDS),
        (_command("info", "asia"), OF_OTHER_COMMANDS | {"jtgpu.inference.tree"}),
        (_command("mpe", "asia", "--backend", "reference"), OF_OTHER_COMMANDS),
        (_command("sample", "asia", "2", "--backend", "reference"), OF_OTHER_COMMANDS - {"jtgpu.cases.files"}),
    ],
    ids=[
        "import", "read", "cli", "reference", "plan", "commands", "help", "help of learn",
        "query", "question", "jtgpu plan", "info",
        "mpe", "sample",
    ],
)
def test_what_stays_unimported(code: str, absent: set[str]) -> None:
    loaded = set(python(f"{code}; import sys; print(*sorted(sys.modules))").split())
    assert sorted(loaded & absent) == []


def test_import_time_is_recorded(record_property: Callable[[str, object], None]) -> None:
    """Measured, never asserted."""
    code = "import time; t = time.perf_counter(); import jtgpu; print(time.perf_counter() - t)"
    seconds = min(float(python(code)) for _ in range(3))
    record_property("import_jtgpu_seconds", seconds)
    print(f"import jtgpu: {1000 * seconds:.0f} ms, NumPy included")
