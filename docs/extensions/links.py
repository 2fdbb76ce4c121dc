"""Links between pages that are written for readers of the repository, and names in single backticks.

A page links to another one as ```user guide <guide.rst>`_``, which works where the files are read. On the site the link
becomes one to the page, and the page's title replaces a text that is the name of the file. Files of the repository that
are no pages are shown as code. `name` in a docstring is a link if the name is documented, else code: NumPy's format
marks parameters in this way.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.roles import XRefRole
from sphinx.util import logging

__all__ = ["setup"]

ROOT = Path(__file__).resolve().parents[2]
LOGGER = logging.getLogger(__name__)

# pages of the site that include files of other folders, whose links start there
INCLUDED = {
    "changes": ROOT / "CHANGELOG.rst",
    "contributing": ROOT / "CONTRIBUTING.rst",
    "running-benchmarks": ROOT / "bench" / "README.rst",
    "notes/index": ROOT / "docs" / "notes" / "README.rst",
}


def page_of(file: Path) -> str | None:
    """The page of the site that shows a file of the repository."""
    if file.is_dir():
        file = file / "README.rst"
    for page, included in INCLUDED.items():
        if file == included:
            return page
    docs = ROOT / "docs"
    return file.relative_to(docs).with_suffix("").as_posix() if file.is_relative_to(docs) else None


def resolve_file_links(app: Sphinx, doctree: nodes.document) -> None:
    """Replace links to files by links to pages, or by code."""
    here = app.env.docname
    folder = INCLUDED[here].parent if here in INCLUDED else Path(app.env.doc2path(here)).parent
    for node in list(doctree.findall(nodes.reference)):
        uri = node.get("refuri", "")
        if not uri or ":" in uri.split("/")[0] or uri.startswith("#"):
            continue
        path = uri.partition("#")[0]
        file = Path(os.path.normpath(folder / path))
        if not file.exists() and here.startswith("notes/"):  # notes moved here with the links of their time
            file = ROOT / "bench" / path
        page = page_of(file)
        if page in app.env.found_docs:
            text = node.astext()
            target = pending_xref(
                "", nodes.inline("", text), refdomain="std", reftype="doc", refdoc=here,
                reftarget=f"/{page}", refexplicit=not text.endswith((".rst", ".md")), refwarn=True,
            )  # fmt: skip
            node.replace_self(target)
        elif file.exists():
            node.replace_self(nodes.literal("", file.relative_to(ROOT).as_posix()))
        else:
            LOGGER.warning("no such file: %s", uri, location=node)


def leave_optional_names(app: Sphinx, env: Any, node: pending_xref, contnode: nodes.Element) -> nodes.Element | None:
    """A name in single backticks that is not documented is code."""
    return contnode if node.get("optional") else None


class OptionalRole(XRefRole):
    """The default role."""

    def process_link(
        self, env: Any, refnode: nodes.Element, has_explicit_title: bool, title: str, target: str
    ) -> tuple[str, str]:
        """Mark the reference, and let the Python domain look for it in the current class and module."""
        refnode["optional"] = True
        refnode["reftype"] = "obj"
        refnode["refdomain"] = "py"
        refnode["py:module"] = env.ref_context.get("py:module")
        refnode["py:class"] = env.ref_context.get("py:class")
        return title, target.rstrip("()")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register."""
    app.add_role("optional", OptionalRole())
    app.connect("doctree-read", resolve_file_links)
    app.connect("missing-reference", leave_optional_names, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
