"""Posteriors of all variables or of some targets: of one case, and of a table of cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ...backends.base import DeviceResult, Evidence
from ...backends.cpu.queries import CpuSweep
from ...backends.reference import ReferenceSweep
from ...backends.sweep import Sweep
from ...errors import BackendUnavailable, EvidenceError, ImpossibleEvidence, UnknownVariable, shown
from ...model.discrete import DiscreteModel
from ...plans.program import Program, collect_program, derivative_program
from ...util.arguments import described, several
from ...util.arrays import Floats
from ...util.lru import LRU
from ..compiled import CompiledModel
from ..evidence import CaseEvidence, Cases
from ..evidence_table import BatchEvidence, read_known_cases, read_weights
from ..interventions import ResolvedEvidence, answer_cases
from ..results.marginals import CasePosteriors, Posterior, Posteriors
from ..results.tables import DevicePosteriors, Joint
from ..sets import Joints, Scope
from ..tables import at_row, is_on_device

if TYPE_CHECKING:
    from ...plans.plan import Plan

# The variables of a query, by number.

def as_list(names: Any, what: str) -> list[Any]:
    """Names or numbers as a list; a single one makes a list of one."""
    # raises EvidenceError: If `names` is neither a name, a number, nor a collection.
    if isinstance(names, (str, int, np.integer)):
        return [names]
    listed = several(names)
    if listed is None:
        raise EvidenceError(
            f"{what} must be one or several names or numbers, such as ['lung', 'bronc'], not {described(names)}"
        )
    return listed


def check_single(variable: Any) -> None:
    """Raise `UnknownVariable` for several variables where a query takes one."""
    if isinstance(variable, (list, tuple, set, frozenset)):
        raise UnknownVariable(
            f"posterior takes one variable, not {shown(variable)}; joint({shown(variable)}) gives the distribution of "
            "several together, posteriors(targets=...) that of each"
        )


def targets_of(model: DiscreteModel, targets: str | int | Iterable[str | int] | None) -> list[int] | None:
    """Distinct numbers of the variables whose posteriors are computed; None: all."""
    if targets is None:
        return None
    return list(dict.fromkeys(model.index(t) for t in as_list(targets, "targets")))


def scope_of(model: DiscreteModel, variables: str | int | Iterable[str | int], what: str = "variables") -> list[int]:
    """Numbers of the variables of a query."""
    # what: Name of the argument, for messages
    # raises UnknownVariable: If the model has no such variable.
    # raises EvidenceError: If there is no variable, or one is repeated.
    scope = [model.index(v) for v in as_list(variables, what)]
    if not scope:
        raise EvidenceError(f"{what} must name at least one variable")
    for i, v in enumerate(scope):
        if v in scope[:i]:
            raise EvidenceError(f"{what} must not name {model.variables[v]!r} twice")
    return scope


def n_configurations(model: DiscreteModel, scope: Iterable[int]) -> int:
    """Product of the cardinalities of some variables."""
    return math.prod(int(model.cardinality[v]) for v in scope)


def posteriors(
    model: CompiledModel, resolved: ResolvedEvidence, targets: Sequence[int] | None, known: CaseEvidence | None = None,
    joints: Sequence[Scope] = (),
) -> Posteriors:  # fmt: skip
    """See `jtgpu.JunctionTree.posteriors`; `known` is the evidence that `resolved` comes from."""
    sets, backend = model.plan.sets, resolved.backend
    numbers = [sets.number(scope, "joint posterior") for scope in joints]
    result = model.answer(backend.run, resolved.case, with_sets(model.model, targets, numbers))
    ptr = backend.cell_ptr
    cells = {scope: result.posterior[ptr[v] : ptr[v + 1]] for scope, v in zip(joints, numbers, strict=True)}
    tables = {scope: sets.joint(v, scope, cells[scope]) for scope, v in zip(joints, numbers, strict=True)}
    log_evidence = result.log_evidence + resolved.log_shift

    def labelled(scope: Scope, table: Floats) -> Joint:
        names, states = zip(*((model.model.variables[v], model.model.states(v)) for v in scope), strict=True)
        return Joint(names, states, table.copy(), log_evidence)

    labels = Joints[Joint](model.model, tables, labelled)
    return Posteriors(model.model, result.posterior, model.plan.posterior_ptr, log_evidence, targets, known, labels)


def with_sets(model: DiscreteModel, targets: Sequence[int] | None, numbers: Sequence[int]) -> list[int] | None:
    """Targets of a backend that include some sets, once each, behind the variables."""
    if not numbers:
        return None if targets is None else [*targets]
    return [*(range(len(model)) if targets is None else targets), *dict.fromkeys(numbers)]


def posterior(model: CompiledModel, variable: str | int, resolved: ResolvedEvidence) -> Posterior:
    return posteriors(model, resolved, [model.model.index(variable)])[variable]


def posteriors_batch(
    model: CompiledModel, known: BatchEvidence, targets: list[int] | None, on_impossible: str,
    joints: Sequence[Scope] = (),
) -> CasePosteriors:  # fmt: skip
    sets = model.plan.sets
    numbers = [sets.number(scope, "joint posterior") for scope in joints]
    wanted = with_sets(model.model, targets, numbers)
    tables = model.intervened(known.intervened).backend.tables
    reasons: Mapping[int, str] = {}
    if known.soft:
        result, reasons = answer_cases(model.model, tables.run_batch, known, wanted)
    else:
        result = tables.run_batch(known.states, known.likelihood, wanted)
    if on_impossible == "error" and result.impossible.any():
        row = int(np.flatnonzero(result.impossible)[0])
        case = Evidence(known.states[row], {v: w[row] for v, w in known.likelihood.items()})
        raise ImpossibleEvidence(at_row(known.table, row, reasons.get(row) or model.impossible(case)))
    plain, arrays = sets.split(result.posterior, targets, joints)
    result = replace(result, posterior=plain)
    return CasePosteriors(model.model, result, targets, known.table, Joints(model.model, arrays))


def posteriors_on_device(
    model: CompiledModel, cases: Cases, likelihood: Mapping[Any, Any] | None, targets: list[int] | None,
    scopes: Sequence[Scope] = (),
) -> DevicePosteriors:  # fmt: skip
    backend = model.intervened().backend
    if backend.capabilities.device_number is None:
        raise BackendUnavailable(
            "answers stay on a device only with backend='gpu', on one GPU; this tree has "
            + (f"backend={model.backend!r}" if model.backend != "gpu" else "several GPUs, or slices")
        )
    sets = model.plan.sets
    numbers = [sets.number(scope, "joint posterior") for scope in scopes]
    for scope, v in zip(scopes, numbers, strict=True):
        if len(sets.scope(v)) > len(scope):
            raise EvidenceError(f"joints on a device are those of whole sets, such as ({sets.names(v)})")
    wanted = with_sets(model.model, targets, numbers)
    if is_on_device(cases):
        n = int(cast(Any, cases).shape[0])
        weights = read_weights(model.model, likelihood, n, sets)
        result = backend.run_device(cases, weights, wanted)
    else:
        known = read_known_cases(model.model, cases, likelihood, sets=sets)
        result = backend.run_device(known.states, known.likelihood, wanted)
    if not scopes:
        return DevicePosteriors(model.model, result, targets)
    at = sum(int(model.model.cardinality[v]) for v in (range(len(model.model)) if targets is None else targets))
    plain = DeviceResult(result.posterior.columns(0, at), result.log_evidence)
    tables = {}
    for v in dict.fromkeys(numbers):
        cells = result.posterior.columns(at, at + sets.size(v))
        tables[sets.scope(v)] = cells.folded([int(model.model.cardinality[u]) for u in sets.scope(v)])
        at += sets.size(v)
    labels = Joints[Any](model.model, tables, turn=lambda table, axes: table.transposed(axes))
    return DevicePosteriors(model.model, plain, targets, labels)


# Programs that are run for queries by a backward pass or by derivatives, cached with their numbers.
#
# The backend "reference" runs them in NumPy, the definition. All others use the CPU's compiled loops: a backward pass
# visits one small slice after the other, each of which depends on the one before, so a GPU finds no parallelism, and
# the run to the roots alone takes a fraction of a propagation.

T = TypeVar("T")

MOST_MESSAGES = 4  # sets of numbers: the model's own, and those of the last interventions
MOST_SWEEPS = 16  # programs that are cached for one set of numbers


class Messages:
    """The sweeps of one plan and one set of numbers, each made on first use. Thread-safe."""
    # factors: sequence of arrays: In the order of ``plan.factor_var``
    # backend: Name of the tree's backend
    # threads: Cores that a sweep may use

    def __init__(self, plan: Plan, factors: Sequence[Floats], backend: str, threads: int | None = None):
        self._plan, self.factors, self._backend, self._threads = plan, factors, backend, threads
        self._sweeps: LRU[Hashable, Sweep] = LRU(MOST_SWEEPS)

    def get(self, key: Hashable, program: Callable[[], Program]) -> Sweep:
        """The sweep of a program that is identified by `key`."""
        return self._sweeps.get_or_make(key, lambda: self._prepare(program()))

    def _prepare(self, program: Program) -> Sweep:
        if self._backend == "reference":
            return ReferenceSweep(program, self.factors)
        return CpuSweep(program, self.factors, self._threads)

    def maximal(self) -> Sweep:
        """From the factors to the roots by maximum."""
        return self.get("maximal", lambda: collect_program(self._plan, maximal=True))

    def summing(self) -> Sweep:
        """From the factors to the roots by sum."""
        return self.get("summing", lambda: collect_program(self._plan, maximal=False))

    def derivative(self) -> Sweep:
        """Derivatives by every entry of every factor."""
        return self.get("derivative", lambda: derivative_program(self._plan))


def messages_of(tree: CompiledModel, factors: Sequence[Floats]) -> Messages:
    """The sweeps for the numbers of a query: the model's, or those under interventions."""
    # the value holds the factors, so no other list has this id while the value is cached
    return tree.cached(
        "messages", id(factors), lambda: Messages(tree.plan.whole, factors, tree.backend, tree.threads), MOST_MESSAGES
    )


def named(tree: CompiledModel, case: Evidence, run: Callable[[], T]) -> T:
    """Call `run`; if it raises `ImpossibleEvidence`, the message names the evidence."""
    return cast(T, tree.answer(cast(Any, lambda *_: run()), case, None))
