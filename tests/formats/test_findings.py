"""Findings that a network file holds are notes, and evidence for `read_evidence`."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import jtgpu
from jtgpu.formats import read_evidence_cases

DNE = """// ~->[DNET-1]->~
bnet weather {
node rain { kind = NATURE; discrete = TRUE; states = (yes, no); parents = (); probs = (0.3, 0.7);
  evidence = yes; };
node wet { kind = NATURE; discrete = TRUE; states = (yes, no); parents = (rain);
  evidence = #1; probs = ((0.9, 0.1), (0.2, 0.8)); };
node dry { kind = NATURE; discrete = TRUE; states = (yes, no); parents = (rain);
  evidence = (0.2, 0.8); probs = ((0.9, 0.1), (0.2, 0.8)); };
};
"""
XDSL = """<?xml version="1.0" encoding="UTF-8"?>
<smile version="1.0" id="w">
  <nodes>
    <cpt id="rain"><state id="yes" /><state id="no" /><probabilities>0.3 0.7</probabilities></cpt>
    <cpt id="wet"><state id="yes" /><state id="no" /><parents>rain</parents>
      <probabilities>0.9 0.1 0.2 0.8</probabilities></cpt>
  </nodes>
  <cases>
    <case name="one" category="a"><evidence node="rain" state="yes" /><target node="wet" /></case>
    <case name="two"><evidence node="wet" state="no" /><evidence node="x" state="no" /></case>
  </cases>
</smile>
"""


def test_findings_of_netica(tmp_path: Path) -> None:
    (tmp_path / "w.dne").write_text(DNE)
    net = jtgpu.read(tmp_path / "w.dne")
    notes = net.attributes["read"]["notes"]
    assert [note.split(": ")[1][:24] for note in notes] == [
        "the finding rain = 'yes'", "the finding wet = 'no' i", "skipped the evidence on "
    ]  # fmt: skip
    case = jtgpu.read_evidence(tmp_path / "w.dne", net)
    assert case == {"rain": 0, "wet": 1}
    assert net.compile("reference").log_evidence(case) == pytest.approx(math.log(0.3 * 0.1))
    other = jtgpu.network("rain{a|b}")
    with pytest.raises(jtgpu.ParseError, match=r"w.dne:4:14: variable 'rain' has no state 'yes'"):
        jtgpu.read_evidence(tmp_path / "w.dne", other)


def test_cases_of_genie(tmp_path: Path) -> None:
    (tmp_path / "w.xdsl").write_text(XDSL)
    net = jtgpu.read(tmp_path / "w.xdsl")
    first, second = net.attributes["read"]["notes"]
    assert "w.xdsl:9:5: the case 'one' (rain = 'yes') is not part of the network" in first
    assert second.endswith("skipped 'x', which are not a state of a variable")
    assert read_evidence_cases(tmp_path / "w.xdsl", net) == [{"rain": 0}, {"wet": 1}]
    with pytest.raises(jtgpu.EvidenceError, match="found 2 cases, expected one"):
        jtgpu.read_evidence(tmp_path / "w.xdsl", net)
    assert not jtgpu.read_evidence(_plain(tmp_path), net)


def _plain(folder: Path) -> Path:
    """A file without cases."""
    path = folder / "plain.xdsl"
    path.write_text(XDSL.partition("  <cases>")[0] + "</smile>")
    return path
