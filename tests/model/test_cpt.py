"""CPTs: mappings by names of states, labelled arrays, and their text."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import jtgpu
from jtgpu import errors
from jtgpu.model.cpt import Cpt
from jtgpu.model.network import BayesianNetwork
from tests.support import random_nets

STATES: dict[str, Any] = {"rain": ["no", "yes"], "sprinkler": ["off", "on"], "wet": ["dry", "damp", "wet"]}
WET = np.array([[[0.9, 0.1, 0.0], [0.1, 0.3, 0.6]], [[0.1, 0.4, 0.5], [0.0, 0.1, 0.9]]])
ROWS = {key: WET[index] for key, index in zip(("no", "yes"), (0, 1), strict=True)}


def lawn(wet: Any, states: dict[str, Any] = STATES) -> BayesianNetwork:
    cpts = {"rain": [0.8, 0.2], "sprinkler": [0.7, 0.3], "wet": wet}
    return BayesianNetwork(states, {"wet": ["rain", "sprinkler"]}, cpts)


@pytest.mark.parametrize(
    "wet",
    [
        WET.tolist(),
        {"no": WET[0], "yes": WET[1]},
        {0: WET[0], "yes": WET[1].tolist()},
        {("no",): WET[0], ("yes", "off"): [0.1, 0.4, 0.5], ("yes", "on"): {"wet": 0.9, "dry": 0, "damp": 0.1}},
        {"no": {"on": [0.1, 0.3, 0.6], "off": {"dry": 0.9, "damp": 0.1, "wet": 0.0}}, "yes": WET[1]},
        {(): WET},
        {
            (rain, sprinkler, wet): WET[r, s, w]
            for r, rain in enumerate(STATES["rain"])
            for s, sprinkler in enumerate(STATES["sprinkler"])
            for w, wet in enumerate(STATES["wet"])
        },
    ],
)
def test_ways_to_give_a_cpt(wet: Any) -> None:
    net = lawn(wet)
    np.testing.assert_array_equal(net.cpt("wet"), WET)
    assert net == lawn(WET)


def test_a_root_takes_a_mapping() -> None:
    net = BayesianNetwork({"a": ["x", "y"]}, {}, {"a": {"y": 0.25, "x": 0.75}})
    assert net.cpt("a").tolist() == [0.75, 0.25]


def test_states_that_are_numbers_are_keys() -> None:
    states: Any = {"n": [0, 1, 2.5]}
    net = BayesianNetwork(states, {}, {"n": {0: 0.5, 1: 0.25, 2.5: 0.25}})
    assert net.cpt("n").tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    ("wet", "says"),
    [
        ({"no": WET[0]}, "its CPT has no row for rain=yes, sprinkler=off"),
        ({"no": WET[0], "yes": {"off": WET[1, 0]}}, "no row for rain=yes, sprinkler=on"),
        ({"no": WET[0], "yes": {"off": WET[1, 0], "on": {"dry": 1}}}, "no number for rain=yes, sprinkler=on, wet=damp"),
        ({"no": WET[0], "yess": WET[1]}, "'rain' has no state 'yess'; did you mean 'yes'"),
        ({"no": WET[0], 0: WET[1], "yes": WET[1]}, "rain=no is given twice"),
        ({"no": WET[0], "yes": WET[1][:, :2]}, r"for rain=yes it has numbers of shape \(2, 2\), expected \(2, 3\) for"),
        ({"no": WET[0], "yes": 0.5}, r"numbers of shape \(\), expected \(2, 3\) for the axes \(sprinkler, wet\)"),
        ({"no": WET[0], "yes": "x"}, "for rain=yes it has 'x', expected numbers"),
        ({("no", "off", "dry", "x"): 1}, r"has 4 states for the axes \(rain, sprinkler, wet\)"),
        ({("no", "off", "dry"): {"x": 1}}, "it has a mapping where a number is expected"),
        ({("no", "off", "dry"): [1.0]}, r"numbers of shape \(1,\), expected a number"),
        ({"no": WET[0], "yes": {"off": WET[1, 0], "on": [0.1, 0.1, 0.1]}}, "for rain=yes, sprinkler=on sums to 0.3"),
    ],
)
def test_invalid_mappings(wet: Any, says: str) -> None:
    with pytest.raises(errors.NetworkError, match=says):
        lawn(wet)


def test_a_number_as_a_key_is_a_name_where_names_are_numbers() -> None:
    for keys in (1, 2), ("1", "2"):
        net = BayesianNetwork({"n": ["1", "2"]}, {}, {"n": dict(zip(keys, (0.25, 0.75), strict=True))})
        assert net.cpt("n").tolist() == [0.25, 0.75]
    with pytest.raises(errors.NetworkError, match="has no state 0"):
        BayesianNetwork({"n": ["1", "2"]}, {}, {"n": {0: 0.5, 1: 0.5}})


def test_states_of_equal_names_are_given_by_number() -> None:
    net = BayesianNetwork({"a": ["", "", "x"]}, {}, {"a": {0: 0.2, 1: 0.3, "x": 0.5}})
    assert net.cpt("a").tolist() == [0.2, 0.3, 0.5]
    with pytest.raises(errors.NetworkError, match="no number for a=state number 1"):
        BayesianNetwork({"a": ["", "", "x"]}, {}, {"a": {0: 0.2, "x": 0.8}})
    with pytest.raises(errors.UnknownState, match="equal names"):
        net.cpt("a").to_dict()


def test_a_cpt_prints_as_an_aligned_table() -> None:
    assert str(lawn(WET).cpt("wet")) == (
        "P(wet | rain, sprinkler)\n"
        "rain  sprinkler  wet=dry  wet=damp  wet=wet\n"
        "no    off            0.9       0.1      0.0\n"
        "no    on             0.1       0.3      0.6\n"
        "yes   off            0.1       0.4      0.5\n"
        "yes   on             0.0       0.1      0.9"
    )
    assert str(lawn(WET).cpt("rain")) == "P(rain)\nrain=no  rain=yes\n    0.8       0.2"
    assert f"{lawn(WET).cpt('rain')}" == str(lawn(WET).cpt("rain"))


def test_a_long_cpt_is_printed_without_its_middle() -> None:
    net = BayesianNetwork(
        {"a": [f"s{i}" for i in range(1000)], "b": ["0", "1"]},
        {"b": ["a"]},
        {"a": np.full(1000, 1e-3), "b": np.full((1000, 2), 0.5)},
    )
    lines = str(net.cpt("b")).splitlines()
    assert len(lines) < 20
    assert lines[-1].startswith("[1,000 rows")
    assert lines[-2].startswith("s999")


def test_a_wide_cpt_names_the_states_only() -> None:
    net = jtgpu.network("parent->a variable with a long name{" + "|".join(f"s{i}" for i in range(8)) + "}")
    lines = str(net.cpt(1)).splitlines()
    assert lines[0] == "P(a variable with a long name | parent)"
    assert lines[1].split() == ["parent", *(f"s{i}" for i in range(8))]
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(("p", "shown"), [(0.5, "0.5"), (0.25, "0.25"), (1 / 3, "0.333333"), (1e-9, "1.00000e-09")])
def test_as_many_digits_as_the_numbers_have(p: float, shown: str) -> None:
    net = BayesianNetwork({"a": ["x", "y"]}, {}, {"a": [p, 1 - p]})
    assert shown in str(net.cpt("a")).splitlines()[-1].split()


def test_a_cpt_is_an_array() -> None:
    table = lawn(WET).cpt("wet")
    assert isinstance(table, np.ndarray)
    assert table.variables == ("rain", "sprinkler", "wet")
    assert table.states("wet") == ("dry", "damp", "wet")
    assert table[1, 0, 2] == 0.5
    for result in (table * 2, table[0], table.sum(axis=-1), np.exp(table), 1 - table, np.add.reduce(table)):
        assert type(result) is np.ndarray
    assert isinstance(table.sum(), float)
    assert isinstance(table.max(), float)
    assert str(table.T) == str(WET.T)
    for change in (lambda: table.__setitem__((0, 0, 0), 1), lambda: np.multiply(table, 2, out=table)):
        with pytest.raises(ValueError, match="read-only"):
            change()
    assert str(copy.deepcopy(table)) == str(copy.copy(table)) == str(table)
    assert table.copy().flags.writeable
    assert np.array(table).flags.writeable


def test_a_cpt_selects_by_name() -> None:
    table = lawn(WET).cpt("wet")
    assert table[{"rain": "yes", "sprinkler": "on", "wet": "wet"}] == 0.9
    assert table[{"rain": "no"}].tolist() == WET[0].tolist()
    assert table[{"wet": 1}].tolist() == WET[..., 1].tolist()
    with pytest.raises(errors.UnknownVariable, match="no axis 'rian'; did you mean 'rain'"):
        table[{"rian": "no"}]
    with pytest.raises(errors.UnknownState, match="'rain' has no state 'No'; did you mean 'no'"):
        table[{"rain": "No"}]
    with pytest.raises(errors.UnknownState, match="0 to 1"):
        table[{"rain": 2}]


def test_a_state_number_that_an_axis_does_not_have() -> None:
    cpt = jtgpu.load("asia").cpt("lung")
    for wrong, number in ((5, 5), (-3, -3), ((0, 2), 2)):
        with pytest.raises(errors.UnknownState, match=f"has no state number {number}; it has 0 to 1"):
            cpt[wrong]
    assert [row.tolist() for row in cpt] == np.asarray(cpt).tolist()  # an iteration ends with it


def test_what_is_no_place_in_the_table() -> None:
    cpt = jtgpu.load("asia").cpt("lung")
    for place in ((0,) * (cpt.ndim + 1), 0.5, [0.5]):
        with pytest.raises(errors.UnknownState, match="is no place in this table of shape"):
            cpt[place]


@given(random_nets.bayesian_networks())
def test_mappings_and_pickles_hold_the_same_numbers(net: BayesianNetwork) -> None:
    for v in net:
        table = net.cpt(v)
        again: Cpt = pickle.loads(pickle.dumps(table))
        assert str(again) == str(table)
        assert not again.flags.writeable
        assert net.replace(cpt={v: table.to_dict()}) == net


def test_data_frames_are_read_by_their_labels() -> None:
    """Once, they were read by position, without a word."""
    pd = pytest.importorskip("pandas")
    net = lawn(WET)
    wet = pd.DataFrame(WET.reshape(4, 3), columns=STATES["wet"])
    wet.index = pd.MultiIndex.from_product([STATES["rain"], STATES["sprinkler"]], names=["rain", "sprinkler"])
    turned = wet.swaplevel().sort_index(ascending=False)[["wet", "dry", "damp"]]
    for table in (wet, turned, wet.stack()):
        assert lawn(table) == net
    assert jtgpu.BayesianNetwork({"a": ["x", "y"]}, {}, {"a": pd.Series([0.2, 0.8], ["y", "x"])}).cpt("a")[0] == 0.8
    two = {"a": ["x", "y"], "b": ["no", "yes"]}
    rows, plain = [[0.1, 0.9], [0.7, 0.3]], [[0.3, 0.7], [0.9, 0.1]]

    def made(frame: Any, states: Any = two) -> Any:
        return jtgpu.BayesianNetwork(states, {"b": ["a"]}, {"a": [0.5, 0.5], "b": frame}).cpt("b").tolist()

    assert made(pd.DataFrame(rows, ["y", "x"], ["yes", "no"])) == plain
    assert made(pd.DataFrame(rows, columns=["yes", "no"])) == [[0.9, 0.1], [0.3, 0.7]]
    assert made(pd.DataFrame(rows)) == rows
    assert made(pytest.importorskip("polars").DataFrame({"yes": [0.1, 0.7], "no": [0.9, 0.3]}))[0] == [0.9, 0.1]
    for frame, message in (
        (pd.DataFrame(rows, ["y", "z"], ["yes", "no"]), "variable 'b': its CPT is wrong: .*z.*to_numpy"),
        (pd.DataFrame(rows, ["y", "y"], ["yes", "no"]), "two rows or columns have the same label"),
        (pd.DataFrame(rows, pd.Index(["x", "y"], name="b"), ["no", "yes"]), "labels of 'b' are where those of a are"),
        (pd.DataFrame(rows[:1], ["x"], ["no", "yes"]), "no row for a=y"),
    ):
        with pytest.raises(errors.NetworkError, match=message):
            made(frame)
    with pytest.raises(errors.NetworkError, match="may be positions, or states of 'b'"):
        made(pd.DataFrame(rows), {"a": ["x", "y"], "b": ["1", "0"]})
    pair = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], ["y", "x"], ["no", "yes"])
    assert jtgpu.MarkovNetwork(two, [(("a", "b"), pair)]).factors[0].table.tolist() == [[3, 4], [1, 2]]
    with_utility = jtgpu.DecisionNetwork({"a": ["x", "y"]}, {"u": ["a"]}, {"a": [0.5, 0.5]}, utilities={"u": [0, 0]})
    assert with_utility.replace(cpt={"u": pd.Series([1.0, 2.0], ["y", "x"])}).utility("u").tolist() == [2, 1]


def test_labels_that_only_equal_positions_are_read() -> None:
    """False and True equal 0 and 1, so that tables of sorted truth values were read by position."""
    pd = pytest.importorskip("pandas")
    for states, labels in ((["True", "False"], [False, True]), (["1.0", "0.0"], [0.0, 1.0])):
        made = jtgpu.BayesianNetwork({"a": states}, {}, {"a": pd.Series([0.2, 0.8], labels)})
        assert made.cpt("a").tolist() == [0.8, 0.2]
    with pytest.raises(errors.NetworkError, match="no state False"):
        jtgpu.BayesianNetwork({"a": ["yes", "no"]}, {}, {"a": pd.Series([0.2, 0.8], [False, True])})
    with pytest.raises(errors.NetworkError, match=r"expected \(\)"):
        jtgpu.MarkovNetwork({"a": ["x", "y"]}, [((), pd.Series([2.0]))])


def test_labels_that_are_not_read_are_refused() -> None:
    """Where the states are not known: they were dropped, and the numbers read by position."""
    pd = pytest.importorskip("pandas")
    numbers = pd.Series({"m": 179.0, "f": 166.0})
    for make in (
        lambda: jtgpu.Gaussian(numbers), lambda: jtgpu.Gaussian(0.0, {"x": numbers}),
        lambda: jtgpu.Gaussian(0.0, sd=numbers), lambda: jtgpu.normalize_rows({"sex": numbers}),
    ):  # fmt: skip
        with pytest.raises(errors.NetworkError, match=r"labels such as 'm' are not read here; .* to_numpy"):
            make()
    assert jtgpu.Gaussian(numbers.reset_index(drop=True)).mean.tolist() == [179.0, 166.0]


def test_factors_of_markov_networks_are_numbers() -> None:
    """A mapping as a factor was a TypeError of NumPy's."""
    pd = pytest.importorskip("pandas")
    net = jtgpu.MarkovNetwork({"a": ["x", "y"]}, [])
    assert net.add_factor(["a"], pd.Series({"y": 2.0, "x": 1.0})).factors[0].table.tolist() == [1.0, 2.0]
    mapping: Any = {"x": 1.0, "y": 2.0}
    with pytest.raises(errors.NetworkError, match="factor 0: its table must be an array of numbers"):
        net.add_factor(["a"], mapping)
