"""Data with missing cells: families are scored by the rows in which all their variables are known."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, DataError
from jtgpu.learn.dags.scores.coded import CodedTable
from tests.learn.dags.data import random_table


def with_gaps(seed: int, n: int = 5, n_rows: int = 120, weighted: bool = False) -> dict[str, Any]:
    """Columns of text, a tenth of whose cells are missing, and weights."""
    table, rng = random_table(seed, n=n, n_rows=n_rows, weighted=weighted), np.random.default_rng(seed)
    known = rng.random(table.codes.shape) > 0.1
    columns = {
        v: [table.states[i][c] if k else None for c, k in zip(table.codes[i].tolist(), known[i], strict=True)]
        for i, v in enumerate(table.names)
    }
    return {"data": columns, "weights": None if table.weights is None else table.weights.tolist()}


def definition(table: CodedTable, v: int, parents: tuple[int, ...]) -> float:
    """ln P of the known rows by relative frequencies, times N / their number, minus the penalty of BIC."""
    weights = [1] * table.codes.shape[1] if table.weights is None else table.weights.tolist()
    counts: dict[tuple[int, ...], dict[int, int]] = {}
    total = 0
    for row, w in zip(table.codes.T.tolist(), weights, strict=True):
        if 255 not in (row[v], *(row[u] for u in parents)):
            of = counts.setdefault(tuple(row[u] for u in parents), {})
            of[row[v]] = of.get(row[v], 0) + w
            total += w
    likelihood = sum(c * math.log(c / sum(of.values())) for of in counts.values() for c in of.values())
    free = math.prod(len(table.states[u]) for u in parents) * (len(table.states[v]) - 1)
    return likelihood * sum(weights) / total - free * math.log(sum(weights)) / 2


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_those_of_the_definition(weighted: bool) -> None:
    given = with_gaps(3, weighted=weighted)
    table = jtgpu.learn.score_table(**given, score="bic", missing="available", max_parents=3)
    coded = jtgpu.learn.structure(**given, score="bic", missing="available")._table
    assert coded.has_gaps
    for v in range(5):
        for size in range(4):
            for parents in itertools.combinations([u for u in range(5) if u != v], size):
                found = table.score(table.names[v], [table.names[u] for u in parents])
                assert found == pytest.approx(definition(coded, v, parents), abs=1e-9)


def test_complete_data_have_the_scores_of_bic() -> None:
    data = {k: [x or "s0" for x in v] for k, v in with_gaps(4)["data"].items()}
    plain = jtgpu.learn.score_table(data, score="bic")
    found = jtgpu.learn.score_table(data, score="bic", missing="available")
    assert np.array_equal(plain.scores, found.scores)


def test_searches_chains_and_networks_take_known_cells() -> None:
    given = {**with_gaps(8, n=7), "score": "bic", "missing": "available"}
    exact, best = jtgpu.learn.posterior(**given), jtgpu.learn.structure(**given)
    found = jtgpu.learn.posterior(
        method="mcmc", search=jtgpu.learn.Search(candidates=3), compute=jtgpu.Compute(threads=1), **given
    )
    gaps = np.abs(found.edge_probabilities.values - exact.edge_probabilities.values)
    assert (gaps <= 5.0 * found.mcse.values + 1e-3).all()
    assert best.score == pytest.approx(exact.map_score, abs=1e-9)
    assert jtgpu.learn.structure(
        method="order", search=jtgpu.learn.Search(candidates=4), **given
    ).score == pytest.approx(best.score, abs=1e-9)
    net, column = best.network(), given["data"]["a"]
    if not net.parents("a"):
        known = [x for x in column if x]
        assert net.cpt("a")[0] == pytest.approx((known.count("s0") + 1 / len(net.cpt("a"))) / (len(known) + 1))
    assert sum(exact.average(n_dags=5, backend="reference").posteriors({})["b"].values()) == pytest.approx(1.0)


def test_a_family_that_is_never_known_is_impossible(tmp_path: Path) -> None:
    rows = ["x,,p", "y,,q", ",u,p", ",w,q", "x,,q", ",u,q", ",,"]
    path = tmp_path / "cases.csv"
    path.write_text("\n".join(["a,b,c", *rows]))
    found = jtgpu.learn.posterior(path, score="bic", missing="available")
    assert found.edge("a", "b") == found.edge("b", "a") == 0.0
    assert found.edge("a", "c") > 0.0
    assert found._record.table.dropped == 1


@pytest.mark.parametrize(
    ("call", "options", "message"),
    [
        ("posterior", {"score": "bdeu"}, "requires score='bic', not 'bdeu'"),
        ("structure", {"score": "aic"}, "requires score='bic', not 'aic'"),
        ("score_table", {"score": "bds"}, "requires score='bic', not 'bds'"),
        ("structure", {"score": "bic", "method": "tabu"}, "method='tabu' requires complete rows"),
        ("score_table", {"score": "bic", "compute": "gpu"}, "backend='gpu' requires complete rows"),
    ],
)
def test_other_scores_are_refused(call: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        getattr(jtgpu.learn, call)(with_gaps(3)["data"], missing="available", **options)


@pytest.mark.parametrize("method", ["exact", "order", "greedy", "tabu"])
def test_few_rows_are_refused(method: Any) -> None:
    """T6: one complete row of 300 gave eleven arcs, none of which changes the score."""
    rng = np.random.default_rng(2)
    data = {f"q{j}": rng.choice(["a", "b", "c"], 60).tolist() for j in range(5)}
    for i in range(1, 60):
        data[f"q{i % 5}"][i] = None
    with pytest.raises(DataError, match="missing='drop' leaves 1 of 60 rows; leave out the columns with"):
        jtgpu.learn.structure(data, missing="drop", method=method)


@pytest.mark.parametrize("numbers", [None, {"x": "gaussian"}])
def test_a_fit_of_few_rows_warns(numbers: Any) -> None:
    data = {"a": ["y", "n"] * 20, "x": [1.0, 2.0, 4.0, 3.5] + [None] * 36}
    with pytest.warns(UserWarning, match=r"missing='drop' leaves 4 of 40 rows; .* such as x \(36\)"):
        jtgpu.learn.fit({"x": ["a"]}, data, missing="drop", continuous=numbers)
