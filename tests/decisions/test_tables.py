"""Options of tables of cases, published optima, recall against backward induction, concurrent calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import DecisionNetwork
from tests.decisions.test_policies import oil, pigs, random_network
from tests.support.examples import some


def asia_with_decisions() -> DecisionNetwork:
    """Asia with an X-ray and a hospital; Cowell, Dawid, Lauritzen, Spiegelhalter (1999), pp. 177-180."""
    yes_no = ["yes", "no"]
    parents = {
        "bronc": ["smoke"], "lung": ["smoke"], "tub": ["asia"], "do_xray": ["asia"], "either": ["lung", "tub"],
        "dysp": ["bronc", "either"], "xray": ["do_xray", "either"], "do_hosp": ["asia", "do_xray", "dysp", "xray"],
        "hosp": ["lung", "tub", "do_hosp"], "of_xray": ["tub", "do_xray"],
    }  # fmt: skip
    yes = {
        "smoke": 0.5, "asia": 0.01, "bronc": [0.6, 0.3], "lung": [0.1, 0.01], "tub": [0.05, 0.01],
        "either": [[1, 1], [1, 0]], "dysp": [[0.9, 0.8], [0.7, 0.1]], "xray": [[0.98, 0.05], [0.5, 0.5]],
    }  # fmt: skip
    cpts = {v: np.stack([np.asarray(p, float), 1.0 - np.asarray(p, float)], axis=-1) for v, p in yes.items()}
    order = ("smoke", "asia", "bronc", "lung", "tub", "do_xray", "either", "dysp", "xray", "do_hosp")
    utilities: dict[str, Any] = {
        "hosp": [[[180, 2], [160, 0]], [[120, 4], [15, 40]]], "of_xray": [[0, 10], [1, 10]],
    }  # fmt: skip
    return DecisionNetwork(
        dict.fromkeys(order, yes_no), parents, cpts, decisions=["do_xray", "do_hosp"], utilities=utilities
    )


def test_asia_with_an_xray_and_a_hospital() -> None:
    best = asia_with_decisions().compile().policy()
    assert best.method == "exact"
    assert best.expected_utility == pytest.approx(47.49, abs=5e-3)
    assert {row["asia"]: option for row, option in best.rows("do_xray")} == {"yes": "yes", "no": "no"}
    untravelled = [o for row, o in best.rows("do_hosp") if row["asia"] == row["do_xray"] == "no"]
    assert untravelled == ["no"] * 4


def over_all(net: DecisionNetwork, table: Any, scope: tuple[str, ...]) -> Any:
    """A table with an axis for each variable of the network, of one cell where it does not depend on it."""
    axis = {v: i for i, v in enumerate(net.variables)}
    ordered = np.einsum(np.asarray(table), [axis[v] for v in scope], sorted(axis[v] for v in scope))
    return ordered.reshape([len(net.states(v)) if v in scope else 1 for v in net.variables])


def utility_of_all(net: DecisionNetwork) -> Any:
    """Probability of the chance variables times total utility, of each configuration of all variables."""
    worth: Any = sum(over_all(net, net.utility(u), net.parents(u)) for u in net.utilities)
    for v in net.variables:
        if v not in net.decisions:
            worth = worth * over_all(net, net.cpt(v), (*net.parents(v), v))
    return np.broadcast_to(worth, [len(net.states(v)) for v in net.variables])


def by_backward_induction(net: DecisionNetwork) -> float:
    """The largest expected utility where nothing is forgotten; decisions in the order of the variables."""
    names, value = net.variables, utility_of_all(net)
    axis = {v: i for i, v in enumerate(names)}
    known: list[str] = []
    stages: list[list[str]] = []  # what becomes known before each decision
    for d in net.decisions:
        stages.append([v for v in net.parents(d) if v not in known])
        known += [*stages[-1], d]
    value = value.sum(axis=tuple(axis[v] for v in names if v not in known), keepdims=True)
    for d, seen in zip(reversed(net.decisions), reversed(stages), strict=True):
        value = value.max(axis=axis[d], keepdims=True)
        value = value.sum(axis=tuple(axis[v] for v in seen), keepdims=True)
    return float(value.item())


@pytest.mark.parametrize("seed", range(30))
def test_recall_is_backward_induction_over_histories(seed: int) -> None:
    net = random_network(np.random.default_rng([seed, 4]))
    recalled = net.no_forgetting(order=net.decisions)
    best = recalled.compile().policy()
    assert best.method == "exact"
    assert best.expected_utility == pytest.approx(by_backward_induction(recalled), abs=1e-9)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("seed", some(6, 2))
def test_options_of_a_table_are_those_of_its_rows(seed: int, backend: Any) -> None:
    rng = np.random.default_rng([seed, 5])
    net = random_network(rng)
    tree = net.compile(backend)
    for d in net.decisions:
        above = [v for v in net.variables if v not in {d, *net.descendants(d)}]
        rows = [{v: net.states(v)[rng.integers(2)] for v in above if rng.random() < 0.5} for _ in range(9)]
        table: Any = {v: [row.get(v) for row in rows] for v in above} if above else [{}] * 9
        found = tree.options_batch(d, table)
        for values, row in zip(found, rows, strict=True):
            options = tree.options(d, row)
            assert values == pytest.approx([options[o] for o in net.states(d)], abs=1e-9)


def test_wrong_tables() -> None:
    tree = oil().compile()
    with pytest.raises(jtgpu.EvidenceError, match=r"row 1.*leave it out"):
        tree.options_batch("drill", {"test": ["yes", "yes"], "drill": [None, "yes"]})
    with pytest.raises(jtgpu.ImpossibleEvidence, match="row 1"):
        tree.options_batch("drill", {"test": ["yes", "yes"], "seismic": ["open", "not done"]})
    assert tree.options_batch("drill", {"test": ["no"]}, policy="uniform")[0] == pytest.approx([20.0, 0.0])


def test_policies_that_do_not_fit() -> None:
    with pytest.raises(jtgpu.TableTooLarge, match=r"policy of .d5. .* over .t5., .t1., .d1.,"):
        pigs(10).no_forgetting().compile(max_table=1000)


def test_calls_at_the_same_time() -> None:
    net = pigs(6)
    tree = net.compile()
    cases: list[dict[str, str]] = [{f"t{t}": s} for t in range(1, 6) for s in net.states("t1")]
    expected = [net.compile().policy(case).expected_utility for case in cases]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda case: tree.policy(case).expected_utility, cases))
    assert found == pytest.approx(expected, abs=1e-12)
