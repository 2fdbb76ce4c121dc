"""The machine: processor, cores, memory and the cache folder; sizes in bytes as people write them."""

from __future__ import annotations

import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from ..errors import ArgumentError, shown
from .arguments import number

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{u}I{b}": 2 ** (10 * (i + 1)) for i, u in enumerate("KMGT") for b in ("", "B")
}


def parse_bytes(size: int | float | str, name: str = "a size") -> int:
    """Number of bytes of ``8_000_000``, ``"8GiB"`` or ``"500 MB"``."""
    # name: Of the argument, for messages
    # raises ArgumentError: If `size` has another form, or is not positive.
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", size)
        if not match or match[2].upper() not in _UNITS:
            raise ArgumentError(f"{name} must be a size such as 8GiB, 500MB or a number of bytes, not {shown(size)}")
        n = float(match[1]) * _UNITS[match[2].upper()]
        if n < 1:
            raise ArgumentError(f"{name} must be at least one byte, not {shown(match[0])}")
        return int(min(n, 2**62))
    return int(min(number(name, size, above=0), 2**62))


def cores() -> int:
    """Number of cores available to this process."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def cpu_name() -> str:
    """Model of the processor and number of cores that this process may use: ``"EPYC 7502, 8 cores"``."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    n = cores()
    return f"{model or platform.processor() or platform.machine()}, {n} core{'s' if n != 1 else ''}"


def cache_folder() -> Path:
    """Folder of the caches that outlive a process: JTGPU_CACHE_DIR, else the user's cache folder; may not exist yet."""
    named = os.environ.get("JTGPU_CACHE_DIR")
    if named:
        return Path(named)
    with suppress(ImportError):  # an optional dependency, which takes milliseconds and says the same on Linux
        if sys.platform != "linux":
            import platformdirs

            return Path(platformdirs.user_cache_dir("jtgpu", appauthor=False))
    return Path(os.environ.get("XDG_CACHE_HOME", "").strip() or Path.home() / ".cache") / "jtgpu"


def peak_memory() -> int:
    """Largest resident set of this process so far, in bytes; 0 if the system does not report it."""
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else most * 1024)


def free_memory(groups: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self")) -> int:
    """Bytes that this process can allocate without swapping, within its limits: control groups and ``ulimit -v``."""
    free = _meminfo_available()
    for folder, (limit, current, cached) in _control_groups(groups, process):
        with suppress(OSError, ValueError, KeyError):
            most = (folder / limit).read_text().strip()
            if most != "max" and int(most) < 1 << 62:  # version 1 writes a number for no limit
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                used = int((folder / current).read_text()) - int(stat[cached])  # of files read before
                free = min(free, int(most) - used)
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        most_virtual = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most_virtual != resource.RLIM_INFINITY:
            pages = int((process / "statm").read_text().split()[0])
            free = min(free, most_virtual - pages * resource.getpagesize())
    return max(free, 1 << 22)  # 4 MiB can be allocated at any time


@cache
def _control_groups(groups: Path, process: Path) -> list[tuple[Path, tuple[str, str, str]]]:
    """Control groups of a process that may limit its memory, of both versions, and the names of what they record.

    In a container the groups above are hidden, and the root is its own group, whatever path the process sees.
    """
    own = {1: PurePosixPath("/"), 2: PurePosixPath("/")}
    with suppress(OSError):
        for line in (process / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "memory" in controllers.split(","):
                own[1 if controllers else 2] = PurePosixPath(path)
    names = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
             2: ("memory.max", "memory.current", "inactive_file")}  # fmt: skip
    roots = {1: groups / "memory", 2: groups}
    folders = [(roots[k] / p.relative_to("/"), names[k]) for k, path in own.items() for p in (path, *path.parents)]
    return [(folder, known) for folder, known in folders if (folder / known[0]).exists()]


def _meminfo_available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 4 * 2**30  # unknown: assume a small machine


# Locks that the child of ``os.fork()`` can acquire, whatever the threads of the parent held at that moment.
#
# Only the thread that calls ``os.fork()`` exists in the child. A lock that another thread held stays locked there,
# and nobody releases it. Objects that live longer than a call therefore get their locks from `new_lock`, which are
# free in every child, and objects whose state refers to threads (counts of idle threads, results that a thread
# computes) reset it by `reset_in_child`. What a thread of the parent was computing is lost in the child, which
# computes it again.
#
# A CUDA context does not survive a fork: GPU backends cannot be used in a child.

T = TypeVar("T")

_locks: WeakSet[Any] = WeakSet()
_resets: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


def new_lock() -> threading.Lock:
    """A lock that is free in the child of a fork, even if a thread holds it at that moment."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def reset_in_child(owner: T, reset: Callable[[T], object]) -> None:
    """Call ``reset(owner)`` in every child of a fork, as long as `owner` exists.

    `reset` must not refer to `owner` other than by its parameter, and needs no locks: the child has one thread.
    """
    _resets[owner] = reset


def _renew() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # as the standard library does with its own locks
    for owner, reset in list(_resets.items()):
        reset(owner)
    for lock in _compiler_locks():
        lock._at_fork_reinit()
    if sys.version_info < (3, 12):
        _renew_cached_properties()


def _compiler_locks() -> Iterator[Any]:
    """The locks of Numba and llvmlite, which a thread holds while it loads or compiles loops, if they are imported."""
    for module, owner in (("numba.core.compiler_lock", "global_compiler_lock"), ("llvmlite.binding.ffi", "lib")):
        lock = getattr(sys.modules.get(module), owner, None)
        while lock is not None and not hasattr(lock, "_at_fork_reinit"):
            lock = getattr(lock, "_lock", None)
        if lock is not None:
            yield lock


def _renew_cached_properties() -> None:
    """Up to Python 3.11, a `functools.cached_property` holds a lock while it computes the value for any object."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("jtgpu.") or module is None:
            continue
        for cls in list(vars(module).values()):
            if isinstance(cls, type) and cls.__module__ == name:
                for attribute in vars(cls).values():
                    if isinstance(attribute, cached_property):
                        attribute.lock = threading.RLock()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew)
