"""What compiled networks share: closed ones answer nothing new, pickles, texts, the check of `reload`."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import jtgpu


def _mixed(name: str = "crabs") -> Any:
    sizes = jtgpu.Gaussian([1.0, 2.0], sd=1.0)
    return jtgpu.MixedNetwork({"sex": ["f", "m"], "size": float}, {"size": ["sex"]}, {"sex": [0.5, 0.5], "size": sizes},
                              name=name)  # fmt: skip


def _decision() -> Any:
    return jtgpu.DecisionNetwork(
        {"ill": ["yes", "no"], "treat": ["yes", "no"]}, {"health": ["ill", "treat"]}, {"ill": [0.1, 0.9]},
        decisions=["treat"], utilities={"health": [[80, 20], [90, 100]]},
    )  # fmt: skip


def _dynamic() -> Any:
    return jtgpu.DynamicNetwork(
        {"rain": ["no", "yes"]},
        {"rain": [("rain", 1)]},
        {"rain": [[0.7, 0.3], [0.2, 0.8]]},
        start={"rain": [0.5, 0.5]},
    )


CASES: list[tuple[Any, Any]] = [
    (_mixed, lambda tree: tree.posteriors({"size": 1.5})["sex"]["m"]),
    (_dynamic, lambda tree: tree.filter({"rain": [["yes", None]]}).log_evidence.tolist()),
    (_decision, lambda tree: tree.options("treat").best),
]


@pytest.mark.parametrize(("make", "ask"), CASES)
def test_a_closed_tree_raises_and_a_pickle_answers(make: Any, ask: Any) -> None:
    with make().compile("cpu") as tree:
        answer, copy = ask(tree), pickle.loads(pickle.dumps(tree))
    assert ask(copy) == answer
    assert repr(copy) == repr(tree) == f"{type(tree).__name__}({tree.network.name!r}, backend='cpu')"
    with pytest.raises(jtgpu.JtgpuError, match="closed"):
        ask(tree)
    with pytest.raises(jtgpu.JtgpuError, match="closed"):  # as of a JunctionTree
        pickle.dumps(tree)
    tree.close()


def test_a_tree_that_never_answered_raises_after_close() -> None:
    trees = [make().compile("cpu") for make, _ in CASES]
    for tree, (_, ask) in zip(trees, CASES, strict=True):
        tree.close()
        with pytest.raises(jtgpu.JtgpuError, match="closed"):
            ask(tree)


def test_reload_refuses_another_structure() -> None:
    other = jtgpu.MixedNetwork({"sex": ["f", "m"]}, {}, {"sex": [0.5, 0.5]})
    tree = _mixed().compile("cpu")
    with pytest.raises(jtgpu.PlanError, match=r"differs from .* not only in numbers"):
        tree.reload(other)
    tree.close()
    with pytest.raises(jtgpu.JtgpuError, match="closed"):
        tree.reload(_mixed())
