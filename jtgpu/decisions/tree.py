"""`DecisionTree`: queries of decision networks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..columns import at_row, read_states
from ..errors import ArgumentError, EvidenceError, ImpossibleEvidence
from ..inference.compiled_network import Closing, CompiledNetwork
from ..inference.evidence import one_case, read_findings
from ..inference.planning import plan_options
from ..inference.queries.posteriors import as_list
from ..inference.session import CaseSession, ask_case
from ..model.cpt import Axis, Cpt
from ..model.decisions import DecisionNetwork
from ..model.states import StateNumber
from ..plans.compiler import MAX_TABLE
from ..util.arguments import check_keywords, choice, number, unknown_keyword, whole_number
from ..util.lru import LRU
from .evaluate import Evaluator, greedy_plan_order, scopes_of
from .relevance import requisite_information
from .results import Options, Policy, ValueOfInformation
from .solve import PolicySolver, Solution, check_network
from .utility import Utility

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..backends.base import Evidence
    from ..inference.evidence import Cases, Findings
    from ..inference.results.case_states import Explanation, Samples
    from ..inference.results.contributions import Contributions
    from ..inference.results.marginals import Posterior, Posteriors
    from ..inference.results.tables import Conditional, Joint
    from ..inference.tree import JunctionTree
    from ..model.states import CodesByVariable
    from .evaluate import Policies
    from .relevance import Information

MOST_SOLUTIONS = 64  # policies that are remembered, one for each evidence
SMALL = 1 << 14  # entries of a plan that is always shared
MOST_TIMES = 4  # how many times the entries of the plan without candidates a larger one may have


@check_keywords()
class DecisionTree(CompiledNetwork[DecisionNetwork]):
    """A compiled decision network; created by ``net.compile()``.

    Parameters
    ----------
    net : DecisionNetwork
    backend, options
        See `DecisionNetwork.compile`.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.DecisionNetwork(
    ...     {"ill": ["yes", "no"], "test": ["positive", "negative"], "treat": ["yes", "no"]},
    ...     {"test": ["ill"], "treat": ["test"], "health": ["ill", "treat"]},
    ...     {"ill": [0.1, 0.9], "test": [[0.9, 0.1], [0.2, 0.8]]},
    ...     decisions=["treat"], utilities={"health": [[80, 20], [90, 100]]},
    ... )
    >>> tree = net.compile()
    >>> best = tree.policy()
    >>> round(best.expected_utility, 2), tree.options("treat", {"test": "positive"}).best
    (95.6, 'yes')
    """

    def __init__(self, net: DecisionNetwork, backend: str = "cpu", **options: Any):
        _check_options(options)
        super().__init__(net, backend, options)
        check_network(net, options.get("max_table", MAX_TABLE))
        self._solver = PolicySolver(net, self._arguments)
        self._solutions: LRU[Any, Solution] = LRU(MOST_SOLUTIONS)
        self._trees: LRU[Any, tuple[Any, JunctionTree]] = LRU(4)  # of networks with a policy

    def _parts(self) -> Iterable[Closing]:
        return [self._solver.evaluator, *(tree for _, tree in self._trees.values())]

    # Policies -------------------------------------------------------------------------------------------------

    def policy(
        self, evidence: Findings | None = None, *, method: str = "auto", restarts: int = 10, seed: int = 0
    ) -> Policy:
        """Compute the policy of the highest expected utility.

        Parameters
        ----------
        evidence : mapping, optional
            Findings that hold whatever is decided, such as one of several states; a decision among them is fixed.
        method : {"auto", "branch"}
            ``"auto"``: exact where decisions can be solved one after the other (Koller and Milch 2003), otherwise
            single policy updating (Lauritzen and Nilsson 2001), which may end in a local optimum. ``"branch"`` proves
            the optimum of small networks.
        restarts : int
            Random policies from which single policy updating starts, besides the uniform one.
        seed : int

        Returns
        -------
        Policy

        Raises
        ------
        ImpossibleEvidence
            If the evidence has probability zero.
        TableTooLarge
            If a policy depends on too many configurations.
        """
        case = self._case(evidence)
        choice("method", method, ("auto", "branch"))
        if case.likelihood:
            with self._weighed(case) as tree:
                return tree.policy(_seen(case, tree.network), method=method, restarts=restarts, seed=seed)
        solution = self._solved(case, method, whole_number("restarts", restarts, 0), whole_number("seed", seed, 0))
        return named_policy(self._net, self._solver.information, solution)

    def _weighed(self, case: Evidence) -> DecisionTree:
        """The tree of a network in which likelihoods are rows of new variables, whose first states are observed."""
        net: DecisionNetwork = self._net
        for v, weights in case.likelihood.items():
            name, p = net.variables[v], weights / weights.max()
            if name in net.decisions:
                raise EvidenceError(f"the decision {name!r} is fixed at one option, or left out; got several")
            net = net.add(f"finding of {name}", ["yes", "no"], [name], np.stack([p, 1.0 - p], axis=-1))
        return DecisionTree(net, **{k: x for k, x in self._arguments.items() if k != "order"})

    def _solved(self, case: Evidence, method: str = "auto", restarts: int = 10, seed: int = 0) -> Solution:
        key = case.state.tobytes(), method, restarts, seed
        return self._solutions.get_or_make(
            key, lambda: self._solver.solve(case.state, method=method, restarts=restarts, seed=seed)
        )

    def options(self, decision: str | int, evidence: Findings | None = None, *, policy: object = None) -> Options:
        """Compute the expected utility of each option of a decision given the evidence.

        Parameters
        ----------
        decision : str
        evidence : mapping, optional
            What is known when deciding.
        policy : Policy, mapping or "uniform", optional
            Of the other decisions. Default: `policy`, which later decisions follow.

        Returns
        -------
        Options
        """
        d = self._decision(decision)
        case = self._case(evidence)
        if case.state[d] >= 0:
            raise EvidenceError(f"the decision {self._net.variables[d]!r} is in the evidence; leave it out")
        return Options(self._net.variables[d], self._net.states(d), self._option_utilities(d, case, policy))

    def options_batch(
        self, decision: str | int, cases: Cases, *, policy: object = None, codes: CodesByVariable | None = None
    ) -> NDArray[np.float64]:
        """Compute the expected utility of each option of a decision in every case of a table.

        Parameters
        ----------
        decision : str
        cases : data frame, mapping, list of mappings, or array
            What is known when deciding, a row for each case; see `jtgpu.JunctionTree.posteriors_batch`.
        policy : Policy, mapping or "uniform", optional
            Of the other decisions; see `options`.
        codes : optional
            What cells mean; see `jtgpu.JunctionTree.posteriors_batch`.

        Returns
        -------
        (B, n_options) ndarray of float64
            In the order of the decision's options.
        """
        d = self._decision(decision)
        states, table = read_states(self._net.with_codes(codes), cases)
        if (states[:, d] >= 0).any():
            row, name = int(np.argmax(states[:, d] >= 0)), self._net.variables[d]
            raise EvidenceError(at_row(table, row, f"the decision {name!r} is in the evidence; leave it out"))
        policies = self._policies_of(policy, None)
        utilities, impossible = self._solver.evaluator.options(d, policies, states)
        if impossible.any():
            row = int(np.argmax(impossible))
            raise ImpossibleEvidence(at_row(table, row, "with some option, this case has probability 0"))
        return utilities

    def _option_utilities(self, d: int, case: Evidence, policy: object) -> NDArray[np.float64]:
        evaluator = self._solver.evaluator
        policies = self._policies_of(policy, None)
        n = len(self._net.states(d))
        if not evaluator.goal.nodes:
            return np.full(n, evaluator.goal.offset)
        free = {**policies, d: evaluator.free(d)}
        logs = []
        for goal in (False, True):
            [cells], log_p = evaluator.posterior(evaluator.evidence(free, case.state, goal, case.likelihood), [d])
            if not goal and log_p == -math.inf:
                raise ImpossibleEvidence("the evidence has probability 0 under the policy of the other decisions")
            with np.errstate(divide="ignore"):
                logs.append(np.log(cells) + log_p)
        utilities = np.full(n, np.nan)
        possible = logs[0] > -np.inf
        ratio = np.exp(logs[1][possible] - logs[0][possible])
        utilities[possible] = evaluator.goal.utility(ratio)
        if not possible.all():
            option = self._net.states(d)[int(np.argmin(possible))]
            raise ImpossibleEvidence(f"the evidence has probability 0 with {self._net.variables[d]}={option}")
        return utilities

    def _policies_of(self, policy: object, case: Evidence | None) -> Policies:
        """Policies by number over requisite information."""
        if policy is None:
            return self._solved(case or self._case(None)).policies
        return policies_by_number(self._net, self._solver.evaluator, policy)

    # Queries under a policy -----------------------------------------------------------------------------------

    def posteriors(
        self, evidence: Findings | None = None, *, policy: object = None, targets: str | Iterable[str] | None = None
    ) -> Posteriors:
        """Compute posteriors of chance variables and decisions under a policy (default: the best one).

        A decision among the evidence is fixed, whatever its policy.
        """
        return self.under(policy).posteriors(**self._fixed(evidence), targets=targets)

    def posterior(
        self, variable: str | int, evidence: Findings | None = None, *, policy: object = None
    ) -> Posterior:
        """Compute the posterior of one chance variable or decision under a policy; see `posteriors`."""
        name = self._net.variables[self._net.index(variable)]
        return self.posteriors(evidence, policy=policy, targets=[name])[name]

    def joint(
        self, variables: Iterable[str | int], evidence: Findings | None = None, *, policy: object = None
    ) -> Joint:
        """Compute the joint posterior of some variables under a policy; see `posteriors`."""
        return self.under(policy).joint(variables, **self._fixed(evidence))

    def conditional(
        self, variables: str | int | Iterable[str | int], given: Iterable[str | int], evidence: Findings | None = None,
        *, policy: object = None,
    ) -> Conditional:  # fmt: skip
        """Compute P(variables | given, evidence) under a policy; see `posteriors`."""
        return self.under(policy).conditional(variables, given, **self._fixed(evidence))

    def mpe(self, evidence: Findings | None = None, *, k: int = 1, policy: object = None) -> Explanation:
        """Find the k most probable configurations under a policy; see `posteriors`."""
        return self.under(policy).mpe(k=k, **self._fixed(evidence))

    def sample(
        self, n: int, evidence: Findings | None = None, *, seed: object = None, numbers: bool = False,
        policy: object = None,
    ) -> Samples:
        """Draw samples under a policy; see `posteriors` and `jtgpu.JunctionTree.sample`."""
        return self.under(policy).sample(n, seed=seed, numbers=numbers, **self._fixed(evidence))

    def log_evidence(self, evidence: Findings | None = None, *, policy: object = None) -> float:
        """Compute ln P(evidence) under a policy (default: the best one); decisions among the evidence are fixed."""
        fixed = self._fixed(evidence)
        return self.under(policy).log_evidence(**fixed)

    def session(self, evidence: Findings | None = None) -> CaseSession:
        """Start a sequence of queries under the best policy with changing evidence; see `JunctionTree.session`."""
        return CaseSession(self, ("evidence",), evidence)

    def ask(self, question: str) -> Any:
        """Answer a question under the best policy given as text, such as ``"P(ill | test=yes)"``.

        See `jtgpu.JunctionTree.ask`; `policy`, `options` and `utility` have what is about utilities.
        """
        return ask_case(self, question)

    def _with_chance(self, evidence: Findings | None = None) -> tuple[JunctionTree, dict[str, Any]]:
        """A tree in which decisions have probabilities, and the keywords of the evidence."""
        return self.under(), self._fixed(evidence)

    def reload(self, net: DecisionNetwork) -> None:
        """Replace the CPTs and utilities by those of a network of the same structure.

        Raises
        ------
        PlanError
            If the network has other variables, states, decisions, utilities or arcs.
        """
        self._check_structure(net, self._net.has_structure_of(net))
        for part in self._parts():
            part.close()
        type(self).__init__(self, net, **self._arguments)

    def under(self, policy: object = None) -> JunctionTree:
        """The compiled network in which decisions follow a policy (default: the best one); see `with_policy`."""
        self._check_open()
        key = policy if policy is None or isinstance(policy, str) else id(policy)
        # the value holds the policy, so no other one has this id while the value is cached
        return self._trees.get_or_make((key,), lambda: (policy, self._compiled(policy)))[1]

    def _compiled(self, policy: Any) -> JunctionTree:
        chosen = self.policy() if policy is None else policy
        if isinstance(chosen, str):
            given = Solution(self._policies_of(chosen, None), math.nan, "given", {}, {})
            chosen = named_policy(self._net, self._solver.information, given)
        options = {k: v for k, v in self._arguments.items() if k != "backend"}
        return self._net.with_policy(chosen).compile(self._arguments["backend"], **options)

    def utility(self, evidence: Findings | None = None, *, policy: object = None) -> Utility:
        """The total utility under a policy: mean, distribution, and its parts."""
        fixed = self._fixed(evidence)
        return Utility(self._net, self.under(policy), fixed)

    def _fixed(self, evidence: Findings | None) -> dict[str, Any]:
        """The evidence as keywords; decisions are set, so that their policies do not matter."""
        net, state = self._net, self._case(evidence).state
        given: Any = {} if evidence is None else one_case(net, evidence)
        decisions = {v: state[net.index(v)] for v in given if net.variables[net.index(v)] in net.decisions}
        set_to = {v: StateNumber(s) for v, s in decisions.items() if s >= 0}
        known = {"evidence": {v: s for v, s in given.items() if v not in set_to}, "do": set_to or None}
        weights = getattr(given, "likelihood", None)  # of an evidence file
        return known | ({"likelihood": weights} if weights else {})

    def contributions(
        self, target: str | int | None = None, evidence: Findings | None = None, *, policy: object = None, **more: Any
    ) -> Contributions:
        """Compute what each finding contributes under a policy (default: the best one), with decisions fixed.

        Parameters
        ----------
        target, evidence
            See `jtgpu.JunctionTree.contributions`. A decision among the evidence is fixed in every subset.
        policy : Policy, mapping or "uniform", optional
        **more
            Options of `jtgpu.JunctionTree.contributions`.

        Returns
        -------
        Contributions
        """
        if "do" in more:
            raise ArgumentError("decisions in the evidence are fixed; under(policy).contributions() takes do=")
        return self.under(policy).contributions(target, **self._fixed(evidence), **more)

    # Value of information -------------------------------------------------------------------------------------

    def value_of_information(
        self, decision: str, candidates: str | Iterable[str] | None = None, *,
        cost: Mapping[str, float] | None = None, evidence: Findings | None = None,
    ) -> ValueOfInformation:  # fmt: skip
        """Compute by how much the expected utility rises if a variable is observed before a decision.

        Parameters
        ----------
        decision : str
        candidates : str or iterable of str, optional
            Default: all variables that do not descend from the decision and are not known there.
        cost : mapping, optional
            Variable to what its observation costs, in units of utility.
        evidence : mapping, optional
            Findings that hold already.

        Raises
        ------
        EvidenceError
            If a candidate descends from the decision, so that it cannot be observed before.
        """
        net = self._net
        d = self._decision(decision)
        case = self._case(evidence)
        below = set(net.descendants(d))
        known = {net.variables[d], *net.parents(net.variables[d])}
        known |= {net.variables[v] for v in np.flatnonzero(case.state >= 0).tolist()}
        if candidates is None:
            names = [v for v in net.variables if v not in below and v not in known and v not in net.decisions]
        else:
            names = [net.variables[net.index(v)] for v in as_list(candidates, "candidates")]
        for v in names:
            if v in below:
                raise EvidenceError(
                    f"{v!r} depends on the decision {net.variables[d]!r} and cannot be observed before it"
                )
        prices = {net.variables[net.index(v)]: number("cost", c) for v, c in (cost or {}).items()}
        if case.likelihood:
            with self._weighed(case) as tree:
                return tree.value_of_information(decision, names, cost=cost, evidence=_seen(case, tree.network))
        solution = self._solved(case)
        base = solution.expected_utility
        unknown = [v for v in names if v not in known]
        values = informed_utilities(self._solver, self._arguments, d, unknown, case.state, solution.policies)
        rounded = self._solver.evaluator.goal.rounded
        gains = {v: float(rounded(values.get(v, base) - base - prices.get(v, 0.0))) for v in names}
        return ValueOfInformation(net.variables[d], base, gains)

    # Helpers --------------------------------------------------------------------------------------------------

    def _decision(self, name: str | int) -> int:
        self._check_open()
        return decision_number(self._net, name)

    def _case(self, evidence: Findings | None) -> Evidence:
        self._check_open()
        if isinstance(evidence, Mapping):
            for v in evidence:
                if v in self._net.utilities:
                    raise EvidenceError(f"{v!r} is a utility, which cannot be observed")
        return read_findings(self._net, evidence)


def _seen(case: Evidence, net: DecisionNetwork) -> dict[str, StateNumber]:
    """The evidence of a network that `_weighed` made."""
    states = [*case.state.tolist(), *[0] * len(case.likelihood)]
    return {v: StateNumber(s) for v, s in zip(net.variables, states, strict=True) if s >= 0}


def _check_options(options: Mapping[str, object]) -> None:
    """Raise `ArgumentError` for an option that decisions do not have."""
    known = {"order", "threads", *plan_options()} - {"backend", "devices", "progress", "slices", "together"}
    for name in options:
        if name not in known:
            raise unknown_keyword("compile", name, known)


def informed_utilities(
    solver: PolicySolver, options: Mapping[str, object], d: int, candidates: Sequence[str], state: NDArray[np.int32],
    policies: Policies,
) -> dict[str, float]:  # fmt: skip
    """The highest expected utility where decision d knows a candidate, too; lacks candidates that change nothing."""
    # policies: Without a candidate
    net, name = solver.net, solver.net.variables[d]
    informed = {v: net.with_information({name: (*net.parents(name), v)}) for v in candidates}
    known = {v: requisite_information(other) for v, other in informed.items()}
    wanted = [v for v in candidates if known[v] != solver.information]
    network = solver.evaluator.goal.network
    shared = None
    if len(wanted) > 1 and "order" not in options:
        entries = greedy_plan_order(network, scopes_of(solver.information, *(known[v] for v in wanted)))[1]
        if entries <= SMALL or entries <= MOST_TIMES * greedy_plan_order(network, scopes_of(solver.information))[1]:
            shared = Evaluator(net, solver.information, options, [known[v] for v in wanted])
    values = {}
    for v in wanted:
        other = PolicySolver(informed[v], options, shared)
        start = _with_more_information(policies, solver.evaluator, other.evaluator)
        values[v] = other.solve(state, start=start).expected_utility
    return values


def _with_more_information(policies: Policies, evaluator: Evaluator, other: Evaluator) -> Policies | None:
    """The same policies where decisions know more; None if one of them depends on what is no longer requisite."""
    made = {}
    for d, table in policies.items():
        own, scope, shape = evaluator.scopes[d], other.scopes[d], other.shape(d)
        if not set(own) <= set(scope):
            return None
        table = table.transpose([own.index(v) for v in scope if v in own])
        table = table.reshape([n if v in own else 1 for v, n in zip(scope, shape, strict=True)])
        made[d] = np.broadcast_to(table, shape).copy()
    return made


def decision_number(net: DecisionNetwork, name: str | int) -> int:
    """The number of a decision."""
    d = net.index(name)
    if net.variables[d] not in net.decisions:
        raise ArgumentError(f"{net.variables[d]!r} is no decision; the decisions are {list(net.decisions)}")
    return d


def named_policy(net: DecisionNetwork, information: Information, solution: Solution) -> Policy:
    """A solution by name, its tables over all parents of the decisions."""
    tables: dict[str, Cpt] = {}
    named: list[dict[str, list[dict[str, str]]]] = [{}, {}]
    for name in net.decisions:
        d = net.index(name)
        parents = tuple(map(net.index, net.parents(name)))
        scope = (*parents, d)
        own = (*information[d], d)
        table = np.transpose(solution.policies[d], [own.index(v) for v in scope if v in own])
        shape = [len(net.states(v)) for v in scope]
        table = table.reshape([n if v in own else 1 for v, n in zip(scope, shape, strict=True)])
        full = np.array(np.broadcast_to(table, shape))
        full.flags.writeable = False
        tables[name] = Cpt.of(full, [Axis(net.variables[v], net.states(v)) for v in scope])
        for place, rows in zip(named, (solution.ties, solution.unreached), strict=True):
            if rows.get(d):
                place[name] = [
                    {net.variables[v]: net.states(v)[s] for v, s in zip(information[d], row, strict=True)}
                    for row in rows[d][:1000]
                ]
    return Policy(tables, solution.expected_utility, solution.method, *named)


def policies_by_number(net: DecisionNetwork, evaluator: Evaluator, policy: object) -> Policies:
    """Policies by number over requisite information; raises `ArgumentError` for what is no policy."""
    if isinstance(policy, str):
        choice("policy", policy, ("uniform",))
        return evaluator.uniform()
    if not isinstance(policy, Mapping):
        raise ArgumentError(f"policy must be a Policy, a mapping from decision to table, or 'uniform': {policy!r}")
    policies = evaluator.uniform()
    for name, table in policy.items():
        d = decision_number(net, name)
        parents = tuple(map(net.index, net.parents(net.variables[d])))
        full = np.asarray(table, np.float64)
        shape = tuple(len(net.states(v)) for v in (*parents, d))
        if full.shape != shape:
            raise ArgumentError(f"the policy of {net.variables[d]!r} has shape {full.shape}, expected {shape}")
        if not np.isfinite(full).all() or (full < 0).any() or not np.allclose(full.sum(axis=-1), 1.0, atol=1e-6):
            raise ArgumentError(f"the policy of {net.variables[d]!r} must have rows of probabilities that sum to 1")
        own = (*evaluator.information[d], d)
        drop = tuple(i for i, v in enumerate((*parents, d)) if v not in own)
        spread = full - full.mean(axis=drop, keepdims=True) if drop else np.zeros(1)
        if np.abs(spread).max(initial=0.0) > 1e-9:
            raise ArgumentError(
                "the policy depends on information that is not requisite; network.with_policy(policy).compile() "
                "answers queries about it"
            )
        left = [v for v in (*parents, d) if v in own]
        policies[d] = np.ascontiguousarray(np.transpose(full.mean(axis=drop), [left.index(v) for v in own]))
    return policies
