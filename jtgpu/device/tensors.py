"""Arrays in device memory that other libraries read without a copy."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from .context import Device
from .dlpack import CUDA, Tensor, contiguous_strides, make_capsule
from .memory import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
        rows = self.shape[0] if self.shape else 1
        width = self.strides[0] // 8 if len(self.shape) == 2 else 1
        last = self.shape[1] if len(self.shape) == 2 else 1
        cells = np.empty(max((rows - 1) * width + last, 0) if rows else 0)
        if cells.size:
            with self.device.active():
                stream = self.device.stream()
                self.device.download(cells, self._address, stream)
                stream.synchronize()
                del stream
        found = np.lib.stride_tricks.as_strided(cells, self.shape, self.strides if len(self.shape) == 2 else None)
        return np.array(found, order="C")

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<GpuArray of {self.dtype} {self.shape} on {self.device.name} {self.device.ordinal}>"


class _Owner:
    """Lives as long as some array uses its memory."""


def _free(device: Device, memory: Memory) -> None:
    with suppress(Exception), device.active():  # at the end of the process the context may be gone
        memory.close()
