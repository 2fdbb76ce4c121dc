"""Options of tables of cases."""

from __future__ import annotations

from jtgpu.options.tables import CsvDialect, ReadOptions


def test_commands_and_functions_continue_each_others_runs() -> None:
    """A command gives all options of reading, a function the dialect: an interrupted run is the same run."""
    assert ReadOptions(delimiter=";", na_values=["?"]).identity == CsvDialect(delimiter=";").identity
    assert CsvDialect(quote="'").identity != CsvDialect().identity
