"""Node types of GeNIe's two formats, XDSL and DSL, whose tables are given by fewer numbers: noisy and deterministic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate
from typing import Any

import numpy as np

from ..errors import ParseError, near, shown
from ..model.cpts import ROW_TOLERANCE, normalize_rows
from ..model.network import BayesianNetwork
from ..model.noisy import NoisyMax, is_noisy, noisy_attributes, noisy_max
from ..util.arrays import Floats, Ints
from .draft import Draft, FamilyDraft, unreadable
from .number_cursor import strings

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
        self.kept: list[tuple[FamilyDraft, Callable[[FamilyDraft, list[int], int], NoisyMax]]] = []
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
            self.check_size(family, (*cards, n_states))
            family.numbers = make(family, cards, n_states).ravel()
            family.locate = None
        has_tables = bool(self.draft.decisions or self.draft.utilities or self.draft.numbers)
        for family, keep in self.kept:
            if family.child not in lost:
                self.draft.check_names(family, has_table=has_tables)
                noisy = keep(family, [len(states[p]) for p, _ in family.parents], len(states[family.child]))
                if has_tables:
                    self.check_size(family, noisy.shape)
                    family.numbers = noisy.cpt.ravel()
                else:
                    family.noisy = noisy

    def check_size(self, family: FamilyDraft, shape: Sequence[int]) -> None:
        """Raise `ParseError` for a table that is too large, before it is made."""
        size = math.prod(shape)
        self.n_made += size
        if self.n_made > MAX_EXPANDED or len(shape) > 61:
            raise self.error(
                family.at, f"the table of {family.child!r} would have {size} numbers; it is too large to be computed "
                "from parameters",
            )  # fmt: skip

    def error(self, at: int, message: str) -> ParseError:
        return self.draft.source.error(at, message)

    def noisy(
        self, family: FamilyDraft, strengths: Floats | None, strengths_at: int,
        parameters: Floats | None, parameters_at: int,
    ) -> None:  # fmt: skip
        """Defer a noisy-MAX node: the order of its parents' states by strength, and its columns."""

        def make(family: FamilyDraft, cards: list[int], n_states: int) -> NoisyMax:
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
            *effects, leak = np.split(rows_of(columns, orders), np.cumsum(cards))
            return NoisyMax([], leak[0]).like(effects)

        self.kept.append((family, make))

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


TURNED = "jtgpu_turned"  # property of a noisy variable whose states have the reverse order in the file


def noisy_numbers(net: Any, v: str) -> tuple[list[float], list[int]] | None:
    """Parameters and strengths of a variable: as they were read, if its CPT still is that, else those of its node."""
    kept = net.attributes.get("potential", {}).get(v, {})
    given, strengths = kept.get("noisy_max"), kept.get("noisy_strengths")
    noisy = net.noisy.get(v) if isinstance(net, BayesianNetwork) else None
    own = noisy.attributes if noisy is not None else {}
    fallback = ([*own["noisy_max"]], [*map(int, own["noisy_strengths"])]) if own else None
    cards, n_states = [len(net.states(p)) for p in net.parents(v)], len(net.states(v))
    if not all(isinstance(x, tuple) and all(isinstance(n, (int, float)) for n in x) for x in (given, strengths)):
        return fallback
    if len(given) != (sum(cards) + 1) * n_states or len(strengths) != sum(cards):
        return fallback
    orders = [strengths[end - card : end] for card, end in zip(cards, accumulate(cards), strict=True)]
    columns = np.array(given, np.float64).reshape(-1, n_states)
    if any(sorted(o) != list(range(card)) for o, card in zip(orders, cards, strict=True)) or not (
        np.isfinite(columns).all() and columns.min() >= 0 and columns.sum(axis=1).min() > 0
    ):
        return fallback
    if noisy is not None:
        same = np.array_equal(rows_of(columns, orders), noisy.rows)
    else:
        table, _ = normalize_rows({v: noisy_max(cards, n_states, orders, columns)})
        same = np.array_equal(table[v], net.cpt(v))
    return ([*given], [*strengths]) if same else fallback


def rows_of(columns: Floats, orders: Sequence[Sequence[int]]) -> Floats:
    """The columns of a file as rows by the states of each parent, then of the leak; divided by sums that are not 1."""
    sums = columns.sum(axis=1, keepdims=True)
    columns = columns if np.abs(sums - 1).max() <= ROW_TOLERANCE else columns / sums
    begin = np.cumsum([0, *map(len, orders)])[:-1]
    rows = np.empty_like(columns)
    rows[[*(first + s for first, order in zip(begin, orders, strict=True) for s in order), -1]] = columns
    return rows


def turned(
    states: Mapping[str, Sequence[str]], parents: Mapping[str, Sequence[str]], tables: Mapping[str, Any],
    about: Mapping[str, Mapping[str, Any]], names: AbstractSet[str],
) -> dict[str, Any]:  # fmt: skip
    """The parts of a network in which some variables have their states in reverse."""
    # about: Attributes of the potentials
    made = {}
    for v, table in tables.items():
        if is_noisy(table):
            effects = zip(parents[v], table.effects, strict=True)
            made[v] = table.like([r[::-1] if p in names else r for p, r in effects], turned=v in names)
        elif not names.isdisjoint((*parents[v], v)):
            made[v] = np.flip(table, tuple(i for i, u in enumerate((*parents[v], v)) if u in names))
        else:
            made[v] = table
    kept = {v: {k: x for k, x in own.items() if k == "property" or names.isdisjoint((v, *parents[v]))}
        for v, own in about.items()}  # fmt: skip
    return {
        "states": {v: own[:: -1 if v in names else 1] for v, own in states.items()}, "parents": parents, "cpts": made,
        "potential": {v: own for v, own in kept.items() if own},
    }  # fmt: skip


def turned_for_file(net: Any) -> Any:
    """The network with the strongest effect of each noisy variable first, as GeNIe's formats have it."""
    names = {v for v, noisy in getattr(net, "noisy", {}).items() if not noisy.least and noisy.shape[-1] > 1}
    if not names:
        return net
    about = net.attributes.get("potential", {})
    marked = {v: {**about.get(v, {}), "property": (*strings(about.get(v, {})), TURNED)} for v in names}
    tables = {v: net.noisy[v] if v in net.noisy else np.asarray(net.cpt(v)) for v in net}
    parents = {v: net.parents(v) for v in net}
    made = turned({v: net.states(v) for v in net}, parents, tables, {**about, **marked}, names)
    attributes = {**net.attributes, "potential": made.pop("potential")}
    return BayesianNetwork(**made, name=net.name, attributes=attributes, row_report=net.row_report)


def turned_back(draft: Draft, parents: Mapping[str, Sequence[str]], tables: Mapping[str, object]) -> dict[str, Any]:
    """The parts of the network that was given to `turned_for_file`; attributes go to the draft."""
    about = draft.attributes["potential"]
    names = {v for v, table in tables.items() if is_noisy(table) and TURNED in strings(about.get(v, {}))}
    left = {v: tuple(x for x in strings(about[v]) if x != TURNED) for v in names}
    about |= {v: {"property": own} if own else {} for v, own in left.items()}
    if not names:
        return {"states": draft.states, "parents": parents, "cpts": tables}
    made = turned(draft.states, parents, tables, about, names)
    draft.attributes["potential"] = made.pop("potential")
    return made
