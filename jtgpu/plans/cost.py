"""The cost of one propagation of a plan: sizes of cliques and tables, operations, memory traffic."""

from __future__ import annotations

from dataclasses import dataclass

from .arrays import PlanArrays


@dataclass(frozen=True)
class Cost:
    """The cost of one propagation of a plan.

    Attributes
    ----------
    cliques, levels, width : int
        Number of cliques; levels of the junction tree (its height + 1, the dependent steps of one sweep); variables
        of the clique with the most variables, minus one.
    entries, largest, smallest : int
        Sum, largest and smallest of the clique tables' sizes; the sum is the usual measure of a junction tree.
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
    clique = [plan.size(c) for c in plan.cliques]
    separator = [plan.size(s) for s, up in zip(plan.separators, plan.clique_parent, strict=True) if up >= 0]
    table = [plan.size(s) for s in plan.table_scopes]
    flops = traffic = 0
    for out, ins in zip(plan.op_out.tolist(), plan.op_inputs, strict=True):
        joint = {v for t in ins for v in plan.table_scopes[t]}
        flops += plan.size(tuple(joint)) * len(ins)  # len(ins)-1 multiplications and one addition
        traffic += 8 * (table[out] + sum(table[t] for t in ins))
    return Cost(
        cliques=len(clique),
        levels=int(plan.clique_depth.max(initial=-1)) + 1,
        width=max((len(c) for c in plan.cliques), default=0) - 1,
        entries=sum(clique),
        largest=max(clique, default=0),
        smallest=min(clique, default=0),
        separator_entries=sum(separator),
        largest_separator=max(separator, default=0),
        contractions=len(plan.op_out),
        program_levels=int(plan.op_level.max(initial=0)),
        flops=flops,
        traffic=traffic,
        largest_table=max(table, default=0),
        table_entries=sum(table),
        bytes=8 * int(plan.arena_cells[0]),
    )
