"""Questions about decisions, to networks that were made by `jtgpu.DecisionNetwork.with_policy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ..errors import ArgumentError
from ..inference.tree import JunctionTree
from ..model.decisions import PolicyNetwork
from ..util.arguments import whole_number
from .registry import MAX_NUMBERS, Body, Codes, Form, Observed, Rates, Reply, Variable, question

if TYPE_CHECKING:
    from ..decisions.tree import DecisionTree

MAX_RESTARTS = 1000
UPDATES = 10  # of a decision by single policy updating, about


def _decisions(tree: JunctionTree) -> DecisionTree:
    """The compiled decision network of a tree under a policy; compiled on first use."""
    net = tree.model
    if not isinstance(net, PolicyNetwork):
        raise ArgumentError("this network has no decisions")
    options = {} if tree.threads is None else {"threads": tree.threads}
    made: DecisionTree = tree.cached("decisions", 0, lambda: net.decision_network.compile("cpu", **options))
    return made


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
    {"decision": "drill", "evidence": {"test": "yes", "seismic": "open"}},
)
class Options(Body, kw_only=True):
    """The expected utility of each option of a decision, given what is known; later decisions are the best ones."""

    decision: Variable
    evidence: Observed | None = None
    codes: Codes | None = None

    def answer(self, tree: JunctionTree, form: Form) -> OptionsReply:
        ranked = _decisions(tree).options(self.decision, self.evidence)
        return {
            "decision": ranked.decision,
            "options": [{"option": o, "expected_utility": value} for o, value in ranked.items()],
        }

    def seconds(self, tree: JunctionTree, rates: Rates) -> float:
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


@question("/policy", PolicyReply, "The policy of the highest expected utility.", {"evidence": {"test": "yes"}})
class Policy(Body, kw_only=True):
    """The policy of the highest expected utility; evidence holds whatever is decided."""

    evidence: Observed | None = None
    codes: Codes | None = None
    restarts: int = 10

    def answer(self, tree: JunctionTree, form: Form) -> PolicyReply:
        decisions = _decisions(tree)
        restarts = whole_number("restarts", self.restarts, least=0, most=MAX_RESTARTS)
        best = decisions.policy(self.evidence, restarts=restarts)
        numbers = sum(table.size for table in best.values())
        if numbers > MAX_NUMBERS:
            raise ArgumentError(f"the policy has {numbers:,} numbers, more than {MAX_NUMBERS:,}")
        return {
            "expected_utility": best.expected_utility,
            "method": best.method,
            "policy": {d: [{"known": row, "option": option} for row, option in best.rows(d)] for d in best},
        }

    def seconds(self, tree: JunctionTree, rates: Rates) -> float:
        n = len(tree.model.decision_network.decisions) if isinstance(tree.model, PolicyNetwork) else 0
        return UPDATES * n * (max(self.restarts, 0) + 1) * rates.single


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
    {"decision": "test"},
)
class DecisionValue(Body, kw_only=True):
    """By how much the expected utility rises if a variable is observed before a decision."""

    decision: Variable
    candidates: list[Variable] | None = None
    evidence: Observed | None = None
    codes: Codes | None = None

    def answer(self, tree: JunctionTree, form: Form) -> GainsReply:
        model = tree.model
        names = None if self.candidates is None else [model.variables[model.index(v)] for v in self.candidates]
        decision = model.variables[model.index(self.decision)]
        value = _decisions(tree).value_of_information(decision, names, evidence=self.evidence)
        return {
            "decision": value.decision,
            "expected_utility": value.expected_utility,
            "gains": [{"variable": v, "gain": gain} for v, gain in value.items()],
        }

    def seconds(self, tree: JunctionTree, rates: Rates) -> float:
        n = len(tree.model) if self.candidates is None else len(self.candidates)
        return UPDATES * n * rates.single
