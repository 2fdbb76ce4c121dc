"""``jtgpu sample``: exact samples of the posterior as CSV."""

from __future__ import annotations

import csv
import json as encoder
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from gzip import GzipFile
from io import TextIOWrapper
from typing import Any, TextIO

import numpy as np
from click import BadParameter

from ..cases.query import escape_formula
from ..inference.results.case_states import Samples
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..options.compute import Compute, Planning
from ..options.tables import FileOptions
from ..util.atomic_file import open_atomic
from .declared import Sample
from .networks import case_of, check_outputs, findings_as_json, load_any, with_codes
from .planning import compiled

CELLS = 1 << 22  # drawn and written at a time


def sample(o: Sample, writing: FileOptions, plan: Planning, run: Compute) -> None:
    """Run ``jtgpu sample``."""
    check_outputs(o.force, o.output)
    net: Any = with_codes(load_any(o.file), o.codes)
    numbers = isinstance(net, MixedNetwork)
    if numbers and o.inside:
        raise BadParameter("numbers are drawn as such; states that are intervals stay", param_hint="--inside")
    findings = case_of(net, o.evidence, o.evidence_file)
    discrete: DiscreteModel = net.discrete if numbers else net
    names, labels = _texts(discrete, net.variables, o.numbers, writing.escape_formulas and not o.json)
    options: dict[str, Any] = {"seed": np.random.default_rng(o.seed)} | ({} if numbers else {"numbers": o.inside})
    with compiled(net, o.file, plan, run, decisions=True) as (tree, step):
        step("sampling")
        tree.log_evidence(findings)  # fails for impossible evidence before a file is opened
        block = max(1, CELLS // len(net))
        sizes = (min(block, o.n - first) for first in range(0, o.n, block))
        rows = (row for size in sizes for row in _rows(tree.sample(size, findings, **options), discrete, labels))
        head = {"file": o.file, "evidence": findings_as_json(findings), "seed": o.seed, "variables": names}
        _write(o.output, head, rows, o.json)


def _texts(
    net: DiscreteModel, variables: Sequence[str], numbers: bool, escape: bool
) -> tuple[list[str], dict[str, list[str]]]:
    """Names of the columns, and of the states of each variable that has states."""
    names = list(variables)
    labels = {v: [str(i) for i in range(len(net.states(v)))] if numbers else list(net.states(v)) for v in net}
    if escape:
        names = [escape_formula(v) for v in names]
        labels = {v: [escape_formula(state) for state in states] for v, states in labels.items()}
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


def _rows(drawn: Any, net: DiscreteModel, labels: dict[str, list[str]]) -> Iterator[list[Any]]:
    """State names, or numbers, row by row."""
    inside = drawn.numbers if isinstance(drawn, Samples) else ()  # of intervals
    columns = [
        [labels[v][s] for s in drawn.states[:, net.index(v)].tolist()]
        if v in labels and v not in inside
        else drawn[v].tolist()
        for v in drawn
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
