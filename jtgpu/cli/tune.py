"""``jtgpu tune``: what is quickest on this machine's GPU, for one network, or for the published engine's kernels."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from ..util.progress import reporting
from .console import cell, format_seconds, guarded, print_json, print_table, status
from .options import Json, MaxTable, NoCache, Order, Seed, TimeLimit, chosen_order, plan_options, read_network

__all__ = ["tune"]


@guarded
def tune(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]", help="A network: what answers its single cases quickest is measured, and kept.",
            show_default=False,
        ),
    ] = None,
    order: Order = "auto",
    time_limit: TimeLimit = None,
    max_table: MaxTable = None,
    seed: Seed = 0,
    no_cache: NoCache = False,
    save: Annotated[
        bool, typer.Option("--save", help="Without a network: keep what is found, for thresholds='tuned'.")
    ] = False,
    launches: Annotated[int, typer.Option(min=1, help="Launches for every table size and choice.")] = 100,
    device: Annotated[int | None, typer.Option(min=0, help="Number of the CUDA device. [default: the best]")] = None,
    json: Json = False,
) -> None:
    """Find what is quickest on this GPU.

    With a network, of the backend "gpu": every engine that can answer its single cases is timed, and ways to lay out
    its work; the best is kept, and taken from then on by every process, for this plan on cards of this name.

    Without one, of the backend "indexed": block sizes and thresholds. Times the kernels for every table size and block
    size, as the published engine's authors did, and prints the rules that did best.
    """
    if file is not None:
        options = plan_options(time_limit, None, max_table, seed, no_cache, backend="gpu")
        _tune_network(file, order, options, device, json)
        return
    from ..backends.published import tuning
    from ..backends.published.best_rules import Row

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
    best: dict[tuple[str, int, int], Row] = {}
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


def _tune_network(file: str, order: str, options: dict[str, Any], device: int | None, json: bool) -> None:
    net = read_network(file)
    made = net.plan(chosen_order(order, file), **options)
    with status("measuring") as now, reporting(now):
        name, tried = made.tune(device)
    able = [t for t in tried if t.microseconds < math.inf]
    if json:
        rows = [{"config": str(t.config), "microseconds": t.microseconds, **asdict(t.config)} for t in able]
        print_json({"device": name, "best": str(able[0].config), "configs": rows})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("configuration")
    table.add_column("time", justify="right")
    for t in able:
        table.add_row(cell(str(t.config)), format_seconds(t.microseconds * 1e-6))
    print_table(table)
    print(f"\n{name}: {able[0].config} answers single cases from now on")
