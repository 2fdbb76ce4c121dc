"""`jtgpu.learn.check`: observed against expected counts, as numbers, table and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, DataError, TableTooLarge
from jtgpu.learn import PredictiveCheck, check, fit
from tests.support.bundled import bundled


def drawn(n: int = 2000) -> tuple[jtgpu.BayesianNetwork, np.ndarray]:
    net = bundled("asia")
    return net, net.compile("reference").sample(n, seed=1).states.astype(np.int32)


def test_counts_of_a_family() -> None:
    net, states = drawn()
    found = check(net, states, "lung")
    assert found.variables == ("smoke", "lung")
    at = [net.index("smoke"), net.index("lung")]
    for cell in np.ndindex(2, 2):
        assert found.observed[cell] == (states[:, at] == cell).all(axis=1).sum()
        p = net.cpt("smoke")[cell[0]] * net.cpt("lung")[cell]
        assert found.expected[cell] == pytest.approx(2000 * p)
        assert found.deviation[cell] == pytest.approx(np.sqrt(2000 * p * (1 - p)))
    assert np.abs(found.z).max() < 4
    assert "chi-squared" in str(found)
    assert len(found.to_frame("polars")) == 4


def test_a_missing_arc_shows() -> None:
    net, states = drawn()
    structure = {v: () if v == "bronc" else net.parents(v) for v in net}
    wrong = fit(structure, states, states={v: net.states(v) for v in net})
    right = fit(net, states)
    assert np.abs(check(wrong.network, states, ["smoke", "bronc"]).z).max() > 5
    assert np.abs(check(right.network, states, ["smoke", "bronc"]).z).max() < 0.1  # counts of a family
    assert check(right.network, states, ["smoke", "bronc"]).chi_squared < 1


def test_options_of_reading(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("a;b;x\n" + "n;?;1,5\ny;y;2,5\nn;n;3,5\n" * 3)
    read = jtgpu.ReadOptions(delimiter=";", decimal=",", na_values=["?"])
    net = jtgpu.MixedNetwork(
        {"a": ["n", "y"], "b": ["n", "y"], "x": float}, {},
        {"a": [0.5, 0.5], "b": [0.5, 0.5], "x": jtgpu.Gaussian(2.5)},
    )  # fmt: skip
    assert check(net.discrete, path, ["a", "b"], read=read).observed.tolist() == [[3, 0], [0, 3]]
    numbers: Any = check(net, path, "x", read=read)
    assert (numbers.rows[0], numbers.observed[0]) == (9, 2.5)
    with pytest.raises(ArgumentError, match="constant= is not offered with check"):
        check(net, path, "x", read=jtgpu.ReadOptions(constant="drop"))
    with pytest.raises(ArgumentError, match=r"it is read=ReadOptions\(na_values=...\)"):
        check(net, path, "x", na_values=["?"])  # type: ignore[call-arg]


def test_missing_cells_weights_and_files(tmp_path: Path) -> None:
    net, states = drawn(50)
    states[::4, net.index("smoke")] = -1
    weights = np.arange(50.0)
    found = check(net, states, "lung", weights=weights)
    assert found.rows == weights[np.arange(50) % 4 != 0].sum()
    assert found.expected.sum() == pytest.approx(found.rows)
    pytest.importorskip("pyarrow")
    path = tmp_path / "cases.csv"
    names = [["" if s < 0 else net.states(v)[s] for v, s in enumerate(row)] for row in states.tolist()]
    lines = [",".join([*row, str(w)]) for row, w in zip([*names], weights, strict=True)]
    path.write_text("\n".join([",".join([*net, "w"]), *lines]) + "\n")
    np.testing.assert_array_equal(check(net, path, "lung", weights="w").observed, found.observed)


def test_certain_counts() -> None:
    net = jtgpu.network("a->b", "{x|y}", cpts={"a": [0.5, 0.5], "b": [[1.0, 0.0], [0.0, 1.0]]})
    found = check(net, {"a": ["x", "y"], "b": ["x", "y"]}, "b")
    assert found.z[0, 1] == 0
    assert found.chi_squared == 0
    against = check(net, {"a": ["x", "y"], "b": ["y", "y"]}, "b")
    assert against.z[0, 1] == np.inf
    assert against.chi_squared == np.inf


def test_rounding_is_no_difference() -> None:
    """The order of a sum, which differs between processors, is not printed (O15)."""
    cases = {"s": [*"pq" * 35, *"p" * 19], "b": [*"uuvuvvv" * 10, *"uvvvuvvvuvvvuvvvuvv"]}
    found = check(fit({"b": ["s"]}, cases, pseudo_counts=0).network, cases, "b")
    assert found.z.tolist() == [[0, 0], [0, 0]]
    assert found.chi_squared == 0
    cells = np.array([[10.0, 20.0], [30.0, 40.0]])
    noisy = PredictiveCheck(("s", "b"), (("p", "q"), ("u", "v")), cells, cells / 100 * (1 + 1e-14))
    assert noisy.z.tolist() == [[0, 0], [0, 0]]
    assert noisy.chi_squared == 0


def test_pictures() -> None:
    net, states = drawn(200)
    found = check(net, states, ["smoke", "bronc", "dysp"])
    svg = found._repr_html_()
    assert svg.count('class="b"') == 8
    assert "expected" in svg
    many = check(net, states, ["asia", "tub", "smoke", "lung", "bronc", "either"])
    assert "24 configurations that differ less are left out" in many._repr_html_()


def test_plots() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from jtgpu.draw import plots

    net, states = drawn(200)
    axes = plots.counts(check(net, states, "lung"))
    assert [t.get_text() for t in axes.get_yticklabels()] == ["yes, yes", "yes, no", "no, yes", "no, no"]
    states[::3, 2] = -1
    curve = plots.convergence(fit(net, states, compute="reference", em=jtgpu.learn.EM(iterations=3)))
    assert len(np.asarray(curve.lines[0].get_xdata())) == 4
    for plot in (plots.counts, plots.convergence):
        with pytest.raises(ArgumentError, match=r"expected the result of jtgpu\.learn"):
            plot(3)


@pytest.mark.parametrize(
    ("table", "variables", "error", "text"),
    [
        ({"smoke": ["yes"]}, "lung", DataError, "the table has no column 'lung'"),
        ({"smoke": ["yes", None], "lung": [None, "no"]}, "lung", DataError, "no row has all of smoke, lung"),
        ({"smoke": ["yes"]}, [], ArgumentError, "at least one variable"),
        ({"smoke": ["yes"]}, ["smok"], jtgpu.UnknownVariable, "did you mean 'smoke'"),
    ],
)
def test_wrong_arguments(table: Any, variables: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        check(bundled("asia"), table, variables)
    with pytest.raises(ArgumentError, match="check needs a Bayesian network"):
        check(3, table, "lung")  # type: ignore[arg-type]


def test_too_many_configurations() -> None:
    net = bundled("alarm")
    states = net.compile("reference").sample(3, seed=1).states
    with pytest.raises(TableTooLarge, match="configurations, more than the limit"):
        check(net, states, list(net)[:25])
