"""CUDA for the resident engine, beyond `jtgpu.device.context`: modules, launches with attributes, graphs.

Through cuda-bindings, on the context that `Device.active` makes current. PyCUDA's launches carry no attributes, and
programmatic dependent launch is one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import BackendUnavailable, TableTooLarge
from . import nvcc as kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .context import Device

_loaded: WeakKeyDictionary[Device, dict[tuple[str, ...], Kernels]] = WeakKeyDictionary()


def _bindings() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise BackendUnavailable(
            f"the GPU engine needs cuda-bindings ({error}); install it with: pip install 'jtgpu[cuda]'"
        ) from None
    return driver


@cache
def _launch_call() -> Any:
    """The driver's cuLaunchKernelEx; the bindings have loaded the driver by then."""
    call = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1").cuLaunchKernelEx
    call.argtypes = [ctypes.c_void_p] * 4
    call.restype = ctypes.c_int
    return call


def most_shared(device: Device) -> int:
    """Bytes of shared memory that one block of a device may take."""
    return _attribute(device, "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")


def loaded_kernels(device: Device, file: str, names: Sequence[str], *, real: str = "float64") -> Kernels:
    """Some kernels of a file on a device, loaded once and never unloaded. Used inside ``device.active()``."""
    of_device, key = _loaded.setdefault(device, {}), (file, real, *names)
    if key not in of_device:
        of_device[key] = Kernels(device, file, names, real=real)
    return of_device[key]


def _attribute(device: Device, name: str) -> int:
    d = _bindings()
    failed, handle = d.cuDeviceGet(device.ordinal)
    if failed == d.CUresult.CUDA_SUCCESS:
        failed, value = d.cuDeviceGetAttribute(getattr(d.CUdevice_attribute, name), handle)
        if failed == d.CUresult.CUDA_SUCCESS:
            return int(value)
    raise BackendUnavailable(f"the GPU engine: {failed.name}")


class After:
    """Orders work behind what is queued on a stream of the user's. Used inside ``device.active()``."""
    # stream: A CUstream's or cudaStream_t's number, or what has one: PyTorch's streams (``cuda_stream``), CuPy's
    #     (``ptr``), PyCUDA's (``handle``), and all that speak ``__cuda_stream__``. 0 is the legacy default stream.
    # raises BackendUnavailable: For what is no stream of this device's context; also from the methods.

    def __init__(self, stream: Any):
        self._driver = d = _bindings()
        self._stream = d.CUstream(_number(stream))
        failed, self._event = d.cuEventCreate(int(d.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        self._check(failed)

    def order(self, stream: Any) -> None:
        """Make `stream` wait for the user's stream."""
        d = self._driver
        self._check(d.cuEventRecord(self._event, self._stream)[0])
        self._check(d.cuStreamWaitEvent(d.CUstream(stream.handle), self._event, 0)[0])

    def wait(self) -> None:
        """Wait here for what is queued on the user's stream now."""
        self._check(self._driver.cuEventRecord(self._event, self._stream)[0])
        self._check(self._driver.cuEventSynchronize(self._event)[0])

    def close(self) -> None:
        """Give the event back."""
        if self._event is not None:
            self._driver.cuEventDestroy(self._event)
        self._event = None

    def _check(self, failed: Any) -> None:
        if failed != self._driver.CUresult.CUDA_SUCCESS:
            raise BackendUnavailable(f"the stream given to the GPU engine: {failed.name}")


def _number(stream: Any) -> int:
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        given = stream.__cuda_stream__
        return int((given() if callable(given) else given)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise BackendUnavailable(f"{stream!r} is no CUDA stream: a number, or an object of PyTorch, CuPy or PyCUDA")


class Arguments:
    """A kernel's parameters: structs as arrays of their bytes, numbers as unsigned 32-bit ints. Kept alive with it."""

    def __init__(self, *values: NDArray[Any] | int):
        self._kept = [np.array(v, np.uint32) if isinstance(v, int) else np.ascontiguousarray(v) for v in values]
        self._pointers = np.array([a.ctypes.data for a in self._kept], np.uint64)

    def kept(self, i: int) -> NDArray[Any]:
        """Parameter i, where the next launch reads it."""
        return self._kept[i]

    @property
    def address(self) -> int:
        """Of the array of pointers to the parameters."""
        return int(self._pointers.ctypes.data)


class Kernels:
    """The kernels of one file, loaded on one device. Used inside ``device.active()``."""
    # file: See `jtgpu.device.nvcc.read_source`
    # image: bytes: The compiled kernels, where they come from no file
    # real: {"float64", "float32"}: What the file's kernels compute with
    # raises BackendUnavailable: When cuda-bindings is missing, or nvcc is and the kernels are not in the cache.

    def __init__(
        self, device: Device, file: str, names: Sequence[str], image: bytes | None = None, real: str = "float64"
    ):
        self._driver = _bindings()
        loaded = kernels.cubin(file, device.arch, real=real) if image is None else image
        self._module: Any = self._checked(self._driver.cuModuleLoadData(loaded))
        self._functions = {n: self._checked(self._driver.cuModuleGetFunction(self._module, n.encode())) for n in names}
        self._early = device.capability >= (9, 0)

    def launch(
        self,
        name: str,
        n_blocks: int,
        n_threads: int,
        stream: Any,
        arguments: Arguments,
        *,
        shared: int = 0,
        early: bool = False,
    ) -> None:
        """Queue a kernel; `early`: it may start before the one queued last has ended, and waits by itself."""
        self.ready(name, (n_blocks, n_threads), stream, arguments, shared=shared, early=early)()

    def ready(  # noqa: PLR0913
        self,
        name: str,
        grid: tuple[int, int],
        stream: Any,
        arguments: Arguments,
        *,
        shared: int = 0,
        early: bool = False,
        together: bool = False,
        cluster: int = 0,
    ) -> Callable[[], None]:
        """A function that queues a kernel with whatever its arguments contain then."""
        # grid: (int, int): Blocks, and threads of a block
        # stream: Of `Device.stream`
        # shared: Bytes of dynamic shared memory of a block
        # early: Programmatic dependent launch: the kernel may start before the one before it has ended, and waits
        #     itself
        # together: Cooperative launch: all blocks are on the device at once, or the launch fails
        # cluster: Blocks of a cluster, which run at the same time and share a barrier; 0: none. More than 8 need
        #     `allow_large_clusters`.
        d = self._driver
        config = d.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid[0], 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = grid[1], 1, 1
        config.sharedMemBytes = shared
        config.hStream = d.CUstream(stream.handle)
        attributes = []
        if early and self._early:
            attribute = d.CUlaunchAttribute()
            attribute.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        if together:
            attribute = d.CUlaunchAttribute()
            attribute.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
            attributes.append(attribute)
        if cluster:
            attribute = d.CUlaunchAttribute()
            attribute.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = attribute.value.clusterDim
            size.x, size.y, size.z = cluster, 1, 1
            attributes.append(attribute)
        if attributes:
            config.attrs = attributes
            config.numAttrs = len(attributes)
        # through ctypes: the bindings' own call takes half a microsecond more, on the way of every query
        launch, alive = _launch_call(), (config, attributes, arguments)
        given = [ctypes.c_void_p(x) for x in (config.getPtr(), int(self._functions[name]), arguments.address, 0)]

        def queue(_alive: Any = alive) -> None:
            failed = launch(*given)
            if failed == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise TableTooLarge("the GPU has no memory left to start a kernel")
            if failed:
                raise BackendUnavailable(f"the GPU engine: {d.CUresult(failed).name}")

        return queue

    def allow_shared(self, name: str, n_bytes: int) -> None:
        """Let a kernel take more dynamic shared memory than the default 48 KB."""
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._checked(self._driver.cuFuncSetAttribute(self._functions[name], attribute, n_bytes))

    def allow_large_clusters(self, name: str) -> None:
        """Let a kernel run in clusters of more than 8 blocks, where the device has them."""
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        self._checked(self._driver.cuFuncSetAttribute(self._functions[name], attribute, 1))

    def symbol(self, name: str) -> int:
        """Address of a variable of the module, in constant or device memory."""
        failed, address, _ = self._driver.cuModuleGetGlobal(self._module, name.encode())
        return int(self._checked((failed, address)))

    def device_address(self, array: NDArray[Any]) -> int:
        """Where the device finds page-locked host memory."""
        return int(self._checked(self._driver.cuMemHostGetDevicePointer(array.ctypes.data, 0)))

    def close(self) -> None:
        """Unload the kernels."""
        if self._module is not None:
            self._driver.cuModuleUnload(self._module)
        self._module = None

    def _checked(self, answer: tuple[Any, ...]) -> Any:
        if answer[0] == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise TableTooLarge("the GPU has no memory left for the engine's kernels")
        if answer[0] != self._driver.CUresult.CUDA_SUCCESS:
            raise BackendUnavailable(f"the GPU engine: {answer[0].name}")
        return answer[1] if len(answer) > 1 else None
