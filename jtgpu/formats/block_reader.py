"""The head of readers of nodes and tables in braces (BIF, DSC, DSL): tokens, names, states and families."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from .draft import Draft, Family
from .text import Source, Tokens, floats, unquote

WHOLE = re.compile(r"[0-9]{1,9}")


def skipped(more: str = "", blanks: str = "") -> str:
    """The pattern of white space, ``//`` and ``/* */``, which is skipped; `more` comments and `blanks` too."""
    return rf"(?:[ \t\r\n\f\v{blanks}]++|//[^\r\n]*+|/\*[^*]*+(?:\*(?!/)[^*]*+)*+\*/{more})*+"


def token_pattern(skip: str, marks: str, blanks: str = "", comment: str = "/*") -> re.Pattern[str]:
    """The tokens of a format: words, strings and single marks. A slash that begins a `comment` ends a word."""
    return re.compile(
        rf'{skip}(?:(?P<word>(?:[^\s{{}}(){marks}{blanks}"/]|/(?![{comment}]))++)|(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")'
        rf"|(?P<mark>[{{}}(){marks}])|(?P<end>\Z)|(?P<other>.))",
        re.DOTALL,
    )


class BlockReader:
    """A text, its tokens, and the draft that they fill."""

    kind = "node"  # what messages call a variable

    def __init__(self, source: Source, pattern: re.Pattern[str], format_name: str):
        self.source = source
        self.tokens = Tokens(source, pattern)
        self.draft = Draft(source, format_name)
        self.n_filled = 0  # numbers that `default` entries implied so far

    def name(self, what: str) -> str:
        """The name at the cursor; `what` is expected."""
        tokens = self.tokens
        if tokens.kind == "string":
            return unquote(tokens.take())
        if tokens.kind != "word":
            tokens.fail(what)
        return tokens.take()

    def pass_over(self, *marks: str) -> None:
        """Move past one of some marks, if it is there."""
        if self.tokens.at(*marks):
            self.tokens.advance()

    def new_name(self) -> tuple[str, int]:
        """The name of a variable that is declared here, and its offset."""
        at = self.tokens.start
        name = self.name(f"the {self.kind}'s name")
        if name in self.draft.states:
            raise self.source.error(at, f"the {self.kind} {name!r} is declared a second time")
        return name, at

    def states(self, name: str, kinds: tuple[str, ...], after_count: tuple[str, ...], end: str) -> tuple[str, ...]:
        """``discrete [ 2 ] { yes, no }`` and the like."""
        # kinds: words that say that the variable is discrete
        # after_count: marks of which one may follow the number of states
        # end: a mark that has to follow the states; empty for none
        tokens = self.tokens
        if not tokens.at(*kinds):
            tokens.fail(f"'discrete': the type of {name!r} is not supported")
        tokens.advance()
        at, n_states = tokens.start, -1
        if tokens.at("["):
            tokens.advance()
            at = tokens.start
            if WHOLE.fullmatch(tokens.text) is None:
                tokens.fail("the number of states")
            n_states = int(tokens.take())
            tokens.expect("]", "after the number of states")
        self.pass_over(*after_count)
        tokens.expect("{", "before the states")
        states = []
        while not tokens.at("}"):
            states.append(self.name("a state, or '}'"))
            self.pass_over(",")
        tokens.advance()
        if end:
            tokens.expect(end, "after the states")
        if n_states not in (-1, len(states)):
            raise self.source.error(at, f"found {len(states)} states of {name!r}, expected {n_states}")
        if not states:
            raise self.source.error(at, f"the {self.kind} {name!r} has no states")
        return tuple(states)

    def family(self) -> Family:
        """``probability ( child | parents )``, of declared variables."""
        tokens, draft = self.tokens, self.draft
        tokens.advance()
        tokens.expect("(", "after 'probability'")
        at = tokens.start
        family = Family(self.name(f"a {self.kind}'s name"), [], at, data_at=at)
        self.pass_over("|")
        while not tokens.at(")"):
            start = tokens.start
            family.parents.append((self.name("')', or a parent's name"), start))
            self.pass_over(",")
        tokens.advance()
        if family.child in draft.families:
            raise self.source.error(at, f"found a second probability block of {family.child!r}, expected one")
        draft.check_names(family)
        return family


def numbers_until(tokens: Tokens, *ends: str, any_commas: bool = False) -> NDArray[np.float64]:
    """The numbers at the cursor up to one of some marks, token by token; a comma may follow each."""
    # any_commas: whether commas may also stand where no number is before them
    parts = []
    while not tokens.at(*ends):
        if not (any_commas and tokens.at(",")):
            one = floats(tokens.text) if tokens.kind == "word" else None
            if one is None:
                tokens.fail(f"a number, or {ends[0]!r}")
            parts.append(one)
            tokens.advance()
        if tokens.at(","):
            tokens.advance()
    return np.concatenate(parts) if parts else np.zeros(0)
