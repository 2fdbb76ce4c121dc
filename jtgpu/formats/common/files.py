"""Reading and writing bytes: gzip, size limits, atomic writes, and errors that name the file."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from typing import BinaryIO

from ...errors import FormatError, JtgpuError, format_bytes
from ...util import atomic_file
from ...util.system import free_memory
from .text import near

__all__ = ["FileError", "MissingFileError", "read_bytes", "write_bytes"]

GZIP_MAGIC = b"\x1f\x8b"
MAX_BYTES = 4 << 30  # of a file, compressed or not; its text and tables need several times as much memory
PART_BYTES = 8 << 20  # read at a time
# Networks compress well (mostly zeros), but no known one by more than a factor of 60. After FREE_BYTES, no beginning of
# a file may unpack to more than MAX_RATIO times its size, so that memory is bounded by the bytes that have been read.
MAX_RATIO, FREE_BYTES = 100, 32 << 20
COPIES = 3  # of the bytes of a file in memory at the same time: parts, joined bytes, text


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
        If gzip data are damaged, or the limits of this module or the free memory are exceeded; raised before the
        memory is allocated.
    """
    name = os.fspath(path)
    limit = _limit()
    try:
        with open(name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            raw = _up_to(file, limit, size + 1) if size <= limit else None
    except FileNotFoundError:
        raise _missing(name) from None
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        known = error if isinstance(error, OSError) else OSError(str(error))
        raise _file_error(known, name, "read") from None
    if raw is None or len(raw) > limit:
        raise FormatError(f"{name}: larger than {format_bytes(limit)}, {_why(limit)}")
    return _unpack(raw, name, limit) if raw.startswith(GZIP_MAGIC) else raw


def _limit() -> int:
    """Bytes that a file may have, unpacked."""
    return min(MAX_BYTES, free_memory() // COPIES)


def _why(limit: int) -> str:
    return "the largest size that is read" if limit == MAX_BYTES else "the largest size for which memory is free"


def _up_to(file: BinaryIO, limit: int, expected: int) -> bytes:
    """The contents of a file, or a little more than `limit` bytes of it.

    Reads in parts: ``read(n)`` allocates n bytes even if the file is shorter.
    """
    parts, size = [], 0
    while size <= limit and (part := file.read(min(max(expected, 1 << 16), PART_BYTES))):
        parts.append(part)
        size += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unpack(raw: bytes, name: str, limit: int) -> bytes:
    """Decompress gzip data, of which every beginning has to keep to the limits."""
    parts, size = [], 0
    packed = io.BytesIO(raw)
    try:
        with gzip.GzipFile(fileobj=packed) as file:
            while part := file.read(min(PART_BYTES, FREE_BYTES)):
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise FormatError(f"{name}: unpacks to more than {format_bytes(limit)}, {_why(limit)}")
                if size > FREE_BYTES + MAX_RATIO * packed.tell():
                    raise FormatError(
                        f"{name}: found {format_bytes(packed.tell())} of gzip data that unpack to more than "
                        f"{format_bytes(size)}, expected at most a factor of {MAX_RATIO}; no known network exceeds "
                        "it (unpack the file with gunzip to read it all the same)"
                    )
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{name}: damaged gzip data ({error})") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


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
