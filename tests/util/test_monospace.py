"""Text in a monospaced font: widths, padding, cutting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.util.text_table import abridged, display_width, justified, printable


def test_width() -> None:
    assert display_width("größe") == 5
    assert display_width("gro\u0308ße") == 5  # a combining character
    assert display_width("日本") == 4


def test_padding_counts_columns() -> None:
    assert justified("日本", 6) == "日本  "
    assert justified("日本", 6, right=True) == "  日本"
    assert justified("longer", 3) == "longer"


def test_unprintable_characters_are_escaped() -> None:
    assert printable("a\x1b[31mb\n\udc80") == "a\\x1b[31mb\\n\\udc80"


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("short", "short"), ("x" * 8, "x" * 8), ("x" * 9, "xxxxx..."), ("日本日本", "日本日本"),
        ("日本日本x", "日本..."), ("o\u0308" * 8, "o\u0308" * 8), ("o\u0308" * 9, "o\u0308" * 5 + "..."),
        ("a\nbcdefgh", "a\\nbc..."), ("", ""),
    ],
)  # fmt: skip
def test_long_texts_are_cut(text: str, short: str) -> None:
    assert abridged(text, 8) == short


@given(st.text(max_size=60), st.integers(4, 20))
def test_texts_fit(text: str, most: int) -> None:
    found = abridged(text, most)
    assert display_width(found) <= most
    assert found.isprintable()
    assert found == printable(text) or found.endswith("...")
