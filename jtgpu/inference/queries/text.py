"""Queries as text: ``P(lung | xray=yes)``, ``MPE(3 | xray=yes)``, ``MI(lung; smoke, bronc)``.

A question is its kind and, in parentheses, its variables; evidence follows after ``|``:

====================================  ================================================================================
``P(a)``, ``P(a, b)``                 posterior of a variable, joint posterior of several variables
``P(a | b, c=x)``                     table of P(a | b) given c = x, one row for each state of b
``P(a=x, b=y)``, ``lnP(a=x)``         probability of an event, and its natural logarithm
``H(a)``, ``H(a, b)``                 entropy, in nats
``MI(a)``, ``MI(a; b, c)``            mutual information of a and each other variable, or each of b and c
``VOI(a)``, ``VOI(a; b, c)``          which variable to observe next to learn about a; all candidates, or b and c
``IMPORTANCE(a | b=x, c=y)``          effect of each finding on the posterior of a
``CONFLICT(b=x, c=y)``                conflict measure of the findings
``MPE(| b=x)``, ``MPE(3 | b=x)``      most probable configuration of all variables, or the three most probable ones
``MAP(a, b | c=x)``                   most probable configuration of some variables, the others summed out
====================================  ================================================================================

Evidence is ``a=x`` (observed), ``a={x, y}`` (one of these states), ``likelihood(a: x=0.9, y=0.2)``,
``soft(a: x=0.7, y=0.3)`` or ``do(a=x)``. Numbers without states are in the order of the states: ``soft(a: 0.7, 0.3)``.
States are given by name or number. Names may contain any character: the longest matching name of the model is used.
Quotes around a name are optional: ``P(churn | "Has Kids?"=True)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backends.base import Evidence
from ...errors import EvidenceError, ImpossibleEvidence
from ...util.arguments import described
from ..results.marginals import Posterior
from ..results.tables import Conditional, Joint
from .findings import conflict, evidence_importance
from .grammar import KINDS, Question, parse
from .information import entropy, mutual_information, value_of_information
from .joint import conditional, joint
from .map import map as marginal_map
from .mpe import mpe
from .posteriors import posteriors

if TYPE_CHECKING:
    from ..compiled import CompiledModel

# `ask`: parse a question and run the corresponding query.


def ask(tree: CompiledModel, question: str | Question) -> Any:
    """Answer a question; the result is that of the corresponding method of `jtgpu.JunctionTree`."""
    # raises EvidenceError, UnknownVariable, UnknownState: See `parse`.
    # raises ImpossibleEvidence: If the evidence has probability zero. An event of probability zero is not an error: its
    #     answer is 0, or -inf.
    if not isinstance(question, (str, Question)):
        raise EvidenceError(f"question must be a text such as 'P(lung | xray=yes)', not {described(question)}")
    q = parse(tree.model, question) if isinstance(question, str) else question
    return _ANSWERS[q.kind](tree, q)


def _probability(tree: CompiledModel, q: Question) -> Any:
    if q.event:
        return math.exp(_log_probability(tree, q))
    if q.given:
        return conditional(tree, q.targets, q.given, **q.known)
    if len(q.targets) > 1:
        return joint(tree, q.targets, **q.known)
    return posteriors(tree, tree.resolve(**q.known), [tree.model.index(q.targets[0])])[q.targets[0]]


def _log_probability(tree: CompiledModel, q: Question) -> float:
    """ln P(event | evidence); -inf for an impossible event."""
    resolved = tree.resolve(**q.known)
    model, case = tree.model, resolved.case
    before = tree.answer(resolved.backend.run, case, []).log_evidence
    state, weights = case.state.copy(), dict(case.likelihood)
    for name, states in q.event.items():
        v = model.index(name)
        chosen = {states} if isinstance(states, int) else set(states)
        if state[v] >= 0:
            if int(state[v]) not in chosen:
                return -math.inf
        elif len(chosen) == 1:
            state[v] = min(chosen)
            if v in weights and not weights[v][state[v]] > 0:
                return -math.inf
        else:
            one_of = np.zeros(int(model.cardinality[v]))
            one_of[list(chosen)] = 1.0
            weights[v] = one_of * weights[v] if v in weights else one_of
            if not weights[v].any():
                return -math.inf
    try:
        after = resolved.backend.run(Evidence(state, weights), []).log_evidence
    except ImpossibleEvidence:
        return -math.inf
    return min(0.0, after - before)


_ANSWERS: dict[str, Callable[[CompiledModel, Question], Any]] = {
    "P": _probability,
    "lnP": _log_probability,
    "H": lambda tree, q: entropy(tree, q.targets, **q.known),
    "MI": lambda tree, q: mutual_information(tree, q.targets[0], q.others, **q.known),
    "VOI": lambda tree, q: value_of_information(tree, q.targets[0], q.others, **q.known),
    "IMPORTANCE": lambda tree, q: evidence_importance(tree, q.targets[0], **q.known),
    "CONFLICT": lambda tree, q: conflict(tree, **q.known),
    "MPE": lambda tree, q: mpe(tree, k=q.k, **q.known),
    "MAP": lambda tree, q: marginal_map(tree, q.targets, **q.known),
}


# Answers to questions as numbers, texts, lists and dicts, for JSON.

UNITS = {
    "P": "probability", "lnP": "ln P", "H": "nats", "MI": "nats", "CONFLICT": "ln(prod P(e_i) / P(e))",
}  # fmt: skip


def as_json(q: Question, answer: Any) -> dict[str, Any]:
    """Convert an answer to numbers, strings, lists and dicts; an infinite logarithm becomes null."""
    content: dict[str, Any] = {"question": q.text, "kind": q.kind}
    if isinstance(answer, Posterior):
        content |= {"variable": answer.variable, "states": list(answer.states)}
        return content | {"probabilities": answer.probabilities.tolist()}
    if isinstance(answer, (Joint, Conditional)):
        content |= {"variables": list(answer.variables), "states": [list(s) for s in answer.states]}
        content["probabilities"] = answer.probabilities.tolist()
        if isinstance(answer, Conditional):
            return content | {"given": list(answer.given), "possible": answer.possible.tolist()}
        return content | {"log_evidence": answer.log_evidence}
    if q.kind == "MI":
        return content | {"nats": answer}
    if q.kind == "VOI":
        return content | {"observations": [dict(vars(o)) for o in answer]}
    if q.kind == "IMPORTANCE":
        return content | {"findings": [
            {k: _plain(v) for k, v in vars(i).items()} for i in answer
        ]}  # fmt: skip
    if q.kind in ("MPE", "MAP"):
        return content | {"explanations": [
            {"states": dict(e), "log_joint": e.log_joint, "probability": e.probability} for e in answer.ranked
        ]}  # fmt: skip
    return content | {"value": float(answer) if math.isfinite(answer) else None, "unit": UNITS[q.kind]}


def _plain(value: Any) -> Any:
    """An array or a tuple as a list."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


__all__ = ["KINDS", "UNITS", "Question", "as_json", "ask", "parse"]
