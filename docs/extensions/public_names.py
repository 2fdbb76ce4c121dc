"""The directive ``public``: the reference of public names.

.. code-block:: rst

    .. public:: jtgpu.series

lists everything in ``jtgpu.series.__all__`` that ``jtgpu`` does not export itself, in a table, and documents it below.
Classes and functions with much text have pages of their own (object_pages.py), which the table links to. With lines of
content it lists the names given there. With the option ``:inline:``, and outside of docs/reference, there is no table.
The directive ``every-name`` links to all of them, a line for each page.
"""

from __future__ import annotations

import html
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = [
    "documented_on",
    "every_name",
    "file_of",
    "first_sentence",
    "has_page",
    "has_row",
    "lines",
    "listed_on",
    "members",
    "names_of",
    "rows",
    "setup",
    "summary",
]

# methods of these base classes are documented by Python
BASES = "object,ndarray,tuple,dict,Mapping,Sequence,Exception,BaseException,str,TypedDict,KeysView"

LONG = 80  # lines of docstrings, from which on an object has a page of its own


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
    """Dotted names that the directives of a page's source document, there or on pages of their own."""
    for names, _ in listed_on(page):
        yield from names


def listed_on(page: str) -> Iterator[tuple[list[str], bool]]:
    """The names of each directive of a page's source, and whether it documents them in its place."""
    for found in re.finditer(r"^\.\. public:: (\S+)\n((?:\n|   .*\n)*)", page, re.MULTILINE):
        content = found[2].replace(":inline:", "")
        yield names_of(found[1], content.split("\n")), content != found[2]


def file_of(name: str) -> str:
    """The file of an object's page, in docs/reference/objects: classes are marked, as some file systems ignore case."""
    return f"{name}-class" if inspect.isclass(resolve(name)) else name


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


def has_row(name: str) -> bool:
    """Whether an object is in the table of a directive: modules and constants are described above it."""
    found = resolve(name)
    return inspect.isclass(found) or (callable(found) and not isinstance(found, ModuleType))


def has_page(name: str) -> bool:
    """Whether an object has a page of its own; the others are described on the page that lists them."""
    found = resolve(name)
    texts = [inspect.getdoc(found), *(inspect.getdoc(inspect.getattr_static(found, m)) for m in members(found))]
    return has_row(name) and sum(len((text or "").splitlines()) for text in texts) >= LONG


def members(found: object) -> list[str]:
    """The public methods and properties of a class that its page documents."""
    if not inspect.isclass(found):
        return []
    kinds = [c for c in found.__mro__ if c.__name__ not in BASES.split(",") and c.__module__.startswith("jtgpu")]
    own = [(n, v) for c in kinds for n, v in vars(c).items() if n[0] != "_" and inspect.getdoc(v)]
    return list(dict.fromkeys(n for n, v in own if inspect.isroutine(v) or isinstance(v, (property, cached_property))))


def summary(name: str) -> str:
    """The first sentence of an object's docstring."""
    return first_sentence(inspect.getdoc(resolve(name)) or "")


def first_sentence(docstring: str) -> str:
    """The sentence that a table shows."""
    first = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[^.]\.)\s+(?=[A-Z`])", first)[0]


def rows(entries: Iterable[tuple[str, str, str]]) -> list[str]:
    """A table of names, each with the text of its link, its dotted name and a sentence."""
    text = [".. list-table::", "   :widths: 32 68", "   :class: objects", ""]
    for label, name, sentence in entries:
        text += [f"   * - :py:obj:`{label} <{name}>`", f"     - {sentence}"]
    return [*text, ""]


def anchors(names: list[str]) -> list[str]:
    """The anchors that links to this page had before each object had its own."""
    ids = [n for name in names for n in (name, *(f"{name}.{m}" for m in dir(resolve(name)) if m[0] != "_"))]
    spans = "".join(f'<span id="{html.escape(i)}"></span>' for i in ids)
    return [".. raw:: html", "", f"   <div class=\"anchors\">{spans}</div>", ""]


class Public(SphinxDirective):
    """See the module."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"inline": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Parse the directives of autodoc, or a table of links to pages, in place of this one."""
        names = names_of(self.arguments[0], list(self.content))
        inline = "inline" in self.options or not self.env.docname.startswith("reference/")
        listed = [n for n in names if not inline and has_row(n)]
        pages = [n for n in listed if has_page(n)]
        text = [line for name in names if name not in listed for line in lines(name)]
        if pages:
            text += [*anchors(pages), ".. toctree::", "   :hidden:", ""]
            text += [*(f"   {n.rpartition('.')[2]} <objects/{file_of(n)}>" for n in pages), ""]
        if len(listed) > 1 or pages:
            text += rows((n.rpartition(".")[2], n, summary(n)) for n in listed)
        text += [line for name in listed if name not in pages for line in lines(name)]
        self.content = StringList([*text, ""], source=Path(self.get_source_info()[0]).name)
        self.content_offset = self.lineno
        return self.parse_content_to_nodes()


def every_name(docs: Path) -> dict[str, list[str]]:
    """The names of each page of the reference, by its title."""
    pages = re.findall(r"^   (reference/\S+|errors)$", (docs / "api.rst").read_text(encoding="utf-8"), re.MULTILINE)
    texts = [(docs / f"{page}.rst").read_text(encoding="utf-8") for page in pages]
    return {text.split("\n", 1)[0]: [*documented_on(text)] for text in texts}


class EveryName(SphinxDirective):
    """See the module."""

    def run(self) -> list[nodes.Node]:
        """Parse a table of links in place of this one."""
        text = [".. list-table::", "   :widths: 20 80", "   :class: objects", ""]
        for title, names in every_name(Path(self.env.srcdir)).items():
            links = [f":py:obj:`{n.removeprefix('jtgpu.')} <{n}>`" for n in names]
            text += [f"   * - {title}", f"     - {', '.join(links)}"]
        self.content = StringList([*text, ""], source="api")
        self.content_offset = self.lineno
        return self.parse_content_to_nodes()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_directive("public", Public)
    app.add_directive("every-name", EveryName)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
