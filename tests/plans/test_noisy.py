"""Networks with kept strengths: questions by chains of effects against enumeration, and with hundreds of parents."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import BayesianNetwork, NoisyMax, NoisyOr, TableTooLarge
from tests.support.diagnosis import Recursion, case, diagnosis

LABELS = ["no", "yes"]


def diseases(n: int, findings: dict[str, list[int]], seed: int = 0) -> tuple[BayesianNetwork, dict[str, NoisyOr]]:
    """Causes d0, d1, ... and findings, each with some of them as parents."""
    rng = np.random.default_rng(seed)
    cpts: dict[str, Any] = {f"d{i}": [1 - p, p] for i, p in enumerate(rng.uniform(0.01, 0.3, n))}
    noisy = {
        f: NoisyOr({f"d{i}": float(rng.uniform(0.1, 0.9)) for i in causes}, float(rng.uniform(0.01, 0.05)))
        for f, causes in findings.items()
    }
    parents = {f: [f"d{i}" for i in causes] for f, causes in findings.items()}
    return BayesianNetwork(dict.fromkeys(cpts | noisy, LABELS), parents, {**cpts, **noisy}), noisy


def enumerated(net: BayesianNetwork, noisy: dict[str, NoisyOr], seen: dict[str, str]) -> tuple[float, dict[str, float]]:
    """P(findings), and P(cause | findings) of each cause, by going through all states of the causes."""
    causes = [v for v in net if v not in noisy]
    total, present = 0.0, dict.fromkeys(causes, 0.0)
    for states in itertools.product((0, 1), repeat=len(causes)):
        at = dict(zip(causes, states, strict=True))
        p = math.prod(float(net.cpt(v)[s]) for v, s in at.items())
        for f, state in seen.items():
            node = noisy[f]
            none = (1 - node.leak) * math.prod(
                1 - link for v, link in zip(node.parents or (), node.links, strict=True) if at[v]
            )
            p *= none if state == "no" else 1 - none
        total += p
        for v, s in at.items():
            present[v] += p * s
    return total, {v: p / total for v, p in present.items()}


def test_findings_against_enumeration() -> None:
    net, noisy = diseases(9, {"f": [*range(8)], "g": [*range(1, 9)], "h": [8, 7, 5, 4, 3, 2, 1, 0]})
    with net.compile("reference", max_table=200) as tree:
        assert not tree.whole
        for states in itertools.product(("no", "yes", None), repeat=3):
            seen = {f: s for f, s in zip(noisy, states, strict=True) if s is not None}
            total, present = enumerated(net, noisy, seen)
            answer = tree.posteriors(seen, targets=[*present])
            assert abs(answer.log_evidence - math.log(total)) < 1e-12
            assert max(abs(answer[v]["yes"] - p) for v, p in present.items()) < 1e-12


def test_states_of_several_effects() -> None:
    """All queries, with several states, an observed parent and an intervention, as with tables."""
    rng = np.random.default_rng(3)
    effects = {f"p{i}": np.vstack([[1, 0, 0], rng.dirichlet(np.ones(3), 2)]) for i in range(5)}
    cpts = {p: rng.dirichlet(np.ones(3)) for p in effects}
    states = {**dict.fromkeys(effects, "abc"), "x": "012", "y": "012"}
    net = BayesianNetwork(
        {v: [*s] for v, s in states.items()}, {"x": [*effects], "y": [*effects][::-1]},
        {**cpts, "x": NoisyMax(effects, [0.9, 0.07, 0.03], strongest="last"),
         "y": NoisyMax(effects, strongest="last")},
    )  # fmt: skip
    tables = net.expand()
    assert [*net.noisy] == ["x", "y"]
    assert not tables.noisy
    with tables.compile("reference") as whole, net.compile("reference", max_table=200) as tree:
        assert not tree.whole
        for x, y, p in itertools.product((0, 1, 2, {1, 2}, None), (0, 2, None), (1, None)):
            seen = {v: s for v, s in (("x", x), ("y", y), ("p2", p)) if s is not None}
            evidence = {
                v: {*map(states[v].__getitem__, s)} if isinstance(s, set) else states[v][s] for v, s in seen.items()
            }
            one, two = whole.posteriors(evidence), tree.posteriors(evidence)
            assert abs(one.log_evidence - two.log_evidence) < 1e-12
            assert max(np.abs(np.asarray(one[v]) - np.asarray(two[v])).max() for v in net) < 1e-12
            assert abs(whole.mpe(evidence).log_joint - tree.mpe(evidence).log_joint) < 1e-12
            joint = np.asarray(whole.joint(["p0", "p3"], evidence)) - np.asarray(tree.joint(["p0", "p3"], evidence))
            assert np.abs(joint).max() < 1e-12
        one, two = (t.posteriors({"y": "2"}, do={"x": "1"}) for t in (whole, tree))
        assert max(np.abs(np.asarray(one[v]) - np.asarray(two[v])).max() for v in net) < 1e-12
        assert len(tree.sample(20, {"y": "2"}, seed=0)) == len(net)


def test_hundreds_of_parents() -> None:
    """A child of 300 causes, absent and present: by the products and by their complement."""
    net, noisy = diseases(300, {"f": [*range(300)], "g": [5, 4, 3]}, seed=1)
    none = (1 - noisy["f"].leak) * math.prod(
        1 - link * float(net.cpt(v)[1]) for v, link in zip(noisy["f"].parents or (), noisy["f"].links, strict=True)
    )
    with net.compile("reference") as tree:
        assert abs(tree.log_evidence({"f": "no"}) - math.log(none)) < 1e-11
        assert abs(tree.posterior("f")["no"] - none) < 1e-12
        assert abs(math.exp(tree.log_evidence({"f": "yes"})) - (1 - none)) < 1e-12
        with pytest.raises(TableTooLarge, match="a most probable configuration needs the table of a noisy variable"):
            tree.mpe({"f": "yes"})
    with pytest.raises(TableTooLarge, match="variable 'f': a noisy child has 300 parents"):
        net.cpt("f")
    with pytest.raises(TableTooLarge, match="the table of 'f' would have"):
        net.expand()
    assert net.replace(rename={"d0": "flu"}).noisy["f"].shape == net.noisy["f"].shape
    assert net.replace(name="other") == net


def test_strengths_of_other_parents() -> None:
    net = jtgpu.network("a->c<-b", "{no|yes}")
    assert net.replace(cpt={"c": NoisyOr({"b": 0.5, "a": 0.25})}).cpt("c")[1, 0, 1] == 0.25
    with pytest.raises(jtgpu.NetworkError, match="the strengths of 'c' are those of 'a', 'x'"):
        net.replace(cpt={"c": NoisyOr({"a": 0.5, "x": 0.25})})


@pytest.fixture(scope="module")
def qmr() -> BayesianNetwork:
    return diagnosis()


@pytest.mark.parametrize(("present", "n_active"), [(8, 0), (12, 0), (12, 1), (16, 2)])
def test_diagnosis_against_positive_recursion(qmr: BayesianNetwork, present: int, n_active: int) -> None:
    """600 causes, 4,000 findings: P(e) to 1e-11, and the posteriors of causes."""
    findings = case(qmr, present, 100, seed=present, n_active=n_active)
    oracle = Recursion(qmr, findings)
    total = oracle.probability()
    with qmr.compile() as tree:
        answer = tree.posteriors(findings, targets=[*oracle.priors])
        assert abs(answer.log_evidence - math.log(total)) < 1e-11
        likely = sorted(oracle.priors, key=lambda v: -answer[v]["yes"])
        for v in [*likely[:6], *likely[-2:], *likely[100:102]]:
            expected = oracle.probability({v: 1}) / total
            assert abs(answer[v]["yes"] - expected) < 1e-11 * expected
        again = tree.posteriors({**findings}, targets=[*likely[:3]])
        assert all(abs(again[v]["yes"] - answer[v]["yes"]) < 1e-12 for v in likely[:3])


def test_parents_of_one_chain_are_absorbed() -> None:
    """Effects of parents that one finding alone has are summed at once, with states, weights and zeros as by tables."""
    rng = np.random.default_rng(5)
    for seed in range(10):
        effects = {f"p{i}": np.vstack([[1, 0, 0], rng.dirichlet(np.ones(3), 2)]) for i in range(4)}
        effects["p1"][2] = [0, 0.25, 0.75]
        more = {f"p{i}": effects[f"p{i}"] for i in (1, 3)} | {"q": np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]])}
        cpts = {p: rng.dirichlet(np.ones(3)) for p in [*effects, "q"]}
        cpts["q"] = np.array([0.5, 0.0, 0.5]) if seed % 2 else cpts["q"]
        net = BayesianNetwork(
            {v: [*"abc"] for v in [*cpts, "x", "y"]}, {"x": [*effects], "y": [*more]},
            {**cpts, "x": NoisyMax(effects, [0.9, 0.1, 0.0] if seed % 3 else None, strongest="last"),
             "y": NoisyMax(more, strongest="last")},
        )  # fmt: skip
        with net.expand().compile("reference") as whole, net.compile("cpu", max_table=60) as tree:
            assert not tree.whole
            for x, y in itertools.product(("b", "c", {"b", "c"}, {"a", "b"}, None), ("a", "c", {"a", "c"})):
                evidence: dict[str, Any] = {"y": y} if x is None else {"x": x, "y": y}
                weights = {"p0": {"a": 0.5, "b": 0.25, "c": 1.0}} if seed % 5 == 0 else None
                evidence |= {"p2": "b"} if seed % 5 == 1 else {}
                for targets in (None, ["p0", "p3"], ["q", "x"]):
                    one, two = (t.posteriors(evidence, likelihood=weights, targets=targets) for t in (whole, tree))
                    assert abs(one.log_evidence - two.log_evidence) < 1e-12
                    assert max(np.abs(np.asarray(one[v]) - np.asarray(two[v])).max() for v in targets or net) < 1e-12


def test_what_is_too_large_is_refused_early() -> None:
    """No search without a hope; the error has the first row of a table that is too large."""
    rng = np.random.default_rng(0)
    findings = {f"f{i}": sorted(rng.choice(80, 20, replace=False).tolist()) for i in range(60)}
    net, _ = diseases(80, findings, seed=2)
    few, many = {"f0": "yes"}, dict.fromkeys(findings, "yes")
    with net.compile("cpu") as tree:
        with pytest.raises(TableTooLarge, match="none of its causes is certain, so that a search"):
            tree.log_evidence(many)
        less = {f: s for f, s in many.items() if f != "f59"}
        rows = [few, many, less, few, many]
        table = {f: [row.get(f) for row in rows] for f in findings}
        for order, first in (([0, 1, 2, 3, 4], 1), ([0, 2, 1, 3, 4], 1), ([3, 0, 4, 2, 1], 2)):
            with pytest.raises(TableTooLarge) as caught:
                tree.posteriors_batch({f: [column[i] for i in order] for f, column in table.items()}, targets=["d0"])
            assert caught.value.row == first


def test_samples_of_what_would_not_fit() -> None:
    """Variables that findings do not depend on are drawn from their CPTs: the tree of all would be too large."""
    rng = np.random.default_rng(0)
    findings = {f"f{i}": sorted(rng.choice(40, 12, replace=False).tolist()) for i in range(60)}
    net, _ = diseases(40, findings, seed=2)
    net = net.add("last", ["0", "1", "2"], ["f0", "d1"], rng.dirichlet(np.ones(3), (2, 2)))
    with net.compile("cpu") as tree:
        assert not tree.whole
        for seen in ({}, {"f0": "yes", "f1": "no"}):
            drawn = tree.sample(4000, seen, seed=1)
            for v in ("d1", "d5", "f2", "f3", "last"):
                expected = np.asarray(tree.posterior(v, seen))
                share = np.array([np.mean(np.asarray(drawn[v]) == s) for s in net.states(v)])
                assert np.abs(share - expected).max() < 5 * 0.5 / np.sqrt(4000), (v, seen)
            assert all({str(s) for s in drawn[v]} == {s} for v, s in seen.items())


@pytest.mark.parametrize("strongest", ["first", "last"])
def test_sensitivities_of_strengths(strongest: str) -> None:
    """Against differences of the posterior."""
    rng = np.random.default_rng(7)
    step = 1 if strongest == "last" else -1
    effects = {p: np.vstack([[1, 0, 0], rng.dirichlet(np.ones(3), 1)])[:, ::step] for p in "abc"}
    cpts: dict[str, Any] = {p: rng.dirichlet(np.ones(2)) for p in "abc"}
    cpts["e"] = NoisyMax(effects, rng.dirichlet([9, 2, 1])[::step], strongest=strongest)
    cpts["f"] = rng.dirichlet(np.ones(2), 3)
    states = {**{p: ["0", "1"] for p in "abc"}, "e": ["u", "v", "w"], "f": ["0", "1"]}
    net = BayesianNetwork(states, {"e": [*"abc"], "f": ["e"]}, cpts)

    def posterior(rows: np.ndarray) -> float:
        other = NoisyMax(dict(zip("abc", rows[:-1].reshape(3, 2, 3), strict=True)), rows[-1], strongest=strongest)
        with net.replace(cpt={"e": other}).compile("reference") as tree:
            return float(tree.posterior("a", {"f": "1"})["1"])

    with net.compile("reference") as tree:
        slopes = tree.sensitivity(("a", "1"), {"f": "1"}).strengths("e")
        rows, h = net.noisy["e"].rows, 1e-6
        for i, row in enumerate(rows):
            for s in range(3) if row.min() > 0 else ():
                moved = [np.array(rows) for _ in range(2)]
                for sign, table in zip((1, -1), moved, strict=True):
                    table[i] *= (1 - row[s] - sign * h) / (1 - row[s])
                    table[i, s] = row[s] + sign * h
                assert abs((posterior(moved[0]) - posterior(moved[1])) / (2 * h) - slopes[i, s]) < 1e-8
        with pytest.raises(jtgpu.ArgumentError, match="'f' has no strengths"):
            tree.sensitivity(("a", "1")).strengths("f")


@pytest.mark.parametrize("known", [0, 399, 400])
def test_effects_far_below_the_range_of_a_double(known: int) -> None:
    """Many strong causes and a mild effect: ln P is -1,025 to -1,689, once "probability 0"."""
    states = {f"d{i}": ["no", "yes"] for i in range(400)} | {"c": ["none", "mild", "severe"]}
    effects: Any = [[1, 0, 0], [1 / 128, 1 / 128, 126 / 128]]
    child = jtgpu.NoisyMax([effects] * 400, [31 / 32, 1 / 64, 1 / 64], strongest="last")
    cpts: dict[str, Any] = {f"d{i}": [1 / 16, 15 / 16] for i in range(400)} | {"c": child}
    net = BayesianNetwork(states, {"c": [f"d{i}" for i in range(400)]}, cpts)
    up_to = [Fraction(1, 16) + Fraction(15, 16) * p for p in (Fraction(1, 128), Fraction(1, 64))]

    def exact(present: int) -> Fraction:
        """P(mild, so many of the causes are present); the others are free."""
        seen = [Fraction(15, 16 * q) ** present * p ** (400 - present) for p, q in zip(up_to, (128, 64), strict=True)]
        return seen[1] * Fraction(63, 64) - seen[0] * Fraction(31, 32)

    p = exact(known)
    evidence = {f"d{i}": "yes" for i in range(known)} | {"c": "mild"}
    with net.compile("cpu") as tree:
        expected = math.log(p.numerator) - math.log(p.denominator)
        assert tree.log_evidence(evidence) == pytest.approx(expected, rel=1e-12)
        if known > 398:
            best = tree.mpe(evidence)
            assert best["d399"] == ("yes" if known == 400 else "no")
            if known == 400:
                assert best.log_joint == pytest.approx(expected, rel=1e-12)
        if known < 400:
            more = float(exact(known + 1) / p)
            assert tree.posterior("d399", evidence)["yes"] == pytest.approx(more, rel=1e-11)


def test_rare_effects_of_known_parents_keep_their_digits() -> None:
    """A difference of products had four of them."""
    rows: Any = [[1, 0], [1 - 1e-12, 1e-12]]
    child = jtgpu.NoisyMax([rows] * 2, strongest="last")
    np.testing.assert_allclose(child.at(np.array([[1, 0, 1], [1, 1, 1]])), [1e-12, 2e-12 - 1e-24], rtol=1e-14)


def test_entries_below_the_range_of_a_double_by_exact_rationals() -> None:
    """Chains of strengths from 1 down to the least number: ln P to the last digits, and -inf for P = 0 alone."""
    rng, far = np.random.default_rng(5), 0
    for i in range(40):
        k, n = int(rng.integers(2, 5)), int(rng.integers(1, 60))
        raw = [rng.random((3, k)) * 2.0 ** rng.integers(-300, 1, (3, k)) * (rng.random((3, k)) < 0.9) for _ in range(n)]
        rows: Any = [x + (x.sum(axis=1, keepdims=True) == 0) for x in raw]
        child = jtgpu.NoisyMax([r / r.sum(axis=1, keepdims=True) for r in rows], strongest=["first", "last"][i % 2])
        states = np.column_stack([rng.integers(0, 3, (20, n)), rng.integers(0, k, 20)]).astype(np.int32)
        exact = []
        for *own, s in states.tolist():
            up_to = [Fraction(1), Fraction(1)]  # P(no stronger than s, and than the state below)
            for rows_of, p in zip(child.ascending, [*own, 0], strict=True):
                ends = [Fraction(x) for x in rows_of[p].tolist()]
                e = abs(s - child.least)
                up_to = [up_to[0] * sum(ends[: e + 1]), up_to[1] * sum(ends[:e])]
            exact.append(up_to[0] - up_to[1])
        found = child.logs_at(states)
        for x, p in zip(found.tolist(), exact, strict=True):
            far += 0 < p < Fraction(5e-324)
            if p:
                assert x == pytest.approx(math.log(p.numerator) - math.log(p.denominator), rel=1e-12, abs=1e-12)
            else:
                assert x == -math.inf
    assert far > 20
