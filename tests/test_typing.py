"""What a user's type checker sees: names of backends, options and misspelt ones.

tools/check_types.py runs mypy and pyright on a user's file with the installed wheel.
"""

from __future__ import annotations

import inspect
import sys
from typing import get_args, get_type_hints

import pytest

import jtgpu
from jtgpu.backends import BACKENDS
from jtgpu.backends.make import OPTIONS, TREE_OPTIONS
from jtgpu.inference.planning import make_plan
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.plans.ordering import METHODS, OBJECTIVES, find_order
from jtgpu.util import options
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from any_in_signatures import any_in_signatures

MOST = 230  # places in public signatures that a type checker knows nothing of; only smaller numbers replace it


def test_types_of_names_are_the_names() -> None:
    assert set(get_args(options.BackendName)) == {"auto", *BACKENDS}
    assert set(get_args(options.OrderMethod)) == set(METHODS)
    assert set(get_args(options.Lowering)) == set(LOWERINGS)
    assert set(get_args(options.Objective)) == set(OBJECTIVES)


def test_signatures_with_any_become_fewer() -> None:
    """More types in signatures lower the number; tools/any_in_signatures.py lists the places."""
    found = any_in_signatures()
    assert "jtgpu.learn.fit(prior)" in found
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
        ({"thread": 2}, r"compile\(\) has no option 'thread'; did you mean 'threads'"),
        ({"tim_limit": 2}, r"compile\(\) has no option 'tim_limit'; did you mean 'time_limit'"),
        ({"tune": True}, "the backend 'cpu' has no option 'tune'"),
        ({"nonsense": 1}, r"compile\(\) has no option 'nonsense'$"),
    ],
)
def test_misspelt_options_of_compile_are_named(options: dict[str, object], words: str) -> None:
    """Once, `net.compile("gpu", tune=True)` passed the option to the plan only."""
    with pytest.raises(TypeError, match=words):
        jtgpu.load("asia").compile("cpu", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tim_limit": 2}, r"plan\(\) has no option 'tim_limit'; did you mean 'time_limit'"),
        ({"threads": 2}, r"plan\(\) has no option 'threads'; it belongs to compile"),
        ({"cahce": False}, "did you mean 'cache'"),
    ],
)
def test_misspelt_options_of_plan_are_named(options: dict[str, object], words: str) -> None:
    net = jtgpu.load("asia")
    for order in ("auto", net.variables):
        with pytest.raises(TypeError, match=words):
            net.plan(order, **options)  # type: ignore[arg-type]
