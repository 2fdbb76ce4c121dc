"""Questions about causes: effects, and whether data can show them."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from msgspec import Meta

from ..errors import ArgumentError
from ..inference.tree import JunctionTree
from .registry import AnswerRates, Body, Codes, Form, Observed, Reply, Variable, distribution, question

WITH_CAUSES = ("bayesian", "decision")  # kinds of networks whose arcs may be causes
MOST_SETS = 20


class EffectReply(Reply):
    """P(outcome | do(cause)): a row for each state of the cause."""

    outcome: str
    of: str
    states: list[str]  # of the cause
    probabilities: list[Any]  # of the outcome, one list for each state of the cause
    difference: float | None  # null if cause or outcome has more than two states


@question(
    "/effect", "effect", EffectReply, {"outcome": "dysp", "of": "smoke", "evidence": {"xray": "yes"}},
    kinds=WITH_CAUSES,
)
class EffectQuestion(Body, kw_only=True):
    """The posterior of an outcome for each state that a cause is set to; evidence is what is seen afterwards."""

    outcome: Variable
    of: Variable
    evidence: Observed = None
    codes: Codes = None

    def arguments(self, tree: JunctionTree) -> dict[str, Any]:
        return {"outcome": self.outcome, "of": self.of, "given": self.evidence}

    def reply(self, made: Any, tree: JunctionTree, form: Form) -> EffectReply:
        table = made.table
        try:
            difference = made.difference()
        except ArgumentError:  # it has to be said of which states
            difference = None
        outcome = table.targets[0]
        return {
            "outcome": outcome, "of": table.given[0], "states": [*table.states[0]],
            "probabilities": distribution(tree.model, outcome, table.probabilities, form), "difference": difference,
        }  # fmt: skip

    def seconds(self, tree: JunctionTree, rates: AnswerRates) -> float:
        return rates.seconds(int(tree.model.cardinality[tree.model.index(self.of)]))


class IdentifyReply(Reply):
    """A formula of the effect, or the reason why there is none; sets to adjust for."""

    identified: bool
    method: str | None  # no effect, back-door, front-door or general
    formula: str | None
    latex: str | None
    uses: list[str]
    reason: str | None
    hedge: list[list[str]] | None
    adjustment_sets: list[list[str]]  # minimal ones, the first few
    best: list[str] | None  # the set of least variance, if one is known


@question(
    "/identify", "effect", IdentifyReply, {"outcome": "dysp", "do": "lung", "hidden": ["smoke"]}, kinds=WITH_CAUSES
)
class IdentifyQuestion(Body, kw_only=True):
    """Whether P(outcome | do(causes), given) follows from the distribution of the variables that are not hidden."""

    outcome: Variable | list[Variable]
    do: Variable | list[Variable]
    given: list[Variable] | None = None
    hidden: Annotated[list[Variable] | None, Meta(description="Variables that are not measured.")] = None

    def answer(self, tree: JunctionTree, form: Form) -> IdentifyReply:
        from ..causal import NotIdentified, graph  # few clients ask

        def names(given: Variable | list[Variable] | None) -> list[str]:
            listed = given if isinstance(given, list) else [] if given is None else [given]
            return [tree.model.variables[tree.model.index(v)] for v in listed]

        outcome, do = names(self.outcome), names(self.do)
        g = graph(tree.model, hidden=names(self.hidden))
        result: IdentifyReply = {
            "identified": True, "method": None, "formula": None, "latex": None, "uses": [], "reason": None,
            "hedge": None, "adjustment_sets": [], "best": None,
        }  # fmt: skip
        try:
            made = g.identify(outcome, do=do, given=names(self.given))
            result |= {"method": made.method, "formula": made.formula, "latex": made.latex, "uses": [*made.uses]}
        except NotIdentified as error:
            hedge = [sorted(part) for part in error.hedge or ()]
            result |= {"identified": False, "reason": str(error), "hedge": hedge}
        if not self.given:
            result["adjustment_sets"] = [*map(sorted, g.adjustment_sets(do, outcome, limit=MOST_SETS))]
            with suppress(NotIdentified):  # none is known
                result["best"] = sorted(g.best_adjustment_set(do, outcome))
        return result
