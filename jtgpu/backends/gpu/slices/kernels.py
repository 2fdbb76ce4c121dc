"""A program of a slice on a GPU: its lanes and threads, its arrays in device memory, and the kernels of slices.cu."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....device.context import Device, Memory
from ....device.driver import Arguments, Kernels, loaded_kernels, most_shared
from ....device.structs import filled, struct
from .contractions import SliceMaker
from .program import ArrayWriter, SliceArrays, SliceParts, SliceWay
from .sums import Wanted

if TYPE_CHECKING:
    from numpy.typing import NDArray

KERNELS = (
    "slices_start", "slices_added", "slices_forward_shared", "slices_forward_global", "slices_backward_shared",
    "slices_backward_global",
)  # fmt: skip
FIRST_LANES = 16  # more leave an SM with too few warps
MOST_LANES = 32  # of a block of any program
MOST_THREADS = 256
SM_BYTES = 232_448  # of shared memory
RECORD_THREADS = 768  # that keep an SM busy
GLOBAL_LANES = 8
BLOCKS_PER_SM = 3  # that share an SM's memory, where at least so many lanes fit:
ENOUGH_LANES = 4


def best_arrays(maker: SliceMaker, way: SliceWay, wanted: Wanted, most: int) -> SliceArrays:
    """The program with as many lanes as pay."""
    # most: Bytes of shared memory of a block
    parts = SliceParts.of(maker, way)
    lanes, share = FIRST_LANES, most // BLOCKS_PER_SM - 1024
    while lanes >= 2:
        made = _with_threads(ArrayWriter(parts, wanted, lanes).arrays())
        if shared_bytes(made) <= (share if lanes > ENOUGH_LANES else most):
            return made
        lanes //= 2
    return _with_threads(ArrayWriter(parts, wanted, GLOBAL_LANES).arrays())


def _with_threads(made: SliceArrays) -> SliceArrays:
    """Threads of a block: as many as keep an SM busy with the sequences that its memory holds."""
    blocks = max(SM_BYTES // (8 * made.n_cells), 1)
    threads = min(made.threads, RECORD_THREADS // blocks, MOST_THREADS)
    return replace(made, threads=max(threads + 31, 32) // 32 * 32)


def shared_bytes(made: SliceArrays) -> int:
    """Shared memory of a block with all tables."""
    return 8 * made.n_cells + sums_bytes(made)


def sums_bytes(made: SliceArrays) -> int:
    """Shared memory of a block whose tables are elsewhere."""
    return 16 * made.threads // 32 * made.lanes


class GpuProgram:
    """A program in the memory of a device."""

    def __init__(self, device: Device, made: SliceArrays):
        self.device = device
        self.lanes, self.threads, self.n_cells = made.lanes, made.threads, made.n_cells
        self.is_shared = shared_bytes(made) <= most_shared(device) - 1024
        self.shared = shared_bytes(made) if self.is_shared else sums_bytes(made)
        with device.active():
            self.kernels: Kernels = loaded_kernels(device, "batch/slices", KERNELS)
            self._memory = Memory(device)
            try:
                self.struct = self._put(made)
            except BaseException:
                self._memory.close()
                raise

    def _put(self, made: SliceArrays) -> NDArray[Any]:
        """The struct of a program whose arrays are copied to the device."""
        stream = self.device.stream()
        names = ("ops", "tiles", "steps", "items", "observed", "targets", "pool", "consts", "values")
        addresses = {name: self._memory.put(getattr(made, name), stream) for name in names}
        return filled(struct("batch/slices.cu", "SliceProgram"), least=made.least, **addresses, **made.fields)

    def launch(
        self, way: str, sequences: Any, n: int, arenas: Callable[[int], int], stream: Any
    ) -> None:
        """Queue the kernel for n sequences."""
        # arenas: Gives so many bytes of memory
        blocks = n // self.lanes
        if not self.is_shared:
            blocks = min(blocks, self.device.multiprocessors * 2)
            sequences["arenas"] = arenas(8 * self.n_cells * blocks)
        name = f"slices_{way}_{'shared' if self.is_shared else 'global'}"
        self.kernels.allow_shared(name, max(self.shared, 48 << 10))
        self.kernels.launch(name, blocks, self.threads, stream, Arguments(self.struct, sequences), shared=self.shared)

    def close(self) -> None:
        """Free the memory."""
        with self.device.active():
            self._memory.close()
