"""``progress=True``: one line on stderr that counts cases, in a terminal, in a notebook, and in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from ..errors import EvidenceError

Progress = Callable[[int, int, int], None]  # cases answered; how much has been read, of how much

REDRAW = 0.1  # seconds between two updates of a line
LOG = 10.0  # seconds between two lines of a log


@contextmanager
def progress_of(wanted: bool | Progress | None) -> Iterator[Progress | None]:
    """What to call with the progress of a run."""
    # wanted: True: a line on stderr. A callable: this one. False or None: nothing.
    # raises EvidenceError: If `wanted` is anything else.
    if wanted is None or wanted is False:
        yield None
    elif callable(wanted):
        yield wanted
    elif wanted is True:
        line = _Line(sys.stderr)
        try:
            yield line
        finally:
            line.close()
    else:
        raise EvidenceError(f"progress must be True, False or a function of three numbers, not {wanted!r}")


class _Line:
    """A line that is drawn again and again, or lines now and then where lines cannot be drawn again."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        # of notebooks: OutStream of ipykernel
        self._redraws = stream.isatty() or type(stream).__module__.startswith("ipykernel")
        self._first: tuple[int, float] | None = None
        self._drawn, self._width, self._last = 0.0, 0, ""

    def __call__(self, cases: int, done: int, total: int) -> None:
        now = time.perf_counter()
        if self._first is None:  # the rate excludes an earlier run and the first chunk, which may compile loops
            self._first = cases, now
            if not self._redraws:
                self._drawn = now
        self._last = self._text(cases, done, total, now)
        if now - self._drawn >= (REDRAW if self._redraws else LOG):
            self._draw(now)

    def _text(self, cases: int, done: int, total: int, now: float) -> str:
        assert self._first is not None
        first, since = self._first
        share = min(done / max(total, 1), 1.0)
        text = f"{cases:,} cases  {share:4.0%}"
        if cases > first and now > since:
            text += f"  {(cases - first) / (now - since):,.0f} cases/s"
        if 0.0 < share < 1.0 and now > since:
            seconds = round((now - since) * (1.0 - share) / share)
            text += f"  {seconds // 60}:{seconds % 60:02d} left"
        return text

    def _draw(self, now: float) -> None:
        padded = self._last.ljust(self._width)
        self._stream.write(f"\r{padded}" if self._redraws else f"{self._last}\n")
        self._stream.flush()
        self._drawn, self._width, self._last = now, len(self._last), ""

    def close(self) -> None:
        """Show the last state, and end the line."""
        if self._last:
            self._draw(0.0)
        if self._redraws and self._width:
            self._stream.write("\n")
            self._stream.flush()
