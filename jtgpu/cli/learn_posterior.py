"""What ``jtgpu learn`` writes and prints about the posterior over structures."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from ..draw import heat_map
from ..formats import write
from ..learn.dags.posterior.posterior import posterior
from ..util.atomic_file import write_text
from .console import print_json, warn
from .networks import check_output
from .progress import status
from .tables import print_rows

if TYPE_CHECKING:
    from ..learn.dags.posterior.result import StructurePosterior
    from ..learn.dags.scores.coded import CodedTable

__all__ = ["Wanted", "check_files", "report_posterior"]

MOST = 20  # arcs that are printed


class Wanted(NamedTuple):
    """Options about the posterior."""

    edges: Path | None
    draw: Path | None
    threshold: float | None
    tolerance: float
    time: float | None
    chains: int | None
    checkpoint: Path | None
    progress: bool | None

    @property
    def is_posterior(self) -> bool:
        """Whether the posterior is needed."""
        return self.edges is not None or self.draw is not None or self.threshold is not None


def check_files(wanted: Wanted, force: bool) -> None:
    """Check the outputs before the computation."""
    if wanted.edges is not None:
        check_output(wanted.edges, force)
    if wanted.draw is not None:
        if wanted.draw.suffix.lower() not in (".svg", ".html"):
            raise typer.BadParameter(f"{wanted.draw.name!r} ends in neither .svg nor .html", param_hint="--draw")
        check_output(wanted.draw, force)


def report_posterior(
    table: CodedTable, options: dict[str, Any], wanted: Wanted, output: str | None, data: str | None
) -> None:
    """Compute the posterior, write the files, and print the likeliest arcs; as JSON if there is a name of the data."""
    with status("scoring families", wanted.progress) as step, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = posterior(
            table,
            tolerance=wanted.tolerance,
            time=wanted.time,
            chains="auto" if wanted.chains is None else wanted.chains,
            checkpoint=wanted.checkpoint,
            progress=step,
            **options,
        )
        step("computing paths and equivalence classes")
        text = edges_text(found) if wanted.edges is not None else ""
    for warning in caught:
        warn(str(warning.message))
    if wanted.edges is not None:
        write_text(wanted.edges, text)
    if wanted.draw is not None:
        write_text(wanted.draw, heat_map(found).text(wanted.draw.suffix))
    if output is not None:
        write(found.network(threshold=wanted.threshold), output)
    if data is not None:
        print_json(_report(found, table, wanted, output, data))
        return
    print_rows(
        ("parent", "child", "probability", "mcse"),
        [(a.parent, a.child, f"{a.probability:.4f}", f"{a.mcse:.4f}") for a in found.edges(0.0)[:MOST]],
    )
    typer.echo(found.describe(), err=True)


def edges_text(found: StructurePosterior) -> str:
    """The probabilities as CSV, a row for each ordered pair of variables."""
    columns = found.columns()
    buffer = io.StringIO()
    rows = csv.writer(buffer, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return buffer.getvalue()


def _report(
    found: StructurePosterior, table: CodedTable, wanted: Wanted, output: str | None, data: str
) -> dict[str, Any]:
    """The result as values that JSON can hold."""
    return {
        "data": data,
        "cases": table.n_cases,
        "dropped": table.dropped,
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
        "score": found.map_score,
        "output": output,
        "edges_file": None if wanted.edges is None else str(wanted.edges),
    }
