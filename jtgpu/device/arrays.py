"""Arrays in a GPU's memory, of other libraries and for them, by ``__cuda_array_interface__`` or DLPack."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, EvidenceError
from .context import Device, Memory
from .driver import After

# DLPack capsules of device memory, read and made with ctypes: PyCUDA has no DLPack of its own.
#
# Layouts are those of ``DLManagedTensor`` in dmlc's header, which libraries exchange unless they agree on a later one.

CUDA = 2  # kind of device
KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}  # NumPy's kinds of numbers
_NAME, _USED = b"dltensor", b"used_dltensor"


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
# the same of a capsule that is being destroyed, which must not get another reference
_dying_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_dying_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))

_exported: dict[int, tuple[Any, ...]] = {}  # what tensors that others use need, by the address of their struct


class Tensor(NamedTuple):
    """An array in the memory of a device."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes
    dtype: np.dtype[Any]
    device: tuple[int, int]  # kind and number
    release: Callable[[], None]  # call it once, when the memory is no longer used


def read_capsule(capsule: Any) -> Tensor:
    """Take the tensor out of a capsule, which must not be used again."""
    # raises BufferError: If it has been used, or its numbers are none of NumPy's.
    if not _is_valid(capsule, _NAME):
        raise BufferError("the DLPack capsule has been used, or is of another version")
    address = _pointer(capsule, _NAME)
    managed = ctypes.cast(address, ctypes.POINTER(_Managed))
    t = managed.contents.tensor
    kind = {code: kind for kind, code in KINDS.items()}.get(t.code)
    if kind is None or t.lanes != 1 or t.bits % 8:
        raise BufferError(f"numbers of DLPack's kind {t.code} and {t.bits} bits cannot be read")
    dtype = np.dtype(f"{kind}{t.bits // 8}")
    shape = tuple(t.shape[i] for i in range(t.ndim))
    if t.strides:
        strides = tuple(t.strides[i] * dtype.itemsize for i in range(t.ndim))
    else:
        strides = contiguous_strides(shape, dtype.itemsize)
    _rename(capsule, _USED)

    def release() -> None:
        if managed.contents.deleter:
            managed.contents.deleter(managed)

    return Tensor((t.data or 0) + t.byte_offset, shape, strides, dtype, (t.device_type, t.device_id), release)


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Bytes from one entry to the next along every axis, the last axis fastest."""
    strides, at = [], itemsize
    for n in reversed(shape):
        strides.append(at)
        at *= n
    return tuple(reversed(strides))


def make_capsule(tensor: Tensor, owner: Any) -> Any:
    """A capsule of a tensor; `owner` lives until the library that takes the tensor has released it."""
    n = len(tensor.shape)
    shape = (ctypes.c_int64 * max(n, 1))(*tensor.shape)
    strides = (ctypes.c_int64 * max(n, 1))(*(s // tensor.dtype.itemsize for s in tensor.strides))
    code, bits = KINDS[tensor.dtype.kind], 8 * tensor.dtype.itemsize
    inner = _Tensor(tensor.address, *tensor.device, n, code, bits, 1, shape, strides, 0)
    managed = _Managed(inner, None, _deleter)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, shape, strides, owner)
    return _new(address, _NAME, ctypes.cast(_destructor, ctypes.c_void_p))


def _delete(managed: Any) -> None:
    """Called by the library that has taken a tensor."""
    _exported.pop(ctypes.addressof(managed.contents), None)


def _destroy(capsule: int) -> None:
    """Called when a capsule is freed: its tensor is, too, if nobody has taken it."""
    if _dying_is_valid(capsule, _NAME):
        _exported.pop(_dying_pointer(capsule, _NAME), None)


_deleter = _Deleter(_delete)
_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_destroy)


LEGACY_STREAM = 1  # streams of ours wait for work that is queued on it


@dataclass(frozen=True)
class DeviceArray:
    """An array in a GPU's memory."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # tuple of int: Bytes
    dtype: np.dtype[Any]
    ordinal: int | None  # number of the device; None: not known
    # Stream on which the array is computed; None: it has been computed, or the stream that reads it waits
    stream: int | None
    owner: Any  # keeps the memory

    def order(self, stream: Any) -> None:
        """Make a stream of ours wait for the work that the array comes from. Used inside ``device.active()``."""
        if self.stream is None:
            return
        after = After(self.stream)
        try:
            after.order(stream)
        finally:
            after.close()


def device_of(value: Any) -> int | None:
    """The number of the GPU that holds an array; -1 if it does not say which, None if it is in host memory."""
    if isinstance(value, (np.ndarray, np.generic)):
        return None
    if hasattr(type(value), "__dlpack_device__"):
        with suppress(RuntimeError, ValueError, TypeError, BufferError):
            kind, number = value.__dlpack_device__()
            return int(number) if int(kind) == CUDA else None
        return None
    return -1 if hasattr(type(value), "__cuda_array_interface__") else None


def device_array(value: Any, stream: int = LEGACY_STREAM) -> DeviceArray | None:
    """The array in a GPU's memory that an object of PyTorch, CuPy, JAX, Numba ... stands for; None for anything else.

    By DLPack where there is a choice: its producer gets the stream that reads the array, and PyTorch's
    ``__cuda_array_interface__`` names none.
    """
    # stream: Number of the stream that reads the array
    # raises ArgumentError: If the library does not export the array, for example because it has been deleted.
    number = device_of(value)
    if number is None:
        return None
    try:
        return _by_interface(value) if number < 0 else _by_dlpack(value, stream)
    except (AttributeError, BufferError, KeyError, RuntimeError, TypeError, ValueError) as error:
        dtype = getattr(value, "dtype", None)
        of = "" if dtype is None else f" of dtype {dtype}"
        reason = str(error).strip().partition("\n")[0]
        raise ArgumentError(f"this {type(value).__name__}{of} on a GPU cannot be read: {reason}") from None


def read_cases(value: Any, device: Device, stream: Any) -> DeviceArray:
    """Cases in device memory, ready to be read by work on a stream. Used inside ``device.active()``."""
    # stream: stream of the device: Waits for the work of the array's producer
    # raises EvidenceError: If it is on another device, requires gradients, or has been deleted.
    if getattr(value, "requires_grad", False) is True:
        raise EvidenceError(
            "cases: the tensor requires gradients, which this method does not compute; pass tensor.detach()"
        )
    number = device_of(value)
    if number not in (device.ordinal, -1):
        raise EvidenceError(
            f"cases: the tensor is on CUDA device {number}, the tree on CUDA device {device.ordinal} ({device.name})"
        )
    try:
        table = device_array(value, int(stream.handle))
    except ArgumentError as error:
        raise EvidenceError(f"cases: {error}") from None
    assert table is not None  # `device_of` is not None
    table.order(stream)
    return table


def _by_interface(value: Any) -> DeviceArray:
    interface = value.__cuda_array_interface__
    shape, dtype = tuple(map(int, interface["shape"])), np.dtype(interface["typestr"])
    strides = interface.get("strides") or contiguous_strides(shape, dtype.itemsize)
    number = getattr(getattr(value, "device", None), "id", None)  # Numba's arrays name their device
    return DeviceArray(
        int(interface["data"][0] or 0), shape, tuple(map(int, strides)), dtype,
        number if isinstance(number, int) else None, interface.get("stream"), value,
    )  # fmt: skip


def _by_dlpack(value: Any, stream: int) -> DeviceArray:
    tensor = read_capsule(value.__dlpack__(stream=stream))
    array = DeviceArray(tensor.address, tensor.shape, tensor.strides, tensor.dtype, tensor.device[1], None, value)
    weakref.finalize(array, tensor.release)
    return array


# Arrays in device memory that other libraries read without a copy.


class GpuArray:
    """An array in the memory of a GPU.

    It has ``__dlpack__`` and ``__cuda_array_interface__``: ``torch.from_dlpack(x)``, ``cupy.from_dlpack(x)`` and
    ``jax.dlpack.from_dlpack(x)`` share its memory. ``numpy.asarray(x)`` copies it to the host. The memory is freed with
    the last array that shares it. All work on it is complete when the caller gets it.
    """
    # strides: tuple of int: Bytes

    def __init__(
        self, device: Device, owner: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None
    ):
        self.device, self._owner, self._address = device, owner, address
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self.shape = shape
        self.strides = contiguous_strides(shape, 8) if strides is None else strides

    @classmethod
    def owning(cls, device: Device, memory: Memory, address: int, shape: tuple[int, ...]) -> GpuArray:
        """An array whose memory, and everything else of its owner, is freed with it."""
        owner = _Owner()
        weakref.finalize(owner, _free, device, memory)
        return cls(device, owner, address, shape)

    def columns(self, first: int, last: int) -> GpuArray:
        """Columns of a matrix, in the same memory."""
        shape, strides = (self.shape[0], last - first), self.strides
        return GpuArray(self.device, self._owner, self._address + first * strides[1], shape, strides)

    def folded(self, extents: Sequence[int]) -> GpuArray:
        """A matrix with its columns as axes of these extents, in the same memory."""
        steps = (self.strides[1] * math.prod(extents[i + 1 :]) for i in range(len(extents)))
        shape = (self.shape[0], *extents)
        return GpuArray(self.device, self._owner, self._address, shape, (self.strides[0], *steps))

    def transposed(self, axes: Sequence[int]) -> GpuArray:
        """The axes in another order, in the same memory."""
        shape, strides = (tuple(x[i] for i in axes) for x in (self.shape, self.strides))
        return GpuArray(self.device, self._owner, self._address, shape, strides)

    def sharing(self, address: int, shape: tuple[int, ...]) -> GpuArray:
        """Another array in memory of the same owner."""
        return GpuArray(self.device, self._owner, address, shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        strides = None if self._is_contiguous else self.strides
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self._address, False), "strides": strides,
            "version": 3, "stream": None,
        }  # fmt: skip

    @property
    def _is_contiguous(self) -> bool:
        return self.strides == contiguous_strides(self.shape, self.dtype.itemsize)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device.ordinal

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("only the memory itself can be exchanged, not a copy of it")
        tensor = Tensor(
            self._address, self.shape, self.strides, self.dtype, self.__dlpack_device__(), lambda: None
        )
        return make_capsule(tensor, self._owner)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array on a GPU cannot be read without a copy")
        host = self.to_host()
        return host if dtype is None else host.astype(dtype)

    def to_host(self) -> NDArray[Any]:
        """Copy to a NumPy array."""
        span = 1 + sum((n - 1) * stride // 8 for n, stride in zip(self.shape, self.strides, strict=True))
        cells = np.empty(span if math.prod(self.shape) else 0)
        if cells.size:
            with self.device.active():
                stream = self.device.stream()
                self.device.download(cells, self._address, stream)
                stream.synchronize()
                del stream
        strided = np.lib.stride_tricks.as_strided(cells, self.shape, self.strides)
        return np.array(strided, order="C")

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<GpuArray of {self.dtype} {self.shape} on {self.device.name} {self.device.ordinal}>"


class _Owner:
    """Lives as long as some array uses its memory."""


def _free(device: Device, memory: Memory) -> None:
    with suppress(Exception), device.active():  # at the end of the process the context may be gone
        memory.close()
