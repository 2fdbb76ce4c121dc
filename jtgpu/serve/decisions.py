"""Questions about decisions."""

from __future__ import annotations

from typing import Annotated, TypedDict

from msgspec import Meta

from ..decisions.tree import DecisionTree
from ..errors import ArgumentError
from .registry import MAX_NUMBERS, Body, Codes, Form, Observed, Rates, Reply, Variable, question

UPDATES = 10  # of a decision by single policy updating, about


class Option(TypedDict):
    """An option of a decision, in units of utility."""

    option: str
    expected_utility: float


class OptionsReply(Reply):
    """Options of a decision, best first."""

    decision: str
    options: list[Option]


@question(
    "/options",
    OptionsReply,
    "The expected utility of each option of a decision.",
    {"decision": "drill", "evidence": {"test": "yes", "seismic": "open"}}, of=(DecisionTree,),
)
class Options(Body, kw_only=True):
    """The expected utility of each option of a decision, given what is known; later decisions are the best ones."""

    decision: Variable
    evidence: Observed | None = None
    codes: Codes | None = None

    def answer(self, tree: DecisionTree, form: Form) -> OptionsReply:
        ranked = tree.options(self.decision, self.evidence)
        return {
            "decision": ranked.decision,
            "options": [{"option": o, "expected_utility": value} for o, value in ranked.items()],
        }

    def seconds(self, tree: DecisionTree, rates: Rates) -> float:
        return 3 * rates.single


class Choice(TypedDict):
    """A configuration of a decision's parents, and the option to choose; null where no policy leads there."""

    known: dict[str, str]
    option: str | None


class PolicyReply(Reply):
    """The policy of the highest expected utility."""

    expected_utility: float
    method: str
    policy: dict[str, list[Choice]]


@question(
    "/policy", PolicyReply, "The policy of the highest expected utility.", {"evidence": {"test": "yes"}},
    of=(DecisionTree,),
)
class Policy(Body, kw_only=True):
    """The policy of the highest expected utility; evidence holds whatever is decided."""

    evidence: Observed | None = None
    codes: Codes | None = None
    restarts: Annotated[int, Meta(ge=0, le=1000)] = 10

    def answer(self, tree: DecisionTree, form: Form) -> PolicyReply:
        best = tree.policy(self.evidence, restarts=self.restarts)
        numbers = sum(table.size for table in best.values())
        if numbers > MAX_NUMBERS:
            raise ArgumentError(f"the policy has {numbers:,} numbers, more than {MAX_NUMBERS:,}")
        return {
            "expected_utility": best.expected_utility,
            "method": best.method,
            "policy": {d: [{"known": row, "option": option} for row, option in best.rows(d)] for d in best},
        }

    def seconds(self, tree: DecisionTree, rates: Rates) -> float:
        n = len(tree.network.decisions)
        return UPDATES * n * (self.restarts + 1) * rates.single


class Gain(TypedDict):
    """Rise of the expected utility if a variable is observed before the decision."""

    variable: str
    gain: float


class GainsReply(Reply):
    """Gains in units of utility, the largest first."""

    decision: str
    expected_utility: float
    gains: list[Gain]


@question(
    "/decision-value",
    GainsReply,
    "The value of observing variables before a decision, in units of utility.",
    {"decision": "test"}, of=(DecisionTree,),
)
class DecisionValue(Body, kw_only=True):
    """By how much the expected utility rises if a variable is observed before a decision."""

    decision: Variable
    candidates: list[Variable] | None = None
    evidence: Observed | None = None
    codes: Codes | None = None

    def answer(self, tree: DecisionTree, form: Form) -> GainsReply:
        model = tree.network
        names = None if self.candidates is None else [model.variables[model.index(v)] for v in self.candidates]
        decision = model.variables[model.index(self.decision)]
        value = tree.value_of_information(decision, names, evidence=self.evidence)
        return {
            "decision": value.decision,
            "expected_utility": value.expected_utility,
            "gains": [{"variable": v, "gain": gain} for v, gain in value.items()],
        }

    def seconds(self, tree: DecisionTree, rates: Rates) -> float:
        n = len(tree.network) if self.candidates is None else len(self.candidates)
        return UPDATES * n * rates.single
