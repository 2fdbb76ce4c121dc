"""XDSL files with a temporal plate: contemporal, anchor, plate and terminal nodes, tables by order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ParseError
from jtgpu.formats import xdsl
from jtgpu.formats.registry import dumps_dynamic


def cpt(name: str, numbers: str, parents: str = "", more: str = "", states: str = "yes no") -> str:
    """A node with two states."""
    listed = "".join(f'<state id="{s}" />' for s in states.split())
    above = f"<parents>{parents}</parents>" if parents else ""
    return f'<cpt id="{name}"{more}>{listed}{above}<probabilities>{numbers}</probabilities></cpt>'


def order(name: str, numbers: str, parents: str = "", k: str = "1") -> str:
    """A table of later slices."""
    return cpt(name, numbers, parents, f' order="{k}"', "")


def file(*nodes: str, later: tuple[str, ...] = ()) -> str:
    """A file with a node on each line from line 3, and tables of later slices after them."""
    return "\n".join([
        '<?xml version="1.0" encoding="UTF-8"?>', '<smile version="1.0" id="Net"><nodes>', *nodes,
        '</nodes><dynamic numslices="5">', *later, "</dynamic></smile>",
    ])  # fmt: skip


PLATE = ' dynamic="plate"'
LOCATION = cpt("Location", "0.5 0.5", states="Pittsburgh Sahara")
RAIN = cpt("Rain", "0.7 0.3 0.01 0.99", "Location", PLATE)
UMBRELLA = cpt("Umbrella", "0.9 0.1 0.2 0.8", "Rain", PLATE)
RAIN_1 = order("Rain", "0.7 0.3 0.3 0.7 0.001 0.999 0.01 0.99", "Rain")
A, X, X_1 = cpt("A", "0.25 0.75"), cpt("X", "0.1 0.9", "", PLATE), order("X", "0.3 0.7 0.6 0.4", "X")


def read(*nodes: str, later: tuple[str, ...] = (), **options: Any) -> jtgpu.DynamicNetwork:
    """The network of a file."""
    dyn: Any = xdsl.parse(file(*nodes, later=later), "f", **options)
    assert isinstance(dyn, jtgpu.DynamicNetwork)
    return dyn


def test_the_tutorial_of_smile() -> None:
    """The network of SMILE's tutorial on dynamic networks, as SMILE writes it."""
    dyn = read(LOCATION, RAIN, UMBRELLA, later=(RAIN_1,))
    assert (dyn.variables, dyn.static, dyn.order) == (("Location", "Rain", "Umbrella"), ("Location",), 1)
    assert dyn.parents("Rain") == (("Location", 0), ("Rain", 1))
    p = {("Pittsburgh", "yes"): 0.7, ("Pittsburgh", "no"): 0.3, ("Sahara", "yes"): 0.001, ("Sahara", "no"): 0.01}
    for at, place in enumerate(dyn.states("Location")):
        assert np.asarray(dyn.start("Rain")[0])[at, 0] == [0.7, 0.01][at]
        for before, state in enumerate(dyn.states("Rain")):
            assert np.asarray(dyn.cpt("Rain"))[at, before, 0] == p[place, state]
    # by hand: P(Location | umbrella on the first day) and P(rain on the second day | the same)
    tree = dyn.compile()
    got = tree.filter({"Umbrella": [["yes", None]]})
    weight = np.array([0.5 * (0.7 * 0.9 + 0.3 * 0.2), 0.5 * (0.01 * 0.9 + 0.99 * 0.2)])
    assert np.allclose(got["Location"][0, 0], weight / weight.sum(), atol=1e-12)
    rain = 0.5 * np.array([0.7 * 0.9 * 0.7 + 0.3 * 0.2 * 0.3, 0.01 * 0.9 * 0.001 + 0.99 * 0.2 * 0.01])
    assert np.isclose(got["Rain"][0, 1, 0], rain.sum() / weight.sum(), atol=1e-12)
    assert xdsl.parse(dumps_dynamic(dyn, "XDSL")) == dyn


def test_orders() -> None:
    """Parents of order 1 and 2: axes are those of slice 0, then by order; a missing table is the one before."""
    first, second = ("0.3 0.7 0.6 0.4", "X"), (" ".join(f"0.{i} 0.{10 - i}" for i in range(1, 9)), "X A2")
    a2 = cpt("A2", "0.5 0.5", "", PLATE)
    dyn = read(a2, X, later=(order("X", *second, k="2"), order("X", *first)))
    assert dyn.parents("X") == (("X", 1), ("X", 2), ("A2", 2))
    assert np.asarray(dyn.cpt("X"))[1, 0, 1].tolist() == [0.6, 0.4]
    assert [t.tolist() for t in dyn.start("X")] == [[0.1, 0.9], [[0.3, 0.7], [0.6, 0.4]]]
    lone = read(X, later=(order("X", "0.3 0.7 0.6 0.4", "X", k="2"),))
    assert lone.parents("X") == (("X", 2),)
    assert [t.tolist() for t in lone.start("X")] == [[0.1, 0.9], [0.1, 0.9]]


def test_the_network_of_order_2_in_the_manual_of_smile() -> None:
    """All four types of nodes, and two temporal arcs between the same nodes; the manual counts arcs after unrolling."""
    rng = np.random.default_rng(2)

    def numbers(rows: int) -> str:
        return " ".join(f"{x:.17g}" for x in rng.dirichlet(np.ones(2), rows).ravel().tolist())

    anchor = cpt("Anchor", numbers(1), "", ' dynamic="anchor"')
    nodes = (
        anchor, cpt("Contemporal", numbers(1)), cpt("P1", numbers(2), "Anchor", PLATE),
        cpt("P2", numbers(4), "Contemporal P1", PLATE), cpt("End", numbers(2), "P2", ' dynamic="terminal"'),
    )  # fmt: skip
    later = (
        order("P1", numbers(4), "P1 P2"), order("P2", numbers(8), "P1"), order("P2", numbers(16), "P1", k="2"),
    )  # fmt: skip
    dyn = read(*nodes, later=later)
    assert (dyn.order, dyn.static) == (2, ("Anchor", "Contemporal"))
    assert dyn.parents("P2") == (("Contemporal", 0), ("P1", 0), ("P1", 1), ("P1", 2))
    flat = dyn.unroll(4)
    assert [len(flat.parents(f"P2[{t}]")) for t in range(4)] == [2, 3, 4, 4]
    arcs = {*flat.arcs}
    for first, second, lag in (("P1", "P1", 1), ("P2", "P1", 1), ("P1", "P2", 1), ("P1", "P2", 2)):
        assert sum((f"{first}[{t}]", f"{second}[{t + lag}]") in arcs for t in range(4)) == 4 - lag
    # tables of order 2: slice 0's parents are the slowest, then order 1, order 2 and the child
    table = np.array(later[2].partition("<probabilities>")[2].partition("<")[0].split(), float).reshape((2,) * 5)
    assert np.array_equal(np.asarray(flat.cpt("P2[3]")), table)
    again = xdsl.parse(dumps_dynamic(dyn, "XDSL"))
    assert again == dyn
    assert dumps_dynamic(dyn, "XDSL").count('<cpt id="P2" order="2">') == 1


def test_anchors_matter_in_slice_0_only() -> None:
    anchor = A.replace('id="A"', 'id="A" dynamic="anchor"')
    plate = cpt("X", "0.1 0.9 0.8 0.2", "A", PLATE)
    dyn = read(anchor, plate, later=(X_1,))
    assert dyn.static == ("A",)
    full = dyn.unroll(3)
    prior = full.compile().posteriors()["X[0]"].probabilities
    assert np.allclose(prior, [0.25 * 0.1 + 0.75 * 0.8, 0.25 * 0.9 + 0.75 * 0.2])
    for s in "yes", "no":  # the anchor and slice 1 are independent given slice 0
        one = full.compile().posteriors({"X[0]": "yes", "A": s})["X[1]"].probabilities
        assert np.allclose(one, [0.3, 0.7])
    wide = read(anchor, plate, later=(order("X", "0.3 0.7 0.6 0.4 0.3 0.7 0.6 0.4", "X"),))
    assert wide.parents("X") == (("A", 0), ("X", 1))  # the table lists the anchor's states, too
    assert np.array_equal(np.transpose(wide.cpt("X"), [1, 0, 2]), dyn.cpt("X"))
    assert xdsl.parse(dumps_dynamic(dyn, "XDSL")) == dyn


def test_terminal_nodes_are_variables_of_every_slice() -> None:
    end = cpt("End", "0.9 0.1 0.2 0.8", "X", ' dynamic="terminal"')
    dyn = read(X, end, later=(X_1,))
    assert (dyn.static, dyn.parents("End")) == ((), (("X", 0),))
    got = dyn.compile().filter({"X": [["yes", None]]}, at="last")["End"][0]
    assert np.allclose(got, [0.3 * 0.9 + 0.7 * 0.2, 0.3 * 0.1 + 0.7 * 0.8])


def test_a_plate_without_nodes_is_no_dynamic_network() -> None:
    net = xdsl.parse(file(A, cpt("B", "0.5 0.5 0.1 0.9", "A")))
    assert type(net) is jtgpu.BayesianNetwork


def test_rows_and_names() -> None:
    """Rows are normalised; names that are no identifiers and the order of parents are restored."""
    assert np.asarray(read(X, later=(order("X", "3 7 60 40", "X"),)).cpt("X")).tolist() == [[0.3, 0.7], [0.6, 0.4]]
    dyn = jtgpu.DynamicNetwork(
        {"a b": ["x", "y"], "é": ["1", "2"]}, {"a b": [("é", 1), ("a b", 2)], "é": [("é", 2), "a b"]},
        {"a b": np.full((2, 2, 2), [0.3000001, 0.7]), "é": np.full((2, 2, 2), 0.5)},
        start={"a b": [[0.5, 0.5], [[0.25, 0.75]] * 2], "é": [[[0.5, 0.5]] * 2] * 2}, name="n m",
    )  # fmt: skip
    again = xdsl.parse(dumps_dynamic(dyn, "XDSL"))
    assert again == dyn
    assert again.name == "n m"


@pytest.mark.parametrize(
    ("nodes", "later", "message"),
    [
        ((A, X), (order("X", "0.3 0.7 0.6", "X"),), "f:6:.*: found 3 numbers for 'X of order 1', expected 4"),
        ((A, X), (order("X", "0.3 0.7 0.6 -4", "X"),), "f:6:.*: the table of 'X of order 1' holds -4"),
        ((A, X), (order("X", "0.3 0.7 0 0", "X"),), "f:6:.*: a row of the table of 'X of order 1' is all zeros"),
        ((A, X), (order("X", "0.3 0.7 0.6 0.4", "A"),), "'X' has the parent 'A' 1 slices earlier, which is not on the"),
        ((A, X), (order("X", "0.3 0.7 0.6 0.4", "Y"),), "'X' has the parent 'Y' 1 slices earlier, which is not decl"),
        ((A, X), (order("Y", "0.3 0.7", ""),), "f:6:1: found a table of later slices of 'Y', which is not declared"),
        ((A, X), (order("A", "0.3 0.7", ""),), "f:6:1: found a table of later slices of 'A', which is not on the plat"),
        ((A, X), (order("X", "0.3 0.7", "", "0"),), "f:6:1: found the order '0' of 'X', expected 1, 2, ..."),
        ((A, X), (X_1, X_1), "f:7:1: the table of 'X' of order 1 occurs a second time"),
        ((A, X), (X_1.replace("probabilities", "numbers"),), "f:6:1: found no <probabilities> of 'X' of order 1"),
        ((A, X), (X_1.replace("cpt", "noisymax"),), "the node 'X' is a <noisymax> in later slices"),
        ((cpt("A", "1 1 1 1", "X"), X), (X_1,), "f:3:.*: 'A' has one value for all slices, and its parent 'X' is on"),
        ((A, X.replace("plate", "plat")), (X_1,), "found the kind 'plat' of the node 'X'; did you mean 'plate'"),
        ((A.replace('id="A"', 'id="A" dynamic="anchor"'), cpt("X", "1 1 1 1", "A", PLATE)), (),
         "'X' depends on the anchor 'A' in slice 0 and has no table of later slices; give it a temporal arc"),
        ((X, '<utility id="U"><parents>X</parents><utilities>1 2</utilities></utility>'), (X_1,),
         "f:3:1: found decisions or utilities in a dynamic network"),
        ((X, '<equation id="E"><definition>E=1+Normal(0,1)</definition></equation>'), (X_1,), "equation node 'E'"),
        ((X,), (), "f:3:1: no variable has a parent in an earlier slice"),
    ],
)  # fmt: skip
def test_errors_have_their_place(nodes: tuple[str, ...], later: tuple[str, ...], message: str) -> None:
    with pytest.raises(ParseError, match=message):
        read(*nodes, later=later)


def test_what_can_be_read() -> None:
    utility = '<utility id="U"><parents>X</parents><utilities>1 2</utilities></utility>'
    equation = '<equation id="E"><definition>E=1+Normal(0,1)</definition></equation>'
    dyn = read(X, utility, equation, later=(X_1,), decisions="chance")
    assert dyn == read(X, later=(X_1,))
    assert read(X, later=(order("X", "0.3 0.7 0 0", "X"),), zero_rows="uniform").cpt("X").tolist()[1] == [0.5, 0.5]
