"""``jtgpu tune``: the published search for block sizes and thresholds, on this machine's GPU."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from .console import cell, format_seconds, guarded, print_json, print_table, status
from .options import Json

__all__ = ["tune"]


@guarded
def tune(
    save: Annotated[bool, typer.Option("--save", help="Keep what is found, for thresholds='tuned'.")] = False,
    launches: Annotated[int, typer.Option(min=1, help="Launches for every table size and choice.")] = 100,
    device: Annotated[int | None, typer.Option(min=0, help="Number of the CUDA device. [default: the best]")] = None,
    json: Json = False,
) -> None:
    """Find block sizes and thresholds of the backend "indexed" on this GPU.

    Times the kernels for every table size and block size, as the published engine's authors did, and prints the
    rules that did best.
    """
    from ..backends import tuning

    with status("measuring") as now:
        found = tuning.tune(device, launches=launches, progress=now)
    kept = str(tuning.save(found)) if save else None
    if json:
        rows = [row._asdict() if hasattr(row, "_asdict") else vars(row) for row in found.rows]
        print_json({"device": found.device, "rules": found.rules, "saved": kept, "rows": rows})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("operation", "n", "m", "best choice", "time"):
        table.add_column(name, justify="left" if name == "operation" else "right")
    best: dict[tuple[str, int, int], tuning.Row] = {}
    for row in found.rows:
        key = (row.operation, row.n, row.m)
        if key not in best or row.seconds < best[key].seconds:
            best[key] = row
    for (operation, n, m), row in best.items():
        table.add_row(cell(operation), f"{n:,}", f"{m:,}", str(row.choice), format_seconds(row.seconds))
    print_table(table)
    print(f"\n{found.device}: " + ", ".join(f"{k}={v}" for k, v in found.rules.items()))
    if kept:
        print(f"kept in {kept}")
