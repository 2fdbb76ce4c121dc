"""Malicious and damaged files: every reader either succeeds or raises a `JtgpuError` with a position.

Every reader gets a fixed number of inputs, the same in every run: the small files of tests/formats/data/fuzz/ with
tokens dropped, repeated, swapped and replaced, numbers changed, parts nested, spliced from other files, bytes flipped,
ends cut off. ``JTGPU_FUZZ=5000`` runs more. Inputs that once crashed a reader or made it hang are in
tests/formats/data/fuzz/regressions/.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.errors import FormatError, JtgpuError, ParseError
from jtgpu.formats import FORMATS, Format, open_text, read
from jtgpu.formats.files import declared_text
from jtgpu.formats.network_files import find_comments
from jtgpu.formats.registry import dumps_dynamic
from jtgpu.formats.text import decode
from jtgpu.model.dynamic import DynamicNetwork
from jtgpu.model.markov import MarkovNetwork
from tests.support.examples import examples, slow

CORPUS = Path(__file__).parent / "data" / "fuzz"
FOLDERS = {
    "Hugin net": "hugin",
    "BIF": "bif",
    "XMLBIF": "xmlbif",
    "XDSL": "xdsl",
    "DSL": "dsl",
    "DSC": "dsc",
    "Netica dne": "dne",
    "UAI": "uai",
    "Ergo": "ergo",
    "libDAI factor graph": "fg",
    "dynamic JSON": "dynamic_json",
}
BY_NAME = {f.name: f for f in FORMATS}
XDSL = BY_NAME["XDSL"]  # what is read by formats that are not written is written in
SEEDS = {name: [p.read_bytes() for p in sorted((CORPUS / folder).iterdir())] for name, folder in FOLDERS.items()}
SEEDS["Hugin net"] += [(CORPUS.parent / name).read_bytes() for name in ("odd.net", "student.oobn")]
REGRESSIONS = sorted((CORPUS / "regressions").iterdir()) if (CORPUS / "regressions").is_dir() else []
EXAMPLES = int(os.environ.get("JTGPU_FUZZ", "250"))  # a reader
PATIENCE = 20.0  # seconds after which an input counts as a hang; the inputs are a few kB, some ms each

TOKEN = re.compile(rb'[\w.+-]+|"[^"]*"|<[^>]*>|\s+|.', re.DOTALL)
NUMBER = re.compile(rb"[+-]?\d[\d.eE+-]*")
NUMBERS = [
    *b"0 1 -1 2 7 1e999 -0.0 1e-400 nan inf 0.30000000000000004 1_0 0x1 99999999999999999999 2147483648".split(),
    *b"3.5 1. .5 +1".split(),
]
STRANGE = [
    *(bytes([c]) for c in b"(){}[];:,\"'%\\|=<>&#/\r\n\0\xff\xc3\x1a"),
    *rb"/* */ // <!-- --> ]]> <![CDATA[ <?x ?> &#0; &#xD800; &amp; &x; \" \\ ;; )) ((".split(),
    *b"node potential data states net class variable probability table default property network default type".split(),
    *b"discrete belief cpt TABLE GIVEN FOR OUTCOME NAME parents state probabilities strengths noisymax".split(),
    *b"MARKOV BAYES c PROBABILITIES NAMESTATES PARENTS DEFINITION type position is".split(),
    "\ufeff".encode(),
    "é𝄞\u2028".encode(),
    b"<!DOCTYPE BIF [<!ENTITY a 'b'>]>",
    b"x" * 300,
]
NESTS = [(b"(", b")"), (b"{", b"}"), (b"<x>", b"</x>"), (b"[", b"]"), (b"/*", b"*/"), (b"{ A = ", b"; }"), (b'"', b'"')]


UNITS = [
    *("(", ")", "{", "}", "[", '"', "'", "<", "</", "<!--", "-->", "<a ", "/*", "*/", "/", "%", "#", ";", ",", "="),
    *("|", "\\", "a", "a ", "0 ", "1", "e", ".", "-", "\n", "\r", "c\n", "node ", "net ", "property ", "/*/", "(a) "),
    *("a = ", "variable a { ", "node a { ", "/*a", "/#a", "<!--a", '"\\', "(0) : ", "<BIF>", "&", "&#", "é", "\u2028"),
]


class Hang(Exception):
    """An input that takes too long."""


@contextmanager
def patience(seconds: float = PATIENCE) -> Iterator[None]:
    """Interrupt what takes too long, where the system can."""

    def stop(_: int, __: FrameType | None) -> None:
        raise Hang(f"not read within {seconds} s")

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@st.composite
def broken(draw: st.DrawFn, seeds: list[bytes], others: list[bytes]) -> bytes:
    """A file of the corpus after some accidents."""
    tokens = TOKEN.findall(draw(st.sampled_from(seeds)))
    place = st.integers(0, max(len(tokens) - 1, 0))
    for _ in range(draw(st.integers(1, 5))):
        i, j = min(draw(place), len(tokens) - 1), min(draw(place), len(tokens) - 1)
        match draw(
            st.sampled_from(
                ["drop", "drop many", "repeat", "swap", "strange", "number", "number", "nest", "splice", "move"]
            )
        ):
            case "drop":
                tokens[i] = b""
            case "drop many":
                del tokens[i : i + draw(st.integers(1, 30))]
                tokens = tokens or [b""]
            case "repeat":
                tokens[i] *= draw(st.sampled_from([2, 3, 50]))
            case "swap":
                tokens[i], tokens[j] = tokens[j], tokens[i]
            case "strange":
                tokens[i] = draw(st.sampled_from(STRANGE))
            case "number":
                numbers = [k for k, t in enumerate(tokens) if NUMBER.fullmatch(t)]
                if numbers:
                    tokens[numbers[i % len(numbers)]] = draw(st.sampled_from(NUMBERS))
            case "nest":
                opened, closed = draw(st.sampled_from(NESTS))
                n = draw(st.sampled_from([1, 2, 60, 5000]))
                tokens[i] = opened * n + tokens[i] + closed * draw(st.sampled_from([n, n, 0]))
            case "splice":
                other = TOKEN.findall(draw(st.sampled_from(others)))
                k = draw(st.integers(0, len(other) - 1))
                tokens[i:i] = other[k : k + draw(st.integers(1, 40))]
            case _:
                part = tokens[i : i + 20]
                del tokens[i : i + 20]
                tokens = tokens or [b""]
                tokens[j:j] = part
    data = bytearray(b"".join(tokens))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            at = draw(st.integers(0, len(data) - 1))
            data[at] = draw(st.one_of(st.integers(0, 255), st.just(data[at] ^ 1 << at % 8)))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


def survives(data: bytes, target: Format, zero_rows: str = "error", decisions: str = "network") -> None:
    """Reading gives a model that is written and read back equal, or a `JtgpuError` with a place; nothing else."""
    with patience():
        try:
            text = declared_text(data)
        except FormatError:
            return
        text = decode(data) if text is None else text
        for f in FORMATS:
            assert f.sniff(text) in (True, False)
        find_comments(text, target.name)
        failure = model = None
        try:
            model = target.parse(text, "m", zero_rows=zero_rows, decisions=decisions)
        except ParseError as error:
            failure = error
        if failure is not None:
            assert failure.line is not None
            assert 1 <= failure.line <= 1 + text.count("\n") + text.count("\r")
            assert failure.column is not None
            assert failure.column >= 1
            assert len(str(failure)) < 2000
            return
        assert model is not None
        if isinstance(model, DynamicNetwork):
            for name in ("dynamic JSON", "XDSL")[: 1 + (target is XDSL)]:
                assert BY_NAME[name].parse(dumps_dynamic(model, name)) == model
            return
        target = target if target.writer else XDSL
        assert target.dumps is not None
        try:
            again = target.dumps(model)
        except FormatError:  # a name that may be read and not be written: DSC, control characters in XML
            return
        back = target.parse(again, "m")
        if not isinstance(model, MarkovNetwork) and target.name not in ("UAI", "Ergo", "libDAI factor graph"):
            assert back == model
        else:
            assert len(back) == len(model)
            for a, b in zip(model.factors, back.factors, strict=False):
                assert (a.table == b.table).all()


@pytest.mark.parametrize("name", FOLDERS)
def test_the_corpus_is_read_or_refused(name: str) -> None:
    """At least one file of each folder is a good one: mutations of bad files alone would test little."""
    good = 0
    for data in SEEDS[name]:
        survives(data, BY_NAME[name])
        try:
            BY_NAME[name].parse(decode(data), "m")
            good += 1
        except ParseError:
            pass
    assert good >= 1


@pytest.mark.parametrize("name", FOLDERS)
def test_broken_files(name: str) -> None:
    others = [data for n, seeds in SEEDS.items() if n != name for data in seeds]

    @examples(EXAMPLES)
    @given(
        broken(SEEDS[name], others), st.sampled_from(["error", "uniform"]), st.sampled_from(["network", "chance"])
    )
    def check(data: bytes, zero_rows: str, decisions: str) -> None:
        survives(data, BY_NAME[name], zero_rows, decisions)

    check()


@examples(EXAMPLES)
@given(
    st.one_of(
        st.binary(max_size=80),
        st.sampled_from(sorted(FOLDERS)).flatmap(lambda n: broken(SEEDS[n], [d for s in SEEDS.values() for d in s])),
    ),
    st.sampled_from([".net", ".bif", ".xml", ".xdsl", ".dsl", ".dsc", ".uai", ".erg", ".fg", ".dat", ".net.gz"]),
)
def test_files_of_any_content_under_any_name(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str
) -> None:
    """Through the front door: what a file is, is found out by its content."""
    path = tmp_path_factory.getbasetemp() / f"fuzz{suffix}"
    path.write_bytes(data)
    failure = None
    with patience():
        try:
            read(path)
        except JtgpuError as error:
            failure = error
    assert failure is None or str(path) in str(failure)
    assert failure is not None or open_text(path).format in FORMATS


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda p: p.name)
def test_what_once_crashed_or_hung(path: Path) -> None:
    data = path.read_bytes()
    for target in FORMATS:
        survives(data, target)
        survives(data, target, "uniform")


@pytest.mark.parametrize("name", slow(*FOLDERS))
def test_a_lot_of_one_thing(name: str) -> None:
    """Inputs of 150,000 characters that are one token again and again: time has to grow with the length, not faster."""
    target = BY_NAME[name]
    start = SEEDS[name][0].decode("utf-8", "replace")
    half = len(start) // 2
    for unit in UNITS:
        lot = unit * (150_000 // len(unit))
        for text in (lot, start[:half] + lot + start[half:]):
            survives(text.encode(), target)
