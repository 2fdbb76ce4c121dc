"""`ask`: parse a question and run the corresponding query."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....backends.base import Evidence
from ....errors import EvidenceError, ImpossibleEvidence
from ....util.arguments import described
from ...evidence import read_known
from ..evidence_analysis import conflict, evidence_importance
from ..information import entropy, mutual_information, value_of_information
from ..joint import conditional, joint
from ..map import marginal_map
from ..mpe import mpe
from ..posteriors import posterior
from .grammar import Question, parse

if TYPE_CHECKING:
    from ...compiled import CompiledModel


def ask(tree: CompiledModel, question: str | Question) -> Any:
    """Answer a question; the result is that of the corresponding method of `jtgpu.JunctionTree`."""
    # raises EvidenceError, UnknownVariable, UnknownState: See `parse`.
    # raises ImpossibleEvidence: If the evidence has probability zero. An event of probability zero is not an error: its
    #     answer is 0, or -inf.
    if not isinstance(question, (str, Question)):
        raise EvidenceError(
            f"question must be a text such as 'P(lung | xray=yes)', not {described(question)}"
        )
    q = parse(tree.model, question) if isinstance(question, str) else question
    return _ANSWERS[q.kind](tree, q)


def _probability(tree: CompiledModel, q: Question) -> Any:
    if q.event:
        return math.exp(_log_probability(tree, q))
    settled = tree.settle(**q.known)
    if q.given:
        return conditional(tree, q.targets, q.given, settled)
    if len(q.targets) > 1:
        return joint(tree, q.targets, settled)
    return posterior(tree, q.targets[0], settled)


def _log_probability(tree: CompiledModel, q: Question) -> float:
    """ln P(event | evidence); -inf for an impossible event."""
    settled = tree.settle(**q.known)
    model, case = tree.model, settled.case
    before = tree.answer(settled.backend.run, case, []).log_evidence
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
        after = settled.backend.run(Evidence(state, weights), []).log_evidence
    except ImpossibleEvidence:
        return -math.inf
    return min(0.0, after - before)


_ANSWERS: dict[str, Callable[[CompiledModel, Question], Any]] = {
    "P": _probability,
    "lnP": _log_probability,
    "H": lambda tree, q: entropy(tree, q.targets, tree.settle(**q.known)),
    "MI": lambda tree, q: mutual_information(tree, q.targets[0], q.others, tree.settle(**q.known)),
    "VOI": lambda tree, q: value_of_information(tree, q.targets[0], q.others, tree.settle(**q.known)),
    "IMPORTANCE": lambda tree, q: evidence_importance(tree, q.targets[0], read_known(tree.model, **q.known)),
    "CONFLICT": lambda tree, q: conflict(tree, read_known(tree.model, **q.known)),
    "MPE": lambda tree, q: mpe(tree, tree.settle(**q.known), q.k),
    "MAP": lambda tree, q: marginal_map(tree, q.targets, tree.settle(**q.known), 1, None, None),
}
