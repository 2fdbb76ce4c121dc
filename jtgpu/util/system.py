"""The machine: processor, cores, memory and the cache folder; sizes in bytes as people write them."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path

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
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", size)
        if not found or found[2].upper() not in _UNITS:
            raise ArgumentError(f"{name} must be a size such as 8GiB, 500MB or a number of bytes, not {shown(size)}")
        n = float(found[1]) * _UNITS[found[2].upper()]
        if n < 1:
            raise ArgumentError(f"{name} must be at least one byte, not {shown(found[0])}")
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
    try:
        import platformdirs
    except ImportError:  # an optional dependency
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jtgpu"
    return Path(platformdirs.user_cache_dir("jtgpu", appauthor=False))


def peak_memory() -> int:
    """Largest resident set of this process so far, in bytes; 0 if the system does not report it."""
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else most * 1024)


def free_memory() -> int:
    """Bytes that this process can allocate without swapping, within the limit of its control group."""
    free = _meminfo_available()
    try:  # control group, version 2: a container's limit is below the machine's
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            free = min(free, int(limit) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return max(free, 0)


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
