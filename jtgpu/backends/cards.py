"""Which GPUs of this machine are meant."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..errors import BackendUnavailable

__all__ = ["device_numbers"]


def device_numbers(devices: Any) -> list[int]:
    """CUDA devices as people name them: ``"all"``, a number, or numbers; a number may stand more than once.

    Raises
    ------
    BackendUnavailable
        For a device that is not there, or where there is none at all.
    ValueError
        For anything else.
    """
    from .device import _driver

    count = _driver().Device.count()
    if isinstance(devices, str):
        if devices != "all":
            raise ValueError(f"devices is 'all' or numbers of GPUs, not {devices!r}")
        return list(range(count))
    try:
        numbers = [operator.index(devices)] if not np.iterable(devices) else [operator.index(d) for d in devices]
    except TypeError:
        raise ValueError(f"devices is 'all' or numbers of GPUs, not {devices!r}") from None
    if not numbers:
        raise ValueError("devices names no GPU")
    for n in numbers:
        if not 0 <= n < count:
            raise BackendUnavailable(f"there is no CUDA device {n}; this machine has {count}")
    return numbers
