"""`ChainRun`: Markov chains of one kind run in rounds until their estimates are precise, with what is kept of them.

Nothing of a run depends on threads, and rounds have a fixed number of steps, so the seed determines when it stops,
unless a limit of time ends it first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import diagnostics
from . import kept as records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .engines import Engine

# `Estimate`: what the samples of chains say about arcs, and how precise that is.

MAX_R_HAT = 1.05


class Estimate(NamedTuple):
    """What the chains say after the burn-in."""

    arcs: NDArray[np.float64]  # (n, n) ndarray of float64: Probability of each arc [parent, child]
    errors: NDArray[np.float64]  # (n, n) ndarray of float64: Their standard errors
    r_hat: float  # the largest: of the weights, and of the arcs
    r_hats: NDArray[np.float64]  # (n, n) ndarray of float64: Of the arcs
    max_difference: float  # largest difference of a probability between the two halves of the chains
    n_samples: int  # of all chains


def estimate_of(means: NDArray[np.float64], n_samples: int, traces: NDArray[np.float64]) -> Estimate:
    """The estimate of C chains."""
    # means: (C, n, n) ndarray of float64: Probability of each arc in each chain
    # n_samples: Of each chain
    # traces: (C, T) ndarray of float64: ln weights
    r_hats = diagnostics.r_hat_of_arcs(means, n_samples)
    half = len(means) // 2
    difference = float(np.abs(means[:half].mean(axis=0) - means[half:].mean(axis=0)).max()) if half else np.inf
    return Estimate(
        means.mean(axis=0), diagnostics.standard_errors(means), max(diagnostics.r_hat(traces), float(r_hats.max())),
        r_hats, difference, n_samples * len(means),
    )  # fmt: skip


def nested_r_hat(means: NDArray[np.float64], traces: NDArray[np.float64]) -> float:
    """The largest nested R-hat of the weights and the arcs of chains from different starts; see `estimate_of`."""
    return max(diagnostics.nested_r_hat(traces[:, None]), diagnostics.nested_r_hat_of_arcs(means[:, None]))


MAX_STEPS = 4_000_000  # of a chain, by default
FIRST_DECISION = 4  # rounds before chains may become tempered


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
    """Chains, and what is kept of them."""
    # tempered: Takes the chains over if they do not mix: if nested R-hat exceeds 1.05 after a quarter of the run
    # interrupted: Whether Ctrl-C ended the last call of `advance`
    # notes: tuple of str: What users should know about the run

    def __init__(self, engine: Engine, state: Any, tempered: Engine | None = None):
        self.engine, self.kept = engine, records.start(state)
        self.interrupted = False
        self.notes: tuple[str, ...] = ()
        self._tempered = tempered  # None: there is nothing to decide
        self._passed: int | None = None  # number of rounds when errors came within the tolerance, to stay there

    @property
    def state(self) -> Any:
        """The present state of the chains."""
        return self.kept.state

    @property
    def n_rounds(self) -> int:
        """Number of rounds."""
        return self.kept.n_rounds

    @property
    def best(self) -> NDArray[np.int64]:
        """The best graph that was drawn, (n,) bits."""
        return self.kept.best

    @property
    def best_weight(self) -> float:
        """Its ln weight; -inf if there is none."""
        return self.kept.best_weight

    def kept_graphs(self) -> NDArray[np.int64]:
        """Graphs after the burn-in, (T, C, n)."""
        found = self.kept.graphs()
        return found if len(found) else self.engine.graphs(self.state)[None]

    def traces(self, burned: bool = True) -> NDArray[np.float64]:
        """ln weight of the states at the ends of blocks, (C, T)."""
        return self.kept.traces(burned)

    def estimate(self) -> Estimate:
        """Probabilities of arcs and their precision."""
        means, n_samples = self.kept.means()
        return estimate_of(means, n_samples, self.kept.traces())

    def is_precise(self, estimate: Estimate, tolerance: float) -> bool:
        """Whether no criterion of `shortfall` is left."""
        return not self.shortfall(estimate, tolerance)

    def shortfall(self, estimate: Estimate, tolerance: float) -> tuple[str, ...]:
        """The criteria of convergence that are not met, in words."""
        found = []
        if estimate.errors.max() > tolerance:
            found.append(f"largest standard error {estimate.errors.max():.4f}, tolerance {tolerance:g}")
        if estimate.r_hat > MAX_R_HAT:
            found.append(f"R-hat {estimate.r_hat:.3f}, limit {MAX_R_HAT:g}")
        needed = max(self.engine.first_rounds, math.ceil(self.engine.confirmation * (self._passed or 0)))
        if self.n_rounds < needed:
            done = self.state.n_steps
            least = f"{done // self.n_rounds * needed:,}" if self.n_rounds else f"{needed} rounds of"
            found.append(f"only {done:,} of the {least} steps before the next check")
        return tuple(found)

    def advance(
        self, stop: Stop, after_round: Callable[[ChainRun, Estimate, bool], None] | None = None
    ) -> tuple[Estimate, bool]:
        """Run rounds until the estimates are precise or a limit is reached.

        After Ctrl-C, the estimates are those of the rounds that were complete.
        """
        # after_round: Is called with this object, the present estimate, and whether the run is complete
        # returns (Estimate, bool): Whether the chains have converged: standard errors within the tolerance, and R-hat
        #     at most 1.05.
        self.interrupted = False
        try:
            self._run_rounds(stop, after_round)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self.engine.release()
        estimate = self.estimate()
        if after_round is not None:
            try:
                after_round(self, estimate, True)
            except KeyboardInterrupt:
                self.interrupted = True
        return estimate, self.is_precise(estimate, stop.tolerance)

    def _run_rounds(self, stop: Stop, after_round: Callable[[ChainRun, Estimate, bool], None] | None) -> None:
        begin = time.monotonic()
        estimate = self.estimate()
        while not self._is_done(estimate, stop.tolerance) and self.state.n_steps < stop.steps:
            seconds = time.monotonic() - begin
            if seconds >= stop.seconds:
                return
            if self._tempered is not None and self.n_rounds >= FIRST_DECISION:
                self._decide(stop, seconds, estimate)
            self._run_round()
            estimate = self.estimate()
            if after_round is not None:
                after_round(self, estimate, False)

    def _is_done(self, estimate: Estimate, tolerance: float) -> bool:
        """Whether the criteria hold, and have held since the run was shorter by the engine's `confirmation`."""
        precise = estimate.errors.max() <= tolerance and estimate.r_hat <= MAX_R_HAT
        if not precise or self.n_rounds < self.engine.first_rounds:
            self._passed = None
        elif self._passed is None:
            self._passed = self.n_rounds
        return self.is_precise(estimate, tolerance)

    def _run_round(self) -> None:
        """Run some blocks; nothing changes if this is interrupted."""
        thin = self.engine.thin
        steps = -(-self.engine.block_steps // thin) * thin
        state, blocks = self.engine.run_blocks(self.state, steps, records.BLOCKS)
        state = self.engine.after_round(state, self.n_rounds + 1)
        self.kept = records.kept_after(self.kept, state, blocks)

    def _decide(self, stop: Stop, seconds: float, estimate: Estimate) -> None:
        """After a quarter of the run, let tempered chains take over if nested R-hat is too large."""
        done = self.state.n_steps
        if self._tempered is None or not stop.quarter_is_done(done, seconds, float(estimate.errors.max())):
            return
        r_hat = nested_r_hat(self.kept.means()[0], self.kept.traces())
        if r_hat > MAX_R_HAT:
            fresh = records.start(self._tempered.start(self.state))
            note = f"nested R-hat was {r_hat:.3f} after {done:,} steps: the chains are tempered from there on"
            self.engine.release()
            self._take_over(fresh._replace(best=self.best, best_weight=self.best_weight), (note,))
        else:
            self._tempered = None

    def _take_over(self, kept: records.Kept, notes: tuple[str, ...]) -> None:
        """Continue with tempered chains."""
        assert self._tempered is not None
        self.engine, self.kept, self.notes, self._tempered = self._tempered, kept, notes, None

    def arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything that `restore` needs, as arrays and as values that JSON can hold."""
        arrays, numbers = records.written(self.kept)
        return arrays, numbers | {
            "undecided": self._tempered is not None, "notes": [*self.notes], "passed": self._passed,
        }  # fmt: skip

    def restore(self, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any]) -> None:
        """Continue from what `arrays` returned."""
        passed = numbers["passed"]
        self._passed = None if passed is None else int(passed)
        if self._tempered is not None and not numbers["undecided"]:
            if numbers["notes"]:
                like = self._tempered.start(self.state)
                self._take_over(records.read(self._tempered, like, arrays, numbers), tuple(numbers["notes"]))
                return
            self._tempered = None
        self.kept = records.read(self.engine, self.state, arrays, numbers)
