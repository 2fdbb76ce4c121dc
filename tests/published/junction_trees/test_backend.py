"""The published engine: its algorithm on the CPU, and all its modes on an emulated GPU, against brute force."""

from __future__ import annotations

import math
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.backends.base import Evidence
from jtgpu.model.discrete import DiscreteModel
from jtgpu.plans.compiler import model_factors
from jtgpu.published.junction_trees.backend import Indexed, prepare
from jtgpu.published.junction_trees.measure import tree_figures
from jtgpu.published.junction_trees.timetable import PUBLISHED
from tests.plans.test_plan import chain
from tests.support import oracle, random_nets
from tests.support.emulated import cards
from tests.support.emulated.cards import queued
from tests.support.examples import examples, slow

MODES: list[dict[str, Any]] = [
    {"engine": "host"},
    {"transfers": "resident"},
    {"transfers": "resident", "min_entries": 12, "scatter": "fused"},
    {"transfers": "each"},
    {"transfers": "each", "min_entries": 0, "streams": 1},
    {"transfers": "each", "min_entries": 12, "index_transfers": "each", "streams": 2, "ways": 4},
]


def backend_of(model: DiscreteModel, options: dict[str, Any]) -> Indexed:
    plan = model.plan(order="min-fill", cache=False).plan
    return prepare(plan, [f.table for f in model_factors(model)], **options)


@pytest.mark.parametrize("options", [*MODES[:2], *slow(*MODES[2:])], ids=str)
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_mode_agrees_with_brute_force(data: st.DataObject, options: dict[str, Any]) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    backend = backend_of(model, {"normalise": data.draw(st.sampled_from(["auto", "kernel"])), **options})
    ptr = np.concatenate([[0], np.cumsum(model.cardinality)])
    with closing(backend):  # also if hypothesis ends the example early
        for _ in range(2):  # the second run on the same engine: nothing of the first is left
            hard, soft = data.draw(random_nets.evidence_weights(model))
            state = np.full(len(model.variables), -1, np.int32)
            for v, s in hard.items():
                state[v] = s
            evidence = Evidence(state, soft)
            weights = random_nets.all_weights(model, hard, soft)
            expected = oracle.log_evidence(model, weights)
            if expected == -math.inf:
                with pytest.raises(errors.ImpossibleEvidence):
                    backend.run_case(evidence)
                continue
            found = backend.run_case(evidence)
            assert found.log_evidence == pytest.approx(expected, abs=1e-11)
            for v, p in enumerate(oracle.posteriors(model, weights)):
                np.testing.assert_allclose(found.posterior[ptr[v] : ptr[v + 1]], p, atol=1e-12)
        backend.close()


@pytest.mark.parametrize("options", [MODES[0], *slow(*MODES[1:4])], ids=str)
def test_a_long_chain_does_not_underflow(options: dict[str, Any]) -> None:
    n = 700
    backend = backend_of(chain(n, 3), options)
    state = np.array([i % 3 for i in range(n)], np.int32)  # every step changes the state
    found = backend.run_case(Evidence(state))
    assert found.log_evidence == pytest.approx(math.log(1 / 3) + (n - 1) * math.log(0.1), rel=1e-12)
    tiny = {v: np.array([1e-300, 2e-300, 1e-300]) for v in range(0, n, 7)}
    assert backend.run_case(Evidence(np.full(n, -1, np.int32), tiny)).log_evidence < -69_000
    backend.close()


def test_only_the_targets_are_computed() -> None:
    backend = backend_of(chain(9, 3), {"engine": "host"})
    everything = backend.run_case(Evidence.none(9))
    one = backend.run_case(Evidence.none(9), targets=[4])
    np.testing.assert_array_equal(one.posterior[12:15], everything.posterior[12:15])
    assert one.log_evidence == everything.log_evidence


def test_small_tables_stay_on_the_cpu() -> None:
    """The published threshold: 5000 entries, decided for each marginalisation and each scattering."""
    queued.clear()
    backend = backend_of(chain(6, 80), {"transfers": "each"})  # cliques of 6400 entries
    backend.run_case(Evidence.none(6))
    assert any(name.startswith("marginalise") for name in queued)
    queued.clear()
    smaller = backend_of(chain(6, 70), {"transfers": "each"})  # 4900
    smaller.run_case(Evidence.none(6))
    assert not queued
    backend.close()
    smaller.close()


def test_a_clique_over_the_limit_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(errors.TableTooLarge) as raised:
        backend_of(chain(4, 50), {"engine": "host", "max_entries": 2000})
    assert raised.value.entries == 2500


@pytest.mark.parametrize("transfers", ["each", "resident"])
def test_a_full_device_is_reported_with_sizes(transfers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "BYTES", 100_000)
    with pytest.raises(errors.TableTooLarge) as raised:
        backend_of(chain(6, 80), {"transfers": transfers})
    assert raised.value.needed > raised.value.limit >= 0


def test_a_closed_engine_answers_no_more() -> None:
    backend = backend_of(chain(4, 3), {"engine": "host"})
    backend.close()
    with pytest.raises(errors.JtgpuError):
        backend.run_case(Evidence.none(4))


def test_without_pycuda_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setitem(sys.modules, "pycuda.driver", None)
    with pytest.raises(errors.BackendUnavailable, match=r"'\.\[cuda\]'"):
        chain(4, 3).compile(backend="indexed")


def test_cublas_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain(6, 80)
    for normalise, uses_blas in (("cublas", True), ("auto", True), ("kernel", False)):
        backend = backend_of(model, {"normalise": normalise})
        assert backend.uses_blas == uses_blas
        backend.close()
    monkeypatch.setitem(sys.modules, "skcuda", None)
    monkeypatch.setitem(sys.modules, "skcuda.cublas", None)
    backend = backend_of(model, {})
    assert not backend.uses_blas
    backend.close()
    with pytest.raises(errors.BackendUnavailable):
        backend_of(model, {"normalise": "cublas"})
    with pytest.raises(ValueError, match="cublas"):
        backend_of(model, {"normalise": "cublas", "transfers": "resident"})


@pytest.mark.parametrize("name", ["Water", "Munin4"])
def test_published_networks_on_the_cpu(shared_nets: Path, name: str) -> None:
    folder = shared_nets / "RetiEsempio"
    net = jtgpu.read(folder / f"{name}.net")
    plan = net.plan(order=folder / f"{name}.num").plan
    factors = [f.table for f in model_factors(net)]
    found = prepare(plan, factors, engine="host").run_case(Evidence.none(plan.n_variables))
    expected = jtgpu.backends.get("reference")(plan, factors).run_case(Evidence.none(plan.n_variables))
    np.testing.assert_allclose(found.posterior, expected.posterior, atol=1e-12)
    tree = tree_figures(plan)
    for key in ("cliques", "largest", "smallest", "entries", "largest_separator", "smallest_separator"):
        assert tree[key] == PUBLISHED[name.lower()][key], key
