"""Arrays of other libraries that are in a GPU's memory, by ``__cuda_array_interface__`` or DLPack."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError

__all__ = ["DeviceArray", "device_array"]

CUDA, MANAGED = 2, 13  # device types of DLPack
LEGACY_STREAM = 1  # streams of ours wait for work that is queued on it
KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}  # type codes of DLPack


@dataclass(frozen=True)
class DeviceArray:
    """An array in a GPU's memory.

    Attributes
    ----------
    address : int
    shape : tuple of int
    strides : tuple of int
        Bytes.
    dtype : numpy.dtype
    ordinal : int or None
        Number of the device; None: not known.
    stream : int or None
        Stream on which the array is computed; None: it has been computed, or the legacy default stream waits for it.
    owner : object
        Keeps the memory.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    ordinal: int | None
    stream: int | None
    owner: Any


class _Tensor(ctypes.Structure):
    """``DLTensor``, which a ``DLManagedTensor`` begins with."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


def device_array(value: Any) -> DeviceArray | None:
    """The array in a GPU's memory that an object of PyTorch, CuPy, JAX, Numba ... stands for; None for anything else.

    Raises
    ------
    ArgumentError
        If the library does not export the array, for example because it requires gradients.
    """
    kind = type(value)
    if kind.__module__.partition(".")[0] == "numpy":
        return None
    try:
        if hasattr(kind, "__dlpack_device__"):
            device_type, ordinal = map(int, value.__dlpack_device__())
            if device_type not in (CUDA, MANAGED):
                return None
        elif hasattr(kind, "__cuda_array_interface__"):
            ordinal = None
        else:
            return None
        if hasattr(kind, "__cuda_array_interface__"):
            return _by_interface(value, ordinal)
        return _by_dlpack(value)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ArgumentError(f"this {kind.__name__} on a GPU cannot be read: {reason}") from None


def _by_interface(value: Any, ordinal: int | None) -> DeviceArray:
    found = value.__cuda_array_interface__
    shape, dtype = tuple(map(int, found["shape"])), np.dtype(found["typestr"])
    strides = found.get("strides") or _contiguous(shape, dtype.itemsize)
    if ordinal is None:
        number = getattr(getattr(value, "device", None), "id", None)  # CuPy's and Numba's arrays name their device
        ordinal = number if isinstance(number, int) else None
    return DeviceArray(
        int(found["data"][0] or 0), shape, tuple(map(int, strides)), dtype, ordinal, found.get("stream"), value
    )


def _by_dlpack(value: Any) -> DeviceArray:
    capsule = value.__dlpack__(stream=LEGACY_STREAM)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    if tensor.lanes != 1 or tensor.code not in KINDS:
        raise TypeError(f"its elements have DLPack's type code {tensor.code}")
    dtype = np.dtype(f"{KINDS[tensor.code]}{tensor.bits // 8}")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = (
        tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
        if tensor.strides
        else _contiguous(shape, dtype.itemsize)
    )
    # the capsule owns the tensor until it is collected
    return DeviceArray(
        (tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, tensor.device_id, None, (value, capsule)
    )


def _contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = [itemsize]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return tuple(reversed(strides[: len(shape)]))
