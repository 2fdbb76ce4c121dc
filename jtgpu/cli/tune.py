"""``jtgpu tune``: find the fastest configuration on this GPU, for one network or for the kernels of "indexed"."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated

import typer

from ..util.arguments import reporting
from .completion import complete_networks
from .console import command, format_seconds, print_json
from .networks import read_network
from .options import Json, Progress, Without
from .planning import PlanOptions, RunOptions
from .tables import print_report, status

EXAMPLES = ("jtgpu tune munin1", "jtgpu tune --save")


@command
def tune(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            autocompletion=complete_networks,
            help="Network file: find the fastest engine for its single cases and save the result.",
            show_default=False,
        ),
    ] = None,
    *,
    plan: Annotated[PlanOptions, Without("memory_limit")],
    save: Annotated[
        bool, typer.Option("--save", help="Without a network: save the result, for thresholds='tuned'.")
    ] = False,
    launches: Annotated[
        int, typer.Option(metavar="N", min=1, help="Kernel launches per table size and configuration.")
    ] = 100,
    device: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="CUDA device number. Default: the fastest.")
    ] = None,
    progress: Progress = None,
    json: Json = False,
) -> None:
    """Measure which engine or kernel configuration is fastest on this GPU.

    With a network, time every engine and configuration of the backend "gpu" that can run its single cases. The
    fastest is saved; from then on, every process uses it for this plan on GPUs of this model.

    Without a network, time the kernels of the backend "indexed" for every table size and block size, as its
    authors (Gottoli and Pettenuzzo, 2014) did, and print the best rules.
    """
    if file is not None:
        _tune_network(file, plan, device, progress, json)
        return
    from ..backends.published import tuning
    from ..backends.published.rules import Row

    with status("measuring", progress) as now:
        found = tuning.tune(device, launches=launches, progress=now)
    saved = str(tuning.save(found)) if save else None
    if json:
        rows = [row._asdict() if hasattr(row, "_asdict") else vars(row) for row in found.rows]
        print_json({"device": found.device, "rules": found.rules, "saved": saved, "rows": rows})
        return
    best: dict[tuple[str, int, int], Row] = {}
    for row in found.rows:
        key = (row.operation, row.n, row.m)
        if key not in best or row.seconds < best[key].seconds:
            best[key] = row
    lines = [
        (operation, f"{n:,}", f"{m:,}", str(row.choice), format_seconds(row.seconds))
        for (operation, n, m), row in best.items()
    ]
    print_report(("operation", "n", "m", "best choice", "time"), lines, "lrrrr")
    print(f"\n{found.device}: " + ", ".join(f"{k}={v}" for k, v in found.rules.items()))
    if saved:
        print(f"saved to {saved}")


def _tune_network(file: str, plan: PlanOptions, device: int | None, progress: bool | None, json: bool) -> None:
    made = plan.make(read_network(file), file, RunOptions(backend="gpu"))
    with status("measuring", progress) as now, reporting(now):
        name, tried = made.tune(device)
    able = [t for t in tried if t.microseconds < math.inf]
    if json:
        rows = [{"config": str(t.config), "microseconds": t.microseconds, **asdict(t.config)} for t in able]
        print_json({"device": name, "best": str(able[0].config), "configs": rows})
        return
    lines = [(str(t.config), format_seconds(t.microseconds * 1e-6)) for t in able]
    print_report(("configuration", "time"), lines, "lr")
    print(f"\n{name}: single cases use {able[0].config} from now on")
