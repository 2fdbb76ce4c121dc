"""Files in and out: what is recognised, packed files, errors in one sentence, all or nothing."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
import pickle
import re
import stat
import sys
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.errors import FormatError, JtgpuError, ParseError
from jtgpu.formats import (
    FORMATS,
    FileError,
    MissingFileError,
    bif,
    files,
    formats,
    hugin,
    read,
    read_evidence_cases,
    write,
)
from jtgpu.formats.hugin_values import dumps
from jtgpu.formats.text import SourceText, decode, floats, quote, unquote
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT

DATA = Path(__file__).parent / "data"
NETS = ROOT / "nets"
Compress = Callable[[bytes], bytes]
COMPRESSORS: list[tuple[str, Compress]] = [(".gz", gzip.compress), (".xz", partial(lzma.compress, preset=0))]
NET = BayesianNetwork({"a": ["x", "y"]}, {}, {"a": [0.25, 0.75]}, name="tiny")


# Reading: what it is ------------------------------------------------------------------------------------------


def test_content_goes_before_suffix(tmp_path: Path) -> None:
    for source, target in (
        ("javabayes.bif", "x.net"),
        ("odd.net", "x.bif"),
        ("student.oobn", "x"),
        ("odd.net", "x.gz"),
    ):
        (tmp_path / target).write_bytes((DATA / source).read_bytes())
        assert read(tmp_path / target) == read(DATA / source)


def test_suffix_decides_where_content_says_nothing(tmp_path: Path) -> None:
    for suffix, hint in (
        (".net", "expected a Hugin network"),
        (".NET.gz", "expected a Hugin"),
        (".bif", "a BIF network"),
    ):
        (tmp_path / f"empty{suffix}").write_bytes(b"")
        with pytest.raises(ParseError, match=hint):
            read(tmp_path / f"empty{suffix}")


@pytest.mark.parametrize(("suffix", "compress"), COMPRESSORS)
def test_packed_files_are_seen_by_content(tmp_path: Path, suffix: str, compress: Compress) -> None:
    data = compress((DATA / "odd.net").read_bytes())
    for name in (f"a.net{suffix}", "a.net", "a.dat"):
        (tmp_path / name).write_bytes(data)
        assert read(tmp_path / name) == read(DATA / "odd.net")
    two = compress(b"net { }"), compress(b"node a { states = (b); }")
    (tmp_path / f"two.net{suffix}").write_bytes((b"\0" * 8 if suffix == ".xz" else b"").join((*two, b"")))
    assert read(tmp_path / f"two.net{suffix}").variables == ("a",)
    (tmp_path / f"plain.net{suffix}").write_bytes(b"net { }")
    assert len(read(str(tmp_path / f"plain.net{suffix}"))) == 0


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<html>", "an XML file of another kind"),
        ("// Bayesian Network\n// Elvira format\n\nbnet  Untitled {\n", "Elvira"),
    ],
)
def test_unsupported_formats_are_named_in_the_message(text: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "a.net").write_text(text)
    with pytest.raises(FormatError, match=r"Hugin net \(\.net, \.oobn\), BIF \(\.bif\)") as caught:
        read(tmp_path / "a.net")
    assert f"this is {name}" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"PK\x03\x04\x14\x00", "a zip archive"),
        (bz2.compress(b"net { }"), "a file compressed by bzip2"),
        (b"\x28\xb5\x2f\xfd\x24", "a file compressed by Zstandard"),
        (b"7z\xbc\xaf\x27\x1c\x00", "a file compressed by 7-Zip"),
        (b"%PDF-1.7\n", "a PDF document"),
        (pickle.dumps(["net"]), "a pickled object of Python"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_archives_are_named_in_the_message(data: bytes, name: str, tmp_path: Path) -> None:
    for suffix in ("dat", "net"):
        (tmp_path / f"a.{suffix}").write_bytes(data)
        with pytest.raises(FormatError, match=f"this is {name}"):
            read(tmp_path / f"a.{suffix}")


def test_unknown_files_list_the_supported_formats(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(FormatError, match=r"unknown format.* Hugin net \(\.net, \.oobn\)"):
        read(tmp_path / "a.txt")


def test_the_list_of_formats() -> None:
    listed = {name: (suffixes, written) for name, suffixes, written in formats()}
    assert listed["Hugin net"] == ((".net", ".oobn"), True)
    assert listed["BIF"] == ((".bif",), True)
    assert listed["UAI"] == ((".uai",), True)
    assert listed["Ergo"] == ((".erg",), True)
    assert listed["libDAI factor graph"] == ((".fg",), True)
    assert len({s for f in FORMATS for s in f.suffixes}) == sum(len(f.suffixes) for f in FORMATS)


@pytest.mark.parametrize("suffix", [f.suffixes[0] for f in FORMATS if f.dumps])
def test_what_is_written_is_known_by_its_content(suffix: str, tmp_path: Path) -> None:
    for net in (NET, read(NETS / "asia.net"), read(DATA / "student.oobn")):
        for packed in ("", ".gz"):
            write(net, tmp_path / f"a{suffix}{packed}")
            (tmp_path / f"a{suffix}{packed}").rename(tmp_path / "a.dat")
            again = read(tmp_path / "a.dat")
            assert [f.scope for f in again.factors] == [f.scope for f in net.factors]
            for a, b in zip(again.factors, net.factors, strict=True):
                assert a.table.tobytes() == b.table.tobytes()
            knowing = [
                f.name
                for f in FORMATS
                if f.sniff(
                    decode(
                        gzip.decompress((tmp_path / "a.dat").read_bytes())
                        if packed
                        else (tmp_path / "a.dat").read_bytes()
                    )
                )
            ]
            assert len(knowing) == 1


def test_options_are_checked_and_passed_on(tmp_path: Path) -> None:
    (tmp_path / "zero.net").write_text("node a { states = (x y); } potential (a) { data = (0 0); }")
    with pytest.raises(ValueError, match="zero_rows"):
        read(tmp_path / "zero.net", zero_rows="ignore")  # type: ignore[call-overload]
    with pytest.raises(ParseError, match="all zeros"):
        read(tmp_path / "zero.net")
    net = read(tmp_path / "zero.net", zero_rows="uniform")
    assert isinstance(net, BayesianNetwork)
    assert net.cpt("a").tolist() == [0.5, 0.5]


# Reading: what goes wrong -------------------------------------------------------------------------------------


def test_missing_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "asia.net").write_text("net { }")
    with pytest.raises(MissingFileError, match=r"no such file; did you mean 'asia\.net'\?") as caught:
        read(tmp_path / "aisa.net")
    assert isinstance(caught.value, JtgpuError)
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(MissingFileError, match=r"the folder '.*nowhere' does not exist"):
        read(tmp_path / "nowhere" / "a.net")


@pytest.mark.parametrize("path", ["tests", "tests/formats/data/odd.net/x", "a\0b"])
def test_what_the_system_refuses_is_one_sentence(path: str) -> None:
    with pytest.raises(FileError, match=r"^cannot read ") as caught:
        read(ROOT / path if "\0" not in path else path)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, OSError)


@pytest.mark.parametrize("damage", ["cut", "flipped", "header", "tail"])
@pytest.mark.parametrize(("suffix", "compress"), COMPRESSORS)
def test_damaged_data(suffix: str, compress: Compress, damage: str, tmp_path: Path) -> None:
    data = bytearray(compress((DATA / "odd.net").read_bytes()))
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "flipped":
        data[len(data) // 2] ^= 0xFF
    elif damage == "header":
        data = data[:7]
    else:
        data += b"rubbish"
    (tmp_path / f"a.net{suffix}").write_bytes(data)
    with pytest.raises(FormatError, match=r"damaged (gzip|xz) data"):
        read(tmp_path / f"a.net{suffix}")


def test_xz_data_that_declare_a_large_dictionary(tmp_path: Path) -> None:
    """The decoder would allocate the dictionary."""
    packed = bytearray(lzma.compress(b"net { }", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]))
    assert packed[12:17] == b"\x02\x00\x21\x01\x10"  # header of a block; the last byte is the size of the dictionary
    packed[16] = 34  # 512 MiB
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    (tmp_path / "a.net").write_bytes(packed)
    with pytest.raises(FormatError, match=r"damaged xz data .*[Mm]emory usage limit"):
        read(tmp_path / "a.net")


def test_a_python_without_xz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.net.xz").write_bytes(lzma.compress(b"net { }"))
    monkeypatch.setitem(sys.modules, "lzma", None)
    with pytest.raises(FormatError, match="this Python was built without"):
        read(tmp_path / "a.net.xz")
    with pytest.raises(FileError, match=r"without xz; use \.gz"):
        write(NET, tmp_path / "b.net.xz")


@pytest.mark.parametrize(
    "unit", [b" ", b"0 ", b"node a { states = (b); }\n", b"%\n"], ids=["blanks", "zeros", "nodes", "comments"]
)
@pytest.mark.parametrize(("suffix", "compress"), COMPRESSORS)
def test_bombs_are_not_unpacked(suffix: str, compress: Compress, unit: bytes, tmp_path: Path) -> None:
    """However large the file: what is unpacked is bounded by what has been read."""
    path = tmp_path / f"bomb.net{suffix}"
    path.write_bytes(compress(b"net { }\n") + 100 * compress(unit * ((8 << 20) // len(unit))))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"bomb\.net\.[gx]z: found .* that unpack to more than .* MiB, expected"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(FormatError, match=r"expected at most a factor of [15]00"):
        read_evidence_cases(path, read(NETS / "asia.net"))


def test_gzip_data_within_the_bounds_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FREE_BYTES", 1 << 20)
    (tmp_path / "fine.net.gz").write_bytes(gzip.compress(b"net { }" + b" " * (1 << 19)))
    assert len(read(tmp_path / "fine.net.gz")) == 0


def test_files_that_do_not_fit_into_the_memory_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "free_memory", lambda: 3 << 10)
    (tmp_path / "large.net").write_bytes(b" " * 1025)
    (tmp_path / "packed.net.gz").write_bytes(gzip.compress(b" " * 1025))
    with pytest.raises(FormatError, match=r"larger than 1\.0 KiB, .* memory is free"):
        read(tmp_path / "large.net")
    with pytest.raises(FormatError, match="unpacks to more than"):
        read(tmp_path / "packed.net.gz")


def test_files_over_the_limit_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 100)
    (tmp_path / "large.net").write_bytes(b" " * 101)
    with pytest.raises(FormatError, match="larger than"):
        read(tmp_path / "large.net")


# Text ---------------------------------------------------------------------------------------------------------


def test_encodings(tmp_path: Path) -> None:
    text = 'node a { states = ("Tørstof" "b"); }'
    for encoding in ("utf-8", "utf-8-sig", "latin-1"):
        (tmp_path / "a.net").write_bytes(text.encode(encoding))
        assert read(tmp_path / "a.net").states("a") == ("Tørstof", "b")
    assert decode(b"\xef\xbb\xbfx\xff") == "\xef\xbb\xbfx\xff"


def test_places() -> None:
    source = SourceText("a\nb\r\ncd\re", "f")
    assert [source.place(i) for i in (0, 2, 5, 6, 8)] == [(1, 1), (2, 1), (3, 1), (3, 2), (4, 1)]
    assert str(source.error(6, "no")) == "f:3:2: no"


@pytest.mark.parametrize("text", ["1_0", "nan", "inf", "0x1", "1e", ".", "1,0", "\uff11", "--1", "1\x1f2", "1\xa02"])
def test_what_is_no_number(text: str) -> None:
    assert floats(text) is None


def test_numbers_are_the_nearest_doubles() -> None:
    found = floats(" 0.1 1e-400 .5 5. +3 -2E+1\t4.9406564584124654e-324\n0.3333333333333333148296 1e999")
    assert found is not None
    assert found.tolist() == [0.1, 0.0, 0.5, 5.0, 3.0, -20.0, 5e-324, 1 / 3, float("inf")]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quoting_is_undone(text: str) -> None:
    quoted = quote(text)
    assert unquote(quoted) == text
    assert "\n" not in quoted
    assert "\r" not in quoted


def test_a_network_takes_arrays_that_nobody_can_write_to_and_copies_all_others() -> None:
    frozen = np.array([0.25, 0.75])
    frozen.flags.writeable = False
    assert BayesianNetwork({"a": ["x", "y"]}, {}, {"a": frozen}).cpt("a").base is frozen
    base = np.array([[0.25, 0.75]])
    view = base[0]
    view.flags.writeable = False
    of_bytes = np.frombuffer(bytearray(frozen.tobytes()))
    of_bytes.flags.writeable = False
    for other in (np.array([0.25, 0.75]), view, of_bytes, np.array([0.25, 0.75], ">f8"), frozen.astype(np.float32)):
        other.flags.writeable &= other.base is None
        cpt = BayesianNetwork({"a": ["x", "y"]}, {}, {"a": other}).cpt("a")
        assert not np.shares_memory(cpt, other)
        assert not cpt.flags.writeable
    net = read(DATA / "javabayes.bif")
    assert isinstance(net, BayesianNetwork)
    for v in net.variables:
        with pytest.raises(ValueError, match="read-only"):
            net.cpt(v)[...] = 0


# Writing ------------------------------------------------------------------------------------------------------


def test_writing_and_reading(tmp_path: Path) -> None:
    for name in ("a.net", "A.NET", "a.net.gz", "a.net.xz"):
        write(NET, tmp_path / name)
        assert read(str(tmp_path / name)) == NET
        assert read(tmp_path / name).name == "tiny"
    assert (tmp_path / "a.net.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert lzma.decompress((tmp_path / "a.net.xz").read_bytes()) == (tmp_path / "a.net").read_bytes()


def test_equal_networks_make_equal_files(tmp_path: Path) -> None:
    for suffix, _ in COMPRESSORS:
        write(NET, tmp_path / f"a.net{suffix}")
        os.utime(tmp_path / f"a.net{suffix}", (1, 1))
        write(NET, tmp_path / f"b.net{suffix}")
        assert (tmp_path / f"a.net{suffix}").read_bytes() == (tmp_path / f"b.net{suffix}").read_bytes()


def test_unknown_suffixes_and_models(tmp_path: Path) -> None:
    for name in ("a.xyz", "net", "a.oobn"):
        with pytest.raises(FormatError, match=r"no writer for this suffix; supported are Hugin net"):
            write(NET, tmp_path / name)
    with pytest.raises(FormatError, match="MarkovNetwork"):
        write(MarkovNetwork({"a": ["x"]}, []), tmp_path / "a.net")
    with pytest.raises(FormatError, match="is not a valid character"):
        write(BayesianNetwork({"a": ["\ud800"]}, {}, {"a": [1.0]}), tmp_path / "a.net")
    assert list(tmp_path.iterdir()) == []


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(NET, tmp_path / "a.net")
    before = (tmp_path / "a.net").read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"cannot write '.*': no space left on device"):
        write(BayesianNetwork({"b": ["x"]}, {}, {"b": [1.0]}), tmp_path / "a.net")
    assert [p.name for p in tmp_path.iterdir()] == ["a.net"]
    assert (tmp_path / "a.net").read_bytes() == before


def test_writing_where_nothing_can_be(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"the folder '.*nowhere' does not exist"):
        write(NET, tmp_path / "nowhere" / "a.net")
    (tmp_path / "folder.net").mkdir()
    with pytest.raises(FileError, match="it is a folder"):
        write(NET, tmp_path / "folder.net")
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileError, match="cannot write"):
        write(NET, tmp_path / "file" / "a.net")


def test_links_modes_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "real.net").write_text("old")
    (tmp_path / "real.net").chmod(0o640)
    (tmp_path / "link.net").symlink_to(tmp_path / "real.net")
    write(NET, tmp_path / "link.net")
    assert (tmp_path / "link.net").is_symlink()
    assert read(tmp_path / "real.net") == NET
    assert stat.S_IMODE((tmp_path / "real.net").stat().st_mode) == 0o640
    (tmp_path / "plain").touch()
    write(NET, tmp_path / "new.net")
    assert (tmp_path / "new.net").stat().st_mode == (tmp_path / "plain").stat().st_mode
    os.mkfifo(tmp_path / "pipe.net")
    end = os.open(tmp_path / "pipe.net", os.O_RDWR)  # both ends: neither open nor write waits
    try:
        write(NET, tmp_path / "pipe.net")
        assert os.read(end, 10_000).decode() == dumps(NET)
    finally:
        os.close(end)
    assert stat.S_ISFIFO((tmp_path / "pipe.net").stat().st_mode)


@pytest.mark.parametrize("parse", [hugin.parse, bif.parse])
def test_suggesting_names_does_not_take_forever(parse: object) -> None:
    """Thousands of long names that differ in one letter, and a parent that is like all of them."""
    assert callable(parse)
    names = ["n" * 900 + str(i) for i in range(3000)]
    if parse is hugin.parse:
        text = "".join(f"node {n} {{ states = (a b); }}\n" for n in names)
    else:
        text = "".join(f"variable {n} {{ type discrete {{ a, b }}; }}\n" for n in names)
    word = "potential" if parse is hugin.parse else "probability"
    with pytest.raises(ParseError, match="not declared"):
        parse(f"{text}{word} ({names[0]} | {'n' * 901}) {{ }}")


# The project's own networks -----------------------------------------------------------------------------------

ORDER = (  # noqa: SIM905 - a list of names reads better as words
    "mildew diabetes barley munin4 water munin1 link asia cancer earthquake survey sachs child alarm insurance "
    "hailfinder hepar2 win95pts andes pigs pathfinder munin munin2 munin3"
).split()


@pytest.mark.slow
def test_nets_are_there_packed_when_large_and_listed_with_their_sums() -> None:
    there = {p.name.split(".")[0]: p for p in NETS.iterdir() if ".net" in p.suffixes}
    assert set(there) == set(ORDER)
    readme = (NETS / "README.rst").read_text("utf-8")
    for name, path in there.items():
        text = files.read_bytes(path)
        assert (len(text) > 500_000) == (path.suffix == ".xz")
        assert b"CC BY-SA 3.0" in text[:200]
        assert hashlib.sha256(text).hexdigest() in readme
        assert f"* - {path.name}\n     - {len(text):,}\n" in readme
        net = read(path)
        assert isinstance(net, BayesianNetwork)
        assert net.name == name
        size = sum(net.cpt(v).size for v in net.variables)
        row = rf"\* - {name}\n     - {len(net):,}\n     - {net.n_arcs:,}\n     - [0-9,]+\n     - {size:,}\n"
        assert re.search(row, readme)
        for v in net.variables:
            assert np.abs(net.cpt(v).sum(axis=-1) - 1).max() < 1e-14


def test_a_row_that_is_far_from_a_distribution_is_a_warning(tmp_path: Path) -> None:
    text = (ROOT / "nets" / "asia.net").read_text()
    path = tmp_path / "a.net"
    for row, n in (("0.41 0.99", 1), ("0.012 0.99", 0)):
        path.write_text(re.sub(r"0\.01 0\.99", row, text, count=1))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            net = jtgpu.read(path)
        assert isinstance(net, jtgpu.BayesianNetwork)
        assert net.row_report is not None
        assert net.row_report.n_off == 1
        assert [w.filename for w in caught] == [__file__] * n
        assert all("CPT rows in 1 variable did not sum to 1" in str(w.message) for w in caught)
