"""`Scanner`: punctuation, names of variables and states, and numbers, read from a text at a position."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ....errors import EvidenceError, UnknownState, UnknownVariable, closest, shown
from ....model.discrete import DiscreteModel
from ....model.state_values import StateNumber

States = int | frozenset[int]  # the number of a state, or of several states one of which holds

WINDOW = 100  # characters of a long text that a message shows on either side of a position
_SPACE = re.compile(r"\s*")


class Scanner:
    """A text and the position up to which it has been read.

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
        """Skip blanks."""
        found = _SPACE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Read what a pattern matches at the position, if anything."""
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def stands(self, *marks: str) -> bool:
        """Whether one of the marks follows; reads blanks only."""
        self.skip()
        return self.text.startswith(marks, self.at)

    def take(self, mark: str) -> bool:
        """Read a mark if it follows."""
        if not self.stands(mark):
            return False
        self.at += len(mark)
        return True

    def need(self, mark: str, where: str) -> None:
        """Read a mark that must follow."""
        if not self.take(mark):
            found = repr(self.text[self.at]) if self.at < len(self.text) else "the end"
            self.fail(f"expected {mark!r} {where}, found {found}")

    def listed(self, read: Callable[[], Any]) -> list[Any]:
        """Read one or more items, separated by commas."""
        found = [read()]
        while self.take(","):
            found.append(read())
        return found

    def fitting(self, words: Iterable[str], ends: str) -> list[tuple[str, int]]:
        """The words that follow, each before one of the characters `ends`, with their end positions; longest first.

        They may be in quotes, as `quoted` writes them.
        """
        self.skip()
        found = []
        quote = self.text[self.at : self.at + 1]
        for word in words:
            for written in (word, f"{quote}{word}{quote}") if quote in ('"', "'") else (word,):
                if self.text.startswith(written, self.at):
                    after = _SPACE.match(self.text, self.at + len(written))
                    assert after is not None
                    if after.end() < len(self.text) and self.text[after.end()] in ends:
                        found.append((word, self.at + len(written)))
        return sorted(found, key=lambda f: -f[1])

    def word(self) -> str:
        """The text up to the next mark, for messages."""
        after = re.compile(r"[,;:=|(){}]").search(self.text, self.at)
        return self.text[self.at : after.start() if after else None].strip()

    def variable(self, ends: str) -> str:
        """Read the name of a variable, which one of the characters `ends` must follow."""
        found = self.fitting(self.names, ends)
        if not found:
            word = self.word()
            if not word:
                self.fail("expected a variable")
            if word in self.model.variables:
                expected = " or ".join(repr(c) for c in ends)
                self.at += len(word)
                self.fail(f"expected {expected} after {word!r}")
            self.fail(f"there is no variable {shown(word)}{closest(word, self.model.variables)}", kind=UnknownVariable)
        name, self.at = found[0]
        return name

    def state(self, name: str, ends: str) -> int:
        """Read a state of a variable, by name or number."""
        labels = self.model.states(name)
        found = self.fitting(labels, ends)
        if found:
            at, (label, self.at) = self.at, found[0]
            if labels.count(label) > 1:
                self.fail(f"{name!r} has several states named {label!r}; use the state's number", at, UnknownState)
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
        reason = f"{name!r} has no state {shown(word)}{closest(word, labels)} (its states are {listed})"
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
        found = self.fitting(self.names, ends + "=")
        if not found:
            self.variable(ends + "=")  # raises
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
