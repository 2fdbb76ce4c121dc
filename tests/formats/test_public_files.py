"""Files as other programs write them, and files that no reader knows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import jtgpu

BARE = """network unknown {
}
variable A {
  type discrete [ 3 ] { [-2.25,0.556], (0.556,1.44], (1.44,4.85] };
}
variable Alcohol use {
  type discrete [ 3 ] { never, 1-2 / week, _35_45] };
}
probability ( A ) {
  table 0.3, 0.3, 0.4;
}
probability ( Alcohol use | A ) {
  ([-2.25,0.556]) 0.9, 0.1, 0.0;
  ((0.556,1.44]) 0.4, 0.6, 0.0;
  ((1.44,4.85]) 0.2, 0.5, 0.3;
}
"""


def test_bare_intervals_and_blanks_of_bnlearn(tmp_path: Path) -> None:
    (tmp_path / "a.bif").write_text(BARE)
    net = jtgpu.read(tmp_path / "a.bif")
    assert net.variables == ("A", "Alcohol use")
    assert net.states("A") == ("[-2.25,0.556]", "(0.556,1.44]", "(1.44,4.85]")
    assert net.states("Alcohol use") == ("never", "1-2 / week", "_35_45]")
    assert net.cpt("Alcohol use").tolist() == [[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.2, 0.5, 0.3]]
    jtgpu.write(net, tmp_path / "b.bif")
    assert jtgpu.read(tmp_path / "b.bif") == net
    (tmp_path / "c.bif").write_text(BARE.replace("[ 3 ] { never", "[ 4 ] { never"))
    with pytest.raises(jtgpu.ParseError, match=r"c\.bif:4:25: found '\['"):
        jtgpu.read(tmp_path / "c.bif")


def test_netica_without_its_first_comment(tmp_path: Path) -> None:
    (tmp_path / "a.dne").write_text(
        "bnet weather {\nnode rain {\n\tkind = NATURE;\n\tdiscrete = TRUE;\n\tstates = (yes, no);\n\tparents = ();\n"
        "\tprobs = (0.3, 0.7);\n\t};\nnode wet {\n\tkind = NATURE;\n\tdiscrete = TRUE;\n\tstates = (yes, no);\n"
        "\tparents = (rain);\n\tprobs = ((0.9, 0.1), (0.2, 0.8));\n\t};\n};\n"
    )
    assert jtgpu.read(tmp_path / "a.dne").compile("reference").posterior("wet")["yes"] == pytest.approx(0.41)


def test_utilities_by_an_expression_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.xdsl").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<smile version="1.0" id="n" numsamples="1000"><nodes>\n'
        '<cpt id="rain"><state id="yes"/><state id="no"/><probabilities>0.3 0.7</probabilities></cpt>\n'
        '<decision id="coat"><state id="take"/><state id="leave"/></decision>\n'
        '<utility id="dry"><parents>rain coat</parents><utilities>8 0 9 10</utilities></utility>\n'
        '<utility id="load"><parents>coat</parents><utilities>1 2</utilities></utility>\n'
        '<maux id="all"><parents>dry load</parents><expression>dry*load</expression></maux>\n</nodes></smile>\n'
    )
    assert jtgpu.read(tmp_path / "a.xdsl", decisions="chance").variables == ("rain", "coat")
    with pytest.raises(jtgpu.ParseError, match=r"a\.xdsl:7:1: found the utility that is an expression"):
        jtgpu.read(tmp_path / "a.xdsl")


@pytest.mark.parametrize("text", ["/" * 60 + "\nx", "// a  \n" * 30 + "x", "/*" * 3000, "// a\n" * 20_000])
def test_no_text_takes_exponential_time(text: str, tmp_path: Path) -> None:
    """62 bytes froze a server for hours."""
    (tmp_path / "x.net").write_text(text)
    begin = time.process_time()
    with pytest.raises(jtgpu.JtgpuError):
        jtgpu.read(tmp_path / "x.net")
    assert time.process_time() - begin < 20


def test_an_encoding_that_is_a_guess_is_said(tmp_path: Path) -> None:
    text = "network x {\n}\nvariable 尺寸 {\n  type discrete [ 2 ] { a, b };\n}\n"
    text += "probability ( 尺寸 ) {\n  table 0.3, 0.7;\n}\n"
    (tmp_path / "a.bif").write_bytes(text.encode("gbk"))
    with pytest.warns(UserWarning, match="not UTF-8, so its encoding is a guess"):
        jtgpu.read(tmp_path / "a.bif")


@pytest.mark.parametrize(("suffix", "said"), [(".neta", "save the network as .dne"), (".pgmx", "ProbModelXML")])
def test_formats_that_are_known_and_not_read(suffix: str, said: str, tmp_path: Path) -> None:
    (tmp_path / f"a{suffix}").write_text("\x0a\x0b<ProbModelXML>")
    with pytest.raises(jtgpu.FormatError, match=said):
        jtgpu.read(tmp_path / f"a{suffix}")
