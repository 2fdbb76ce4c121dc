"""Reading and writing bytes: gzip, size limits, atomic writes, and errors that name the file."""

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
MAX_BYTES = 4 << 30  # of a file, compressed or not; its text and tables need several times as much memory
PART_BYTES = 8 << 20  # read at a time
# Networks compress well (mostly zeros), but no known one by more than a factor of 60. Small files may always expand to
# FREE_BYTES.
MAX_RATIO, FREE_BYTES = 200, 256 << 20


class FileError(JtgpuError, OSError):
    """The operating system cannot read or write a file; also an `OSError`."""

    def __str__(self) -> str:  # OSError would show the errno
        return str(self.args[0]) if self.args else ""


class MissingFileError(FileError, FileNotFoundError):
    """A file or folder does not exist; also a `FileNotFoundError`."""


def _file_error(error: OSError, path: str, doing: str) -> FileError:
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    kind = MissingFileError if isinstance(error, FileNotFoundError) else FileError
    return kind(f"cannot {doing} {path!r}: {reason}")


def _missing(path: str) -> MissingFileError:
    folder, name = os.path.split(path)
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return MissingFileError(f"cannot read {path!r}: the folder {folder!r} does not exist")
    return MissingFileError(f"cannot read {path!r}: no such file{near(name, names)}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The contents of a file, decompressed if they are gzip data (recognised by content).

    Raises
    ------
    FileError
        If the file is missing (`MissingFileError`), a folder, or unreadable.
    FormatError
        If gzip data are damaged, or the limits of this module are exceeded.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            raw = _up_to(file, MAX_BYTES, os.fstat(file.fileno()).st_size + 1)
    except FileNotFoundError:
        raise _missing(name) from None
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        known = error if isinstance(error, OSError) else OSError(str(error))
        raise _file_error(known, name, "read") from None
    if len(raw) > MAX_BYTES:
        raise FormatError(f"{name}: larger than {format_bytes(MAX_BYTES)}, the largest size that is read")
    return _unpack(raw, name) if raw.startswith(GZIP_MAGIC) else raw


def _up_to(file: BinaryIO | gzip.GzipFile, limit: int, expected: int = PART_BYTES) -> bytes:
    """The contents of a file, or a little more than `limit` bytes of it.

    Reads in parts: ``read(n)`` allocates n bytes even if the file is shorter.
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
            "which no network does"
        )
    return text


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file completely or not at all (see `jtgpu.util.atomic_file`).

    If the name ends in ``.gz``, the data are compressed, without a time or a name, so that equal data give equal files.

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
        raise MissingFileError(f"cannot write {name!r}: the folder {os.path.dirname(name)!r} does not exist") from None
    except (OSError, ValueError) as error:
        known = error if isinstance(error, OSError) else OSError(str(error))
        raise _file_error(known, name, "write") from None
