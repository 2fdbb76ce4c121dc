"""The table of network file formats: the one place where a format is registered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..model.network import DiscreteModel
from . import ergo, fg, uai
from .bif import reader as bif
from .bif import writer as bif_writer
from .dsc import reader as dsc
from .dsc import writer as dsc_writer
from .dsl import reader as dsl
from .dsl import writer as dsl_writer
from .hugin import reader as hugin
from .hugin import writer as hugin_writer
from .xdsl import reader as xdsl
from .xdsl import writer as xdsl_writer
from .xmlbif import reader as xmlbif
from .xmlbif import writer as xmlbif_writer

__all__ = ["FORMATS", "UNSUPPORTED", "Format", "format_of_suffix", "formats", "supported"]


@dataclass(frozen=True)
class Format:
    """One format of network files.

    Attributes
    ----------
    name : str
        As messages and ``jtgpu info`` show it.
    suffixes : tuple of str
        Lower case, with the dot; ``.gz`` may follow each.
    sniff : callable
        ``sniff(text)``: whether a text begins like this format.
    parse : callable
        ``parse(text, source, zero_rows=...)``: the network; raises `ParseError`.
    dumps : callable or None
        ``dumps(network)``: the text of a file; None if the format can only be read.
    only_read : tuple of str
        Suffixes that are read and not written.
    """

    name: str
    suffixes: tuple[str, ...]
    sniff: Callable[[str], bool]
    parse: Callable[..., DiscreteModel]
    dumps: Callable[[DiscreteModel], str] | None = None
    only_read: tuple[str, ...] = ()


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

# Formats that are recognised but not supported, for a better message than "unknown format".
UNSUPPORTED = (
    ("a zip archive", r"PK\x03\x04"),
    ("a file compressed by bzip2", r"BZh[1-9]1AY"),
    ("a file compressed by xz", r"\xfd7zXZ"),
    ("a file compressed by Zstandard", r"\x28\xb5\x2f\xfd"),
    ("a file compressed by 7-Zip", r"7z\xbc\xaf\x27\x1c"),
    ("a PDF document", r"%PDF-"),
    ("a pickled object of Python", r"\x80[\x02-\x05][\x95cC}(]"),
    ("an XML file of another kind", r"<"),
    ("Netica dne", r"//\s*~->\[DNET"),
    ("Elvira", r"(?://[^\n]*\s*|/\*.*?\*/\s*)*(?:bnet|idiagram)\b"),
)


def formats() -> list[tuple[str, tuple[str, ...], bool]]:
    """The supported formats: name, suffixes, and whether the format can also be written."""
    return [(f.name, f.suffixes, f.dumps is not None) for f in FORMATS]


def supported(*, writing: bool = False) -> str:
    """The formats that are read, or those that are written, in words."""
    listed = [
        f"{f.name} ({', '.join(s for s in f.suffixes if not writing or s not in f.only_read)})"
        for f in FORMATS
        if f.dumps or not writing
    ]
    return f"{', '.join(listed)}, and each with .gz"


def format_of_suffix(path: str) -> Format | None:
    """The format that a file name belongs to, if any."""
    name = path.lower().removesuffix(".gz")
    return next((f for f in FORMATS if name.endswith(f.suffixes)), None)
