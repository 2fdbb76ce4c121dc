"""A backend whose tables cannot be weighed cell by cell: queries with likelihoods or joints of sets run on the CPU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import BackendUnavailable
from ...plans.plan import Plan
from ...util.system import new_lock
from ..base import Backend, BatchResult, ColumnResult, Counts, DeviceResult, Evidence, HeldCases, Result
from .delegating import DelegatingBackend

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..base import Likelihood, Prepare, Session, Tables


class SetFallback(DelegatingBackend):
    """`Backend` of a plan with sets, around one of the plan without them. Thread-safe."""
    # plan: With sets
    # factors: Of the plan, ones for the sets
    # prepare: Makes the CPU's backend

    def __init__(self, backend: Backend, plan: Plan, factors: Sequence[NDArray[np.float64]], prepare: Prepare):
        super().__init__(backend)
        self._plan, self._factors, self._prepare = plan, factors, prepare
        self._cpu: Backend | None = None
        self._lock = new_lock()

    def _for(self, likelihood: Iterable[int] | None, targets: Iterable[int] | None) -> Backend:
        """The backend of a query."""
        if not any(v >= self._plan.n_variables for v in (*(likelihood or ()), *(targets or ()))):
            return self.backend
        with self._lock:
            if self._cpu is None:
                self._cpu = self._prepare(self._plan, self._factors)
            return self._cpu

    @property
    def tables(self) -> Tables:
        """This object."""
        return self

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        return self._for(evidence.likelihood, targets).run(evidence, targets)

    def run_batch(
        self, states: NDArray[np.int32], likelihood: Likelihood | None = None, targets: Sequence[int] | None = None
    ) -> BatchResult:
        backend = self._for(likelihood, targets)
        return (backend.tables if backend is self.backend else backend).run_batch(states, likelihood, targets)

    def run_mixed(self, states: NDArray[np.int32], likelihood: Likelihood | None = None) -> BatchResult:
        return self._for(likelihood, None).run_mixed(states, likelihood)

    def run_columns(
        self, variables: Sequence[int], codes: NDArray[Any], targets: Sequence[int] | None = None
    ) -> ColumnResult:
        backend = self._for(None, targets)
        return (backend.tables if backend is self.backend else backend).run_columns(variables, codes, targets)

    def run_device(
        self, states: Any, likelihood: Likelihood | None = None, targets: Sequence[int] | None = None
    ) -> DeviceResult:
        if self._for(likelihood, targets) is self.backend:
            return self.backend.run_device(states, likelihood, targets)
        raise BackendUnavailable(
            "answers with likelihoods or joints of several variables do not stay on a device; use posteriors_batch"
        )

    def run_counts(
        self, states: NDArray[np.int32], weights: NDArray[np.float64] | None = None,
        likelihood: Likelihood | None = None,
    ) -> Counts:  # fmt: skip
        return self._for(likelihood, None).run_counts(states, weights, likelihood)

    def hold_cases(
        self, states: NDArray[Any], weights: NDArray[np.float64] | None = None, likelihood: Likelihood | None = None
    ) -> HeldCases:
        if self._for(likelihood, None) is self.backend:
            return self.backend.hold_cases(states, weights, likelihood)
        raise BackendUnavailable("cases with likelihoods of several variables are not held; use run_counts")

    def reload(self, factors: Sequence[NDArray[np.float64]]) -> None:
        self.backend.reload(factors)
        with self._lock:
            self._factors = factors
            if self._cpu is not None:
                self._cpu.reload(factors)

    def session(self) -> Session:
        return _Session(self)

    def close(self) -> None:
        self.backend.close()
        with self._lock:
            if self._cpu is not None:
                self._cpu.close()


class _Session:
    """A session of the wrapped backend; cases with likelihoods of sets are answered one by one."""

    def __init__(self, backend: SetFallback):
        self._backend, self._session = backend, backend.backend.session()

    def run(self, evidence: Evidence, targets: Sequence[int] | None = None) -> Result:
        backend = self._backend._for(evidence.likelihood, targets)
        return (self._session if backend is self._backend.backend else backend).run(evidence, targets)

    def close(self) -> None:
        self._session.close()
