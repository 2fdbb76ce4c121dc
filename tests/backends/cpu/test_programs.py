"""The cache of programs by pattern: its bounds, what it counts, and programs that do not depend on earlier queries."""

from __future__ import annotations

import gc
import weakref
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.backends.base import Evidence
from jtgpu.backends.cpu import Cpu, programs
from jtgpu.backends.cpu.queries import CpuSweep
from jtgpu.backends.cpu.records import OUT
from jtgpu.backends.wrappers.pattern_cache import PatternCache
from jtgpu.backends.wrappers.questions import CheaperQuestions
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans.program import collect_program
from jtgpu.timing import sample_cases
from tests.support.bundled import bundled


def backend_of(net: BayesianNetwork | MarkovNetwork) -> Cpu:
    backend = net.plan().compile("cpu", threads=1)._backend
    while isinstance(backend, (CheaperQuestions, PatternCache)):
        backend = backend.backend
    assert isinstance(backend, Cpu)
    return backend


def patterns(net: BayesianNetwork, n: int, share: float) -> list[Evidence]:
    """Cases that each observe other variables."""
    cases = []
    for i in range(n):
        state = np.full(len(net), -1, np.int32)
        for name, s in sample_cases(net, 1, share, i)[0].items():
            state[net.index(name)] = s
        cases.append(Evidence(state))
    return cases


def test_the_number_of_programs_is_bounded() -> None:
    net = bundled("alarm")
    backend = backend_of(net)
    cached = backend.runner.model.programs
    for case in patterns(net, programs.MOST_PROGRAMS + 20, 0.3):
        backend.run_case(case, [0])
    assert len(cached) == programs.MOST_PROGRAMS
    backend.close()
    assert len(cached) == cached.bytes == 0


def test_the_bytes_of_programs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MOST_PROGRAM_BYTES", 1 << 20)
    net = bundled("hailfinder")
    backend = backend_of(net)
    cached = backend.runner.model.programs
    for case in patterns(net, 60, 0.1):
        backend.run_case(case)
        assert cached.bytes <= 1 << 20
    assert 1 < len(cached) < 60


def test_backward_passes_and_lists_of_terms_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "LOOK", 1)
    net = bundled("water")
    plan, factors = net.plan().plan, [f.table for f in net.factors]
    (case,) = patterns(net, 1, 0.1)
    sweep = CpuSweep(collect_program(plan, maximal=True), factors, 1)
    cached = sweep._runner.model.programs
    sweep.best(case)
    program = cached.get(case.state >= 0)
    assert len(cached) == 1
    assert cached.bytes == program.bytes > program.code.nbytes + program.steps.steps.nbytes
    backend = backend_of(net)
    cached = backend.runner.model.programs
    before = cached.get(case.state >= 0).bytes
    backend.run_case(case)
    program = cached.get(case.state >= 0)
    assert program.is_sparse
    assert cached.bytes == program.bytes == before + program.code.nbytes


def test_a_tree_that_is_not_closed_leaves_no_programs_to_the_garbage_collector() -> None:
    net = bundled("asia")
    gc.disable()
    try:
        backend = backend_of(net)
        backend.run_case(Evidence.none(len(net)))
        gone = weakref.ref(backend.runner.model.programs)
        del backend
        assert gone() is None
    finally:
        gc.enable()


def dense_network() -> MarkovNetwork:
    """Six variables of five states, a factor for each pair: products of tables cell by cell."""
    rng, names = np.random.default_rng(7), "abcdef"
    states = {name: list("01234") for name in names}
    return MarkovNetwork(states, [(pair, rng.random((5, 5)) + 0.1) for pair in combinations(names, 2)])


@pytest.mark.parametrize("name", ["alarm", "hailfinder", "water", "barley", ""])
def test_tables_take_the_cells_of_others_with_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "LOOK", 2)
    monkeypatch.setattr(programs, "LARGE", 16)
    monkeypatch.setattr(programs, "LEAST", 1)
    net: BayesianNetwork | MarkovNetwork = bundled(name) if name else dense_network()
    backend, other = backend_of(net), backend_of(net)
    observed = patterns(net, 2, 0.2) if isinstance(net, BayesianNetwork) else []
    for case in (Evidence.none(len(net.variables)), *observed):
        for _ in range(4):  # with and without structural zeros
            monkeypatch.setattr(programs, "MANY", 1 << 62)
            expected = other.run_case(case)
            monkeypatch.setattr(programs, "MANY", 0)
            result = backend.run_case(case)
            assert result.log_evidence == expected.log_evidence
            np.testing.assert_array_equal(result.posterior, expected.posterior)
    records = backend.runner.model.programs.get(np.zeros(len(net.variables), np.bool_)).dense
    if not name:
        assert any(same >= 0 for same in programs._Graph(records).same)
    if name == "barley":
        made = programs.reuse_cells(records)
        assert len(np.unique(made.records[made.record_ptr[:-1] + OUT])) < len(records.record_ptr) - 20


def test_programs_never_take_more_cells_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What munin1 frees is in pieces, none of which has room for its largest table: the arena grew by half."""
    net = bundled("munin1")
    records = backend_of(net).runner.model.programs.get(np.zeros(len(net), np.bool_)).dense
    graph = programs._Graph(records)
    assert graph.places(graph.order(), records.cells)[1] > records.cells
    assert programs.reuse_cells(records) is records


def test_repeated_explanations_leave_out_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """The maximising loops were missing where zeros are found: a crash at the 40th explanation of a pattern."""
    monkeypatch.setattr(programs, "LOOK", 3)
    net = bundled("water")
    sweep = CpuSweep(collect_program(net.plan().plan, maximal=True), [f.table for f in net.factors], 1)
    (case,) = patterns(net, 1, 0.1)
    first, *others = (sweep.best(case) for _ in range(5))
    for best in others:
        assert np.array_equal(best.states, first.states)
        assert np.array_equal(best.log_value, first.log_value)


@pytest.mark.parametrize("name", ["alarm", "water", "barley"])
def test_a_pattern_has_the_same_bits_whatever_was_answered_before(name: str) -> None:
    net = bundled(name)
    cases = patterns(net, 12, 0.2)
    backend = backend_of(net)
    targets = [int(np.flatnonzero(case.state < 0)[i]) for i, case in enumerate(cases)]
    first = [(backend.run_case(case), backend.run_case(case, [t])) for case, t in zip(cases, targets, strict=True)]
    for case, t, (everything, one) in reversed(list(zip(cases, targets, first, strict=True))):
        fresh = backend_of(net)
        part = slice(*fresh.plan.posterior_ptr[t : t + 2])
        for again in (backend, fresh):
            found = again.run_case(case, [t])
            assert np.array_equal(found.posterior, one.posterior)
            assert found.log_evidence == one.log_evidence
            assert np.array_equal(again.run_case(case).posterior, everything.posterior)
        np.testing.assert_allclose(one.posterior[part], everything.posterior[part], rtol=1e-11, atol=1e-15)
        fresh.close()


def test_a_split_model_leaves_out_densities_of_observed_copies() -> None:
    """Only densities of others mention these copies; no plan for this pattern of water pays if they are all kept."""
    tree = bundled("water").compile("cpu", threads=1)
    for _ in range(300):
        tree.posteriors({"CNON_12_15": "4_MG_L", "CKNN_12_15": "1_MG_L", "C_NI_12_45": "5"})
    assert "own plan" in repr(tree._backend)


@given(st.integers(0, 10_000))
def test_markov_networks_of_densities_are_those_of_the_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    card = rng.integers(1, 4, n)
    factors = []
    for _ in range(int(rng.integers(1, n + 2))):
        scope = rng.permutation(n)[: int(rng.integers(1, min(n, 3) + 1))]
        table = rng.random([card[v] for v in scope]) + 0.1
        if rng.random() < 0.8:
            table /= table.sum(axis=-1, keepdims=True)
        factors.append(([f"v{v}" for v in scope], table))
    states = {f"v{v}": [f"s{s}" for s in range(k)] for v, k in enumerate(card)}
    net = jtgpu.MarkovNetwork(states, factors).with_codes("index")
    cpu, reference = net.compile("cpu"), net.compile("reference")
    for share in (0.0, 0.3, 0.6):
        evidence = {v: 0 for v in net if rng.random() < share}
        weights = {v: rng.random(len(net.states(v))) + 0.1 for v in net if v not in evidence and rng.random() < 0.3}
        targets = [v for v in net if rng.random() < 0.7]
        found = cpu.posteriors(evidence, likelihood=weights, targets=targets)
        expected = reference.posteriors(evidence, likelihood=weights, targets=targets)
        assert found.log_evidence == pytest.approx(expected.log_evidence, rel=1e-10, abs=1e-10)
        for v in targets:
            np.testing.assert_allclose(found[v].probabilities, expected[v].probabilities, atol=1e-12)
        rows = {v: [evidence.get(v), 0] for v in net}
        batch, wanted = (tree.posteriors_batch(rows, targets=targets) for tree in (cpu, reference))
        np.testing.assert_allclose(batch.flat, wanted.flat, atol=1e-12)
        np.testing.assert_allclose(batch.log_evidence, wanted.log_evidence, rtol=1e-10, atol=1e-10)
        asked = [v for v in net if v not in evidence][:2]
        if asked:
            joint, table = (np.asarray(tree.joint(asked, evidence)) for tree in (cpu, reference))
            np.testing.assert_allclose(joint, table, atol=1e-12)
            best, other = (tree.map(asked, evidence).log_posterior for tree in (cpu, reference))
            assert best == pytest.approx(other, rel=1e-10, abs=1e-10)
        draws = cpu.sample(400, evidence, seed=1).to_frame("pandas")
        for v in net:
            p = reference.posterior(v, evidence).probabilities
            share_of = draws[v].value_counts(normalize=True).reindex(net.states(v)).fillna(0.0).to_numpy()
            assert np.abs(share_of - p).max() < 0.2


def test_a_variable_whose_only_factor_is_a_density_of_another_keeps_it() -> None:
    """The factor was left out as a conditional density, and the posterior was what the memory held."""
    table = np.array([[0.9, 0.1], [0.2, 0.8]])
    net = jtgpu.MarkovNetwork({"a": ["0", "1"], "b": ["0", "1"]}, [(("a", "b"), table)])
    tree, reference = net.compile("cpu"), net.compile("reference")
    assert tree.posterior("a").probabilities.tolist() == [0.5, 0.5]
    for targets in (None, ["b"], []):
        for weights in (None, {"a": [0.2, 0.3]}):
            expected = reference.posteriors(likelihood=weights, targets=targets).log_evidence
            assert tree.posteriors(likelihood=weights, targets=targets).log_evidence == pytest.approx(expected)
    batch = tree.posteriors_batch({"b": [None, "1"]}, targets=["a"])["a"]
    np.testing.assert_allclose(batch, [[0.5, 0.5], [1 / 9, 8 / 9]])
