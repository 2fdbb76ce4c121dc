"""Tables of cases of a network with numbers on one GPU: the densities never leave its memory.

A table goes there once, sorted by the numbers that its cases observe. Kernels turn each case into weights of the
configurations of discrete parents, the backend's kernels turn these into posteriors, and kernels turn the posteriors of
configurations into means and sds. Cases whose evidence is improbable beyond what weights can express are answered by
the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends.base import DeviceWeights
from ..device.context import Device, Memory, open_device
from ..device.driver import Arguments, loaded_kernels
from ..util.lru import LRU
from .answers import Answers
from .gpu_maps import MOST_CONFIGURATIONS, NONE, THREADS, Groups, PatternMaps, Records, pattern_maps
from .results import NumberTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..backends.base import DeviceResult
    from .answers import Answerer
    from .evidence import MixedCases
    from .sets import SetEngine, Sets

LEAST = -416.0  # ln of the least weight relative to the largest, of all sets together
MOST_NUMBERS = 64  # those of a block's cases fit the shared memory of every GPU
MEMORY_SHARE = 0.4  # of the GPU's free memory
KERNELS = ("mixed_weights", "mixed_moments")
MOST_CASES = 1 << 22  # of a chunk
TABLE = np.dtype(
    [
        (name, np.uint64)
        for name in (
            "blocks", "patterns", "maps", "integers", "doubles", "allowed", "rows", "values", "units", "states",
            "weights", "log_scale", "posterior", "log_evidence", "mean", "sd", "lost",
        )
    ]
    + [("least", np.float64)]
    + [(name, np.uint32) for name in ("n_numbers", "n_states", "n_weights", "n_out", "n_targets", "pad")]
)  # fmt: skip


class Layout(NamedTuple):
    """Columns of a chunk's arrays on the device."""

    weighted: tuple[int, ...]  # variables and set variables of the groups' scopes, ascending
    cells: list[int]  # of each group, the first column of its weights; NONE: it has no scope
    n_weights: int
    wanted: list[int]  # variables and set variables whose posteriors are computed
    posteriors: list[int]  # of each group, the first column of its posteriors
    ends: list[int]  # of the columns of each of `wanted`
    n_states: int


class StatesOnDevice:
    """States in device memory, as the backend reads a tensor."""

    def __init__(self, address: int, shape: tuple[int, int]):
        self._address, self.shape = address, shape

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": "|i1", "data": (self._address, False), "version": 3}


class GpuTables:
    """Answers tables of cases of one network. Thread-safe."""

    def __init__(self, answerer: Answerer, engine: Callable[[Sets], SetEngine], device: int | None):
        self._answerer, self._engine, self._number = answerer, engine, device
        self._maps: LRU[Any, PatternMaps] = LRU(4096)
        self.reload()
        self.microseconds = 0.0  # that all kernels of the last call took, without copies

    def reload(self) -> None:
        """Use the answerer's new parameters."""
        self._maps.clear()
        self.groups = groups = Groups.of(self._answerer.numbers)
        self._fits = max(map(groups.size, range(len(groups.members))), default=1) <= MOST_CONFIGURATIONS
        self._fits = self._fits and len(groups.numbers.names) <= MOST_NUMBERS
        if not self._fits or (tree := self._engine(groups.sets).tree) is None:
            return
        plan, sets = tree.plan.plan, tree.plan.sets
        scopes = [sets.scope(sets.number(s, "likelihood")) if len(s) > 1 else s for s in groups.scopes]
        self._fits = [*map(len, scopes)] == [*map(len, groups.scopes)] and int(plan.cardinality.max()) < 128
        self._fits = self._fits and all(plan.size(s) <= MOST_CONFIGURATIONS for s in plan.sets)
        self.groups = Groups(groups.numbers, groups.members, scopes)

    def takes(self, cases: MixedCases) -> bool:
        """Whether the kernels answer a table."""
        # tables with weights or interventions on states go to the backend with densities from the host
        is_plain = not cases.likelihood and not cases.do and cases.table is not None
        return self._fits and is_plain and len(cases.states) > 0

    def answer(self, cases: MixedCases, discrete: Sequence[str], targets: tuple[int, ...]) -> Answers:
        """Posteriors of discrete variables and of numbers."""
        n, answerer = len(cases.states), self._answerer
        names = [answerer.numbers.names[t] for t in targets]
        table = NumberTable(names, n, lambda: answerer.answer_on_host(cases, [], targets).numbers)
        cards = [answerer.numbers.cards[answerer.numbers.variables.index(v)] for v in discrete]
        posteriors = {v: np.zeros((n, c)) for v, c in zip(discrete, cards, strict=True)}
        result = Answers(posteriors, table, np.zeros(n), np.zeros(n, np.bool_))
        device, lost = open_device(self._number), np.zeros(n, np.uint32)
        self.microseconds = 0.0
        layout = self._layout(discrete, targets)
        each = 8 * (len(answerer.numbers.names) + layout.n_weights + 4 + 2 * layout.ends[-1] + 2 * len(targets))
        with device.active():
            step = int(MEMORY_SHARE * device.free_memory()) // (each + layout.n_states)
            step = max(min(step, MOST_CASES) // THREADS * THREADS, THREADS)
            for first in range(0, n, step):
                self._run(device, layout, cases, slice(first, min(first + step, n)), (discrete, targets), result, lost)
        self._answer_lost(cases, np.flatnonzero(lost), discrete, targets, result)
        return result

    def _layout(self, discrete: Sequence[str], targets: Sequence[int]) -> Layout:
        groups, numbers = self.groups, self._answerer.numbers
        tree = self._engine(groups.sets).tree
        own = [-1] * len(groups.members)  # variable or set variable of each group
        if tree is not None:
            sets = tree.plan.sets
            own = [-1 if not s else s[0] if len(s) == 1 else sets.number(s, "likelihood") for s in groups.scopes]
        size = {v: groups.size(i) for i, v in enumerate(own)}
        weighted = tuple(sorted({*own} - {-1}))
        starts = np.cumsum([0, *(size[v] for v in weighted)]).tolist()
        wanted = [numbers.variables.index(v) for v in discrete]
        if targets:
            wanted += [v for v in weighted if v not in wanted]
        ends = np.cumsum([0, *(size.get(v) or numbers.cards[v] for v in wanted)]).tolist()
        n_states = len(numbers.variables)
        if tree is not None and max((*weighted, *wanted), default=0) >= n_states:
            n_states += len(tree.plan.plan.sets)
        return Layout(
            weighted, [NONE if v < 0 else starts[weighted.index(v)] for v in own], starts[-1], wanted,
            [ends[wanted.index(v)] if v in wanted else NONE for v in own], ends, n_states,
        )  # fmt: skip

    def _records(
        self, layout: Layout, cases: MixedCases, targets: tuple[int, ...]
    ) -> tuple[Records, NDArray[np.uint32], list[int]]:
        """Records of the patterns of some cases, the cases pattern after pattern, and the end of each."""
        answerer, order, ends = self._answerer, [], [0]
        records = Records(self.groups, layout.cells, layout.posteriors, {t: i for i, t in enumerate(targets)})

        def component(members: tuple[int, ...], observed: frozenset[int]) -> Any:
            return answerer.component(members, observed, ())

        for pattern, rows in answerer.by_pattern(cases, targets):
            key = pattern.observed, cases.cut, targets
            make = lambda p=pattern: pattern_maps(self.groups, p, targets, component)  # noqa: E731
            records.add(self._maps.get_or_make(key, make))
            order.append(rows)
            ends.append(ends[-1] + len(rows))
        return records, np.concatenate(order).astype(np.uint32), ends[1:]

    def _run(
        self, device: Device, layout: Layout, whole: MixedCases, rows: slice,
        asked: tuple[Sequence[str], tuple[int, ...]], result: Answers, lost: NDArray[np.uint32],
    ) -> None:  # fmt: skip
        """Answer a chunk of cases."""
        discrete, targets = asked
        cases = whole.part(np.arange(rows.start, rows.stop))
        n, n_targets, numbers = len(cases.states), len(targets), self.groups.numbers
        records, order, ends = self._records(layout, cases, targets)
        units = np.column_stack([self.groups.centres, numbers.scale, 1.0 / numbers.scale])
        states = np.full((n, layout.n_states), -1, np.int8)
        states[:, : cases.states.shape[1]] = cases.states
        stream, table, results = device.stream(), np.zeros(1, TABLE), result.numbers
        posterior = np.empty((n, layout.ends[-1] if discrete else 0))
        with Memory(device) as memory:
            arrays = [*records.arrays(ends), order, cases.values, units, states]
            for name, array in zip(TABLE.names or (), arrays, strict=False):
                table[name] = memory.put(array, stream)
            widths = {"weights": layout.n_weights, "log_scale": 1, "mean": n_targets, "sd": n_targets}
            for name, width in widths.items():
                table[name] = memory.empty(8 * n * width)
            table["lost"], table["least"] = memory.empty(4 * n), LEAST / max(len(layout.weighted), 1)
            table["n_numbers"], table["n_states"], table["n_weights"] = len(units), layout.n_states, layout.n_weights
            table["n_out"], table["n_targets"] = layout.ends[-1], n_targets
            launch = _Launch(device, stream, len(arrays[0]), 8 * THREADS * records.most_observed)
            self.microseconds += launch("mixed_weights", table)
            answers = self._propagate(layout, table, n)
            table["log_evidence"] = table["log_scale"]
            if answers is not None:
                table["posterior"], table["log_evidence"] = map(_address, (answers.posterior, answers.log_evidence))
            self.microseconds += launch("mixed_moments", table)
            copies: list[tuple[NDArray[Any], str]] = [(lost[rows], "lost"), (result.log_evidence[rows], "log_evidence")]
            if discrete:
                copies.append((posterior, "posterior"))
            if targets:
                copies += [(results.mean[rows], "mean"), (results.sd[rows], "sd")]
            for array, name in copies:
                device.download(array, int(table[name][0]), stream)
            stream.synchronize()
        for v, first, end in zip(discrete, layout.ends, layout.ends[1:], strict=False):
            result.posteriors[v][rows] = posterior[:, first:end]

    def _propagate(self, layout: Layout, table: NDArray[Any], n: int) -> DeviceResult | None:
        """Posteriors of the discrete variables and sets; None: there are none."""
        tree = self._engine(self.groups.sets).tree
        if tree is None:
            return None
        backend, span = tree.intervened().backend, len(layout.weighted) - LEAST / math.log(2.0)
        weights = DeviceWeights(layout.weighted, int(table["weights"][0]), int(table["log_scale"][0]), span)
        states = StatesOnDevice(int(table["states"][0]), (n, layout.n_states))
        result = backend.run_device(states, weights, layout.wanted)
        self.microseconds += result.device_us
        return result

    def _answer_lost(
        self, cases: MixedCases, rows: NDArray[np.intp], discrete: Sequence[str], targets: tuple[int, ...],
        result: Answers,
    ) -> None:  # fmt: skip
        """Answer cases on the host for which weights that the device rounded to 0 may matter."""
        if not len(rows):
            return
        host = self._answerer.answer_on_host(cases.part(rows), discrete, targets)
        result.log_evidence[rows], result.impossible[rows] = host.log_evidence, host.impossible
        result.numbers.mean[rows], result.numbers.sd[rows] = host.numbers.mean, host.numbers.sd
        for v, p in host.posteriors.items():
            result.posteriors[v][rows] = p


class _Launch:
    """Launches the kernels of a chunk, and measures them."""

    def __init__(self, device: Device, stream: Any, n_blocks: int, shared: int):
        self._device, self._stream, self._shape = device, stream, (n_blocks, THREADS, stream)
        self._kernels, self._shared = loaded_kernels(device, "mixed/tables", KERNELS), shared
        if shared > 48 << 10:
            for name in KERNELS:
                self._kernels.allow_shared(name, shared)

    def __call__(self, name: str, table: NDArray[Any]) -> float:
        """Microseconds that a kernel takes."""
        start, stop = self._device.event(timing=True), self._device.event(timing=True)
        start.record(self._stream)
        self._kernels.launch(name, *self._shape, Arguments(table), shared=self._shared)
        stop.record(self._stream)
        self._stream.synchronize()
        return float(stop.time_since(start)) * 1e3


def _address(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])

def gpu_tables(
    answerer: Answerer, engine: Callable[[Sets], SetEngine], backend: str, options: Mapping[str, Any]
) -> GpuTables | None:
    """The engine of tables of cases on a GPU, if the discrete part is on one; None: the host computes densities."""
    tree = engine(()).tree
    if (backend if tree is None else tree.backend) != "gpu" or options.get("devices") is not None:
        return None
    number = options.get("device") if tree is None else tree.intervened().backend.capabilities.device_number
    if tree is not None and number is None:
        return None
    return GpuTables(answerer, engine, number)
