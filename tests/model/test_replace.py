"""`BayesianNetwork.replace`: networks with some changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.model.network import BayesianNetwork
from tests.support import random_nets

NET = jtgpu.network("rain->wet[3]<-sprinkler; wet->slippery", "{no|yes}", name="lawn", seed=3)


def test_new_cpts() -> None:
    new = NET.replace(cpt={"rain": [0.9, 0.1], "slippery": {"0": [1, 0], "1": [0.5, 0.5], "2": {"no": 0, "yes": 1}}})
    assert new.cpt("rain").tolist() == [0.9, 0.1]
    assert new.cpt("slippery").tolist() == [[1, 0], [0.5, 0.5], [0, 1]]
    assert new.cpt("wet").tolist() == NET.cpt("wet").tolist()
    assert new.name == "lawn"
    assert NET.cpt("rain").tolist() != [0.9, 0.1]


def test_new_names_of_states() -> None:
    new = NET.replace(states={"wet": ["dry", "damp", "wet"], "rain": {"yes": "rainy"}})
    assert new.states("wet") == ("dry", "damp", "wet")
    assert new.states("rain") == ("no", "rainy")
    assert new.cpt("wet").tolist() == NET.cpt("wet").tolist()
    swapped = NET.replace(states={"rain": {"yes": "no", "no": "yes"}})
    assert swapped.states("rain") == ("yes", "no")
    assert swapped.cpt("rain").tolist() == NET.cpt("rain").tolist()


def test_new_names_of_variables() -> None:
    new = NET.replace(rename={"rain": "sprinkler", "sprinkler": "rain"}, cpt={"rain": [0.9, 0.1]}, name="garden")
    assert new.variables == ("sprinkler", "wet", "rain", "slippery")
    assert new.parents("wet") == ("sprinkler", "rain")
    assert new.cpt("sprinkler").tolist() == [0.9, 0.1]
    assert new.name == "garden"


def test_another_number_of_states() -> None:
    new = NET.replace(states={"slippery": ["a", "b", "c"]}, cpt={"slippery": np.eye(3)})
    assert new.cpt("slippery").shape == (3, 3)
    with pytest.raises(errors.NetworkError, match=r"'slippery': its CPT has shape \(3, 2\), expected \(3, 3\)"):
        NET.replace(states={"slippery": ["a", "b", "c"]})


def test_new_parents() -> None:
    turned = NET.replace(parents={"wet": ["sprinkler", "rain"]})
    np.testing.assert_array_equal(turned.cpt("wet"), NET.cpt("wet").transpose(1, 0, 2))
    cut = NET.replace(parents={"wet": ["rain"]}, cpt={"wet": NET.cpt("wet")[:, 0]})
    assert cut.parents("wet") == ("rain",)
    with pytest.raises(errors.NetworkError, match="other parents than before, so it needs a new CPT"):
        NET.replace(parents={"slippery": ["rain"]})
    with pytest.raises(errors.NetworkError, match="'wet' has the parent 'rian', which is not declared; did you mean"):
        NET.replace(parents={"wet": ["rian"]})
    with pytest.raises(errors.NetworkError, match="cycle: "):
        NET.replace(parents={"rain": ["slippery"]}, cpt={"rain": np.eye(2)})


def test_attributes_follow_the_variables() -> None:
    attributes: Any = {
        "net": {"a": 1},
        "node": {"x": {"label": "X"}, "y": {"label": "Y"}},
        "potential": {"x": {"made": "by hand"}, "y": {"made": "by hand"}},
    }
    two = ["0", "1"]
    net = BayesianNetwork({"x": two, "y": two}, {}, {"x": [0.5, 0.5], "y": [0.5, 0.5]}, attributes=attributes)
    new = net.replace(cpt={"x": [0.1, 0.9]}, rename={"x": "z"})
    assert new.attributes["node"] == {"z": {"label": "X"}, "y": {"label": "Y"}}
    assert new.attributes["potential"] == {"y": {"made": "by hand"}}
    assert new.attributes["net"] == {"a": 1}
    assert net.prune("y").attributes["node"] == {"y": {"label": "Y"}}


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"cpt": {"rian": [1, 0]}}, errors.UnknownVariable, "did you mean 'rain'"),
        ({"states": {"rain": {"yess": "x"}}}, errors.UnknownState, "'rain' has no state 'yess'; did you mean 'yes'"),
        ({"states": {"rain": "ny"}}, errors.NetworkError, "a mapping or a sequence of names"),
        ({"rename": {"rain": "wet"}}, errors.NetworkError, "'rain' and 'wet' would both have the name 'wet'"),
        ({"rename": {"fog": "x"}}, errors.UnknownVariable, "no variable 'fog'"),
        ({"cpt": {"rain": [0.5, 0.6]}}, errors.NetworkError, "'rain': its CPT sums to 1.1"),
    ],
)
def test_invalid_changes(changes: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        NET.replace(**changes)


@given(random_nets.bayesian_networks(), st.data())
def test_no_change_and_names_there_and_back(net: BayesianNetwork, data: st.DataObject) -> None:
    assert net.replace() == net
    names = data.draw(st.permutations(net.variables))
    there = net.replace(rename=dict(zip(net.variables, names, strict=True)))
    assert there.replace(rename=dict(zip(names, net.variables, strict=True))) == net
    order = {v: data.draw(st.permutations(net.parents(v))) for v in net}
    assert net.replace(parents=order).replace(parents={v: net.parents(v) for v in net}) == net
