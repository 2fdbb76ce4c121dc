"""Text in pictures: widths without a font, shortening, and what XML allows."""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from unicodedata import category, east_asian_width

# tenths of a pixel of a wide sans-serif font (DejaVu Sans) of 12 pixels
_NARROW, _WIDE = frozenset("fijlrtI.,:;!|'`()[]{}/\\-\" "), frozenset("mwMW@%&")
MAX_TITLE = 200  # characters of a tooltip

# what XML 1.0 does not allow, line ends, and characters that change the direction of the text after them
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """A text on one line with the characters that XML allows; others become U+FFFD."""
    return text if text.isascii() and text.isprintable() else _FORBIDDEN.sub(_replaced, text)


def _replaced(found: re.Match[str]) -> str:
    return " " if found[0] in "\t\n\r" else "\ufffd"


def escaped(text: str) -> str:
    """A text as the contents of an element or a quoted attribute."""
    return escape(clean(text))


def text_width(text: str) -> int:
    """Estimate the width of a text of 12 pixels height, in pixels, rounded up."""
    return -(-sum(map(_char_width, text)) // 10)


@lru_cache(4096)
def _char_width(c: str) -> int:
    if c in _NARROW:
        return 46
    if c in _WIDE:
        return 116
    if c.isascii():
        return 86 if c.isupper() else 76
    if category(c) in ("Mn", "Me", "Cf"):
        return 0
    return 122 if east_asian_width(c) in "WF" or ord(c) > 0xFFFF else 84


@lru_cache(8192)
def shortened(text: str, width: int) -> str:
    """Cut a text to a width in pixels; a text that is cut ends in an ellipsis."""
    text = clean(text[: 2 * width])
    if 122 * len(text) <= 10 * width or text_width(text) <= width:
        return text
    left = 10 * width - 120
    for i, c in enumerate(text):
        left -= _char_width(c)
        if left < 0:
            return text[:i].rstrip() + "\u2026"
    return text


def percent(p: float) -> str:
    """A probability in percent with one decimal; only 0 and 1 appear as 0 and 100."""
    if p <= 0.0:
        return "0"
    if p >= 1.0:
        return "100"
    if p < 0.0005:
        return "<0.1"
    return ">99.9" if p >= 0.9995 else f"{100.0 * p:.1f}"
