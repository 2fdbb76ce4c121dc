"""``jtgpu time --backend indexed``: the published table of times, row by row, on this machine's GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ..errors import BackendUnavailable
from ..formats.bundled import stem
from ..util.system import cpu_name
from .console import cell, print_json, print_table
from .options import chosen_order, read_network

__all__ = ["published_table"]


def published_table(
    files: Sequence[str],
    *,
    order: str,
    runs: int,
    options: dict[str, Any],
    step: Callable[[str], None],
    save: Path | None,
    plot: Path | None,
    json: bool,
    as_csv: bool,
) -> None:
    """Measure, print and keep the table; one column a network.

    Raises
    ------
    BackendUnavailable
        Without a GPU, and for figures without matplotlib.
    """
    from ..backends.published.measure import measure
    from ..backends.published.timetable import TimeTable
    from ..device.context import open_device
    from ..plans.compiler import model_factors

    device = open_device()
    columns = []
    for i, file in enumerate(files):
        at = f"{stem(file)} ({i + 1} of {len(files)})"
        step(f"{at}: reading and planning")
        net = read_network(file)
        plan = net.plan(chosen_order(order, file), **options).plan
        factors = [f.table for f in model_factors(net)]

        def tell(what: str, at: str = at) -> None:
            step(f"{at}: {what}")

        columns.append(measure(stem(file), plan, factors, runs=runs, step=tell))
    machine = {
        "device": device.name,
        "driver": device.driver,
        "cpu": cpu_name(),
        "date": time.strftime("%Y-%m-%d"),
        "order": order,
        "runs": runs,
    }
    table = TimeTable(columns, machine)
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        for suffix, text in (("json", table.to_json()), ("csv", table.to_csv()), ("rst", table.to_rst())):
            (save / f"times.{suffix}").write_text(text, encoding="utf-8")
    if plot is not None:
        try:
            from ..show.published import draw
        except ImportError as error:
            raise BackendUnavailable(f"--plot needs matplotlib ({error}): pip install 'jtgpu[plot]'") from None
        draw(table, plot)
    if json:
        print_json(table.as_dict())
    elif as_csv:
        print(table.to_csv(), end="")
    else:
        _print(table)


def _print(table: Any) -> None:
    head, *rows = table.rows()
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(head):
        shown.add_column(cell(name), justify="right" if i else "left", no_wrap=True)
    for row in rows:
        shown.add_row(*(cell(text) for text in row))
    print_table(shown)
    print("\nmilliseconds here (published, GTX 680), times faster; " + ", ".join(
        f"{k} {v}" for k, v in table.machine.items()
    ))
