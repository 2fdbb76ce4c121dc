"""`CompiledModel`: a plan, a model's numbers and a backend. Every query takes one.

Queries (`jtgpu.inference.queries`) are functions of a `CompiledModel`; `jtgpu.JunctionTree` adds a method for each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ..backends import make as auto
from ..backends import resolve
from ..backends.base import Backend, Evidence, Result
from ..backends.make import supported_options
from ..errors import BackendUnavailable, EvidenceError, ImpossibleEvidence, JtgpuError, TableTooLarge
from ..model.discrete import DiscreteModel
from ..plans.compiler import plan_tables, unplanned
from ..util.arguments import reporting
from ..util.lru import LRU
from .evidence import CaseEvidence, Findings, read_known
from .interventions import Factors, Intervened, Interventions, ResolvedEvidence, fit_case
from .network_plan import NetworkPlan
from .sets import Scope, of_sets

if TYPE_CHECKING:
    from typing import Self, Unpack

    from ..util.options import BackendName
    from .evidence import EvidenceOptions

T = TypeVar("T")
MOST_WITH_SETS = 4  # trees for sets that the plan does not keep together


class CompiledModel:
    """A model, its plan and a backend that is ready to run; parameters as of `jtgpu.JunctionTree`."""

    def __init__(
        self,
        plan: NetworkPlan,
        backend: BackendName = "auto",
        *,
        replan: bool = True,
        devices: Any = None,
        progress: Callable[[str], None] | None = None,
        **options: Any,
    ):
        self._plan = plan
        self._model = plan.model
        self._devices = devices
        self._replan = replan
        self._factors = plan_tables(plan.plan, plan.model)
        with reporting(progress):
            name = resolve(backend, or_auto=True)
            if name != "auto":
                self._backend: Backend | None = self._use(name, options)
            elif devices is not None:
                self._backend = self._use("gpu", options, is_auto=True)
            else:
                self._backend = self._choose(options)
        self._interventions = Interventions(self._prepare, self._factors)
        self._caches: dict[str, LRU[Hashable, Any]] = {}  # of queries, by kind; see `cached`
        self._generation = 0

    def _choose(self, options: Mapping[str, Any]) -> Backend:
        """The backend that "auto" chooses; the CPU if the chosen GPU turns out to be too small."""
        name = auto.choose(self._plan.plan).backend
        try:
            return self._use(name, options, is_auto=True)
        except (TableTooLarge, BackendUnavailable) as error:
            if name != "gpu":
                raise
            logging.getLogger("jtgpu").warning("backend=\"auto\" uses the CPU, since the GPU failed: %s", error)
            return self._use("cpu", options, is_auto=True)

    def _use(self, name: str, options: Mapping[str, Any], *, is_auto: bool = False) -> Backend:
        """Set the backend's name and options, and make one."""
        self._name, self._options = name, supported_options(name, options, is_auto)
        plan, devices, replan, own = self._plan, self._devices, self._replan, self._options

        # no bound method: with a reference cycle, the backend's memory would wait for the garbage collector
        def prepare(factors: Factors) -> Backend:
            return plan.prepare(name, factors, devices=devices, replan=replan, **own)

        self._prepare = prepare
        return prepare(self._factors)

    # Properties -----------------------------------------------------------------------------------------------

    @property
    def model(self) -> DiscreteModel:
        """The model that was compiled."""
        return self._model

    @property
    def plan(self) -> NetworkPlan:
        """The plan that runs."""
        return self._plan

    @property
    def whole(self) -> bool:
        """Whether the tree is that of the whole model; False: it does not fit, and questions are planned one by one."""
        return self._plan.plan.is_planned

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return self._name

    @property
    def threads(self) -> int | None:
        """Number of CPU cores to use, as given; None: all cores of the process."""
        return self._options.get("threads")

    @property
    def options(self) -> dict[str, Any]:
        """Options of the backend, as given; a copy."""
        return dict(self._options)

    @property
    def is_adaptive(self) -> bool:
        """Whether the last digits of an answer may depend on earlier queries.

        See `jtgpu.backends.wrappers.pattern_cache`.
        """
        return self._backend is not None and self._backend.capabilities.is_adaptive

    @property
    def dtype(self) -> str:
        """Number type of the backend's tables: ``"float64"``, or ``"float32"`` if that was requested."""
        return str(self._options.get("dtype", "float64"))

    @property
    def device(self) -> str:
        """Name of the GPU that the backend uses, the first of several; empty for the CPU."""
        return self._backend.capabilities.device_name if self._backend is not None else ""

    @property
    def max_concurrent_tables(self) -> int:
        """Number of tables of cases that can usefully be queried at the same time, from as many threads."""
        return self._backend.capabilities.concurrent_tables if self._backend is not None else 1

    def close(self) -> None:
        """Free the backend's memory. Queries raise `JtgpuError` from then on."""
        if self._backend is not None:
            self._backend.close()
            self._backend = None
        for tree in self._caches["sets"].values() if "sets" in self._caches else ():
            tree.close()
        for cache in self._caches.values():
            cache.clear()
        self._interventions.close()

    def reload(self, model: DiscreteModel) -> None:
        """Replace the numbers of the model: the plan, compiled programs and device memory stay.

        Learning and what-if analyses change CPTs many times; this is much faster than compiling again. Queries that run
        at the same time are finished first; sessions continue with the new numbers. Call it from one thread at a time.

        Parameters
        ----------
        model : DiscreteModel
            With the variables, states and scopes of the compiled one.

        Raises
        ------
        PlanError
            If the model has other states or scopes; then nothing has changed.
        """
        backend = self._open()
        plan = self._plan.with_model(model)
        factors = plan_tables(plan.plan, model)
        for cache in self._caches.values():
            cache.clear()
        self._interventions.close()
        backend.reload(factors)
        self._plan, self._model, self._factors = plan, model, factors
        self._interventions = Interventions(self._prepare, factors)
        self._generation += 1

    @property
    def generation(self) -> int:
        """Number of times that `reload` was called."""
        return self._generation

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        single = ", dtype='float32'" if self.dtype == "float32" else ""
        return f"{type(self).__name__}({self._model.name!r}, backend={self._name!r}{single})"

    def __getstate__(self) -> dict[str, Any]:
        """Plan, numbers and options. Another process makes its own backend of them."""
        self._open()
        state = {"plan": self._plan, "backend": self._name, "replan": self._replan, **self._options}
        return state if self._devices is None else {**state, "devices": self._devices}

    def __setstate__(self, state: dict[str, Any]) -> None:
        CompiledModel.__init__(self, **state)

    # For queries ----------------------------------------------------------------------------------------------

    def resolve(self, evidence: Findings | None = None, **more: Unpack[EvidenceOptions]) -> ResolvedEvidence:
        """Evidence of all kinds as one case that a backend answers."""
        return self.resolved(read_known(self._model, evidence, **more, sets=self._plan.sets))

    def resolved(self, known: CaseEvidence) -> ResolvedEvidence:
        """Evidence by number as one case that a backend answers."""
        intervened = self.intervened(known.intervened)
        case, shift = known.case, 0.0
        if known.soft:
            run, ptr = intervened.backend.run_case, self._plan.posterior_ptr
            case, log_evidence = fit_case(
                self._model, lambda e, targets: self.answer(run, e, targets), ptr, known.case, known.soft
            )
            shift = log_evidence - run(case, []).log_evidence
        return ResolvedEvidence(intervened, case, shift)

    def for_sets(self, given: Any = None, joints: Iterable[Scope] = ()) -> Self:
        """This tree, or one whose plan also keeps the sets of a query together: those of its likelihoods and joints.

        Such a tree is planned on first use, and cached.
        """
        scopes = [*(scope for scope, _ in of_sets(self._model, given)), *joints]
        missing = [scope for scope in scopes if self._plan.sets.find(scope) is None]
        if not missing:
            return self
        if self._plan.slices:
            raise EvidenceError("a plan of slices takes no likelihoods and no joints of several variables")
        key = tuple(sorted({tuple(sorted(s)) for s in missing}))

        def make() -> CompiledModel:
            together = [*self._plan.sets.scopes, *key]
            if self.whole:
                plan = self._model.plan(together=together)
            else:
                plan = replace(self._plan, plan=unplanned(self._model, together))
            name = cast("BackendName", self._name)
            return type(self)(plan, name, replan=self._replan, devices=self._devices, **self._options)

        return cast("Self", self.cached("sets", key, make, MOST_WITH_SETS))

    def intervened(self, variables: tuple[int, ...] = ()) -> Intervened:
        """The backend without the arcs into some variables, ascending; the model's own backend for none."""
        own = self._open()
        return self._interventions.get(variables) if variables else Intervened(own, self._factors)

    def cached(self, kind: str, key: Hashable, make: Callable[[], T], most: int = 16) -> T:
        """A value that a query saves for later calls: made on a miss, dropped when this object is closed.

        Parameters
        ----------
        kind : str
            Name of the query's cache.
        key : hashable
        make : callable
            Makes the value.
        most : int
            Values of this kind that are cached, the last used ones.
        """
        cache = self._caches.get(kind)
        if cache is None:
            cache = self._caches.setdefault(kind, LRU(most))
        return cast(T, cache.get_or_make(key, make))

    def _open(self) -> Backend:
        if self._backend is None:
            raise JtgpuError("this tree is closed")
        return self._backend

    def answer(
        self, run: Callable[[Evidence, Sequence[int] | None], Result], case: Evidence,
        targets: Sequence[int] | None,
    ) -> Result:  # fmt: skip
        """The result of a backend's or a session's ``run``; an error for impossible evidence names the evidence."""
        try:
            return run(case, targets)
        except ImpossibleEvidence:
            raise ImpossibleEvidence(self.impossible(case)) from None

    def impossible(self, case: Evidence) -> str:
        """Why no answer exists: a sentence that names the findings of a case of probability zero."""
        findings = []
        for v, weights in case.vectors(self._model.cardinality).items():
            name, states = self._model.variables[v], self._model.states(v)
            allowed = [states[i] for i in np.flatnonzero(weights).tolist()]
            if not allowed:
                return f"this evidence has probability 0: the findings on {name!r} contradict each other"
            value = repr(allowed[0]) if len(allowed) == 1 else "one of " + ", ".join(map(repr, allowed))
            findings.append(f"{name} = {value}")
        sets = self._plan.sets
        findings += [f"likelihood of {sets.names(v)}" for v in sorted(case.likelihood) if v >= sets.first]
        if not findings:
            return f"the model {self._model.name!r} gives every configuration probability 0"
        more = f" and {len(findings) - 20} more" if len(findings) > 20 else ""
        return f"this evidence has probability 0: {'; '.join(findings[:20])}{more}"
