"""The bodies of questions: what a client may send, checked field by field while the JSON is parsed."""

from __future__ import annotations

from msgspec import Struct

# by name or number; a number with a fraction is a value where states are intervals
State = str | int | float | bool
Variable = str | int
Weights = list[float] | dict[str, float]  # in the order of the states, or by state


class Case(Struct, forbid_unknown_fields=True, kw_only=True):
    """The evidence of one case; variables are given by name."""

    # Variable to its state, or to a list of states one of which holds
    evidence: dict[str, State | list[State]] | None = None
    likelihood: dict[str, Weights] | None = None  # variable to weights P(observation | state) >= 0
    soft: dict[str, Weights] | None = None  # variable to the posterior that it must have
    # Variable to the state that it is set to, or to the probabilities with which it is set
    do: dict[str, State | Weights] | None = None


class Posteriors(Case, kw_only=True):
    """Posteriors of all variables or of some targets, of one case or of many."""

    targets: Variable | list[Variable] | None = None  # variable or list of variables: Default: all variables
    cases: list[Case] | None = None  # list of cases: Many cases in place of the evidence of one


class Mpe(Case, kw_only=True):
    """The k most probable configurations of all variables."""

    k: int = 1


class Map(Case, kw_only=True):
    """The k most probable configurations of some variables, all others summed out."""

    variables: Variable | list[Variable]
    k: int = 1


class Voi(Case, kw_only=True):
    """Variables ranked by the information that observing them gives about a target."""

    target: Variable
    candidates: list[Variable] | None = None
    most: int | None = None


class Mi(Case, kw_only=True):
    """Mutual information of a target and other variables."""

    target: Variable
    others: list[Variable] | None = None
    most: int | None = None


class Sensitivity(Case, kw_only=True):
    """Derivatives of P(target | evidence) with respect to the parameters of the network."""

    target: tuple[Variable, State]  # (variable, state)
    n: int = 10  # number of parameters in the answer
    spread: float = 0.1  # relative half width of the ranges of the tornado diagram


class Importance(Case, kw_only=True):
    """The effect of each finding on the posterior of a target; soft evidence is not supported."""

    target: Variable


class Conflict(Case, kw_only=True):
    """The conflict measure of the findings; soft evidence is not supported."""


class Joint(Case, kw_only=True):
    """The joint posterior of some variables."""

    variables: Variable | list[Variable]


class Sample(Case, kw_only=True):
    """Exact samples of all variables given the evidence; the same seed gives the same samples."""

    n: int = 1
    seed: int | None = None


class Ask(Struct, forbid_unknown_fields=True, kw_only=True):
    """A question as text, such as ``P(lung | xray=yes)``."""

    question: str


BODIES: dict[str, type[Struct]] = {
    "posteriors": Posteriors, "mpe": Mpe, "map": Map, "voi": Voi, "mi": Mi, "sensitivity": Sensitivity,
    "importance": Importance, "conflict": Conflict, "joint": Joint, "sample": Sample, "ask": Ask,
}  # fmt: skip
