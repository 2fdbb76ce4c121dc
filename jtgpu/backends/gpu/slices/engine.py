"""Messages through the slices of dynamic networks on GPUs: the programs, and the evidence of a call."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....device.context import Device
from ....device.driver import most_shared
from ...slices import Side
from .contractions import SliceMaker, SlicePattern
from .evidence import SliceEvidence
from .group import GpuSliceGroup, whole
from .kernels import MOST_LANES, GpuProgram, best_arrays
from .place import CopyBuffers, Place
from .program import SliceWay

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....plans.plan import Plan

MEMORY_SHARE = 0.6  # of the free memory
MOST_KEPT = 16 << 30  # bytes of messages of a group up to which those of all slices are kept
LEAST_GROUP, MOST_GROUP = 1 << 12, 1 << 17  # sequences
WORKERS = 2  # of a device: one computes while another one copies answers
ROUNDS = 2  # groups of a worker, at least, if they are large enough


class GpuPasses:
    """`jtgpu.backends.slices.SlicePasses` of a plan on some GPUs."""

    def __init__(self, plan: Plan, factors: Sequence[NDArray[np.float64]], devices: Sequence[Device]):
        self.plan, self.devices = plan, list(devices)
        self._factors, self._lock = list(factors), threading.Lock()
        least = (float(f.min(where=f > 0, initial=1.0)) for f in factors)
        self.lower = sum(math.log2(x) for x in least)  # of the product of numbers of all factors
        self._makers: dict[SlicePattern, SliceMaker] = {}
        self._programs: dict[Any, GpuProgram] = {}
        self.buffers: dict[int, CopyBuffers] = {}  # by the number of the device
        self.times: dict[int, float] = {}  # microseconds of the last call's kernels by the number of the device

    def slice_table(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]], before: Side, after: Side,
        lengths: NDArray[np.int64], most_kept: int,
    ) -> GpuSliceTable | None:  # fmt: skip
        """The evidence of a call on sequences; None if not even one sequence fits the GPU."""
        table = GpuSliceTable(self, states, likelihood, (before, after), lengths)
        return table if table.lanes else None

    def joined(self, others: Sequence[GpuPasses]) -> GpuPasses:
        """The same passes on more devices."""
        if len(self.devices) == 1:
            self.devices += [d for other in others for d in other.devices]
        return self

    def program(self, pattern: SlicePattern, way: SliceWay, wanted: Sequence[Any], device: Device) -> GpuProgram:
        """The kernels' arguments for one way through a slice."""
        key = (pattern, *_hashable(way), *((e.tobytes(), c) for e, c in wanted), device.ordinal)
        with self._lock:
            if key not in self._programs:
                if pattern not in self._makers:
                    self._makers[pattern] = SliceMaker(self.plan, self._factors, pattern, answers=False)
                made = best_arrays(self._makers[pattern], way, wanted, most_shared(device) - 1024)
                self._programs[key] = GpuProgram(device, made)
            return self._programs[key]

    def close(self) -> None:
        """Free the memory of all programs."""
        with self._lock:
            for buffers in self.buffers.values():
                buffers.close()
            for program in self._programs.values():
                program.close()
            self._programs.clear()


def _hashable(way: SliceWay) -> tuple[Any, ...]:
    return (way.source.number, way.target.number, way.others, way.columns, way.ahead, way.adds)


class GpuSliceTable:
    """`jtgpu.backends.slices.SliceTable`: evidence as compact columns, and what all groups share."""

    takes_others, chooses, counts, adds, with_evidence = True, False, False, True, True

    def __init__(
        self, passes: GpuPasses, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]],
        sides: tuple[Side, Side], lengths: NDArray[np.int64],
    ):  # fmt: skip
        self.passes = passes
        self.evidence = SliceEvidence(passes.plan, states, likelihood, sides, len(lengths))
        passes.times = self._times = dict.fromkeys((d.ordinal for d in passes.devices), 0.0)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._lengths = lengths
        self.most_kept, self.lanes = self._size(0)

    def leave_room(self, n_bytes: int) -> None:
        self.most_kept, self.lanes = self._size(n_bytes)

    def _size(self, more: int) -> tuple[int, int]:
        """Bytes of messages that a group may keep, and sequences of a group; 0 if there is no memory."""
        # more: Bytes of a sequence for sums
        devices, longest = self.passes.devices, int(self._lengths.max())
        free = 1 << 62
        for device in devices:
            with device.active():
                free = min(free, int(MEMORY_SHARE * device.free_memory()))
        free //= WORKERS
        share = -(-len(self._lengths) // len(devices))
        share = whole(min(share, max(-(-share // (WORKERS * ROUNDS)), LEAST_GROUP), MOST_GROUP))
        wave = min(share, devices[0].multiprocessors * MOST_LANES)
        message, row = 8 * self.evidence.n_entries, self.evidence.row_bytes
        each = longest * (row + 8 * int(self.passes.plan.cardinality.sum())) + 8 * message + 64 + more
        everything = message * (longest + 1)
        if wave * everything <= min(MOST_KEPT, free // 2):
            lanes = min(free // (each + everything), MOST_KEPT // everything)
        else:
            lanes, everything = free // (each + 2 * message * math.isqrt(longest)), 0
        lanes = min(lanes // MOST_LANES * MOST_LANES, share)
        return lanes * everything, lanes

    def group(
        self, first: NDArray[np.int64], lengths: NDArray[np.int64], message: NDArray[np.float64]
    ) -> GpuSliceGroup:
        """Some sequences, at most as many as there are lanes."""
        place = self.place()
        with place.device.active():
            return GpuSliceGroup(self.evidence, self.note_time, place, first, lengths, message)

    def place(self, device: Device | None = None) -> Place:
        """The device of this thread, and memory of groups that have ended."""
        # device: Default: the first one, unless the thread has one
        if device is not None or not hasattr(self._local, "place"):
            device = device or self.passes.devices[0]
            buffers = self.passes.buffers.setdefault(device.ordinal, CopyBuffers(device))
            self._local.place = Place(device, buffers)
        place: Place = self._local.place
        return place

    def run_all(self, work: Callable[[Any], None], parts: Sequence[Any], each: int) -> None:
        """Call a function with every part, on a few threads a device."""
        waiting, errors = deque(parts), list[BaseException]()

        def serve(device: Device) -> None:
            place = self.place(device)
            try:
                while waiting and not errors:
                    try:
                        part = waiting.popleft()
                    except IndexError:
                        return
                    work(part)
            except BaseException as error:
                errors.append(error)
            finally:
                place.close()
                del self._local.place

        devices = (self.passes.devices * WORKERS)[: max(len(parts), 1)]
        threads = [threading.Thread(target=serve, args=(d,), name=f"jtgpu-GPU {d.ordinal}") for d in devices[1:]]
        for thread in threads:
            thread.start()
        serve(devices[0])
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def note_time(self, device: Device, microseconds: float) -> None:
        """Add the time of kernels on a device."""
        with self._lock:
            self._times[device.ordinal] += microseconds
