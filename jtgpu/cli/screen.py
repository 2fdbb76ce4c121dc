"""``jtgpu screen``: the rows of a table that are outliers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..cases.answer_table import read_file, write_file
from ..cases.writing.formats import writer_for
from ..screen.columns import METRICS, MISSING_RULES, SCALES, like_cases, open_rows, take_rows
from ..screen.outliers import Outliers, top_outliers
from ..screen.reference import Cells, cell_surprise, row_surprise
from .batch import CsvInput
from .console import command, print_json
from .networks import check_output, read_network, split_names
from .options import OUTPUT, ClusterAddress, Columns, Devices, Force, Json, Progress, Threads, one_of
from .planning import RunOptions
from .tables import print_rows, status

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXAMPLES = (
    "jtgpu screen cases.csv --net alarm -n 20 --surprise",
    "jtgpu screen sensors.csv -n 100 --metric euclidean --scale std --drop clean.csv",
)

Data = Annotated[str, typer.Argument(metavar="CASES", help="CSV or Parquet file: a row for each case.")]
Net = Annotated[
    str | None,
    typer.Option(
        "--net",
        metavar="FILE",
        show_default=False,
        help="Network: compare the columns that are its variables, by their states.",
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        "--metric",
        metavar="NAME",
        callback=one_of(*METRICS),
        help=f"One of {', '.join(METRICS)}. auto: euclidean for numbers, hamming for states, gower for both.",
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        "--missing",
        metavar="HOW",
        callback=one_of(*MISSING_RULES),
        help="Missing cells: ignore (compare the columns that both rows have), state (one more state) or error.",
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(
        "--scale",
        metavar="HOW",
        callback=one_of(*SCALES),
        show_default=False,
        help="Divide each column of numbers by its standard deviation (std) or range.",
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="PATH",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="File for the outliers, or with --all for all rows, and their weights: .csv, .tsv (.gz) or .parquet.",
    ),
]
Drop = Annotated[
    str | None,
    typer.Option(
        "--drop",
        metavar="PATH",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="File for the table without the outliers; its cells are written as they were read.",
    ),
]


@command
def screen(  # noqa: PLR0913 (a Typer command)
    data: Data,
    n: Annotated[int, typer.Option("-n", metavar="N", min=1, help="Number of outliers.")] = 50,
    k: Annotated[
        int, typer.Option("-k", metavar="K", min=1, help="Distances that are added; one is to the row itself.")
    ] = 21,
    net: Net = None,
    metric: Metric = "auto",
    missing: Missing = "auto",
    scale: Scale = None,
    columns: Columns = None,
    surprise: Annotated[
        bool,
        typer.Option("--surprise", help="Also -ln P(row) under the network of --net, and the least probable cell."),
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Compute the weights of all rows; see --output.")] = False,
    output: Output = None,
    drop: Drop = None,
    threads: Threads = None,
    devices: Devices = None,
    cluster: ClusterAddress = None,
    progress: Progress = None,
    force: Force = False,
    *,
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
    model = None if net is None else read_network(net)
    with status("reading", progress) as step:
        states = None if model is None else {v: model.states(v) for v in model.variables}
        table = read_file(data, dialect=csv.dialect(), na_values=csv.na_values, states=states)
        names = None if columns is None else split_names(columns, table.column_names, "column")
        found = top_outliers(
            table, n, k, cast(Any, metric), cast(Any, missing), scale=cast(Any, scale), net=model, columns=names,
            method="all" if every else "auto", threads=threads, cluster=cluster, **run_on,
            progress=lambda done, total, text: step(f"{text}: {done:,} of {total:,} rows"),
        )  # fmt: skip
        scores: dict[str, Any] = {}
        if surprise and model is not None:
            step("compiling the network")
            with model.compile() as tree:
                step("surprise")
                scores = _scores(row_surprise(tree, table), cell_surprise(tree, table, found.index), found)
        step("writing")
        if output is not None:
            write_file(_result(table, found, scores), output)
        if drop is not None:
            whole = read_file(data, dialect=csv.dialect(), as_text=True)
            write_file(take_rows(whole, open_rows(whole), found.others, {}), drop)
    _print(data, found, scores, json)


def _scores(rows: NDArray[Any], cells: Cells, found: Outliers) -> dict[str, Any]:
    """Surprise of all rows; cells of the outliers."""
    return {"all": rows, "surprise": rows[found.index], "cell": cells.variable, "p_cell": cells.probability}


def _result(table: Any, found: Outliers, scores: dict[str, Any]) -> Any:
    """The table for ``--output``."""
    if found.all_weights is None:
        return found.frame(**{name: scores[name] for name in ("surprise", "cell") if scores})
    more: dict[str, Any] = {"weight": found.all_weights}
    if scores:
        more["surprise"] = scores["all"]
    return like_cases(table, open_rows(table), more)


def _print(data: str, found: Outliers, scores: dict[str, Any], json: bool) -> None:
    """The outliers, a line for each."""
    nearest = found.neighbours[:, 0].tolist() if found.k > 1 else found.index.tolist()
    rows = zip(found.index.tolist(), found.weight.tolist(), nearest, strict=True)
    if json:
        listed: list[dict[str, Any]] = [{"row": r, "weight": w, "nearest": m} for r, w, m in rows]
        if scores:
            for i, line in enumerate(listed):
                line |= {"surprise": float(scores["surprise"][i]), "cell": scores["cell"][i]}
                line["p_cell"] = None if line["cell"] is None else float(scores["p_cell"][i])
        print_json(
            {
                "file": data, "metric": found.metric, "missing": found.missing, "k": found.k,
                "backend": found.backend, "threshold": found.threshold, "outliers": listed, "stats": found.stats,
            }
        )  # fmt: skip
        return
    header = ["row", "weight", "nearest"]
    lines: list[list[str | float]] = [[str(r), w, str(m)] for r, w, m in rows]
    if scores:
        header += ["surprise", "cell"]
        for i, cells in enumerate(lines):
            cells += [float(scores["surprise"][i]), scores["cell"][i] or ""]
    print_rows(header, lines)
