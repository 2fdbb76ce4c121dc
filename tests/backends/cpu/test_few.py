"""Cases of many evidence patterns answered with one program: the answers of any other table."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.backends.cpu import prepare
from jtgpu.backends.cpu.batch import FEW, FewCases
from jtgpu.backends.table import Table
from jtgpu.errors import JtgpuError
from jtgpu.inference.tree import JunctionTree
from jtgpu.plans.compiler import model_factors


def _cases(tree: JunctionTree, n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    states = np.array(tree.sample(n, seed=seed).states, np.int32)
    states[rng.random(states.shape) < 0.8] = -1
    return states


@pytest.mark.parametrize("name", ["asia", "alarm", "andes"])
@pytest.mark.parametrize("n", [0, 1, 2, FEW, FEW + 1, 9, 70])
def test_answers_are_those_of_a_batch(name: str, n: int) -> None:
    if name == "andes" and n > 9:
        pytest.skip("runs as a batch")
    with jtgpu.load(name).compile("cpu") as tree:
        backend = tree.intervened().backend
        states = _cases(tree, max(n, 1))[:n]
        expected, found = backend.run(Table.of(states)), backend.run(Table.of(states, recurs=False))
        np.testing.assert_allclose(found.posterior, expected.posterior, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-12)
        assert not found.impossible.any()


@pytest.mark.parametrize("n", [1, 3, 20])
def test_likelihoods_weigh_states(n: int) -> None:
    with jtgpu.load("alarm").compile("cpu") as tree:
        backend = tree.intervened().backend
        rng = np.random.default_rng(1)
        states = _cases(tree, n)
        cards = tree.model.cardinality
        weights = {v: 1e3 * rng.random((n, int(cards[v]))) for v in (2, 9, 30)}
        table = Table.of(states, weights)
        expected, found = backend.run(table), backend.run(table._replace(recurs=False))
        np.testing.assert_allclose(found.posterior, expected.posterior, rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-12)


@pytest.mark.parametrize("n", [2, 12])
def test_an_impossible_case_is_flagged_and_harms_no_other(n: int) -> None:
    with jtgpu.load("asia").compile("cpu") as tree:
        backend, model = tree.intervened().backend, tree.model
        states = np.full((n, len(model)), -1, np.int32)
        either, lung = model.index("either"), model.index("lung")
        states[0, lung] = model.state_index("lung", "yes")
        states[0, either] = model.state_index("either", "no")
        found = backend.run(Table.of(states, recurs=False))
        assert found.impossible.tolist() == [True] + [False] * (n - 1)
        assert found.log_evidence[0] == -np.inf
        assert not found.posterior[0].any()
        np.testing.assert_allclose(found.posterior[1:], backend.run(Table.of(states[1:])).posterior, rtol=1e-12)


def test_reload_replaces_the_numbers_and_close_ends_it() -> None:
    net = jtgpu.load("asia")
    with net.compile("cpu") as tree:
        plan = tree.plan.plan
        factors = [f.table for f in model_factors(net)]
        backend = prepare(plan, factors)
        states = np.full((2, len(net)), -1, np.int32)
        before = backend.run(Table.of(states, recurs=False)).posterior
        other = [np.full(f.shape, 0.5) for f in factors]
        backend.reload(other)
        np.testing.assert_allclose(backend.run(Table.of(states, recurs=False)).posterior, 0.5)
        assert np.abs(before - 0.5).max() > 0.1
        backend.close()
        with pytest.raises(JtgpuError):
            backend.run(Table.of(states, recurs=False))


def test_threads_at_the_same_time() -> None:
    with jtgpu.load("alarm").compile("cpu") as tree:
        backend = tree.intervened().backend
        tables = [_cases(tree, n, seed=n) for n in (1, 3, 9, 20)]
        expected = [backend.run(Table.of(t, recurs=False)).posterior for t in tables]
        wrong: list[int] = []

        def repeat(i: int) -> None:
            asked = Table.of(tables[i], recurs=False)
            wrong.extend(i for _ in range(30) if not np.array_equal(backend.run(asked).posterior, expected[i]))

        threads = [threading.Thread(target=repeat, args=(i,)) for i in range(len(tables))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_a_large_network_runs_as_a_batch() -> None:
    with jtgpu.load("alarm").compile("cpu") as tree:
        backend: Any = tree.intervened().backend
        assert FewCases(backend.runner, backend.runner.model).is_suitable
    with jtgpu.load("andes").compile("cpu", replan=False) as tree:
        backend = tree.intervened().backend
        assert not FewCases(backend.runner, backend.runner.model).is_suitable
