"""Tables for terminals: widths, numbers, folding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jtgpu.util.terminal_table import TableStyle, bar, format_number, format_table
from jtgpu.util.text_table import display_width, printable


def test_numbers_are_aligned_at_the_decimal_point() -> None:
    rows: list[tuple[str, str, str | float]] = [
        ("lung", "yes", 0.055),
        ("lung", "no", 0.945),
        ("größe 日本", "x", 1.25e-7),
        ("bronc", "y", "impossible"),
    ]
    assert format_table(("variable", "state", "P"), rows) == [
        "variable    state           P",
        "lung        yes      0.055",
        "lung        no       0.945",
        "größe 日本  x        1.25e-07",
        "bronc       y      impossible",
    ]


def test_columns_can_be_justified_by_hand() -> None:
    assert format_table(("a", "b"), [("x", "1 s"), ("yy", "10 s")], TableStyle(align="lr", header=False)) == [
        "x    1 s",
        "yy  10 s",
    ]


def test_bars_take_the_room_that_is_left() -> None:
    rows = [("yes", 0.5), ("no", 1.0)]
    assert format_table(("a", "P"), rows, TableStyle(bars=True, width=20)) == [
        "a      P",
        "yes  0.5  █████",
        "no   1    ██████████",
    ]
    assert format_table(("a", "P"), rows, TableStyle(bars=True, width=17)) == ["a      P", "yes  0.5", "no   1"]
    assert "#####" in format_table(("a", "P"), rows, TableStyle(bars=True, width=20, blocks=False))[1]
    assert (bar(1.0, 40), bar(0.0), bar(0.5 / 40), bar(7.0, 3)) == ("█" * 40, "", "▌", "███")


def test_long_text_is_folded_and_many_columns_continue_below() -> None:
    long = "a state whose name goes on and on and on"
    assert format_table(("v", "state", "P"), [("x", long, 0.25)], TableStyle(width=30)) == [
        "v  state                     P",
        "x  a state whose name     0.25",
        "   goes on and on and on",
    ]
    lines = format_table(("v", "1", "2", "3"), [("x", "yes", "no", "yes")], TableStyle(width=10))
    assert lines == ["v  1    2", "x  yes  no", "", "v  3", "x  yes"]


@pytest.mark.parametrize(
    ("x", "text"),
    [(0.055, "0.055"), (0.05500000000000001, "0.055"), (1 / 3, "0.333333"), (0.0, "0"), (1.0, "1"), (1e-7, "1e-07"),
     (float("-inf"), "-inf"), (123456.7, "123457"), (7, "7")],
)  # fmt: skip
def test_numbers_have_six_digits(x: float, text: str) -> None:
    assert format_number(x) == text


def test_unprintable_characters_are_escaped() -> None:
    assert format_table(("a\n",), [("\x07",)]) == ["a\\n", "\\x07"]


@given(
    st.lists(st.tuples(st.text(max_size=30), st.text(max_size=60), st.floats(0, 1)), max_size=5), st.integers(40, 120)
)
def test_tables_fit_the_terminal(rows: list[tuple[str, str, float]], width: int) -> None:
    short = [(printable(a)[:8], b, p) for a, b, p in rows]
    lines = format_table(("a", "b", "P"), short, TableStyle(width=width, bars=True))
    assert all(display_width(line) <= width for line in lines)
    assert not any(line != line.rstrip() for line in lines)
