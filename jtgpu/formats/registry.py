"""The table of network file formats: the one place where a format is registered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import FormatError
from .files import PACKED, unpacked_name

if TYPE_CHECKING:
    from ..model.discrete import DiscreteModel
    from ..model.dynamic import DynamicNetwork
    from ..model.mixed import MixedNetwork
    from ..model.mixed_dynamic import MixedDynamicNetwork


@dataclass(frozen=True)
class Format:
    """One format of network files; its modules are imported when a file is read or written."""

    name: str  # as messages and ``jtgpu info`` show it
    suffixes: tuple[str, ...]  # tuple of str: Lower case, with the dot; ``.gz`` or ``.xz`` may follow each
    reader: str  # module of this package with ``sniff`` and ``parse``
    writer: str = ""  # module of this package with ``dumps``; empty if the format can only be read
    only_read: tuple[str, ...] = ()  # tuple of str: Suffixes that are read and not written
    mixed: str = ""  # module of this package with ``dumps_mixed``; empty if the format has no numbers
    dynamic: str = ""  # module of this package with ``dumps_dynamic``; empty if the format has no slices

    def sniff(self, text: str) -> bool:
        """Whether a text begins like this format."""
        begins: bool = _module(self.reader).sniff(text)
        return begins

    def parse(self, text: str, source: str = "<text>", **options: object) -> DiscreteModel:
        """Parse a text; raises `ParseError`."""
        net: DiscreteModel = _module(self.reader).parse(text, source, **options)
        return net

    @property
    def dumps(self) -> Callable[[DiscreteModel], str] | None:
        """The function that turns a network into the text of a file; None if the format can only be read."""
        if not self.writer:
            return None
        function: Callable[[DiscreteModel], str] = _module(self.writer).dumps
        return function


def _module(name: str) -> ModuleType:
    return import_module(f".{name}", __package__)


FORMATS: tuple[Format, ...] = (
    Format("Hugin net", (".net", ".oobn"), "hugin", "hugin_values", (".oobn",), mixed="hugin_values"),
    Format("BIF", (".bif",), "bif", "bif"),
    Format("XMLBIF", (".xmlbif", ".bifxml", ".xml"), "xmlbif", "xmlbif"),
    Format("XDSL", (".xdsl",), "xdsl", "xdsl", mixed="xdsl", dynamic="xdsl"),
    Format("DSL", (".dsl",), "dsl", "dsl"),
    Format("DSC", (".dsc",), "dsc", "dsc"),
    Format("Netica dne", (".dne", ".dnet"), "dne"),
    Format("UAI", (".uai",), "uai", "uai"),
    Format("Ergo", (".erg",), "ergo", "ergo"),
    Format("libDAI factor graph", (".fg",), "fg", "fg"),
    Format("JSON", (".mixed.json",), "mixed_json", mixed="mixed_json"),
    Format("dynamic JSON", (".dynamic.json",), "dynamic_json", dynamic="dynamic_json"),
)

# Formats that are recognised but not supported, for a better message than "unknown format".
UNSUPPORTED_SUFFIXES = {
    ".neta": "Netica's binary format: save the network as .dne there",
    ".pgmx": "ProbModelXML (OpenMarkov): save the network as .net (Hugin) or .bif there",
}
UNSUPPORTED = (
    ("a zip archive", r"PK\x03\x04"),
    ("a file compressed by bzip2", r"BZh[1-9]1AY"),
    ("a file compressed by Zstandard", r"\x28\xb5\x2f\xfd"),
    ("a file compressed by 7-Zip", r"7z\xbc\xaf\x27\x1c"),
    ("a PDF document", r"%PDF-"),
    ("a pickled object of Python", r"\x80[\x02-\x05][\x95cC}(]"),
    ("ProbModelXML (OpenMarkov)", r"(?:<\?[^>]{0,200}+>\s*+|<!--[^>]{0,200}+>\s*+)*+<ProbModelXML\b"),
    ("an XML file of another kind", r"<"),
    ("Elvira", r"(?:\s*+(?://[^\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/))*+\s*+(?:bnet|idiagram)\b"),
)


# formats of networks with numbers, and with slices, in words
MIXED, DYNAMIC = (
    " and ".join(", ".join(f"{f.name} ({f.suffixes[0]})" for f in FORMATS if getattr(f, kind)).rsplit(", ", 1))
    for kind in ("mixed", "dynamic")
)


def cannot_contain(format_name: str, what: str = f"numbers; formats that can are {MIXED}") -> FormatError:
    """The error for a network of a kind that a format does not have."""
    return FormatError(f"{'an' if format_name[0] in 'EX' else 'a'} {format_name} file cannot contain {what}")


def dumps_mixed(net: MixedNetwork, format_name: str) -> str:
    """The text of a file with a mixed network."""
    # raises FormatError: If the format has no numbers, or cannot represent something in the network.
    for known in FORMATS:
        if known.name == format_name and known.mixed:
            text: str = _module(known.mixed).dumps_mixed(net)
            return text
    raise cannot_contain(format_name)


def dumps_dynamic(net: DynamicNetwork | MixedDynamicNetwork, format_name: str) -> str:
    """The text of a file with a dynamic network."""
    # raises FormatError: If the format has no slices, or cannot represent something in the network.
    if hasattr(net, "numbers") and format_name != "dynamic JSON":
        raise cannot_contain(format_name, "a dynamic network with numbers; write .dynamic.json")
    for known in FORMATS:
        if known.name == format_name and known.dynamic:
            text: str = _module(known.dynamic).dumps_dynamic(net)
            return text
    what = f"a dynamic network; formats that can are {DYNAMIC}"
    raise cannot_contain(format_name, f"{what}, and dyn.unroll(10) is the Bayesian network of ten slices")


def formats() -> list[tuple[str, tuple[str, ...], bool]]:
    """The supported formats: name, suffixes, and whether the format can also be written."""
    return [(f.name, f.suffixes, bool(f.writer)) for f in FORMATS]


def file_suffixes() -> tuple[str, ...]:
    """The suffixes of network files, without compression and with it."""
    return tuple(suffix + packed for known in FORMATS for suffix in known.suffixes for packed in ("", *PACKED))


def supported(*, writing: bool = False) -> str:
    """The formats that are read, or those that are written, in words."""
    listed = [
        f"{f.name} ({', '.join(s for s in f.suffixes if not writing or s not in f.only_read)})"
        for f in FORMATS
        if f.writer or not writing
    ]
    return f"{', '.join(listed)}, and each with .gz or .xz"


def format_of_suffix(path: str) -> Format | None:
    """The format that a file name belongs to, if any."""
    name = unpacked_name(path.lower())
    return next((f for f in FORMATS if name.endswith(f.suffixes)), None)
