"""Answers to questions as tables, as tab-separated text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from rich.table import Table

from ..inference.queries.text import Question
from ..inference.results.marginals import Posterior
from ..inference.results.tables import Conditional, Joint
from .console import cell, shown, stdout

__all__ = ["BAR", "Answer", "answer_table", "as_json", "bar", "format_number", "print_answer", "print_rows"]

Cell = str | float

BAR = 40  # length of the bar of probability 1, in characters
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True)
class Answer:
    """An answer as a table."""

    header: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


_UNITS = {
    "P": "probability", "lnP": "ln P", "H": "nats", "MI": "nats", "CONFLICT": "ln(prod P(e_i) / P(e))",
}  # fmt: skip


def answer_table(q: Question, answer: Any) -> Answer:
    """Convert an answer of `jtgpu.inference.queries.text.ask` to rows."""
    if isinstance(answer, Posterior):
        return Answer((answer.variable, "P"), [*zip(answer.states, answer, strict=True)])
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
        head = ("variable", "gain", "expected entropy", "expected accuracy")
        return Answer(head, [(o.variable, o.gain, o.expected_entropy, o.expected_accuracy) for o in answer])
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
    return Answer((_UNITS[q.kind],), [(float(answer),)])


def as_json(q: Question, answer: Any) -> dict[str, Any]:
    """Convert an answer to numbers, strings, lists and dicts; an infinite logarithm becomes null."""
    found: dict[str, Any] = {"question": q.text, "kind": q.kind}
    if isinstance(answer, Posterior):
        return found | {"variable": answer.variable, "states": list(answer.states), "probabilities": list(answer)}
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
            {k: list(v) if k in ("states", "without", "alone") else v for k, v in vars(i).items()} for i in answer
        ]}  # fmt: skip
    if q.kind in ("MPE", "MAP"):
        return found | {"explanations": [
            {"states": dict(e), "log_joint": e.log_joint, "probability": e.probability} for e in answer.ranked
        ]}  # fmt: skip
    return found | {"value": float(answer) if math.isfinite(answer) else None, "unit": _UNITS[q.kind]}


def print_answer(q: Question, answer: Answer) -> None:
    """Print a question and its answer."""
    if stdout().is_terminal:
        stdout().print(cell(q.text, "bold"))
    else:
        print(f"# {shown(q.text)}")
    print_rows(answer.header, answer.rows, bars=q.kind == "P")


def print_rows(header: Sequence[str], rows: Sequence[Sequence[Cell]], *, bars: bool = False) -> None:
    """Print a table on a terminal, tab-separated values elsewhere.

    With `bars`, the table also shows the last number of each row as a bar.
    """
    console = stdout()
    if not console.is_terminal:
        for row in [header, *rows]:
            print("\t".join(shown(x) if isinstance(x, str) else repr(float(x)) for x in row))
        return
    table = Table(box=None, pad_edge=False)
    for i, name in enumerate(header):
        numbers = any(not isinstance(row[i], str) for row in rows)
        table.add_column(cell(name, "bold"), justify="right" if numbers else "left")
    if bars:
        table.add_column("", width=BAR, no_wrap=True)
    for row in rows:
        cells = [cell(x) if isinstance(x, str) else cell(format_number(float(x))) for x in row]
        if bars:
            cells.append(cell("" if isinstance(row[-1], str) else bar(float(row[-1])), "cyan"))
        table.add_row(*cells)
    console.print(table)


def bar(p: float) -> str:
    """A probability as a bar, with a resolution of an eighth of a character."""
    eighths = round(8 * BAR * min(max(p, 0.0), 1.0))
    return _EIGHTHS[8] * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def format_number(x: float) -> str:
    """A number with six significant decimals, as tables on a terminal show it."""
    return f"{x:.6f}" if x == 0 or 1e-4 <= abs(x) < 1e6 else f"{x:.6g}"
