"""Autocovariances, autoregressive models, residuals, lags and tables of cases of time series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jtgpu import DataError, learn, series
from jtgpu.errors import ArgumentError
from jtgpu.series.autoregression import _why
from jtgpu.series.gpu_batch import BatchResult
from jtgpu.series.inputs import read_series
from jtgpu.series.workers import _fast_length

COEF = (0.6, -0.3)


def simulated(n: int, length: int, seed: int, coef: tuple[float, ...] = COEF) -> NDArray[np.float64]:
    """Autoregressive series, (n, length)."""
    e = np.random.default_rng(seed).standard_normal((n, length + 200))
    x = np.zeros_like(e)
    for t in range(len(coef), e.shape[1]):
        x[:, t] = e[:, t] + sum(a * x[:, t - 1 - i] for i, a in enumerate(coef))
    return x[:, 200:]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("max_lag", [0, 1, 16, 64, 65, 199])
def test_autocovariances_agree_with_statsmodels(max_lag: int, backend: Any) -> None:
    stattools = pytest.importorskip("statsmodels.tsa.stattools")
    x = simulated(3, 200, 1) + 1e4
    for biased in (True, False):
        found = series.autocovariance(x, max_lag, biased=biased, backend=backend)
        wanted = [stattools.acovf(row, adjusted=not biased, fft=False, nlag=max_lag) for row in x]
        np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_lengths_of_transforms() -> None:
    for n in (1, 2, 7, 97, 1000, 1025, 4097):
        best = next(k for k in range(n, 2 * n + 1) if not _rest(k))
        assert _fast_length(n) == best


def _rest(k: int) -> bool:
    for f in (2, 3, 5):
        while k % f == 0:
            k //= f
    return k > 1


def test_models_agree_with_statsmodels() -> None:
    linear_model = pytest.importorskip("statsmodels.regression.linear_model")
    x = simulated(5, 300, 2) + 3.0
    fit = series.ar(x, order=4)
    for s in range(5):
        coef, sigma = linear_model.yule_walker(x[s], order=4, method="mle", result_object=False)
        np.testing.assert_allclose(fit.coef[s], coef, atol=1e-12)
        np.testing.assert_allclose(fit.variance[s], sigma**2, rtol=1e-12)


@pytest.mark.parametrize("criterion", ["aic", "bic"])
def test_orders_are_those_of_exact_arithmetic(criterion: Any) -> None:
    pytest.importorskip("mpmath")
    from mpmath import log, mpf

    from tests.series.systems import exact_predictors

    x = simulated(12, 150, 3)
    fit = series.ar(x, order=criterion, max_order=8)
    for s, row in enumerate(x):
        y = [mpf(float(v)) for v in row]
        mean = sum(y, mpf(0)) / 150
        y = [v - mean for v in y]
        r = [sum((y[t] * y[t + k] for t in range(150 - k)), mpf(0)) / 150 for k in range(9)]
        _, _, sigma2 = exact_predictors(np.array([float(v) for v in r]))
        penalty = log(150) if criterion == "bic" else 2
        values = [150 * log(s2) + penalty * m for m, s2 in enumerate(sigma2)]
        assert fit.order[s] == values.index(min(values))
        np.testing.assert_allclose(
            fit.coef[s, : fit.order[s]], series.ar(row, order=int(fit.order[s])).coef, atol=1e-14
        )
        assert not fit.coef[s, fit.order[s] :].any()


def test_partials_beyond_the_order_are_within_their_bounds() -> None:
    fit = series.ar(simulated(400, 300, 4), order="bic", max_order=10)
    beyond = np.abs(fit.partial[:, 3:])
    assert (beyond < 2 / np.sqrt(300)).mean() > 0.94
    assert (fit.order == 2).mean() > 0.9
    np.testing.assert_allclose(fit.coef[fit.order == 2, :2].mean(axis=0), COEF, atol=0.02)


def test_one_series_has_no_axis_in_front_and_the_bits_of_a_batch() -> None:
    x = simulated(20, 100, 5)
    batch, alone = series.ar(x), series.ar(x[7])
    assert alone.order.shape == alone.stops_at.shape == ()
    assert alone.coef.shape == (int(alone.order),)
    assert np.array_equal(alone.partial, batch.partial[7])
    assert np.array_equal(alone.mean, batch.mean[7])
    assert series.ar(x.reshape(4, 5, 100)).coef.shape[:2] == (4, 5)
    assert repr(alone).startswith("<Autoregression: 1 series of 100, order ")


def test_bad_series_are_named_or_flagged_and_the_others_untouched() -> None:
    x = simulated(20, 60, 6)
    clean = series.ar(x)
    x[3, 10], x[5], x[9, 2] = np.nan, 4.25, np.inf
    with pytest.raises(DataError, match=r"series 3, time 10: the value is missing \(NaN\)"):
        series.ar(x)
    with pytest.raises(DataError, match="series 0 is constant"):
        series.ar(x[5:6])
    with pytest.raises(DataError, match="series 0, time 2: the value is infinite"):
        series.ar(x[9])
    fit = series.ar(x, on_error="flag")
    assert np.flatnonzero(fit.stops_at >= 0).tolist() == [3, 5, 9]
    others = np.setdiff1d(np.arange(20), [3, 5, 9])
    assert np.array_equal(fit.partial[others], clean.partial[others])
    for field in (fit.coef, fit.mean, fit.partial, fit.sigma2, fit.variance):
        assert np.isfinite(field).all()
    with pytest.raises(DataError, match="series of 60 values have no model of order 60; use a lower order"):
        series.ar(x, order=60)


def test_the_message_about_an_order_that_does_not_exist() -> None:
    data = read_series(np.arange(8.0))
    models = BatchResult.empty(1, 2)
    models.stops_at[0], models.bad[0] = 2, -1
    text = _why(data, models, 0)
    assert text.startswith("series 0 has no model of order 2: ")
    assert "max_order=1" in text


def test_small_numbers_are_not_constant() -> None:
    x = simulated(2, 60, 12)
    fit, tiny = series.ar(x), series.ar(np.ldexp(x, [[-700], [0]]))
    assert np.array_equal(fit.coef, tiny.coef)
    assert np.array_equal(np.ldexp(fit.mean, [-700, 0]), tiny.mean)
    assert np.array_equal(fit.partial, tiny.partial)
    assert np.array_equal(series.ar(x[0] * 1e-200).order, fit.order[0])
    with pytest.raises(DataError, match="series 0 is constant"):
        series.ar(np.full(20, 1e-200))


def test_a_number_of_lags_is_all_up_to_it() -> None:
    x = {"x": [1.0, 5.0, 2.0, 6.0]}
    assert list(series.two_slices(x, 2)) == ["x[t]", "x[t-1]", "x[t-2]"]
    assert list(series.two_slices(x, [2])) == ["x[t]", "x[t-2]"]
    assert list(series.two_slices(x, {"x": 2})) == ["x[t]", "x[t-1]", "x[t-2]"]


def test_values_whose_squares_overflow_are_flagged() -> None:
    x = simulated(3, 50, 12)
    x[1] *= 1e200
    x[2] = np.where(x[2] > 0, 1.7e308, 1.6e308)
    with pytest.raises(DataError, match="series 1 has values whose squares overflow"):
        series.ar(x)
    fit = series.ar(x, on_error="flag")
    assert fit.stops_at.tolist() == [-1, 0, 0]
    for field in (fit.coef, fit.mean, fit.partial, fit.sigma2):
        assert np.isfinite(field).all()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_autocovariances_that_overflow_are_an_error(backend: Any) -> None:
    for x in ([1e308, -1e308, 1e308, 3.0], [[1.0, 2.0, 3.0], [1e200, -1e200, 3.0]]):
        with pytest.raises(DataError, match=r"series [01] has values whose squares overflow; divide it"):
            series.autocovariance(x, 2, backend=backend)


@pytest.mark.parametrize("order", ["hqic", -1, 2.5])
def test_wrong_orders_are_refused(order: Any) -> None:
    with pytest.raises(ArgumentError, match="order must be"):
        series.ar(simulated(1, 50, 1), order=order)


def test_numbers_that_overflow_are_refused() -> None:
    with pytest.raises(ArgumentError, match="x must be an array of real numbers"):
        series.ar([10**400, 1, 2], order=1)


def test_residuals_are_white_and_the_backends_agree() -> None:
    x = simulated(6, 400, 7) + 10.0
    fit = series.ar(x)
    e, wanted = series.whiten(x, fit), series.whiten(x, fit, backend="reference")
    assert np.array_equal(e.mask, wanted.mask)
    np.testing.assert_allclose(e.filled(0), wanted.filled(0), atol=1e-12)
    for s in range(6):
        assert e.mask[s].sum() == fit.order[s]
        assert np.isfinite(e.data).all()
        assert abs(series.autocovariance(e[s].compressed(), 1)[1]) < 0.15
    one = series.whiten(x[2], series.ar(x[2]))
    assert np.array_equal(one.filled(0), e[2].filled(0))
    with pytest.raises(DataError, match="x has 5 series, but the models are of 6"):
        series.whiten(x[:5], fit)


def frames() -> list[Any]:
    """Ways to make a table of columns."""
    return [
        pytest.param(lambda c: c, id="mapping"),
        pytest.param(lambda c: [dict(zip(c, row, strict=True)) for row in zip(*c.values(), strict=True)], id="rows"),
        pytest.param(lambda c: pytest.importorskip("pandas").DataFrame(c), id="pandas"),
        pytest.param(lambda c: pytest.importorskip("polars").DataFrame(c), id="polars"),
        pytest.param(lambda c: pytest.importorskip("pyarrow").table(c), id="arrow"),
    ]


def cells(table: Any, name: str) -> list[Any]:
    """A column of a table of any kind, None for nulls."""
    column = [row[name] for row in table] if isinstance(table, list) else table[name]
    listed = (
        column.to_pylist()
        if hasattr(column, "to_pylist")
        else column.tolist()
        if hasattr(column, "tolist")
        else [*column]
    )
    return [None if x is None or x != x else x for x in listed]


@pytest.mark.parametrize("make", frames())
def test_tables_in_and_tables_of_the_same_kind_out(make: Callable[[Any], Any]) -> None:
    x = simulated(2, 120, 8)
    table = make({"hour": list(range(120)), "a": x[0].tolist(), "b": x[1].tolist()})
    fit = series.ar(table, time="hour", order=2)
    assert fit.names == ("a", "b")
    assert np.array_equal(fit.coef, series.ar(x, order=2).coef)
    white = series.whiten(table, fit, time="hour")
    assert type(white) is type(table)
    assert cells(white, "hour") == list(range(120))
    wanted = series.whiten(x, series.ar(x, order=2))
    assert cells(white, "b") == wanted[1].tolist()
    assert cells(white, "b")[:2] == [None, None]

    slices = series.two_slices(table, {"a": [1, 3]}, bins={"b": [0.0]}, time="hour")
    assert type(slices) is type(table)
    a, b = cells(slices, "a[t]"), cells(slices, "b[t]")
    assert len(a) == 117
    assert cells(slices, "a[t-1]")[1:] == a[:-1]
    assert cells(slices, "a[t-3]")[3:] == a[:-3]
    assert set(a) == {"low", "middle", "high"}
    assert b == ["high" if v > 0 else "low" for v in x[1, 3:]]
    assert 35 < a.count("middle") < 45


def test_pandas_frames_keep_their_index_and_must_be_sorted() -> None:
    pandas = pytest.importorskip("pandas")
    x = pandas.DataFrame({"a": simulated(1, 50, 9)[0]}, index=pandas.date_range("2026-01-01", periods=50))
    assert series.whiten(x, series.ar(x)).index.equals(x.index)
    with pytest.raises(DataError, match="the index must increase"):
        series.ar(x.iloc[::-1])
    with pytest.raises(DataError, match="the index must increase"):
        series.two_slices(pandas.concat([x, x.iloc[-1:]]))
    x.iloc[4, 0] = np.nan
    with pytest.raises(DataError, match=r"series 'a', row 4 \(index .*2026-01-05.*missing"):
        series.ar(x)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ({"day": [1, 2, 2], "a": [1.0, 2.0, 4.0]}, {"time": "day"}, "column 'day' must increase .* row 2 has '2'"),
        ({"day": [1, 3, 2], "a": [1.0, 2.0, 4.0]}, {"time": "day"}, "row 2 has '2' after '3'"),
        ({"a": ["x", "y"]}, {}, "column 'a', row 0: 'x' is no number; leave the column out, or pass time='a'"),
        ({"a": ["1", "1,5"]}, {}, "column 'a', row 1: '1,5' is no number; write decimal points, not commas"),
        ({"a": ["1", "2"]}, {}, "column 'a' holds numbers as text"),
        ({"a": [1.0, None, 2.0]}, {"order": 1}, "series 'a', row 1: the value is missing"),
        ({"a": [1.0, 2.0]}, {"time": "day"}, "no column 'day'"),
    ],
)
def test_tables_that_are_no_series(table: Any, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        series.ar(table, **options)


def test_no_series_and_masked_series() -> None:
    fit = series.ar(np.zeros((0, 50)))
    assert fit.coef.shape == (0, 0)
    assert repr(fit) == "<Autoregression: 0 series of 50, order none, 0 flagged>"
    assert series.whiten(np.zeros((0, 50)), fit).shape == (0, 50)
    with pytest.raises(DataError, match="series 0, time 3: the value is missing"):
        series.ar(np.ma.masked_equal([1.0, 2.0, 3.0, 9.0, 4.0], 9.0), order=1)


def test_lag_parents() -> None:
    x = simulated(2, 2000, 10)
    x[1] = np.random.default_rng(11).standard_normal(2000)
    found = series.lag_parents(series.ar({"a": x[0], "b": x[1]}, max_order=4), alpha=1e-4)
    assert found == {"a": [1, 2], "b": []}
    assert series.lag_parents(series.ar(x[0], max_order=4), 1e-4) == {"x0": [1, 2]}
    with pytest.raises(ArgumentError, match="alpha must be between 0 and 1"):
        series.lag_parents(series.ar(x), 1.0)


def test_slices_keep_states_and_missing_cells() -> None:
    table = {"mode": ["on", None, "off", "on"], "x": [1.0, 2.0, None, 4.0]}
    found = series.two_slices(table, [1], bins=2)
    assert found["mode[t-1]"] == ["on", None, "off"]
    assert found["x[t]"] == ["low" if v == 2 else v for v in (2.0, None, "high")]
    assert series.two_slices({"n": [0, 1, 0]}, 1, bins=None)["n[t]"] == [1, 0]
    assert set(series.two_slices(simulated(1, 99, 1), 1, 5)["x0[t]"]) == {"q1", "q2", "q3", "q4", "q5"}


@pytest.mark.parametrize(
    ("lags", "bins", "error", "message"),
    [
        (3, 2, DataError, "3 times has no rows with lag 3"),
        ({"y": [1]}, 2, DataError, "lags names 'y'"),
        (0, 2, ArgumentError, "lags must be an integer of at least 1"),
        (1, 1, ArgumentError, "bins must be"),
        (1, [2.0, 1.0], ArgumentError, "edges that increase"),
        (1, {"z": 2}, DataError, "bins names 'z'"),
    ],
)
def test_wrong_slices(lags: Any, bins: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        series.two_slices({"x": [1.0, 2.0, 3.0]}, lags, bins)
    with pytest.raises(DataError, match=r"row 0, column 'x': .* is not a single value"):
        series.two_slices({"x": [[1], [2], [3]]})
    with pytest.raises(DataError, match="'x' is constant"):
        series.two_slices({"x": [1.0, 1.0]})


def test_slices_of_sequences_never_join_two_of_them() -> None:
    table = {"who": ["a", "b", "a", "b", "a", "a"], "day": [1, 5, 2, 6, 4, 5], "x": ["p", "q", "r", "s", None, "u"]}
    assert series.two_slices(table, 1, id="who", time="day") == {
        "x[t]": ["r", None, "u", "s"], "x[t-1]": ["p", None, None, "q"]}  # fmt: skip
    made = series.two_slices(table, 2, id="who", time="day")
    assert made == {"x[t]": [None, "u"], "x[t-1]": [None, None], "x[t-2]": ["r", None]}
    by_rows = series.two_slices({v: c for v, c in table.items() if v != "day"}, 1, id="who")
    assert by_rows == {"x[t]": ["r", None, "u", "s"], "x[t-1]": ["p", "r", None, "q"]}
    with pytest.raises(DataError, match=r"sequence 0 \('a'\), row 2, column 'day': the time 1 comes after 2"):
        series.two_slices({**table, "day": [2, 5, 1, 6, 4, 5]}, id="who", time="day")
    with pytest.raises(DataError, match="no sequence has more than 5 times"):
        series.two_slices(table, 5, id="who", time="day")
    with pytest.raises(DataError, match="id='patient' is no column"):
        series.two_slices(table, id="patient")


@pytest.mark.parametrize("make", frames())
def test_slices_of_a_long_frame_of_any_kind(make: Callable[[Any], Any]) -> None:
    table = make({"who": ["a", "a", "b", "b"], "day": [1, 2, 1, 2], "x": ["p", "q", "r", "s"]})
    made = series.two_slices(table, id="who", time="day")
    assert type(made) is type(table)
    assert (cells(made, "x[t]"), cells(made, "x[t-1]")) == (["q", "s"], ["p", "r"])


def test_states_of_slices_have_one_order_in_every_library() -> None:
    columns = {"x": np.random.default_rng(0).normal(size=60).tolist(), "y": [*"bcaab"] * 12}
    pandas = pytest.importorskip("pandas")
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    for library in (pandas.DataFrame, pl.DataFrame, pa.table):
        made = series.two_slices(library(columns), bins=3)
        assert isinstance(made, library if library is not pa.table else pa.Table)
        net = learn.structure(made).network()
        assert [net.states(v) for v in net.variables] == [("low", "middle", "high")] * 2 + [("a", "b", "c")] * 2
