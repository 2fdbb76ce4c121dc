"""What this machine has: cores, memory that is free, sizes as people write them, a folder for what is kept."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["cache_folder", "cores", "free_memory", "parse_bytes"]

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    f"{u}I{b}": 2 ** (10 * (i + 1)) for i, u in enumerate("KMGT") for b in ("", "B")
}


def parse_bytes(size: int | float | str) -> int:
    """``8_000_000``, ``"8GiB"`` or ``"500 MB"`` as a number of bytes.

    Raises
    ------
    ValueError
        For anything else.
    """
    if isinstance(size, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", size)
        if not found or found[2].upper() not in _UNITS:
            raise ValueError(f"{size!r} is no size; write 8GiB, 500MB or a number of bytes")
        return int(float(found[1]) * _UNITS[found[2].upper()])
    if not size > 0:
        raise ValueError(f"a size in bytes is positive, not {size!r}")
    return int(min(size, 2**62))


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def cache_folder() -> Path:
    """What is kept from run to run: the user's cache folder, or what JTGPU_CACHE_DIR names; need not exist."""
    named = os.environ.get("JTGPU_CACHE_DIR")
    if named:
        return Path(named)
    try:
        import platformdirs
    except ImportError:  # GPU machines that have little else
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jtgpu"
    return Path(platformdirs.user_cache_dir("jtgpu", appauthor=False))


def free_memory() -> int:
    """Bytes that this process can still take without swapping, within its control group's limit."""
    free = _meminfo_available()
    try:  # control group, version 2: a container's limit lies below the machine's
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
        return 4 * 2**30  # nothing tells: assume a small machine
