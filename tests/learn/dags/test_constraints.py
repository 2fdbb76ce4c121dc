"""Constraints and priors: matrices, contradictions, and the weights of families."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jtgpu.errors import ArgumentError, UnknownVariable
from jtgpu.learn.dags.candidate_tables import family_weights
from jtgpu.learn.dags.constraints import make_constraints, make_prior
from jtgpu.learn.dags.scores.ranks import family_of
from jtgpu.learn.dags.scores.rules import ScoreRule
from jtgpu.learn.dags.scores.score_table import score_families
from tests.learn.dags.data import random_table

NAMES = ("a", "b", "c", "d")


def possible_families(**options: Any) -> set[tuple[int, tuple[int, ...]]]:
    table = score_families(random_table(1, n=4), ScoreRule(), 3)
    weights = family_weights(table, make_prior("uniform", 4), make_constraints(NAMES, **{"max_parents": 3, **options}))
    return {family_of(int(i), 4, 3) for i in np.flatnonzero(np.isfinite(weights).reshape(-1))}


def test_every_constraint_removes_families() -> None:
    families = possible_families()
    assert len(families) == 32
    assert possible_families(forbidden=[("a", "b")]) == {f for f in families if f[0] != 1 or 0 not in f[1]}
    assert possible_families(required=[("a", "b")]) == {f for f in families if f[0] != 1 or 0 in f[1]}
    assert possible_families(tiers=[["c"], ["a", "b"]]) == {f for f in families if f[0] != 2 or not {0, 1} & {*f[1]}}
    within = {f for f in families if f[0] < 2 and 1 - f[0] in f[1]}
    apart = {f for f in families if f[0] != 2 or not {0, 1} & {*f[1]}} - within
    assert possible_families(tiers=[["c"], ["a", "b"]], within_tiers=False) == apart
    assert possible_families(max_parents=1) == {f for f in families if len(f[1]) < 2}
    assert possible_families(max_parents={"d": 0}) == {f for f in families if f[0] != 3 or not f[1]}


def test_variables_that_a_mapping_does_not_name_have_the_default_limit() -> None:
    names = tuple("abcdefg")
    assert make_constraints(names, {"b": 6, "c": 0}).max_parents.tolist() == [4, 6, 0, 4, 4, 4, 4]


def test_first_order_follows_required_arcs() -> None:
    assert make_constraints(NAMES, 2, required=[("d", "a"), ("c", "d")]).first_order().tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"required": [("a", "b"), ("b", "c"), ("c", "a")]}, ArgumentError, "cycle: '[abc]' -> '[abc]' -> '[abc]' -> "),
        ({"required": [("a", "b")], "forbidden": [("a", "b")]}, ArgumentError, "'a' -> 'b' is both required and"),
        ({"required": [("a", "b")], "tiers": [["b"], ["a"]]}, ArgumentError, "'a' -> 'b' points to an earlier tier"),
        ({"required": [("a", "b")], "tiers": [["a", "b"]], "within_tiers": False}, ArgumentError, "the same tier or"),
        ({"required": [("a", "c"), ("b", "c")], "max_parents": 1}, ArgumentError, "'c' has 2 required parents"),
        ({"forbidden": [("a", "a")]}, ArgumentError, "to itself"),
        ({"tiers": [["a"], ["a"]]}, ArgumentError, "'a' is in two tiers"),
        ({"forbidden": [("a", "x")]}, UnknownVariable, "no variable 'x'"),
        ({"max_parents": {"x": 1}}, UnknownVariable, "no variable 'x'"),
        ({"max_parents": -1}, ValueError, "max_parents must be"),
        ({"forbidden": ["ab"]}, TypeError, "pairs"),
        ({"tiers": ["ab"]}, ArgumentError, "tiers must be lists"),
    ],
)
def test_contradictions(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_constraints(NAMES, **{"max_parents": 3, **options})


def test_priors_by_hand() -> None:
    sets = np.array([[-1, -1], [0, -1], [0, 1]])
    assert make_prior("uniform", 4).log_weights(3, sets, 4).tolist() == [0, 0, 0]
    assert make_prior("fair", 4).log_weights(3, sets, 4) == pytest.approx([0, -math.log(3), -math.log(3)])
    fifth = make_prior(("edge", 0.2), 4).log_weights(3, sets, 4)
    assert fifth == pytest.approx([0, math.log(0.25), 2 * math.log(0.25)])
    p = np.full((4, 4), 0.5)
    p[0, 3] = 0.8
    assert make_prior(("edge", p), 4).log_weights(3, sets, 4) == pytest.approx([0, math.log(4), math.log(4)])


@pytest.mark.parametrize("prior", ["flat", ("edge", 0.0), ("edge", np.full((2, 2), 0.5)), ("edge", 1.5), None])
def test_wrong_priors(prior: Any) -> None:
    with pytest.raises(ValueError, match=r"prior must be|probabilities of arcs"):
        make_prior(prior, 4)
