"""Strengths by EM: a step against enumeration of all effects, strengths that are recovered, and bad arguments."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import BayesianNetwork, NoisyMax, NoisyOr
from jtgpu.learn import EM, fit, noisy

LABELS = ["a", "b", "c"]


def network(seed: int = 0) -> BayesianNetwork:
    """Two causes that share a third one, and a noisy child of three states."""
    rng = np.random.default_rng(seed)
    effects = {p: np.vstack([[0, 0, 1], rng.dirichlet(np.ones(3), 2)]) for p in "xyz"}
    return BayesianNetwork(
        {**dict.fromkeys("xyz", LABELS), "e": ["strong", "weak", "none"]}, {"y": ["x"], "e": ["z", "x", "y"]},
        {"x": rng.dirichlet(np.ones(3)), "y": rng.dirichlet(np.ones(3), 3), "z": rng.dirichlet(np.ones(3)),
         "e": NoisyMax(effects, [0.05, 0.1, 0.85])},
    )  # fmt: skip


def step(net: BayesianNetwork, rows: list[dict[str, Any]]) -> tuple[float, dict[str, np.ndarray]]:
    """ln P(rows), and expected effects of each parent, by going through all effects of all parents and the leak."""
    node, parents = net.noisy["e"], net.parents("e")
    counts = {p: np.zeros((3, 3)) for p in parents} | {"": np.zeros(3)}
    log_likelihood = 0.0
    for row in rows:
        weights = []
        for x, y, z in itertools.product(range(3), repeat=3):
            at = {"x": x, "y": y, "z": z}
            if any(row[p] is not None and LABELS[at[p]] != row[p] for p in at):
                continue
            prior = net.cpt("x")[x] * net.cpt("y")[x, y] * net.cpt("z")[z]
            for effects in itertools.product(range(3), repeat=4):  # of the parents and the leak; 0 is the strongest
                if row["e"] is not None and net.states("e")[min(effects)] != row["e"]:
                    continue
                p = prior * node.leak_row[effects[3]]
                for i, u in enumerate(parents):
                    p *= node.effects[i][at[u], effects[i]]
                weights.append((float(p), at, effects))
        total = sum(p for p, _, _ in weights)
        log_likelihood += np.log(total)
        for p, at, effects in weights:
            for i, u in enumerate(parents):
                counts[u][at[u], effects[i]] += p / total
            counts[""][effects[3]] += p / total
    return log_likelihood, counts


def test_a_step_against_enumeration() -> None:
    net, rng = network(), np.random.default_rng(1)
    sample = network(seed=2).compile("reference").sample(12, seed=3)
    table = {v: [str(s) if rng.random() > 0.3 else None for s in sample[v]] for v in net}
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    log_likelihood, counts = step(net, rows)
    one = fit(net, table, pseudo_counts=0, em=EM(start="given", iterations=1))
    assert abs(one.history[0].log_likelihood - log_likelihood) < 1e-11
    made = one.network.noisy["e"]
    for i, p in enumerate(net.parents("e")):
        assert np.abs(made.effects[i] - counts[p] / counts[p].sum(axis=1, keepdims=True)).max() < 1e-11
    assert np.abs(made.leak_row - counts[""] / counts[""].sum()).max() < 1e-11
    assert made.effects[0][0].tolist() == [0, 0, 1]
    assert one.counts["e"].shape == (10, 3)
    assert one.hidden == one.fixed == ()
    more = fit(net, table, pseudo_counts=0, em=EM(start="given"))
    assert more.log_likelihood > one.log_likelihood
    with more.network.expand().compile("reference") as tree:
        known = sum(
            tree.log_evidence({v: s for v, s in row.items() if s is not None}) for row in rows
        )
    assert abs(more.log_likelihood - known) < 1e-9


def test_strengths_are_recovered() -> None:
    """Of 30 causes, whose table would have 2^31 entries."""
    rng = np.random.default_rng(0)
    links = {f"d{i}": float(p) for i, p in enumerate(rng.uniform(0.3, 0.9, 30))}
    cpts: dict[str, Any] = {v: [0.9, 0.1] for v in links}
    net = BayesianNetwork(
        {v: ["no", "yes"] for v in [*links, "f"]}, {"f": [*links]}, {**cpts, "f": NoisyOr(links, 0.1)}
    )
    with net.compile() as tree:
        sample = tree.sample(4000, seed=1)
    start = net.replace(cpt={"f": NoisyOr(dict.fromkeys(links, 0.5), 0.5)})
    made = fit(start, {v: [str(s) for s in sample[v]] for v in net})
    assert made.converged
    found = [rows[1, 1] for rows in made.network.noisy["f"].effects]
    assert np.abs(np.array(found) - [*links.values()]).mean() < 0.07
    assert abs(made.network.noisy["f"].leak_row[1] - 0.1) < 0.05
    assert made.report()["parameters"] == made.network.n_parameters


def test_strengths_that_fit_a_cpt() -> None:
    net = network(seed=4)
    made = noisy(net.expand(), None, "e", neutral={"x": "a"}, strongest="first")
    assert np.abs(np.asarray(made.network.cpt("e")) - np.asarray(net.cpt("e"))).max() < 1e-3
    assert made.network.cpt("y").tolist() == net.cpt("y").tolist()
    assert set(made.fixed) == {"x", "y", "z"}
    with pytest.raises(jtgpu.ArgumentError, match="neutral: 'e' is no parent of 'e'"):
        noisy(net, None, "e", neutral={"e": "none"})


def test_strengths_of_a_node_among_others() -> None:
    """Variables outside the family need no column; neutral= and strongest= replace what a noisy node has."""
    net = network(seed=4).add("other", ["no", "yes"], ["e"])
    made = noisy(net.expand(), None, "e", neutral={"x": "a"}, strongest="first")
    assert np.abs(np.asarray(made.network.cpt("e")) - np.asarray(net.cpt("e"))).max() < 1e-3
    assert set(made.fixed) == {"x", "y", "z", "other"}
    turned = noisy(net, None, "e", neutral={"z": "b"}, strongest="last").network.noisy["e"]
    assert (turned.least, turned.effects[0][1].tolist()) == (0, [1, 0, 0])
    assert noisy(net, None, "e").network.noisy["e"].least == 2
    with pytest.raises(jtgpu.ArgumentError, match="weights are those of cases"):
        noisy(net, None, "e", weights=[1.0])


def test_arguments_about_noisy_nodes() -> None:
    net = network()
    table = {v: [str(s) for s in column] for v, column in net.compile("reference").sample(50, seed=0).items()}
    held = fit(net, table, fixed="e", em=EM(start="given"))
    assert [rows.tolist() for rows in held.network.noisy["e"].effects] == [r.tolist() for r in net.noisy["e"].effects]
    assert held.fixed == ("e",)
    assert fit(net, table, pseudo_counts={"e": 2}).counts["e"].sum() == pytest.approx(200)
    errors = fit(net, table, em=EM(standard_errors="scores"))
    assert errors.standard_errors("e").shape == (10, 3)
    for options, match in (
        ({"missing": "available"}, "missing='available' takes no noisy variables"),
        ({"em": EM(start="uniform")}, "start='uniform' is not for strengths"),
        ({"tied": [("x", "e")]}, "tied: 'e' is a noisy node"),
        ({"pseudo_counts": {"e": [1, 2]}}, "pseudo_counts: 'e' is a noisy node"),
    ):
        with pytest.raises(jtgpu.ArgumentError, match=match):
            fit(net, table, **options)
    with pytest.raises(jtgpu.ArgumentError, match="credible intervals are not available for strengths"):
        held.credible("e")


@pytest.mark.slow
def test_rows_have_trees_of_their_own() -> None:
    """Where that of the whole network does not fit: complete rows, in which the families are apart."""
    rng = np.random.default_rng(0)
    names = [f"d{i}" for i in range(40)]
    parents = {f"f{i}": [names[j] for j in sorted(rng.choice(40, 12, replace=False))] for i in range(40)}
    cpts: dict[str, Any] = {v: [0.75, 0.25] for v in names}
    cpts |= {f: NoisyOr({v: float(rng.uniform(0.2, 0.8)) for v in own}, 0.1) for f, own in parents.items()}
    net = BayesianNetwork({v: ["no", "yes"] for v in cpts}, parents, cpts)
    with net.compile() as tree:
        assert not tree.whole
        sample = tree.sample(10, seed=1)
    table = {v: [str(s) for s in sample[v]] for v in net}
    em = EM(iterations=2, accelerate=False)
    every = fit(net, table, em=em).network.noisy
    for f in ("f0", "f7"):
        own = net
        for other in parents:
            own = own.remove(other) if other != f else own
        assert np.abs(fit(own, table, em=em).network.noisy[f].rows - every[f].rows).max() < 1e-12
