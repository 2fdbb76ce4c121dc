"""Most probable explanations, one and many, against every configuration and against pyAgrum."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.cli import app
from jtgpu.inference.queries.posteriors import Messages
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans.compiler import build_plan, model_factors, order_graph
from jtgpu.plans.lowering import LOWERINGS
from jtgpu.util.options import BackendName, Lowering
from tests.conftest import ROOT
from tests.support import judge, oracle
from tests.support.bundled import bundled
from tests.support.examples import examples, slow
from tests.support.random_nets import all_weights, bayesian_networks, evidence_weights, markov_networks

BACKENDS: tuple[BackendName, ...] = ("reference", "cpu")


def compiled(model: DiscreteModel, backend: BackendName, **options: Any) -> jtgpu.JunctionTree:
    tree: jtgpu.JunctionTree = model.compile(backend, order="min-fill", **options)
    return tree


def check_best(model: DiscreteModel, tree: jtgpu.JunctionTree, hard: Any, soft: Any, k: int) -> None:
    """The k best configurations have the k largest values, each once; they are what they are said to be."""
    weights = all_weights(model, hard, soft)
    expected = oracle.ranked(model, weights)
    if not expected:
        with pytest.raises(jtgpu.ImpossibleEvidence):
            tree.mpe(hard, likelihood=soft, k=k)
        return
    best = tree.mpe(hard, likelihood=soft, k=k)
    assert best.ranked[0] is best
    table = oracle.joint(model, weights)
    found = [tuple(e.states.tolist()) for e in best.ranked]
    assert len(set(found)) == len(found) == min(k, len(expected))
    values = [math.log(table[x]) if table[x] > 0 else -math.inf for x in found]
    np.testing.assert_allclose(values, [v for v, _ in expected[:k]], atol=1e-12)
    np.testing.assert_allclose([e.log_joint for e in best.ranked], values, atol=1e-12)
    assert all(a.log_joint >= b.log_joint for a, b in zip(best.ranked, best.ranked[1:], strict=False))
    total = oracle.log_evidence(model, weights)
    np.testing.assert_allclose(best.log_posterior, values[0] - total, atol=1e-12)


@given(st.data())
def test_bayesian_networks(data: st.DataObject) -> None:
    model = data.draw(bayesian_networks())
    hard, soft = data.draw(evidence_weights(model))
    k = data.draw(st.sampled_from([1, 1, 2, 3, 7]))
    lowering = data.draw(st.sampled_from(LOWERINGS))
    check_best(model, compiled(model, "cpu", lowering=lowering), hard, soft, k)


@given(st.data())
def test_markov_networks(data: st.DataObject) -> None:
    model = data.draw(markov_networks())
    hard, soft = data.draw(evidence_weights(model))
    lowering = data.draw(st.sampled_from(LOWERINGS))
    check_best(model, compiled(model, "cpu", lowering=lowering), hard, soft, data.draw(st.integers(1, 5)))


@given(st.data())
@examples(30)
def test_the_definition(data: st.DataObject) -> None:
    model = data.draw(bayesian_networks(most=5))
    hard, soft = data.draw(evidence_weights(model))
    check_best(model, compiled(model, "reference"), hard, soft, data.draw(st.sampled_from([1, 3])))


@given(st.data())
def test_ties_are_broken_alike_on_every_backend(data: st.DataObject) -> None:
    model = data.draw(bayesian_networks())
    hard, _ = data.draw(evidence_weights(model))
    found = []
    for backend in BACKENDS:
        try:
            found.append(compiled(model, backend).mpe(hard).states.tolist())
        except jtgpu.ImpossibleEvidence:
            found.append(None)
    assert found[0] == found[1]


# The three classic traps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties_are_broken_together(backend: BackendName) -> None:
    # x and y are equal and uniform: each alone is a tie, and (0, 1) or (1, 0) is impossible
    net = BayesianNetwork(
        {v: ["a", "b"] for v in "xyz"},
        {"y": ["x"], "z": ["y"]},
        {"x": [0.5, 0.5], "y": np.eye(2), "z": np.eye(2)[::-1]},
    )
    best = compiled(net, backend).mpe(k=5)
    assert [tuple(e.values()) for e in best.ranked] == [("a", "a", "b"), ("b", "b", "a")]
    assert best.probability == pytest.approx(0.5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_best_states_need_not_be_the_best_configuration(backend: BackendName) -> None:
    net = BayesianNetwork(
        {"x": ["a", "b"], "y": ["a", "b", "c"]},
        {"y": ["x"]},
        {"x": [0.6, 0.4], "y": [[1 / 3, 1 / 3, 1 / 3], [0.0, 0.0, 1.0]]},
    )
    tree = compiled(net, backend)
    assert tree.posterior("x").mode == "a"
    assert dict(tree.mpe()) == {"x": "b", "y": "c"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_branches_of_probability_zero(backend: BackendName) -> None:
    # what is most probable of x leads nowhere: y is impossible under it once z is seen
    net = BayesianNetwork(
        {v: ["a", "b"] for v in "xyz"},
        {"y": ["x"], "z": ["y"]},
        {"x": [1 - 1e-12, 1e-12], "y": [[1.0, 0.0], [0.25, 0.75]], "z": [[1.0, 0.0], [0.5, 0.5]]},
    )
    tree = compiled(net, backend)
    best = tree.mpe({"z": "b"}, k=9)
    assert len(best.ranked) == 1
    assert dict(best) == {"x": "b", "y": "b", "z": "b"}
    assert best.log_posterior == 0.0
    with pytest.raises(jtgpu.ImpossibleEvidence, match="z = 'b'"):
        tree.mpe({"z": "b", "y": "a"})


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_components(backend: BackendName) -> None:
    net = BayesianNetwork(
        {"x": ["a", "b"], "y": ["a", "b"], "one": ["only"], "z": ["a", "b", "c"]},
        {"y": ["x"]},
        {"x": [0.3, 0.7], "y": [[0.9, 0.1], [0.5, 0.5]], "one": [1.0], "z": [0.2, 0.5, 0.3]},
    )
    best = compiled(net, backend).mpe(k=100)
    assert len(best.ranked) == 2 * 2 * 3
    assert dict(best) == {"x": "b", "y": "a", "one": "only", "z": "b"}
    assert best.probability == pytest.approx(0.7 * 0.5 * 0.5)
    assert sum(e.probability for e in best.ranked) == pytest.approx(1.0)


# Sizes at which every loop of the compiled maximum runs --------------------------------------------------------------


def wide(seed: int, cards: tuple[int, ...], scopes: list[list[int]]) -> MarkovNetwork:
    rng = np.random.default_rng(seed)
    factors = [(s, rng.random([cards[v] for v in s])) for s in scopes]
    return MarkovNetwork({f"v{i}": [str(k) for k in range(c)] for i, c in enumerate(cards)}, factors)


@pytest.mark.parametrize(
    ("cards", "scopes"),
    [
        ((17, 23, 9, 12), [[0, 1, 2], [1, 2, 3], [0, 3]]),
        ((50, 60, 3, 4), [[0, 1, 2], [0, 1, 3], [2, 3]]),  # more terms than are listed at a time
        ((5, 64, 7, 3, 11), [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [1, 3]]),
        ((13, 2, 2, 2, 2, 2, 31), [[0, 1, 2], [2, 3, 6], [3, 4, 5], [5, 6], [0, 6]]),
        ((40, 6, 5, 4, 3), [[0, 1], [0, 2], [0, 3], [0, 4], [1, 2]]),
        ((8, 8, 8, 8, 8), [[0, 1, 2], [1, 2, 3], [2, 3, 4], [0, 4]]),
    ],
)
@pytest.mark.parametrize("lowering", LOWERINGS)
@pytest.mark.parametrize("reverse", [False, True])
def test_large_tables(cards: tuple[int, ...], scopes: list[list[int]], lowering: Lowering, reverse: bool) -> None:
    model = wide(7, cards, scopes)
    order = list(range(len(cards)))[:: -1 if reverse else 1]
    names = [model.variables[v] for v in order]
    definition = model.compile("reference", order=names, lowering=lowering).mpe()
    fast = model.compile("cpu", order=names, lowering=lowering).mpe(k=4)
    assert fast.states.tolist() == definition.states.tolist()
    assert fast.log_joint == pytest.approx(definition.log_joint, abs=1e-12)
    some = model.compile("cpu", order=names, lowering=lowering).mpe({1: 1}, k=4)
    assert some.log_joint <= fast.log_joint
    with_one = model.compile("reference", order=names, lowering=lowering).mpe({1: 1}, k=4)
    np.testing.assert_allclose([e.log_joint for e in some.ranked], [e.log_joint for e in with_one.ranked], atol=1e-12)


# Networks of nets/ ---------------------------------------------------------------------------------------------------


# pyAgrum 3.3.1 ends most of its explanations with "Fatal error: Empty tensor"; these it gives
@pytest.mark.parametrize(
    ("name", "share", "seed"),
    [
        ("asia", 0.3, 1),
        ("cancer", 0.0, 1),
        ("earthquake", 0.0, 1),
        ("sachs", 0.0, 1),
        ("survey", 0.1, 1),
        ("child", 0.3, 2),
        ("insurance", 0.6, 1),
        ("alarm", 0.6, 1),
        ("hailfinder", 0.6, 1),
        ("win95pts", 0.8, 1),
        ("hepar2", 0.6, 1),
    ],
)
def test_pyagrum(name: str, share: float, seed: int) -> None:
    gum: Any = pytest.importorskip("pyagrum")
    net = bundled(name)
    evidence = judge.sampled_evidence(net, share, seed)
    engine = gum.LazyPropagation(judge.to_pyagrum(net))
    engine.setEvidence(evidence)
    found, log_posterior = engine.mpeLog2Posterior()
    best = net.compile("cpu").mpe(evidence)
    # its states may be others of the same probability
    theirs = {v: found[v] for v in net.variables}
    log_theirs = sum(
        math.log(net.cpt(v)[tuple(theirs[u] for u in (*net.parents(v), v))]) for v in net.variables
    )
    assert best.log_joint == pytest.approx(log_theirs, abs=1e-9)
    assert best.log_posterior == pytest.approx(log_posterior * math.log(2), abs=1e-9)


@pytest.mark.parametrize("name", ["alarm", *slow("hailfinder", "win95pts", "hepar2")])
def test_backends_agree_on_networks(name: str) -> None:
    net = bundled(name)
    evidence = judge.sampled_evidence(net, 0.15, seed=1)
    slow, fast = net.compile("reference").mpe(evidence), net.compile("cpu").mpe(evidence, k=50)
    assert fast.states.tolist() == slow.states.tolist()
    logs = [e.log_joint for e in fast.ranked]
    assert len({e.states.tobytes() for e in fast.ranked}) == 50
    assert logs == sorted(logs, reverse=True)
    # none better than what its evidence leaves: the second best differs from the best somewhere
    for v in net.variables:
        if v not in evidence and len(net.states(v)) > 1:
            others = {s for s in net.states(v) if s != fast[v]}
            try:
                assert net.compile("cpu").mpe({**evidence, v: others}).log_joint <= logs[1] + 1e-12
            except jtgpu.ImpossibleEvidence:
                continue


# Kinds of evidence, tables of cases, what comes back -----------------------------------------------------------------


def lawn() -> BayesianNetwork:
    return BayesianNetwork(
        {"rain": ["no", "yes"], "sprinkler": ["off", "on"], "wet": ["no", "yes"]},
        {"sprinkler": ["rain"], "wet": ["rain", "sprinkler"]},
        {
            "rain": [0.8, 0.2],
            "sprinkler": [[0.6, 0.4], [0.99, 0.01]],
            "wet": [[[1.0, 0.0], [0.1, 0.9]], [[0.2, 0.8], [0.01, 0.99]]],
        },
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_interventions_and_soft_evidence(backend: BackendName) -> None:
    net, tree = lawn(), compiled(lawn(), backend)
    assert dict(tree.mpe({"wet": "yes"})) == {"rain": "no", "sprinkler": "on", "wet": "yes"}
    cut = oracle.mutilated(net, {1: np.array([1.0, 0.0])})
    expected = oracle.ranked(cut, {2: np.array([0.0, 1.0])})
    found = tree.mpe({"wet": "yes"}, do={"sprinkler": "off"}, k=4)
    assert [tuple(e.states.tolist()) for e in found.ranked] == [x for _, x in expected]
    assert found.log_joint == pytest.approx(expected[0][0], abs=1e-12)
    # Jeffrey's rule: P(x) = sum_s q(s) P(x | wet = s)
    q = np.array([0.1, 0.9])
    table = oracle.jeffrey(oracle.joint(net), 2, q)
    soft = tree.mpe(soft={"wet": q})
    assert soft.probability == pytest.approx(table.max(), abs=1e-10)
    assert tuple(soft.states.tolist()) == np.unravel_index(int(table.argmax()), table.shape)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tables_of_cases(backend: BackendName) -> None:
    tree = compiled(lawn(), backend)
    cases: dict[str, list[Any]] = {"rain": [None, "yes", "no", None], "wet": ["yes", None, "yes", "no"]}
    cases["sprinkler"] = [None, None, "off", "off"]
    found = tree.mpe_batch(cases, on_error="flag")
    assert found.impossible.tolist() == [False, False, True, False]
    assert found.states[2].tolist() == [-1, -1, -1]
    assert found.log_joint[2] == -math.inf
    assert list(found["rain"]) == ["no", "yes", None, "no"]
    for row in (0, 1, 3):
        evidence = {v: column[row] for v, column in cases.items() if column[row] is not None}
        best = tree.mpe(evidence)
        assert found.states[row].tolist() == best.states.tolist()
        assert found.log_joint[row] == pytest.approx(best.log_joint, abs=1e-12)
    with pytest.raises(jtgpu.ImpossibleEvidence, match=r"row 2.*wet = 'yes'"):
        tree.mpe_batch(cases)
    with pytest.raises(ValueError, match="on_error"):
        tree.mpe_batch(cases, on_error="ignore")  # type: ignore[arg-type]
    weighed = tree.mpe_batch({"wet": ["yes", "yes"]}, likelihood={"rain": [[1.0, 0.0], [0.0, 1.0]]})
    assert list(weighed["rain"]) == ["no", "yes"]
    assert list(tree.mpe_batch({"wet": ["yes"] * 2}, do={"rain": ["no", "yes"]})["rain"]) == ["no", "yes"]
    assert len(tree.mpe_batch(np.zeros((0, 3), np.int32)).states) == 0


def test_rows_of_many_patterns_agree_with_single_cases() -> None:
    net = bundled("alarm")
    rng = np.random.default_rng(4)
    cases = net.compile("cpu").sample(40, seed=1).states
    cases = np.where(rng.random(cases.shape) < 0.5, -1, cases).astype(np.int32)
    cases[10:20] = np.where(cases[10] < 0, -1, net.compile("cpu").sample(10, seed=2).states)  # one pattern
    tree = net.compile("cpu")
    found = tree.mpe_batch(cases, on_error="flag")
    for row, case in enumerate(cases):
        evidence = {int(v): int(case[v]) for v in np.flatnonzero(case >= 0)}
        try:
            assert found.states[row].tolist() == tree.mpe(evidence).states.tolist()
        except jtgpu.ImpossibleEvidence:
            assert found.impossible[row]


def test_explanations_are_mappings() -> None:
    tree = compiled(lawn(), "cpu")
    best = tree.mpe({"wet": "yes"}, k=2)
    assert list(best) == ["rain", "sprinkler", "wet"]
    assert (best["rain"], best[0], len(best)) == ("no", "no", 3)
    assert best.states.dtype == np.int32
    assert not best.states.flags.writeable
    assert "rain=no" in repr(best)
    assert best.log_posterior == pytest.approx(best.log_joint - best.log_evidence)
    with pytest.raises(ValueError, match="k must be an integer of at least 1, not 0"):
        tree.mpe(k=0)
    with pytest.raises(jtgpu.UnknownVariable, match="rain"):
        tree.mpe({"rainy": "no"})
    tree.close()
    with pytest.raises(jtgpu.JtgpuError, match="closed"):
        tree.mpe()


def test_sliced_trees_raise() -> None:
    tree = jtgpu.read(ROOT / "nets" / "asia.net").compile("cpu", slices=["lung"])
    for ask in (tree.mpe, lambda: tree.sample(3), lambda: tree.map(["tub"]), lambda: tree.sensitivity(("tub", "yes"))):
        with pytest.raises(jtgpu.JtgpuError, match="needs the whole tree"):
            ask()


def test_far_below_the_smallest_double() -> None:
    # 4000 variables, each state of probability 1/4: no product fits a double
    net = BayesianNetwork(
        {f"v{i}": list("abcd") for i in range(4000)},
        {f"v{i}": [f"v{i - 1}"] for i in range(1, 4000)},
        {f"v{i}": np.full((4,) * (1 + (i > 0)), 0.25) for i in range(4000)},
    )
    best = net.compile("cpu", order="min-fill").mpe()
    assert best.log_joint == pytest.approx(4000 * math.log(0.25))
    assert not best.states.any()


def test_other_backends_use_the_compiled_sweep() -> None:
    model = lawn()
    factors = model_factors(model)
    plan = build_plan(model.cardinality, [f.scope for f in factors], order_graph(model), [2, 1, 0])
    names = [type(Messages(plan, [f.table for f in factors], b).maximal()).__name__ for b in ("gpu", "indexed", "cpu")]
    assert names == ["CpuSweep"] * 3


# Command line -------------------------------------------------------------------------------------------------------


def run(*words: str) -> Any:
    """One command within this process; a traceback is a failure."""
    result = CliRunner().invoke(app, [*words, "--backend", "reference"])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    return result


ASIA = str(ROOT / "nets" / "asia.net")


def test_the_command() -> None:
    done = run("mpe", ASIA, "-e", "xray=yes", "-k", "2")
    assert done.exit_code == 0
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    best = bundled("asia").compile("reference").mpe({"xray": "yes"}, k=2)
    assert rows[0] == ["variable", "1", "2"]
    assert {r[0]: r[1] for r in rows[1:9]} == dict(best)
    assert {r[0]: r[2] for r in rows[1:9]} == dict(best.ranked[1])
    assert float(rows[9][1]) == pytest.approx(best.probability)
    found = json.loads(run("mpe", ASIA, "-e", "xray=yes", "-k", "2", "--json").stdout)
    assert found["evidence"] == {"xray": 0}
    assert [e["states"] for e in found["explanations"]] == [dict(e) for e in best.ranked]
    assert found["log_evidence"] == pytest.approx(best.log_evidence)


def test_the_command_for_some_variables() -> None:
    done = json.loads(run("mpe", ASIA, "-e", "xray=yes", "-t", "lung", "-t", "bronc", "-k", "9", "--json").stdout)
    assert [len(e["states"]) for e in done["explanations"]] == [2] * 4
    assert sum(e["probability"] for e in done["explanations"]) == pytest.approx(1.0)
    assert "only 4 configurations" in run("mpe", ASIA, "-t", "lung", "-t", "bronc", "-k", "9").stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["-e", "tub=yes", "-e", "either=no"], 4, "either = 'no'"),
        (["-e", "xray=perhaps"], 2, "perhaps"),
        (["-t", "lungs"], 2, "did you mean 'lung'"),
        (["-t", "lung", "--max-table", "1", "--memory-limit", "1000"], 3, "max_table"),
        (["-k", "0"], 2, ""),
    ],
)
def test_invalid_commands(words: list[str], code: int, says: str) -> None:
    done = run("mpe", ASIA, *words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert says in done.stderr
