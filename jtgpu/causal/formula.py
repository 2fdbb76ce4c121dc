"""Formulas of identified effects: sums, products and quotients of conditional distributions, as trees."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..errors import EvidenceError
from ..model.markov import MarkovNetwork
from ..util.elementary import exp

if TYPE_CHECKING:
    from ..inference.tree import JunctionTree
    from ..util.arrays import Bools, Floats


@dataclass(frozen=True)
class Distribution:
    """P(targets | given) of measured variables, by name, in the order in which they are written."""

    targets: tuple[str, ...]
    given: tuple[str, ...] = ()

    @cached_property
    def free(self) -> frozenset[str]:
        """Variables that its value depends on."""
        return frozenset(self.targets + self.given)

    def text(self, latex: bool = False, names: Mapping[str, str] | None = None) -> str:
        """As it is written in a formula."""
        bar = r" \mid " if latex else " | "
        targets, given = written(self.targets, latex, names), written(self.given, latex, names)
        return f"P({targets}{bar + given if given else ''})"


@dataclass(frozen=True)
class Product:
    """The product of some factors."""

    factors: tuple[Expression, ...]

    @cached_property
    def free(self) -> frozenset[str]:
        """Variables that its value depends on."""
        return frozenset().union(*(f.free for f in self.factors))

    def text(self, latex: bool = False, names: Mapping[str, str] | None = None) -> str:
        """As it is written in a formula."""
        names = names or _own(self)
        return (r" \, " if latex else " ").join(f.text(latex, names) for f in self.factors) or "1"


@dataclass(frozen=True)
class Sum:
    """The sum over all states of some variables."""

    over: tuple[str, ...]
    body: Expression

    @cached_property
    def free(self) -> frozenset[str]:
        """Variables that its value depends on."""
        return self.body.free - {*self.over}

    def text(self, latex: bool = False, names: Mapping[str, str] | None = None) -> str:
        """As it is written in a formula; a variable that stands outside the sum, too, gets a prime inside."""
        inner = dict(names or _own(self))
        for v in self.over:
            name = v
            while name in inner.values():
                name += "'"
            inner[v] = name
        over, body = written(self.over, latex, inner), self.body.text(latex, inner)
        return rf"\sum_{{{over}}} {body}" if latex else f"[sum over {over}: {body}]"


@dataclass(frozen=True)
class Quotient:
    """One expression divided by another."""

    above: Expression
    below: Expression

    @cached_property
    def free(self) -> frozenset[str]:
        """Variables that its value depends on."""
        return self.above.free | self.below.free

    def text(self, latex: bool = False, names: Mapping[str, str] | None = None) -> str:
        """As it is written in a formula."""
        names = names or _own(self)
        above, below = self.above.text(latex, names), self.below.text(latex, names)
        return rf"\frac{{{above}}}{{{below}}}" if latex else f"({above} / {below})"


SPECIAL = re.compile(r"[_#$%&{}\\^~]")  # characters that LaTeX reads as commands
Expression = Distribution | Product | Sum | Quotient


def _own(part: Expression) -> dict[str, str]:
    return {v: v for v in sorted(part.free)}


def written(variables: Sequence[str], latex: bool = False, names: Mapping[str, str] | None = None) -> str:
    """Names of variables in a formula."""
    listed = [names.get(v, v) if names else v for v in variables]
    if latex:
        listed = [r"\text{" + SPECIAL.sub(_escaped, v) + "}" if len(v) > 1 or SPECIAL.match(v) else v for v in listed]
    return ", ".join(listed)


def _escaped(match: re.Match[str]) -> str:
    return {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"}.get(match[0], "\\" + match[0])


def leaves(part: Expression) -> tuple[Distribution, ...]:
    """The distributions that have to be known."""
    if isinstance(part, Distribution):
        return (part,)
    if isinstance(part, Sum):
        return leaves(part.body)
    parts = part.factors if isinstance(part, Product) else (part.above, part.below)
    return tuple(dict.fromkeys(leaf for inner in parts for leaf in leaves(inner)))


def product(factors: Iterable[Expression]) -> Expression:
    """The product, without factors within factors."""
    flat: list[Expression] = []
    for f in factors:
        flat.extend(f.factors if isinstance(f, Product) else [f])
    return flat[0] if len(flat) == 1 else Product(tuple(flat))


def total(over: Iterable[str], body: Expression) -> Expression:
    """The sum over some variables; sums of a distribution over its own targets are left out."""
    wanted = [v for v in dict.fromkeys(over) if v in body.free]
    if isinstance(body, Sum):
        wanted, body = [*wanted, *body.over], body.body
    factors = list(body.factors) if isinstance(body, Product) else [body]
    changed = True
    while changed:
        changed = False
        for v in wanted:
            users = [f for f in factors if v in f.free]
            if len(users) == 1 and isinstance(users[0], Distribution) and v in users[0].targets:
                leaf, at = users[0], factors.index(users[0])
                rest = tuple(t for t in leaf.targets if t != v)
                factors[at : at + 1] = [Distribution(rest, leaf.given)] if rest else []
                wanted.remove(v)
                changed = True
                break
    inner = Product(tuple(factors)) if len(factors) != 1 else factors[0]
    return Sum(tuple(wanted), inner) if wanted else inner


def quotient(above: Expression, below: Expression) -> Expression:
    """The quotient, without factors that both sides have."""
    ups: list[Expression] = list(above.factors) if isinstance(above, Product) else [above]
    downs: list[Expression] = list(below.factors) if isinstance(below, Product) else [below]
    for f in list(downs):
        if f in ups:
            ups.remove(f)
            downs.remove(f)
    if len(ups) == 1 == len(downs) and isinstance(ups[0], Distribution) and isinstance(downs[0], Distribution):
        up, down = ups[0], downs[0]  # P(a, b | c) / P(b | c) = P(a | b, c)
        if {*up.given} == {*down.given} and {*down.targets} < {*up.targets}:
            return Distribution(tuple(t for t in up.targets if t not in down.targets), down.targets + up.given)
    return Quotient(product(ups), product(downs)) if downs else product(ups)


class Evaluation:
    """The numbers of an expression, from the conditional distributions of a model."""

    # An impossible row of a distribution contains 0 at first, and then equal probabilities: where the result depends
    # on it, the condition has to be possible.

    def __init__(self, tree: JunctionTree, states: dict[str, tuple[str, ...]]):
        self.tree, self.states = tree, states
        self.tables: dict[Distribution, tuple[Floats, Bools]] = {}  # numbers, and whether conditions are possible
        self.uniform = False

    def configuration(self, leaf: Distribution) -> str:
        """The first condition of probability 0, in words."""
        at = np.argwhere(~self.tables[leaf][1])[0]
        return ", ".join(f"{v} = {self.states[v][i]}" for v, i in zip(leaf.given, at, strict=True))

    def value(self, part: Expression) -> tuple[tuple[str, ...], Floats]:
        """Its variables, and its numbers with an axis for each."""
        if isinstance(part, Distribution):
            return part.given + part.targets, self._leaf(part)
        if isinstance(part, Quotient):
            names = tuple(sorted(part.free))
            above, below = self.along(part.above, names), self.along(part.below, names)
            shape = [len(self.states[v]) for v in names]
            filler = 1.0 / math.prod(len(self.states[v]) for v in part.above.free) if self.uniform else 0.0
            result = np.divide(above, below, out=np.full(shape, filler), where=np.broadcast_to(below > 0, shape))
            return names, result
        over = part.over if isinstance(part, Sum) else ()
        body = part.body if isinstance(part, Sum) else part
        factors = [self.value(f) for f in (body.factors if isinstance(body, Product) else (body,))]
        names = tuple(sorted(part.free))
        return names, self._contracted(names, over, factors)

    def along(self, part: Expression, names: Sequence[str]) -> Floats:
        own, numbers = self.value(part)
        order = sorted(range(len(own)), key=lambda i: names.index(own[i]))
        shape = [len(self.states[v]) if v in own else 1 for v in names]
        return np.asarray(numbers.transpose(order).reshape(shape))

    def _leaf(self, leaf: Distribution) -> Floats:
        if leaf not in self.tables:
            if leaf.given:
                table = self.tree.conditional(leaf.targets, leaf.given)
                self.tables[leaf] = table.probabilities, table.possible
            else:
                self.tables[leaf] = self.tree.joint(leaf.targets).probabilities, np.ones((), np.bool_)
        numbers, possible = self.tables[leaf]
        if not self.uniform or possible.all():
            return numbers
        size = np.prod(numbers.shape[len(leaf.given) :])
        return np.where(possible.reshape(possible.shape + (1,) * len(leaf.targets)), numbers, 1.0 / size)

    def _contracted(
        self, names: tuple[str, ...], over: tuple[str, ...], factors: list[tuple[tuple[str, ...], Floats]]
    ) -> Floats:
        """Sum of products by the engine: planned, without a table of all variables."""
        if not factors:
            return np.ones(())
        if any(not numbers.any() for _, numbers in factors):
            return np.zeros([len(self.states[v]) for v in names])
        net = MarkovNetwork({v: self.states[v] for v in (*names, *over)}, factors)
        with net.compile("cpu") as tree:
            if not names:
                return np.asarray(exp(tree.log_evidence()))
            joint = tree.joint(names)
            return np.asarray(joint.probabilities * exp(joint.log_evidence))


def evaluate(tree: JunctionTree, part: Expression, names: Sequence[str]) -> Floats:
    """The numbers of an expression, with an axis for each of these variables; it may not depend on some of them."""
    states = {v: tree.model.states(v) for v in {*names, *(n for leaf in leaves(part) for n in leaf.free)}}
    work = Evaluation(tree, states)
    loose = sorted(part.free - {*names})  # the result is the same for each of their states

    def numbers() -> Floats:
        result = work.along(part, [*loose, *names])
        for v in loose:
            result = result[max(range(len(states[v])), key=tree.posterior(v).probabilities.__getitem__)]
        return np.broadcast_to(result, [len(states[v]) for v in names])

    result = numbers()
    leaf = next((leaf for leaf, (_, possible) in work.tables.items() if not possible.all()), None)
    if leaf is not None:
        work.uniform = True
        if not np.allclose(result, numbers(), rtol=1e-9, atol=1e-12):
            raise EvidenceError(
                f"{leaf.text()} is needed where {work.configuration(leaf)}, which has probability 0 (positivity): "
                "the effect cannot be computed from this distribution"
            )
    return result
