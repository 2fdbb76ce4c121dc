"""BIF: both dialects, every kind of entry, and errors with their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.errors import ParseError
from jtgpu.formats import block_reader, read
from jtgpu.formats.bif import dumps, parse
from jtgpu.model.network import BayesianNetwork

DATA = Path(__file__).parent / "data"
AB = "variable a { type discrete [ 2 ] { a0, a1 }; }\nvariable b { type discrete [ 3 ] { b0, b1, b2 }; }\n"
PA = "probability ( a ) { table 0.25, 0.75; }\n"


def error_of(text: str, **options: Any) -> str:
    with pytest.raises(ParseError) as caught:
        parse(text, "f.bif", **options)
    assert caught.value.line is not None
    assert caught.value.column is not None
    return str(caught.value)


def test_javabayes_dialect() -> None:
    net = read(DATA / "javabayes.bif")
    assert isinstance(net, BayesianNetwork)
    assert net.name == "dog problem"
    assert net.variables == ("light-on", "bowel", "family", "dog")
    assert net.states("family") == ("out", "in", "just left")
    assert net.cpt("bowel").tolist() == [0.01, 0.99]
    assert net.cpt("light-on").tolist() == [[0.6, 0.4], [0.05 / 1.0, 0.95], [0.5, 0.5]]
    assert net.parents("dog") == ("bowel", "family")
    assert net.cpt("dog").tolist() == [
        [[0.99, 0.01], [0.5, 0.5], [0.25, 0.75]],
        [[0.5, 0.5], [0.3, 0.7], [0.5, 0.5]],
    ]


def test_properties_are_kept() -> None:
    net = read(DATA / "javabayes.bif")
    assert isinstance(net, BayesianNetwork)
    expected = ("credal-set constant-density-bounded 1.1", "author nobody at all, 1999")
    assert net.attributes["net"]["property"] == expected
    assert net.attributes["node"]["light-on"]["property"] == ("position = (218, 195)",)
    assert net.attributes["potential"]["dog"]["property"] == ("kept",)


def test_properties_may_hold_anything() -> None:
    text = 'network n { property see http://x.y/z; property "a; b"; property it\'s "so; }\n' + AB + PA
    text += 'probability ( b ) { property {odd} // "1;\n property; table 1 1 1; }'
    net = parse(text)
    assert net.attributes["net"]["property"] == ("see http://x.y/z", "a; b", "it's \"so")
    assert net.attributes["potential"]["b"]["property"] == ('{odd} // "1', "")


def test_bnlearn_dialect_rows_in_any_order() -> None:
    rows = ["(b0) 0.5, 0.5;", "(b1) 0.25, 0.75;", "(b2) 0.125, 0.875;"]
    prior = "probability ( b ) {\n  table 0.5, 0.25, 0.25;\n}\n"
    expected = [[0.5, 0.5], [0.25, 0.75], [0.125, 0.875]]
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        body = "\n".join(f"  {rows[i]}" for i in order)
        net = parse(f"network unknown {{\n}}\n{AB}{prior}probability ( a | b ) {{\n{body}\n}}\n")
        assert net.cpt("a").tolist() == expected


def test_table_with_parents_has_the_child_slowest() -> None:
    net = parse(AB + PA + "probability ( b | a ) { table 0.5, 0.25, 0.25, 0.25, 0.25, 0.5; }")
    assert net.cpt("b").tolist() == [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]


def test_tables_may_come_before_variables_and_commas_are_blanks() -> None:
    net = parse("probability ( b, a ) { (a1) 1 1 2; (a0), 2 1,1,; }" + PA + AB.replace(",", " "))
    assert net.cpt("b").tolist() == [[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]


@pytest.mark.parametrize(
    "key", ["(a0)", "( a0 )", '("a0")', "(a0,)", "(\ta0\n)", "(/* first */ a0) // of two\n", "(,a0,)"]
)
def test_every_spelling_of_a_row(key: str) -> None:
    net = parse(AB + PA + f"probability ( b | a ) {{ {key} 1, 1, 2; (a1) 2, 1, 1; }}")
    assert net.cpt("b").tolist() == [[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]


@pytest.mark.parametrize(
    "rows",
    [
        "(a0) 1,,2; (a1) 1 2,3,4;",
        "(a0) 1, 2 3, 4; (a1) 1,, 2;",
        "(a0) 1,2,; (a1) ,1,2 3 4;",
        "(a0) ,1,2; (a1) 1 3,2,4;",
        "(a0) ,,1 2; (a1) 1 3,2,4;",
    ],
)
def test_a_number_too_few_in_one_row_is_none_too_many_in_the_next(rows: str) -> None:
    with pytest.raises(ParseError, match=r"found [24] numbers for 'b', expected 3"):
        parse(f"{AB}{PA}probability ( b | a ) {{ {rows} }}")
    with pytest.raises(ParseError, match=r"found [24] numbers for 'b', expected 3"):
        parse(f"{AB}{PA}probability ( b | a ) {{ /* not all at once */ {rows} }}")


def test_state_names_with_any_characters() -> None:
    text = 'variable "x y" { type discrete [4] { <9, 20_MG/L, 1.1, "}" }; } variable z { type discrete { u }; }'
    text += 'probability ("x y") { table 1 1 1 1; } probability (z | "x y") { (20_MG/L) 1; (<9) 1; ("}") 1; (1.1) 1; }'
    net = parse(text)
    assert net.states("x y") == ("<9", "20_MG/L", "1.1", "}")
    assert net.cpt("z").shape == (4, 1)


def test_rows_are_normalised_and_reported() -> None:
    report = parse(AB + PA.replace("0.25", "0.2500001") + "probability (b) { table 1 1 2; }").row_report
    assert report is not None
    assert (report.n_rows, report.n_off, report.worst_sum) == (2, 1, 4.0)


def test_zero_rows() -> None:
    text = AB + PA + "probability ( b | a ) {\n  (a1) 1, 1, 2;\n  (a0) 0, 0, 0.0;\n}"
    assert error_of(text).startswith("f.bif:6:3: a row of the table of 'b' is all zeros")
    assert parse(text, zero_rows="uniform").cpt("b")[0].tolist() == [1 / 3] * 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: found the end of the file, expected a BIF network"),
        ("nothing of the kind", "1:20: found the end of the file, expected a BIF network"),
        ("variabel a { }", "1:12: found '{', expected 'network', 'variable' or 'probability'"),
        ("network n { version 1; }", "1:13: found 'version', expected 'property'"),
        ("network n { property abc", "1:25: found the end of the file, expected ';'"),
        ("variable { }", "1:10: found '{', expected the variable's name"),
        ("variable a { }", "1:10: the variable 'a' has no type"),
        ("variable a { type continuous; }", "1:19: found 'continuous', expected 'discrete': the type of 'a'"),
        ("variable a { type discrete [ x ] { y }; }", "1:30: found 'x', expected the number of states"),
        ("variable a { type discrete [ 2 ] { y }; }", "1:30: found 1 states of 'a', expected 2"),
        ("variable a { type discrete [ 0 ] { }; }", "1:30: the variable 'a' has no states"),
        ("variable a { type discrete [ 1 ] { y } }", "1:40: found '}', expected ';' after the states"),
        ("variable a { type discrete { y }; type discrete { z }; }", "1:35: found 'type', expected 'property'"),
        (AB + AB, "3:10: the variable 'a' is declared a second time"),
        (AB, "1:10: the variable 'a' has no probability block"),
        (AB + "probability ( a ", "3:17: found the end of the file, expected '{' of the probability block of line 3"),
        (AB + "probability ( a ) { table 1 1;", "3:31: found the end of the file, expected '}' of the prob"),
        (AB + "probability a { table 1 1; }", "3:13: found 'a', expected '(' after 'probability'"),
        (AB + "probability ( c ) { table 1 1; }", "3:15: found a table for 'c', which is not declared"),
        (AB + "probability ( a | bb ) { table 1 1; }", "3:19: 'a' has the parent 'bb', which is not declared; did"),
        (AB + "probability ( a | a ) { table 1 1; }", "3:19: 'a' is its own parent"),
        (AB + "probability ( a | b b ) { table 1 1; }", "3:21: 'a' has the parent 'b' twice"),
        (AB + PA + PA, "4:15: found a second probability block of 'a'"),
        (AB + "probability ( a ) { table 1 1 1; }", "3:21: found 3 numbers for 'a', expected 2"),
        (AB + "probability ( a ) { table 1 x; }", "3:29: found 'x', expected a number, or ';'"),
        (AB + "probability ( a ) { table 1 nan; }", "3:29: found 'nan', expected a number, or ';'"),
        (
            AB + "probability ( a ) { table 1 -1; } probability ( b ) { default 1 1 1; }",
            "3:21: the table of 'a' holds -1",
        ),
        (AB + "probability ( a ) { table 1 1 }", "3:31: found '}', expected a number, or ';'"),
        (AB + "probability ( a ) { table 1 1; table 1 1; }", "3:32: found a second 'table' of 'a'"),
        (AB + "probability ( a ) { tabel 1 1; }", "3:21: found 'tabel', expected '(', 'table', 'default'"),
        (AB + "probability ( a ) { table 1 1; default 1 1; }", "3:21: found both 'table' and other numbers for 'a'"),
        (AB + "probability ( a ) { default 1; }", "3:21: found 1 numbers for 'a', expected 2"),
        (AB + "probability ( a ) { default 1 1; default 1 1; }", "3:34: found a second 'default' of 'a'"),
        (AB + "probability ( a ) { }", "3:21: 1 of 1 rows of 'a' are missing"),
        (
            AB + "probability ( a | b ) { (b0) 1 1; (b2) 1 1; }",
            "3:45: 1 of 3 rows of 'a' are missing, the first for (b1)",
        ),
        (
            AB + "probability ( a | b ) { (b0) 1, 1; (b3) 1, 1; }",
            "3:37: found 'b3', expected a state of the parent 'b'",
        ),
        (AB + "probability ( a | b ) { (b0) 1, 1;\n (b0) 1, 1; (b1) 1 1;}", "4:2: the row (b0) of 'a' occurs a second"),
        (
            AB + "probability ( a | b ) { (b0, b1) 1, 1; }",
            "3:30: found 'b1', expected ')' after the states of 1 parents",
        ),
        (AB + "probability ( a | b ) { () 1, 1; }", "3:26: found ')', expected a state of the parent 'b'"),
        (AB + "probability ( a | b ) { (b0) 1, 1; (b1) 1, 1, 1; }", "3:36: found 3 numbers for 'a', expected 2"),
        (AB + "probability ( a | b ) { (b0) 1, 1; (b1) 1, 1x; }", "3:44: found '1x', expected a number"),
        (AB + "probability ( a | b ) { (b0) 1, 1; (b1) 1, 1 (b2) 1, 1; }", "3:46: found '(', expected a number"),
        (AB + "probability ( a ) { table 1 /* 1; }", "3:29: found a comment whose closing */ is missing"),
        (AB + 'variable "x {', '3:10: found a string whose closing " is missing'),
    ],
)
def test_errors_have_a_place_and_say_what_was_expected(text: str, expected: str) -> None:
    assert error_of(text).startswith(f"f.bif:{expected}")


def test_equal_state_names_of_a_parent_are_ambiguous() -> None:
    text = (
        AB.replace("b0, b1", "b1, b1")
        + "probability ( b ) { table 1 1 1; } probability ( a | b ) { (b2) 1, 1; (b1) 1, 1; }"
    )
    assert "several states 'b1'" in error_of(text)


def test_a_cycle_is_named() -> None:
    text = AB + "probability ( a | b ) { default 1 1; } probability ( b | a ) { default 1 1 1; }"
    assert error_of(text).startswith("f.bif:3:15: the arcs form a cycle: ")


def test_default_cannot_ask_for_all_memory() -> None:
    states = ", ".join("abcdefghij")
    text = "".join(f"variable n{i} {{ type discrete {{ {states} }}; }}\n" for i in range(40))
    head = " ".join(f"n{i}" for i in range(1, 40))
    assert "would fill" in error_of(text + f"probability ( n0 | {head} ) {{ default {'1 ' * 10}; }}")
    assert "are missing" in error_of(text + f"probability ( n0 | {head} ) {{ }}")
    row = f"({', '.join('j' * 39)}) {', '.join('1' * 10)};"
    assert "are missing" in error_of(text + f"probability ( n0 | {head} ) {{ {row} }}")


def test_more_parents_than_axes() -> None:
    names = [f"n{i}" for i in range(2_000)]
    text = "".join(f"variable {n} {{ type discrete {{ a, b }}; }}\n" for n in names)
    for body in ("table 1, 1;", "default 1, 1;", "(a, b) 1, 1;", ""):
        block = f"probability ( n0 | {' '.join(names[1:])} ) {{ {body} }}"
        assert error_of(text + block).startswith("f.bif:2001:15: 'n0' has 1999 parents, more than an array has axes")


@pytest.mark.parametrize(
    "text",
    [
        "/*" * 200_000,
        "/* " * 130_000,
        AB + "/* " * 130_000,
        AB + "probability ( a ) { " + "/* " * 130_000,
        AB + "probability ( a ) { table 1 " + "/* " * 130_000 + "}",
        "//" * 200_000,
        "/* *" * 100_000,
        "/" * 400_000,
        '"' + "\\" * 400_001,
        "network n { property " + "{" * 400_000,
        "variable a { type discrete { " + "a," * 200_000,
        AB + "probability ( a ) { table " + "1 " * 200_000 + "/**/" * 1000 + "; }",
        AB + "probability ( a | b ) { " + "(b0) 1, 1;" * 50_000 + "}",
        AB + "probability ( a | b ) { " + "(b0) 1, 1, 1;" * 50_000 + "}",
        AB + "probability ( a | b ) { " + "(b0) 1, x;" * 50_000 + "}",
        AB + "probability ( a | b ) { " + "(b0 " * 100_000 + "}",
        AB + "probability ( a | b ) { " + "(b0) 1 1;(b1) 1 1;" * 20_000 + "}",
        AB + "probability ( a | b ) { " + "(b0) 1, 1;" * 50_000 + "(b0) 1, 1x; }",
        AB + "probability ( a | b ) { " + "(b0) 1, 1;/**/" * 50_000 + "(b0) 1, 1x; }",
        "network n { " + "property p;" * 50_000,
        AB + "probability ( a ) { " + "property " * 50_000,
        AB + "probability ( a ) { " + 'property "' * 50_000,
        AB + "probability ( a ) { " + "p" * 400_000,
        "words " * 100_000,
        "probability ( a ) { }" * 20_000,
        "probability ( a ) { " * 20_000,
    ],
    ids=range(26),
)
def test_long_and_deep_input_ends_soon(text: str) -> None:
    """Nothing here recurses or goes over the text again for every character; it would hang if it did."""
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert len(str(caught.value)) < 1000


def test_rows_and_table_give_the_same_cpt() -> None:
    rng = np.random.default_rng(0)
    cpt = rng.integers(1, 9, (2, 3, 2)) / 16
    variables = AB + "variable c { type discrete [2] { c0, c1 }; }\n"
    prior = PA + "probability (b) { table 1 1 1; }"
    pairs = [(i, j) for j in range(3) for i in range(2)]
    rows = "".join(f"(a{i}, b{j}) {cpt[i, j, 0]:.4f}, {cpt[i, j, 1]:.4f};\n" for i, j in pairs)
    table = " ".join(str(float(x)) for x in np.moveaxis(cpt, -1, 0).ravel())
    by_rows = parse(f"{variables}{prior}probability (c | a, b) {{ {rows} }}")
    by_table = parse(f"{variables}{prior}probability (c | a, b) {{ table {table}; }}")
    assert by_rows == by_table
    assert np.array_equal(by_rows.cpt("c"), cpt / cpt.sum(axis=-1, keepdims=True))


# Rows in one of the usual orders, taken many at a time ----------------------------------------------------------


def ordered(cards: list[int], last_fastest: bool, comma: str) -> tuple[str, list[tuple[int, ...]]]:
    """A network of a child with parents of these cardinalities, without the child's rows; the rows' order."""
    names = [f"p{i}" for i in range(len(cards))]
    text = "".join(
        f"variable {n} {{ type discrete [{c}] {{ {', '.join(f's{k}' for k in range(c))} }}; }}\n"
        f"probability ( {n} ) {{ default {'1 ' * c}; }}\n"
        for n, c in zip(names, cards, strict=True)
    )
    order = list(np.ndindex(*cards)) if last_fastest else [k[::-1] for k in np.ndindex(*cards[::-1])]
    text += f"variable c {{ type discrete [2] {{ u, v }}; }} probability ( c | {comma.join(names)} ) {{"
    return text, order


@pytest.mark.parametrize("part", [20, 100, 1 << 18])
@pytest.mark.parametrize("comma", [", ", ",", ",  "])
@pytest.mark.parametrize("last_fastest", [True, False])
@pytest.mark.parametrize("cards", [[4], [2, 3], [3, 1, 2, 4], [1, 1]])
def test_rows_in_order(
    cards: list[int], last_fastest: bool, comma: str, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_reader, "PART", part)
    head, order = ordered(cards, last_fastest, comma)
    numbers = np.random.default_rng(0).integers(1, 15, cards) / 16

    def row(key: tuple[int, ...], second: float) -> str:
        return f"  ({comma.join(f's{k}' for k in key)}) {numbers[key]}, {second};\n"

    text = head + "\n" + "".join(row(key, 1 - numbers[key]) for key in order) + "}"
    net = parse(text, "f.bif")
    assert np.array_equal(net.cpt("c")[..., 0], numbers)
    assert np.array_equal(net.cpt("c")[..., 1], 1 - numbers)
    # one row after another turned bad: its own line is named, whatever way it was read
    for i, key in list(enumerate(order))[:: max(1, len(order) // 5)]:
        bad = "".join(row(k, -1.0 if k == key else 1 - numbers[k]) for k in order)
        assert error_of(f"{head}\n{bad}}}").startswith(f"f.bif:{2 * len(cards) + 2 + i}:3: the table of 'c' holds -1")
        bad = "".join(row(k, 1 - numbers[k]) for k in order if k != key)
        assert f"1 of {len(order)} rows of 'c' are missing" in error_of(f"{head}\n{bad}}}")


@pytest.mark.parametrize("last_fastest", [True, False])
def test_rows_in_order_with_something_among_them(last_fastest: bool) -> None:
    head, order = ordered([2, 3], last_fastest, ", ")
    rows = [f"(s{a}, s{b}) {(a + b + 1) / 8}, {1 - (a + b + 1) / 8};" for a, b in order]
    plain = parse(f"{head} {' '.join(rows)} }}")
    others = ["// a comment; with (s0, s0) 1, 1;\n", "/* one */", "property p;", ""]
    for other in others:
        for i in range(len(rows) + 1):
            assert parse(f"{head} {' '.join([*rows[:i], other, *rows[i:]])} }}") == plain
    assert parse(f"{head} {' '.join([rows[1], rows[0], *rows[2:]])} }}") == plain
    assert parse(f"{head} {' '.join(rows[:-1])} default 0.5, 0.5; }}") == plain
    assert "occurs a second time" in error_of(f"{head} {' '.join([*rows[:-1], rows[0]])} }}")
    assert "occurs a second time" in error_of(f"{head} {' '.join([*rows, rows[0]])} }}")


# Writing ------------------------------------------------------------------------------------------------------


def test_the_layout_that_others_know() -> None:
    net = parse(AB + PA + "probability ( b | a ) { (a0) 1 1 2; (a1) 1 0 0; }")
    assert dumps(net).splitlines() == [
        "network unknown {",
        "}",
        "variable a {",
        "  type discrete [ 2 ] { a0, a1 };",
        "}",
        "variable b {",
        "  type discrete [ 3 ] { b0, b1, b2 };",
        "}",
        "probability ( a ) {",
        "  table 0.25, 0.75;",
        "}",
        "probability ( b | a ) {",
        "  (a0) 0.25, 0.25, 0.5;",
        "  (a1) 1, 0, 0;",
        "}",
    ]


def test_properties_are_written_back() -> None:
    net = read(DATA / "javabayes.bif")
    assert isinstance(net, BayesianNetwork)
    again = parse(dumps(net))
    assert again == net
    assert again.name == net.name
    for kind in ("net", "node", "potential"):
        assert again.attributes[kind] == net.attributes[kind]
    assert dumps(again) == dumps(net)


def test_equal_states_of_a_parent_are_written_by_order() -> None:
    cpt = [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]]
    net = BayesianNetwork({"a": ["x", "x", ""], "b": ["u", "u"]}, {"b": ["a"]}, {"a": [0.5, 0.25, 0.25], "b": cpt})
    assert "table 0.25, 0.5, 1, 0.75, 0.5, 0;" in dumps(net)
    assert parse(dumps(net)) == net


texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(
        ["table", "default", "property", "probability", "network", "a b", "a,b", "(x)", "//", "/*", "a/", '"', ";", "}"]
    ),
)


@st.composite
def networks(draw: st.DrawFn) -> BayesianNetwork:
    """Any network at all: every name, equal and empty states, rows a little off, tiny numbers, any property."""
    variables = draw(st.lists(texts, min_size=1, max_size=5, unique=True))
    states = {v: draw(st.lists(texts, min_size=1, max_size=4)) for v in variables}
    parents, cpts = {}, {}
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    for i, v in enumerate(variables):
        parents[v] = draw(st.lists(st.sampled_from(variables[:i]), unique=True, max_size=3)) if i else []
        shape = (*(len(states[p]) for p in parents[v]), len(states[v]))
        table = rng.random(shape) ** draw(st.sampled_from([1, 5, 100])) + 1e-300
        table /= table.sum(axis=-1, keepdims=True)
        cpts[v] = table * (1 + draw(st.sampled_from([0.0, 1e-16, 1e-15, 1e-13, 9e-7, -9e-7])))
    kept = st.lists(texts, min_size=1, max_size=2).map(lambda x: {"property": tuple(x)})
    attributes: dict[str, dict[str, Any]] = {"net": draw(kept), "node": {variables[0]: draw(kept)}}
    attributes["potential"] = {variables[-1]: draw(kept)}
    return BayesianNetwork(states, parents, cpts, name=draw(texts), attributes=attributes)


@given(networks())
def test_any_network_reads_back_bit_for_bit(net: BayesianNetwork) -> None:
    text = dumps(net)
    again = parse(text)
    assert again == net
    assert again.name == (net.name or "unknown")
    for kind in ("net", "node", "potential"):
        assert again.attributes[kind] == net.attributes[kind]
    assert dumps(again) == text
