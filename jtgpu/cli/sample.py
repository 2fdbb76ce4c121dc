"""``jtgpu sample``: exact samples of the posterior as CSV."""

from __future__ import annotations

import csv
import json as encoder
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from gzip import GzipFile
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import numpy as np
import typer

from ..model.findings import parse_findings
from ..util.atomic_file import open_atomic
from .console import command, print_json, shown
from .option_groups import Without
from .options import Evidence, File, Json, PlanOptions, RunOptions, compiled, findings_as_json, read_network

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["sample"]

CELLS = 1 << 22  # drawn and written at a time


@command
def sample(  # noqa: PLR0913 (a Typer command)
    file: File,
    n: Annotated[int, typer.Argument(metavar="N", min=0, help="Number of samples.")],
    evidence: Evidence = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="Random seed; the same seed gives the same samples. Default: random."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="PATH", help="Output file. Default: stdout.")
    ] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="Write state numbers instead of names.")] = False,
    *,
    plan: Annotated[PlanOptions, Without("seed")],
    run: Annotated[RunOptions, Without("dtype", "devices")],
    json: Json = False,
) -> None:
    """Draw exact samples of all variables given evidence, as CSV: a header with the names, then one sample per line.

    Sampling is exact for any evidence, however improbable: no sample is rejected or weighted.
    """
    if output is not None and not Path(output).absolute().parent.is_dir():
        raise typer.BadParameter(f"the folder of {shown(output)!r} does not exist", param_hint="--output")
    net = read_network(file)
    findings = parse_findings(net, evidence or [])
    generator = np.random.default_rng(seed)
    labels = [[str(i) for i in range(len(net.states(v)))] if numbers else list(net.states(v)) for v in net.variables]
    with compiled(net, file, plan, run) as (tree, step):
        step("sampling")
        tree.log_evidence(findings)  # fails for impossible evidence before a file is opened
        block = max(1, CELLS // len(net))
        parts = (tree.sample(min(block, n - first), findings, seed=generator).states for first in range(0, n, block))
        if not json:
            _write_csv(output, list(net.variables), (row for states in parts for row in _rows(states, labels)))
            return
        rows = [row for states in parts for row in _rows(states, labels)]
    found = {
        "file": file,
        "evidence": findings_as_json(findings),
        "seed": seed,
        "variables": list(net.variables),
        "samples": rows,
    }
    if output is None:
        print_json(found)
        return
    with _open_output(output) as stream:
        encoder.dump(found, stream, allow_nan=False)
        stream.write("\n")


def _write_csv(output: str | None, header: list[str], rows: Iterable[list[str]]) -> None:
    with _open_output(output) as stream:
        out = csv.writer(stream, lineterminator="\n")
        out.writerow(header)
        out.writerows(rows)


def _rows(states: NDArray[np.int32], labels: list[list[str]]) -> Iterator[list[str]]:
    """State names, row by row."""
    for row in states.tolist():
        yield [names[s] for names, s in zip(labels, row, strict=True)]


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
