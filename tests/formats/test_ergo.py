"""Ergo files: sections, names that may be missing, errors with their places; every network comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.errors import FormatError, ParseError
from jtgpu.formats import read, write
from jtgpu.formats.ergo import dumps, parse, parse_draft
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT
from tests.formats.test_uai import same
from tests.support.bundled import slow_when_large
from tests.support.random_nets import bayesian_networks

HEAD = "3\n2 2 3\n0\n1 0\n2 1 0\n\n"
TABLES = """/* Probabilities */
2
 0.25 0.75

4
 0.125 0.875
 1 0

12
 0.5 0.25 0.25
 0.25 0.25 0.5
 1 0 0
 0 0.5 0.5
"""
NAMES = "/* Names */\nsmoke\nlung cancer\nx-ray\n\n"
LABELS = "/* Labels */\nno yes\nno yes\nclear odd bad\n"
ALL = HEAD + TABLES + "\n" + NAMES + LABELS


def error_of(text: str, **options: Any) -> str:
    with pytest.raises(ParseError) as caught:
        parse(text, "f.erg", **options)
    assert caught.value.line is not None
    assert caught.value.column is not None
    return str(caught.value)


def test_every_section() -> None:
    net = parse(ALL)
    assert net.variables == ("smoke", "lung cancer", "x-ray")
    assert net.states("x-ray") == ("clear", "odd", "bad")
    assert net.parents("x-ray") == ("lung cancer", "smoke")
    assert net.cpt("lung cancer").tolist() == [[0.125, 0.875], [1.0, 0.0]]
    assert net.cpt("x-ray")[0, 1].tolist() == [0.25, 0.25, 0.5]
    assert net.cpt("x-ray")[1].tolist() == [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]
    assert net.attributes["read"]["format"] == "Ergo"
    assert parse_draft(ALL).tables["smoke"].tolist() == [0.25, 0.75]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_newlines(newline: str) -> None:
    assert parse(ALL.replace("\n", newline)) == parse(ALL)


def test_names_may_be_missing() -> None:
    net = parse(HEAD + TABLES)
    assert net.variables == ("v0", "v1", "v2")
    assert net.states(2) == ("0", "1", "2")
    assert parse(HEAD + TABLES + "/* Names */\n\n/* Labels */\n") == net
    assert parse(HEAD + TABLES + LABELS + NAMES) == parse(ALL)
    assert parse(HEAD + TABLES + "/*NAMES*/ a b c").variables == ("a", "b", "c")
    assert parse(HEAD + TABLES + "/* labels */ a b c d e f g").states(2) == ("e", "f", "g")


def test_other_comments_are_blanks() -> None:
    text = "/* by nobody */" + ALL.replace("0.5 0.25", "0.5 /* 9 * 9 */ 0.25").replace("1 0\n", "1 /**/ 0\n")
    assert parse(text) == parse(ALL)
    assert same(parse("0 /* Probabilities */"), BayesianNetwork({}, {}, {}))


def test_rows_are_normalised_and_zero_rows_are_refused() -> None:
    net = parse(ALL.replace("0.125 0.875", "2 6"))
    assert net.cpt(1)[0].tolist() == [0.25, 0.75]
    assert net.row_report is not None
    assert net.row_report.worst_sum == 8.0
    text = ALL.replace("0.125 0.875", "0 0")
    assert error_of(text).startswith("f.erg:12:2: a row of the table of 'lung cancer' is all zeros")
    assert parse(text, zero_rows="uniform").cpt(1)[0].tolist() == [0.5, 0.5]
    turned = "2\n2 2\n0\n1 0\n/* Probabilities */\n2 0.5 0.5\n4 0.1 0.7 0.9 0.3"
    assert error_of(turned).startswith("f.erg:7:3: the numbers of table 1 sum to 1 with the child slowest")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "",
            "1:1: found the end of the file, expected '/* Probabilities */'",
        ),
        ("3 2 2 2", "1:8: found the end of the file, expected '/* Probabilities */'"),
        ("x /* Probabilities */", "1:1: found 'x', expected a number"),
        ("/* Probabilities */", "1:1: found the end of the numbers, expected the number of variables"),
        ("9999 /* Probabilities */", "1:1: found 9,999 variables, and fewer numbers after it"),
        ("1 0 0 /* Probabilities */", "1:3: found '0', expected the number of states of variable 0, 1 at least"),
        ("1 2 1 0 /* Probabilities */", "1:5: found '1', expected the number of parents of variable 0"),
        ("2 2 2 0 1 2 /* Probabilities */", "1:11: found '2', expected a parent of variable 1, 0 to 1"),
        ("2 2 2 0 1 /* Probabilities */", "1:11: found the end of the numbers, expected a parent of variable 1"),
        ("2 2 2 0 1 1 /* Probabilities */", "1:11: 'v1' is its own parent"),
        ("3 2 2 2 0 0 2 0 0 /* Probabilities */", "1:17: 'v2' has the parent 'v0' twice"),
        ("1 2 0 7 /* Probabilities */", "1:7: found '7', expected the end of the file"),
        ("1 2 0 /* Names */ a", "1:7: found the section 'names', expected '/* Probabilities */' first"),
        ("1 2 0 /* Probabilities */ /* Probabilities */", "1:27: found a second section 'probabilities'"),
        ("1 2 0 /* Probabilities */ 3 1 1 1", "1:27: found the size 3 for table 0, expected 2 = 2"),
        ("1 2 0 /* Probabilities */ 2 1", "1:30: found 1 numbers for table 0 before the end, expected 2"),
        ("1 2 0 /* Probabilities */ 2 1 /* Names */", "1:31: found 1 numbers for table 0 before the end, expected 2"),
        ("1 2 0 /* Probabilities */ 2 1 1 1", "1:33: found '1', expected the end of the file"),
        ("1 2 0 /* Probabilities */ 2 1 x", "1:31: found 'x', expected a number"),
        ("1 2 0 /* Probabilities */ 2 1 -1", "1:31: the table of 'v0' holds -1, which is not a probability"),
        ("1 2 0 /* Probabilities */ 2 1 1 /* Names */ a\nb", "1:44: found 2 names, expected 1"),
        ("2 2 2 0 0 /* Probabilities */ 2 1 1 2 1 1 /* Names */ a\n a", "2:2: found the name 'a' a second time"),
        ("1 2 0 /* Probabilities */ 2 1 1 /* Labels */ a", "1:46: found 1 labels for variable 0, expected 2"),
        ("1 2 0 /* Probabilities */ 2 1 1 /* Labels */ a b\nc", "1:45: found 3 labels, expected 2"),
        (
            "2 2 2 1 1 1 0 /* Probabilities */ 4 1 1 1 1 4 1 1 1 1",
            "1:7: the arcs form a cycle: 'v0' -> 'v1' -> 'v0'",
        ),
        ("1 2 0 /* Probabilities 2 1 1", "1:7: found a comment whose closing */ is missing"),
    ],
)
def test_errors_have_a_place_and_say_what_was_expected(text: str, expected: str) -> None:
    assert error_of(text).startswith(f"f.erg:{expected}")


def test_a_short_file_cannot_ask_for_all_memory() -> None:
    assert "found 1,000,000,000,000 states" in error_of("1 1000000000000 0 /* Probabilities */ 1 1")
    parents = " ".join(map(str, range(69)))
    head = f"70 {'1 ' * 70} {'0 ' * 69} 69 {parents} /* Probabilities */ {'1 1 ' * 70}"
    assert "'v69' has 69 parents, more than an array has axes" in error_of(head)
    parents = " ".join(map(str, range(59)))
    head = f"60 {'9 ' * 60} {'0 ' * 59} 59 {parents} /* Probabilities */ {'9 1 1 1 1 1 1 1 1 1 ' * 59}"
    assert "expected the size of table 59, 1,79" in error_of(head + f" {9**60} 1")


@pytest.mark.parametrize(
    "text",
    [
        "/*" * 200_000,
        "/* " * 130_000,
        "/**/" * 100_000,
        "/*names*/" * 50_000,
        "1 2 0 /* Probabilities */ 2 1 1 /* Names */" + "a\n" * 200_000,
        "1 2 0 /* Probabilities */ 2 1 1 /* Labels */" + "a " * 200_000,
        "1 2 0 /* Probabilities */ 2 1 1 /* Names */" + "a" * 200_000 + "\nb",
        "1 " * 200_000 + "/* Probabilities */",
        "1 2 0 /* Probabilities */" + "/* x */ 1 " * 50_000,
    ],
    ids=range(9),
)
def test_long_input_ends_soon(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert len(str(caught.value)) < 1000


# Writing ------------------------------------------------------------------------------------------------------


def test_the_layout() -> None:
    text = dumps(parse(ALL))
    assert text.startswith(
        "3\n2 2 3\n0\n1 0\n2 1 0\n\n/* Probabilities */\n2\n0.25 0.75\n\n4\n0.125 0.875\n1 0\n\n12\n"
    )
    assert text.endswith("\n/* Names */\nsmoke\nlung cancer\nx-ray\n\n/* Labels */\nno yes\nno yes\nclear odd bad\n")
    with pytest.raises(FormatError, match="MarkovNetwork"):
        dumps(MarkovNetwork({"a": ["x"]}, []))


def test_names_become_lines_and_labels_words() -> None:
    names = [" a", "a", "", "b\nc", "/* Labels */", "a_"]
    net = BayesianNetwork({n: ["just left", "", "/* x"] for n in names}, {}, {n: [0.25, 0.25, 0.5] for n in names})
    again = parse(dumps(net))
    assert again.variables == ("a__", "a", "v2", "b_c", "/_ Labels */", "a_")
    assert again.states(0) == ("just_left", "1", "/__x")
    assert same(net, again)


def test_rows_that_sum_to_one_only_nearly_keep_their_bits() -> None:
    net = BayesianNetwork({"a": ["x", "y"], "b": ["x", "y"]}, {}, {"a": [0.5, 0.5], "b": [0.3, 0.7 + 3e-7]})
    text = dumps(net)
    assert text.endswith("/* jtgpu_rows exact 1 */\n")
    assert parse(text) == net
    assert parse(text.replace("/* Labels */\nx y\nx y\n", "")).states("a") == ("0", "1")
    assert parse(text.replace("exact", "other")) != net
    assert "sums to 1.1" in error_of(text.replace("0.3 ", "0.4 "))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(bayesian_networks(), st.lists(st.one_of(texts, st.sampled_from(["/*", "*/", " ", "a b"])), min_size=8))
def test_any_network_reads_back_bit_for_bit(net: BayesianNetwork, names: list[str]) -> None:
    assert parse(dumps(net)) == net
    called = {v: f"{names[i]}{i}" for i, v in enumerate(net.variables)}
    other = BayesianNetwork(
        {called[v]: [names[(i + k) % len(names)] for k in range(c)] for i, (v, c) in enumerate(
            zip(net.variables, net.cardinality.tolist(), strict=True))},
        {called[v]: [called[p] for p in net.parents(v)] for v in net.variables},
        {called[v]: net.cpt(v) for v in net.variables},
    )  # fmt: skip
    assert same(parse(dumps(other)), net)


@pytest.mark.parametrize("path", slow_when_large(sorted((ROOT / "nets").glob("*.net*"))))
def test_nets_round_trip(path: Path, tmp_path: Path) -> None:
    net = read(path)
    write(net, tmp_path / "a.erg.gz")
    again = read(tmp_path / "a.erg.gz")
    assert isinstance(again, BayesianNetwork)
    assert same(net, again)
    assert again.variables == net.variables
    assert np.array_equal(again.cardinality, net.cardinality)


def test_states_stay_distinct() -> None:
    states = ["a b", "a_b", "a\tb", "", "3", "a b_"]
    net = BayesianNetwork({"x": states}, {}, {"x": [0.1, 0.1, 0.1, 0.1, 0.1, 0.5]})
    assert parse(dumps(net)).states("x") == ("a_b_", "a_b", "a_b__", "3_", "3", "a_b___")
