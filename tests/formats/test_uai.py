"""UAI files: both kinds, comments, every error with its place; all models come back bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from jtgpu.errors import FormatError, ParseError
from jtgpu.formats import number_cursor, read, write
from jtgpu.formats.uai import dumps, parse, parse_draft
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT
from tests.support.bundled import slow_when_large
from tests.support.random_nets import bayesian_networks, markov_networks

MARKOV = """MARKOV
3
2 2 3
3
1 0
2 0 1
2 1 2

2
 0.436 0.564

4
 0.128 0.872
 0.920 0.080

6
 0.210 0.333 0.457
 0.811 0.000 0.189
"""
BAYES = MARKOV.replace("MARKOV", "BAYES")


def error_of(text: str, **options: Any) -> str:
    with pytest.raises(ParseError) as caught:
        parse(text, "f.uai", **options)
    assert caught.value.line is not None
    assert caught.value.column is not None
    return str(caught.value)


def same(a: DiscreteModel, b: DiscreteModel) -> bool:
    """Equal factors, bit for bit, over equally many states; names do not count."""
    return (
        a.cardinality.tolist() == b.cardinality.tolist()
        and [f.scope for f in a.factors] == [f.scope for f in b.factors]
        and all(x.table.tobytes() == y.table.tobytes() for x, y in zip(a.factors, b.factors, strict=True))
    )


def test_a_markov_network() -> None:
    net = parse(MARKOV)
    assert isinstance(net, MarkovNetwork)
    assert net.variables == ("v0", "v1", "v2")
    assert net.states("v2") == ("0", "1", "2")
    assert [f.scope for f in net.factors] == [(0,), (0, 1), (1, 2)]
    assert net.factors[2].table.tolist() == [[0.21, 0.333, 0.457], [0.811, 0.0, 0.189]]
    with pytest.raises(ValueError, match="read-only"):
        net.factors[0].table[0] = 1.0


def test_a_bayesian_network() -> None:
    net = parse(BAYES)
    assert isinstance(net, BayesianNetwork)
    assert net.parents("v1") == ("v0",)
    assert net.parents("v2") == ("v1",)
    assert net.cpt("v1").tolist() == [[0.128, 0.872], [0.92, 0.08]]
    assert net.attributes["read"]["format"] == "UAI"
    assert parse_draft(BAYES).tables["v0"].tolist() == [0.436, 0.564]
    with pytest.raises(FormatError, match="does not contain a Bayesian network"):
        parse_draft(MARKOV)


def test_tables_of_a_bayesian_network_in_any_order() -> None:
    net = parse("BAYES 3 2 2 2 3 3 2 0 1 1 0 1 2 8 1 0 .5 .5 .25 .75 0 1 2 .5 .5 2 1 0")
    assert isinstance(net, BayesianNetwork)
    assert net.parents("v1") == ("v2", "v0")
    assert net.cpt("v1")[1, 0].tolist() == [0.25, 0.75]
    assert net.parents("v2") == ()


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", " ", "\t\v\f "])
def test_any_white_space(newline: str) -> None:
    assert same(parse(BAYES.replace("\n", newline)), parse(BAYES))
    assert same(parse(newline + MARKOV.replace("\n", newline).strip()), parse(MARKOV))


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_comments(newline: str) -> None:
    lines = MARKOV.splitlines()
    for at in range(len(lines) + 1):
        for comment in ("c", "c a comment", "comment 1 2 3", "c MARKOV 1 2"):
            text = newline.join([*lines[:at], comment, *lines[at:]])
            assert same(parse(text), parse(MARKOV)), (at, comment)
            # as pyAgrum writes: behind what counts
            text = newline.join(
                [*lines[:at], *(f"{line} # {comment}" for line in lines[at : at + 1]), *lines[at + 1 :]]
            )
            assert same(parse(text), parse(MARKOV)), (at, comment)
    # places stay as they are
    assert error_of(f"c one{newline}MARKOV{newline}c two{newline}1 x 0").startswith("f.uai:4:3: found 'x'")


def test_kinds_in_small_letters_and_empty_models() -> None:
    assert isinstance(parse(MARKOV.replace("MARKOV", "Markov")), MarkovNetwork)
    assert len(parse("MARKOV 0 0")) == 0
    assert len(parse("BAYES 0 0")) == 0
    only = parse("MARKOV 1 3 0")
    assert len(only) == 1
    assert only.factors == ()


def test_constants_and_variables_of_one_state() -> None:
    net = parse("MARKOV 2 1 2 3 0 1 0 2 1 0 1 0.5 1 4 2 1 3")
    assert [f.table.shape for f in net.factors] == [(), (1,), (2, 1)]
    assert float(net.factors[0].table) == 0.5


def test_rows_are_normalised_and_reported() -> None:
    net = parse(BAYES.replace("0.128 0.872", "1 3"))
    assert isinstance(net, BayesianNetwork)
    assert net.cpt("v1")[0].tolist() == [0.25, 0.75]
    assert net.row_report is not None
    assert (net.row_report.n_off, net.row_report.worst_sum) == (1, 4.0)
    assert parse(MARKOV.replace("0.128 0.872", "1 3")).factors[1].table[0].tolist() == [1.0, 3.0]


def test_zero_rows() -> None:
    text = BAYES.replace("0.920 0.080", "0 0")
    assert error_of(text).startswith("f.uai:14:2: a row of the table of 'v1' is all zeros (1 of 2 are)")
    net = parse(text, zero_rows="uniform")
    assert isinstance(net, BayesianNetwork)
    assert net.cpt("v1")[1].tolist() == [0.5, 0.5]


def test_a_child_that_is_not_last_is_refused() -> None:
    # the scope has the child first
    text = BAYES.replace("2 0 1\n", "2 1 0\n").replace("2 1 2\n", "2 2 1\n")
    assert error_of(text).startswith("f.uai:6:5: found v0 as the last variable of a second scope; in a BAYES file")
    # the scope has it last, the numbers have it slowest
    turned = "BAYES 2 2 2\n2\n1 0\n2 0 1\n2 0.5 0.5\n4 0.1 0.7\n0.9 0.3"
    assert error_of(turned).startswith("f.uai:6:3: the numbers of table 1 sum to 1 with the child slowest, not")
    assert isinstance(parse(turned.replace("BAYES", "MARKOV")), MarkovNetwork)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: found the end of the file, expected 'BAYES' or 'MARKOV'"),
        ("c x\n", "2:1: found the end of the file, expected 'BAYES' or 'MARKOV'"),
        ("MARKOVIAN 3", "1:1: found 'MARKOVIAN', expected 'BAYES' or 'MARKOV'"),
        ("3\n2 2 2", "1:1: found '3', expected 'BAYES' or 'MARKOV'"),
        ("MARKOV", "1:7: found the end of the file, expected the number of variables"),
        ("MARKOV x", "1:8: found 'x', expected a number"),
        ("MARKOV 1 2 1 1 0 2 0.5 0,5", "1:24: found '0,5', expected a number"),
        ("MARKOV 1 2 1 1 0 2 0.5 nan", "1:24: found 'nan', expected a number"),
        ("MARKOV 1.5", "1:8: found '1.5', expected the number of variables"),
        ("MARKOV -1", "1:8: found '-1', expected the number of variables"),
        ("MARKOV 1e999", "1:8: found '1e999', expected the number of variables"),
        ("MARKOV 1000000", "1:8: found 1,000,000 variables, and fewer numbers after it"),
        ("MARKOV 2 2 0 0", "1:12: found '0', expected the number of states of v1, 1 at least"),
        ("MARKOV 2 2", "1:11: found the end of the file, expected the number of states of v1, 1 at least"),
        ("MARKOV 1 2 1.5", "1:12: found '1.5', expected the number of tables"),
        ("MARKOV 1 2 99", "1:12: found 99 tables, and fewer numbers after it"),
        ("MARKOV 1 2 1 2 0 0", "1:14: found '2', expected the number of variables of table 0"),
        ("MARKOV 2 2 2 1 2 0 0 4 1 1 1 1", "1:20: v0 occurs twice in the scope of table 0"),
        ("MARKOV 1 2 1 1 1 2 1 1", "1:16: found '1', expected a variable of table 0, 0 to 0"),
        ("MARKOV 1 2 1 1 -1 2 1 1", "1:16: found '-1', expected a variable of table 0, 0 to 0"),
        ("MARKOV 1 2 1 1 0.5 2 1 1", "1:16: found '0.5', expected a variable of table 0, 0 to 0"),
        ("MARKOV 1 2 1 1", "1:15: found the end of the file, expected a variable of table 0, 0 to 0"),
        ("MARKOV 1 2 1 1 0", "1:17: found the end of the file, expected the size of table 0, 2"),
        ("MARKOV 1 2 1 1 0 3 1 1 1", "1:18: found the size 3 for table 0, expected 2 = 2"),
        ("MARKOV 2 2 3 1 2 0 1 5 1 1 1", "1:22: found the size 5 for table 0, expected 6 = 2 x 3"),
        ("MARKOV 1 2 1 0 2 1 1", "1:16: found the size 2 for table 0, expected 1 = no variables"),
        ("MARKOV 1 2 1 1 0 2 1", "1:21: found 1 numbers for table 0 before the end, expected 2"),
        ("MARKOV 1 2 1 1 0 2 1 1 1", "1:24: found '1', expected the end of the file"),
        ("MARKOV 1 2 1 1 0 2 1 -1", "1:22: found '-1' in a table, expected a number >= 0"),
        ("MARKOV 1 2 1 1 0 2 1e999 1", "1:20: found '1e999' in a table, expected a number >= 0"),
        ("BAYES 1 2 1 1 0 2 1 -1", "1:21: found '-1' in a table, expected a number >= 0"),
        ("BAYES 2 2 2 1 1 0 2 1 1", "1:13: found 1 tables, expected one for each of 2 variables"),
        ("BAYES 1 2 1 0 1 1", "1:13: found no variables in the scope of table 0, expected a child"),
        ("BAYES 2 2 2 2 1 0 1 0 2 1 1 2 1 1", "1:21: found v0 as the last variable of a second scope"),
        ("BAYES 2 2 2 2 2 0 1 2 1 0 4 1 1 1 1 4 1 1 1 1", "1:19: the arcs form a cycle: 'v0' -> 'v1' -> 'v0'"),
    ],
)
def test_errors_have_a_place_and_say_what_was_expected(text: str, expected: str) -> None:
    assert error_of(text).startswith(f"f.uai:{expected}")


def test_a_short_file_cannot_ask_for_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "found 1,000,000,000,000 states, expected no more than" in error_of("MARKOV 1 1000000000000 0")
    cards = " ".join(["10"] * 60)
    scope = " ".join(map(str, range(60)))
    text = f"MARKOV 60 {cards} 1 60 {scope} 1{'0' * 60} 1 1 1"
    assert "expected the size of table 0, 1,000,000" in error_of(text)
    assert "before the end, expected 10" in error_of(f"MARKOV 9 {cards[:26]} 1 9 {scope[:17]} 1000000000 1 1")
    text = f"MARKOV 70 {' '.join(['1'] * 70)} 1 70 {' '.join(map(str, range(70)))} 1 1"
    assert "table 0 has 70 variables, more than an array has axes" in error_of(text)
    monkeypatch.setattr(number_cursor, "MAX_STATES", 10)
    assert "found 6 states, expected no more than 10 of all variables" in error_of("MARKOV 2 5 6 0")
    assert len(parse("MARKOV 2 5 5 0")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "c\n" * 200_000,
        "c" * 400_000,
        " " * 400_000 + "MARKOVx",
        "\nc" * 200_000 + "x",
        "MARKOV " + "1 " * 200_000,
        "MARKOV 100000 " + "2 " * 100_000 + "100000 " + "1 0 " * 100_000,
        "MARKOV 1 2 100000 " + "1 0 " * 100_000 + "2 1 1 " * 99_999 + "3 1 1",
        "BAYES 30000 " + "2 " * 30_000 + "30000 " + "1 0 " * 30_000 + "2 1 1 " * 30_000,
        "MARKOV 1 2 1 1 0 2 " + "x" * 400_000,
        "MARKOV 1 2 1 1 0 2 " + "x " * 200_000,
        "MARKOV 1 2 1 1 0 2 " + "1 " * 200_000 + "\xa0 1",
    ],
    ids=range(11),
)
def test_long_input_ends_soon(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert len(str(caught.value)) < 1000


AGRUM = """BAYES
3
2 2 3
3
1 0   # a
1 1   # b
3 0 1 2   # c


2
  0.25 0.75
2
  0.5 0.5
12
  1 0 0
  0 1 0
  0 0 1
  0.5 0.5 0
"""


def test_agrums_order_of_numbers() -> None:
    net = parse(AGRUM)
    assert isinstance(net, BayesianNetwork)
    # a is the fastest after the child: the rows are (b, a) = (0, 0), (0, 1), (1, 0), (1, 1)
    assert net.parents("v2") == ("v1", "v0")
    assert net.cpt("v2")[1].tolist() == [[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]
    assert net.attributes["read"]["notes"] == (
        "<text>:7:1: aGrUM's order of numbers: the first parent of v2 is the fastest",
    )
    for other in (AGRUM.replace("   # c", ""), AGRUM.replace("   #", " #"), AGRUM.replace("   # b", "   # b\n# x")):
        plain = parse(other)
        assert isinstance(plain, BayesianNetwork)
        assert plain.parents("v2") == ("v0", "v1")
    head = "MARKOV\n3 # nbr Nodes\n2 2 2\n1 # nbr Factors\n"
    assert "1:" not in str(parse(f"{head}2 1 0\n4 # {{0, 1}}\n 1 2\n 3 4\n"))
    message = error_of(f"{head}3 2 0 1\n8 # {{0, 1, 2}}\n {'1 ' * 8}\n")
    assert message.startswith("f.uai:5:1: table 0 has 3 variables and this file is aGrUM's")


def test_what_pyagrum_writes(tmp_path: Path) -> None:
    gum = pytest.importorskip("pyagrum")
    gum.initRandom(1)
    theirs = gum.fastBN("a->c<-b[4];c->d[3];d->e<-a;e<-b[4]")
    gum.saveBN(theirs, str(tmp_path / "a.uai"))
    net = read(tmp_path / "a.uai")
    assert isinstance(net, BayesianNetwork)
    for i, v in enumerate(net.variables):
        name = theirs.variable(i).name()
        table = theirs.cpt(name)
        names = list(table.names)[::-1]  # their arrays have the child last and the axes the other way round
        ours = [theirs.variable(net.index(p)).name() for p in (*net.parents(v), v)]
        assert sorted(ours) == sorted(names)
        numbers = np.asarray(table[:]).transpose([names.index(n) for n in ours])
        assert np.abs(numbers - net.cpt(v)).max() < 1e-5


# Writing ------------------------------------------------------------------------------------------------------


def test_the_layout() -> None:
    assert dumps(parse(MARKOV)).split() == [w[:-1] if w in ("0.920", "0.080", "0.210") else w for w in
                                            MARKOV.replace("0.000", "0").split()]  # fmt: skip
    assert dumps(parse(MARKOV)).startswith("MARKOV\n3\n2 2 3\n3\n1 0\n2 0 1\n2 1 2\n\n2\n0.436 0.564\n\n4\n")
    assert dumps(MarkovNetwork({"a": ["x"]}, [((), 2.5)])) == "MARKOV\n1\n1\n1\n0\n\n1\n2.5\n"
    with pytest.raises(FormatError, match="DiscreteModel"):
        dumps(DiscreteModel({"a": ["x"]}))


@given(bayesian_networks())
def test_any_bayesian_network_reads_back_bit_for_bit(net: BayesianNetwork) -> None:
    again = parse(dumps(net))
    assert isinstance(again, BayesianNetwork)
    assert same(net, again)
    assert dumps(again) == dumps(net)


@given(markov_networks())
def test_any_markov_network_reads_back_bit_for_bit(net: MarkovNetwork) -> None:
    again = parse(dumps(net))
    assert isinstance(again, MarkovNetwork)
    assert same(net, again)
    assert dumps(again) == dumps(net)


def test_rows_that_sum_to_one_only_nearly_keep_their_bits() -> None:
    net = BayesianNetwork(
        {"a": ["x", "y"], "b": ["x", "y"]}, {"b": ["a"]}, {"a": [0.5, 0.5], "b": [[0.3, 0.7 + 3e-7], [0.5, 0.5]]}
    )
    text = dumps(net)
    assert text.endswith("\nc jtgpu_rows exact 1\n")
    assert same(parse(text), net)
    assert not same(parse(text.replace("c jtgpu", "c other")), net)
    assert "sums to 1.1" in error_of(text.replace("0.3 ", "0.4 "))


@pytest.mark.parametrize("path", slow_when_large(sorted((ROOT / "nets").glob("*.net*"))))
def test_nets_round_trip(path: Path, tmp_path: Path) -> None:
    net = read(path)
    write(net, tmp_path / "a.uai")
    again = read(tmp_path / "a.uai")
    assert isinstance(again, BayesianNetwork)
    assert same(net, again)


# The competition of 2014 --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_instances_of_2014_read_and_round_trip(shared_nets: Path) -> None:
    paths = sorted((shared_nets / "uai2014").glob("*.uai"))
    assert len(paths) == 48
    for path in paths:
        net = read(path)
        assert isinstance(net, MarkovNetwork), path
        text = path.read_text()
        words = text.split()
        assert len(net) == int(words[1])
        assert len(net.factors) == int(words[2 + len(net)])
        assert sum(f.table.size + len(f.scope) + 2 for f in net.factors) == len(words) - 3 - len(net)
        if len(text) < 500_000:
            assert same(parse(dumps(net)), net), path
