"""Scores of numbers against integrals, definitions by regression, and graphs that data were drawn from."""

from __future__ import annotations

import itertools
import math
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

import jtgpu
from jtgpu.errors import ArgumentError, DataError, FormatError
from jtgpu.learn.dags.candidate_tables import CandidateTables
from jtgpu.learn.dags.chain_records import RUN
from jtgpu.learn.dags.scores.ranks import parent_masks, parent_members
from jtgpu.learn.dags.set_tables import outer_sets, set_tables
from jtgpu.model.equivalence import cpdag_of
from jtgpu.util.loops import loops
from tests.learn.dags.data import random_table

rng = np.random.default_rng


def scaled(x: Any) -> Any:
    return (x - x.mean()) / x.std(ddof=1)


def chain_of_numbers(seed: int, n_rows: int = 400) -> dict[str, Any]:
    """a -> b -> d <- c, in units that differ by 24 orders of magnitude."""
    r = rng(seed)
    a, c = r.normal(size=n_rows), r.normal(size=n_rows)
    b = 1.5 * a + r.normal(size=n_rows)
    d = b - 1.2 * c + r.normal(size=n_rows)
    return {"a": 3e12 + 1e12 * a, "b": 1e-12 * b, "c": 170 + 10 * c, "d": d}


def mixed_table(seed: int, n_rows: int = 600) -> dict[str, Any]:
    """g -> h, (a, g) -> e, e -> f."""
    r = rng(seed)
    g, a = r.integers(0, 3, n_rows), 50 + 20 * r.normal(size=n_rows)
    h = np.where(r.random(n_rows) < 0.25, r.integers(0, 3, n_rows), g)
    e = np.array([0.0, 2.0, -1.0])[g] + np.array([0.1, 0.0, -0.1])[g] * a + r.normal(size=n_rows)
    f = e + 2 * r.normal(size=n_rows)
    words = np.array(["low", "mid", "high"])
    return {"g": words[g].tolist(), "h": words[h].tolist(), "a": a, "e": e, "f": f}


# BGe


def test_bge_of_one_variable_is_an_integral() -> None:
    x = rng(0).normal(size=7)
    table = jtgpu.learn.score_table({"x": x, "y": rng(1).normal(size=7)}, score="bge")
    z, n = scaled(x).tolist(), 2  # variables; the prior of one: Wishart, alpha_w - n + 1 = 3 degrees of freedom

    def density(mean: float, precision: float) -> float:
        shape, rate = (n + 2 - n + 1) / 2, 0.25
        prior = rate**shape / math.gamma(shape) * precision ** (shape - 1) * math.exp(-rate * precision)
        squares = mean**2 + sum((v - mean) ** 2 for v in z)
        return float(prior * (precision / (2 * math.pi)) ** ((1 + len(z)) / 2) * math.exp(-precision * squares / 2))

    value, _ = integrate.dblquad(density, 0, 40, lambda _: -6, lambda _: 6, epsrel=1e-9)
    assert table.score("x") == pytest.approx(math.log(value), abs=1e-6)


def by_student_t(z: Any) -> float:
    """ln P of rows of n columns, one after the other, by the predictive t distribution of the normal-Wishart prior."""
    n = z.shape[1]
    mean, rows, degrees, scale = np.zeros(n), 1.0, n + 2.0, 0.5 * np.eye(n)
    total = 0.0
    for x in z:
        free = degrees - n + 1
        total += stats.multivariate_t.logpdf(x, mean, scale * (rows + 1) / (rows * free), free)
        d = x - mean
        scale = scale + np.outer(d, d) * rows / (rows + 1)
        mean, rows, degrees = (rows * mean + x) / (rows + 1), rows + 1, degrees + 1
    return float(total)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("n_rows", [8, 51])
def test_bge_of_a_complete_graph_is_the_predictive_probability(n: int, n_rows: int) -> None:
    x = rng(n).normal(size=(n_rows, n)) @ rng(9).normal(size=(n, n)) + 3
    table = jtgpu.learn.score_table(x, score="bge", max_parents=n - 1)
    expected = by_student_t(np.apply_along_axis(scaled, 0, x))
    for order in itertools.permutations(range(n)):
        names = [f"x{v}" for v in order]
        total = sum(table.score(v, names[:i]) for i, v in enumerate(names))
        assert total == pytest.approx(expected, rel=1e-11)  # so all complete graphs have one score


def bge_by_formula(z: Any, v: int, parents: list[int]) -> float:
    """Equations (2) and (4) of Kuipers, Moffa and Heckerman (2014)."""
    n_rows, n = z.shape
    r = 0.5 * np.eye(n) + z.T @ z

    def subset(s: list[int]) -> float:
        if not s:
            return 0.0
        m, a = len(s), 2 + len(s)
        return float(
            0.5 * m * math.log(1 / (n_rows + 1)) - 0.5 * m * n_rows * math.log(math.pi)
            + special.multigammaln((n_rows + a) / 2, m) - special.multigammaln(a / 2, m)
            + 0.5 * a * m * math.log(0.5) - 0.5 * (n_rows + a) * np.linalg.slogdet(r[np.ix_(s, s)])[1]
        )  # fmt: skip

    return subset([*parents, v]) - subset(parents)


def test_bge_of_every_family_and_its_weights() -> None:
    x = rng(3).normal(size=(40, 5)) @ rng(4).normal(size=(5, 5))
    z = np.apply_along_axis(scaled, 0, x)
    table = jtgpu.learn.score_table(x, score="bge", max_parents=3)
    for v in range(5):
        for size in range(4):
            for s in itertools.combinations([u for u in range(5) if u != v], size):
                expected = bge_by_formula(z, v, list(s))
                assert table.score(f"x{v}", [f"x{u}" for u in s]) == pytest.approx(expected, rel=1e-11)
    w = rng(5).integers(0, 4, 40)
    weighted = jtgpu.learn.score_table(x, score="bge", weights=w).scores
    repeated = jtgpu.learn.score_table(np.repeat(x, w, axis=0), score="bge").scores
    np.testing.assert_allclose(weighted, repeated, rtol=1e-11)


def test_equivalent_graphs_have_equal_scores() -> None:
    """Of all graphs of four numbers: one score for each equivalence class."""
    table = jtgpu.learn.score_table(chain_of_numbers(6, 60), score="bge")
    pairs = list(itertools.combinations(range(4), 2))
    classes: dict[bytes, list[float]] = {}
    for states in itertools.product(range(3), repeat=len(pairs)):
        arcs = np.zeros((4, 4), np.bool_)
        for (u, v), s in zip(pairs, states, strict=True):
            arcs[(u, v) if s == 1 else (v, u)] |= s > 0
        if np.linalg.matrix_power(arcs.astype(int) + np.eye(4, dtype=int), 4).trace() > 4 or _cyclic(arcs):
            continue
        total = sum(table.score("abcd"[v], ["abcd"[u] for u in np.flatnonzero(arcs[:, v])]) for v in range(4))
        classes.setdefault(cpdag_of(arcs).tobytes(), []).append(total)
    assert len(classes) == 185
    assert sum(map(len, classes.values())) == 543
    assert all(max(s) - min(s) <= 1e-9 * abs(s[0]) for s in classes.values())


def _cyclic(arcs: Any) -> bool:
    power = arcs.astype(int)
    for _ in range(len(arcs)):
        if power.trace():
            return True
        power = (power @ arcs > 0).astype(int)
    return False


@pytest.mark.parametrize("seed", range(3))
def test_the_class_of_a_gaussian_network_is_learned(seed: int) -> None:
    table = chain_of_numbers(seed)
    learned = jtgpu.learn.structure(table, score="bge")
    assert sorted(learned.cpdag.edges) == [("a", "b"), ("b", "a"), ("b", "d"), ("c", "d")]
    by_search = jtgpu.learn.structure(table, score="bge", method="order")
    assert by_search.score == pytest.approx(learned.score, rel=1e-12)
    post = jtgpu.learn.posterior(table, score="bge")
    assert post.edge("b", "d") > 0.8
    assert post.edge("a", "b") + post.edge("b", "a") == pytest.approx(1, abs=1e-6)


def test_units_and_threads_change_nothing() -> None:
    x = rng(7).normal(size=(100, 12)) @ rng(8).normal(size=(12, 12))
    first = jtgpu.learn.score_table(x, score="bge", compute=jtgpu.Compute(threads=1))
    second = jtgpu.learn.score_table(x * 2.0 ** np.arange(-40, 44, 7), score="bge", compute=jtgpu.Compute(threads=3))
    np.testing.assert_array_equal(first.scores, second.scores)
    third = jtgpu.learn.score_table(x * 10.0 ** np.arange(-150, 162, 26), score="bge", compute=jtgpu.Compute(threads=1))
    assert np.isfinite(third.scores).all()


# BIC of conditional Gaussian families


def bic_by_regression(data: dict[str, Any], child: str, parents: list[str]) -> float:
    """By least squares for each configuration."""
    n = len(data[child])
    discrete = [p for p in parents if not isinstance(data[p], np.ndarray)]
    numeric = [p for p in parents if isinstance(data[p], np.ndarray)]
    configurations = list(zip(*(data[p] for p in discrete), strict=True)) if discrete else [()] * n
    n_cells = math.prod(len(set(data[p])) for p in discrete)
    total, free = 0.0, n_cells * (len(numeric) + 2)
    if not isinstance(data[child], np.ndarray):
        if numeric:
            return -math.inf
        free = n_cells * (len(set(data[child])) - 1)
    for cell in sorted(set(configurations)):
        rows = np.array([c == cell for c in configurations])
        y = np.array(data[child])[rows]
        if y.dtype.kind == "U":
            counts = np.unique(y, return_counts=True)[1]
            total += float((counts * np.log(counts / len(y))).sum())
            continue
        design = np.column_stack([np.ones(len(y)), *(data[p][rows] for p in numeric)])
        if len(y) < design.shape[1] + 1:
            return -math.inf
        residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
        total += float(stats.norm.logpdf(residual, 0, residual.std()).sum())
    return total - 0.5 * math.log(n) * free


@pytest.mark.parametrize("n_rows", [30, 300])
def test_bic_cg_is_a_regression_for_each_configuration(n_rows: int) -> None:
    data = mixed_table(1, n_rows)
    table = jtgpu.learn.score_table(data, score="bic-cg", max_parents=3)
    for child in data:
        for size in range(4):
            for parents in itertools.combinations([v for v in data if v != child], size):
                expected = bic_by_regression(data, child, [*parents])
                assert table.score(child, parents) == pytest.approx(expected, rel=1e-9), (child, parents)


def test_bic_cg_of_states_is_bic_and_equal_rows_are_weights() -> None:
    coded = random_table(3)
    data = {v: [s[c] for c in own] for v, s, own in zip(coded.names, coded.states, coded.codes, strict=True)}
    first, second = (jtgpu.learn.score_table(data, score=name).scores for name in ("bic", "bic-cg"))
    np.testing.assert_allclose(first, second, rtol=1e-13)
    data = mixed_table(2, 50)
    w = rng(5).integers(1, 4, 50)
    repeated = {v: np.repeat(np.array(x), w) for v, x in data.items()}
    again = jtgpu.learn.score_table(repeated, score="bic-cg", max_parents=2).scores
    weighted = jtgpu.learn.score_table(data, score="bic-cg", max_parents=2, weights=w).scores
    same = np.isfinite(again) == np.isfinite(weighted)
    assert same.all()
    np.testing.assert_allclose(weighted, again, rtol=1e-9)


@pytest.mark.parametrize("method", ["exact", "order"])
def test_a_mixed_network_is_learned(method: Any) -> None:
    data = mixed_table(0)
    learned = jtgpu.learn.structure(data, score="bic-cg", method=method)
    assert sorted(learned.cpdag.edges) == [("a", "e"), ("e", "f"), ("g", "e"), ("g", "h"), ("h", "g")]
    net: Any = learned.network()
    assert isinstance(net, jtgpu.MixedNetwork)
    assert net.gaussian("e").coefficients["a"].tolist() == pytest.approx([-0.1, 0.1, 0.0], abs=0.02)  # high, low, mid
    fitted: Any = jtgpu.learn.fit(
        {v: [*net.parents(v)] for v in net}, data, continuous="gaussian", pseudo_counts="bdeu:1"
    ).network
    np.testing.assert_allclose(net.gaussian("e").sd, fitted.gaussian("e").sd, rtol=1e-9)
    np.testing.assert_allclose(net.cpt("h"), fitted.cpt("h"), rtol=1e-12)
    assert learned.network(data) == net


def test_posterior_by_chains_is_the_exact_one_and_can_be_saved(tmp_path: Path) -> None:
    data = mixed_table(4, 150)
    exact = jtgpu.learn.posterior(data, score="bic-cg")
    assert "arcs from numbers to variables with states are forbidden" in exact.describe()
    chains = jtgpu.learn.posterior(data, score="bic-cg", method="mcmc", search=jtgpu.learn.Search(candidates="all"))
    np.testing.assert_allclose(chains.edge_probabilities.values, exact.edge_probabilities.values, atol=0.04)
    exact.save(tmp_path / "p.npz")
    again = jtgpu.learn.load(tmp_path / "p.npz")
    assert again.network() == exact.network()
    assert again.edge("g", "h") == exact.edge("g", "h")
    with pytest.warns(UserWarning, match="have not converged"):
        few = jtgpu.learn.posterior(
            data,
            score="bic-cg",
            method="mcmc",
            search=jtgpu.learn.Search(candidates=2),
            chains=jtgpu.learn.Chains(steps=20_000),
        )
    assert few.edge("e", "g") == 0.0
    with pytest.raises(ArgumentError, match="average takes variables with states only"):
        exact.average()
    with np.load(tmp_path / "p.npz") as file:
        arrays = dict(file)
    arrays["values"][0, 0] = np.nan
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(FormatError):
        jtgpu.learn.load(tmp_path / "bad.npz")


# What is rejected

NUMBERS = chain_of_numbers(0, 30)
MIXED = mixed_table(0, 30)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (MIXED, {"score": "bge"}, "column 'g' has states: score='bge' takes numbers only; use score='bic-cg'"),
        (NUMBERS, {"continuous": True}, "score='bdeu' takes states only; use score='bic-cg' for tables with numbers"),
        (NUMBERS, {"score": "bge", "continuous": ["aa"]}, "continuous has 'aa', but the table has no such column.*'a'"),
        (NUMBERS, {"score": "bge", "continuous": "a"}, "continuous must be True or a list of columns"),
        (MIXED, {"score": "bic-cg", "continuous": ["g"]}, "column 'g' holds no numbers; leave it out of continuous"),
        ({**NUMBERS, "a": np.full(30, 2.0)}, {"score": "bge"}, r"column 'a' has only one value \(2\); leave it out"),
        ({**NUMBERS, "i": np.arange(30)}, {"score": "bge"}, "column 'i' counts the rows, from 0 to 29: .*identifier"),
        ({**NUMBERS, "b": [np.nan, *range(29)]}, {"score": "bge"}, "row 0: column 'b' .* leaves the rows out$"),
        ({**NUMBERS, "b": [np.inf, *range(29)]}, {"score": "bge"}, "row 0, column 'b': the value is infinite"),
        (NUMBERS, {"score": "bge", "missing": "available"}, "requires score='bic', not 'bge'"),
        (MIXED, {"score": "bic-cg", "states": {"a": ["x"]}, "continuous": ["a"]}, "both in continuous and in states"),
    ],
)  # fmt: skip
def test_errors(data: Any, options: dict[str, Any], message: str) -> None:
    for learn in (jtgpu.learn.structure, jtgpu.learn.posterior, jtgpu.learn.score_table):
        with pytest.raises((ArgumentError, DataError), match=message):
            learn(data, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"constraints": jtgpu.learn.Constraints(required=[("a", "g")])},
            "'a' -> 'g' leads from a number to a variable with states; make intervals of 'a'",
        ),
        ({"method": "tabu"}, "method='tabu' takes states only; use method='exact' or 'order'"),
    ],
)
def test_errors_of_structure(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        jtgpu.learn.structure(MIXED, score="bic-cg", **options)


def test_missing_rows_are_dropped_and_copies_warned_of() -> None:
    data = {**NUMBERS, "b": np.where(np.arange(30) < 3, np.nan, NUMBERS["b"])}
    learned = jtgpu.learn.structure(data, score="bge", missing="drop")
    assert (learned.n_dropped, learned.missing.cells) == (3, {"b": 3})
    cut = {v: x[3:] for v, x in NUMBERS.items()}
    assert learned.score == jtgpu.learn.structure(cut, score="bge").score
    with pytest.warns(UserWarning, match="columns 'a' and 'z' are equal up to their units"):
        jtgpu.learn.structure({**NUMBERS, "z": 5 - 2 * NUMBERS["a"]}, score="bge")
    with pytest.raises(ArgumentError, match="has no single junction tree"):
        _ = learned.clique_entries


@pytest.mark.filterwarnings("ignore:columns 'a' and 'z'", "error::RuntimeWarning")
def test_numbers_without_residual_warn_of_nothing_else() -> None:
    constant = np.where(np.arange(30) < 15, 1.0, NUMBERS["b"])
    table = {**NUMBERS, "z": NUMBERS["a"], "b": constant, "s": ["u"] * 15 + ["v"] * 15}
    assert "s" not in jtgpu.learn.structure(table, score="bic-cg").parents("b")


def test_chains_sum_long_lists_of_parent_sets() -> None:
    n, k, most, r = 14, 4, 3, rng(0)
    members = parent_members(n, most)
    weights = r.uniform(0, 40, (n, len(members)))
    weights[r.random(weights.shape) < 0.1] = -np.inf
    weights[:, 0] = 0.0
    few = np.array([[u for u in range(n) if u != v][:k] for v in range(n)])
    masks = parent_masks(k + 1, most)
    inner = np.array([weights[v][(members < k).all(axis=1)] for v in range(n)])
    bit_in = np.zeros((n, n), np.int64)
    tables = set_tables(CandidateTables(few, bit_in, masks, inner), outer_sets(weights, most, few))
    assert (tables.outer_ends[:, -1] > 3 * RUN).all()
    before, totals = np.empty(n, np.int64), np.empty(n)
    for _ in range(20):
        order = r.permutation(n)
        loops("jtgpu.learn.dags.loops.outer_sets").totals_of_order(order, tables, before, totals)
        for i, v in enumerate(order):
            earlier = {int(u) - (u > v) for u in order[:i]} | {-1}
            own = [w for w, s in zip(weights[v], members.tolist(), strict=True) if earlier.issuperset(s)]
            assert totals[v] == pytest.approx(np.logaddexp.reduce(own), abs=1e-4)  # dominated sets are left out


# Numbers that others nearly determine


def exact_regression(columns: list[Any], weights: Any) -> float:
    """ln of the likelihood of the last column given the others, in rational numbers."""
    rows = [[Fraction(1), *(Fraction(float(c[i])) for c in columns)] for i in range(len(weights))]
    k = len(rows[0])
    each = [*zip(map(int, weights), rows, strict=True)]
    sums: Any = [[sum(w * x[i] * x[j] for w, x in each) for j in range(k)] for i in range(k)]
    for j in range(k - 1):
        for i in range(j + 1, k):
            c = sums[i][j] / sums[j][j]
            sums[i] = [x - c * y for x, y in zip(sums[i], sums[j], strict=True)]
    n = int(weights.sum())
    return -0.5 * n * (math.log(2 * math.pi * float(sums[-1][-1] / n)) + 1)


@pytest.mark.parametrize("residual", [1e-3, 1e-4, 1e-5, 1e-6, 1e-7])
@pytest.mark.parametrize("weighted", [False, True])
def test_nearly_collinear_numbers_have_exact_scores(residual: float, weighted: bool) -> None:
    r, n = rng(3), 60
    a, b, s = 50 + 10 * r.normal(size=n), r.normal(size=n), r.integers(0, 2, n)
    y, z = a + 2 * b + s * a + 20 * residual * r.normal(size=n), a + 10 * residual * r.normal(size=n)
    columns: dict[str, Any] = {"s": np.array(["p", "q"])[s].tolist(), "a": a, "b": b, "y": y, "z": z}
    weights = r.integers(1, 5, n) if weighted else np.ones(n, np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "equal up to their units"
        table = jtgpu.learn.score_table(
            columns, score="bic-cg", max_parents=4, weights=weights if weighted else None
        )  # fmt: skip
    for child, parents in (("y", "abs"), ("z", "a"), ("a", "bz"), ("b", "az"), ("b", "ayzs")):
        numbers = [columns[p] for p in parents if p != "s"]
        parts = [s == 0, s == 1] if "s" in parents else [s >= 0]
        expected = sum(exact_regression([c[at] for c in [*numbers, columns[child]]], weights[at]) for at in parts)
        expected -= 0.5 * math.log(weights.sum()) * len(parts) * (len(numbers) + 2)
        assert table.score(child, list(parents)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_functions_of_others_have_no_score(offset: float) -> None:
    r = rng(2)
    a, b = offset + r.normal(size=300), r.normal(size=300)
    with pytest.warns(UserWarning, match="equal up to their units"):
        table = jtgpu.learn.score_table({"a": a, "b": b, "sum": a + b, "twice": 2 * a + 1}, score="bic-cg")
    for child, parents in (("sum", ["a", "b"]), ("a", ["b", "sum"]), ("twice", ["a"]), ("b", ["a", "twice"])):
        assert table.score(child, parents) == -np.inf
    assert np.isfinite(table.score("sum", ["a"]))
