"""Noisy nodes of Netica: equations without a table are read as strengths, by Netica's definitions."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu.formats.dne import parse

TEXT = (Path(__file__).parent / "data" / "fuzz" / "dne" / "noisy.dne").read_text()


def test_noisy_or_and_and() -> None:
    net = parse(TEXT, "n.dne")
    assert {*net.noisy} == {"fever", "discharged"}
    for flu in (0, 1):
        for age in range(3):
            healthy = 0.95 * (0.2 if flu else 1) * (0.7 if age == 2 else 1)
            assert np.allclose(net.cpt("fever")[flu, age], [1 - healthy, healthy], atol=1e-15)
        for fever in (0, 1):
            leaves = 0.9 * (1 if flu else 0.75)
            assert np.allclose(net.cpt("discharged")[fever, flu], [1 - leaves, leaves], atol=1e-15)
    assert net.compile("reference").posterior("fever", {"flu": "yes", "age": "old"})["no"] == pytest.approx(0.133)


def test_decisions_and_utilities_have_no_strengths() -> None:
    text = TEXT.replace("kind = NATURE; discrete = TRUE; states = (false, true)", "kind = UTILITY")
    with pytest.raises(jtgpu.ParseError, match=r"equation node without a table, .* 'discharged'"):
        parse(text, "n.dne")
    text = TEXT.replace("node flu { kind = NATURE", "node flu { kind = DECISION").replace("probs = (0.9, 0.1);", "", 1)
    assert parse(text, "n.dne").cpt("discharged")[0, 0].tolist() == pytest.approx([0.325, 0.675])


def test_a_table_takes_precedence() -> None:
    table = "probs = ((0.5, 0.5), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5), (0.5, 0.5)); equation = \"P (fever"
    net = parse(TEXT.replace('equation = "P (fever', table), "n.dne")
    assert "fever" not in net.noisy
    assert (np.asarray(net.cpt("fever")) == 0.5).all()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0.3)", "1.3)", "equation node without a table, which Netica saves after Equation to Table, 'fever'"),
        ("NoisyOrDist", "NoisyMaxDist", "equation node without a table"),
        ("age == old", "wage == old", "equation node without a table"),
        ("age == old", "age == odd", "'age' has no state 'odd'"),
        ("age == old", "age", "which of the states 'young', 'middle', 'old' of 'age' is true"),
        ("(yes, no)", "(high, low)", "which of the states 'high', 'low' of 'fever' is true, as of yes and no"),
    ],
)
def test_other_equations_are_errors_that_say_what_to_do(old: str, new: str, said: str) -> None:
    with pytest.raises(jtgpu.ParseError, match=re.escape(said)) as refused:
        parse(TEXT.replace(old, new), "n.dne")
    assert str(refused.value).startswith("n.dne:")
