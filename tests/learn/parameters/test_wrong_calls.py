"""Every parameter of `fit`, `Online`, `check` and `discretise` with values of wrong types: a result or an own error."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, DataError, JtgpuError
from jtgpu.learn import Online, check, discretise, fit

NET = jtgpu.network("a->b", "{x|y}", cpts={"a": [0.5, 0.5], "b": [[0.5, 0.5], [0.2, 0.8]]})
UNTYPED: Any = jtgpu.learn.EM
TABLE = {"a": ["x", "y", None, "y"], "b": ["x", "x", "y", "y"]}
VALUES: tuple[Any, ...] = (
    5, -1, 0.5, 1j, "x", None, [], {}, [5], [None], [[1]], {"a": 5}, {5: "a"}, {"a": None}, object(), True,
)  # fmt: skip
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "fit": (fit, {"structure": NET, "cases": TABLE}),
    "discretise": (discretise, {"frame": {"a": [1.0, 2.0, 3.0, None], "b": [*"xyxy"]}, "bins": 2}),
    "check": (check, {"network": NET, "cases": TABLE, "variables": ["a", "b"]}),
    "Online": (Online, {"tree": NET}),
    "update": (Online(NET).update, {"cases": TABLE}),
}


@pytest.mark.parametrize(
    ("call", "name"),
    [(call, name) for call, (function, _) in CALLS.items() for name in inspect.signature(function).parameters],
)
def test_wrong_values_are_errors_of_jtgpu(
    call: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a checkpoint may be called "x"
    function, arguments = CALLS[call]
    for value in VALUES:
        if name == "cluster" and value not in (5, [], {}):
            continue  # starts a cluster
        error = None
        try:
            function(**{**arguments, name: value})
        except JtgpuError as raised:
            error = raised
        except FileNotFoundError:
            assert isinstance(value, str)
        assert "bug" not in str(error), value


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fixed": 5}, "fixed must be a name or an iterable of names, not the int 5"),
        ({"hidden": 5}, "hidden must be a name"),
        ({"tied": 5}, "tied must be groups of names"),
        ({"tied": ["a", "b"]}, "tied must be groups of names"),
        ({"states": 5}, "states must be a mapping"),
        ({"likelihood": 5}, "likelihood must be a mapping"),
        ({"em": jtgpu.learn.EM(checkpoint="none/x")}, "there is no folder .*none"),
        ({"em": jtgpu.learn.EM(checkpoint=".")}, "is a folder; name a file in it"),
        ({"em": UNTYPED(checkpoint=5)}, "checkpoint must be a path"),
    ],
)
def test_messages(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        fit(NET, TABLE, **options)


def test_cells_that_are_lists_are_named() -> None:
    with pytest.raises(DataError, match="row 0, column 'a'"):
        discretise({"a": [["x"], ["y"]]})


def test_a_hidden_variable_needs_two_states() -> None:
    states = {"a": ["only"], "b": ["x", "y"]}
    cpts: dict[str, Any] = {"a": [1.0], "b": [[0.5, 0.5]]}
    one = jtgpu.BayesianNetwork(states, {"a": [], "b": ["a"]}, cpts)
    with pytest.raises(ArgumentError, match=r"'a' needs at least 2 different states, not the network's \['only'\]"):
        fit(one, {"b": ["x", "y"]}, hidden="a")


@pytest.mark.parametrize("weights", [["x"] * 4, [1j] * 4, [1.0], [np.nan] * 4, [[1.0] * 4]])
def test_weights_of_online(weights: Any) -> None:
    with pytest.raises(DataError, match="weights must be"):
        Online(NET).update(TABLE, weights=weights)
