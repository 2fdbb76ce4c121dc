"""`Kept`: the stored state of a run of chains, from which it is estimated, saved and continued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .set_tables import ANY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .engines import Block, Engine

BLOCKS = 8  # of a round
MAX_KEPT = 1024  # graphs of a chain
ONE = 2.0**32


class Kept(NamedTuple):
    """The present state of chains, and what they visited. Immutable: each round creates a new one."""

    state: Any
    n_rounds: int
    # best, best_weight: (n,) ndarray of int64, float: The best graph that was drawn; -inf if there is none
    best: NDArray[np.int64]
    best_weight: float
    # Sums of arcs and number of samples after 1, 2, 4, 8, ... rounds.
    snapshots: dict[int, tuple[NDArray[np.uint64], int]]
    numbers: tuple[int, ...] = ()  # tuple of int: Of the blocks whose graphs and weights are kept
    stride: int = 1  # number of blocks for each that is kept
    # of_graphs, of_traces: tuple of (C, n) ndarray of int64, and of (C,) ndarray of float64
    of_graphs: tuple[NDArray[np.int64], ...] = ()
    of_traces: tuple[NDArray[np.float64], ...] = ()

    @property
    def burned(self) -> int:
        """Number of rounds at the beginning that are not used: 1/8 to 1/4 of them."""
        return max((r for r in self.snapshots if 4 * r <= self.n_rounds), default=0)

    def graphs(self) -> NDArray[np.int64]:
        """Graphs after the burn-in, (T, C, n); T may be 0."""
        first, shape = self.burned * BLOCKS, self.state.arcs.shape[:2]
        found = [graphs for i, graphs in zip(self.numbers, self.of_graphs, strict=True) if i >= first]
        return np.array(found, np.int64).reshape(-1, *shape)

    def traces(self, burned: bool = True) -> NDArray[np.float64]:
        """ln weight of the states at the ends of blocks, (C, T)."""
        first = self.burned * BLOCKS if burned else 0
        found = [trace for i, trace in zip(self.numbers, self.of_traces, strict=True) if i >= first]
        return np.array(found, np.float64).reshape(-1, len(self.state.arcs)).T

    def means(self) -> tuple[NDArray[np.float64], int]:
        """Probability of each arc in each chain after the burn-in, (C, n, n), and the number of samples of a chain."""
        sums, n_burned = self.snapshots.get(self.burned, (np.zeros_like(self.state.arcs), 0))
        n_samples = max(self.state.n_samples - n_burned, 1)
        return (self.state.arcs - sums).astype(np.float64) / (ONE * n_samples), n_samples


def start(state: Any) -> Kept:
    """Chains before their first step."""
    return Kept(state, 0, np.full(state.arcs.shape[1], ANY, np.int64), -np.inf, {})


def kept_after(kept: Kept, state: Any, blocks: Sequence[Block]) -> Kept:
    """What is remembered after another round, which ends in a state."""
    best, best_weight = kept.best, kept.best_weight
    for block in blocks:
        if block.weights.max() > best_weight:
            best, best_weight = block.best[block.weights.argmax()].copy(), float(block.weights.max())
    first, n_rounds, snapshots = kept.n_rounds * BLOCKS, kept.n_rounds + 1, kept.snapshots
    found = [*zip(kept.numbers, kept.of_graphs, kept.of_traces, strict=True)]
    found += [(i, b.graphs, b.trace) for i, b in enumerate(blocks, first) if i % kept.stride == 0]
    stride = kept.stride
    while len(found) > MAX_KEPT:
        stride *= 2
        found = [item for item in found if item[0] % stride == 0]
    if n_rounds & (n_rounds - 1) == 0:
        snapshots = snapshots | {n_rounds: (state.arcs.copy(), state.n_samples)}
    numbers, graphs, traces = zip(*found, strict=True) if found else ((), (), ())
    return Kept(state, n_rounds, best, best_weight, snapshots, numbers, stride, graphs, traces)


def written(kept: Kept) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Everything that `read` needs, as arrays and as values that JSON can hold."""
    arrays: dict[str, NDArray[Any]] = {"best": kept.best}
    numbers: dict[str, Any] = {
        "rounds": kept.n_rounds, "stride": kept.stride, "kept": [*kept.numbers],
        "best_weight": kept.best_weight if np.isfinite(kept.best_weight) else None,
        "snapshots": {str(r): n for r, (_, n) in kept.snapshots.items()}, "state": {},
    }  # fmt: skip
    for name, value in kept.state._asdict().items():
        if isinstance(value, np.ndarray):
            arrays[f"state_{name}"] = value
        else:
            numbers["state"][name] = value
    arrays |= {f"snapshot_{r}": sums for r, (sums, _) in kept.snapshots.items()}
    shape = kept.state.arcs.shape[:2]
    arrays["graphs"] = np.array(kept.of_graphs, np.int64).reshape(-1, *shape)
    arrays["traces"] = np.array(kept.of_traces, np.float64).reshape(-1, shape[0])
    return arrays, numbers


def read(engine: Engine, like: Any, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any]) -> Kept:
    """What `written` returned."""
    # like: A state of the same chains: arrays must have the same types and shapes
    # raises KeyError, ValueError or TypeError: If that is not so: compiled loops do not check.
    fields = {name[6:]: array for name, array in arrays.items() if name.startswith("state_")}
    best_weight = -np.inf if numbers["best_weight"] is None else numbers["best_weight"]
    kept = Kept(
        engine.restored(fields | numbers["state"]), numbers["rounds"], arrays["best"], best_weight,
        {int(r): (arrays[f"snapshot_{r}"], n) for r, n in numbers["snapshots"].items()}, tuple(numbers["kept"]),
        numbers["stride"], tuple(arrays["graphs"]), tuple(arrays["traces"]),
    )  # fmt: skip
    _check(kept, like)
    return kept


def _check(kept: Kept, like: Any) -> None:
    pairs = [(name, value, getattr(like, name)) for name, value in kept.state._asdict().items()]
    pairs += [("snapshot", sums, like.arcs) for sums, _ in kept.snapshots.values()]
    for name, value, expected in pairs:
        if isinstance(expected, np.ndarray):
            if not isinstance(value, np.ndarray) or (value.dtype, value.shape) != (expected.dtype, expected.shape):
                raise ValueError(f"{name} has another type or shape")
        elif not isinstance(value, int) or value < 0:
            raise ValueError(f"{name} is no number")
    n_chains, n = like.arcs.shape[:2]
    for name in {"part", "order", "levels"} & {*kept.state._fields}:
        value = getattr(kept.state, name)
        if value.min() < 0 or value.max() >= value.shape[-1]:
            raise ValueError(f"{name} is out of range")
        if name != "part" and not (np.sort(value, axis=-1) == np.arange(value.shape[-1])).all():
            raise ValueError(f"{name} is no permutation")
    if (
        kept.best.shape != (n,)
        or any(graphs.shape != (n_chains, n) for graphs in kept.of_graphs)
        or any(trace.shape != (n_chains,) for trace in kept.of_traces)
    ):
        raise ValueError("graphs or traces have another shape")
    if not len(kept.numbers) == len(kept.of_graphs) == len(kept.of_traces) or not isinstance(kept.n_rounds, int):
        raise ValueError("graphs and traces of other blocks")
