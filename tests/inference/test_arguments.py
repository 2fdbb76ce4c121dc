"""Arguments of a wrong type raise errors of jtgpu that say what is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jtgpu
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def tree() -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = jtgpu.read(ROOT / "nets" / "asia.net").compile(backend="reference")
    return made


CALLS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda t: t.joint(None), "variables must be one or several names or numbers.*, not None"),
    (lambda t: t.joint(3.5), "must be one or several names or numbers.*, not 3.5"),
    (lambda t: t.map(None), "must be one or several names or numbers.*, not None"),
    (lambda t: t.conditional("lung", None), "given must be one or several"),
    (lambda t: t.entropy(None), "must be one or several names or numbers.*, not None"),
    (lambda t: t.mutual_information("lung", 2.5), "must be one or several names or numbers.*, not 2.5"),
    (lambda t: t.posteriors(targets=5.5), "targets must be one or several names"),
    (lambda t: t.posteriors(targets=[None]), "by name"),
    (lambda t: t.session().posteriors(targets=5.5), "targets must be one or several names"),
    (lambda t: t.posteriors_batch({"xray": ["yes"]}, targets=5.5), "targets must be one or several names"),
    (lambda t: t.ask(5), r"'P\(lung \| xray=yes\)', not the int 5"),
    (lambda t: t.posteriors_batch(None), "must be a data frame .* got NoneType"),
    (lambda t: t.impute("xray=yes"), "got str"),
    (lambda t: t.mpe_batch([1, 2]), "got a list of int"),
    (lambda t: t.mpe_batch([[1, 2], [1]]), "got a list of list"),
    (lambda t: t.log_likelihood([{"xray": "yes"}, 3]), "row 1 must be a mapping"),
    (lambda t: t.log_likelihood({"xray": "yes"}), "one for each case, not 'yes'; for a single case, use posteriors"),
    (lambda t: t.log_likelihood({"xray": 1}), "one for each case, not 1"),
    (lambda t: t.log_likelihood({"xray": [["yes"]]}), r"column 'xray': .*\['yes'\]"),
    (lambda t: t.log_likelihood({"xray": np.zeros((2, 2))}), r"shape \(2, 2\), expected one dimension"),
    (lambda t: t.log_likelihood({"xray": np.array(["2026-01-01"], "M8[D]")}), "column 'xray' has dtype"),
    (lambda t: t.log_likelihood({99: ["yes"]}), "no variable number 99"),
    (lambda t: t.log_likelihood(np.zeros((2, 3), int)), r"shape \(2, 3\), expected \(n_cases, 8\)"),
    (lambda t: t.posteriors_batch({"xray": ["yes"]}, likelihood={"lung": "x"}), "array of numbers, got 'x'"),
    (lambda t: t.posteriors_batch({"xray": ["yes"]}, likelihood={"lung": [[1], [1, 2]]}), "array of numbers"),
    (lambda t: t.posteriors_batch({"xray": ["yes"]}, likelihood={"lung": {"yes": 1}}), "no weight for 'no'"),
    (lambda t: t.posteriors_batch({"xray": ["yes"]}, likelihood=5), "likelihood must be a mapping"),
    (lambda t: t.posteriors_batch({"xray": ["yes"]}, soft={"lung": [[1], [1, 2]]}), "array of numbers"),
    (lambda t: t.posteriors_batch({"xray": ["yes"]}, do={"lung": [[1], [1, 2]]}), "array of numbers"),
    (lambda t: t.predict_proba({"xray": ["yes"]}, 5.5), "targets must be one or several names"),
    (lambda t: t.predict_proba({"xray": ["yes"]}, "lung", keep=5.5), "keep must be one or several names"),
]


@pytest.mark.parametrize(("call", "says"), CALLS)
def test_wrong_arguments_are_explained(tree: jtgpu.JunctionTree, call: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(jtgpu.EvidenceError, match=says):
        call(tree)


def test_one_target_needs_no_list(tree: jtgpu.JunctionTree) -> None:
    assert list(tree.posteriors(targets=3)) == list(tree.posteriors(targets="lung")) == ["lung"]
    assert list(tree.posteriors_batch({"xray": ["yes"]}, targets=3)) == ["lung"]
    assert list(tree.posteriors(targets=np.array([3, 3]))) == ["lung"]


def test_a_likelihood_of_all_cases_may_name_the_states(tree: jtgpu.JunctionTree) -> None:
    cases = {"xray": ["yes", None]}
    found = tree.posteriors_batch(cases, likelihood={"dysp": {"no": 0.2, "yes": 0.9}}, targets="lung")
    expected = tree.posteriors_batch(cases, likelihood={"dysp": [0.9, 0.2]}, targets="lung")
    assert (found.flat == expected.flat).all()
    none = tree.posteriors_batch(cases, likelihood={"dysp": {"no": 0, "yes": 0}}, on_error="flag")
    assert none.impossible.all()
