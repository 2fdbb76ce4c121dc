"""Each question: a function of a tree and a body that returns plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import ArgumentError
from ...inference.queries import text
from ...inference.queries.posteriors import as_list
from ...inference.results.configurations import Explanation
from ...inference.results.sensitivities import Parameter
from ...inference.tree import JunctionTree
from ...util.arguments import whole_number
from . import bodies
from .bodies import rounded
from .cases import Form, answer_cases, by_state, check_size, known_of

if TYPE_CHECKING:
    from . import bodies as replies

MAX_K = 1000  # configurations of an answer


def answer(
    tree: JunctionTree, question: str, body: Mapping[str, Any], *, labels: bool = False, digits: int | None = None
) -> dict[str, Any]:
    """Answer a question."""
    # question: One of `QUESTIONS`, such as ``"posteriors"``
    # body: What a client of the server sends; see `jtgpu.serve.questions.bodies`
    # labels: Return probabilities by the names of states, which have to be distinct, in place of arrays
    # digits: Round to so many significant digits
    # raises msgspec.ValidationError: If the body has an unknown field, or a value of the wrong type.
    # raises JtgpuError: As the method of the tree.
    if question not in QUESTIONS:
        raise ArgumentError(f"question must be one of {', '.join(QUESTIONS)}, not {question!r}")
    form = Form(labels, None if digits is None else whole_number("digits", digits, least=1, most=17))
    found: dict[str, Any] = QUESTIONS[question](tree, msgspec.convert(body, bodies.BODIES[question]), form)
    found = rounded(found, form.digits)
    return found


def _posteriors(tree: JunctionTree, body: bodies.Posteriors, form: Form) -> replies.PosteriorsReply:
    if body.cases is not None:
        if known_of(body):
            raise ArgumentError("evidence is given for one case and in cases; put all of it into cases")
        return {"results": answer_cases(tree, body.cases, body.targets, form)}
    found = tree.posteriors(**known_of(body), targets=body.targets)
    return {
        "log_evidence": found.log_evidence,
        "posteriors": {name: by_state(tree.model, p, form) for name, p in found.items()},
    }


def _mpe(tree: JunctionTree, body: bodies.Mpe, form: Form) -> replies.Explanations:
    k = whole_number("k", body.k, least=1, most=MAX_K)
    return _explanations(tree, tree.mpe(**known_of(body), k=k), form)


def _map(tree: JunctionTree, body: bodies.Map, form: Form) -> replies.Explanations:
    k = whole_number("k", body.k, least=1, most=MAX_K)
    return _explanations(tree, tree.map(as_list(body.variables, "variables"), **known_of(body), k=k), form)


def _explanations(tree: JunctionTree, found: Explanation, form: Form) -> replies.Explanations:
    names = [*found]
    at = [tree.model.index(v) for v in names]
    return {
        "log_evidence": found.log_evidence,
        "variables": names,
        "explanations": [
            {
                "states": dict(e) if form.labels else e.states[at].tolist(),
                "log_joint": e.log_joint,
                "log_posterior": e.log_posterior,
            }
            for e in found.ranked
        ],
    }


def _name(tree: JunctionTree, variable: str | int) -> str:
    return tree.model.variables[tree.model.index(variable)]


def _most(most: int | None) -> int | None:
    return None if most is None else whole_number("most", most, least=0)


def _voi(tree: JunctionTree, body: bodies.Voi, form: Form) -> replies.Observations:
    most = _most(body.most)
    ranked = tree.value_of_information(body.target, body.candidates, **known_of(body))
    return {
        "target": _name(tree, body.target),
        "observations": [
            {
                "variable": o.variable,
                "gain": o.gain,
                "expected_entropy": o.expected_entropy,
                "expected_accuracy": o.expected_accuracy,
            }
            for o in ranked[:most]
        ],
    }


def _mi(tree: JunctionTree, body: bodies.Mi, form: Form) -> replies.Scores:
    most = _most(body.most)
    scores = tree.mutual_information(body.target, body.others, **known_of(body))
    ranked = [*scores.items()][:most]
    return {
        "target": _name(tree, body.target),
        "scores": [{"variable": name, "information": information} for name, information in ranked],
    }


def _sensitivity(tree: JunctionTree, body: bodies.Sensitivity, form: Form) -> replies.SensitivityReply:
    n = whole_number("n", body.n, least=0, most=100_000)
    target: tuple[Any, Any] = body.target
    found = tree.sensitivity(target, **known_of(body))
    return {
        "target": (found.target[0], found.target[1]),
        "probability": found.probability,
        "parameters": [_parameter(p) for p in found.top(n)],
        "tornado": [
            {
                "parameter": _parameter(bar.parameter),
                "low": bar.low,
                "high": bar.high,
                "at_low": _finite(bar.at_low),
                "at_high": _finite(bar.at_high),
            }
            for bar in found.tornado(n, body.spread)
        ],
    }


def _parameter(p: Parameter) -> replies.Parameter:
    return {
        "variable": p.variable,
        "state": p.state,
        "given": [*p.given],
        "value": p.value,
        "derivative": p.derivative,
        "entry": [*p.entry],
    }


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _importance(tree: JunctionTree, body: bodies.Importance, form: Form) -> replies.Findings:
    known = known_of(body, soft=False)
    ranked = tree.evidence_importance(body.target, known.pop("evidence", {}), **known)
    return {
        "target": _name(tree, body.target),
        "findings": [
            {
                "variable": i.variable,
                "states": [*i.states],
                "without": i.without.tolist(),
                "alone": i.alone.tolist(),
                "kl_without": i.kl_without,
                "hellinger_without": i.hellinger_without,
                "shift_without": i.shift_without,
                "kl_alone": i.kl_alone,
                "hellinger_alone": i.hellinger_alone,
                "shift_alone": i.shift_alone,
            }
            for i in ranked
        ],
    }


def _conflict(tree: JunctionTree, body: bodies.Conflict, form: Form) -> replies.ConflictReply:
    known = known_of(body, soft=False)
    return {"conflict": tree.conflict(known.pop("evidence", {}), **known)}


def _joint(tree: JunctionTree, body: bodies.Joint, form: Form) -> replies.JointReply:
    variables = as_list(body.variables, "variables")
    scope = dict.fromkeys(tree.model.index(v) for v in variables)
    check_size(math.prod(int(tree.model.cardinality[v]) for v in scope), f"a joint table of {len(scope)} variables")
    found = tree.joint(variables, **known_of(body))
    return {
        "variables": [*found.variables],
        "states": [[*s] for s in found.states],
        "shape": [*found.shape],
        "probabilities": found.probabilities.ravel().tolist(),
        "log_evidence": found.log_evidence,
    }


def _sample(tree: JunctionTree, body: bodies.Sample, form: Form) -> replies.Samples:
    n = whole_number("n", body.n, least=0)
    if body.seed is not None:
        whole_number("seed", body.seed, least=0)
    check_size(n * len(tree.model), f"{n:,} samples of {len(tree.model):,} variables")
    found = tree.sample(n, **known_of(body), seed=body.seed)
    rows: list[list[Any]] = found.states.tolist()
    names = [*tree.model.variables]
    if not form.labels:
        return {"variables": names, "samples": rows}
    labels = [tree.model.states(v) for v in names]
    return {"variables": names, "samples": [[s[i] for s, i in zip(labels, row, strict=True)] for row in rows]}


def _ask(tree: JunctionTree, body: bodies.Ask, form: Form) -> dict[str, Any]:
    q = text.parse(tree.model, body.question)
    return text.as_json(q, text.ask(tree, q))


QUESTIONS: dict[str, Callable[[JunctionTree, Any, Form], Any]] = {
    "posteriors": _posteriors, "mpe": _mpe, "map": _map, "voi": _voi, "mi": _mi, "sensitivity": _sensitivity,
    "importance": _importance, "conflict": _conflict, "joint": _joint, "sample": _sample, "ask": _ask,
}  # fmt: skip
