"""A GPU played by the host: `pycuda.driver` and `cuda.bindings.driver` over host memory, kernels compiled by g++.

    python -m pytest -p tests.host_device tests/gpu/test_resident.py ...   the GPU tests on the played device
    python -m tests.host_device bench/bench_gpu.py ...                    a script on it

Everything of jtgpu above the two drivers is what runs on a card: contexts, memory, streams, events, graphs, launches
and their parameters, and the kernels themselves, block after block (`tests/host_cuda.hpp`). The players are stricter
than CUDA where CUDA would let a mistake pass for a while:

- work that is queued runs as late as it may: when something waits for it. A copy or an answer that nobody waited for is
  not there yet; page-locked memory that is written too early has changed when the copy runs.
- device memory is full of rubbish at first and when it is given back, and has borders that are looked at then.
- parameters are as long as the kernel reads; copies lie inside of one allocation; nothing runs without a context.

What it does not show: blocks at the same time, clusters, the order of memory, time. Variables of the environment:
JTGPU_PLAYED_CARDS (2), JTGPU_PLAYED_BYTES of a card (4 GiB), JTGPU_PLAYED_CAPABILITY (8.0), JTGPU_PLAYED_EAGER=1: work
runs when it is queued.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import runpy
import subprocess
import sys
import tempfile
import threading
import time
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jtgpu.backends import kernels
from jtgpu.backends.gpu import driver
from tests import host_cuda

CARDS = int(os.environ.get("JTGPU_PLAYED_CARDS", "2"))
BYTES = int(os.environ.get("JTGPU_PLAYED_BYTES", str(4 << 30)))
CAPABILITY = tuple(int(x) for x in os.environ.get("JTGPU_PLAYED_CAPABILITY", "8.0").split("."))
EAGER = bool(os.environ.get("JTGPU_PLAYED_EAGER"))
SHARED = 232_448 if CAPABILITY >= (9, 0) else 166_912  # bytes of a block at most; 48 KB without asking
POISON, BORDER, PAGE = 0xCD, 256, 512
MOST_POISON = 64 << 20  # larger memory is not filled: it would all have to exist

lock = threading.RLock()  # one thing at a time: fibers are a library's, and queues have no locks of their own
violations: list[str] = []  # what CUDA might have let pass; the plugin fails the test
counts = {"launches": 0, "graphs": 0, "seconds": 0.0, "built": 0.0}


def violate(text: str) -> None:
    """Note a mistake that no return code could tell."""
    violations.append(text)


# Errors ---------------------------------------------------------------------------------------------------------


class CUresult(IntEnum):
    """The codes that are given here."""

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
    CUDA_ERROR_INVALID_CLUSTER_SIZE = 912


class PlayedError(Exception):
    """``pycuda.driver.Error``."""


class PlayedMemoryError(PlayedError):
    """``pycuda.driver.MemoryError``."""


class PlayedLogicError(PlayedError):
    """``pycuda.driver.LogicError``: carries the code."""

    def __init__(self, code: CUresult, text: str = ""):
        super().__init__(f"{code.name}: {text}")
        self.code = code


# Cards and contexts ---------------------------------------------------------------------------------------------


class Block:
    """Memory of a card or page-locked memory, with borders."""

    def __init__(self, n_bytes: int):
        self.n_bytes = n_bytes
        self.copies = 0  # queued, to or from it
        self.raw = np.empty(n_bytes + 2 * BORDER, np.uint8)
        self.raw[:BORDER] = self.raw[BORDER + n_bytes :] = POISON
        if n_bytes <= MOST_POISON:
            self.raw[:] = POISON
        self.address = int(self.raw.ctypes.data) + BORDER

    def look(self) -> None:
        """Is anything written outside?"""
        if (self.raw[:BORDER] != POISON).any() or (self.raw[BORDER + self.n_bytes :] != POISON).any():
            violate(f"something was written outside of {self.n_bytes} bytes of memory")

    def end(self) -> None:
        """It is given back; who reads it later reads rubbish."""
        self.look()
        if self.n_bytes <= MOST_POISON:
            self.raw[:] = POISON

    def holds(self, address: int, n_bytes: int) -> bool:
        return self.address <= address and address + n_bytes <= self.address + self.n_bytes


class Card:
    """One device."""

    def __init__(self, ordinal: int):
        self.ordinal = ordinal
        self.memory: dict[int, Block] = {}  # by address
        self.globals: dict[int, int] = {}  # address: bytes; of modules
        self.taken = 0
        self.thread = 0  # that opened it
        self.streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self.legacy = Stream(self)
        self.context = Context(self)

    def drain(self) -> None:
        """Run all that is queued."""
        for stream in [*self.streams]:
            stream.drain()

    def check(self, address: Any, n_bytes: int) -> None:
        """Is it memory of this card?"""
        if not isinstance(address, int) or isinstance(address, bool):
            raise TypeError(f"an address is an int, not {type(address).__name__}")
        known = any(b.holds(address, n_bytes) for b in self.memory.values())
        if not known and not any(a <= address and address + n_bytes <= a + n for a, n in self.globals.items()):
            raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, f"{n_bytes} bytes are not of device {self.ordinal}")


class Context:
    """A card's primary context."""

    def __init__(self, card: Card):
        self.card = card

    def push(self) -> None:
        stack().append(self)

    @staticmethod
    def pop() -> None:
        if not stack():
            raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_CONTEXT, "nothing to pop")
        stack().pop()

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
    """The card whose context is current."""
    if not stack():
        raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_CONTEXT, "no context is current in this thread")
    return stack()[-1].card


def no_capture(what: str) -> None:
    """Is this thread recording? Then this call would spoil it."""
    if any(s.recorded is not None and s.recorder == threading.get_ident() for s in Stream.all):
        raise PlayedLogicError(CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, what)


# Streams and events ---------------------------------------------------------------------------------------------


class Stream:
    """``pycuda.driver.Stream``."""

    all: weakref.WeakSet[Stream] = weakref.WeakSet()
    handles: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
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
        if self.waiting:
            self.drain()
        if self.handle:
            ended(self.card, "stream")

    def put(self, work: Callable[[], None]) -> None:
        """Queue something, or record it."""
        with lock:
            if current() is not self.card:
                raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_HANDLE, "a stream of another context")
            if self.recorded is not None:
                self.recorded.append(work)
                return
            if self is self.card.legacy:  # it waits for all others, and they for it
                self.card.drain()
                work()
                return
            self.waiting.append(work)
            self.queued += 1
            if EAGER:
                self.drain()

    def drain(self, upto: int | None = None) -> None:
        """Run what is queued, or its first part."""
        with lock:
            if self.busy:
                return
            self.busy = True
            try:
                while self.waiting and (upto is None or self.done < upto):
                    self.waiting.popleft()()
                    self.done += 1
            finally:
                self.busy = False

    def synchronize(self) -> None:
        with lock:
            if self.recorded is not None:
                raise PlayedLogicError(CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a stream that is captured")
            current()
            self.drain()

    def is_done(self) -> bool:
        return not self.waiting

    def wait_for_event(self, event: Event) -> None:
        if not isinstance(event, Event):
            raise TypeError("an event")
        on = event.point()
        if on is not None:
            self.put(lambda: on[0].drain(on[1]))


class Event:
    """``pycuda.driver.Event``."""

    def __init__(self, flags: int = 0):
        self.card, self.timing = current(), not flags & 2
        self.on: tuple[Stream, int] | None = None
        self.when: float | None = None

    def __del__(self) -> None:
        ended(self.card, "event")

    def point(self) -> tuple[Stream, int] | None:
        """What was queued when it was recorded."""
        return self.on

    def record(self, stream: Stream | None = None) -> Event:
        with lock:
            to = stream if stream is not None else self.card.legacy
            if to.recorded is not None:
                raise PlayedLogicError(CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "an event in a capture")
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
            raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_HANDLE, "an event without timing")
        if self.when is None or other.when is None:
            raise PlayedLogicError(CUresult.CUDA_ERROR_NOT_READY, "nobody waited for it")
        return max((self.when - other.when) * 1e3, 1e-3)


def ended(card: Card, what: str) -> None:
    """PyCUDA cannot end a thing of a context that is neither current nor opened by this thread: it leaks, silently."""
    if sys is None or sys.is_finalizing():
        return
    if card.thread != threading.get_ident() and (not stack() or stack()[-1].card is not card):
        violate(f"a {what} ended in a thread where its context is not current")


# Memory ---------------------------------------------------------------------------------------------------------

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
                raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_CONTEXT, "memory of another context")
            if self.card.memory.pop(self.block.address, None) is None:
                raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_HANDLE, "given back twice")
            if any(s.waiting for s in self.card.streams):
                self.card.drain()
            self.card.taken -= rounded(self.block.n_bytes)
            self.block.end()

    def __del__(self) -> None:
        if self.block.address in self.card.memory and sys is not None and not sys.is_finalizing():
            violate(f"{self.block.n_bytes} bytes of device memory were left to a destructor")


def rounded(n: int) -> int:
    return -(-n // PAGE) * PAGE


def mem_get_info() -> tuple[int, int]:
    return BYTES - current().taken, BYTES


def mem_alloc(n_bytes: int) -> Allocation:
    with lock:
        card = current()
        no_capture("an allocation")
        if not isinstance(n_bytes, int) or n_bytes <= 0:
            raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, f"{n_bytes!r} bytes")
        if card.taken + rounded(n_bytes) > BYTES:
            raise PlayedMemoryError("cuMemAlloc failed: out of memory")
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
                raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_HANDLE, "given back twice")
            if self.block.copies:
                violate("page-locked memory is given back before a copy that is queued")
            self.block.end()


def pagelocked_empty(shape: Any, dtype: Any) -> Any:
    if not isinstance(shape, int):
        raise TypeError("played: a number of cells")
    with lock:
        return np.asarray(Pinned(shape, dtype))


def host_range(array: Any) -> tuple[int, int, Block | None]:
    """Address and bytes of a C-contiguous array, and the page-locked memory in which it lies."""
    if not isinstance(array, np.ndarray):
        raise TypeError("played: arrays only")
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
    """A copy between host and card, counted where it is queued on page-locked memory."""
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


# Kernels --------------------------------------------------------------------------------------------------------

CALLS = """
#include <type_traits>
#include <utility>
namespace played {
template <class... A, size_t... I>
void call(void (*kernel)(A...), void** p, std::index_sequence<I...>) {
    kernel(*(std::remove_cv_t<std::remove_reference_t<A>>*)p[I]...);
}
template <class... A>
void launch(void (*kernel)(A...), unsigned blocks, unsigned threads, void** p) {
    host::launch(blocks, threads, [=] { call(kernel, p, std::index_sequence_for<A...>()); });
}
template <class... A>
unsigned sizes(void (*)(A...), unsigned* out) {
    const unsigned all[] = {(unsigned)sizeof(A)..., 0};
    for (unsigned i = 0; i < sizeof...(A); i++) out[i] = all[i];
    return sizeof...(A);
}
}
"""
CALL = """
extern "C" void played_{0}(unsigned blocks, unsigned threads, void** p) {{ played::launch({0}, blocks, threads, p); }}
extern "C" unsigned sizes_{0}(unsigned* out) {{ return played::sizes({0}, out); }}
"""
SHARED_CALL = """
extern "C" void played_shared(double* memory) { host_memory = memory; }
"""
_NAMES = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^;{]*?\)\s+)?(\w+)\(")
_CONSTANT = re.compile(r"__constant__\s+(\w+)\s+(\w+)\[([^\]]+)\];")
_building: dict[str, threading.Lock] = {}


def library(text: str, names: tuple[str, ...]) -> Path:
    """A source, as jtgpu would give it to nvcc, built by g++ with a call for each of its kernels."""
    constants = _CONSTANT.findall(text)
    if constants:  # as on the card: kept by the module, filled by the host
        text = re.sub(r"#ifdef __CUDACC__\s+(__constant__)", r"#if 1\n\1", text)
        text = _CONSTANT.sub(r'extern "C" { \1 \2[\3]; unsigned long bytes_\2 = sizeof(\2); }', text)
    text = re.sub(r'extern "C" __global__', "__global__", text)
    calls = "".join(CALL.format(name) for name in names)
    if "host_memory" in text:
        calls += SHARED_CALL
    whole = f"{host_cuda.SHIM.read_text(encoding='utf-8')}\n{text}\n{CALLS}\n{calls}"
    # thousands of lines that nobody repeats are compiled more slowly than they run
    options = ["-O0", f"-DHOST_STACK={1 << 20}"] if "batch_lane(Lane" in text else ["-O2"]
    key = hashlib.sha256(" ".join([whole, *options]).encode()).hexdigest()[:24]
    out = Path(tempfile.gettempdir(), f"jtgpu-played-{os.getuid()}", f"{key}.so")
    with _building.setdefault(key, threading.Lock()):
        if not out.exists():
            start = time.perf_counter()
            out.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=out.parent) as folder:
                path, part = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
                path.write_text(whole, encoding="utf-8")
                command = ["g++", *options, "-std=c++17", "-shared", "-fPIC", "-w", "-o", str(part), str(path)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise AssertionError(f"g++ refuses {names}:\n{done.stderr[:3000]}")
                os.replace(part, out)
            counts["built"] += time.perf_counter() - start
    return out


def names_of(text: str) -> tuple[str, ...]:
    """The kernels of a source, those that macros make left out."""
    return tuple(n for n in dict.fromkeys(_NAMES.findall(text)) if "##" not in n)


class Module:
    """A source that was compiled, on a card."""

    all: dict[int, Module] = {}
    functions: dict[int, Function] = {}
    last = 0x100000

    def __init__(self, image: bytes):
        assert image.startswith(b"played\n"), "an image that nobody here compiled"
        self.card = current()
        self.text = image[len(b"played\n") :].decode()
        self.names = names_of(self.text)
        self.open: dict[tuple[str, ...], ctypes.CDLL] = {}
        self.copy: Path | None = None
        self.made: list[Function] = []
        self.symbols: dict[str, tuple[int, int]] = {}
        self.own = bool(_CONSTANT.search(self.text))
        Module.last += 8
        self.number = Module.last
        Module.all[self.number] = self

    def loaded(self, names: tuple[str, ...]) -> ctypes.CDLL:
        if names not in self.open:
            path = library(self.text, names)
            if self.own:  # constant memory is each module's own
                folder = tempfile.mkdtemp(prefix="jtgpu-played-")
                self.copy = Path(folder, "own.so")
                self.copy.write_bytes(path.read_bytes())
                path = self.copy
            self.open[names] = ctypes.CDLL(str(path))
            if self.own:
                assert self.copy is not None
                self.copy.unlink()
                self.copy.parent.rmdir()
        return self.open[names]

    def function(self, name: str) -> Function:
        names = self.names
        if name not in names:
            if name not in self.text and re.sub(r"\d+$", "", name) not in self.text:
                raise PlayedLogicError(CUresult.CUDA_ERROR_NOT_FOUND, name)
            names = (name,)
        made = Function(self, name, self.loaded(names))
        self.made.append(made)
        return made

    def symbol(self, name: str) -> tuple[int, int]:
        """Address and bytes of its constant memory."""
        if name not in self.symbols:
            found = self.loaded(self.names)
            n_bytes = ctypes.c_ulong.in_dll(found, f"bytes_{name}").value
            address = ctypes.addressof(ctypes.c_char.in_dll(found, name))
            self.symbols[name] = address, n_bytes
            self.card.globals[address] = n_bytes
        return self.symbols[name]

    def unload(self) -> None:
        self.card.drain()
        for address, _ in self.symbols.values():
            del self.card.globals[address]
        for f in self.made:
            Module.functions.pop(f.number, None)
        del Module.all[self.number]
        if self.own:
            for x in self.open.values():
                ctypes_close(x._handle)
        self.open.clear()


ctypes_close = ctypes.CDLL(None).dlclose
ctypes_close.argtypes = [ctypes.c_void_p]


class Function:
    """A kernel: ``pycuda.driver.Function``, and what a CUfunction stands for."""

    def __init__(self, module: Module, name: str, found: ctypes.CDLL):
        self.module, self.name = module, name
        self.call = getattr(found, f"played_{name}")
        self.call.restype = None
        sizes = (ctypes.c_uint * 16)()
        n = getattr(found, f"sizes_{name}")(sizes)
        self.sizes = list(sizes)[:n]
        self.shared = getattr(found, "played_shared", None) if "host_memory" in module.text else None
        self.allowed = 48 << 10
        Module.last += 8
        self.number = Module.last
        Module.functions[self.number] = self

    def queue(
        self, stream: Stream, blocks: int, threads: int, parameters: list[bytes], shared: int = 0
    ) -> None:
        """Queue it; its parameters are what they are now."""
        kept = [ctypes.create_string_buffer(p, len(p)) for p in parameters]
        pointers = (ctypes.c_void_p * max(len(kept), 1))(*[ctypes.addressof(k) for k in kept])

        def run(_kept: Any = kept) -> None:
            start = time.perf_counter()
            if self.shared is not None:
                memory = np.full(max(shared, 8) // 8 + 1, np.nan)
                self.shared(ctypes.c_void_p(memory.ctypes.data))
            self.call(blocks, threads, pointers)
            counts["seconds"] += time.perf_counter() - start

        counts["launches"] += 1
        stream.put(run)

    # PyCUDA's

    def prepare(self, types: str) -> Function:
        assert types == "P" * len(self.sizes)
        return self

    def _launch_kernel(self, grid: Any, block: Any, parameters: bytes, shared: int, stream: Stream | None) -> None:
        with lock:
            assert len(parameters) == sum(self.sizes)
            assert grid[1] == grid[2] == block[1] == block[2] == 1
            if not 0 < block[0] <= 1024 or grid[0] <= 0:
                raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, f"{grid} {block}")
            parts = [parameters[i : i + 8] for i in range(0, len(parameters), 8)]
            self.queue(stream or current().legacy, grid[0], block[0], parts, shared)


class PyModule:
    """``pycuda.driver.Module``."""

    def __init__(self, module: Module):
        self._module = module

    def get_function(self, name: str) -> Function:
        with lock:
            return self._module.function(name)

    def get_global(self, name: str) -> tuple[int, int]:
        with lock:
            return self._module.symbol(name)

    def __del__(self) -> None:
        ended(self._module.card, "module")


class _Device:
    """``pycuda.driver.Device``."""

    def __init__(self, ordinal: int):
        if not 0 <= ordinal < CARDS:
            raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_DEVICE, str(ordinal))
        self._card = cards()[ordinal]
        self.multiprocessor_count = 1

    @staticmethod
    def count() -> int:
        return CARDS

    def name(self) -> str:
        return "played GPU"

    def compute_capability(self) -> tuple[int, ...]:
        return CAPABILITY

    def retain_primary_context(self) -> Context:
        self._card.thread = threading.get_ident()
        return self._card.context


_cards: list[Card] = []


def cards() -> list[Card]:
    """All of them."""
    if not _cards:
        _cards.extend(Card(i) for i in range(CARDS))
    return _cards


def pycuda_driver() -> types.ModuleType:
    """What stands for ``pycuda.driver``."""
    made = types.ModuleType("pycuda.driver")
    made.__dict__.update(
        Error=PlayedError, MemoryError=PlayedMemoryError, LogicError=PlayedLogicError, init=lambda flags=0: None,
        Device=_Device, Context=Context, Stream=Stream, Event=Event, Function=Function, mem_get_info=mem_get_info,
        mem_alloc=mem_alloc, pagelocked_empty=pagelocked_empty, memcpy_htod_async=memcpy_htod_async,
        memcpy_dtoh_async=memcpy_dtoh_async, memcpy_dtod_async=memcpy_dtod_async, get_driver_version=lambda: 13000,
        module_from_buffer=lambda image: PyModule(Module(image)),
        event_flags=types.SimpleNamespace(DEFAULT=0, BLOCKING_SYNC=1, DISABLE_TIMING=2),
    )  # fmt: skip
    return made


# cuda.bindings --------------------------------------------------------------------------------------------------

OK = CUresult.CUDA_SUCCESS


def answers(work: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the driver: a tuple whose first part is the code."""

    def called(*given: Any) -> tuple[Any, ...]:
        with lock:
            try:
                found = work(*given)
            except PlayedLogicError as error:
                return error.code, None
            except PlayedMemoryError:
                return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        return (OK,) if found is None else (OK, *found) if isinstance(found, tuple) else (OK, found)

    return called


class CUstream:
    """A stream by its number."""

    def __init__(self, handle: int = 0):
        self.handle = int(handle)

    def found(self) -> Stream:
        if self.handle == 0:
            return current().legacy
        stream = Stream.handles.get(self.handle)
        if stream is None:
            raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_HANDLE, "no such stream")
        return stream


class Strict:
    """A struct of the driver: only fields that it has."""

    fields: tuple[str, ...] = ()

    def __init__(self) -> None:
        for name in self.fields:
            object.__setattr__(self, name, 0)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.fields:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        object.__setattr__(self, name, value)


class CUlaunchConfig(Strict):
    """How a kernel is launched."""

    fields = (
        "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes", "hStream", "attrs",
        "numAttrs",
    )  # fmt: skip
    alive: weakref.WeakValueDictionary[int, CUlaunchConfig] = weakref.WeakValueDictionary()

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "attrs", [])
        CUlaunchConfig.alive[id(self)] = self

    def getPtr(self) -> int:
        return id(self)


class _Dim(Strict):
    fields = ("x", "y", "z")


class _Value(Strict):
    fields = ("programmaticStreamSerializationAllowed", "clusterDim", "cooperative")

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "clusterDim", _Dim())


class CUlaunchAttribute(Strict):
    """One attribute of a launch."""

    fields = ("id", "value")

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "value", _Value())


class CUlaunchAttributeID(IntEnum):
    """Attributes."""

    CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6


class CUdevice_attribute(IntEnum):
    """Attributes of a card."""

    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97


class CUfunction_attribute(IntEnum):
    """Attributes of a kernel."""

    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14


class CUevent_flags(IntEnum):
    """How events are."""

    CU_EVENT_DEFAULT = 0
    CU_EVENT_DISABLE_TIMING = 2


class CUstreamCaptureMode(IntEnum):
    """Whom a capture forbids what."""

    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


class PlayedGraph:
    """What was recorded."""

    def __init__(self, work: list[Callable[[], None]], card: Card):
        self.work, self.card, self.open = work, card, True


class Handle(int):
    """A number that stands for a kernel."""


def _begin(stream: CUstream, mode: Any) -> None:
    s = stream.found()
    if s is current().legacy or s.recorded is not None:
        raise PlayedLogicError(CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "")
    assert mode == CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    s.recorded, s.recorder = [], threading.get_ident()


def _end(stream: CUstream) -> PlayedGraph:
    s = stream.found()
    if s.recorded is None:
        raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, "not captured")
    made, s.recorded = PlayedGraph(s.recorded, s.card), None
    return made


def _replay(graph: PlayedGraph, stream: CUstream) -> None:
    assert graph.open
    counts["graphs"] += 1
    for work in graph.work:
        stream.found().put(work)


def _destroy(graph: PlayedGraph) -> None:
    current()
    assert graph.open
    graph.card.drain()
    graph.open = False


def _attribute(attribute: CUdevice_attribute, device: int) -> int:
    return {16: 1, 97: SHARED}[attribute]


def _set_attribute(function: int, attribute: CUfunction_attribute, value: int) -> None:
    current()
    if attribute == CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if not 0 <= value <= SHARED:
            raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, "shared memory")
        Module.functions[function].allowed = value


def _pinned_address(address: int, flags: int) -> int:
    current()
    if not any(b.holds(int(address), 1) for b in pins.values()):
        raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, "not page-locked")
    return int(address)


def _device_get(ordinal: int) -> int:
    if not 0 <= ordinal < CARDS:
        raise PlayedLogicError(CUresult.CUDA_ERROR_INVALID_DEVICE, "")
    return ordinal


def bindings_driver() -> types.ModuleType:
    """What stands for ``cuda.bindings.driver``."""
    made = types.ModuleType("cuda.bindings.driver")
    calls: dict[str, Callable[..., Any]] = {
        "cuDeviceGet": _device_get,
        "cuDeviceGetAttribute": _attribute,
        "cuEventCreate": lambda flags: Event(flags),
        "cuEventRecord": lambda event, stream: event.record(stream.found()) and None,
        "cuEventSynchronize": lambda event: event.synchronize() and None,
        "cuEventDestroy": lambda event: None,
        "cuStreamWaitEvent": lambda stream, event, flags: stream.found().wait_for_event(event),
        "cuModuleLoadData": lambda image: Module(image),
        "cuModuleGetFunction": lambda module, name: Handle(module.function(name.decode()).number),
        "cuModuleGetGlobal": lambda module, name: module.symbol(name.decode()),
        "cuModuleUnload": lambda module: (current(), module.unload())[1],
        "cuFuncSetAttribute": _set_attribute,
        "cuMemHostGetDevicePointer": _pinned_address,
        "cuStreamBeginCapture": _begin,
        "cuStreamEndCapture": _end,
        "cuGraphInstantiate": lambda graph, flags: PlayedGraph(graph.work, graph.card),
        "cuGraphLaunch": _replay,
        "cuGraphExecDestroy": _destroy,
        "cuGraphDestroy": _destroy,
    }
    made.__dict__.update({name: answers(call) for name, call in calls.items()})
    for kind in (
        CUresult, CUstream, CUlaunchConfig, CUlaunchAttribute, CUlaunchAttributeID, CUdevice_attribute,
        CUfunction_attribute, CUevent_flags, CUstreamCaptureMode,
    ):  # fmt: skip
        made.__dict__[kind.__name__] = kind
    return made


_arguments: weakref.WeakValueDictionary[int, driver.Arguments] = weakref.WeakValueDictionary()


def launch_kernel_ex(config: Any, function: Any, parameters: Any, extra: Any) -> int:
    """cuLaunchKernelEx, with what ctypes would be given; the code."""
    with lock:
        try:
            return _launch(CUlaunchConfig.alive[config.value], Module.functions[function.value], parameters.value)
        except PlayedLogicError as error:
            return int(error.code)


def _launch(config: Any, function: Function, parameters: int) -> int:
    card, stream = current(), config.hStream.found()
    if function.module.card is not card:
        return CUresult.CUDA_ERROR_INVALID_HANDLE
    threads, blocks, shared = config.blockDimX, config.gridDimX, config.sharedMemBytes
    for x in (threads, blocks, shared):
        if not isinstance(x, int):
            raise TypeError("numbers of a launch are ints")
    if not 0 < threads <= 1024 or not 0 < blocks < 1 << 31 or shared > function.allowed:
        return CUresult.CUDA_ERROR_INVALID_VALUE
    assert len(config.attrs) == config.numAttrs
    for attribute in config.attrs:
        if attribute.id == CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            return CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE  # not played
        if attribute.id == CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE and blocks > 1:
            return CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
    given = _arguments[parameters]
    kept = given._kept
    if len(kept) != len(function.sizes):
        violate(f"{function.name} takes {len(function.sizes)} parameters, not {len(kept)}")
        return CUresult.CUDA_ERROR_INVALID_VALUE
    for size, array in zip(function.sizes, kept, strict=True):
        if array.nbytes < size:
            violate(f"a parameter of {function.name} has {size} bytes, not {array.nbytes}")
            return CUresult.CUDA_ERROR_INVALID_VALUE
    pointers = np.frombuffer((ctypes.c_uint64 * len(kept)).from_address(parameters), np.uint64).tolist()
    function.queue(
        stream, blocks, threads, [ctypes.string_at(p, n) for p, n in zip(pointers, function.sizes, strict=True)], shared
    )
    return OK


# The stage ------------------------------------------------------------------------------------------------------


def install() -> None:
    """From now on this process has GPUs."""
    cuda, pycuda = types.ModuleType("cuda"), types.ModuleType("pycuda")
    bindings = types.ModuleType("cuda.bindings")
    made: dict[str, Any] = {
        "pycuda": pycuda, "pycuda.driver": pycuda_driver(), "cuda": cuda, "cuda.bindings": bindings,
        "cuda.bindings.driver": bindings_driver(),
    }  # fmt: skip
    pycuda.driver, cuda.bindings = made["pycuda.driver"], bindings  # type: ignore[attr-defined]
    bindings.driver = made["cuda.bindings.driver"]  # type: ignore[attr-defined]
    for module in (pycuda, cuda, bindings):
        module.__path__ = []
    sys.modules.update(made)
    kernels.compiled = compiled  # type: ignore[assignment]
    kernels.find_nvcc = host_cuda.compiler  # type: ignore[assignment]
    driver._launch_call = lambda: launch_kernel_ex  # type: ignore[assignment]
    first = driver.Arguments.__init__

    def known(self: driver.Arguments, *values: Any) -> None:
        first(self, *values)
        _arguments[self.address] = self

    driver.Arguments.__init__ = known  # type: ignore[method-assign]


def compiled(name: str, text: str, arch: str, *, cache: Path | None = None) -> bytes:
    """In place of nvcc: the source, which a module builds when it is loaded, and at once if it is written for one plan
    (several at the same time)."""
    if name in ("resident/shaped", "resident/batch_lane"):
        library(text, names_of(text))
    return b"played\n" + text.encode()


def pytest_configure(config: pytest.Config) -> None:
    """``-p tests.host_device``."""
    install()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test in which CUDA would have let a mistake pass fails."""
    violations.clear()
    yield
    for card in cards():
        for block in card.memory.values():
            block.look()
    if violations:
        found, n = sorted(set(violations)), len(violations)
        violations.clear()
        pytest.fail(f"{n} mistakes:\n" + "\n".join(found))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was played."""
    terminalreporter.write_line(
        "played GPU: {launches} kernels queued, {graphs} graphs, {seconds:.1f} s in kernels, {built:.1f} s of g++".format(
            **counts
        )
    )
    for card in cards():
        if card.memory:
            terminalreporter.write_line(f"device {card.ordinal}: {len(card.memory)} pieces of memory never given back")


def main() -> None:
    """Run a script on the played device."""
    install()
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    from tests import host_device

    host_device.main()
