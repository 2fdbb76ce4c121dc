"""`JointCost` and `MapCost`: the work and the memory of a query."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import format_bytes

__all__ = ["JointCost", "MapCost"]


@dataclass(frozen=True)
class JointCost:
    """Cost of a joint posterior.

    Attributes
    ----------
    how : str
        Method: ``"cases"`` or ``"together"``.
    entries : int
        Configurations of the variables, which are the entries of the result.
    cases : int
        Cases that the backend computes; 0 for ``"together"``.
    operations : int
        Multiplications and additions; an estimate for ``"cases"``.
    largest : int
        Entries of the largest table, the result included.
    bytes : int
        Memory of the result and all intermediate tables, in float64. What the tree already holds is not counted.
    """

    how: str
    entries: int
    cases: int
    operations: int
    largest: int
    bytes: int


@dataclass(frozen=True)
class MapCost:
    """Cost of a marginal MAP query.

    Attributes
    ----------
    how : str
        Method: ``"order"``, by a constrained elimination order, or ``"joint"``, from the joint posterior.
    variables, summed, barren : int
        Variables that are maximised, summed out, and irrelevant to the query; observed variables are not counted.
    largest : int
        Entries of the largest intermediate table.
    table_entries : int
        Entries of all tables, the model's included.
    operations : int
        Multiplications, additions and comparisons.
    bytes : int
        Memory of all tables, in float64.
    """

    how: str
    variables: int
    summed: int
    barren: int
    largest: int
    table_entries: int
    operations: int
    bytes: int

    def __str__(self) -> str:
        method = "an elimination order" if self.how == "order" else "the joint posterior"
        return (
            f"by {method}: {self.variables} variables maximised, {self.summed} summed out, {self.barren} irrelevant; "
            f"{self.operations:,} operations, largest table {self.largest:,} entries, memory {format_bytes(self.bytes)}"
        )
