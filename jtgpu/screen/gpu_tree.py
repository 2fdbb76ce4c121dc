"""A tree of boxes over the rows of a table, built on a GPU; see cuda/screen/build.cu."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device.context import Device, Launch, Memory
from ..device.structs import struct
from ..errors import TableTooLarge, format_bytes
from ..util.arrays import Floats, Ints

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The parameters of the kernels in cuda/screen; see layout.cuh, build.cu and knn.cu.

TREE = struct("screen/layout.cuh", "Tree")
LEVELS = TREE["first"].shape[0]  # of a tree
SEARCH = struct("screen/knn.cu", "Search")
CURVE = struct("screen/build.cu", "Curve")
SORT = struct("screen/build.cu", "Sort")
GATHER = struct("screen/build.cu", "Gather")
BOXES = struct("screen/build.cu", "Boxes")
DIAGONALS = struct("screen/build.cu", "Diagonals")


# Launches of the kernels in cuda/screen, and the device memory that an engine owns.

BLOCK = 256  # threads of a block
SLOTS = 256  # parameters that may be queued at the same time
SLOT_BYTES = 256


class Launcher:
    """A stream of a device, and memory that is freed together. Used inside ``device.active()``."""

    def __init__(self, device: Device):
        self.device = device
        self.memory = Memory(device)
        self.stream: Any = device.stream()
        self._slots = self.memory.empty(SLOTS * SLOT_BYTES)
        self._next = 0

    def launch(
        self, file: str, name: str, blocks: int, job: np.dtype[Any], fields: Mapping[str, Any], *,
        threads: int = BLOCK, ways: int = 16,
    ) -> None:  # fmt: skip
        """Queue a kernel with a struct of parameters."""
        if not blocks:
            return
        record = np.zeros(1, job)
        for field, value in fields.items():
            record[field] = value
        if self._next == SLOTS:
            self.stream.synchronize()
            self._next = 0
        address = self._slots + self._next * SLOT_BYTES
        self._next += 1
        self.device.upload(address, record.view(np.uint8), self.stream)
        function = self.device.function(file, name, ways=ways)
        self.device.launch(Launch(function, (blocks, 1, 1), (threads, 1, 1), address, 0), self.stream)

    def put(self, array: NDArray[Any]) -> int:
        """Copy an array to new device memory; its address."""
        return self.memory.put(array, self.stream)

    def get(self, address: int, n: int, dtype: Any) -> NDArray[Any]:
        """Copy n numbers to the host, after what is queued."""
        values = np.empty(n, dtype)
        if n:
            self.device.download(values, address, self.stream)
        self.stream.synchronize()
        self._next = 0
        return values

    def close(self) -> None:
        """Wait for what is queued and free everything."""
        self.stream.synchronize()
        self.memory.close()
        self.stream = None  # it must be destroyed while the context is current


class Buffers:
    """Device memory for the rows of a search."""
    # size: Rows that fit, a multiple of 32

    def __init__(self, launcher: Launcher, size: int, n_numbers: int, n_words: int):
        self._launcher, self.size = launcher, size
        self._memory = Memory(launcher.device)
        widths = {
            "numbers": 8 * n_numbers, "words": 8 * n_words, "new_numbers": 8 * n_numbers, "new_words": 8 * n_words,
            "rows": 4, "cuts": 8, "divisors": 8, "weights": 8,
        }  # fmt: skip
        try:
            self._at = {name: self._memory.empty(width * size) for name, width in widths.items()}
            self._at["pairs"] = self._memory.empty(8)
        except BaseException:
            self._memory.close()
            raise

    def __getitem__(self, name: str) -> int:
        return self._at[name]

    def put(self, name: str, array: NDArray[Any]) -> int:
        """Copy an array to the memory of that name; its address."""
        if array.size:
            self._launcher.device.upload(self._at[name], np.ascontiguousarray(array), self._launcher.stream)
            self._launcher.stream.synchronize()
        return self._at[name]

    def close(self) -> None:
        """Free the memory."""
        self._memory.close()


GROUP, WARPS, TILE, DIGITS = 32, 8, 2048, 256  # as in cuda/screen
SAMPLE, EDGES = 1 << 14, 1 << 10  # rows, and quantiles of each column, that define the curve
CURVE_BITS, FINE_BITS = 60, 8  # of all columns; of each, beyond those that tell leaves of uniform rows apart
BUILD = "screen/build"
NAN_BITS = 0x7FF8000000000000


@dataclass(frozen=True)
class Cells:
    """The rows of a table as 8-byte cells: columns of numbers; and planes, observed and unseen columns as bits."""

    numbers: Floats  # (N, A), C-contiguous
    words: NDArray[np.uint64]  # (N, P + 2G), C-contiguous
    planes: NDArray[np.uint32]  # (G+1,): first plane of each group

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.numbers)

    @property
    def width(self) -> int:
        """Cells of a row."""
        return int(self.numbers.shape[1] + self.words.shape[1])


def groups_of(n: int) -> int:
    """Groups of 32 rows."""
    return -(-n // GROUP)


def _needed(cells: Cells) -> int:
    """Bytes of device memory that a tree takes while it is built."""
    n_boxes = 8 * (cells.numbers.shape[1] + 2 * len(cells.planes) + cells.words.shape[1]) / 31
    return int(cells.n * (16 * cells.width + 36 + 8 * DIGITS / TILE + n_boxes)) + (1 << 20)


class DeviceTree:
    """Sorted rows in leaves of 32, and their boxes."""
    # counts: (N,) ndarray of int64
    # places: (N,) ndarray of int64: Rows are sorted by it. None: along a curve through the columns of numbers.
    # has_boxes: False: bounds are not used
    # rows: Address of the rows in the tree's order, uint32
    # numbers, words: Addresses of the rows' cells, in the order of the table
    # raises TableTooLarge: If the device has too little memory.

    def __init__(
        self, launcher: Launcher, cells: Cells, counts: Ints, places: Ints | None,
        *, has_boxes: bool,
    ):  # fmt: skip
        needed, free = _needed(cells), launcher.device.free_memory()
        if needed > free:
            raise TableTooLarge(
                f"screening {cells.n:,} rows of {cells.width} cells takes {format_bytes(needed)} of GPU memory, of "
                f"which {format_bytes(free)} are free; use backend='cpu'",
                needed=needed,
                limit=free,
            )
        self._launcher, self.n, self.n_leaves = launcher, cells.n, groups_of(cells.n)
        self._centres, columns, edges = _quantiles(cells.numbers)
        put = launcher.put
        self.numbers, self.words = put(cells.numbers), put(cells.words)
        self.n_numbers, self.n_words = cells.numbers.shape[1], cells.words.shape[1]
        self.struct = np.zeros(1, TREE)
        t, empty = self.struct, launcher.memory.empty
        t["n_rows"], t["n_leaves"], t["n_numbers"] = self.n, self.n_leaves, cells.numbers.shape[1]
        t["n_groups"], t["n_planes"] = len(cells.planes) - 1, cells.planes[-1]
        t["planes"], t["centres"] = put(cells.planes), put(self._centres)
        self.rows = empty(4 * self.n)
        self._sort(places, columns, edges)
        counts_out = t["counts"] = empty(4 * GROUP * self.n_leaves)
        n_counts = put(counts.astype(np.uint32)) if (counts != 1).any() else 0
        t["numbers"] = empty(8 * GROUP * self.n_leaves * self.n_numbers)
        t["words"] = empty(8 * GROUP * self.n_leaves * self.n_words)
        self.gather(self.n_numbers, self.numbers, NAN_BITS, self.rows, self.n, int(t["numbers"][0]))
        launcher.launch(
            BUILD, "screen_gather", -(-self.n_leaves // WARPS), GATHER,
            {"cells": self.words, "rows": self.rows, "groups": t["words"], "counts": n_counts,
             "counts_out": counts_out, "n": self.n, "n_columns": self.n_words},
        )  # fmt: skip
        self._boxes(has_boxes=has_boxes)

    def gather(self, n_columns: int, cells: int, empty: int, rows: int, n: int, to: int) -> None:
        """Copy some rows into groups of 32, column by column. `rows` is the address of their numbers, 0: all rows."""
        if n_columns:
            self._launcher.launch(
                BUILD, "screen_gather", -(-groups_of(n) // WARPS), GATHER,
                {"cells": cells, "rows": rows, "groups": to, "empty": empty, "n": n, "n_columns": n_columns},
            )  # fmt: skip

    def _sort(self, places: Ints | None, columns: NDArray[np.uint32], edges: Floats) -> None:
        """Sort rows by their places, or along the curve, into `rows`."""
        launcher, n = self._launcher, self.n
        with Memory(launcher.device) as scratch:
            keys, rows = [scratch.empty(8 * n) for _ in range(2)], [scratch.empty(4 * n), self.rows]
            n_tiles = -(-n // TILE)
            counts = scratch.empty(4 * DIGITS * n_tiles)
            if places is None:
                n_used = max(len(columns), 1)
                bits = min(CURVE_BITS // n_used, self.n_leaves.bit_length() // n_used + FINE_BITS)
                launcher.launch(
                    BUILD, "screen_curve", -(-n // BLOCK), CURVE,
                    {"x": self.numbers, "edges": scratch.put(edges, launcher.stream),
                     "columns": scratch.put(columns, launcher.stream), "keys": keys[0], "rows": rows[0], "n": n,
                     "n_columns": len(self._centres), "n_edges": edges.shape[1], "n_used": len(columns),
                     "bits": bits},
                )  # fmt: skip
                most = bits * len(columns)
            else:
                launcher.device.upload(keys[0], np.ascontiguousarray(places, np.int64), launcher.stream)
                launcher.device.upload(rows[0], np.arange(n, dtype=np.uint32), launcher.stream)
                launcher.stream.synchronize()
                most = int(places.max(initial=0)).bit_length()
            passes = -(-most // 8) // 2 * 2 + 1  # an odd number ends in `rows`
            for i in range(passes):
                job = {
                    "keys": keys[i % 2], "rows": rows[i % 2], "keys_out": keys[1 - i % 2], "rows_out": rows[1 - i % 2],
                    "counts": counts, "n": n, "n_tiles": n_tiles, "shift": min(8 * i, 56),
                }  # fmt: skip
                launcher.launch(BUILD, "screen_histogram", n_tiles, SORT, job)
                launcher.launch(BUILD, "screen_scan", 1, SORT, job, threads=1024)
                launcher.launch(BUILD, "screen_scatter", n_tiles, SORT, job)
            launcher.stream.synchronize()

    def _boxes(self, *, has_boxes: bool) -> None:
        """Levels of nodes, and their boxes from the leaves upwards."""
        t, launcher = self.struct, self._launcher
        sizes = [self.n_leaves]
        while sizes[-1] > GROUP:
            sizes.append(groups_of(sizes[-1]))
        first = np.concatenate([[0], np.cumsum([groups_of(size) for size in sizes])])
        t["n_levels"] = len(sizes)
        t["size"][0, : len(sizes)], t["first"][0, : len(sizes)] = sizes, first[:-1]
        assert len(sizes) <= LEVELS
        n_groups, n_planes = int(t["n_groups"][0]), int(t["n_planes"][0])
        t["sides"] = launcher.memory.empty(int(first[-1]) * 2 * len(self._centres) * GROUP * 4)
        t["agreed"] = launcher.memory.empty(int(first[-1]) * (n_groups + n_planes) * GROUP * 8)
        if has_boxes:
            for level, size in enumerate(sizes):
                name = "screen_nodes" if level else "screen_leaves"
                launcher.launch(BUILD, name, -(-size // WARPS), BOXES, {"tree": t, "level": level})

    def diagonals(self, k: int, *, is_squared: bool) -> tuple[int, Floats]:
        """Upper bounds of the diagonals of consecutive leaves that have at least k rows, and how many leaves each has.

        The last part has the leaves that are left over, too.
        """
        leaves = groups_of(k)
        n = max(self.n // GROUP // leaves, 1)
        address = self._launcher.memory.empty(4 * n)
        self._launcher.launch(
            BUILD, "screen_diagonals", -(-n // BLOCK), DIAGONALS,
            {"tree": self.struct, "found": address, "n": n, "leaves": leaves, "is_squared": is_squared},
        )  # fmt: skip
        return leaves, self._launcher.get(address, n, np.float32).astype(np.float64)


def _quantiles(numbers: Floats) -> tuple[Floats, NDArray[np.uint32], Floats]:
    """Medians of the columns; the columns that the curve runs through, widest first, and their quantiles."""
    n, a = numbers.shape
    sample: NDArray[Any] = numbers[:: max(n // SAMPLE, 1)]
    sample = np.sort(sample, axis=0)  # NaN last
    known = (~np.isnan(sample)).sum(axis=0)
    if not a or not n:
        return np.zeros(a), np.empty(0, np.uint32), np.empty((0, 0))
    with np.errstate(over="ignore"):
        centres = np.where(known > 0, sample[np.maximum(known - 1, 0) // 2, np.arange(a)], 0.0)
        spread = sample[len(sample) * 3 // 4] - sample[len(sample) // 4]
    columns = np.argsort(-np.nan_to_num(spread), kind="stable")[:CURVE_BITS].astype(np.uint32)
    if len(sample) > EDGES:
        sample = sample[np.linspace(0, len(sample) - 1, EDGES).astype(np.int64)]
    return np.ascontiguousarray(centres), columns, np.ascontiguousarray(sample[:, columns].T)
