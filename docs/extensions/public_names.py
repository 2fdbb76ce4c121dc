"""The directive ``public``: the reference of public names.

.. code-block:: rst

    .. public:: jtgpu.series

documents everything in ``jtgpu.series.__all__`` that ``jtgpu`` does not export itself. With lines of content it
documents the names listed there.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = ["documented_on", "names_of", "setup"]

# methods of these base classes are documented by Python
BASES = "object,ndarray,tuple,dict,Mapping,Sequence,Exception,BaseException,str,TypedDict,KeysView"


def exported(module: str) -> list[str]:
    """The names of a module's ``__all__`` that are documented with it: not those that ``jtgpu`` exports itself."""
    found = importlib.import_module(module)
    if module == "jtgpu":
        return list(found.__all__)
    top = importlib.import_module("jtgpu")
    own = {id(getattr(top, name)) for name in top.__all__}
    return [name for name in found.__all__ if id(getattr(found, name)) not in own]


def names_of(module: str, content: list[str]) -> list[str]:
    """Dotted names that one directive documents."""
    names = " ".join(content).split()
    return [f"{module}.{name}" for name in (names or exported(module))]


def documented_on(page: str) -> Iterator[str]:
    """Dotted names that the directives of a page's source document."""
    for found in re.finditer(r"^\.\. public:: (\S+)\n((?:\n|   .*\n)*)", page, re.MULTILINE):
        yield from names_of(found[1], found[2].split("\n"))


def resolve(name: str) -> object:
    """The object of a dotted name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def lines(name: str) -> list[str]:
    """The autodoc directive of a name."""
    found = resolve(name)
    if isinstance(found, ModuleType):
        return [f".. automodule:: {name}", "   :no-members:", ""]
    if inspect.isclass(found):
        if issubclass(found, BaseException):
            return [f".. autoexception:: {name}", "   :show-inheritance:", ""]
        return [f".. autoclass:: {name}", "   :members:", f"   :inherited-members: {BASES}", ""]
    return [f".. {'autofunction' if callable(found) else 'autodata'}:: {name}", ""]


class Public(SphinxDirective):
    """See the module."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Parse the directives of autodoc in place of this one."""
        module = self.arguments[0]
        text = [line for name in names_of(module, list(self.content)) for line in lines(name)]
        source = Path(self.get_source_info()[0]).name
        return self.parse_content_to_nodes_of(StringList(text, source=source))

    def parse_content_to_nodes_of(self, text: StringList) -> list[nodes.Node]:
        """The nodes of generated lines."""
        self.content = text
        self.content_offset = self.lineno
        return self.parse_content_to_nodes()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("public", Public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
