"""Systems are independent: batches are divided between GPUs and into parts that fit their memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...device.context import Device, device_numbers, open_device
from ...errors import BackendUnavailable, TableTooLarge, format_bytes

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
