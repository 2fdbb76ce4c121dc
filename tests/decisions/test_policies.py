"""Policies against exhaustive search, backward induction, pyAgrum and published optima."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import DecisionNetwork, NetworkError
from tests.support.diagrams import pyagrum_diagram, pyagrum_value
from tests.support.examples import some


def pigs(n: int) -> DecisionNetwork:
    """The pigs of Lauritzen and Nilsson (2001) over n months."""
    states: dict[str, Any] = {}
    parents: dict[str, Any] = {}
    cpts: dict[str, Any] = {"h1": [0.9, 0.1]}
    utilities: dict[str, Any] = {}
    for t in range(1, n + 1):
        states[f"h{t}"] = ["healthy", "ill"]
        if t > 1:
            parents[f"h{t}"] = [f"h{t - 1}", f"d{t - 1}"]
            cpts[f"h{t}"] = [[[0.8, 0.2], [0.9, 0.1]], [[0.1, 0.9], [0.5, 0.5]]]
        if t < n:
            states[f"t{t}"], parents[f"t{t}"] = ["positive", "negative"], [f"h{t}"]
            cpts[f"t{t}"] = [[0.1, 0.9], [0.8, 0.2]]
            states[f"d{t}"], parents[f"d{t}"] = ["leave", "treat"], [f"t{t}"]
            utilities[f"u{t}"], parents[f"u{t}"] = [0, -100], [f"d{t}"]
    utilities["price"], parents["price"] = [1000, 300], [f"h{n}"]
    return DecisionNetwork(
        states, parents, cpts, decisions=[f"d{t}" for t in range(1, n)], utilities=utilities
    )


def oil() -> DecisionNetwork:
    """The oil wildcatter; Cowell, Dawid, Lauritzen, Spiegelhalter (1999), p. 172."""
    cpts: dict[str, Any] = {
        "oil": [0.5, 0.3, 0.2],
        "seismic": [
            [[0.6, 0.3, 0.1, 0.0], [0, 0, 0, 1]], [[0.3, 0.4, 0.3, 0.0], [0, 0, 0, 1]],
            [[0.1, 0.4, 0.5, 0.0], [0, 0, 0, 1]],
        ],
    }  # fmt: skip
    return DecisionNetwork(
        {
            "oil": ["dry", "wet", "soaking"], "test": ["yes", "no"],
            "seismic": ["none", "open", "closed", "not done"], "drill": ["yes", "no"],
        },
        {"seismic": ["oil", "test"], "drill": ["test", "seismic"], "cost": ["test"], "gain": ["oil", "drill"]},
        cpts,
        decisions=["test", "drill"], utilities={"cost": [-10, 0], "gain": [[-70, 0], [50, 0], [200, 0]]},
    )  # fmt: skip


def policy_tables(net: DecisionNetwork) -> Any:
    """All deterministic policies."""
    choices = []
    for d in net.decisions:
        *rows, n = (len(net.states(v)) for v in (*net.parents(d), d))
        size = int(np.prod(rows, dtype=int))
        choices.append([np.eye(n)[list(c)].reshape(*rows, n) for c in itertools.product(range(n), repeat=size)])
    for tables in itertools.product(*choices):
        yield dict(zip(net.decisions, tables, strict=True))


def expected_utility(net: DecisionNetwork, policy: Any) -> float:
    """Expected utility by the sum over all configurations."""
    total = 0.0
    for row in itertools.product(*(range(len(net.states(v))) for v in net.variables)):
        at = dict(zip(net.variables, row, strict=True))
        p = 1.0
        for v in net.variables:
            table = policy[v] if v in net.decisions else net.cpt(v)
            p *= np.asarray(table)[tuple(at[u] for u in (*net.parents(v), v))]
        parts = [net.utility(u)[tuple(at[x] for x in net.parents(u))] for u in net.utilities]
        total += p * (sum(parts) if net.combine == "sum" else np.prod(parts))
    return float(total)


def random_network(rng: np.random.Generator, decisions: int | None = None) -> DecisionNetwork:
    """A few chance variables, one to three decisions or as many as given, some utilities; all variables are binary."""
    n, n_decisions = int(rng.integers(2, 5)), int(rng.integers(1, 4)) if decisions is None else decisions
    names = [f"c{i}" for i in range(n)] + [f"d{i}" for i in range(n_decisions)]
    names = [str(v) for v in rng.permutation(names)]
    parents: dict[str, list[str]] = {}
    cpts = {}
    for i, v in enumerate(names):
        most = 1 if v[0] == "d" else 2
        before = [p for p in names[:i] if rng.random() < 0.5][:most]
        parents[v] = before
        if v[0] == "c":
            table = rng.random([2] * (len(before) + 1)) + 0.02
            cpts[v] = table / table.sum(axis=-1, keepdims=True)
    utilities = {}
    for i in range(int(rng.integers(1, 4))):
        parents[f"u{i}"] = [str(v) for v in rng.choice(names, int(rng.integers(1, 3)), replace=False)]
        utilities[f"u{i}"] = rng.normal(size=[2] * len(parents[f"u{i}"])) * 10
    return DecisionNetwork(
        {v: ["a", "b"] for v in names}, parents, cpts, decisions=[v for v in names if v[0] == "d"], utilities=utilities
    )


@pytest.mark.parametrize(
    ("months", "value", "recalled"), [(4, 726.8121, 729.225), (8, 665.390, 668.909)]
)
def test_pigs(months: int, value: float, recalled: float) -> None:
    net = pigs(months)
    best = net.compile().policy()
    assert best.method == "local optimum"
    assert best.expected_utility == pytest.approx(value, abs=6e-4)
    exact = net.no_forgetting().compile().policy()
    assert exact.method == "exact"
    assert exact.expected_utility == pytest.approx(recalled, abs=6e-4)
    if months == 4:
        assert net.compile().policy(method="branch").expected_utility == pytest.approx(value, abs=6e-5)


@pytest.mark.parametrize(("months", "least"), [(30, 647.340), pytest.param(100, 647.333, marks=pytest.mark.slow)])
def test_many_months(months: int, least: float) -> None:
    assert pigs(months).compile().policy(restarts=0).expected_utility >= least - 5e-4


def test_oil_wildcatter() -> None:
    tree = pickle.loads(pickle.dumps(oil().compile()))
    best = tree.policy()
    assert (best.method, round(best.expected_utility, 9)) == ("exact", 22.5)
    assert np.asarray(best["test"]).tolist() == [1.0, 0.0]
    chosen = {row["seismic"]: option for row, option in best.rows("drill") if row["test"] == "yes"}
    assert chosen == {"none": "no", "open": "yes", "closed": "yes", "not done": None}
    assert {row["seismic"] for row in best.unreached["drill"] if row["test"] == "yes"} == {"not done"}
    options = tree.options("drill", {"test": "yes", "seismic": "closed"})
    assert options.best == "yes"
    assert options["no"] == pytest.approx(-10)
    assert tree.options("test") == pytest.approx({"yes": 22.5, "no": 20.0})


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_what_is_known_may_have_a_probability_of_1e_340(backend: Any) -> None:
    u = 1e-170
    cpts: dict[str, Any] = {"fire": [1 - u, u], "alarm": [[1, 0, 0], [1 - u, u, 0]]}
    net = DecisionNetwork(
        {"fire": ["no", "yes"], "alarm": ["no", "yes", "broken"], "leave": ["no", "yes"]},
        {"alarm": ["fire"], "leave": ["alarm"], "loss": ["fire", "leave"]}, cpts, decisions=["leave"],
        utilities={"loss": [[0, -1], [-100, -10]]},
    )  # fmt: skip
    tree = net.compile(backend)
    best = tree.policy()
    np.testing.assert_array_equal(best["leave"], [[1, 0], [0, 1], [0.5, 0.5]])
    assert best.unreached == {"leave": [{"alarm": "broken"}]}
    assert not best.ties
    assert tree.options("leave", {"alarm": "yes"}) == pytest.approx({"no": -100, "yes": -10})


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("seed", some(25, 4))
def test_random_networks_are_solved_as_by_exhaustive_search(seed: int, backend: Any) -> None:
    net = random_network(np.random.default_rng([seed, 1]))
    values = [expected_utility(net, policy) for policy in policy_tables(net)]
    best = net.compile(backend).policy(restarts=30)
    assert best.expected_utility == pytest.approx(expected_utility(net, best), abs=1e-9)
    assert best.expected_utility <= max(values) + 1e-9
    if best.method == "exact" or seed % 5:  # updating alone may end below the optimum
        assert best.expected_utility == pytest.approx(max(values), abs=1e-9)
    assert net.compile(backend).policy(method="branch").expected_utility == pytest.approx(max(values), abs=1e-9)


@pytest.mark.slow
def test_five_hundred_random_networks() -> None:
    reached = 0
    for seed in range(500):
        net = random_network(np.random.default_rng([seed, 2]))
        top = max(expected_utility(net, policy) for policy in policy_tables(net))
        best = net.compile().policy(restarts=50)
        assert best.expected_utility <= top + 1e-9
        good = best.expected_utility == pytest.approx(top, abs=1e-9)
        assert good or best.method != "exact"
        reached += good
    assert reached >= 475


def test_no_policy_of_pyagrum_is_better() -> None:
    gum = pytest.importorskip("pyagrum")
    compared = 0
    for seed in range(12):
        net = random_network(np.random.default_rng([seed, 3]))
        try:
            peer = pyagrum_value(pyagrum_diagram(net))
        except gum.GumException:
            continue
        assert net.compile().policy().expected_utility >= peer - 1e-7
        compared += 1
    assert compared


def test_options_posteriors_and_utilities_follow_the_policy() -> None:
    net = pigs(4)
    tree = net.compile()
    best = tree.policy()
    chance = net.with_policy(best).compile("cpu")
    expected = chance.posterior("h4", {"t1": "positive"})["ill"]
    assert tree.posteriors({"t1": "positive"})["h4"]["ill"] == pytest.approx(expected)
    utility = tree.utility()
    assert utility.mean == pytest.approx(best.expected_utility)
    assert sum(utility.by_node.values()) == pytest.approx(best.expected_utility)
    exact = utility.distribution()
    assert exact.mean == pytest.approx(best.expected_utility)
    rounded = utility.distribution(step=50.0)
    assert rounded.error == 0.0
    assert rounded.mean == pytest.approx(best.expected_utility)
    assert rounded.probabilities == pytest.approx(exact.probabilities)
    for d in net.decisions:
        row = {net.parents(d)[0]: "positive"}
        options = tree.options(d, row)
        values = []
        for option in net.states(d):
            fixed = {**{k: np.asarray(v) for k, v in best.items()}, d: np.eye(2)[[net.states(d).index(option)] * 2]}
            other = net.with_policy(fixed).compile("cpu")
            total = 0.0
            for u in net.utilities:
                joint = np.asarray(other.joint(list(net.parents(u)), row))
                total += float((joint * net.utility(u)).sum())
            values.append(total)
        assert [options[o] for o in net.states(d)] == pytest.approx(values)


def test_value_of_information_in_units_of_utility() -> None:
    net = oil()
    tree = net.compile()
    worth = tree.value_of_information("drill", ["oil"])
    perfect = net.with_information({"drill": ("test", "seismic", "oil")}).compile().policy().expected_utility
    assert worth["oil"] == pytest.approx(perfect - 22.5)
    assert tree.value_of_information("drill", ["oil"], cost={"oil": 5.0})["oil"] == pytest.approx(perfect - 27.5)
    with pytest.raises(jtgpu.EvidenceError, match="depends on the decision"):
        tree.value_of_information("test", ["seismic"])


def test_fixed_decisions_and_uniform_policies() -> None:
    tree = oil().compile()
    assert tree.policy({"test": "no"}).expected_utility == pytest.approx(20.0)
    assert tree.policy({"oil": "soaking", "test": "no"}).expected_utility == pytest.approx(200.0)
    assert tree.options("test", policy="uniform")["no"] == pytest.approx(10.0)
    assert np.asarray(tree.policy({"test": "no"})["test"]).tolist() == [0.0, 1.0]
    assert tree.posteriors({"test": "no"})["seismic"]["not done"] == pytest.approx(1.0)  # although testing is better
    assert tree.utility({"test": "no"}).mean == pytest.approx(20.0)
    assert tree.utility({"test": "no"}).distribution(step=10.0).mean == pytest.approx(20.0)


def test_products_of_utilities() -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        net = random_network(rng)
        tables = {u: np.abs(net.utility(u)) for u in net.utilities}
        parents = {v: net.parents(v) for v in (*net.variables, *net.utilities)}
        cpts = {v: net.cpt(v) for v in net.variables if v not in net.decisions}
        product = DecisionNetwork(
            {v: net.states(v) for v in net.variables}, parents, cpts, decisions=net.decisions, utilities=tables,
            combine="product",
        )  # fmt: skip
        top = max(expected_utility(product, policy) for policy in policy_tables(product))
        assert product.compile().policy(method="branch").expected_utility == pytest.approx(top, rel=1e-9)


def test_requisite_information_and_order() -> None:
    net = pigs(4)
    assert net.requisite("d3") == ("t3",)
    recalled = net.no_forgetting()
    assert set(recalled.parents("d3")) == {"t1", "d1", "t2", "d2", "t3"}
    loose = DecisionNetwork(
        {"a": ["x", "y"], "b": ["x", "y"]}, {"u": ["a", "b"]}, {}, decisions=["a", "b"],
        utilities={"u": [[1, 2], [3, 0]]},
    )  # fmt: skip
    with pytest.raises(NetworkError, match="which of the decisions 'a' and 'b' comes first"):
        loose.no_forgetting()
    assert loose.no_forgetting(["b", "a"]).parents("a") == ("b",)
    assert loose.compile().policy(method="branch").expected_utility == pytest.approx(3)


def test_a_decision_without_utilities_is_a_tie() -> None:
    net = DecisionNetwork({"d": ["x", "y"]}, {}, {}, decisions=["d"])
    with pytest.warns(UserWarning, match="no utilities"):
        best = net.compile().policy()
    assert best.expected_utility == 0
    assert np.asarray(best["d"]).tolist() == [1.0, 0.0]
    assert best.ties == {"d": [{}]}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda t: t.options("oil"), "is no decision"),
        (lambda t: t.options("drill", {"drill": "yes"}), "leave it out"),
        (lambda t: t.policy({"gain": "yes"}), "cannot be observed"), (lambda t: t.policy(method="x"), "method must be"),
        (lambda t: t.policy({"test": "no", "seismic": "open"}), "probability 0"),
        (lambda t: t.options("drill", policy={"test": [2, 3]}), "sum to 1"),
        (lambda t: t.options("drill", policy=5), "policy must be"),
    ],
)  # fmt: skip
def test_wrong_calls(call: Any, words: str) -> None:
    with pytest.raises(jtgpu.JtgpuError, match=words):
        call(oil().compile())


@pytest.mark.parametrize("option", ["thread", "slices", "replan"])
def test_a_wrong_option_of_compile(option: str) -> None:
    with pytest.raises(TypeError, match=rf"compile\(\) has no argument '{option}'"):
        oil().compile("cpu", **{option: 1})
