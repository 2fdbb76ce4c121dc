"""The cache of programs by pattern: its bounds, what it counts, and programs that do not depend on earlier queries."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.base import Evidence
from jtgpu.backends.cpu import Cpu, programs
from jtgpu.backends.cpu.queries import CpuSweep
from jtgpu.backends.wrappers.pattern_cache import PatternCache
from jtgpu.model.network import BayesianNetwork
from jtgpu.plans.program import collect_program
from jtgpu.timing import sample_cases
from tests.support.bundled import bundled


def backend_of(net: BayesianNetwork) -> Cpu:
    backend = net.plan().compile("cpu", threads=1)._backend
    if isinstance(backend, PatternCache):
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
        backend.run(case, [0])
    assert len(cached) == programs.MOST_PROGRAMS
    backend.close()
    assert len(cached) == cached.bytes == 0


def test_the_bytes_of_programs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MOST_PROGRAM_BYTES", 1 << 20)
    net = bundled("hailfinder")
    backend = backend_of(net)
    cached = backend.runner.model.programs
    for case in patterns(net, 60, 0.1):
        backend.run(case)
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
    backend.run(case)
    program = cached.get(case.state >= 0)
    assert program.is_sparse
    assert cached.bytes == program.bytes == before + program.code.nbytes


def test_a_tree_that_is_not_closed_leaves_no_programs_to_the_garbage_collector() -> None:
    net = bundled("asia")
    gc.disable()
    try:
        backend = backend_of(net)
        backend.run(Evidence.none(len(net)))
        gone = weakref.ref(backend.runner.model.programs)
        del backend
        assert gone() is None
    finally:
        gc.enable()


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
    first = [(backend.run(case), backend.run(case, [t])) for case, t in zip(cases, targets, strict=True)]
    for case, t, (everything, one) in reversed(list(zip(cases, targets, first, strict=True))):
        fresh = backend_of(net)
        part = slice(*fresh.plan.posterior_ptr[t : t + 2])
        for again in (backend, fresh):
            found = again.run(case, [t])
            assert np.array_equal(found.posterior, one.posterior)
            assert found.log_evidence == one.log_evidence
            assert np.array_equal(again.run(case).posterior, everything.posterior)
        np.testing.assert_allclose(one.posterior[part], everything.posterior[part], rtol=1e-11, atol=1e-15)
        fresh.close()


def test_a_variable_whose_only_factor_is_a_density_of_another_keeps_it() -> None:
    """The factor was left out as a conditional density, and the posterior was what the memory held."""
    table = np.array([[0.9, 0.1], [0.2, 0.8]])
    net = jtgpu.MarkovNetwork({"a": ["0", "1"], "b": ["0", "1"]}, [(("a", "b"), table)])
    tree = net.compile("cpu")
    assert tree.posterior("a").probabilities.tolist() == [0.5, 0.5]
    batch = tree.posteriors_batch({"b": [None, "1"]}, targets=["a"])["a"]
    np.testing.assert_allclose(batch, [[0.5, 0.5], [1 / 9, 8 / 9]])
