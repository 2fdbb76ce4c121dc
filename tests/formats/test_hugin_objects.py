"""Object-oriented Hugin files: classes, instances, temporal clones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ParseError
from jtgpu.formats import hugin

DBN = """class Weather
{
 inputs = (); outputs = ();
 node rain { states = ("no" "yes"); }
 temporal T_rain : rain { label = "before"; }
 node umbrella { states = ("no" "yes"); }
 potential (T_rain) { data = (0.5 0.5); }
 potential (rain | T_rain) { data = ((0.7 0.3) (0.3 0.7)); }
 potential (umbrella | rain) { data = ((0.8 0.2) (0.1 0.9)); }
} % class Weather
"""
# A family: two parents are people, and each child is an instance of Child
FAMILY = """class Person { outputs = (g); node g { states = ("a" "b"); } potential (g) { data = (0.9 0.1); } }
class Child
{
 inputs = (mother father);
 outputs = (g);
 node mother { states = ("a" "b"); }
 node father { states = ("a" "b"); }
 node g { states = ("a" "b"); }
 node ill { states = ("no" "yes"); }
 potential (mother) { data = (0.5 0.5); }
 potential (father) { data = (0.5 0.5); }
 potential (g | mother father) { data = (((1 0) (0.5 0.5)) ((0.5 0.5) (0 1))); }
 potential (ill | g) { data = ((0.99 0.01) (0.2 0.8)); }
}
class Family
{
 instance c2 : Child (mother = mg, father = c1g; g2 = g) { position = (1 2); }
 instance m : Person (; mg = g) { }
 instance c1 : Child (mother = mg, father = fg; c1g = g) ;
 instance f : Person ( ; fg = g);
 instance lone : Child ( ; ) ;
 node any { states = ("no" "yes"); }
 potential (any | c1g g2) { data = (((1 0) (0 1)) ((0 1) (0 1))); }
}
"""


def test_slice_0_are_the_clones() -> None:
    dyn: Any = hugin.parse(DBN)
    assert isinstance(dyn, jtgpu.DynamicNetwork)
    assert (dyn.name, dyn.variables, dyn.static) == ("Weather", ("rain", "umbrella"), ())
    assert dyn.parents("rain") == (("rain", 1),)
    assert dyn.start("rain")[0].tolist() == [0.5, 0.5]
    assert np.asarray(dyn.cpt("umbrella")).tolist() == [[0.8, 0.2], [0.1, 0.9]]
    got = dyn.compile("reference").filter({"umbrella": [[None, "yes", "yes"]]})["rain"][0, 1:, 1]
    assert np.allclose(got, [0.8181818, 0.8833570])  # Russell and Norvig, whose slice 0 has no umbrella


def test_a_network_that_hugin_unrolled(shared_nets: Path) -> None:
    """HUGIN names the clones T0.X and labels them T_X: the class of its slices 0 and 1 unrolls to the same network."""
    theirs = jtgpu.read(shared_nets / "variety" / "amidst_CajamarDBNExpanded.net")
    own = {v: v[3:] if v.startswith("T1.") else f"T_{v[3:]}" for v in theirs.variables if v[:3] in ("T0.", "T1.")}
    lines = ["class Cajamar {"]
    for v, name in own.items():
        states = " ".join(f'"{s}"' for s in theirs.states(v))
        is_clone = v.startswith("T0")
        lines.append(f"temporal {name} : {name[2:]} {{ }}" if is_clone else f"node {name} {{ states = ({states}); }}")
        above = " ".join(own[p] for p in theirs.parents(v))
        numbers = " ".join(map(repr, np.ravel(theirs.cpt(v)).tolist()))
        lines.append(f"potential ({name} | {above}) {{ data = ({numbers}); }}")
    dyn: Any = hugin.parse("\n".join([*lines, "}"]))
    assert isinstance(dyn, jtgpu.DynamicNetwork)
    ours = dyn.unroll(6)
    assert len(ours) == len(theirs)
    rng = np.random.default_rng(3)
    cases = np.stack([rng.integers(-1, len(ours.states(v)), 50) for v in ours.variables], axis=1).astype(np.int32)
    names = [f"T{v[v.index('[') + 1 : -1]}.{v[: v.index('[')]}" for v in ours.variables]
    order = [names.index(v) for v in theirs.variables]
    a = ours.compile("cpu").posteriors_batch(cases, on_error="flag").log_evidence
    b = theirs.compile("cpu").posteriors_batch(cases[:, order], on_error="flag").log_evidence
    assert np.allclose(a, b, atol=1e-9)
    assert np.isfinite(a).any()


def test_tables_of_clones_that_differ() -> None:
    """A clone with another table, and a variable without a clone."""
    text = DBN.replace("} % class", """
 temporal T_umbrella : umbrella { }
 potential (T_umbrella | T_rain) { data = ((0.6 0.4) (0.5 0.5)); }
 node mud { states = ("no" "yes"); }
 potential (mud | T_rain rain) { data = (((1 0) (0.5 0.5)) ((0.25 0.75) (0 1))); }
} % class""")
    dyn: Any = hugin.parse(text)
    assert isinstance(dyn, jtgpu.DynamicNetwork)
    assert dyn.parents("umbrella") == (("rain", 0), ("rain", 1))
    assert np.asarray(dyn.start("umbrella")[0]).tolist() == [[0.6, 0.4], [0.5, 0.5]]
    assert (np.asarray(dyn.cpt("umbrella")) == np.array([[0.8, 0.2], [0.1, 0.9]])[:, None]).all()
    assert dyn.parents("mud") == (("rain", 1), ("rain", 0))
    assert np.asarray(dyn.start("mud")[0]).tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_instances_are_copies() -> None:
    net = hugin.parse(FAMILY)
    assert type(net) is jtgpu.BayesianNetwork
    assert net.name == "Family"
    assert set(net.variables) == {
        "any", "m.g", "f.g", "c1.g", "c1.ill", "c2.g", "c2.ill", "lone.mother", "lone.father", "lone.g", "lone.ill"
    }  # fmt: skip
    assert net.parents("c1.g") == ("m.g", "f.g")
    assert net.parents("c2.g") == ("m.g", "c1.g")
    assert net.parents("any") == ("c1.g", "c2.g")
    assert net.parents("lone.g") == ("lone.mother", "lone.father")
    flat = jtgpu.BayesianNetwork(
        {"m": ["a", "b"], "f": ["a", "b"], "c": ["a", "b"], "d": ["a", "b"], "i": ["no", "yes"]},
        {"c": ["m", "f"], "d": ["m", "c"], "i": ["d"]},
        {"m": [0.9, 0.1], "f": [0.9, 0.1], "c": net.cpt("c1.g"), "d": net.cpt("c2.g"), "i": [[0.99, 0.01], [0.2, 0.8]]},
    )
    ours, theirs = net.compile("reference"), flat.compile("reference")
    for state in "a", "b":
        got = ours.posteriors({"c2.ill": "yes", "c1.g": state})["m.g"].probabilities
        assert np.allclose(got, theirs.posteriors({"i": "yes", "c": state})["m"].probabilities, atol=1e-14)


def test_clones_in_instances() -> None:
    text = DBN.replace("outputs = ()", "outputs = (rain)") + """class Two
{ instance n : Weather (; nr = rain) { } instance s : Weather (; sr = rain) { }
  node both { states = ("no" "yes"); } potential (both | nr sr) { data = (1 0 1 0 1 0 0 1); } }"""
    dyn: Any = hugin.parse(text)
    assert isinstance(dyn, jtgpu.DynamicNetwork)
    assert dyn.interface == (("n.rain", 1), ("s.rain", 1))
    assert dyn.parents("both") == (("n.rain", 0), ("s.rain", 0))


def test_the_poker_network_of_hugin(shared_nets: Path) -> None:
    net = jtgpu.read(shared_nets / "variety" / "wmc_poker_subnet.net", kind=jtgpu.DecisionNetwork)
    assert net.parents("MH.MFC") == ("OH.FC", "MH.MH0")
    assert net.parents("Besthand") == ("MH.MH", "OH.OH2")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("T_rain : rain", "T_rain : rian", "5:20: the temporal clone 'T_rain' is of 'rian', .* did you mean 'rain'"),
        ("T_rain : rain", "T_rain = rain", "5:18: found '=', expected ':' after the name of the temporal clone"),
        ("node umbrella", "temporal T2 : rain { } node umbrella", "6:2: 'rain' has a second temporal clone, 'T2'"),
        ("node umbrella", "temporal T2 : T_rain { } node umbrella", "6:16: .* is of 'T_rain', which is a clone itself"),
        ("node umbrella", "temporal T_rain : rain { } node umbrella", "6:2: the node 'T_rain' is declared a second"),
        ("(T_rain) { data = (0.5 0.5)", "(T_rain | rain) { data = (1 1 1 1)", "7:22: the temporal clone 'T_rain' has"),
        ("potential (rain | T_rain) { data = ((0.7 0.3) (0.3 0.7)); }", "", "5:2: no variable has a parent in an earl"),
        ("(0.5 0.5)", "(0.5 0.5 0.5)", "7:30: found 3 numbers for 'T_rain', expected 2"),
        ("} % class", "utility u { } potential (u | rain) { data = (1 2); } } %", "5:2: found decisions or utiliti"),
    ],
)  # fmt: skip
def test_errors_of_clones_have_their_place(old: str, new: str, message: str) -> None:
    assert old in DBN
    with pytest.raises(ParseError, match=f"f:{message}"):
        hugin.parse(DBN.replace(old, new, 1), "f")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(mother = mg, father = c1g;", "(mum = mg, father = c1g;", "17:23: 'mum' is no input of the class 'Child'"),
        ("(mother = mg, father = c1g;", "(mother = mgg, father = c1g;", "'mother' of 'c2' is bound to 'mgg', which is"),
        ("g2 = g)", "g2 = gg)", "17:50: the class 'Child' has no node 'gg'"),
        ("(mother = mg, father = fg; c1g = g)", "(mother = g2, father = fg; c1g = g)", "depends on itself through oth"),
        ("class Family\n{", "class Family\n{ instance x : Family ( ; ) ;", "contains an instance of itself"),
        ("class Child", "class Person", "2:1: the class 'Person' is declared a second time"),
        ('mother { states = ("a" "b")', 'mother { states = ("a" "b" "c")', "has 2 states, and the input 'mother' of"),
        ("instance m :", "instance c2 :", "the node 'c2' is declared a second time"),
        ("instance m : Person", "instance m : Persona", r"class instance \(of 'Persona', which is not in the file\)"),
    ],
)  # fmt: skip
def test_errors_of_instances_have_their_place(old: str, new: str, message: str) -> None:
    assert old in FAMILY
    with pytest.raises(ParseError, match=message) as caught:
        hugin.parse(FAMILY.replace(old, new, 1), "f")
    assert caught.value.line is not None


def test_classes_that_double_are_limited() -> None:
    text = "class c0 { node x { states = (a b); } }\n"
    for i in range(1, 40):
        text += f"class c{i} {{ instance a : c{i - 1} ( ; ) ; instance b : c{i - 1} ( ; ) ; }}\n"
    with pytest.raises(ParseError, match="makes more than 10000 instances"):
        hugin.parse(text, "f")
