"""Outliers by distance: against exact arithmetic, the reference and scikit-learn; certificates, prediction, errors."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from jtgpu import DataError, load, screen
from jtgpu.errors import ArgumentError
from jtgpu.options.compute import Compute
from jtgpu.screen import Outliers
from tests.screen import brute
from tests.support.examples import examples, slow

RNG = np.random.default_rng


def mixed(n: int, seed: int = 1, holes: float = 0.1) -> dict[str, Any]:
    """Two columns of states and two of numbers."""
    rng = RNG(seed)
    text = rng.choice(["a", "b", "c", "d", "e"], (2, n), p=[0.4, 0.3, 0.2, 0.09, 0.01]).astype(object)
    text[rng.random((2, n)) < holes] = None
    numbers = rng.standard_normal((2, n)).round(1)
    numbers[rng.random((2, n)) < holes] = np.nan
    found: dict[str, Any] = {"u": text[0].tolist(), "x": numbers[0], "v": text[1].tolist(), "y": numbers[1]}
    for i in range(n):
        if all(found[c][i] is None for c in "uv"):
            found["u"][i] = "a"
    return found


def states(n: int, n_columns: int, n_states: int, seed: int = 1, holes: float = 0.0) -> NDArray[Any]:
    rng = RNG(seed)
    p = np.arange(n_states, 0, -1.0) ** 3
    found = rng.choice(n_states, (n, n_columns), p=p / p.sum()).astype(object)
    found[rng.random(found.shape) < holes] = None
    found[:, 0] = [str(v) if v is not None else "0" for v in found[:, 0]]
    found[:, 1:] = np.vectorize(lambda v: v if v is None else f"s{v}", otypes=[object])(found[:, 1:])
    return found


def column(cases: Any, found: Any) -> NDArray[np.float64]:
    return np.asarray(found if isinstance(found, np.ndarray) else found["weight"])


def same_as_reference(cases: Any, n: int = 10, k: int = 21, **more: Any) -> Outliers:
    """Check all results against those of the reference, bit for bit; the certificate by its definition."""
    wanted = screen.top_outliers(cases, n, k, compute="reference", **more)
    assert wanted.all_weights is not None
    found = screen.top_outliers(cases, n, k, **more)
    assert found.index.tolist() == wanted.index.tolist()
    assert found.weight.tolist() == wanted.weight.tolist()
    assert found.threshold == found.weight[-1]
    np.testing.assert_array_equal(column(cases, screen.weights(cases, k, **more)), wanted.all_weights)
    by_all = screen.top_outliers(cases, n, k, method="all", compute=Compute(threads=2), **more)
    assert by_all.index.tolist() == wanted.index.tolist()
    rows, chosen = found._screened.rows, found.solving_set
    assert set(found.index.tolist()) <= set(chosen.tolist())
    assert len(chosen) >= max(n, k)
    assert (np.diff(chosen) > 0).all()
    others = np.setdiff1d(np.arange(len(rows)), chosen)
    from jtgpu.screen import reference

    against = reference.weights(found._screened.columns.measure, rows.take(others), rows.take(chosen), k)
    assert (against < found.threshold).all()
    assert wanted.neighbours.tolist() == found.neighbours.tolist()
    return found


@pytest.mark.parametrize(
    ("n", "a", "k", "more"),
    [
        (500, 3, 21, {}),
        (500, 1, 5, {"scale": "std"}),
        (500, 5, 2, {"scale": "range", "metric": "manhattan"}),
        (300, 3, 5, {"metric": "gower"}),
        (40, 2, 40, {}),
        *slow((500, 3, 21, {"metric": "manhattan"}), (300, 11, 40, {}), (40, 2, 1, {})),
    ],
)
def test_numbers_have_the_bits_of_the_reference(n: int, a: int, k: int, more: dict[str, Any]) -> None:
    x = RNG(n + a).standard_normal((n, a))
    same_as_reference(x, min(10, n), k, **more)
    same_as_reference(np.round(x), min(10, n), k, **more)  # equal rows and equal weights


@pytest.mark.parametrize(("a", "n_states"), [(12, 4), (70, 3), *slow((6, 2), (20, 8), (5, 40))])
@pytest.mark.parametrize("missing", ["none", "ignore", "state"])
def test_states_have_the_bits_of_the_reference(a: int, n_states: int, missing: str) -> None:
    cases = states(400, a, n_states, holes=0.0 if missing == "none" else 0.15)
    same_as_reference(cases, 10, 21, missing="error" if missing == "none" else missing)


@pytest.mark.parametrize(
    ("a", "n_states", "k"), [(33, 4, 1), *slow((70, 5, 21), (20, 3, 1200), (130, 2, 40))]
)
def test_blocks_of_states(a: int, n_states: int, k: int) -> None:
    codes = RNG(a).integers(0, n_states, (2200, a))
    codes[100:140] = codes[5]  # equal rows
    keys = np.concatenate([(part[:, None, :] != codes).sum(axis=2) for part in np.array_split(codes, 50)])
    wanted = np.sort(keys, axis=1)[:, :k].sum(axis=1) / a
    np.testing.assert_array_equal(screen.weights(codes, k, "hamming", compute="cpu"), wanted)
    found = screen.top_outliers(codes, 10, k, "hamming", compute="cpu")
    assert found.index.tolist() == np.lexsort((np.arange(2200), -wanted))[:10].tolist()
    new = np.concatenate([codes[:5], RNG(1).integers(0, n_states, (40, a))])
    new_keys = (new[:, None, :] != codes).sum(axis=2)
    np.testing.assert_array_equal(found.weights(new), np.sort(new_keys, axis=1)[:, :k].sum(axis=1) / a)


@pytest.mark.parametrize("missing", ["ignore", "state"])
def test_mixed_tables_have_the_bits_of_the_reference(missing: str) -> None:
    found = same_as_reference(mixed(400), 10, 15, missing=missing)
    assert found.metric == "gower"
    same_as_reference(mixed(400, holes=0.0), 10, 15, missing=missing)


@examples(30)
@given(st.data())
def test_whole_numbers_against_exact_arithmetic(data: st.DataObject) -> None:
    n_rows, a = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 4))
    row = st.lists(st.integers(-3, 3) | st.just(100), min_size=a, max_size=a)
    rows = data.draw(st.lists(row, min_size=n_rows, max_size=n_rows))
    n, k = data.draw(st.integers(1, n_rows)), data.draw(st.integers(1, n_rows))
    found = screen.top_outliers(np.array(rows, float), n, k, "manhattan")
    wanted = brute.weights(rows, rows, k, "manhattan")
    assert found.index.tolist() == brute.top(wanted, n)
    assert [Fraction(w) for w in found.weight.tolist()] == [wanted[i] for i in found.index]
    assert brute.solving_set_holds(rows, found.solving_set.tolist(), n, k, "manhattan")


@examples(30)
@given(st.data())
def test_states_and_holes_against_exact_arithmetic(data: st.DataObject) -> None:
    n_rows, a = data.draw(st.integers(1, 40)), data.draw(st.sampled_from([1, 2, 4]))
    cell = st.sampled_from(["a", "b", "c"] + [None] * data.draw(st.integers(0, 1)))
    rows = data.draw(st.lists(st.lists(cell, min_size=a, max_size=a), min_size=n_rows, max_size=n_rows))
    rows = [r if any(c is not None for c in r) else ["a", *r[1:]] for r in rows]
    n, k = data.draw(st.integers(1, n_rows)), data.draw(st.integers(1, n_rows))
    found = screen.top_outliers([{f"x{j}": c for j, c in enumerate(r)} for r in rows], n, k, "hamming")
    wanted = brute.weights(rows, rows, k, "hamming")
    np.testing.assert_allclose(found.weight, [float(wanted[i]) for i in found.index], rtol=1e-12)
    np.testing.assert_allclose(found.weight, sorted(map(float, wanted), reverse=True)[:n], rtol=1e-12)
    if not any(c is None for r in rows for c in r):  # weights are whole numbers divided by a power of two: exact
        assert found.index.tolist() == brute.top(wanted, n)
        assert brute.solving_set_holds(rows, found.solving_set.tolist(), n, k, "hamming")


def test_gower_against_exact_arithmetic() -> None:
    cases = mixed(60, seed=3)
    rows = [[None if v is None or v != v else v for v in row] for row in zip(*cases.values(), strict=True)]
    ranges = [None, *(Fraction(max(c)) - Fraction(min(c)) for c in [[r[1] for r in rows if r[1] is not None]]), None]
    ranges += [Fraction(max(c)) - Fraction(min(c)) for c in [[r[3] for r in rows if r[3] is not None]]]
    wanted = brute.weights(rows, rows, 7, "gower", ranges)
    found = screen.weights(cases, 7)
    np.testing.assert_allclose(found["weight"], list(map(float, wanted)), rtol=1e-12)


def test_results_do_not_depend_on_threads() -> None:
    x = RNG(5).standard_normal((3000, 4))
    one, *others = [screen.top_outliers(x, 20, 11, compute=Compute(threads=t)) for t in (1, 2, 4)]
    for other in others:
        assert one.index.tolist() == other.index.tolist()
        assert one.weight.tolist() == other.weight.tolist()
        assert one.stats == other.stats
        assert one.solving_set.tolist() == other.solving_set.tolist()


def test_few_distances_are_computed() -> None:
    x = RNG(6).standard_normal((20_000, 2))
    found = screen.top_outliers(x, 10, 51)
    assert found.stats["pairs"] < 0.0005 * len(x) ** 2
    assert found.stats["searched"] < len(x) / 2
    assert len(found.solving_set) < len(x) / 4


@pytest.mark.parametrize("metric", ["euclidean", "hamming", "gower"])
def test_new_rows(metric: Any) -> None:
    cases: Any = mixed(300, seed=2, holes=0.0)
    if metric == "euclidean":
        cases = {c: cases[c] for c in "xy"}
    found = screen.top_outliers(cases, 5, 9, metric)
    again = found.weights(cases)
    np.testing.assert_array_equal(again, screen.weights(cases, 9, metric)["weight"])  # the same rows, the same weights
    np.testing.assert_array_equal(np.flatnonzero(found.predict(cases)), np.flatnonzero(again >= found.threshold))
    new = mixed(80, seed=4, holes=0.0 if metric == "euclidean" else 0.2)
    if metric != "euclidean":
        new["u"][0] = "a state that the table does not have"
        new["y"][1] = 1e6
    bounds = found.weights(new, against="solving_set")
    exact = found.weights(new)
    assert (bounds >= exact).all()
    assert not (found.predict(new) & ~found.predict(new, against="solving_set")).any()
    reference = screen.top_outliers(cases, 5, 9, metric, compute="reference")
    np.testing.assert_array_equal(exact, reference.weights(new))


@pytest.mark.parametrize("more", ["nothing", "numbers", "holes"])
def test_rows_with_states_that_the_references_do_not_have(more: str) -> None:
    rng = RNG(4)
    cases: Any = {f"c{j}": [f"s{i}" for i in np.append([0, 1] * 10, rng.integers(0, 9, 80))] for j in range(11)}
    if more == "numbers":
        cases["x"] = rng.standard_normal(100)
    elif more == "holes":
        cases["c3"] = [None if i < 0.2 else c for i, c in zip(rng.random(100), cases["c3"], strict=True)]
    weights = []
    for backend in ("cpu", "reference"):
        screened = screen.top_outliers(cases, 3, 4, compute=backend)._screened
        weights.append(screened.against(screened.rows, np.arange(20)))
    np.testing.assert_array_equal(weights[0], weights[1])


def test_new_rows_with_states_of_the_model_that_the_table_does_not_have() -> None:
    net = load("child")
    names = [name for name in net.variables if len(net.states(name)) > 2][:6]
    cases = {name: [net.states(name)[i % 2] for i in range(40 + j)][j:] for j, name in enumerate(names)}
    new = {name: [net.states(name)[0], net.states(name)[-1]] for name in names}
    weights = [
        screen.top_outliers(cases, 3, 4, net=net, compute=backend).weights(new) for backend in ("cpu", "reference")
    ]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert weights[0][1] == 4.0  # it differs from all rows in all columns


def test_frames_in_frames_out() -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    cases = mixed(200)
    frame = pandas.DataFrame(cases, index=[f"r{i}" for i in range(200)])
    found = screen.top_outliers(frame, 5, 9)
    top = found.frame()
    assert top.index.tolist() == [f"r{i}" for i in found.index]
    assert top.columns.tolist() == ["u", "x", "v", "y", "rank", "weight", "nearest"]
    assert top["weight"].tolist() == found.weight.tolist()
    assert len(found.drop()) == 195
    assert set(found.drop().index) == set(frame.index) - set(top.index)
    frame["u"] = frame["u"].astype("category")
    assert screen.top_outliers(frame, 5, 9).frame()["u"].dtype == "category"
    weighted = screen.weights(frame, 9)
    assert weighted.index.equals(frame.index)
    lazy = polars.DataFrame({k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in cases.items()})
    lazy = lazy.with_columns(polars.col("x").fill_nan(None), polars.col("y").fill_nan(None))
    other = screen.top_outliers(lazy, 5, 9)
    assert other.index.tolist() == found.index.tolist()
    assert isinstance(other.frame(), polars.DataFrame)
    assert isinstance(screen.weights(lazy, 9), polars.DataFrame)
    rows = [dict(zip(cases, r, strict=True)) for r in zip(*cases.values(), strict=True)]
    assert screen.top_outliers(rows, 5, 9).index.tolist() == found.index.tolist()
    assert [r["rank"] for r in screen.top_outliers(rows, 5, 9).frame()] == [1, 2, 3, 4, 5]
    assert screen.weights([[0.0], [2.0]], 2).tolist() == [2.0, 2.0]


def test_columns_of_a_network_are_states() -> None:
    net = load("asia")
    cases = net.compile("reference").sample(300, seed=1)
    table = {v: [net.states(v)[s] for s in cases.states[:, i]] for i, v in enumerate(net.variables)}
    table["id"] = list(range(300))
    table["xray"][5] = None
    found = screen.top_outliers(table, 5, 9, net=net)
    assert found.metric == "hamming"
    without = {v: table[v] for v in net.variables}
    assert found.index.tolist() == screen.top_outliers(without, 5, 9).index.tolist()
    assert found.index.tolist() == screen.top_outliers(table, 5, 9, columns=list(net.variables)).index.tolist()


def test_words_are_states_in_a_table_in_memory() -> None:
    table = {"a": ["x", "?", "y", "NA"], "b": ["u", "u", "v", "v"]}
    other = {"a": ["x", "p", "y", "q"], "b": table["b"]}
    assert screen.weights(table, 2)["weight"].tolist() == screen.weights(other, 2)["weight"].tolist()


def test_progress_reports_rows() -> None:
    seen: list[tuple[int, int, str]] = []
    screen.top_outliers(
        RNG(1).standard_normal((500, 2)), 5, 5, compute=Compute(progress=lambda *report: seen.append(report))
    )
    assert seen[-1] == (500, 500, "outliers")
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


TABLE = {"x": [1.0, 2.0, 3.0], "y": [0.0, 1.0, 5.0]}


@pytest.mark.parametrize(
    ("cases", "more", "message"),
    [
        (TABLE, {"k": 4}, "the table has 3 rows, fewer than k=4; use a smaller k"),
        (TABLE, {"n": 4}, "the table has 3 rows, fewer than n=4; use a smaller n"),
        (TABLE, {"metric": "euclid"}, "did you mean 'euclidean'"),
        (TABLE, {"columns": ["x", "z"]}, "there is no column 'z' to compare"),
        (TABLE, {"columns": []}, "no columns to compare"),
        (TABLE, {"columns": "x"}, "columns must be a list of names"),
        (TABLE, {"missing": "ignore"}, "missing='ignore' applies to 'hamming' and 'gower'"),
        (TABLE, {"metric": "gower", "scale": "std"}, "scale applies to 'euclidean' and 'manhattan'"),
        (TABLE, {"net": "asia"}, "net must be a network"),
        (TABLE, {"n": 0}, "n must be an integer of at least 1"),
        (TABLE, {"k": 0}, "k must be an integer of at least 1"),
        ({**TABLE, "x": [1.0, np.nan, 2.0]}, {}, "row 1, column 'x': the value is missing .NaN.*metric='gower'"),
        ({**TABLE, "x": [1.0, np.inf, 2.0]}, {}, "row 1, column 'x': the value is infinite"),
        ({**TABLE, "x": [1.0, -np.inf, 2.0]}, {"metric": "gower"}, "row 1, column 'x': the value is infinite"),
        ({**TABLE, "x": [1e200, -1e200, 1e308]}, {}, "distances overflow"),
        ({**TABLE, "x": [1.7e308, -1.7e308, 0.0]}, {"scale": "range"}, "column 'x': the range of its values overflows"),
        ({"a": ["u", "v", "w"]}, {"metric": "euclidean"}, "column 'a' does not hold numbers"),
        ({"a": ["u", None, "w"]}, {}, "row 1 has no observed cell"),
        ({"a": ["u", None, "w"]}, {"missing": "error"}, "row 1, column 'a': the value is missing.*missing='ignore'"),
        ({"a": [[1], [2], [3]]}, {}, r"row 0, column 'a': \[1\] is not a single value"),
        ({"a": ["u", "v"], "b": ["u"]}, {}, "columns must have equal lengths"),
        (3, {}, "cases must be a data frame"),
    ],
)
def test_errors_say_what_is_wrong(cases: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, ArgumentError), match=message):
        screen.top_outliers(cases, **{"n": 1, "k": 2, **more})


def test_errors_of_new_rows() -> None:
    found = screen.top_outliers(TABLE, 1, 2)
    with pytest.raises(DataError, match="the table has no column 'y'"):
        found.weights({"x": [1.0]})
    with pytest.raises(DataError, match="column 'y' must hold numbers"):
        found.weights({"x": [1.0], "y": ["no"]})
    with pytest.raises(DataError, match="row 0, column 'y': the value is missing"):
        found.weights({"x": [1.0], "y": [np.nan]})
    assert found.weights({"x": np.empty(0), "y": np.empty(0)}).shape == (0,)


@pytest.mark.slow
def test_against_scikit_learn() -> None:
    neighbors = pytest.importorskip("sklearn.neighbors")
    x = RNG(9).standard_normal((2000, 5))
    found = screen.weights(x, 21)
    for metric, mine in (("euclidean", found), ("manhattan", screen.weights(x, 21, "manhattan"))):
        d, _ = neighbors.NearestNeighbors(n_neighbors=21, metric=metric).fit(x).kneighbors(x)
        np.testing.assert_allclose(mine, d.sum(axis=1), rtol=1e-12)
    codes = RNG(9).integers(0, 3, (500, 40))
    d, _ = neighbors.NearestNeighbors(n_neighbors=21, metric="hamming", algorithm="brute").fit(codes).kneighbors(codes)
    np.testing.assert_allclose(screen.weights(codes, 21, "hamming"), d.sum(axis=1), rtol=1e-12)


def test_whole_numbers_of_more_than_64_bits() -> None:
    """Arrow has no integers of 128 bits: they are decimals in the answer."""
    pl = pytest.importorskip("polars")
    cells = [1, 2, 3, 2**100] * 10
    found: Any = screen.weights(pl.DataFrame({"a": pl.Series(cells, dtype=pl.Int128), "b": ["x", "y"] * 20}), k=5)
    assert [int(x) for x in found["a"]] == cells
    assert np.isfinite(found["weight"].to_numpy()).all()
