"""``jtgpu query``: posteriors of one case, and queries in text form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

from click import BadParameter

from ..errors import JtgpuError
from ..inference.queries import text
from ..inference.queries.effects import Effect
from ..inference.queries.text import UNITS, ParsedQuestion
from ..inference.results.contributions import Contributions
from ..inference.results.marginals import Posterior
from ..inference.results.tables import Conditional, Joint
from ..inference.session import CaseParser, ask_case
from ..model.decisions import DecisionNetwork
from ..model.mixed import MixedNetwork
from ..options.compute import Compute, CutPlanning
from ..util.text_table import printable as shown
from .console import print_json
from .declared import Query
from .networks import case_of, findings_as_json, load_any, target_names, with_codes
from .planning import compiled
from .tables import bold, on_terminal, print_note, print_rows, show_number

# Answers to questions as tables.

ROUNDING = 1e-14  # nats
QUANTILES = (0.05, 0.95)  # of numbers
BIT = 0.6931471805599453  # nats: ln 2

Cell = str | float
Table = tuple[tuple[str, ...], list[tuple[Cell, ...]]]  # header, rows


def observation_table(observations: Any) -> Table:
    """Values of information in bits, or of a decision in units of utility; a gain below rounding error is 0."""
    if isinstance(observations, Mapping):  # of a decision
        return ("variable", "gain (utility)"), [*observations.items()]
    rows = [(o, 0.0 if abs(o.gain) < ROUNDING else o.gain / BIT) for o in observations]
    last = "expected_sd" if rows and hasattr(rows[0][0], "expected_sd") else "expected_accuracy"
    head = ("variable", "gain (bits)", "expected entropy (bits)", last.replace("_", " "))
    return head, [(o.variable, gain, o.expected_entropy / BIT, getattr(o, last)) for o, gain in rows]


def answer_table(q: ParsedQuestion, answer: Any) -> Table:
    """Convert an answer of `jtgpu.inference.queries.text.ask` to rows."""
    answer = answer.table if isinstance(answer, Effect) else answer
    if isinstance(answer, Posterior):
        return (answer.variable, "P"), [*zip(answer.states, answer.probabilities.tolist(), strict=True)]
    if _is_number(answer):
        return _number_table({answer.variable: answer})
    if isinstance(answer, Joint):
        return (*answer.variables, "P"), [(*labels, p) for labels, p in answer.items()]
    if isinstance(answer, Conditional):
        rows: list[tuple[Cell, ...]] = []
        for at in product(*(range(n) for n in answer.shape)):
            possible = bool(answer.possible[at[: len(answer.given)]])
            labels = [answer.states[i][s] for i, s in enumerate(at)]
            rows.append((*labels, float(answer.probabilities[at]) if possible else "impossible"))
        return (*answer.variables, "P"), rows
    head: tuple[str, ...]
    if q.kind == "MI":
        return ("variable", "nats"), [*answer.items()]
    if q.kind == "VOI":
        return observation_table(answer)
    if q.kind == "IMPORTANCE":
        head = ("finding", "states", "KL without", "Hellinger", "shift", "KL alone", "Hellinger", "shift")
        return head, [
            (i.variable, ", ".join(i.states), i.kl_without, i.hellinger_without, i.shift_without,
             i.kl_alone, i.hellinger_alone, i.shift_alone)
            for i in answer
        ]  # fmt: skip
    if q.kind == "ADJUST":
        return ("adjustment set",), [(", ".join(sorted(s)) or "(none)",) for s in answer]
    if q.kind in ("MPE", "MAP"):
        ranked = answer.ranked
        head = ("variable", *("state" if len(ranked) == 1 else str(i + 1) for i in range(len(ranked))))
        rows = [(v, *(e[v] for e in ranked)) for v in answer]
        return head, [*rows, ("P", *(e.probability for e in ranked))]
    return (UNITS[q.kind],), [(float(answer),)]


def print_answer(q: ParsedQuestion, answer: Table, digits: int | None = None, *, first: bool = True) -> None:
    """Print a question and its answer, on a terminal below an empty line unless it is the first."""
    if on_terminal() and not first:
        print()
    print(bold(q.text) if on_terminal() else f"# {shown(q.text)}")
    print_rows(*answer, digits=digits, bars=q.kind == "P")


def query(o: Query, plan: CutPlanning, run: Compute) -> None:
    """Run ``jtgpu query``."""
    net: Any = with_codes(load_any(o.file), o.codes)
    numbers, decides = isinstance(net, MixedNetwork), isinstance(net, DecisionNetwork)
    # validate everything before the computation starts
    findings = case_of(net, o.evidence, o.evidence_file)
    if o.question and o.target:
        raise BadParameter("a query names its own targets", param_hint="--target")
    for q in o.question:
        if "=" in q and q.partition("=")[0].strip() in net.variables:
            raise BadParameter(f"{q!r} is evidence, not a question: use -e {q!r}", param_hint="QUESTION")
        if q.strip() in net.variables:
            raise BadParameter(f"{q!r} is a variable: use -t {q!r}, or \"P({q})\"", param_hint="QUESTION")
    parser = CaseParser if numbers else text.QuestionParser
    questions = [parser(net, q).question().also(net, findings) for q in o.question]
    if o.question and getattr(findings, "likelihood", None):
        raise BadParameter("queries take no likelihoods from a file", param_hint="--evidence-file")
    targets = target_names(net, o.target) or None
    if o.why and (targets is None or o.question or not findings):
        raise BadParameter("it takes the findings of -e and targets, -t NAME, and no queries", param_hint="--why")
    with compiled(net, o.file, plan, run, decisions=True) as (tree, _):
        if o.why:
            print_contributions(o, findings, [tree.contributions(t, findings) for t in targets or ()])
            return
        posteriors = None if questions else tree.posteriors(findings, targets=targets)
        answers, error = answer_questions(
            tree, questions, _answer_as_json if o.json else answer_table,
            ask_case if numbers or decides else text.ask,
        )  # fmt: skip
        worth = tree.utility(findings).mean if decides and posteriors is not None else None
    if posteriors is None:
        print_answers(o.file, questions, answers, error, o.json, o.digits)
    elif o.json:
        print_json({
            "file": o.file, "evidence": findings_as_json(findings), "log_evidence": posteriors.log_evidence,
            "posteriors": {v: _posterior_as_json(p) for v, p in posteriors.items()},
            **({} if worth is None else {"expected_utility": worth}),
        })  # fmt: skip
    elif numbers:
        states = {v: p for v, p in posteriors.items() if not net.is_number(v)}
        if states:
            print_posteriors(states, o.digits, named=True)
        if states and on_terminal():
            print()
        print_numbers({v: p for v, p in posteriors.items() if net.is_number(v)}, o.digits)
    else:
        print_posteriors(posteriors, o.digits, named=on_terminal())
    if findings and posteriors is not None and not o.json:
        what = "density" if numbers and any(isinstance(findings.get(v), float) for v in net.numbers) else "P"
        log_evidence = show_number(posteriors.log_evidence, o.digits)
        print(f"ln {what}(evidence) = {log_evidence}" if on_terminal() else f"# ln {what}(evidence)\t\t{log_evidence}")
    if worth is not None and not o.json:
        print_note(f"Under the best policy (jtgpu decide), whose expected utility is {show_number(worth, o.digits)}.")


def print_contributions(o: Query, findings: Any, explanations: list[Contributions]) -> None:
    """Print what findings contribute: a table for each target."""
    if o.json:
        print_json({"file": o.file, "evidence": findings_as_json(findings), "contributions": [
            {"target": why.target, "state": why.state, "of": why.of, "base": why.base, "total": why.total,
             "contributions": dict(why), "errors": why.errors} for why in explanations
        ]})  # fmt: skip
        return
    for i, why in enumerate(explanations):
        if on_terminal() and i:
            print()
        print(bold(str(why.explained)) if on_terminal() else f"# {shown(str(why.explained))}")
        columns = why._columns()  # with the errors of estimates
        rows: list[tuple[Cell, ...]] = [*zip(*columns.values(), strict=True)]
        more = [""] * (len(columns) - 3)
        rows = [("without findings", "", why.base, *more), *rows, ("with findings", "", why.total, *more)]
        print_rows((*columns,), rows, digits=o.digits)


def answer_questions(
    tree: Any, questions: list[text.ParsedQuestion], convert: Callable[[text.ParsedQuestion, Any], Any],
    ask: Callable[[Any, text.ParsedQuestion], Any] = text.ask,
) -> tuple[list[Any], JtgpuError | None]:
    """Converted answers up to the first question that fails, and its error."""
    answers: list[Any] = []
    for q in questions:
        try:
            answers.append(convert(q, ask(tree, q)))
        except JtgpuError as error:
            return answers, error
    return answers, None


def print_answers(
    file: str, questions: list[text.ParsedQuestion], answers: list[Any], error: JtgpuError | None, json: bool,
    digits: int | None = None,
) -> None:  # fmt: skip
    """Print the answers, then raise the error; with JSON print either everything or nothing."""
    if not json:
        for i, (q, answer) in enumerate(zip(questions, answers, strict=False)):
            print_answer(q, answer, digits, first=i == 0)
    if error is not None:
        raise error
    if json:
        print_json({"file": file, "questions": answers})


def _is_number(answer: object) -> bool:
    """Whether an answer is the posterior of a number; its class is imported with such networks only."""
    return hasattr(answer, "quantiles") and not isinstance(answer, Posterior)


def _answer_as_json(q: ParsedQuestion, answer: Any) -> dict[str, Any]:
    """An answer for JSON; the posterior of a number as in ``posteriors``."""
    if _is_number(answer):
        return {"question": q.text, "kind": q.kind, "variable": answer.variable, **_posterior_as_json(answer)}
    if hasattr(answer, "decision"):  # what it is worth to know other variables
        return {"question": q.text, "kind": q.kind, "decision": answer.decision, "gains": dict(answer)}
    return text.as_json(q, answer)


def _posterior_as_json(p: Any) -> dict[str, Any]:
    """The posterior of a variable: of states, or of a number."""
    if isinstance(p, Posterior):
        return {"states": list(p.states), "probabilities": p.probabilities.tolist()}
    quantiles = dict(zip(map(str, QUANTILES), p.quantiles(QUANTILES).tolist(), strict=True))
    return {"mean": p.mean, "sd": p.sd, "quantiles": quantiles}


def print_posteriors(answer: Mapping[str, Posterior], digits: int | None, *, named: bool) -> None:
    """Print one state per line: a table with bars on a terminal, tab-separated values elsewhere."""
    rows = [
        ("" if i and on_terminal() else name, state, p)
        for name, posterior in answer.items()
        for i, (state, p) in enumerate(zip(posterior.states, posterior.probabilities.tolist(), strict=True))
    ]
    if rows:
        print_rows(("variable", "state", "P"), rows, digits=digits, bars=True, named=named)


def print_numbers(answer: Mapping[str, Any], digits: int | None) -> None:
    """Print mean, standard deviation and two quantiles of each number."""
    if answer:
        print_rows(*_number_table(answer), digits=digits)


def _number_table(answer: Mapping[str, Any]) -> Table:
    header = ("number", "mean", "sd", *(f"{100 * q:g} %" for q in QUANTILES))
    return header, [(v, p.mean, p.sd, *p.quantiles(QUANTILES).tolist()) for v, p in answer.items()]
