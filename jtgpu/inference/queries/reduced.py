"""Questions that are planned by themselves: the backend that reduces them, and what is left of one as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from ...backends.wrappers.questions import QuestionBackend, QuestionLimits
from ...errors import ImpossibleEvidence, TableTooLarge
from ...model.discrete import Factor
from ...model.markov import MarkovNetwork
from ...plans.compiler import MAX_TABLE, MEMORY_SHARE, unplanned
from ...util.arrays import Floats
from ...util.system import free_memory
from ..network_plan import NetworkPlan

if TYPE_CHECKING:
    from ...backends.base import Evidence
    from ...plans.reduction import Reduction
    from ...util.options import BackendName
    from ..compiled import CompiledModel
    from ..interventions import ResolvedEvidence

MOST_REDUCED = 16  # trees of what is left that are cached


def questions_of(tree: CompiledModel, factors: Sequence[Floats]) -> QuestionBackend:
    """The backend that reduces questions, for the numbers of a query: the tree's own if it has these numbers."""
    own = tree.intervened()
    if not tree.whole and own.factors is factors:
        return cast(QuestionBackend, own.backend)
    return tree.cached("questions", id(factors), lambda: (factors, question_backend(tree, factors)))[1]


def question_backend(tree: CompiledModel, factors: Sequence[Floats], name: str = "") -> QuestionBackend:
    """A new backend that reduces questions."""
    # name: Of the backend that answers what is left. Default: the tree's
    shape = unplanned(tree.model, tree.plan.sets.scopes)
    limits = tree.plan.limits or QuestionLimits(int(MEMORY_SHARE * free_memory()), MAX_TABLE)
    from ...backends.make import make as backend

    return cast(QuestionBackend, backend(
        name or tree.backend, shape, factors, limits=limits._replace(names=tree.model.variables),
        **(tree.options if name in ("", tree.backend) else {}),
    ))  # fmt: skip


def reduction(
    tree: CompiledModel, questions: QuestionBackend, case: Evidence, targets: Sequence[int] | None
) -> Reduction:
    """The reduction for a question; an error for impossible evidence names the evidence."""
    try:
        return questions.reduce(case, targets)
    except ImpossibleEvidence:
        raise ImpossibleEvidence(tree.impossible(case)) from None


def searched(
    tree: CompiledModel, scope: Sequence[int], resolved: ResolvedEvidence, refusal: TableTooLarge
) -> tuple[Floats, float]:
    """The joint posterior of some variables by a search over states, and ln P(evidence), after a plan was refused."""
    try:
        return questions_of(tree, resolved.factors).joint(resolved.case, scope)
    except TableTooLarge as error:
        raise refusal.saying(f"{refusal.message}; {error.message}") from None
    except ImpossibleEvidence:
        raise ImpossibleEvidence(tree.impossible(resolved.case)) from None


class ReducedTree(NamedTuple):
    """A reduction for a question, and a tree of it."""

    left: Reduction
    tree: CompiledModel | None  # None: no variable is left
    scope: list[str]  # the variables of the question that are left


def reduced(tree: CompiledModel, scope: Sequence[int], resolved: ResolvedEvidence) -> ReducedTree:
    """The part of a model that a question about some variables needs."""
    questions = questions_of(tree, resolved.factors)
    left = reduction(tree, questions, resolved.case, scope)

    def make() -> tuple[Reduction, CompiledModel]:  # the value holds the reduction, so no other one has this id
        model = tree.model
        states = {model.variables[v]: [model.states(v)[s] for s in left.states(v).tolist()] for v in left.free.tolist()
            if v < len(model)}  # fmt: skip
        hidden = left.free[left.free >= len(model)].tolist()  # of noisy children
        states |= {f"{left.n_hidden} hidden, {v}": [*map(str, left.states(v).tolist())] for v in hidden}
        network = MarkovNetwork.of_checked(states, [Factor(*f) for f in zip(left.scopes, left.tables, strict=True)])
        plan = NetworkPlan(network, questions.plan_of(left))
        return left, type(tree)(plan, cast("BackendName", tree.backend), replan=False, **tree.options)

    names = [tree.model.variables[v] for v in scope if left.n_possible[v] > 1]
    if not len(left.free):
        return ReducedTree(left, None, names)
    return ReducedTree(left, tree.cached("reduced", id(left), make, MOST_REDUCED)[1], names)
