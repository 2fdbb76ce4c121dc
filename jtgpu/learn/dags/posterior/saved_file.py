"""The file of a saved posterior: NumPy's ``.npz`` format, with a header in JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import FormatError
from ....formats.common.files import require_file
from ....util.arguments import file_path
from ..npz import DAMAGED, read_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
