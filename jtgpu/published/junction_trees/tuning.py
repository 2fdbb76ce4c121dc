"""The published search for block sizes and thresholds on this device: 100 launches for every table and block size.

`tune` measures, `save` stores the best rules in the cache folder, and ``thresholds="tuned"`` of ``backend="indexed"``
loads them by `saved_rules`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...device.context import Device, Memory, open_device
from ...errors import BackendUnavailable
from ...util import atomic_file
from ...util.system import cache_folder
from . import host as arithmetic
from .indextables import IndexTable, Shape, build
from .launches import LaunchBook, Step, Task, partial_sums, scratch_cells
from .rules import Row, Rules, best_rules

# One table on a device, and the engine's operations on it.

# The rules with the most partial sums of either kernel.
_SCRATCH_EXTREMES: tuple[dict[str, Any], ...] = (
    {"split_n": 1, "ways": 2},
    {"split_n": 1025, "marginalise_threads": 32},
)


class Workbench:
    """One table on a device, and each operation of the engine on it: for tests, benchmarks and tuning.

    Use and close it inside ``with device.active():``.
    """
    # rules: Determine the launches; `use` changes them
    # index: {"uint32", "uint64"}: Index type; None: the smallest that fits

    def __init__(self, device: Device, shape: Shape, rules: Rules, index: str | None = None):
        self.device, self.shape = device, shape
        out = None
        if index is not None:
            like = build(shape)
            out = np.empty(like.index.shape, index)
        self.table: IndexTable = build(shape, out)
        self._index = self.table.index.dtype.name
        self._real = np.dtype(rules.dtype)
        self.stream = device.stream()
        real = self._real.itemsize
        room = max(scratch_cells(shape.n, shape.m, rules.replaced(**r)) for r in _SCRATCH_EXTREMES)
        sizes = (
            shape.entries * real, self.table.index.nbytes, shape.n * real, shape.n * real, room * real,
            8 * (1 + partial_sums(shape.entries)),
        )  # fmt: skip
        self._memory = Memory(device)
        try:
            at = [self._memory.empty(size) for size in sizes]
        except BaseException:
            self.close()
            raise
        self._psi, self._index_at, self._new, self._old, self._scratch, self._sums = at
        device.upload(self._index_at, self.table.index, self.stream)
        self.stream.synchronize()
        self.use(rules)

    def use(self, rules: Rules) -> None:
        """Change the rules, but not the dtype."""
        self.rules = rules

    def _run(self, plan: Callable[[LaunchBook, Task], list[Step]], launches: int = 1) -> float:
        """Queue an operation `launches` times; seconds of one by device events, without the host's gaps."""
        book = LaunchBook(self.device, self.rules, self._index)
        n, m = self.shape.n, self.shape.m
        steps = plan(book, Task(self._psi, self._index_at, self._new, self._old, n, m, self._scratch))
        hold = book.hold(20_000 * min(launches * len(steps), 700)) if launches > 1 else []
        book.send(self.stream)
        try:
            ready = book.ready(steps)
            for launch in book.ready(hold):
                self.device.launch(launch, self.stream)
            start, end = self.device.event(timing=True), self.device.event(timing=True)
            start.record(self.stream)
            for _ in range(launches):
                for launch in ready:
                    self.device.launch(launch, self.stream)
            end.record(self.stream)
            end.synchronize()
        finally:
            book.close()
        return float(end.time_since(start)) * 1e-3 / launches

    def _put(self, address: int, array: NDArray[Any]) -> None:
        self.device.upload(address, np.ascontiguousarray(array, self._real), self.stream)
        self.stream.synchronize()

    def _get(self, address: int, cells: int, dtype: Any = None) -> NDArray[Any]:
        out = np.empty(cells, dtype or self._real)
        self.device.download(out, address, self.stream)
        self.stream.synchronize()
        return out

    def load(self, psi: NDArray[Any]) -> None:
        """Copy the clique's table, (entries,), to the device."""
        self._put(self._psi, psi)

    def psi(self) -> NDArray[Any]:
        """The current clique table."""
        return self._get(self._psi, self.shape.entries)

    def marginalise(self, launches: int = 1) -> tuple[NDArray[Any], float]:
        """The separator's table, (n,), and seconds."""
        self._put(self._new, np.full(self.shape.n, np.nan))
        seconds = self._run(lambda book, task: book.marginalise([task]), launches)
        return self._get(self._new, self.shape.n), seconds

    def marginalise_by(self, file: str, launches: int = 1) -> tuple[NDArray[Any], float]:
        """`marginalise` with the first launch from another kernel file with the same kernel names."""
        self._put(self._new, np.full(self.shape.n, np.nan))

        def plan(book: LaunchBook, task: Task) -> list[Step]:
            first, *rest = book.marginalise([task])
            return [first._replace(file=file, ways=16), *rest]

        seconds = self._run(plan, launches)
        return self._get(self._new, self.shape.n), seconds

    def scatter_by(
        self, file: str, new: NDArray[Any], old: NDArray[Any], launches: int = 1
    ) -> tuple[NDArray[Any], float]:
        """`scatter` with the multiplication from another kernel file."""
        self._put(self._new, new)
        self._put(self._old, old)
        seconds = self._run(
            lambda book, task: [*book.divide([task]), *(s._replace(file=file, ways=16) for s in book.multiply([task]))],
            launches,
        )
        return self.psi(), seconds

    def scatter(self, new: NDArray[Any], old: NDArray[Any], launches: int = 1) -> tuple[NDArray[Any], float]:
        """The clique's table multiplied by new/old, and seconds."""
        self._put(self._new, new)
        self._put(self._old, old)
        seconds = self._run(lambda book, task: [*book.divide([task]), *book.multiply([task])], launches)
        return self.psi(), seconds

    def normalise(self, launches: int = 1) -> tuple[NDArray[Any], float, float]:
        """The clique's table scaled to sum 1, its sum before, and seconds."""
        job = [(self._psi, self.shape.entries, self._sums, 1)]
        seconds = self._run(lambda book, task: book.normalise(job), launches)
        return self.psi(), float(self._get(self._sums, 1, np.float64)[0]), seconds

    def round_trip(self, operation: str, repeats: int) -> float:
        """Median seconds of ``"marginalise"`` or ``"scatter"`` with its transfers."""
        psi = self.device.pinned(self.shape.entries, self._real)
        separator = self.device.pinned(self.shape.n, self._real)
        book = LaunchBook(self.device, self.rules, self._index)
        task = Task(self._psi, self._index_at, self._new, self._old, self.shape.n, self.shape.m, self._scratch)
        gather = operation == "marginalise"
        steps = book.marginalise([task]) if gather else [*book.divide([task]), *book.multiply([task])]
        book.send(self.stream)
        ready = book.ready(steps)
        psi[:], separator[:] = 1.0, 1.0
        times = []
        for _ in range(repeats):
            start = perf_counter()
            self.device.upload(self._psi, psi[: self.shape.entries], self.stream)
            if not gather:
                self.device.upload(self._new, separator[: self.shape.n], self.stream)
                self.device.upload(self._old, separator[: self.shape.n], self.stream)
            for launch in ready:
                self.device.launch(launch, self.stream)
            if gather:
                self.device.download(separator[: self.shape.n], self._new, self.stream)
            else:
                self.device.download(psi[: self.shape.entries], self._psi, self.stream)
            self.stream.synchronize()
            times.append(perf_counter() - start)
        book.close()
        self.device.unpin(psi)
        self.device.unpin(separator)
        return float(np.median(times))

    def close(self) -> None:
        """Free the table."""
        self._memory.close()


BLOCK_SIZES = (64, 128, 256, 512, 1024)
WAYS = (2, 4, 8, 16)
SCATTER_WAYS = (1, 2, 4, 8)
LAUNCHES = 100
FORMAT_VERSION = 1
ADVICE = f"call save(tune()) of {__name__} first"
_TUNED = ("marginalise_threads", "scatter_threads", "scatter", "ways", "scatter_ways", "split_n", "min_entries")


@dataclass(frozen=True)
class Tuning:
    """The result of `tune`, for one device."""

    device: str
    rows: list[Row] = field(repr=False)  # list of Row: Every measurement
    rules: dict[str, Any]  # the best fields of `Rules`, for both modes of transfers


def tune(
    ordinal: int | None = None,
    *,
    sizes: Sequence[int] = (12, 14, 16, 18, 20, 22),
    launches: int = LAUNCHES,
    dtype: str = "float64",
    progress: Callable[[str], None] | None = None,
) -> Tuning:
    """Repeat the published search on this device."""
    # ordinal: Device ordinal; None: the device of highest compute capability
    # sizes: sequence of int: Base-2 logarithms of the table sizes; at each, n runs over powers of 8 from 1 to the size
    # launches: Launches per table size and choice; 100 as published
    # progress: Called with the name of what is measured next
    # raises BackendUnavailable: If there is no device.
    device = open_device(ordinal)
    rows: list[Row] = []
    with device.active():
        for size in sizes:
            for log_n in range(0, size + 1, 3):
                if progress is not None:
                    progress(f"tables of 2^{size} entries, n = 2^{log_n}")
                rows += _measure(device, Shape((1 << (size - log_n), 1 << log_n), (False, True)), dtype, launches)
    return Tuning(device.name, rows, best_rules(rows))


def _measure(device: Device, shape: Shape, dtype: str, launches: int) -> Iterable[Row]:
    n, m, rows = shape.n, shape.m, []
    base = Rules(dtype=dtype)
    psi = np.random.default_rng(1).random(shape.entries)
    bench = Workbench(device, shape, base)
    try:
        bench.load(psi)
        ones = np.ones(n)
        for threads in BLOCK_SIZES:
            if n <= threads:
                bench.use(base.replaced(split_n=1025, marginalise_threads=threads))
                rows.append(Row("marginalise_m", n, m, threads, bench.marginalise(launches)[1]))
            bench.use(base.replaced(split_n=1, marginalise_threads=threads))
            rows.append(Row("marginalise_n", n, m, threads, bench.marginalise(launches)[1]))
            bench.use(base.replaced(scatter_threads=threads))
            rows.append(Row("scatter", n, m, threads, bench.scatter(ones, ones, launches)[1]))
        for ways in WAYS:
            if n <= base.marginalise_threads:
                bench.use(base.replaced(split_n=1025, ways=ways))
                rows.append(Row("marginalise_m_ways", n, m, ways, bench.marginalise(launches)[1]))
            bench.use(base.replaced(split_n=1, ways=ways))
            rows.append(Row("marginalise_n_ways", n, m, ways, bench.marginalise(launches)[1]))
        for ways in SCATTER_WAYS:
            for kind, sign in (("two_phase", 1), ("fused", -1)):
                bench.use(base.replaced(scatter=kind, scatter_ways=ways))
                rows.append(Row("scatter_ways", n, m, sign * ways, bench.scatter(ones, ones, launches)[1]))
        bench.use(base)
        index, repeats = bench.table.inner, max(3, launches // 10)
        cpu_psi, separator = psi.astype(dtype), np.empty(n, dtype)
        rows.append(Row("gpu_marginalise", n, m, 0, bench.round_trip("marginalise", repeats)))
        rows.append(Row("gpu_scatter", n, m, 0, bench.round_trip("scatter", repeats)))
        timed = _median(lambda: arithmetic.marginalise(cpu_psi, index, separator), repeats)
        rows.append(Row("cpu_marginalise", n, m, 0, timed))
        factor, old = np.ones(n, dtype), np.ones(n, dtype)

        def scatter() -> None:
            arithmetic.divide(factor, old)
            arithmetic.multiply(cpu_psi, index, old)

        rows.append(Row("cpu_scatter", n, m, 0, _median(scatter, repeats)))
    finally:
        bench.close()
    return rows


def _median(work: Callable[[], None], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return float(np.median(times))


def _file(device_name: str) -> Path:
    return cache_folder() / "tuned" / (re.sub(r"[^A-Za-z0-9]+", "-", device_name).strip("-") + ".json")


def save(tuning: Tuning) -> Path:
    """Save the rules and all measurements for this device; return the file's path."""
    path = _file(tuning.device)
    text = json.dumps({"format": "jtgpu tuning", "version": FORMAT_VERSION, **asdict(tuning)}, indent=1)
    atomic_file.write_text(path, text, make_folders=True)
    return path


def saved_rules(device: Device, transfers: str) -> dict[str, Any]:
    """The rules saved for a device, as options of `Rules`."""
    # raises BackendUnavailable: If none are saved, or if they cannot be read.
    path = _file(device.name)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("version") != FORMAT_VERSION:
            raise ValueError(f"version {data.get('version')!r}")
        rules = {name: data["rules"][name] for name in _TUNED}
        Rules(**rules)  # checks the values
    except FileNotFoundError:
        raise BackendUnavailable(f"no tuned rules are saved for {device.name}: {ADVICE}") from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise BackendUnavailable(f"{path} holds no tuned rules ({error}): {ADVICE}") from None
    if transfers == "resident":
        rules.pop("min_entries")  # measured with transfers, which resident tables do not need
    return rules
