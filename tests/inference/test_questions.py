"""Trees whose questions are planned one by one: every answer is that of the whole tree."""

from __future__ import annotations

import copy
import json
import math
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import BayesianNetwork, ImpossibleEvidence, JunctionTree, MarkovNetwork, TableTooLarge
from jtgpu.backends import get
from jtgpu.backends.base import Evidence
from jtgpu.backends.reference import ExtendedEvidence, Reference
from jtgpu.backends.wrappers.possible_states import without_impossible_states
from jtgpu.inference.planning import question_plan
from jtgpu.plans.compiler import plan_tables
from tests.support.examples import some


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too large is refused at once, not after a search of seconds."""
    monkeypatch.setattr("jtgpu.backends.wrappers.questions.FEW_STEPS", 10_000)
    monkeypatch.setattr("jtgpu.backends.wrappers.questions.MOST_STEPS", 20_000)


def zeros(seed: int, n: int = 8, density: float = 0.4) -> BayesianNetwork:
    """A random network most of whose CPT entries are zero; some variables have one state."""
    rng = np.random.default_rng(seed)
    cards = rng.choice([1, 2, 2, 3, 4], n)
    parents: dict[str, list[str]] = {}
    cpts = {}
    for v in range(n):
        around = sorted(rng.choice(v, min(v, int(rng.integers(0, 4))), replace=False).tolist()) if v else []
        parents[f"x{v}"] = [f"x{u}" for u in around]
        table = rng.random([*cards[around], cards[v]])
        table *= rng.random(table.shape) < (density if rng.random() < 0.8 else 1.0)
        empty = table.sum(axis=-1) == 0
        table[empty, rng.integers(cards[v])] = 1.0
        cpts[f"x{v}"] = table / table.sum(axis=-1, keepdims=True)
    states = {f"x{v}": [f"s{s}" for s in range(c)] for v, c in enumerate(cards.tolist())}
    return BayesianNetwork(states, parents, cpts, name=f"zeros{seed}")


def by_question(net: Any, backend: Any = "reference", **options: Any) -> JunctionTree:
    """A tree of a network that would fit."""
    return question_plan(net, TableTooLarge("as if too large")).compile(backend, **options)


def evidence(net: Any, seed: int, n: int = 3) -> dict[str, dict[str, Any]]:
    """Evidence of all kinds, often impossible."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(net.variables))[:n].tolist()
    hard: dict[str, Any] = {}
    more: dict[str, Any] = {"likelihood": {}}
    for v in chosen:
        name, states = net.variables[v], net.states(v)
        kind = rng.integers(5)
        if kind == 0 and len(states) > 1:
            hard[name] = set(states[1:])
        elif kind == 1:
            weights = rng.random(len(states)) * (rng.random(len(states)) < 0.7)
            more["likelihood"][name] = np.where(weights.any(), weights, 1.0)
        else:
            hard[name] = states[int(rng.integers(len(states)))]
    if isinstance(net, BayesianNetwork) and rng.random() < 0.3:
        v = int(rng.integers(len(net)))
        if net.variables[v] not in hard and net.variables[v] not in more["likelihood"]:
            more["do"] = {net.variables[v]: net.states(v)[-1]}
    return {"evidence": hard, **more}


def same(one: Any, other: Any) -> None:
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-10, atol=1e-12)


def outcome(call: Any) -> Any:
    """An answer, or ImpossibleEvidence."""
    try:
        return call()
    except ImpossibleEvidence as error:
        return type(error)


def pairs(call: Any, whole: JunctionTree, tree: JunctionTree) -> tuple[Any, Any] | None:
    """The answers of both trees; None if both say that the evidence is impossible."""
    a, b = outcome(lambda: call(whole)), outcome(lambda: call(tree))
    assert (a is ImpossibleEvidence) == (b is ImpossibleEvidence)
    return None if a is ImpossibleEvidence else (a, b)


def compare(net: Any, whole: JunctionTree, tree: JunctionTree, seed: int, *, ranked: bool = True) -> None:
    """Ask both trees everything about some evidence; a search has no second best configuration."""
    given, rng = evidence(net, seed), np.random.default_rng(seed)
    scope = [net.variables[v] for v in rng.permutation(len(net.variables))[:3].tolist()]
    for targets in (None, scope, scope[:1], ()):
        both = pairs(lambda t, some=targets: t.posteriors(**given, targets=some), whole, tree)
        if both is not None:
            same(both[0].log_evidence, both[1].log_evidence)
            for v in both[0]:
                same(both[0][v], both[1][v])
    for call in (
        lambda t: t.joint(scope, **given).probabilities,
        lambda t: t.conditional(scope[:1], scope[1:], **given).probabilities,
        lambda t: t.posteriors(**given, joints=[scope[:2]]).joint[tuple(scope[:2])].probabilities,
    ):
        both = pairs(call, whole, tree)
        if both is not None:
            same(*both)
    many, two = (3, 2) if ranked else (1, 1)
    for call in (lambda t: t.mpe(**given, k=many), lambda t: t.map(scope[:2], **given, k=two)):
        both = pairs(call, whole, tree)
        if both is not None:
            same([one.log_joint for one in both[0].ranked], [one.log_joint for one in both[1].ranked])
            same(both[0].log_evidence, both[1].log_evidence)
            assert list(both[0]) == list(both[1])
    both = pairs(lambda t: t.sample(20, **given, seed=1), whole, tree)
    if both is not None:
        assert (both[1].states >= 0).all()
        for row in both[1].states[:5]:
            case = {v: net.states(v)[s] for v, s in zip(net.variables, row.tolist(), strict=True)}
            assert math.isfinite(whole.log_evidence(case, do=given.get("do")))


@pytest.mark.parametrize("seed", some(330, 8))
def test_every_answer_is_that_of_the_whole_tree(seed: int) -> None:
    net = zeros(seed)
    with net.compile("reference") as whole, by_question(net) as tree:
        assert whole.whole
        assert not tree.whole
        for i in range(3):
            compare(net, whole, tree, 1000 * seed + i)


@pytest.mark.parametrize("seed", range(3))
def test_compiled_loops_agree(seed: int) -> None:
    net = zeros(100 + seed, 12)
    with net.compile("cpu") as whole, by_question(net, "cpu") as tree:
        for i in range(4):
            compare(net, whole, tree, 1000 * seed + i)


@pytest.mark.parametrize("seed", range(6))
def test_markov_networks(seed: int) -> None:
    net = zeros(seed)
    rng = np.random.default_rng(seed)
    tables = [((*net.parents(v), v), 10 ** rng.uniform(-200, 200) * np.asarray(net.cpt(v))) for v in net.variables]
    markov = MarkovNetwork({v: net.states(v) for v in net.variables}, tables)
    with markov.compile("reference") as whole, by_question(markov) as tree:
        for i in range(3):
            compare(markov, whole, tree, 1000 * seed + i)


def diagnosis(n: int = 80, causes: int = 8, seed: int = 0) -> BayesianNetwork:
    """Diseases and findings, each the deterministic OR of some diseases, one after the other: no tree of it fits."""
    rng = np.random.default_rng(seed)
    either = [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]
    parents: dict[str, list[str]] = {f"d{i}": [] for i in range(n)}
    cpts: dict[str, Any] = {f"d{i}": [0.9, 0.1] for i in range(n)}
    for f in range(n):
        last, *others = (f"d{i}" for i in rng.choice(n, causes, replace=False))
        for k, disease in enumerate(others):
            name = f"f{f}" if k == causes - 2 else f"f{f}_{k}"
            parents[name], cpts[name] = [last, disease], either
            last = name
    return BayesianNetwork({v: ["no", "yes"] for v in parents}, parents, cpts, name="diagnosis")


@pytest.fixture(scope="module")
def clinic() -> JunctionTree:
    return diagnosis().compile("cpu")


def case(net: BayesianNetwork, seed: int = 1, n: int | None = None) -> dict[str, str]:
    """Findings of a forward sample."""
    rng = np.random.default_rng(seed)
    states: dict[str, int] = {}
    for v in net.variables:
        row = np.asarray(net.cpt(v))[tuple(states[u] for u in net.parents(v))]
        states[v] = int(rng.random() < row[1])
    findings = [v for v in net.variables if v[0] == "f" and "_" not in v]
    return {v: ["no", "yes"][states[v]] for v in findings[:n]}


def by_hand(net: BayesianNetwork, findings: dict[str, str]) -> dict[str, float]:
    """P(disease) where each positive finding has one cause left at most, or shares none; None of others."""
    absent = {u for f, s in findings.items() if s == "no" for u in _diseases(net, f)}
    return dict.fromkeys(absent, 0.0)


def _diseases(net: BayesianNetwork, v: str) -> set[str]:
    return {v} if v[0] == "d" else set().union(*(_diseases(net, u) for u in net.parents(v)))


def test_a_network_whose_tree_does_not_fit(clinic: JunctionTree) -> None:
    net: Any = clinic.model
    begun = time.perf_counter()
    with pytest.raises(TableTooLarge, match="largest clique would have at least 2"):
        net.compile("cpu", whole=True)
    assert time.perf_counter() - begun < 20  # 0.1 s; 2 s on a machine that has nothing else to do
    assert not clinic.whole
    assert clinic.plan.order == ()
    assert "one by one" in clinic.plan.describe()
    findings = case(net)
    post = clinic.posteriors(findings)
    absent = by_hand(net, findings)
    assert len(absent) > 20
    assert all(post[v]["yes"] == p for v, p in absent.items())
    left = [v for v in net.variables if v[0] == "d" and v not in absent]
    positive = [_diseases(net, f) - set(absent) for f, s in findings.items() if s == "yes"]
    cells = np.indices((2,) * len(left)).reshape(len(left), -1)
    weight = np.prod(np.where(cells == 1, 0.1, 0.9), axis=0)
    for causes in positive:
        weight = weight * cells[[left.index(v) for v in sorted(causes)]].any(axis=0)
    for i, v in enumerate(left):
        assert post[v]["yes"] == pytest.approx(float(weight[cells[i] == 1].sum() / weight.sum()), abs=1e-12)
    assert post.log_evidence == pytest.approx(math.log(weight.sum()) + len(absent) * math.log(0.9), abs=1e-9)
    cost = clinic.question_cost(findings)
    assert cost.left <= len(left)
    assert cost.variables == len(net)
    assert f"{cost.left} left" in str(cost)


def test_relevance_alone(clinic: JunctionTree) -> None:
    """A disease has no ancestors; a finding has few."""
    assert clinic.posterior("d3")["yes"] == 0.1
    assert clinic.posterior("f0")["no"] == pytest.approx(0.9**8, abs=1e-12)
    assert clinic.question_cost(targets=["f0"]).left <= 15


def test_too_large_a_question_says_what_is_left(clinic: JunctionTree) -> None:
    everything: Any = clinic.model
    positive = {v: "yes" for v in everything.variables if v[0] == "f" and "_" not in v}
    with pytest.raises(TableTooLarge, match=r"too large: of 640 variables .* leave .* largest clique .* try"):
        clinic.posteriors(positive)
    with pytest.raises(TableTooLarge, match="question is too large"):
        clinic.question_cost(positive)
    with pytest.raises(TableTooLarge, match="it was divided, too: a part about 10 of the 640 targets"):
        clinic.posteriors(positive)
    with pytest.raises(TableTooLarge, match=r"need the whole tree.*with_numbers"):
        clinic.sensitivity(("d0", "yes"))
    with pytest.raises(TableTooLarge, match=r"needs the whole tree, and .* 2\^"):
        clinic.plan.cost()


def test_rows_that_are_too_large_are_named(clinic: JunctionTree) -> None:
    net: Any = clinic.model
    hard: Any = {v: "yes" for v in net.variables if v[0] == "f" and "_" not in v}
    table: Any = [{"f0": "no"}, {"f0": "no"}, hard, {"f1": "no"}]
    for call in (
        lambda: clinic.posteriors_batch(table, targets=["d0"], on_error="flag"),
        lambda: clinic.posteriors_batch(table, targets=["d0"], soft={"d1": [0.5, 0.5]}),
        lambda: clinic.predict_proba(table, targets=["d0"]),
    ):
        with pytest.raises(TableTooLarge, match=r"^row 2: this question is too large: of 640 variables") as refused:
            call()
        assert refused.value.message.count("more than the limit") == 1
    for call in (lambda: clinic.mpe_batch([hard]), lambda: clinic.impute([hard]),
                 lambda: clinic.expected_counts([hard])):  # fmt: skip
        with pytest.raises(TableTooLarge, match=r"^row 0: this question"):
            call()
    frame = {v: [row.get(v) for row in table] for v in hard}
    answer = clinic.predict_proba(frame, targets=["d0"], on_error="flag")
    assert [str(reason)[:27] for reason in answer["error"]] == ["None", "None", "this question is too large:", "None"]
    rows = clinic.posteriors_batch([table[0], table[3]], targets=["d0"])["d0"][:, 1]
    assert [answer["d0=yes"][i] for i in (0, 1, 3)] == [rows[0], rows[0], rows[1]]
    one = {v: [state] for v, state in hard.items()}
    for alone in (  # no row has an answer
        clinic.predict_proba(one, targets=["d0"], on_error="flag", log_evidence=True, conflict=True, mpe=True),
        clinic.predict(one, targets=["d0"], on_error="flag"),
    ):
        assert str(alone["error"][0]).startswith("this question is too large:")
        assert all(column[0] is None or np.isnan(column[0]) for name, column in alone.items() if name != "error")


def test_an_engine_of_much_work_is_not_cheap() -> None:
    """It was, once it had been made."""
    with by_question(zeros(3)) as tree:
        questions: Any = tree.backend and tree.intervened().backend
        left = questions.reduce(Evidence.none(len(tree.model)))
        for _ in range(2):
            assert questions.is_cheap(left, 1e9)
            assert not questions.is_cheap(left, 1.0)


def test_the_cost_of_a_question_that_is_divided() -> None:
    net = diagnosis(30, 4, 2)
    with net.compile("cpu", max_table=2_000) as tree:
        whole = tree.question_cost(targets=["f0"])
        assert not tree.whole
        assert 0 < whole.largest <= 2_000
        asked = [f"f{i}" for i in range(24)]
        parts = tree.question_cost(targets=asked)
        assert parts.largest <= 2_000 < parts.entries
        assert parts.left < tree.question_cost(targets=["f0"]).left * 24
        same(tree.posteriors(targets=asked)["f7"], tree.posterior("f7"))


def test_functions_of_the_numbers() -> None:
    net = zeros(4, density=1.0)
    rows: Any = [{net.variables[0]: net.states(net.variables[0])[0]}, {}]
    with net.compile("cpu") as whole, by_question(net, "cpu") as tree:
        one, other = (t.evidence_function(rows) for t in (whole, tree))
        same(one.log_evidence(), other.log_evidence())
        same(one.log_evidence({"x1": 2.0 * net.cpt("x1")}), other.log_evidence({"x1": 2.0 * net.cpt("x1")}))
        for a, b in zip(one.gradient().cpts.values(), other.gradient().cpts.values(), strict=True):
            same(a, b)
    with by_question(zeros(4), "cpu") as tree, pytest.raises(TableTooLarge, match="need the whole tree"):
        tree.evidence_function([{}]).gradient()


def test_impossible_evidence_is_named(clinic: JunctionTree) -> None:
    net: Any = clinic.model
    disease = sorted(_diseases(net, "f0"))[0]
    with pytest.raises(ImpossibleEvidence, match="f0"):
        clinic.posteriors({disease: "yes", "f0": "no"})
    with pytest.raises(ImpossibleEvidence, match="f0"):
        clinic.mpe({disease: "yes", "f0": "no"})


def test_tables_have_the_answers_of_single_cases(clinic: JunctionTree) -> None:
    net: Any = clinic.model
    cases = [case(net, seed, n) for seed in range(20) for n in (3, 80)] + [{"d0": "yes"}] * 3
    targets = ["d0", "d1", "f7"]
    table = clinic.posteriors_batch(cases, targets=targets)
    for i, findings in enumerate(cases):
        alone = clinic.posteriors(findings, targets=targets)
        assert table.log_evidence[i] == alone.log_evidence
        for v in targets:
            assert np.asarray(table[v][i]).tolist() == np.asarray(alone[v]).tolist()
    sick = sorted(_diseases(net, "f0"))[0]
    wrong = clinic.posteriors_batch([{sick: "yes", "f0": "no"}, {}], targets=["d1"], on_error="flag")
    assert wrong.impossible.tolist() == [True, False]
    best = clinic.mpe_batch([case(net, seed) for seed in range(5)])
    for seed in range(5):
        assert best.log_joint[seed] == pytest.approx(clinic.mpe(case(net, seed)).log_joint, abs=1e-9)


def test_threads_sessions_pickles_and_other_numbers(clinic: JunctionTree) -> None:
    net: Any = clinic.model
    cases = [case(net, seed) for seed in range(8)]
    expected = [clinic.posteriors(c).log_evidence for c in cases]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda c: clinic.posteriors(c).log_evidence, cases * 4)) == expected * 4
    with clinic.session(cases[0]) as session:
        session.retract("f0")
        assert math.isfinite(session.posteriors(targets=["d0"]).log_evidence)
    with pickle.loads(pickle.dumps(clinic)) as again:
        assert not again.whole
        assert again.posteriors(cases[0]).log_evidence == expected[0]
    other = net.replace(cpt={"d0": [0.5, 0.5]})
    with clinic.with_numbers(other) as changed:
        assert changed.posterior("d0")["yes"] == 0.5
        changed.reload(net)
        assert changed.posterior("d0")["yes"] == 0.1
    assert copy.copy(clinic.plan).describe() == clinic.plan.describe()


@pytest.mark.parametrize("seed", range(4))
def test_expected_counts(seed: int) -> None:
    net = zeros(seed)
    with net.compile("cpu") as whole, by_question(net, "cpu") as tree:
        rows = [{v: net.states(v)[s] for v, s in zip(net.variables[:3], row, strict=False)}
                for row in whole.sample(6, seed=seed).states[:, :3].tolist()]  # fmt: skip
        first = net.variables[0]  # observed, and with weights
        for likelihood in ({}, {first: np.linspace(0.2, 0.9, len(net.states(first)))}):
            one, other = (t.expected_counts(rows, likelihood=likelihood) for t in (whole, tree))
            for v in net.variables:
                same(one[v], other[v])


def test_numbers_far_from_their_means() -> None:
    """Samples were of other weights, without a word; then they needed the whole tree."""
    net = jtgpu.MixedNetwork(
        {"a": ["n", "y"], "s": ["n", "y"], "x": float}, {"s": ["a"], "x": ["s"]},
        {"a": [0.5, 0.5], "s": [[0.5, 0.5]] * 2, "x": jtgpu.Gaussian([0.0, 1.0], sd=1.0)},
    )  # fmt: skip
    for x in (1000.0, 1e6):  # the second one is beyond exponents of 32 bits
        far = {"a": "y", "x": x}
        whole = net.compile("cpu")
        with net.compile("cpu", max_table=2) as tree:
            for each in (whole, tree):
                assert set(each.sample(50, far, seed=1)["s"]) == {"y"}
                assert each.posterior("s", far)["y"] == 1.0
                assert each.log_evidence(far) == pytest.approx(whole.log_evidence(far), rel=1e-12)
            assert [tree.impute([far], seed=seed)["s"][0] for seed in range(6)] == ["y"] * 6
            assert tree.posterior("s", {"x": 3.0})["y"] == pytest.approx(1 / (1 + math.exp(-2.5)))


@pytest.mark.parametrize("seed", some(120, 6))
def test_weights_that_are_no_ordinary_numbers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of variables and of sets, in whole trees, those without impossible states and by questions."""
    rng = np.random.default_rng(seed)
    net = zeros(seed)
    one, two, three = rng.permutation(8)[:3].tolist()
    sets = [[one, two], [two, three]]
    plan = net.plan(together=sets).plan
    factors = plan_tables(plan, net)
    kinds = question_plan(net, TableTooLarge("as if too large"), together=sets)
    state = np.full(8, -1, np.int32)
    for v in rng.permutation(8)[:2].tolist():
        state[v] = rng.integers(net.cardinality[v])
    given: dict[int, tuple[Any, Any]] = {}
    for v in {*rng.integers(8, size=2).tolist(), 8, 9}:
        shape = net.cardinality[[v] if v < 8 else sorted(sets[v - 8])].tolist()
        mantissas = np.where(rng.random(shape) < 0.2, 0.0, rng.uniform(0.5, 1.0, shape))
        given[v] = mantissas, rng.choice([0, -3000, 4000, 1 << 28], shape)

    def answer(plan: Any, backend: Any) -> Any:
        """Posteriors of the variables, and ln P(e)."""
        axes = {v: np.argsort(np.argsort(plan.sets[v - 8])) if v >= 8 else [0] for v in given}
        weights, powers = ({v: x[i].transpose(axes[v]).ravel() for v, x in given.items()} for i in (0, 1))
        return outcome(lambda: backend.run_case(ExtendedEvidence(state, weights, powers), [*range(10)]))

    expected = answer(plan, Reference(plan, factors))
    monkeypatch.setattr("jtgpu.backends.wrappers.possible_states.LEAST_WORK", 0)
    for found in (
        answer(plan, without_impossible_states(plan, factors, get("cpu"))),
        answer(kinds.plan, kinds.prepare("cpu", factors)), answer(kinds.plan, kinds.prepare("reference", factors)),
    ):  # fmt: skip
        if expected is ImpossibleEvidence:
            assert found is ImpossibleEvidence
        else:
            n = int(net.cardinality.sum())
            same(found.posterior[:n], expected.posterior[:n])
            assert found.log_evidence == pytest.approx(expected.log_evidence, rel=1e-12)


def test_arguments_are_those_of_whole_trees() -> None:
    with by_question(zeros(5)) as tree:
        v = tree.model.variables[0]
        most: Any = math.inf
        assert tree.joint([v], max_table=most).shape == (len(tree.model.states(v)),)
        for wrong in (lambda: tree.joint([v], how="junk"), lambda: tree.joint_cost([v], how="junk"),  # type: ignore[arg-type]
                      lambda: tree.map([v], max_table="x")):  # type: ignore[arg-type]  # fmt: skip
            with pytest.raises(jtgpu.ArgumentError):
                wrong()


@pytest.mark.slow
def test_a_tree_that_fits_plans_small_questions_by_themselves() -> None:
    net = diagnosis(34, 6, 3)
    findings = {f"f{i}": "no" for i in range(33)}
    with net.compile("cpu") as tree, net.compile("cpu", replan=False) as plain:
        assert tree.whole
        same(tree.posterior("d0", findings), plain.posterior("d0", findings))
        assert tree.log_evidence(findings) == pytest.approx(plain.log_evidence(findings), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_small_questions_of_trees_that_fit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, of trees as small as those of tests."""
    net = zeros(200 + seed)
    with net.compile("cpu", replan=False) as plain:
        monkeypatch.setattr("jtgpu.backends.make.LEAST_WORK", 0)
        monkeypatch.setattr("jtgpu.backends.wrappers.questions.LOOK", 0)
        monkeypatch.setattr("jtgpu.backends.wrappers.questions.GAIN", 1)
        with net.compile("cpu") as tree:
            assert tree.whole
            for i in range(4):
                compare(net, plain, tree, 1000 * seed + i)
            tree.reload(net)
            same(tree.posterior("x1"), plain.posterior("x1"))


@pytest.mark.parametrize("number", some(12, 2))
def test_known_answers(shared_nets: Path, number: int) -> None:
    one = json.loads((shared_nets / "zeros/answers.json").read_text())[number]
    net = jtgpu.read(shared_nets / f"zeros/{one['name']}.uai.xz")
    findings = {net.variables[int(v)]: net.states(int(v))[s] for v, s in one["evidence"].items()}
    with net.compile("cpu") as tree:
        post = tree.posteriors(findings, targets=[int(v) for v in one["targets"]])
        assert post.log_evidence == pytest.approx(one["log_evidence"], abs=1e-8)
        for v, probabilities in one["targets"].items():
            same(post[int(v)], probabilities)
