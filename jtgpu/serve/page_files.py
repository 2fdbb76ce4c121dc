"""The files of the page, from the package."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["PageFile", "page_file"]

FOLDER = Path(__file__).resolve().parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml", ".json": "application/json", ".png": "image/png", ".ico": "image/x-icon",
    ".webmanifest": "application/manifest+json",
}  # fmt: skip


class PageFile(NamedTuple):
    """A file of the page."""

    body: bytes
    kind: str  # media type
    tag: str


def page_file(name: str) -> PageFile | None:
    """The file of a name, which has no folders; None if there is none."""
    path = FOLDER / name
    if not name or "/" in name or "\\" in name or "\0" in name or name.startswith(".") or path.suffix not in TYPES:
        return None
    try:
        changed = path.stat().st_mtime_ns
    except (OSError, ValueError):
        return None
    return _read(path, changed)


@lru_cache(maxsize=256)
def _read(path: Path, changed: int) -> PageFile | None:
    try:
        body = path.read_bytes()
    except OSError:
        return None
    return PageFile(body, TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
