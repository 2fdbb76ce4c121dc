"""Interventions, do(v = x): the arcs into v are removed, and nothing is planned or compiled again.

The table of P(v | parents) is replaced by ones of the same shape, in a second backend of the same plan; v = x is then
observed. The product of the tables is that of the mutilated network (Pearl, Causality, section 3.2.3), for every x at
once, and for the probabilities of a stochastic intervention as weights. So one backend serves all interventions on one
set of variables, and each row of a table of cases may set them differently.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..backends.base import Backend, Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Intervened", "Interventions", "Settled"]

MAX_BACKENDS = 8  # in addition to the model's own one

Factors = Sequence["NDArray[np.float64]"]


class Intervened:
    """A backend of the plan, and the numbers that it was given.

    Parameters
    ----------
    backend : Backend
    factors : sequence of arrays
        In the order of ``plan.factor_var``; ones for the variables that are set.
    owned : bool
        Whether the backend belongs to this object: then it is closed with the last reference to the object.
    """

    def __init__(self, backend: Backend, factors: Factors, owned: bool = False):
        self.backend, self.factors = backend, factors
        self._close = weakref.finalize(self, backend.close) if owned else None

    def close(self) -> None:
        """Close an owned backend; queries that use it raise from then on."""
        if self._close is not None:
            self._close()


class Interventions:
    """Backends by the set of variables that are set, the last used ones.

    Parameters
    ----------
    prepare : callable
        Makes a backend from factors.
    factors : sequence of arrays
        The model's; that of variable v is number v.
    """

    def __init__(self, prepare: Callable[[Factors], Backend], factors: Factors):
        self._prepare, self._factors = prepare, factors
        self._cached: OrderedDict[tuple[int, ...], Intervened] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, variables: tuple[int, ...]) -> Intervened:
        """The backend without the arcs into these variables."""
        with self._lock:
            found = self._cached.get(variables)
            if found is None:
                factors = list(self._factors)
                for v in variables:
                    factors[v] = np.ones(factors[v].shape)
                found = self._cached[variables] = Intervened(self._prepare(factors), factors, owned=True)
                while len(self._cached) > MAX_BACKENDS:
                    self._cached.popitem(last=False)
            self._cached.move_to_end(variables)
            return found

    def close(self) -> None:
        """Close all backends."""
        with self._lock:
            for intervened in self._cached.values():
                intervened.close()
            self._cached.clear()


class Settled(NamedTuple):
    """Evidence of all kinds as one case that a backend answers: what every query starts from."""

    intervened: Intervened  # a reference keeps its backend open
    case: Evidence  # soft evidence is included as the weights that produce it
    log_shift: float  # to be added to the backend's log_evidence of `case`; 0 without soft evidence

    @property
    def backend(self) -> Backend:
        """The backend that answers the case."""
        return self.intervened.backend

    @property
    def factors(self) -> Factors:
        """The model's numbers, in the order of ``plan.factor_var``; ones for the variables that are set."""
        return self.intervened.factors
