"""``jtgpu whiten``: residuals of time series, or tables of cases over time slices."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ..cases.answer_table import read_file, time_column, write_file
from ..cases.writing.formats import writer_for
from ..series.autoregression import Autoregression, ar
from ..series.slices import lag_parents, two_slices
from ..series.whitening import whiten as residuals
from ..util.atomic_file import write_text
from .batch import CsvInput
from .console import command, print_json
from .networks import check_output, split_names
from .options import OUTPUT, Columns, Force, Json, Threads
from .tables import print_rows

EXAMPLES = (
    "jtgpu whiten sensors.csv -o residuals.csv --order bic --lags lags.json",
    "jtgpu whiten sensors.csv -o cases.csv --slices 3",
)

Data = Annotated[
    str, typer.Argument(metavar="SERIES", help="CSV or Parquet file: a column of numbers for each series.")
]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="PATH",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="File for the residuals, or with --slices for the cases: .csv, .tsv (.gz) or .parquet.",
    ),
]
LagsFile = Annotated[
    str | None,
    typer.Option(
        "--lags",
        metavar="PATH",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="JSON file for the lags at which each series depends on its past.",
    ),
]
Order = Annotated[
    str, typer.Option("--order", metavar="HOW", help="Order of the models: a number, or chosen by bic or aic.")
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="COLUMN",
        show_default=False,
        help="Column of times, which must increase. Default: the first column of dates, if there is one.",
    ),
]
Slices = Annotated[
    int | None,
    typer.Option(
        "--slices",
        metavar="N",
        min=2,
        show_default=False,
        help="Write cases instead of residuals: each series in N states, now and at the significant lags (at least 1).",
    ),
]
Alpha = Annotated[
    float, typer.Option("--alpha", metavar="X", help="Probability of listing a lag of a series without memory.")
]


@command
def whiten(  # noqa: PLR0913 (a Typer command)
    data: Data,
    output: Output = None,
    order: Order = "bic",
    max_order: Annotated[int, typer.Option("--max-order", metavar="N", min=0, help="Highest order.")] = 16,
    time: Time = None,
    columns: Columns = None,
    slices: Slices = None,
    lags: LagsFile = None,
    alpha: Alpha = 0.05,
    threads: Threads = None,
    force: Force = False,
    *,
    csv: CsvInput,
    json: Json = False,
) -> None:
    """Fit autoregressive models to time series, and write residuals or cases over time slices.

    Prints a line for each series: the order of its model, the variance that the model leaves, and the lags whose
    partial autocorrelations are significant. Cases have the columns x[t], x[t-1] ... and can be given to jtgpu learn.
    """
    if not order.isdecimal() and order not in ("bic", "aic"):
        raise typer.BadParameter(f"{order!r} is neither bic nor aic nor a number", param_hint="--order")
    if output is not None:
        writer_for(Path(output))  # rejects other suffixes before the computation starts
    for path in (output, lags):
        if path is not None:
            check_output(path, force)
    table = read_file(data, dialect=csv.dialect(), na_values=csv.na_values)
    time = time or time_column(table)
    if columns is not None:
        names = split_names(columns, table.column_names, "column")
        table = table.select([c for c in table.column_names if c in names or c == time])
    fit = ar(table, int(order) if order.isdecimal() else cast(Any, order), max_order, time=time, threads=threads)
    found = lag_parents(fit, alpha)
    if output is not None and slices is None:
        write_file(residuals(table, fit, time=time, threads=threads), output)
    elif output is not None:
        write_file(two_slices(table, {name: ks or [1] for name, ks in found.items()}, slices, time=time), output)
    if lags is not None:
        write_text(lags, encoder.dumps(found, indent=2) + "\n")
    _print(data, fit, found, json)


def _print(data: str, fit: Autoregression, found: dict[str, list[int]], json: bool) -> None:
    """The models, a line for each."""
    orders, variances = fit.order.tolist(), fit.variance.tolist()
    if not json:
        listed = [" ".join(map(str, found[name])) for name in fit.names]
        print_rows(
            ("series", "order", "variance", "lags"),
            list(zip(fit.names, map(str, orders), variances, listed, strict=True)),
        )
        return
    models: list[dict[str, Any]] = [
        {
            "series": name,
            "order": orders[i],
            "mean": float(fit.mean[i]),
            "coef": fit.coef[i, : orders[i]].tolist(),
            "variance": variances[i],
            "lags": found[name],
        }
        for i, name in enumerate(fit.names)
    ]
    print_json({"file": data, "times": fit.n_times, "models": models})
