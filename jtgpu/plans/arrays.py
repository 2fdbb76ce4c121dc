"""The arrays of a plan: their names, shapes and meanings, the lists of tuples derived from them, and what a plan costs.

Nothing here computes a plan or checks one: see `jtgpu.plans.plan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLLECT, DISTRIBUTE, POSTERIOR = 0, 1, 2  # kinds of contraction
LARGE = 2.0**45  # entries of a table from which sums may exceed 64 bits


def ragged(lists: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """CSR arrays ``(ptr, values)`` of a list of lists of ints: list i is ``values[ptr[i]:ptr[i+1]]``."""
    ptr = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(x) for x in lists], out=ptr[1:])
    return ptr, np.array([v for x in lists for v in x], np.int64)


def ranges(first: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from each first one to before its end, one range after another."""
    n = end - first
    return np.repeat(first - np.cumsum(n) + n, n) + np.arange(int(n.sum()))


@dataclass(frozen=True, eq=False)
class PlanArrays:
    """A junction tree and the contractions that propagate on it, as arrays.

    V variables, F factors, C cliques, T tables, P contractions. Every array is int64 and read-only; arrays whose
    names end in ``_ptr`` are CSR bounds.
    """

    cardinality: NDArray[np.int64]  # (V,) states of each variable
    factor_ptr: NDArray[np.int64]  # (F+1,)
    factor_var: NDArray[np.int64]  # variables of each factor, in the order of the model's axes
    # the junction tree (a forest: one root per component)
    elimination_order: NDArray[np.int64]  # (V,) first eliminated first
    clique_ptr: NDArray[np.int64]  # (C+1,)
    clique_var: NDArray[np.int64]  # variables of each clique, in the plan's axis order
    clique_parent: NDArray[np.int64]  # (C,) -1 for a root
    clique_depth: NDArray[np.int64]  # (C,) 0 for a root
    separator_ptr: NDArray[np.int64]  # (C+1,) separator of each clique to its parent; empty for a root
    separator_var: NDArray[np.int64]  # in the plan's axis order
    factor_clique: NDArray[np.int64]  # (F,) the clique that each factor is assigned to
    axis_rank: NDArray[np.int64]  # (V,) position of each variable in the global axis order, 0 slowest
    # the program
    table_ptr: NDArray[np.int64]  # (T+1,)
    table_var: NDArray[np.int64]  # scope of each table, in axis order; tables 0..F-1 are the factors
    table_off: NDArray[np.int64]  # (T,) first cell in the arena
    op_kind: NDArray[np.int64]  # (P,) COLLECT, DISTRIBUTE or POSTERIOR
    op_level: NDArray[np.int64]  # (P,) ascending; contractions of one level are independent
    op_out: NDArray[np.int64]  # (P,) table written; every table other than a factor is written exactly once
    op_in_ptr: NDArray[np.int64]  # (P+1,)
    op_in: NDArray[np.int64]  # tables multiplied
    # (V+S,) the factor that evidence on each variable is multiplied into, then the factors of the sets of variables
    # that are kept together: they have the plan's last numbers, and their axes are in axis order
    evidence_factor: NDArray[np.int64]
    posterior_table: NDArray[np.int64]  # (V+S,) the tables that hold their unnormalised posteriors
    root_table: NDArray[np.int64]  # (components,) tables of empty scope whose product is P(e)
    arena_cells: NDArray[np.int64]  # (1,) cells of the arena, alignment included

    def __post_init__(self) -> None:
        for f in fields(self):
            array = np.ascontiguousarray(getattr(self, f.name), np.int64)
            if array.flags.writeable:
                array = array.copy() if array.base is not None else array
                array.flags.writeable = False
            object.__setattr__(self, f.name, array)

    def __reduce__(self) -> tuple[type[PlanArrays], tuple[NDArray[np.int64], ...]]:
        """Pickle the arrays only, not the lists cached from them; unpickled arrays are read-only again."""
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlanArrays):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        return hash((self.cardinality.tobytes(), self.elimination_order.tobytes(), len(self.op_out)))

    @property
    def n_variables(self) -> int:
        """Number of variables, V."""
        return len(self.cardinality)

    @property
    def n_factors(self) -> int:
        """Number of factors, F."""
        return len(self.factor_ptr) - 1

    @property
    def n_cliques(self) -> int:
        """Number of cliques, C."""
        return len(self.clique_parent)

    @property
    def is_planned(self) -> bool:
        """Whether there is a tree; without one, each question is planned by itself."""
        return self.n_cliques > 0 or self.n_variables == 0

    @cached_property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        """Variables of each clique, in axis order."""
        return _rows(self.clique_ptr, self.clique_var)

    @cached_property
    def separators(self) -> tuple[tuple[int, ...], ...]:
        """Variables that each clique shares with its parent, in axis order; empty for a root."""
        return _rows(self.separator_ptr, self.separator_var)

    @cached_property
    def factor_scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variables of each factor, in the order of the model's axes."""
        return _rows(self.factor_ptr, self.factor_var)

    @cached_property
    def table_scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variables of each table of the program, in axis order."""
        return _rows(self.table_ptr, self.table_var)

    @cached_property
    def op_inputs(self) -> tuple[tuple[int, ...], ...]:
        """Tables that each contraction multiplies."""
        return _rows(self.op_in_ptr, self.op_in)

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """Variables of each set that has a factor of its own, in axis order; set i is *set variable* V + i."""
        return tuple(self.factor_scopes[f] for f in self.evidence_factor[self.n_variables :].tolist())

    @cached_property
    def cards_with_sets(self) -> NDArray[np.int64]:
        """(V+S,) states of each variable, cells of each set."""
        return np.concatenate([self.cardinality, np.array([self.size(s) for s in self.sets], np.int64)])

    @cached_property
    def posterior_ptr(self) -> NDArray[np.int64]:
        """(V+1,) int64: bounds of each variable's states in an array of all posteriors."""
        return np.concatenate([[0], np.cumsum(self.cardinality)])

    def size(self, scope: tuple[int, ...]) -> int:
        """Number of entries of a table over the variables `scope`."""
        n = 1
        for v in scope:
            n *= int(self.cardinality[v])
        return n


def _rows(ptr: NDArray[np.int64], values: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    flat, bounds = values.tolist(), ptr.tolist()
    return tuple(tuple(flat[a:b]) for a, b in pairwise(bounds))


@dataclass(frozen=True)
class Cost:
    """The cost of one propagation of a plan.

    Attributes
    ----------
    cliques, levels, width : int
        Number of cliques; levels of the junction tree (its height + 1, the dependent steps of one sweep); variables
        of the clique with the most variables, minus one.
    entries, largest, smallest : int
        Sum, largest and smallest of the clique tables' sizes; the sum is the common measure of a junction tree.
    separator_entries, largest_separator : int
        Sum and largest of the sizes of the separator tables.
    contractions, program_levels : int
        Contractions of the program, and levels of contractions that have to run one after the other.
    flops : int
        Multiplications and additions of one propagation (collect, distribute, every posterior).
    traffic : int
        Bytes of float64 that the contractions of one propagation read and write, each table once per contraction.
    largest_table, table_entries : int
        Largest table and sum of all tables of the program, in entries, factors included.
    bytes : int
        Memory of one propagation in bytes of float64: all tables of the program.

    Examples
    --------
    >>> import jtgpu
    >>> cost = jtgpu.load("asia").plan().cost()
    >>> cost.cliques, cost.width, cost.entries
    (6, 2, 40)
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


def plan_cost(plan: PlanArrays) -> Cost:
    """Compute the cost of one propagation of a plan (collect, distribute, all posteriors)."""
    clique = _sizes(plan, plan.clique_ptr, plan.clique_var)
    separator = _sizes(plan, plan.separator_ptr, plan.separator_var)[plan.clique_parent >= 0]
    table = _sizes(plan, plan.table_ptr, plan.table_var)
    ins = np.diff(plan.op_in_ptr)
    # the variables of each contraction, each once
    op = np.repeat(np.arange(len(ins)), ins)
    of = np.repeat(op, np.diff(plan.table_ptr)[plan.op_in])
    var = plan.table_var[ranges(plan.table_ptr[plan.op_in], plan.table_ptr[plan.op_in + 1])]
    key = np.unique(of * plan.n_variables + var)
    joint_ptr = np.searchsorted(key, np.arange(len(ins) + 1) * plan.n_variables)
    joint = _sizes(plan, joint_ptr, key % max(plan.n_variables, 1))
    flops = _total(joint * ins)  # a contraction of k tables: k-1 multiplications and one addition
    moved = np.concatenate([table[plan.op_out], table[plan.op_in]])
    return Cost(
        cliques=len(clique),
        levels=int(plan.clique_depth.max(initial=-1)) + 1,
        width=int(np.diff(plan.clique_ptr).max(initial=0)) - 1,
        entries=_total(clique),
        largest=int(clique.max(initial=0)),
        smallest=int(clique.min()) if len(clique) else 0,
        separator_entries=_total(separator),
        largest_separator=int(separator.max(initial=0)),
        contractions=len(plan.op_out),
        program_levels=int(plan.op_level.max(initial=0)),
        flops=flops,
        traffic=8 * _total(moved),
        largest_table=int(table.max(initial=0)),
        table_entries=_total(table),
        bytes=8 * int(plan.arena_cells[0]),
    )


def _sizes(plan: PlanArrays, ptr: NDArray[np.int64], var: NDArray[np.int64]) -> NDArray[Any]:
    """Entries of tables over some variables each: integers of Python where 64 bits do not suffice."""
    cards, first = np.append(plan.cardinality[var], 1), ptr[:-1]
    if not len(first):
        return cards[:0]
    large = np.multiply.reduceat(cards.astype(np.float64), first).max() > LARGE
    sizes = np.multiply.reduceat(cards.astype(object) if large else cards, first)
    sizes[first == ptr[1:]] = 1
    return sizes


def _total(sizes: NDArray[Any]) -> int:
    """Their sum, exactly."""
    return sum(sizes.tolist())
