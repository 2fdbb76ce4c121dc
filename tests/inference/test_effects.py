"""Effects, probabilities of causation and counterfactuals against definitions and published numbers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, EvidenceError, NetworkError
from jtgpu.inference.queries import effects


def test_an_effect_is_the_posterior_after_the_intervention() -> None:
    tree = jtgpu.load("asia").compile("cpu")
    effect = tree.effect("dysp", of="smoke", given={"xray": "yes"})
    for state in ("yes", "no"):
        expected = tree.posterior("dysp", {"xray": "yes"}, do={"smoke": state})
        assert effect[state]["yes"] == pytest.approx(expected["yes"], abs=1e-12)
    assert effect.difference() == pytest.approx(effect["yes"]["yes"] - effect["no"]["yes"], abs=1e-12)
    assert effect.difference("no", between=("no", "yes")) == pytest.approx(-effect.difference("yes"), abs=1e-12)
    assert effect.ratio() == pytest.approx(effect["yes"]["yes"] / effect["no"]["yes"])
    means = effect.average({"yes": 10, "no": 2})
    assert means["yes"] - means["no"] == pytest.approx(effect.difference(score={"yes": 10, "no": 2}))
    assert str(effect).startswith("P(dysp | do(smoke), xray = yes)")


def drug(p_treated: float, p_not: float, x: float, confounding: float = 0.0) -> jtgpu.JunctionTree:
    states = {v: ["no", "yes"] for v in "uxy"}
    u = [[1 - x + confounding, x - confounding], [1 - x - confounding, x + confounding]]
    y = [[[1 - p, p], [1 - p, p]] for p in (p_not, p_treated)]
    net = jtgpu.BayesianNetwork(states, {"x": ["u"], "y": ["x", "u"]}, {"u": [0.5, 0.5], "x": u, "y": y})
    return net.compile("cpu")


def test_probabilities_of_causation_of_an_experiment() -> None:
    """Without confounding: PNS between the difference and the smaller of two shares (Pearl, 1999)."""
    tree = drug(0.7, 0.3, 0.5)
    found = tree.probability_of_causation("y", "x")
    assert found.both == pytest.approx((0.4, 0.7))
    assert found.necessity == pytest.approx((0.4 / 0.7, 1.0))
    assert found.sufficiency == pytest.approx((0.4 / 0.7, 1.0))
    points = tree.probability_of_causation("y", "x", monotone=True)
    assert points.both == pytest.approx((0.4, 0.4))
    assert points.necessity == pytest.approx((0.4 / 0.7, 0.4 / 0.7))
    with pytest.raises(EvidenceError, match="monotone=True contradicts the network"):
        drug(0.3, 0.7, 0.5).probability_of_causation("y", "x", monotone=True)


@pytest.mark.parametrize("seed", range(20))
def test_bounds_contain_what_functions_give(seed: int) -> None:
    """A variable that says how y depends on x: its distribution gives the probabilities exactly."""
    random = np.random.default_rng(seed)
    states = {"r": ["never", "defies", "complies", "always"], "x": ["no", "yes"], "y": ["no", "yes"]}
    answers = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])  # y by r and x
    r = random.dirichlet(np.ones(4))
    x = random.dirichlet(np.ones(2), 4)
    net = jtgpu.BayesianNetwork(
        states, {"x": ["r"], "y": ["r", "x"]}, {"r": r, "x": x, "y": np.eye(2)[answers].astype(float)}
    )  # fmt: skip
    found = net.compile("cpu").probability_of_causation("y", "x")
    pn = r[2] * x[2, 1] / (r[2] * x[2, 1] + r[3] * x[3, 1])
    ps = r[2] * x[2, 0] / (r[2] * x[2, 0] + r[0] * x[0, 0])
    for value, bounds in ((pn, found.necessity), (ps, found.sufficiency), (r[2], found.both)):
        assert bounds.low - 1e-12 <= value <= bounds.high + 1e-12


def functional(seed: int) -> jtgpu.BayesianNetwork:
    random = np.random.default_rng(seed)
    noise = {f"u{i}": ["a", "b", "c"][: random.integers(2, 4)] for i in range(3)}
    inner = {f"v{i}": ["0", "1"] for i in range(4)}
    parents, cpts = {}, {u: random.dirichlet(np.ones(len(s))) for u, s in noise.items()}
    states = noise | inner
    for i in range(4):
        before = [*noise, *(f"v{k}" for k in range(i))]
        parents[f"v{i}"] = [str(p) for p in random.choice(before, 2, replace=False)]
        shape = [len(states[p]) for p in parents[f"v{i}"]]
        cpts[f"v{i}"] = np.eye(2)[random.integers(0, 2, shape)]
    return jtgpu.BayesianNetwork(states, parents, cpts)


def by_noise(net: jtgpu.BayesianNetwork, outcome: str, seen: dict[str, int], done: dict[str, int]) -> np.ndarray | None:
    """All values of the noise: those that explain what was seen, and what follows from them in the other world."""
    noise = [v for v in net.variables if not net.parents(v)]
    total = np.zeros(len(net.states(outcome)))
    for values in itertools.product(*(range(len(net.states(u))) for u in noise)):
        worlds = []
        for changed in ({}, done):
            world = dict(zip(noise, values, strict=True)) | {v: s for v, s in changed.items() if v in noise}
            for v in net.topological_order():
                if v in changed:
                    world[v] = changed[v]
                elif net.parents(v):
                    world[v] = int(np.asarray(net.cpt(v))[tuple(world[p] for p in net.parents(v))].argmax())
            worlds.append(world)
        weight = np.prod([np.asarray(net.cpt(u))[s] for u, s in zip(noise, values, strict=True)])
        if all(worlds[0][v] == s for v, s in seen.items()):
            total[worlds[1][outcome]] += weight
    return total / total.sum() if total.sum() > 0 else None


@pytest.mark.parametrize("first", [0, pytest.param(20, marks=pytest.mark.slow)])
def test_counterfactuals_by_enumeration_of_the_noise(first: int) -> None:
    for seed in range(first, 24 * first + 20):
        net, random = functional(seed), np.random.default_rng(seed)
        tree = net.compile("cpu")
        seen = {v: int(random.integers(2)) for v in ("v1", "v3")}
        done = {str(random.choice([v for v in net.variables if v.startswith("v")])): int(random.integers(2))}
        expected = by_noise(net, "v3", seen, done)
        if expected is None:
            with pytest.raises(jtgpu.ImpossibleEvidence):
                tree.counterfactual("v3", seen, do=done)
            continue
        np.testing.assert_allclose(tree.counterfactual("v3", seen, do=done).probabilities, expected, atol=1e-12)


def test_firing_squad() -> None:
    """Pearl (2000): the prisoner is dead; had rifleman A not fired, he would be dead all the same."""
    net = jtgpu.network(
        "order->A; order->B; A->dead; B->dead", "{no|yes}",
        cpts={"order": [0.3, 0.7], "A": np.eye(2), "B": np.eye(2), "dead": [[[1, 0], [0, 1]], [[0, 1], [0, 1]]]},
    )  # fmt: skip
    tree = net.compile("cpu")
    assert tree.counterfactual("dead", {"dead": "yes"}, do={"A": "no"})["yes"] == pytest.approx(1.0)
    assert tree.counterfactual("dead", {"dead": "no"}, do={"A": "yes"})["yes"] == pytest.approx(1.0)
    rows = tree.counterfactual_batch([{"dead": "yes"}, {"dead": "no"}], "dead", do={"A": "no"})
    np.testing.assert_allclose(rows["dead (counterfactual)"], [[0.0, 1.0], [1.0, 0.0]], atol=1e-12)
    assert tree.counterfactual("order", {"dead": "yes"}, do={"A": "no"})["yes"] == pytest.approx(1.0)


def test_counterfactuals_understand_the_codes_of_the_network() -> None:
    """Codes were read as names of states in the other world: 0 was the second state of ("1", "0")."""
    states = {v: ["1", "0"] for v in ("order", "dead")}
    net = jtgpu.BayesianNetwork(states, {"dead": ["order"]}, {"order": [0.3, 0.7], "dead": np.eye(2)})
    tree = net.with_codes("index").compile("cpu")
    assert tree.counterfactual("order", {"dead": 0}, do={"dead": 1})["1"] == pytest.approx(1.0)
    rows = tree.counterfactual_batch([{"dead": 0}], "order", do={"dead": 1})
    np.testing.assert_allclose(rows["order"], [[1.0, 0.0]], atol=1e-12)


def test_the_other_world_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = functional(3).compile("cpu")
    made: list[Any] = []
    build = effects._both_worlds
    monkeypatch.setattr(effects, "FEW_CASES", 0)

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return build(*arguments)

    monkeypatch.setattr(effects, "_both_worlds", counted)
    first = tree.counterfactual("v3", do={"v1": "0"})
    assert tree.counterfactual("v3", do={"v1": 0})["1"] == first["1"]
    tree.counterfactual_batch([{}], "v3", do={"v1": "0"})
    assert len(tree._caches["twins"]) == 1
    tree.counterfactual("v3", do={"v1": "1"})
    assert len(tree._caches["twins"]) == 2
    again = functional(3).replace(cpt={"u0": [0.0] * (len(tree.model.states("u0")) - 1) + [1.0]})
    tree.reload(again)
    expected = again.compile("cpu").counterfactual("v3", do={"v1": "0"})
    np.testing.assert_array_equal(tree.counterfactual("v3", do={"v1": "0"}).probabilities, expected.probabilities)
    tree.close()
    with pytest.raises(jtgpu.JtgpuError, match="this tree is closed"):
        tree.counterfactual("v3", do={"v1": "0"})


def test_a_variable_with_the_name_of_another_world_is_not_replaced() -> None:
    states = {v: ["0", "1"] for v in ("x", "y", "y (counterfactual)")}
    parents = {"y": ["x"], "y (counterfactual)": ["y"]}
    cpts = {"x": np.array([0.5, 0.5]), "y": np.eye(2), "y (counterfactual)": np.eye(2)}
    tree = jtgpu.BayesianNetwork(states, parents, cpts).compile("cpu")
    assert tree.counterfactual("y", do={"x": "1"})["1"] == 1.0
    with pytest.raises(ArgumentError, match=r"rename 'y \(counterfactual\)'"):
        tree.counterfactual_batch([{}], "y", do={"x": "1"})


def wide(seed: int, n: int) -> jtgpu.BayesianNetwork:
    """Functions of two earlier variables and noise, of up to three states."""
    random = np.random.default_rng(seed)
    states: dict[str, list[str]] = {}
    parents: dict[str, list[str]] = {}
    cpts = {}
    for i in range(n):
        v, u = f"v{i}", f"u{i}"
        states |= {v: ["0", "1", "2"][: random.integers(2, 4)], u: ["0", "1", "2"][: random.integers(2, 4)]}
        before = random.choice(np.arange(max(0, i - 5), i), min(i, 2), replace=False)
        parents[v], cpts[u] = [*(f"v{k}" for k in before), u], random.dirichlet(np.ones(len(states[u])))
        shape = [len(states[p]) for p in parents[v]]
        cpts[v] = np.eye(len(states[v]))[random.integers(0, len(states[v]), shape)]
    return jtgpu.BayesianNetwork(states, parents, cpts)


@pytest.mark.parametrize("seed", range(4))
def test_one_case_is_answered_without_a_plan_of_both_worlds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of both worlds took 0.5 to 4.5 s of 1,000 variables. Evidence may be several states, and of noise."""
    net, random = wide(seed, 25), np.random.default_rng(seed)
    tree, row = net.compile("cpu"), net.compile("cpu").sample(1, seed=seed)
    seen: dict[str, Any] = {v: row[v][0] for v in random.choice(net.variables, 6, replace=False)}
    first, *_, last = sorted(seen)
    seen[first] = [seen[first], next(s for s in net.states(first) if s != seen[first])]
    outcome = "v24"
    for done in ({"v1": "1"}, {"v3": "0", "v20": "1"}, {last: "0"}, {"u3": "1"}, {"v24": "1"}):
        cold = tree.counterfactual(outcome, seen, do=done)
        assert "twins" not in tree._caches or "v24" in done
        monkeypatch.setattr(effects, "FEW_CASES", 0)
        planned = net.compile("cpu").counterfactual(outcome, seen, do=done)
        monkeypatch.undo()
        np.testing.assert_allclose(cold.probabilities, planned.probabilities, atol=1e-12)


def test_a_variable_with_many_observed_children() -> None:
    """einsum takes 32 tables."""
    children = [f"c{i}" for i in range(70)]
    states = {v: ["0", "1"] for v in ("u", "x", "y", *children)}
    noisy = [[0.6, 0.4], [0.3, 0.7]]
    net = jtgpu.BayesianNetwork(
        states, {"y": ["x", "u"], **{v: ["u"] for v in children}},
        {"u": [0.5, 0.5], "x": [0.5, 0.5], "y": np.eye(2)[[[0, 1], [1, 0]]], **dict.fromkeys(children, noisy)},
    )  # fmt: skip
    found = net.compile("cpu").counterfactual("y", dict.fromkeys(children, "1"), do={"x": "1"})["0"]
    assert found == pytest.approx(0.7**70 / (0.7**70 + 0.4**70), abs=1e-15)


def test_many_counterfactuals_share_a_plan() -> None:
    tree = functional(3).compile("cpu")
    one = [tree.counterfactual("v3", do={"v1": "0"})["1"] for _ in range(effects.FEW_CASES + 2)]
    assert len(tree._caches["twins"]) == 1
    np.testing.assert_allclose(one, one[0], atol=1e-15)


def test_wrong_arguments_of_effects() -> None:
    tree = jtgpu.load("asia").compile("cpu")
    effect = tree.effect("dysp", of="smoke")
    with pytest.raises(ArgumentError, match="score= needs a number for each state"):
        effect.difference(score=["yes", "no"])  # type: ignore[arg-type]
    for score in ({"yes": "a", "no": 1}, {"yes": float("nan"), "no": 1}):
        with pytest.raises(ArgumentError, match="score of 'yes' must be a number"):
            effect.difference(score=score)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="between= is a pair"):
        effect.difference(between=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="states= is a pair"):
        tree.probability_of_causation("dysp", "smoke", states=("yes",))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="monotone must be True or False"):
        tree.probability_of_causation("dysp", "smoke", monotone="no")  # type: ignore[arg-type]


def test_bad_questions() -> None:
    tree = jtgpu.load("asia").compile("cpu")
    with pytest.raises(NetworkError, match=r"function of its parents.*of 'lung', 'bronc'"):
        tree.counterfactual("dysp", {"dysp": "yes"}, do={"smoke": "no"})
    with pytest.raises(ArgumentError, match="do= names what is different"):
        tree.counterfactual("dysp", {"dysp": "yes"}, do={})
    with pytest.raises(ArgumentError, match="'lung' is the cause and the outcome"):
        tree.effect("lung", of="lung")
    with pytest.raises(ArgumentError, match="given: 'smoke' is the cause or the outcome"):
        tree.effect("lung", of="smoke", given={"smoke": "yes"})
    with pytest.raises(ArgumentError, match="between= is a pair"):
        tree.effect("lung", of="smoke").difference(between="yes")
    with pytest.raises(ArgumentError, match="give one of them"):
        tree.effect("lung", of="smoke").difference("yes", score={"yes": 1, "no": 0})
    survey = jtgpu.load("survey").compile("cpu")
    with pytest.raises(ArgumentError, match="'T' has 3 states: say which, as in difference"):
        survey.effect("T", of="E").difference()
    with pytest.raises(ArgumentError, match="'A' has 3 states: say which, between="):
        survey.effect("T", of="A").difference("car")
    with pytest.raises(ArgumentError, match="'A' has 3 states; the bounds are known"):
        survey.probability_of_causation("T", "A", states=("car", "young"))


def test_a_counterfactual_with_a_noisy_node_with_many_causes() -> None:
    causes = {f"d{i}": 0.1 for i in range(40)}
    net = jtgpu.BayesianNetwork(
        {v: ["no", "yes"] for v in (*causes, "fever", "ill")}, {"fever": [*causes], "ill": ["d0"]},
        {**{v: [0.9, 0.1] for v in causes}, "fever": jtgpu.NoisyOr(causes, leak=0.01), "ill": np.eye(2)},
    )  # fmt: skip
    tree = net.compile("cpu")
    assert tree.counterfactual("ill", {"fever": "yes", "ill": "no"}, do={"d0": "yes"})["yes"] == pytest.approx(1.0)
    with pytest.raises(NetworkError, match="other CPTs have those of 'fever'"):
        tree.counterfactual("fever", {"ill": "no"}, do={"d0": "yes"})


@pytest.mark.parametrize("n", [3, 40])
def test_a_noisy_node_of_certain_effects_is_a_function(n: int) -> None:
    """Whether the network holds a table or, of many causes, strengths."""
    causes = {f"d{i}": float(i % 2) for i in range(n)}  # those of odd numbers act
    net = jtgpu.BayesianNetwork(
        {v: ["no", "yes"] for v in (*causes, "fever")}, {"fever": [*causes]},
        {**{v: [0.9, 0.1] for v in causes}, "fever": jtgpu.NoisyOr(causes)},
    )  # fmt: skip
    tree = net.compile("cpu")
    expected = 1 - 0.9 ** (n // 2 - 1)
    case: dict[str, Any] = {"d1": "yes", "fever": "yes"}
    assert tree.counterfactual("fever", case, do={"d1": "no"})["yes"] == pytest.approx(expected, abs=1e-12)
    batch = tree.counterfactual_batch([case], "fever", do={"d1": "no"})
    assert np.asarray(batch["fever (counterfactual)"])[0] == pytest.approx([1 - expected, expected], abs=1e-12)


def test_counterfactuals_where_a_state_falls_far_below_another_one_and_comes_back() -> None:
    """Sixteen findings make x = 1 more probable by 1e144, thirteen others less by 1e156: x = 0 had probability 0."""
    states = {v: ["0", "1"] for v in ("x", "y", "w", "z", "u")}
    parents = {"y": ["x"], "w": ["x"], "z": ["x", "u"]}
    same = [[1, 0], [0, 1]]
    cpts: dict[str, Any] = {"x": [0.5, 0.5], "y": same, "w": same, "u": [0.9, 0.1], "z": [same, same[::-1]]}
    for i in range(29):
        cpts[f"f{i}"] = [[1 - p, p] for p in ((1e-21, 1e-12) if i < 16 else (1.0, 1e-12))]
        states[f"f{i}"], parents[f"f{i}"] = ["0", "1"], ["y" if i < 16 else "w"]
    net = jtgpu.BayesianNetwork(states, parents, cpts)
    seen = {f"f{i}": "1" for i in range(29)} | {"z": "1"}
    x = net.compile("reference").posterior("x", seen)["1"]
    assert x == pytest.approx(9e-12, rel=1e-9)
    with net.compile("cpu") as tree:
        found = tree.counterfactual("z", seen, do={"u": "1"})
        np.testing.assert_allclose(found.probabilities, [x, 1 - x], rtol=1e-9)
