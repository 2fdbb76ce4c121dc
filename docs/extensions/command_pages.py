"""The directive ``commands``: arguments, options and examples of every command, from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from jtgpu.cli.commands import COMMANDS, app

__all__ = ["command_lines", "setup"]


def command_lines() -> Iterator[str]:
    """The page as reStructuredText: a section for each command, in the order of ``jtgpu --help``."""
    group: Any = typer.main.get_command(app)
    for name in COMMANDS:
        context = group.commands[name].make_context(name, [], resilient_parsing=True)
        yield from _section(name, context.command)


def _section(name: str, command: Any) -> Iterator[str]:
    yield from [f".. _command-{name}:", "", f"jtgpu {name}", "~" * (len(name) + 6), ""]
    yield from [*inspect.cleandoc(command.help or "").replace("\b", "").split("\n"), ""]
    examples = [line.strip() for line in (command.epilog or "").split("\n") if line.startswith("  ")]
    if examples:
        yield from [".. code-block:: sh", "", *(f"   {line}" for line in examples), ""]
    yield from [".. list-table::", "   :widths: 35 65", ""]
    for parameter in command.params:
        if not getattr(parameter, "hidden", False) and parameter.name != "help":
            yield from _row(parameter)
    yield ""


def _row(parameter: Any) -> Iterator[str]:
    """A row of the table: how an option is written, and its help."""
    kind = parameter.metavar or ""
    is_argument = not parameter.opts[0].startswith("-")
    if is_argument:
        written = f"``{kind or parameter.name.upper()}``"
    else:
        spelt = [*parameter.opts, *parameter.secondary_opts]
        written = ", ".join(f"``{s}``" for s in spelt) + (f" ``{kind}``" if kind else "")
    text = " ".join(str(parameter.help or "").split()).replace("*", r"\*").replace("`", "``").replace("````", "``")
    yield from [f"   * - {written}", f"     - {text}{_default(parameter)}"]


def _default(parameter: Any) -> str:
    """What applies if an option is not given, where its help does not say so."""
    value = parameter.default
    if not parameter.show_default or callable(value) or isinstance(value, bool) or value in (None, "", (), []):
        return ""
    return f" Default: ``{value}``."


class Commands(SphinxDirective):
    """See the module."""

    def run(self) -> list[nodes.Node]:
        """Parse the generated text in place of the directive."""
        self.content = StringList(list(command_lines()), source="jtgpu --help")
        self.content_offset = self.lineno
        return self.parse_content_to_nodes(allow_section_headings=True)


def setup(sphinx: Sphinx) -> dict[str, bool]:
    """Register."""
    sphinx.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
