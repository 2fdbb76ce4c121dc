"""The modules of the page as one: a browser sends one request for it, and a notebook takes only one."""

from __future__ import annotations

import re
from functools import lru_cache

from .page_files import FOLDER

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=class|function|const|async)", re.MULTILINE)


@lru_cache
def page_module(entry: str = "widget.js") -> str:
    """The modules of the page as one module: imports are dropped, and what a module needs stands before it.

    The modules import names without renaming and have distinct names at their top level, which a test checks.
    """
    order: dict[str, str] = {}

    def add(name: str) -> None:
        if name in order:
            return
        text = (FOLDER / name).read_text(encoding="utf-8")
        order[name] = ""  # circular imports are an error of the page
        for needed in _IMPORT.findall(text):
            add(needed)
        del order[name]
        order[name] = _IMPORT.sub("", text)

    add(entry)
    *before, last = order.values()
    return "\n".join([*(_EXPORT.sub("", text) for text in before), last])


def page_style() -> str:
    """The style of the page, which changes nothing outside of it."""
    return (FOLDER / "page.css").read_text(encoding="utf-8")
