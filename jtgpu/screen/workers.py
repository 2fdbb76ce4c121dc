"""Rows are independent: a search is divided between threads, without effect on any bit of the results."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ..util.arguments import choice, whole_number
from ..util.system import cores

__all__ = ["on_threads", "resolve_backend"]

BACKENDS = ("auto", "cpu", "reference")
PIECE = 256  # rows that a thread takes at a time


def resolve_backend(name: str) -> tuple[str, str]:
    """The backend that computes, and why."""
    if choice("backend", name, BACKENDS) == "auto":
        return "cpu", "auto: there is no GPU kernel for screening"
    return name, "as requested"


def on_threads(work: Callable[[slice], int], n: int, threads: int | None) -> int:
    """The sum of what `work` returns for slices that cover n rows."""
    if threads is not None:
        whole_number("threads", threads, 1)
    pieces = [slice(first, min(first + PIECE, n)) for first in range(0, n, PIECE)]
    n_threads = min(len(pieces), threads or cores())
    if n_threads <= 1:
        return sum(map(work, pieces))
    with ThreadPoolExecutor(n_threads, "jtgpu-screen") as pool:
        return sum(pool.map(work, pieces))
