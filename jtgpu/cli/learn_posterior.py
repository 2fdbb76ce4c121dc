"""What ``jtgpu learn`` writes and prints about the posterior over structures."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..draw import arcs, heat_map
from ..formats import write
from ..learn.dags.posterior.posterior import posterior
from ..util.atomic_file import write_text
from .console import print_json, warn
from .learn_options import PosteriorOptions
from .progress import status
from .tables import on_terminal, print_rows

if TYPE_CHECKING:
    from ..learn.dags.posterior.result import StructurePosterior
    from ..learn.dags.scores.coded import CodedTable

MOST = 20  # arcs that are printed


def report_posterior(
    table: CodedTable,
    options: dict[str, Any],
    wanted: PosteriorOptions,
    progress: bool | None,
    output: str | None,
    data: str | None,
) -> None:
    """Compute the posterior, write the files, and print the likeliest arcs; as JSON if there is a name of the data."""
    if wanted.checkpoint is not None and not wanted.resume:
        wanted.checkpoint.unlink(missing_ok=True)  # --force: another run may have written it
    with status("scoring families", progress) as step, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = posterior(table, progress=step, **wanted.arguments(), **options)
        text = ""
        if wanted.edges is not None:
            step("computing paths and equivalence classes")
            text = edges_text(found)
    again = "--resume" if wanted.checkpoint is not None else "--checkpoint FILE, and then --resume"
    for warning in caught:
        warn(str(warning.message).replace("posterior.more()", again))
    if wanted.edges is not None:
        write_text(wanted.edges, text)
    for path, picture in ((wanted.draw, heat_map), (wanted.draw_network, arcs)):
        if path is not None:
            write_text(path, picture(found).text(path.suffix))
    if wanted.save is not None:
        found.save(wanted.save)
    if output is not None:
        write(found.network(threshold=_number(wanted.threshold)), output)
    if data is not None:
        print_json(_report(found, table, wanted, output, data))
        return
    print_rows(
        ("parent", "child", "probability", "mcse"),
        [(a.parent, a.child, f"{a.probability:.4f}", f"{a.mcse:.4f}") for a in found.edges(0.0)[:MOST]],
    )
    typer.echo(("" if on_terminal() else "# ") + found.summary())
    typer.echo(found.describe(), err=True)


def _number(threshold: str | None) -> float | None:
    """None: the best graph."""
    return None if threshold in (None, "map") else float(str(threshold))


def edges_text(found: StructurePosterior) -> str:
    """The probabilities as CSV, a row for each ordered pair of variables."""
    columns = found.columns()
    buffer = io.StringIO()
    rows = csv.writer(buffer, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return buffer.getvalue()


def _report(
    found: StructurePosterior, table: CodedTable, wanted: PosteriorOptions, output: str | None, data: str
) -> dict[str, Any]:
    """The result as values that JSON can hold."""
    return {
        "data": data,
        "cases": table.n_cases,
        "dropped": table.dropped,
        "missing_cells": dict(table.missing.cells),
        "missing_words": {v: list(words) for v, words in table.missing.words.items()},
        "variables": list(found.names),
        "method": found.method,
        "converged": found.converged,
        "rhat": found.rhat,
        "largest_mcse": float(found.mcse.values.max()),
        "steps": found.n_steps,
        "chains": found.n_chains,
        "coverage": found.coverage,
        "log_evidence": found.log_evidence,
        "edges": [list(arc) for arc in found.edges(0.01)],
        "arcs": [list(arc) for arc in found.structure.arcs],
        "score": found.structure.score,
        "log_weight": found.map_score,
        "not_converged_because": list(found.shortfall),
        "output": output,
        "edges_file": _name(wanted.edges),
        "pictures": [str(path) for path in (wanted.draw, wanted.draw_network) if path is not None],
        "saved": _name(wanted.save),
    }


def _name(path: Path | None) -> str | None:
    return None if path is None else str(path)
