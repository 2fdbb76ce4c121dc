"""Shapley values of findings: by their definition over all orders, and by what must hold of them."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.model.network import BayesianNetwork
from jtgpu.util.options import BackendName
from tests.support import oracle, random_nets
from tests.support.trees import compiled

SEEN = {"xray": "yes", "smoke": "yes", "dysp": "no", "asia": "yes"}


def by_orders(value: Callable[[frozenset[Any]], float], findings: Iterable[Any]) -> dict[Any, float]:
    """The definition: the mean over all orders of what a finding adds to those before it."""
    findings = [*findings]
    total = dict.fromkeys(findings, 0.0)
    orders = [*itertools.permutations(findings)]
    for order in orders:
        for i, f in enumerate(order):
            total[f] += value(frozenset(order[: i + 1])) - value(frozenset(order[:i]))
    return {f: x / len(orders) for f, x in total.items()}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@given(data=st.data())
def test_values_by_their_definition(data: st.DataObject, backend: BackendName) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(most=6), random_nets.markov_networks(most=5)))
    hard, weighed = data.draw(random_nets.evidence_weights(model))
    target = data.draw(st.integers(0, len(model) - 1))
    of: Any = data.draw(st.sampled_from(["probability", "log-odds", "log-evidence"]))
    hard.pop(target, None)
    findings = sorted({*hard, *weighed})[:5]
    hard, weighed = {v: hard[v] for v in findings if v in hard}, {v: weighed[v] for v in findings if v in weighed}
    tree, t = compiled(model, backend), None if of == "log-evidence" else target
    state = data.draw(st.integers(0, len(model.states(target)) - 1))

    def value(some: frozenset[int]) -> float:
        own = {v: s for v, s in hard.items() if v in some}
        weights = random_nets.all_weights(model, own, {v: w for v, w in weighed.items() if v in some})
        if of == "log-evidence":
            return oracle.log_evidence(model, weights)
        p = oracle.posteriors(model, weights)[target]
        rest = float(np.delete(p, state).sum())
        if of == "probability":
            return float(p[state])
        return math.log(p[state]) - math.log(rest) if p[state] > 0 and rest > 0 else math.inf

    def ask() -> Any:
        return tree.contributions(t, hard, likelihood=weighed, of=of, state=None if t is None else state)

    if not findings or oracle.log_evidence(model, random_nets.all_weights(model, hard, weighed)) == -math.inf:
        with pytest.raises((errors.EvidenceError, errors.ImpossibleEvidence)):
            ask()
        return
    subsets = [frozenset(c) for k in range(len(findings) + 1) for c in itertools.combinations(findings, k)]
    if any(math.isinf(value(s)) for s in subsets):
        with pytest.raises(errors.EvidenceError, match="infinite"):
            ask()
        return
    why, expected = ask(), by_orders(value, findings)
    assert set(why) == {model.variables[v] for v in findings}
    for v, x in expected.items():
        assert why[model.variables[v]] == pytest.approx(x, abs=1e-9)
    assert why.base + sum(why.values()) == pytest.approx(why.total, abs=1e-12 * max(1.0, abs(why.total)))
    assert why.error == 0.0
    for a, b in itertools.combinations(findings, 2):
        others = [v for v in findings if v not in (a, b)]
        weights = [1 / (len(others) + 1) / math.comb(len(others), k) for k in range(len(others) + 1)]
        both = sum(
            weights[k] * (value(s | {a, b}) - value(s | {a}) - value(s | {b}) + value(s))
            for k in range(len(others) + 1) for s in map(frozenset, itertools.combinations(others, k))
        )  # fmt: skip
        names = model.variables[a], model.variables[b]
        assert why.pairs[names] == why.pairs[names[::-1]] == pytest.approx(both, abs=1e-9)


def test_asia_by_definition_and_null_findings(asia: jtgpu.JunctionTree) -> None:
    def p(some: frozenset[str]) -> float:
        return asia.posterior("lung", {v: SEEN[v] for v in some})["yes"]

    why = asia.contributions("lung", SEEN)
    assert dict(why) == pytest.approx(by_orders(p, SEEN), abs=1e-12)
    assert [abs(x) for x in why.values()] == sorted(map(abs, why.values()), reverse=True)
    assert (why.of, why.target, why.state, str(why.explained)) == ("probability", "lung", "yes", "P(lung = yes)")
    alone = asia.contributions("tub", {"smoke": "yes", "bronc": "no", "asia": "yes"})
    assert alone["smoke"] == alone["bronc"] == 0.0  # no subset connects them with tub
    assert alone["asia"] == pytest.approx(alone.total - alone.base, abs=1e-15)
    assert alone.pairs["asia", "smoke"] == 0.0


def test_log_odds_of_naive_bayes_are_likelihood_ratios() -> None:
    rng = np.random.default_rng(5)
    n = 17
    cpts: dict[str, Any] = {f"x{i}": rng.dirichlet([1, 1, 1], 2) for i in range(n)}
    states = {"c": ["no", "yes"]} | {v: ["0", "1", "2"] for v in cpts}
    net = BayesianNetwork(states, {v: ["c"] for v in cpts}, cpts | {"c": [0.7, 0.3]})
    evidence = {v: str(i % 3) for i, v in enumerate(cpts)}
    ratios = {v: math.log(cpts[v][1, i % 3] / cpts[v][0, i % 3]) for i, v in enumerate(cpts)}
    tree = net.compile("cpu")
    exact = tree.contributions("c", evidence, of="log-odds", max_exact=n)
    assert dict(exact) == pytest.approx(ratios, abs=1e-11)
    assert max(map(abs, exact.pairs.values())) < 1e-11
    estimated = tree.contributions("c", evidence, of="log-odds", permutations=20)  # more than 16: no subsets left out
    assert dict(estimated) == pytest.approx(ratios, abs=1e-11)


def test_estimates_are_near_seeded_and_sum(asia: jtgpu.JunctionTree) -> None:
    exact = asia.contributions("lung", SEEN)
    found = asia.contributions("lung", SEEN, max_exact=2, permutations=400, seed=3)
    again = asia.contributions("lung", SEEN, max_exact=2, permutations=400, seed=3)
    assert found == again != asia.contributions("lung", SEEN, max_exact=2, permutations=400, seed=4)
    assert found.base + sum(found.values()) == pytest.approx(found.total, abs=1e-12)
    assert 0 < found.error < 0.02
    for v, x in exact.items():
        assert abs(found[v] - x) <= 5 * found.errors[v] + 1e-12
    assert "standard error" in str(found)
    assert "error" in found.to_frame("pyarrow").column_names
    with pytest.raises(errors.ArgumentError, match="max_exact"):
        _ = found.pairs


def test_symmetric_findings_contribute_the_same() -> None:
    table = [[0.9, 0.1], [0.2, 0.8]]
    net = jtgpu.network("c->a; c->b", "{no|yes}", cpts={"c": [0.6, 0.4], "a": table, "b": table})
    why = net.compile("cpu").contributions("c", {"a": "yes", "b": "yes"})
    assert why["a"] == pytest.approx(why["b"], abs=1e-15)


def test_tiny_probabilities() -> None:
    tiny = 1e-200
    net = BayesianNetwork(
        {"c": ["no", "yes"], "a": ["no", "yes"], "b": ["no", "yes"]}, {"a": ["c"], "b": ["c"]},
        {"c": [0.5, 0.5], "a": [[1 - tiny, tiny], [0.5, 0.5]], "b": [[0.5, 0.5], [1 - tiny, tiny]]},
    )  # fmt: skip
    why = net.compile("cpu").contributions("c", {"a": "yes", "b": "yes"}, of="log-odds")
    assert dict(why) == pytest.approx({"a": math.log(0.5 / tiny), "b": math.log(tiny / 0.5)}, rel=1e-12)
    assert why.total == pytest.approx(0.0, abs=1e-9)


def test_interventions_hold_in_every_subset(asia: jtgpu.JunctionTree) -> None:
    known = {"xray": "yes", "dysp": "yes"}
    why = asia.contributions("lung", known, do={"smoke": "no", "bronc": [0.5, 0.5]})
    assert set(why) == set(known)

    def p(some: frozenset[str]) -> float:
        return asia.posterior("lung", {v: known[v] for v in some}, do={"smoke": "no", "bronc": [0.5, 0.5]})["yes"]

    assert dict(why) == pytest.approx(by_orders(p, known), abs=1e-12)
    # the arc from smoke to lung is cut: smoking, though observed, says nothing of lung
    assert asia.contributions("smoke", {"xray": "yes"}, do={"lung": "yes"})["xray"] == 0.0


def test_tables_have_the_values_of_single_cases(asia: jtgpu.JunctionTree) -> None:
    cases: list[dict[str, Any]] = [
        {"xray": "yes", "smoke": "yes", "dysp": None, "lung": "yes"}, {"xray": "no", "smoke": None, "dysp": "yes"},
        {"xray": None, "smoke": None, "dysp": None}, {"xray": "yes", "smoke": "no", "dysp": None},
    ]  # fmt: skip
    weights = np.array([[0.5, 0.9], [1.0, 1.0], [0.1, 0.3], [0.3, 0.2]])
    found = asia.contributions_batch(cases, "lung", likelihood={"bronc": weights}, of="log-odds")
    for i, case in enumerate(cases):
        seen = {v: s for v, s in case.items() if s is not None and v != "lung"}
        why = asia.contributions("lung", seen, likelihood={"bronc": weights[i]}, of="log-odds")
        assert {v: found[v][i] for v in found} == pytest.approx(dict.fromkeys(found, 0.0) | dict(why), abs=1e-12)
        assert (found.base[i], found.total[i]) == pytest.approx((why.base, why.total), abs=1e-12)
    frame = found.to_frame("pyarrow")
    assert frame.column_names == ["base", "smoke", "bronc", "xray", "dysp", "total"]
    impossible = {"either": ["no", "yes"], "tub": ["yes", "yes"]}
    with pytest.raises(errors.ImpossibleEvidence, match="row 0"):
        asia.contributions_batch(impossible, "smoke")
    flagged = asia.contributions_batch(impossible, "smoke", on_error="flag")
    assert flagged.impossible.tolist() == [True, False]
    assert flagged.total[0] == 0.0 < flagged.total[1]
    assert len(asia.contributions_batch({"xray": []}, "lung").total) == 0


def test_mixed_and_decision_networks() -> None:
    net = jtgpu.MixedNetwork(
        {"a": ["x", "y"], "b": ["no", "yes"], "u": float, "v": float}, {"b": ["a"], "u": ["a"], "v": ["u", "b"]},
        {"a": [0.4, 0.6], "b": [[0.9, 0.1], [0.3, 0.7]], "u": jtgpu.Gaussian([0.0, 2.0], sd=1.0),
         "v": jtgpu.Gaussian([0.0, 1.0], {"u": [0.5, 0.5]}, sd=1.0)},
    )  # fmt: skip
    tree = net.compile("cpu")
    seen: dict[str, Any] = {"u": 1.5, "v": 2.0, "b": "yes"}
    weights = {"a": [0.3, 0.9]}

    def p(some: frozenset[str]) -> float:
        kept = {"likelihood": weights} if "a" in some else {}
        return float(tree.posterior("a", {v: seen[v] for v in some if v in seen}, **kept)["y"])

    why = tree.contributions("a", seen, state="y", likelihood=weights)
    assert dict(why) == pytest.approx(by_orders(p, [*seen, "a"]), abs=1e-12)
    mean = tree.contributions("u", {"v": 2.0, "b": "yes"})
    assert mean.of == "mean"
    assert mean.base == pytest.approx(1.2)
    assert "mean of u" in str(mean)
    assert mean.base + sum(mean.values()) == pytest.approx(tree.posterior("u", {"v": 2.0, "b": "yes"}).mean)
    densities = tree.contributions(None, {"v": 2.0, "b": "yes"}, of="log-evidence")
    assert densities.total == pytest.approx(tree.log_evidence({"v": 2.0, "b": "yes"}))
    for wrong in ({"u": (0.0, 1.0)}, {}, {"a": "x"}):
        with pytest.raises(errors.EvidenceError):
            tree.contributions("a", wrong)
    with pytest.raises(errors.ArgumentError, match="'mean' or 'log-evidence'"):
        tree.contributions("u", seen, of="probability")
    with pytest.raises(errors.ArgumentError, match="of='mean' takes no state"):
        tree.contributions("u", {"b": "yes"}, state="y")

    decisions = jtgpu.DecisionNetwork(
        {"ill": ["yes", "no"], "test": ["positive", "negative"], "treat": ["yes", "no"]},
        {"test": ["ill"], "treat": ["test"], "worth": ["ill", "treat"]},
        {"ill": [0.1, 0.9], "test": [[0.9, 0.1], [0.2, 0.8]]}, decisions=["treat"],
        utilities={"worth": [[-10.0, -100.0], [-20.0, 0.0]]},
    )  # fmt: skip
    why = decisions.compile().contributions("ill", {"test": "positive", "treat": "no"})
    assert [*why] == ["test"]
    with pytest.raises(errors.ArgumentError, match=r"under\(policy\).contributions\(\) takes do="):
        decisions.compile().contributions("ill", {"test": "positive"}, do={"treat": "no"})
    assert why.total == pytest.approx(0.09 / 0.27)


def test_pictures_frames_and_pickles(asia: jtgpu.JunctionTree) -> None:
    why = asia.contributions("lung", SEEN, likelihood={"bronc": [0.2, 0.7]})
    assert why.findings["bronc"] == "likelihood"
    assert asia.contributions("lung", {"xray": ["yes", "no"]}).findings["xray"] == "yes or no"
    picture = str(why.draw())
    assert picture in why._repr_html_()
    assert all(v in picture for v in why)
    assert why.to_frame("pyarrow").column_names == ["variable", "finding", "contribution"]
    assert pickle.loads(pickle.dumps(why)) == why
    many = jtgpu.load("alarm").compile("cpu")
    evidence = {v: many.model.states(v)[0] for v in many.model.variables[:2]}
    evidence.pop("CVP", None)
    assert "P(CVP = " in str(many.contributions("CVP", evidence))  # of three states the most probable one


@pytest.mark.parametrize(("arguments", "error", "match"), [
    ({"target": "lun", "evidence": SEEN}, errors.UnknownVariable, "lung"),
    ({"target": "lung"}, errors.EvidenceError, "at least one"),
    ({"target": "lung", "evidence": {"lung": "yes", "xray": "no"}}, errors.EvidenceError, "leave it out"),
    ({"evidence": SEEN}, errors.ArgumentError, "needs a target"),
    ({"target": "lung", "evidence": SEEN, "of": "log-evidence"}, errors.ArgumentError, "no target"),
    ({"evidence": SEEN, "of": "log-evidence", "state": "yes"}, errors.ArgumentError, "no state"),
    ({"target": "lung", "evidence": SEEN, "of": "odds"}, errors.ArgumentError, "log-odds"),
    ({"target": "lung", "evidence": SEEN, "state": "perhaps"}, errors.UnknownState, "perhaps"),
    ({"target": "either", "evidence": {"lung": "yes"}, "of": "log-odds"}, errors.EvidenceError, "infinite"),
    ({"target": "smoke", "evidence": {"lung": "yes", "either": "no"}}, errors.ImpossibleEvidence, "either"),
    ({"target": "lung", "evidence": SEEN, "max_exact": 25}, errors.ArgumentError, "at most 24"),
    ({"target": "lung", "evidence": SEEN, "permutations": 1}, errors.ArgumentError, "at least 2"),
])  # fmt: skip
def test_wrong_arguments(asia: jtgpu.JunctionTree, arguments: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        asia.contributions(**arguments)


def test_tables_need_a_state_of_more_than_two() -> None:
    with pytest.raises(errors.EvidenceError, match="name a state of 'CVP'"):
        jtgpu.load("alarm").compile("cpu").contributions_batch({"HR": ["LOW"]}, "CVP")
