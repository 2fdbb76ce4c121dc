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
``EFFECT(a; b | c=x)``                P(a | do(b)) for each state of b, given c = x after the intervention
``ADJUST(a; b)``                      minimal sets of variables to adjust for when data show the effect of b on a
====================================  ================================================================================

Evidence is ``a=x`` (observed), ``a={x, y}`` (one of these states), ``likelihood(a: x=0.9, y=0.2)``,
``soft(a: x=0.7, y=0.3)`` or ``do(a=x)``. Numbers without states are in the order of the states: ``soft(a: 0.7, 0.3)``.
States are given by name or number. Names may contain any character: the longest matching name of the model is used.
Quotes around a name are optional: ``P(churn | "Has Kids?"=True)``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from ...backends.base import Evidence
from ...errors import EvidenceError, ImpossibleEvidence, UnknownState, UnknownVariable, closest, shown
from ...model.discrete import DiscreteModel
from ...model.states import StateNumber
from ...util import late_imports
from ...util.arguments import described
from ..compiled import CompiledModel
from ..evidence import read_known
from ..results.marginals import Posterior
from ..results.tables import Conditional, Joint
from .effects import Effect, effect
from .findings import conflict, evidence_importance
from .information import entropy, mutual_information, value_of_information
from .joint import conditional, joint
from .map import map as marginal_map
from .mpe import mpe
from .posteriors import posteriors

States = int | frozenset[int]  # the number of a state, or of several states one of which holds

WINDOW = 100  # characters of a long text that a message shows on either side of a position
_SPACE = re.compile(r"\s*")


class Scanner:
    """A text and the position up to which it has been read: marks, names, states and numbers.

    Names may contain any character, punctuation included, so there are no tokens: at each position, the names of the
    model are compared with the text.
    """

    def __init__(self, model: DiscreteModel, text: str):
        self.model, self.text, self.at = model, text, 0
        self.names = sorted(model.variables, key=len, reverse=True)

    def fail(self, message: str, at: int | None = None, kind: type[EvidenceError] = EvidenceError) -> NoReturn:
        """Raise an error that shows the text with a caret below the position."""
        at = self.at if at is None else at
        first = max(at - WINDOW, 0) if len(self.text) > 2 * WINDOW else 0
        line = "".join(c if c.isprintable() else " " for c in self.text[first : at + WINDOW])
        before, after = "..." if first else "", "..." if at + WINDOW < len(self.text) else ""
        caret = " " * (len(before) + at - first) + "^"
        raise kind(f"{message} (column {at + 1})\n    {before}{line}{after}\n    {caret}")

    def skip(self) -> None:
        self.match(_SPACE)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def stands(self, *marks: str) -> bool:
        """Whether one of the marks follows; reads blanks only."""
        self.skip()
        return self.text.startswith(marks, self.at)

    def take(self, mark: str) -> bool:
        if not self.stands(mark):
            return False
        self.at += len(mark)
        return True

    def need(self, mark: str, where: str) -> None:
        if not self.take(mark):
            here = repr(self.text[self.at]) if self.at < len(self.text) else "the end"
            self.fail(f"expected {mark!r} {where}, found {here}")

    def listed(self, read: Callable[[], object]) -> list[Any]:
        """Read one or more items, separated by commas."""
        items = [read()]
        while self.take(","):
            items.append(read())
        return items

    def fitting(self, words: Iterable[str], ends: str) -> list[tuple[str, int]]:
        """Words that follow, in quotes or not, each before one of `ends`, with their end positions; longest first."""
        self.skip()
        fitting = []
        quote = self.text[self.at : self.at + 1]
        for word in words:
            for written in (word, f"{quote}{word}{quote}") if quote in ('"', "'") else (word,):
                if self.text.startswith(written, self.at):
                    after = _SPACE.match(self.text, self.at + len(written))
                    assert after is not None
                    if after.end() < len(self.text) and self.text[after.end()] in ends:
                        fitting.append((word, self.at + len(written)))
        return sorted(fitting, key=lambda f: -f[1])

    def word(self) -> str:
        """The text up to the next mark, for messages."""
        after = re.compile(r"[,;:=|(){}]").search(self.text, self.at)
        return self.text[self.at : after.start() if after else None].strip()

    def variable(self, ends: str) -> str:
        """Read the name of a variable, which one of the characters `ends` must follow."""
        names = self.fitting(self.names, ends)
        if not names:
            word = self.word()
            if not word:
                self.fail("expected a variable")
            if word in self.model.variables:
                expected = " or ".join(repr(c) for c in ends)
                self.at += len(word)
                self.fail(f"expected {expected} after {word!r}")
            self.fail(f"there is no variable {shown(word)}{closest(word, self.model.variables)}", kind=UnknownVariable)
        name, self.at = names[0]
        return name

    def state(self, name: str, ends: str) -> int:
        """Read a state of a variable, by name or number."""
        labels = self.model.states(name)
        fitting = self.fitting(labels, ends)
        if fitting:
            at, (label, self.at) = self.at, fitting[0]
            if labels.count(label) > 1:
                self.fail(f"{name!r} has several states named {label!r}; rename them", at, UnknownState)
            return StateNumber(labels.index(label))
        word = self.word()
        # a name that is not followed by `ends` is reported
        number = None if word in labels else self.model.state_values(self.model.index(name)).find_text(word)
        if number is not None:
            self.at += len(word)
            return StateNumber(number)
        if not word:
            self.fail(f"expected a state of {name!r}")
        listed = ", ".join(map(repr, labels[:12])) + (", ..." if len(labels) > 12 else "")
        hint = self.model.state_values(self.model.index(name)).hint(name, word) or closest(word, labels)
        reason = f"{name!r} has no state {shown(word)} (its states are {listed}){hint}"
        self.fail(reason, kind=UnknownState)

    def states(self, name: str, ends: str) -> States:
        """Read one state, or several in braces."""
        if not self.fitting(self.model.states(name), ends) and self.take("{"):
            chosen = frozenset(self.listed(lambda: self.state(name, ",}")))
            self.need("}", "after the states")
            return chosen if len(chosen) > 1 else min(chosen)
        return self.state(name, ends)

    def item(self, ends: str) -> tuple[str, States | None]:
        """Read ``name`` or ``name=state``: the longest name whose rest can be read, too."""
        names = self.fitting(self.names, ends + "=")
        if not names:
            self.variable(ends + "=")  # raises
        refused: UnknownState | None = None
        for name, end in names:
            self.at = end
            if not self.take("="):
                return name, None
            try:
                return name, self.states(name, ends)
            except UnknownState as error:
                refused = refused or error
        assert refused is not None
        raise refused


KINDS = ("P", "lnP", "H", "MI", "VOI", "IMPORTANCE", "CONFLICT", "MPE", "MAP", "EFFECT", "ADJUST")
_OF_EVENTS = ("P", "lnP", "CONFLICT")  # their variables may have states
_ONE_TARGET = ("MI", "VOI", "IMPORTANCE", "EFFECT")
_OF_CAUSES = ("EFFECT", "ADJUST")  # they need others
_WITH_OTHERS = ("MI", "VOI", *_OF_CAUSES)  # a target, a semicolon, other variables
_OF_FINDINGS = ("IMPORTANCE", "CONFLICT")  # they need evidence
_KIND = re.compile(r"(?:ln\s*)?[A-Za-z]*")
_COUNT = re.compile(r"\d{1,9}")
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_FUNCTION = re.compile(r"(do|soft|likelihood)\s*\(")


@dataclass(frozen=True)
class ParsedQuestion:
    """A parsed question: names of variables, numbers of states."""

    text: str
    kind: str  # one of KINDS
    targets: tuple[str, ...] = ()
    event: dict[str, States] = field(default_factory=dict)  # of P and lnP, in place of targets
    others: tuple[str, ...] | None = None  # after the semicolon
    given: tuple[str, ...] = ()  # of P, variables without states after the bar
    k: int = 1  # of MPE
    known: dict[str, Any] = field(default_factory=dict)  # evidence, likelihood, soft, do: by name

    def also(self, model: object, evidence: Mapping[str, object]) -> ParsedQuestion:
        """The same question with additional observations."""
        for name in evidence:
            if name in self.given or any(name in given for given in self.known.values()):
                both = f"in the question {self.text!r} and outside of it"
                raise EvidenceError(f"evidence on {name!r} is given twice: {both}")
        known = {**self.known, "evidence": {**self.known.get("evidence", {}), **evidence}}
        if isinstance(model, DiscreteModel):  # with numbers, the query reads them
            read_known(model, **known)
        return replace(self, known=known)


def parse(model: DiscreteModel, text: str) -> ParsedQuestion:
    """Parse a question; see `jtgpu.inference.queries.text` for the grammar."""
    # raises EvidenceError, UnknownVariable, UnknownState: the message shows the text with a caret below the position
    return QuestionParser(model, text).question()


class QuestionParser(Scanner):
    """A recursive-descent parser: one method for each rule of the grammar."""

    def question(self) -> ParsedQuestion:
        kind = self.kind()
        self.need("(", f"after {kind}")
        q = ParsedQuestion(self.text, kind)
        if kind == "MPE":
            self.skip()
            q = replace(q, k=self.count())
        elif not self.stands("|", ")"):
            q = self.subjects(q)
        if kind in _WITH_OTHERS and self.take(";"):
            q = replace(q, others=tuple(self.listed(lambda: self.variable(",|)"))))
        given: list[str] = []
        known: dict[str, dict[str, Any]] = {}
        if self.take("|") and not self.stands(")"):
            self.listed(lambda: self.condition(kind, given, known))
        self.need(")", "at the end")
        self.skip()
        if self.at < len(self.text):
            self.fail("unexpected text after the closing parenthesis")
        if kind == "CONFLICT":
            known["evidence"] = {**q.event, **known.get("evidence", {})}
            q = replace(q, event={})
        q = replace(q, given=tuple(given), known=known)
        self.check(q)
        return q

    def kind(self) -> str:
        self.skip()  # in upper or lower case
        match = _KIND.match(self.text, self.at)
        word = match[0] if match else ""
        for kind in KINDS:
            if re.sub(r"\s", "", word).casefold() == kind.casefold():
                self.at += len(word)
                return kind
        known = ", ".join(f"{k}(...)" for k in KINDS)
        word = word or self.text[self.at : self.at + 10]
        self.fail(f"unknown kind of question {shown(word)}{closest(word.upper(), KINDS)} (expected one of {known})")

    def count(self) -> int:
        begin = self.at
        count = self.match(_COUNT)
        if count and int(count[0]) < 1:
            self.fail("the number of explanations must be at least 1", begin)
        return int(count[0]) if count else 1

    def subjects(self, q: ParsedQuestion) -> ParsedQuestion:
        """Read the variables of a question, or the event of P, lnP and CONFLICT."""
        targets: list[str] = []
        event: dict[str, States] = {}
        ends = ",;|)" if q.kind in _WITH_OTHERS else ",|)"

        def one() -> None:
            self.skip()
            begin = self.at
            name, states = self.item(ends) if q.kind in _OF_EVENTS else (self.variable(ends), None)
            self.once(name, [*targets, *event], begin)
            if states is None:
                if q.kind in ("lnP", "CONFLICT"):
                    self.fail(f"{q.kind} needs states: {name}=...", begin)
                targets.append(name)
            else:
                event[name] = states
            if targets and event:
                self.fail("P takes variables or an event, not both", begin)

        self.listed(one)
        if len(targets) > 1 and q.kind in _ONE_TARGET:
            self.fail(f"{q.kind} takes one target; separate others by a semicolon: {q.kind}({targets[0]}; ...)")
        return replace(q, targets=tuple(targets), event=event)

    def condition(self, kind: str, given: list[str], known: dict[str, dict[str, Any]]) -> None:
        """Read one item after the bar: a finding, a variable of `given`, or likelihood, soft or do."""
        self.skip()
        begin = self.at
        if not self.fitting(self.names, ",|)=") and (function := self.match(_FUNCTION)):
            self.function(function[1], known, begin)
            return
        name, states = self.item(",|)")
        if states is None:
            if kind != "P":
                self.fail(f"{name!r} needs a state: {name}=...", begin)
            given.append(self.once(name, given, begin))
        else:
            known.setdefault("evidence", {})[self.once(name, known.get("evidence", {}), begin)] = states

    def function(self, word: str, known: dict[str, dict[str, Any]], begin: int) -> None:
        """Read the arguments of likelihood, soft or do."""
        name = self.once(self.variable(":=" if word == "do" else ":"), known.get(word, {}), begin)
        if word == "do" and self.take("="):
            value: Any = self.state(name, ")")
        else:
            self.need(":", f"after {name!r}")
            value = self.numbers(name)
        known.setdefault(word, {})[name] = value
        self.need(")", f"at the end of {word}(...)")

    def once(self, name: str, before: Iterable[str], begin: int) -> str:
        """`name`, unless it has been given before."""
        if name in before:
            self.fail(f"{name!r} is given twice", begin)
        return name

    def numbers(self, name: str) -> list[float]:
        """Read a number for each state of a variable: in order, or each after its state."""
        labels = self.model.states(name)
        values: dict[int, float] = {}
        by_state: set[bool] = set()

        def one() -> None:
            self.skip()
            begin = self.at
            number = NUMBER.match(self.text, self.at)
            by_state.add(not number or bool(self.fitting(labels, "=")))
            if len(by_state) > 1:
                self.fail("give the numbers in the order of the states, or each with its state", begin)
            if number and by_state == {False}:
                state = len(values)
                if state >= len(labels):
                    self.fail(f"too many numbers: {name!r} has {len(labels)} states", begin)
            else:
                state = self.state(name, "=")
                self.need("=", "after the state")
                self.skip()
                number = NUMBER.match(self.text, self.at)
                if not number:
                    self.fail("expected a number")
            if state in values:
                self.fail("this state already has a number", begin)
            self.at = number.end()
            values[state] = float(number[0])

        self.listed(one)
        missing = [repr(label) for i, label in enumerate(labels) if i not in values]
        if missing:
            self.fail(f"{name!r} needs a number for {', '.join(missing)}")
        return [values[i] for i in range(len(labels))]

    def check(self, q: ParsedQuestion) -> None:
        """Check what depends on more than one part of a question."""
        if q.kind not in ("MPE", "CONFLICT") and not q.targets and not q.event:
            self.fail(f"{q.kind} needs a variable")
        if q.given and not q.targets:
            self.fail(f"the probability of an event needs a state of {q.given[0]!r} after the bar")
        for name in q.given:
            if name in q.targets or any(name in given for given in q.known.values()):
                self.fail(f"{name!r} is given twice")
        if q.kind in _OF_CAUSES:
            if q.others is None:
                self.fail(f"{q.kind} needs a cause after a semicolon: {q.kind}({', '.join(q.targets)}; ...)")
            if q.kind == "EFFECT" and len(q.others) > 1:
                self.fail("EFFECT takes one cause")
            if {*q.known} - ({"evidence"} if q.kind == "EFFECT" else set()):
                self.fail(f"{q.kind} takes {'findings a=x' if q.kind == 'EFFECT' else 'nothing'} after the bar")
        if q.kind in _OF_FINDINGS:
            if not {*q.known.get("evidence", ()), *q.known.get("likelihood", ())}:
                self.fail(f"{q.kind} needs findings")
            if q.known.get("soft"):
                self.fail(f"{q.kind} compares findings with each other and does not support soft evidence")
        self.read(q)

    def read(self, q: ParsedQuestion) -> None:
        """Check the evidence of a question."""
        read_known(self.model, **q.known)


# `ask`: parse a question and run the corresponding query.


def ask(tree: CompiledModel, question: str | ParsedQuestion) -> Any:
    """Answer a question; the result is that of the corresponding method of `jtgpu.JunctionTree`."""
    # raises EvidenceError, UnknownVariable, UnknownState: See `parse`.
    # raises ImpossibleEvidence: If the evidence has probability zero. An event of probability zero is not an error: its
    #     answer is 0, or -inf.
    if not isinstance(question, (str, ParsedQuestion)):
        raise EvidenceError(f"question must be a text such as 'P(lung | xray=yes)', not {described(question)}")
    q = parse(tree.model, question) if isinstance(question, str) else question
    return _ANSWERS[q.kind](tree, q)


def _probability(tree: CompiledModel, q: ParsedQuestion) -> Any:
    if q.event:
        return math.exp(_log_probability(tree, q))
    if q.given:
        return conditional(tree, q.targets, q.given, **q.known)
    if len(q.targets) > 1:
        return joint(tree, q.targets, **q.known)
    return posteriors(tree, tree.resolve(**q.known), [tree.model.index(q.targets[0])])[q.targets[0]]


def _log_probability(tree: CompiledModel, q: ParsedQuestion) -> float:
    """ln P(event | evidence); -inf for an impossible event."""
    resolved = tree.resolve(**q.known)
    model, case = tree.model, resolved.case
    before = tree.answer(resolved.backend.run_case, case, []).log_evidence
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
        after = resolved.backend.run_case(Evidence(state, weights), []).log_evidence
    except ImpossibleEvidence:
        return -math.inf
    return min(0.0, after - before)


_ANSWERS: dict[str, Callable[[CompiledModel, ParsedQuestion], Any]] = {
    "P": _probability,
    "lnP": _log_probability,
    "H": lambda tree, q: entropy(tree, q.targets, **q.known),
    "MI": lambda tree, q: mutual_information(tree, q.targets[0], q.others, **q.known),
    "VOI": lambda tree, q: value_of_information(tree, q.targets[0], q.others, **q.known),
    "IMPORTANCE": lambda tree, q: evidence_importance(tree, q.targets[0], **q.known),
    "CONFLICT": lambda tree, q: conflict(tree, **q.known),
    "MPE": lambda tree, q: mpe(tree, k=q.k, **q.known),
    "MAP": lambda tree, q: marginal_map(tree, q.targets, **q.known),
    "EFFECT": lambda tree, q: effect(tree, q.targets[0], of=(q.others or ("",))[0], given=q.known.get("evidence")),
    "ADJUST": lambda tree, q: late_imports.causal().graph(tree.model).adjustment_sets(q.others, q.targets),
}


# Answers to questions as numbers, texts, lists and dicts, for JSON.

UNITS = {
    "P": "probability", "lnP": "ln P", "H": "nats", "MI": "nats", "CONFLICT": "ln(prod P(e_i) / P(e))",
}  # fmt: skip


def as_json(q: ParsedQuestion, answer: Any) -> dict[str, Any]:
    """Convert an answer to numbers, strings, lists and dicts; an infinite logarithm becomes null."""
    content: dict[str, Any] = {"question": q.text, "kind": q.kind}
    answer = answer.table if isinstance(answer, Effect) else answer
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
        return content | {"observations": [*map(plain_fields, answer)]}
    if q.kind == "IMPORTANCE":
        return content | {"findings": [*map(plain_fields, answer)]}
    if q.kind == "ADJUST":
        return content | {"sets": [*map(sorted, answer)]}
    if q.kind in ("MPE", "MAP"):
        return content | {"explanations": [
            {"states": dict(e), "log_joint": e.log_joint, "probability": e.probability} for e in answer.ranked
        ]}  # fmt: skip
    return content | {"value": float(answer) if math.isfinite(answer) else None, "unit": UNITS[q.kind]}


def plain_fields(result: Any) -> Any:
    """The fields of an observation or an importance; arrays and tuples become lists."""
    fields = vars(result).items()
    return {name: np.asarray(x).tolist() if isinstance(x, (np.ndarray, tuple)) else x for name, x in fields}


__all__ = ["KINDS", "UNITS", "ParsedQuestion", "as_json", "ask", "parse", "plain_fields"]
