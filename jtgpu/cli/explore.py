"""``jtgpu explore``: from a table of cases to a network, its certainty, its accuracy and its page."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ..cases.answer_table import read_file
from ..draw import arcs
from ..errors import DataError, FormatError, JtgpuError, closest
from ..formats import writer_of
from ..learn.dags.posterior.posterior import posterior
from ..learn.dags.structure import Structure, structure
from ..learn.discretisation import discretise
from ..learn.number_validation import NumberValidation
from ..learn.parameters.fit import fit
from ..learn.validation import validate
from ..model.network import BayesianNetwork
from ..util import late_imports
from ..util.arguments import Option
from ..util.atomic_file import write_text
from ..util.text_table import counted
from .batch import CsvInput
from .console import command, print_json, reading, warn
from .networks import check_output, check_picture, split_names
from .numbers import numeric_writer_of
from .options import OUTPUT, Force, Json, Progress
from .saving import save_network
from .tables import on_terminal, print_rows, status

if TYPE_CHECKING:
    from ..learn.dags.posterior.result import StructurePosterior
    from ..learn.validation_result import Validation

EXAMPLES = (
    "jtgpu explore cases.csv",
    "jtgpu explore patients.csv --target outcome --exclude id,date -o patients.net",
    "jtgpu explore patients.csv --numbers -t pressure -o patients.mixed.json --draw patients.svg",
    "jtgpu explore cases.parquet --bins 3 --no-serve --json",
)
MAX_STATES = 60  # of a column that is kept
MIN_COMPLETE = 0.5  # share of the rows without a missing cell from which the others are left out for the structure
MAX_VARIABLES = 60  # whose arcs get probabilities
FOLDS = 5  # of the cross-validation

PREPARING = "Preparing the data"


@dataclass(frozen=True)
class ColumnFacts:
    """A column and what becomes of it."""

    name: str
    kind: str  # "numbers", "categories", "identifier", "dates", "constant", "text"
    distinct: int
    missing: float  # share of the rows
    use: str

    @property
    def is_kept(self) -> bool:
        """Whether it is a variable of the network."""
        return self.kind in ("numbers", "categories")


@command
def explore(  # noqa: PLR0913 (a Typer command)
    data: Annotated[str, Option("DATA", "CSV or Parquet file: one column for each variable.")],
    target: Annotated[str | None, Option(
        "-t, --target NAME", "Column whose prediction is judged. Default: the last one that is kept.")] = None,
    exclude: Annotated[list[str] | None, Option(
        "--exclude NAME", "Column to leave out, or several separated by commas. Repeatable.", panel=PREPARING)] = None,
    bins: Annotated[int, Option(
        "--bins N", "Intervals of each column of more different numbers.", least=2, panel=PREPARING)] = 5,
    numbers: Annotated[bool, Option(
        "--numbers", "Learn from columns of numbers as they are, without intervals.", panel=PREPARING)] = False,
    time: Annotated[float, Option(
        "--time SECONDS", "Time that Markov chains may run for the probabilities of arcs.", least=0.0)] = 20.0,
    seed: Annotated[int, Option("--seed N", "Random seed.", least=0)] = 0,
    output: Annotated[str | None, Option(
        "-o, --output PATH", "Network file to write; the suffix selects the format.", panel=OUTPUT)] = None,
    draw: Annotated[Path | None, Option(
        "--draw PATH", "File for a picture of the network with the probabilities of its arcs, .svg or .html.",
        panel=OUTPUT)] = None,
    serve: Annotated[bool | None, Option(
        "--serve/--no-serve", "Show the network on its page until Ctrl-C. Default: if stdout is a terminal.",
        panel=OUTPUT)] = None,
    force: Force = False,
    progress: Progress = None,
    *,
    csv: CsvInput,
    json: Json = False,
) -> None:
    """Explore a table: types, gaps, bins, a network with its certainty, accuracy and page.

    Identifiers, dates, constant columns and free text are left out. The accuracy is that of networks that the predicted
    rows did not help to learn.
    """
    writer = None
    if output is not None:
        writer = (numeric_writer_of if numbers else writer_of)(output)
        check_output(output, force)
    if draw is not None:
        check_picture(draw, force, "--draw")
    with status("reading", progress) as step, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        table = read_file(data, dialect=reading(data, csv.dialect()), na_values=csv.na_values)
        left_out = split_names(exclude or [], table.column_names, "column")
        facts = [_facts(table, name, bins, name in left_out, numbers) for name in table.column_names]
        kept = [f.name for f in facts if f.is_kept]
        goal = _target(target, kept, facts)
        is_certain = len(kept) <= MAX_VARIABLES and time > 0
        if draw is not None and not is_certain:
            raise DataError(f"--draw needs probabilities of arcs: --time above 0, at most {MAX_VARIABLES} variables")
        step("finding intervals")
        cases = table.select(kept)
        numeric = [f.name for f in facts if f.kind == "numbers"]
        if numeric and not numbers:
            cases = discretise(cases, bins=bins, columns=numeric).apply(cases)
        step("learning the structure")
        options = numeric_options(cases, numeric, seed) if numbers else _options(cases, seed)
        learned = structure(cases, **options)
        step("estimating the CPTs")
        kinds = dict.fromkeys(numeric, "gaussian") if numbers else None
        network = fit(learned, cases, prior="bdeu:1", numbers=kinds).network  # EM where cells are missing
        certainty = None
        if is_certain:
            step("computing the probabilities of the arcs")
            certainty = posterior(cases, time=time, **options)
        step("judging the predictions")
        accuracy = _judged(cases, goal, options, kinds)
        result = _Exploration(
            data, table.num_rows, facts, options, learned, network, certainty, goal, accuracy
        )  # fmt: skip
    notes = list(dict.fromkeys(str(w.message).partition("; ")[0] for w in caught))
    if draw is not None:
        assert certainty is not None
        write_text(draw, arcs(certainty).text(draw.suffix))
    refused: FormatError | None = None
    if output is not None and writer is not None:
        try:
            save_network(network, output, writer)
        except FormatError as error:
            refused = error
    if json:
        print_json(result.as_json() | {"output": output})
    else:
        result.print()
        for note in notes:
            warn(note)
    if refused is not None:
        raise refused
    if on_terminal() and not json if serve is None else serve:
        with network.compile() as tree, late_imports.serving().serve(tree) as server:
            print(f"\n{server.url}  (Ctrl-C ends)", flush=True)
            with suppress(KeyboardInterrupt):
                server.wait()


def _facts(table: Any, name: str, bins: int, is_excluded: bool, keeps_numbers: bool) -> ColumnFacts:
    """The kind of a column, by its values."""
    column = table.column(name)
    n = len(column)
    missing = column.null_count / n if n else 0.0
    kind = str(column.type)
    distinct = len(column.unique().drop_null()) if n else 0
    is_number = kind.startswith(("int", "uint", "float", "double", "decimal", "halffloat"))
    if is_excluded:
        return ColumnFacts(name, "excluded", distinct, missing, "left out")
    if distinct < 2:
        return ColumnFacts(name, "constant", distinct, missing, "left out")
    if kind.startswith(("timestamp", "date", "time", "duration")):
        return ColumnFacts(name, "dates", distinct, missing, "left out")
    whole = not is_number or kind.startswith(("int", "uint"))
    if whole and distinct == n - column.null_count and distinct > MAX_STATES:
        return ColumnFacts(name, "identifier", distinct, missing, "left out")
    if is_number and distinct > bins:
        return ColumnFacts(name, "numbers", distinct, missing, "number" if keeps_numbers else f"up to {bins} intervals")
    if distinct > MAX_STATES:
        return ColumnFacts(name, "text", distinct, missing, "left out")
    return ColumnFacts(name, "categories", distinct, missing, counted(distinct, "state"))


def _target(given: str | None, kept: Sequence[str], facts: Sequence[ColumnFacts]) -> str:
    """The column whose prediction is judged."""
    if len(kept) < 2:
        raise DataError(f"{counted(len(kept), 'column')} can be used; a network needs two")
    if given is None:
        return kept[-1]
    if given not in kept:
        why = [f"the column {given!r} is left out: {f.distinct:,} values, {f.kind}" for f in facts if f.name == given]
        reason = why[0] if why else f"there is no column {given!r}{closest(given, kept)}"
        raise typer.BadParameter(reason, param_hint="--target")
    return given


def _options(cases: Any, seed: int) -> dict[str, Any]:
    """Options of the structure: rows with gaps are left out, or, where too few remain, families use what they have."""
    n = cases.num_rows
    complete = n - int(np.logical_or.reduce([column.is_null().to_numpy() for column in cases.columns]).sum())
    if complete == n:
        return {"seed": seed}
    if complete >= MIN_COMPLETE * n:
        return {"seed": seed, "missing": "drop"}
    return {"seed": seed, "missing": "available", "score": "bic"}


def numeric_options(cases: Any, numeric: Sequence[str], seed: int) -> dict[str, Any]:
    """Options of the structure of a table with numbers."""
    gaps = any(column.null_count for column in cases.columns)
    only_numbers = len(numeric) == cases.num_columns
    return {
        "seed": seed, "score": "bge" if only_numbers else "bic-cg", "numbers": list(numeric),
        "missing": "drop" if gaps else "error",
    }  # fmt: skip


def _judged(
    cases: Any, target: str, options: dict[str, Any], kinds: dict[str, str] | None
) -> Validation | None:
    """Predictions of networks that the rows did not help to learn; None if there are too few rows."""
    # kinds: columns that are numbers. None: those of a network with states only
    declared = {name: _values(cases, name) for name in cases.column_names if name not in (kinds or ())}

    def network(training: Any) -> BayesianNetwork:
        learned = structure(training, states=declared, **options)
        return fit(learned, training, prior="bdeu:1", states=declared, numbers=kinds).network

    with suppress(DataError if kinds is None else JtgpuError):
        return validate(network, cases, target, folds=FOLDS, seed=options["seed"])
    return None


def _values(cases: Any, name: str) -> list[str]:
    values = cases.column(name).unique().drop_null().to_pylist()
    return [str(v) for v in sorted(values)]


@dataclass(frozen=True)
class _Exploration:
    """A table and the network that was learned from it."""

    data: str
    n: int  # rows
    facts: Sequence[ColumnFacts]
    options: dict[str, Any]  # of the structure
    learned: Structure
    network: BayesianNetwork
    certainty: StructurePosterior | None
    target: str
    accuracy: Validation | NumberValidation | None

    def print(self) -> None:
        """Print columns, arcs and accuracy."""
        prefix = "" if on_terminal() else "# "
        print(f"{prefix}{self.data}: {counted(self.n, 'row')}, {counted(len(self.facts), 'column')}")
        print_rows(
            ("column", "kind", "distinct", "missing", "use"),
            [
                (f.name, f.kind, f"{f.distinct:,}", f"{100 * f.missing:.1f} %" if f.missing else "", f.use)
                for f in self.facts
            ],
        )
        how = {"drop": ", by the rows without gaps", "available": ", each family by the rows that are complete in it"}
        arcs = counted(len(self.learned.arcs), "arc")
        print(f"\n{prefix}Network: {arcs}{how.get(self.options.get('missing', ''), '')}")
        if self.certainty is None:
            print_rows(("parent", "child"), self.learned.arcs)
        else:
            p = self.certainty.edge_probabilities
            print_rows(
                ("parent", "child", "P(arc)", "P(link)"),
                [
                    (u, v, f"{p[u, v]:.3f}", f"{min(p[u, v] + p[v, u], 1.0):.3f}")
                    for u, v in sorted(self.learned.arcs, key=lambda arc: -p[arc])
                ],
            )
            print(f"{prefix}{self.certainty.summary()}")
        if isinstance(self.accuracy, NumberValidation):
            by = self.accuracy
            print(
                f"\n{prefix}Error for {self.target}: {by.rmse:.4g} (root mean square) of "
                f"{counted(len(by.observed), 'row')}, by {FOLDS}-fold cross-validation (mean: {by.baseline:.4g}), "
                f"{100 * by.coverage(0.9):.1f} % in 90 % intervals"
            )
        elif self.accuracy is not None:
            a = self.accuracy
            of = f"{100 * a.accuracy:.1f} % of {counted(len(a.observed), 'row')}"
            most = f"most frequent state: {100 * a.baseline:.1f} %"
            print(
                f"\n{prefix}Accuracy for {self.target}: {of}, by {FOLDS}-fold cross-validation ({most}), "
                f"log loss {a.log_loss:.3f}"
            )

    def as_json(self) -> dict[str, Any]:
        """The same as values that JSON can hold."""
        edges = None if self.certainty is None else [list(arc) for arc in self.certainty.edges(0.01)]
        return {
            "data": self.data, "rows": self.n, "columns": [vars(f) for f in self.facts],
            "arcs": [list(arc) for arc in self.network.arcs], "edges": edges, "target": self.target,
            "accuracy": self._accuracy(),
        }

    def _accuracy(self) -> dict[str, Any] | None:
        a = self.accuracy
        if isinstance(a, NumberValidation):
            return {"n": len(a.observed), "rmse": a.rmse, "baseline_rmse": a.baseline, "coverage_90": a.coverage(0.9)}
        if a is None:
            return None
        return {"n": len(a.observed), "accuracy": a.accuracy, "baseline": a.baseline, "log_loss": a.log_loss}
