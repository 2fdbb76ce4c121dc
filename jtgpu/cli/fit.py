"""``jtgpu fit``: the tables of a network from a file of cases."""

from __future__ import annotations

import json as encoder
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..cluster import Cluster
from ..errors import JtgpuError, OutputExists
from ..formats import writer_of
from ..mixed.fit_result import MixedFit
from ..model.mixed import MixedNetwork
from ..model.network import BayesianNetwork
from ..model.quick import parse_codes
from ..util.arguments import Option
from ..util.atomic_file import write_text
from ..util.text_table import printable as shown
from . import INTERRUPTED
from .batch import ClusterOptions, CsvInput
from .console import command, format_seconds, print_json, warn
from .fit_numbers import fit_numbers, report_of
from .networks import check_output, load_any, split_names, with_codes
from .numbers import numeric_writer_of
from .options import OUTPUT, Codes, File, Force, Json, Without
from .planning import RunOptions
from .saving import save_network
from .tables import status

if TYPE_CHECKING:
    from ..learn.parameters.em import Iteration
    from ..learn.parameters.result import Fit

# Option groups of ``jtgpu fit``.

DATA, MODEL, EM = "Cases", "Model", "EM"

Names = list[str] | None


@dataclass(frozen=True)
class DataOptions:
    """How the cases are read."""

    weights: Annotated[str | None, Option("--weights COLUMN", "Column of case weights.", panel=DATA)] = None
    missing: Annotated[str, Option(
        "--missing, --incomplete HOW", "Rows with missing cells: em uses them exactly, error, drop, or available "
        "counts each table over its complete rows.", choices=("em", "error", "drop", "available"), panel=DATA)] = "em"
    states: Annotated[str | None, Option(
        "--states given|data",
        "States of the network, or those in the data, sorted. Default: given; data with --bins.",
        choices=("given", "data"), panel=DATA)] = None
    numbers: Annotated[Names, Option(
        "--numbers KIND|NAME=KIND",
        "What columns of numbers are: gaussian, intervals, or states; of all, or of the named ones.", panel=DATA,
    )] = None
    bins: Annotated[int | None, Option(
        "--bins N", "Make N intervals of each column of more different numbers.", least=2, panel=DATA)] = None
    chunk: Annotated[int, Option("--chunk N", "Rows that are read at a time.", least=1, panel=DATA)] = 100_000


@dataclass(frozen=True)
class ModelOptions:
    """The tables to estimate."""

    prior: Annotated[str, Option(
        "--prior P",
        "Added to each count: a number, bdeu:ESS, or net:ESS (the network's distribution). 0: maximum likelihood.",
        panel=MODEL)] = "1"
    hidden: Annotated[Names, Option(
        "--hidden NAME[=N]", "Variable without a column, and its number of states. Repeatable.", panel=MODEL)] = None
    fixed: Annotated[Names, Option(
        "--fixed A,B", "Variables whose tables stay those of the network. Repeatable.", complete="targets", panel=MODEL,
    )] = None
    tie: Annotated[Names, Option("--tie A,B", "Variables that share one table. Repeatable.", panel=MODEL)] = None
    zeros: Annotated[str, Option(
        "--zeros keep|free", "With --start given: whether zeros of the network stay.", choices=("keep", "free"),
        panel=MODEL)] = "keep"

    def keywords(self, variables: Sequence[str]) -> dict[str, Any]:
        """The keywords of `jtgpu.learn.fit`."""
        hidden: dict[str, int | None] = {}
        for text in self.hidden or ():
            name, equals, number = text.rpartition("=")
            if equals and number.strip().isascii() and number.strip().isdigit():
                hidden[name.strip()] = int(number)
            else:
                hidden[text.strip()] = None
        return {
            "prior": _number_or_text(self.prior), "hidden": hidden,
            "fixed": split_names(self.fixed or [], variables, "variable"),
            "tied": [split_names([group], variables, "variable") for group in self.tie or ()], "zeros": self.zeros,
        }


@dataclass(frozen=True)
class EmOptions:
    """How EM runs."""

    start: Annotated[str, Option(
        "--start HOW", "Where EM starts: auto (counts, random tables of hidden variables), given (the network), "
        "counts, uniform, random.", choices=("auto", "given", "counts", "uniform", "random"), panel=EM)] = "auto"
    restarts: Annotated[int, Option("--restarts N", "Number of starts; the best result counts.", least=1, panel=EM)] = 1
    seed: Annotated[int, Option("--seed N", "Random seed.", least=0, panel=EM)] = 0
    iterations: Annotated[int, Option("--iterations N", "Passes over the cases, at most.", least=1, panel=EM)] = 200
    tolerance: Annotated[float, Option(
        "--tolerance X", "Relative change of the objective that ends EM.", least=0.0, panel=EM)] = 1e-7
    accelerate: Annotated[bool, Option(
        "--accelerate/--no-accelerate", "Extrapolate where that helps.", panel=EM)] = True
    step: Annotated[float | None, Option(
        "--step X", "Stepwise EM: one pass, tables updated after each chunk; 0.5 < X <= 1.", panel=EM)] = None
    errors: Annotated[bool, Option("--errors", "Compute standard errors, for --report and --json.", panel=EM)] = False


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


EXAMPLES = (
    "jtgpu fit alarm cases.csv -o fitted.bif",
    "jtgpu fit asia cases.parquet -o fitted.net --hidden smoke --restarts 10 --prior bdeu:10",
    "jtgpu fit asia day1.csv.gz day2.csv.gz -o fitted.net --start given --report fit.json",
    "jtgpu fit patients.net patients.csv -o fitted.mixed.json --numbers bp=gaussian,age=intervals",
    "jtgpu fit alarm cases.parquet -o fitted.net --devices all",
)


@command
def fit(  # noqa: PLR0913 (a Typer command)
    file: File,
    cases: Annotated[list[str], Option("CASES...", "CSV (plain, .gz, .zst) or Parquet files, or folders of them.")],
    output: Annotated[str, Option("-o, --output OUT", "Network file to write; the suffix selects the format.")],
    report: Annotated[str | None, Option("--report PATH", "Write a report as JSON.", panel=OUTPUT)] = None,
    resume: Annotated[bool, Option("--resume", "Continue an interrupted run.", panel=OUTPUT)] = False,
    force: Force = False,
    *,
    model: ModelOptions,
    em: EmOptions,
    data: DataOptions,
    codes: Codes = None,
    csv: CsvInput,
    run: Annotated[RunOptions, Without("dtype")],
    cluster: Annotated[ClusterOptions, Without("part_rows")],
    json: Json = False,
) -> None:
    """Estimate the CPTs of a network from cases.

    Complete cases are counted in one pass. If cells are missing or variables hidden, the EM algorithm uses every case,
    exactly. Ctrl-C writes the network of the last whole iteration, and --resume continues.
    """
    cluster.check(run)
    where = None if cluster.cluster is None else Cluster(cluster.cluster, cluster.workers, run.threads)
    checkpoint = Path(f"{output}.unfinished")
    net = with_codes(load_any(file), codes)
    with_numbers = data.numbers is not None or isinstance(net, MixedNetwork)
    wanted = (numeric_writer_of if with_numbers else writer_of)(output)  # fails before the computation starts
    check_output(output, force or resume)
    if report is not None:
        check_output(report, force or resume)
    if checkpoint.exists() and not (resume or force):
        raise OutputExists(f"{checkpoint} is that of an interrupted run: --resume continues it, --force starts again")
    if not isinstance(net, BayesianNetwork | MixedNetwork):
        raise JtgpuError(f"{file}: only Bayesian networks have tables that can be fitted")
    from_data = data.states == "data" or (data.states is None and data.bins is not None)
    from ..learn.parameters.fit import fit as fit_parameters

    begun = time.perf_counter()
    with (
        status("reading the cases", run.progress) as step,
        warnings.catch_warnings(record=True) as caught,
    ):  # fmt: skip
        warnings.simplefilter("always", UserWarning)
        options: dict[str, Any] = {
            "weights": data.weights, "missing": data.missing, "bins": data.bins, **model.keywords(net.variables),
            "start": em.start, "restarts": em.restarts, "seed": em.seed, "iterations": em.iterations,
            "tolerance": em.tolerance, "accelerate": em.accelerate, "step": em.step, "errors": em.errors,
            "backend": run.backend, "threads": run.threads, **run.device_option(), "cluster": where,
            "chunk": data.chunk, "dialect": csv.dialect(), "na_values": csv.na_values, "progress": shown_in(step),
            "resume": resume,
        }  # fmt: skip
        if with_numbers:
            fitted: Fit | MixedFit = fit_numbers(net, cases, data.numbers, from_data, options)
        else:
            structure: Any = {v: net.parents(v) for v in net} if from_data else net
            options["codes"] = parse_codes(net.variables, codes) if from_data and codes else None
            fitted = fit_parameters(structure, [*cases], checkpoint=checkpoint, **options)
    seconds = time.perf_counter() - begun
    for text in dict.fromkeys(str(w.message) for w in caught):
        warn(text)
    save_network(fitted.network, output, wanted)
    summary = report_of(fitted, em.errors) if isinstance(fitted, MixedFit) else fitted.report()
    summary |= {"output": output, "seconds": seconds}
    if report is not None:
        write_text(report, encoder.dumps(summary, indent=2, allow_nan=False) + "\n")
    if json:
        print_json(summary)
    else:
        print("\n".join(map(shown, str(fitted).splitlines())))
        print(f"{shown(output)}: {wanted.name}, {format_seconds(seconds)}")
    if not fitted.interrupted:
        checkpoint.unlink(missing_ok=True)
    else:
        more = "; the same command with --resume continues" if checkpoint.exists() else ""
        warn(f"interrupted: {output} has the last whole iteration{more}")
        raise typer.Exit(INTERRUPTED)


def shown_in(step: Callable[[str], None]) -> Callable[[Iteration], None]:
    """Show each iteration in the status line."""

    def show(entry: Iteration) -> None:
        change = f", change {entry.change:.3g}" if entry.number else ""
        step(f"pass {entry.number}: objective {entry.objective:.6g}{change}, {format_seconds(entry.seconds)}")

    return show
