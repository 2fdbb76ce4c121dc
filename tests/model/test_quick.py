"""`jtgpu.network`: networks from a line of text."""

from __future__ import annotations

import inspect
import pkgutil
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu import errors
from jtgpu.model.network import BayesianNetwork
from tests.support import random_nets

CHAIN = "smoke->lung; smoke->bronc"


@pytest.mark.parametrize(
    ("text", "variables", "arcs"),
    [
        ("A->B<-C; D", "ABCD", "AB CB"),
        ("A->B<-C;B->D", "ABCD", "AB CB BD"),
        ("w<-r<-c{Yes|No}->s->w", "wrcs", "rw sw cr cs"),
        ("A;;B;", "AB", ""),
        ("", "", ""),
        (" A\n->B->\n C\nD\r\n\n;E <- F ", "ABCDEF", "AB BC FE"),
        ("A→B←C", "ABC", "AB CB"),
    ],
)
def test_chains_and_statements(text: str, variables: str, arcs: str) -> None:
    net = jtgpu.network(text)
    assert net.variables == tuple(variables)
    assert net.arcs == tuple((a[0], a[1]) for a in arcs.split())


def test_parents_are_in_the_order_of_the_arcs() -> None:
    assert jtgpu.network("c->x<-a; b->x").parents("x") == ("c", "a", "b")


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("A", "0 1"),
        ("A[3]", "0 1 2"),
        ("A[1]", "0"),
        ("A[ -1, 2 ]", "-1 0 1 2"),
        ("A{yes|no}", "yes no"),
        ("A{ yes | no }", "yes no"),
        ("A{only}", "only"),
        ("A{-1|0.5|3}", "-1 0.5 3"),
        ("A{1:10:4}", "1 4 7 10"),
        ("A{0:1:4}", "0 0.3333333 0.6666667 1"),
        ("A[1,2.5,3.9]", "[1;2.5[ [2.5;3.9]"),
        ("A+[1,2.5,3.9]", "(1;2.5[ [2.5;3.9)"),
        ("A[0:10:5]", "[0;2[ [2;4[ [4;6[ [6;8[ [8;10]"),
        ("B->A;C->A{x|y}", "x y"),
        ("A{x|y}->B;A{x|y}->C", "x y"),
    ],
)
def test_states(text: str, states: str) -> None:
    assert jtgpu.network(text).states("A") == tuple(states.split())


@pytest.mark.parametrize(
    "text",
    [
        "A->B<-C; D", "A[3]->B;A->C", "A[1,5]", "A{yes|no}", "A[1,2.5,3.9]", "A+[1,2.5,3.9]", "A{1:10:4}", "A[0:10:5]",
        "w<-r<-c{Yes|No}->s->w", "a b->c", "é->ü", "A{0:1:4}", "A[10]->B<-C{top|middle|bottom};B->D",
    ],
)  # fmt: skip
def test_structures_are_those_of_pyagrum(text: str) -> None:
    gum: Any = pytest.importorskip("pyagrum")
    theirs, ours = gum.fastBN(text), jtgpu.network(text)
    assert [theirs.variable(i).name() for i in range(theirs.size())] == list(ours)
    for v in ours:
        assert tuple(theirs.variable(v).labels()) == ours.states(v)
        names = list(theirs.cpt(v).names)  # the variable, then its parents
        assert names == [v, *ours.parents(v)]


@pytest.mark.parametrize("domain", ["{yes|no}", ["yes", "no"], ("yes", "no")])
def test_the_default_states(domain: Any) -> None:
    net = jtgpu.network("a->b[3]", domain)
    assert net.states("a") == ("yes", "no")
    assert net.states("b") == ("0", "1", "2")
    assert jtgpu.network("a->b", 3).states("b") == jtgpu.network("a->b", "[3]").states("b") == ("0", "1", "2")


def test_names_in_quotes_and_with_blanks() -> None:
    net = jtgpu.network("\"a->b\" -> 'x;y' <- blood pressure[3]; O'Brien; C++; v.1/2 (old)")
    assert net.variables == ("a->b", "x;y", "blood pressure", "O'Brien", "C++", "v.1/2 (old)")
    assert net.parents("x;y") == ("a->b", "blood pressure")
    assert jtgpu.network("'asia.net'").variables == ("asia.net",)


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("smoke->", 1, 6, "expected a name after '->'"),
        ("a->b\n  c<-;d", 2, 4, "expected a name after '<-'"),
        ("->a", 1, 1, "expected a name before '->'"),
        ("a->->b", 1, 4, "expected a name before '->'"),
        ("a-b", 1, 2, "a line is not an arrow"),
        ("a=>b", 1, 2, "an arrow is written '->'"),
        ("a,b->c", 1, 2, "not separated by commas"),
        ("a[3->b", 1, 2, "this bracket is not closed"),
        ("x;a{yes|no", 1, 4, "this brace is not closed"),
        ("a]", 1, 2, "found ']'"),
        ("'a' b", 1, 5, "expected '->', '<-' or ';' after 'a', found 'b'"),
        ("a->a", 1, 2, "'a' cannot be its own parent"),
        ("a->b;b<-a", 1, 7, "the arc 'a' -> 'b' is given twice"),
        ("a[3]->b;a[4]", 1, 10, "'a' has other states at line 1, column 2"),
        ("a{x|y}\na{y|x}", 2, 2, "'a' has other states at line 1, column 2"),
        ("a[0]", 1, 2, "at least one state"),
        ("a[5,1]", 1, 2, r"write \[1,5\]"),
        ("a[x]", 1, 2, "a number of states such as"),
        ("a[]", 1, 2, "a number of states such as"),
        ("a[1,x,3]", 1, 2, "expected a number, found 'x'"),
        ("a[1,3,2]", 1, 2, "must ascend"),
        ("a[0:1]", 1, 2, "expected first:last:number"),
        ("a[1:0:3]", 1, 2, "smaller than the last"),
        ("a{0:1:1}", 1, 2, "expected 2 to 1,000,000 states"),
        ("a[99999999]", 1, 2, "too many"),
        ("a{}", 1, 2, "expected states such as"),
        ("a{x||y}", 1, 2, "a state has no name"),
        ("a{x|y|x}", 1, 2, "the state 'x' is given twice"),
        ("a{3}", 1, 2, r"write \[3\] for 3 states"),
        ("a{1:3}", 1, 2, r"write \[1,3\] for a range"),
        ("a{3|1|2}", 1, 2, r"must ascend: write \{1\|2\|3\}"),
        ("nets/asia.net", 1, 1, "seems to be a file, which jtgpu.read reads"),
        ("alarm.bif.gz", 1, 1, "seems to be a file"),
        ("[3]->a", 1, 1, r"expected a name before the states '\[3\]'"),
    ],
)
def test_errors_name_line_and_column(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(errors.ParseError, match=says) as caught:
        jtgpu.network(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    *_, shown, mark = str(caught.value).split("\n")
    assert shown.strip() == text.split("\n")[line - 1].strip()
    assert mark == " " * (3 + column) + "^"


@given(st.text(st.sampled_from(list("aB1é ->-<;[]{}|:,.+#'\"=\n\t\r→")), max_size=30))
def test_any_text_is_a_network_or_a_clear_error(text: str) -> None:
    try:
        net = jtgpu.network(text)
    except errors.ParseError as error:
        line, column, lines = error.line or 0, error.column or 0, text.split("\n")
        valid = 1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1
    except errors.NetworkError as error:
        valid = "cycle" in str(error)
    else:
        valid = all(v.strip() and all(net.states(v)) for v in net)
    assert valid


@given(random_nets.bayesian_networks(), st.randoms())
def test_structures_written_as_text_are_read_back(net: BayesianNetwork, random: Random) -> None:
    nodes = [f"{v}{{{'|'.join(net.states(v))}}}" for v in net]
    arcs = [f"'{p}' -> {v}" if random.random() < 0.5 else f"{v}<-{p}" for v in net for p in net.parents(v)]
    again = jtgpu.network(";".join(nodes) + "\n" + "\n".join(arcs), cpts={v: net.cpt(v) for v in net}, name=net.name)
    assert again == net


def test_a_long_line_is_shown_round_the_error() -> None:
    text = "->".join(f"variable{i}" for i in range(500)) + "->->x"
    with pytest.raises(errors.ParseError) as caught:
        jtgpu.network(text)
    *_, shown, mark = str(caught.value).split("\n")
    assert len(shown) <= 104
    assert shown[mark.index("^") - 2 : mark.index("^") + 2] == "->->"


def test_a_cycle_is_named() -> None:
    with pytest.raises(errors.NetworkError, match="the arcs form a cycle: 'a' -> 'b' -> 'c' -> 'a'"):
        jtgpu.network("a->b->c->a")


def test_cpts_by_name() -> None:
    net = jtgpu.network(
        CHAIN,
        "{yes|no}",
        cpts={"smoke": [0.5, 0.5], "lung": {"yes": [0.1, 0.9], "no": [0.01, 0.99]}, "bronc": [[0.6, 0.4], [0.3, 0.7]]},
        name="cancer",
    )
    assert net.name == "cancer"
    assert net.cpt("lung").tolist() == [[0.1, 0.9], [0.01, 0.99]]
    with net.compile("reference") as tree:
        assert tree.posterior("smoke", {"lung": "yes"})["yes"] == pytest.approx(0.1 / 0.11)


@pytest.mark.parametrize(
    ("cpts", "says"),
    [
        ({"smoke": [0.5, 0.5]}, r"no CPT is given for 'lung', 'bronc'; .*net.replace\(cpt"),
        ({"smoke": [0.5, 0.5], "lnug": [1]}, "a CPT given for 'lnug', which is not in the text; did you mean 'lung'"),
        ({"smoke": [0.5, 0.6], "lung": [[1, 0]] * 2, "bronc": [[1, 0]] * 2}, "'smoke': its CPT sums to 1.1"),
        ({"smoke": [0.5, 0.5], "lung": [1, 0], "bronc": [[1, 0]] * 2}, r"'lung': its CPT has shape \(2,\), expected"),
    ],
)
def test_invalid_cpts(cpts: Any, says: str) -> None:
    with pytest.raises(errors.NetworkError, match=says):
        jtgpu.network(CHAIN, cpts=cpts)


def test_random_cpts_depend_on_the_seed_only() -> None:
    text = "a[3]->b<-c; d{x|y}<-b"
    assert jtgpu.network(text) == jtgpu.network(text)
    assert jtgpu.network(text, seed=1) == jtgpu.network(text, seed=1)
    assert jtgpu.network(text, seed=1) != jtgpu.network(text, seed=2)
    longer = jtgpu.network(text + "; e", seed=1)
    assert all(np.array_equal(longer.cpt(v), jtgpu.network(text, seed=1).cpt(v)) for v in "abcd")
    assert jtgpu.network(text, seed=1).cpt("b").min() > 0


def test_uniform_cpts() -> None:
    net = jtgpu.network("a[4]->b[3]", cpts="uniform")
    assert net.cpt("a").tolist() == [0.25] * 4
    np.testing.assert_array_equal(net.cpt("b"), 1 / 3)


def test_invalid_options() -> None:
    with pytest.raises(ValueError, match='"random" or "uniform", not the str'):
        jtgpu.network("a", cpts="guess")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="seed must be an integer"):
        jtgpu.network("a", seed="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 0"):
        jtgpu.network("a", seed=-1)
    with pytest.raises(TypeError, match="domain must be"):
        jtgpu.network("a", 2.5)  # type: ignore[arg-type]
    with pytest.raises(errors.ParseError, match="at least one state"):
        jtgpu.network("a", 0)
    with pytest.raises(errors.ParseError, match="expected states such as"):
        jtgpu.network("a", "yes|no")
    with pytest.raises(TypeError, match="structure must be text"):
        jtgpu.network(["a", "b"])  # type: ignore[arg-type]


def test_a_cpt_that_is_too_large_is_refused_before_memory_is_allocated() -> None:
    text = "; ".join(f"p{i}->x" for i in range(40))
    with pytest.raises(errors.TableTooLarge, match=r"the CPT of 'x' has 2,199,023,255,552 entries \(40 parents\)"):
        jtgpu.network(text)


def test_public_names_do_not_hide_modules() -> None:
    """A public name is that of a module only if it is the module."""
    modules = {m.name for m in pkgutil.iter_modules(jtgpu.__path__)}
    assert all(inspect.ismodule(getattr(jtgpu, name)) for name in modules & set(jtgpu.__all__))
