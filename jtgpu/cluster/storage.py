"""Files on this machine, on shared disks and in object storage, by path or URI.

Arrow supports ``s3://``, ``gs://``, ``abfs://``, ``hdfs://`` and ``file://``; fsspec, if it is installed, many more.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import JtgpuError
from ..inference.tables.arrow import arrow
from ..util.atomic_file import write_bytes

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
