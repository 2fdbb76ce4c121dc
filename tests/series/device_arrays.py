"""Arrays in a GPU's memory, as other libraries export them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jtgpu.device.context import Device

__all__ = ["ByDlpack", "ByInterface"]


class ByInterface:
    """An array with ``__cuda_array_interface__``. Used, and closed, inside ``device.active()``."""

    def __init__(self, device: Device, array: NDArray[Any], strides: tuple[int, ...] | None = None):
        self.memory = device.alloc(max(array.nbytes, 16))
        self.shape, self.strides, self.dtype, self.ordinal = array.shape, strides, array.dtype, device.ordinal
        if array.nbytes:
            stream = device.stream()
            device.upload(int(self.memory), np.ascontiguousarray(array), stream)
            stream.synchronize()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (int(self.memory), False), "version": 3,
            "strides": self.strides, "stream": None,
        }  # fmt: skip

    def close(self) -> None:
        """Free the memory."""
        self.memory.free()


class ByDlpack:
    """An array with ``__dlpack__`` only, around one with the interface."""

    def __init__(self, array: ByInterface):
        from jtgpu.device.arrays import _Tensor

        self.array = array
        self.shape = (ctypes.c_int64 * len(array.shape))(*array.shape)
        self.tensor = _Tensor(
            int(array.memory) - 64,
            2,
            array.ordinal,
            len(array.shape),
            2,
            8 * array.dtype.itemsize,
            1,
            self.shape,
            None,
            64,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.array.ordinal

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        assert stream == 1
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)
