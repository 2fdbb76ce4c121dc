"""Arrays of other libraries that are in a GPU's memory, by ``__cuda_array_interface__`` or DLPack."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .dlpack import contiguous_strides, read_capsule
from .tensors import device_of

__all__ = ["DeviceArray", "device_array"]

LEGACY_STREAM = 1  # streams of ours wait for work that is queued on it


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


def device_array(value: Any) -> DeviceArray | None:
    """The array in a GPU's memory that an object of PyTorch, CuPy, JAX, Numba ... stands for; None for anything else.

    By DLPack where there is a choice: its producer gets the stream that reads the array, and PyTorch's
    ``__cuda_array_interface__`` names none.

    Raises
    ------
    ArgumentError
        If the library does not export the array, for example because it requires gradients.
    """
    number = device_of(value)
    if number is None:
        return None
    try:
        return _by_interface(value) if number < 0 else _by_dlpack(value)
    except (AttributeError, BufferError, KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ArgumentError(f"this {type(value).__name__} on a GPU cannot be read: {reason}") from None


def _by_interface(value: Any) -> DeviceArray:
    found = value.__cuda_array_interface__
    shape, dtype = tuple(map(int, found["shape"])), np.dtype(found["typestr"])
    strides = found.get("strides") or contiguous_strides(shape, dtype.itemsize)
    number = getattr(getattr(value, "device", None), "id", None)  # Numba's arrays name their device
    return DeviceArray(
        int(found["data"][0] or 0), shape, tuple(map(int, strides)), dtype,
        number if isinstance(number, int) else None, found.get("stream"), value,
    )  # fmt: skip


def _by_dlpack(value: Any) -> DeviceArray:
    tensor = read_capsule(value.__dlpack__(stream=LEGACY_STREAM))
    found = DeviceArray(tensor.address, tensor.shape, tensor.strides, tensor.dtype, tensor.device[1], None, value)
    weakref.finalize(found, tensor.release)
    return found
