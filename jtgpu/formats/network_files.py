"""Network files: `read`, `write` and comments. Files are opened here and in `jtgpu.formats.files` only."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar, overload

from ..errors import ArgumentError, FormatError, UnknownSuffix, shown
from ..model.discrete import DiscreteModel
from ..model.dynamic import DynamicNetwork
from ..model.mixed import MixedNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..util.arguments import choice, flag
from ..util.calls import outside
from .files import declared_text, read_bytes, unpacked_name, write_bytes
from .registry import (
    FORMATS,
    UNSUPPORTED,
    UNSUPPORTED_SUFFIXES,
    Format,
    dumps_dynamic,
    dumps_mixed,
    format_of_suffix,
    supported,
)
from .text import decode

if TYPE_CHECKING:
    from ..model.network import BayesianNetwork
    from ..util.options import Decisions, ZeroRows

    Network = DiscreteModel | MixedNetwork | MixedDynamicNetwork
    N = TypeVar("N", bound=Network)


class Opened(NamedTuple):
    """The text of a file and its format; nothing is parsed yet."""

    format: Format
    text: str
    n_bytes: int  # uncompressed


@overload
def read(
    path: str | os.PathLike[str], *, zero_rows: ZeroRows = "error", decisions: Decisions = "network"
) -> BayesianNetwork: ...
@overload
def read(
    path: str | os.PathLike[str], *, kind: type[N], zero_rows: ZeroRows = "error", decisions: Decisions = "network"
) -> N: ...
def read(
    path: str | os.PathLike[str], *, kind: type[N] | None = None, zero_rows: ZeroRows = "error",
    decisions: Decisions = "network",
) -> Network | N:  # fmt: skip
    """Read a network file. The format is recognised by the content, or else by the suffix.

    Parameters
    ----------
    path : path-like
        A file of one of the `formats`, plain or compressed by gzip (recognised by its content).
    kind : type, optional
        The class that the network must have, such as `jtgpu.MixedNetwork`; another one is a `FormatError`. It is the
        type of the result for type checkers, too.
    zero_rows : {"error", "uniform"}
        Whether a CPT row of zeros raises an error or is replaced by the uniform distribution.
    decisions : {"network", "chance"}
        What a file with decisions or utilities becomes: a `DecisionNetwork`, or the Bayesian network of what can be
        read as chance variables. Its decisions are uniform; utilities, nodes that cannot be read (equations, continuous
        nodes ...) and their descendants are left out, and listed in ``net.attributes["read"]["skipped"]``.

    Returns
    -------
    BayesianNetwork
        A `MarkovNetwork` for factor graphs and UAI files of type MARKOV, a `DecisionNetwork` for files with decisions
        or utilities, a `MixedNetwork` for files with numbers (continuous nodes with linear normal densities), a
        `DynamicNetwork` or `MixedDynamicNetwork` for files with slices of time. The annotation without `kind` names the
        class of all other files, so that type checkers know its methods.

    Raises
    ------
    ParseError
        If the file is malformed; the message gives ``file:line:column``, what was found and what was expected. If it
        has nodes that cannot be read, ``error.nodes`` lists all of them.
    FormatError
        If the format is unknown, gzip data are damaged, or the network is not of the `kind`.
    FileError
        If the operating system cannot read the file; also an `OSError`. A missing file raises `MissingFileError`.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.read("nets/asia.net")
    >>> len(net), net.parents("dysp")
    (8, ('bronc', 'either'))
    """
    choice("zero_rows", zero_rows, ("error", "uniform"))
    choice("decisions", decisions, ("network", "chance"))
    opened = open_text(path)
    net = opened.format.parse(opened.text, os.fspath(path), zero_rows=zero_rows, decisions=decisions)
    if kind is not None and not isinstance(net, kind):
        raise FormatError(f"{os.fspath(path)} has a {type(net).__name__}, expected a {kind.__name__}")
    report = getattr(getattr(net, "discrete", net), "row_report", None)
    if report is not None and abs(report.worst_sum - 1.0) > ROUNDING:
        warnings.warn(f"{os.fspath(path)}: {report}", UserWarning, stacklevel=outside())
    return net


ROUNDING = 0.01  # of the sum of a CPT row with few digits; a row that is further from 1 is a mistake: reading it warns


def open_text(path: str | os.PathLike[str]) -> Opened:
    """Read a file's text and recognise its format, without parsing; raises the errors of `read`."""
    name = os.fspath(path)
    raw = read_bytes(name)
    n_bytes = len(raw)
    text = _text(raw, name)
    del raw
    chosen = next((f for f in FORMATS if f.sniff(text)), None)
    if chosen is None:
        head = text[:4096].lstrip()
        if (suffix := os.path.splitext(name)[1].lower()) in UNSUPPORTED_SUFFIXES:
            raise FormatError(f"{name}: this is {UNSUPPORTED_SUFFIXES[suffix]}")
        for other, pattern in UNSUPPORTED:
            if re.match(pattern, head, re.DOTALL):
                raise FormatError(f"{name}: this is {other}, which is not supported; supported are {supported()}")
        chosen = format_of_suffix(name)
    if chosen is None:
        raise FormatError(f"{name}: unknown format, by content and by name; supported are {supported()}")
    return Opened(chosen, text, n_bytes)


def write(
    net: DiscreteModel | MixedNetwork | MixedDynamicNetwork, path: str | os.PathLike[str], *, rename: bool = False
) -> tuple[str, ...]:
    """Write a network in the format of the file's suffix; append ``.gz`` or ``.xz`` to compress.

    The file is written completely or not at all. A file that exists is replaced, as by Python's own functions; the
    commands refuse to do so without ``--force``.

    Parameters
    ----------
    net : DiscreteModel or MixedNetwork
        A `MixedNetwork` can be written to Hugin, XDSL (numbers with numeric parents only) and ``.mixed.json`` files,
        a `DynamicNetwork` to XDSL and ``.dynamic.json`` files, a `MixedDynamicNetwork` to the latter.
    path : path-like
    rename : bool, default False
        Whether names that the format does not allow are changed, as ``jtgpu convert`` changes them: old names become
        labels where the format has these.

    Returns
    -------
    tuple of str
        With `rename`, everything that the format cannot represent, changed names included, one phrase each.

    Raises
    ------
    FormatError
        If the suffix is unknown, or the format cannot represent something in the network; the message names it.
    FileError
        If the operating system cannot write the file; also an `OSError`.

    Examples
    --------
    >>> import jtgpu
    >>> jtgpu.write(jtgpu.load("asia"), "asia.xdsl")  # doctest: +SKIP
    """
    if isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
        if flag("rename", rename):
            raise ArgumentError("rename=True is for networks without slices: rename the variables of a DynamicNetwork")
        save_text(dumps_dynamic(net, writer_of(path, every=True).name), path)
        return ()
    if isinstance(net, MixedNetwork):
        if flag("rename", rename):
            raise ArgumentError("rename=True is for networks without numbers: rename the variables of a MixedNetwork")
        save_text(dumps_mixed(net, writer_of(path, every=True).name), path)
        return ()
    chosen = writer_of(path)
    assert chosen.dumps is not None  # checked by writer_of
    if flag("rename", rename):
        from .conversion import carry  # reading needs no conversion

        made = carry(net, chosen)
        save_text(made.text, path)
        return made.losses
    try:
        text = chosen.dumps(net)
    except FormatError as error:
        from .conversion import carry

        try:
            carry(net, chosen)
        except FormatError:
            raise error from None
        raise FormatError(f"{error}; write(..., rename=True) changes it and returns what it changed") from None
    save_text(text, path)
    return ()


def writer_of(path: str | os.PathLike[str], *, every: bool = False) -> Format:
    """The format of a file's suffix; raises `UnknownSuffix` if no format with this suffix can be written."""
    # every: Include formats of networks with numbers or slices only
    name = os.fspath(path)
    chosen = format_of_suffix(name)
    writer = chosen and (chosen.writer or (every and (chosen.mixed or chosen.dynamic)))
    if chosen is None or not writer or unpacked_name(name.lower()).endswith(chosen.only_read):
        raise UnknownSuffix(f"{name}: no writer for this suffix; supported are {supported(writing=True)}")
    return chosen


def save_text(text: str, path: str | os.PathLike[str]) -> int:
    """Write a text completely or not at all, compressed according to its suffix; its uncompressed size in bytes."""
    name = os.fspath(path)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FormatError(f"{name}: {text[error.start]!r} in a name or an attribute is not a valid character") from None
    write_bytes(name, data)
    return len(data)


def _text(raw: bytes, name: str) -> str:
    try:
        declared = declared_text(raw)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from None
    if declared is not None:
        return declared
    text = decode(raw)
    odd = None if raw.isascii() or _is_utf8(raw) else _GARBLED.search(text)
    if odd:
        warnings.warn(
            f"{name}: the text is not UTF-8, so its encoding is a guess, Latin-1, in which it looks garbled "
            f"({shown(text[max(odd.start() - 8, 0) : odd.end() + 8])}): convert the file to UTF-8",
            UserWarning,
            stacklevel=outside(),
        )
    return text


# Letters of Western languages stand alone between ASCII; in GBK, Shift-JIS and EUC two bytes follow each other.
_GARBLED = re.compile(r"[\x80-\xbf][\x80-\xff]|[\x80-\xff][\x80-\xbf]|[\x80-\x9f]")


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return True


# Comments, which networks do not store: for ``jtgpu info`` and warnings of ``jtgpu convert``.

# Unclosed strings and comments extend to the end of the text; otherwise each of many would be scanned up to there.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_BLOCK = r"/\*(?P<block>[^*]*+(?:\*(?!/)[^*]*+)*+)(?:\*/|\Z)"
_SLASHES = rf"//(?P<line>[^\r\n]*+)|{_BLOCK}"
_XML = r"<!--(?P<block>(?>.*?(?=-->|\Z)))(?:-->|\Z)"
# The syntax of comments; strings are matched, too, so that their contents are not taken for comments.
_PATTERNS = {
    "Hugin net": re.compile(rf"{_STRING}|%(?P<line>[^\r\n]*+)"),
    "BIF": re.compile(rf"{_STRING}|{_SLASHES}"),
    "XMLBIF": re.compile(_XML, re.DOTALL),
    "XDSL": re.compile(_XML, re.DOTALL),
    "DSL": re.compile(rf"{_STRING}|{_SLASHES}|/\#(?P<nested>[^#]*+(?:\#(?!/)[^#]*+)*+)(?:\#/|\Z)"),
    "DSC": re.compile(rf"{_STRING}|{_SLASHES}"),
    "Netica dne": re.compile(rf"{_STRING}|{_SLASHES}"),
    "UAI": re.compile(r"^c(?P<line>[^\r\n]*+)|\#(?P<note>[^\r\n]*+)", re.MULTILINE),
    "Ergo": re.compile(_BLOCK),
    "libDAI factor graph": re.compile(r"\#(?P<line>[^\r\n]*+)"),
}
_LEGAL = re.compile(
    r"\blicen[cs]|\bcopyright|©|\(c\)\s*\d{4}|\bCC[ -]BY|\bpublic domain|\bauthors?\b|\bcreated by|\bwritten by|"
    r"\bproduced by|\bgenerated by|\bsoftware\b|\bcite\b|\bplease acknowledge|https?://",
    re.IGNORECASE,
)
MAX_LINES = 50  # lines stored of each kind
MAX_LENGTH = 500  # characters of a line


@dataclass(frozen=True)
class Comments:
    """The comments of a file."""

    n: int  # number of comments
    head: tuple[str, ...]  # tuple of str: Lines of the comments at the top of the file
    legal: tuple[str, ...]  # tuple of str: Lines anywhere that mention a licence, an author, a program or a source


def find_comments(text: str, format_name: str) -> Comments:
    """Find the comments in the text of a file."""
    n, end, at_top = 0, 0, True
    head: list[str] = []
    legal: dict[str, None] = {}
    for comment in _comments(text, format_name):
        n += 1
        between = text[end : comment.start()]
        at_top = at_top and (not between.strip() or re.fullmatch(r"\s*<\?[^>]*>\s*", between) is not None)
        end = comment.end()
        for line in (comment[comment.lastgroup or 0] or "").splitlines():
            words = line.strip(" \t%#*/=-").strip()[:MAX_LENGTH]
            if words and at_top and len(head) < MAX_LINES:
                head.append(words)
            if words and len(legal) < MAX_LINES and _LEGAL.search(words):
                legal[words] = None
    return Comments(n, tuple(head), tuple(legal))


def _comments(text: str, format_name: str) -> Iterator[re.Match[str]]:
    pattern = _PATTERNS.get(format_name)
    if pattern is None:
        return iter(())
    return (m for m in pattern.finditer(text) if m.lastgroup is not None)
