"""The plan: what is computed, as flat arrays of integers, and nothing else.

A plan is a function of the graph, the cardinalities and the options. It holds no names, no CPT numbers, no
evidence and no device pointers, so it can be saved, sent to another process and run by any backend.

It has two parts. The *structure* is the junction tree that guarantees the answers: cliques, separators, the
factors' homes. The *program* is a list of contractions

    out[s] = (+)_r  (x)_t  T_t[...]

over *tables*. A table is named by its number; its *scope* lists the variables that it ranges over, in the order
of its axes (first axis slowest). ``s`` ranges over the scope of the output, ``r`` over every other variable in
the scopes of the inputs, and (+, x) is the semiring: (sum, product) for posteriors, (max, product) for the most
probable explanation. Tables 0..F-1 are the model's factors, transposed to the plan's axis order.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import PlanError, format_bytes
from ..util import atomic_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["COLLECT", "DISTRIBUTE", "POSTERIOR", "Cost", "Plan", "ragged"]

FORMAT_VERSION = 1
COLLECT, DISTRIBUTE, POSTERIOR = 0, 1, 2  # kinds of contraction


@dataclass(frozen=True)
class Cost:
    """What a plan costs.

    Attributes
    ----------
    cliques, levels, width : int
        Number of cliques; levels of the junction tree (its height + 1: dependent steps of one sweep); most
        variables in one clique, less one.
    entries, largest, smallest : int
        Sum, largest and smallest of the sizes of the clique tables: the published measure of a tree.
    separator_entries, largest_separator : int
        Sum and largest of the sizes of the separator tables.
    contractions, program_levels : int
        Contractions of the program that runs, and groups of them that depend on each other.
    flops : int
        Multiplications and additions of one propagation (collect, distribute, every posterior).
    traffic : int
        Bytes of float64 read and written by the contractions of one propagation, each table once a contraction.
    largest_table, table_entries : int
        Largest table and sum of all tables that the program builds, in entries; factors included.
    bytes : int
        Memory that one propagation takes, in bytes of float64: all tables of the program.
    """

    cliques: int
    levels: int
    width: int
    entries: int
    largest: int
    smallest: int
    separator_entries: int
    largest_separator: int
    contractions: int
    program_levels: int
    flops: int
    traffic: int
    largest_table: int
    table_entries: int
    bytes: int


def ragged(lists: list[list[int]] | list[tuple[int, ...]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """CSR arrays ``(ptr, values)`` of a list of lists of ints: list i is ``values[ptr[i]:ptr[i+1]]``."""
    ptr = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(x) for x in lists], out=ptr[1:])
    return ptr, np.array([v for x in lists for v in x], np.int64)


@dataclass(frozen=True, eq=False)
class Plan:
    """A junction tree and the contractions that propagate on it. V variables, F factors, C cliques, T tables,
    P contractions. Every array is int64 and read-only; `_ptr` arrays are CSR bounds.

    Equality is equality of all arrays, byte for byte; made by `jtgpu.plans.compiler.make_plan`.
    """

    cardinality: NDArray[np.int64]  # (V,) states of each variable
    factor_ptr: NDArray[np.int64]  # (F+1,)
    factor_var: NDArray[np.int64]  # variables of each factor, in the order of the model's axes
    # the junction tree (a forest: one root a component)
    elimination_order: NDArray[np.int64]  # (V,) first eliminated first
    clique_ptr: NDArray[np.int64]  # (C+1,)
    clique_var: NDArray[np.int64]  # variables of each clique, in the plan's axis order
    clique_parent: NDArray[np.int64]  # (C,) -1 for a root
    clique_depth: NDArray[np.int64]  # (C,) 0 for a root
    separator_ptr: NDArray[np.int64]  # (C+1,) separator of each clique to its parent; empty for a root
    separator_var: NDArray[np.int64]  # in the plan's axis order
    factor_clique: NDArray[np.int64]  # (F,) the clique that a factor belongs to
    axis_rank: NDArray[np.int64]  # (V,) place of each variable in the one global axis order, 0 slowest
    # the program
    table_ptr: NDArray[np.int64]  # (T+1,)
    table_var: NDArray[np.int64]  # scope of each table, in axis order; tables 0..F-1 are the factors
    table_off: NDArray[np.int64]  # (T,) first cell in the arena
    op_kind: NDArray[np.int64]  # (P,) COLLECT, DISTRIBUTE or POSTERIOR
    op_level: NDArray[np.int64]  # (P,) ascending; contractions of one level are independent of each other
    op_out: NDArray[np.int64]  # (P,) table written; every table that is no factor is written once
    op_in_ptr: NDArray[np.int64]  # (P+1,)
    op_in: NDArray[np.int64]  # tables multiplied
    evidence_factor: NDArray[np.int64]  # (V,) the factor that evidence on a variable is multiplied into
    posterior_table: NDArray[np.int64]  # (V,) the table that holds the variable's unnormalised posterior
    root_table: NDArray[np.int64]  # (components,) tables of empty scope whose product is P(e)
    arena_cells: NDArray[np.int64]  # (1,) cells of the arena, alignment included

    # Lists of the CSR arrays ---------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        for f in fields(self):
            array = np.ascontiguousarray(getattr(self, f.name), np.int64)
            if array.flags.writeable:
                array = array.copy() if array.base is not None else array
                array.flags.writeable = False
            object.__setattr__(self, f.name, array)

    def __reduce__(self) -> tuple[type[Plan], tuple[NDArray[np.int64], ...]]:
        """A pickle holds the arrays and none of what was made of them; they come out of it read-only again."""
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    @property
    def n_variables(self) -> int:
        """V."""
        return len(self.cardinality)

    @property
    def n_factors(self) -> int:
        """F."""
        return len(self.factor_ptr) - 1

    @property
    def n_cliques(self) -> int:
        """C."""
        return len(self.clique_parent)

    @cached_property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        """Variables of every clique, in axis order."""
        return _rows(self.clique_ptr, self.clique_var)

    @cached_property
    def separators(self) -> tuple[tuple[int, ...], ...]:
        """Variables that every clique shares with its parent, in axis order; empty for a root."""
        return _rows(self.separator_ptr, self.separator_var)

    @cached_property
    def factor_scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variables of every factor, in the order of the model's axes."""
        return _rows(self.factor_ptr, self.factor_var)

    @cached_property
    def table_scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variables of every table of the program, in axis order."""
        return _rows(self.table_ptr, self.table_var)

    @cached_property
    def op_inputs(self) -> tuple[tuple[int, ...], ...]:
        """Tables that every contraction multiplies."""
        return _rows(self.op_in_ptr, self.op_in)

    @cached_property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) bounds of each variable in an array of all posteriors."""
        return np.concatenate([[0], np.cumsum(self.cardinality)])

    def size(self, scope: tuple[int, ...]) -> int:
        """Entries of a table over `scope`."""
        n = 1
        for v in scope:
            n *= int(self.cardinality[v])
        return n

    # Checks, cost, words --------------------------------------------------------------------------------------

    def check(self) -> None:
        """Hold the plan to its own rules.

        Raises
        ------
        PlanError
            Unless: every family lies within its clique; running intersection holds; separators are intersections;
            every table but the factors is written once, before it is read, and at a level below its readers;
            tables do not overlap; every contraction's output lies within its inputs' scopes; axis order is kept.
        """
        from .check import check

        check(self)

    @cached_property
    def _cost(self) -> Cost:
        clique = [self.size(c) for c in self.cliques]
        separator = [self.size(s) for s, up in zip(self.separators, self.clique_parent, strict=True) if up >= 0]
        table = [self.size(s) for s in self.table_scopes]
        flops = traffic = 0
        for out, ins in zip(self.op_out.tolist(), self.op_inputs, strict=True):
            joint = {v for t in ins for v in self.table_scopes[t]}
            flops += self.size(tuple(joint)) * len(ins)  # len(ins)-1 multiplications and one addition
            traffic += 8 * (table[out] + sum(table[t] for t in ins))
        return Cost(
            cliques=len(clique),
            levels=int(self.clique_depth.max(initial=-1)) + 1,
            width=max((len(c) for c in self.cliques), default=0) - 1,
            entries=sum(clique),
            largest=max(clique, default=0),
            smallest=min(clique, default=0),
            separator_entries=sum(separator),
            largest_separator=max(separator, default=0),
            contractions=len(self.op_out),
            program_levels=int(self.op_level.max(initial=0)),
            flops=flops,
            traffic=traffic,
            largest_table=max(table, default=0),
            table_entries=sum(table),
            bytes=8 * int(self.arena_cells[0]),
        )

    def cost(self) -> Cost:
        """What the plan costs; computed once."""
        return self._cost

    def describe(self) -> str:
        """The cost in words, a line a fact."""
        c = self.cost()
        return (
            f"{self.n_variables} variables, {self.n_factors} factors, {c.cliques} cliques on {c.levels} levels, "
            f"width {c.width}\n"
            f"clique tables: {c.entries:,} entries in all, largest {c.largest:,}, smallest {c.smallest:,}\n"
            f"separators: {c.separator_entries:,} entries in all, largest {c.largest_separator:,}\n"
            f"program: {c.contractions:,} contractions on {c.program_levels} levels, {c.flops:,} operations, "
            f"{format_bytes(c.traffic)} moved\n"
            f"tables built: {c.table_entries:,} entries in all, largest {c.largest_table:,}; "
            f"memory {format_bytes(c.bytes)}"
        )

    # Saved plans ----------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        return hash((self.cardinality.tobytes(), self.elimination_order.tobytes(), len(self.op_out)))

    def to_bytes(self) -> bytes:
        """The plan as an uncompressed zip of ``.npy`` arrays: the same plan gives the same bytes."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            head = json.dumps({"format": "jtgpu plan", "version": FORMAT_VERSION})
            archive.writestr(zipfile.ZipInfo("head.json", _EPOCH), head)
            for f in fields(self):
                array = io.BytesIO()
                np.save(array, getattr(self, f.name), allow_pickle=False)
                archive.writestr(zipfile.ZipInfo(f.name + ".npy", _EPOCH), array.getvalue())
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Plan:
        """The opposite of `to_bytes`; the plan is checked.

        Raises
        ------
        PlanError
            For bytes that hold no plan, a plan of another version, or one that breaks its rules.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                head = json.loads(archive.read("head.json"))
                if head.get("format") != "jtgpu plan" or head.get("version") != FORMAT_VERSION:
                    raise PlanError(f"no plan of version {FORMAT_VERSION}: {head}")
                arrays = {
                    f.name: np.load(io.BytesIO(archive.read(f.name + ".npy")), allow_pickle=False)
                    for f in fields(cls)
                }
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError, AttributeError) as error:
            raise PlanError(f"these bytes hold no plan: {error}") from None
        plan = cls(**arrays)
        plan.check()
        return plan

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file, completely or not at all (a zip of NumPy arrays; no pickle)."""
        atomic_file.write_bytes(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a saved plan; raises `PlanError` as `from_bytes` does."""
        return cls.from_bytes(Path(path).read_bytes())


_EPOCH = (1980, 1, 1, 0, 0, 0)  # a zip's earliest date: equal plans give equal bytes


def _rows(ptr: NDArray[np.int64], values: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    flat, bounds = values.tolist(), ptr.tolist()
    return tuple(tuple(flat[a:b]) for a, b in pairwise(bounds))
