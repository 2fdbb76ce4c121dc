"""`ChainRun`: Markov chains of one kind run in rounds until their estimates are precise, with a history of them.

Nothing of a run depends on threads, and rounds have a fixed number of steps, so the seed determines when it stops,
unless a limit of time ends it first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....util.arrays import Floats, Ints
from ..set_tables import ANY
from .diagnostics import MAX_R_HAT, Estimate, estimate_of, largest_nested_r_hat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...state_file import StateFile
    from .diagnostics import Block
    from .movers import Mover

BLOCKS = 8  # of a round
MAX_KEPT = 1024  # graphs of a chain
MAX_STEPS = 4_000_000  # of a chain, by default
FIRST_DECISION = 4  # rounds before chains may become tempered
ONE = 2.0**32  # the unit of sums of arcs is 1/ONE


class ChainHistory(NamedTuple):
    """The present state of chains, and what they visited. Immutable: each round creates a new one."""

    state: Any
    n_rounds: int
    best: Ints  # (n,) the best graph that was drawn
    best_weight: float  # -inf if there is none
    # sums of arcs and number of samples after 1, 2, 4, 8, ... rounds
    snapshots: dict[int, tuple[NDArray[np.uint64], int]]
    numbers: tuple[int, ...] = ()  # of the blocks whose graphs and weights are kept
    stride: int = 1  # number of blocks for each that is kept
    of_graphs: tuple[Ints, ...] = ()  # (C, n) each
    of_traces: tuple[Floats, ...] = ()  # (C,) each

    @staticmethod
    def of_start(state: Any) -> ChainHistory:
        """Chains before their first step."""
        return ChainHistory(state, 0, np.full(state.arcs.shape[1], ANY, np.int64), -np.inf, {})

    @property
    def burned(self) -> int:
        """Number of rounds at the beginning that are not used: 1/8 to 1/4 of them."""
        return max((r for r in self.snapshots if 4 * r <= self.n_rounds), default=0)

    def graphs(self) -> Ints:
        """Graphs after the burn-in, (T, C, n); T may be 0."""
        first, shape = self.burned * BLOCKS, self.state.arcs.shape[:2]
        graphs = [graphs for i, graphs in zip(self.numbers, self.of_graphs, strict=True) if i >= first]
        return np.array(graphs, np.int64).reshape(-1, *shape)

    def traces(self, burned: bool = True) -> Floats:
        """ln weight of the states at the ends of blocks, (C, T)."""
        first = self.burned * BLOCKS if burned else 0
        traces = [trace for i, trace in zip(self.numbers, self.of_traces, strict=True) if i >= first]
        return np.array(traces, np.float64).reshape(-1, len(self.state.arcs)).T

    def means(self) -> tuple[Floats, int]:
        """(C, n, n) probability of each arc in each chain after the burn-in, and the number of samples of one chain."""
        sums, n_burned = self.snapshots.get(self.burned, (np.zeros_like(self.state.arcs), 0))
        n_samples = max(self.state.n_samples - n_burned, 1)
        return (self.state.arcs - sums).astype(np.float64) / (ONE * n_samples), n_samples

    def extended(self, state: Any, blocks: Sequence[Block]) -> ChainHistory:
        """The history with one more round appended, which ends in a state."""
        best, best_weight = self.best, self.best_weight
        for block in blocks:
            if block.best_weight.max() > best_weight:
                best, best_weight = block.best[block.best_weight.argmax()].copy(), float(block.best_weight.max())
        first, n_rounds, snapshots = self.n_rounds * BLOCKS, self.n_rounds + 1, self.snapshots
        kept = [*zip(self.numbers, self.of_graphs, self.of_traces, strict=True)]
        kept += [(i, b.graphs, b.trace) for i, b in enumerate(blocks, first) if i % self.stride == 0]
        stride = self.stride
        while len(kept) > MAX_KEPT:
            stride *= 2
            kept = [item for item in kept if item[0] % stride == 0]
        if n_rounds & (n_rounds - 1) == 0:
            snapshots = snapshots | {n_rounds: (state.arcs.copy(), state.n_samples)}
        numbers, graphs, traces = zip(*kept, strict=True) if kept else ((), (), ())
        return ChainHistory(state, n_rounds, best, best_weight, snapshots, numbers, stride, graphs, traces)

    def written(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Everything that `read` needs, as values that JSON can hold and as arrays."""
        arrays: dict[str, NDArray[Any]] = {"best": self.best}
        numbers: dict[str, Any] = {
            "rounds": self.n_rounds, "stride": self.stride, "kept": [*self.numbers],
            "best_weight": self.best_weight if np.isfinite(self.best_weight) else None,
            "snapshots": {str(r): n for r, (_, n) in self.snapshots.items()}, "state": {},
        }  # fmt: skip
        for name, value in self.state._asdict().items():
            if isinstance(value, np.ndarray):
                arrays[f"state_{name}"] = value
            else:
                numbers["state"][name] = value
        arrays |= {f"snapshot_{r}": sums for r, (sums, _) in self.snapshots.items()}
        shape = self.state.arcs.shape[:2]
        arrays["graphs"] = np.array(self.of_graphs, np.int64).reshape(-1, *shape)
        arrays["traces"] = np.array(self.of_traces, np.float64).reshape(-1, shape[0])
        return numbers, arrays

    @staticmethod
    def read(like: Any, numbers: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> ChainHistory:
        """The history that was written."""
        # like: A state of the same chains: arrays must have the same types and shapes
        # raises KeyError, ValueError or TypeError: If that is not so: compiled loops do not check.
        fields = {name[6:]: array for name, array in arrays.items() if name.startswith("state_")}
        best_weight = -np.inf if numbers["best_weight"] is None else numbers["best_weight"]
        history = ChainHistory(
            type(like)(**fields | numbers["state"]), numbers["rounds"], arrays["best"], best_weight,
            {int(r): (arrays[f"snapshot_{r}"], n) for r, n in numbers["snapshots"].items()}, tuple(numbers["kept"]),
            numbers["stride"], tuple(arrays["graphs"]), tuple(arrays["traces"]),
        )  # fmt: skip
        history._check(like)
        return history

    def _check(self, like: Any) -> None:
        pairs = [(name, value, getattr(like, name)) for name, value in self.state._asdict().items()]
        pairs += [("snapshot", sums, like.arcs) for sums, _ in self.snapshots.values()]
        for name, value, expected in pairs:
            if isinstance(expected, np.ndarray):
                if not isinstance(value, np.ndarray) or (value.dtype, value.shape) != (expected.dtype, expected.shape):
                    raise ValueError(f"{name} has another type or shape")
            elif not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} is no number")
        n_chains, n = like.arcs.shape[:2]
        for name in {"part", "order", "levels"} & {*self.state._fields}:
            value = getattr(self.state, name)
            if value.min() < 0 or value.max() >= value.shape[-1]:
                raise ValueError(f"{name} is out of range")
            if name != "part" and not (np.sort(value, axis=-1) == np.arange(value.shape[-1])).all():
                raise ValueError(f"{name} is no permutation")
        if (
            self.best.shape != (n,)
            or any(graphs.shape != (n_chains, n) for graphs in self.of_graphs)
            or any(trace.shape != (n_chains,) for trace in self.of_traces)
        ):
            raise ValueError("graphs or traces have another shape")
        if not len(self.numbers) == len(self.of_graphs) == len(self.of_traces) or not isinstance(self.n_rounds, int):
            raise ValueError("graphs and traces of other blocks")


class Stop(NamedTuple):
    """When to stop."""

    tolerance: float  # largest standard error of the probability of an arc
    steps: int = MAX_STEPS  # of each chain in all, at most
    seconds: float = float("inf")  # of this call, at most

    def quarter_is_done(self, steps: int, seconds: float, error: float) -> bool:
        """Whether a quarter of the run is done; the error shrinks like the square root of the steps."""
        needed = steps * (error / self.tolerance) ** 2 if self.tolerance > 0.0 else np.inf
        return 4 * steps >= min(self.steps, needed) or 4.0 * seconds >= self.seconds


class ChainRun:
    """Chains, and their history."""

    # tempered: Takes the chains over if they do not mix: if nested R-hat exceeds 1.05 after a quarter of the run
    # notes: What users should know about the run

    def __init__(self, mover: Mover, state: Any, tempered: Mover | None = None):
        self.mover, self.history = mover, ChainHistory.of_start(state)
        self.notes: tuple[str, ...] = ()
        self._tempered = tempered  # None: there is nothing to decide
        self._passed: int | None = None  # number of rounds when errors came within the tolerance, to stay there

    @property
    def state(self) -> Any:
        """The present state of the chains."""
        return self.history.state

    @property
    def n_rounds(self) -> int:
        """Number of rounds."""
        return self.history.n_rounds

    def graphs(self) -> Ints:
        """Graphs after the burn-in, (T, C, n); at least the present ones."""
        graphs = self.history.graphs()
        return graphs if len(graphs) else self.mover.graphs(self.state)[None]

    def estimate(self) -> Estimate:
        """Probabilities of arcs and their precision."""
        means, n_samples = self.history.means()
        return estimate_of(means, n_samples, self.history.traces())

    def shortfall(self, estimate: Estimate, tolerance: float) -> tuple[str, ...]:
        """The criteria of convergence that are not met, in words."""
        criteria = []
        if estimate.errors.max() > tolerance:
            criteria.append(f"largest standard error {estimate.errors.max():.4f}, tolerance {tolerance:g}")
        if estimate.r_hat > MAX_R_HAT:
            criteria.append(f"R-hat {estimate.r_hat:.3f}, limit {MAX_R_HAT:g}")
        needed = max(self.mover.first_rounds, math.ceil(self.mover.confirmation * (self._passed or 0)))
        if self.n_rounds < needed:
            done = self.state.n_steps
            least = f"{done // self.n_rounds * needed:,}" if self.n_rounds else f"{needed} rounds of"
            criteria.append(f"only {done:,} of the {least} steps before the next check")
        return tuple(criteria)

    def advance(self, stop: Stop, after_round: Callable[[ChainRun, Estimate, bool], None]) -> Estimate:
        """Run rounds until the estimates are precise or a limit is reached.

        After Ctrl-C, the estimates are those of the rounds that were complete.
        """
        # after_round: Is called with this object, the present estimate, and whether the run is complete
        begin = time.monotonic()
        try:
            estimate = self.estimate()
            while not self._is_done(estimate, stop.tolerance) and self.state.n_steps < stop.steps:
                seconds = time.monotonic() - begin
                if self.n_rounds and seconds >= stop.seconds:  # of no round there are no probabilities
                    break
                if self._tempered is not None and self.n_rounds >= FIRST_DECISION:
                    self._decide(stop, seconds, estimate)
                self._run_round()
                estimate = self.estimate()
                after_round(self, estimate, False)
        except KeyboardInterrupt:
            pass
        finally:
            self.mover.release()
        estimate = self.estimate()
        with suppress(KeyboardInterrupt):
            after_round(self, estimate, True)
        return estimate

    def _is_done(self, estimate: Estimate, tolerance: float) -> bool:
        """Whether the criteria hold, and have held since the run was shorter by the mover's `confirmation`."""
        precise = estimate.errors.max() <= tolerance and estimate.r_hat <= MAX_R_HAT
        if not precise or self.n_rounds < self.mover.first_rounds:
            self._passed = None
        elif self._passed is None:
            self._passed = self.n_rounds
        return not self.shortfall(estimate, tolerance)

    def _run_round(self) -> None:
        """Run some blocks; nothing changes if this is interrupted."""
        thin = self.mover.thin
        steps = -(-self.mover.block_steps // thin) * thin
        state, blocks = self.mover.sample(self.state, steps, BLOCKS)
        self.history = self.history.extended(self.mover.after_round(state, self.n_rounds + 1), blocks)

    def _decide(self, stop: Stop, seconds: float, estimate: Estimate) -> None:
        """After a quarter of the run, let tempered chains take over if nested R-hat is too large."""
        done = self.state.n_steps
        if self._tempered is None or not stop.quarter_is_done(done, seconds, float(estimate.errors.max())):
            return
        r_hat = largest_nested_r_hat(self.history.means()[0], self.history.traces())
        if r_hat > MAX_R_HAT:
            fresh = ChainHistory.of_start(self._tempered.init(self.state))
            note = f"nested R-hat was {r_hat:.3f} after {done:,} steps: the chains are tempered from there on"
            self.mover.release()
            best, weight = self.history.best, self.history.best_weight
            self._take_over(fresh._replace(best=best, best_weight=weight), (note,))
        else:
            self._tempered = None

    def _take_over(self, history: ChainHistory, notes: tuple[str, ...]) -> None:
        """Continue with tempered chains."""
        assert self._tempered is not None
        self.mover, self.history, self.notes, self._tempered = self._tempered, history, notes, None

    def save(self, file: StateFile, durable: bool) -> None:
        """Write a checkpoint."""
        numbers, arrays = self.history.written()
        own = {"undecided": self._tempered is not None, "notes": [*self.notes], "passed": self._passed}
        file.write(numbers | own, arrays, durable=durable)

    def resume(self, file: StateFile) -> None:
        """Continue from a checkpoint, if it exists."""
        # raises JtgpuError: If the file cannot be read, is damaged, or is that of a run with other data or options.
        saved = file.read()
        if saved is None:
            return
        try:
            self._restore(*saved)
        except (KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
            raise file.damaged(error) from None

    def _restore(self, numbers: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        passed = numbers["passed"]
        self._passed = None if passed is None else int(passed)
        if self._tempered is not None and not numbers["undecided"]:
            if numbers["notes"]:
                like = self._tempered.init(self.state)
                self._take_over(ChainHistory.read(like, numbers, arrays), tuple(numbers["notes"]))
                return
            self._tempered = None
        self.history = ChainHistory.read(self.state, numbers, arrays)
