"""Find files of cases: named files, all files of a folder, or all that match a glob pattern."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import JtgpuError
from .storage import StoragePath, file_system_module, locate

HIDDEN = ("_", ".")  # such names are not tables: _SUCCESS, temporary files
WILDCARD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class CaseFile:
    """A file of cases, its size in bytes, and its time of modification (nanoseconds; 0 if unknown)."""

    place: StoragePath
    size: int
    modified: int

    @property
    def identity(self) -> list[Any]:
        """Changes if the file changes; as JSON."""
        return [self.place.uri, self.size, self.modified]


class MissingCases(JtgpuError, FileNotFoundError):
    """No file has the given name; also a `FileNotFoundError`."""


def find_cases(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[CaseFile]:
    """Find files of cases."""
    # given: Files, folders (searched recursively) and glob patterns. The order of a list is preserved; files of a
    #     folder or pattern are sorted by name, without those whose names begin with a dot or an underscore.
    # raises JtgpuError: For a name that does not exist, a folder without files, or a file that is named twice.
    names = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    found: list[CaseFile] = []
    for name in names:
        found += _find(locate(name))
    if not found:
        raise JtgpuError("no file of cases is given")
    seen: set[str] = set()
    for file in found:
        if file.place.path in seen:
            raise JtgpuError(f"{file.place.uri} is given twice")
        seen.add(file.place.path)
    return found


def _find(place: StoragePath) -> list[CaseFile]:
    fs = file_system_module()
    try:
        info = place.fs.get_file_info(place.path)
        if info.type == fs.FileType.File:
            return [_case_file(place, info)]
        pattern = None
        base = place
        if info.type != fs.FileType.Directory:
            wildcard = WILDCARD.search(place.path)
            if not wildcard:
                raise MissingCases(f"{place.uri}: no such file or folder")
            pattern = re.compile(_glob_expression(place.path))
            depth = place.path[wildcard.start() :].count("/") + 1
            base = StoragePath(_without_last(place.uri, depth), place.fs, _without_last(place.path, depth))
        listed = place.fs.get_file_info(fs.FileSelector(base.path, recursive=True, allow_not_found=True))
    except MissingCases:
        raise
    except OSError as error:
        raise JtgpuError(f"{place.uri}: {error}") from None
    files = []
    for info in listed:
        below = info.path[len(base.path.rstrip("/")) + 1 :]
        hidden = any(name.startswith(HIDDEN) for name in below.split("/"))
        if info.type == fs.FileType.File and not hidden and (pattern is None or pattern.fullmatch(info.path)):
            files.append(_case_file(base.child(below), info))
    if not files:
        what = "the folder contains no files" if pattern is None else "no file matches"
        raise MissingCases(f"{place.uri}: {what}")
    return sorted(files, key=lambda f: f.place.path)


def _without_last(path: str, names: int) -> str:
    """A path without its last names."""
    for _ in range(names):
        path = path.rpartition("/")[0]
    return path


def _case_file(place: StoragePath, info: Any) -> CaseFile:
    changed = 0
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        changed = int(info.mtime_ns or 0)
    return CaseFile(place, int(info.size or 0), changed)


def _glob_expression(pattern: str) -> str:
    """A glob pattern as a regular expression: ``**`` matches across folders, ``*`` and ``?`` do not."""
    out = ""
    for piece in re.split(r"(\*\*/?|\*|\?|\[[^]]+\])", pattern):
        if piece.startswith("**"):
            out += "(?:.*/)?" if piece.endswith("/") else ".*"
        elif piece in ("*", "?"):
            out += "[^/]*" if piece == "*" else "[^/]"
        else:
            out += piece if piece.startswith("[") and piece.endswith("]") else re.escape(piece)
    return out
