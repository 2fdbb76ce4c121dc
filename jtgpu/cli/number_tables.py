"""``jtgpu batch`` and ``jtgpu sample`` on networks with numbers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from ..cases.answer_table import read_file, write_file
from ..cases.files import Report
from ..cases.query import FileOptions, TableOptions
from ..cases.writing.formats import writer_for
from ..errors import JtgpuError
from ..inference.results.interval_numbers import checked_probabilities
from ..inference.results.printed import make_frame
from ..inference.tables.columns import evidence_columns
from ..model.mixed import MixedNetwork
from .networks import split_names
from .planning import PlanOptions, RunOptions

if TYPE_CHECKING:
    from ..mixed import MixedTree
    from ..mixed.results import MixedCasePosteriors

def quantile_levels(text: str | None) -> list[float] | None:
    """The probabilities of ``--quantiles``."""
    # raises typer.BadParameter: If one is not above 0 and below 1.
    if text is None:
        return None
    try:
        return list(map(float, checked_probabilities([float(q) for q in text.split(",")])))
    except (ValueError, JtgpuError):
        raise typer.BadParameter(
            f"expected probabilities above 0 and below 1, such as 0.05,0.95, got {text!r}", param_hint="--quantiles"
        ) from None


def compiled_numbers(net: MixedNetwork, file: str, plan: PlanOptions, run: RunOptions) -> MixedTree:
    """The compiled network; options that it does not take are an error."""
    if plan != type(plan)() or run.compile_options():
        raise typer.BadParameter(
            f"{file} has numbers: it takes --backend and --threads, no options of plans and devices", param_hint=file
        )
    return net.compile(run.backend, **run.threads_option())  # type: ignore[arg-type]


def batch_of_numbers(
    tree: MixedTree, paths: tuple[str, str], query: TableOptions, files: FileOptions, quantiles: list[float] | None
) -> Report:
    """Answer every row of a file, which is read whole."""
    for option, is_given in {"--conflict": query.conflict, "--mpe": query.mpe, "--resume": files.resume}.items():
        if is_given:
            raise typer.BadParameter("networks with numbers do not offer it", param_hint=option)
    cases, output = paths
    writer = writer_for(Path(output), files.compression, files.escape_formulas)
    net, begun = tree.network, time.perf_counter()
    texts = {v: net.states(v) for v in net.discrete}
    table = read_file(cases, dialect=files.dialect, na_values=query.na_values, states=texts)
    given: Any = query  # the names are texts of the command line
    wanted = None if query.targets is None else split_names(given.targets, net.variables, "variable")
    asked = [net.graph.index(v) for v in wanted or ()]
    own = None if query.evidence_columns is None else split_names(given.evidence_columns, table.column_names, "column")
    keep = split_names(given.keep or (), table.column_names, "column")
    evidence = evidence_columns(net.graph, table.column_names if own is None else own, asked, source=cases)
    targets = wanted if wanted is not None else [v for v in net.variables if v not in evidence] or [*net.variables]
    answer = tree.posteriors_batch(table.select(evidence), targets=targets, on_impossible=query.on_error)  # type: ignore[arg-type]
    columns = {k: table.column(k) for k in keep} | _columns(net, answer, query, quantiles)
    write_file(make_frame(columns, "pyarrow"), output, writer)
    ignored = tuple(c for c in table.column_names if c not in evidence and c not in keep)
    n_flagged, seconds = int(answer.impossible.sum()), time.perf_counter() - begun
    return Report(output, table.num_rows, n_flagged, 0, seconds, tuple(targets), tuple(evidence), ignored)


def _columns(
    net: MixedNetwork, answer: MixedCasePosteriors, query: TableOptions, quantiles: list[float] | None
) -> dict[str, Any]:
    """The columns of answers: null in impossible rows."""
    columns: dict[str, Any] = {}
    if query.labels:
        for v, p in answer.items():
            labels = None if net.is_number(v) else np.array(net.states(v), object)
            columns[v] = answer[v].mean if labels is None else labels[np.asarray(p).argmax(axis=1)]
    else:
        columns = answer.columns(quantiles)
    if query.log_evidence:
        columns["log_evidence"] = answer.log_evidence
    gone = answer.impossible
    if gone.any():
        columns = {name: np.ma.masked_array(column, gone) for name, column in columns.items()}
    if query.on_error == "flag":
        columns["error"] = [("the evidence has probability 0" if g else None) for g in gone.tolist()]
    return columns


def sampled_rows(tree: MixedTree, n: int, block: int, findings: Any, seed: Any, labels: Any) -> Iterator[list[Any]]:
    """Samples, row by row: names or numbers of states, and numbers."""
    # block: samples that are drawn at a time; labels: of each variable with states, its names
    net = tree.network
    for first in range(0, n, block):
        drawn = tree.sample(min(block, n - first), findings, seed=seed)
        columns = [
            drawn.numbers[:, net.numbers.index(v)].tolist()
            if net.is_number(v)
            else [labels[v][s] for s in drawn.states[:, net.discrete.index(v)].tolist()]
            for v in net.variables
        ]
        yield from map(list, zip(*columns, strict=True))
