"""The one file that touches CUDA through PyCUDA: the device, its context, memory, streams, events, graphs, cuBLAS.

The device's *primary* context is retained once a process and pushed and popped round every use (`Device.active`),
never left current: so jtgpu works beside PyTorch and CuPy, which use the same context, and from any thread.
What is allocated is freed inside `active`, by hand, in ``close()`` methods; nothing waits for a destructor.
"""

from __future__ import annotations

import atexit
import operator
import struct
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import BackendUnavailable, TableTooLarge, format_bytes
from . import nvcc as kernels

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["Blas", "Device", "Graph", "Launch", "device_numbers", "open_device"]

_INSTALL = "install it with: pip install 'jtgpu[cuda]' (needs the CUDA toolkit)"
_PAIR = struct.Struct("PP")  # a kernel's two arguments
_opened: dict[int, Device] = {}
_opening = threading.Lock()


def _driver() -> Any:
    """``pycuda.driver``, initialised.

    Raises
    ------
    BackendUnavailable
        When PyCUDA, the driver or every device is missing.
    """
    try:
        import pycuda.driver as cuda
    except ImportError as error:
        raise BackendUnavailable(f"this backend needs PyCUDA, which cannot be imported ({error}); {_INSTALL}") from None
    try:
        cuda.init()
        count = cuda.Device.count()
    except cuda.Error as error:
        raise BackendUnavailable(f"CUDA cannot start on this machine: {error}") from None
    if count == 0:
        raise BackendUnavailable("this machine has no CUDA device")
    return cuda


def open_device(ordinal: int | None = None) -> Device:
    """A device; opened once a process.

    Parameters
    ----------
    ordinal : int, optional
        Number of the device. None: the one of highest compute capability, then most multiprocessors, then lowest
        number.

    Raises
    ------
    BackendUnavailable
        When PyCUDA, the driver or the device is missing.
    """
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
    """CUDA devices as people name them: ``"all"``, a number, or numbers; a number may stand more than once.

    Raises
    ------
    BackendUnavailable
        For a device that is not there, or where there is none at all.
    ValueError
        For anything else.
    """
    count = _driver().Device.count()
    if isinstance(devices, str):
        if devices != "all":
            raise ValueError(f"devices is 'all' or numbers of GPUs, not {devices!r}")
        return list(range(count))
    try:
        numbers = [operator.index(devices)] if not np.iterable(devices) else [operator.index(d) for d in devices]
    except TypeError:
        raise ValueError(f"devices is 'all' or numbers of GPUs, not {devices!r}") from None
    if not numbers:
        raise ValueError("devices names no GPU")
    for n in numbers:
        if not 0 <= n < count:
            raise BackendUnavailable(f"there is no CUDA device {n}; this machine has {count}")
    return numbers


def _rank(device: Any) -> tuple[int, int, int]:
    return (*device.compute_capability(), device.multiprocessor_count)


class Launch(NamedTuple):
    """A kernel launch with all it needs, ready to be queued again and again."""

    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    jobs: int  # device address of the job list
    map: int  # device address of the map from blocks to jobs; 0: one job


class _Current(AbstractContextManager[None]):
    """A context made current for a while; a generator's `with` would take each query two microseconds more."""

    def __init__(self, push: Callable[[], None], pop: Callable[[], None]):
        self._push = push
        self._pop = pop

    def __enter__(self) -> None:
        self._push()

    def __exit__(self, *raised: object) -> None:
        self._pop()


class Device:
    """One GPU. Every method that touches it is called inside ``with device.active():``.

    Attributes
    ----------
    name : str
    capability : (int, int)
    arch : str
        ``"sm_90"`` ...
    multiprocessors : int
    driver : str
        The CUDA version that the driver speaks.
    """

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
            raise BackendUnavailable(f"the primary context of {self.name} cannot be taken: {error}") from None
        self._current = _Current(self._context.push, cuda.Context.pop)
        # What prepared_async_call ends in; without its bookkeeping a launch takes the host half the time.
        self._direct = hasattr(cuda.Function, "_launch_kernel")
        self._modules: dict[tuple[str, str, str, int], Any] = {}
        self._functions: dict[tuple[str, str, str, str, int], Any] = {}

    def active(self) -> AbstractContextManager[None]:
        """The device's primary context, current inside the block and as it was before after it."""
        return self._current

    # Memory ----------------------------------------------------------------------------------------------------

    def free_memory(self) -> int:
        """Bytes free on the device."""
        return int(self._cuda.mem_get_info()[0])

    def alloc(self, n_bytes: int) -> Any:
        """Device memory; ``int()`` of it is the address, ``.free()`` gives it back.

        Raises
        ------
        TableTooLarge
            When the device has no such block free. The context stays usable.
        """
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
        """Page-locked host memory, shape (cells,); given back with `unpin`.

        Raises
        ------
        TableTooLarge
            When the system locks no more pages.
        """
        try:
            array: NDArray[Any] = self._cuda.pagelocked_empty(max(cells, 1), dtype)
        except (self._cuda.Error, MemoryError) as error:
            needed = cells * np.dtype(dtype).itemsize
            raise TableTooLarge(
                f"{format_bytes(needed)} of host memory cannot be page-locked: {error}", needed=needed
            ) from None
        return array

    def unpin(self, array: NDArray[Any]) -> None:
        """Give back what `pinned` gave. No view of the array may be used after it."""
        owner: Any = array.base
        owner.free()

    def upload(self, address: int, array: NDArray[Any], stream: Any) -> None:
        """Queue a copy of a C-contiguous host array to the device; asynchronous when the array is pinned."""
        self._cuda.memcpy_htod_async(address, array, stream)

    def download(self, array: NDArray[Any], address: int, stream: Any) -> None:
        """Queue a copy from the device into a C-contiguous host array; asynchronous when the array is pinned."""
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
        """Wait for everything queued on the device.

        Raises
        ------
        BackendUnavailable
            When a kernel failed; CUDA then refuses this context for good.
        """
        try:
            self._cuda.Context.synchronize()
        except self._cuda.Error as error:
            raise BackendUnavailable(f"{self.name} failed: {error}") from None

    def module(self, file: str, real: str, index: str, ways: int = 16) -> Any:
        """The loaded module of a kernel file (see `jtgpu.device.nvcc.cubin`); loaded once a process."""
        key = (file, real, index, ways)
        if key not in self._modules:
            image = kernels.cubin(file, self.arch, real=real, index=index, ways=ways)
            self._modules[key] = self._cuda.module_from_buffer(image)
        return self._modules[key]

    def function(self, file: str, name: str, *, real: str = "float64", index: str = "uint32", ways: int = 16) -> Any:
        """A kernel, prepared for its two arguments (jobs, map)."""
        key = (file, name, real, index, ways)
        if key not in self._functions:
            found = self.module(file, real, index, ways).get_function(name)
            self._functions[key] = found.prepare("PP")
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
        """Record what `work` queues on `stream` (and on streams that it forks to and joins) as a graph.

        Raises
        ------
        BackendUnavailable
            When cuda-bindings is missing.
        """
        return Graph(stream, work)

    def blas(self, stream: Any, dtype: DTypeLike) -> Blas:
        """A cuBLAS handle for `stream`; see `Blas`."""
        return Blas(stream, dtype)

    def close(self) -> None:
        """Forget modules and the context; the process's last act."""
        self._functions.clear()
        if self._modules:
            with self.active():
                self._modules.clear()
        self._context = None


class Graph:
    """A recorded sequence of device work, launched in one call. Through cuda-bindings, which PyCUDA has no part of:
    both speak of the same driver handles."""

    def __init__(self, stream: Any, work: Callable[[], None]):
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise BackendUnavailable(f"CUDA graphs need cuda-bindings ({error}); {_INSTALL}") from None
        self._driver = driver
        self._graph: Any = None
        self._executable: Any = None
        handle = driver.CUstream(stream.handle)
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._checked(driver.cuStreamBeginCapture(handle, mode))
        try:
            work()
        finally:  # ends the capture in any case, or the stream would be lost
            ended = driver.cuStreamEndCapture(handle)
        self._graph = self._checked(ended)
        self._executable = self._checked(driver.cuGraphInstantiate(self._graph, 0))

    def launch(self, stream: Any) -> None:
        """Queue the whole graph."""
        self._checked(self._driver.cuGraphLaunch(self._executable, self._driver.CUstream(stream.handle)))

    def close(self) -> None:
        """Give the graph back."""
        if self._executable is not None:
            self._driver.cuGraphExecDestroy(self._executable)
        if self._graph is not None:
            self._driver.cuGraphDestroy(self._graph)
        self._graph = self._executable = None

    def _checked(self, answer: tuple[Any, ...]) -> Any:
        if answer[0] == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise TableTooLarge("the GPU has no memory left for a graph of kernels")
        if answer[0] != self._driver.CUresult.CUDA_SUCCESS:
            raise BackendUnavailable(f"CUDA graph: {answer[0]}")
        return answer[1] if len(answer) > 1 else None


class Blas:
    """cuBLAS's asum and scal, by ``skcuda.cublas`` (the one module of scikit-cuda 0.5.3 that still imports).

    Raises
    ------
    BackendUnavailable
        When scikit-cuda or the cuBLAS library is missing: normalise with ``normalise="kernel"`` then.
    """

    def __init__(self, stream: Any, dtype: DTypeLike):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-cuda imports pkg_resources, which warns of its own end
            try:
                from skcuda import cublas
            except (ImportError, OSError, AttributeError) as error:
                raise BackendUnavailable(
                    f"normalise='cublas' needs skcuda.cublas, which cannot be imported ({error}); {_INSTALL}, or use "
                    "normalise='kernel'"
                ) from None
        double = np.dtype(dtype) == np.float64
        self._asum = cublas.cublasDasum if double else cublas.cublasSasum
        self._scal = cublas.cublasDscal if double else cublas.cublasSscal
        self._destroy = cublas.cublasDestroy
        self._handle: Any = cublas.cublasCreate()
        cublas.cublasSetStream(self._handle, stream.handle)

    def normalise(self, address: int, cells: int) -> float:
        """Scale a table of non-negative numbers so that it sums to 1; its sum before. Waits for the stream."""
        total = float(self._asum(self._handle, cells, address, 1))
        if total > 0.0 and total != 1.0:
            self._scal(self._handle, cells, 1.0 / total, address, 1)
        return total

    def close(self) -> None:
        """Give the handle back."""
        if self._handle is not None:
            self._destroy(self._handle)
        self._handle = None


@atexit.register
def _close_all() -> None:
    while _opened:
        _opened.popitem()[1].close()
