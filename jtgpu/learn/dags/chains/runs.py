"""`ChainRun`: Markov chains of one kind run in rounds until their estimates are precise, with what is kept of them.

Nothing of a run depends on threads, and rounds have a fixed number of steps, so the seed determines when it stops,
unless a limit of time ends it first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import diagnostics, orders, partitions
from .gpu.engines import GpuOrderEngine, GpuPartitionEngine
from .set_tables import ANY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..candidates.tables import CandidateTables
    from ..chain_records import SetTables

__all__ = ["ChainRun", "Engine", "Estimate", "OrderEngine", "PartitionEngine", "Stop"]

BLOCK_STEPS = 1000  # at least; a graph of each chain is kept after each block
BLOCKS = 8  # of a round
FIRST_ROUNDS = 4  # before the first check
MAX_KEPT = 1024  # graphs of a chain
MAX_R_HAT = 1.05
MAX_STEPS = 4_000_000  # of a chain, by default
ONE = 2.0**32


class Stop(NamedTuple):
    """When to stop.

    Attributes
    ----------
    tolerance : float
        Largest standard error of the probability of an arc.
    steps : int
        Of each chain in all, at most.
    seconds : float
        Of this call, at most.
    """

    tolerance: float
    steps: int = MAX_STEPS
    seconds: float = float("inf")


class Estimate(NamedTuple):
    """What the chains say after the burn-in.

    Attributes
    ----------
    arcs : (n, n) ndarray of float64
        Probability of each arc [parent, child].
    errors : (n, n) ndarray of float64
        Their standard errors.
    r_hat : float
        The largest: of the weights, and of the arcs.
    r_hats : (n, n) ndarray of float64
        Of the arcs.
    max_difference : float
        Largest difference of a probability between the two halves of the chains.
    n_samples : int
        Of all chains.
    """

    arcs: NDArray[np.float64]
    errors: NDArray[np.float64]
    r_hat: float
    r_hats: NDArray[np.float64]
    max_difference: float
    n_samples: int


class PartitionEngine:
    """Chains over partitions; see `jtgpu.learn.dags.chains.partitions`."""

    name = "partition MCMC"
    block_steps = BLOCK_STEPS

    def __init__(self, tables: SetTables, seed: int, threads: int | None):
        self._sampler, self._threads = partitions.PartitionSampler(tables, seed), threads
        n = len(tables.candidates)
        self.thin = n if tables.outer_units.shape[1] else max(n // 2, 1)  # samples with outer sets take longer

    def run(self, state: Any, n_steps: int) -> tuple[Any, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Continue; returns the state, the weight at the last sample, and the best graph of each chain."""
        state, info = partitions.run_chains(self._sampler, state, n_steps, self.thin, threads=self._threads)
        return state, info.trace[:, -1], info.best, info.best_weight

    def graphs(self, state: Any) -> NDArray[np.int64]:
        """The present graph of each chain, (C, n) bits of the candidates."""
        return np.asarray(state.parents, np.int64)

    def restored(self, fields: dict[str, Any]) -> Any:
        """The state of some fields."""
        return partitions.PartitionChains(**fields)

    def release(self) -> None:
        """Nothing to free."""


class OrderEngine:
    """Chains over orders; see `jtgpu.learn.dags.chains.orders`."""

    name = "order MCMC"
    block_steps = BLOCK_STEPS

    def __init__(self, tables: CandidateTables, chain_tables: SetTables, seed: int, threads: int | None):
        self._tables, self._seed, self._threads = chain_tables, seed, threads
        self._sampler = orders.OrderSampler(tables, chain_tables.sums, chain_tables.hits, seed)
        self._has_outer = chain_tables.outer_units.shape[1] > 0
        self.thin = orders.steps_between_samples(chain_tables)

    def run(self, state: Any, n_steps: int) -> tuple[Any, NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """See `PartitionEngine.run`; there is no best graph."""
        if self._has_outer:
            state, trace = orders.run_corrected_chains(
                self._sampler, self._tables, state, n_steps, self.thin, threads=self._threads
            )
        else:
            state, info = orders.run_chains(self._sampler, state, n_steps, self.thin, threads=self._threads)
            trace = info.trace
        none = np.full(state.order.shape, ANY, np.int64), np.full(len(state.order), -np.inf)
        return state, trace[:, -1], *none

    def graphs(self, state: Any) -> NDArray[np.int64]:
        """A graph that the present order of each chain allows, drawn by its weight."""
        return orders.graphs_of_orders(self._tables, state.order, self._seed, state.n_steps, self._threads)

    def restored(self, fields: dict[str, Any]) -> Any:
        """The state of some fields."""
        return orders.OrderChains(**fields)

    def release(self) -> None:
        """Nothing to free."""


Engine = PartitionEngine | OrderEngine | GpuPartitionEngine | GpuOrderEngine


class ChainRun:
    """Chains, and what is kept of them.

    Attributes
    ----------
    engine : PartitionEngine or OrderEngine
    state : PartitionChains or OrderChains
    n_rounds : int
    best, best_weight : (n,) ndarray of int64, float
        The best graph that was drawn; -inf if there is none.
    interrupted : bool
        Whether Ctrl-C ended the last call of `advance`.
    """

    def __init__(self, engine: Engine, state: Any):
        self.engine, self.state = engine, state
        self.n_rounds = 0
        self.interrupted = False
        n = state.arcs.shape[1]
        self.best, self.best_weight = np.full(n, ANY, np.int64), -np.inf
        self.snapshots: dict[int, tuple[NDArray[np.uint64], int]] = {}  # sums after 1, 2, 4, 8, ... rounds
        self.kept: list[int] = []  # numbers of the blocks whose graphs are kept
        self.stride = 1
        self._graphs: list[NDArray[np.int64]] = []
        self._traces: list[NDArray[np.float64]] = []
        thin = engine.thin
        self.block = -(-engine.block_steps // thin) * thin

    @property
    def burned(self) -> int:
        """Number of rounds at the beginning that are not used: 1/8 to 1/4 of them."""
        return max((r for r in self.snapshots if 4 * r <= self.n_rounds), default=0)

    def kept_graphs(self) -> NDArray[np.int64]:
        """Graphs after the burn-in, (T, C, n)."""
        first = self.burned * BLOCKS
        found = [graphs for i, graphs in zip(self.kept, self._graphs, strict=True) if i >= first]
        return np.array(found or [self.engine.graphs(self.state)], np.int64)

    def traces(self, burned: bool = True) -> NDArray[np.float64]:
        """ln weight of the states at the ends of blocks, (C, T)."""
        first = self.burned * BLOCKS if burned else 0
        found = [trace for i, trace in zip(self.kept, self._traces, strict=True) if i >= first]
        return np.array(found, np.float64).reshape(-1, len(self.state.arcs)).T

    def estimate(self) -> Estimate:
        """Probabilities of arcs and their precision."""
        n_chains, n = self.state.arcs.shape[:2]
        sums, n_burned = self.snapshots.get(self.burned, (np.zeros((n_chains, n, n), np.uint64), 0))
        n_samples = max(self.state.n_samples - n_burned, 1)
        means = (self.state.arcs - sums).astype(np.float64) / (ONE * n_samples)
        r_hats = diagnostics.r_hat_of_arcs(means, n_samples)
        of_weights = diagnostics.r_hat(self.traces())
        half = n_chains // 2
        difference = float(np.abs(means[:half].mean(axis=0) - means[half:].mean(axis=0)).max()) if half else np.inf
        return Estimate(
            means.mean(axis=0), diagnostics.standard_errors(means), max(of_weights, float(r_hats.max())), r_hats,
            difference, n_samples * n_chains,
        )  # fmt: skip

    def advance(
        self, stop: Stop, after_round: Callable[[ChainRun, Estimate, bool], None] | None = None
    ) -> tuple[Estimate, bool]:
        """Run rounds until the estimates are precise or a limit is reached.

        Parameters
        ----------
        stop : Stop
        after_round : callable, optional
            Is called with this object, the present estimate, and whether the run is complete.

        Returns
        -------
        (Estimate, bool)
            Whether the chains have converged: standard errors within the tolerance, and R-hat at most 1.05.
        """
        try:
            return self._advance(stop, after_round)
        finally:
            self.engine.release()

    def _advance(
        self, stop: Stop, after_round: Callable[[ChainRun, Estimate, bool], None] | None
    ) -> tuple[Estimate, bool]:
        begin = time.monotonic()
        self.interrupted = False
        estimate = self.estimate()
        converged = self.is_precise(estimate, stop.tolerance)
        while not converged and self.state.n_steps < stop.steps and time.monotonic() - begin < stop.seconds:
            try:
                self._run_round()
            except KeyboardInterrupt:
                self.interrupted = True
                break
            estimate = self.estimate()
            converged = self.is_precise(estimate, stop.tolerance)
            if after_round is not None:
                after_round(self, estimate, False)
        if after_round is not None:
            after_round(self, estimate, True)
        return estimate, converged

    def is_precise(self, estimate: Estimate, tolerance: float) -> bool:
        """Whether standard errors are within the tolerance, and R-hat is at most 1.05."""
        return bool(
            self.n_rounds >= FIRST_ROUNDS and estimate.errors.max() <= tolerance and estimate.r_hat <= MAX_R_HAT
        )

    def _run_round(self) -> None:
        """Run some blocks; nothing changes if this is interrupted."""
        state, best, best_weight = self.state, self.best, self.best_weight
        found = []
        for _ in range(BLOCKS):
            state, trace, graphs, weights = self.engine.run(state, self.block)
            found.append((self.engine.graphs(state).copy(), trace))
            if weights.max() > best_weight:
                best, best_weight = graphs[weights.argmax()].copy(), float(weights.max())
        first = self.n_rounds * BLOCKS
        self.state, self.best, self.best_weight = state, best, best_weight
        self.n_rounds += 1
        for i, (of_chains, trace) in enumerate(found, first):
            if i % self.stride == 0:
                self.kept.append(i)
                self._graphs.append(of_chains)
                self._traces.append(trace)
        while len(self.kept) > MAX_KEPT:
            self.stride *= 2
            chosen = [j for j, i in enumerate(self.kept) if i % self.stride == 0]
            self.kept = [self.kept[j] for j in chosen]
            self._graphs = [self._graphs[j] for j in chosen]
            self._traces = [self._traces[j] for j in chosen]
        if self.n_rounds & (self.n_rounds - 1) == 0:
            self.snapshots[self.n_rounds] = (state.arcs.copy(), state.n_samples)

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything that `restore` needs, as arrays and as values that JSON can hold."""
        arrays: dict[str, NDArray[Any]] = {"best": self.best}
        numbers: dict[str, Any] = {
            "rounds": self.n_rounds, "stride": self.stride, "kept": self.kept,
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
        arrays["graphs"] = np.array(self._graphs, np.int64).reshape(-1, *shape)
        arrays["traces"] = np.array(self._traces, np.float64).reshape(-1, shape[0])
        return arrays, numbers

    def restore(self, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any]) -> None:
        """Continue from what `arrays` returned."""
        fields = {name[6:]: array for name, array in arrays.items() if name.startswith("state_")}
        self.state = self.engine.restored(fields | numbers["state"])
        self.n_rounds, self.stride, self.kept = numbers["rounds"], numbers["stride"], list(numbers["kept"])
        self.best = arrays["best"]
        self.best_weight = -np.inf if numbers["best_weight"] is None else numbers["best_weight"]
        self.snapshots = {int(r): (arrays[f"snapshot_{r}"], n) for r, n in numbers["snapshots"].items()}
        self._graphs, self._traces = [*arrays["graphs"]], [*arrays["traces"]]
