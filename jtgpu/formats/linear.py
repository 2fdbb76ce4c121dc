"""Linear expressions with normal noise, as XDSL equations and HUGIN potentials contain them: parser and writer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .text import number

if TYPE_CHECKING:
    from ..model.gaussian import Gaussian

_TOKEN = re.compile(
    r"\s*+(?:(?P<number>(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?(?![\w.]))|(?P<name>[\w.]++)"
    r"|(?P<mark>[-+*/(),])|(?P<end>\Z)|(?P<other>.))",
    re.DOTALL,
)
MAX_DEPTH = 50  # nested parentheses


class NotLinear(ValueError):
    """Part of an expression that is no linear density; the message is its text."""


@dataclass
class Linear:
    """``constant + sum of coefficients x names``, plus normal noise of mean 0 if `sd` is not None."""

    constant: float = 0.0
    coefficients: dict[str, float] = field(default_factory=dict)
    sd: float | None = None

    @property
    def is_constant(self) -> bool:
        return not self.coefficients and self.sd is None

    def times(self, factor: float) -> Linear:
        sd = None if self.sd is None else abs(factor) * self.sd
        return Linear(factor * self.constant, {v: factor * c for v, c in self.coefficients.items()}, sd)

    def plus(self, other: Linear, text: str) -> Linear:
        if self.sd is not None and other.sd is not None:
            raise NotLinear(text)  # the two would be one density, but no writer makes two
        coefficients = dict(self.coefficients)
        for v, c in other.coefficients.items():
            coefficients[v] = coefficients.get(v, 0.0) + c
        return Linear(self.constant + other.constant, coefficients, self.sd if other.sd is None else other.sd)


class _Expression:
    """Recursive descent over the tokens of an expression."""

    def __init__(self, text: str, by_variance: bool):
        self.text, self.by_variance, self.end, self.depth = text, by_variance, 0, 0
        self.advance()

    def advance(self) -> None:
        token = _TOKEN.match(self.text, self.end)
        assert token is not None  # the last alternatives match everything
        assert token.lastgroup is not None
        self.kind, self.word = token.lastgroup, token[token.lastgroup]
        self.start, self.end = token.start(token.lastgroup), token.end()

    def at(self, *marks: str) -> bool:
        return self.kind == "mark" and self.word in marks

    def expect(self, mark: str) -> None:
        if not self.at(mark):
            raise NotLinear(self.text[self.start :].strip() or "the end of the expression")
        self.advance()

    def sum(self) -> Linear:
        first = self.start
        total = self.product()
        while self.at("+", "-"):
            sign = 1.0 if self.word == "+" else -1.0
            self.advance()
            total = total.plus(self.product().times(sign), self.text[first : self.start].strip())
        return total

    def product(self) -> Linear:
        first = self.start
        result = self.factor()
        while self.at("*", "/"):
            divides = self.word == "/"
            self.advance()
            other = self.factor()
            text = self.text[first : self.start].strip()
            if divides:
                if not other.is_constant or other.constant == 0:
                    raise NotLinear(text)
                result = result.times(1.0 / other.constant)
            elif other.is_constant:
                result = result.times(other.constant)
            elif result.is_constant:
                result = other.times(result.constant)
            else:
                raise NotLinear(text)
        return result

    def factor(self) -> Linear:
        first, kind, word = self.start, self.kind, self.word
        if kind not in ("number", "name", "mark"):
            raise NotLinear(self.text[first:].strip() or "the end of the expression")
        self.advance()
        if kind == "number":
            return Linear(float(word))
        if word in ("+", "-") and kind == "mark":
            return self.nested(self.factor).times(1.0 if word == "+" else -1.0)
        if word == "(" and kind == "mark":
            inner = self.nested(self.sum)
            self.expect(")")
            return inner
        if kind == "mark":
            raise NotLinear(self.text[first:].strip())
        if not self.at("("):
            return Linear(coefficients={word: 1.0})
        if word.lower() != "normal":
            raise NotLinear(self.text[first:].strip())
        self.advance()
        mean = self.nested(self.sum)
        self.expect(",")
        spread = self.nested(self.sum)
        self.expect(")")
        text = self.text[first : self.start].strip()
        if mean.sd is not None or not spread.is_constant or not spread.constant > 0:
            raise NotLinear(text)
        mean.sd = math.sqrt(spread.constant) if self.by_variance else spread.constant
        return mean

    def nested(self, read: Callable[[], Linear]) -> Linear:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotLinear(f"more than {MAX_DEPTH} parentheses inside each other")
        result = read()
        self.depth -= 1
        return result


def parse_equation(text: str, name: str) -> Linear:
    """The density that ``name = sum with one Normal(mean, sd)`` defines."""
    # raises NotLinear: With the part that is something else.
    left, equals, right = text.partition("=")
    if not equals or left.strip() != name:
        raise NotLinear(text.strip())
    reader = _Expression(right, by_variance=False)
    result = reader.sum()
    if reader.kind != "end" or result.sd is None:
        raise NotLinear(right[reader.start :].strip() if reader.kind != "end" else right.strip())
    return result


def parse_densities(text: str) -> list[Linear]:
    """The densities ``normal(mean, variance)`` of a HUGIN potential; parentheses around them are redundant."""
    # raises NotLinear: With the part that is something else.
    reader, result = _Expression(text, by_variance=True), []
    while reader.kind != "end":
        if reader.at("(", ")"):
            reader.advance()
            continue
        if reader.word.lower() != "normal":
            raise NotLinear(text[reader.start :].partition(")")[0].strip())
        result.append(reader.factor())
    return result


def linear_text(constant: float, coefficients: dict[str, float]) -> str:
    """``constant + coefficient * name ...``; it reads back equal, bit for bit."""
    terms = [number(constant), *(f"{number(abs(c))} * {v}" for v, c in coefficients.items())]
    signs = ["", *(" - " if math.copysign(1.0, c) < 0 else " + " for c in coefficients.values())]
    return "".join(sign + term for sign, term in zip(signs, terms, strict=True))


def density_rows(density: Gaussian) -> list[tuple[float, dict[str, float], float]]:
    """Intercept, coefficients and sd of each configuration of the discrete parents, the first one slowest."""
    names = list(density.coefficients)
    columns = [density.mean, *density.coefficients.values(), density.sd]
    rows = np.stack([np.ravel(c) for c in columns], axis=1).tolist()
    return [(row[0], dict(zip(names, row[1:-1], strict=True)), row[-1]) for row in rows]
