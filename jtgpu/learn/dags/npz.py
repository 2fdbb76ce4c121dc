"""Reading of ``.npz`` files that may be damaged."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import numpy as np

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
