"""Write a file completely or not at all. All files that this package creates are written here.

The data go to a temporary file in the target's folder, which takes the target's name (`os.replace`) once it is
complete. Readers see the old contents or the new ones, never a mixture, and concurrent writers do not disturb each
other: the last one to finish wins. After any exception, Ctrl-C included, the temporary file is deleted and the old
contents are untouched. A process that is killed leaves its temporary file; the next process that writes to the folder
deletes it: a writer holds a lock on its file as long as it lives.

Durability: with ``durable=True`` (the default, for files that belong to the user) the data reach the disk (fsync)
before the file takes its name, and so does the folder's new entry where the operating system can do that. Caches pass
``durable=False``: after a power failure their entries may be empty, so readers of a cache must validate them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_TEMPORARY = re.compile(r"\.jtgpu-\d+-[0-9a-f]{12}")
# Errors of a write that reach the caller without a file name.
_WRITE_ERRORS = {errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC)}


@contextmanager
def open_atomic(
    path: str | os.PathLike[str], *, durable: bool = True, make_folders: bool = False
) -> Iterator[BinaryIO]:
    """Open a binary file for writing that appears under its name when the block ends without an exception."""
    # path: The file to create or replace. A symbolic link is followed. A replacement keeps the permissions of the old
    #     file; a new file has those that the umask allows. A pipe, a terminal or another special file cannot be
    #     replaced and is written to directly.
    # durable: Flush the data to the disk before the file takes its name
    # make_folders: Create missing folders above the file
    # yields Open for writing, not for reading.
    # raises OSError: If the file cannot be written: of the type that fits (`PermissionError`, `FileNotFoundError`,
    #     `IsADirectoryError` ...), with `filename` set to `path`. Exceptions raised by the block propagate unchanged,
    #     except that "no space left" and its relatives gain the file name.
    name = os.fspath(path)
    target = os.path.realpath(name)
    with _named(name):
        if make_folders:
            os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        special = os.path.exists(target) and not os.path.isfile(target)
    if special:
        with _named(name):
            direct = open(target, "wb")  # noqa: SIM115 (closed below)
        with direct, _named_write_errors(name):
            yield direct
        return

    folder = os.path.dirname(target)
    _remove_leftovers(folder)
    temporary = os.path.join(folder, f".jtgpu-{os.getpid()}-{os.urandom(6).hex()}")
    try:
        with _named(name):
            file = _create(temporary)
        try:
            with _named_write_errors(name):
                yield file
            with _named(name):
                file.flush()
                if durable:
                    os.fsync(file.fileno())
                file.close()
        except BaseException:
            with contextlib.suppress(OSError):  # closing writes again what a full disk did not take
                file.close()
            raise
        with _named(name):
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        flush_folder(folder)


def write_bytes(path: str | os.PathLike[str], data: bytes, *, durable: bool = True, make_folders: bool = False) -> None:
    """Create or replace a file with `data`; parameters and errors as for `open_atomic`."""
    with open_atomic(path, durable=durable, make_folders=make_folders) as file:
        file.write(data)


def write_text(path: str | os.PathLike[str], text: str, *, durable: bool = True, make_folders: bool = False) -> None:
    """Create or replace a file with `text` in UTF-8, line ends as they are; parameters and errors as `open_atomic`."""
    write_bytes(path, text.encode("utf-8"), durable=durable, make_folders=make_folders)


def _create(path: str) -> BinaryIO:
    # os.open, not tempfile.mkstemp: the permissions are those of any new file (umask), not 0600
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if not os.fstat(handle).st_nlink:  # another process took it for a leftover before it was locked
            os.close(handle)
            return _create(path)
    return open(handle, "wb")


_searched: set[str] = set()  # folders in which this process has looked for leftovers


def _remove_leftovers(folder: str) -> None:
    """Delete temporary files of processes that were killed, once for each folder."""
    if folder in _searched or fcntl is None:
        return
    _searched.add(folder)
    with contextlib.suppress(OSError):
        for name in filter(_TEMPORARY.fullmatch, os.listdir(folder)):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while the writer lives
                    os.unlink(path)
                finally:
                    os.close(handle)


def flush_folder(folder: str) -> None:
    """Flush the folder's entries to the disk; a no-op where folders cannot be opened (Windows)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Make an `OSError` name the file that the caller wants written, not the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, name) from None  # the constructor picks the subclass


@contextmanager
def _named_write_errors(name: str) -> Iterator[None]:
    """Add the file's name to the errors of a full disk; every other exception passes unchanged."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _WRITE_ERRORS:
            error.filename = name
        raise
