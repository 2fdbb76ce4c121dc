"""Reading and writing network files and evidence files.

To add a network format:

1. Write a module ``jtgpu/formats/NAME.py``, or a folder of that name with ``reader.py`` and ``writer.py``. It defines

   * ``sniff(text)``: whether a text begins like this format,
   * ``parse(text, source, zero_rows=...)``: the network. A reader collects names and numbers in a
     `jtgpu.formats.draft.Draft`, which checks them and reports errors with line and column;
     ``parse = parser_of(parse_draft)`` creates ``parse`` from a function that returns the draft;
   * ``dumps(network)``, if the format can be written: a text that reads back equal, bit for bit.

2. Add a line to `jtgpu.formats.registry.FORMATS`, and the format's comment syntax to `jtgpu.formats.comments`.
3. Add a small file to ``tests/formats/data``, a line to the tables of ``tests/formats/test_formats.py`` and
   ``test_convert.py``, and the format to ``docs/formats.rst``.

Modules: `network_files` (`read`, `write`), `registry` (the table of formats), one module or folder per format,
`common` (shared by the formats), `conversion` (from one format to another, with its losses), `comments`,
`evidence_files`, `bundled` and `nets_folder` (the networks of this package).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import FileError, MissingFileError

if TYPE_CHECKING:
    from .bundled import load, networks
    from .evidence_files import Case, read_evidence, read_evidence_cases, read_query
    from .network_files import Opened, open_text, read, save_text, write, writer_of
    from .registry import FORMATS, Format, formats

__all__ = [
    "FORMATS",
    "Case",
    "FileError",
    "Format",
    "MissingFileError",
    "Opened",
    "formats",
    "load",
    "networks",
    "open_text",
    "read",
    "read_evidence",
    "read_evidence_cases",
    "read_query",
    "save_text",
    "write",
    "writer_of",
]


# imported when they are used: a shell that completes names of files needs no parser
_HOME = {
    "bundled": ("load", "networks"),
    "evidence_files": ("Case", "read_evidence", "read_evidence_cases", "read_query"),
    "network_files": ("Opened", "open_text", "read", "save_text", "write", "writer_of"),
    "registry": ("FORMATS", "Format", "formats"),
}
_MODULES = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    return found
