"""A file is written completely or not at all."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from jtgpu.util import atomic_file
from jtgpu.util.atomic_file import open_atomic, write_bytes, write_text


def only(folder: Path, *names: str) -> None:
    assert sorted(os.listdir(folder)) == sorted(names)


def test_creates_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_bytes(target, b"one")
    assert target.read_bytes() == b"one"
    write_text(str(target), "zw\u00f6lf\r\n\n", durable=False)
    assert target.read_bytes() == "zw\u00f6lf\r\n\n".encode()
    with open_atomic(target) as file:
        file.write(b"x" * 100_000)
        assert target.read_bytes() == "zw\u00f6lf\r\n\n".encode()  # readers see the old contents until the block ends
    assert target.stat().st_size == 100_000
    only(tmp_path, "a.txt")


@pytest.mark.parametrize("exception", [RuntimeError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_an_exception_leaves_the_old_contents_and_no_temporary_file(tmp_path: Path, exception: BaseException) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")

    def fail() -> None:
        with open_atomic(target) as file:
            file.write(b"half")
            raise exception

    with pytest.raises(type(exception)):
        fail()
    assert target.read_bytes() == b"old"
    only(tmp_path, "a")


@pytest.mark.parametrize("where", ["write", "flush", "fsync", "replace"])
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if where == "write":
        create = atomic_file._create

        class Full:
            def __init__(self, path: str) -> None:
                self.file = create(path)
                self.write = fail

            def close(self) -> None:
                self.file.close()

        monkeypatch.setattr(atomic_file, "_create", Full)
    elif where == "flush":

        class FullDisk(io.FileIO):
            write = fail  # type: ignore[assignment]

        monkeypatch.setattr(atomic_file, "_create", lambda path: io.BufferedWriter(FullDisk(path, "w")))
    else:
        monkeypatch.setattr(os, where, fail)
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with pytest.raises(OSError, match=r"No space left on device.*a'") as caught:
        write_bytes(target, b"new")
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(target)
    assert target.read_bytes() == b"old"
    only(tmp_path, "a")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a file size limit")
def test_file_size_limit_of_the_operating_system(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "from jtgpu.util.atomic_file import write_bytes\n"
        "try:\n    write_bytes(sys.argv[1], bytes(200_000))\n"
        "except OSError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert str(tmp_path / "a") in done.stdout
    only(tmp_path)


def test_errors_of_the_block_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, open_atomic(tmp_path / "a"):
        (tmp_path / "missing").read_bytes()
    assert caught.value.filename == str(tmp_path / "missing")
    only(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError) as caught:
            write_bytes(tmp_path / "a", b"")
    finally:
        tmp_path.chmod(0o700)
    assert caught.value.filename == str(tmp_path / "a")
    only(tmp_path)


def test_a_folder_that_refuses_new_files_is_reported_with_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:  # what a read-only folder does, for tests that run as root
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(atomic_file, "_create", refuse)
    with pytest.raises(PermissionError) as caught:
        write_bytes(tmp_path / "a", b"")
    assert caught.value.filename == str(tmp_path / "a")


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_bytes(tmp_path / "x" / "a", b"")
    assert caught.value.filename == str(tmp_path / "x" / "a")
    with pytest.raises(IsADirectoryError):
        write_bytes(tmp_path, b"")
    write_bytes(tmp_path / "x" / "y" / "a", b"1", make_folders=True)
    assert (tmp_path / "x" / "y" / "a").read_bytes() == b"1"


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_bytes(tmp_path / "a", b"")
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640  # new: the umask's
        (tmp_path / "a").chmod(0o604)
        write_bytes(tmp_path / "a", b"")
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o604  # replaced: those it had
    finally:
        os.umask(before)


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "a")
    write_bytes(tmp_path / "link", b"1")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a").read_bytes() == b"1"
    only(tmp_path / "real", "a")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_to_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_bytes(pipe, b"through")
    reader.join(30)
    assert found == [b"through"]
    only(tmp_path, "pipe")


def test_concurrent_writers(tmp_path: Path) -> None:
    target = tmp_path / "a"
    contents = [bytes([i]) * 60_000 for i in range(8)]
    seen: list[bytes] = []

    def write(data: bytes) -> None:
        for _ in range(20):
            write_bytes(target, data, durable=False)
            seen.append(target.read_bytes())

    threads = [threading.Thread(target=write, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 160
    assert set(seen) <= set(contents)
    only(tmp_path, "a")


WRITER = """
import sys, time
from jtgpu.util.atomic_file import open_atomic
with open_atomic(sys.argv[1]) as file:
    file.write(b"half")
    print("begun", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_leaves_is_deleted_by_the_next_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".jtgpu-notes").write_text("mine")
    (tmp_path / ".jtgpu-1-0123456789ab").symlink_to(tmp_path / ".jtgpu-notes")
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "a")], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    with writer, writer.stdout:
        writer.stdout.readline()
        left = [name for name in os.listdir(tmp_path) if name.startswith(f".jtgpu-{writer.pid}-")]
        write_bytes(tmp_path / "b", b"")
        only(tmp_path, "b", ".jtgpu-notes", ".jtgpu-1-0123456789ab", *left)  # the writer lives
        writer.kill()
    monkeypatch.setattr(atomic_file, "_searched", set())  # of another process
    write_bytes(tmp_path / "b", b"")
    assert len(left) == 1
    only(tmp_path, "b", ".jtgpu-notes", ".jtgpu-1-0123456789ab")


def test_a_file_deleted_before_it_is_locked_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, calls = fcntl.flock, list[int]()

    def late(handle: int, how: int) -> None:
        if not calls:
            for name in os.listdir(tmp_path):
                (tmp_path / name).unlink()
        calls.append(how)
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    write_bytes(tmp_path / "a", b"new")
    assert len(calls) == 2
    assert (tmp_path / "a").read_bytes() == b"new"
    only(tmp_path, "a")
