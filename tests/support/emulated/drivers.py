"""Replacements of `pycuda.driver`, `skcuda.cublas` and `cuda.bindings.driver`."""

from __future__ import annotations

import ctypes
import threading
import types
import weakref
from collections.abc import Callable
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

from jtgpu.device import driver
from tests.support.emulated.built import Function, Module
from tests.support.emulated.cards import (
    CAPABILITY,
    CARDS,
    MULTIPROCESSORS,
    SHARED,
    Card,
    Context,
    CUresult,
    EmulatedError,
    EmulatedLogicError,
    EmulatedMemoryError,
    Event,
    Stream,
    cards,
    counts,
    current,
    ended,
    lock,
    mem_alloc,
    mem_get_info,
    memcpy_dtod_async,
    memcpy_dtoh_async,
    memcpy_htod_async,
    pagelocked_empty,
    pins,
    violate,
)  # fmt: skip

__all__ = ["bindings_driver", "cublas", "launch_kernel_ex", "pycuda_driver", "remember"]

# PyCUDA ---------------------------------------------------------------------------------------------------------------


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
            raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_DEVICE, str(ordinal))
        self._card = cards()[ordinal]
        self.multiprocessor_count = MULTIPROCESSORS

    @staticmethod
    def count() -> int:
        return CARDS

    def name(self) -> str:
        return "emulated GPU"

    def compute_capability(self) -> tuple[int, ...]:
        return CAPABILITY

    def retain_primary_context(self) -> Context:
        self._card.thread = threading.get_ident()
        return self._card.context


def pycuda_driver() -> types.ModuleType:
    """The module that replaces ``pycuda.driver``."""
    made = types.ModuleType("pycuda.driver")
    made.__dict__.update(
        Error=EmulatedError, MemoryError=EmulatedMemoryError, LogicError=EmulatedLogicError, init=lambda flags=0: None,
        Device=_Device, Context=Context, Stream=Stream, Event=Event, Function=Function, mem_get_info=mem_get_info,
        mem_alloc=mem_alloc, pagelocked_empty=pagelocked_empty, memcpy_htod_async=memcpy_htod_async,
        memcpy_dtoh_async=memcpy_dtoh_async, memcpy_dtod_async=memcpy_dtod_async, get_driver_version=lambda: 13000,
        module_from_buffer=lambda image: PyModule(Module(image)),
        event_flags=types.SimpleNamespace(DEFAULT=0, BLOCKING_SYNC=1, DISABLE_TIMING=2),
    )  # fmt: skip
    return made


# scikit-cuda ---------------------------------------------------------------------------------------------------------


class _Handle:
    """A cuBLAS handle: its stream."""

    stream: Stream


def cublas() -> types.ModuleType:
    """The module that replaces ``skcuda.cublas``."""
    made = types.ModuleType("skcuda.cublas")

    def table(handle: _Handle, n: int, address: int, dtype: Any) -> Any:
        with lock:
            current().check(address, n * np.dtype(dtype).itemsize)
            handle.stream.synchronize()
            kind = np.ctypeslib.as_ctypes_type(dtype)
            return np.ctypeslib.as_array((kind * n).from_address(address))

    def asum(dtype: Any) -> Callable[..., float]:
        return lambda handle, n, x, step: float(np.abs(table(handle, n, x, dtype)).sum())

    def scal(dtype: Any) -> Callable[..., None]:
        def scaled(handle: _Handle, n: int, by: float, x: int, step: int) -> None:
            cells = table(handle, n, x, dtype)
            cells *= dtype(by)

        return scaled

    made.__dict__.update(
        cublasCreate=_Handle, cublasDestroy=lambda handle: current(), cublasDasum=asum(np.float64),
        cublasSasum=asum(np.float32), cublasDscal=scal(np.float64), cublasSscal=scal(np.float32),
        cublasSetStream=lambda handle, number: setattr(handle, "stream", CUstream(number).found()),
    )  # fmt: skip
    return made


# cuda.bindings --------------------------------------------------------------------------------------------------------


OK = CUresult.CUDA_SUCCESS


def answers(work: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the driver; it returns a tuple whose first element is the error code."""

    def called(*given: Any) -> tuple[Any, ...]:
        with lock:
            try:
                found = work(*given)
            except EmulatedLogicError as error:
                return error.code, None
            except EmulatedMemoryError:
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
            raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_HANDLE, "no such stream")
        return stream


class Strict:
    """A struct of the driver; assigning an unknown field is an error."""

    fields: tuple[str, ...] = ()

    def __init__(self) -> None:
        for name in self.fields:
            object.__setattr__(self, name, 0)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.fields:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        object.__setattr__(self, name, value)


class CUlaunchConfig(Strict):
    """The configuration of a launch."""

    fields = (
        "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes", "hStream", "attrs",
        "numAttrs",
    )  # fmt: skip
    alive: ClassVar[weakref.WeakValueDictionary[int, CUlaunchConfig]] = weakref.WeakValueDictionary()

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "attrs", [])
        CUlaunchConfig.alive[id(self)] = self

    def getPtr(self) -> int:
        return id(self)


class _ClusterDim(Strict):
    fields = ("x", "y", "z")


class _Value(Strict):
    fields = ("programmaticStreamSerializationAllowed", "cooperative", "clusterDim")

    def __init__(self) -> None:
        super().__init__()
        self.clusterDim = _ClusterDim()


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
    """Attributes of a device."""

    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97


class CUfunction_attribute(IntEnum):
    """Attributes of a kernel."""

    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14


class CUevent_flags(IntEnum):
    """Flags of an event."""

    CU_EVENT_DEFAULT = 0
    CU_EVENT_DISABLE_TIMING = 2


class CUstreamCaptureMode(IntEnum):
    """Modes of a capture."""

    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


class EmulatedGraph:
    """Recorded work."""

    def __init__(self, work: list[Callable[[], None]], card: Card):
        self.work, self.card, self.open = work, card, True


class Handle(int):
    """The handle of a kernel."""


def _begin(stream: CUstream, mode: Any) -> None:
    s = stream.found()
    if s is current().legacy or s.recorded is not None:
        raise EmulatedLogicError(CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "")
    assert mode == CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    s.recorded, s.recorder = [], threading.get_ident()


def _end(stream: CUstream) -> EmulatedGraph:
    s = stream.found()
    if s.recorded is None:
        raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, "not captured")
    made = EmulatedGraph(s.recorded, s.card)
    for joined in [other for other in Stream.all if other.recorded is made.work]:
        joined.recorded = None
    return made


def _replay(graph: EmulatedGraph, stream: CUstream) -> None:
    assert graph.open
    counts["graphs"] += 1
    for work in graph.work:
        stream.found().put(work)


def _destroy(graph: EmulatedGraph) -> None:
    current()
    assert graph.open
    graph.card.drain()
    graph.open = False


def _attribute(attribute: CUdevice_attribute, device: int) -> int:
    return {16: MULTIPROCESSORS, 97: SHARED}[attribute]


def _set_attribute(function: int, attribute: CUfunction_attribute, value: int) -> None:
    current()
    if attribute == CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        Module.functions[function].most_cluster = 16
        return
    assert attribute == CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    if not 0 <= value <= SHARED:
        raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, "shared memory")
    Module.functions[function].allowed = value


def _pinned_address(address: int, flags: int) -> int:
    current()
    if not any(b.holds(int(address), 1) for b in pins.values()):
        raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_VALUE, "not page-locked")
    return int(address)


def _device_get(ordinal: int) -> int:
    if not 0 <= ordinal < CARDS:
        raise EmulatedLogicError(CUresult.CUDA_ERROR_INVALID_DEVICE, "")
    return ordinal


def bindings_driver() -> types.ModuleType:
    """The module that replaces ``cuda.bindings.driver``."""
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
        "cuGraphInstantiate": lambda graph, flags: EmulatedGraph(graph.work, graph.card),
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


def remember(arguments: driver.Arguments) -> None:
    """Register the parameters of a launch by their address."""
    _arguments[arguments.address] = arguments


def launch_kernel_ex(config: Any, function: Any, parameters: Any, extra: Any) -> int:
    """cuLaunchKernelEx with its ctypes arguments; returns the error code."""
    with lock:
        try:
            return _launch(CUlaunchConfig.alive[config.value], Module.functions[function.value], parameters.value)
        except EmulatedLogicError as error:
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
        if attribute.id == CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE and blocks > MULTIPROCESSORS:
            return CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
        if attribute.id == CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            size = attribute.value.clusterDim
            if CAPABILITY < (9, 0) or size.y != 1 or size.z != 1 or blocks % size.x or size.x > function.most_cluster:
                return CUresult.CUDA_ERROR_INVALID_VALUE
    given = _arguments[parameters]
    kept = given._kept
    if len(kept) != len(function.sizes):
        violate(f"{function.name} takes {len(function.sizes)} parameters, not {len(kept)}")
        return CUresult.CUDA_ERROR_INVALID_VALUE
    for size, array in zip(function.sizes, kept, strict=True):
        if array.nbytes < size:
            violate(f"a parameter of {function.name} has {size} bytes, not {array.nbytes}")
            return CUresult.CUDA_ERROR_INVALID_VALUE
    pointers = list((ctypes.c_uint64 * len(kept)).from_address(parameters))
    function.queue(
        stream, blocks, threads, [ctypes.string_at(p, n) for p, n in zip(pointers, function.sizes, strict=True)]
    )
    return OK
