"""`Evaluator`: expected utilities and their derivatives by policies, one propagation each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends.base import Evidence
from ..backends.table import Table
from ..errors import ImpossibleEvidence
from ..plans.compiler import order_graph, plan_tables
from ..plans.ordering.anneal import RULES, greedy_order
from ..plans.ordering.elimination import order_cost
from ..util.elementary import log
from .goal import TRUE, goal_network

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..backends.base import HeldCase, TableAnswer
    from ..inference.network_plan import NetworkPlan
    from ..model.decisions import DecisionNetwork
    from ..model.network import BayesianNetwork
    from .relevance import Information

    Floats = NDArray[np.float64]

SEARCHED = 1 << 20  # entries from which a good order repays the time of the search
VANISHING = 1e-140  # a product of the smallest entries of all tables, above which there is a number for each product
TIE = 1e-11  # relative difference of expected utilities that rounding explains
Policies = dict[int, "Floats"]  # decision -> (extents of its information, options), rows sum to 1


def greedy_plan_order(network: BayesianNetwork, together: Sequence[tuple[int, ...]]) -> tuple[list[int], int]:
    """An elimination order by one greedy rule, which takes a quarter of the time of a search, and its entries."""
    neighbours, cards = order_graph(network, together), network.cardinality.tolist()
    masks = [sum(1 << u for u in near if u != v) for v, near in enumerate(neighbours)]
    order = greedy_order(masks, [log(n) for n in cards], cards, RULES["min-weight"])
    return order, order_cost(cards, neighbours, order).entries


def scopes_of(*informations: Information) -> list[tuple[int, ...]]:
    """The sets that a plan keeps together: each decision with its information."""
    scopes = [(*sorted(known), d) for information in informations for d, known in information.items() if known]
    return list(dict.fromkeys(scopes))


class Evaluator:
    """A compiled goal network; policies are likelihoods over the information and the decision."""

    # others: Information of decisions that the plan allows, too; see `of`

    def __init__(
        self, net: DecisionNetwork, information: Information, options: Mapping[str, Any],
        others: Iterable[Information] = (),
    ):  # fmt: skip
        self.goal = goal_network(net, information)
        backend_options = dict(options)
        backend = backend_options.pop("backend", "cpu")
        threads = backend_options.pop("threads", None)
        together = scopes_of(information, *others)
        if "order" not in backend_options:
            order, entries = greedy_plan_order(self.goal.network, together)
            if entries <= SEARCHED:
                backend_options["order"] = order
        plan: NetworkPlan = self.goal.network.plan(together=together, **backend_options)
        factors = plan_tables(plan.plan, plan.model)
        more = {} if backend == "reference" or threads is None else {"threads": threads}
        self._backend = plan.prepare(backend, factors, replan=False, **more)
        self._sets = {frozenset(s): (plan.sets.first + i, s) for i, s in enumerate(plan.sets.scopes)}
        self._cell_ptr = self._backend.cell_ptr
        self._inform(net, information)

    def _inform(self, net: DecisionNetwork, information: Information) -> None:
        self.net, self.information = net, information
        self.scopes = {d: (*known, d) for d, known in information.items()}
        self.places = {d: self._place(d) for d in self.scopes}
        self._targets = [place.number for place in self.places.values()]  # always all: one program for every decision
        self._free = {d: np.ones(self.shape(d)) for d in self.scopes}
        self._uniform = {d: np.full(self.shape(d), 1.0 / self.shape(d)[-1]) for d in self.scopes}

    @cached_property
    def may_vanish(self) -> bool:
        """Whether a product of entries of the tables may be too small for a number."""
        return math.fsum(log(float(table[table > 0].min())) for table in self.net._cpts.values()) < log(VANISHING)

    def of(self, net: DecisionNetwork, information: Information) -> Evaluator:
        """The same plan and backend with other information, which is among `others`."""
        other = copy(self)
        other._inform(net, information)
        return other

    def _place(self, d: int) -> PolicyPlace:
        """Where a policy is among the weights of the backend."""
        scope = self.scopes[d]
        if len(scope) == 1:
            return PolicyPlace.of(d, scope, scope, self.shape(d))
        return PolicyPlace.of(*self._sets[frozenset(scope)], scope, self.shape(d))

    def shape(self, d: int) -> tuple[int, ...]:
        """Extents of a policy: those of the information, then the options."""
        return tuple(len(self.net.states(v)) for v in self.scopes[d])

    def uniform(self) -> Policies:
        """Every option with the same probability."""
        return dict(self._uniform)

    def random(self, rng: np.random.Generator) -> Policies:
        """A deterministic policy at random."""
        policies = {}
        for d in self.scopes:
            *rows, n = self.shape(d)
            policies[d] = np.eye(n)[rng.integers(0, n, rows)]
        return policies

    def evidence(
        self, policies: Policies, state: NDArray[np.int32] | None, goal: bool, likelihood: Mapping[int, Floats] | None
    ) -> Evidence:
        """The evidence of policies, of a case, and that the goal is reached."""
        full = np.full(len(self.goal.network), -1, np.int32)
        if state is not None:
            full[: len(state)] = state
        if goal:
            full[list(self.goal.nodes)] = TRUE
        weights: dict[int, Floats] = dict(likelihood or {})
        for d, table in policies.items():
            if full[d] < 0:  # a decision that is observed is fixed, whatever its policy
                number, cells = self.places[d].number, self.places[d].cells(table)
                weights[number] = weights[number] * cells if number in weights else cells
        return Evidence(full, weights)

    def hold(self, policies: Policies, state: NDArray[np.int32] | None, goal: bool) -> HeldCase:
        """The case of a state in the backend's memory; the policies are its weights."""
        return self._backend.hold_case(self.evidence(policies, state, goal, None), self._targets)

    def free(self, d: int) -> Floats:
        """Ones in place of a policy: all options with the same weight."""
        return self._free[d]

    def options(self, d: int, policies: Policies, states: NDArray[np.int32]) -> tuple[Floats, NDArray[np.bool_]]:
        """(B, options) expected utilities in a table of cases, and (B,) whether an option has probability 0 in one."""
        chances = []
        for goal in (False, True):
            result = self._cases(d, policies, states, goal)
            chances.append((result.posterior, np.where(result.impossible, -np.inf, result.log_evidence)))
        (base, log_base), (reached, log_reached) = chances
        impossible: NDArray[np.bool_] = np.asarray((base <= 0.0).any(axis=1))
        possible = ~impossible
        utilities = np.zeros(base.shape)
        scale = np.exp(log_reached[possible] - log_base[possible])[:, None]
        utilities[possible] = self.goal.utility(reached[possible] / base[possible] * scale)
        return utilities, impossible

    def _cases(self, d: int, policies: Policies, states: NDArray[np.int32], goal: bool) -> TableAnswer:
        """Posteriors of a decision in cases, if every option has the same weight."""
        n = len(states)
        places: dict[int, Floats] = {}
        for e, table in policies.items():
            if e != d:
                cells = np.tile(self.places[e].cells(table), (n, 1))
                cells[states[:, e] >= 0] = 1.0  # a decision that is observed is fixed, whatever its policy
                number = self.places[e].number
                places[number] = places[number] * cells if number in places else cells
        full = np.full((n, len(self.goal.network)), -1, np.int32)
        full[:, : states.shape[1]] = states
        if goal:
            full[:, list(self.goal.nodes)] = TRUE
        return self._backend.run(Table.of(full, places, [d]))

    def rows(
        self, d: int, policies: Policies, state: NDArray[np.int32] | None, rows: NDArray[np.bool_], goal: bool
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Of some configurations of a decision's information: P(option, goal | evidence), each row up to a factor; and
        whether each is possible."""
        chosen = np.argwhere(rows)
        states = np.full((len(chosen), len(self.net)), -1, np.int32)
        if state is not None:
            states[:] = state
        known = list(self.scopes[d][:-1])
        agree = ((states[:, known] < 0) | (states[:, known] == chosen)).all(axis=1)
        states[:, known] = chosen
        result = self._cases(d, policies, states, goal)
        possible = agree & ~result.impossible
        return np.where(possible[:, None], result.posterior, 0.0), possible

    def posterior(self, evidence: Evidence, targets: list[int]) -> tuple[list[Floats], float]:
        """Posteriors of targets, and ln P; zeros and -inf where the evidence is impossible."""
        try:
            result = self._backend.run_case(evidence, targets)
        except ImpossibleEvidence:
            return [np.zeros(int(self._cell_ptr[v + 1] - self._cell_ptr[v])) for v in targets], -math.inf
        cells = [result.posterior[self._cell_ptr[v] : self._cell_ptr[v + 1]] for v in targets]
        return cells, result.log_evidence

    def utility(self, log_reached: float) -> float:
        """Expected utility where the goal is reached with this ln P."""
        return float(self.goal.utility(math.exp(log_reached)))

    def close(self) -> None:
        """Free the backend's memory."""
        self._backend.close()


class PolicyPlace(NamedTuple):
    """Where the weights of a policy are."""

    number: int  # of the variable, or of the set of a decision and its information
    axes: tuple[int, ...]  # of a policy, in the order of the set
    inverse: tuple[int, ...]
    extents: tuple[int, ...]  # in the order of the set

    @classmethod
    def of(cls, number: int, own: tuple[int, ...], scope: tuple[int, ...], shape: tuple[int, ...]) -> PolicyPlace:
        """The place of a policy over `scope` in a set that has the same variables in another order."""
        axes = tuple(map(scope.index, own))
        return cls(number, axes, tuple(map(own.index, scope)), tuple(shape[i] for i in axes))

    def cells(self, policy: Floats) -> Floats:
        """The policy in the order of the set."""
        return policy.transpose(self.axes).ravel()

    def table(self, cells: Floats) -> Floats:
        """Cells of the set as a table over the information and the decision."""
        return cells.reshape(self.extents).transpose(self.inverse)
