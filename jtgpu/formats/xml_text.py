"""A safe and fast reader of XML network files: elements with positions, numbers in bulk.

The parser is expat with its dangerous features disabled: declared entities are errors, so nothing is expanded or
fetched (a ``DOCTYPE`` is skipped, external DTDs are ignored); attribute defaults of a DTD have no effect; nesting and
the number of elements are limited. Record elements are passed to a callback when they end and are not stored; the text
of number elements is converted to an array directly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn
from xml.parsers import expat

from ..errors import FormatError, ParseError, near, shown
from ..util.arrays import Floats
from .text import SourceText, floats

MAX_DEPTH = 100  # GeNIe nests submodels, but far less deeply
MAX_ELEMENTS = 20_000_000
MAX_MARKUP = 1 << 20  # characters of one tag or comment; expat rescans longer ones repeatedly
LONG_TEXT = 32 << 20  # texts from this length on are checked before expat reads them

# What may precede the root; all alternatives are atomic to exclude exponential backtracking.
_BEFORE = (
    r"\s*+(?>(?:<\?(?>.*?\?>)|<!--(?>.*?-->)|<!DOCTYPE\b[^\[>]*+(?:\[(?>(?:[^\]\"'<]++|\"[^\"]*+\"|'[^']*+'"
    r"|<!--(?>.*?-->)|<)*+)\]\s*+)?+>)\s*+)*+"
)
_ROOT = re.compile(_BEFORE + r"<([A-Za-z_][\w.:-]*+)", re.DOTALL)
_HEAD = 1 << 16  # the root has to begin within so many characters

_TAG_REST = r"(?:[^<>\"']++|\"[^\"<]*+\"|'[^'<]*+')*+>"
_TAG = re.compile(r"<" + _TAG_REST)
_TAG_BYTES = re.compile(rb"<" + _TAG_REST.encode())
_LONG = re.compile(rf"<[^<]{{{MAX_MARKUP}}}")
# What may occur between numbers: comments and instructions (blanks), sections and character references (text).
_BETWEEN = re.compile(
    r"<!--(?>.*?-->)|<\?(?>.*?\?>)|<!\[CDATA\[(?P<cdata>(?>.*?(?=\]\]>)))\]\]>"
    r"|&\#(?:x(?P<hex>[0-9a-fA-F]{1,6})|(?P<dec>[0-9]{1,7}));",
    re.DOTALL,
)
_WORD = re.compile(r"<!--(?>.*?-->)|<\?(?>.*?\?>)|<!\[CDATA\[|\]\]>|(?P<word>[^\s<\]]++)|\]", re.DOTALL)

_EMPTY: Mapping[str, str] = MappingProxyType({})
_NO_ELEMENTS: tuple[Element, ...] = ()


def root_name(text: str) -> str:
    """Name of an XML text's root element; empty if the text is not XML."""
    match = _ROOT.match(text[:_HEAD])
    return match[1] if match else ""


class XmlSource(SourceText):
    """A source whose offsets are those of expat, bytes of the text in UTF-8."""

    __slots__ = ()

    def place(self, offset: int) -> tuple[int, int]:
        """One-based line and column of an offset."""
        if not self.text.isascii():
            offset = len(self.text.encode("utf-8", "surrogatepass")[:offset].decode("utf-8", "ignore"))
        return super().place(offset)


class Element:
    """One element: name, attributes, stored child elements, text or numbers."""
    # at: Offset of its ``<``
    # text: Stripped unless the element has ``xml:space="preserve"``; empty for a number element
    # numbers: float64 array, shape (n,), or None: Of a number element
    # begin, end: Offsets of a number element's content

    __slots__ = ("at", "attributes", "begin", "children", "end", "name", "numbers", "parts")

    def __init__(self, name: str, attributes: Mapping[str, str], at: int):
        self.name, self.attributes, self.at = name, attributes, at
        self.children: Sequence[Element] = _NO_ELEMENTS
        self.parts: list[str] | None = None
        self.numbers: Floats | None = None
        self.begin = self.end = at

    @property
    def text(self) -> str:
        text = "".join(self.parts) if self.parts else ""
        return text if self.attributes.get("xml:space") == "preserve" else text.strip(" \t\r\n")

    def all(self, name: str) -> list[Element]:
        """Children with a name."""
        return [c for c in self.children if c.name == name]

    def one(self, name: str) -> Element | None:
        """The first child with a name; None if there is none."""
        return next((c for c in self.children if c.name == name), None)


def scan(
    source: XmlSource,
    *,
    root: str,
    records: Collection[str],
    numeric: Collection[str],
    on_record: Callable[[Element, Locator, tuple[str, ...]], None],
    fold: Callable[[str], str] = str,
) -> Element:
    """Parse an XML text."""
    # root: Required name of the root
    # records: collection of str: Names of elements that are passed to `on_record` when they end, and not stored
    # numeric: collection of str: Names of elements that contain numbers
    # on_record: Called with the record, a `Locator` and the names of the enclosing elements, outermost first
    # fold: Applied to every element's name
    # returns The root, with all elements that are not records.
    # raises ParseError: If the XML is not well-formed or uses unsupported features.
    return _Scan(source, root, records, numeric, on_record, fold).run()


class Locator:
    """Computes positions in the text of number elements, for error messages."""

    __slots__ = ("_raw", "source")

    def __init__(self, source: XmlSource, raw: Callable[[int, int], str]):
        self.source, self._raw = source, raw

    def number(self, element: Element, position: int) -> int:
        """Offset of a number element's number by its index."""
        return self.word(element.begin, element.end, position)

    def word(self, begin: int, end: int, position: int) -> int:
        """Offset of a word in a range of the text by its index; that of the range if there is none."""
        text = self._raw(begin, end)
        words = _words(text)
        for _ in range(position):
            next(words, None)
        match = next(words, None)
        return begin if match is None else begin + len(text[: match.start()].encode("utf-8", "surrogatepass"))


def _words(text: str) -> Iterator[re.Match[str]]:
    return (m for m in _WORD.finditer(text) if m["word"])


class _Scan:
    """The state of one `scan`: expat's handlers."""

    def __init__(
        self,
        source: XmlSource,
        root: str,
        records: Collection[str],
        numeric: Collection[str],
        on_record: Callable[[Element, Locator, tuple[str, ...]], None],
        fold: Callable[[str], str],
    ):
        self.source, self.root, self.fold, self.on_record = source, root, fold, on_record
        self.records, self.numeric = frozenset(records), frozenset(numeric)
        text = source.text
        self.shift = len(text) - len(text.lstrip(" \t\r\n"))  # expat requires the declaration at the very beginning
        self.data: str | bytes = text if text.isascii() else text.encode("utf-8", "surrogatepass")
        self.stack: list[Element] = []
        self.n_elements = 0
        self.top: Element | None = None
        self.locator = Locator(source, self.raw)
        parser = self.parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.specified_attributes = True  # ignore a DTD's defaults, which could expand a file
        parser.StartElementHandler = self.start
        parser.EndElementHandler = self.end
        parser.CharacterDataHandler = self.characters
        parser.EntityDeclHandler = self.entity
        parser.SkippedEntityHandler = self.skipped
        parser.ExternalEntityRefHandler = self.outside

    def run(self) -> Element:
        self.measure()
        try:
            self.parser.Parse(self.data[self.shift :] if self.shift else self.data, True)
        except expat.ExpatError as error:
            at = max(self.parser.ErrorByteIndex, 0) + self.shift
            raise self.source.error(at, f"found XML that is not well-formed: {expat.ErrorString(error.code)}") from None
        if self.top is None:  # pragma: no cover - expat rejects a text without a root
            raise self.source.error(0, f"found no element, expected <{self.root}>")
        return self.top

    def measure(self) -> None:
        """Reject extremely long tags and comments, which older versions of expat read in quadratic time."""
        text = self.source.text
        if len(text) < LONG_TEXT:
            return
        for match in _LONG.finditer(text):
            tag = _TAG.match(text, match.start(), match.end())
            if tag is None:
                at = len(text[: match.start()].encode())
                self.fail(at, f"a tag of more than {MAX_MARKUP} characters is not supported")
        at = text.find("<!--")
        while at >= 0:
            end = text.find("-->", at + 4)
            if end < 0 or end - at > MAX_MARKUP:
                self.fail(len(text[:at].encode()), f"a comment of more than {MAX_MARKUP} characters is not supported")
            at = text.find("<!--", end)

    def fail(self, at: int, message: str) -> NoReturn:
        raise self.source.error(at, message)

    def here(self) -> int:
        return self.parser.CurrentByteIndex + self.shift

    def raw(self, begin: int, end: int) -> str:
        part = self.data[begin:end]
        return part if isinstance(part, str) else part.decode("utf-8", "surrogatepass")

    # Handlers -------------------------------------------------------------------------------------------------

    def start(self, name: str, attributes: dict[str, str]) -> None:
        written, name, at, stack = name, self.fold(name), self.here(), self.stack
        self.n_elements += 1
        if self.n_elements > MAX_ELEMENTS:
            self.fail(at, f"more than {MAX_ELEMENTS} elements are not supported")
        if len(stack) >= MAX_DEPTH:
            self.fail(at, f"elements nested deeper than {MAX_DEPTH} are not supported")
        if not stack and name != self.root:
            self.fail(at, f"found the root <{shown(written)[1:-1]}>, expected <{self.root}>{near(name, [self.root])}")
        if stack and stack[-1].name in self.numeric:
            self.fail(at, f"found <{shown(written)[1:-1]}> in <{stack[-1].name}>, expected numbers only")
        element = Element(name, attributes or _EMPTY, at)
        if name in self.numeric:
            pattern = _TAG.match if isinstance(self.data, str) else _TAG_BYTES.match
            match = pattern(self.data, at)  # type: ignore[arg-type]
            element.begin = match.end() if match else at
            self.parser.CharacterDataHandler = None
        stack.append(element)

    def end(self, _: str) -> None:
        stack = self.stack
        element = stack.pop()
        if element.name in self.numeric:
            element.end = max(self.here(), element.begin)
            element.numbers = self.numbers_of(element)
            self.parser.CharacterDataHandler = self.characters
        if element.name in self.records:
            self.on_record(element, self.locator, tuple(e.name for e in stack))
        elif stack:
            parent = stack[-1]
            if parent.children is _NO_ELEMENTS:
                parent.children = [element]
            else:
                parent.children.append(element)  # type: ignore[attr-defined]
        else:
            self.top = element

    def characters(self, text: str) -> None:
        element = self.stack[-1]
        if element.parts is None:
            if text.isspace() and element.children is not _NO_ELEMENTS:
                return  # white space between elements
            element.parts = [text]
        else:
            element.parts.append(text)

    def entity(self, name: str, *_: object) -> None:
        self.fail(self.here(), f"the entity {shown(name)} is declared; entities are not supported")

    def skipped(self, name: str, _: bool) -> None:
        self.fail(self.here(), f"the entity {shown(name)} is not declared; entities are not supported")

    def outside(self, *_: object) -> int:
        self.fail(self.here(), "the file refers to an external entity; entities are not supported")

    # Numbers --------------------------------------------------------------------------------------------------

    def numbers_of(self, element: Element) -> Floats:
        begin, end = element.begin, element.end
        if isinstance(self.data, str) and self.plain(self.data, begin, end):
            values = floats(self.data, begin, end)
        else:
            values = floats(_BETWEEN.sub(_plain, self.raw(begin, end)))
        if values is None:
            raise self.bad_number(element)
        return values

    @staticmethod
    def plain(text: str, begin: int, end: int) -> bool:
        return text.find("<", begin, end) < 0 and text.find("&", begin, end) < 0

    def bad_number(self, element: Element) -> ParseError:
        text = self.raw(element.begin, element.end)
        for i, match in enumerate(_words(text)):
            word = _BETWEEN.sub(_plain, match["word"])
            if floats(word) is None:
                at = self.locator.word(element.begin, element.end, i)
                return self.source.error(at, f"found {shown(word)}, expected a number or </{element.name}>")
        return self.source.error(element.begin, f"<{element.name}> contains something that is not a number")


def _plain(match: re.Match[str]) -> str:
    if match["cdata"] is not None:
        return match["cdata"]
    if match["hex"] or match["dec"]:
        code = int(match["hex"], 16) if match["hex"] else int(match["dec"])
        return chr(code) if code < 0x110000 else "?"
    return " "


# Writing ------------------------------------------------------------------------------------------------------

_NEVER = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters outside XML 1.0
_TO_ESCAPE = re.compile('[&<>"\t\n\r]')
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def _escape(match: re.Match[str]) -> str:
    return _ESCAPED.get(match[0]) or f"&#{ord(match[0])};"


def escaped(text: str, what: str) -> str:
    """Escape a text for an element or an attribute's value, on one line; `what` names it in errors."""
    # raises FormatError: If the text contains a control character, which XML cannot represent.
    if match := _NEVER.search(text):
        raise FormatError(f"{what} {shown(text)} cannot be written to XML: it contains the character {match[0]!r}")
    return _TO_ESCAPE.sub(_escape, text)


def attribute(text: str) -> str:
    """`` xml:space="preserve"`` if a reader would otherwise strip the text, else an empty string."""
    return ' xml:space="preserve"' if text != text.strip(" \t\r\n") else ""
