"""Posteriors of all variables or of some targets: of one case, and of a table of cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ...backends.base import DeviceAnswer, Evidence, Table
from ...backends.cpu.queries import CpuSweep
from ...backends.reference import ReferenceSweep
from ...backends.sweep import Sweep
from ...backends.wrappers.questions import QuestionBackend, QuestionSweep
from ...columns import at_row, is_on_device
from ...errors import BackendUnavailable, EvidenceError, ImpossibleEvidence, TableTooLarge, UnknownVariable, shown
from ...model.discrete import DiscreteModel
from ...plans.program import Program, collect_program, derivative_program
from ...util.arguments import choice, described, several
from ...util.arrays import Floats
from ...util.lru import LRU
from ..compiled import CompiledModel
from ..evidence import CaseEvidence, Cases
from ..evidence_table import naming_rows, read_known_cases, read_weights
from ..interventions import ResolvedEvidence, answer_cases
from ..results.marginals import CasePosteriors, Posteriors
from ..results.rankings import QuestionCost
from ..results.tables import DevicePosteriors, Joint
from ..sets import Joints, Scope, scopes_of
from .reduced import questions_of

if TYPE_CHECKING:
    from typing import Unpack

    from ...model.states import CodesByVariable
    from ...plans.plan import Plan
    from ...util.options import OnProblem
    from ..evidence import EvidenceOptions, Findings

# The variables of a query, by number.

def as_list(names: object, what: str) -> list[Any]:
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


def check_single(variable: object) -> None:
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
    result = model.answer(backend.run_case, resolved.case, with_sets(model.model, targets, numbers))
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


def question_cost(
    self: CompiledModel, evidence: Findings | None = None, *, targets: str | int | Iterable[str | int] | None = None,
    **more: Unpack[EvidenceOptions],
) -> QuestionCost:  # fmt: skip
    """Compute the cost of `posteriors` if the question is planned by itself, without running it.

    Variables that matter neither for the targets nor for P(evidence) are left out, and those that the findings fix,
    directly or by zeros in tables. A question that is too large is divided into parts, about some of its targets each;
    the cost is then that of all parts, and the memory that of the largest. Where no plan fits, the states are searched,
    and the next query of the question uses that search.

    Parameters
    ----------
    evidence, likelihood, soft, do : mapping, optional
        See `posteriors`.
    targets : str, int, or iterable of these, optional
        See `posteriors`.

    Returns
    -------
    QuestionCost

    Raises
    ------
    TableTooLarge
        If neither a plan nor a search fits; the message names what is left.
    ImpossibleEvidence
        If the evidence has probability zero by the zeros of single tables.
    """
    tree = self.for_sets(more.get("likelihood"))
    resolved, wanted = tree.resolve(evidence, **more), targets_of(tree.model, targets)
    questions = questions_of(tree, resolved.factors)
    parts = named(tree, resolved.case, lambda: questions.costs(resolved.case, wanted))
    costs = [cost for _, cost in parts if cost is not None]
    return QuestionCost(
        len(tree.model), max(n for n, _ in parts), sum(c.entries for c in costs),
        max((c.largest_table for c in costs), default=0), sum(c.flops for c in costs),
        max((c.bytes for c in costs), default=0),
    )  # fmt: skip


def posteriors_batch(  # noqa: PLR0913
    self: CompiledModel,
    cases: Cases,
    *,
    likelihood: Mapping[Any, object] | None = None,
    soft: Mapping[Any, object] | None = None,
    do: Mapping[Any, object] | None = None,
    targets: str | int | Iterable[str | int] | None = None,
    joints: Iterable[Sequence[str | int]] | None = None,
    on_error: OnProblem = "error",
    codes: CodesByVariable | None = None,
) -> CasePosteriors:
    """Compute posteriors of a table of B cases in one call.

    Parameters
    ----------
    cases : data frame, mapping, list of mappings, or array
        One row for each case, in any of these forms: a data frame of pandas, Polars, Arrow or another library that
        narwhals supports (needs ``jtgpu[frames]``); a mapping from variable to B states; a list of B mappings from
        variable to state; a (B, V) array with one column for each variable, in the order of the model, or a tensor
        of PyTorch, JAX or another library with DLPack, which is not copied if it is contiguous int32. Cells are
        names of states, or missing: None, NaN, null. A number in a cell is a name, too, or means the interval that
        contains it; in arrays it is the number of a state, and -1 means "not observed". Columns that are not variables
        are ignored, but a column whose name is almost that of a variable is an error.
    likelihood : mapping, optional
        Variable to weights >= 0: (B, n_states), or for all cases (n_states,) or a mapping from state to weight. A data
        frame or series that names the states may have them in another order. Several variables, a tuple: an array with
        an axis for each, or with B of these; the tree keeps them: ``net.compile(together=[("lung", "bronc")])``.
    soft : mapping, optional
        Soft evidence: variable to probabilities, (B, n_states) or (n_states,); a row of NaN: none in this case.
    do : mapping, optional
        Interventions: variable to a state, to B states, or to probabilities, (B, n_states) or (n_states,) of float.
    targets : str, int, or iterable of these, optional
        Variables whose posteriors are computed. Default: all.
    joints : list of tuples of str or int, optional
        Sets of variables that the tree keeps together, whose joint posteriors are computed, too:
        ``.joint["lung", "bronc"]`` has shape (B, states of lung, states of bronc).
    on_error : {"error", "flag"}, default "error"
        Whether a case of probability zero raises an error, or is marked in ``.impossible`` with a ``.log_evidence``
        of -inf and posteriors of zero. A case that is too large raises an error in any case: it is not impossible.
    codes : "names", "index" or mapping, optional
        What cells mean, such as ``{"xray": {1: "yes", 0: "no"}}``; see `jtgpu.DiscreteModel.with_codes`. Default: as
        the network says. It holds for states in `likelihood` and `do`, too.

    Returns
    -------
    CasePosteriors
        A mapping from variable name to a (B, n_states) array; ``to_frame()`` makes a data frame.

    Raises
    ------
    ImpossibleEvidence
        If a case has probability zero, unless ``on_error="flag"``; the message names the first such case.
    TableTooLarge
        If the question of a case is too large; ``error.row`` is its row. `predict_proba` flags such rows.
    UnknownVariable, UnknownState, EvidenceError
        See `posteriors`.
    """
    choice("on_error", on_error, ("error", "flag"))
    chosen = targets_of(self.model, targets)
    scopes = [] if joints is None else scopes_of(self.model, joints, "joints")
    device = self.intervened().backend.capabilities.device_number
    if soft is None and do is None and not scopes and is_on_device(cases) and device is not None:
        answer = posteriors_on_device(self, cases, likelihood=likelihood, targets=targets).to_host()
        if on_error == "error" and answer.impossible.any():
            row = int(np.argmax(answer.impossible))
            raise ImpossibleEvidence(f"row {row}: this case has probability 0")
        return answer
    known = read_known_cases(self.model.with_codes(codes), cases, likelihood, soft, do, self.plan.sets)
    sets = self.plan.sets
    wanted = with_sets(self.model, chosen, [sets.number(scope, "joint posterior") for scope in scopes])
    backend = self.intervened(known.intervened).backend
    reasons: Mapping[int, str] = {}
    if known.soft:
        result, reasons = answer_cases(self.model, backend, known, wanted)
    else:
        with naming_rows(known.table):
            result = backend.run(Table.of(known.states, known.likelihood, wanted))
    if on_error == "error" and result.impossible.any():
        row = int(np.flatnonzero(result.impossible)[0])
        case = Evidence(known.states[row], {v: w[row] for v, w in known.likelihood.items()})
        raise ImpossibleEvidence(at_row(known.table, row, reasons.get(row) or self.impossible(case)))
    plain, arrays = sets.split(result.posterior, chosen, scopes)
    result = result._replace(posterior=plain)
    return CasePosteriors(self.model, result, chosen, known.table, Joints(self.model, arrays))


def posteriors_on_device(
    self: CompiledModel, cases: Cases, *, likelihood: Mapping[Any, object] | None = None,
    targets: str | int | Iterable[str | int] | None = None,
    joints: Iterable[Sequence[str | int]] | None = None, codes: CodesByVariable | None = None,
) -> DevicePosteriors:  # fmt: skip
    """Compute posteriors of a table of B cases and leave them in the memory of the GPU, for PyTorch, JAX or CuPy.

    Parameters
    ----------
    cases, likelihood, targets, joints, codes
        See `posteriors_batch`. `cases` may also be a tensor on the tree's GPU: (B, V), contiguous, of int8, int16,
        int32 or int64, -1 means "not observed". It is read where it is, after the work of its producer.

    Returns
    -------
    DevicePosteriors
        A mapping from variable name to a (B, n_states) array that ``torch.from_dlpack`` takes without a copy. A
        case of probability zero has zeros, and a ``.log_evidence`` of -inf.

    Raises
    ------
    BackendUnavailable
        If the tree is not on one GPU.
    EvidenceError, UnknownState
        If the tensor is on another device, or has another shape or type, or a number that is no state.
    """
    backend, chosen = self.intervened().backend, targets_of(self.model, targets)
    scopes = [] if joints is None else scopes_of(self.model, joints, "joints")
    if backend.capabilities.device_number is None:
        raise BackendUnavailable(
            "answers stay on a device only with backend='gpu', on one GPU; this tree has "
            + (f"backend={self.backend!r}" if self.backend != "gpu" else "several GPUs, or slices")
        )
    sets = self.plan.sets
    numbers = [sets.number(scope, "joint posterior") for scope in scopes]
    for scope, v in zip(scopes, numbers, strict=True):
        if len(sets.scope(v)) > len(scope):
            raise EvidenceError(f"joints on a device are those of whole sets, such as ({sets.names(v)})")
    wanted = with_sets(self.model, chosen, numbers)
    if is_on_device(cases):
        n = int(cast(Any, cases).shape[0])
        weights = read_weights(self.model, likelihood, n, sets)
        result = backend.run(Table.on_device(cases, weights, wanted))
    else:
        known = read_known_cases(self.model.with_codes(codes), cases, likelihood, sets=sets)
        result = backend.run(Table.on_device(known.states, known.likelihood, wanted))
    if not scopes:
        return DevicePosteriors(self.model, result, chosen)
    at = sum(int(self.model.cardinality[v]) for v in (range(len(self.model)) if chosen is None else chosen))
    plain = DeviceAnswer(result.posterior.columns(0, at), result.log_evidence)
    tables = {}
    for v in dict.fromkeys(numbers):
        cells = result.posterior.columns(at, at + sets.size(v))
        tables[sets.scope(v)] = cells.folded([int(self.model.cardinality[u]) for u in sets.scope(v)])
        at += sets.size(v)
    labels = Joints[Any](self.model, tables, turn=lambda table, axes: table.transposed(axes))
    return DevicePosteriors(self.model, plain, chosen, labels)


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

    def __init__(
        self, plan: Plan | None, factors: Sequence[Floats], backend: str, threads: int | None = None,
        questions: QuestionBackend | None = None,
    ):  # fmt: skip
        self._plan, self.factors, self._backend, self._threads = plan, factors, backend, threads
        self._questions = questions
        self._sweeps: LRU[Hashable, Sweep] = LRU(MOST_SWEEPS)

    def get(self, key: Hashable, program: Callable[[], Program]) -> Sweep:
        """The sweep of a program that is identified by `key`."""
        return self._sweeps.get_or_make(key, lambda: self._prepare(program(), self.factors))

    def _prepare(self, program: Program, factors: Sequence[Floats]) -> Sweep:
        if self._backend == "reference":
            return ReferenceSweep(program, factors)
        return CpuSweep(program, factors, self._threads)

    def maximal(self) -> Sweep:
        """From the factors to the roots by maximum."""
        return self._collect(maximal=True)

    def summing(self) -> Sweep:
        """From the factors to the roots by sum."""
        return self._collect(maximal=False)

    def _collect(self, *, maximal: bool) -> Sweep:
        questions = self._questions
        if questions is not None:
            return self._sweeps.get_or_make(maximal, lambda: QuestionSweep(questions, maximal, self._prepare))
        return self.get(maximal, lambda: collect_program(cast("Plan", self._plan), maximal=maximal))

    def derivative(self) -> Sweep:
        """Derivatives by every entry of every factor."""
        if self._plan is None:
            raise TableTooLarge(
                "derivatives by every parameter need the whole tree, which does not fit; posteriors of "
                "tree.with_numbers(net.replace(cpt=...)) show the effect of a change, and expected_counts / cpt are "
                "the derivatives of ln P(evidence) by entries above 0"
            )
        plan = self._plan
        return self.get("derivative", lambda: derivative_program(plan))


def messages_of(tree: CompiledModel, factors: Sequence[Floats]) -> Messages:
    """The sweeps for the numbers of a query: the model's, or those under interventions."""
    def make() -> Messages:
        if tree.whole:
            return Messages(tree.plan.whole, factors, tree.backend, tree.threads)
        return Messages(None, factors, tree.backend, tree.threads, questions_of(tree, factors))

    # the value holds the factors, so no other list has this id while the value is cached
    return tree.cached("messages", id(factors), make, MOST_MESSAGES)


def named(tree: CompiledModel, case: Evidence, run: Callable[[], T]) -> T:
    """Call `run`; if it raises `ImpossibleEvidence`, the message names the evidence."""
    return cast(T, tree.answer(cast(Any, lambda *_: run()), case, None))
