"""Whether a question is answered: its cost is predicted before any work is done."""

from __future__ import annotations

from typing import Any

from ..errors import JtgpuError
from ..inference.queries.scope import as_list
from ..inference.tree import JunctionTree
from .batching import Rates
from .problems import Refusal
from .questions import bodies
from .questions.form import known_of

RATE = 5e8  # operations a second that any machine does


def admit(tree: JunctionTree, rates: Rates, body: Any, timeout: float) -> None:
    """Refuse a question that would take longer than the timeout."""
    # raises Refusal: With the predicted seconds.
    # raises JtgpuError: If the question is invalid.
    seconds = _seconds(tree, rates, body)
    if seconds > timeout:
        raise Refusal(
            "too-slow",
            f"this question would take about {seconds:,.0f} s; the limit is {timeout:g} s (--timeout)",
            predicted=round(seconds, 3), limit=timeout,
        )  # fmt: skip


def _seconds(tree: JunctionTree, rates: Rates, body: Any) -> float:
    """Predicted seconds."""
    if isinstance(body, bodies.Posteriors):
        if body.cases is None:
            return rates.seconds(1)
        hard = sum(1 for case in body.cases if case.soft or case.do)
        return rates.seconds(len(body.cases) - hard) + 3 * hard * rates.single
    if isinstance(body, bodies.Map):
        variables = as_list(body.variables, "variables")
        return tree.map_cost(variables, **known_of(body)).operations / _rate(tree, rates)
    if isinstance(body, bodies.Joint):
        variables = as_list(body.variables, "variables")
        return tree.joint_cost(variables, **known_of(body)).operations / _rate(tree, rates)
    if isinstance(body, bodies.Mpe):
        return max(body.k, 1) * rates.single
    if isinstance(body, (bodies.Voi, bodies.Mi)):
        card = int(tree.model.cardinality[tree.model.index(body.target)])
        return rates.seconds(card)
    return rates.single


def _rate(tree: JunctionTree, rates: Rates) -> float:
    """Operations a second."""
    try:
        flops = tree.plan.cost().flops
    except JtgpuError:
        return RATE
    return max(RATE, flops / rates.single if rates.single else RATE)
