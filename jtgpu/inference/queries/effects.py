"""Effects of interventions, bounds of probabilities of causation, and counterfactuals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ...errors import ArgumentError, EvidenceError, NetworkError
from ...model.directed import descendants
from ...model.discrete import DiscreteModel, Factor
from ...model.network import BayesianNetwork
from ...model.noisy import is_noisy
from ...model.states import StateNumber, present_state
from ...util.arguments import described, flag, mapping, number, several
from ...util.arrays import Floats
from ...util.cells import is_missing
from ..results.interval_numbers import ends_of
from ..results.marginals import CasePosteriors, Posterior
from ..results.result import Columns, Result
from ..results.tables import Conditional
from .joint import joint
from .posteriors import posteriors, posteriors_batch
from .single_case import single_posterior

if TYPE_CHECKING:
    from ...util.options import OnProblem, TableLike
    from ..compiled import CompiledModel
    from ..evidence import Findings

TWIN = "{} (counterfactual)"  # name of a variable in the other world
MOST_TWINS = 4  # networks of both worlds that a tree keeps
FEW_CASES = 20  # counterfactuals about the same variables that are answered without planning both worlds


class Effect(Result):
    """P(outcome | do(cause)): the posterior of the outcome for each state that the cause is set to.

    Attributes
    ----------
    table : Conditional
        A row for each state of the cause.

    Examples
    --------
    >>> import jtgpu
    >>> effect = jtgpu.load("asia").compile("cpu").effect("dysp", of="smoke")
    >>> round(effect.difference("yes"), 4), round(effect.ratio("yes"), 4)
    (0.2337, 1.7322)
    """

    def __init__(self, table: Conditional, given: Mapping[str, str], ends: tuple[float, float] | None = None):
        self.table, self._given, self._ends = table, given, ends

    def _title(self) -> str:
        result = "".join(f", {v} = {s}" for v, s in self._given.items())
        return f"P({self.table.targets[0]} | do({self.table.given[0]}){result})"

    def _columns(self) -> dict[str, object]:
        return self.table._columns()

    def _table(self) -> Columns:
        return self.table._table()

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Any:
        return self.table.__array__(dtype, copy)

    def __getitem__(self, state: str | int) -> Posterior:
        """The posterior of the outcome if the cause is set to a state."""
        return cast(Posterior, self.table[state])

    def _row_values(self, state: str | int | None, score: Mapping[str, float] | None) -> Floats:
        """A number for each state of the cause: a probability, or a mean."""
        _, outcome = self.table.variables
        _, states = self.table.states
        if state is not None and score is not None:
            raise ArgumentError("state= and score= say the same thing: give one of them")
        if score is not None:
            if not hasattr(score, "keys") or {*score} != {*states}:
                raise ArgumentError(f"score= needs a number for each state of {outcome!r}: {', '.join(states)}")
            scores = np.array([number(f"score of {s!r}", score[s]) for s in states])
            return np.asarray(self.table.probabilities @ scores)
        if state is None:
            if len(states) > 2:
                rows = [Posterior(outcome, states, row, self._ends) for row in self.table.probabilities]
                try:
                    return np.array([row.mean for row in rows])
                except ArgumentError as error:
                    raise ArgumentError(
                        f"{outcome!r} has {len(states)} states: say which, as in difference({states[-1]!r}), or give "
                        "numbers, score={state: number}"
                    ) from error
            present = present_state(states)
            state = states[1 if present is None else present]
        return self.table.probabilities[:, self.table._model.state_position(1, state)]

    def _ends_of_cause(self, between: Sequence[str | int] | None) -> tuple[int, int]:
        cause, states = self.table.variables[0], self.table.states[0]
        if between is not None:
            first, last = pair(f"between= is a pair of states of {cause!r}, from and to", between)
            return self.table._model.state_position(0, first), self.table._model.state_position(0, last)
        if len(states) != 2:
            raise ArgumentError(
                f"{cause!r} has {len(states)} states: say which, between=({states[0]!r}, {states[-1]!r})"
            )
        to = present_state(states)
        to = 1 if to is None else to
        return 1 - to, to

    def difference(
        self, state: str | int | None = None, *, score: Mapping[str, float] | None = None,
        between: Sequence[str | int] | None = None,
    ) -> float:  # fmt: skip
        """By how much the intervention changes the probability of a state, or the mean of the outcome.

        Parameters
        ----------
        state : str or int, optional
            State of the outcome. Default: that of two states which means presence, such as ``yes``, else the second;
            of intervals their mean.
        score : mapping, optional
            A number for each state of the outcome, whose mean is compared.
        between : pair of states, optional
            The states that the cause is set to, from and to. Default: from absence to presence, of two states.
        """
        values, (first, last) = self._row_values(state, score), self._ends_of_cause(between)
        return float(values[last] - values[first])

    def ratio(
        self, state: str | int | None = None, *, score: Mapping[str, float] | None = None,
        between: Sequence[str | int] | None = None,
    ) -> float:  # fmt: skip
        """The quotient in place of the `difference`; infinite if the first number is 0 and the second is not."""
        values, (first, last) = self._row_values(state, score), self._ends_of_cause(between)
        if values[first] == 0:
            if values[last] == 0:
                raise ArgumentError("the ratio of two probabilities that are 0 does not exist")
            return float("inf")
        return float(values[last] / values[first])

    def average(self, score: Mapping[str, float]) -> dict[str, float]:
        """The mean of the outcome for each state of the cause; score: a number for each state of the outcome."""
        return dict(zip(self.table.states[0], self._row_values(None, score).tolist(), strict=True))


def effect(self: CompiledModel, outcome: str, *, of: str, given: Findings | None = None) -> Effect:
    """Compute the effect of setting a variable on another one: P(outcome | do(of = each state), given).

    The network has to contain every common cause: an arc of a learned network is no proof of a cause. For hidden common
    causes see `jtgpu.causal.graph`.

    Parameters
    ----------
    outcome, of : str
    given : mapping, optional
        Findings after the intervention.

    Returns
    -------
    Effect

    Raises
    ------
    ImpossibleEvidence
        If the findings are impossible after an intervention.
    """
    cause, last = (self.model.variables[self.model.index(v)] for v in (of, outcome))
    if cause == last:
        raise ArgumentError(f"{cause!r} is the cause and the outcome")
    findings = mapping("given", given or {})
    for v in findings:
        if self.model.variables[self.model.index(v)] in (cause, last):
            raise ArgumentError(f"given: {v!r} is the cause or the outcome")
    states = self.model.states(cause)
    rows = []
    for i in range(len(states)):
        answer = posteriors(self, self.resolve(findings, do={cause: StateNumber(i)}), [self.model.index(last)])
        rows.append(answer[last].probabilities)
    table = Conditional(
        (cause,), (last,), (states, self.model.states(last)), np.array(rows), np.ones(len(rows), np.bool_)
    )  # fmt: skip
    shown = {str(v): _states_text(self.model, v, s) for v, s in findings.items() if not is_missing(s)}
    return Effect(table, shown, ends_of(self.model, last))


def _states_text(model: DiscreteModel, variable: str, states: object) -> str:
    """An observed state, or several, by name."""
    listed = several(states)
    names = [model.states(variable)[model.state_position(variable, s)] for s in listed or [states]]
    return names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"


def pair(message: str, value: object) -> list[Any]:
    """The two elements of an argument; the message says what they are."""
    listed = several(value)
    if listed is None or len(listed) != 2:
        raise ArgumentError(f"{message}, not {described(value)}")
    return listed


class Bounds(NamedTuple):
    """The least and the greatest probability that a model allows."""

    low: float
    high: float


@dataclass(frozen=True)
class CausationBounds:
    """Bounds of the probabilities of causation; points if the effect is monotone.

    Attributes
    ----------
    necessity : Bounds
        PN: of cases with cause and outcome, the share in which the outcome would be absent without the cause.
    sufficiency : Bounds
        PS: of cases without both, the share in which the cause would produce the outcome.
    both : Bounds
        PNS: of all cases, the share in which the cause decides about the outcome.
    """

    necessity: Bounds
    sufficiency: Bounds
    both: Bounds

    def __str__(self) -> str:
        rows = (("necessity", self.necessity), ("sufficiency", self.sufficiency), ("both", self.both))
        return "\n".join(f"{name:<12}{b.low:.6f} to {b.high:.6f}" for name, b in rows)


def probability_of_causation(
    self: CompiledModel, outcome: str, of: str, *, states: tuple[str | int, str | int] | None = None,
    monotone: bool = False,
) -> CausationBounds:  # fmt: skip
    """Compute sharp bounds of the probabilities that a cause was necessary and sufficient (Tian and Pearl, 2000).

    Parameters
    ----------
    outcome, of : str
        Variables; the cause has two states.
    states : pair, optional
        The states of the outcome and of the cause that mean presence; the others of the outcome are one. Default: as
        of `Effect.difference`.
    monotone : bool
        Whether the cause never prevents the outcome, which makes the bounds points.

    Returns
    -------
    CausationBounds

    Raises
    ------
    EvidenceError
        If `monotone` contradicts the network: the outcome is less probable with the cause.
    """
    result = effect(self, outcome, of=of).table
    if len(result.states[0]) != 2:
        raise ArgumentError(f"{of!r} has {len(result.states[0])} states; the bounds are known for causes with two")
    if states is None:
        if len(result.states[1]) != 2:
            raise ArgumentError(f"{outcome!r} has {len(result.states[1])} states: say which, states=(outcome, cause)")
        y, x = (1 if (s := present_state(names)) is None else s for names in result.states[::-1])
    else:
        first, last = pair("states= is a pair, a state of the outcome and one of the cause", states)
        y, x = self.model.state_position(outcome, first), self.model.state_position(of, last)
    with_cause, without = float(result.probabilities[x, y]), float(result.probabilities[1 - x, y])
    seen = joint(self, [of, outcome]).probabilities
    xy, x_not, other_y = float(seen[x, y]), float(seen[x].sum() - seen[x, y]), float(seen[1 - x, y])
    neither = float(1.0 - xy - x_not - other_y)
    p_y = xy + other_y

    def bounds(low: Iterable[float], high: Iterable[float], scale: float) -> Bounds:
        if scale <= 0:
            return Bounds(0.0, 1.0)  # there are no such cases
        least = min(max(0.0, *low) / scale, 1.0)
        return Bounds(least, max(least, min(1.0, min(high) / scale)))

    if flag("monotone", monotone):
        if with_cause < without - 1e-12:
            raise EvidenceError(
                f"monotone=True contradicts the network: P({outcome} | do({of})) is {with_cause:.6g} with the cause"
                f" and {without:.6g} without it"
            )
        gain = max(with_cause - without, 0.0)
        points = (p_y - without, xy), (with_cause - p_y, neither), (gain, 1.0)
        made = [bounds([v], [max(v, 0.0)], scale) for v, scale in points]
        return CausationBounds(*made)
    return CausationBounds(
        bounds([p_y - without], [1.0 - without - neither, xy], xy),
        bounds([with_cause - p_y], [with_cause - xy, neither], neither),
        bounds(
            [with_cause - without, p_y - without, with_cause - p_y],
            [with_cause, 1.0 - without, xy + neither, with_cause - without + x_not + other_y], 1.0,
        ),
    )  # fmt: skip


class _Twin(NamedTuple):
    """A question about another world."""

    model: BayesianNetwork
    outcome: int
    done: dict[int, int]
    changed: frozenset[int]  # what the intervention changes and the outcome depends on

    @property
    def name(self) -> str:
        """The outcome's name among the variables of both worlds."""
        name = self.model.variables[self.outcome]
        return TWIN.format(name) if self.outcome in self.changed else name

    @property
    def key(self) -> tuple[int, frozenset[tuple[int, int]]]:
        return self.outcome, frozenset(self.done.items())


def _twin(self: CompiledModel, outcome: str, do: Mapping[str, object]) -> _Twin:
    model = self.model
    if not isinstance(model, BayesianNetwork):
        raise ArgumentError(f"counterfactuals need a BayesianNetwork, not {described(model)}")
    done = {model.index(v): model.state_position(v, s) for v, s in mapping("do", do).items()}
    if not done:
        raise ArgumentError("do= names what is different in the other world, as in do={'drug': 'no'}")
    v = model.index(outcome)
    changed = descendants(model._children, done) & descendants(model._parents, [v])
    random = [u for u in sorted(changed - {*done}) if not _is_function(model.factors[u])]
    if random:
        listed = ", ".join(repr(model.variables[u]) for u in random[:5])
        raise NetworkError(
            "counterfactuals need every variable between the intervention and the outcome to be a function of its "
            "parents, some of which may be noise; other CPTs have those of "
            f"{listed}{f' and {len(random) - 5} others' if len(random) > 5 else ''}"
        )
    return _Twin(model, v, done, frozenset(changed))


def _is_function(factor: Factor) -> bool:
    """Whether a CPT has 0 and 1 only, or no parents."""
    table = factor.table.rows if is_noisy(factor.table) else factor.table
    return len(factor.scope) == 1 or not np.any(table * (1.0 - table))


def _both_worlds(self: CompiledModel, twin: _Twin) -> CompiledModel:
    """A tree of both worlds, which share what the intervention does not change; cached."""
    model, done, changed = twin.model, twin.done, twin.changed
    self._open()  # a closed tree answers nothing
    if not changed:
        return self

    def make() -> CompiledModel:
        names, strengths = model.variables, model.noisy
        twins = {v: TWIN.format(names[v]) for v in changed}
        taken = sorted({*twins.values()} & {*names})
        if taken:
            raise ArgumentError(f"rename {taken[0]!r}: this is the name of a variable in the other world")
        states = {v: model.states(v) for v in names} | {twins[v]: model.states(names[v]) for v in sorted(changed)}
        parents = {v: model.parents(v) for v in names}
        cpts: dict[str, Any] = {v: strengths[v] if v in strengths else np.asarray(model.cpt(v)) for v in names}
        for v in changed:
            if v in done:
                parents[twins[v]] = ()
                cpts[twins[v]] = np.eye(len(model.states(names[v])))[done[v]]
            else:
                parents[twins[v]] = tuple(twins.get(p, names[p]) for p in model._parents[v])
                cpts[twins[v]] = cpts[names[v]]
        both: CompiledModel = BayesianNetwork(states, parents, cpts).with_codes(model.state_codes).compile("cpu")
        return both

    return self.cached("twins", twin.key, make, MOST_TWINS)


def counterfactual(
    self: CompiledModel, outcome: str, evidence: Findings | None = None, *, do: Mapping[str, object]
) -> Posterior:
    """Compute what the outcome would have been had variables been set, given what was observed.

    The two worlds share their noise (the twin network of Balke and Pearl, 1994). Every variable that the intervention
    changes, and that the outcome depends on, has to be a function of its parents.

    Parameters
    ----------
    outcome : str
    evidence : mapping, optional
        What was observed, without the intervention.
    do : mapping
        Variable to the state that it is set to in the other world.

    Returns
    -------
    Posterior

    Raises
    ------
    NetworkError
        If the CPT of such a variable has probabilities other than 0 and 1; the message lists them.

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.network(
    ...     "order->A; order->B; A->dead; B->dead", "{no|yes}", cpts={
    ...         "order": [0.3, 0.7], "A": [[1, 0], [0, 1]], "B": [[1, 0], [0, 1]],
    ...         "dead": [[[1, 0], [0, 1]], [[0, 1], [0, 1]]]})
    >>> net.compile("cpu").counterfactual("dead", {"dead": "yes"}, do={"A": "no"})["yes"]
    1.0
    """
    twin = _twin(self, outcome, do)
    calls = self.cached("twin calls", twin.key, lambda: [0])
    calls[0] += 1
    table = None
    if twin.changed and calls[0] <= FEW_CASES:
        case = self.resolve(evidence).case
        table = single_posterior(twin.model, twin.outcome, case, twin.changed, twin.done)
    if table is None:
        tree = _both_worlds(self, twin)
        answer = posteriors(tree, tree.resolve(evidence), [tree.model.index(twin.name)])
        table = np.array(answer[twin.name].probabilities)
    name = self.model.variables[twin.outcome]
    return Posterior(name, self.model.states(name), table, ends_of(self.model, name))


def counterfactual_batch(
    self: CompiledModel, cases: TableLike, outcome: str, *, do: Mapping[str, object], on_error: OnProblem = "error"
) -> CasePosteriors:
    """Compute `counterfactual` for each row of a table of cases.

    Parameters
    ----------
    cases, on_error
        See `posteriors_batch`.
    outcome, do
        See `counterfactual`.

    Returns
    -------
    CasePosteriors
        With the outcome; in the other world its name is ``"NAME (counterfactual)"`` where the intervention changes it.
    """
    twin = _twin(self, outcome, do)
    return posteriors_batch(_both_worlds(self, twin), cases, targets=[twin.name], on_error=on_error)
