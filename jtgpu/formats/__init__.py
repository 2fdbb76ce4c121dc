"""Network files: `read` by content, `write` by suffix, one module a format.

A format is a module with ``sniff(text)``, ``parse(text, source, zero_rows=)`` and, where it can be written,
``dumps(net)``; `FORMATS` lists them. Files are only touched here and in `jtgpu.formats.files`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import FormatError
from ..network import DiscreteModel
from . import bif, hugin, hugin_writer
from .files import FileError, MissingFileError, read_bytes, write_bytes
from .text import decode

__all__ = ["FORMATS", "FileError", "Format", "MissingFileError", "formats", "read", "write"]


@dataclass(frozen=True)
class Format:
    """One format of network files.

    Attributes
    ----------
    name : str
    suffixes : tuple of str
        Lower case, with the dot; each also with ``.gz`` behind it. The first is the one that is written.
    sniff : callable
        Does a text begin as this format does?
    parse : callable
        ``parse(text, source, zero_rows=...)`` gives the network, or raises `ParseError`.
    dumps : callable or None
        A network as text; None for a format that is only read.
    """

    name: str
    suffixes: tuple[str, ...]
    sniff: Callable[[str], bool]
    parse: Callable[..., DiscreteModel]
    dumps: Callable[[DiscreteModel], str] | None = None


FORMATS: tuple[Format, ...] = (
    Format("Hugin net", (".net", ".oobn"), hugin.sniff, hugin.parse, hugin_writer.dumps),
    Format("BIF", (".bif",), bif.sniff, bif.parse),
)

# Formats that are known by their first words and not read: naming them says more than "unknown".
_OTHERS = (
    ("XMLBIF", r"<\?xml.*<BIF\b|<BIF\b"),
    ("GeNIe xdsl", r"<\?xml.*<smile\b|<smile\b"),
    ("XML of some kind", r"<"),
    ("Netica dne", r"//\s*~->\[DNET"),
    ("Elvira", r"(?://[^\n]*\s*|/\*.*?\*/\s*)*(?:bnet|idiagram)\b"),
    ("GeNIe dsl", r"net\s+\w+\s*\{"),
    ("MSBN dsc", r"belief\s+network\b"),
    ("UAI", r"(?:c[^\n]*\n\s*)*(?:MARKOV|BAYES)\b"),
)


def formats() -> list[tuple[str, tuple[str, ...], bool]]:
    """What can be read: name, suffixes, and whether it can be written as well."""
    return [(f.name, f.suffixes, f.dumps is not None) for f in FORMATS]


def _supported(*, writing: bool = False) -> str:
    suffixes = [(f.name, f.suffixes[:1] if writing else f.suffixes) for f in FORMATS if f.dumps or not writing]
    listed = [f"{name} ({', '.join(known)})" for name, known in suffixes]
    return f"{', '.join(listed)}, and each with .gz"


def _by_suffix(path: str) -> Format | None:
    name = path.lower().removesuffix(".gz")
    return next((f for f in FORMATS if name.endswith(f.suffixes)), None)


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
        A `BayesianNetwork` from every format of today.

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
    name = os.fspath(path)
    raw = read_bytes(name)
    text = decode(raw)
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
    return chosen.parse(text, name, zero_rows=zero_rows)


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
    name = os.fspath(path)
    chosen = _by_suffix(name)
    if chosen is None or chosen.dumps is None or not name.lower().removesuffix(".gz").endswith(chosen.suffixes[0]):
        raise FormatError(f"{name}: no writer for this suffix; written are {_supported(writing=True)}")
    text = chosen.dumps(net)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FormatError(f"{name}: {text[error.start]!r} in a name or an attribute is no character") from None
    write_bytes(name, data)
