"""Long systems on one GPU: a block, a cluster of blocks or the whole device for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...device.context import Memory
from ...device.driver import Arguments, loaded_kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...device.context import Device

NAMES = ("schur_predict", "schur_solve")
PANEL = 256  # steps between two barriers, and entries that a warp writes
FOLLOWERS = 3  # warps of a block that apply steps to entries; with the leader one for each scheduler
MOST_FOLLOWERS = 7
MOST_CLUSTER = 16
BLOCK, CLUSTER, GRID = range(3)  # what waits at a barrier

# `struct Schur` of cuda/series/schur.cu, field for field
SCHUR = np.dtype(
    [(name, np.uint64) for name in (
        "r", "b", "work", "filter", "partial", "sigma2", "stops_at", "last", "arrived"
    )]
    + [(name, np.uint32) for name in ("n", "n_panels", "blocks", "barrier", "is_covariance", "round")]
)  # fmt: skip


class SchurResult(NamedTuple):
    """What the kernels of cuda/series/schur.cu compute, for B systems of size N."""

    filter: NDArray[np.float64]  # (B, N-1) coefficients, or (B, N) solutions
    partial: NDArray[np.float64]  # (B, N)
    sigma2: NDArray[np.float64]  # (B, N)
    stops_at: NDArray[np.int64]  # (B,)


def bytes_per_system(n: int, solve: bool) -> int:
    """Bytes that a system takes on the device, its input and results included."""
    return 8 * n * (6 + 6 if solve else 4 + 4) + 64


def choose_design(device: Device, n_systems: int, n: int) -> tuple[int, int, int]:
    """What waits at a barrier, the blocks of a system, and the warps of a block."""
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
        found = [np.empty((self._n_systems, width)) for width in self._widths.values()]
        stops_at = np.empty(self._n_systems, np.int32)
        arrays: list[NDArray[Any]] = [*found, stops_at]
        for array, address in zip(arrays, self._parts.values(), strict=True):
            if array.size:
                self._device.download(array, address, stream)
        stream.synchronize()
        return SchurResult(found[0], found[1], found[2], stops_at.astype(np.int64))

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()
