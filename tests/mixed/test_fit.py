"""`learn.fit` with numbers against least squares, closed forms and naive Bayes of scikit-learn."""

from __future__ import annotations

import itertools
import math
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import DataError
from tests.mixed.test_against_enumeration import random_network
from tests.support.examples import some

RNG = np.random.default_rng
fit: Any = jtgpu.learn.fit


def test_complete_rows_are_least_squares() -> None:
    rng = RNG(1)
    sex = rng.integers(0, 2, 400)
    x = rng.normal(size=400) * 3 + 10
    y = np.where(sex == 0, 2 + 0.5 * x, -1 - 2 * x) + rng.normal(size=400)
    table = {"sex": np.array(["f", "m"], object)[sex], "x": x, "y": y}
    found = fit({"y": ["sex", "x"]}, table, continuous="gaussian", pseudo_counts=0)
    assert (found.method, found.converged) == ("counts", True)
    g = found.network.gaussian("y")
    for s in (0, 1):
        rows = sex == s
        design = np.column_stack([np.ones(rows.sum()), x[rows]])
        beta, *_ = np.linalg.lstsq(design, y[rows], rcond=None)
        assert (g.mean[s], g.coefficients["x"][s]) == pytest.approx(beta, rel=1e-10)
        assert g.sd[s] == pytest.approx(np.sqrt(np.mean((y[rows] - design @ beta) ** 2)), rel=1e-10)
    assert found.network.cpt("sex")[0] == pytest.approx(np.mean(sex == 0))


def test_log_likelihood_is_that_of_the_rows() -> None:
    net = random_network(RNG(4))
    table = net.compile("cpu").sample(300, seed=2).to_frame()
    found = fit({v: net.parents(v) for v in net}, table, continuous="gaussian")
    rows = found.network.compile("cpu").log_likelihood(table)
    assert found.log_likelihood == pytest.approx(rows.sum(), rel=1e-10)


def test_monotone_gaps_have_a_closed_form() -> None:
    """Two normal numbers, one missing in some rows: the factored likelihood (Anderson, JASA 52 (1957) 200)."""
    rng = RNG(3)
    x = rng.normal(size=500)
    y = 1 + 2 * x + rng.normal(size=500)
    y[x > 0.3] = np.nan
    found = fit(
        {"x": ["y"]},
        {"x": x, "y": y},
        continuous="gaussian",
        pseudo_counts=0,
        em=jtgpu.learn.EM(tolerance=1e-14, iterations=2000),
    )
    seen = ~np.isnan(y)
    slope, intercept = np.polyfit(x[seen], y[seen], 1)
    residual = np.mean((y[seen] - intercept - slope * x[seen]) ** 2)
    mean_y, var_y = intercept + slope * x.mean(), slope**2 * x.var() + residual
    g = found.network.gaussian("y")
    assert (float(g.mean), float(g.sd)) == pytest.approx((mean_y, np.sqrt(var_y)), rel=1e-4)
    assert float(found.network.gaussian("x").coefficients["y"]) == pytest.approx(slope * x.var() / var_y, rel=1e-4)


@pytest.mark.parametrize("seed", some(12, 4))
def test_the_objective_rises(seed: int) -> None:
    rng = RNG([seed, 9])
    net = random_network(rng)
    table = net.compile("cpu").sample(250, seed=seed).to_frame()
    for column in table.columns:
        table.loc[rng.random(len(table)) < 0.25, column] = None
    states: dict[str, Any] = {v: net.states(v) for v in net.discrete}
    found = fit(
        {v: net.parents(v) for v in net}, table, continuous="gaussian", states=states, em=jtgpu.learn.EM(iterations=15)
    )
    objectives = [entry.objective for entry in found.history]
    assert all(b >= a - 1e-9 * abs(a) for a, b in itertools.pairwise(objectives))
    rows = found.network.compile("cpu").log_likelihood(table)
    assert found.log_likelihood == pytest.approx(rows.sum(), rel=1e-9)


def test_naive_bayes_is_that_of_scikit_learn() -> None:
    naive_bayes = pytest.importorskip("sklearn.naive_bayes")
    rng = RNG(8)
    y = rng.integers(0, 3, 300)
    X = rng.normal(size=(300, 4)) + y[:, None]
    table = {"y": [f"c{c}" for c in y], **{f"x{i}": X[:, i] for i in range(4)}}
    net = fit({f"x{i}": ["y"] for i in range(4)}, table, continuous="gaussian", pseudo_counts=0).network
    peer = naive_bayes.GaussianNB(var_smoothing=0).fit(X, y)
    columns = {f"x{i}": X[:, i] for i in range(4)}
    post = net.compile("cpu").posteriors_batch(columns, targets=["y"])
    assert post["y"] == pytest.approx(peer.predict_proba(X), abs=1e-9)


def test_a_configuration_without_rows_has_the_pooled_regression() -> None:
    table = {"s": ["a", "a", "a", "a", "b"], "x": [1.0, 2.0, 4.0, 3.0, 2.5]}
    states = {"s": ["a", "b", "c"]}
    found = fit({"x": ["s"]}, table, continuous="gaussian", pseudo_counts=1, states=states)
    assert found.empty_rows == {"x": [{"s": "c"}]}
    assert found.network.gaussian("x").mean[2] == pytest.approx(2.5)
    with pytest.raises(DataError, match="constant"):
        fit({"x": ["s"]}, table, continuous="gaussian", pseudo_counts=0, states=states)


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        ({"x": [1.0, 1.0, 1.0], "y": [1.0, 2.0, 4.0]}, {}, "'x' is constant"),
        ({"x": [1.0, 2.0, 3.0], "y": ["a", "b", "a"]}, {"continuous": {"y": "gaussian"}}, "'y' holds text"),
        ({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]}, {"continuous": {"z": "gaussian"}}, "no variable 'z'"),
        ({"x": [*(np.arange(30) / 7)], "y": [1.0, 2.0] * 15}, {"continuous": {"y": "gaussian"}}, "name its kind"),
        ({"x": [1.0, 2.0, np.inf], "y": [1.0, 2.0, 4.0]}, {}, "infinite"),
    ],
)
def test_bad_tables(table: dict[str, Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(jtgpu.JtgpuError, match=words):
        fit({"y": ["x"]}, table, **{"continuous": "gaussian", **options})


def test_collinear_parents_are_named() -> None:
    x = RNG(0).normal(size=50)
    table = {"a": x, "b": 2 * x + 1, "y": x + RNG(1).normal(size=50)}
    with pytest.raises(DataError, match="collinear"):
        fit({"y": ["a", "b"]}, table, continuous="gaussian", pseudo_counts=0)


def test_rules_for_gaps() -> None:
    table = {"x": [1.0, 2.0, None, 4.0], "y": [1.0, None, 2.0, 3.0]}
    with pytest.raises(DataError, match="row 1, column 'y': missing"):
        fit({"y": ["x"]}, table, continuous="gaussian", missing="error")
    found = fit({"y": []}, {**table, "x": [0] * 4}, continuous="gaussian", missing="drop", pseudo_counts=0)
    assert (found.n_rows, found.n_dropped, found.missing.cells) == (3, 1, {"y": 1})
    assert found.report()["missing_cells"] == {"y": 1}
    assert "1 of 4 rows left out" in str(found)
    assert float(found.network.gaussian("y").mean) == pytest.approx(2.0)


@pytest.mark.parametrize("hole", [False, True])
def test_numbers_far_from_0_keep_their_digits(hole: bool) -> None:
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=600), rng.integers(0, 2, 600)
    y = x * np.where(s, 0.5, 0.9) + s + 0.3 * rng.normal(size=600)
    y[::7] = np.nan if hole else y[::7]
    parents: Any = {"y": ["s", "x"]}
    options: Any = {"continuous": "gaussian", "pseudo_counts": 1}
    near: Any = jtgpu.learn.fit(parents, {"s": s.astype(str), "x": x, "y": y}, **options)
    for offset in (1e6, 1e9):
        far: Any = jtgpu.learn.fit(parents, {"s": s.astype(str), "x": offset + x, "y": offset + y}, **options)
        mine, theirs = near.network.gaussian("y"), far.network.gaussian("y")
        assert np.allclose(theirs.coefficients["x"], mine.coefficients["x"], atol=1e-5)
        assert np.allclose(theirs.sd, mine.sd, rtol=1e-5)
        at = theirs.mean + offset * (theirs.coefficients["x"] - 1)
        assert np.allclose(at, mine.mean, atol=1e-5 + 1e-15 * offset)
        assert far.log_likelihood == pytest.approx(near.log_likelihood, rel=1e-7)


def test_words_of_a_file_that_are_states(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("s,y\nNA,0.5\nyes,3.5\nNA,1.5\nyes,4\n")
    net = jtgpu.MixedNetwork(
        {"s": ["NA", "yes"], "y": float}, {"y": ["s"]}, {"s": [0.5, 0.5], "y": jtgpu.Gaussian([0.0, 3.0], sd=1)}
    )
    for structure, states in ((net, None), ({"y": ["s"]}, {"s": ["NA", "yes"]})):
        found = fit(structure, tmp_path / "c.csv", continuous={"y": "gaussian"}, states=states, pseudo_counts=0)
        assert found.network.gaussian("y").mean.tolist() == pytest.approx([1, 3.75])


def test_an_interrupted_fit_is_that_of_the_last_whole_iteration() -> None:
    net = random_network(RNG(4))
    table = net.compile("cpu").sample(100, seed=2).to_frame()
    table.iloc[::3, -1] = table.iloc[1::3, 0] = None
    structure = {v: net.parents(v) for v in net}

    def stop_at(number: int) -> Any:
        def progress(entry: Any) -> None:
            if entry.number == number:
                raise KeyboardInterrupt

        return progress

    found = fit(
        structure,
        table,
        continuous="gaussian",
        em=jtgpu.learn.EM(tolerance=0),
        compute=jtgpu.Compute(progress=stop_at(3)),
    )
    assert (found.interrupted, found.converged, len(found.history)) == (True, False, 4)
    same = fit(structure, table, continuous="gaussian", em=jtgpu.learn.EM(tolerance=0, iterations=3))
    assert (found.network, found.log_likelihood) == (same.network, same.log_likelihood)
    assert not same.interrupted
    with pytest.raises(KeyboardInterrupt):
        fit(structure, table, continuous="gaussian", compute=jtgpu.Compute(progress=stop_at(0)))


@pytest.mark.parametrize(("weights", "message"), [
    ([1, -1, 1], "weights: that of row 1 is -1, expected a finite number >= 0"), ([1, 1], "weights must be 3 finite"),
    ([1, 1, np.nan], "row 2 is nan"), ([0, 0, 0], "weights must have a weight above zero"),
])  # fmt: skip
def test_wrong_weights_name_the_row(weights: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fit({"y": []}, {"y": [1.0, 2.0, 4.0]}, continuous="gaussian", weights=weights)


def test_a_number_of_the_network_stays_one() -> None:
    net = jtgpu.MixedNetwork(
        {"s": ["a", "b"], "x": float}, {"x": ["s"]}, {"s": [0.5, 0.5], "x": jtgpu.Gaussian([0.0, 1.0])}
    )
    for cells, message in (
        ([1.5, 2.5, "foo"], "column 'x' holds text, 'foo' in row 2"), (["1.5", "2", "3"], "'1.5' in row 0"),
        ([None, None, None], "column 'x' has no number and cannot be 'gaussian'$"),
        ([True] * 3, "'x' has True in row 0"), ([], "the table has no rows"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            fit(net, {"s": ["a", "b", "a"][: len(cells)], "x": cells})
    found = fit(net, {"s": ["a", "b", "a"], "x": [1, 2, 3]}, states={"x": ["1", "2", "3"]})
    assert found.network.numbers == ()


@pytest.mark.parametrize("from_file", [False, True])
def test_a_text_among_measurements_is_an_error(from_file: bool, tmp_path: Path) -> None:
    x = [round(0.1 * i, 1) for i in range(60)]
    cases: Any = {"x": [*x, "foo"], "y": [*x, 1.0]}
    if from_file:
        lines = [f"{a},{b}" for a, b in zip(cases["x"], cases["y"], strict=True)]
        cases = tmp_path / "cases.csv"
        cases.write_text("\n".join(["x,y", *lines]))
    message = r"column 'x' has \d+ different numbers except for 'foo' \(1\)"
    for numbers in ("gaussian", None):
        with pytest.raises(DataError, match=message):
            fit({"y": ["x"]}, cases, continuous=numbers)
    for score in ("bdeu", "bic-cg"):
        with pytest.raises(DataError, match=message):
            jtgpu.learn.structure(cases, score=score)
    codes = [f"{i / 10}" for i in range(40)] + [f"V{i}" for i in range(8)]  # such as of diseases
    assert len(fit({"c": []}, {"c": codes}).network.states("c")) == 48


def test_a_tree_takes_numbers_of_the_same_structure_only() -> None:
    net = random_network(RNG(4))
    with net.compile("cpu") as tree:
        before = str(tree.posteriors())
        for other in (random_network(RNG(5)), net.discrete, None):
            with pytest.raises(jtgpu.PlanError, match="differs from"):
                tree.reload(other)
        assert str(tree.posteriors()) == before


@pytest.mark.parametrize("name", ["w", "texts", "nothing"])
def test_weights_of_a_column_are_numbers(name: str) -> None:
    table = {"y": [1.0, 2.0, 4.0, 5.0], "w": [1, "a", 1, 1], "texts": ["1", "2", "1", "1"]}
    message = {"w": "row 1, column 'w': the weight is 'a'", "texts": "the weight is '1'", "nothing": "no column 'noth"}
    net = fit({"y": []}, table, continuous="gaussian").network
    with pytest.raises(DataError, match=message[name]):
        fit({"y": []}, table, continuous="gaussian", weights=name)
    with pytest.raises(DataError, match=message[name]):
        jtgpu.learn.check(net, table, "y", weights=name)


def test_a_start_is_a_network_of_the_structure() -> None:
    table = {"s": [*"ababab"], "x": [1.0, 2, 3, 4, 2, None], "y": [2.0, 1, 3, 5, None, 4]}
    structure = {"x": ["s"], "y": ["x"]}
    expected = fit(structure, table, continuous="gaussian", em=jtgpu.learn.EM(tolerance=1e-12), pseudo_counts=0)
    cpts: dict[str, Any] = {"s": [0.9, 0.1], "x": jtgpu.Gaussian([0.0, 1.0]), "y": jtgpu.Gaussian(0, {"x": 1.0})}
    states: dict[str, Any] = {"y": float, "x": float, "s": ["a", "b"]}  # in another order
    start = jtgpu.MixedNetwork(states, structure, cpts)
    found = fit(
        structure, table, continuous="gaussian", em=jtgpu.learn.EM(tolerance=1e-12, start=start), pseudo_counts=0
    )
    for v in "xy":
        assert found.network.gaussian(v).mean == pytest.approx(expected.network.gaussian(v).mean, abs=1e-4)
    others = (
        jtgpu.MixedNetwork({**states, "s": ["b", "a"]}, structure, cpts),
        jtgpu.MixedNetwork(states, {}, {**cpts, "x": jtgpu.Gaussian(0), "y": jtgpu.Gaussian(0)}),
        jtgpu.MixedNetwork({"x": float}, {}, {"x": jtgpu.Gaussian(0)}),
    )
    for wrong in others:
        with pytest.raises(jtgpu.ArgumentError, match="start: the network has other variables, states or parents"):
            fit(structure, table, continuous="gaussian", em=jtgpu.learn.EM(start=wrong))
    for other in ("uniform", "given", 5, jtgpu.load("asia")):
        with pytest.raises(jtgpu.ArgumentError, match="start"):
            fit(structure, table, continuous="gaussian", em=jtgpu.learn.EM(start=other))


def exact_line(columns: list[Any], weights: Any) -> tuple[list[float], float]:
    """Slopes and sd of a weighted regression of the last column on the others, in rational numbers."""
    rows = [[Fraction(1), *(Fraction(float(c[i])) for c in columns)] for i in range(len(weights))]
    each, k = [Fraction(float(w)) for w in weights], len(rows[0])
    s: Any = [[sum(w * x[i] * x[j] for w, x in zip(each, rows, strict=True)) for j in range(k)] for i in range(k)]
    for j in range(k - 1):
        s[j] = [x / s[j][j] for x in s[j]]
        for i in (i for i in range(k) if i != j):
            s[i] = [x - s[i][j] * y for x, y in zip(s[i], s[j], strict=True)]
    return [float(x[-1]) for x in s[1:-1]], math.sqrt(s[-1][-1] / sum(each))


@pytest.mark.parametrize("residual", [1e-3, 1e-4, 1e-5, 1e-6, 1e-7])
@pytest.mark.parametrize("prior", [0, 1])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_nearly_collinear_numbers_keep_their_digits(residual: float, prior: int, offset: float) -> None:
    r, n = RNG(6), 60
    a, b, s = offset + 10 * r.normal(size=n), r.normal(size=n), r.integers(0, 2, n)
    y, z = a + 2 * b + s * a + 20 * residual * r.normal(size=n), a + 10 * residual * r.normal(size=n)
    table = {"s": s.astype(str), "a": a, "b": b, "y": y, "z": z}
    weights = r.integers(1, 4, n)
    for child, parents in (("y", ["a", "b"]), ("z", ["a"]), ("b", ["a", "z"])):
        structure = {child: ["s", *parents], "a": [], "z": [] if child == "y" else ["a"]}
        if child == "z":
            structure = {child: ["s", "a"]}
        found = fit(structure, table, continuous="gaussian", pseudo_counts=prior, weights=weights)
        g, expected = found.network.gaussian(child), 0.0
        for k in (0, 1):
            own = np.where(s == k, weights, 0.0)
            slopes, sd = exact_line([*(table[p] for p in parents), table[child]], own + prior * weights / weights.sum())
            assert g.sd[k] == pytest.approx(sd, rel=1e-7)
            assert [float(c[k]) for c in g.coefficients.values()] == pytest.approx(slopes, rel=1e-6)
            expected -= own.sum() * (math.log(sd) + 0.5 * math.log(2 * math.pi * math.e))
        if not prior:
            others = [float(found.network.gaussian(v).sd) for v in found.network.numbers if v != child]
            counts = np.bincount(s, weights)
            expected -= weights.sum() * sum(math.log(x) + 0.5 * math.log(2 * math.pi * math.e) for x in others)
            expected += counts @ np.log(counts / counts.sum())
            assert found.log_likelihood == pytest.approx(expected, abs=1e-4)
            first, *_ = found.standard_errors(child).coefficients.values()
            assert np.isfinite(first).all()


def test_the_objective_of_a_nearly_collinear_fit_is_that_of_its_prior() -> None:
    r = RNG(5)
    a = 5 + r.normal(size=50)
    b = a + 1e-7 * r.normal(size=50)
    found = fit({"b": ["a"]}, {"a": a, "b": b}, continuous="gaussian", pseudo_counts=1)
    n = len(a)  # the prior is all rows with the weight of one: its ln P is 1 / n of theirs, but for ln(2 pi)
    assert found.objective - found.log_likelihood * (1 + 1 / n) == pytest.approx(math.log(2 * math.pi), abs=1e-6)


def test_functions_of_others_are_an_error() -> None:
    r = RNG(7)
    for offset in (0.0, 1e6):
        a, b = offset + r.normal(size=100), r.normal(size=100)
        for prior in (0, 1):
            for y in (a + b, 2 * a - b + 1):
                with pytest.raises(DataError, match="function of its parents"):
                    fit({"y": ["a", "b"]}, {"a": a, "b": b, "y": y}, continuous="gaussian", pseudo_counts=prior)


def test_sums_of_nearly_collinear_numbers_say_how_many_digits_they_have() -> None:
    r = RNG(4)
    a = r.normal(size=80)
    b, c = a + 1e-5 * r.normal(size=80), np.where(np.arange(80) % 7 == 0, np.nan, a + r.normal(size=80))
    table = {"a": a, "b": b, "c": c}
    with pytest.warns(UserWarning, match="sd of 'b' have about [345] correct digits"):
        fit({"b": ["a"], "c": ["a"]}, table, continuous="gaussian")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit({"b": ["a"], "c": ["a"]}, table, continuous="gaussian", missing="drop")
        fit({"c": ["a"]}, table, continuous="gaussian")
    net = jtgpu.MixedNetwork(
        {"a": float, "b": float}, {"b": ["a"]},
        {"a": jtgpu.Gaussian(0.0, {}, 1.0), "b": jtgpu.Gaussian(0.0, {"a": 1.0}, 1e-5)},
    )  # fmt: skip
    with pytest.warns(UserWarning, match="sd of 'b' have about [345] correct digits"):
        jtgpu.learn.Online(net, experience=10).update({"a": a, "b": b})


def test_the_likelihood_does_not_depend_on_threads_of_blas() -> None:
    threads = pytest.importorskip("threadpoolctl").threadpool_limits
    x = RNG(1).normal(size=300_000)
    found = []
    for n in (1, 2):
        with threads(n, "blas"):
            found.append(
                fit({"x": []}, {"x": x}, continuous="gaussian", em=jtgpu.learn.EM(iterations=1)).log_likelihood
            )
    assert found[0] == found[1]


def mixture(n: int = 300) -> dict[str, Any]:
    rng = RNG(8)
    h = (rng.random(n) < 0.4).astype(int)
    x = np.array([-2.0, 3.0])[h] + rng.normal(size=n)
    return {"x": x, "y": np.array([2.0, -2.0])[h] + 0.5 * x + 0.5 * rng.normal(size=n)}


HIDDEN: dict[str, Any] = {"x": ["h"], "y": ["h", "x"]}


def test_hidden_classes_of_numbers() -> None:
    table = mixture()
    found = fit(
        HIDDEN, table, continuous="gaussian", hidden={"h": 2}, em=jtgpu.learn.EM(restarts=3, seed=1, tolerance=1e-9)
    )
    assert found.converged
    assert len(found.restarts) == 3
    assert found.objective == max(found.restarts)
    assert sorted(found.network.gaussian("x").mean.tolist()) == pytest.approx([-2, 3], abs=0.3)
    rows = found.network.compile("cpu").log_likelihood(table)
    assert found.log_likelihood == pytest.approx(rows.sum(), rel=1e-9)
    plain = fit(
        HIDDEN,
        table,
        continuous="gaussian",
        hidden={"h": 2},
        em=jtgpu.learn.EM(seed=1, tolerance=1e-9, accelerate=False),
    )
    assert plain.objective == pytest.approx(found.objective, rel=1e-5)
    kept = fit(found.network, table, hidden="h", fixed=["x", "h"], em=jtgpu.learn.EM(start="given"))
    np.testing.assert_allclose(kept.network.gaussian("x").mean, found.network.gaussian("x").mean, rtol=1e-12)
    np.testing.assert_allclose(kept.network.cpt("h"), found.network.cpt("h"), rtol=1e-12)
    assert (kept.fixed, kept.hidden) == (("x", "h"), ("h",))


def test_a_fit_of_numbers_goes_on_after_it_was_stopped(tmp_path: Path) -> None:
    table = mixture()
    table["x"][::3] = np.nan

    def stop(entry: Any) -> None:
        if entry.number >= 4:
            raise KeyboardInterrupt

    path, em = tmp_path / "c", dict[str, Any](seed=1, tolerance=1e-9)
    given: Any = {"continuous": "gaussian", "hidden": {"h": 2}}
    assert fit(
        HIDDEN, table, em=jtgpu.learn.EM(checkpoint=path, **em), compute=jtgpu.Compute(progress=stop), **given
    ).interrupted
    whole = fit(HIDDEN, table, em=jtgpu.learn.EM(**em), **given)
    found = fit(HIDDEN, table, em=jtgpu.learn.EM(checkpoint=path, resume=True, **em), **given)
    assert found.objective == whole.objective
    assert found.network == whole.network
    assert [e.number for e in found.history] == [e.number for e in whole.history]
    assert not (tmp_path / "c").exists()


def test_rows_of_probability_0_and_ties_of_networks_with_numbers() -> None:
    net = jtgpu.MixedNetwork(
        {"s": ["a", "b"], "x": float}, {"x": ["s"]}, {"s": [1, 0], "x": jtgpu.Gaussian([0, 1], sd=[1, 2])}
    )
    table = {"s": ["a", "b", None, "a"] * 5, "x": RNG(0).normal(size=20)}
    with pytest.raises(jtgpu.ImpossibleEvidence, match="row 1: this row has probability 0 at the start: s=b, x="):
        fit(net, table, em=jtgpu.learn.EM(start="given"))
    found = fit(net, table, em=jtgpu.learn.EM(start="given", on_error="flag"))
    assert (found.n_impossible, found.n_rows) == (5, 15)
    table = {"a": ["u", "v", None, "u"] * 5, "b": ["v", "v", "u", None] * 5, "x": table["x"]}
    tied = fit({"x": ["a"], "b": []}, table, continuous="gaussian", tied=[("a", "b")])
    np.testing.assert_allclose(tied.network.cpt("a"), tied.network.cpt("b"), rtol=1e-12)


def test_likelihoods_of_variables_with_states() -> None:
    rng = RNG(3)
    g = rng.integers(0, 2, 200)
    table = {"s": np.array(["a", "b"], object)[g], "x": rng.normal(size=200) + 2 * g}
    whole = fit({"x": ["s"]}, table, continuous="gaussian")
    known: Any = {"states": {"s": "ab"}, "continuous": "gaussian"}
    sure = fit({"x": ["s"]}, {"x": table["x"]}, likelihood={"s": np.eye(2)[g]}, **known)
    assert sure.missing.cells == {}
    assert sure.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(sure.network.gaussian("x").mean, whole.network.gaussian("x").mean, rtol=1e-12)
    half = np.where(np.arange(200)[:, None] < 20, [[0.5, 0.5]], np.eye(2)[g])  # of 20 rows nothing but a factor
    em = jtgpu.learn.EM(tolerance=1e-10)
    unsure = fit({"x": ["s"]}, table | {"s": [None] * 200}, likelihood={"s": half}, em=em, **known)
    gaps = fit({"x": ["s"]}, table | {"s": [None] * 20 + [*table["s"][20:]]}, continuous="gaussian", em=em)
    assert unsure.log_likelihood == pytest.approx(gaps.log_likelihood + 20 * np.log(0.5), rel=1e-9)
    np.testing.assert_allclose(unsure.standard_errors("x").mean, gaps.standard_errors("x").mean, rtol=1e-4)
    with pytest.raises(jtgpu.DataError, match="'s' has likelihoods and no column, so its states must be given"):
        fit({"x": ["s"]}, {"x": table["x"]}, continuous="gaussian", likelihood={"s": half})
    with pytest.raises(jtgpu.EvidenceError, match="likelihood has the number 'x'"):
        fit({"x": ["s"]}, table, continuous="gaussian", likelihood={"x": half})


def test_cells_that_are_likelihoods(tmp_path: Path) -> None:
    rng = RNG(4)
    g, x = rng.integers(0, 2, 40), rng.normal(size=40)
    weights = np.where(np.arange(40)[:, None] % 3 == 0, rng.integers(1, 9, (40, 2)) / 8, np.eye(2)[g])
    words = [f"[{a};{b}]" if a * b else "ab"[int(b)] for a, b in weights]
    known: Any = {"states": {"s": "ab"}, "continuous": "gaussian"}
    expected = fit({"x": ["s"]}, {"x": x}, likelihood={"s": weights}, **known)
    table = {"s": words, "x": x.tolist()}
    path = tmp_path / "cases.csv"
    path.write_text("s,x\n" + "".join(f"{s},{y!r}\n" for s, y in zip(words, table["x"], strict=True)))
    for cases in (table, path):
        found = fit({"x": ["s"]}, cases, continuous="gaussian", missing="error")
        assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-12)
        np.testing.assert_allclose(found.network.gaussian("x").mean, expected.network.gaussian("x").mean, rtol=1e-12)
    factors = rng.random((40, 2))
    both = fit({"x": ["s"]}, table, continuous="gaussian", likelihood={"s": factors})
    product = fit({"x": ["s"]}, {"x": x}, likelihood={"s": weights * factors}, **known)
    assert both.log_likelihood == pytest.approx(product.log_likelihood, rel=1e-12)
    with pytest.raises(jtgpu.UnknownState, match=r"row 0, column 's': the likelihood '.1;2;3.' has 3 weights"):
        fit({"x": ["s"]}, table | {"s": ["[1;2;3]", *words[1:]]}, continuous="gaussian")


def test_where_em_of_numbers_starts() -> None:
    table, em = mixture(), jtgpu.learn.EM
    given: Any = {"continuous": "gaussian", "hidden": {"h": 2}}
    found = fit(HIDDEN, table, em=em(seed=1, tolerance=1e-9), **given)
    again = fit(HIDDEN, table, em=em(seed=1, tolerance=1e-9, start="random"), **given)
    assert again.objective == found.objective
    once = fit(found.network, table, hidden="h", em=em(start=found.network, iterations=1))
    assert once.log_likelihood == pytest.approx(found.log_likelihood, rel=1e-6)  # not from a random row
    with pytest.raises(jtgpu.ArgumentError, match="start='given' requires a network"):
        fit(HIDDEN, table, em=em(start="given"), **given)
    with pytest.raises(jtgpu.ArgumentError, match="start must be 'auto', 'given' or 'random'"):
        fit(HIDDEN, table, em=em(start="uniform"), **given)
    with pytest.raises(jtgpu.ArgumentError, match="chunk= is not offered with continuous variables"):
        fit(HIDDEN, table, read=jtgpu.ReadOptions(chunk=10), **given)
    with pytest.raises(jtgpu.TableTooLarge, match="would have 2 entries, more than the limit of 1"):
        fit(HIDDEN, table, em=em(max_cpt=1), **given)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(["x"], "continuous must be a mapping"), ("normal", "continuous must"), ({"x": "n"}, "continuous.'x'")],
)
def test_errors_name_the_argument_continuous(wrong: Any, said: str) -> None:
    with pytest.raises(jtgpu.ArgumentError, match=said):
        jtgpu.learn.fit({"x": []}, {"x": [1.0, 2.5, 3.0] * 4}, continuous=wrong)
