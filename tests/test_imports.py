"""The architecture, held by a test: who may import whom, read from the source by `ast`, and what `import jtgpu` costs.

An import is of one of three kinds: at a module's top, within a function (a door, paid on use), or for types only.
Every edge between two groups of modules, and every use of a heavy package, stands in a table below or fails.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "jtgpu"

# group of modules -> groups that it may import at its top
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "_system": set(),
    "network": {"errors"},
    "graph": {"errors"},
    "plan": {"errors"},
    "formats": {"errors", "network"},
    "evidence": {"errors", "network", "backends"},
    "answers": {"errors", "network"},
    "ordering": {"errors", "network", "_system"},
    "indextables": {"errors", "plan", "_system"},
    "shallow": set(),
    "lowering": {"errors", "plan", "shallow"},
    "_compiled": set(),
    "specialise": {"errors", "plan", "_compiled"},
    "compiler": {"errors", "network", "graph", "plan", "lowering", "_system"},
    "backends": {"errors", "plan", "lowering", "specialise", "_compiled", "indextables", "_system"},
    "choice": {"errors", "backends", "_system"},
    "apart": {"backends"},
    "sliced": {"errors", "backends", "apart"},
    "slicing": {"errors", "backends", "apart", "compiler", "sliced"},
    "replanned": {"errors", "backends", "apart"},
    "remainder": {"errors", "backends", "replanned"},
    "compiledtree": {"errors", "network", "evidence", "backends", "replanned"},
    "tree": {"errors", "evidence", "answers", "backends", "compiledtree"},
    "session": {"errors", "network", "evidence", "answers", "backends"},
    "queries": {"errors", "network", "plan", "specialise", "evidence", "answers", "backends", "_compiled", "_system"},
    "classifier": {"errors", "network"},
    "competition": {"errors", "network", "_system"},
    "cases": {"errors", "network", "evidence", "backends", "tree", "_system", "_compiled"},
    "cluster": {"errors", "network", "tree", "cases"},
    "timing": {"errors", "network", "_system"},
    "interop": {"errors", "network"},
    "compat": {"errors", "network", "interop"},
    "cli": {
        "errors", "network", "evidence", "answers", "backends", "tree", "queries", "cases", "competition", "timing",
        "show", "cluster", "_system",
    },
    "show": {"errors", "network", "ordering", "backends", "tree", "timing"},
    "__init__": {"errors", "network"},
    "__main__": {"cli"},
}
# doors: imports within functions that the table above does not allow
DOORS = {
    ("network", "compiler"),  # net.plan(), net.compile()
    ("compiler", "ordering"),  # only where an order is searched for or read
    ("compiler", "tree"),  # plan.compile()
    ("compiler", "choice"),  # plan.describe()
    ("compiler", "slicing"),  # plan(slices=...)
    ("compiler", "backends"),  # the memory of the GPU that a plan is for
    ("slicing", "graph"),  # which variables to fix
    ("slicing", "ordering"),
    ("choice", "network"),  # what it measures with
    ("choice", "timing"),  # the processor's name
    ("choice", "__init__"),  # the version
    ("apart", "network"),  # the network taken apart
    ("remainder", "network"),  # what is left of it
    ("compiledtree", "remainder"),  # on a GPU
    ("compiledtree", "choice"),  # backend="auto"
    ("compiledtree", "compiler"),  # the model's factors, as the plan numbers them
    ("compiledtree", "queries"),  # soft evidence, interventions
    ("tree", "session"),  # tree.session()
    ("tree", "cases"),  # tree.predict_proba(), frames
    ("tree", "cluster"),  # tree.predict_proba(cluster=...)
    ("cases", "cluster"),  # answer_file(cluster=...)
    ("cluster", "__init__"),  # the version
    ("tree", "queries"),  # a thin method for each question
    ("session", "queries"),  # soft evidence
    ("queries", "compiler"),  # plans that keep a set of variables together
    ("queries", "ordering"),  # constrained elimination orders of marginal MAP
    ("tree", "compiler"),  # the model's factors, as the plan numbers them
    ("timing", "formats"),
    ("timing", "ordering"),  # inner loops are compiled before anything is timed
    ("timing", "backends"),
    ("formats", "evidence"),  # lines name=state of evidence files
    ("cli", "formats"),
    ("cli", "compiler"),  # the published table takes a plan and tables
}
# imports for types alone that neither table has
TYPES = {("tree", "compiler"), ("timing", "compiler"), ("timing", "tree"), ("timing", "answers")}
TYPES |= {("compiler", "ordering"), ("compiler", "tree"), ("cli", "ordering")}
TYPES |= {("cli", "formats")}
TYPES |= {("cli", "ordering"), ("show", "ordering")}  # a search's result, to print and to draw
TYPES |= {("tree", "session"), ("session", "tree")}
TYPES |= {("choice", "network"), ("choice", "plan"), ("replanned", "plan"), ("remainder", "plan"), ("apart", "network")}
TYPES |= {("compiler", "backends"), ("compiledtree", "compiler"), ("compiledtree", "queries")}
TYPES |= {("slicing", "network"), ("slicing", "plan"), ("sliced", "plan")}
TYPES |= {("tree", "queries"), ("session", "queries"), ("queries", "tree"), ("queries", "compiler")}
TYPES |= {("cases", "cluster"), ("cases", "compiler"), ("cluster", "compiler"), ("cluster", "sliced")}
TYPES |= {("tree", "cases")}  # keywords of tree.predict_proba()
TYPES |= {("__init__", g) for g in ("answers", "compiler", "formats", "interop", "plan", "session", "tree")}
TYPES |= {("__init__", "classifier"), ("classifier", "tree")}
# modules that are a part of another group than their name says
PART_OF = {"_plan_checks": "plan", "cpts": "network", "findings": "evidence"}

# heavy or optional packages -> the files that may name them (glob), at the top or within functions
PACKAGES: dict[str, tuple[str, ...]] = {
    "numba": ("_compiled.py", "backends/cpu/vector.py", "backends/cpu/atomics.py", "ordering/*.py"),
    "llvmlite": ("backends/cpu/*.py",),
    "networkx": ("graph.py", "network.py", "interop/networkx.py"),
    "pgmpy": ("interop/pgmpy.py", "compat/pgmpy.py"),
    "pycuda": ("backends/device.py", "backends/indexed*.py", "backends/gpu*.py", "backends/gpu/*.py"),
    "skcuda": ("backends/device.py",),
    "cuda": ("backends/device.py", "backends/indexed*.py", "backends/gpu*.py", "backends/gpu/*.py"),
    "matplotlib": ("show/*.py",),
    "typer": ("cli/*.py",),
    "rich": ("cli/*.py",),
    "narwhals": ("cases*.py", "cases/*.py"),
    "pyarrow": ("cases*.py", "cases/*.py", "cluster/storage.py"),
    "fsspec": ("cluster/storage.py",),
    "ray": ("cluster/*.py",),
    "platformdirs": ("_system.py",),
    "numpy": ("**/*.py",),
}
# packages that may only be imported within functions, whatever the file
ON_USE = {"networkx", "pgmpy", "pycuda", "skcuda", "cuda", "matplotlib", "narwhals", "pyarrow", "ray", "platformdirs"}
ON_USE |= {"fsspec"}


class Import(NamedTuple):
    """One imported module and where it stands."""

    file: Path  # relative to the package
    line: int
    target: str  # dotted, absolute
    kind: str  # "top", "door" or "types"


def imports_of(path: Path) -> Iterator[Import]:
    """Every import of a file, relative ones made absolute."""
    file = path.relative_to(PACKAGE)
    home = ["jtgpu", *file.parts[:-1]]  # the package that relative imports start from

    def walk(node: ast.AST, kind: str) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inner = kind
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                inner = "door"
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                inner = "types"
            if isinstance(child, ast.Import):
                for name in child.names:
                    yield Import(file, child.lineno, name.name, kind)
            elif isinstance(child, ast.ImportFrom):
                base = home[: len(home) + 1 - child.level] if child.level else []
                module = [*base, *(child.module or "").split(".")] if child.module else base
                if module == ["jtgpu"]:  # from . import x: x is the module, unless it is a name of the package's
                    for name in child.names:
                        yield Import(file, child.lineno, f"jtgpu.{name.name}", kind)
                else:
                    yield Import(file, child.lineno, ".".join(module), kind)
            else:
                yield from walk(child, inner)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), "top")


ALL = [i for path in sorted(PACKAGE.rglob("*.py")) for i in imports_of(path)]


def group(file: Path) -> str:
    """The group that a file of the package belongs to."""
    name = file.parts[0] if len(file.parts) > 1 else file.stem
    return PART_OF.get(name, name)


def target_group(target: str) -> str:
    """The group that ``jtgpu.a.b`` belongs to; a plain name of the package (``jtgpu.__version__``) is none."""
    name = target.split(".")[1]
    there = (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()
    return PART_OF.get(name, name) if there else ""


def refused(found: Import) -> str:
    """Why an import of our own is against the rules; empty when it is not."""
    source, target = group(found.file), target_group(found.target)
    if not target or source == target or target in ALLOWED.get(source, set()):
        return ""
    if found.kind == "door" and (source, target) in DOORS:
        return ""
    if found.kind == "types" and ((source, target) in TYPES):
        return ""
    return f"{found.file}:{found.line}: {source} imports {target} ({found.kind})"


def test_every_module_belongs_to_a_group() -> None:
    known = {group(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py")}
    assert known <= set(ALLOWED), f"add to ALLOWED: {sorted(known - set(ALLOWED))}"


def test_the_table_itself_has_no_cycle() -> None:
    done: set[str] = set()
    while len(done) < len(ALLOWED):
        ready = {g for g, needs in ALLOWED.items() if g not in done and needs <= done}
        assert ready, f"a cycle among {sorted(set(ALLOWED) - done)}"
        done |= ready


def test_our_own_imports_point_one_way() -> None:
    wrong = [r for i in ALL if i.target.split(".")[0] == "jtgpu" and (r := refused(i))]
    assert not wrong, "\n".join(wrong)


def test_packages_are_named_where_they_belong() -> None:
    wrong = []
    for i in ALL:
        package = i.target.split(".")[0]
        if package in ("jtgpu", "__future__") or package in sys.stdlib_module_names:
            continue
        if package not in PACKAGES:
            wrong.append(f"{i.file}:{i.line}: {package} is no dependency that this test knows")
        elif i.kind != "types" and not any(
            i.file in {p.relative_to(PACKAGE) for p in PACKAGE.glob(g)} for g in PACKAGES[package]
        ):
            wrong.append(f"{i.file}:{i.line}: {package} does not belong here")
        elif i.kind == "top" and package in ON_USE:
            wrong.append(f"{i.file}:{i.line}: {package} is imported within functions only")
    assert not wrong, "\n".join(wrong)


def test_modules_of_one_group_are_imported_only_where_they_are_needed() -> None:
    # backends: none knows another one's name, and the seam knows none of them
    backends = {"reference", "cpu", "indexed", "gpu"}
    measuring = {("timetable", "indexed"), ("tuning", "indexed")}  # tools of one engine, which no backend imports
    for i in ALL:
        if i.file.parts[0] == "backends" and i.target.startswith("jtgpu.backends."):
            target, source = i.target.split(".")[2], i.file.stem
            own = source.split("_")[0] == target or i.file.parts[1] == target or (source, target) in measuring
            assert target not in backends or own, f"{i.file}:{i.line} imports {target}"


def test_the_command_line_knows_no_field_of_a_plan() -> None:
    import dataclasses

    from jtgpu.plans.plan import Plan

    fields = {f.name for f in dataclasses.fields(Plan)} - {"elimination_order", "cardinality"}  # names of models too
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert node.attr not in fields, f"{path.name}:{node.lineno}: .{node.attr}"


def test_the_oracle_imports_the_network_and_nothing_else() -> None:
    tree = ast.parse((ROOT / "tests" / "oracle.py").read_text(encoding="utf-8"))
    found = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    found |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert {m for m in found if m and m.startswith("jtgpu")} == {"jtgpu.model.network"}


def test_cuda_folder_holds_no_python() -> None:
    assert not list((ROOT / "cuda").rglob("*.py")), "an __init__.py there would hide NVIDIA's package cuda"


def python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter at the root of the checkout."""
    done = subprocess.run([sys.executable, *options, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "import jtgpu",
            {"numba", "networkx", "typer", "rich", "pandas", "scipy", "pycuda", "matplotlib", "platformdirs"},
        ),
        # reading a file and building a network: no graph, no compiler
        ("import jtgpu; jtgpu.read('nets/asia.net')", {"numba", "networkx", "typer", "rich", "pycuda", "matplotlib"}),
        ("import jtgpu.cli", {"numba", "networkx", "pycuda", "matplotlib", "pandas", "scipy"}),
        (
            "import jtgpu; jtgpu.read('nets/asia.net').plan('min-fill').compile('reference').posteriors()",
            {"typer", "rich", "pycuda", "matplotlib", "pandas"},
        ),
    ],
    ids=["import", "read", "cli", "reference"],
)
def test_what_stays_unimported(code: str, absent: set[str]) -> None:
    loaded = set(python(f"{code}; import sys; print(*sorted(sys.modules))").stdout.split())
    assert not loaded & absent


def test_import_time_is_told(record_property: Callable[[str, object], None]) -> None:
    """Measured and recorded, never asserted: what it is made of is held by the test above."""
    code = "import time; t = time.perf_counter(); import jtgpu; print(time.perf_counter() - t)"
    seconds = min(float(python(code).stdout) for _ in range(3))
    record_property("import_jtgpu_seconds", seconds)
    print(f"import jtgpu: {1000 * seconds:.0f} ms, NumPy included")
    assert seconds > 0
