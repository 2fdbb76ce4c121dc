"""`jtgpu.learn.discretise`, and intervals as states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.columns.scale import quantile_cuts
from jtgpu.learn import discretise, fit
from jtgpu.util.text_table import interval_labels, intervals_of


def test_quantiles_have_equal_numbers_of_rows() -> None:
    table = {"x": np.random.default_rng(0).normal(size=1000), "y": ["a"] * 1000}
    found = discretise(table, bins=4)
    assert list(found.edges) == ["x"]
    labels = found.apply(table)["x"]
    assert [labels.count(s) for s in found.states["x"]] == [250] * 4
    assert found.apply(table)["y"] == table["y"]


@pytest.mark.parametrize("seed", range(30))
def test_every_interval_has_a_row(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 6, int(rng.integers(4, 60))).astype(float)
    found = discretise({"x": cells}, bins={"x": int(rng.integers(2, 8))})
    assert {*found.transform({"x": cells})["x"]} == {*found.states["x"]}


def test_a_column_of_mostly_its_least_value_has_two_intervals() -> None:
    for rest in ([*range(1, 31)], [1], [np.nextafter(0, 1)]):
        cells = [0.0] * 3 * len(rest) + rest
        for bins in (2, 3):
            intervals = jtgpu.learn.discretise({"x": cells}, bins={"x": bins})
            assert [*intervals.transform({"x": cells})["x"]].count(intervals.states["x"][1]) == len(rest)



def test_equal_width_and_given_edges() -> None:
    table = {"x": [0.0, 1.0, 2.0, 10.0, None]}
    assert discretise(table, "width", 2, columns=["x"]).edges["x"].tolist() == [5.0]
    found = discretise(table, "edges", {"x": [1, 2.5]})
    assert found.states["x"] == ("(-inf, 1)", "[1, 2.5)", "[2.5, inf)")
    assert found.apply(table)["x"] == ["(-inf, 1)", "[1, 2.5)", "[1, 2.5)", "[2.5, inf)", None]
    assert found.evidence({"x": 1, "y": "a"}) == {"x": "[1, 2.5)", "y": "a"}


def test_mdl_finds_the_cut_that_separates_the_classes() -> None:
    x = np.arange(100.0)
    table = {"x": x, "noise": np.random.default_rng(0).random(100), "class": np.where(x < 40, "low", "high")}
    found = discretise(table, "mdl", target="class")
    assert found.edges["x"].tolist() == [39.5]
    assert found.states["noise"] == ("(-inf, inf)",)


def test_values_that_recur_make_fewer_intervals() -> None:
    assert discretise({"x": [1, 1, 1, 1, 1, 2, 3, 4, 5, 6]}, bins=4).edges["x"].tolist() == pytest.approx([1.5, 4.0])


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_stay_frames(library: str) -> None:
    module: Any = pytest.importorskip(library)
    pytest.importorskip("narwhals")
    columns = {"x": [1.0, 2.0, 3.0, None], "k": ["a", "b", "c", "d"]}
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    made = discretise(frame, bins=2, columns=["x"]).apply(frame)
    assert type(made) is type(frame)
    cells = made["x"].to_pylist() if library == "pyarrow" else list(made["x"])
    assert cells[:3] == ["(-inf, 2)", "[2, inf)", "[2, inf)"]
    assert cells[3] is None or cells[3] != cells[3]


def test_numbers_are_evidence_of_intervals() -> None:
    table = {"age": [20, 30, 40, 50, 60, 70], "ill": ["no", "no", "no", "yes", "yes", "yes"]}
    found = discretise(table, bins=2, columns=["age"])
    net = fit({"ill": ["age"]}, found.apply(table), states=found.states).network
    assert net.states("age") == ("(-inf, 45)", "[45, inf)")
    tree = net.compile("reference")
    by_name = tree.posterior("ill", {"age": "[45, inf)"})["yes"]
    assert tree.posterior("ill", {"age": 51.5})["yes"] == by_name
    batch = tree.posteriors_batch({"age": [51, 51.5, 20]}, targets=["ill"])["ill"]
    assert batch[0, 1] == batch[1, 1] == by_name != batch[2, 1]
    assert fit(net, table).network == fit(net, found.apply(table)).network
    with pytest.raises(jtgpu.UnknownState, match="no interval contains 95"):
        net.replace(states={"age": ["[0, 45)", "[45, 90)"]}).state_index("age", 95.0)


def test_intervals() -> None:
    found = intervals_of(["[2, 3)", "(-inf, 2)", "[3, 4]"])
    assert found is not None
    assert found.order == [1, 0, 2]
    assert [found.find(x) for x in (-5, 2, 2.9, 3, 4, 4.1)] == [1, 0, 0, 2, 2, -1]
    assert intervals_of(["[0;1[", "[1;2]"]) is not None
    for other in (["a", "b"], ["[0, 1)"], ["[0, 2)", "[1, 3)"], ["[1, 0)", "[2, 3)"], ["[0, x)", "[1, 2)"]):
        assert intervals_of(other) is None
    assert interval_labels([2.0, 3.5, 1e300]) == ("(-inf, 2)", "[2, 3.5)", "[3.5, 1e+300)", "[1e+300, inf)")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"how": "mdl"}, "target="),
        ({"how": "quantiles"}, "did you mean 'quantile'"),
        ({"bins": 1}, "bins must be an integer of at least 2"),
        ({"how": "edges", "bins": [2, 1], "columns": ["x"]}, "ascending numbers"),
        ({"columns": ["k"]}, "row 0, column 'k': 'a' is not a finite number"),
        ({"columns": ["y"]}, "there is no column 'y'"),
        ({"how": "mdl", "target": "z"}, "target: there is no column 'z'"),
    ],
)
def test_bad_input(options: dict[str, Any], text: str) -> None:
    with pytest.raises(jtgpu.JtgpuError, match=text):
        discretise({"x": [1.0, 2.0, 3.0, 4.0], "k": ["a", "b", "c", "d"]}, **options)


def test_integers_that_are_one_float_have_no_intervals() -> None:
    with pytest.raises(jtgpu.DataError, match="different integers that are one float"):
        discretise({"x": [2**70 + i for i in range(10)]}, bins=2)


def test_cuts_have_no_digits_of_rounding() -> None:
    """Half of 24242.10 + 24242.11 is 24242.105000000003 in binary."""
    assert quantile_cuts(np.array([24242.10, 24242.11]), 2).tolist() == [24242.105]
    near = np.array([1.0, np.nextafter(1.0, 2.0)])
    assert quantile_cuts(near, 2).tolist() == [near[1]]  # neighbours are still apart
