"""`Sweep`: the interface of queries that need a program's tables and not only posteriors.

A run from the leaves to the roots has all that a *backward pass* needs: once the variables of a contraction's output
are known, those that it eliminated are chosen from the slice of its inputs at these states, which is small however
large the tables are. The largest cell of each slice gives a most probable explanation, a cell at random an exact sample
of the posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..plans.program import Program
from .base import Evidence

Uniforms = Callable[[int], "NDArray[np.float64]"]  # n -> the next n rows, (n, V), of numbers in [0, 1)


@dataclass(frozen=True)
class Best:
    """The best configurations of the variables that are eliminated by maximum, best first; ties in the order found."""

    states: NDArray[np.int32]  # (n, V); -1 for a variable that was summed out
    log_value: NDArray[np.float64]  # (n,) natural logarithms of their (unnormalised) probabilities


@dataclass(frozen=True)
class Derivatives:
    """Derivatives of P(e) by every entry of every factor, as ``cells * 2**exponent``."""

    cells: NDArray[np.float64]  # (all entries,) factor after factor, in the order of the model's axes
    exponent: NDArray[np.int64]  # (all entries,)
    root: NDArray[np.float64]  # (components,) P(e) of each component, as root * 2**root_exponent
    root_exponent: NDArray[np.int64]  # (components,)
    log_scale: float = 0.0  # ln of a factor that all of them have in common


class Sweep(Protocol):
    """A program and a model's numbers, ready to run; `jtgpu.backends.reference.ReferenceSweep` is the definition."""

    program: Program

    def best(self, evidence: Evidence, k: int = 1) -> Best:
        """The k best configurations; fewer if fewer have a probability above 0."""
        # raises ImpossibleEvidence: If none has.

    def best_rows(self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]]) -> Best:
        """The best configuration of each case: (B, V) observed states, -1 = not observed, and (B, card) weights. A case
        of probability zero has -1 in every cell and -inf."""

    def draw(self, evidence: Evidence, n: int, uniforms: Uniforms) -> NDArray[np.int32]:
        """n samples, (n, V); of a program by sum. Of each row of `uniforms` a sample uses the number of every
        variable, so equal rows give equal samples.
        """
        # raises ImpossibleEvidence: When P(e) = 0.

    def draw_rows(
        self, states: NDArray[np.int32], likelihood: Mapping[int, NDArray[np.float64]], uniforms: Uniforms
    ) -> NDArray[np.int32]:
        """One sample a case, each with its own row of `uniforms`; -1 in every cell of a case of probability zero."""

    def derivatives(self, evidence: Evidence) -> Derivatives:
        """Of a `jtgpu.plans.program.derivative_program`; also where P(e) = 0."""

    def score(self, states: NDArray[np.int32], evidence: Evidence) -> NDArray[np.float64]:
        """(n,) ln of the product of all factors, and of the weights of the evidence, at whole configurations."""
