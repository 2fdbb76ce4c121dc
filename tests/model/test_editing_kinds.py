"""Networks of every kind with a node or an arc more or fewer, or other names."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import errors
from jtgpu.model.decisions import DecisionNetwork
from jtgpu.model.dynamic import DynamicNetwork
from jtgpu.model.gaussian import Gaussian
from jtgpu.model.mixed import MixedNetwork
from jtgpu.model.mixed_dynamic import MixedDynamicNetwork

NO = ["no", "yes"]


def decisions() -> DecisionNetwork:
    return jtgpu.DecisionNetwork(
        {"ill": NO, "test": NO, "treat": NO}, {"test": ["ill"], "treat": ["test"], "health": ["ill", "treat"]},
        {"ill": [0.9, 0.1], "test": [[0.8, 0.2], [0.1, 0.9]]}, decisions=["treat"],
        utilities={"health": [[100, 90], [20, 80]]}, name="clinic",
        attributes={"node": {"ill": {"label": "Ill"}, "health": {"label": "Health"}}},
    )  # fmt: skip


def mixed() -> MixedNetwork:
    return jtgpu.MixedNetwork(
        {"sex": ["f", "m"], "height": float, "weight": float}, {"height": ["sex"], "weight": ["sex", "height"]},
        {"sex": [0.4, 0.6], "height": Gaussian([166, 179], sd=[6, 7]),
         "weight": Gaussian([-80, -75], {"height": [0.8, 0.9]}, sd=9)},
    )  # fmt: skip


def dynamic() -> DynamicNetwork:
    return jtgpu.DynamicNetwork(
        {"kind": ["a", "b"], "rain": NO, "wet": NO},
        {"rain": ["kind", ("rain", 1), ("rain", 2)], "wet": ["rain"]},
        {"kind": [0.3, 0.7], "rain": np.random.default_rng(1).dirichlet([1, 1], (2, 2, 2)),
         "wet": [[0.8, 0.2], [0.1, 0.9]]},
        start={"rain": [[[0.5, 0.5], [0.2, 0.8]], np.random.default_rng(2).dirichlet([1, 1], (2, 2))]}, static=["kind"],
    )  # fmt: skip


def mixed_dynamic() -> MixedDynamicNetwork:
    return jtgpu.MixedDynamicNetwork(
        {"state": ["calm", "busy"], "load": float},
        {"state": [("state", 1)], "load": ["state", ("load", 1)]},
        {"state": [[0.9, 0.1], [0.2, 0.8]], "load": Gaussian([1, 4], {"load[t-1]": [0.5, 0.2]})},
        start={"state": [0.5, 0.5], "load": Gaussian([1, 4])},
    )  # fmt: skip


KINDS = (decisions, mixed, dynamic, mixed_dynamic)
LEAF = {"decisions": "test", "mixed": "sex", "dynamic": "wet", "mixed_dynamic": "state"}


@pytest.mark.parametrize("make", KINDS)
def test_there_and_back(make: Any) -> None:
    """What is added and removed, renamed there and back, or replaced by itself, is as before."""
    net, above = make(), LEAF[make.__name__]
    more = net.add("new", ["x", "y", "z"], [above])
    assert type(more) is type(net)
    assert np.allclose(more.cpt("new"), 1 / 3)
    assert more.remove("new") == net
    assert net.replace() == net
    assert net.replace(name="other").name == "other"
    with pytest.raises(errors.UnknownVariable):
        net.remove("nothing")
    with pytest.raises(errors.NetworkError, match="there is already a variable"):
        net.add(above, ["a", "b"])
    with pytest.raises(errors.NetworkError, match="'new' has the parent 'nowhere', which is not declared"):
        net.add("new", ["a", "b"], ["nowhere"])
    coded = net.with_codes({above: {"first": net.states(above)[0]}})
    for kept in (coded.replace(name="x"), coded.add("new", ["x", "y"]), coded.add("new", ["x", "y"]).remove("new")):
        assert getattr(kept, "discrete", kept).state_codes == {above: {"first": net.states(above)[0]}}
    changed = coded.rename(above, "other")
    assert getattr(changed, "discrete", changed).state_codes == "names"
    for v in net.variables:
        renamed = net.rename(v, "other")
        assert "other" in renamed.variables
        assert v not in renamed.variables
        assert renamed.rename("other", v) == net
        with pytest.raises(errors.NetworkError, match="both have the name"):
            net.replace(rename={v: "x", net.variables[0] if v != net.variables[0] else net.variables[1]: "x"})
    root = net.add("root", ["p", "q"])
    child = net.variables[-1]
    if child not in getattr(net, "decisions", ()):
        assert root.add_arc("root", child).remove_arc("root", child, weights="uniform").remove("root") == net
        with pytest.raises(errors.NetworkError, match="there is no arc 'root' -> "):
            root.remove_arc("root", child)
        twice = root.add_arc("root", child)
        with pytest.raises(errors.NetworkError, match="there is already an arc 'root' -> "):
            twice.add_arc("root", child)
    states = {v: {s: s.upper() for s in net.states(v)} for v in net.variables if net.states(v)}
    back = {v: {s.upper(): s for s in net.states(v)} for v in states}
    assert net.replace(states=states).replace(states=back) == net


def test_decisions_and_utilities() -> None:
    net = decisions()
    more = net.add_decision("scan", ["none", "ct"]).add_utility("cost", ["scan"], [0, -5])
    assert (more.decisions, more.utilities) == (("treat", "scan"), ("health", "cost"))
    assert more.remove("cost").remove("scan") == net
    known = more.add_arc("scan", "treat")
    assert known.parents("treat") == ("test", "scan")
    assert known.remove_arc("scan", "treat") == more
    informed = net.add_arc("test", "health")
    assert informed.utility("health").shape == (2, 2, 2)
    assert informed.remove_arc("test", "health") == net
    # the mean over the prior of ill: 0.9 of [100, 90] and 0.1 of [20, 80]
    assert np.allclose(net.remove_arc("ill", "health").utility("health"), [92, 89])
    renamed = net.rename("health", "gain")
    assert renamed.utilities == ("gain",)
    assert renamed.attributes["node"]["gain"] == {"label": "Health"}
    turned = net.replace(parents={"health": ["treat", "ill"]})
    assert np.array_equal(turned.utility("health"), net.utility("health").T)
    assert net.replace(cpt={"health": np.zeros((2, 2))}).utility("health").sum() == 0
    assert net.with_information({"treat": []}).parents("treat") == ()
    with pytest.raises(errors.NetworkError, match="'treat' has the parent 'health', which is a utility"):
        net.add_arc("health", "treat")
    with pytest.raises(errors.NetworkError, match="'cost' has the parent 'health', which is a utility"):
        net.add_utility("cost", ["health"])
    with pytest.raises(errors.NetworkError, match="'x'"):
        net.add("x", ())
    with pytest.raises(errors.NetworkError, match="decision 'treat' has a CPT"):
        net.replace(cpt={"treat": [0.5, 0.5]})
    with pytest.raises(errors.NetworkError, match="'x' has the type float: numbers are in"):
        net.add("x", float)
    with pytest.raises(errors.NetworkError, match="already a utility 'health'"):
        net.add_decision("health", NO)


def test_arcs_of_numbers() -> None:
    """A parent that goes is integrated out: the child's mean and variance stay."""
    net = mixed()
    more = net.add("smoke", NO, [], [0.7, 0.3]).add_arc("smoke", "weight")
    assert more.gaussian("weight").mean.tolist() == [[-80, -80], [-75, -75]]
    joined = more.add("bmi", float, ["weight"]).add_arc("height", "bmi")
    assert joined.gaussian("bmi").coefficients["height"].tolist() == 0.0
    assert more.add_arc("smoke", "height").remove_arc("smoke", "height") == more
    p, m, s = np.array([0.4, 0.6]), np.array([166, 179]), np.array([6, 7])
    less = net.remove_arc("sex", "height").gaussian("height")
    mean = p @ m
    assert np.allclose([less.mean, less.sd], [mean, np.sqrt(p @ (s**2 + (m - mean) ** 2))])
    cut = net.remove_arc("height", "weight").gaussian("weight")
    spread = np.sqrt(p @ (s**2 + (m - mean) ** 2))
    assert np.allclose(cut.mean, np.array([-80, -75]) + np.array([0.8, 0.9]) * mean)
    assert np.allclose(cut.sd, np.sqrt(81 + (np.array([0.8, 0.9]) * spread) ** 2))
    assert cut.coefficients == {}
    with pytest.raises(errors.NetworkError, match="'height' is a number: weights must be 'prior'"):
        net.remove("height", weights="uniform")
    with pytest.raises(errors.NetworkError, match="'height' is a parent of 'sex'"):
        net.remove_arc("sex", "height").remove_arc("sex", "weight").add_arc("height", "sex")
    assert net.remove("weight").remove("height").discrete == net.discrete
    with pytest.raises(errors.NetworkError, match="no coefficient for its numeric parent 'size'"):
        net.replace(rename={"height": "size"}, cpt={"weight": Gaussian([1, 2], {"length": [1, 1]})})


def joint(dyn: DynamicNetwork, n: int) -> Any:
    """The joint distribution of the first slices by enumeration: (the variables of the unrolled network)."""
    net = dyn.unroll(n)
    table = np.zeros([len(net.states(v)) for v in net])
    for states in product(*map(range, table.shape)):
        at = dict(zip(net.variables, states, strict=True))
        table[states] = np.prod([net.cpt(v)[(*(at[p] for p in net.parents(v)), at[v])] for v in net])
    return table


def test_arcs_over_time() -> None:
    dyn = dynamic()
    more = dyn.add_arc(("wet", 1), "wet")
    assert [t.shape for t in more.start("wet")] == [(2, 2)]
    assert np.allclose(joint(more, 3), joint(dyn, 3))
    assert more.remove_arc(("wet", 1), "wet") == dyn
    far = dyn.add_arc(("wet", 3), "rain")
    assert [t.shape for t in far.start("rain")] == [(2, 2), (2, 2, 2), (2, 2, 2, 2)]
    assert np.allclose(joint(far, 4), joint(dyn, 4))
    assert far.remove_arc(("wet", 3), "rain") == dyn
    turned = dyn.replace(parents={"rain": [("rain", 2), "kind", ("rain", 1)]})
    assert np.allclose(joint(turned, 3), joint(dyn, 3))
    # a new CPT is in the new order, and those of the first slices are turned; of other parents there are none
    cpt = np.random.default_rng(3).dirichlet([1, 1], (2, 2, 2))
    given = dyn.replace(parents={"rain": [("rain", 2), "kind", ("rain", 1)]}, cpt={"rain": cpt})
    assert np.array_equal(given.cpt("rain"), cpt)
    assert [np.array_equal(a, b) for a, b in zip(given.start("rain"), turned.start("rain"), strict=True)] == [True] * 2
    assert dyn.replace(parents={"rain": ["kind"]}, cpt={"rain": np.eye(2)}).start("rain") == ()
    shorter = dyn.replace(parents={"rain": ["kind", ("rain", 1)]}, cpt={"rain": cpt[:, :, 0]})
    assert [np.array_equal(a, b) for a, b in zip(shorter.start("rain"), dyn.start("rain")[:1], strict=True)] == [True]
    with pytest.raises(errors.NetworkError, match="start must give its CPTs in the first 2 slices"):
        dyn.add("city", NO).replace(parents={"rain": ["city", ("rain", 1), ("rain", 2)]}, cpt={"rain": cpt})
    with pytest.raises(errors.NetworkError, match=r"numbers are in a .*MixedDynamicNetwork"):
        dyn.add("speed", float)
    # without the second lag, slice 2 has the mean over P(rain[0])
    before = dyn.unroll(1).compile("reference").posterior("rain[0]")
    less = dyn.remove_arc(("rain", 2), "rain")
    assert np.allclose(less.cpt("rain"), np.einsum("kabr,b->kar", dyn.cpt("rain"), before))
    assert np.array_equal(less.start("rain")[0], dyn.start("rain")[0])
    later = dyn.add("cold", NO, [("rain", 1)], np.eye(2), start=[1, 0])
    assert later.start("cold")[0].tolist() == [1, 0]
    assert dyn.add("city", ["x", "y"], static=True).static == ("kind", "city")
    with pytest.raises(errors.NetworkError, match=r"there is no arc \('wet', 1\) -> 'rain'"):
        dyn.remove_arc(("wet", 1), "rain")
    numbers = mixed_dynamic()
    alone = numbers.replace(parents={"load": ["state"]}, cpt={"load": Gaussian([1, 4])})
    assert alone.start("load") == ()
    assert numbers.add_arc(("load", 2), "load").remove_arc(("load", 2), "load") == numbers
    cut = numbers.remove_arc(("load", 1), "load").gaussian("load")
    assert np.allclose(cut.mean, np.array([1, 4]) + np.array([0.5, 0.2]) * 2.5)
    assert isinstance(numbers.remove("load"), DynamicNetwork)
