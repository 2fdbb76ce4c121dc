"""`TableQuery`: the results to compute for every case of a table, by numbers of variables."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..columns.arrow import arrow, compute
from ..columns.names import evidence_columns, reject_repeated
from ..errors import EvidenceError, JtgpuError, UnknownVariable, closest
from ..inference.planning import RowOptions
from ..inference.queries.posteriors import as_list
from ..inference.results.marginals import distinct_names, joint_names
from ..inference.sets import Scope, scopes_of
from ..model.discrete import DiscreteModel
from ..model.noisy import is_noisy
from ..options.tables import TableOptions
from ..util.cells import na_words

# Options of all functions that answer a table of cases: frames, files and clusters.

# Cells that a spreadsheet would run as a formula, and how they are escaped in text files.
#
# OWASP, CSV Injection: a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line end, or with the full-width
# forms of the signs, gets an apostrophe in front. Plain numbers such as ``-5`` are no formulas and stay as they are.

_FORMULA = "^[=+\\-@\\t\\r\\n\uff1d\uff0b\uff0d\uff20]"
_NUMBER = "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$"


def escape_formula(cell: str) -> str:
    """A cell with an apostrophe in front if a spreadsheet would run it."""
    return f"'{cell}" if re.match(_FORMULA, cell) and not re.fullmatch(_NUMBER, cell) else cell


def escape_formulas(table: Any) -> Any:
    """An Arrow table whose names and texts are escaped; numbers are untouched."""
    pa, pc = arrow(), compute()
    columns = []
    for column in table.columns:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            text = column.cast(kind)
            risky = pc.and_not(
                pc.match_substring_regex(text, _FORMULA), pc.match_substring_regex(text, _NUMBER)
            )
            escaped = pc.binary_join_element_wise(pa.scalar("'", kind), text, pa.scalar("", kind))
            column = pc.if_else(risky, escaped, text)
        columns.append(column)
    return pa.table(columns, names=[escape_formula(name) for name in table.column_names])


class TableKeywords(RowOptions, total=False):
    """Keywords that all functions on tables accept; see `TableOptions`."""

    targets: str | int | Iterable[str | int] | None
    evidence_columns: str | Iterable[str] | None
    labels: bool


CALL_BYTES = 64 << 20  # of posteriors and evidence in one call of the backend
MIN_ROWS, MAX_ROWS = 1024, 1 << 17  # of one call of the backend


@dataclass(frozen=True)
class TableQuery:
    """The results to compute for every case; created by `resolve_query`."""

    targets: tuple[int, ...]
    evidence: tuple[int, ...]
    labels: bool = False  # the most probable state of each target in place of its probabilities
    log_evidence: bool = False
    conflict: bool = False
    mpe: bool = False  # the states of the targets in the most probable explanation, and its ln P with the evidence
    flag: bool = False  # rows without an answer are flagged, not an error
    joints: tuple[Scope, ...] = ()  # sets whose joint probabilities follow those of the targets

    def rows_per_call(self, model: DiscreteModel) -> int:
        """Number of cases in one call of the backend, such that its memory stays small."""
        scopes = [*((v,) for v in self.targets), *self.joints]
        cells = sum(math.prod(int(model.cardinality[v]) for v in scope) for scope in scopes)
        row_bytes = 8 * cells + 4 * len(model) + 16
        return int(min(max(CALL_BYTES // row_bytes, MIN_ROWS), MAX_ROWS))

    def columns(self, model: DiscreteModel) -> list[str]:
        """Names of the columns of the answer, in order."""
        if self.labels:
            names = [model.variables[v] for v in self.targets]
        else:
            names = [f"{model.variables[v]}={s}" for v in self.targets for s in distinct_names(model.states(v))]
            names += [name for scope in self.joints for name in joint_names(model, scope)]
        names += ["log_evidence"] * self.log_evidence + ["conflict"] * self.conflict
        if self.mpe:
            names += [*(f"mpe:{model.variables[v]}" for v in self.targets), "log_mpe"]
        return names + ["error"] * self.flag

    def schema(self, model: DiscreteModel, kept: Iterable[tuple[str, Any]] = (), skip: int = 0) -> Any:
        """Arrow schema of the answer."""
        # kept: iterable of (str, Arrow type): Columns of the table of cases that precede the answer's
        # skip: Number of the answer's first columns to leave out
        # raises EvidenceError: If two columns would have the same name.
        pa = arrow()
        fields = list(kept)
        names = self.columns(model)
        n = len(self.targets)
        first = len(names) - n - 1 - self.flag  # of the columns of explanations
        text = set(range(n)) if self.labels else set()
        text |= set(range(first, first + n)) if self.mpe else set()
        text |= {len(names) - 1} if self.flag else set()
        fields += [(name, pa.string() if i in text else pa.float64()) for i, name in enumerate(names) if i >= skip]
        seen: set[str] = set()
        for name, _ in fields:
            if name in seen:
                raise EvidenceError(f"the answer would have two columns named {name!r}; remove it from keep")
            seen.add(name)
        return pa.schema(fields)


def resolve_query(
    model: DiscreteModel, columns: Sequence[str], options: TableOptions, *, source: str = "the table"
) -> tuple[TableQuery, list[str]]:
    """Determine the results to compute for a table with these columns, and the columns to copy to the answer."""
    # columns: sequence of str: Names of the table's columns
    # options: ``targets``: default, the variables that are not evidence, or all if every variable is.
    #     ``evidence_columns``: default, every column that is a variable, except explicit targets (the prediction of a
    #     column does not use that column). Columns that are not variables are then ignored, but a column whose name is
    #     almost that of a variable is an error; see `jtgpu.columns.names.evidence_columns`.
    # source: Name of the table in messages
    # raises UnknownVariable: If a target or column does not exist; the message suggests the closest names.
    # raises EvidenceError: If a column occurs twice, or no column is a variable.
    targets = None
    if options.targets is not None:
        targets = list(dict.fromkeys(model.index(t) for t in as_list(options.targets, "targets")))
    joints = [] if options.joints is None else scopes_of(model, options.joints, "joints")
    kept = list(dict.fromkeys(str(k) for k in as_list(options.keep, "keep")))
    if options.evidence_columns is None:
        asked = [*(targets or ()), *(v for scope in joints for v in scope)]
        names = evidence_columns(model, columns, asked, source=source)
    else:
        names = list(dict.fromkeys(str(c) for c in as_list(options.evidence_columns, "evidence_columns")))
    known = set(columns)
    for name in [*names, *kept]:
        if name not in known:
            raise UnknownVariable(f"{source} has no column {name!r}{closest(name, columns)}")
    reject_repeated([*names, *kept], columns, source)
    evidence = tuple(model.index(c) for c in names)
    if targets is None:
        targets = [v for v in range(len(model)) if v not in set(evidence)] or list(range(len(model)))
    flag = options.on_error == "flag"
    query = TableQuery(
        tuple(targets), evidence, options.labels, options.log_evidence, options.conflict, options.mpe, flag,
        tuple(joints),
    )  # fmt: skip
    return query, kept


# The identity of a run, as JSON: everything that determines its answers.
#
# Only a run of the same identity can be continued.

SAMPLED = 1 << 16  # bytes of the beginning and the end of a file that are hashed
MAX_SHOWN = 80  # characters of a value in a message


def file_fingerprint(path: Path) -> dict[str, Any]:
    """Size, time of modification, and a digest of the beginning and the end of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        digest.update(file.read(SAMPLED))
        size = file.seek(0, 2)
        file.seek(max(size - SAMPLED, 0))
        digest.update(file.read(SAMPLED))
    return {"size": size, "modified": path.stat().st_mtime_ns, "digest": digest.hexdigest()}


def model_fingerprint(model: DiscreteModel) -> str:
    """A digest of a model's variables, states, structure and numbers."""
    digest = hashlib.sha256()
    for v, name in enumerate(model.variables):
        digest.update(repr((name, model.states(v))).encode("utf-8", "surrogatepass"))
    for factor in model.factors:
        digest.update(repr(factor.scope).encode())
        table = factor.table.rows if is_noisy(factor.table) else factor.table
        digest.update(np.ascontiguousarray(table).tobytes())
    return digest.hexdigest()


def query_fingerprint(
    model: DiscreteModel, query: TableQuery, kept: list[str], options: TableOptions
) -> dict[str, Any]:
    """A query with the options that affect its answers."""
    do = None if not options.do else [[str(k), np.asarray(v).tolist()] for k, v in options.do.items()]
    na_values = None if options.na_values is None else sorted(na_words(options.na_values, is_text=True))
    asked = {name: value for name, value in asdict(query).items() if name != "joints" or value}
    coded = model.with_codes(options.codes).state_codes
    codes = {} if coded == "names" else {"codes": str(coded)}
    return {**asked, "keep": kept, "na_values": na_values, "do": do, **codes}


def check_same_run(before: Mapping[str, object], now: Mapping[str, object], folder: str) -> None:
    """Raise `JtgpuError` with the first difference between the identities of two runs."""
    for key in dict.fromkeys((*before, *now)):
        one, other = before.get(key), now.get(key)
        if one != other:
            if isinstance(one, dict) and isinstance(other, dict):
                check_same_run(one, other, folder)
            raise JtgpuError(
                f"{folder} holds a run with a different {key} ({_shortened(one)}, now {_shortened(other)}); pass "
                "force=True to discard it"
            )


def _shortened(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
