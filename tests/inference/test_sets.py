"""Likelihoods and joint posteriors of several variables: as those of an auxiliary child with that row of its CPT."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import EvidenceError, ImpossibleEvidence, PlanError
from jtgpu.util.options import BackendName
from tests.support import oracle
from tests.support.bundled import bundled
from tests.support.examples import some

BACKENDS: list[BackendName] = ["reference", "cpu"]
PAIR = ("lung", "bronc")
WEIGHTS = np.array([[1, 0.5], [0.2, 0.1]])


class Case:
    """A random network, sets, weights of these, and rows of states."""

    def __init__(self, seed: int, rows: int):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 7))
        names = [f"v{i}" for i in range(n)]
        self.cards = {v: int(rng.choice([1, 2, 2, 3, 3, 4])) for v in names}
        states = {v: [f"s{k}" for k in range(c)] for v, c in self.cards.items()}
        parents = {v: [str(p) for p in rng.choice(names[:i], min(i, int(rng.integers(0, 3))), replace=False)]
                   for i, v in enumerate(names)}  # fmt: skip
        cpts = {}
        for v in names:
            shape = [*(self.cards[p] for p in parents[v]), self.cards[v]]
            table = rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
            table[rng.random(table.shape) < 0.1] = 0.0
            table[table.sum(axis=-1) == 0] = 1.0
            cpts[v] = table / table.sum(axis=-1, keepdims=True)
        self.net = jtgpu.BayesianNetwork(states, parents, cpts).with_codes("index")
        self.parents, self.cpts, self.states = parents, cpts, states
        self.sets: list[tuple[str, ...]] = []
        for _ in range(int(rng.integers(1, 3))):
            one = tuple(str(v) for v in rng.choice(names, int(rng.integers(1, min(n, 3) + 1)), replace=False))
            if not any(set(one) == set(other) for other in self.sets):
                self.sets.append(one)
        scale = 10.0 ** rng.integers(-140, 140) if seed % 5 == 0 else 1.0
        self.likelihood = {s: rng.random((rows, *(self.cards[v] for v in s))) * scale for s in self.sets}
        for w in self.likelihood.values():
            w[rng.random(w.shape) < 0.2] = 0.0
        self.rows = np.array([[rng.integers(0, self.cards[v]) if rng.random() < 0.3 else -1 for v in names]
                              for _ in range(rows)], np.int32)  # fmt: skip
        self.single = {names[0]: rng.random((rows, self.cards[names[0]]))} if seed % 3 == 0 else {}

    def row(self, i: int) -> dict[Any, Any]:
        """The likelihoods of one row."""
        both: dict[Any, Any] = {**self.likelihood, **self.single}
        return {v: w[i] for v, w in both.items()}

    def evidence(self, i: int) -> dict[str, int]:
        """The observations of one row."""
        return {v: int(s) for v, s in zip(self.net, self.rows[i], strict=True) if s >= 0}

    def auxiliary(self, i: int) -> tuple[jtgpu.BayesianNetwork, dict[str, Any], float]:
        """The network with a child for each set, the evidence on it, and ln of what the weights were divided by."""
        states, parents, cpts = dict(self.states), dict(self.parents), dict(self.cpts)
        evidence: dict[str, Any] = self.evidence(i)
        shift = 0.0
        for j, (members, weights) in enumerate(self.likelihood.items()):
            top = float(weights[i].max()) or 1.0
            shift += math.log(top)
            given = weights[i] / top
            states[f"aux{j}"], parents[f"aux{j}"] = ["seen", "not"], [*members]
            cpts[f"aux{j}"] = np.stack([given, 1.0 - given], axis=-1)
            evidence[f"aux{j}"] = "seen"
        return jtgpu.BayesianNetwork(states, parents, cpts).with_codes("index"), evidence, shift


def with_child(case: Case, i: int) -> tuple[jtgpu.Posteriors, dict[tuple[str, ...], Any], jtgpu.Explanation] | None:
    """Posteriors, joint posteriors and the most probable explanation by the auxiliary children; None if impossible."""
    net, evidence, shift = case.auxiliary(i)
    tree = net.compile("reference", order="min-fill")
    more: Any = {"likelihood": {v: w[i] for v, w in case.single.items()}}
    try:
        posteriors = tree.posteriors(evidence, **more)
    except ImpossibleEvidence:
        return None
    posteriors.log_evidence += shift
    joints = {s: tree.joint(s, evidence, **more).probabilities for s in case.sets}
    best = tree.mpe(evidence, **more)
    return posteriors, joints, best


@pytest.mark.parametrize("part", some(10, 1))
def test_as_an_auxiliary_child(part: int) -> None:
    """300 random networks in ten parts: single cases, tables, explanations, on the reference and the CPU."""
    for seed in range(30 * part, 30 * part + 30):
        rows = [1, 3, 10][seed % 3]
        case = Case(seed, rows)
        exact = [with_child(case, i) for i in range(rows)]
        for backend in BACKENDS:
            plan = case.net.plan("min-fill", together=case.sets, lowering=("pairwise", "clique", "shallow")[seed % 3])
            plan.check()
            with plan.compile(backend) as tree:
                both: dict[Any, Any] = {**case.likelihood, **case.single}
                table = tree.posteriors_batch(case.rows, likelihood=both, joints=case.sets, on_error="flag")
                best = tree.mpe_batch(case.rows, likelihood=both, on_error="flag")
                for i, one in enumerate(exact):
                    assert table.impossible[i] == (one is None), (seed, i)
                    if one is None:
                        with pytest.raises(ImpossibleEvidence):
                            tree.posteriors(case.evidence(i), likelihood=case.row(i), joints=case.sets)
                        continue
                    posteriors, joints, explanation = one
                    alone = tree.posteriors(case.evidence(i), likelihood=case.row(i), joints=case.sets)
                    assert alone.log_evidence == pytest.approx(posteriors.log_evidence, rel=1e-12, abs=1e-11)
                    assert table.log_evidence[i] == pytest.approx(posteriors.log_evidence, rel=1e-12, abs=1e-11)
                    for v in case.net:
                        np.testing.assert_allclose(alone[v].probabilities, posteriors[v].probabilities, atol=1e-12)
                        np.testing.assert_allclose(table[v][i], posteriors[v].probabilities, atol=1e-12)
                    for members, joint in joints.items():
                        np.testing.assert_allclose(alone.joint[members].probabilities, joint, atol=1e-12)
                        np.testing.assert_allclose(table.joint[members][i], joint, atol=1e-12)
                    states = {v: int(s) for v, s in zip(case.net, best.states[i], strict=True)}
                    value = tree.log_evidence({**case.evidence(i), **states}, likelihood=case.row(i))
                    assert value == pytest.approx(best.log_joint[i], rel=1e-12, abs=1e-9)
                    _, _, shift = case.auxiliary(i)
                    assert best.log_joint[i] == pytest.approx(explanation.log_joint + shift, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_expected_counts_samples_and_analysis(backend: BackendName) -> None:
    case = Case(7, 12)
    tree = case.net.plan("min-fill", together=case.sets).compile(backend)
    counts = tree.expected_counts(case.rows, likelihood=case.likelihood, on_error="flag")
    exact = {v: np.zeros(case.net.cpt(v).shape) for v in case.net}
    for i in range(len(case.rows)):
        if counts.impossible[i]:
            continue
        net, evidence, _ = case.auxiliary(i)
        other = net.compile("reference").expected_counts([evidence])
        for v in case.net:
            exact[v] += other[v]
    for v in case.net:
        np.testing.assert_allclose(counts[v], exact[v], atol=1e-11)
    possible = int(np.argmin(counts.impossible))
    evidence, likelihood = case.evidence(possible), case.row(possible)
    samples = tree.sample(4000, evidence, likelihood=likelihood, seed=1)
    same = case.net.plan("min-fill", together=case.sets).compile("reference").sample(
        50, evidence, likelihood=likelihood, seed=1
    )
    np.testing.assert_array_equal(samples.states[:50], same.states)
    posteriors = tree.posteriors(evidence, likelihood=likelihood)
    for v in case.net:
        share = np.bincount(samples.states[:, case.net.index(v)], minlength=case.cards[v]) / 4000
        np.testing.assert_allclose(share, posteriors[v].probabilities, atol=0.04)
    net, aux_evidence, shift = case.auxiliary(possible)
    aux = net.compile("reference")
    names = [*case.net]
    for how in ("cases", "together"):
        found = tree.joint(names[:2], evidence, likelihood=likelihood, how=how)
        np.testing.assert_allclose(found.probabilities, aux.joint(names[:2], aux_evidence).probabilities, atol=1e-12)
        assert found.log_evidence == pytest.approx(aux.log_evidence(aux_evidence) + shift, abs=1e-11)
    free = [v for v in names if v not in evidence][:2]
    assert tree.entropy(free, evidence, likelihood=likelihood) == pytest.approx(aux.entropy(free, aux_evidence))
    found_map = tree.map(free[:1], evidence, likelihood=likelihood)
    assert found_map.log_joint == pytest.approx(aux.map(free[:1], aux_evidence).log_joint + shift, abs=1e-9)


def test_analysis_as_with_an_auxiliary_child() -> None:
    net = bundled("asia")
    tree = net.compile("cpu", together=[PAIR])
    states = {v: [*net.states(v)] for v in net} | {"aux": ["seen", "not"]}
    parents = {v: [net.variables[u] for u in net.factors[net.index(v)].scope[:-1]] for v in net} | {"aux": [*PAIR]}
    cpts = {v: np.asarray(net.cpt(v)) for v in net} | {"aux": np.stack([WEIGHTS, 1 - WEIGHTS], axis=-1)}
    other = jtgpu.BayesianNetwork(states, parents, cpts).compile("cpu")
    evidence, seen = {"xray": "yes"}, {"xray": "yes", "aux": "seen"}
    given: Any = {"likelihood": {PAIR: WEIGHTS}}
    found, same = tree.sensitivity(("lung", "yes"), evidence, **given), other.sensitivity(("lung", "yes"), seen)
    expected = {str(p)[:60]: p.derivative for p in same.top(1000) if "aux" not in str(p)}
    assert {str(p)[:60]: pytest.approx(p.derivative, abs=1e-12) for p in found.top(1000)} == expected
    plain = net.compile("cpu").sensitivity(("lung", "yes"), evidence).top(1000)
    assert [str(p) for p in tree.sensitivity(("lung", "yes"), evidence).top(1000)] == [str(p) for p in plain]
    shared = dict(other.mutual_information("lung", evidence=seen))
    for v, value in tree.mutual_information("lung", evidence=evidence, **given).items():
        assert value == pytest.approx(shared[v], abs=1e-12)
    table = tree.conditional("lung", ["smoke"], evidence, **given).probabilities
    np.testing.assert_allclose(table, other.conditional("lung", ["smoke"], seen).probabilities, atol=1e-13)
    factors = [(f.scope, f.table) for f in net.factors]
    markov = jtgpu.MarkovNetwork({v: net.states(v) for v in net}, factors).compile("cpu", together=[PAIR])
    assert markov.log_evidence(evidence, **given) == pytest.approx(other.log_evidence(seen), abs=1e-12)
    assert markov.mpe(evidence, **given).log_joint == pytest.approx(other.mpe(seen).log_joint, abs=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_set_that_the_plan_does_not_have(backend: BackendName) -> None:
    """Single cases plan again, once; tables say what to do."""
    net = bundled("asia")
    tree, planned = net.compile(backend), net.compile(backend, together=[PAIR])
    for likelihood in ({PAIR: WEIGHTS}, {PAIR[::-1]: WEIGHTS.T}):
        found = tree.posterior("xray", {"dysp": "yes"}, likelihood=likelihood)
        same = planned.posterior("xray", {"dysp": "yes"}, likelihood=likelihood)
        np.testing.assert_allclose(found.probabilities, same.probabilities, atol=1e-15)
    joint = tree.posteriors({"dysp": "yes"}, joints=[("xray", "smoke", "asia")], targets=["lung"]).joint
    expected = tree.joint(["smoke", "asia", "xray"], {"dysp": "yes"}).probabilities
    np.testing.assert_allclose(np.asarray(joint["smoke", "asia", "xray"]), expected, atol=1e-14)
    assert list(joint) == [("xray", "smoke", "asia")]
    with pytest.raises(KeyError, match="joints="):
        joint["lung", "asia"]
    for query in ({"likelihood": {PAIR: WEIGHTS}}, {"joints": [PAIR]}):
        with pytest.raises(EvidenceError, match=r"together=\[\('lung', 'bronc'\)\]"):
            tree.posteriors_batch({"dysp": ["yes", "no"]}, **query)
    asks: list[Callable[[jtgpu.JunctionTree], Any]] = [
        lambda t: t.mpe(likelihood={PAIR: WEIGHTS}).log_joint,
        lambda t: t.map(["lung", "asia"], likelihood={PAIR: WEIGHTS}).log_joint,
        lambda t: t.entropy("xray", likelihood={PAIR: WEIGHTS}),
        lambda t: t.mutual_information("xray", likelihood={PAIR: WEIGHTS})["dysp"],
        lambda t: t.value_of_information("xray", likelihood={PAIR: WEIGHTS})[0].gain,
        lambda t: t.conditional("xray", ["dysp"], likelihood={PAIR: WEIGHTS}).probabilities.ravel().tolist(),
        lambda t: t.sensitivity(("xray", "yes"), likelihood={PAIR: WEIGHTS})["smoke"].tolist(),
    ]
    for ask in asks:
        assert ask(tree) == pytest.approx(ask(planned))
    assert tree.map_cost(["lung"], likelihood={PAIR: WEIGHTS}) == planned.map_cost(
        ["lung"], likelihood={PAIR: WEIGHTS}
    )
    assert tree.joint_cost(["lung"], likelihood={PAIR: WEIGHTS}).how == "cases"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_of_a_set(backend: BackendName) -> None:
    """A smaller set uses the factor of a larger one; a likelihood of each multiplies."""
    net = bundled("asia")
    tree = net.compile(backend, together=[("lung", "bronc", "xray")])
    weights = np.random.default_rng(0).random((2, 2, 2))
    table = oracle.joint(net)
    axes = [net.index(v) for v in ("bronc", "lung", "xray")]
    expected = np.moveaxis(table, axes, (0, 1, 2)).sum(axis=tuple(range(3, table.ndim)))
    expected = expected * WEIGHTS.T[:, :, None] * weights
    found = tree.posteriors_batch(
        [{}] * 3, likelihood={PAIR: WEIGHTS, ("bronc", "lung", "xray"): weights},
        joints=[("xray", "lung"), ("bronc", "lung", "xray")], targets=[],
    )  # fmt: skip
    np.testing.assert_allclose(found.joint["bronc", "lung", "xray"][1], expected / expected.sum(), atol=1e-14)
    np.testing.assert_allclose(found.joint["xray", "lung"][2], expected.sum(axis=0).T / expected.sum(), atol=1e-14)
    np.testing.assert_allclose(found.log_evidence, math.log(expected.sum()), atol=1e-13)
    assert len(found) == 0
    names = [f"bronc,lung,xray={','.join(s)}" for s in itertools.product(["yes", "no"], repeat=3)]
    assert [c for c in found.to_frame() if c.startswith("bronc")] == names


def test_interventions_and_soft_evidence() -> None:
    net = bundled("asia")
    tree = net.compile("cpu", together=[PAIR])
    found = tree.posteriors(do={"smoke": "yes"}, likelihood={PAIR: WEIGHTS}, joints=[PAIR])
    cut = net.with_cpts({"smoke": [1.0, 0.0]}) if hasattr(net, "with_cpts") else None
    if cut is not None:
        same = cut.compile("cpu").posteriors(likelihood={PAIR: WEIGHTS}, joints=[PAIR])
        np.testing.assert_allclose(np.asarray(found.joint[PAIR]), np.asarray(same.joint[PAIR]), atol=1e-14)
    soft = tree.posteriors(soft={"xray": [0.7, 0.3]}, likelihood={PAIR: WEIGHTS}, joints=[PAIR])
    np.testing.assert_allclose(np.asarray(soft["xray"]), [0.7, 0.3], atol=1e-12)
    rows = tree.posteriors_batch(
        [{}, {"dysp": "yes"}], soft={"xray": [0.7, 0.3]}, likelihood={PAIR: WEIGHTS}, joints=[PAIR]
    )
    np.testing.assert_allclose(rows.joint[PAIR][0], np.asarray(soft.joint[PAIR]), atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_derivatives_are_joints_over_weights(backend: BackendName) -> None:
    net = bundled("asia")
    tree = net.compile(backend, together=[PAIR])
    cases = [{"dysp": "yes"}, {"xray": "no", "bronc": "yes"}]
    weights = np.random.default_rng(3).random((2, 2, 2)) + 0.1
    weights[0, 0, 1] = 0.0
    function = tree.evidence_function(cases)
    gradient = function.gradient(likelihood={PAIR: weights}, variables=[]).likelihood[PAIR]
    joint = tree.posteriors_batch(cases, likelihood={PAIR: weights}, joints=[PAIR]).joint[PAIR]
    np.testing.assert_allclose(gradient * weights, joint, atol=1e-12)
    for index in np.ndindex(weights.shape):
        step = 1e-6
        up, down = weights.copy(), weights.copy()
        up[index] += step
        down[index] = max(float(down[index]) - step, 0.0)
        values = [function.log_evidence(likelihood={PAIR: w}).sum() for w in (up, down)]
        numeric = (values[0] - values[1]) / (up[index] - down[index])
        assert gradient[index] == pytest.approx(numeric, rel=1e-5, abs=1e-6)


def test_same_bits_for_any_threads_and_order_of_rows() -> None:
    net = bundled("asia")
    rng = np.random.default_rng(5)
    states = np.where(rng.random((500, 8)) < 0.3, rng.integers(0, 2, (500, 8)), -1).astype(np.int32)
    weights = rng.random((500, 2, 2))
    plan = net.plan("min-fill", together=[PAIR])
    found = [
        plan.compile("cpu", threads=t).posteriors_batch(states, likelihood={PAIR: weights}, joints=[PAIR],
                                                        on_error="flag")
        for t in (1, 2, 5)
    ]  # fmt: skip
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].joint[PAIR], other.joint[PAIR])
        np.testing.assert_array_equal(found[0].flat, other.flat)
        np.testing.assert_array_equal(found[0].log_evidence, other.log_evidence)
    counts = [
        plan.compile("cpu", threads=t).expected_counts(states, likelihood={PAIR: weights}, on_error="flag")
        for t in (1, 3)
    ]
    for v in net:
        np.testing.assert_array_equal(counts[0][v], counts[1][v])


def test_plans_with_sets() -> None:
    net = bundled("asia")
    plan, plain = net.plan("min-fill", together=[PAIR]), net.plan("min-fill")
    assert plan.cost().table_entries > plain.cost().table_entries
    assert any(set(PAIR) <= set(clique) for clique in plan.cliques)
    again = type(plan.plan).from_bytes(plan.plan.to_bytes())
    assert again == plan.plan
    assert again.sets == plan.plan.sets
    bare = plan.plan.without_sets()
    bare.check()
    assert bare.sets == ()
    with pytest.raises(PlanError):
        type(plan)(bundled("cancer"), plan.plan).check()


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        ({PAIR: [1.0, 2.0]}, r"shape \(2,\), expected \(2, 2\)"),
        ({PAIR: [[1.0, -1.0], [1.0, 1.0]]}, ">= 0"),
        ({PAIR: [[1.0, np.nan], [1.0, 1.0]]}, "finite"),
        ({PAIR: [[0.0, 0.0], [0.0, 0.0]]}, "zero in every configuration"),
        ({("lung", "lung"): WEIGHTS}, "twice"),
        ({("lung", "nose"): WEIGHTS}, "nose"),
        ({(): 1.0}, "without variables"),
        ({PAIR: "text"}, "text"),
    ],
)
def test_wrong_likelihoods(likelihood: Any, message: str) -> None:
    tree = bundled("asia").compile("cpu", together=[PAIR])
    with pytest.raises(jtgpu.JtgpuError, match=message):
        tree.posterior("xray", likelihood=likelihood)


def test_queries_that_take_single_variables_only() -> None:
    tree = bundled("asia").compile("cpu", together=[PAIR])
    with pytest.raises(EvidenceError, match="single variables"):
        tree.conflict({"dysp": "yes"}, likelihood={PAIR: WEIGHTS})
    with pytest.raises(EvidenceError, match="list of sets"):
        tree.posteriors(joints="lung")
    sliced = bundled("asia").plan(slices=["smoke"]).compile("cpu")
    with pytest.raises(EvidenceError, match="slices"):
        sliced.posterior("xray", likelihood={PAIR: WEIGHTS})
    with pytest.raises(ImpossibleEvidence, match="likelihood of"):
        tree.posterior("dysp", {"lung": "yes"}, likelihood={PAIR: [[0, 0], [1, 1]]})


def test_columns_of_a_frame() -> None:
    pandas = pytest.importorskip("pandas")
    tree = bundled("asia").compile("cpu", together=[PAIR])
    frame = pandas.DataFrame({"dysp": ["yes", "no", "yes", "yes"], "xray": ["no", "no", None, None]})
    found = tree.predict_proba(frame, targets=["smoke"], joints=[("bronc", "lung"), PAIR], log_evidence=True)
    expected = tree.posteriors_batch(frame, joints=[PAIR])
    columns = [f"lung,bronc={a},{b}" for a in ("yes", "no") for b in ("yes", "no")]
    turned = [c.replace("lung,bronc", "bronc,lung") for c in columns]
    assert list(found) == ["smoke=yes", "smoke=no", *turned, *columns, "log_evidence"]
    np.testing.assert_allclose(found[columns].to_numpy().reshape(-1, 2, 2), expected.joint[PAIR], atol=1e-14)
    np.testing.assert_allclose(found["bronc,lung=yes,no"], expected.joint[PAIR][:, 1, 0], atol=1e-14)
    assert list(tree.predict_proba(frame.assign(lung="yes"), targets=["smoke"], joints=[PAIR]))[2:] == columns
    with pytest.raises(EvidenceError, match="together="):
        bundled("asia").compile("cpu").predict_proba(frame, joints=[PAIR])
    with pytest.raises(EvidenceError, match="predict_proba"):
        tree.predict(frame, joints=[PAIR])
