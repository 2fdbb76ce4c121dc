"""``jtgpu screen`` and ``whiten``: tables before learning: their outliers, and series without autocorrelation."""

from __future__ import annotations

import json as encoder
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click import BadParameter

from ..cases.answer_table import write_file
from ..cases.writing.formats import writer_for
from ..columns.files import read_file, time_column
from ..options.compute import Compute
from ..options.tables import ReadOptions
from ..screen.columns import like_cases, open_rows, take_rows
from ..screen.outliers import Outliers, top_outliers
from ..screen.reference import RareCells, cell_surprise, row_surprise
from ..series.autoregression import Autoregression, ar
from ..series.autoregression import whiten as residuals
from ..series.slices import lag_parents, two_slices
from ..util.atomic_file import write_text
from .console import print_json, read_cases
from .declared import Screen, Whiten
from .networks import check_outputs, read_network, split_names, with_codes
from .tables import print_rows, status

if TYPE_CHECKING:
    from numpy.typing import NDArray


def screen(o: Screen, read: ReadOptions, run: Compute) -> None:
    """Run ``jtgpu screen``."""
    if o.surprise and o.net is None:
        raise BadParameter("--surprise requires a network", param_hint="--net")
    if o.every and o.output is None:
        raise BadParameter("--all requires a file for the weights", param_hint="--output")
    for path in (o.output, o.drop):
        if path is not None:
            writer_for(Path(path))  # rejects other suffixes before the computation starts
    check_outputs(o.force, o.output, o.drop)
    files = [os.path.realpath(path) for path in (o.data, o.output, o.drop) if path is not None]
    if len(set(files)) < len(files):
        raise BadParameter("CASES, --output and --drop must be different files", param_hint="--output")
    if run.cluster is not None and run.devices is not None:
        raise BadParameter("each worker of a cluster uses one GPU", param_hint="--devices")
    model = None if o.net is None else with_codes(read_network(o.net), o.codes)
    with status("reading", o.progress) as step:
        states = None if model is None else {v: model.states(v) for v in model.variables}
        table = read_cases(o.data, read, states)
        names = None if o.columns is None else split_names(o.columns, table.column_names, "column")
        outliers = top_outliers(
            table, o.n, o.k, o.metric, o.missing, scale=o.scale, net=model, columns=names,
            method="all" if o.every else "auto",
            compute=run.replaced(progress=lambda done, total, text: step(f"{text}: {done:,} of {total:,} rows")),
        )  # fmt: skip
        scores: dict[str, Any] = {}
        if o.surprise and model is not None:
            step("compiling the network")
            with model.compile() as tree:
                step("surprise")
                scores = _scores(row_surprise(tree, table), cell_surprise(tree, table, outliers.index), outliers)
        step("writing")
        if o.output is not None:
            write_file(_result(table, outliers, scores), o.output)
        if o.drop is not None:
            whole = read_file(o.data, dialect=read, as_text=True)
            write_file(take_rows(whole, open_rows(whole), outliers.others, {}), o.drop)
    _print_outliers(o.data, outliers, scores, o.json)


def _scores(rows: NDArray[Any], cells: RareCells, outliers: Outliers) -> dict[str, Any]:
    """Surprise of all rows; cells of the outliers."""
    return {"all": rows, "surprise": rows[outliers.index], "cell": cells.variable, "p_cell": cells.probability}


def _result(table: object, outliers: Outliers, scores: dict[str, Any]) -> Any:
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
    lines: list[list[Any]] = [[*row] for row in rows]
    if scores:
        header += ["surprise", "cell"]
        for i, cells in enumerate(lines):
            cells += [float(scores["surprise"][i]), scores["cell"][i]]
    print_rows(header, lines)


def whiten(o: Whiten, read: ReadOptions) -> None:
    """Run ``jtgpu whiten``."""
    if not o.order.isdecimal() and o.order not in ("bic", "aic"):
        raise BadParameter(f"{o.order!r} is neither bic nor aic nor a number", param_hint="--order")
    if o.output is not None:
        writer_for(Path(o.output))  # rejects other suffixes before the computation starts
    check_outputs(o.force, o.output, o.lags)
    table = read_cases(o.data, read)
    time = o.time or time_column(table)
    if o.columns is not None:
        names = split_names(o.columns, table.column_names, "column")
        table = table.select([c for c in table.column_names if c in names or c == time])
    order: Any = int(o.order) if o.order.isdecimal() else o.order
    fit = ar(table, order, o.max_order, time=time, threads=o.threads)
    parents = lag_parents(fit, o.alpha)
    if o.output is not None and o.slices is None:
        write_file(residuals(table, fit, time=time, threads=o.threads), o.output)
    elif o.output is not None:
        lags = {name: ks or [1] for name, ks in parents.items()}
        write_file(two_slices(table, lags, o.slices, time=time), o.output)
    if o.lags is not None:
        write_text(o.lags, encoder.dumps(parents, indent=2) + "\n")
    _print_models(o.data, fit, parents, o.json)


def _print_models(data: str, fit: Autoregression, parents: dict[str, list[int]], json: bool) -> None:
    """The models, a line for each."""
    orders, variances = fit.order.tolist(), fit.variance.tolist()
    if not json:
        listed = [" ".join(map(str, parents[name])) for name in fit.names]
        print_rows(("series", "order", "variance", "lags"), zip(fit.names, orders, variances, listed, strict=True))
        return
    models: list[dict[str, Any]] = [
        {
            "series": name, "order": orders[i], "mean": float(fit.mean[i]), "coef": fit.coef[i, : orders[i]].tolist(),
            "variance": variances[i], "lags": parents[name],
        }
        for i, name in enumerate(fit.names)
    ]
    print_json({"file": data, "times": fit.n_times, "models": models})
