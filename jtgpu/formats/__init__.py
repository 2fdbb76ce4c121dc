"""Network files: `read` by content, `write` by suffix, one module a format.

A format is a module with ``sniff(text)``, ``parse(text, source, zero_rows=)`` and, where it can be written,
``dumps(net)``; `FORMATS` lists them. Files are only touched here and in `jtgpu.formats.files`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import FormatError
from ..model.network import DiscreteModel
from . import ergo, fg, uai
from .bif import reader as bif
from .bif import writer as bif_writer
from .dsc import reader as dsc
from .dsc import writer as dsc_writer
from .dsl import reader as dsl
from .dsl import writer as dsl_writer
from .evidence_files import Case, read_evidence, read_evidence_cases, read_query
from .files import FileError, MissingFileError, read_bytes, write_bytes
from .hugin import reader as hugin
from .hugin import writer as hugin_writer
from .text import decode
from .xdsl import reader as xdsl
from .xdsl import writer as xdsl_writer
from .xml_text import declared_text
from .xmlbif import reader as xmlbif
from .xmlbif import writer as xmlbif_writer

__all__ = [
    "FORMATS",
    "Case",
    "FileError",
    "Format",
    "MissingFileError",
    "Opened",
    "formats",
    "open_text",
    "read",
    "read_evidence",
    "read_evidence_cases",
    "read_query",
    "save_text",
    "write",
    "writer_of",
]


@dataclass(frozen=True)
class Format:
    """One format of network files.

    Attributes
    ----------
    name : str
    suffixes : tuple of str
        Lower case, with the dot; each also with ``.gz`` behind it.
    sniff : callable
        Does a text begin as this format does?
    parse : callable
        ``parse(text, source, zero_rows=...)`` gives the network, or raises `ParseError`.
    dumps : callable or None
        A network as text; None for a format that is only read.
    only_read : tuple of str
        Suffixes under which nothing is written.
    """

    name: str
    suffixes: tuple[str, ...]
    sniff: Callable[[str], bool]
    parse: Callable[..., DiscreteModel]
    dumps: Callable[[DiscreteModel], str] | None = None
    only_read: tuple[str, ...] = ()


class Opened(NamedTuple):
    """A file that is read and not yet understood."""

    format: Format
    text: str
    n_bytes: int  # unpacked


FORMATS: tuple[Format, ...] = (
    Format("Hugin net", (".net", ".oobn"), hugin.sniff, hugin.parse, hugin_writer.dumps, (".oobn",)),
    Format("BIF", (".bif",), bif.sniff, bif.parse, bif_writer.dumps),
    Format("XMLBIF", (".xmlbif", ".bifxml", ".xml"), xmlbif.sniff, xmlbif.parse, xmlbif_writer.dumps),
    Format("XDSL", (".xdsl",), xdsl.sniff, xdsl.parse, xdsl_writer.dumps),
    Format("DSL", (".dsl",), dsl.sniff, dsl.parse, dsl_writer.dumps),
    Format("DSC", (".dsc",), dsc.sniff, dsc.parse, dsc_writer.dumps),
    Format("UAI", (".uai",), uai.sniff, uai.parse, uai.dumps),
    Format("Ergo", (".erg",), ergo.sniff, ergo.parse, ergo.dumps),
    Format("libDAI factor graph", (".fg",), fg.sniff, fg.parse, fg.dumps),
)

# Formats that are known by their first words and not read: naming them says more than "unknown".
_OTHERS = (
    ("XML of some kind", r"<"),
    ("Netica dne", r"//\s*~->\[DNET"),
    ("Elvira", r"(?://[^\n]*\s*|/\*.*?\*/\s*)*(?:bnet|idiagram)\b"),
)


def formats() -> list[tuple[str, tuple[str, ...], bool]]:
    """What can be read: name, suffixes, and whether it can be written as well."""
    return [(f.name, f.suffixes, f.dumps is not None) for f in FORMATS]


def _supported(*, writing: bool = False) -> str:
    listed = [
        f"{f.name} ({', '.join(s for s in f.suffixes if not writing or s not in f.only_read)})"
        for f in FORMATS
        if f.dumps or not writing
    ]
    return f"{', '.join(listed)}, and each with .gz"


def _by_suffix(path: str) -> Format | None:
    name = path.lower().removesuffix(".gz")
    return next((f for f in FORMATS if name.endswith(f.suffixes)), None)


def _text(raw: bytes, name: str) -> str:
    try:
        declared = declared_text(raw)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    return decode(raw) if declared is None else declared


def read(path: str | os.PathLike[str], *, zero_rows: str = "error") -> DiscreteModel:
    """Read a network file; what it is is decided by its content, then by its suffix.

    Parameters
    ----------
    path : path-like
        A plain or gzip-packed file (seen by content) of one of the `formats`.
    zero_rows : {"error", "uniform"}
        What a CPT row of nothing but zeros means.

    Returns
    -------
    DiscreteModel
        A `BayesianNetwork`, or a `MarkovNetwork` from UAI files that say so and from factor graphs.

    Raises
    ------
    ParseError
        With ``file:line:column`` and what was found and expected.
    FormatError
        For a format that is not known, and for damaged gzip data.
    FileError
        For what the operating system refuses; also an `OSError`. A missing file is a `MissingFileError`.
    """
    if zero_rows not in ("error", "uniform"):
        raise ValueError(f'zero_rows must be "error" or "uniform", not {zero_rows!r}')
    opened = open_text(path)
    return opened.format.parse(opened.text, os.fspath(path), zero_rows=zero_rows)


def open_text(path: str | os.PathLike[str]) -> Opened:
    """A file's text and its format, decided by content, then by suffix; nothing is parsed. Errors as of `read`."""
    name = os.fspath(path)
    raw = read_bytes(name)
    n_bytes = len(raw)
    text = _text(raw, name)
    del raw
    chosen = next((f for f in FORMATS if f.sniff(text)), None)
    if chosen is None:
        head = text[:4096].lstrip()
        for other, pattern in _OTHERS:
            if re.match(pattern, head, re.DOTALL):
                raise FormatError(f"{name}: this looks like {other}, which is not read; what is: {_supported()}")
        chosen = _by_suffix(name)
    if chosen is None:
        raise FormatError(f"{name}: neither its content nor its name is of a known format; read are {_supported()}")
    return Opened(chosen, text, n_bytes)


def write(net: DiscreteModel, path: str | os.PathLike[str]) -> None:
    """Write a network in the format that the file's suffix names; ``.gz`` behind it packs.

    The file is complete or not there: it is written under another name first.

    Raises
    ------
    FormatError
        For a suffix that no writer has, and for what the format cannot carry (named).
    FileError
        For what the operating system refuses; also an `OSError`.
    """
    dumps = writer_of(path).dumps
    assert dumps is not None  # writer_of has seen to it
    save_text(dumps(net), path)


def writer_of(path: str | os.PathLike[str]) -> Format:
    """The format that a file's suffix names, if it can be written; else a `FormatError`."""
    name = os.fspath(path)
    chosen = _by_suffix(name)
    if chosen is None or chosen.dumps is None or name.lower().removesuffix(".gz").endswith(chosen.only_read):
        raise FormatError(f"{name}: no writer for this suffix; written are {_supported(writing=True)}")
    return chosen


def save_text(text: str, path: str | os.PathLike[str]) -> int:
    """Write a text whole or not at all, packed where the name ends in ``.gz``; how many bytes it has unpacked."""
    name = os.fspath(path)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FormatError(f"{name}: {text[error.start]!r} in a name or an attribute is no character") from None
    write_bytes(name, data)
    return len(data)
