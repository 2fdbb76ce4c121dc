"""Files wherever they lie: on this machine, on disks that machines share, in object storage.

A place is a path or a URI: what Arrow knows (``s3://``, ``gs://``, ``abfs://``, ``hdfs://``, ``file://``), and what
fsspec knows, where that is installed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cases.arrow import arrow
from ..errors import JtgpuError

__all__ = ["MissingCases", "Place", "Stored", "find_cases", "locate"]

HIDDEN = ("_", ".")  # names that begin so are no tables: _SUCCESS, temporary files
WILD = re.compile(r"[*?\[]")
READ_AT_ONCE = 1 << 24  # bytes


@dataclass(frozen=True)
class Place:
    """A file or folder.

    Attributes
    ----------
    uri : str
        As it is called in messages; `locate` finds it again in another process.
    fs : pyarrow.fs.FileSystem
    path : str
        As the file system calls it.
    """

    uri: str
    fs: Any
    path: str

    @property
    def local(self) -> bool:
        """Does it lie in a file system of the operating system?"""
        return bool(self.fs.type_name == "local")

    @property
    def name(self) -> str:
        """Its last name."""
        return self.path.rstrip("/").rpartition("/")[2]

    def child(self, name: str) -> Place:
        """Something in this folder."""
        return Place(f"{self.uri.rstrip('/')}/{name}", self.fs, f"{self.path.rstrip('/')}/{name}")

    def sibling(self, name: str) -> Place:
        """Something beside this."""
        uri, path = (text.rstrip("/").rpartition("/") for text in (self.uri, self.path))
        return Place(uri[0] + uri[1] + name, self.fs, path[0] + path[1] + name)

    def kind(self) -> str:
        """``"file"``, ``"folder"``, or nothing."""
        kinds = _file_system().FileType
        return {kinds.File: "file", kinds.Directory: "folder"}.get(self.fs.get_file_info(self.path).type, "")

    def names(self) -> list[str]:
        """What lies in this folder, sorted."""
        selector = _file_system().FileSelector(self.path, allow_not_found=True)
        return sorted(found.base_name for found in self.fs.get_file_info(selector))

    def make(self) -> None:
        """Make the folder and those above it."""
        self.fs.create_dir(self.path, recursive=True)

    def remove(self) -> None:
        """Delete a file, or a folder with all that is in it; nothing where there is nothing."""
        if self.kind() == "folder":
            self.fs.delete_dir(self.path)
        elif self.kind():
            self.fs.delete_file(self.path)

    def read(self, most: int = -1) -> bytes:
        """Its first bytes, or all of them."""
        with self.fs.open_input_file(self.path) as file:
            return bytes(file.read(None if most < 0 else most))

    def fetch(self, to: Path, most: int | None = None) -> None:
        """Copy it, or its beginning, to a file of this machine."""
        with self.fs.open_input_stream(self.path) as source, to.open("wb") as target:
            left = most
            while left is None or left > 0:
                block = source.read(READ_AT_ONCE if left is None else min(left, READ_AT_ONCE))
                if not block:
                    return
                target.write(block)
                left = None if left is None else left - len(block)

    def publish(self, to: Place) -> None:
        """Give a file that was written another name: until then nobody sees it there, and then all of it.

        Replaces what has that name. On disks the bytes are made sure of first; object storage does so when the file
        is closed, and copies it to its name in one step.
        """
        if self.local:
            handle = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(self.path, to.path)
        else:
            self.fs.move(self.path, to.path)

    def write(self, data: bytes) -> None:
        """Make a small file, whole or not at all."""
        part = self.sibling(f"_tmp-{self.name}")
        with part.fs.open_output_stream(part.path) as file:
            file.write(data)
        part.publish(self)


@dataclass(frozen=True)
class Stored:
    """A file of cases: where, how many bytes, and when it was changed (nanoseconds; 0 where nobody knows)."""

    place: Place
    size: int
    modified: int

    @property
    def identity(self) -> list[Any]:
        """What tells whether it is still the same."""
        return [self.place.uri, self.size, self.modified]


class MissingCases(JtgpuError, FileNotFoundError):
    """No file is where the caller said that cases are; also a `FileNotFoundError`."""


def locate(uri: str | os.PathLike[str]) -> Place:
    """The place that a path or a URI names.

    Raises
    ------
    JtgpuError
        For a kind of storage that nobody here knows.
    """
    text = os.fspath(uri)
    fs = _file_system()
    if "://" not in text:
        return Place(text, fs.LocalFileSystem(), os.path.abspath(text))
    pa = arrow()
    try:
        found, path = fs.FileSystem.from_uri(text)
        return Place(text, found, path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error)
    try:
        import fsspec  # type: ignore[import-untyped]

        found, path = fsspec.core.url_to_fs(text)
    except (ImportError, ValueError) as error:
        raise JtgpuError(f"{text}: no storage of this kind is known ({reason}; {error})") from None
    return Place(text, fs.PyFileSystem(fs.FSSpecHandler(found)), path)


def find_cases(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Stored]:
    """Files of cases: each that is named, all in a folder and those below it, all that match a pattern.

    What is given in a list keeps its order; within folders and patterns the order is that of the names. Names that
    begin with a dot or an underscore are left out there.

    Raises
    ------
    JtgpuError
        For what is not there, and a folder without files.
    """
    several = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    found: list[Stored] = []
    for one in several:
        found += _found(locate(one))
    if not found:
        raise JtgpuError("no file of cases was named")
    met: set[str] = set()
    for stored in found:
        if stored.place.path in met:
            raise JtgpuError(f"{stored.place.uri} is named twice")
        met.add(stored.place.path)
    return found


def _found(place: Place) -> list[Stored]:
    fs = _file_system()
    try:
        info = place.fs.get_file_info(place.path)
        if info.type == fs.FileType.File:
            return [_stored(place, info)]
        pattern = None
        base = place
        if info.type != fs.FileType.Directory:
            wild = WILD.search(place.path)
            if not wild:
                raise MissingCases(f"{place.uri}: no such file or folder")
            pattern = re.compile(_expression(place.path))
            depth = place.path[wild.start() :].count("/") + 1
            base = Place(_cut(place.uri, depth), place.fs, _cut(place.path, depth))
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
            files.append(_stored(base.child(below), info))
    if not files:
        what = "the folder holds no files" if pattern is None else "no file is called so"
        raise MissingCases(f"{place.uri}: {what}")
    return sorted(files, key=lambda f: f.place.path)


def _cut(path: str, names: int) -> str:
    for _ in range(names):
        path = path.rpartition("/")[0]
    return path


def _stored(place: Place, info: Any) -> Stored:
    changed = 0
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        changed = int(info.mtime_ns or 0)
    return Stored(place, int(info.size or 0), changed)


def _expression(pattern: str) -> str:
    """A shell's pattern as a regular expression: ``**`` goes through folders, ``*`` and ``?`` do not."""
    out = ""
    for piece in re.split(r"(\*\*/?|\*|\?|\[[^]]+\])", pattern):
        if piece.startswith("**"):
            out += "(?:.*/)?" if piece.endswith("/") else ".*"
        elif piece in ("*", "?"):
            out += "[^/]*" if piece == "*" else "[^/]"
        else:
            out += piece if piece.startswith("[") and piece.endswith("]") else re.escape(piece)
    return out


def _file_system() -> Any:
    """The module pyarrow.fs."""
    arrow()
    import pyarrow.fs

    return pyarrow.fs
