"""Questions as people write them: ``P(lung | xray=yes)``, ``MPE(3 | xray=yes)``, ``MI(lung; smoke, bronc)``.

A question is a kind, and in brackets what it is about, behind ``|`` what is known:

====================================  ================================================================================
``P(a)``, ``P(a, b)``                 posterior of a variable, joint posterior of several
``P(a | b, c=x)``                     the table of a for every state of b, given c = x
``P(a=x, b=y)``, ``lnP(a=x)``         probability of an event, and its natural logarithm
``H(a)``, ``H(a, b)``                 entropy, in nats
``MI(a)``, ``MI(a; b, c)``            mutual information of a and each other variable, or each of these
``VOI(a)``, ``VOI(a; b, c)``          what to observe next to learn about a, of all variables or of these
``IMPORTANCE(a | b=x, c=y)``          what each finding does to the posterior of a
``CONFLICT(b=x, c=y)``                how much findings contradict each other
``MPE(| b=x)``, ``MPE(3 | b=x)``      the most probable configuration of all variables, or the three most probable
``MAP(a, b | c=x)``                   the most probable configuration of some variables, the others summed out
====================================  ================================================================================

Behind ``|`` stand ``a=x`` (observed), ``a={x, y}`` (one of these), ``likelihood(a: x=0.9, y=0.2)``,
``soft(a: x=0.7, y=0.3)`` and ``do(a=x)``; numbers alone are taken in the order of the states: ``soft(a: 0.7, 0.3)``.
States are named or numbered. Names may hold any character: what is read is the longest name of the model that fits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...backends.base import Evidence
from ...errors import EvidenceError, ImpossibleEvidence, UnknownState, UnknownVariable, closest
from ..evidence import Known, read_known
from .information import conflict, entropy, evidence_importance, mutual_information, value_of_information
from .joint import conditional, joint
from .map import marginal_map
from .mpe import mpe
from .posteriors import posterior

if TYPE_CHECKING:
    from ...model.network import DiscreteModel
    from ..compiled import CompiledModel

__all__ = ["KINDS", "Question", "ask", "parse"]

KINDS = ("P", "lnP", "H", "MI", "VOI", "IMPORTANCE", "CONFLICT", "MPE", "MAP")
_ONE_TARGET = ("MI", "VOI", "IMPORTANCE")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SPACE = re.compile(r"\s*")

States = int | frozenset[int]  # a state's number, or the numbers of which one holds


@dataclass(frozen=True)
class Question:
    """A question that has been read: names of variables, numbers of states."""

    text: str
    kind: str  # one of KINDS
    targets: tuple[str, ...] = ()
    event: dict[str, States] = field(default_factory=dict)  # what P and lnP ask for in place of targets
    others: tuple[str, ...] | None = None  # behind the semicolon
    given: tuple[str, ...] = ()  # variables without states behind the bar
    k: int = 1  # of MPE
    known: dict[str, Any] = field(default_factory=dict)  # evidence, likelihood, soft, do: by name

    def also(self, model: DiscreteModel, evidence: dict[str, States]) -> Question:
        """The question with more findings.

        Raises
        ------
        EvidenceError
            For a variable that the question says something of already.
        """
        for name in evidence:
            if name in self.given or any(name in said for said in self.known.values()):
                raise EvidenceError(f"evidence on {name!r} is given twice: in {self.text!r} and beside it")
        known = {**self.known, "evidence": {**self.known.get("evidence", {}), **evidence}}
        read_known(model, **known)
        return replace(self, known=known)


def parse(model: DiscreteModel, text: str) -> Question:
    """Read a question; see the module.

    Raises
    ------
    EvidenceError
        For what is no question, with the place: the text and a caret below it.
    UnknownVariable, UnknownState
        With the closest names and the place.
    """
    return _Reader(model, text).question()


class _Reader:
    """A text, and how far it has been read."""

    def __init__(self, model: DiscreteModel, text: str):
        self.model, self.text, self.at = model, text, 0
        self.names = sorted(model.variables, key=len, reverse=True)

    # Pieces ---------------------------------------------------------------------------------------------------

    def fail(self, what: str, at: int | None = None, kind: type[EvidenceError] = EvidenceError) -> NoReturn:
        """Refuse the text, with a caret below the place."""
        at = self.at if at is None else at
        line = "".join(c if c.isprintable() else " " for c in self.text)
        raise kind(f"{what} (column {at + 1})\n    {line}\n    {' ' * at}^")

    def skip(self) -> None:
        """Pass blanks."""
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def take(self, mark: str) -> bool:
        """Pass a mark, where it stands here."""
        self.skip()
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def need(self, mark: str, where: str) -> None:
        """Pass a mark that must stand here."""
        if not self.take(mark):
            found = repr(self.text[self.at]) if self.at < len(self.text) else "the end"
            self.fail(f"{mark!r} is expected {where}, not {found}")

    def fitting(self, words: Iterable[str], ends: str) -> list[tuple[str, int]]:
        """Those of the words that stand here and are followed by one of `ends`, and where they end; longest first."""
        self.skip()
        found = []
        for word in words:
            if self.text.startswith(word, self.at):
                after = _SPACE.match(self.text, self.at + len(word))
                assert after is not None
                if after.end() < len(self.text) and self.text[after.end()] in ends:
                    found.append((word, self.at + len(word)))
        return sorted(found, key=lambda f: -f[1])

    def word(self) -> str:
        """What stands here up to a mark, for messages."""
        after = re.compile(r"[,;:=|(){}]").search(self.text, self.at)
        return self.text[self.at : after.start() if after else None].strip()

    def variable(self, ends: str) -> str:
        """Pass a variable's name."""
        found = self.fitting(self.names, ends)
        if not found:
            word = self.word()
            if not word:
                self.fail("a variable is expected here")
            if word in self.model.variables:
                expected = " or ".join(repr(c) for c in ends)
                self.at += len(word)
                self.fail(f"{expected} is expected behind {word!r}")
            self.fail(f"there is no variable {word!r}{closest(word, self.model.variables)}", kind=UnknownVariable)
        name, self.at = found[0]
        return name

    def state(self, name: str, ends: str) -> int:
        """Pass a state of a variable, by name or number."""
        labels = self.model.states(name)
        found = self.fitting(labels, ends)
        if found:
            at, (label, self.at) = self.at, found[0]
            if labels.count(label) > 1:
                self.fail(f"{name!r} has several states named {label!r}; give the state's number", at, UnknownState)
            return labels.index(label)
        word = self.word()
        if word.isascii() and word.isdigit() and len(word) < 10 and int(word) < len(labels):
            self.at += len(word)
            return int(word)
        if not word:
            self.fail(f"a state of {name!r} is expected here")
        listed = ", ".join(map(repr, labels[:12])) + (", ..." if len(labels) > 12 else "")
        self.fail(f"{name!r} has no state {word!r}{closest(word, labels)} (its states are {listed})", kind=UnknownState)

    def states(self, name: str, ends: str) -> States:
        """Pass a state, or several in braces."""
        if not self.fitting(self.model.states(name), ends) and self.take("{"):
            chosen = {self.state(name, ",}")}
            while self.take(","):
                chosen.add(self.state(name, ",}"))
            self.need("}", "behind the states")
            return frozenset(chosen) if len(chosen) > 1 else chosen.pop()
        return self.state(name, ends)

    def item(self, ends: str) -> tuple[str, States | None]:
        """Pass ``name`` or ``name=state``: the longest name that fits with what follows it."""
        found = self.fitting(self.names, ends + "=")
        if not found:
            self.variable(ends + "=")  # says why
        refused: UnknownState | None = None
        for name, end in found:
            self.at = end
            if not self.take("="):
                return name, None
            try:
                return name, self.states(name, ends)
            except UnknownState as error:
                refused = refused or error
        assert refused is not None
        raise refused

    # The question ---------------------------------------------------------------------------------------------

    def question(self) -> Question:
        """All of it."""
        kind = self.kind()
        self.need("(", f"behind {kind}")
        q = Question(self.text, kind)
        self.skip()
        if kind == "MPE":
            q = self.count(q)
        elif not self.text.startswith(("|", ")"), self.at):
            q = self.subjects(q)
        if kind in ("MI", "VOI") and self.take(";"):
            q = replace(q, others=tuple(self.listed(lambda: self.variable(",|)"))))
        given: list[str] = []
        known: dict[str, dict[str, Any]] = {}
        if self.take("|"):
            self.skip()
            if not self.text.startswith(")", self.at):
                self.listed(lambda: self.condition(kind, given, known))
        self.need(")", "at the end")
        self.skip()
        if self.at < len(self.text):
            self.fail("nothing is expected behind the closing bracket")
        if kind == "CONFLICT":
            known["evidence"] = {**q.event, **known.get("evidence", {})}
            q = replace(q, event={})
        q = replace(q, given=tuple(given), known=known)
        self.check(q)
        return q

    def kind(self) -> str:
        """Pass the kind of question, in any case of letters."""
        self.skip()
        found = re.compile(r"(?:ln\s*)?[A-Za-z]*").match(self.text, self.at)
        word = found[0] if found else ""
        for kind in KINDS:
            if re.sub(r"\s", "", word).casefold() == kind.casefold():
                self.at += len(word)
                return kind
        known = ", ".join(f"{k}(...)" for k in KINDS)
        shown = word or self.text[self.at : self.at + 10]
        self.fail(f"{shown!r} is no question{closest(shown.upper(), KINDS)} (there are {known})")

    def listed(self, read: Callable[[], Any]) -> list[Any]:
        """One or more, with commas."""
        found = [read()]
        while self.take(","):
            found.append(read())
        return found

    def count(self, q: Question) -> Question:
        """How many explanations."""
        found = re.compile(r"\d{1,9}").match(self.text, self.at)
        if not found:
            return q
        self.at = found.end()
        if int(found[0]) < 1:
            self.fail("at least one explanation", found.start())
        return replace(q, k=int(found[0]))

    def subjects(self, q: Question) -> Question:
        """What the question is about: variables, or for P, lnP and CONFLICT an event."""
        targets: list[str] = []
        event: dict[str, States] = {}
        ends = ",;|)" if q.kind in ("MI", "VOI") else ",|)"

        def one() -> None:
            self.skip()
            begin = self.at
            name, states = self.item(ends) if q.kind in ("P", "lnP", "CONFLICT") else (self.variable(ends), None)
            if name in targets or name in event:
                self.fail(f"{name!r} stands twice", begin)
            if (states is None and (event or q.kind != "P") and q.kind in ("P", "lnP", "CONFLICT")) or (
                states is not None and targets
            ):
                self.fail(
                    f"{q.kind} is asked of variables or of an event, not of both" if q.kind == "P" else
                    f"{q.kind} needs states: {name}=...", begin,
                )  # fmt: skip
            if states is None:
                targets.append(name)
            else:
                event[name] = states

        self.listed(one)
        if len(targets) > 1 and q.kind in _ONE_TARGET:
            self.fail(f"{q.kind} has one target; others are written behind a semicolon: {q.kind}({targets[0]}; ...)")
        return replace(q, targets=tuple(targets), event=event)

    def condition(self, kind: str, given: list[str], known: dict[str, dict[str, Any]]) -> None:
        """One thing that is known."""
        self.skip()
        begin = self.at
        special = re.compile(r"(do|soft|likelihood)\s*\(").match(self.text, self.at)
        if special and not self.fitting(self.names, ",|)="):
            self.at = special.end()
            word = special[1]
            name = self.variable(":=" if word == "do" else ":")
            if word == "do" and self.take("="):
                known.setdefault("do", {})[self.fresh(name, known.get("do", {}), begin)] = self.state(name, ")")
            else:
                self.need(":", f"behind {name!r}")
                said = known.setdefault(word, {})
                said[self.fresh(name, said, begin)] = self.numbers(name)
            self.need(")", f"at the end of {word}(...)")
            return
        name, states = self.item(",|)")
        if states is None:
            if kind != "P":
                self.fail(f"{name!r} needs a state here: {name}=...", begin)
            given.append(self.fresh(name, given, begin))
            return
        known.setdefault("evidence", {})[self.fresh(name, known.get("evidence", {}), begin)] = states

    def fresh(self, name: str, said: Iterable[str], begin: int) -> str:
        """A name that was not said yet."""
        if name in said:
            self.fail(f"{name!r} stands twice", begin)
        return name

    def numbers(self, name: str) -> list[float]:
        """Numbers for the states of a variable: all in order, or each with its state."""
        card = len(self.model.states(name))
        found: dict[int, float] = {}
        named: set[bool] = set()

        def one() -> None:
            self.skip()
            begin = self.at
            number = _NUMBER.match(self.text, self.at)
            named.add(not number or bool(self.fitting(self.model.states(name), "=")))
            if len(named) > 1:
                self.fail("numbers stand in the order of the states, or each with its state", begin)
            if number and not named & {True}:
                state = len(found)
                if state >= card:
                    self.fail(f"{name!r} has {card} states, no more", begin)
            else:
                state = self.state(name, "=")
                self.need("=", "behind the state")
                self.skip()
                number = _NUMBER.match(self.text, self.at)
                if not number:
                    self.fail("a number is expected here")
            if state in found:
                self.fail("this state has a number already", begin)
            self.at = number.end()
            found[state] = float(number[0])

        self.listed(one)
        missing = [repr(self.model.states(name)[i]) for i in range(card) if i not in found]
        if missing:
            self.fail(f"{name!r} needs a number for {', '.join(missing)}")
        return [found[i] for i in range(card)]

    def check(self, q: Question) -> None:
        """What hangs together, and not on a place."""
        if q.kind not in ("MPE", "CONFLICT") and not q.targets and not q.event:
            self.fail(f"{q.kind} needs a variable")
        if q.given and not q.targets:
            self.fail(f"the probability of an event needs a state of {q.given[0]!r} behind the bar")
        for name in q.given:
            if name in q.targets or any(name in said for said in q.known.values()):
                self.fail(f"{name!r} stands twice")
        findings = {*q.known.get("evidence", ()), *q.known.get("likelihood", ())}
        if q.kind in ("CONFLICT", "IMPORTANCE"):
            if not findings:
                self.fail(f"{q.kind} needs findings")
            if q.known.get("soft"):
                self.fail(f"{q.kind} weighs findings against each other, and soft evidence is none")
        read_known(self.model, **q.known)


# Answers ------------------------------------------------------------------------------------------------------------


def ask(tree: CompiledModel, question: str | Question) -> Any:
    """The answer to a question: what the method of `jtgpu.JunctionTree` returns that answers it.

    Raises
    ------
    EvidenceError, UnknownVariable, UnknownState
        See `parse`.
    ImpossibleEvidence
        Where what is known has probability zero. An event of probability zero is none: its answer is 0, or -inf.
    """
    q = parse(tree.model, question) if isinstance(question, str) else question
    return _ANSWERS[q.kind](tree, q)


def _probability(tree: CompiledModel, q: Question) -> Any:
    if q.event:
        return math.exp(_log_probability(tree, q))
    if q.given:
        return conditional(tree, q.targets, q.given, tree.settle(**q.known))
    if len(q.targets) > 1:
        return joint(tree, q.targets, tree.settle(**q.known))
    return posterior(tree, q.targets[0], tree.settle(**q.known))


def _log_probability(tree: CompiledModel, q: Question) -> float:
    """ln P(event | what is known); -inf for an impossible event."""
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
            hot = np.zeros(int(model.cardinality[v]))
            hot[list(chosen)] = 1.0
            weights[v] = hot * weights[v] if v in weights else hot
            if not weights[v].any():
                return -math.inf
    try:
        after = settled.backend.run(Evidence(state, weights), []).log_evidence
    except ImpossibleEvidence:
        return -math.inf
    return min(0.0, after - before)


def _known_of(tree: CompiledModel, q: Question) -> Known:
    return read_known(tree.model, **q.known)


def _conflict(tree: CompiledModel, q: Question) -> float:
    return conflict(tree, _known_of(tree, q))


def _importance(tree: CompiledModel, q: Question) -> Any:
    return evidence_importance(tree, q.targets[0], _known_of(tree, q))


_ANSWERS: dict[str, Callable[[CompiledModel, Question], Any]] = {
    "P": _probability,
    "lnP": _log_probability,
    "H": lambda tree, q: entropy(tree, q.targets, tree.settle(**q.known)),
    "MI": lambda tree, q: mutual_information(tree, q.targets[0], q.others, tree.settle(**q.known)),
    "VOI": lambda tree, q: value_of_information(tree, q.targets[0], q.others, tree.settle(**q.known)),
    "IMPORTANCE": _importance,
    "CONFLICT": _conflict,
    "MPE": lambda tree, q: mpe(tree, tree.settle(**q.known), q.k),
    "MAP": lambda tree, q: marginal_map(tree, q.targets, tree.settle(**q.known), 1, None, None),
}


