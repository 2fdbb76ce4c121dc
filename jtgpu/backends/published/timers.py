"""Times of one message's phase on a device, by events."""

from __future__ import annotations

from typing import Any

from ...device.context import Device, Launch
from .host import Clock


class NoTimer:
    """Replaces a `PhaseTimer` if nothing is measured."""

    def kernels(self) -> None:
        """Copies to the device are queued; kernels follow."""

    def done(self) -> None:
        """The phase's kernels are queued; normalisation or copies back follow."""

    def back(self) -> None:
        """Normalisation is queued; copies back follow."""

    def end(self) -> None:
        """Everything is queued."""


class PhaseTimer(NoTimer):
    """Measures one message's phase with device events and reports it to a clock.

    Without transfers, a kernel that occupies the stream lets the host queue all kernels before the first one starts.
    """
    # hold: Occupies the stream

    def __init__(self, device: Device, stream: Any, clock: Clock, phase: str, hold: Launch):
        self.device, self.stream, self.clock, self.phase, self.hold = device, stream, clock, phase, hold
        self.events: list[Any] = []
        stream.synchronize()
        self._record()

    def _record(self) -> None:
        event = self.device.event(timing=True)
        event.record(self.stream)
        self.events.append(event)

    def kernels(self) -> None:
        if self.clock.kernels_only:
            self.device.launch(self.hold, self.stream)
        self._record()

    def done(self) -> None:
        self._record()

    def back(self) -> None:
        self._record()

    def end(self) -> None:
        """See `NoTimer`; waits, and reports to the clock."""
        self._record()
        self.events[-1].synchronize()
        first, begin, done, *rest, last = self.events
        kernels = done.time_since(begin) * 1e-3
        if rest:
            self.clock.add("normalise", rest[0].time_since(done) * 1e-3)
        back = last.time_since(rest[0] if rest else done) * 1e-3
        there = begin.time_since(first) * 1e-3
        self.clock.add(self.phase, kernels if self.clock.kernels_only else there + kernels + back)
