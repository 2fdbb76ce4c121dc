"""``jtgpu plan``: what a network would cost, before anything is computed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BackendUnavailable, FormatError
from .console import format_seconds, guarded, print_json, shown, status
from .options import (
    File,
    Json,
    MaxTable,
    MemoryLimit,
    NoCache,
    Order,
    Seed,
    Slices,
    TimeLimit,
    chosen_order,
    plan_options,
    read_network,
)

if TYPE_CHECKING:
    from ..plans.ordering import OrderResult

__all__ = ["plan"]


@guarded
def plan(
    file: File,
    order: Order = "auto",
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    max_table: MaxTable = None,
    seed: Seed = 0,
    no_cache: NoCache = False,
    slices: Slices = None,
    save: Annotated[Path | None, typer.Option(help="Write the plan to this file.", metavar="PATH")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw how the cost fell into this .png, .svg or .pdf file.", metavar="PATH")
    ] = None,
    json: Json = False,
) -> None:
    """Choose an elimination order and say what propagation would cost. Takes no memory for tables.

    With --order best the table below the plan shows how the cost fell; Ctrl-C ends the search and keeps the best.
    """
    net = read_network(file)
    options = plan_options(time_limit, memory_limit, max_table, seed, no_cache, slices)
    with _search_progress(order) as progress:
        made = net.plan(chosen_order(order, file), progress=progress, **options)
    if save is not None:
        made.save(save)
    found = made.order
    if plot is not None:
        _plot(found, plot, file)
    if not json:
        # a network's name comes from its file, and the terminal must not obey it
        lines = [*made.describe().splitlines(), *(_fall(found) if found is not None and order == "best" else ())]
        sys.stdout.write("\n".join(shown(line) for line in lines) + "\n")
        return
    head: dict[str, Any] = {"file": file, "order": order, "cost": asdict(made.cost())}
    if made.slices:  # the cost is that of one slice
        flops = made.n_slices * made.cost().flops
        head["slices"] = {"variables": list(made.slices), "count": made.n_slices, "flops": flops}
    if found is not None:
        head["search"] = {
            "method": found.method,
            "seed": found.seed,
            "seconds": found.seconds,
            "lower_bound": found.lower_bound,
            "optimal": found.optimal,
            "from_cache": found.from_cache,
            "interrupted": found.interrupted,
            "trace": [{"seconds": t.seconds, "cost": t.cost, "rule": t.rule} for t in found.trace],
        }
    print_json({**head, "elimination_order": list(made.elimination_order)})


@contextmanager
def _search_progress(order: str) -> Iterator[Callable[[float, float, float], None] | None]:
    """A bar on stderr while ``best`` searches; a line for anything quicker; nothing where stderr is no terminal."""
    if order != "best" or not sys.stderr.isatty():
        with status("searching for an elimination order"):
            yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("searching", total=1.0)
        yield lambda cost, _, done: bar.update(task, completed=done, description=f"{cost:,.0f} entries")


def _fall(found: OrderResult) -> Iterator[str]:
    yield "how the cost fell:"
    for step in found.trace:
        yield f"  {format_seconds(step.seconds):>8}  {step.cost:>20,.0f}  {step.rule}"
    if found.optimal:
        yield "  no order costs less: proven"
    if found.interrupted:
        yield "  interrupted: the best so far"


def _plot(found: OrderResult | None, path: Path, file: str) -> None:
    if found is None:
        raise typer.BadParameter("--plot draws a search; this order was given")
    try:
        from ..show.search import draw_search

        draw_search(found.trace, path, title=file, seconds=found.seconds)
    except ImportError as error:
        raise BackendUnavailable(f"--plot needs matplotlib ({error}): pip install 'jtgpu[plot]'") from None
    except ValueError as error:  # a suffix that matplotlib does not know
        raise FormatError(f"{path}: {error}") from None
