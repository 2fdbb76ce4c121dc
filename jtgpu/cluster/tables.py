"""Paths and URIs, and the files of a table: their columns and sizes, checked before the work begins."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..columns.arrow import arrow, arrow_parquet
from ..columns.csv_file import COMPRESSIONS
from ..columns.files import open_cases
from ..columns.source import is_text
from ..errors import EvidenceError, JtgpuError, ParseError
from ..model.discrete import DiscreteModel
from ..options.tables import CsvDialect
from ..util.atomic_file import write_bytes

# Files on this machine, on shared disks and in object storage, by path or URI. Arrow supports ``s3://``,
# ``gs://``, ``abfs://``, ``hdfs://`` and ``file://``; fsspec, if it is installed, many more.
READ_SIZE = 1 << 24  # bytes


@dataclass(frozen=True)
class StoragePath:
    """A file or folder."""

    uri: str  # its name in messages; `locate` finds it in another process
    fs: Any
    path: str  # its name in the file system

    @property
    def local(self) -> bool:
        """Whether it is in a file system of the operating system."""
        return bool(self.fs.type_name == "local")

    @property
    def name(self) -> str:
        """The last component."""
        return self.path.rstrip("/").rpartition("/")[2]

    def child(self, name: str) -> StoragePath:
        """An entry of this folder."""
        return StoragePath(f"{self.uri.rstrip('/')}/{name}", self.fs, f"{self.path.rstrip('/')}/{name}")

    def sibling(self, name: str) -> StoragePath:
        """An entry of the same folder."""
        uri, path = (text.rstrip("/").rpartition("/") for text in (self.uri, self.path))
        return StoragePath(uri[0] + uri[1] + name, self.fs, path[0] + path[1] + name)

    def kind(self) -> str:
        """``"file"``, ``"folder"``, or empty if it does not exist."""
        kinds = file_system_module().FileType
        return {kinds.File: "file", kinds.Directory: "folder"}.get(self.fs.get_file_info(self.path).type, "")

    def names(self) -> list[str]:
        """Names of the entries of this folder, sorted."""
        selector = file_system_module().FileSelector(self.path, allow_not_found=True)
        return sorted(info.base_name for info in self.fs.get_file_info(selector))

    def make_folder(self) -> None:
        """Create the folder and its parents."""
        self.fs.create_dir(self.path, recursive=True)

    def remove(self) -> None:
        """Delete a file, or a folder with its contents, if it exists."""
        if self.kind() == "folder":
            self.fs.delete_dir(self.path)
        elif self.kind():
            self.fs.delete_file(self.path)

    def read(self, size: int = -1) -> bytes:
        """The first `size` bytes, or all of them."""
        with self.fs.open_input_file(self.path) as file:
            return bytes(file.read(None if size < 0 else size))

    def download(self, to: Path, size: int | None = None) -> None:
        """Copy the file, or its first `size` bytes, to a file on this machine."""
        with self.fs.open_input_stream(self.path) as source, to.open("wb") as target:
            left = size
            while left is None or left > 0:
                block = source.read(READ_SIZE if left is None else min(left, READ_SIZE))
                if not block:
                    return
                target.write(block)
                left = None if left is None else left - len(block)

    def publish(self, to: StoragePath) -> None:
        """Rename a complete file, replacing what has that name: readers see the old file or the new one.

        On disks the data are flushed first. Object storage flushes them when the file is closed, and copies the object
        in one step.
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
        """Write a small file, completely or not at all."""
        if self.local:
            write_bytes(self.path, data)
            return
        part = self.sibling(f"_tmp-{self.name}")
        with part.fs.open_output_stream(part.path) as file:
            file.write(data)
        part.publish(self)


def locate(uri: str | os.PathLike[str]) -> StoragePath:
    """The file or folder that a path or URI names; it need not exist."""
    # raises JtgpuError: For an unsupported kind of storage.
    text = os.fspath(uri)
    fs = file_system_module()
    if "://" not in text:
        return StoragePath(text, fs.LocalFileSystem(), os.path.abspath(text))
    pa = arrow()
    try:
        system, path = fs.FileSystem.from_uri(text)
        return StoragePath(text, system, path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error)
    try:
        import fsspec  # type: ignore[import-untyped]

        system, path = fsspec.core.url_to_fs(text)
    except (ImportError, ValueError) as error:
        raise JtgpuError(f"{text}: unsupported kind of storage ({reason}; {error})") from None
    return StoragePath(text, fs.PyFileSystem(fs.FSSpecHandler(system)), path)


def file_system_module() -> Any:
    """The module pyarrow.fs."""
    arrow()
    import pyarrow.fs

    return pyarrow.fs


# Find files of cases: named files, all files of a folder, or all that match a glob pattern.

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
    files: list[CaseFile] = []
    for name in names:
        files += _find(locate(name))
    if not files:
        raise JtgpuError("no file of cases is given")
    seen: set[str] = set()
    for file in files:
        if file.place.path in seen:
            raise JtgpuError(f"{file.place.uri} is given twice")
        seen.add(file.place.path)
    return files


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


CONCURRENT_READS = 16  # files inspected at the same time: most of it is waiting
HEADER_BYTES = 1 << 20  # of a remote CSV, downloaded to read its header


@dataclass(frozen=True)
class TableFile:
    """A file of cases."""

    file: CaseFile
    columns: list[str]
    groups: list[int] | None  # list of int: Rows of each row group of a Parquet file; None for a CSV
    types: dict[str, Any]  # arrow types of the columns
    compressed: bool = False  # whether it is a compressed CSV

    @property
    def rows(self) -> int:
        """Number of rows; 0 if the file does not record it."""
        return sum(self.groups or ())


def inspect_files(files: Sequence[CaseFile], model: DiscreteModel, dialect: CsvDialect) -> list[TableFile]:
    """Columns and sizes of all files. Every file is opened, so that an invalid one is found before the work begins."""
    # raises JtgpuError: If a file is not a table of cases; the message names it.
    with ThreadPoolExecutor(CONCURRENT_READS) as pool:
        return list(pool.map(lambda f: _inspect(f, model, dialect), files))


def _inspect(file: CaseFile, model: DiscreteModel, dialect: CsvDialect) -> TableFile:
    place = file.place
    try:
        magic = place.read(4)
        if magic == b"PAR1":
            with open_parquet(place) as parquet:
                schema, data = parquet.schema_arrow, parquet.metadata
                groups = [data.row_group(i).num_rows for i in range(data.num_row_groups)]
            return TableFile(file, list(schema.names), groups, {f.name: f.type for f in schema})
        if place.local:
            source = open_cases(Path(place.path), model, dialect, threads=False)
        else:
            with tempfile.TemporaryDirectory(prefix="jtgpu-") as folder:
                path = Path(folder) / place.name
                place.download(path, HEADER_BYTES)
                source = open_cases(path, model, dialect, threads=False)
    except ParseError as error:
        raise ParseError(error.message, place.uri, error.line, error.column) from None
    except (OSError, arrow().ArrowInvalid) as error:
        if isinstance(error, JtgpuError):
            raise
        raise ParseError(f"this file cannot be read: {error}", place.uri) from None
    types = dict.fromkeys(source.columns, arrow().string())
    return TableFile(file, source.columns, None, types, any(magic.startswith(start) for start in COMPRESSIONS))


@contextmanager
def open_parquet(place: StoragePath, evidence: Sequence[str] = (), kept: Sequence[str] = ()) -> Iterator[Any]:
    """A Parquet file; text that is only evidence is read as a dictionary of its distinct values."""
    parquet = arrow_parquet()
    with place.fs.open_input_file(place.path) as file:
        schema = parquet.read_schema(file)
        text = [n for n in evidence if n not in kept and is_text(schema.field(n).type)]
        file.seek(0)
        with parquet.ParquetFile(file, read_dictionary=text) as opened:
            yield opened


def check_columns(
    tables: Sequence[TableFile], model: DiscreteModel, evidence: Sequence[str], kept: Sequence[str], *, explicit: bool
) -> None:
    """Check that all files have the columns of the first one."""
    # evidence, kept: sequences of str: Columns of evidence; columns to copy
    # explicit: Whether the columns of evidence were given explicitly. If not, no file may have a column that is a
    #     variable and that the first file does not have.
    # raises EvidenceError: If the columns differ; the message names the file and the column.
    first = tables[0]
    name_of_first = first.file.place.uri
    for table in tables:
        uri = table.file.place.uri
        for name in dict.fromkeys((*evidence, *kept)):
            if (n := table.columns.count(name)) != 1:
                problem = f"has {n} columns" if n else "has no column"
                raise EvidenceError(f"{uri} {problem} {name!r}, unlike {name_of_first}")
        for name in kept:
            if table.types[name] != first.types[name]:
                raise EvidenceError(
                    f"{uri}: the column {name!r} has type {table.types[name]}, but {first.types[name]} in "
                    f"{name_of_first}"
                )
        if not explicit:
            _check_no_more_variables(table, first, model)


def _check_no_more_variables(table: TableFile, first: TableFile, model: DiscreteModel) -> None:
    more = sorted((set(model.variables) & set(table.columns)) - set(first.columns))
    if more:
        raise EvidenceError(
            f"{table.file.place.uri} has the column {more[0]!r}, which is a variable, but {first.file.place.uri} does "
            "not; pass evidence_columns to choose the evidence"
        )
