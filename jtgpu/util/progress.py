"""Progress messages of long preparations: kernels to compile, engines to measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("jtgpu_progress", default=None)


@contextmanager
def reporting(progress: Callable[[str], None] | None) -> Iterator[None]:
    """Make `report` call `progress` within the block, in the same thread; None: no reports."""
    before = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(before)


def report(text: str) -> None:
    """Pass a message to the function that `reporting` has set."""
    progress = _listener.get()
    if progress is not None:
        progress(text)
