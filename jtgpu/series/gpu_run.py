"""The functions of `jtgpu.series` on GPUs, from arrays of the host or of a device."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..device.arrays import DeviceArray
from ..device.context import Device, Memory, open_device
from ..device.driver import Arguments, loaded_kernels
from ..device.structs import struct
from ..errors import ArgumentError
from ..util.arrays import Floats, Ints
from . import gpu_batch as batch
from .gpu_batch import on_devices, opened

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Long systems on one GPU: a block, a cluster of blocks or the whole device for each.

NAMES = ("schur_predict", "schur_solve")
PANEL = 256  # steps between two barriers, and entries that a warp writes
FOLLOWERS = 3  # warps of a block that apply steps to entries; with the leader one for each scheduler
MOST_FOLLOWERS = 7
MOST_CLUSTER = 16
BLOCK, CLUSTER, GRID = range(3)  # what waits at a barrier

SCHUR = struct("series/schur.cu", "Schur")


class SchurResult(NamedTuple):
    """Results of the kernels of cuda/series/schur.cu, for B systems of size N."""

    filter: Floats  # (B, N-1) coefficients, or (B, N) solutions
    partial: Floats  # (B, N)
    sigma2: Floats  # (B, N)
    stops_at: Ints  # (B,)


def bytes_per_system(n: int, solve: bool) -> int:
    """Bytes that a system takes on the device, its input and results included."""
    return 8 * n * (6 + 6 if solve else 4 + 4) + 64


def choose_design(device: Device, n_systems: int, n: int) -> tuple[int, int, int]:
    """The threads that wait at a barrier, the blocks of a system, and the warps of a block."""
    n_tiles = max(-(-n // PANEL), 1)
    has_clusters = device.capability >= (9, 0)
    barrier, blocks = BLOCK, 1
    if n_tiles > FOLLOWERS:
        wanted = -(-n_tiles // FOLLOWERS)
        if n_systems == 1 and (not has_clusters or wanted > MOST_CLUSTER):
            barrier, blocks = GRID, min(wanted, device.multiprocessors)
        elif has_clusters:
            barrier, blocks = CLUSTER, min(wanted, MOST_CLUSTER)
    return barrier, blocks, 1 + min(-(-n_tiles // blocks), MOST_FOLLOWERS)


class SchurJob:
    """Predictors or solutions of systems that are in a GPU's memory. Used inside ``device.active()``."""
    # address: Of the systems' first columns, (B, N) float64
    # stream: Of `Device.stream`
    # right: Address of right-hand sides, (B, N) float64; 0: predictors
    # last: Address of the orders (int32) where the results end
    # is_covariance: Stop at reflection coefficients of 1 and more, which only indefinite matrices have
    # design: (int, int, int): See `choose_design`
    # raises TableTooLarge: If the GPU has too little memory.

    def __init__(  # noqa: PLR0913
        self, device: Device, address: int, n_systems: int, n: int, stream: Any, *, last: int, right: int = 0,
        is_covariance: bool = True, design: tuple[int, int, int] | None = None,
    ):  # fmt: skip
        self._device, self._memory, self._n = device, Memory(device), n
        self._kernels = loaded_kernels(device, "series/schur", NAMES)
        self._name = "schur_solve" if right else "schur_predict"
        self._barrier, self._blocks, self._warps = design or choose_design(device, n_systems, n)
        self._widths = {"filter": n if right else n - 1, "partial": n, "sigma2": n}
        self._parts: dict[str, int] = {}
        self._n_systems = n_systems
        schur = np.zeros(1, SCHUR)
        try:
            for name, width in self._widths.items():
                schur[name] = self._parts[name] = self._memory.empty(8 * n_systems * width)
            schur["stops_at"] = self._parts["stops_at"] = self._memory.empty(4 * n_systems)
            schur["work"] = self._memory.empty(8 * n_systems * n * (6 if right else 4))
            self._arrived = self._memory.put(np.zeros(n_systems, np.uint32), stream)
        except BaseException:
            self.close()
            raise
        schur["r"], schur["b"], schur["last"], schur["arrived"] = address, right, last, self._arrived
        schur["n"], schur["n_panels"] = n, -(-(n if right else n - 1) // PANEL)
        schur["blocks"], schur["barrier"], schur["is_covariance"] = self._blocks, self._barrier, is_covariance
        self._arguments = Arguments(schur)
        self._rounds = 0  # barriers of the launches so far
        if self._barrier == CLUSTER and self._blocks > 8:
            self._kernels.allow_large_clusters(self._name)

    def queue(self, stream: Any) -> None:
        """Queue the kernel."""
        # raises BackendUnavailable: If the device cannot start as many blocks at the same time.
        schur = self._arguments.kept(0)
        schur["round"] = self._rounds & 0xFFFFFFFF
        self._rounds += 1 + int(schur["n_panels"][0])
        launch = self._kernels.ready(
            self._name, (self._n_systems * self._blocks, 32 * self._warps), stream, self._arguments,
            together=self._barrier == GRID, cluster=self._blocks if self._barrier == CLUSTER else 0,
        )  # fmt: skip
        launch()

    def download(self, stream: Any) -> SchurResult:
        """Wait for the results, and copy them."""
        downloaded = [np.empty((self._n_systems, width)) for width in self._widths.values()]
        stops_at = np.empty(self._n_systems, np.int32)
        arrays: list[NDArray[Any]] = [*downloaded, stops_at]
        for array, address in zip(arrays, self._parts.values(), strict=True):
            if array.size:
                self._device.download(array, address, stream)
        stream.synchronize()
        return SchurResult(downloaded[0], downloaded[1], downloaded[2], stops_at.astype(np.int64))

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()


def check_rows(name: str, x: DeviceArray) -> tuple[int, int, int, str]:
    """Rows, length and stride (in values) of the (B, n) matrix that a device array of shape (..., n) is, and its type.
    """
    # raises ArgumentError: For other numbers than floats of 32 and 64 bits, and for rows that are not contiguous and
    #     equally spaced.
    size = x.dtype.itemsize
    if x.dtype not in (np.float32, np.float64) or not x.shape:
        raise ArgumentError(f"{name} on a GPU must be a float32 or float64 array, not {x.dtype} of shape {x.shape}")
    rows = int(np.prod(x.shape[:-1], dtype=np.int64))
    length = x.shape[-1]
    spaced = len(x.shape) < 2 or x.strides[-2] % size == 0
    expected = x.strides[-2] if len(x.shape) > 1 else length * size
    for extent, stride in zip(reversed(x.shape[:-1]), reversed(x.strides[:-1]), strict=True):
        spaced &= extent == 1 or stride == expected
        expected = expected * extent
    if (length > 1 and x.strides[-1] != size) or not spaced:
        raise ArgumentError(f"{name} on a GPU must have contiguous rows, equally spaced, not strides {x.strides}")
    return rows, length, (x.strides[-2] // size if len(x.shape) > 1 else length), str(x.dtype)


def fit(x: Floats, p: int, order: str | int, demean: bool, devices: Any) -> batch.BatchResult:
    """Models of the rows of a C-contiguous (B, T) array; p is at most `batch.HIGHEST`."""
    n, n_times = x.shape
    fitted = batch.BatchResult.empty(n, p)
    penalty = batch.penalty_of(order, n_times)

    def work(device: Device, stream: Any, some: slice) -> None:
        with Memory(device) as memory:
            address = memory.put(x[some], stream)
            size = len(x[some])
            job = batch.BatchJob(
                device, address, size, n_times, "float64", p, n_times=n_times, demean=demean, penalty=penalty
            )
            _finish(job, stream, fitted, some)

    on_devices(work, n, 8 * n_times + batch.bytes_per_system(p), opened(devices), f"a series of {n_times} values")
    return fitted


def fit_resident(x: DeviceArray, p: int, order: str | int, demean: bool) -> batch.BatchResult:
    """Models of the rows of a device array, on its device."""
    n, n_times, stride, real = check_rows("x", x)
    fitted = batch.BatchResult.empty(n, p)
    if not n:
        return fitted
    penalty = batch.penalty_of(order, n_times)
    device = open_device(x.ordinal)
    with device.active():
        stream = device.stream()
        x.order(stream)
        job = batch.BatchJob(device, x.address, n, stride, real, p, n_times=n_times, demean=demean, penalty=penalty)
        _finish(job, stream, fitted, slice(0, n))
    return fitted


def _finish(job: Any, stream: Any, fitted: Any, some: slice) -> None:
    """Run a job, and copy its results."""
    with closing(job):
        job.queue(stream)
        for to, result in zip(fitted, job.download(stream), strict=True):
            to[some] = result


def predict(r: Floats, last: Ints, predictors: tuple[NDArray[Any], ...], devices: Any) -> None:
    """Predictors from the rows of a C-contiguous (B, p+1) array."""
    # r: (B, p+1) array
    # last: (B,) array: Order where a system's results end
    # predictors: tuple of arrays: Of coefficients, partial autocorrelations, variances and the first orders that do not
    #     exist; set
    n, p = r.shape[0], r.shape[1] - 1
    is_short = p <= batch.HIGHEST
    each = batch.bytes_per_system(p) + 8 * (p + 1) if is_short else bytes_per_system(p + 1, solve=False)

    def work(device: Device, stream: Any, some: slice) -> None:
        with Memory(device) as memory:
            address = memory.put(r[some], stream)
            orders = memory.put(last[some].astype(np.int32), stream)
            if is_short:
                short = batch.BatchJob(device, address, len(r[some]), p + 1, "float64", p, last=orders)
                _finish(_Selected(short), stream, predictors, some)
            else:
                _finish(SchurJob(device, address, len(r[some]), p + 1, stream, last=orders), stream, predictors, some)

    on_devices(work, n, each, opened(devices), f"a system of order {p}")
    no_order = predictors[3] == 0
    for array in predictors[:3]:
        array[no_order] = 0.0
    predictors[1][no_order, 0] = 1.0


class _Selected:
    """A batch job of which only the predictors are results."""

    def __init__(self, job: batch.BatchJob):
        self._job = job
        self.queue, self.close = job.queue, job.close

    def download(self, stream: Any) -> tuple[NDArray[Any], ...]:
        arrays = self._job.download(stream)
        return arrays.coef, arrays.partial, arrays.sigma2, arrays.stops_at


def predict_resident(r: DeviceArray, predictors: tuple[NDArray[Any], ...]) -> None:
    """Predictors from the rows of a device array, of an order up to `batch.HIGHEST`, on its device."""
    n, width, stride, real = check_rows("r", r)
    if not n:
        return
    device = open_device(r.ordinal)
    with device.active():
        stream = device.stream()
        r.order(stream)
        job = batch.BatchJob(device, r.address, n, stride, real, width - 1)
        _finish(_Selected(job), stream, predictors, slice(0, n))


def download(x: DeviceArray) -> Floats:
    """A device array with contiguous rows as float64 on the host."""
    n, length, stride, real = check_rows("x", x)
    rows = np.empty((n, max(stride, length)), real)
    if rows.size:
        device = open_device(x.ordinal)
        with device.active():
            stream = device.stream()
            x.order(stream)
            device.download(rows.reshape(-1)[: (n - 1) * stride + length], x.address, stream)
            stream.synchronize()
    return np.ascontiguousarray(rows[:, :length], np.float64).reshape(x.shape)


def solve(c: Floats, b: Floats, x: Floats, stops_at: Ints, devices: Any) -> None:
    """Solve (B, N) systems for (B, K, N) right-hand sides; each right-hand side is a run."""
    n_systems, n = c.shape
    n_right = b.shape[1]

    def work(device: Device, stream: Any, some: slice) -> None:
        with Memory(device) as memory:
            size = len(c[some])
            address = memory.put(c[some], stream)
            orders = memory.put(np.full(size, n - 1, np.int32), stream)
            for j in range(n_right):
                with Memory(device) as part:
                    right = part.put(np.ascontiguousarray(b[some, j]), stream)
                    job = SchurJob(
                        device, address, size, n, stream, last=orders, right=right, is_covariance=False
                    )
                    with closing(job):
                        job.queue(stream)
                        arrays = job.download(stream)
                x[some, j], stops_at[some] = arrays.filter, arrays.stops_at

    each = bytes_per_system(n, solve=True)
    on_devices(work, n_systems if n_right else 0, each, opened(devices), f"a system of {n} equations")
