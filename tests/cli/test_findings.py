"""Evidence as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.errors import (
    EvidenceError,
    UnknownState,
    UnknownVariable,
)
from jtgpu.model.network import BayesianNetwork
from jtgpu.model.quick import parse_finding, parse_findings


def odd_net() -> BayesianNetwork:
    """Names and states that hold the characters which separate them."""
    states = {
        "a": ["yes", "no", "b=c"],
        "a=b": ["c", "d", "c,d"],
        "n": ["1", "0", "2"],
        " s ": ["x", " y"],
        "twice": ["same", "same", "other"],
        "a:b": ["0:1", "1:2"],
    }
    return BayesianNetwork(states, {}, {v: [1 / len(s)] * len(s) for v, s in states.items()})


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("a=yes", "a", 0),
        ("a = yes", "a", 0),
        ("a=b=c", "a=b", 0),  # the longest name that fits, before a's state "b=c"
        ("a=b=d", "a=b", 1),
        ("a=b=c,d", "a=b", 2),  # a state of that very name, before a list
        ("a=b=d,c", "a=b", frozenset({0, 1})),
        ("a=yes,no", "a", frozenset({0, 1})),
        ("a=yes,b=c", "a", frozenset({0, 2})),
        ("n=1", "n", 0),  # a name before a number
        ("n=2", "n", 2),
        (" s =x", " s ", 0),
        (" s = y", " s ", 1),
        ("twice=other", "twice", 2),
        ("a:b=0:1", "a:b", 0),
        ("a=yes,yes", "a", frozenset({0})),
    ],
)
def test_findings_are_parsed(text: str, name: str, value: int | frozenset[int]) -> None:
    assert parse_finding(odd_net(), text) == (name, value)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("a", EvidenceError, "name=state"),
        ("", EvidenceError, "name=state"),
        ("=", UnknownVariable, "''"),
        ("b=c", UnknownVariable, "'b'"),
        ("a=ye", UnknownState, "'yes'"),
        ("a=", UnknownState, "''"),
        ("a=1", UnknownState, "state number 1 is 'no'"),
        ("a=-1", UnknownState, "'-1'"),
        ("a=yes,nein", UnknownState, "'nein'"),
        ("a=yes,", UnknownState, "''"),
        ("twice=same", UnknownState, "2 states named 'same'"),
        ("a=" + "9" * 5000, UnknownState, "no state"),
    ],
)
def test_invalid_findings_are_rejected(text: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as caught:
        parse_finding(odd_net(), text)
    assert said in str(caught.value)


def test_a_variable_can_be_observed_once() -> None:
    assert parse_findings(odd_net(), ["a=yes", "n=0"]) == {"a": 0, "n": 1}
    with pytest.raises(EvidenceError, match="twice"):
        parse_findings(odd_net(), ["a=yes", "a=no"])


@given(st.text(max_size=30))
def test_any_text_is_a_finding_or_an_evidence_error(text: str) -> None:
    net = odd_net()
    try:
        name, value = parse_finding(net, text)
    except EvidenceError:
        return
    chosen = value if isinstance(value, frozenset) else {value}
    assert chosen <= set(range(len(net.states(name))))


@given(st.data())
def test_every_state_can_be_written_as_text(data: st.DataObject) -> None:
    """Whatever names hold, writing a variable's name, "=" and a state's name means that state of that variable,
    unless a longer name fits too."""
    text = st.text("ab=, 01", min_size=1, max_size=4)
    names = data.draw(st.lists(text, min_size=1, max_size=4, unique=True))
    states = {v: data.draw(st.lists(text, min_size=1, max_size=3, unique=True)) for v in names}
    net = BayesianNetwork(states, {}, {v: [1 / len(s)] * len(s) for v, s in states.items()})
    variable = data.draw(st.sampled_from(names))
    i = data.draw(st.integers(0, len(states[variable]) - 1))
    name, value = parse_finding(net, f"{variable}={states[variable][i]}")
    assert (name, value) == (variable, i) or len(name) > len(variable.strip())
