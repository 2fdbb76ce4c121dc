"""Checked files of state: NumPy's ``.npz`` archives with a header in JSON, which are written whole or not at all.

A saved posterior is one archive. A checkpoint is a `StateFile`: a run that continues from it has the bits of one that
was never interrupted.
"""

from __future__ import annotations

import io
import json
import os
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, JtgpuError
from ..formats.files import require_file
from ..util.arguments import file_path
from ..util.atomic_file import write_bytes

# what a damaged file raises, apart from OSError; RuntimeError: flags that mean encryption or an unknown compression
DAMAGED = (BadZipFile, zlib.error, KeyError, ValueError, EOFError, TypeError, IndexError, RuntimeError, MemoryError)


def archive(
    header: Mapping[str, object], arrays: Mapping[str, NDArray[np.generic]], *, compressed: bool = False
) -> bytes:
    """The bytes of an archive: equal contents give equal bytes."""
    text = np.frombuffer(json.dumps(header, ensure_ascii=False).encode(), np.uint8)
    buffer = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(buffer, header=text, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file, by name, once all checksums are right: damaged headers raise almost anything."""
    # raises OSError: If the file cannot be read.
    with ZipFile(path) as zipped:
        damaged = zipped.testzip()
    if damaged is not None:
        raise BadZipFile(f"wrong checksum of {damaged}")
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


# Saved posteriors.

VERSION = 2
KIND = "jtgpu posterior over structures"


def file_contents(header: Mapping[str, object], arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """The bytes of the file of a posterior."""
    return archive({"kind": KIND, "version": VERSION, **header}, arrays, compressed=True)


def read_file(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of the file of a posterior."""
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


class StateFile:
    """The checkpoint of a run."""

    # options: All that decides the result of the run, by name: data, options, seeds
    # interval: Seconds between two writes
    # advice: What to do with the checkpoint of another run

    version = 3  # 1 and 2: before posteriors and EM shared the format

    def __init__(self, path: str | os.PathLike[str], options: dict[str, str], *, interval: float, advice: str):
        self.path, self._options, self._interval, self._advice = Path(path), options, interval, advice
        self._written = -np.inf

    def read(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
        """The state of the run, as values of JSON and arrays; None: there is no file yet."""
        # raises JtgpuError: If the file cannot be read, or is that of another run; the message names what differs.
        if not self.path.exists():
            return None
        try:
            arrays = read_arrays(self.path)
            header = json.loads(bytes(arrays.pop("header"))) if "header" in arrays else {}
            version, options, state = (header.get(name) for name in ("version", "options", "state"))
        except (OSError, AttributeError, *DAMAGED) as error:
            raise JtgpuError(f"the checkpoint {self.path} cannot be read: {error}") from None
        if version != self.version or not isinstance(options, dict) or not isinstance(state, dict):
            raise JtgpuError(f"the checkpoint {self.path} is of an earlier version of jtgpu; {self._advice}")
        differ = [name for name, value in self._options.items() if options.get(name) != value]
        if differ:
            raise JtgpuError(
                f"the checkpoint {self.path} is that of another run: other {', '.join(differ)}; {self._advice}"
            )
        return state, arrays

    def damaged(self, error: Exception) -> JtgpuError:
        """The error of a file whose parts do not fit together."""
        return JtgpuError(f"the checkpoint {self.path} is damaged: {error!r}")

    def is_due(self) -> bool:
        """Whether the last write was an interval ago."""
        return time.monotonic() - self._written >= self._interval

    def write(self, state: Mapping[str, object], arrays: Mapping[str, NDArray[np.generic]], *, durable: bool) -> None:
        """Write the file, also where none is due."""
        header = {"version": self.version, "options": self._options, "state": state}
        try:
            write_bytes(self.path, archive(header, arrays), durable=durable)
        finally:
            self._written = time.monotonic()

    def delete(self) -> None:
        """Delete the file: the run is complete."""
        self.path.unlink(missing_ok=True)
