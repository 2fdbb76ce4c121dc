"""EM of dynamic networks with numbers: starts, structures, fixed densities, units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from tests.dynamic.test_numbers import NAN, drawn, long_frame, template


def test_em_rises_and_finds_the_densities() -> None:
    truth = jtgpu.MixedDynamicNetwork(
        {"s": ["0", "1"], "y": float, "u": float}, {"s": [("s", 1)], "y": ["s"], "u": ["s", ("u", 1)]},
        {"s": [[0.9, 0.1], [0.2, 0.8]], "y": jtgpu.Gaussian([-1.0, 2.0], sd=[0.5, 1.0]),
         "u": jtgpu.Gaussian([0.0, 1.0], {"u[t-1]": [0.5, -0.5]}, sd=0.5)},
        start={"s": [0.5, 0.5], "u": jtgpu.Gaussian([0.0, 1.0])},
    )  # fmt: skip
    data = drawn(truth, 150, 20, 3)
    data["y"][::7, 3] = NAN
    start = truth.replace(cpt={"y": jtgpu.Gaussian([-0.2, 0.4], sd=1.5)})
    fit: Any = jtgpu.learn.fit(start, data, hidden=["s"], pseudo_counts=0)
    rises = np.diff([one.objective for one in fit.history])
    assert fit.converged
    assert (rises > -1e-6).all()
    y, u = fit.network.gaussian("y"), fit.network.gaussian("u")
    assert np.allclose(y.mean, [-1, 2], atol=0.1)
    assert np.allclose(y.sd, [0.5, 1], atol=0.1)
    assert np.allclose(u.coefficients["u[t-1]"], [0.5, -0.5], atol=0.1)
    assert np.allclose(fit.network.cpt("s"), [[0.9, 0.1], [0.2, 0.8]], atol=0.05)
    total = fit.network.compile("cpu").log_likelihood(data).sum()
    assert fit.log_likelihood == pytest.approx(total, rel=1e-9)
    assert "150 sequences" in str(fit)
    assert "22 cells missing in 1 column (y 22)" in str(fit)
    with pytest.raises(jtgpu.DataError, match=r"sequence 0, slice 3: the cell of 'y' is missing"):
        jtgpu.learn.fit(start, data, hidden=["s"], missing="error")
    assert fit.empty_rows == {}
    plain: Any = jtgpu.learn.fit(
        start, data, hidden=["s"], pseudo_counts=0, em=jtgpu.learn.EM(accelerate=False, tolerance=1e-9)
    )
    quick: Any = jtgpu.learn.fit(start, data, hidden=["s"], pseudo_counts=0, em=jtgpu.learn.EM(tolerance=1e-9))
    assert any(one.accelerated for one in quick.history)
    assert quick.objective == pytest.approx(plain.objective, rel=1e-7)
    assert len(quick.history) < len(plain.history)


def test_a_fit_of_sequences_with_numbers_goes_on_after_it_was_stopped(tmp_path: Path) -> None:
    net = template(np.random.default_rng(2))
    data, path = long_frame(net, 15, 8, 1, "a"), tmp_path / "fit.unfinished"
    em = jtgpu.learn.EM(iterations=6, tolerance=0)
    begun, again = em.replaced(checkpoint=path), em.replaced(checkpoint=path, resume=True)
    options: Any = {"keys": jtgpu.learn.Keys(id="sequence", time="slice"), "hidden": "a"}

    def stop(entry: Any) -> None:
        if entry.number == 3:
            raise KeyboardInterrupt

    stopped: Any = jtgpu.learn.fit(net, data, em=begun, compute=jtgpu.Compute(progress=stop), **options)
    assert stopped.interrupted
    resumed: Any = jtgpu.learn.fit(net, data, em=again, **options)
    assert resumed.network == jtgpu.learn.fit(net, data, em=em, **options).network
    jtgpu.learn.fit(net, data, em=begun, compute=jtgpu.Compute(progress=stop), **options)
    with pytest.raises(jtgpu.JtgpuError, match="data"):
        jtgpu.learn.fit(net, {**data, "x": 1.01 * np.array(data["x"], float)}, em=again, **options)


def test_standard_errors_of_observed_slices_are_those_of_regressions() -> None:
    net = jtgpu.MixedDynamicNetwork(
        {"s": ["0", "1"], "y": float}, {"s": [("s", 1)], "y": ["s", ("y", 1)]},
        {"s": [[0.9, 0.1], [0.2, 0.8]], "y": jtgpu.Gaussian([100.0, 60.0], {"y[t-1]": [0.5, 0.7]}, sd=[0.5, 1.0])},
        start={"s": [0.5, 0.5], "y": jtgpu.Gaussian([200.0, 200.0])},
    )  # fmt: skip
    data = net.compile("cpu").sample(300, length=8, seed=1)
    cells: Any = {v: np.asarray(data[v]) for v in ("s", "y")}
    fit: Any = jtgpu.learn.fit(net, cells, pseudo_counts=0, em=jtgpu.learn.EM(standard_errors="information"))
    errors, found = fit.standard_errors("y"), fit.network.gaussian("y")
    s, before = (np.asarray(x).ravel() for x in (cells["s"][:, 1:], cells["y"][:, :-1]))
    for k in range(2):
        own = s.astype(str) == str(k)
        n, design = own.sum(), np.column_stack([np.ones(own.sum()), before[own]])
        covariance = np.linalg.inv(design.T @ design) * found.sd[k] ** 2
        assert errors.mean[k] == pytest.approx(np.sqrt(covariance[0, 0]), rel=1e-3)
        assert errors.coefficients["y[t-1]"][k] == pytest.approx(np.sqrt(covariance[1, 1]), rel=1e-3)
        assert errors.sd[k] == pytest.approx(found.sd[k] / np.sqrt(2 * n), rel=1e-3)
        p, counts = fit.network.cpt("s")[k], fit.counts["s"][k].sum()
        np.testing.assert_allclose(fit.standard_errors("s")[k], np.sqrt(p * (1 - p) / counts), rtol=1e-3)
    by_information = jtgpu.learn.EM(standard_errors="information")
    scored: Any = jtgpu.learn.fit(net, cells, pseudo_counts=0, em=jtgpu.learn.EM(standard_errors="scores"))
    np.testing.assert_allclose(scored.standard_errors("y").sd, errors.sd, rtol=0.25)
    np.testing.assert_allclose(scored.standard_errors("s"), fit.standard_errors("s"), rtol=0.25)
    held: Any = jtgpu.learn.fit(net, cells, pseudo_counts=0, em=by_information, fixed=["y", "s"])
    assert not held.standard_errors("y").sd.any()
    assert not held.standard_errors("s").any()


@pytest.mark.slow
def test_several_starts_find_what_one_misses() -> None:
    truth = jtgpu.MixedDynamicNetwork(
        {"s": ["0", "1", "2"], "y": float, "u": float}, {"s": [("s", 1)], "y": ["s"], "u": ["s", ("u", 1)]},
        {"s": [[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], "y": jtgpu.Gaussian([-3.0, 0.0, 3.0], sd=0.5),
         "u": jtgpu.Gaussian([0.0, 2.0, 4.0], {"u[t-1]": 0.5}, sd=0.5)},
        start={"s": [0.4, 0.3, 0.3], "u": jtgpu.Gaussian([0.0, 2.0, 4.0], sd=1.0)},
    )  # fmt: skip
    data = long_frame(truth, 25, 20, 5, "s")
    data["y"][3] = None
    flat = truth.replace(cpt={"y": jtgpu.Gaussian([9.0, -9.0, -9.0], sd=3.0)})  # two states alike
    flat = flat.replace(cpt={"s": np.full((3, 3), 1 / 3)}, start={"s": np.full(3, 1 / 3)})
    flat = flat.replace(start={"u": jtgpu.Gaussian(0.0 * np.ones(3))}, cpt={"u":
        jtgpu.Gaussian(np.zeros(3), {"u[t-1]": np.zeros(3)})})  # fmt: skip
    keys, em = jtgpu.learn.Keys(id="sequence", time="slice"), jtgpu.learn.EM(seed=2, tolerance=1e-5)
    alone: Any = jtgpu.learn.fit(flat, data, hidden="s", keys=keys, em=em)
    made: Any = jtgpu.learn.fit(flat, data, hidden="s", keys=keys, em=em.replaced(restarts=4))
    assert len(made.restarts) == 4
    assert made.restarts[0] == alone.objective
    assert made.objective == max(made.restarts) > alone.objective + 50
    assert np.allclose(np.sort(made.network.gaussian("y").mean), [-3, 0, 3], atol=0.2)
    total = made.network.compile("cpu").log_likelihood(data, keys=keys).sum()
    assert made.log_likelihood == pytest.approx(total, rel=1e-9)
    again: Any = jtgpu.learn.fit(flat, data, hidden="s", keys=keys, em=em.replaced(restarts=4))
    assert (again.network, again.restarts) == (made.network, made.restarts)
    parents: Any = {"s": [("s", 1)], "y": ["s"], "u": ["s", ("u", 1)]}
    given: Any = {"hidden": {"s": 3}, "keys": keys, "em": em.replaced(restarts=3), "continuous": "gaussian"}
    found: Any = jtgpu.learn.fit(parents, data, **given)
    assert found.network.numbers == ("y", "u")
    assert found.objective == pytest.approx(made.objective, rel=1e-3)
    with pytest.raises(jtgpu.DataError, match="there are no rows to fit"):
        jtgpu.learn.fit(parents, {name: [] for name in data}, **given)


def test_structures_with_numbers() -> None:
    net = template(np.random.default_rng(2), True)
    data = long_frame(net, 20, 10, 1, "a")
    parents: Any = {v: net.parents(v) for v in net}
    keys: Any = {
        "keys": jtgpu.learn.Keys(id="sequence", time="slice"),
        "hidden": {"a": 3},
        "em": jtgpu.learn.EM(iterations=3),
    }
    found: Any = jtgpu.learn.fit(parents, data, continuous="gaussian", **keys)
    assert found.network.numbers == net.numbers
    assert [found.network.parents(v) for v in net] == [net.parents(v) for v in net]
    kinds = dict.fromkeys(net.numbers, "gaussian")
    assert jtgpu.learn.fit(parents, data, continuous=kinds, **keys).network == found.network
    for options, error, text in (
        ({"em": jtgpu.learn.EM(start="given", iterations=3)}, jtgpu.ArgumentError, "start='given' requires"),
        ({"continuous": {"x": "intervals", **dict.fromkeys("yzwv", "gaussian")}}, jtgpu.ArgumentError, "use bins="),
        ({"continuous": "states"}, jtgpu.DataError, "no column of the structure has numbers"),
        ({"continuous": {"q": "gaussian"}}, jtgpu.ArgumentError, "continuous: there is no variable 'q'"),
    ):
        with pytest.raises(error, match=text):
            jtgpu.learn.fit(parents, data, **{**keys, "continuous": "gaussian", **options})
    with pytest.raises(jtgpu.ArgumentError, match="continuous= is for parents"):
        jtgpu.learn.fit(net.discrete, data, continuous="gaussian", **keys)
    for number, text in ((2.0, "column 'x' is constant, 2 in all rows"), (2e13, "last digits of 2e[+]13 only")):
        column = [number + i % 3 * (number > 1e12) for i in range(len(data["x"]))]
        with pytest.raises(jtgpu.DataError, match=text):
            jtgpu.learn.fit(parents, {**data, "x": column}, continuous="gaussian", **keys)


def test_densities_can_be_fixed_and_a_network_is_a_start() -> None:
    net = template(np.random.default_rng(2))
    data = long_frame(net, 15, 8, 1, "a")
    keys: Any = {
        "keys": jtgpu.learn.Keys(id="sequence", time="slice"),
        "hidden": "a",
        "em": jtgpu.learn.EM(iterations=3),
    }
    made: Any = jtgpu.learn.fit(net, data, **keys, fixed=["x", "b"])
    assert made.fixed == ("b[0]", "b", "x")
    assert np.array_equal(made.network.gaussian("x").mean, net.gaussian("x").mean)
    assert not np.array_equal(made.network.gaussian("y").mean, net.gaussian("y").mean)
    assert np.array_equal(made.network.cpt("b"), net.cpt("b"))
    parents: Any = {v: net.parents(v) for v in net}
    expected: Any = jtgpu.learn.fit(net, data, **keys)
    started: Any = jtgpu.learn.fit(
        parents, data, continuous="gaussian", **{**keys, "em": jtgpu.learn.EM(start=net, iterations=3)}
    )
    assert started.network == expected.network
    with pytest.raises(jtgpu.ArgumentError, match="other variables or parents"):
        jtgpu.learn.fit(
            {**parents, "w": ["b"]},
            data,
            continuous="gaussian",
            **{**keys, "em": jtgpu.learn.EM(start=net, iterations=3)},
        )
    with pytest.raises(jtgpu.ArgumentError, match="fixed requires a network"):
        jtgpu.learn.fit(parents, data, continuous="gaussian", fixed="x", **{**keys, "hidden": {"a": 3}})


@pytest.mark.parametrize(
    ("offset", "unit"), [(0.0, 1.0), (101_325.0, 100.0), (1e6, 1.0), (1e9, 1e3), (0.0, 1e12), (0.0, 1e-12)]
)
def test_fits_of_autoregressive_numbers_depend_on_no_unit(offset: float, unit: float) -> None:
    def network(scale: float, shift: float) -> jtgpu.MixedDynamicNetwork:
        slope = np.array([0.5, 0.9])
        return jtgpu.MixedDynamicNetwork(
            {"s": ["a", "b"], "y": float}, {"s": [("s", 1)], "y": ["s", ("y", 1)]},
            {"s": [[0.95, 0.05], [0.05, 0.95]],
             "y": jtgpu.Gaussian(np.array([0.0, 1.0]) * scale + shift * (1 - slope), {"y[t-1]": slope}, sd=scale)},
            start={"s": [0.5, 0.5], "y": jtgpu.Gaussian([shift, shift], sd=scale)},
        )  # fmt: skip

    drawn = np.asarray(network(1.0, 0.0).compile("reference").sample(10, length=60, seed=3)["y"], float)
    options: Any = {"hidden": "s", "em": jtgpu.learn.EM(iterations=8, tolerance=0)}
    plain: Any = jtgpu.learn.fit(network(1.0, 0.0), {"y": drawn}, **options)
    other: Any = jtgpu.learn.fit(network(unit, offset), {"y": offset + unit * drawn}, **options)
    mine, theirs = plain.network.gaussian("y"), other.network.gaussian("y")
    assert np.allclose(theirs.coefficients["y[t-1]"], mine.coefficients["y[t-1]"], atol=1e-4)
    assert np.allclose(theirs.sd / unit, mine.sd, rtol=1e-4)
    assert other.log_likelihood + 600 * np.log(unit) == pytest.approx(plain.log_likelihood, rel=1e-4)
    assert (np.diff([one.objective for one in other.history]) > -1e-4).all()


def test_bits_depend_neither_on_threads_nor_on_other_sequences() -> None:
    net, rng = template(np.random.default_rng(1)), np.random.default_rng(2)
    data = drawn(net, 60, 12, 3)
    for x in data.values():
        x[rng.random(x.shape) < 0.2] = NAN
    data["w"][np.isnan(data["x"])] = NAN
    one, two = (net.compile("cpu", threads=n) for n in (1, 2))
    a, b, part = one.smooth(data), two.smooth(data), two.smooth({y: x[10:20] for y, x in data.items()})
    for v in a:
        assert np.array_equal(a[v], b[v])
        assert np.array_equal(a[v][10:20], part[v])
    for y in a.mean:
        assert np.array_equal(a.mean[y], b.mean[y])
    assert np.array_equal(one.mpe(data).states, two.mpe(data).states)
    options: Any = {"hidden": ["a", "b"], "em": jtgpu.learn.EM(iterations=3, restarts=2)}
    fits: list[Any] = [jtgpu.learn.fit(net, data, compute=jtgpu.Compute(threads=n), **options) for n in (1, 2)]
    assert fits[0].network == fits[1].network
    assert fits[0].restarts == fits[1].restarts
