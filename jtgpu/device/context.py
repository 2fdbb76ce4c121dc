"""A CUDA device through PyCUDA: its context, memory, streams, events and kernels.

The device's *primary* context is retained once per process, and pushed and popped around every use (`Device.active`).
It is never left current, so jtgpu works in any thread and together with PyTorch and CuPy, which use the same context.
Memory is freed explicitly inside `active`, in ``close()`` methods; nothing relies on a destructor.
"""

from __future__ import annotations

import atexit
import operator
import struct
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import ArgumentError, BackendUnavailable, TableTooLarge, format_bytes, shown
from . import nvcc
from .graph import Graph
from .lending import Lender
from .nvcc import Blas

_PAIR = struct.Struct("PP")  # a kernel's two arguments
_opened: dict[int, Device] = {}
_opening = threading.Lock()


def _driver() -> Any:
    """``pycuda.driver``, initialised."""
    # raises BackendUnavailable: If PyCUDA or the driver is missing, or there is no device.
    try:
        import pycuda.driver as cuda
    except ImportError as error:
        raise BackendUnavailable(
            f"this backend needs PyCUDA, which cannot be imported ({error}); install it with: pip install "
            "'.[cuda]' in a checkout (needs the CUDA toolkit)"
        ) from None
    try:
        cuda.init()
        count = cuda.Device.count()
    except cuda.Error as error:
        raise BackendUnavailable(f"CUDA cannot start on this machine: {error}") from None
    if count == 0:
        raise BackendUnavailable("this machine has no CUDA device")
    return cuda


def open_device(ordinal: int | None = None) -> Device:
    """A device; opened once per process."""
    # ordinal: Number of the device. None: the highest compute capability, then the most multiprocessors, then the
    #     lowest number.
    # raises BackendUnavailable: If PyCUDA, the driver or the device is missing.
    cuda = _driver()
    with _opening:
        if ordinal is None:
            ordinal = max(range(cuda.Device.count()), key=lambda i: (_rank(cuda.Device(i)), -i))
        if not 0 <= ordinal < cuda.Device.count():
            raise BackendUnavailable(f"there is no CUDA device {ordinal}; this machine has {cuda.Device.count()}")
        if ordinal not in _opened:
            _opened[ordinal] = Device(cuda, ordinal)
        return _opened[ordinal]


def device_numbers(devices: Any) -> list[int]:
    """The device numbers of an option: ``"all"``, or a sequence of numbers, which may repeat."""
    # raises ArgumentError: For anything else: a single number may be meant as the number of a GPU or as a number of
    #     GPUs.
    # raises BackendUnavailable: If a device does not exist.
    numbers: list[int] | None = None
    if not (isinstance(devices, str) and devices == "all"):
        if isinstance(devices, (int, np.integer)) and not isinstance(devices, bool):
            several = f", or devices={[*range(devices)]} for {devices} GPUs" if 1 <= devices <= 16 else ""
            raise ArgumentError(
                f"devices={devices} may be a number of GPUs or the number of one: name them, devices=[{devices}] for "
                f"GPU {devices}{several}"
            )
        try:
            numbers = [operator.index(d) for d in devices]
        except TypeError:
            numbers = []
        if isinstance(devices, (str, bytes)) or not numbers:
            raise ArgumentError(
                f"devices must be 'all' or a list of the numbers of GPUs, such as [0, 1], not {shown(devices)}"
            )
    count = _driver().Device.count()
    for n in numbers or ():
        if not 0 <= n < count:
            raise BackendUnavailable(f"there is no CUDA device {n}; this machine has {count}")
    return [*range(count)] if numbers is None else numbers


def open_devices(devices: Any = None) -> list[Device]:
    """The devices of an option, see `device_numbers`; default: one, as `open_device` chooses it."""
    return [open_device()] if devices is None else [open_device(d) for d in device_numbers(devices)]


def _rank(device: Any) -> tuple[int, int, int]:
    return (*device.compute_capability(), device.multiprocessor_count)


class Launch(NamedTuple):
    """A kernel launch that can be queued repeatedly."""

    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    jobs: int  # device address of the job list
    map: int  # device address of the map from blocks to jobs; 0: one job


class _Current(AbstractContextManager[None]):
    """Makes a context current for a block; `contextmanager` would cost each query two microseconds more."""

    def __init__(self, push: Callable[[], None], pop: Callable[[], None]):
        self._push = push
        self._pop = pop

    def __enter__(self) -> None:
        self._push()

    def __exit__(self, *raised: object) -> None:
        self._pop()


class Device:
    """One GPU. Every method that touches it is called inside ``with device.active():``."""
    # capability: (int, int)
    # arch: ``"sm_90"``
    # driver: The CUDA version of the driver

    def __init__(self, cuda: Any, ordinal: int):
        self._cuda = cuda
        handle = cuda.Device(ordinal)
        self.ordinal = ordinal
        self.name: str = handle.name()
        self.capability: tuple[int, int] = tuple(handle.compute_capability())
        self.arch = "sm_{}{}".format(*self.capability)
        self.multiprocessors: int = handle.multiprocessor_count
        version = cuda.get_driver_version()
        self.driver = f"{version // 1000}.{version % 1000 // 10}"
        try:
            self._context = handle.retain_primary_context()
        except cuda.Error as error:
            raise BackendUnavailable(f"the primary context of {self.name} is not available: {error}") from None
        self._current = _Current(self._context.push, cuda.Context.pop)
        # the core of prepared_async_call; without its bookkeeping a launch takes half the time
        self._direct = hasattr(cuda.Function, "_launch_kernel")
        self._modules: dict[tuple[str, str, str, int], Any] = {}
        self._functions: dict[tuple[str, str, str, str, int], Any] = {}
        self.lender = Lender(self.pinned, self.unpin)

    def active(self) -> AbstractContextManager[None]:
        """Make the device's primary context current for a block, and restore the previous one."""
        return self._current

    # Memory ----------------------------------------------------------------------------------------------------

    def free_memory(self) -> int:
        """Bytes free on the device."""
        return int(self._cuda.mem_get_info()[0])

    def alloc(self, n_bytes: int) -> Any:
        """Allocate device memory: ``int()`` of it is the address, ``.free()`` releases it."""
        # raises TableTooLarge: If the device has no free block of that size. The context stays usable.
        try:
            return self._cuda.mem_alloc(max(n_bytes, 1))
        except self._cuda.MemoryError:
            free = self.free_memory()
            raise TableTooLarge(
                f"{self.name} has no {format_bytes(n_bytes)} of memory in one piece; {format_bytes(free)} are free",
                needed=n_bytes,
                limit=free,
            ) from None

    def pinned(self, cells: int, dtype: DTypeLike) -> NDArray[Any]:
        """Allocate page-locked host memory, shape (cells,); `unpin` releases it."""
        # raises TableTooLarge: If the system cannot lock more pages.
        try:
            array: NDArray[Any] = self._cuda.pagelocked_empty(max(cells, 1), dtype)
        except (self._cuda.Error, MemoryError) as error:
            needed = cells * np.dtype(dtype).itemsize
            raise TableTooLarge(
                f"{format_bytes(needed)} of host memory cannot be page-locked: {error}", needed=needed
            ) from None
        return array

    def unpin(self, array: NDArray[Any]) -> None:
        """Release an array of `pinned`; no view of it may be used afterwards."""
        owner: Any = array.base
        owner.free()

    def upload(self, address: int, array: NDArray[Any], stream: Any) -> None:
        """Queue a copy of a C-contiguous host array to the device; asynchronous if the array is page-locked."""
        self._cuda.memcpy_htod_async(address, array, stream)

    def download(self, array: NDArray[Any], address: int, stream: Any) -> None:
        """Queue a copy from the device into a C-contiguous host array; asynchronous if the array is page-locked."""
        self._cuda.memcpy_dtoh_async(array, address, stream)

    def copy(self, to: int, source: int, n_bytes: int, stream: Any) -> None:
        """Queue a copy within the device."""
        self._cuda.memcpy_dtod_async(to, source, n_bytes, stream)

    # Work ------------------------------------------------------------------------------------------------------

    def stream(self) -> Any:
        """A new stream: ``.synchronize()``, ``.wait_for_event(event)``, ``.handle``."""
        try:
            return self._cuda.Stream()
        except self._cuda.MemoryError:
            raise TableTooLarge("the GPU has no memory left for a stream") from None

    def event(self, *, timing: bool = False) -> Any:
        """A new event: ``.record(stream)``, ``.synchronize()``; with `timing`, ``.time_since(event)`` in ms."""
        flags = self._cuda.event_flags
        try:
            return self._cuda.Event(flags.DEFAULT if timing else flags.DISABLE_TIMING)
        except self._cuda.MemoryError:
            raise TableTooLarge("the GPU has no memory left for an event") from None

    def synchronize(self) -> None:
        """Wait for all queued work of the device."""
        # raises BackendUnavailable: If a kernel failed; the context is then unusable.
        try:
            self._cuda.Context.synchronize()
        except self._cuda.Error as error:
            raise BackendUnavailable(f"{self.name} failed: {error}") from None

    def module(self, file: str, real: str, index: str, ways: int = 16) -> Any:
        """The loaded module of a kernel file (see `jtgpu.device.nvcc.cubin`); loaded once per process."""
        key = (file, real, index, ways)
        if key not in self._modules:
            image = nvcc.cubin(file, self.arch, real=real, index=index, ways=ways)
            self._modules[key] = self._cuda.module_from_buffer(image)
        return self._modules[key]

    def function(self, file: str, name: str, *, real: str = "float64", index: str = "uint32", ways: int = 16) -> Any:
        """A kernel, prepared for its two arguments (jobs, map)."""
        key = (file, name, real, index, ways)
        if key not in self._functions:
            handle = self.module(file, real, index, ways).get_function(name)
            self._functions[key] = handle.prepare("PP")
        return self._functions[key]

    def symbol(self, file: str, name: str, *, real: str = "float64", index: str = "uint32") -> tuple[int, int]:
        """Address and bytes of a global or constant array of a kernel file."""
        address, n_bytes = self.module(file, real, index).get_global(name)
        return int(address), int(n_bytes)

    def launch(self, launch: Launch, stream: Any) -> None:
        """Queue a kernel."""
        function, grid, block, jobs, map_ = launch
        if self._direct:
            function._launch_kernel(grid, block, _PAIR.pack(jobs, map_), 0, stream)
        else:
            function.prepared_async_call(grid, block, stream, jobs, map_)

    def capture(self, stream: Any, work: Callable[[], None]) -> Graph:
        """Record the work that `work()` queues on `stream`, and on streams forked from and joined to it, as a graph."""
        # raises BackendUnavailable: If cuda-bindings is missing.
        return Graph(stream, work)

    def blas(self, stream: Any, dtype: DTypeLike) -> Blas:
        """A cuBLAS handle for `stream`; see `Blas`."""
        return Blas(stream, dtype)

    def close(self) -> None:
        """Unload modules and release the context, at the end of the process."""
        self._functions.clear()
        with self.active():
            self._modules.clear()
            self.lender.close()
        self._context = None


@atexit.register
def _close_all() -> None:
    while _opened:
        _opened.popitem()[1].close()


# Device memory and page-locked host memory of one owner, freed together.

class Memory:
    """Allocations of one owner. Used inside ``device.active()``."""
    # n_bytes: Bytes allocated on the device

    def __init__(self, device: Device):
        self.device = device
        self.n_bytes = 0
        self._blocks: list[Any] = []
        self._pinned: list[NDArray[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def empty(self, n_bytes: int) -> int:
        """Allocate device memory; its address."""
        # raises TableTooLarge: If the device has no such block free.
        block = self.device.alloc(max(n_bytes, 16))
        self._blocks.append(block)
        self.n_bytes += max(n_bytes, 16)
        return int(block)

    def put(self, array: NDArray[Any], stream: Any) -> int:
        """Copy an array to new device memory; its address. The copy is complete when this returns."""
        address = self.empty(array.nbytes)
        if array.nbytes:
            self.device.upload(address, np.ascontiguousarray(array), stream)
            stream.synchronize()
        return address

    def host(self, cells: int, dtype: DTypeLike) -> NDArray[Any]:
        """Allocate page-locked host memory, shape (cells,), filled with zeros."""
        array = self.device.pinned(cells, dtype)
        array[:] = 0
        self._pinned.append(array)
        return array

    def close(self) -> None:
        """Free everything. May be called twice."""
        for block in self._blocks:
            block.free()
        for array in self._pinned:
            self.device.unpin(array)
        self._blocks, self._pinned = [], []
