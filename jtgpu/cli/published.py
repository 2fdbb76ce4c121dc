"""``jtgpu time --backend indexed``: the published table of times, row by row, on this machine's GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import BackendUnavailable
from ..formats.bundled import stem
from ..util.system import cpu_name
from .console import print_json
from .networks import read_network
from .options import OUTPUT, Json
from .planning import PlanOptions
from .tables import print_report

if TYPE_CHECKING:
    from ..backends.published.timetable import TimeTable


@dataclass(frozen=True)
class TableOutput:
    """How ``jtgpu time`` prints and saves its table."""

    json: Json = False
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.", rich_help_panel=OUTPUT)] = False
    save: Annotated[
        Path | None,
        typer.Option(
            help="With --backend indexed: save times.json, .csv and .rst in this folder.", metavar="DIR",
            rich_help_panel=OUTPUT,
        ),
    ] = None  # fmt: skip
    plot: Annotated[
        Path | None,
        typer.Option(
            help="With --backend indexed: draw the published figures in this folder.",
            metavar="DIR",
            rich_help_panel=OUTPUT,
        ),
    ] = None

    def check(self, backend: str) -> None:
        """Reject options that exclude each other."""
        if self.json and self.as_csv:
            raise typer.BadParameter("--json and --csv exclude each other")
        if (self.save is not None or self.plot is not None) and backend != "indexed":
            raise typer.BadParameter("--save and --plot require --backend indexed")

    def write(self, table: TimeTable) -> None:
        """Save, draw and print the published table."""
        # raises BackendUnavailable: For figures without matplotlib.
        if self.save is not None:
            self.save.mkdir(parents=True, exist_ok=True)
            for suffix, text in (("json", table.to_json()), ("csv", table.to_csv()), ("rst", table.to_rst())):
                (self.save / f"times.{suffix}").write_text(text, encoding="utf-8")
        if self.plot is not None:
            try:
                from ..backends.published.measure import draw
            except ImportError as error:
                raise BackendUnavailable(f"--plot requires matplotlib ({error}): pip install 'jtgpu[plot]'") from None
            draw(table, self.plot)
        if self.json:
            print_json(table.as_dict())
        elif self.as_csv:
            print(table.to_csv(), end="")
        else:
            _print(table)


def measure_published_table(
    files: Sequence[str], options: PlanOptions, runs: int, step: Callable[[str], None]
) -> TimeTable:
    """Measure the published table of times, one column per network."""
    # raises BackendUnavailable: Without a GPU.
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
        plan = options.make(net, file).plan
        factors = [f.table for f in model_factors(net)]

        def report(what: str, at: str = at) -> None:
            step(f"{at}: {what}")

        columns.append(measure(stem(file), plan, factors, runs=runs, step=report))
    machine = {
        "device": device.name,
        "driver": device.driver,
        "cpu": cpu_name(),
        "date": time.strftime("%Y-%m-%d"),
        "order": options.order,
        "runs": runs,
    }
    return TimeTable(columns, machine)


def _print(table: TimeTable) -> None:
    head, *rows = table.rows()
    print_report(head, rows, "l" + "r" * (len(head) - 1))
    print(
        "\nmilliseconds here (published, GTX 680), speedup; " + ", ".join(f"{k} {v}" for k, v in table.machine.items())
    )
