"""Public objects: their example first, parameters in groups, a table of their methods; pages of the long ones.

The directive ``public`` lists the objects. Pages are written to docs/reference/objects before Sphinx reads them.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

from extensions.public_names import file_of, first_sentence, has_page, lines, listed_on, members, rows

__all__ = ["GROUPS", "grouped", "setup"]

# parameters of these names are shown under a heading of their own where a function has many
GROUPS = {
    "Data": "cases data frame states bins numbers weights likelihood missing na_values zeros hidden header columns",
    "Score and graphs": "score ess prior max_parents candidates forbidden required tiers within_tiers fixed tied table",
    "Search and sampling": "method restarts start tolerance time steps iterations chains seed tempering step",
    "Where it runs": "backend devices threads cluster memory_limit max_table order chunk dtype workers",
    "Files and progress": "checkpoint resume progress dialect",
}
GROUP_OF = {name: title for title, names in GROUPS.items() for name in names.split()}
MANY = 10  # parameters, from which on they are grouped
LONG = 160  # characters of a signature, from which on types are left out
TABLED = 4  # methods, from which on a table lists them


def page(name: str) -> str:
    """The source of an object's page."""
    return "\n".join([name, "=" * len(name), "", *lines(name)])


def write_pages(app: Sphinx) -> None:
    """Write the pages that are missing or differ, and remove those of objects that no page lists."""
    folder = Path(app.srcdir) / "reference" / "objects"
    folder.mkdir(exist_ok=True)
    wanted = {}
    for listing in sorted((Path(app.srcdir) / "reference").glob("*.rst")):
        for names, inline in listed_on(listing.read_text(encoding="utf-8")):
            wanted |= {f"{file_of(n)}.rst": page(n) for n in names if not inline and has_page(n)}
    for old in folder.glob("*.rst"):
        if old.name not in wanted:
            old.unlink()
    for file, text in wanted.items():
        path = folder / file
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def grouped(text: list[str]) -> list[str]:
    """The rendered docstring with long lists of parameters in groups, in the order of `GROUPS`."""
    if ":Parameters:" not in text:
        return text
    start = text.index(":Parameters:") + 1
    end = next((i for i in range(start, len(text)) if text[i] and not text[i].startswith(" ")), len(text))
    items: list[list[str]] = []
    for line in text[start:end]:
        if line.lstrip().startswith("**") and (not items or _indent(line) == _indent(items[0][0])):
            items.append([])
        if items:
            items[-1].append(line)
    names = [re.findall(r"\w+", item[0].split("**")[1]) for item in items]
    if sum(map(len, names)) < MANY:
        return text
    groups: dict[str, list[str]] = dict.fromkeys(["Parameters", *GROUPS])  # type: ignore[arg-type]
    for item, of in zip(items, names, strict=True):
        title = GROUP_OF.get(of[0], "Parameters")
        groups[title] = [*(groups[title] or []), *item]
    fields = [line for title, block in groups.items() if block for line in (f":{title}:", "", *block, "")]
    return [*text[: start - 1], *fields, *text[end:]]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def arrange(app: Sphinx, what: str, name: str, obj: Any, options: Any, text: list[str]) -> None:
    """Group the parameters of a docstring that numpydoc has rendered, and list the methods of a class."""
    text[:] = grouped(text)
    methods = members(obj) if what == "class" else []
    if len(methods) >= TABLED:
        said = {m: first_sentence(inspect.getdoc(inspect.getattr_static(obj, m)) or "") for m in methods}
        text += ["", ".. rubric:: Methods and properties", "", *rows((m, f"{name}.{m}", s) for m, s in said.items())]


def shorten(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None] | None:
    """Leave types out of a long signature: the list of parameters has them, and the example comes sooner."""
    if signature is None or len(signature) <= LONG:
        return None
    try:
        bare = stringify_signature(inspect.signature(obj), show_annotation=False)
    except (TypeError, ValueError):
        return None
    return bare.replace("(self, ", "(").replace("(self)", "()"), returned


def setup(app: Sphinx) -> dict[str, bool]:
    """Register; docstrings come after numpydoc, whose priority is 500."""
    app.connect("builder-inited", write_pages, priority=100)
    app.connect("autodoc-process-signature", shorten, priority=600)
    app.connect("autodoc-process-docstring", arrange, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
