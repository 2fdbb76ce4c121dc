"""The grammar of questions: `parse` turns a text into a `Question`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ....errors import EvidenceError, closest, shown
from ....model.discrete import DiscreteModel
from ...evidence import read_known
from .scanner import Scanner, States

KINDS = ("P", "lnP", "H", "MI", "VOI", "IMPORTANCE", "CONFLICT", "MPE", "MAP")
_OF_EVENTS = ("P", "lnP", "CONFLICT")  # their variables may have states
_ONE_TARGET = ("MI", "VOI", "IMPORTANCE")
_WITH_OTHERS = ("MI", "VOI")  # a target, a semicolon, other variables
_OF_FINDINGS = ("IMPORTANCE", "CONFLICT")  # they need evidence
_KIND = re.compile(r"(?:ln\s*)?[A-Za-z]*")
_COUNT = re.compile(r"\d{1,9}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_FUNCTION = re.compile(r"(do|soft|likelihood)\s*\(")


@dataclass(frozen=True)
class Question:
    """A parsed question: names of variables, numbers of states."""

    text: str
    kind: str  # one of KINDS
    targets: tuple[str, ...] = ()
    event: dict[str, States] = field(default_factory=dict)  # of P and lnP, in place of targets
    others: tuple[str, ...] | None = None  # of MI and VOI, after the semicolon
    given: tuple[str, ...] = ()  # of P, variables without states after the bar
    k: int = 1  # of MPE
    known: dict[str, Any] = field(default_factory=dict)  # evidence, likelihood, soft, do: by name

    def also(self, model: DiscreteModel, evidence: dict[str, States]) -> Question:
        """The same question with additional observations."""
        # raises EvidenceError: If the question already has evidence on one of the variables.
        for name in evidence:
            if name in self.given or any(name in given for given in self.known.values()):
                raise EvidenceError(
                    f"evidence on {name!r} is given twice: in the question {self.text!r} and outside of it"
                )
        known = {**self.known, "evidence": {**self.known.get("evidence", {}), **evidence}}
        read_known(model, **known)
        return replace(self, known=known)


def parse(model: DiscreteModel, text: str) -> Question:
    """Parse a question; see `jtgpu.inference.queries.text` for the grammar."""
    # raises EvidenceError: If the text is not a question; the message shows it with a caret below the position.
    # raises UnknownVariable, UnknownState: If the model has no such name; the message suggests the closest ones.
    return _Parser(model, text).question()


class _Parser(Scanner):
    """A recursive-descent parser: one method for each rule of the grammar."""

    def question(self) -> Question:
        """Read the whole text."""
        kind = self.kind()
        self.need("(", f"after {kind}")
        q = Question(self.text, kind)
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
        """Read the kind of question, in upper or lower case."""
        self.skip()
        found = _KIND.match(self.text, self.at)
        word = found[0] if found else ""
        for kind in KINDS:
            if re.sub(r"\s", "", word).casefold() == kind.casefold():
                self.at += len(word)
                return kind
        known = ", ".join(f"{k}(...)" for k in KINDS)
        word = word or self.text[self.at : self.at + 10]
        self.fail(f"unknown kind of question {shown(word)}{closest(word.upper(), KINDS)} (expected one of {known})")

    def count(self) -> int:
        """Read the number of explanations; 1 if there is none."""
        begin = self.at
        found = self.match(_COUNT)
        if found and int(found[0]) < 1:
            self.fail("the number of explanations must be at least 1", begin)
        return int(found[0]) if found else 1

    def subjects(self, q: Question) -> Question:
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
        found: dict[int, float] = {}
        by_state: set[bool] = set()

        def one() -> None:
            self.skip()
            begin = self.at
            number = _NUMBER.match(self.text, self.at)
            by_state.add(not number or bool(self.fitting(labels, "=")))
            if len(by_state) > 1:
                self.fail("give the numbers in the order of the states, or each with its state", begin)
            if number and by_state == {False}:
                state = len(found)
                if state >= len(labels):
                    self.fail(f"too many numbers: {name!r} has {len(labels)} states", begin)
            else:
                state = self.state(name, "=")
                self.need("=", "after the state")
                self.skip()
                number = _NUMBER.match(self.text, self.at)
                if not number:
                    self.fail("expected a number")
            if state in found:
                self.fail("this state already has a number", begin)
            self.at = number.end()
            found[state] = float(number[0])

        self.listed(one)
        missing = [repr(label) for i, label in enumerate(labels) if i not in found]
        if missing:
            self.fail(f"{name!r} needs a number for {', '.join(missing)}")
        return [found[i] for i in range(len(labels))]

    def check(self, q: Question) -> None:
        """Check what depends on more than one part of a question."""
        if q.kind not in ("MPE", "CONFLICT") and not q.targets and not q.event:
            self.fail(f"{q.kind} needs a variable")
        if q.given and not q.targets:
            self.fail(f"the probability of an event needs a state of {q.given[0]!r} after the bar")
        for name in q.given:
            if name in q.targets or any(name in given for given in q.known.values()):
                self.fail(f"{name!r} is given twice")
        if q.kind in _OF_FINDINGS:
            if not {*q.known.get("evidence", ()), *q.known.get("likelihood", ())}:
                self.fail(f"{q.kind} needs findings")
            if q.known.get("soft"):
                self.fail(f"{q.kind} compares findings with each other and does not support soft evidence")
        read_known(self.model, **q.known)
