"""Interventions, do(v = x): they remove the arcs into v, without planning or compiling again.

The table of P(v | parents) is replaced by ones of the same shape, in a second backend of the same plan; v = x is then
observed. The product of the tables is that of the mutilated network (Pearl, Causality, section 3.2.3), for every x at
once, and for the probabilities of a stochastic intervention as weights. So one backend serves all interventions on one
set of variables, and each row of a table of cases may set them differently.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..backends.base import Backend, Evidence
from ..util.system import new_lock

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BACKENDS = 8  # in addition to the model's own one
MAX_IDLE = 1  # backends without a user that wait to be reloaded

Factors = Sequence["NDArray[np.float64]"]


class Intervened:
    """A backend of the plan, and the tables that it uses."""
    # factors: sequence of arrays: In the order of ``plan.factor_var``; ones for the variables that are set
    # release: Called with the backend when the last reference to this object is gone

    def __init__(self, backend: Backend, factors: Factors, release: Callable[[Backend], None] | None = None):
        self.backend, self.factors = backend, factors
        self._release = None if release is None else weakref.finalize(self, release, backend)

    def close(self) -> None:
        """Close the backend now, unless it belongs to the model; queries that use it raise from then on."""
        if self._release is not None and self._release.detach() is not None:
            self.backend.close()


class Interventions:
    """Backends by the set of variables that are set, the last used ones.

    An idle backend is reloaded with other numbers; this is faster than creating a new one.
    """
    # prepare: Makes a backend from factors
    # factors: sequence of arrays: The model's; that of variable v is number v

    def __init__(self, prepare: Callable[[Factors], Backend], factors: Factors):
        self._prepare, self._factors = prepare, factors
        self._cached: OrderedDict[tuple[int, ...], Intervened] = OrderedDict()
        self._idle: deque[Backend] = deque()
        self._closed = False
        self._lock = new_lock()

    def get(self, variables: tuple[int, ...]) -> Intervened:
        """The backend without the arcs into these variables."""
        with self._lock:
            found = self._cached.get(variables)
            if found is None:
                factors = list(self._factors)
                for v in variables:
                    factors[v] = np.ones(factors[v].shape)
                while len(self._cached) >= MAX_BACKENDS:
                    self._cached.popitem(last=False)  # becomes idle with the last query or session that uses it
                found = self._cached[variables] = Intervened(self._backend(factors), factors, self._release)
            self._cached.move_to_end(variables)
            return found

    def _backend(self, factors: Factors) -> Backend:
        """An idle backend with new numbers, or a new one."""
        try:
            backend = self._idle.pop()
        except IndexError:
            return self._prepare(factors)
        try:
            backend.reload(factors)
        except NotImplementedError:  # of a backend without `reload`
            backend.close()
            return self._prepare(factors)
        except BaseException:
            backend.close()
            raise
        return backend

    def _release(self, backend: Backend) -> None:
        """Called by any thread, also by the garbage collector of one that holds the lock, so without the lock."""
        if self._closed or len(self._idle) >= MAX_IDLE:
            backend.close()
        else:
            self._idle.append(backend)

    def close(self) -> None:
        """Close all backends."""
        self._closed = True
        with self._lock:
            for intervened in self._cached.values():
                intervened.close()
            self._cached.clear()
        while self._idle:
            self._idle.pop().close()


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
