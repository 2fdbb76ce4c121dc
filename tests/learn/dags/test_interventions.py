"""Structures from experiments: a row in which a variable was set is no case of its family."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import jtgpu
from jtgpu import errors
from jtgpu.cli import app
from jtgpu.learn.dags.graphs import has_cycle
from jtgpu.util.arrays import Bools, Floats

CARDS = (2, 3, 2, 2)


def graphs(n: int) -> Iterator[Bools]:
    """All directed acyclic graphs, [parent, child]."""
    pairs = [(u, v) for u in range(n) for v in range(n) if u != v]
    for bits in itertools.product((False, True), repeat=len(pairs)):
        arcs = np.zeros((n, n), np.bool_)
        for (u, v), bit in zip(pairs, bits, strict=True):
            arcs[u, v] = bit
        if not has_cycle(arcs):
            yield arcs


def mbde(codes: Any, was_set: Bools, v: int, parents: tuple[int, ...], ess: float = 1.0) -> float:
    """ln BDeu of a family without the rows in which v was set: ``mbde`` of bnlearn (Cooper and Yoo 1999, eq. 5)."""
    q, r = math.prod(CARDS[p] for p in parents), CARDS[v]
    total = 0.0
    for configuration in itertools.product(*(range(CARDS[p]) for p in parents)):
        rows = [
            row for row, out in zip(codes, was_set[:, v], strict=True)
            if not out and tuple(row[p] for p in parents) == configuration
        ]  # fmt: skip
        total += math.lgamma(ess / q) - math.lgamma(ess / q + len(rows))
        for k in range(r):
            n = sum(row[v] == k for row in rows)
            total += math.lgamma(ess / q / r + n) - math.lgamma(ess / q / r)
    return total


def example(n: int, rows: int = 60, seed: int = 1) -> tuple[dict[str, Any], Any, Bools]:
    """A chain a -> b -> c ... in which some variables were set in some rows: columns, codes and what was set."""
    rng = np.random.default_rng(seed)
    was_set = rng.random((rows, n)) < 0.25
    codes = np.zeros((rows, n), np.int64)
    for i, v in itertools.product(range(rows), range(n)):
        copied = v > 0 and not was_set[i, v] and rng.random() < 0.8
        codes[i, v] = codes[i, v - 1] % CARDS[v] if copied else rng.integers(CARDS[v])
    codes[:3] = [[k % CARDS[v] for v in range(n)] for k in range(3)]  # each state occurs
    names = "abcd"[:n]
    return {v: [f"s{k}" for k in codes[:, i]] for i, v in enumerate(names)}, codes, was_set


def column_of(was_set: Bools) -> list[str | None]:
    return ["; ".join("abcd"[v] for v in np.flatnonzero(row)) or None for row in was_set]


def enumerated(codes: Any, was_set: Bools) -> tuple[Floats, dict[bytes, float]]:
    """Probabilities of arcs by a sum over all graphs of at most 3 parents, and ln scores of graphs."""
    n = codes.shape[1]
    scores = {
        (v, p): mbde(codes, was_set, v, p)
        for v in range(n) for k in range(n) for p in itertools.combinations([u for u in range(n) if u != v], k)
    }  # fmt: skip
    every = [*graphs(n)]
    logs = np.array([sum(scores[v, tuple(np.flatnonzero(g[:, v]).tolist())] for v in range(n)) for g in every])
    weights = np.exp(logs - logs.max())
    arcs = np.tensordot(weights / weights.sum(), np.array(every, np.float64), 1)
    return arcs, {g.tobytes(): x for g, x in zip(every, logs.tolist(), strict=True)}


@pytest.mark.parametrize("n", [3, 4])
def test_posterior_and_best_graph_by_enumeration(n: int) -> None:
    data, codes, was_set = example(n)
    arcs, scores = enumerated(codes, was_set)
    post = jtgpu.learn.posterior(data | {"target": column_of(was_set)}, interventions="target")
    np.testing.assert_allclose(post.edge_probabilities.values, arcs, atol=1e-12)
    masks = {"abcd"[v]: was_set[:, v] for v in range(n)}
    by_masks = jtgpu.learn.posterior(data, interventions=masks)
    np.testing.assert_array_equal(by_masks.edge_probabilities.values, post.edge_probabilities.values)
    for method in ("exact", "order"):
        best = jtgpu.learn.structure(data, interventions=masks, method=method)
        found = np.array([[best.dag.has_edge(u, v) for v in best.names] for u in best.names])
        assert best.score == pytest.approx(scores[found.tobytes()], abs=1e-9)
        assert best.score == pytest.approx(max(scores.values()), abs=1e-9)
    plain = jtgpu.learn.posterior(data)
    assert abs(plain.edge("a", "b") - plain.edge("b", "a")) < 0.5 < post.edge("a", "b")


def test_score_tables_and_cpts_leave_the_rows_out() -> None:
    data, codes, was_set = example(3)
    masks = {"abc"[v]: was_set[:, v] for v in range(3)}
    table = jtgpu.learn.score_table(data, interventions=masks, ess=2.0, max_parents=2)
    assert table.score("b", ["a", "c"]) == pytest.approx(mbde(codes, was_set, 1, (0, 2), 2.0), abs=1e-9)
    constraints = jtgpu.learn.Constraints(required=[("a", "b")])
    net = jtgpu.learn.structure(data, interventions=masks, constraints=constraints).network(ess=0.0)
    free = ~was_set[:, 1]
    if net.parents("b") == ("a",):
        counts = np.zeros((2, 3))
        np.add.at(counts, (codes[free, 0], codes[free, 1]), 1)
        np.testing.assert_allclose(net.cpt("b"), counts / counts.sum(axis=1, keepdims=True), atol=1e-12)

    masks["target"] = ~free  # a column that is no variable of the structure may be set, too
    fitted = jtgpu.learn.fit(net, data | {"target": column_of(was_set)}, interventions=masks, pseudo_counts=0)
    again = jtgpu.learn.fit(net, data | {"target": column_of(was_set)}, interventions="target", pseudo_counts=0)
    assert fitted.method == "counts"
    for v in net.variables:
        np.testing.assert_allclose(fitted.network.cpt(v), net.cpt(v), atol=1e-12)
        np.testing.assert_array_equal(fitted.network.cpt(v), again.network.cpt(v))
        assert fitted.counts[v].sum() == (~was_set[:, "abc".index(v)]).sum()
    del masks["target"]

    def ours(counts: Any, child: str, parents: tuple[str, ...]) -> float:
        return float(counts.sum())

    by_function = jtgpu.learn.score_table(data, score=ours, interventions=masks, max_parents=1)
    assert by_function.score("b") == free.sum()
    bic = jtgpu.learn.score_table(data, score="bic", interventions={"b": was_set[:, 1]}, max_parents=1)
    rest = {v: [x for x, kept in zip(cells, free, strict=True) if kept] for v, cells in data.items()}
    assert bic.score("b", ["a"]) == pytest.approx(
        jtgpu.learn.score_table(rest, score="bic", max_parents=1).score("b", ["a"]), abs=1e-9
    )


@pytest.mark.parametrize("score", ["bge", "bic-cg"])
def test_numbers(score: Any) -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(size=80)
    was_set = rng.random(80) < 0.4
    b = np.where(was_set, rng.normal(size=80), a + 0.5 * rng.normal(size=80))
    data = {"a": a, "b": b, "c": rng.normal(size=80) + b}
    table = jtgpu.learn.score_table(data, score=score, continuous=True, interventions={"b": was_set}, max_parents=2)
    alone = jtgpu.learn.score_table(
        {v: x[~was_set] for v, x in data.items()}, score=score, continuous=True, max_parents=2
    )
    whole = jtgpu.learn.score_table(data, score=score, continuous=True, max_parents=2)
    for parents in ((), ("a",), ("a", "c")):
        assert table.score("b", parents) == pytest.approx(alone.score("b", parents), abs=1e-9)
    assert table.score("c", ["b"]) == pytest.approx(whole.score("c", ["b"]), abs=1e-9)
    options: dict[str, Any] = {"score": score, "continuous": True}
    post = jtgpu.learn.posterior(data, interventions={"b": was_set}, **options)
    assert post.edge("a", "b") > 0.9 > jtgpu.learn.posterior(data, **options).edge("a", "b")
    net = jtgpu.learn.structure(data, interventions={"b": was_set}, **options).network()
    assert set(net.variables) == {"a", "b", "c"}


def test_chains_agree_and_files_keep_interventions(tmp_path: Path) -> None:
    data, codes, was_set = example(4, 80, seed=4)
    arcs, _ = enumerated(codes, was_set)
    masks = {"abcd"[v]: was_set[:, v] for v in range(4)}
    chains = jtgpu.learn.Chains(tolerance=0.01, n_chains=4)
    post = jtgpu.learn.posterior(data, interventions=masks, method="mcmc", chains=chains)
    np.testing.assert_allclose(post.edge_probabilities.values, arcs, atol=0.05)
    post.save(tmp_path / "post.npz")
    again = jtgpu.learn.load(tmp_path / "post.npz")
    np.testing.assert_array_equal(again.network().cpt("b"), post.network().cpt("b"))
    assert sorted(again.cpdag.edges) == sorted(post.cpdag.edges)


def test_missing_cells_leave_rows_and_their_interventions_out() -> None:
    data, codes, was_set = example(3)
    data["a"] = [None if i % 7 == 3 else x for i, x in enumerate(data["a"])]
    kept = np.array([x is not None for x in data["a"]])
    dropped = jtgpu.learn.posterior(data | {"t": column_of(was_set)}, interventions="t", missing="drop")
    arcs, _ = enumerated(codes[kept], was_set[kept])
    np.testing.assert_allclose(dropped.edge_probabilities.values, arcs, atol=1e-12)


def test_classes_of_experiments_by_definition() -> None:
    """Graphs are equivalent if those without the arcs into each target have the same links and colliders."""
    names = "abcd"
    targets: list[Any] = ["b", ["a", "c"]]
    cut = [[], [1], [0, 2]]

    def key(arcs: Bools) -> tuple[Any, ...]:
        parts: list[Any] = []
        for out in cut:
            left = arcs.copy()
            left[:, out] = False
            linked = left | left.T
            colliders = {
                (u, v, w) for v in range(4) for u, w in itertools.combinations(np.flatnonzero(left[:, v]).tolist(), 2)
                if not linked[u, w]
            }  # fmt: skip
            parts.append((linked.tobytes(), frozenset(colliders)))
        return tuple(parts)

    classes: dict[tuple[Any, ...], list[Bools]] = {}
    for arcs in graphs(4):
        classes.setdefault(key(arcs), []).append(arcs)
    assert len(classes) > 185  # more than those of observations alone
    rng = np.random.default_rng(0)
    some = [[*classes.values()][i] for i in rng.permutation(len(classes))[:60]]

    def network(arcs: Bools) -> jtgpu.BayesianNetwork:
        parents = {names[v]: [names[u] for u in np.flatnonzero(arcs[:, v])] for v in range(4)}
        cpts = {v: np.full((2,) * (len(p) + 1), 0.5) for v, p in parents.items()}
        return jtgpu.BayesianNetwork(dict.fromkeys(names, ("0", "1")), parents, cpts)

    for members in some:
        net, union = network(members[0]), np.logical_or.reduce(members)
        expected = {(names[u], names[v]) for u, v in np.argwhere(union).tolist()}
        assert set(net.cpdag(interventions=targets).edges) == expected
        other = network(members[-1])
        assert net.is_equivalent(other, interventions=targets)
        assert jtgpu.graphs.compare(net, other, interventions=targets).shd_class == 0
    first, last = network(some[0][0]), network(some[1][0])
    assert not first.is_equivalent(last, interventions=targets)
    with pytest.raises(errors.ArgumentError, match=r"\['b'\]"):
        first.cpdag(interventions="b")


def test_fit_with_experiments_reads_files_and_needs_complete_rows(tmp_path: Path) -> None:
    data, _, was_set = example(3)
    columns = {**data, "t": column_of(was_set)}
    lines = [",".join(columns), *(",".join(x or "" for x in row) for row in zip(*columns.values(), strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    structure: dict[str, list[str]] = {"a": [], "b": ["a"], "c": ["b"]}
    of_file = jtgpu.learn.fit(structure, tmp_path / "t.csv", interventions="t")
    expected = jtgpu.learn.fit(structure, columns, interventions="t").network
    np.testing.assert_array_equal(of_file.network.cpt("b"), expected.cpt("b"))
    plain = jtgpu.learn.fit(structure, data).network
    assert np.abs(plain.cpt("b") - expected.cpt("b")).max() > 0.01
    data["a"] = [None, *data["a"][1:]]
    with pytest.raises(errors.DataError, match="missing='drop' or missing='available'"):
        jtgpu.learn.fit(structure, {**data, "t": columns["t"]}, interventions="t")
    dropped = jtgpu.learn.fit(structure, {**data, "t": columns["t"]}, interventions="t", missing="drop")
    rest = {v: x[1:] for v, x in columns.items()}
    np.testing.assert_array_equal(
        dropped.network.cpt("b"), jtgpu.learn.fit(structure, rest, interventions="t").network.cpt("b")
    )
    for given, options in (("u", {}), ("a", {}), ("t", {"hidden": {"h": 2}}), ("t", {"continuous": "states"})):
        with pytest.raises(errors.JtgpuError, match="interventions="):
            jtgpu.learn.fit(structure, columns, interventions=given, **options)


def test_commands(tmp_path: Path) -> None:
    data, _, was_set = example(3)
    lines = ["a,b,c,target", *map(",".join, zip(*data.values(), (t or "" for t in column_of(was_set)), strict=True))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = CliRunner().invoke(app, ["learn", str(tmp_path / "t.csv"), "--interventions", "target", "--json"])
    assert result.exit_code == 0, result.output
    best = jtgpu.learn.structure(tmp_path / "t.csv", interventions="target")
    assert json.loads(result.stdout)["score"] == pytest.approx(best.score)
    assert json.loads(result.stdout)["variables"] == ["a", "b", "c"]
    files = ["--edges", str(tmp_path / "e.csv"), "--columns", "a,b", "--interventions", "target"]
    result = CliRunner().invoke(app, ["learn", str(tmp_path / "t.csv"), *files])
    assert result.exit_code == 2, result.output
    assert "names 'c', which is no variable" in result.stderr


@pytest.mark.parametrize(("given", "error", "match"), [
    ("targt", errors.DataError, "did you mean 'target'"),
    ({"x": np.zeros(60, np.bool_)}, errors.DataError, "'x', which is no variable"),
    ({"a": np.zeros(60)}, errors.DataError, "60 truth values"),
    ({"a": np.zeros(3, np.bool_)}, errors.DataError, r"shape \(3,\) of bool"),
    ({"a": np.ones(60, np.bool_)}, errors.DataError, "'a' was set in every row"),
    (3, errors.ArgumentError, "name of a column"),
])  # fmt: skip
def test_wrong_interventions(given: Any, error: type[Exception], match: str) -> None:
    data, _, was_set = example(3)
    more = {"target": column_of(was_set)} if isinstance(given, str) else {}
    with pytest.raises(error, match=match):
        jtgpu.learn.posterior(data | more, interventions=given)


def test_searches_by_single_arcs_and_unknown_names_are_refused() -> None:
    data, _, was_set = example(3)
    with pytest.raises(errors.ArgumentError, match="takes no interventions"):
        jtgpu.learn.structure(data, interventions={"a": was_set[:, 0]}, method="greedy")
    with pytest.raises(errors.DataError, match="row 5: column 't' names 'q', which is no variable"):
        jtgpu.learn.structure(data | {"t": [None] * 5 + ["a;q"] + [""] * 54}, interventions="t")
