"""Dynamic networks in XDSL files: the part of the reader that deals with nodes of a temporal plate.

* ``<cpt id="X" dynamic="plate">`` in ``<nodes>`` is X in slice 0: its parents there, and its table.
* ``<cpt id="X" order="k">`` in ``<dynamic numslices="n">`` is X from slice k on, until the next order: ``<parents>``
  are those k slices earlier. Axes of the table: the parents of slice 0, of order 1, ..., of order k, the child.
* Nodes without ``dynamic`` (contemporal ones) exist once. ``dynamic="anchor"`` nodes, too; only slice 0 depends on
  them. ``dynamic="terminal"`` nodes depend on the last slice; they are read as variables of every slice, which nothing
  depends on, so that their posterior in the last slice is the one that SMILE computes.

The number of slices is that of each sequence, and ``numslices`` does not count.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import near, shown
from .draft import Draft, FamilyDraft, SlicesDraft
from .xml_text import Element, Locator, XmlSource

KINDS = ("plate", "anchor", "terminal")
EXTENSION = "jtgpu_dynamic"  # our element for what the format cannot represent: the order of parents, exact rows


class XdslSlices:
    """Nodes of a plate, and their tables in later slices."""

    def __init__(self, source: XmlSource, draft: Draft):
        self.source, self.draft = source, draft
        self.kinds: dict[str, str] = {}
        self.later: dict[str, dict[int, tuple[Element, Locator]]] = {}  # node -> order -> its table there
        self.at = 0

    def kind(self, element: Element, child: str) -> None:
        """The kind of a node."""
        kind = element.attributes.get("dynamic")
        if kind in (None, "none"):
            return
        if kind not in KINDS:
            what = f"found the kind {shown(kind)} of the node {child!r}{near(str(kind), KINDS)}"
            raise self.source.error(element.at, f"{what}; expected {', '.join(KINDS)}")
        self.at = self.at or element.at
        self.kinds[child] = str(kind)

    def table(self, element: Element, locator: Locator) -> None:
        """A table of later slices."""
        child, order = element.attributes.get("id"), element.attributes.get("order", "")
        if child is None:
            raise self.source.error(element.at, f"the <{element.name}> has no id")
        if element.name != "cpt":
            raise self.source.error(
                element.at, f"the node {child!r} is a <{element.name}> in later slices; change its type to general "
                "(CPT) in GeNIe"
            )  # fmt: skip
        if not (order.isascii() and order.isdigit() and len(order) < 5 and int(order)):
            raise self.source.error(element.at, f"found the order {shown(order)} of {child!r}, expected 1, 2, ...")
        tables = self.later.setdefault(child, {})
        if int(order) in tables:
            raise self.source.error(element.at, f"the table of {child!r} of order {order} occurs a second time")
        tables[int(order)] = element, locator

    def run(self, new: dict[str, str], mine: Element | None) -> None:
        """Add the tables of later slices to the draft, and how they make a template."""
        # new: id -> name
        # mine: our extension
        draft = self.draft
        for child, tables in self.later.items():
            if child not in draft.refused and self.kinds.get(child) != "plate":
                element, _ = next(iter(tables.values()))
                what = "is not on the plate" if child in new else f"is not declared{near(child, new)}"
                raise self.source.error(element.at, f"found a table of later slices of {child!r}, which {what}")
        inside = {new[c]: c for c, kind in self.kinds.items() if kind != "anchor" and c in new}
        if not inside:
            return  # all nodes are contemporal, or have no children on a plate
        draft.numbers.clear()  # equations are refused
        slices = draft.slices = SlicesDraft(self.at, static=[v for v in draft.states if v not in inside])
        anchors = {new[c] for c, kind in self.kinds.items() if kind == "anchor" and c in new}
        self.about = {new.get(e.attributes.get("id", ""), ""): e for e in (mine.children if mine else ())}
        for v in [*draft.states]:
            slices.pairs[v], slices.families[v] = (v, 0), [v]
            family = draft.families.get(v) or FamilyDraft(v, [], draft.declared[v])
            if v in inside:
                self.later_tables(family, self.later.get(inside[v], {}), new, anchors)
                continue
            bad = next(((p, at) for p, at in family.parents if p in inside), None)
            if bad is not None:
                what = "has one value for all slices" if v not in anchors else "is an anchor, before the first slice"
                raise self.source.error(bad[1], f"{v!r} {what}, and its parent {bad[0]!r} is on the plate")

    def later_tables(
        self, family: FamilyDraft, tables: dict[int, tuple[Element, Locator]], new: dict[str, str], anchors: set[str]
    ) -> None:
        """The tables of one node in later slices, as variables of their own."""
        draft, v, slices = self.draft, family.child, self.draft.slices
        assert slices is not None
        about = self.about.get(v)
        exact = about is not None and about.attributes.get("rows") == "exact"
        if about is not None:
            words = about.attributes.get("parents", "").split()
            if words and all(w.isascii() and w.isdigit() and len(w) < 6 for w in words):
                slices.axes[v] = [int(w) for w in words]
        fixed = [p for p in family.parents if p[0] not in anchors]
        if len(fixed) < len(family.parents) and not tables:
            first = next(p for p, _ in family.parents if p in anchors)
            raise self.source.error(
                family.at, f"{v!r} depends on the anchor {first!r} in slice 0 and has no table of later slices; give "
                "it a temporal arc in GeNIe, or make the anchor contemporal if it matters in all slices"
            )  # fmt: skip
        lagged: list[tuple[str, int]] = []
        for order in range(1, max(tables, default=0) + 1):
            if order not in tables:
                slices.families[v].append(slices.families[v][-1])
                continue
            element, locator = tables[order]
            before, numbers = element.one("parents"), element.one("probabilities")
            for p in before.text.split() if before else ():
                assert before is not None
                lagged.append((self.earlier(p, order, new, before.at, v), before.at))
            if numbers is None or numbers.numbers is None:
                raise self.source.error(element.at, f"found no <probabilities> of {v!r} of order {order}")
            label = self.unused(f"{v} of order {order}")
            draft.declare(label, draft.states[v], element.at)
            parents = [*fixed, *lagged]
            sizes = [len(draft.states[p]) for p, _ in (*family.parents, *lagged) if p in draft.states]
            if len(fixed) < len(family.parents) and numbers.numbers.size == math.prod([*sizes, len(draft.states[v])]):
                parents = [*family.parents, *lagged]
            made = FamilyDraft(label, parents, element.at, numbers.numbers, numbers.begin, exact=exact)
            made.locate = lambda i, numbers=numbers, locator=locator: locator.number(numbers, i)
            draft.families[label] = made
            slices.pairs[label] = v, 0
            slices.families[v].append(label)

    def earlier(self, child: str, order: int, new: dict[str, str], at: int, of: str) -> str:
        """The clone of a node so many slices earlier."""
        draft, slices = self.draft, self.draft.slices
        assert slices is not None
        if self.kinds.get(child) != "plate" or child not in new:
            if child in draft.refused:
                return child
            what = "is not on the plate" if child in new else f"is not declared{near(child, new)}"
            raise self.source.error(at, f"{of!r} has the parent {child!r} {order} slices earlier, which {what}")
        key = new[child], order
        known = next((label for label, pair in slices.pairs.items() if pair == key), None)
        if known is not None:
            return known
        label = self.unused(f"{key[0]}[t-{order}]")
        card = len(draft.states[key[0]])
        draft.declare(label, draft.states[key[0]], at)
        draft.families[label] = FamilyDraft(label, [], at, np.full(card, 1.0 / card), exact=True)
        slices.pairs[label] = key
        return label

    def unused(self, label: str) -> str:
        """A name that no variable has."""
        names: Any = self.draft.states
        while label in names or self.draft.has(label):
            label += "'"
        return label
