"""The directive ``commands``: arguments, options and examples of every command, from the records that declare them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from jtgpu.cli.commands import described, offered, spelt
from jtgpu.cli.declared import COMMANDS, Command

__all__ = ["command_lines", "setup"]


def command_lines() -> Iterator[str]:
    """The page as reStructuredText: a section for each command, in the order of ``jtgpu --help``."""
    for name, command in COMMANDS.items():
        yield from _section(name, command)


def _section(name: str, command: Command) -> Iterator[str]:
    yield from [f".. _command-{name}:", "", f"jtgpu {name}", "~" * (len(name) + 6), ""]
    yield from [*inspect.cleandoc(command.record.__doc__ or "").split("\n"), ""]
    yield from [".. code-block:: sh", "", *(f"   {line}" for line in command.record.examples), ""]
    yield from [".. list-table::", "   :widths: 35 65", ""]
    for option, field in offered(command).items():
        flags, metavar = spelt(option, field)
        written = ", ".join(f"``{flag}``" for flag in flags if flag.startswith("-"))
        text = " ".join(described(field).split()).replace("*", r"\*").replace("`", "``").replace("````", "``")
        shown = " ".join(filter(None, (written, metavar and f"``{metavar}``"))) or f"``{field.opt.flag}``"
        yield from [f"   * - {shown}", f"     - {text}"]
    yield ""


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
