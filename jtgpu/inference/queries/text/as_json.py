"""Answers to questions as numbers, texts, lists and dicts, for JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...results.marginals import Posterior
from ...results.tables import Conditional, Joint
from .grammar import Question

UNITS = {
    "P": "probability", "lnP": "ln P", "H": "nats", "MI": "nats", "CONFLICT": "ln(prod P(e_i) / P(e))",
}  # fmt: skip


def as_json(q: Question, answer: Any) -> dict[str, Any]:
    """Convert an answer to numbers, strings, lists and dicts; an infinite logarithm becomes null."""
    found: dict[str, Any] = {"question": q.text, "kind": q.kind}
    if isinstance(answer, Posterior):
        found |= {"variable": answer.variable, "states": list(answer.states)}
        return found | {"probabilities": answer.probabilities.tolist()}
    if isinstance(answer, (Joint, Conditional)):
        found |= {"variables": list(answer.variables), "states": [list(s) for s in answer.states]}
        found["probabilities"] = answer.probabilities.tolist()
        if isinstance(answer, Conditional):
            return found | {"given": list(answer.given), "possible": answer.possible.tolist()}
        return found | {"log_evidence": answer.log_evidence}
    if q.kind == "MI":
        return found | {"nats": answer}
    if q.kind == "VOI":
        return found | {"observations": [dict(vars(o)) for o in answer]}
    if q.kind == "IMPORTANCE":
        return found | {"findings": [
            {k: _plain(v) for k, v in vars(i).items()} for i in answer
        ]}  # fmt: skip
    if q.kind in ("MPE", "MAP"):
        return found | {"explanations": [
            {"states": dict(e), "log_joint": e.log_joint, "probability": e.probability} for e in answer.ranked
        ]}  # fmt: skip
    return found | {"value": float(answer) if math.isfinite(answer) else None, "unit": UNITS[q.kind]}


def _plain(value: Any) -> Any:
    """An array or a tuple as a list."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value
