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
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path

import numpy as np

from ..errors import PlanError, PlanFileError, format_bytes
from ..util import atomic_file
from .arrays import PlanArrays
from .check import check
from .cost import Cost, plan_cost

FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class Plan(PlanArrays):
    """A junction tree and the contractions that propagate on it; `PlanArrays` defines the fields.

    Two plans are equal if all their arrays are equal. `jtgpu.plans.compiler` compiles models into plans.
    """

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
        atomic_file.write_bytes(path, self.to_bytes())

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
