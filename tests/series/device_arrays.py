"""Arrays in a GPU's memory, as other libraries export them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jtgpu.device.arrays import CUDA, Tensor, contiguous_strides, make_capsule
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
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.array.ordinal

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        assert stream == 1
        array = self.array
        strides = array.strides or contiguous_strides(array.shape, array.dtype.itemsize)
        tensor = Tensor(int(array.memory), array.shape, strides, array.dtype, (CUDA, array.ordinal), lambda: None)
        return make_capsule(tensor, self)
