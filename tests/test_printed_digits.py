"""No test compares digits or bits of numbers that depend on the processor.

The last digits of what BLAS computes differ between its kernels, and those of a sum between vector widths. ``repr`` and
``print`` show six significant digits; twice, a comparison of 17 failed on another machine.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.conftest import ROOT

MOST = 6  # significant digits
NUMBER = re.compile(r"(?<![\w.])[+-]?(\d+\.\d+)(?:e[+-]?\d+)?")
# Numbers of tests that no BLAS computes: they are compared as text on purpose, because the file or cell has all digits.
EXACT = {
    "tests/formats/test_bif.py": "a number of a file is replaced",
    "tests/columns/table.py": "cells and names of states have all digits",
    "tests/model/test_quick.py": "names of states are written with seven digits",
    "tests/formats/test_formats.py": "numbers written to files read back with all bits",
    "tests/cli/test_tables.py": "tab-separated answers have all digits",
    "tests/inference/test_sensitivity.py": "a table for spreadsheets has all digits",
}
# Tests of numbers that compare bits on purpose: BLAS does not compute them, or the same call computes both.
SAME = {
    "test_densities_can_be_fixed_and_a_network_is_a_start": "fixed densities are copied",
    "test_decimals_are_numbers": "equal input, two kinds of columns",
    "test_gpu_scores_numbers": "a GPU's scores are those of the CPU",
    "test_scores_of_numbers_are_those_of_the_cpu": "a GPU's scores are those of the CPU",
    "test_equivalent_graphs_have_equal_scores": "keys are graphs",
    "test_units_and_threads_change_nothing": "powers of 2 and threads change no bit",
    "test_several_files_with_numbers_are_one_table": "equal input, from files and in memory",
    "test_frames_of_floats_are_read_at_once": "equal input, two kinds of tables",
    "test_a_mixed_template_has_what_a_template_has": "CPTs and densities are copied",
    "test_networks_with_numbers_decisions_and_time_take_codes": "equal input, with and without codes",
    "test_fit_of_numbers_takes_the_options_of_fit": "a fixed density is copied",
    "test_arcs_over_time": "CPTs that an arc is added to and removed from are copied",
    "test_experience_is_cases_of_the_network": "no row has an x: its density is copied",
}
OF_NUMBERS = re.compile(r"Gaussian\(|MixedNetwork|\bbge\b|bic-cg|\.gaussian\(|numbers=")
BITS = {"tobytes", "assert_array_equal", "array_equal"}


def digits(text: str) -> int:
    """Significant digits of the longest number in a text."""
    found = [m[1].lstrip("0").replace(".", "").lstrip("0").rstrip("0") for m in NUMBER.finditer(text)]
    return max(map(len, found), default=0)


def test_the_rule_finds_what_failed() -> None:
    assert digits("Gaussian(mean=-85.22447844040443, sd=8.94989465886958)") > MOST
    assert digits("Gaussian(mean=-85.2245, sd=8.94989)") <= MOST
    assert digits("15.8095  497.000000") <= MOST


def test_no_test_compares_printed_digits() -> None:
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if path == Path(__file__) or name in EXACT:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Compare, ast.Call)):
                texts = (p for p in ast.walk(node) if isinstance(p, ast.Constant) and isinstance(p.value, str))
                found += [(name, p.lineno, str(p.value)[:80]) for p in texts if digits(str(p.value)) > MOST]
    assert found == []


def outputs(path: Path) -> list[str]:
    """What examples are said to print: blocks of text on pages, and the lines after ``>>>``."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rst":
        blocks = re.findall(r"\.\. code-block:: text\n\n((?:(?: {4}.*)?\n)+)", text)
        return [line for block in blocks for line in block.splitlines()]
    found, after = [], False
    for line in text.splitlines():
        code = line.lstrip().startswith((">>>", "..."))
        after = code or (after and bool(line.strip()))
        if after and not code:
            found.append(line)
    return found


def test_no_example_prints_more_digits() -> None:
    paths = [*sorted((ROOT / "docs").glob("*.rst")), ROOT / "README.rst", *sorted((ROOT / "jtgpu").rglob("*.py"))]
    assert [(p.name, line) for p in paths for line in outputs(p) if digits(line) > MOST] == []


def compares_bits(node: ast.AST) -> bool:
    """Whether this is a comparison of all bits, or of densities by ``==``."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        equal = isinstance(node.ops[0], ast.Eq)
        return equal and any(isinstance(s, ast.Call) and ast.unparse(s.func).endswith(".gaussian") for s in sides)
    return getattr(node, "attr", getattr(node, "id", None)) in BITS


def test_no_test_compares_bits_of_numbers() -> None:
    found = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(test, ast.FunctionDef) or not test.name.startswith("test_"):
                continue
            if OF_NUMBERS.search(ast.unparse(test)) and any(map(compares_bits, ast.walk(test))):
                found.add(test.name)
    assert found - {*SAME} == set()
    assert {*SAME} - found == set()
