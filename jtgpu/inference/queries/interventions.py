"""Interventions, do(v = x): the arcs into v are cut, nothing is compiled anew.

The table of P(v | parents) is replaced by ones of the same shape, in a second backend of the same plan; v = x then
enters as what is observed of v. The product of the tables is that of the mutilated network (Pearl, Causality, section
3.2.3) for every x at once, and for the probabilities of a stochastic intervention as weights. So a backend serves all
interventions on one set of variables, and tables of cases may set them differently in each row.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...backends.base import Backend, Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Cut", "Cuts", "Settled"]

MOST_CUTS = 8  # backends kept beside the tree's own one

Factors = Sequence["NDArray[np.float64]"]


class Cut:
    """A backend of the plan, and the numbers that it was given.

    Parameters
    ----------
    backend : Backend
    factors : sequence of arrays
        In the order of ``plan.factor_var``; ones where an intervention cuts.
    owned : bool
        Whether the backend is this object's alone: then it is closed when nobody holds the object any more.
    """

    def __init__(self, backend: Backend, factors: Factors, owned: bool = False):
        self.backend, self.factors = backend, factors
        self._close = weakref.finalize(self, backend.close) if owned else None

    def close(self) -> None:
        """Give an owned backend's memory back; queries that hold it raise from then on."""
        if self._close is not None:
            self._close()


class Cuts:
    """Backends by the set of variables that are set from outside, the last used ones.

    Parameters
    ----------
    prepare : callable
        Makes a backend from factors.
    factors : sequence of arrays
        The model's; that of variable v is number v.
    """

    def __init__(self, prepare: Callable[[Factors], Backend], factors: Factors):
        self._prepare, self._factors = prepare, factors
        self._kept: OrderedDict[tuple[int, ...], Cut] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, variables: tuple[int, ...]) -> Cut:
        """The backend in which the arcs into these variables are cut."""
        with self._lock:
            cut = self._kept.get(variables)
            if cut is None:
                factors = list(self._factors)
                for v in variables:
                    factors[v] = np.ones(factors[v].shape)
                cut = self._kept[variables] = Cut(self._prepare(factors), factors, owned=True)
                while len(self._kept) > MOST_CUTS:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(variables)
            return cut

    def close(self) -> None:
        """Close all."""
        with self._lock:
            for cut in self._kept.values():
                cut.close()
            self._kept.clear()


class Settled(NamedTuple):
    """Evidence of all kinds, as one case that a backend answers: what every question starts from."""

    cut: Cut  # held, so that its backend stays open
    case: Evidence  # soft evidence stands here as the weights that bring it about
    log_shift: float  # to be added to the backend's log_evidence of `case`; 0 without soft evidence

    @property
    def backend(self) -> Backend:
        """What answers the case."""
        return self.cut.backend

    @property
    def factors(self) -> Factors:
        """The model's numbers, in the order of ``plan.factor_var``; ones where an intervention cuts."""
        return self.cut.factors
