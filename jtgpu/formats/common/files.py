"""Bytes in and out of files: gzip seen through, limits kept, writing all or nothing, errors in one sentence."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from typing import BinaryIO

from ...errors import FormatError, JtgpuError, format_bytes
from ...util import atomic_file
from .text import near

__all__ = ["FileError", "MissingFileError", "read_bytes", "write_bytes"]

GZIP_MAGIC = b"\x1f\x8b"
MAX_BYTES = 4 << 30  # of a file, packed or not; its text and its tables need several times as much memory
PART_BYTES = 8 << 20  # read at a time
# Networks pack well (mostly zeros), yet none met unpacks to more than 60 times its size. A small file may unpack
# to FREE_BYTES all the same.
MAX_RATIO, FREE_BYTES = 200, 256 << 20


class FileError(JtgpuError, OSError):
    """A file that the operating system would not read or write; also an `OSError`."""

    def __str__(self) -> str:  # OSError would show its numbers
        return str(self.args[0]) if self.args else ""


class MissingFileError(FileError, FileNotFoundError):
    """A file or folder that is not there; also a `FileNotFoundError`."""


def _file_error(error: OSError, path: str, doing: str) -> FileError:
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    kind = MissingFileError if isinstance(error, FileNotFoundError) else FileError
    return kind(f"cannot {doing} {path!r}: {reason}")


def _missing(path: str) -> MissingFileError:
    folder, name = os.path.split(path)
    try:
        beside = sorted(os.listdir(folder or "."))
    except OSError:
        return MissingFileError(f"cannot read {path!r}: the folder {folder!r} is not there")
    return MissingFileError(f"cannot read {path!r}: no such file{near(name, beside)}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The contents of a file, unpacked where they are gzip (seen by content, whatever the name).

    Raises
    ------
    FileError
        For a file that is missing (`MissingFileError`), a folder, or unreadable.
    FormatError
        For damaged gzip data, and for more than the limits of this module allow.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            raw = _up_to(file, MAX_BYTES, os.fstat(file.fileno()).st_size + 1)
    except FileNotFoundError:
        raise _missing(name) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        known = error if isinstance(error, OSError) else OSError(str(error))
        raise _file_error(known, name, "read") from None
    if len(raw) > MAX_BYTES:
        raise FormatError(f"{name}: larger than {format_bytes(MAX_BYTES)}, the most that is read")
    return _unpack(raw, name) if raw.startswith(GZIP_MAGIC) else raw


def _up_to(file: BinaryIO | gzip.GzipFile, limit: int, expected: int = PART_BYTES) -> bytes:
    """What a file holds, or a little more than `limit` bytes of it; ``read(limit)`` would take them all at once.

    As much memory as is asked for is taken for a moment, even if the file is short: it is asked for what is expected.
    """
    parts, size = [], 0
    while size <= limit and (part := file.read(min(max(expected, 1 << 16), PART_BYTES))):
        parts.append(part)
        size += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unpack(raw: bytes, name: str) -> bytes:
    limit = min(MAX_BYTES, max(FREE_BYTES, MAX_RATIO * len(raw)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            text = _up_to(file, limit)
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{name}: damaged gzip data ({error})") from None
    if len(text) > limit:
        raise FormatError(
            f"{name}: {format_bytes(len(raw))} of gzip data unpack to more than {format_bytes(limit)}, "
            "which no network does; not read any further"
        )
    return text


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file completely or not at all (see `jtgpu.util.atomic_file`).

    A name that ends in ``.gz`` gets gzip data without a time or a name in it, so that equal data make equal files.

    Raises
    ------
    FileError
        With the reason; an existing file is left untouched.
    """
    name = os.fspath(path)
    if name.lower().endswith(".gz"):
        data = gzip.compress(data, compresslevel=9, mtime=0)
    try:
        atomic_file.write_bytes(path, data)
    except IsADirectoryError:
        raise FileError(f"cannot write {name!r}: it is a folder") from None
    except FileNotFoundError:
        raise MissingFileError(f"cannot write {name!r}: the folder {os.path.dirname(name)!r} is not there") from None
    except (OSError, ValueError) as error:
        known = error if isinstance(error, OSError) else OSError(str(error))
        raise _file_error(known, name, "write") from None
