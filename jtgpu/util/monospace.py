"""Text in a monospaced font: how many columns it takes, and text padded or cut to a number of columns."""

from __future__ import annotations

from unicodedata import category, east_asian_width

DOTS = "..."


def char_width(c: str) -> int:
    """Columns that a character takes: 2 for East Asian wide characters, 0 for combining ones."""
    if category(c) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(c) in "WF" else 1


def display_width(text: str) -> int:
    """Columns that a text takes."""
    return len(text) if text.isascii() else sum(map(char_width, text))


def justified(text: str, width: int, *, right: bool = False) -> str:
    """A text, padded with blanks on its right, or on its left with `right`. Longer texts are returned as they are."""
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks


def printable(text: str) -> str:
    """Text that is safe to print on a terminal: unprintable characters are escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def abridged(text: str, most: int) -> str:
    """A text of at most `most` columns: unprintable characters are escaped, and dots replace the end of a long text."""
    start = printable(text[: 2 * most])  # the rest of a text of megabytes is not read
    if len(text) <= 2 * most and display_width(start) <= most:
        return start
    used = 0
    for i, c in enumerate(start):
        used += char_width(c)
        if used > most - len(DOTS):
            return start[:i] + DOTS
    return start + DOTS
