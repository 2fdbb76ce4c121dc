"""What a user's type checker sees: names of backends, options and misspelt ones.

A user's file passes mypy and pyright (tools/check_types.py), and the code of the first pages passes pyright.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import jtgpu
from jtgpu.backends import BACKENDS
from jtgpu.backends.make import OPTIONS, TREE_OPTIONS
from jtgpu.graphs.engine import BACKENDS as GRAPH_BACKENDS
from jtgpu.inference.planning import make_plan
from jtgpu.learn.dags.constraints import PRIORS
from jtgpu.learn.dags.posterior.posterior import POSTERIOR_METHODS
from jtgpu.learn.dags.scores.coded import MISSING_CHOICES
from jtgpu.learn.dags.scores.rules import NUMERIC_SCORES, SCORES, Score
from jtgpu.learn.dags.structure import METHODS as SEARCHES
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.plans.ordering import METHODS, OBJECTIVES, find_order
from jtgpu.screen.columns import METRICS, MISSING_RULES, SCALES
from jtgpu.screen.outliers import METHODS as OUTLIER_METHODS
from jtgpu.util import options
from tests.conftest import ROOT
from tests.test_docs import CONCEPTS, README, START, blocks

sys.path.insert(0, str(ROOT / "tools"))
import check_types
from any_in_signatures import any_in_signatures

MOST = 181  # places in public signatures that a type checker knows nothing of; only smaller numbers replace it


def test_types_of_names_are_the_names() -> None:
    assert set(get_args(options.BackendName)) == {"auto", *BACKENDS}
    assert set(get_args(options.OrderMethod)) == set(METHODS)
    assert set(get_args(options.Lowering)) == set(LOWERINGS)
    assert set(get_args(options.Objective)) == set(OBJECTIVES)
    assert get_args(options.EngineName) == GRAPH_BACKENDS
    assert get_args(Score) == (*SCORES, *NUMERIC_SCORES, "given")
    assert get_args(options.SearchMethod) == SEARCHES
    assert get_args(options.PosteriorMethod) == POSTERIOR_METHODS
    assert get_args(options.MissingCells) == (*MISSING_CHOICES, "augment", "em")
    assert (*get_args(get_args(options.StructurePriorLike)[0]), "edge") == PRIORS
    assert get_args(options.Metric) == METRICS
    assert get_args(options.Scale) == SCALES
    assert get_args(options.ScreenMissing) == MISSING_RULES
    assert get_args(options.OutlierMethod) == OUTLIER_METHODS


def pyright(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run pyright on the checkout; skip where it is not installed, or cannot fetch what it runs on."""
    pytest.importorskip("pyright", reason="pyright is not installed")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=arguments[0], env=env, capture_output=True, text=True, check=False)
    if "0 errors" not in done.stdout and ".py:" not in done.stdout:
        pytest.skip(f"pyright does not run: {(done.stderr or done.stdout)[-200:]}")
    return done


def test_code_of_the_first_pages_passes_pyright(tmp_path: Path) -> None:
    """`jtgpu.load` was a `DiscreteModel`: ``net.parents``, on the second page, was an error in every editor."""
    for name, page in {"readme": README, "start": START, "concepts": CONCEPTS}.items():
        (tmp_path / f"{name}.py").write_text("\n".join(blocks(page, "code-block:: python")), encoding="utf-8")
    done = pyright(tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_users_file_has_the_types_that_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.py").touch()
    pyright(tmp_path)
    pytest.importorskip("mypy", reason="mypy is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert not check_types.problems(Path(sys.executable).parent, tmp_path)


def test_signatures_with_any_become_fewer() -> None:
    """More types in signatures lower the number; tools/any_in_signatures.py lists the places."""
    found = any_in_signatures()
    assert "jtgpu.learn.fit(pseudo_counts)" in found
    assert len(found) <= MOST


def test_types_of_options_are_the_options() -> None:
    plan = {*inspect.signature(make_plan).parameters} - {"model", "order", "search"}
    search = {*inspect.signature(find_order).parameters} - {"cardinality", "neighbours", "method", "clock"}
    assert set(options.PlanOptions.__annotations__) == plan | search
    tree = {*TREE_OPTIONS, *(o for known in OPTIONS.values() for o in known)}
    assert set(options.TreeOptions.__annotations__) == tree
    assert set(options.CompileOptions.__annotations__) == (plan | search | tree) - {"backend"}
    assert get_type_hints(options.PlanOptions)["seed"] is int


def test_compile_passes_each_option_where_it_belongs() -> None:
    net = jtgpu.load("asia")
    messages: list[str] = []
    with net.compile("cpu", order="best", n_steps=1, threads=1, replan=False, progress=messages.append) as tree:
        assert tree.threads == 1
        assert tree.plan.search is not None
        assert tree.plan.search.method == "best"
    assert net.compile("reference", dtype="float64", seed=3).dtype == "float64"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"thread": 2}, r"compile\(\) has no argument 'thread'; did you mean 'threads'"),
        ({"tim_limit": 2}, r"compile\(\) has no argument 'tim_limit'; did you mean 'time_limit'"),
        ({"single": True}, "the backend 'cpu' has no option 'single'"),
        ({"nonsense": 1}, r"compile\(\) has no argument 'nonsense'; its arguments are "),
    ],
)
def test_misspelt_options_of_compile_are_named(options: dict[str, object], words: str) -> None:
    """Once, `net.compile("gpu", tune=True)` passed the option to the plan only."""
    with pytest.raises(TypeError, match=words):
        jtgpu.load("asia").compile("cpu", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tim_limit": 2}, r"plan\(\) has no argument 'tim_limit'; did you mean 'time_limit'"),
        ({"threads": 2}, r"plan\(\) has no argument 'threads'; it belongs to compile"),
        ({"cahce": False}, "did you mean 'cache'"),
    ],
)
def test_misspelt_options_of_plan_are_named(options: dict[str, object], words: str) -> None:
    net = jtgpu.load("asia")
    for order in ("auto", net.variables):
        with pytest.raises(TypeError, match=words):
            net.plan(order, **options)  # type: ignore[arg-type]
