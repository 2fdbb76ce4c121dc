"""Tables on a terminal and in a pipe: widths, digits, colours."""

from __future__ import annotations

import importlib

import pytest

from jtgpu.cli import tables
from tests.cli.commands import ASIA, REFERENCE, run

MODULES = ("tables", "query", "explain")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Stdout is a terminal of 80 columns without colours."""
    modules = [importlib.import_module(f"jtgpu.cli.{name}") for name in MODULES]
    for module in modules:
        monkeypatch.setattr(module, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    return monkeypatch


def test_posteriors_on_a_terminal(terminal: pytest.MonkeyPatch) -> None:
    words = ("query", ASIA, "-e", "xray=yes", "-t", "lung,bronc", *REFERENCE)
    assert run(*words).stdout.splitlines() == [
        "variable  state         P",
        "lung      yes    0.488711  ███████████████████▌",
        "          no     0.511289  ████████████████████▌",
        "bronc     yes    0.506326  ████████████████████▎",
        "          no     0.493674  ███████████████████▊",
        "ln P(evidence) = -2.20464",
    ]
    assert run(*words, "--digits", "3").stdout.splitlines()[1:3] == [
        "lung      yes    0.489  ███████████████████▌",
        "          no     0.511  ████████████████████▌",
    ]


def test_colours_on_a_terminal_unless_it_has_none(terminal: pytest.MonkeyPatch) -> None:
    words = ("query", ASIA, "-t", "smoke", *REFERENCE)
    terminal.delenv("NO_COLOR")
    terminal.setenv("TERM", "xterm")
    assert run(*words).stdout.splitlines()[:2] == [
        "\x1b[1mvariable\x1b[0m  \x1b[1mstate\x1b[0m    \x1b[1mP\x1b[0m",
        "smoke     yes    0.5  \x1b[36m████████████████████\x1b[0m",
    ]
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with terminal.context() as patch:
            patch.setenv(name, value)
            assert "\x1b" not in run(*words).stdout


def test_many_columns_continue_below_on_a_narrow_terminal(terminal: pytest.MonkeyPatch) -> None:
    words = ("mpe", ASIA, "-t", "lung,tub,asia,bronc", "-k", "9", *REFERENCE)
    narrow = run(*words).stdout
    assert max(map(len, narrow.splitlines())) <= 80
    assert narrow.count("variable") == 2
    terminal.setenv("COLUMNS", "200")
    wide = run(*words).stdout.splitlines()
    assert wide[0].split() == ["variable", *"123456789"]
    assert [line.split()[0] for line in wide[1:]] == ["lung", "tub", "asia", "bronc", "P", "ln"]


def test_every_command_with_numbers_takes_digits(terminal: pytest.MonkeyPatch) -> None:
    terminal.setenv("COLUMNS", "120")
    voi = run("voi", ASIA, "-t", "lung", "-c", "smoke", "--digits", "2", *REFERENCE).stdout.splitlines()
    assert voi == [
        "H(lung) now: 0.31 bits",
        "",
        "variable  gain (bits)  expected entropy (bits)  expected accuracy",
        "smoke           0.032                     0.27               0.95",
    ]
    found = run("sensitivity", ASIA, "lung=yes", "-n", "1", "--digits", "2", *REFERENCE).stdout.splitlines()
    assert found[0] == "P(lung = yes) now: 0.055"
    assert found[2].split() == ["parameter", "value", "derivative", "P", "at", "low", "P", "at", "high"]
    text = run("query", ASIA, "P(lung | smoke)", "--digits", "1", *REFERENCE).stdout.splitlines()
    assert text[:3] == ["P(lung | smoke)", "smoke  lung     P", "yes    yes   0.1   ████"]


def test_a_pipe_gets_all_digits_unless_asked_otherwise() -> None:
    words = ("query", ASIA, "-t", "lung", *REFERENCE)
    assert run(*words).stdout.splitlines() == ["lung\tyes\t0.05500000000000001", "lung\tno\t0.9450000000000001"]
    assert run(*words, "--digits", "6").stdout.splitlines() == ["lung\tyes\t0.055", "lung\tno\t0.945"]
    assert run(*words, "--digits", "0").exit_code == 2


def test_reports_are_aligned_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    tables.print_report(("name", "n"), [("a", "1,000"), ("long", "7")], "lr")
    assert capsys.readouterr().out == "name      n\na     1,000\nlong      7\n"


def test_whole_numbers_stand_to_the_right_and_none_is_empty(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("a", 7, 0.5), ("b", 12, None)]
    tables.print_rows(("name", "rows", "share"), rows)
    assert capsys.readouterr().out.splitlines() == ["name  rows  share", "a        7  0.5", "b       12"]
    terminal.setattr(tables, "on_terminal", lambda: False)
    tables.print_rows(("name", "rows", "share"), rows)
    assert capsys.readouterr().out.splitlines() == ["name\trows\tshare", "a\t7\t0.5", "b\t12\t"]


def test_notes_are_folded_on_a_terminal(terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.setenv("COLUMNS", "50")
    text = "one two three four five six seven eight nine ten eleven\ntwelve"
    tables.print_note(text)
    assert capsys.readouterr().out.splitlines() == [
        "one two three four five six seven eight nine ten", "eleven", "twelve",
    ]  # fmt: skip
    terminal.setattr(tables, "on_terminal", lambda: False)
    tables.print_note(text)
    assert capsys.readouterr().out.splitlines() == [f"# {line}" for line in text.splitlines()]
