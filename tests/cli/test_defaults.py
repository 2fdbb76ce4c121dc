"""Options are the same in Python, on the command line and over HTTP: names, defaults and choices cannot drift."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, get_args

import click
import pytest

from jtgpu import learn, screen
from jtgpu.backends import BACKENDS
from jtgpu.cases.query import TableKeywords
from jtgpu.cli.commands import _FieldType, offered
from jtgpu.cli.declared import COMMANDS
from jtgpu.errors import ArgumentError
from jtgpu.inference.network_plan import NetworkPlan
from jtgpu.inference.planning import make_plan
from jtgpu.learn.parameters.fit import fit
from jtgpu.options.record import defaults_of as defaults_of_record
from jtgpu.options.record import fields_of
from jtgpu.options.tables import CsvDialect, FileKeywords, FileOptions, TableOptions
from jtgpu.util import options


def parameters(command: str) -> Mapping[str, Any]:
    """The fields of a command by name."""
    return offered(COMMANDS[command])


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The defaults of a function's parameters."""
    declared = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in declared if p.default is not inspect.Parameter.empty}


def test_keywords_of_tables_and_files_are_the_fields_of_their_records() -> None:
    assert set(TableKeywords.__annotations__) == {*defaults_of_record(TableOptions)}
    dialect = {*defaults_of_record(CsvDialect)}
    assert set(FileKeywords.__annotations__) == {*defaults_of_record(FileOptions)} - {"dialect"} | dialect


@pytest.mark.parametrize("record", [TableOptions, FileOptions, CsvDialect])
def test_the_command_line_offers_the_options_of_tables_with_their_defaults(record: Any) -> None:
    offered = parameters("batch")
    for name, option in fields_of(record).items():
        assert offered[name] == option


def test_python_the_command_line_and_http_accept_the_same_choices() -> None:
    for name, field in fields_of(TableOptions).items():
        if field.choices:
            wrong: dict[str, Any] = {name: "nothing"}
            with pytest.raises(ArgumentError, match=name):
                TableOptions(**wrong)
            with pytest.raises(click.BadParameter, match=", ".join(field.choices)):
                _FieldType(field).convert("nothing", None, None)


def test_http_describes_the_options_of_tables_with_their_defaults() -> None:
    pytest.importorskip("msgspec")
    pytest.importorskip("starlette")
    from jtgpu.serve.openapi import openapi

    described = json.loads(openapi())["paths"]["/v1/networks/{network}/table"]["post"]["parameters"]
    schemas = {p["name"]: p["schema"] for p in described}
    for name, option in fields_of(TableOptions).items():
        default = option.default
        if option.kind is bool:
            assert schemas[name] == {"type": "boolean", "default": default}
        elif option.choices:
            assert schemas[name] == {"enum": [*option.choices], "default": default}
        else:
            assert "default" not in schemas[name]
            assert not default


# command -> function of Python, and options whose default means the same with another value or under another name
PAIRS: dict[str, tuple[tuple[Callable[..., Any], ...], set[str]]] = {
    "fit": ((fit,), {
        "hidden", "fixed", "tied", "states", "structure", "pseudo_counts",
    }),
    "learn": ((learn.structure, learn.posterior), {
        "chains", "tolerance", "tempering", "progress", "states", "missing",
    }),
    "screen": ((screen.top_outliers,), {"progress", "devices"}),
    "plan": ((make_plan,), {"max_table", "slices"}),
}  # fmt: skip


@pytest.mark.parametrize("command", PAIRS)
def test_commands_have_the_defaults_of_python(command: str) -> None:
    functions, others = PAIRS[command]
    compared = set()
    for function in functions:
        defaults = defaults_of(function)
        for name, parameter in parameters(command).items():
            if name in defaults and name not in others:
                compared.add(name)
                assert (parameter.default or None) == (defaults[name] or None), f"{command}: {name}"
    assert compared


def test_help_has_the_defaults_of_planning() -> None:
    assert f"Default: {defaults_of(make_plan)['max_table']:,}." in parameters("plan")["max_table"].opt.help


def test_the_backends_of_the_command_line_are_those_of_python() -> None:
    assert set(get_args(options.BackendName)) == {"auto", *BACKENDS}
    assert defaults_of(NetworkPlan.compile)["backend"] == parameters("query")["backend"].default
    assert parameters("query")["dtype"].default == get_args(options.Dtype)[0]


def test_the_server_has_the_defaults_of_its_settings() -> None:
    pytest.importorskip("starlette")
    from jtgpu.serve.settings import Settings

    offered = parameters("serve")
    for name, field in fields_of(Settings).items():
        if name in offered:
            default = offered[name].default
            assert default == field.default or (field.default in ("", ()) and not default), name


def test_the_words_of_the_command_line_are_those_of_python() -> None:
    from jtgpu.inference.competition import TASKS
    from jtgpu.learn.dags.posterior.posterior import POSTERIOR_METHODS
    from jtgpu.learn.dags.scores.coded import CONSTANT_CHOICES, MISSING_CHOICES
    from jtgpu.learn.dags.scores.rules import NUMERIC_SCORES, SCORES
    from jtgpu.learn.dags.structure import METHODS
    from jtgpu.screen.columns import METRICS, MISSING_RULES, SCALES

    learned, screened = parameters("learn"), parameters("screen")
    assert learned["method"].choices == tuple(dict.fromkeys(METHODS + POSTERIOR_METHODS))
    assert learned["score"].choices == (*SCORES, *NUMERIC_SCORES)
    assert (learned["missing"].choices, learned["constant"].choices) == (
        (*MISSING_CHOICES, "augment", "em"), CONSTANT_CHOICES
    )
    assert (screened["metric"].choices, screened["scale"].choices) == (METRICS, SCALES)
    assert screened["missing"].choices == MISSING_RULES
    assert ", ".join(TASKS) in parameters("solve")["task"].opt.help
