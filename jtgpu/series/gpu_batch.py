"""Short systems in batches, a thread each, on one GPU."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..device.context import Device, Memory, device_numbers, open_device
from ..device.driver import Arguments, loaded_kernels
from ..device.structs import struct
from ..errors import BackendUnavailable, TableTooLarge, format_bytes
from ..util.arrays import Floats, Ints
from ..util.elementary import log

if TYPE_CHECKING:
    from numpy.typing import NDArray

HIGHEST = 32  # order up to which a system fits a thread's registers
ORDERS = (8, 16, 32)  # kernels are compiled for
NAMES = tuple(f"series_{what}_{p}" for p in ORDERS for what in ("fit", "predict"))
WARP = 32
NO_PENALTY = -1.0

FIT = struct("series/batch.cu", "Fit")


class BatchResult(NamedTuple):
    """Results of the kernels of cuda/series/batch.cu, for B systems of order p."""

    coef: Floats  # (B, p)
    partial: Floats  # (B, p+1)
    sigma2: Floats  # (B, p+1)
    mean: Floats  # (B,)
    power: Floats  # (B,) 0 or not finite: there is no model
    bad: Ints  # (B,) first time with a value that is not finite, or -1
    order: Ints  # (B,) chosen
    stops_at: Ints  # (B,)

    @classmethod
    def empty(cls, n: int, p: int) -> BatchResult:
        """Results of n systems, not set."""
        return cls(*cls.of(np.empty(n * bytes_per_system(p), np.uint8), n, p))

    @staticmethod
    def of(memory: NDArray[np.uint8], n: int, p: int) -> list[Any]:
        """Arrays of the results in one block of memory."""
        parts: list[Any] = []
        first = 0
        for width, dtype in _layout(p):
            last = first + 8 * n * width
            part: NDArray[Any] = memory[first:last].view(dtype)
            parts.append(part.reshape(n, width) if len(parts) < 3 else part)
            first = last
        return parts


def _layout(p: int) -> list[tuple[int, type]]:
    """Numbers of a system, and their type, of each result."""
    return [(p, np.float64), (p + 1, np.float64), (p + 1, np.float64), (1, np.float64), (1, np.float64)] + [
        (1, np.int64)
    ] * 3


def bytes_per_system(p: int) -> int:
    """Bytes of a system's results."""
    return sum(8 * width for width, _ in _layout(p))


def penalty_of(order: str | int, n_times: int) -> float:
    """The penalty of a criterion for each coefficient; negative for a fixed order."""
    return {"bic": log(n_times), "aic": 2.0}.get(order, NO_PENALTY) if isinstance(order, str) else NO_PENALTY


class BatchJob:
    """Models of series, or predictors of autocovariances, that are in a GPU's memory. Used inside ``device.active()``.
    """
    # address: Of the first series, or of the first system's autocovariances at lags 0..p
    # n: Systems
    # stride: Values from one system to the next
    # real: {"float64", "float32"}: Type of the values. Sums are float64.
    # p: Highest order, at most `HIGHEST`
    # n_times: Length of the series; 0: autocovariances
    # penalty: See `penalty_of`
    # last: Address of the orders (int32) where the results of autocovariances end; 0: p
    # raises TableTooLarge: If the GPU has no memory for the results.

    def __init__(  # noqa: PLR0913
        self, device: Device, address: int, n: int, stride: int, real: str, p: int, *, n_times: int = 0,
        demean: bool = False, penalty: float = NO_PENALTY, last: int = 0,
    ):  # fmt: skip
        self._kernels = loaded_kernels(device, "series/batch", NAMES, real=real)
        self._device, self._memory, self._n, self._p = device, Memory(device), n, p
        self._address = self._memory.empty(n * bytes_per_system(p))
        fit = np.zeros(1, FIT)
        first = self._address
        for name, (width, _) in zip(BatchResult._fields, _layout(p), strict=True):
            fit[name] = first
            first += 8 * n * width
        fit["x"], fit["last"], fit["stride"], fit["penalty"] = address, last, stride, penalty
        fit["n_series"], fit["n_times"], fit["p"], fit["demean"] = n, n_times, p, demean
        size = next(size for size in ORDERS if p <= size)
        self._name = f"series_{'fit' if n_times else 'predict'}_{size}"
        self._arguments = Arguments(fit)

    def queue(self, stream: Any) -> None:
        """Queue the kernel."""
        self._kernels.launch(self._name, -(-self._n // WARP), WARP, stream, self._arguments)

    def download(self, stream: Any) -> BatchResult:
        """Wait for the results, and copy them."""
        memory = np.empty(self._n * bytes_per_system(self._p), np.uint8)
        self._device.download(memory, self._address, stream)
        stream.synchronize()
        return BatchResult(*BatchResult.of(memory, self._n, self._p))

    def close(self) -> None:
        """Free the memory of the results."""
        self._memory.close()


# Systems are independent: batches are divided between GPUs and into parts that fit their memory.

PART = 1 << 28  # bytes of a part
SHARE = 0.8  # of the free memory that a part may take


def opened(devices: Any) -> list[Device]:
    """The devices of the option ``devices=``; None: the best one."""
    # raises BackendUnavailable: If there is no such device.
    return [open_device()] if devices is None else [open_device(i) for i in device_numbers(devices)]


def on_devices(
    work: Callable[[Device, Any, slice], object], n: int, bytes_each: int, devices: Sequence[Device], what: str
) -> None:
    """Call `work` with slices that cover n systems, on devices in parallel."""
    # work: Of a device, which is current, a stream and a slice
    # bytes_each: Bytes of a system on the device
    # devices: sequence of Device: May repeat. A device that fails leaves its slices to the others.
    # what: What a system is, for messages
    # raises TableTooLarge: If one system does not fit a device.
    # raises BackendUnavailable: If every device fails.
    fits = []
    for device in dict.fromkeys(devices):
        with device.active():
            free = device.free_memory()
        if bytes_each > free * SHARE:
            raise TableTooLarge(
                f"{what} needs {format_bytes(bytes_each)} on {device.name}, which has {format_bytes(free)} free; use "
                "backend='cpu'",
                needed=bytes_each, limit=free,
            )  # fmt: skip
        fits.append(int(free * SHARE / devices.count(device)) // bytes_each)
    size = max(min(*fits, max(PART // bytes_each, 1), -(-n // len(devices))), 1) if n else 1
    parts = deque(slice(first, min(first + size, n)) for first in range(0, n, size))
    failures: list[BackendUnavailable] = []
    lock = threading.Lock()

    def take() -> slice | None:
        with lock:
            return parts.popleft() if parts else None

    def run(device: Device) -> None:
        with device.active():
            stream = device.stream()
            part = take()
            try:
                while part is not None:
                    work(device, stream, part)
                    part = take()
            except BackendUnavailable as error:
                with lock:
                    failures.append(error)
                    if part is not None:
                        parts.append(part)
            finally:
                del stream  # while the device is current

    if len(devices) == 1:
        run(devices[0])
    else:
        with ThreadPoolExecutor(len(devices), "jtgpu-series") as pool:
            for done in [pool.submit(run, device) for device in devices]:
                done.result()
    if parts:
        raise failures[0]
