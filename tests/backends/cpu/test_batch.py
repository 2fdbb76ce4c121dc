"""Tables of cases on the CPU: which rows go together, and that threads change nothing but the time."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.backends.cpu import batch, costs
from jtgpu.backends.cpu.batch import rows_by_pattern
from jtgpu.backends.table import Table
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT
from tests.support.examples import examples


def network(name: str) -> BayesianNetwork:
    net = jtgpu.read(ROOT / "nets" / f"{name}.net")
    assert isinstance(net, BayesianNetwork)
    return net.with_codes("index")


def with_holes(net: BayesianNetwork, n: int, share: float) -> np.ndarray:
    """Samples, of which four columns in ten are observed, with some cells empty: (n, V) int32."""
    with net.plan().compile("cpu", threads=1) as tree:
        states = np.asarray(tree.sample(n, seed=3).states, np.int32).copy()
    random = np.random.default_rng(5)
    states[:, random.permutation(len(net))[: round(0.6 * len(net))]] = -1
    states[random.random(states.shape) < share] = -1
    return states


@pytest.mark.slow
@given(st.data())
@examples(60)
def test_rows_of_a_pattern_stand_together(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, n_vars = data.draw(st.integers(0, 300)), data.draw(st.sampled_from([1, 3, 63, 64, 65, 130]))
    states = random.integers(-1, 2, (n, n_vars)).astype(np.int32)
    if data.draw(st.booleans()) and n:  # few patterns
        states = states[random.integers(0, min(n, 3), n)]
    ignored = random.random(n_vars) < data.draw(st.sampled_from([0.0, 0.5, 1.0]))
    rows, ptr = rows_by_pattern(np.ascontiguousarray(states), ignored)
    expected: dict[bytes, list[int]] = {}
    for row in range(n):
        expected.setdefault(((states[row] >= 0) & ~ignored).tobytes(), []).append(row)
    assert [rows[i:j].tolist() for i, j in pairwise(ptr.tolist())] == list(expected.values())


@pytest.mark.parametrize("name", ["alarm", "barley.net.xz", "win95pts"])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_the_same_bits_for_any_number_of_threads(name: str, share: float) -> None:
    net = jtgpu.read(ROOT / "nets" / name) if "." in name else network(name)
    assert isinstance(net, BayesianNetwork)
    states = with_holes(net, 60 if name.startswith("barley") else 700, share)
    plan = net.plan()
    found = []
    for threads in (1, 2, 3, 8):
        with plan.compile("cpu", threads=threads) as tree:
            for targets in (None, [2, 0]):
                answer = tree.posteriors_batch(states, targets=targets)
                found.append((answer.flat.tobytes(), answer.log_evidence.tobytes()))
    assert len(set(found[0::2])) == len(set(found[1::2])) == 1


@pytest.mark.parametrize("enough", [1, 20, 10**9])
def test_every_way_gives_the_answers_of_single_cases(monkeypatch: pytest.MonkeyPatch, enough: int) -> None:
    net = network("alarm")
    states = with_holes(net, 300, 0.1)
    monkeypatch.setattr(batch, "_enough", lambda *_: enough)
    with net.plan().compile("cpu", threads=2) as tree, net.compile("reference") as slow:
        found = tree.posteriors_batch(states)
        for row in range(0, 300, 23):
            exact = slow.posteriors({v: s for v, s in enumerate(states[row].tolist()) if s >= 0})
            assert found.log_evidence[row] == pytest.approx(exact.log_evidence, abs=1e-10)
            for v in range(len(net)):
                np.testing.assert_allclose(found[v][row], np.asarray(exact[v]), atol=1e-12)


def test_few_rows_of_a_pattern_share_a_program_and_many_have_their_own() -> None:
    net = network("win95pts")
    states = with_holes(net, 3000, 0.02)
    states[:1000] = states[0]
    states[2999] = -1
    with net.compile("cpu") as tree:
        table = batch.CaseTable(tree.intervened(()).backend.runner, states, {}, None)  # type: ignore[attr-defined]
        groups = batch.group_rows(table)
    assert sorted(r for g in groups for r in g.rows.tolist()) == list(range(3000))
    own, shared = groups[:-1], groups[-1]
    assert len(own) >= 1
    assert all(len({(states[r] >= 0).tobytes() for r in g.rows.tolist()}) == 1 for g in own)
    assert len({(states[r] >= 0).tobytes() for r in shared.rows.tolist()}) > 1
    assert min(len(g.rows) for g in own) > 8


def test_calls_at_the_same_time_share_the_threads() -> None:
    net = network("win95pts")
    states = with_holes(net, 2000, 0.1)
    with net.plan().compile("cpu", threads=3) as tree:
        expected = tree.posteriors_batch(states)
        found, most = [], [0]

        def call() -> None:
            found.append(tree.posteriors_batch(states))
            most[0] = max(most[0], sum(t.name == "jtgpu-batch" for t in threading.enumerate()))

        callers = [threading.Thread(target=call) for _ in range(4)]
        for c in callers:
            c.start()
        for c in callers:
            c.join()
    assert len(found) == 4
    assert all(f.flat.tobytes() == expected.flat.tobytes() for f in found)
    assert most[0] <= 2  # in addition to the callers


def test_an_error_in_a_thread_ends_the_call_and_gives_all_threads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network("win95pts")
    states = with_holes(net, 2000, 0.1)
    with net.plan().compile("cpu", threads=3) as tree:
        good = tree.posteriors_batch(states)
        calls = [0]

        def failing(*given: object) -> None:
            calls[0] += 1
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(batch._lanes, "run_lanes", failing)
            with pytest.raises(KeyboardInterrupt):
                tree.posteriors_batch(states)
        assert 1 <= calls[0] <= 3
        assert not [t for t in threading.enumerate() if t.name == "jtgpu-batch"]
        assert tree.posteriors_batch(states).flat.tobytes() == good.flat.tobytes()


def test_one_core_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    net = network("alarm")
    states = with_holes(net, 2000, 0.1)

    def none(*_: object, **__: object) -> None:
        raise AssertionError("a thread was started")

    with net.plan().compile("cpu", threads=1) as tree:
        monkeypatch.setattr(threading.Thread, "start", none)
        tree.posteriors_batch(states)


def test_no_rows_and_few() -> None:
    net = network("asia")
    with net.compile("cpu") as tree:
        assert tree.posteriors_batch(np.zeros((0, 8), np.int32)).flat.shape == (0, 16)
        for n in range(1, 10):
            states = np.full((n, 8), -1, np.int32)
            states[:, 0] = np.arange(n) % 3 - 1
            found = tree.posteriors_batch(states)
            single = [tree.posteriors({0: s} if s >= 0 else {}).log_evidence for s in states[:, 0].tolist()]
            np.testing.assert_allclose(found.log_evidence, single, atol=1e-13)


@pytest.mark.slow
def test_rows_of_one_pattern_run_one_by_one_where_that_is_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """water: tables of eight cases side by side exceed the caches, and most of their terms are zeros."""
    net = jtgpu.load("water")
    with net.compile("cpu", threads=1) as tree:
        states = np.asarray(tree.sample(12, seed=3).states, np.int32).copy()
    states[:, [v for v in range(len(net)) if v % 10]] = -1
    chosen: list[Any] = []
    for margin in (costs.MARGIN, 1e9):
        monkeypatch.setattr(batch, "MARGIN", margin)
        with net.compile("cpu", threads=1) as tree:
            table = batch.CaseTable(tree.intervened(()).backend.backend.runner, states, {}, None)  # type: ignore[attr-defined]
            chosen.append([g.lanes for g in batch.group_rows(table, by_row=True)])
            answer = tree.intervened(()).backend.backend.run(Table.of(states))  # type: ignore[attr-defined]
            chosen.append(answer)
    assert (chosen[0], chosen[2]) == ([0], [8])
    np.testing.assert_allclose(chosen[1].posterior, chosen[3].posterior, atol=1e-12)
    np.testing.assert_allclose(chosen[1].log_evidence, chosen[3].log_evidence, rtol=1e-12)
