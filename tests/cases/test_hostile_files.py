"""Files that nobody means well with, through every function that reads files: an answer or a short error of jtgpu."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.cases import answer_file
from jtgpu.errors import JtgpuError
from jtgpu.formats import read_evidence_cases
from jtgpu.formats.evidence_files import read_query
from jtgpu.plans.ordering import read_num, read_td
from tests.conftest import ROOT
from tests.formats.test_fuzz import patience
from tests.support.patience import patience as seconds

ASIA = ROOT / "nets" / "asia.net"
TEXT = ASIA.read_bytes()


def many(form: str, n: int) -> bytes:
    """A form with the numbers from 0 in it, one after the other."""
    return "".join(form.replace("#", str(i)) for i in range(n)).encode()


FILES: dict[str, bytes] = {
    "empty": b"", "NUL": b"\0" * 20_000, "a BOM": b"\xef\xbb\xbf", "two BOMs": b"\xef\xbb\xbf" * 2 + TEXT,
    "CR LF": TEXT.replace(b"\n", b"\r\n"), "CR": TEXT.replace(b"\n", b"\r"), "UTF-16": TEXT.decode().encode("utf-16"),
    "UTF-32": TEXT.decode().encode("utf-32"), "no UTF-8": b"\xff\xfe\xfd" * 1000, "surrogates": b"\xed\xa0\x80" * 100,
    "numbers": b"1 " * 10_000, "digits": b"9" * 50_000, "a word": b"a" * 200_000, "lines": b"a\n" * 5_000,
    "findings": b"a=b\n" * 1_000, "brackets": b"[" * 5_000, "braces": b"{" * 5_000, "deep JSON": b'{"a":' * 10_000,
    "JSON": b'{"lung": "yes"}', "long JSON": b'{"lung": ' + b"9" * 5_000 + b"}", "NaN": b'{"lung": NaN}',
    "JSON cases": b"[" + b'{"lung": "yes"},' * 3_000 + b"{}]", "UAI variables": b"MARKOV 99999999999 2 2",
    "UAI states": b"MARKOV 1 4000000 0", "UAI too many states": b"BAYES 1 4194305 1 1 0 1 1",
    "UAI tables": b"MARKOV 1 2 4000000000 1 0", "factors": b"4000000000\n\n1\n0\n2\n1\n0 1\n",
    "factor": b"1\n\n3\n0 1 2\n1000000 1000000 1000000\n0\n", "bags": b"s td 1000000000 5 5\n",
    "wide bag": b"s td 1 99999999 8\nb 1 1 2\n", "large number": b"99999999999999999999999 1\n",
    "minus": b"-1\n" * 1000,
    "Ergo": b"1000000000 2", "BIF": b"network n { property " + b'"' * 10_000,
    "DSL braces": b"net n { A = " + b"{ B = " * 20_000,
    "XML": b'<?xml version="1.0"?>' + b"<a>" * 10_000, "DSL parentheses": b"net n { A = " + b"(" * 20_000,
    "entities": b'<?xml version="1.0"?><!DOCTYPE BIF [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + i, b"&%c;" % (97 + i) * 10) for i in range(9))
    + b"]><BIF><NETWORK><NAME>&j;</NAME></NETWORK></BIF>",
    "XML attributes": b"<BIF " + many('a#="1" ', 100_000) + b">",
    "one node twice": b'node n { states = ("a" "b"); }\n' * 2,
    "XDSL": b'<smile id="a"><nodes>' + many('<cpt id="n#"><state id="a"/></cpt>', 20_000) + b"</nodes></smile>",
    "nodes": many('node n# { states = ("a" "b"); }\n', 5_000),
    "states": b"node n { states = (" + b'"a" ' * 20_000 + b"); }",
    "parents": many('node n# { states = ("a"); }\n', 300) + b"potential (n0 | " + many("n# ", 300) + b") { }",
    "implied": many('node n# { states = ("a" "b"); }\n', 30) + b"potential (n0 | " + many("n# ", 30)[3:] + b") { }",
    "CSV": b"xray\n" + b"yes\n" * 3_000, "CSV quotes": b"xray\n" + b'"' * 30_001, "CSV NUL": b"xray\nyes\0\n",
    "CSV NUL in names": b"xr\0ay\nyes\n", "CSV cells": b"xray\n" + b"yes," * 10_000,
    "CSV names": b"xray,xray\nyes,yes\n",
    "CSV empty names": b",xray,\n1,yes,2\n", "CSV CR": b"xray\ryes\rno\r", "CSV CR LF": b"xray\r\nyes\r\n",
    "CSV BOM": b"\xef\xbb\xbfxray\nyes\n", "CSV long name": b"x" * 2_000_000 + b"\nyes\n",
    "CSV columns": many("column #,", 100_000),
    "Parquet": b"PAR1" + b"\xff" * 1000 + b"\x00\x00\x00\x7fPAR1", "gzip": gzip.compress(TEXT),
    "gzip twice": gzip.compress(gzip.compress(TEXT)), "gzip cut": gzip.compress(TEXT)[:200],
    "gzip tail": gzip.compress(TEXT) + b"junk", "gzip bomb": 20 * gzip.compress(b"0 " * (2 << 20)),
    "zip": b"PK\x03\x04" + b"\0" * 500, "c": b"c\n" * 30_000, "comments": b"% \n" * 30_000, "open": b"/*" * 30_000,
    "nested": b"/#" * 20_000,
}  # fmt: skip


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[Any], Any]]:
    """Every function that reads a file."""
    net = jtgpu.read(ASIA)
    tree = net.plan(order="min-fill", cache=False).compile("reference")
    out = tmp_path_factory.mktemp("out") / "o.csv"
    return {
        "network": jtgpu.read,
        "bundled": jtgpu.load,
        "evidence": lambda p: read_evidence_cases(p, net),
        "query": lambda p: read_query(p, net),
        "num": lambda p: read_num(p, net),
        "td": lambda p: read_td(p, net),
        "plan": lambda p: jtgpu.NetworkPlan.load(p, net),
        "cases": lambda p: answer_file(tree, p, out, force=True),
    }


def enter(doors: dict[str, Callable[[Any], Any]], path: Any) -> None:
    for door, read in doors.items():
        message = str(path)
        try:
            with patience(seconds(30.0)):
                read(path)
        except JtgpuError as error:
            message = str(error)
        assert len(message) < 1500, door
        assert os.path.basename(str(path)).split("\0")[0][:20] in message, door


@pytest.mark.parametrize("name", FILES)
def test_contents(name: str, doors: dict[str, Callable[[Any], Any]], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (tmp_path / "hostile.dat").write_bytes(FILES[name])
    enter(doors, tmp_path / "hostile.dat")


@pytest.mark.parametrize("name", ["folder", "loop", "secret", "absent", "absent/file", "a\0b", "n" * 300])
def test_paths(name: str, doors: dict[str, Callable[[Any], Any]], tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "loop")
    (tmp_path / "secret").write_bytes(TEXT)
    (tmp_path / "secret").chmod(0)
    enter(doors, os.path.join(tmp_path, name))
