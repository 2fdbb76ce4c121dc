"""What the resident engine needs of CUDA beyond `jtgpu.backends.device`: modules, launches with attributes, graphs.

Through cuda-bindings, on the context that `Device.active` makes current. PyCUDA's launches carry no attributes, and
programmatic dependent launch is one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BackendUnavailable
from .. import kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..device import Device

__all__ = ["Arguments", "Kernels", "most_shared"]


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
    d = _bindings()
    what = d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    failed, handle = d.cuDeviceGet(device.ordinal)
    if failed == d.CUresult.CUDA_SUCCESS:
        failed, n_bytes = d.cuDeviceGetAttribute(what, handle)
        if failed == d.CUresult.CUDA_SUCCESS:
            return int(n_bytes)
    raise BackendUnavailable(f"the GPU engine: {failed.name}")


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
    """The kernels of one file, loaded on one device. Used inside ``device.active()``.

    Parameters
    ----------
    device : Device
    file : str
        See `jtgpu.backends.kernels.read_source`.
    names : sequence of str
    image : bytes, optional
        The compiled kernels, where they come from no file.

    Raises
    ------
    BackendUnavailable
        When cuda-bindings is missing, or nvcc is and the kernels are not in the cache.
    """

    def __init__(self, device: Device, file: str, names: Sequence[str], image: bytes | None = None):
        self._driver = _bindings()
        loaded = kernels.cubin(file, device.arch) if image is None else image
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
        self.ready(name, n_blocks, n_threads, stream, arguments, shared=shared, early=early)()

    def ready(
        self,
        name: str,
        n_blocks: int,
        n_threads: int,
        stream: Any,
        arguments: Arguments,
        *,
        shared: int = 0,
        early: bool = False,
        cluster: int = 1,
    ) -> Callable[[], None]:
        """A function that queues a kernel, with whatever its arguments hold then; `cluster`: blocks that share
        their shared memory."""
        d = self._driver
        config = d.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = n_blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = n_threads, 1, 1
        config.sharedMemBytes = shared
        config.hStream = d.CUstream(stream.handle)
        attributes = []
        if early and self._early:
            attribute = d.CUlaunchAttribute()
            attribute.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        if cluster > 1:
            attribute = d.CUlaunchAttribute()
            attribute.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x = cluster
            attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
            attributes.append(attribute)
        if attributes:
            config.attrs = attributes
            config.numAttrs = len(attributes)
        # through ctypes: the bindings' own call takes half a microsecond more, on the way of every query
        launch, alive = _launch_call(), (config, attributes, arguments)
        given = [ctypes.c_void_p(x) for x in (config.getPtr(), int(self._functions[name]), arguments.address, 0)]

        def queue(_alive: Any = alive) -> None:
            failed = launch(*given)
            if failed:
                raise BackendUnavailable(f"the GPU engine: {d.CUresult(failed).name}")

        return queue

    def allow_shared(self, name: str, n_bytes: int) -> None:
        """Let a kernel take more dynamic shared memory than the default 48 KB."""
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._checked(self._driver.cuFuncSetAttribute(self._functions[name], attribute, n_bytes))

    def allow_wide_clusters(self, name: str) -> None:
        """Let a kernel run as clusters of more than 8 blocks."""
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
        if answer[0] != self._driver.CUresult.CUDA_SUCCESS:
            raise BackendUnavailable(f"the GPU engine: {answer[0].name}")
        return answer[1] if len(answer) > 1 else None
