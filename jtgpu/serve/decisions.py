"""Questions about decisions."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from msgspec import Meta

from ..decisions.tree import DecisionTree
from ..errors import ArgumentError
from .registry import MAX_NUMBERS, AnswerRates, Body, Codes, Form, Observed, Reply, Variable, question
from .trees import OF_DECISIONS

UPDATES = 10  # of a decision by single policy updating, about


class _Known(Body, kw_only=True):
    """The evidence."""

    evidence: Observed = None
    codes: Codes = None


class Option(TypedDict):
    """An option of a decision, in units of utility."""

    option: str
    expected_utility: float


class OptionsReply(Reply):
    """Options of a decision, best first."""

    decision: str
    options: list[Option]


@question(
    "/options", "options", OptionsReply, {"decision": "drill", "evidence": {"test": "yes", "seismic": "open"}},
    kinds=OF_DECISIONS,
)
class OptionsQuestion(_Known, kw_only=True):
    """The expected utility of each option of a decision, given what is known; later decisions are the best ones."""

    decision: Variable

    def reply(self, made: Any, tree: DecisionTree, form: Form) -> OptionsReply:
        options: list[Option] = [{"option": o, "expected_utility": value} for o, value in made.items()]
        return {"decision": made.decision, "options": options}

    def seconds(self, tree: DecisionTree, rates: AnswerRates) -> float:
        return 3 * rates.single


class ChoiceReply(TypedDict):
    """A configuration of a decision's parents, and the option to choose; null where no policy leads there."""

    known: dict[str, str]
    option: str | None


class PolicyReply(Reply):
    """The policy of the highest expected utility."""

    expected_utility: float
    utilities: dict[str, float]  # the expectation of each
    method: str
    policy: dict[str, list[ChoiceReply]]


@question("/policy", "policy", PolicyReply, {"evidence": {"test": "yes"}}, kinds=OF_DECISIONS)
class PolicyQuestion(_Known, kw_only=True):
    """The policy of the highest expected utility; evidence holds whatever is decided."""

    restarts: Annotated[int, Meta(ge=0, le=1000)] = 10

    def reply(self, made: Any, tree: DecisionTree, form: Form) -> PolicyReply:
        numbers = sum(table.size for table in made.values())
        if numbers > MAX_NUMBERS:
            raise ArgumentError(f"the policy has {numbers:,} numbers, more than {MAX_NUMBERS:,}")
        return {
            "expected_utility": made.expected_utility,
            "utilities": tree.utility(self.evidence, policy=made).by_node,
            "method": made.method,
            "policy": {d: [{"known": row, "option": option} for row, option in made.rows(d)] for d in made},
        }

    def seconds(self, tree: DecisionTree, rates: AnswerRates) -> float:
        return UPDATES * len(tree.network.decisions) * (self.restarts + 1) * rates.single


class Gain(TypedDict):
    """Rise of the expected utility if a variable is observed before the decision."""

    variable: str
    gain: float


class GainsReply(Reply):
    """Gains in units of utility, the largest first."""

    decision: str
    expected_utility: float
    gains: list[Gain]


@question("/decision-value", "value_of_information", GainsReply, {"decision": "test"}, kinds=OF_DECISIONS)
class DecisionValueQuestion(_Known, kw_only=True):
    """By how much the expected utility rises if a variable is observed before a decision."""

    decision: Variable
    candidates: list[Variable] | None = None

    def reply(self, made: Any, tree: DecisionTree, form: Form) -> GainsReply:
        gains: list[Gain] = [{"variable": v, "gain": gain} for v, gain in made.items()]
        return {"decision": made.decision, "expected_utility": made.expected_utility, "gains": gains}

    def seconds(self, tree: DecisionTree, rates: AnswerRates) -> float:
        n = len(tree.network) if self.candidates is None else len(self.candidates)
        return UPDATES * n * rates.single
