"""``jtgpu sample``: exact samples of the posterior as CSV."""

from __future__ import annotations

import csv
import json as encoder
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from gzip import GzipFile
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import numpy as np
import typer

from ..cases.query import escape_formula
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..util.arguments import Option
from ..util.atomic_file import open_atomic
from .console import command
from .networks import case_of, check_output, findings_as_json, load_any, with_codes
from .number_tables import sampled_rows
from .numbers import as_json, compiled_numbers, mixed_findings
from .options import OUTPUT, Codes, EscapeFormulas, Evidence, EvidenceFile, File, Force, Json, Without
from .planning import PlanOptions, RunOptions, compiled

if TYPE_CHECKING:
    from ..inference.results.case_states import Samples

EXAMPLES = ("jtgpu sample asia 5 -e xray=yes --seed 1", "jtgpu sample asia 1000000 -o cases.csv.gz")

CELLS = 1 << 22  # drawn and written at a time

Output = Annotated[str | None, Option(
    "-o, --output PATH", "Output file; append .gz to compress. Default: stdout.", panel=OUTPUT)]


@command
def sample(  # noqa: PLR0913 (a Typer command)
    file: File,
    n: Annotated[int, Option("N", "Number of samples.", least=0)],
    evidence: Evidence = None,
    evidence_file: EvidenceFile = None,
    codes: Codes = None,
    seed: Annotated[int | None, Option(
        "--seed N", "Random seed; the same seed gives the same samples. Default: random.", least=0)] = None,
    output: Output = None,
    force: Force = False,
    numbers: Annotated[bool, Option("--numbers", "Write state numbers instead of names.", panel=OUTPUT)] = False,
    inside: Annotated[bool, Option(
        "--inside", "Draw numbers inside intervals of variables whose states are intervals.", panel=OUTPUT)] = False,
    escape_formulas: EscapeFormulas = False,
    *,
    plan: PlanOptions,
    run: Annotated[RunOptions, Without("dtype", "devices")],
    json: Json = False,
) -> None:
    """Draw exact samples of all variables given evidence, as CSV.

    The first line holds the names of the variables, each further line one sample. Sampling is exact for any
    evidence, however improbable: no sample is rejected or weighted.
    """
    if output is not None:
        check_output(output, force)
    net = with_codes(load_any(file), codes)
    if isinstance(net, MixedNetwork):
        given = mixed_findings(net, evidence or [])
        if evidence_file is not None:
            raise typer.BadParameter(f"{file} has numbers, for which sample takes --evidence only", param_hint=file)
        if inside:
            raise typer.BadParameter("numbers are drawn as such; states that are intervals stay", param_hint="--inside")
        mixed_tree = compiled_numbers(net, file, plan, run)
        mixed_tree.log_evidence(given)
        discrete = net.discrete
        names, labels = _texts(discrete, net.variables, numbers, escape_formulas and not json)
        columns = dict(zip(discrete.variables, labels, strict=True))
        drawn = sampled_rows(mixed_tree, n, max(1, CELLS // len(net)), given, np.random.default_rng(seed), columns)
        head = {"file": file, "evidence": as_json(given), "seed": seed, "variables": names}
        _write(output, head, drawn, json)
        return
    findings = case_of(net, evidence, evidence_file)
    generator = np.random.default_rng(seed)
    names, labels = _texts(net, net.variables, numbers, escape_formulas and not json)
    with compiled(net, file, plan, run) as (tree, step):
        step("sampling")
        tree.log_evidence(findings)  # fails for impossible evidence before a file is opened
        block = max(1, CELLS // len(net))
        sizes = (min(block, n - first) for first in range(0, n, block))
        drawn_parts = (tree.sample(size, findings, seed=generator, numbers=inside) for size in sizes)
        rows = (row for part in drawn_parts for row in _rows(part, labels))
        head = {"file": file, "evidence": findings_as_json(findings), "seed": seed, "variables": names}
        _write(output, head, rows, json)


def _texts(
    net: DiscreteModel, variables: Sequence[str], numbers: bool, escape: bool
) -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and of the states of each variable of a network."""
    names = list(variables)
    labels = [[str(i) for i in range(len(net.states(v)))] if numbers else list(net.states(v)) for v in net.variables]
    if escape:
        names = [escape_formula(v) for v in names]
        labels = [[escape_formula(state) for state in states] for states in labels]
    return names, labels


def _write(output: str | None, head: dict[str, Any], rows: Iterable[list[Any]], json: bool) -> None:
    """Write samples as CSV, or as JSON with a head."""
    with _open_output(output) as stream:
        if json:
            _write_json(stream, head, rows)
        else:
            out = csv.writer(stream, lineterminator="\n")
            out.writerow(head["variables"])
            out.writerows(rows)


def _write_json(stream: TextIO, head: dict[str, Any], rows: Iterable[list[Any]]) -> None:
    """Write a JSON object with one sample per line, in memory that does not grow with their number."""
    fields = [f"  {encoder.dumps(name)}: {encoder.dumps(value, allow_nan=False)}" for name, value in head.items()]
    stream.write("{\n" + ",\n".join([*fields, '  "samples": [']))
    comma = ""
    for row in rows:
        stream.write(f"{comma}\n    {encoder.dumps(row)}")
        comma = ","
    stream.write("\n  ]\n}\n" if comma else "]\n}\n")


def _rows(drawn: Samples, labels: list[list[str]]) -> Iterator[list[Any]]:
    """State names, or numbers inside intervals, row by row."""
    columns = [
        drawn[v].tolist() if v in drawn.numbers else [names[s] for s in drawn.states[:, i].tolist()]
        for i, (v, names) in enumerate(zip(drawn, labels, strict=True))
    ]
    yield from map(list, zip(*columns, strict=True))


@contextmanager
def _open_output(path: str | None) -> Iterator[TextIO]:
    """Stdout, or a file that appears when it is complete, compressed if its name ends in ``.gz``."""
    if path is None:
        yield sys.stdout
        return
    with open_atomic(path) as file:
        if path.lower().endswith(".gz"):  # without time and name: equal samples make equal files
            with GzipFile("", "wb", mtime=0, fileobj=file) as packed, _as_text(packed) as stream:
                yield stream
        else:
            stream = _as_text(file)
            yield stream
            stream.detach()  # flushes; `open_atomic` closes the file


def _as_text(file: Any) -> TextIOWrapper:
    return TextIOWrapper(file, encoding="utf-8", newline="")
