"""Structures that classifiers make: TAN against all trees by enumeration, learned graphs against `structure`."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import JunctionTreeClassifier
from jtgpu.errors import ArgumentError
from jtgpu.learn.classifier import tree_augmented
from tests.learn.test_classifier import EXPECTED_FAILURES


def information(a: list[int], b: list[int], c: list[int]) -> float:
    """Conditional mutual information by definition."""
    rows = [*zip(a, b, c, strict=True)]
    n, abc = len(rows), Counter(rows)
    ac, bc = Counter((x, z) for x, _, z in rows), Counter((y, z) for _, y, z in rows)
    one = Counter(z for *_, z in rows)
    return math.fsum(k / n * math.log(k * one[z] / (ac[x, z] * bc[y, z])) for (x, y, z), k in abc.items())


@given(st.integers(0, 10**6))
def test_the_tree_has_the_largest_information_of_all_trees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cards = {v: int(rng.integers(2, 4)) for v in "abcdy"}
    base = rng.integers(0, 2, 60)
    numbers = {v: np.where(rng.random(60) < 0.5, base, rng.integers(0, k, 60)) for v, k in cards.items()}
    weights = rng.integers(0, 3, 60).astype(np.float64)
    rows = np.repeat(np.arange(60), weights.astype(int))
    gain = {
        frozenset(p): information(*(numbers[v][rows].tolist() for v in (*p, "y")))
        for p in itertools.combinations("abcd", 2)
    }
    best = -math.inf
    for edges in itertools.combinations(gain, 3):
        joined = {"a"}
        for _ in range(3):
            joined |= {v for e in edges if e & joined for v in e}
        if len(joined) == 4:
            best = max(best, sum(gain[e] for e in edges))
    parents = tree_augmented(numbers, cards, "y", weights)
    assert (parents["y"], parents["a"]) == ((), ("y",))
    chosen = [frozenset({v, *parents[v]} - {"y"}) for v in "bcd"]
    assert all(len(e) == 2 and parents[v][-1] == "y" for e, v in zip(chosen, "bcd", strict=True))
    assert sum(gain[e] for e in chosen) == pytest.approx(best, abs=1e-9)


def cases(n: int = 400) -> dict[str, list[Any]]:
    net = jtgpu.network("y -> a; y -> b; a -> b; y -> c; b -> c", "{p|q}", seed=5)
    with net.compile("cpu") as tree:
        drawn = tree.sample(n, seed=2).states
    return {v: [net.states(v)[k] for k in drawn[:, i].tolist()] for i, v in enumerate(net)}


def test_tan_fits_dependent_features_better() -> None:
    table = cases()
    y = table.pop("y")
    models = [JunctionTreeClassifier(s, target="y").fit(table, y) for s in ("naive", "tan", None)]
    naive, tan, default = (m.predict_proba(table) for m in models)
    assert (naive == default).all()
    assert {*models[1].network_.arcs} >= {("y", "a"), ("y", "b"), ("y", "c"), ("a", "b"), ("b", "c")}
    at = [models[1].classes_.tolist().index(k) for k in y]
    losses = [-np.log(p[np.arange(len(at)), at]).mean() for p in (naive, tan)]
    assert losses[1] < losses[0]


def test_the_learned_graph_is_that_of_structure() -> None:
    table = cases()
    learned = jtgpu.learn.structure(table)
    y = table.pop("y")
    table["constant"] = ["k"] * len(y)
    table["a"][3] = None
    model = JunctionTreeClassifier("learned", target="y").fit(table, y)
    del table["constant"]
    known = [i for i in range(len(y)) if i != 3]
    complete = {v: [c[i] for i in known] for v, c in (table | {"y": y}).items()}
    again = jtgpu.learn.structure(complete)
    names = (*table, "y")
    assert {v: {*model.network_.parents(v)} for v in names} == {v: {*again.parents(v)} for v in names}
    assert model.network_.parents("constant") == ()
    assert learned.names
    with pytest.raises(ArgumentError, match="sample_weight must be whole numbers"):
        model.fit(table, y, sample_weight=[0.5] * len(y))


def test_weights_are_repeated_rows() -> None:
    table = cases(60)
    y = table.pop("y")
    weights = [1 + i % 3 for i in range(60)]
    often = {v: [x for x, w in zip(c, weights, strict=True) for _ in range(w)] for v, c in (table | {"y": y}).items()}
    many = often.pop("y")
    for kind in ("tan", "learned"):
        a = JunctionTreeClassifier(kind, target="y").fit(table, y, sample_weight=weights)
        b = JunctionTreeClassifier(kind, target="y").fit(often, many)
        assert np.allclose(a.predict_proba(table), b.predict_proba(table), rtol=0, atol=1e-12)


def test_unknown_names() -> None:
    with pytest.raises(ArgumentError, match="structure"):
        JunctionTreeClassifier("tam").fit({"a": [0, 1]}, [0, 1])  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_checks_of_scikit_learn() -> None:
    checks: Any = pytest.importorskip("sklearn.utils.estimator_checks")
    model = JunctionTreeClassifier("tan", backend="reference")
    done = checks.check_estimator(model, on_skip=None, expected_failed_checks=EXPECTED_FAILURES)
    assert {check["status"] for check in done} <= {"passed", "skipped", "xfail"}
