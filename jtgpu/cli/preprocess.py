"""``jtgpu screen`` and ``whiten``: tables before learning: their outliers, and series without autocorrelation."""

from __future__ import annotations

import json as encoder
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..cases.answer_table import write_file
from ..cases.writing.formats import writer_for
from ..columns.files import read_file, time_column
from ..screen.columns import METRICS, MISSING_RULES, SCALES, like_cases, open_rows, take_rows
from ..screen.outliers import Outliers, top_outliers
from ..screen.reference import Cells, cell_surprise, row_surprise
from ..series.autoregression import Autoregression, ar
from ..series.autoregression import whiten as residuals
from ..series.slices import lag_parents, two_slices
from ..util.arguments import Option
from ..util.atomic_file import write_text
from .batch import CsvInput
from .console import command, print_json, reading
from .networks import check_output, read_network, split_names, with_codes
from .options import OUTPUT, ClusterAddress, Codes, Columns, Devices, Force, Json, Progress, Threads
from .planning import RunOptions
from .tables import print_rows, status

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXAMPLES = (
    "jtgpu screen cases.csv --net alarm -n 20 --surprise",
    "jtgpu screen sensors.csv -n 100 --metric euclidean --scale std --drop clean.csv",
    "jtgpu whiten sensors.csv -o residuals.csv --order bic --lags lags.json",
    "jtgpu whiten sensors.csv -o cases.csv --slices 3",
)


Cases = Annotated[str, Option("CASES", "CSV or Parquet file: a row for each case.")]
Metric = Annotated[str, Option(
    "--metric NAME", f"One of {', '.join(METRICS)}. auto: euclidean for numbers, hamming for states, gower for both.",
    choices=METRICS)]
Missing = Annotated[str, Option(
    "--missing HOW",
    "Missing cells: ignore (compare the columns that both rows have), state (one more state) or error.",
    choices=MISSING_RULES)]
Scale = Annotated[str | None, Option(
    "--scale HOW", "Divide each column of numbers by its standard deviation (std) or range.", choices=SCALES)]
Output = Annotated[str | None, Option(
    "-o, --output PATH",
    "File for the outliers, or with --all for all rows, and their weights: .csv, .tsv (.gz) or .parquet.", panel=OUTPUT,
)]
Drop = Annotated[str | None, Option(
    "--drop PATH", "File for the table without the outliers; its cells are written as they were read.", panel=OUTPUT)]


@command
def screen(  # noqa: PLR0913 (a Typer command)
    data: Cases,
    n: Annotated[int, Option("-n N", "Number of outliers.", least=1)] = 50,
    k: Annotated[int, Option("-k K", "Distances that are added; one is to the row itself.", least=1)] = 21,
    net: Annotated[str | None, Option(
        "--net FILE", "Network: compare the columns that are its variables, by their states.")] = None,
    metric: Metric = "auto",
    missing: Missing = "auto",
    scale: Scale = None,
    columns: Columns = None,
    surprise: Annotated[bool, Option(
        "--surprise", "Also -ln P(row) under the network of --net, and the least probable cell.")] = False,
    every: Annotated[bool, Option("--all", "Compute the weights of all rows; see --output.")] = False,
    output: Output = None,
    drop: Drop = None,
    threads: Threads = None,
    devices: Devices = None,
    cluster: ClusterAddress = None,
    progress: Progress = None,
    force: Force = False,
    *,
    codes: Codes = None,
    csv: CsvInput,
    json: Json = False,
) -> None:
    """Find outlier rows of a table, by nearest-neighbour distance or by likelihood under a network.

    A row's weight is the sum of its distances to its nearest rows; the N rows of largest weight are printed, with the
    nearest other row. Rows are numbered from 0. The result is exact.
    """
    if surprise and net is None:
        raise typer.BadParameter("--surprise requires a network", param_hint="--net")
    if every and output is None:
        raise typer.BadParameter("--all requires a file for the weights", param_hint="--output")
    for path in (output, drop):
        if path is not None:
            writer_for(Path(path))  # rejects other suffixes before the computation starts
            check_output(path, force)
    files = [os.path.realpath(path) for path in (data, output, drop) if path is not None]
    if len(set(files)) < len(files):
        raise typer.BadParameter("CASES, --output and --drop must be different files", param_hint="--output")
    if cluster is not None and devices is not None:
        raise typer.BadParameter("each worker of a cluster uses one GPU", param_hint="--devices")
    run_on = RunOptions(devices=devices).device_option()
    model = None if net is None else with_codes(read_network(net), codes)
    with status("reading", progress) as step:
        states = None if model is None else {v: model.states(v) for v in model.variables}
        table = read_file(data, dialect=reading(data, csv.dialect()), na_values=csv.na_values, states=states)
        names = None if columns is None else split_names(columns, table.column_names, "column")
        outliers = top_outliers(
            table, n, k, cast(Any, metric), cast(Any, missing), scale=cast(Any, scale), net=model, columns=names,
            method="all" if every else "auto", threads=threads, cluster=cluster, **run_on,
            progress=lambda done, total, text: step(f"{text}: {done:,} of {total:,} rows"),
        )  # fmt: skip
        scores: dict[str, Any] = {}
        if surprise and model is not None:
            step("compiling the network")
            with model.compile() as tree:
                step("surprise")
                scores = _scores(row_surprise(tree, table), cell_surprise(tree, table, outliers.index), outliers)
        step("writing")
        if output is not None:
            write_file(_result(table, outliers, scores), output)
        if drop is not None:
            whole = read_file(data, dialect=csv.dialect(), as_text=True)
            write_file(take_rows(whole, open_rows(whole), outliers.others, {}), drop)
    _print_outliers(data, outliers, scores, json)


def _scores(rows: NDArray[Any], cells: Cells, outliers: Outliers) -> dict[str, Any]:
    """Surprise of all rows; cells of the outliers."""
    return {"all": rows, "surprise": rows[outliers.index], "cell": cells.variable, "p_cell": cells.probability}


def _result(table: Any, outliers: Outliers, scores: dict[str, Any]) -> Any:
    """The table for ``--output``."""
    if outliers.all_weights is None:
        return outliers.frame(**{name: scores[name] for name in ("surprise", "cell") if scores})
    more: dict[str, Any] = {"weight": outliers.all_weights}
    if scores:
        more["surprise"] = scores["all"]
    return like_cases(table, open_rows(table), more)


def _print_outliers(data: str, outliers: Outliers, scores: dict[str, Any], json: bool) -> None:
    """The outliers, a line for each."""
    nearest = outliers.neighbours[:, 0].tolist() if outliers.k > 1 else outliers.index.tolist()
    rows = zip(outliers.index.tolist(), outliers.weight.tolist(), nearest, strict=True)
    if json:
        listed: list[dict[str, Any]] = [{"row": r, "weight": w, "nearest": m} for r, w, m in rows]
        if scores:
            for i, line in enumerate(listed):
                line |= {"surprise": float(scores["surprise"][i]), "cell": scores["cell"][i]}
                line["p_cell"] = None if line["cell"] is None else float(scores["p_cell"][i])
        print_json({
            "file": data, "metric": outliers.metric, "missing": outliers.missing, "k": outliers.k,
            "backend": outliers.backend, "threshold": outliers.threshold, "outliers": listed, "stats": outliers.stats,
        })  # fmt: skip
        return
    header = ["row", "weight", "nearest"]
    lines: list[list[str | float]] = [[str(r), w, str(m)] for r, w, m in rows]
    if scores:
        header += ["surprise", "cell"]
        for i, cells in enumerate(lines):
            cells += [float(scores["surprise"][i]), scores["cell"][i] or ""]
    print_rows(header, lines)


Time = Annotated[str | None, Option(
    "--time COLUMN", "Column of times, which must increase. Default: the first column of dates, if there is one.")]
Slices = Annotated[int | None, Option(
    "--slices N",
    "Write cases instead of residuals: each series in N states, now and at the significant lags (at least 1).", least=2,
)]


@command
def whiten(  # noqa: PLR0913 (a Typer command)
    data: Annotated[str, Option("SERIES", "CSV or Parquet file: a column of numbers for each series.")],
    output: Annotated[str | None, Option(
        "-o, --output PATH", "File for the residuals, or with --slices for the cases: .csv, .tsv (.gz) or .parquet.",
        panel=OUTPUT)] = None,
    order: Annotated[str, Option("--order HOW", "Order of the models: a number, or chosen by bic or aic.")] = "bic",
    max_order: Annotated[int, Option("--max-order N", "Highest order.", least=0)] = 16,
    time: Time = None,
    columns: Columns = None,
    slices: Slices = None,
    lags: Annotated[str | None, Option(
        "--lags PATH", "JSON file for the lags at which each series depends on its past.", panel=OUTPUT)] = None,
    alpha: Annotated[float, Option("--alpha X", "Probability of listing a lag of a series without memory.")] = 0.05,
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
    table = read_file(data, dialect=reading(data, csv.dialect()), na_values=csv.na_values)
    time = time or time_column(table)
    if columns is not None:
        names = split_names(columns, table.column_names, "column")
        table = table.select([c for c in table.column_names if c in names or c == time])
    fit = ar(table, int(order) if order.isdecimal() else cast(Any, order), max_order, time=time, threads=threads)
    parents = lag_parents(fit, alpha)
    if output is not None and slices is None:
        write_file(residuals(table, fit, time=time, threads=threads), output)
    elif output is not None:
        write_file(two_slices(table, {name: ks or [1] for name, ks in parents.items()}, slices, time=time), output)
    if lags is not None:
        write_text(lags, encoder.dumps(parents, indent=2) + "\n")
    _print_models(data, fit, parents, json)


def _print_models(data: str, fit: Autoregression, parents: dict[str, list[int]], json: bool) -> None:
    """The models, a line for each."""
    orders, variances = fit.order.tolist(), fit.variance.tolist()
    if not json:
        listed = [" ".join(map(str, parents[name])) for name in fit.names]
        print_rows(
            ("series", "order", "variance", "lags"),
            list(zip(fit.names, map(str, orders), variances, listed, strict=True)),
        )
        return
    models: list[dict[str, Any]] = [
        {
            "series": name, "order": orders[i], "mean": float(fit.mean[i]), "coef": fit.coef[i, : orders[i]].tolist(),
            "variance": variances[i], "lags": parents[name],
        }
        for i, name in enumerate(fit.names)
    ]
    print_json({"file": data, "times": fit.n_times, "models": models})
