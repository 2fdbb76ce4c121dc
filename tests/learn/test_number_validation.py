"""`validate` of numbers against regressions by hand, SciPy and scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import Gaussian
from jtgpu.errors import DataError
from jtgpu.learn import NumberValidation, validate
from tests.cli.commands import run

stats = pytest.importorskip("scipy.stats")
STRUCTURE = {"y": ["g", "x"], "x": ["g"]}


def table(n: int, seed: int) -> dict[str, Any]:
    r = np.random.default_rng(seed)
    g = r.integers(0, 2, n)
    x = r.normal(size=n) + 3 * g
    y = np.array([1.0, -2.0])[g] * x + np.array([1.0, 3.0])[g] * r.normal(size=n)
    return {"g": np.array(["a", "b"])[g], "x": x, "y": y}


def test_folds_are_regressions_of_the_others() -> None:
    data, fold = table(200, 1), np.arange(200) % 3
    found: Any = validate(STRUCTURE, data, "y", folds=fold, continuous="gaussian", pseudo_counts=0)
    mean, sd = np.empty(200), np.empty(200)
    for f in range(3):
        for s in "ab":
            own, train = (data["g"] == s) & (fold == f), (data["g"] == s) & (fold != f)
            line = np.polyfit(data["x"][train], data["y"][train], 1)
            mean[own] = np.polyval(line, data["x"][own])
            sd[own] = np.std(data["y"][train] - np.polyval(line, data["x"][train]))
    assert isinstance(found, NumberValidation)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(found.sd, sd, rtol=1e-8)
    np.testing.assert_allclose(found.log_densities, stats.norm(mean, sd).logpdf(data["y"]), rtol=1e-8)
    np.testing.assert_allclose(found.pit, stats.norm(mean, sd).cdf(data["y"]), rtol=1e-8)
    metrics = pytest.importorskip("sklearn.metrics")
    assert found.r_squared == pytest.approx(metrics.r2_score(data["y"], mean))
    assert found.mae == pytest.approx(metrics.mean_absolute_error(data["y"], mean))
    inside = np.abs(data["y"] - mean) <= stats.norm.ppf(0.9) * sd
    assert found.coverage(0.8) == pytest.approx(inside.mean())
    assert found.by_fold["rmse"][1] == pytest.approx(np.sqrt(np.mean((mean - data["y"])[fold == 1] ** 2)))
    assert "3 folds" in str(found)
    assert found.draw().svg.count("<circle") == 200


def test_mixtures_states_gaps_and_functions() -> None:
    data = table(300, 2)
    fit: Any = jtgpu.learn.fit(STRUCTURE, data, continuous="gaussian")
    tree = fit.network.compile("cpu")
    holes = {**data, "g": [None if i < 150 else g for i, g in enumerate(data["g"].tolist())]}
    holes["y"] = np.where(np.arange(300) % 10 == 0, np.nan, data["y"])
    found: Any = validate(tree, holes, "y")
    assert (len(found.rows), found.n_missing) == (270, 30)
    for i in (0, 50, 200, 269):
        row = int(found.rows[i])
        evidence = {"x": float(data["x"][row])} | ({} if row < 150 else {"g": data["g"][row]})
        post = tree.posterior("y", evidence)
        assert (found.mean[i], found.sd[i]) == pytest.approx((post.mean, post.sd))
        assert found.log_densities[i] == pytest.approx(float(np.log(post.density(data["y"][row]))))
        assert found.pit[i] == pytest.approx(float(post.cdf(data["y"][row])))
        assert post.cdf(post.quantiles([0.1, 0.6])) == pytest.approx([0.1, 0.6])
    assert abs(found.coverage(0.9) - 0.9) < 0.06
    states = validate(fit.network, data, "g")
    numbers = tree.posteriors_batch({"x": data["x"], "y": data["y"]}, targets=["g"])["g"]
    np.testing.assert_allclose(states.probabilities, numbers)
    by_function: Any = validate(lambda _: fit.network, data, "y", folds=2)
    assert by_function.rmse == pytest.approx(validate(tree, data, "y").rmse)  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="'y', the target, is a number, and has text: the str 'tall'"):
        validate(tree, {**data, "y": ["tall"] * 300}, "y")


def test_cdf_of_intervals_and_observed_numbers() -> None:
    net = jtgpu.MixedNetwork(
        {"x": float, "y": float}, {"y": ["x"]}, {"x": Gaussian(1, sd=2), "y": Gaussian(0, {"x": 1})}
    )
    tree = net.compile("cpu")
    points = np.array([-9.0, 0.5, 2.0, 7.0])
    cut = tree.posterior("x", {"x": (0, np.inf), "y": 1.0})
    mean, sd = 1.0, np.sqrt(0.8)
    np.testing.assert_allclose(cut.cdf(points), stats.truncnorm(-mean / sd, np.inf, mean, sd).cdf(points), atol=1e-14)
    assert tree.posterior("x", {"x": 0.5}).cdf(points).tolist() == [0, 1, 1, 1]
    column = tree.posteriors_batch({"y": [1.0, 2.0]})["x"]
    np.testing.assert_allclose(column.cdf([0.5, 2.0]), stats.norm([1.0, 1.8], sd).cdf([0.5, 2.0]))
    np.testing.assert_allclose(column.log_density(0.5), stats.norm([1.0, 1.8], sd).logpdf(0.5))


def test_command(tmp_path: Path) -> None:
    data, net = table(200, 3), tmp_path / "net.mixed.json"
    fit: Any = jtgpu.learn.fit(STRUCTURE, data, continuous="gaussian")
    jtgpu.write(fit.network, net)
    rows = "\n".join(",".join(map(str, row)) for row in zip(*data.values(), strict=True))
    (tmp_path / "cases.csv").write_text(f"g,x,y\n{rows}\n")
    args = ["-t", "y", "--folds", "4", "--draw", str(tmp_path / "y.svg")]
    done = run("validate", str(net), str(tmp_path / "cases.csv"), *args)
    assert done.exit_code == 0, done.output
    assert "root mean square error" in done.stdout
    assert (tmp_path / "y.svg").read_text().startswith("<svg")
