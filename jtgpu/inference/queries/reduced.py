"""Questions that are planned by themselves: the backend that reduces them, what is left as a tree, and their cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ...backends.wrappers.questions import Limits, QuestionBackend
from ...errors import ImpossibleEvidence
from ...model.discrete import Factor
from ...model.markov import MarkovNetwork
from ...plans.compiler import MAX_TABLE, MEMORY_SHARE, unplanned
from ...util.arrays import Floats
from ...util.system import free_memory
from ..network_plan import NetworkPlan
from ..results.rankings import QuestionCost

if TYPE_CHECKING:
    from typing import Unpack

    from ...backends.base import Evidence
    from ...plans.reduction import Reduction
    from ...util.options import BackendName
    from ..compiled import CompiledModel
    from ..evidence import EvidenceOptions, Findings
    from ..interventions import ResolvedEvidence

MOST_REDUCED = 16  # trees of what is left that are cached


def questions_of(tree: CompiledModel, factors: Sequence[Floats]) -> QuestionBackend:
    """The backend that reduces questions, for the numbers of a query: the tree's own if it has these numbers."""
    own = tree.intervened()
    if isinstance(own.backend, QuestionBackend) and own.factors is factors:
        return own.backend

    def make() -> tuple[Any, QuestionBackend]:
        shape = unplanned(tree.model, tree.plan.sets.scopes)
        limits = getattr(tree.plan, "limits", None) or Limits(int(MEMORY_SHARE * free_memory()), MAX_TABLE)
        from ...backends.make import make as backend

        return factors, cast(QuestionBackend, backend(
            tree.backend, shape, factors, limits=limits._replace(names=tree.model.variables), **tree.options
        ))  # fmt: skip

    return tree.cached("questions", id(factors), make)[1]


def _left(
    tree: CompiledModel, questions: QuestionBackend, case: Evidence, targets: Sequence[int] | None
) -> Reduction:
    """What is left of a question; an error for impossible evidence names the evidence."""
    try:
        return questions.reduce(case, targets)
    except ImpossibleEvidence:
        raise ImpossibleEvidence(tree.impossible(case)) from None


class Reduced(NamedTuple):
    """What is left of a question, as a tree."""

    left: Reduction
    tree: CompiledModel | None  # None: no variable is left
    scope: list[str]  # the variables of the question that are left


def reduced(tree: CompiledModel, scope: Sequence[int], resolved: ResolvedEvidence) -> Reduced:
    """The part of a model that a question about some variables needs."""
    questions = questions_of(tree, resolved.factors)
    left = _left(tree, questions, resolved.case, scope)

    def make() -> tuple[Reduction, CompiledModel]:  # the value holds the reduction, so no other one has this id
        model = tree.model
        states = {model.variables[v]: [model.states(v)[s] for s in left.states(v).tolist()] for v in left.free.tolist()}
        network = MarkovNetwork.of_checked(states, [Factor(*f) for f in zip(left.scopes, left.tables, strict=True)])
        plan = NetworkPlan(network, questions.plan_of(left))
        return left, type(tree)(plan, cast("BackendName", tree.backend), replan=False, **tree.options)

    names = [tree.model.variables[v] for v in scope if left.n_possible[v] > 1]
    if not len(left.free):
        return Reduced(left, None, names)
    return Reduced(left, tree.cached("reduced", id(left), make, MOST_REDUCED)[1], names)


def question_cost(
    self: CompiledModel, evidence: Findings | None = None, *, targets: str | int | Iterable[str | int] | None = None,
    **more: Unpack[EvidenceOptions],
) -> QuestionCost:  # fmt: skip
    """Compute the cost of `posteriors` if the question is planned by itself, without running it.

    Variables that matter neither for the targets nor for P(evidence) are left out, and those that the findings fix,
    directly or by zeros in tables.

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
        If the question does not fit; the message names what is left.
    ImpossibleEvidence
        If the evidence has probability zero by the zeros of single tables.
    """
    from .posteriors import targets_of

    tree = self.for_sets(more.get("likelihood"))
    resolved, wanted = tree.resolve(evidence, **more), targets_of(tree.model, targets)
    questions = questions_of(tree, resolved.factors)
    left = _left(tree, questions, resolved.case, wanted)
    n = len(tree.model)
    if not len(left.free):
        return QuestionCost(n, 0, 0, 0, 0, 0)
    cost = questions.plan_of(left).cost()
    return QuestionCost(n, len(left.free), cost.entries, cost.largest_table, cost.flops, cost.bytes)
