"""``jtgpu learn``: a network from a table of cases."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from ..errors import ArgumentError, DataError
from ..formats import write, writer_of
from ..learn.dags.scores.coded import CodedTable, code_table
from ..learn.dags.search.structure import Structure, structure
from ..util.text_table import counted
from .batch import CsvInput, CsvOptions
from .console import command, print_json, warn
from .learn_options import ConstraintOptions, ModelOptions, PosteriorOptions, RunOptions
from .learn_posterior import report_posterior
from .networks import check_output
from .options import OUTPUT, Force, Json
from .progress import status
from .tables import print_rows

EXAMPLES = (
    "jtgpu learn cases.csv -o learned.net",
    "jtgpu learn cases.csv --draw-network network.svg",
    "jtgpu learn cases.csv --tier asia,smoke --tier xray,dysp --require smoke,lung --json",
    "jtgpu learn cases.csv -o learned.net --edges edges.csv --draw edges.svg --save posterior.npz --time 60",
)

T = TypeVar("T")

Data = Annotated[str, typer.Argument(metavar="DATA", help="CSV or Parquet file: one column for each variable.")]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="PATH",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="Network file to write; the suffix selects the format.",
    ),
]


@command
def learn(  # noqa: PLR0913 (a Typer command)
    data: Data,
    output: Output = None,
    *,
    model: ModelOptions,
    constraints: ConstraintOptions,
    wanted: PosteriorOptions,
    run: RunOptions,
    csv: CsvInput,
    force: Force = False,
    json: Json = False,
) -> None:
    """Learn a network's structure from data, with the posterior probability of each arc.

    The graph has the highest score among all graphs (up to 18 variables, or --method exact), or among those that a
    search over orders of the variables finds. CPTs are estimated from the same cases. With any option of uncertainty,
    --method mcmc or --prior order, the probability of every arc is computed: exactly up to 13 variables, by Markov
    chains beyond.
    """
    if output is not None:
        writer_of(output)
        check_output(output, force)
    wanted.check(model, force)
    table = _read(data, csv, model)
    options = model.arguments() | constraints.arguments(table.names) | run.arguments()
    if wanted.is_wanted(model):
        _with_options(lambda: report_posterior(table, options, wanted, run.progress, output, data if json else None))
        return
    with status("searching for the best graph", run.progress):
        best = _with_options(lambda: structure(table, **options))
    if output is not None:
        write(best.network(), output)
    _report(best, table, data if json else None, output)


def _read(data: str, csv: CsvOptions, model: ModelOptions) -> CodedTable:
    options: dict[str, Any] = {"states": model.declared(), "missing": model.missing, "na_values": csv.na_values}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        table = _with_options(lambda: code_table(data, dialect=csv.dialect(), **options))
    for found in caught:
        warn(str(found.message))
    return table


def _with_options(compute: Callable[[], T]) -> T:
    """Call a function; messages of errors name options of the command line in place of arguments."""
    try:
        return compute()
    except (ArgumentError, DataError) as error:
        raise type(error)(_as_options(str(error))) from None


def _as_options(message: str) -> str:
    declared = "declare its states by a network file with --states"
    message = re.sub(r"declare its states as states=\{.*\}", declared, message)
    return re.sub(r"\b(missing|score|method|prior|backend)='(\w+)'", r"--\1 \2", message)


def _report(best: Structure, table: CodedTable, data: str | None, output: str | None) -> None:
    """Print the graph; as JSON if there is a name of the data."""
    if data is not None:
        print_json(
            {
                "data": data,
                "cases": table.n_cases,
                "dropped": table.dropped,
                "missing_cells": dict(table.missing.cells),
                "missing_words": {v: list(words) for v, words in table.missing.words.items()},
                "variables": list(table.names),
                "arcs": [list(arc) for arc in best.arcs],
                "score": best.score,
                "log_weight": best.log_weight,
                "method": best.method,
                "output": output,
            }
        )
        return
    print_rows(("parent", "child"), best.arcs)
    known = {"exact": "no graph has a higher score", "order": "found by search over orders"}
    found_by = known.get(best.method, f"found by {best.method} search")
    arcs = counted(len(best.arcs), "arc")
    typer.echo(f"{table.n_cases:,} cases, {arcs}, ln score {best.score:.3f}: {found_by}", err=True)
    for line in table.missing_lines():
        typer.echo(line, err=True)
