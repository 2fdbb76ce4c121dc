"""Reading and writing network files and evidence files.

To add a network format:

1. Write a module ``jtgpu/formats/NAME.py``, with the writer in a second one where both are long. It defines

   * ``sniff(text)``: whether a text begins like this format,
   * ``parse(text, source, zero_rows=...)``: the network. A reader collects names and numbers in a
     `jtgpu.formats.draft.Draft`, which checks them and reports errors with line and column;
     `jtgpu.formats.finish.parsers_of` makes ``parse`` from a function that returns the draft;
   * ``dumps(network)``, if the format can be written: a text that reads back equal, bit for bit.

2. Add a line to `jtgpu.formats.registry.FORMATS`, and the format's comment syntax to `jtgpu.formats.network_files`.
3. Add a small file to ``tests/formats/data``, a line to the tables of ``tests/formats/test_formats.py`` and
   ``test_convert.py``, and the format to ``docs/formats.rst``.

Modules: `network_files` (`read`, `write`, comments), `registry` (the table of formats), one or two modules per format,
those that formats share (`draft`, `finish`, `block_reader`, `text`, `number_cursor`,
`xml_text`, `canonical_nodes`, `files`), `conversion` (from one format to another, with its losses), `evidence_files`,
and `bundled` (the networks of this package).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import FileError, MissingFileError
from ..util.late_imports import public_names

if TYPE_CHECKING:
    from .bundled import load, networks
    from .evidence_files import Case, read_evidence, read_evidence_cases, read_query
    from .network_files import Opened, open_text, read, save_text, write, writer_of
    from .registry import FORMATS, Format, formats

__all__ = [
    "FORMATS", "Case", "FileError", "Format", "MissingFileError", "Opened", "formats", "load", "networks",
    "open_text", "read", "read_evidence", "read_evidence_cases", "read_query", "save_text", "write", "writer_of",
]  # fmt: skip

# imported when they are used: a shell that completes names of files needs no parser
__getattr__, __dir__ = public_names(__name__, {
    "bundled": "load networks", "evidence_files": "Case read_evidence read_evidence_cases read_query",
    "network_files": "Opened open_text read save_text write writer_of", "registry": "FORMATS Format formats",
})  # fmt: skip
