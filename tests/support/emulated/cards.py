"""Emulated devices with memory, contexts, streams and events, as in PyCUDA; notes mistakes that CUDA would let pass."""

from __future__ import annotations

import ctypes
import os
import random
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

CARDS = int(os.environ.get("JTGPU_EMULATED_CARDS", "2"))
BYTES = int(os.environ.get("JTGPU_EMULATED_BYTES", str(4 << 30)))
CAPABILITY = tuple(int(x) for x in os.environ.get("JTGPU_EMULATED_CAPABILITY", "9.0").split("."))
ORDER = os.environ.get("JTGPU_EMULATED_ORDER", "late")
SHARED = 232_448 if CAPABILITY >= (9, 0) else 166_912  # largest shared memory of a block; 48 KB without opting in
MULTIPROCESSORS = int(os.environ.get("JTGPU_EMULATED_MULTIPROCESSORS", "2"))
POISON, BORDER, PAGE = 0xCD, 256, 512
MOST_POISON = 64 << 20  # larger memory is not filled: the host would have to provide all of it

chance = random.Random(1)
lock = threading.RLock()  # one call at a time: fibers are global to a library, and queues have no locks
violations: list[str] = []  # mistakes that CUDA might have let pass; they fail the test
queued: list[str] = []  # names of kernels, in order
counts = {"launches": 0, "graphs": 0, "seconds": 0.0, "built": 0.0}


def violate(text: str) -> None:
    """Note a mistake that has no return code."""
    violations.append(text)


# Errors ---------------------------------------------------------------------------------------------------------------


class CUresult(IntEnum):
    """The codes that occur here."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901


class EmulatedError(Exception):
    """``pycuda.driver.Error``."""


class EmulatedMemoryError(EmulatedError):
    """``pycuda.driver.MemoryError``."""


class EmulatedLogicError(EmulatedError):
    """``pycuda.driver.LogicError``: carries the code."""

    def __init__(self, code: CUresult, text: str = ""):
        super().__init__(f"{code.name}: {text}")
        self.code = code


# Cards and contexts ---------------------------------------------------------------------------------------------------


class Block:
    """Device memory or page-locked memory, with guard bytes at both ends."""

    def __init__(self, n_bytes: int):
        self.n_bytes = n_bytes
        self.copies = 0  # queued copies to or from it
        self.raw = np.empty(n_bytes + 2 * BORDER, np.uint8)
        self.raw[:BORDER] = self.raw[BORDER + n_bytes :] = POISON
        if n_bytes <= MOST_POISON:
            self.raw[:] = POISON
        self.address = int(self.raw.ctypes.data) + BORDER

    def look(self) -> None:
        """Note writes outside of the memory."""
        if (self.raw[:BORDER] != POISON).any() or (self.raw[BORDER + self.n_bytes :] != POISON).any():
            violate(f"something was written outside of {self.n_bytes} bytes of memory")

    def end(self) -> None:
        """Free it; later reads see poison."""
        self.look()
        if self.n_bytes <= MOST_POISON:
            self.raw[:] = POISON

    def holds(self, address: int, n_bytes: int) -> bool:
        return self.address <= address and address + n_bytes <= self.address + self.n_bytes


class Card:
    """One emulated device."""

    def __init__(self, ordinal: int):
        self.ordinal = ordinal
        self.memory: dict[int, Block] = {}  # by address
        self.globals: dict[int, int] = {}  # address: bytes; of modules
        self.taken = 0
        self.thread = 0  # the thread that retained its context
        self.streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self.legacy = Stream(self)
        self.context = Context(self)

    def drain(self) -> None:
        """Run all queued work."""
        for stream in [*self.streams]:
            stream.drain()

    def check(self, address: Any, n_bytes: int) -> None:
        """Raise unless it is memory of this device."""
        if not isinstance(address, int) or isinstance(address, bool):
            raise TypeError(f"an address is an int, not {type(address).__name__}")
        known = any(b.holds(address, n_bytes) for b in self.memory.values())
        if not known and not any(a <= address and address + n_bytes <= a + n for a, n in self.globals.items()):
            code = CUresult.CUDA_ERROR_INVALID_VALUE
            raise EmulatedLogicError(code, f"{n_bytes} bytes are not memory of device {self.ordinal}")


class Context:
    """A device's primary context."""

    def __init__(self, card: Card):
        self.card = card

    def push(self) -> None:
        stack().append(self)

    @staticmethod
    def pop() -> None:
        if not stack():
            raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_CONTEXT, "nothing to pop")
        stack().pop()

    @staticmethod
    def get_current() -> Context | None:
        return stack()[-1] if stack() else None

    @staticmethod
    def synchronize() -> None:
        with lock:
            current().drain()


_threads = threading.local()


def stack() -> list[Context]:
    """The contexts of this thread."""
    if not hasattr(_threads, "stack"):
        _threads.stack = []
    found: list[Context] = _threads.stack
    return found


def current() -> Card:
    """The device whose context is current."""
    if not stack():
        raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_CONTEXT, "no context is current in this thread")
    return stack()[-1].card


def no_capture(what: str) -> None:
    """Raise if this thread captures a stream: the call would invalidate the capture."""
    if any(s.recorded is not None and s.recorder == threading.get_ident() for s in Stream.all):
        raise EmulatedLogicError(CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, what)


# Streams and events ---------------------------------------------------------------------------------------------------


class Stream:
    """``pycuda.driver.Stream``."""

    all: ClassVar[weakref.WeakSet[Stream]] = weakref.WeakSet()
    handles: ClassVar[weakref.WeakValueDictionary[int, Stream]] = weakref.WeakValueDictionary()
    last = 0x1000

    def __init__(self, card: Card | None = None):
        with lock:
            self.card = current() if card is None else card
            self.waiting: deque[Callable[[], None]] = deque()
            self.queued = self.done = 0
            self.recorded: list[Callable[[], None]] | None = None  # while it is captured
            self.recorder = 0
            self.busy = False
            Stream.last += 8
            self.handle = 0 if card is not None else Stream.last
            if self.handle:
                Stream.handles[self.handle] = self
            Stream.all.add(self)
            self.card.streams.add(self)

    def __del__(self) -> None:
        if self.waiting and not sys.is_finalizing():
            self.drain()
        if self.handle:
            ended(self.card, "stream")

    def put(self, work: Callable[[], None]) -> None:
        """Queue work, or record it."""
        with lock:
            if current() is not self.card:
                raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_HANDLE, "a stream of another context")
            if self.recorded is not None:
                self.recorded.append(work)
                return
            if self is self.card.legacy:  # it synchronises with all other streams
                self.card.drain()
                work()
                return
            self.waiting.append(work)
            self.queued += 1
            if ORDER == "early":
                self.drain()

    def drain(self, upto: int | None = None) -> None:
        """Run the queued work, or its first part."""
        with lock:
            if self.busy:
                return
            self.busy = True
            try:
                while self.waiting and (upto is None or self.done < upto):
                    if ORDER == "mixed":
                        self.others()
                    self.waiting.popleft()()
                    self.done += 1
            finally:
                self.busy = False

    def others(self) -> None:
        """Let other streams of the device advance."""
        for other in sorted(self.card.streams, key=lambda s: s.handle):
            if not other.waiting or other.busy:
                continue
            on = getattr(other.waiting[0], "on", None)
            if (on is None or on[0].done >= on[1]) and chance.random() < 0.5:
                other.drain(other.done + 1)

    def synchronize(self) -> None:
        with lock:
            if self.recorded is not None:
                raise EmulatedLogicError(CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a captured stream")
            current()
            self.drain()

    def is_done(self) -> bool:
        return not self.waiting

    def wait_for_event(self, event: Event) -> None:
        if not isinstance(event, Event):
            raise TypeError("an event")
        if event.capture[0] is not None:  # fork and join: work of this stream belongs to the same graph from now on
            if self.recorded is None:
                self.recorded, self.recorder = event.capture
            elif self.recorded is not event.capture[0]:
                raise EmulatedLogicError(CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "two captures")
            return
        on = event.on
        if on is None:
            return

        def wait() -> None:
            on[0].drain(on[1])
            assert on[0].done >= on[1]

        wait.on = on  # type: ignore[attr-defined]
        self.put(wait)


class Event:
    """``pycuda.driver.Event``."""

    def __init__(self, flags: int = 0):
        self.card, self.timing = current(), not flags & 2
        self.on: tuple[Stream, int] | None = None  # what was queued when it was recorded
        self.capture: tuple[list[Callable[[], None]] | None, int] = (None, 0)  # that it was recorded in
        self.when: float | None = None

    def __del__(self) -> None:
        ended(self.card, "event")

    def record(self, stream: Stream | None = None) -> Event:
        with lock:
            to = stream if stream is not None else self.card.legacy
            self.capture = to.recorded, to.recorder
            if to.recorded is not None:
                return self
            self.when = None
            this = self.on = (to, to.queued + (to is not to.card.legacy))

            def now() -> None:
                if self.on is this:
                    self.when = time.perf_counter()

            to.put(now)
            return self

    def synchronize(self) -> Event:
        current()
        if self.on is not None:
            self.on[0].drain(self.on[1])
        return self

    def query(self) -> bool:
        return self.on is None or self.on[0].done >= self.on[1]

    def time_since(self, other: Event) -> float:
        if not self.timing or not other.timing:
            raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_HANDLE, "an event without timing")
        if self.when is None or other.when is None:
            raise EmulatedLogicError(CUresult.CUDA_ERROR_NOT_READY, "nothing waited for it")
        return max((self.when - other.when) * 1e3, 1e-3)


def ended(card: Card, what: str) -> None:
    """Note a leak: PyCUDA cannot destroy an object whose context is neither current nor retained by this thread."""
    if sys.is_finalizing():
        return
    if card.thread != threading.get_ident() and (not stack() or stack()[-1].card is not card):
        violate(f"a {what} ended in a thread where its context is not current")


# Memory ---------------------------------------------------------------------------------------------------------------


pins: dict[int, Block] = {}  # by address


class Allocation:
    """``pycuda.driver.DeviceAllocation``."""

    def __init__(self, card: Card, block: Block):
        self.card, self.block = card, block

    def __int__(self) -> int:
        return self.block.address

    def free(self) -> None:
        with lock:
            if current() is not self.card:
                raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_CONTEXT, "memory of another context")
            if self.card.memory.pop(self.block.address, None) is None:
                raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_HANDLE, "freed twice")
            if any(s.waiting for s in self.card.streams):
                self.card.drain()
            self.card.taken -= rounded(self.block.n_bytes)
            self.block.end()

    def __del__(self) -> None:
        if self.block.address in self.card.memory and not sys.is_finalizing():
            violate(f"{self.block.n_bytes} bytes of device memory were left to a destructor")


def rounded(n: int) -> int:
    return -(-n // PAGE) * PAGE


_cards: list[Card] = []


def cards() -> list[Card]:
    """All of them."""
    if not _cards:
        _cards.extend(Card(i) for i in range(CARDS))
    return _cards


def mem_get_info() -> tuple[int, int]:
    return BYTES - current().taken, BYTES


def mem_alloc(n_bytes: int) -> Allocation:
    with lock:
        card = current()
        no_capture("an allocation")
        if n_bytes <= 0:
            raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, f"{n_bytes} bytes")
        if card.taken + rounded(n_bytes) > BYTES:
            raise EmulatedMemoryError("cuMemAlloc failed: out of memory")
        block = Block(n_bytes)
        card.memory[block.address] = block
        card.taken += rounded(n_bytes)
        return Allocation(card, block)


class Pinned:
    """``pycuda.driver.PagelockedHostAllocation``: what such an array's ``base`` is."""

    def __init__(self, cells: int, dtype: Any):
        current()
        self.dtype = np.dtype(dtype)
        self.block = Block(cells * self.dtype.itemsize)
        pins[self.block.address] = self.block
        self.__array_interface__ = {
            "shape": (cells,), "typestr": self.dtype.str, "data": (self.block.address, False), "version": 3
        }  # fmt: skip

    def free(self) -> None:
        with lock:
            current()
            if pins.pop(self.block.address, None) is None:
                raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_HANDLE, "freed twice")
            if self.block.copies:
                violate("page-locked memory is freed before a queued copy")
            self.block.end()


def pagelocked_empty(shape: Any, dtype: Any) -> Any:
    if not isinstance(shape, int):
        raise TypeError("emulated: a number of cells")
    with lock:
        return np.asarray(Pinned(shape, dtype))


def host_range(array: Any) -> tuple[int, int, Block | None]:
    """Address and bytes of a C-contiguous array, and the page-locked memory that contains it."""
    if not isinstance(array, np.ndarray):
        raise TypeError("emulated: arrays only")
    if not array.flags.c_contiguous:
        raise ValueError("ndarray is not contiguous")
    address = int(array.ctypes.data)
    return address, array.nbytes, next((b for b in pins.values() if b.holds(address, array.nbytes)), None)


def memcpy_htod_async(dest: int, src: Any, stream: Stream | None = None) -> None:
    with lock:
        to = stream or current().legacy
        address, n, pinned = host_range(src)
        to.card.check(dest, n)
        kept = src
        if pinned is None:  # the driver has read it when the call returns
            kept = src.copy()
            address = int(kept.ctypes.data)
        to.put(copying(dest, address, n, kept, pinned))


def memcpy_dtoh_async(dest: Any, src: int, stream: Stream | None = None) -> None:
    with lock:
        to = stream or current().legacy
        address, n, pinned = host_range(dest)
        if not dest.flags.writeable:
            raise ValueError("not writable")
        to.card.check(src, n)
        to.put(copying(address, src, n, dest, pinned))
        if pinned is None and to.recorded is None:
            to.drain()


def copying(to: int, source: int, n_bytes: int, kept: Any, pinned: Block | None) -> Callable[[], None]:
    """A copy between host and device; counted while it is queued on page-locked memory."""
    if pinned is not None:
        pinned.copies += 1

    def copy() -> None:
        if pinned is not None:
            pinned.copies -= 1
        ctypes.memmove(to, source, n_bytes)

    copy.kept = kept  # type: ignore[attr-defined]
    return copy


def memcpy_dtod_async(dest: int, src: int, size: int, stream: Stream | None = None) -> None:
    with lock:
        to = stream or current().legacy
        to.card.check(dest, size)
        to.card.check(src, size)
        to.put(copying(dest, src, size, None, None))
