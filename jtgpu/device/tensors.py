"""Arrays in device memory that other libraries read without a copy, and theirs that jtgpu reads."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import EvidenceError
from .context import Device
from .dlpack import CUDA, Tensor, contiguous_strides, make_capsule, read_capsule
from .driver import After
from .memory import Memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GpuArray", "device_of", "read_tensor"]


class GpuArray:
    """An array in the memory of a GPU.

    It has ``__dlpack__`` and ``__cuda_array_interface__``: ``torch.from_dlpack(x)``, ``cupy.from_dlpack(x)`` and
    ``jax.dlpack.from_dlpack(x)`` share its memory. ``numpy.asarray(x)`` copies it to the host. The memory is freed with
    the last array that shares it. All work on it is complete when the caller gets it.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    strides : tuple of int
        Bytes.
    """

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


def device_of(value: Any) -> int | None:
    """The number of the GPU that holds a tensor; -1 if it does not say which, None if it is in host memory."""
    if isinstance(value, (np.ndarray, np.generic)):
        return None
    if hasattr(type(value), "__dlpack_device__"):
        with suppress(RuntimeError, ValueError, TypeError, BufferError):
            kind, number = value.__dlpack_device__()
            return int(number) if int(kind) == CUDA else None
        return None
    return -1 if hasattr(type(value), "__cuda_array_interface__") else None


def read_tensor(value: Any, what: str, device: Device, stream: Any) -> Tensor:
    """A tensor of another library, ready to be read by work on a stream. Used inside ``device.active()``.

    Parameters
    ----------
    value : object with ``__dlpack__``, or with ``__cuda_array_interface__``
    what : str
        What it is, for messages.
    device : Device
    stream : stream of the device
        Waits for the work of the tensor's producer.

    Raises
    ------
    EvidenceError
        If it is on another device, requires gradients, or has been deleted.
    """
    if getattr(value, "requires_grad", False) is True:
        raise EvidenceError(
            f"{what}: the tensor requires gradients, which this method does not compute; pass tensor.detach()"
        )
    number = device_of(value)
    if number not in (device.ordinal, -1):
        raise EvidenceError(
            f"{what}: the tensor is on CUDA device {number}, the tree on CUDA device {device.ordinal} ({device.name})"
        )
    try:
        if number == -1:
            return _from_interface(value, device, stream)
        return read_capsule(value.__dlpack__(stream=int(stream.handle)))
    except (BufferError, RuntimeError, TypeError, ValueError, AttributeError, KeyError) as error:
        dtype = getattr(value, "dtype", None)
        of = "" if dtype is None else f" of dtype {dtype}"
        reason = str(error).strip().partition("\n")[0]
        raise EvidenceError(f"{what}: this {type(value).__name__}{of} cannot be read on the device: {reason}") from None


def _from_interface(value: Any, device: Device, stream: Any) -> Tensor:
    """By ``__cuda_array_interface__``."""
    given = value.__cuda_array_interface__
    producer = given.get("stream")
    if producer is not None:
        after = After(int(producer))
        try:
            after.order(stream)
        finally:
            after.close()
    dtype, shape = np.dtype(given["typestr"]), tuple(int(n) for n in given["shape"])
    strides = given.get("strides") or contiguous_strides(shape, dtype.itemsize)
    return Tensor(int(given["data"][0]), shape, tuple(strides), dtype, (CUDA, device.ordinal), lambda: None)


