"""Reading and writing bytes: gzip and xz, size limits, atomic writes, and errors that name the file."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from ..errors import FileError, FormatError, MissingFileError, format_bytes, near
from ..util import atomic_file
from ..util.system import free_memory

# The encoding that an XML file declares; checked for files of every format, without the XML reader.

_DECLARATION = re.compile(rb"\s*<\?xml[^>]{0,200}?\bencoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})[\"']")
# The encodings that network programs use; some of Python's codecs are slow or not encodings of text.
_ENCODING = re.compile(
    r"(?:utf[-_]?(?:8|16)(?:[-_]?[lb]e)?|(?:us-)?ascii|iso[-_]?8859[-_]?\d{1,2}|latin[-_]?\d|windows[-_]?125\d|cp125\d"
    r"|macintosh|koi8-[ru]|gb2312|gbk|gb18030|big5|shift[-_]jis|euc[-_](?:jp|kr))\Z",
    re.IGNORECASE,
)


def declared_text(raw: bytes) -> str | None:
    """Decode an XML file that specifies its encoding by a declaration or byte order mark; None for other files."""
    # raises FormatError: If the encoding is unknown, or the bytes are not valid in it.
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        name = "utf-16"
    else:
        match = _DECLARATION.match(raw[:512].removeprefix(b"\xef\xbb\xbf"))
        if match is None:
            return None
        name = match[1].decode("ascii")
    if _ENCODING.match(name) is None:
        raise FormatError(f"the XML declaration names the unknown encoding {name!r}")
    if name.lower().replace("_", "-") in ("utf-8", "utf8", "ascii", "us-ascii"):
        return None  # decoded like other files: UTF-8, or Latin-1 if a program wrote what it did not declare
    try:
        return raw.decode(name).removeprefix("\ufeff")
    except (LookupError, UnicodeDecodeError) as error:
        raise FormatError(f"the text is not valid in its declared encoding {name!r} ({error})") from None


PACKED = (".gz", ".xz")  # suffixes of compressed files
GZIP_MAGIC, XZ_MAGIC = b"\x1f\x8b", b"\xfd7zXZ\x00"
MAX_BYTES = 4 << 30  # of a file, compressed or not; its text and tables need several times as much memory
PART_BYTES = 8 << 20  # read at a time
# Networks compress well (mostly zeros), but no known one by more than a factor of 60 (gzip) or 70 (xz, which gains more
# from repetition). After FREE_BYTES, no beginning of a file may unpack to more than this many times its size, so that
# memory is bounded by the bytes that have been read.
MAX_RATIO = {"gzip": 100, "xz": 500}
FREE_BYTES = 32 << 20
XZ_MEMORY = 256 << 20  # for the dictionary that a file declares; `xz -9` declares 64 MiB
COPIES = 3  # of the bytes of a file in memory at the same time: parts, joined bytes, text


def _file_error(error: OSError, path: str, doing: str) -> FileError:
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    kind = MissingFileError if isinstance(error, FileNotFoundError) else FileError
    made = kind(f"cannot {doing} {path!r}: {reason}")
    made.errno = error.errno  # a full disk is no mistake of the user
    return made


def require_file(path: str) -> None:
    """Raise a `FileError` for a path that is no file which can be opened."""
    try:
        with open(path, "rb"):
            pass
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise _file_error(error, path, "read") from None


def _missing(path: str) -> MissingFileError:
    folder, name = os.path.split(path)
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return MissingFileError(f"cannot read {path!r}: the folder {folder!r} does not exist")
    return MissingFileError(f"cannot read {path!r}: no such file{near(name, names)}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The contents of a file, decompressed if they are gzip or xz data (recognised by content)."""
    # raises FileError: If the file is missing (`MissingFileError`), a folder, or unreadable.
    # raises FormatError: If compressed data are damaged, or the limits of this module or the free memory are exceeded;
    #     raised before the memory is allocated.
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
    if raw.startswith(GZIP_MAGIC):
        return _unpack(raw, name, limit, "gzip")
    return _unpack(raw, name, limit, "xz") if raw.startswith(XZ_MAGIC) else raw


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


def _unpack(raw: bytes, name: str, limit: int, kind: str) -> bytes:
    """Decompress data, of which every beginning has to keep to the limits."""
    parts, size = [], 0
    packed = io.BytesIO(raw)
    try:
        for part in (_gzip_parts if kind == "gzip" else _xz_parts)(packed):
            parts.append(part)
            size += len(part)
            if size > limit:
                raise FormatError(f"{name}: unpacks to more than {format_bytes(limit)}, {_why(limit)}")
            if size > FREE_BYTES + MAX_RATIO[kind] * packed.tell():
                raise FormatError(
                    f"{name}: found {format_bytes(packed.tell())} of {kind} data that unpack to more than "
                    f"{format_bytes(size)}, expected at most a factor of {MAX_RATIO[kind]}; no known network exceeds "
                    f"it (unpack the file with {'gunzip' if kind == 'gzip' else 'unxz'} to read it all the same)"
                )
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"{name}: damaged {kind} data ({error})") from None
    except ImportError:
        raise FormatError(f"{name}: found {kind} data; this Python was built without them (unpack the file)") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _gzip_parts(packed: io.BytesIO) -> Iterator[bytes]:
    from gzip import GzipFile  # not for completion at every Tab

    with GzipFile(fileobj=packed) as file:
        while part := file.read(min(PART_BYTES, FREE_BYTES)):
            yield part


def _xz_parts(packed: io.BytesIO) -> Iterator[bytes]:
    """Parts of one or several streams, which zeros may follow; `lzma.LZMAFile` has no limit on memory."""
    import lzma  # a Python may have been built without it

    data = packed.read(1 << 16)
    try:
        while data:
            decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
            while not decoder.eof:
                if decoder.needs_input and not data:
                    data = packed.read(1 << 16)
                    if not data:
                        raise EOFError("the file ended before the end of the stream")
                if part := decoder.decompress(data, min(PART_BYTES, FREE_BYTES)):
                    yield part
                data = b""
            data = decoder.unused_data.lstrip(b"\0")
            while not data and (more := packed.read(1 << 16)):
                data = more.lstrip(b"\0")
    except lzma.LZMAError as error:
        raise OSError(str(error)) from None


def unpacked_name(name: str) -> str:
    """A file name without the suffix of compression."""
    return name[:-3] if name.lower().endswith(PACKED) else name


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file completely or not at all (see `jtgpu.util.atomic_file`).

    If the name ends in ``.gz`` or ``.xz``, the data are compressed, without a time or a name, so that equal data give
    equal files.
    """
    # raises FileError: With the reason; an existing file is left untouched.
    name = os.fspath(path)
    if name.lower().endswith(".gz"):
        from gzip import compress

        data = compress(data, compresslevel=9, mtime=0)
    elif name.lower().endswith(".xz"):
        data = _xz(data, name)
    try:
        atomic_file.write_bytes(path, data)
    except IsADirectoryError:
        raise FileError(f"cannot write {name!r}: it is a folder") from None
    except FileNotFoundError:
        raise MissingFileError(f"cannot write {name!r}: the folder {os.path.dirname(name)!r} does not exist") from None
    except (OSError, ValueError) as error:
        known = error if isinstance(error, OSError) else OSError(str(error))
        raise _file_error(known, name, "write") from None


def _xz(data: bytes, name: str) -> bytes:
    """Compressed data, which need a dictionary no larger than themselves to be unpacked."""
    try:
        import lzma
    except ImportError:
        raise FileError(f"cannot write {name!r}: this Python was built without xz; use .gz") from None
    dictionary = min(max(len(data), 1 << 16), 64 << 20)
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "pb": 0, "dict_size": dictionary}]
    return lzma.compress(data, format=lzma.FORMAT_XZ, filters=filters)
