"""Reading of ``.npz`` files that may be damaged."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from ...errors import FormatError
from ...formats.files import require_file
from ...util.arguments import file_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

# what a damaged file raises, apart from OSError; RuntimeError: flags that mean encryption or an unknown compression
DAMAGED = (BadZipFile, zlib.error, KeyError, ValueError, EOFError, TypeError, IndexError, RuntimeError, MemoryError)


def read_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file, by name, once all checksums are right: damaged headers raise almost anything."""
    # raises OSError: If the file cannot be read.
    with ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise BadZipFile(f"wrong checksum of {damaged}")
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


# The file of a saved posterior: NumPy's ``.npz`` format, with a header in JSON.

VERSION = 2
KIND = "jtgpu posterior over structures"


def file_contents(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a file: equal posteriors give equal bytes."""
    text = json.dumps({"kind": KIND, "version": VERSION, **header}, ensure_ascii=False)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, header=np.frombuffer(text.encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read_file(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a file."""
    # raises ArgumentError: If `path` is no path.
    # raises FormatError: If it is no file of a posterior, of another version, or damaged.
    # raises FileError: If it cannot be read.
    path = file_path("path", path)
    require_file(path)
    try:
        arrays = read_arrays(path)
        header = json.loads(bytes(arrays.pop("header")))
        kind, version = header["kind"], header["version"]
    except DAMAGED as error:
        raise FormatError(f"{path}: not a saved posterior of jtgpu, or damaged: {error}") from None
    if kind != KIND:
        raise FormatError(f"{path}: not a saved posterior of jtgpu, but {kind!r}")
    if version != VERSION:
        raise FormatError(f"{path}: a saved posterior of version {version}; expected {VERSION}")
    return header, arrays
