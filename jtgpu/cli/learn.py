"""``jtgpu learn``: a network from a table of cases."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..columns.files import read_file
from ..draw import arcs, heat_map
from ..errors import ArgumentError, DataError, FormatError
from ..formats import writer_of
from ..learn.dags.posterior.posterior import posterior
from ..learn.dags.scores.coded import CodedTable
from ..learn.dags.scores.numeric_table import code_table, table_of
from ..learn.dags.scores.rules import ScoreRule
from ..learn.dags.structure import Structure, structure
from ..learn.dags.task import require_feasible
from ..learn.discretisation import discretise
from ..util.arguments import Option
from ..util.atomic_file import write_text
from ..util.text_table import counted
from .batch import CsvInput, CsvOptions
from .console import command, print_json, reading, warn
from .learn_options import ConstraintOptions, ModelOptions, PosteriorOptions, RunOptions
from .networks import check_output
from .numbers import numeric_writer_of
from .options import OUTPUT, Force, Json
from .saving import save_network
from .tables import on_terminal, print_rows, status

if TYPE_CHECKING:
    from ..learn.dags.posterior.result import StructurePosterior

# What ``jtgpu learn`` writes and prints about the posterior over structures.


def compute_posterior(
    table: CodedTable, options: dict[str, Any], wanted: PosteriorOptions, progress: bool | None
) -> StructurePosterior:
    """Compute the posterior, and write all files but the network."""
    if wanted.checkpoint is not None and not wanted.resume:
        wanted.checkpoint.unlink(missing_ok=True)  # --force: another run may have written it
    with status("scoring families", progress) as step, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        learned = posterior(table, progress=step, **wanted.arguments(), **options)
        text = ""
        if wanted.edges is not None:
            step("computing paths and equivalence classes")
            text = edges_text(learned)
    again = "--resume" if wanted.checkpoint is not None else "--checkpoint FILE, and then --resume"
    for warning in caught:
        warn(str(warning.message).replace("posterior.more()", again))
    if wanted.edges is not None:
        write_text(wanted.edges, text)
    for path, picture in ((wanted.draw, heat_map), (wanted.draw_network, arcs)):
        if path is not None:
            write_text(path, picture(learned).text(path.suffix))
    if wanted.save is not None:
        learned.save(wanted.save)
    return learned


def _print_posterior(learned: StructurePosterior) -> None:
    chosen, listed = learned.printed_arcs()
    rows: list[tuple[str, ...]] = [(a.parent, a.child, f"{a.probability:.4f}", f"{a.mcse:.4f}") for a in listed]
    columns = 4 if learned.n_chains else 3  # exact probabilities have no standard errors
    print_rows(("parent", "child", "probability", "mcse")[:columns], [row[:columns] for row in rows])
    if chosen:
        typer.echo(("" if on_terminal() else "# ") + chosen)
    typer.echo(("" if on_terminal() else "# ") + learned.summary())
    typer.echo(learned.describe(), err=True)


def _number(threshold: str | None) -> float | None:
    """None: the best graph."""
    return None if threshold in (None, "map") else float(str(threshold))


def edges_text(learned: StructurePosterior) -> str:
    """The probabilities as CSV, a row for each ordered pair of variables."""
    columns = learned.columns()
    buffer = io.StringIO()
    rows = csv.writer(buffer, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows(zip(*columns.values(), strict=True))
    return buffer.getvalue()


def _report_posterior(
    learned: StructurePosterior, table: CodedTable, wanted: PosteriorOptions, output: str | None, data: str
) -> dict[str, Any]:
    """The result as values that JSON can hold."""
    return {
        **_data_as_json(data, table),
        "variables": list(learned.names),
        "method": learned.method,
        "converged": learned.converged,
        "rhat": learned.rhat,
        "largest_mcse": float(learned.mcse.values.max()),
        "steps": learned.n_steps,
        "chains": learned.n_chains,
        "coverage": learned.coverage,
        "log_evidence": learned.log_evidence,
        "edges": [list(arc) for arc in learned.edges(0.01)],
        "arcs": [list(arc) for arc in learned.structure.arcs],
        "score": learned.structure.score,
        "log_weight": learned.map_score,
        "not_converged_because": list(learned.shortfall),
        "output": output,
        "edges_file": _name(wanted.edges),
        "pictures": [str(path) for path in (wanted.draw, wanted.draw_network) if path is not None],
        "saved": _name(wanted.save),
    }


def _data_as_json(data: str, table: CodedTable) -> dict[str, Any]:
    words = {v: list(words) for v, words in table.missing.words.items()}
    return {
        "data": data, "cases": table.n_cases, "dropped": table.dropped, "missing_cells": dict(table.missing.cells),
        "missing_words": words,
    }


def _name(path: Path | None) -> str | None:
    return None if path is None else str(path)


EXAMPLES = (
    "jtgpu learn cases.csv -o learned.net",
    "jtgpu learn patients.csv --exclude id,date --bins 5 --draw-network network.svg",
    "jtgpu learn patients.csv --exclude id,date --score bic-cg --missing drop -o patients.mixed.json",
    "jtgpu learn cases.csv --tier asia,smoke --tier xray,dysp --require smoke,lung --json",
    "jtgpu learn cases.csv -o learned.net --edges edges.csv --draw edges.svg --save posterior.npz --time 60",
)

T = TypeVar("T")


@command
def learn(  # noqa: PLR0913 (a Typer command)
    data: Annotated[str, Option("DATA", "CSV or Parquet file: one column for each variable.")],
    output: Annotated[str | None, Option(
        "-o, --output PATH", "Network file to write; the suffix selects the format.", panel=OUTPUT)] = None,
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
    writer = None
    if output is not None:
        writer = (numeric_writer_of if ScoreRule(model.score).takes_numbers else writer_of)(output)
        check_output(output, force)
    wanted.check(model, force)
    table = _read(data, csv, model, run.memory_limit)
    options = model.arguments() | constraints.arguments(table.names) | run.arguments()
    best: StructurePosterior | Structure
    keywords: dict[str, Any] = {}
    if wanted.is_wanted(model):
        best = _with_options(lambda: compute_posterior(table, options, wanted, run.progress))
        keywords["threshold"] = _number(wanted.threshold)
    else:
        with status("searching for the best graph", run.progress):
            best = _with_options(lambda: structure(table, **options))
    refused: FormatError | None = None
    if output is not None and writer is not None:
        try:
            save_network(best.network(**keywords), output, writer)
        except FormatError as error:
            refused = error
    if isinstance(best, Structure):
        _report(best, table, data if json else None, output)
    elif json:
        print_json(_report_posterior(best, table, wanted, output, data))
    else:
        _print_posterior(best)
    if refused is not None:
        raise refused


def _read(data: str, csv: CsvOptions, model: ModelOptions, memory: int | str | None) -> CodedTable:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            return _with_options(lambda: _coded(data, csv, model, memory))
        finally:
            for warning in caught:
                warn(str(warning.message))


def _coded(data: str, csv: CsvOptions, model: ModelOptions, memory: int | str | None) -> CodedTable:
    """The columns that are kept, with intervals in place of numbers unless states or numbers are declared."""
    declared, dialect = model.declared(), reading(data, csv.dialect())
    options: dict[str, Any] = {"states": declared, "missing": model.missing, "constant": model.constant}
    rule = ScoreRule(model.score, model.ess)
    if not any((model.exclude, model.columns, model.bins, model.numbers, rule.takes_numbers)):
        if declared is None:
            require_feasible(data, memory, dialect=dialect)
        return code_table(data, dialect=dialect, na_values=csv.na_values, **options)
    states = {} if declared is None else {v: declared.states(v) for v in declared.variables}
    table = read_file(data, dialect=dialect, na_values=csv.na_values, states=states)
    numbers = model.numeric(table.column_names)
    table = table.select(model.kept(table.column_names))
    if model.bins is not None and not (numbers is True or (numbers is None and rule.takes_numbers)):
        free = [name for name in table.column_names if name not in {*states, *(numbers or ())}]
        table = discretise(table.select(free), bins=model.bins).apply(table)
    return table_of(table, rule, numbers, **options)


def _with_options(compute: Callable[[], T]) -> T:
    """Call a function; messages of errors name options of the command line in place of arguments."""
    try:
        return compute()
    except (ArgumentError, DataError) as error:
        raise type(error)(_as_options(str(error))) from None


def _as_options(message: str) -> str:
    declared = "declare its states by a network file with --states"
    message = re.sub(r"declare its states as states=\{.*\}", declared, message)
    message = re.sub(r"discretise it( \(jtgpu\.learn\.discretise\))?", "make intervals with --bins N", message)
    message = re.sub(r"\bnumbers=\['(.*?)'\]", r"--numbers \1", message)
    message = re.sub(r"leave it out(?= of one|$)", "leave it out with --exclude", message)
    message = re.sub(r"\bnumbers=True, or a list of columns", "--numbers all, or some columns", message)
    return re.sub(r"\b(missing|constant|score|method|prior|backend)='([\w-]+)'", r"--\1 \2", message)


def _report(best: Structure, table: CodedTable, data: str | None, output: str | None) -> None:
    """Print the graph; as JSON if there is a name of the data."""
    if data is not None:
        arcs = [list(arc) for arc in best.arcs]
        print_json({
            **_data_as_json(data, table), "variables": list(table.names), "arcs": arcs, "score": best.score,
            "log_weight": best.log_weight, "method": best.method, "output": output,
        })
        return
    print_rows(("parent", "child"), best.arcs)
    known = {"exact": "no graph has a higher score", "order": "found by search over orders"}
    found_by = known.get(best.method, f"found by {best.method} search")
    n_arcs = counted(len(best.arcs), "arc")
    typer.echo(f"{table.n_cases:,} cases, {n_arcs}, ln score {best.score:.6g}: {found_by}", err=True)
    for line in table.missing_lines():
        typer.echo(line, err=True)
