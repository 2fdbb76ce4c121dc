"""The CPU backend against the oracle and the definition: patterns, targets, sessions, tables of cases, threads."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors, timing
from jtgpu.backends.base import Evidence
from jtgpu.backends.cpu import Cpu, engine, parallel, programs, runner
from jtgpu.backends.cpu.costs import splittable, threads_of
from jtgpu.backends.cpu.engine import warm_up
from jtgpu.backends.cpu.records import FIRST_LOOP, LENGTH, LISTED, SPARSE, Records
from jtgpu.backends.table import Table
from jtgpu.backends.wrappers.pattern_cache import PatternCache
from jtgpu.backends.wrappers.questions import CheaperQuestions
from jtgpu.formats import bundled
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.util.loops import loops
from jtgpu.util.options import BackendName
from tests.plans.test_plan import chain
from tests.support import oracle, random_nets


def compiled(model: DiscreteModel, **options: Any) -> jtgpu.JunctionTree:
    tree: jtgpu.JunctionTree = model.plan(order="min-fill", cache=False).compile("cpu", **options)
    return tree


def backend_of(tree: jtgpu.JunctionTree) -> Cpu:
    backend = tree._backend
    while isinstance(backend, (CheaperQuestions, PatternCache)):
        backend = backend.backend
    assert isinstance(backend, Cpu)
    return backend


@given(data=st.data())
def test_targets_are_answered_whatever_else_falls_away(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    tree = compiled(model)
    for _ in range(3):
        hard, soft = data.draw(random_nets.evidence_weights(model))
        targets = data.draw(st.lists(st.integers(0, len(model) - 1), max_size=3)) if len(model) else []
        weights = random_nets.all_weights(model, hard, soft)
        expected = oracle.log_evidence(model, weights)
        if expected == -math.inf:
            with pytest.raises(errors.ImpossibleEvidence):
                tree.posteriors(hard, likelihood=soft, targets=targets)
            continue
        found = tree.posteriors(hard, likelihood=soft, targets=targets)
        assert found.log_evidence == pytest.approx(expected, abs=1e-11)
        exact = oracle.posteriors(model, weights)
        for v in targets:
            np.testing.assert_allclose(found[v], exact[v], atol=1e-12)


@pytest.fixture
def sessions_of_small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SMALL", -1)
    monkeypatch.setattr(programs, "FEW", 0)
    monkeypatch.setattr(programs, "LOOK", 2)


@pytest.mark.usefixtures("sessions_of_small_networks")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_session_answers_as_if_every_query_were_the_first(data: st.DataObject) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(), random_nets.markov_networks()))
    session = compiled(model).session()
    hard: dict[int, int] = {}
    soft: dict[int, Any] = {}
    for _ in range(6):
        more_hard, more_soft = data.draw(random_nets.evidence_weights(model))
        kept = data.draw(st.sets(st.integers(0, max(len(model) - 1, 0))))
        hard = {v: s for v, s in hard.items() if v in kept} | more_hard
        soft = {v: w for v, w in soft.items() if v in kept and v not in hard} | more_soft
        soft = {v: w for v, w in soft.items() if v not in hard}
        targets = data.draw(st.one_of(st.none(), st.lists(st.integers(0, len(model) - 1), max_size=2)))
        targets = targets if len(model) else None
        session.set(hard, likelihood=soft)
        weights = random_nets.all_weights(model, hard, soft)
        expected = oracle.log_evidence(model, weights)
        if expected == -math.inf:
            with pytest.raises(errors.ImpossibleEvidence):
                session.posteriors(targets=targets)
            continue
        found = session.posteriors(targets=targets)
        assert found.log_evidence == pytest.approx(expected, abs=1e-11)
        exact = oracle.posteriors(model, weights)
        for v in range(len(model)) if targets is None else targets:
            np.testing.assert_allclose(found[v], exact[v], atol=1e-12)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are many: every way of answering a table comes into play."""
    from jtgpu.backends.cpu import batch

    monkeypatch.setattr(batch, "_enough", lambda *_: 3)
    monkeypatch.setattr(batch, "FEW", 2)
    monkeypatch.setattr(batch, "TASK", 0.0)  # a sweep each


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@given(data=st.data())
def test_a_table_of_cases_is_answered_row_by_row(data: st.DataObject, backend: BackendName) -> None:
    model = data.draw(st.one_of(random_nets.bayesian_networks(most=6), random_nets.markov_networks(most=5)))
    tree = model.plan(order="min-fill", cache=False).compile(backend)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, missing = data.draw(st.integers(0, 30)), data.draw(st.sampled_from([0.2, 0.6, 1.0]))
    states = np.stack([rng.integers(0, c, n) for c in model.cardinality.tolist()], axis=1).astype(np.int32)
    states[rng.random(states.shape) < missing] = -1
    if data.draw(st.booleans()) and n:
        states[:] = np.where(states[0] < 0, -1, states)  # at least the first row's gaps are everybody's
    weighed = data.draw(st.sets(st.integers(0, len(model) - 1), max_size=2))
    likelihood = {v: rng.random((n, int(model.cardinality[v]))) * 10.0 ** rng.integers(-9, 9, (n, 1)) for v in weighed}
    targets = data.draw(st.one_of(st.none(), st.lists(st.integers(0, len(model) - 1), max_size=3)))
    found = tree.posteriors_batch(states, likelihood=likelihood, targets=targets, on_error="flag")
    assert len(found.flat) == n
    for i in range(n):
        case = {v: np.eye(int(model.cardinality[v]))[s] for v, s in enumerate(states[i].tolist()) if s >= 0}
        for v, w in likelihood.items():
            case[v] = case.get(v, 1.0) * w[i]
        expected = oracle.log_evidence(model, case)
        assert found.impossible[i] == (expected == -math.inf)
        if expected == -math.inf:
            assert found.log_evidence[i] == -math.inf
            assert not found.flat[i].any()
            continue
        assert found.log_evidence[i] == pytest.approx(expected, abs=1e-10)
        exact = oracle.posteriors(model, case)
        for v in range(len(model)) if targets is None else targets:
            np.testing.assert_allclose(found[v][i], exact[v], atol=1e-12)


def test_rare_cases_next_to_common_ones_lose_nothing() -> None:
    """Evidence of probability 1e-400 and more, in one lane; its neighbours are likely or impossible."""
    n = 700
    net = chain(n, 3)
    tree = net.plan(order=list(range(n)), cache=False).compile("cpu")
    states = np.zeros((20, n), np.int32)
    states[1::2] = np.arange(n) % 3  # every step changes the state
    found = tree.posteriors_batch(states)
    change = math.log(1 / 3) + (n - 1) * math.log(0.1)
    np.testing.assert_allclose(found.log_evidence[1::2], change, rtol=1e-12)
    stay = tree.log_evidence(dict.fromkeys(range(n), 0))
    np.testing.assert_allclose(found.log_evidence[0::2], stay, rtol=1e-12)
    states[:, 1::2] = -1
    found = tree.posteriors_batch(states)
    assert np.isfinite(found.flat).all()
    for i in (0, 1):
        one = tree.posteriors({v: int(s) for v, s in enumerate(states[i]) if s >= 0})
        assert found.log_evidence[i] == pytest.approx(one.log_evidence, rel=1e-12)
        np.testing.assert_allclose(found["x301"][i], one["x301"], atol=1e-12)


def test_an_impossible_case_is_named_or_flagged() -> None:
    net = BayesianNetwork(
        {"a": ["no", "yes"], "b": ["no", "yes"]}, {"b": ["a"]}, {"a": [1.0, 0.0], "b": [[0.5, 0.5], [0.1, 0.9]]}
    )
    tree = compiled(net)
    table: dict[str, list[Any]] = {"a": ["no", "yes", None], "b": [None, "yes", "no"]}
    with pytest.raises(errors.ImpossibleEvidence, match=r"row 1: .*a = 'yes'; b = 'yes'"):
        tree.posteriors_batch(table)
    found = tree.posteriors_batch(table, on_error="flag", targets="b")
    assert found.impossible.tolist() == [False, True, False]
    assert found["b"].tolist() == [[0.5, 0.5], [0, 0], [1, 0]]
    assert list(found) == ["b"]
    with pytest.raises(KeyError, match="not among the targets"):
        found["a"]


def test_bad_tables_of_cases_are_named_by_row_and_column() -> None:
    net = chain(3, 2)
    tree = compiled(net)
    with pytest.raises(errors.EvidenceError, match=r"shape \(2, 2\)"):
        tree.posteriors_batch(np.zeros((2, 2), int))
    with pytest.raises(errors.UnknownState, match=r"row 1, column 'x1': 0.5 is not a state"):
        tree.posteriors_batch(np.array([[0.0, np.nan, 1.0], [0.0, 0.5, 0.0]]))
    with pytest.raises(errors.UnknownState, match=r"row 1, column 'x2': 5 is not a state"):
        tree.posteriors_batch(np.array([[0, 0, 0], [0, 0, 5]]))
    with pytest.raises(errors.UnknownState, match=r"row 2, column 'x0': 'perhaps'"):
        tree.posteriors_batch({"x0": [None, None, "perhaps"]})
    with pytest.raises(errors.EvidenceError, match="'x1' has 1 rows, but column 'x0' has 2"):
        tree.posteriors_batch({"x0": ["s0", "s1"], "x1": ["s0"]})
    with pytest.raises(errors.EvidenceError, match="2 columns named 'x0'"):
        tree.posteriors_batch({"x0": [0], 0: [0]})
    with pytest.raises(errors.EvidenceError, match=r"shape \(3, 2\)"):
        tree.posteriors_batch({"x0": [0]}, likelihood={"x1": np.ones((3, 2))})
    with pytest.raises(ValueError, match="on_error"):
        tree.posteriors_batch({"x0": [0]}, on_error="ignore")  # type: ignore[arg-type]


def network(name: str) -> BayesianNetwork:
    net = jtgpu.read(bundled.benchmark_files([name])[0])
    assert isinstance(net, BayesianNetwork)
    return net


def evidence_on(net: BayesianNetwork, share: float, seed: int) -> Evidence:
    state = np.full(len(net), -1, np.int32)
    for name, label in timing.sample_cases(net, 1, share, seed)[0].items():
        state[net.index(name)] = net.state_index(name, label)
    return Evidence(state)


@pytest.mark.parametrize("name", ["water", "mildew", "hailfinder"])
@pytest.mark.parametrize("share", [0.0, 0.1])
def test_threads_give_the_same_bits(name: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PARALLEL", 0)
    monkeypatch.setattr(parallel, "GRAIN", 300)  # everything is split that can be
    net = network(name)
    plan = net.plan()
    evidence = evidence_on(net, share, 3)
    one = backend_of(plan.compile("cpu", threads=1)).run_case(evidence)
    for threads in (2, 5):
        backend = backend_of(plan.compile("cpu", threads=threads))
        for _ in range(3):
            result = backend.run_case(evidence)
            assert result.log_evidence == one.log_evidence
            assert np.array_equal(result.posterior, one.posterior)
    definition = plan.compile("reference")._backend
    assert definition is not None
    np.testing.assert_allclose(one.posterior, definition.run_case(evidence).posterior, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "least", "most"), [("mildew", 1, 1), ("barley", 1, 1), ("munin1", 4, 10), ("link", 4, 8)]
)
def test_the_default_number_of_threads_is_that_which_pays(
    name: str, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of large packed products pack the same numbers again: mildew and barley lose with two threads."""
    monkeypatch.setattr(runner, "cores", lambda: 16)
    used, run_tasks = [1], parallel.run_tasks

    def noted(*task: Any) -> float:
        used.append(task[-1])
        return run_tasks(*task)

    monkeypatch.setattr(runner, "run_tasks", noted)
    plan = network(name).plan()
    evidence = Evidence.none(len(plan.plan.cardinality))
    result = backend_of(plan.compile("cpu")).run_case(evidence)
    assert least <= max(used) <= most
    assert np.array_equal(result.posterior, backend_of(plan.compile("cpu", threads=1)).run_case(evidence).posterior)


def test_the_given_number_of_threads_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is estimated once for each program, not with each question."""
    monkeypatch.setattr(runner, "PARALLEL", 0)
    monkeypatch.setattr(runner, "cores", lambda: 16)
    estimated: list[Records] = []

    def estimate(records: Records) -> float:
        estimated.append(records)
        return 1300.0

    used: list[int] = []
    run_tasks = parallel.run_tasks

    def noted(*task: Any) -> float:
        used.append(task[-1])
        return run_tasks(*task)

    monkeypatch.setattr(programs, "splittable", estimate)
    monkeypatch.setattr(runner, "run_tasks", noted)
    net = chain(50, 2)
    for threads, expected in ((None, 5), (3, 3), (1, None)):
        with compiled(net, threads=threads) as tree:
            used.clear()
            for state in (0, 1, 0):
                tree.posteriors({"x3": state})
            assert used == ([] if expected is None else [expected] * 3)
    assert len(estimated) == 1


def test_the_estimate_of_threads_reads_no_record_beyond_the_last() -> None:
    """A product without loops has no numbers after its fields; of a list of terms, the second is their number."""
    net = BayesianNetwork(
        {"a": [f"s{i}" for i in range(300)], "b": [f"s{i}" for i in range(200)]}, {"b": ["a"]},
        {"a": np.full(300, 1 / 300), "b": np.full((300, 200), 1 / 200)},
    )  # fmt: skip
    found = backend_of(compiled(net)).runner.model.programs.get(np.array([True, False])).records
    assert len(found.records) == FIRST_LOOP
    assert threads_of(splittable(found), 16) == 1
    r = found.records.copy()
    for terms, on_sixteen, on_two in ((10**3, 1, 1), (8 * 10**5, 5, 1), (10**6, 5, 2), (10**7, 16, 2)):
        r[[LENGTH, LISTED]] = FIRST_LOOP + 2, SPARSE
        listed = np.concatenate([r, [1, terms]])
        shared = splittable(found._replace(records=listed, record_ptr=np.array([0, len(listed)])))
        assert (threads_of(shared, 16), threads_of(shared, 2), threads_of(shared, 1)) == (on_sixteen, on_two, 1)


def test_impossible_evidence_ends_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PARALLEL", 0)
    net = chain(50, 2)
    cpts = {v: net.cpt(v) for v in net.variables} | {"x30": np.array([[1.0, 0.0], [1.0, 0.0]])}
    net = BayesianNetwork({v: net.states(v) for v in net.variables}, {v: net.parents(v) for v in net.variables}, cpts)
    tree = compiled(net, threads=3)
    for _ in range(20):
        with pytest.raises(errors.ImpossibleEvidence):
            tree.posteriors({"x30": 1, "x49": 0})
        assert tree.posteriors({"x30": 0})["x0"][0] > 0


def test_queries_from_several_threads_run_side_by_side() -> None:
    net = network("alarm")
    tree = net.plan().compile("cpu")
    cases = timing.sample_cases(net, 8, 0.2, 5)
    expected = [tree.posteriors(c) for c in cases]
    wrong: list[str] = []

    def ask(i: int) -> None:
        for j in range(40):
            case = (i + j) % len(cases)
            found = tree.posteriors(cases[case])
            wrong.extend(v for v in found if not np.array_equal(found[v], expected[case][v]))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_session_makes_only_what_changed() -> None:
    net = network("munin4")
    session = backend_of(net.plan().compile("cpu")).session()
    evidence = evidence_on(net, 0.1, 1)
    first = session.run(evidence)
    assert session.made[0] == session.made[1] > 1000
    again = session.run(evidence)
    assert session.made[0] == 0
    assert np.array_equal(first.posterior, again.posterior)
    observed = int(np.flatnonzero(evidence.state >= 0)[0])
    session.run(evidence, [observed])
    state = evidence.state.copy()
    state[observed] = -1
    session.run(Evidence(state))
    assert session.made[0] < session.made[1]
    session.run(evidence)
    assert session.made[0] < session.made[1]


@given(data=st.data())
def test_zeros_that_are_left_out_change_nothing(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "FEW", 0)
        patch.setattr(programs, "LOOK", 0)
        for name, value in (("FEWEST_TERMS", 0), ("MOST_LEFT", 0.95), ("MOST_LEFT_OF_LANES", 0.95)):
            patch.setattr(programs, name, value)
        model = data.draw(random_nets.bayesian_networks(most=6))
        backend = backend_of(compiled(model))
        hard, soft = data.draw(random_nets.evidence_weights(model))
        for state in range(3):  # the same pattern, other states
            states = {v: (s + state) % int(model.cardinality[v]) for v, s in hard.items()}
            weights = random_nets.all_weights(model, states, soft)
            expected = oracle.log_evidence(model, weights)
            row = np.full(len(model), -1, np.int32)
            row[list(states)] = list(states.values())
            batch = backend.run(Table.of(np.tile(row, (20, 1)), {v: np.tile(w, (20, 1)) for v, w in soft.items()}))
            assert batch.impossible.all() == batch.impossible.any() == (expected == -math.inf)
            if expected == -math.inf:
                with pytest.raises(errors.ImpossibleEvidence):
                    backend.run_case(Evidence(row, soft))
                continue
            exact = np.concatenate(oracle.posteriors(model, weights))
            without = backend.run_case(Evidence(row, soft)).posterior
            np.testing.assert_allclose(without, exact, atol=1e-12)
            patch.setattr(programs, "FEW", 10**9)
            assert np.array_equal(without, backend_of(compiled(model)).run_case(Evidence(row, soft)).posterior)
            patch.setattr(programs, "FEW", 0)
            np.testing.assert_allclose(batch.posterior[13], exact, atol=1e-12)
            np.testing.assert_allclose(batch.log_evidence, expected, atol=1e-10)


@pytest.mark.parametrize("name", ["water", "mildew"])
def test_zeros_of_real_networks(name: str) -> None:
    net = network(name)
    backend = backend_of(net.plan().compile("cpu", threads=1))
    evidence = evidence_on(net, 0.1, 3)
    cached = backend.runner.model.programs.get(evidence.state >= 0)
    with_zeros = cached.records
    before = backend.run_case(evidence)
    for _ in range(programs.LOOK):
        backend.run_case(evidence)
    assert cached.records is not with_zeros
    after = backend.run_case(evidence)
    assert np.array_equal(after.posterior, before.posterior)
    assert after.log_evidence == before.log_evidence


def test_what_falls_away() -> None:
    """A chain x0 -> ... -> x9: what is barren, and what evidence separates, is not computed."""
    backend = backend_of(compiled(chain(10, 3)))

    def contractions(observed: dict[int, int], targets: list[int] | None) -> int:
        seen = np.zeros(10, np.bool_)
        seen[list(observed)] = True
        return len(backend.runner.model.programs.get(seen, (), targets).records.record_ptr) - 1

    whole = contractions({9: 0}, None)
    assert contractions({}, [0]) < contractions({}, [5]) < contractions({}, [9]) < whole
    assert contractions({5: 0}, [6]) < contractions({0: 0}, [6])
    assert contractions({}, []) == 0  # P() = 1


def test_a_closed_backend_raises() -> None:
    tree = compiled(chain(3, 2))
    session = tree.session()
    session.close()
    with pytest.raises(errors.JtgpuError, match="closed"):
        session.posteriors()
    tree.close()
    with pytest.raises(errors.JtgpuError, match="closed"):
        tree.posteriors_batch(np.zeros((1, 3), int))


def test_sessions_change_evidence_by_name() -> None:
    net = chain(4, 2)
    tree = compiled(net)
    with tree.session({"x0": 1}) as session:
        assert session.evidence == {"x0": 1}
        session.observe(2, 0)
        session.weigh("x3", [0.5, 0.1])
        np.testing.assert_array_equal(
            session.posterior("x1"), tree.posteriors({"x0": 1, "x2": 0}, likelihood={"x3": [0.5, 0.1]})["x1"]
        )
        session.retract("x3")
        session.retract("x0")
        np.testing.assert_allclose(session.posterior("x1"), tree.posterior("x1", {"x2": 0}), atol=1e-15)
        with pytest.raises(errors.EvidenceError, match="x0"):
            session.retract("x0")
        with pytest.raises(errors.UnknownState):
            session.observe("x0", 7)
        assert session.evidence == {"x2": 0}
        session.clear()
        assert session.log_evidence() == pytest.approx(0.0, abs=1e-12)


def test_loops_can_be_compiled_before_they_are_needed() -> None:
    warm_up(network("asia").plan().plan)
    folder = "jtgpu.backends.cpu.loops"
    for module, name in (("sweep", "run"), ("sweep", "run_changed"), ("lanes", "run_lanes")):
        assert not loops(f"{folder}.{module}").waits_for_compiler(name)


def test_scaling_by_powers_of_two_changes_no_bits() -> None:
    rng = np.random.default_rng(5)
    states = {name: list("012345") for name in "abcdefgh"}
    pairs = [(i, j) for i in range(8) for j in range(i + 1, min(i + 4, 8))]
    tables = [rng.uniform(0.5, 1.0, (6, 6)) for _ in pairs]
    cases: list[dict[str, str]] = [{}, {"a": "1"}, {"a": "2", "h": "0"}]
    answers: list[Any] = []
    expected: list[float] = []
    for shift in (0, -190, 190):  # such factors are left as they are, their products are scaled
        factors = [(pair, np.ldexp(table, shift)) for pair, table in zip(pairs, tables, strict=True)]
        with compiled(MarkovNetwork(states, factors)) as tree:
            one, batch = [tree.posteriors(case) for case in cases], tree.posteriors_batch(cases * 4)
        answers.append(([np.concatenate([*a.values()]) for a in one], np.concatenate([*batch.values()], axis=1)))
        logs = [a.log_evidence - len(pairs) * shift * math.log(2) for a in one]
        expected = expected or logs
        assert logs == pytest.approx(expected, abs=1e-9)
    for found, table in answers[1:]:
        np.testing.assert_array_equal(found, answers[0][0])
        np.testing.assert_array_equal(table, answers[0][1])
