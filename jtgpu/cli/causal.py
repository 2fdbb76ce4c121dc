"""``jtgpu causal``: adjustment sets, identification, and effects with their uncertainty."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
from click import BadParameter

from ..causal import CausalGraph, Estimand, NotIdentified, graph
from ..errors import ArgumentError, UnknownVariable, closest
from ..inference.queries.effects import Effect, effect
from ..inference.results.tables import Conditional
from ..model.network import BayesianNetwork
from ..model.quick import parse_finding
from ..options.tables import ReadOptions
from ..util.text_table import printable as shown
from .console import print_json, read_cases
from .declared import Causal
from .networks import read_network, split_names
from .tables import on_terminal, print_note, print_rows, status

GRAPH = re.compile(r"->|<-")  # in no name of a file
TAIL = 0.025  # of an interval, on each side
PROVISO = "it holds if no common cause is missing from the graph: an arc of a learned network is no proof of a cause"


def causal(o: Causal, read: ReadOptions) -> None:
    """Run ``jtgpu causal``."""
    if o.cases is not None and o.question != "effect":
        raise BadParameter(f"cases are for effect; {o.question} needs the graph alone", param_hint="CASES")
    net = None if GRAPH.search(o.file) else read_network(o.file)
    if net is not None and not isinstance(net, BayesianNetwork):
        raise ArgumentError(f"{o.file}: causes and effects are those of a Bayesian network")
    whole = graph(net or o.file)
    hidden = split_names(o.hidden, whole.variables, "variable")
    g = graph(whole, hidden=hidden)
    of, on = (split_names(given, whole.variables, "variable") for given in (o.of, o.on))
    pairs = [_name_and_state(whole, text) for text in o.given]
    given = dict(pairs)
    for option, listed in (("--of", of), ("--on", on), ("--given", [v for v, _ in pairs])):
        if (again := next((v for v in listed if listed.count(v) > 1), None)) is not None:
            raise BadParameter(f"{again!r} is there more than once", param_hint=option)
    about: dict[str, Any] = {"file": o.file, "of": of, "on": on, "hidden": hidden}
    if o.question == "sets":
        _sets(o, g, about)
    elif o.question == "identify":
        _identify(o, g.identify(on, do=of, given=[*given]), about)
    else:
        _effect(o, read, (net, g), given, about)


def _name_and_state(g: CausalGraph, text: str) -> tuple[str, str | None]:
    """The variable of ``--given``, and its state if there is one; the longest name that fits."""
    for v in sorted(g.variables, key=len, reverse=True):
        if text.strip() == v or text.startswith(f"{v}="):
            return v, text[len(v) + 1 :] or None
    name = text.partition("=")[0]
    raise UnknownVariable(f"--given: there is no variable {name!r}{closest(name, g.variables)}")


def _sets(o: Causal, g: CausalGraph, about: dict[str, Any]) -> None:
    of, on = about["of"], about["on"]
    sets = [sorted(s, key=g.variables.index) for s in g.adjustment_sets(of, on, limit=o.n)]
    best = front = None
    try:
        best = sorted(g.best_adjustment_set(of, on))
    except NotIdentified as error:
        reason = str(error)
    else:
        reason = f"least variance: {', '.join(best) or 'no adjustment'}"
    if len(of) == 1 == len(on):
        door = g.front_door_set(of[0], on[0])
        front = None if door is None else sorted(door)
    if o.json:
        print_json(about | {"sets": sets, "best": best, "front_door": front})
        return
    print_rows(("variables", "adjustment set"), [(len(s), ", ".join(s)) for s in sets])
    if on_terminal():
        print()
    print_note(reason if sets else "there is no adjustment set; identify may find another formula")
    if front is not None:
        print_note(f"front door: {', '.join(front)}")


def _identify(o: Causal, estimand: Estimand, about: dict[str, Any]) -> None:
    if o.json:
        print_json(about | _of(estimand))
        return
    print(shown(str(estimand)))
    print_note(f"{estimand.method}; needs {', '.join(estimand.uses)}")


def _of(estimand: Estimand) -> dict[str, Any]:
    return {
        "given": [*estimand.given], "method": estimand.method, "formula": estimand.formula, "latex": estimand.latex,
        "uses": [*estimand.uses],
    }  # fmt: skip


def _effect(
    o: Causal, read: ReadOptions, known: tuple[BayesianNetwork | None, CausalGraph], given: dict[str, str | None],
    about: dict[str, Any],
) -> None:  # fmt: skip
    (net, g), of, on = known, about["of"], about["on"]
    if (loose := next((v for v, state in given.items() if state is None), None)) is not None:
        raise BadParameter(f"{loose!r} needs a state: {loose}=...", param_hint="--given")
    cases = None
    if o.cases is not None:
        cases = read_cases(o.cases, read, None if net is None else {v: net.states(v) for v in net})
    states = {v: _states_of(v, text, net, cases) for v, text in given.items() if text is not None}
    draws = None
    if net is not None and o.cases is None and not o.hidden and len(of) == 1 == len(on):
        table, method = effect(net.compile("cpu"), on[0], of=of[0], given=states).table, {"method": "network"}
    else:
        sets = [v for v, state in states.items() if not isinstance(state, str)]  # one of these states
        single = [v for v in given if v not in sets]
        estimand = g.identify([*on, *sets], do=of, given=single)
        needed, method = [*dict.fromkeys((*estimand.uses, *of, *on, *given))], _of(estimand)
        if cases is not None:
            names = {v: net.states(v) for v in needed} if net is not None else {}
            with status("fitting", o.progress) as step:
                fitted = estimand.fit(cases, pseudo_counts=o.pseudo_counts, states=names)
                model, table = fitted.network, fitted.table
                if o.bootstrap:
                    step(f"{o.bootstrap} resamples")
                    draws = fitted.bootstrap(o.bootstrap, seed=o.seed)
        elif net is None:
            raise BadParameter("a graph has no CPTs: name a file of cases, or a network", param_hint="CASES")
        else:
            model = net.prune(needed)
            table = estimand.evaluate(model.compile("cpu"))
        at = (*(slice(None) for _ in of), *(model.state_position(v, states[v]) for v in single))
        held = [[model.state_position(v, state) for state in states[v]] for v in sets]
        numbers, possible = _held(table.probabilities[at], table.possible[at], held, len(on))
        table = Conditional(tuple(of), tuple(on), tuple(model.states(v) for v in (*of, *on)), numbers, possible)
        draws = None if draws is None else _held(draws[(slice(None), *at)], None, held, len(on))[0]
    _print_effect(o, table, draws, about | method | {"given": states} | ({"cases": o.cases} if o.cases else {}))


def _states_of(v: str, text: str, net: BayesianNetwork | None, cases: Any) -> Any:
    """The state of ``--given`` by its name, or a list of states, one of which holds."""
    if net is not None:
        known, state = net.states(v), parse_finding(net, f"{v}={text}")[1]
        return [known[s] for s in sorted(state)] if isinstance(state, frozenset) else known[state]
    words = [*map(str, cases.column(v).unique().to_pylist())] if cases is not None and v in cases.column_names else []
    return text if text in words or "," not in text else [part.strip() for part in text.split(",")]


def _held(numbers: Any, possible: Any, held: list[list[int]], n_outcomes: int) -> tuple[Any, Any]:
    """P(outcomes | one of these states of each of the last variables), and where that has a probability."""
    for states in reversed(held):
        numbers = numbers[..., states].sum(axis=-1)
    if not held:
        return numbers, possible
    sums = numbers.sum(axis=tuple(range(numbers.ndim - n_outcomes, numbers.ndim)), keepdims=True)
    numbers = np.divide(numbers, sums, out=np.zeros_like(numbers), where=sums > 0)
    return numbers, possible if possible is None else possible & (sums > 0).reshape(possible.shape)


def _differences(table: Conditional, draws: Any) -> tuple[float, list[float]] | None:
    """The difference that a cause of two states makes, and its interval."""

    def one(numbers: Any) -> float:
        return Effect(Conditional(table.given, table.targets, table.states, numbers, table.possible), {}).difference()

    try:
        return one(table.probabilities), [] if draws is None else _interval(np.array([*map(one, draws)]))
    except ArgumentError:  # more causes or outcomes, or more states
        return None


def _interval(draws: Any) -> Any:
    return np.quantile(draws, [TAIL, 1 - TAIL], axis=0, method="inverted_cdf").tolist()


def _print_effect(o: Causal, table: Conditional, draws: object, about: dict[str, Any]) -> None:
    single = len(table.given) == 1 == len(table.targets)
    made = _differences(table, draws) if single and table.possible.all() else None
    ends = None if draws is None else _interval(draws)
    if o.json:
        print_json(about | {
            "variables": [*table.variables], "states": [[*s] for s in table.states],
            "probabilities": table.probabilities.tolist(), "possible": table.possible.tolist(),
            "low": ends and ends[0], "high": ends and ends[1],
            "difference": made and made[0], "difference_interval": (made and made[1]) or None,
        })  # fmt: skip
        return
    rows: list[tuple[Any, ...]] = []
    for at in product(*(range(n) for n in table.shape)):
        labels = [table.states[i][s] for i, s in enumerate(at)]
        numbers = [table.probabilities, *(ends or [])]
        possible = table.possible[at[: len(table.given)]]
        rows.append((*labels, *(x[at].item() if possible else "impossible" for x in map(np.asarray, numbers))))
    head = (*(f"do({v})" for v in table.given), *table.targets, "P", *(("2.5 %", "97.5 %") if ends else ()))
    print_rows(head, rows, digits=o.digits, bars=not ends)
    if on_terminal():
        print()
    if made is not None:
        interval = f" ({made[1][0]:.4g} to {made[1][1]:.4g})" if made[1] else ""
        print_note(f"difference {made[0]:.4g}{interval}")
    if "formula" in about:
        print_note(f"{about['method']}: {about['formula']}")
    if "->" not in o.file and not o.hidden:
        print_note(PROVISO)
