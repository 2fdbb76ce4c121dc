"""Evidence of every kind: soft evidence by Jeffrey's rule, interventions; one case, tables of cases, sessions."""

from __future__ import annotations

import gc
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import jtgpu
from jtgpu import errors
from jtgpu.formats.bundled import benchmark_files
from jtgpu.formats.evidence_files import parse_evidence
from jtgpu.inference import interventions
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.util.options import BackendName
from tests.support import oracle, random_nets
from tests.support.bundled import bundled
from tests.support.examples import slow
from tests.support.trees import compiled

HERE = ("reference", "cpu")


def rain() -> BayesianNetwork:
    """Rain wets the grass, and so does a sprinkler that is used when it does not rain."""
    return BayesianNetwork(
        {"rain": ["no", "yes"], "sprinkler": ["off", "on"], "wet": ["no", "yes"]},
        {"sprinkler": ["rain"], "wet": ["rain", "sprinkler"]},
        {
            "rain": [0.75, 0.25],
            "sprinkler": [[0.5, 0.5], [0.875, 0.125]],
            "wet": [[[1.0, 0.0], [0.25, 0.75]], [[0.125, 0.875], [0.0, 1.0]]],
        },
    ).with_codes("index")


def same(post: jtgpu.Posteriors, table: NDArray[np.float64], tolerance: float = 1e-10) -> None:
    """Every posterior is the marginal of a joint table."""
    for v, name in enumerate(post):
        np.testing.assert_allclose(post[name], oracle.marginal(table, [v]), atol=tolerance)


# Interventions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", HERE)
def test_intervening_is_not_observing(backend: BackendName) -> None:
    tree = compiled(rain(), backend)
    assert tree.posterior("rain", {"sprinkler": "on"})["yes"] < 0.1  # who sees it on thinks of a dry day
    assert tree.posterior("rain", do={"sprinkler": "on"})["yes"] == 0.25  # who turns it on learns nothing
    assert tree.posterior("sprinkler", do={"sprinkler": "on"})["on"] == 1.0
    wet = tree.posterior("wet", do={"sprinkler": "on"})["yes"]
    assert wet == pytest.approx(0.75 * 0.75 + 0.25 * 1.0, abs=1e-15)
    assert tree.log_evidence({"wet": "yes"}, do={"sprinkler": "on"}) == pytest.approx(math.log(wet), abs=1e-14)
    half = tree.posterior("wet", do={"sprinkler": [0.5, 0.5]})["yes"]
    assert half == pytest.approx(0.5 * wet + 0.5 * tree.posterior("wet", do={"sprinkler": "off"})["yes"], abs=1e-15)
    assert tree.posterior("rain")["yes"] == 0.25  # nothing of it stays
    assert tree.posterior("sprinkler")["on"] == pytest.approx(0.40625, abs=1e-15)


@st.composite
def interventions_on(draw: st.DrawFn, net: BayesianNetwork) -> dict[int, Any]:
    """Variables that are set, to a state or with probabilities."""
    chosen = draw(st.lists(st.integers(0, len(net) - 1), min_size=1, max_size=3, unique=True))
    found: dict[int, Any] = {}
    for v in chosen:
        card = int(net.cardinality[v])
        if draw(st.booleans()):
            found[v] = draw(st.integers(0, card - 1))
        else:
            w = np.array(draw(st.lists(st.integers(0, 4), min_size=card, max_size=card)), float)
            found[v] = w / w.sum() if w.any() else np.eye(card)[0]
    return found


@pytest.mark.parametrize("backend", HERE)
@given(data=st.data())
def test_interventions_are_those_of_the_mutilated_network(data: st.DataObject, backend: BackendName) -> None:
    net = data.draw(random_nets.bayesian_networks(most=6))
    tree = compiled(net, backend)
    session = tree.session()
    for _ in range(2):
        do = data.draw(interventions_on(net))
        hard, weighed = data.draw(random_nets.evidence_weights(net))
        hard = {v: s for v, s in hard.items() if v not in do}
        weights = random_nets.all_weights(net, hard, weighed)
        probabilities = {v: np.eye(int(net.cardinality[v]))[q] if np.ndim(q) == 0 else q for v, q in do.items()}
        cut = oracle.mutilated(net, probabilities)
        expected = oracle.log_evidence(cut, weights)
        session.set(hard, likelihood=weighed, do=do)
        if expected == -math.inf:
            with pytest.raises(errors.ImpossibleEvidence):
                tree.posteriors(hard, likelihood=weighed, do=do)
            with pytest.raises(errors.ImpossibleEvidence):
                session.posteriors()
            continue
        table = oracle.joint(cut, weights)
        for post in (tree.posteriors(hard, likelihood=weighed, do=do), session.posteriors()):
            assert post.log_evidence == pytest.approx(expected, abs=1e-11)
            same(post, table, 1e-12)


@pytest.mark.parametrize("backend", HERE)
@given(data=st.data())
def test_tables_of_cases_with_interventions_and_soft_evidence(data: st.DataObject, backend: BackendName) -> None:
    """Row by row what single cases say."""
    net = data.draw(random_nets.bayesian_networks(most=5))
    tree = compiled(net, backend)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n = 5
    states = np.stack([rng.integers(0, c, n) for c in net.cardinality.tolist()], axis=1).astype(np.int32)
    states[rng.random(states.shape) < 0.7] = -1
    do = {v: rng.integers(0, net.cardinality[v], n) for v in rng.permutation(len(net))[:1].tolist()}
    goal = {}
    for v in rng.permutation(len(net))[:2].tolist():
        if v not in do:
            states[:, v] = -1
            goal[v] = rng.dirichlet(np.ones(int(net.cardinality[v])), n)
            goal[v][rng.random(n) < 0.3] = np.nan
            break  # one variable: always converges
    before = states.copy()
    found = tree.posteriors_batch(states, do=do, soft=goal, on_error="flag")
    np.testing.assert_array_equal(states, before)
    for i in range(n):
        hard = {v: s for v, s in enumerate(states[i].tolist()) if s >= 0}
        q = {v: g[i] for v, g in goal.items() if not np.isnan(g[i, 0])}
        try:
            one = tree.posteriors(hard, do={v: int(s[i]) for v, s in do.items()}, soft=q)
        except errors.ImpossibleEvidence:
            assert found.impossible[i]
            assert not found.flat[i].any()
            assert found.log_evidence[i] == -math.inf
            continue
        assert not found.impossible[i]
        assert found.log_evidence[i] == pytest.approx(one.log_evidence, abs=1e-12)
        for name in one:
            np.testing.assert_allclose(found[name][i], one[name], atol=1e-12)


def test_backends_of_interventions_are_cached_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interventions, "MAX_BACKENDS", 2)
    monkeypatch.setattr(interventions, "MAX_IDLE", 0)
    tree = compiled(rain(), "cpu")
    first = tree.intervened((0,))
    assert tree.intervened((0,)) is first
    tree.intervened((1,))
    tree.intervened((2,))  # the first one is evicted, and stays open while it is referenced
    backend = first.backend
    held = tree.resolve({"wet": "yes"}, do={"rain": "yes"})
    assert held.backend is not backend
    backend.run_case(held.case)
    del first
    gc.collect()
    with pytest.raises(errors.JtgpuError, match="closed"):
        backend.run_case(held.case)
    tree.close()
    with pytest.raises(errors.JtgpuError, match="closed"):
        held.backend.run_case(held.case)
    with pytest.raises(errors.JtgpuError, match="closed"):
        tree.posteriors(do={"rain": "yes"})


# New numbers --------------------------------------------------------------------------------------------------------


def same_bits(found: Any, expected: Any) -> None:
    assert found.log_evidence == expected.log_evidence
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize("backend", HERE)
def test_an_idle_backend_is_reloaded_for_the_next_intervention(
    monkeypatch: pytest.MonkeyPatch, backend: BackendName
) -> None:
    monkeypatch.setattr(interventions, "MAX_BACKENDS", 2)
    net = jtgpu.read(benchmark_files(["alarm"])[0]).with_codes("index")
    tree = net.compile(backend, order="min-fill")
    rng = np.random.default_rng(18)
    seen: set[int] = set()
    for _ in range(3):
        for v in net.variables[:6]:
            do = {v: int(rng.integers(len(net.states(v))))}
            evidence = {"BP": 0, "HR": 1}
            fresh = net.compile(backend, order="min-fill")
            same_bits(tree.posteriors(evidence, do=do), fresh.posteriors(evidence, do=do))
            resolved = tree.resolve(evidence, do=do)
            seen.add(id(resolved.backend))
    assert len(seen) <= 3  # two cached ones and an idle one


@pytest.mark.parametrize("backend", ["cpu", *slow("reference")])
def test_reload_gives_the_bits_of_a_new_tree(backend: BackendName) -> None:
    net = jtgpu.read(benchmark_files(["alarm"])[0]).with_codes("index")
    assert isinstance(net, jtgpu.BayesianNetwork)
    rng = np.random.default_rng(2)
    cpts = {v: rng.dirichlet(np.ones(len(net.states(v))), net.cpt(v).shape[:-1]) for v in net.variables}
    parents = {v: net.parents(v) for v in net.variables}
    other = jtgpu.BayesianNetwork({v: net.states(v) for v in net.variables}, parents, cpts).with_codes("index")
    tree = net.compile(backend, order="min-fill")
    session = tree.session({"BP": 0})
    evidence, do = {"BP": 0, "HR": 1}, {"CVP": 1}
    before = tree.posteriors(evidence), tree.posteriors(evidence, do=do), session.posteriors()
    states = np.full((70, len(net)), -1)
    states[:, 3] = rng.integers(0, 2, 70)
    tree.mpe(evidence)
    for model, at_first in ((other, False), (net, True)):
        tree.reload(model)
        fresh = model.compile(backend, order="min-fill")
        same_bits(tree.posteriors(evidence), fresh.posteriors(evidence))
        same_bits(tree.posteriors(evidence, do=do), fresh.posteriors(evidence, do=do))
        same_bits(session.posteriors(), fresh.session({"BP": 0}).posteriors())
        np.testing.assert_array_equal(tree.posteriors_batch(states).flat, fresh.posteriors_batch(states).flat)
        assert tree.mpe(evidence).log_joint == fresh.mpe(evidence).log_joint
        same_bits(tree.posteriors(evidence), before[0] if at_first else fresh.posteriors(evidence))
    with pytest.raises(errors.PlanError, match="not only in numbers"):
        tree.reload(rain())
    same_bits(tree.posteriors(evidence), before[0])


@pytest.mark.parametrize("backend", HERE)
def test_interventions_from_several_threads_while_backends_are_reloaded(
    monkeypatch: pytest.MonkeyPatch, backend: BackendName
) -> None:
    monkeypatch.setattr(interventions, "MAX_BACKENDS", 2)
    net = jtgpu.read(benchmark_files(["asia"])[0]).with_codes("index")
    tree = net.compile(backend)
    expected = {v: net.compile(backend).posteriors({"xray": 0}, do={v: 0}) for v in net.variables[:5]}
    with ThreadPoolExecutor(4) as pool:
        for name, found in pool.map(
            lambda v: (v, tree.posteriors({"xray": 0}, do={v: 0})), list(net.variables[:5]) * 8
        ):
            same_bits(found, expected[name])


# Soft evidence ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", HERE)
@given(data=st.data())
def test_jeffreys_rule(data: st.DataObject, backend: BackendName) -> None:
    net = data.draw(st.one_of(random_nets.bayesian_networks(most=6), random_nets.markov_networks(most=5)))
    tree = compiled(net, backend)
    hard, weighed = data.draw(random_nets.evidence_weights(net))
    v = data.draw(st.integers(0, len(net) - 1))
    hard.pop(v, None)
    weights = random_nets.all_weights(net, hard, weighed)
    card = int(net.cardinality[v])
    q = np.array(data.draw(st.lists(st.sampled_from([0, 1, 2, 5]), min_size=card, max_size=card)), float)
    q = q / q.sum() if q.any() else np.full(card, 1 / card)
    if oracle.log_evidence(net, weights) == -math.inf:
        with pytest.raises(errors.ImpossibleEvidence):
            tree.posteriors(hard, likelihood=weighed, soft={v: q})
        return
    table = oracle.joint(net, weights)
    prior = oracle.marginal(table, [v])
    if (q[prior == 0] > 0).any():
        with pytest.raises(errors.ImpossibleEvidence, match="soft evidence requires"):
            tree.posteriors(hard, likelihood=weighed, soft={v: q})
        return
    post = tree.posteriors(hard, likelihood=weighed, soft={v: q})
    same(post, oracle.jeffrey(table, v, q), 1e-12)
    assert post.log_evidence == pytest.approx(oracle.log_evidence(net, weights), abs=1e-11)  # soft: no event
    session = tree.session(hard, likelihood=weighed)
    session.believe(v, q)
    same(session.posteriors(), oracle.jeffrey(table, v, q), 1e-12)


@pytest.mark.parametrize("backend", HERE)
@given(data=st.data())
def test_several_soft_findings_give_the_nearest_distribution(data: st.DataObject, backend: BackendName) -> None:
    """A distribution P w is the nearest to P of all that share its marginals: so marginals of one must lead to it."""
    net = data.draw(random_nets.bayesian_networks(most=6))
    tree = compiled(net, backend)
    hard, _ = data.draw(random_nets.evidence_weights(net))
    some = data.draw(st.lists(st.integers(0, len(net) - 1), min_size=1, max_size=3, unique=True))
    hard = {v: s for v, s in hard.items() if v not in some}
    weights = random_nets.all_weights(net, hard, {})
    if oracle.log_evidence(net, weights) == -math.inf:
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    wanted = weights | {v: rng.uniform(0.2, 1.0, int(net.cardinality[v])) for v in some}
    table = oracle.joint(net, wanted)
    goal = {v: oracle.marginal(table, [v]) for v in some}
    same(tree.posteriors(hard, soft=goal), table, 1e-9)
    rows = tree.posteriors_batch(
        np.tile([hard.get(v, -1) for v in range(len(net))], (3, 1)),
        soft={v: np.vstack([q, np.full(len(q), np.nan), q]) for v, q in goal.items()},
    )
    plain = tree.posteriors(hard)
    for v, name in enumerate(net.variables):
        np.testing.assert_allclose(rows[name][0], oracle.marginal(table, [v]), atol=1e-9)
        np.testing.assert_allclose(rows[name][1], plain[name], atol=1e-12)  # no soft evidence in this row
        np.testing.assert_allclose(rows[name][2], rows[name][0], atol=1e-15)


def copies() -> BayesianNetwork:
    """b is a, whatever a is."""
    two = ["0", "1"]
    return BayesianNetwork({"a": two, "b": two}, {"b": ["a"]}, {"a": [0.5, 0.5], "b": [[1, 0], [0, 1]]})


@pytest.mark.parametrize("backend", HERE)
def test_contradictory_marginals_raise(backend: BackendName) -> None:
    tree = compiled(copies(), backend)
    assert tree.posterior("b", soft={"a": [0.3, 0.7], "b": [0.3, 0.7]})["1"] == pytest.approx(0.7, abs=1e-12)
    with pytest.raises(errors.EvidenceError, match=r"does not converge.*contradict"):
        tree.posteriors(soft={"a": [0.3, 0.7], "b": [0.4, 0.6]})
    with pytest.raises(errors.EvidenceError, match=r"^row 1: .*does not converge"):
        tree.posteriors_batch(
            {"a": [None, None]}, soft={"a": [0.3, 0.7], "b": [[0.3, 0.7], [0.4, 0.6]]}
        )
    with pytest.raises(errors.ImpossibleEvidence, match=r"requires P\(b = '1'\) = 1, but"):
        tree.posteriors({"a": "0"}, soft={"b": [0, 1]})
    with pytest.raises(errors.ImpossibleEvidence, match=r"^row 1: the soft evidence requires P\(b = '0'\)"):
        tree.posteriors_batch({"a": [0, 1]}, soft={"b": [1, 0]})
    flagged = tree.posteriors_batch({"a": [0, 1]}, soft={"b": [1, 0]}, on_error="flag")
    assert flagged.impossible.tolist() == [False, True]


def test_slow_convergence_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interventions, "MAX_PROPAGATIONS", 3)
    with pytest.raises(errors.EvidenceError, match="after 3 propagations"):
        compiled(rain(), "reference").posteriors(soft={"rain": [0.1, 0.9], "sprinkler": [0.2, 0.8], "wet": [0.5, 0.5]})


# What is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evidence", "more", "says"),
    [
        ({}, {"soft": {"rain": [0.5, 0.6]}}, "sum to 1.1"),
        ({}, {"soft": {"rain": [0.5, -0.5]}}, ">= 0"),
        ({}, {"soft": {"rain": {"no": 1.0}}}, "no weight for 'yes'"),
        ({}, {"soft": {"rain": "yes"}}, "probability for each state"),
        ({}, {"soft": {"rain": {"yes", "no"}}}, "probability for each state"),
        ({"rain": "yes"}, {"soft": {"rain": [0.5, 0.5]}}, "observed"),
        ({}, {"do": {"rain": "yes"}, "soft": {"rain": [0.5, 0.5]}}, "set by do"),
        ({}, {"soft": {"rain": [0.5, 0.5], 0: [0.5, 0.5]}}, "'rain' twice"),
        ({}, {"do": {"rain": "yes", 0: "yes"}}, "'rain' twice"),
        ({}, {"do": {"rain": {"yes", "no"}}}, "given by name"),
        ({}, {"do": {"rain": [0.5, 0.4]}}, "sum to 0.9"),
        ({}, {"do": {"rains": "yes"}}, "did you mean 'rain'"),
        ({}, {"do": {"rain": "maybe"}}, "no state 'maybe'"),
        ({"rain": "no"}, {"do": {"rain": "yes"}}, "set to 'yes' by do, but observed to be 'no'"),
        ({}, {"do": [("rain", 1)]}, r"do must be a mapping such as \{'smoke': 'yes'\}, not a list"),
    ],
)
def test_invalid_evidence(evidence: Any, more: Any, says: str) -> None:
    tree = compiled(rain(), "reference")
    with pytest.raises(errors.EvidenceError, match=says):
        tree.posteriors(evidence, **more)
    session = tree.session()
    with pytest.raises(errors.EvidenceError, match=says):
        session.set(evidence, **more)
    assert session.known == {"evidence": {}, "likelihood": {}, "soft": {}, "do": {}}


@pytest.mark.parametrize(
    ("cases", "more", "says"),
    [
        ({"wet": [0, 1]}, {"soft": {"rain": [[0.5, 0.5]]}}, r"shape \(1, 2\), expected \(2, 2\) or \(2,\)"),
        ({"wet": [0, 1]}, {"soft": {"rain": [[0.5, 0.5], [0.5, math.nan]]}}, "sum to 1"),
        ({"wet": [0, 1]}, {"soft": {"rain": [["a", "b"]] * 2}}, "must be an array of numbers"),
        ({"rain": [-1, 1]}, {"soft": {"rain": [0.5, 0.5]}}, "row 1: 'rain' is observed"),
        ({"wet": [0, 1]}, {"soft": {"rain": [0.5, 0.5]}, "do": {"rain": 1}}, "set by do"),
        ({"wet": [0, 1]}, {"soft": {"rain": [0.5, 0.5], 0: [0.5, 0.5]}}, "'rain' twice"),
        ({"wet": [0, 1]}, {"do": {"rain": ["yes"]}}, r"shape \(1,\), expected \(2,\)"),
        ({"wet": [0, 1]}, {"do": {"rain": ["yes", None]}}, "row 1: do on 'rain' has no state"),
        ({"wet": [0, 1]}, {"do": {"rain": ["yes", "maybe"]}}, "row 1: do on 'rain': 'maybe' is not a state"),
        ({"wet": [0, 1]}, {"do": {"rain": {"yes"}}}, "one state"),
        ({"wet": [0, 1]}, {"do": {"rain": [[0.5, 0.5], [math.nan] * 2]}}, "no probabilities in some cases"),
        ({"rain": [0, 1]}, {"do": {"rain": 1}}, "row 0: .* 0: the findings on 'rain' contradict each other"),
    ],
)
def test_invalid_table_of_evidence(cases: Any, more: Any, says: str) -> None:
    with pytest.raises(errors.EvidenceError, match=says):
        compiled(rain(), "reference").posteriors_batch(cases, **more)


@pytest.mark.parametrize("more", [{"likelihood": {"rain": [1.0, 0.0]}}, {"do": {"rain": [1.0, 0.0]}}])
def test_findings_that_exclude_every_state_are_named(more: Any) -> None:
    tree = compiled(rain(), "reference")
    with pytest.raises(errors.ImpossibleEvidence, match="0: the findings on 'rain' contradict each other"):
        tree.posteriors({"rain": 1, "wet": 1}, **more)
    with tree.session({"rain": 1}, **more) as session, pytest.raises(errors.ImpossibleEvidence, match="'rain' contra"):
        session.posteriors()


def test_do_in_tables_takes_states_and_probabilities() -> None:
    tree = compiled(rain(), "cpu")
    on, off = (tree.posterior("wet", do={"sprinkler": s})["yes"] for s in ("on", "off"))
    for given_as in (["on", "off"], np.array([1, 0]), [[0.0, 1.0], [1.0, 0.0]]):
        found = tree.posteriors_batch({"rain": [None, None]}, do={"sprinkler": given_as}, targets="wet")
        np.testing.assert_allclose(found["wet"][:, 1], [on, off], atol=1e-15)
    same_in_all = tree.posteriors_batch({"rain": [None, None]}, do={"sprinkler": {"on": 1.0, "off": 0.0}})
    np.testing.assert_allclose(same_in_all["wet"][:, 1], [on, on], atol=1e-15)


def test_markov_networks_have_no_interventions() -> None:
    model = MarkovNetwork({"a": ["0", "1"], "b": ["0", "1"]}, [(["a", "b"], [[1.0, 2.0], [3.0, 4.0]])])
    with pytest.raises(errors.EvidenceError, match="requires a Bayesian network"):
        compiled(model, "reference").posteriors(do={"a": 1})
    assert compiled(model, "reference").posterior("a", soft={"b": [1, 0]})[1] == pytest.approx(0.75)


def test_unknown_keywords_are_refused() -> None:
    tree = compiled(rain(), "reference")
    with pytest.raises(TypeError, match="lieklihood"):
        tree.posterior("rain", lieklihood={})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="lieklihood"):
        tree.session(lieklihood={})  # type: ignore[call-arg]


# Sessions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", HERE)
def test_a_session_with_all_kinds_of_evidence(backend: BackendName) -> None:
    tree = compiled(rain(), backend)
    with tree.session({"wet": "yes"}) as session:
        seen = session.posterior("sprinkler")
        session.do("rain", "yes")
        np.testing.assert_allclose(session.posterior("sprinkler"), tree.posterior("sprinkler", {"wet": 1}, do={0: 1}))
        session.do("rain", [0.5, 0.5])
        session.believe("sprinkler", {"off": 0.25, "on": 0.75})
        assert session.posterior("sprinkler")["on"] == pytest.approx(0.75, abs=1e-12)
        assert session.known == {
            "evidence": {"wet": "yes"}, "likelihood": {}, "soft": {"sprinkler": {"off": 0.25, "on": 0.75}},
            "do": {"rain": [0.5, 0.5]},
        }  # fmt: skip
        expected = tree.posteriors(**session.known)
        for v, p in session.posteriors().items():
            np.testing.assert_allclose(p, expected[v], atol=1e-12)
        assert session.log_evidence() == pytest.approx(expected.log_evidence, abs=1e-12)
        np.testing.assert_allclose(
            session.joint(["rain", "sprinkler"]), tree.joint(["rain", "sprinkler"], **session.known)
        )
        session.retract("sprinkler")
        session.do("sprinkler", "on")  # another set of variables
        assert session.posterior("sprinkler")["on"] == 1.0
        session.retract("rain")
        session.retract("sprinkler")
        np.testing.assert_array_equal(session.posterior("sprinkler"), seen)
        assert "1 finding)" in repr(session)
        with pytest.raises(errors.EvidenceError, match="'rain' has no evidence"):
            session.retract("rain")
    with pytest.raises(errors.JtgpuError, match="closed"):
        session.posteriors()


# Tables of cases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", HERE)
def test_log_likelihood_of_a_table(backend: BackendName) -> None:
    net = rain()
    tree = compiled(net, backend)
    found = tree.log_likelihood({"rain": ["yes", None, "no", None], "wet": ["yes", "no", "yes", None]})
    expected = [
        oracle.log_evidence(net, {0: np.array([0.0, 1.0]), 2: np.array([0.0, 1.0])}),
        oracle.log_evidence(net, {2: np.array([1.0, 0.0])}),
        oracle.log_evidence(net, {0: np.array([1.0, 0.0]), 2: np.array([0.0, 1.0])}),
        0.0,
    ]
    np.testing.assert_allclose(found, expected, atol=1e-14)
    impossible = tree.log_likelihood({"rain": ["no", "no"], "sprinkler": ["off", "on"], "wet": ["yes", "yes"]})
    assert impossible.tolist()[0] == -math.inf
    assert math.isfinite(impossible[1])


def _rows(kind: str) -> list[Any]:
    """The same case in every form that a row of a table has; "id" is no variable."""
    if kind == "mapping":
        return [{"xray": "yes", "smoke": missing, "lung": None} for missing in (None, math.nan)]
    if kind == "pandas":
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"id": [7], "xray": ["yes"], "smoke": [None]}, index=["ann"])
        known = {"xray": "yes", "smoke": pandas.NA}
        return [frame, frame.iloc[0], frame.loc["ann"], known, frame[["xray", "smoke"]].iloc[0].to_dict()]
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"id": [7], "xray": ["yes"], "smoke": [None]})
    return [frame, frame.to_arrow(), frame.drop("id").row(0, named=True)]


@pytest.mark.parametrize("kind", ["mapping", "pandas", "polars"])
def test_a_row_of_a_table_is_the_evidence_of_a_case(kind: str) -> None:
    tree = bundled("asia").compile("cpu")
    expected = tree.posterior("lung", {"xray": "yes"})["yes"]
    for row in _rows(kind):
        assert tree.posterior("lung", row)["yes"] == expected
        assert tree.joint(["lung"], row)["yes"] == pytest.approx(expected)
        with tree.session(row) as session:
            assert session.posterior("lung")["yes"] == pytest.approx(expected)
            assert [*session.evidence] == ["xray"]
        assert jtgpu.draw.show(tree, row).svg


def test_rows_that_are_no_case() -> None:
    pandas = pytest.importorskip("pandas")
    tree = bundled("asia").compile("cpu")
    frame = pandas.DataFrame({"xray": ["yes", "no"], "smok": ["yes", "no"]})
    for row, says in (
        (frame[["xray"]], "a data frame of 2 rows, expected one; posteriors_batch"),
        (frame.iloc[0], "has a column 'smok', but the variable is named 'smoke'"),
        (pandas.Series({"a": 1}), "no column of the table is a variable"),
        (pandas.Series({"xray": "maybe"}), "'maybe' is not a state"),
        (frame["xray"], "no column of the table is a variable"),
        ({"xray": "yes", "id": None}, "there is no variable 'id'"),
    ):
        with pytest.raises(errors.EvidenceError, match=says):
            tree.posterior("lung", row)
    with tree.session() as session, pytest.raises(errors.EvidenceError, match="retract"):
        session.observe("xray", None)


def test_several_variables_are_a_joint() -> None:
    tree = bundled("asia").compile("cpu")
    with tree.session() as session:
        for ask in tree.posterior, session.posterior:
            with pytest.raises(errors.UnknownVariable, match=r"takes one variable, .*; joint\(\['lung', 'bronc'\]\)"):
                ask(["lung", "bronc"])  # type: ignore[arg-type]


def test_the_largest_and_least_numbers_are_weights() -> None:
    tree, most = bundled("asia").compile("cpu"), [1e308, 1e308]
    expected = tree.posterior("lung", {"smoke": "yes"})["yes"]
    with np.errstate(all="raise", under="ignore"):
        found = tree.posteriors({"smoke": "yes"}, likelihood={"xray": most, "dysp": most})
        assert found["lung"]["yes"] == pytest.approx(expected)
        assert found.log_evidence == pytest.approx(math.log(0.5) + 2 * math.log(1e308))
        rows = tree.posteriors_batch({"smoke": ["yes"]}, likelihood={"xray": [most]})
        assert rows["lung"][0, 0] == pytest.approx(expected)
        sums: list[dict[str, Any]] = [{"soft": {"xray": most}}, {"do": {"xray": most}}]
        for more in sums:
            with pytest.raises(errors.EvidenceError, match="must sum to 1, but sum to inf"):
                tree.posteriors(**more)
        with pytest.raises(errors.EvidenceError, match="each row must sum to 1"):
            tree.posteriors_batch({"smoke": ["yes"]}, soft={"xray": [most]})
        assert tree.posteriors(soft={"xray": [1, 1e-320]})["xray"]["yes"] == pytest.approx(1.0)
        case = parse_evidence('{"xray": [1e299, 1]}', tree.model)[0]
        with pytest.raises(errors.EvidenceError, match="product of the likelihoods of 'xray' is too large"):
            tree.posteriors(case, likelihood={"xray": most})


@pytest.mark.parametrize("name", ["andes", "hailfinder", "insurance"])
def test_certain_evidence_has_probability_1(name: str) -> None:
    net = bundled(name)
    tree = net.compile("cpu")
    certain = {v: [*net.states(v)] for v in net.variables[:1]}
    assert -1e-12 < tree.posteriors(certain).log_evidence <= 0.0
    assert (tree.posteriors_batch([{}, {}]).log_evidence <= 0.0).all()
    assert tree.log_evidence(do={net.variables[-1]: 0}) <= 0.0
