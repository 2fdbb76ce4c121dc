"""Tables as text: alignment, numbers, and what is shown of tables that are too long or too wide."""

from __future__ import annotations

import numpy as np
import pytest

from jtgpu.util.text_table import format_cell, format_table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.25, "0.250000"), (0.0, "0.000000"), (1e-9, "1.00000e-09"), (-2.5, "-2.50000"),
        (1.0, "1.000000"), (1 + 1e-12, "1.000000"), (123456.7, "123457"),
        (999999.7, "1.00000e+06"), (9.9999996, "10.0000"), (3e12, "3.00000e+12"),
        (float("-inf"), "-inf"), (None, ""), (float("nan"), ""), (7, "7"), ("yes", "yes"), ("a\nb", "a\\nb"),
        ("x" * 50, "x" * 37 + "..."), (np.float64(0.5), "0.500000"), (True, "True"),
    ],
)  # fmt: skip
def test_cells(value: object, text: str) -> None:
    assert format_cell(value) == text


def test_numbers_are_right_and_texts_left() -> None:
    text = format_table(["name", "p"], [["a", "long"], [0.5, 12.25]])
    assert text.splitlines() == ["name          p", "a      0.500000", "long  12.2500"]
    assert format_table(["", ""], [["a"], [1]]) == "a  1"
    assert format_table(["p"], [[0.5]], digits=2) == "   p\n0.50"


def test_points_are_aligned() -> None:
    lines = format_table(["x", "y"], [[497.0, 58.0, None], [1.0, 0.5, 1.0]]).splitlines()
    assert lines[1:] == ["497.000   1.000000", " 58.0000  0.500000", "          1.000000"]


def test_long_tables_show_both_ends() -> None:
    lines = format_table(["row"], [np.arange(1000)], hint="to_frame() has all").splitlines()
    assert [line.strip() for line in lines[1:12]] == ["0", "1", "2", "3", "4", "...", "995", "996", "997", "998", "999"]
    assert lines[-1] == "[1,000 rows x 1 columns; to_frame() has all]"
    assert len(format_table(["row"], [np.arange(60)]).splitlines()) == 61
    assert len(format_table(["row"], [np.arange(1000)], max_rows=None).splitlines()) == 1001


def test_wide_tables_omit_columns_in_the_middle() -> None:
    columns = [["label"], *([0.5] for _ in range(300))]
    text = format_table(["", *(f"c{i}" for i in range(300))], columns, fixed=1)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].split()[0] == "c0"
    assert lines[0].split()[-1] == "c299"
    assert " ... " in lines[0]
    assert lines[1].startswith("label")
    assert lines[-1] == "[1 rows x 300 columns]"
    assert " ... " not in format_table(["", *(f"c{i}" for i in range(300))], columns, width=None)


def test_tables_without_rows_or_columns() -> None:
    assert format_table(["a", "b"], [[], []]) == "a  b"
    assert format_table([], []) == ""


def test_wide_characters_and_dots_are_padded() -> None:
    lines = format_table(["天気", "n"], [["晴", "rain"], ["a", "b"]]).splitlines()
    assert lines == ["天気  n", "晴    a", "rain  b"]
    lines = format_table(["long name", "p"], [[0.5] * 100, ["x"] * 100]).splitlines()
    assert lines[6] == "      ...  ..."


def test_long_cells_are_cut_to_the_same_width() -> None:
    lines = format_table(["a", "b"], [["x" * 50, "晴" * 50], ["1", "2"]]).splitlines()
    assert lines[1:] == ["x" * 37 + "...  1", "晴" * 18 + "...   2"]  # 40 and 39 columns
