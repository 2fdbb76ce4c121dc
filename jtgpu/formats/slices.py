"""Slices of time in network files: the `DynamicNetwork` of what a reader collected.

Readers collect a file as one network: a variable for each table of a template, clones of the variables of earlier
slices among them (`jtgpu.formats.draft.Slices`). The template is made of it when everything is checked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import NetworkError, ParseError
from ..model.dynamic import DynamicNetwork
from ..model.templates import of_tables

if TYPE_CHECKING:
    from ..model.network import BayesianNetwork
    from .draft import Draft


def dynamic_network(draft: Draft, net: BayesianNetwork) -> DynamicNetwork:
    """The template of a draft, with the finished network of its tables."""
    # raises ParseError: If the file has decisions, or the arcs are not those of a template.
    slices = draft.slices
    assert slices is not None
    families = {}
    for v, tables in slices.families.items():
        present = [label for label in tables if label in net]
        if present and len(present) < len(tables):
            raise draft.source.error(slices.at, f"a parent of {v!r} in an earlier slice cannot be read")
        if present:
            families[v] = present
    try:
        made = of_tables(net, slices.pairs, families, [v for v in slices.static if v in families])
        for v, axes in slices.axes.items():
            if v in families:
                _reorder(made, v, axes)
        return DynamicNetwork(**made, name=draft.name)
    except NetworkError as error:
        words = (re.sub(r"\[t(-\d+)?\]$", "", v) for v in re.findall(r"'([^']*)'", str(error)))
        named = next((v for v in words if v in families), None)
        at = slices.at if named is None else draft.declared.get(families[named][0], slices.at)
        raise draft.source.error(at, str(error)) from None


def no_decisions(draft: Draft) -> ParseError:
    """The error about a dynamic network with decisions."""
    assert draft.slices is not None
    return draft.source.error(
        draft.slices.at, "found decisions or utilities in a dynamic network; decisions='chance' or --chance-only makes "
        "decisions uniform chance variables, and leaves out utilities"
    )  # fmt: skip


def _reorder(made: dict[str, Any], v: str, axes: Sequence[int]) -> None:
    """Put the parents of a variable into the order that the file has for them."""
    before: list[tuple[str, int]] = made["parents"][v]
    if sorted(axes) != list(range(len(before))):
        return
    after = [before[i] for i in axes]
    made["parents"][v], made["cpts"][v] = after, _moved(made["cpts"][v], before, after)
    m = max((lag for _, lag in before), default=0)
    if m:
        tables = [made["start"][v]] if m == 1 else made["start"][v]
        moved = [
            _moved(table, [p for p in before if p[1] <= t], [p for p in after if p[1] <= t])
            for t, table in enumerate(tables)
        ]
        made["start"][v] = moved[0] if m == 1 else moved


def _moved(table: Any, before: Sequence[Any], after: Sequence[Any]) -> Any:
    return np.ascontiguousarray(np.transpose(table, [*map(before.index, after), len(before)]))
