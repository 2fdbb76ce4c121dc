"""The plan: the description of a computation by flat arrays of integers.

A plan depends on the graph, the cardinalities and the options only. It contains no names, no CPT entries, no
evidence and no device pointers, so it can be saved, sent to another process and run by any backend.

A plan has two parts. The *structure* is the junction tree that the program was derived from: cliques, separators, the
clique of each factor. The *program* is a list of contractions

    out[s] = (+)_r  (x)_t  T_t[...]

over *tables*. A table is identified by its number; its *scope* lists its variables in the order of its axes (first
axis slowest). ``s`` ranges over the scope of the output, ``r`` over every other variable in the scopes of the inputs,
and (+, x) is the semiring: (sum, product) for posteriors, (max, product) for the most probable explanation. Tables
0..F-1 are the model's factors, transposed to the plan's axis order.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import PlanError, PlanFileError, format_bytes
from ..util import atomic_file
from ..util.arguments import file_path
from .arrays import Cost, PlanArrays, plan_cost, ragged

# The rules that every plan satisfies, one function per group of rules; `check` tests all of them.

def check(plan: PlanArrays) -> None:
    """Raise `PlanError`, naming the first rule that `plan` violates."""
    _check_shapes(plan)
    _check_tree(plan)
    _check_program(plan)
    _check_arena(plan)


def _need(holds: bool, rule: str) -> None:
    if not holds:
        raise PlanError(rule)


def _within(values: NDArray[np.int64], low: int, high: int) -> bool:
    return bool(values.size == 0 or (values.min() >= low and values.max() < high))


def _check_csr(name: str, ptr: NDArray[np.int64], values: NDArray[np.int64], n: int, high: int) -> None:
    _need(
        len(ptr) == n + 1 and ptr[0] == 0 and ptr[-1] == len(values) and bool((np.diff(ptr) >= 0).all()),
        f"{name}: the bounds do not match the values",
    )
    _need(_within(values, 0, high), f"{name}: a value is outside 0..{high - 1}")


def _check_shapes(plan: PlanArrays) -> None:
    n, n_factors, n_cliques = plan.n_variables, plan.n_factors, plan.n_cliques
    n_tables, n_ops = len(plan.table_off), len(plan.op_out)
    _need(n_factors >= 0, "factor_ptr is empty")
    _need(bool((plan.cardinality >= 1).all()), "a variable has no states")
    _check_csr("factors", plan.factor_ptr, plan.factor_var, n_factors, n)
    _check_csr("cliques", plan.clique_ptr, plan.clique_var, n_cliques, n)
    _check_csr("separators", plan.separator_ptr, plan.separator_var, n_cliques, n)
    _check_csr("tables", plan.table_ptr, plan.table_var, n_tables, n)
    _check_csr("inputs of contractions", plan.op_in_ptr, plan.op_in, n_ops, n_tables)
    for name, length, low, high in (
        ("elimination_order", n, 0, n),
        ("axis_rank", n, 0, n),
        ("evidence_factor", max(n, len(plan.evidence_factor)), 0, n_factors),
        ("posterior_table", len(plan.evidence_factor), 0, n_tables),
        ("clique_parent", n_cliques, -1, n_cliques),
        ("clique_depth", n_cliques, 0, max(n_cliques, 1)),
        ("factor_clique", n_factors, 0, n_cliques),
        ("op_out", n_ops, n_factors, n_tables),
        ("op_level", n_ops, 1, n_ops + 1),
        ("op_kind", n_ops, 0, 3),
    ):
        array = getattr(plan, name)
        _need(array.shape == (length,) and _within(array, low, high), f"{name} has a wrong length or value")
    for name in ("elimination_order", "axis_rank"):
        _need(sorted(getattr(plan, name).tolist()) == list(range(n)), f"{name} is not a permutation of the variables")
    _need(plan.arena_cells.shape == (1,), "arena_cells is not a single number")


def _check_axis_order(plan: PlanArrays, scopes: Sequence[Sequence[int]], what: str) -> None:
    rank = plan.axis_rank.tolist()
    for i, scope in enumerate(scopes):
        _need(
            all(rank[a] < rank[b] for a, b in pairwise(scope)),
            f"{what} {i}: its variables are not in axis order, or one is repeated",
        )


def _check_tree(plan: PlanArrays) -> None:
    cliques = [frozenset(c) for c in plan.cliques]
    parents = plan.clique_parent.tolist()
    _check_axis_order(plan, plan.cliques, "clique")
    _check_axis_order(plan, plan.separators, "separator")
    started: dict[int, int] = {}
    for c, up in enumerate(parents):
        above = cliques[up] if up >= 0 else frozenset()
        _need(
            int(plan.clique_depth[c]) == (int(plan.clique_depth[up]) + 1 if up >= 0 else 0),
            f"clique {c}: its depth is not one more than its parent's",
        )
        _need(frozenset(plan.separators[c]) == cliques[c] & above, f"separator {c} is not an intersection")
        for v in sorted(cliques[c] - above):
            _need(v not in started, f"running intersection fails for variable {v}")
            started[v] = c
    _need(len(started) == plan.n_variables, "a variable is in no clique")
    for f, scope in enumerate(plan.factor_scopes):
        _need(len(set(scope)) == len(scope), f"factor {f}: a variable is repeated")
        _need(set(scope) <= cliques[int(plan.factor_clique[f])], f"factor {f} is not contained in its clique")


def _check_program(plan: PlanArrays) -> None:
    scopes = plan.table_scopes
    n_factors = plan.n_factors
    _check_axis_order(plan, scopes, "table")
    for f, scope in enumerate(plan.factor_scopes):
        _need(sorted(scope) == sorted(scopes[f]), f"table {f} is not over the variables of factor {f}")
    for v, f in enumerate(plan.evidence_factor[: plan.n_variables].tolist()):
        _need(v in scopes[f], f"evidence on variable {v} is multiplied into a factor that does not contain it")
    for f in plan.evidence_factor[plan.n_variables :].tolist():
        _need(plan.factor_scopes[f] == scopes[f], f"factor {f}, of a set, is not in axis order")
    level = dict.fromkeys(range(n_factors), 0)
    _need(bool((np.diff(plan.op_level) >= 0).all()), "the levels of the contractions are not ascending")
    for i, (out, ins) in enumerate(zip(plan.op_out.tolist(), plan.op_inputs, strict=True)):
        _need(len(ins) > 0, f"contraction {i} has no inputs")
        _need(out not in level, f"table {out} is written twice")
        for t in ins:
            _need(level.get(t, plan.op_level[i]) < plan.op_level[i], f"contraction {i} reads table {t} too early")
        read = {v for t in ins for v in scopes[t]}
        _need(set(scopes[out]) <= read, f"the output of contraction {i} has variables that its inputs do not have")
        level[out] = int(plan.op_level[i])
    _need(len(level) == len(scopes), "a table is never written")
    for v, t in enumerate(plan.posterior_table.tolist()):
        own = (v,) if v < plan.n_variables else scopes[int(plan.evidence_factor[v])]
        _need(scopes[t] == own, f"the posterior table of variable {v} is not over that variable")
    for t in plan.root_table.tolist():
        _need(0 <= t < len(scopes) and scopes[t] == (), "a root table does not have empty scope")


def _check_arena(plan: PlanArrays) -> None:
    start = plan.table_off
    size = np.array([plan.size(s) for s in plan.table_scopes], np.int64)
    by_start = np.argsort(start, kind="stable")
    ends = (start + size)[by_start]
    _need(
        bool(start.size == 0 or start.min() >= 0) and bool((ends[:-1] <= start[by_start][1:]).all()),
        "tables overlap in the arena",
    )
    _need(int(ends.max(initial=0)) <= int(plan.arena_cells[0]), "a table exceeds the arena")


FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False, repr=False)
class Plan(PlanArrays):
    """A junction tree and the contractions that propagate on it; `PlanArrays` defines the fields.

    Two plans are equal if all their arrays are equal. `jtgpu.plans.compiler` compiles models into plans.
    """

    def __repr__(self) -> str:
        sizes = len(self.cardinality), len(self.clique_parent), len(self.op_kind)
        return "<Plan: {} variables, {} cliques, {} contractions>".format(*sizes)

    def check(self) -> None:
        """Verify that the plan is consistent.

        Raises
        ------
        PlanError
            If a factor is not contained in its clique, the running intersection property fails, a separator is not
            the intersection of its cliques, a table is not written exactly once on a level below its readers, tables
            overlap, the scope of a contraction's output exceeds those of its inputs, or a scope is not in axis order.
        """
        check(self)

    def without_sets(self) -> Plan:
        """This plan without set variables: their factors stay, their posteriors are not computed."""
        n, n_sets = self.n_variables, len(self.sets)
        if not n_sets:
            return self
        kept = self.op_out < len(self.table_off) - n_sets  # their posteriors are the last tables
        ins = [tables for tables, stays in zip(self.op_inputs, kept.tolist(), strict=True) if stays]
        op_in_ptr, op_in = ragged(ins)
        ptr = self.table_ptr[: len(self.table_ptr) - n_sets]
        return replace(
            self, evidence_factor=self.evidence_factor[:n], posterior_table=self.posterior_table[:n], table_ptr=ptr,
            table_var=self.table_var[: ptr[-1]], table_off=self.table_off[: len(ptr) - 1], op_kind=self.op_kind[kept],
            op_level=self.op_level[kept], op_out=self.op_out[kept], op_in_ptr=op_in_ptr, op_in=op_in,
        )  # fmt: skip

    @cached_property
    def _cost(self) -> Cost:
        return plan_cost(self)

    def cost(self) -> Cost:
        """The cost of one propagation (computed once, then cached)."""
        return self._cost

    def describe(self) -> str:
        """Describe the cost, one fact per line."""
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

    def to_bytes(self) -> bytes:
        """Return the plan as an uncompressed zip file of ``.npy`` arrays; equal plans give equal bytes."""
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
        """Create a plan from the bytes of `to_bytes`, and check it.

        Raises
        ------
        PlanError
            If the bytes are not a plan, a plan of another version, or an inconsistent one (see `check`).
        """
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                if any(i.file_size > i.compress_size for i in archive.infolist()):
                    raise PlanError("not a saved plan: its parts are compressed")
                head = json.loads(archive.read("head.json"))
                if head.get("format") != "jtgpu plan" or head.get("version") != FORMAT_VERSION:
                    raise PlanError(f"not a plan of version {FORMAT_VERSION}: {head}")
                arrays = {
                    f.name: np.load(io.BytesIO(archive.read(f.name + ".npy")), allow_pickle=False)
                    for f in fields(cls)
                }
        except _DAMAGE as error:
            raise PlanError(f"not a saved plan: {error}") from None
        plan = cls(**arrays)
        plan.check()
        return plan

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file, completely or not at all (a zip of NumPy arrays; no pickle)."""
        try:
            atomic_file.write_bytes(file_path("path", path), self.to_bytes())
        except OSError as error:
            raise PlanFileError(f"cannot write {os.fspath(path)!r}: {(error.strerror or str(error)).lower()}") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a saved plan.

        Raises
        ------
        PlanError
            Under the conditions of `from_bytes`, and if the file cannot be read; then it is also an `OSError`. The
            message names the file.
        """
        try:
            data = Path(path).read_bytes()
        except (OSError, ValueError) as error:  # ValueError: NUL in the name
            reason = getattr(error, "strerror", None) or str(error)
            raise PlanFileError(f"cannot read {os.fspath(path)!r}: {reason.lower()}") from None
        try:
            return cls.from_bytes(data)
        except PlanError as error:
            raise PlanError(f"{os.fspath(path)}: {error}") from None


# What zipfile, json and NumPy raise for damaged files.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, AttributeError, EOFError, KeyError, MemoryError, NotImplementedError, OSError,
    OverflowError, RecursionError, RuntimeError, SyntaxError, TypeError, ValueError,
)  # fmt: skip
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip entry: equal plans give equal bytes
