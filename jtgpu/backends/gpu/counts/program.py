"""The contractions of expected counts: messages to the roots, derivatives of P(e), and each factor times its own.

Arrays only; knows no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....plans.plan import Plan
from ....plans.program import UNIT, derivative_program
from ..batch.split_sums import split_sums
from ..program.contractions import Binary, Step, binary_steps, levels_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class CountProgram:
    """Contractions of at most two tables; tables 0..F-1 are the factors."""

    binary: Binary  # messages and derivatives, then the products of the families
    n_messages: int  # steps before these products
    roots: tuple[int, ...]  # tables of P(e), one a component
    root: tuple[int, ...]  # (F,) component of each factor, as a place among the roots
    derivative: tuple[int, ...]  # (F,) table of the derivative by each factor; UNIT for the number 1
    family: tuple[int, ...]  # (F,) table of the product of both

    @property
    def messages(self) -> Binary:
        """The steps without the products of the families."""
        n = self.n_messages
        return Binary(self.binary.steps[:n], self.binary.scopes, self.binary.level[:n])


def count_program(plan: Plan, *, split: bool) -> CountProgram:
    """The contractions of a plan's expected counts; `split`: without long sums."""
    base = derivative_program(plan)
    number: dict[int, int] = {f: f for f in range(plan.n_factors)}
    for out in base.outs:
        number[out] = len(number)
    scopes = [base.scopes[t] for t in number]
    contractions = [
        Step(number[out], tuple(number[t] for t in ins), False) for out, ins in zip(base.outs, base.ins, strict=True)
    ]
    binary = binary_steps(plan, scopes, contractions)
    if split:
        binary = split_sums(plan, binary)
    derivative = tuple(UNIT if t == UNIT else number[t] for t in base.factor_derivative)
    steps, all_scopes = list(binary.steps), list(binary.scopes)
    for f, d in enumerate(derivative):
        steps.append(Step(len(all_scopes), (f,) if d == UNIT else (f, d), False))
        all_scopes.append(all_scopes[f])
    family = tuple(range(len(binary.scopes), len(all_scopes)))
    whole = Binary(tuple(steps), tuple(all_scopes), levels_of(plan, steps))
    roots = tuple(number[t] for t in base.roots)
    return CountProgram(whole, len(binary.steps), roots, base.factor_root, derivative, family)


class FamilyCells:
    """The cells of all families one after the other, axes in the plan's order, and those that may be other than zero.
    """
    # support: sequence of (cells,) arrays of bool: Entries of each factor that are not zero
    # place: (K,) int64: Where each cell that may be other than zero is among all cells
    # first: (F + 1,) int64: The first of the K cells of each family

    def __init__(self, plan: Plan, support: Sequence[NDArray[np.bool_]]):
        self.plan, self.support = plan, list(support)
        self.place = np.flatnonzero(np.concatenate([*self.support, np.zeros(0, np.bool_)]))
        self.first = np.cumsum([0, *(int(s.sum()) for s in self.support)])

    def covers(self, flat: Sequence[NDArray[np.float64]]) -> bool:
        """Whether factors have no other entries than these."""
        return not any((x[~s] != 0).any() for x, s in zip(flat, self.support, strict=True))

    def spread(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sums of the K cells among all cells, and what follows them."""
        n = len(self.place)
        found = np.zeros(sum(len(s) for s in self.support) + len(sums) - n)
        found[self.place] = sums[:n]
        found[len(found) - (len(sums) - n) :] = sums[n:]
        return found
