"""Posteriors of tables with gaps, against a sum over all graphs and all fillings."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import jtgpu
from jtgpu import errors
from jtgpu.cli import app
from tests.learn.dags.test_interventions import graphs, mbde

NAMES = "abc"
CARDS = (2, 3, 2, 2)


def example(n: int = 3, rows: int = 40) -> tuple[dict[str, Any], Any]:
    """A chain a -> b -> c ... with six gaps: columns, and states, -1 where they are missing."""
    rng = np.random.default_rng(3)
    codes = np.zeros((rows, n), np.int64)
    codes[:, 0] = rng.integers(2, size=rows)
    for v, card in enumerate(CARDS[1:n], 1):
        same = rng.random(rows) < 0.7
        codes[:, v] = np.where(same, codes[:, v - 1] % card, rng.integers(card, size=rows))
    codes[[3, 4, 5, 6], [0, 1, 1, 2]] = -1
    codes[8, [0, 2]] = -1
    return {v: [None if k < 0 else str(k) for k in codes[:, i]] for i, v in enumerate("abcd"[:n])}, codes


def enumerated(n: int = 3) -> tuple[Any, Any]:
    """Probabilities of arcs [parent, child], and of the states of the gaps."""
    _, codes = example(n)
    gaps = np.argwhere(codes < 0)
    every, nothing = [*graphs(n)], np.zeros(codes.shape, np.bool_)
    families = [
        (v, p) for v in range(n) for k in range(n) for p in itertools.combinations([u for u in range(n) if u != v], k)
    ]
    logs, fillings = [], [*itertools.product(*(range(CARDS[v]) for _, v in gaps))]
    for filling in fillings:
        filled = codes.copy()
        filled[gaps[:, 0], gaps[:, 1]] = filling
        scores = {(v, p): mbde(filled, nothing, v, p) for v, p in families}
        logs.append([sum(scores[v, tuple(np.flatnonzero(g[:, v]).tolist())] for v in range(n)) for g in every])
    weights = np.exp(np.array(logs) - np.max(logs))
    weights /= weights.sum()
    arcs = np.tensordot(weights.sum(axis=0), np.array(every, np.float64), 1)
    states = np.zeros((len(gaps), 3))
    for filling, w in zip(fillings, weights.sum(axis=1), strict=True):
        states[np.arange(len(gaps)), list(filling)] += w
    order = np.lexsort((gaps[:, 0], gaps[:, 1]))  # by column, then by row
    return arcs, states[order]


def test_arcs_and_cells_by_enumeration() -> None:
    data, _ = example()
    arcs, states = enumerated()
    chains = jtgpu.learn.Chains(tolerance=1e-9, steps=20)
    with pytest.warns(UserWarning, match="have not converged"):
        post = jtgpu.learn.posterior(data, missing="augment", chains=chains, seed=1)
    error = np.maximum(5 * post.mcse.values, 0.08)
    assert (np.abs(post.edge_probabilities.values - arcs) <= error).all()
    assert post.cells is not None
    np.testing.assert_allclose(post.cells.probabilities, states, atol=0.3)
    assert set(post.cells.missing_mean) == set(NAMES)
    assert post.cells.rows.tolist() == [3, 8, 4, 5, 6, 8]
    assert post.method == "augmentation"
    assert not post.converged
    assert "drawn together" in post.describe()
    more = post.more(steps=2)
    assert (post.n_steps, more.n_steps) == (20, 22)
    np.testing.assert_array_equal(more.trace[:, :20], post.trace)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4])
def test_arcs_to_a_hundredth(n: int) -> None:
    chains = jtgpu.learn.Chains(tolerance=0.002, n_chains=8)
    post = jtgpu.learn.posterior(example(n)[0], missing="augment", chains=chains)
    arcs, states = enumerated(n)
    np.testing.assert_allclose(post.edge_probabilities.values, arcs, atol=0.01)
    assert post.cells is not None
    np.testing.assert_allclose(post.cells.probabilities, states, atol=0.06)


def test_weights_and_complete_tables() -> None:
    data, _ = example()
    complete = {v: [x or "0" for x in cells] for v, cells in data.items()}
    same = jtgpu.learn.posterior(complete, missing="augment")
    assert same.method == "exact"
    assert same.cells is None
    chains = jtgpu.learn.Chains(tolerance=0.5, steps=2)
    weighed = jtgpu.learn.posterior(data, missing="augment", weights=[2] * 40, chains=chains)
    assert weighed.cells is not None
    assert len(weighed.cells.rows) == 12
    plain = jtgpu.learn.posterior(data, missing="augment", chains=chains).cells
    assert plain is not None
    assert weighed.cells.rows.tolist() == np.repeat(plain.rows, 2).tolist()  # they were rows of a longer table


@pytest.mark.parametrize(("options", "match"), [
    ({"score": "bic"}, "requires a score of states"),
    ({"graph_prior": "order"}, "graph_prior='order'"),
    ({"method": "exact"}, "method='exact'"),
    ({"compute": "gpu"}, "GPU"),
    ({"chains": jtgpu.learn.Chains(tempering=4)}, "tempering"),
    ({"chains": jtgpu.learn.Chains(blocks=4)}, "blocks"),
    ({"interventions": {"a": np.arange(40) < 5}}, "no interventions"),
])  # fmt: skip
def test_what_augmentation_does_not_take(options: dict[str, Any], match: str) -> None:
    with pytest.raises(errors.ArgumentError, match=match):
        jtgpu.learn.posterior(example()[0], missing="augment", **options)


def test_other_functions_refuse_it() -> None:
    data, _ = example()
    for call, missing in (("score_table", "augment"), ("structure", "augment"), ("posterior", "em")):
        with pytest.raises(errors.ArgumentError, match="missing must be"):
            getattr(jtgpu.learn, call)(data, missing=missing)
    with pytest.raises(errors.ArgumentError, match="'em' takes scores of states"):
        jtgpu.learn.structure({"x": [1.5, None, 2.5, 3.0] * 9} | {"y": [0.5, 2.0, 1.0] * 12}, score="bge", missing="em")


def test_structural_em_finds_the_graph_that_the_complete_rows_hide() -> None:
    """A collider whose parents are seldom known together."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(2, size=(2, 600))
    c = np.where(rng.random(600) < 0.9, a | b, rng.integers(2, size=600))
    data: dict[str, Any] = {v: [*map(str, x)] for v, x in (("a", a), ("b", b), ("c", c))}
    for v in data:
        data[v] = [None if gone else x for x, gone in zip(data[v], rng.random(600) < 0.15, strict=True)]
    best = jtgpu.learn.structure(data, missing="em")
    assert sorted(best.arcs) == [("a", "c"), ("b", "c")]
    assert best.method == "em"
    states = {v: ["0", "1"] for v in "abc"}
    fit = jtgpu.learn.fit({"a": [], "b": [], "c": ["a", "b"]}, data, states=states, pseudo_counts="bdeu:1")
    assert best.score == pytest.approx(fit.log_likelihood - 3 * math.log(len(data["a"])), abs=0.1)
    assert best.network().cpt("c") == pytest.approx(fit.network.cpt("c"), abs=1e-6)
    assert jtgpu.learn.structure(data, missing="em", seed=0).score == best.score


def test_commands(tmp_path: Path) -> None:
    data, _ = example()
    lines = [",".join(NAMES), *(",".join(x or "" for x in row) for row in zip(*data.values(), strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    run = ["learn", str(tmp_path / "t.csv"), "--json", "--missing"]
    result = CliRunner().invoke(app, [*run, "em", "-o", str(tmp_path / "t.net")])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["method"] == "em"
    result = CliRunner().invoke(app, [*run, "augment", "--steps", "2"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["method"] == "augmentation"
    result = CliRunner().invoke(app, [*run, "em", "--edges", str(tmp_path / "e.csv")])
    assert result.exit_code == 2
    assert "augment computes" in result.stderr


def test_few_rows_that_are_left_are_refused() -> None:
    rng = np.random.default_rng(0)
    data: dict[str, Any] = {v: [*map(str, rng.integers(2, size=300))] for v in "abcde"}
    data["a"] = [x if i < 29 else None for i, x in enumerate(data["a"])]
    with pytest.raises(errors.DataError, match=r"leaves 29 of 300 rows.*missing='augment'"):
        jtgpu.learn.posterior(data, missing="drop")
    assert math.isfinite(jtgpu.learn.structure({v: x[:40] for v, x in data.items()}, missing="drop").score)
