"""``jtgpu time``: sizes and times of networks, in a table."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ..errors import JtgpuError, format_bytes
from ..formats.bundled import benchmark_files, stem
from ..timing import NetworkTiming, time_network, warm_up
from ..util.system import peak_memory
from .console import (
    INTERRUPTED,
    cell,
    exit_code,
    format_seconds,
    guarded,
    print_error,
    print_json,
    print_table,
    shown,
    status,
)
from .options import Backend, Json, MaxTable, MemoryLimit, NoCache, Order, Seed, TimeLimit, network_files, plan_options
from .published import published_table

__all__ = ["time"]


@guarded
def time(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|FOLDER]...",
            help="Network files, or folders of them. [default: the seven networks of the published table]",
            show_default=False,
        ),
    ] = None,
    order: Order = "auto",
    time_limit: TimeLimit = None,
    runs: Annotated[int, typer.Option(min=1, help="Propagations that are timed, after a first one.")] = 5,
    evidence: Annotated[
        float, typer.Option(metavar="PERCENT", min=0.0, max=100.0, help="Observe this share of the variables.")
    ] = 0.0,
    backend: Backend = "auto",
    memory_limit: MemoryLimit = None,
    max_table: MaxTable = None,
    seed: Seed = 0,
    no_cache: NoCache = False,
    json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
    save: Annotated[
        Path | None, typer.Option(help="With --backend indexed: keep times.json, .csv and .rst here.", metavar="DIR")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="With --backend indexed: draw the published figures here.", metavar="DIR")
    ] = None,
) -> None:
    """Time reading, planning, compiling and propagating.

    With --backend indexed: the published table of times, every row of it, beside the published figures.

    One propagation takes one case in and gives the posteriors of all variables. A network that cannot be timed is
    told on stderr and the others go on; the exit code is the first one's that failed.
    """
    if json and as_csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    names = network_files(files) if files else [str(p) for p in benchmark_files()]
    options = plan_options(time_limit, memory_limit, max_table, seed, no_cache)
    if (save is not None or plot is not None) and backend != "indexed":
        raise typer.BadParameter("--save and --plot go with --backend indexed")
    if backend == "indexed":
        if evidence:
            raise typer.BadParameter("the published table is measured without evidence")
        with status("opening the device") as now:
            published_table(
                names, order=order, runs=runs, options=options, step=now, save=save, plot=plot, json=json, as_csv=as_csv
            )
        return
    done: list[NetworkTiming] = []
    failed: list[tuple[str, JtgpuError | MemoryError]] = []
    interrupted = False
    with status("compiling inner loops (the first time on a machine this takes longer)") as now:
        warm_up(backend)
        for i, name in enumerate(names):

            def step(what: str, at: str = f"{stem(name)} ({i + 1} of {len(names)})") -> None:
                now(f"{at}: {what}")

            try:
                share = evidence / 100
                done.append(
                    time_network(
                        name, order=order, backend=backend, runs=runs, evidence_share=share, step=step, **options
                    )
                )
            except (JtgpuError, MemoryError) as error:
                print_error(error)
                failed.append((name, error))
            except KeyboardInterrupt:  # what is done is worth showing
                interrupted = True
                break
    if json:
        print_json(
            {
                "networks": [t.as_dict() for t in done],
                "failed": [{"file": n, "error": type(e).__name__, "message": str(e)} for n, e in failed],
                "peak_memory": peak_memory(),
            }
        )
    elif as_csv:
        print_csv(done)
    elif done:
        print_times(done)
    if interrupted:
        print(f"jtgpu: interrupted after {len(done)} of {len(names)} networks", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if failed:
        raise typer.Exit(exit_code(failed[0][1]))


def print_times(done: list[NetworkTiming]) -> None:
    """A row a network; what is the same for all stands below."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("network")
    for name in ("cliques", "largest", "total", "read", "plan", "compile", "first", "propagate", "spread"):
        table.add_column(name, justify="right", no_wrap=True)
    for t in done:
        seconds = (t.read, t.plan, t.compile, t.first, t.propagate.median)
        spread = f"{format_seconds(t.propagate.low)} - {format_seconds(t.propagate.high)}"
        sizes = (t.cliques, t.largest, t.entries)
        table.add_row(cell(t.network), *(f"{n:,}" for n in sizes), *map(format_seconds, seconds), spread)
    print_table(table)
    t = done[0]
    most = max(x.observed for x in done)
    runs = f"{t.propagate.runs} run{'s' if t.propagate.runs != 1 else ''}"
    print(f"\nlargest, total: entries of the largest clique and of all; propagate: median, spread: quartiles of {runs}")
    print(
        shown(f"backend {t.backend} on {t.device}; order {t.order}; ")
        + (f"up to {most} variables observed; " if most else "")
        + f"peak memory {format_bytes(peak_memory())}"
    )


def print_csv(done: list[NetworkTiming]) -> None:
    """A row a network, times in seconds."""
    rows: list[dict[str, Any]] = []
    for t in done:
        row = t.as_dict()
        spread = row.pop("propagate")
        rows.append(row | {f"propagate_{k}": v for k, v in spread.items()})
    if not rows:
        return
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
