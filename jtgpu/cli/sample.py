"""``jtgpu sample``: exact samples of the posterior as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import GzipFile
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TextIO

import numpy as np
import typer

from ..model.findings import parse_findings
from ..util.atomic_file import open_atomic
from .console import guarded, print_json, shown, status
from .options import (
    Backend,
    File,
    Json,
    MaxTable,
    MemoryLimit,
    NoCache,
    Order,
    TimeLimit,
    chosen_order,
    plan_options,
    read_network,
)

__all__ = ["sample"]

CELLS = 1 << 22  # that are drawn and written at a time


@guarded
def sample(
    file: File,
    n: Annotated[int, typer.Argument(metavar="N", min=0, help="How many samples.")],
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            "-e",
            "--evidence",
            metavar="NAME=STATE",
            help="What is observed: a state by name or number, or several with commas of which one holds. Repeat it.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="The same seed gives the same samples. [default: another one]")
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="PATH", help="File to write. [default: stdout]")
    ] = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="Numbers of states instead of their names.")] = False,
    order: Order = "auto",
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    max_table: MaxTable = None,
    no_cache: NoCache = False,
    backend: Backend = "auto",
    json: Json = False,
) -> None:
    """Exact samples of all variables given evidence, as CSV: a line with the names, then a line a sample.

    Evidence costs nothing, however rare it is: no sample is thrown away, none is weighed.
    """
    if output is not None and not Path(output).absolute().parent.is_dir():
        raise typer.BadParameter(f"the folder of {shown(output)!r} is not there", param_hint="--output")
    net = read_network(file)
    findings = parse_findings(net, evidence or [])
    generator = np.random.default_rng(seed)
    labels = [[str(i) for i in range(len(net.states(v)))] if numbers else list(net.states(v)) for v in net.variables]
    with status("planning") as now:
        made = net.plan(chosen_order(order, file), **plan_options(time_limit, memory_limit, max_table, 0, no_cache))
        now("compiling (the first time on a machine this takes longer)")
        with made.compile(backend, progress=now) as tree:
            now("sampling")
            tree.log_evidence(findings)  # what is impossible writes no file
            block = max(1, CELLS // len(net))
            parts = (
                tree.sample(min(block, n - first), findings, seed=generator).states for first in range(0, n, block)
            )
            if json:
                rows = [row for states in parts for row in _rows(states, labels)]
            else:
                with _opened(output) as stream:
                    out = csv.writer(stream, lineterminator="\n")
                    out.writerow(net.variables)
                    for states in parts:
                        out.writerows(_rows(states, labels))
                return
    found = {
        "file": file,
        "evidence": {name: list(s) if isinstance(s, frozenset) else s for name, s in findings.items()},
        "seed": seed,
        "variables": list(net.variables),
        "samples": rows,
    }
    if output is None:
        print_json(found)
        return
    import json as encoder

    with _opened(output) as stream:
        encoder.dump(found, stream, allow_nan=False)
        stream.write("\n")


def _rows(states: np.ndarray[tuple[int, ...], np.dtype[np.int32]], labels: list[list[str]]) -> Iterator[list[str]]:
    """Names of the states, row by row."""
    for row in states.tolist():
        yield [names[s] for names, s in zip(labels, row, strict=True)]


@contextmanager
def _opened(path: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that is written completely or not at all, compressed if its name ends in .gz."""
    if path is None:
        yield sys.stdout
        return
    with open_atomic(path) as file:
        if path.lower().endswith(".gz"):  # without a time or a name: equal samples make equal files
            with GzipFile("", "wb", mtime=0, fileobj=file) as packed, _text(packed) as stream:
                yield stream
        else:
            stream = _text(file)
            yield stream
            stream.detach()  # flushes; closing is the writer's part


def _text(file: Any) -> TextIO:
    return TextIOWrapper(file, encoding="utf-8", newline="")
