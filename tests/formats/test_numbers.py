"""Files of networks with numbers: Hugin, XDSL and JSON."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, FormatError, ParseError, UnknownSuffix
from jtgpu.formats import hugin, mixed_json, xdsl
from jtgpu.formats.linear import Linear, NotLinear, linear_text, parse_densities, parse_equation
from jtgpu.model.mixed import MixedNetwork

from ..mixed.test_against_enumeration import random_network


@pytest.mark.parametrize("seed", range(60))
def test_random_networks_come_back_equal(seed: int, tmp_path: Path) -> None:
    """Bit for bit, with the orders of variables and parents."""
    net = random_network(np.random.default_rng(seed))
    files = ["a.net", "a.net.gz", "a.mixed.json"]
    if any(net.discrete_parents(v) for v in net.numbers):
        with pytest.raises(FormatError, match="which has states: equations of XDSL"):
            jtgpu.write(net, tmp_path / "a.xdsl")
    else:
        files.append("a.xdsl")
    for file in files:
        jtgpu.write(net, tmp_path / file)
        again: Any = jtgpu.read(tmp_path / file)
        assert isinstance(again, MixedNetwork)
        assert again == net, (seed, file)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_numbers_of_any_size(scale: float, tmp_path: Path) -> None:
    net = MixedNetwork(
        {"y": float, "x": float},
        {"y": ["x"]},
        {"x": jtgpu.Gaussian(scale / 3, sd=scale / 7), "y": jtgpu.Gaussian(-scale, {"x": -scale / 9}, sd=scale / 11)},
    )
    for file in ("a.net", "a.xdsl", "a.mixed.json"):
        jtgpu.write(net, tmp_path / file)
        assert jtgpu.read(tmp_path / file) == net


def test_the_incinerator_of_hugin(shared_nets: Path) -> None:
    """Lauritzen (1992), p. 1107, from HUGIN's own file."""
    net: Any = jtgpu.load(shared_nets / "variety" / "wmc_WasteIncinerator.net")
    assert isinstance(net, MixedNetwork)
    post = net.compile("reference").posteriors({"W": "industrial", "L": 1.1, "C": -0.9})
    assert (round(post["B"]["stable"], 4), round(post["E"].mean, 2)) == (0.0123, -3.9)
    assert (round(post["E"].sd, 3), round(post["D"].mean, 2), round(post["D"].sd, 3)) == (0.076, 3.61, 0.326)


# Expressions --------------------------------------------------------------------------------------------------

EQUATIONS = [
    ("y=Normal(1,2)", Linear(1.0, {}, 2.0)),
    ("y = 2*x - z/4 + Normal(1, .5) + 3", Linear(4.0, {"x": 2.0, "z": -0.25}, 0.5)),
    ("y=Normal(-x*2+1e-1, 3)", Linear(0.1, {"x": -2.0}, 3.0)),
    ("y=-(x-1)*2+x+2*Normal(0,1)", Linear(2.0, {"x": -1.0}, 2.0)),
]


@pytest.mark.parametrize(("text", "expected"), EQUATIONS)
def test_equations(text: str, expected: Linear) -> None:
    assert parse_equation(text, "y") == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("y=1", "1"), ("z=Normal(0,1)", "z=Normal(0,1)"), ("y=x*x+Normal(0,1)", "x*x"),
        ("y=Exp(x)+Normal(0,1)", "Exp(x)"),
        ("y=Normal(0,1)+Normal(0,1)", "Normal(0,1)+Normal(0,1)"), ("y=Normal(0,x)", "Normal(0,x)"),
        ("y=Normal(0,0)", "Normal(0,0)"), ("y=Normal(0,1) x", "x"), ("y=1/x+Normal(0,1)", "1/x"), ("y=", "the end"),
        ("y=" + "(" * 200 + "1", "more than 50"), ("y=Normal(0", "the end"), ("y=x^2+Normal(0,1)", "^2"),
    ],
)  # fmt: skip
def test_what_is_not_linear_is_shown(text: str, part: str) -> None:
    with pytest.raises(NotLinear) as caught:
        parse_equation(text, "y")
    assert part in str(caught.value)


def test_text_of_an_expression_reads_back() -> None:
    coefficients = {"a": -0.1, "b": 1 / 3, "c": -0.0}
    (density,) = parse_densities(f"normal({linear_text(-2.5, coefficients)}, 2)")
    assert density == Linear(-2.5, coefficients, math.sqrt(2))


# Wrong files --------------------------------------------------------------------------------------------------

NODES = 'net { } node A { states = ("x" "y"); } continuous node E { } potential (A) { data = (0.5 0.5); }\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("potential (E | A) { data = (normal(0, 1)); }", "2:.*found 1 densities for 'E', expected 2 = 2"),
        ("potential (E) { data = normal(F, 1); }", r"2:.*the density of 'E' depends on 'F'"),
        ("potential (E | Z) { data = normal(0, 1); }", "2:16: 'E' has the parent 'Z', which is not declared"),
        ("potential (E | E) { data = normal(E, 1); }", "E"),
        ("potential (E) { data = normal(0, 0); }", "1:.*continuous node with 'normal.0, 0.', which is no linear"),
        ("potential (E) { data = exponential(1); }", "1:.*continuous node with 'exponential.1', which is no linear"),
        ("", "1:.*found the continuous node 'E'"),
        ('node B { states = ("u"); } potential (B | E) { data = (1); } potential (E) { data = normal(0, 1); }',
         "the number 'E' is a parent of 'B', which has states"),
        ("potential (E) { data = normal(0, 1); } potential (E) { data = normal(0, 1); }", "second potential of 'E'"),
    ],
)  # fmt: skip
def test_wrong_hugin_files(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        hugin.parse(NODES + text)


def test_wrong_equations_have_a_place() -> None:
    text = (
        '<smile version="1.0"><nodes>\n<equation id="e"><parents>e2</parents>'
        "<definition>e=e2+Normal(0,1)</definition></equation></nodes></smile>"
    )
    with pytest.raises(ParseError, match=r"2:.*'e' has the parent 'e2', which is not declared"):
        xdsl.parse(text)
    with pytest.raises(ParseError, match=r"equation node with 'Sin.e2.*', which is no linear density, 'e'"):
        xdsl.parse(text.replace("e=e2", "e=Sin(e2)"))


HEAD = '{"format": "jtgpu mixed network", "version": 1, "variables": '


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "{}", "invalid JSON"),
        (HEAD.replace("1", "2") + "{}}", "found the version .*2.*, expected 1"),
        (HEAD + "[]}", "expected \"variables\""),
        (HEAD + '{"x": {"mean": 1}}}', "variable 'x' has"),
        (HEAD + '{"x": {"parents": "a", "mean": 1, "coefficients": {}, "sd": 1}}}', "must be a list of names"),
        (HEAD + '{"x": {"parents": [], "mean": NaN, "coefficients": {}, "sd": 1}}}', "found NaN"),
        (HEAD + '{"x": {"parents": [], "mean": 1, "coefficients": {}, "sd": 0}}}', "must be > 0"),
        (HEAD + '{"x": {"parents": [], "states": "ab", "cpt": [0.5, 0.5]}}}', "states of 'x' must be a list"),
        (HEAD + '{"x": {"parents": []}, "x": {"parents": []}}}', "'x' occurs twice in an object"),
        (HEAD + "[" * 100_000, "nested too deeply|invalid JSON"),
    ],
)  # fmt: skip
def test_wrong_json(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        mixed_json.parse(text)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    net = MixedNetwork({"x": float}, {}, {"x": jtgpu.Gaussian(0)})
    with pytest.raises(FormatError, match="a BIF file cannot contain numbers"):
        jtgpu.write(net, tmp_path / "a.bif")
    with pytest.raises(ArgumentError, match="rename=True is for networks without numbers"):
        jtgpu.write(net, tmp_path / "a.net", rename=True)
    for read_only in ("a.txt", "a.oobn", "a.oobn.gz", "a.dne"):
        with pytest.raises(UnknownSuffix):
            jtgpu.write(net, tmp_path / read_only)
    with pytest.raises(FormatError, match=r"^an Ergo file cannot contain numbers"):
        jtgpu.write(net, tmp_path / "a.erg")
    with pytest.raises(UnknownSuffix):
        jtgpu.write(net.discrete, tmp_path / "a.mixed.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", ["a.net", "a.xdsl", "a.mixed.json"])
def test_damaged_files_are_networks_or_errors(file: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    jtgpu.write(random_network(rng, n_discrete=0 if file == "a.xdsl" else 3), tmp_path / file)
    text = (tmp_path / file).read_text("utf-8")
    words = [*'( ) " [ ] { } , ; * 0 -1 1e999 NaN normal x0 x9 é'.split(), "1" * 400]  # noqa: SIM905
    for _ in range(400):
        at, n = int(rng.integers(len(text))), int(rng.integers(0, 6))
        (tmp_path / file).write_text(text[:at] + str(rng.choice(words)) + text[at + n :], "utf-8")
        try:
            net: Any = jtgpu.read(tmp_path / file)
        except jtgpu.JtgpuError as error:
            place = str(error)
        else:
            place = file
            assert all(np.isfinite(net.gaussian(v).mean).all() for v in getattr(net, "numbers", ()))
        assert file in place


def test_more_parents_than_axes() -> None:
    text = NODES + "".join(f'node B{i} {{ states = ("u"); }}\n' for i in range(70))
    with pytest.raises(ParseError, match="70 parents, more than an array has axes"):
        hugin.parse(f"{text} potential (E | {' '.join(f'B{i}' for i in range(70))}) {{ data = normal(0, 1); }}")


def test_states_alone_of_a_file_with_numbers() -> None:
    text = NODES + "potential (E) { data = normal(0, 1); }"
    assert hugin.parse(text, decisions="chance").variables == ("A",)


@pytest.mark.parametrize("name", ["a.net", "a.xdsl", "a.mixed.json"])
def test_labels_positions_and_ends(name: str, tmp_path: Path) -> None:
    looks = {"s": {"position": (10, 20), "ends": (0.0, 7.5)}, "x": {"label": "Size", "position": (100, -20)}}
    net = jtgpu.MixedNetwork(
        {"s": ["[0, 1)", "[1, inf)"], "x": float, "y": float}, {"y": ["x"]},
        {"s": [0.5, 0.5], "x": jtgpu.Gaussian(0), "y": jtgpu.Gaussian(1, {"x": 2})},
        attributes={"net": {"label": "Sizes"}, "node": looks},
    )  # fmt: skip
    jtgpu.write(net.replace(cpt={"s": [0.25, 0.75]}), tmp_path / name)
    again = jtgpu.read(tmp_path / name, kind=jtgpu.MixedNetwork)
    assert (again.attributes["node"], again.attributes["net"]) == (looks, {"label": "Sizes"})
    post = again.compile("reference").posterior("s")
    assert post.mean == pytest.approx(0.25 * 0.5 + 0.75 * 4.25)


@pytest.mark.parametrize("suffix", [".net", ".bif", ".xml", ".xdsl", ".dsl"])
def test_files_keep_the_ends_of_intervals(suffix: str, tmp_path: Path) -> None:
    about = {"node": {"s": {"ends": (0.1, 7.5), "property": ("unit = cm", "jtgpu_ends = many")}}}
    net = jtgpu.BayesianNetwork({"s": ["(-inf, 1)", "[1, inf)"]}, {}, {"s": [0.5, 0.5]}, attributes=about)
    jtgpu.write(net, tmp_path / f"a{suffix}")
    kept = jtgpu.read(tmp_path / f"a{suffix}").attributes["node"]["s"]
    assert kept["ends"] == (0.1, 7.5)
    assert kept["property"] == ("unit = cm", "jtgpu_ends = many")
