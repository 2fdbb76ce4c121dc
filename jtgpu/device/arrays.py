"""Arrays of other libraries that are in a GPU's memory, by ``__cuda_array_interface__`` or DLPack."""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError, EvidenceError
from .context import Device
from .dlpack import CUDA, contiguous_strides, read_capsule
from .driver import After

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
        found = device_array(value, int(stream.handle))
    except ArgumentError as error:
        raise EvidenceError(f"cases: {error}") from None
    assert found is not None  # `device_of` is not None
    found.order(stream)
    return found


def _by_interface(value: Any) -> DeviceArray:
    found = value.__cuda_array_interface__
    shape, dtype = tuple(map(int, found["shape"])), np.dtype(found["typestr"])
    strides = found.get("strides") or contiguous_strides(shape, dtype.itemsize)
    number = getattr(getattr(value, "device", None), "id", None)  # Numba's arrays name their device
    return DeviceArray(
        int(found["data"][0] or 0), shape, tuple(map(int, strides)), dtype,
        number if isinstance(number, int) else None, found.get("stream"), value,
    )  # fmt: skip


def _by_dlpack(value: Any, stream: int) -> DeviceArray:
    tensor = read_capsule(value.__dlpack__(stream=stream))
    found = DeviceArray(tensor.address, tensor.shape, tensor.strides, tensor.dtype, tensor.device[1], None, value)
    weakref.finalize(found, tensor.release)
    return found
