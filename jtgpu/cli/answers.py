"""Answers to questions as tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..inference.queries.information import Observation
from ..inference.queries.text import UNITS, Question
from ..inference.results.marginals import Posterior
from ..inference.results.tables import Conditional, Joint
from ..util.monospace import printable as shown
from .tables import bold, on_terminal, print_rows

ROUNDING = 1e-14  # nats

Cell = str | float


@dataclass(frozen=True)
class Answer:
    """An answer as a table."""

    header: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


def observation_table(found: Iterable[Observation]) -> Answer:
    """Values of information; a gain below rounding error, of an observation that tells nothing, is 0."""
    head = ("variable", "gain", "expected entropy", "expected accuracy")
    rows = [(o, 0.0 if abs(o.gain) < ROUNDING else o.gain) for o in found]
    return Answer(head, [(o.variable, gain, o.expected_entropy, o.expected_accuracy) for o, gain in rows])


def answer_table(q: Question, answer: Any) -> Answer:
    """Convert an answer of `jtgpu.inference.queries.text.ask` to rows."""
    if isinstance(answer, Posterior):
        return Answer((answer.variable, "P"), [*zip(answer.states, answer.probabilities.tolist(), strict=True)])
    if isinstance(answer, Joint):
        return Answer((*answer.variables, "P"), [(*labels, p) for labels, p in answer.items()])
    if isinstance(answer, Conditional):
        rows: list[tuple[Cell, ...]] = []
        for at in product(*(range(n) for n in answer.shape)):
            possible = bool(answer.possible[at[: len(answer.given)]])
            labels = [answer.states[i][s] for i, s in enumerate(at)]
            rows.append((*labels, float(answer.probabilities[at]) if possible else "impossible"))
        return Answer((*answer.variables, "P"), rows)
    head: tuple[str, ...]
    if q.kind == "MI":
        return Answer(("variable", "nats"), [*answer.items()])
    if q.kind == "VOI":
        return observation_table(answer)
    if q.kind == "IMPORTANCE":
        head = ("finding", "states", "KL without", "Hellinger", "shift", "KL alone", "Hellinger", "shift")
        return Answer(head, [
            (i.variable, ", ".join(i.states), i.kl_without, i.hellinger_without, i.shift_without,
             i.kl_alone, i.hellinger_alone, i.shift_alone)
            for i in answer
        ])  # fmt: skip
    if q.kind in ("MPE", "MAP"):
        ranked = answer.ranked
        head = ("variable", *("state" if len(ranked) == 1 else str(i + 1) for i in range(len(ranked))))
        rows = [(v, *(e[v] for e in ranked)) for v in answer]
        return Answer(head, [*rows, ("P", *(e.probability for e in ranked))])
    return Answer((UNITS[q.kind],), [(float(answer),)])


def print_answer(q: Question, answer: Answer, digits: int | None = None, *, first: bool = True) -> None:
    """Print a question and its answer, on a terminal below an empty line unless it is the first."""
    if on_terminal() and not first:
        print()
    print(bold(q.text) if on_terminal() else f"# {shown(q.text)}")
    print_rows(answer.header, answer.rows, digits=digits, bars=q.kind == "P")
