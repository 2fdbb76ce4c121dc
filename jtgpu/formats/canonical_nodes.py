"""Node types of GeNIe's two formats, XDSL and DSL, whose tables are given by fewer numbers: noisy and deterministic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..errors import ParseError, near, shown
from ..model.cpts import normalize_rows
from ..model.noisy import noisy_attributes, noisy_max
from ..util.arrays import Floats, Ints
from .draft import Draft, FamilyDraft, unreadable

MAX_EXPANDED = 1 << 24  # entries of all such tables of a file; limits the memory that a short file can claim


def deterministic(cards: Sequence[int], n_states: int, results: Ints) -> Floats:
    """The CPT of a node whose state is a function of its parents' states."""
    # results: (product of cards,) int64: Number of the child's state for each configuration of the parents, the first
    #     parent slowest
    # returns (*cards, n_states) float64
    table = np.zeros((math.prod(cards), n_states))
    table[np.arange(len(results)), results] = 1.0
    return table.reshape((*cards, n_states))


# Node types that cannot be read: the name in XDSL, and the name in messages.
REFUSED = {
    "equation": "equation node",
    "demorgan": "DeMorgan node",
    "noisyadder": "noisy-adder node",
    "cast": "CAST node",
    "hybrid": "hybrid node",
    "maux": "utility that is an expression of others (maux)",
}


class Expander:
    """Computes the tables of noisy and deterministic nodes once the states of all nodes are known.

    A file may contain nodes before their parents, so the computation is deferred until `run`.
    """

    def __init__(self, draft: Draft):
        self.draft = draft
        self.waiting: list[tuple[FamilyDraft, Callable[[FamilyDraft, list[int], int], Floats]]] = []
        self.n_made = 0

    def run(self) -> None:
        """Compute the numbers of all deferred families but those of nodes that cannot be read."""
        # raises ParseError: If names are not declared, numbers of values are wrong, or tables are too large.
        states, lost = self.draft.states, unreadable(self.draft)
        for family, make in self.waiting:
            if family.child in lost:
                continue
            self.draft.check_names(family)
            cards = [len(states[p]) for p, _ in family.parents]
            n_states = len(states[family.child])
            size = math.prod(cards) * n_states
            self.n_made += size
            if self.n_made > MAX_EXPANDED or len(cards) > 60:
                raise self.error(
                    family.at,
                    f"the table of {family.child!r} would have {size} numbers; it is too large to be computed from "
                    "parameters",
                )
            family.numbers = make(family, cards, n_states).ravel()
            family.locate = None

    def error(self, at: int, message: str) -> ParseError:
        return self.draft.source.error(at, message)

    def noisy(
        self, family: FamilyDraft, strengths: Floats | None, strengths_at: int,
        parameters: Floats | None, parameters_at: int,
    ) -> None:  # fmt: skip
        """Defer a noisy-MAX node: the order of its parents' states by strength, and its columns."""

        def make(family: FamilyDraft, cards: list[int], n_states: int) -> Floats:
            child = family.child
            n_columns = sum(cards) + 1
            if parameters is None or parameters.size != n_columns * n_states:
                given = "no" if parameters is None else str(parameters.size)
                raise self.error(
                    parameters_at,
                    f"found {given} parameters of the noisy node {child!r}, expected {n_columns * n_states}: "
                    f"{n_states} for each state of each parent and for the leak",
                )
            columns = parameters.reshape(n_columns, n_states)
            sums = columns.sum(axis=1)
            if not (np.isfinite(columns).all() and columns.min() >= 0 and sums.min() > 0 and sums.max() < np.inf):
                raise self.error(
                    parameters_at, f"the parameters of {child!r} need numbers >= 0, and one above 0 for each column"
                )
            if sums.max() > 1 + 1e-6 or sums.min() < 1 - 1e-6:
                what = f"columns of the noisy node {child!r} do not sum to 1 and were normalised"
                self.draft.note(parameters_at, what)
            orders = self.orders(family, cards, strengths, strengths_at)
            kept = self.draft.attributes["potential"].setdefault(child, {})
            kept |= noisy_attributes(columns, [s for order in orders for s in order])
            return noisy_max(cards, n_states, orders, columns)

        self.waiting.append((family, make))

    def orders(self, family: FamilyDraft, cards: Sequence[int], strengths: Floats | None, at: int) -> list[list[int]]:
        if strengths is None:
            return [list(range(card)) for card in cards]
        if strengths.size != sum(cards):
            raise self.error(
                at,
                f"found {strengths.size} strengths of the noisy node {family.child!r}, expected {sum(cards)}: "
                "one for each state of each parent",
            )
        orders, begin = [], 0
        for (p, _), card in zip(family.parents, cards, strict=True):
            order = strengths[begin : begin + card].tolist()
            begin += card
            if sorted(order) != list(range(card)):
                what = f"the strengths of the parent {p!r} are not an order of its states 0 to {card - 1}"
                raise self.error(at, what)
            orders.append([int(s) for s in order])
        return orders

    def function(self, family: FamilyDraft, results: list[str], place: Callable[[int], int], at: int) -> None:
        """Defer a deterministic node: names or numbers of its states for every parent configuration."""

        def make(family: FamilyDraft, cards: list[int], n_states: int) -> Floats:
            labels = self.draft.states[family.child]
            n_rows = math.prod(cards)
            if len(results) != n_rows:
                raise self.error(
                    at, f"found {len(results)} resulting states of {family.child!r}, expected {n_rows}: one for each "
                    "configuration of its parents"
                )  # fmt: skip
            known = {label: i for i, label in reversed(list(enumerate(labels)))}
            if not all(r in known for r in results):
                by_number = {str(i): i for i in range(n_states)}
                if all(r in by_number for r in results):
                    known = by_number
            numbers = np.zeros(n_rows, np.int64)
            for i, result in enumerate(results):
                if result not in known:
                    raise self.error(
                        place(i),
                        f"found {shown(result)}, expected a state of {family.child!r}{near(result, labels)}",
                    )
                numbers[i] = known[result]
            return deterministic(cards, n_states, numbers)

        self.waiting.append((family, make))


def noisy_numbers(net: Any, v: str) -> tuple[list[float], list[int]] | None:
    """Parameters and strengths of a variable, if it has been read as a noisy-MAX node and its CPT still is that."""
    kept = net.attributes.get("potential", {}).get(v, {})
    given, strengths = kept.get("noisy_max"), kept.get("noisy_strengths")
    cards, n_states = [len(net.states(p)) for p in net.parents(v)], len(net.states(v))
    if not all(isinstance(x, tuple) and all(isinstance(n, (int, float)) for n in x) for x in (given, strengths)):
        return None
    orders = [strengths[end - card : end] for card, end in zip(cards, accumulate(cards), strict=True)]
    if len(given) != (sum(cards) + 1) * n_states or len(strengths) != sum(cards):
        return None
    columns = np.array(given, np.float64).reshape(-1, n_states)
    if any(sorted(o) != list(range(card)) for o, card in zip(orders, cards, strict=True)) or not (
        np.isfinite(columns).all() and columns.min() >= 0 and columns.sum(axis=1).min() > 0
    ):
        return None
    table, _ = normalize_rows({v: noisy_max(cards, n_states, orders, columns)})
    return ([*given], [*strengths]) if np.array_equal(table[v], net.cpt(v)) else None
