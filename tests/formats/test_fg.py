"""libDAI's factor graphs: first variable fastest, zeros left out, labels; errors; every model comes back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from jtgpu.errors import ParseError
from jtgpu.formats import fg, read, write
from jtgpu.formats.fg import dumps, parse, sniff
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT
from tests.support.bundled import slow_when_large
from tests.support.examples import slow
from tests.support.random_nets import bayesian_networks, markov_networks

GRAPH = """# a comment
3

2
7 3
2 3
5
0 0.5
1 0.25
3 1
4 2.5
5 1e-3

1
3
3
3
0 1
1 2
2 3

0


1
0 0.125
"""


def error_of(text: str) -> str:
    with pytest.raises(ParseError) as caught:
        parse(text, "f.fg")
    assert caught.value.line is not None
    assert caught.value.column is not None
    return str(caught.value)


def same_product(a: DiscreteModel, b: DiscreteModel) -> bool:
    """Equal factors, but for those of ones that stand for variables without any."""
    rest = b.factors[len(a.factors) :]
    return (
        a.cardinality.tolist() == b.cardinality.tolist()
        and all(len(f.scope) == 1 and (f.table == 1).all() for f in rest)
        and all(
            x.scope == y.scope and x.table.tobytes() == y.table.tobytes()
            for x, y in zip(a.factors, b.factors, strict=False)
        )
    )


def test_a_factor_graph() -> None:
    net = parse(GRAPH)
    assert isinstance(net, MarkovNetwork)
    assert net.variables == ("v3", "v7")
    assert net.states("v3") == ("0", "1", "2")
    assert [f.scope for f in net.factors] == [(0, 1), (0,), ()]
    # entry 0 is (v7 = 0, v3 = 0), entry 1 is (v7 = 1, v3 = 0)
    assert net.factors[0].table.tolist() == [[0.5, 0.25], [0.0, 1.0], [2.5, 1e-3]]
    assert float(net.factors[2].table) == 0.125
    assert len(parse("0")) == 0


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_newlines_and_comments(newline: str) -> None:
    text = GRAPH.replace("\n", newline)
    assert sniff(text)
    assert same_product(parse(GRAPH), parse(text))
    lines = GRAPH.splitlines()
    for at in range(len(lines) + 1):
        assert same_product(parse(GRAPH), parse(newline.join([*lines[:at], "# 1 2 x", *lines[at:]])))


def test_what_it_is_taken_for() -> None:
    for text in ("3\n\n1", "# x\n\n3\r\n\r\n", " 3 \n \n", "3\n# c\n\n"):
        assert sniff(text)
    for text in ("", "3", "3\n2 2 2\n", "3 \n1\n\n", "MARKOV\n\n", "3 # x\n\n"):
        assert not sniff(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: found the end of the file, expected the number of factors"),
        ("x", "1:1: found 'x', expected a number"),
        ("1.5", "1:1: found '1.5', expected the number of factors"),
        ("99", "1:1: found 99 factors, and fewer numbers after it"),
        ("1\n\n", "3:1: found the end of the file, expected the number of variables of factor 0"),
        ("1\n\n99999999", "3:1: found 99,999,999 variables of factor 0, more than an array has axes"),
        ("1\n\n1\n-1", "4:1: found '-1', expected a variable's label in factor 0"),
        ("1\n\n2\n5 5\n2 2\n0", "4:3: the variable 5 occurs twice in factor 0"),
        ("1\n\n1\n5\n0\n0", "5:1: found '0', expected the number of states of variable 5, 1 at least"),
        ("2\n\n1\n5\n2\n0\n\n1\n5\n3\n0", "10:1: found 3 states of variable 5, expected 2 as before"),
        ("1\n\n1\n5\n2\n3\n", "6:1: found '3', expected the number of entries of factor 0, 0 to 2"),
        ("1\n\n1\n5\n2\n2\n0 1\n", "8:1: found 2 numbers for the entries of factor 0 before the end, expected 4"),
        ("1\n\n1\n5\n2\n1\n2 1\n", "7:1: found '2', expected an index of factor 0, 0 to 1"),
        ("1\n\n1\n5\n2\n1\n0.5 1\n", "7:1: found '0.5', expected an index of factor 0, 0 to 1"),
        ("1\n\n1\n5\n2\n1\n-1 1\n", "7:1: found '-1', expected an index of factor 0, 0 to 1"),
        ("1\n\n1\n5\n3\n3\n1 1\n0 1\n1 2\n", "9:1: the index 1 of factor 0 occurs a second time"),
        ("1\n\n1\n5\n2\n2\n0 1\n1 -1\n", "8:3: found '-1', expected a number >= 0 in factor 0"),
        ("1\n\n1\n5\n2\n1\n0 1e999\n", "7:3: found '1e999', expected a number >= 0 in factor 0"),
        ("0\n\n1", "3:1: found '1', expected the end of the file"),
    ],
)
def test_errors_have_a_place_and_say_what_was_expected(text: str, expected: str) -> None:
    assert error_of(text).startswith(f"f.fg:{expected}")


def test_a_short_file_cannot_ask_for_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = " ".join(map(str, range(30)))
    assert "1,000,000,000,000,000,000,000,000,000,000 entries and 0 numbers: too many implied zeros" in error_of(
        f"1\n\n30\n{labels}\n{'10 ' * 30}\n0\n"
    )
    assert "found 10,000,000 states, expected no more than" in error_of("1\n\n1\n0\n10000000\n0\n")
    monkeypatch.setattr(fg, "MAX_IMPLIED", 100)
    monkeypatch.setattr(fg, "IMPLIED_EACH", 0)
    factor = "\n\n1\n0\n60\n0\n"
    assert len(parse("1" + factor).factors) == 1
    assert "factor 1 has 60 entries and 0 numbers" in error_of("2" + factor * 2)


@pytest.mark.parametrize(
    "text",
    [
        "#" * 400_000,
        "#\n" * 200_000,
        *slow("1 " * 200_000, "\n" * 400_000, "100000 " + "0 0 " * 99_999 + "0 2", "200000" + " 0" * 199_999),
    ],
    ids=range(6),
)
def test_long_input_ends_soon(text: str) -> None:
    sniff(text)
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert len(str(caught.value)) < 1000


# Writing ------------------------------------------------------------------------------------------------------


def test_the_layout() -> None:
    net = MarkovNetwork({"a": "xyz", "b": "xy", "c": "xy"}, [(["a", "b"], np.array([[1, 0], [2, 0.5], [0, 3]]))])
    assert dumps(net) == "2\n\n2\n1 0\n2 3\n4\n0 1\n2 2\n3 0.5\n5 3\n\n1\n2\n2\n2\n0 1\n1 1\n"
    assert same_product(net, parse(dumps(net)))


@given(markov_networks())
def test_any_markov_network_reads_back_bit_for_bit(net: MarkovNetwork) -> None:
    again = parse(dumps(net))
    assert again.variables == tuple(f"v{i}" for i in range(len(net)))
    assert same_product(net, again)
    assert dumps(again) == dumps(net)


@given(bayesian_networks())
def test_any_bayesian_network_keeps_its_factors(net: BayesianNetwork) -> None:
    again = parse(dumps(net))
    assert same_product(net, again)
    assert len(again.factors) == len(net.factors)


@pytest.mark.parametrize("path", slow_when_large(sorted((ROOT / "nets").glob("*.net*"))))
def test_nets_keep_their_factors(path: Path, tmp_path: Path) -> None:
    net = read(path)
    write(net, tmp_path / "a.fg.gz")
    again = read(tmp_path / "a.fg.gz")
    assert same_product(net, again)
    assert np.array_equal(again.cardinality, net.cardinality)


@pytest.mark.parametrize("name", ["Grids_14", "DBN_16", "linkage_17", "Segmentation_14", "Promedus_15"])
def test_instances_of_2014_keep_their_factors(name: str, shared_nets: Path, tmp_path: Path) -> None:
    net = read(shared_nets / "uai2014" / f"{name}.uai")
    write(net, tmp_path / "a.fg")
    again = read(tmp_path / "a.fg")
    assert same_product(net, again)
    write(again, tmp_path / "b.uai")
    assert same_product(net, read(tmp_path / "b.uai"))
