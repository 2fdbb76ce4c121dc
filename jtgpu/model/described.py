"""`DescribedModel`: a directed model with what its file says beyond variables, arcs and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..util.arguments import mapping
from .directed import DirectedModel

if TYPE_CHECKING:
    from .cpts import Attributes, RowReport


class DescribedModel(DirectedModel):
    """A directed model with attributes and a report; the base of networks that files hold."""

    def __init__(
        self, states: Mapping[str, Sequence[str]], parents: Mapping[str, Sequence[str]], *, name: str,
        attributes: Attributes | None, row_report: RowReport | None,
    ):  # fmt: skip
        super().__init__(states, parents, name=name)
        self._attributes: Attributes = MappingProxyType(dict(mapping("attributes", attributes)))
        self._row_report = row_report

    @property
    def attributes(self) -> Mapping[str, Mapping[str, Any]]:
        """Contents of a file beyond the model: keys ``net``, ``node``, ``potential`` (see the class)."""
        return self._attributes

    @property
    def row_report(self) -> RowReport | None:
        """Rows that the reader normalised; None if the network was not read from a file."""
        return self._row_report

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_attributes": dict(self._attributes)}  # a mapping proxy cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "_attributes": MappingProxyType(state["_attributes"])})
