"""``jtgpu learn``: a network from a table of cases."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import DataError, NetworkError
from ..formats import write, writer_of
from ..learn.dags.posterior.posterior import POSTERIOR_METHODS
from ..learn.dags.scores.coded import CodedTable, code_table
from ..learn.dags.scores.rules import SCORES
from ..learn.dags.search.structure import METHODS, Structure, structure
from ..model.network import BayesianNetwork
from .console import command, print_json, warn
from .learn_posterior import Wanted, check_files, report_posterior
from .networks import check_output, read_network, split_names
from .options import OUTPUT, Force, Json, MemoryLimit, Progress, Threads, one_of
from .tables import print_rows

__all__ = ["learn"]

EXAMPLES = (
    "jtgpu learn cases.csv -o learned.net",
    "jtgpu learn cases.csv --tier asia,smoke --tier xray,dysp --require smoke,lung --json",
    "jtgpu learn cases.csv -o learned.net --edges edges.csv --draw edges.svg",
)

CONSTRAINTS, UNCERTAINTY = "Constraints", "Uncertainty: probabilities of the arcs"
ALL_METHODS = tuple(dict.fromkeys(METHODS + POSTERIOR_METHODS))

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
Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="NAME",
        callback=one_of(*ALL_METHODS),
        help=f"One of {', '.join(METHODS)}; with --edges or --draw: {', '.join(POSTERIOR_METHODS)}.",
    ),
]
Score = Annotated[
    str, typer.Option("--score", metavar="NAME", callback=one_of(*SCORES), help=f"One of {', '.join(SCORES)}.")
]
Prior = Annotated[
    str,
    typer.Option(
        "--prior",
        metavar="NAME",
        callback=one_of("uniform", "fair", "order"),
        help="Prior weights of graphs: uniform or fair; with --edges or --draw also order.",
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        "--missing", metavar="HOW", callback=one_of("error", "drop"), help="Rows with missing cells: error or drop."
    ),
]
States = Annotated[
    str | None,
    typer.Option("--states", metavar="NET", show_default=False, help="Network that declares the variables and states."),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid",
        metavar="A,B",
        rich_help_panel=CONSTRAINTS,
        show_default=False,
        help="The graph must not have the arc from A to B. Repeatable.",
    ),
]
Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="A,B",
        rich_help_panel=CONSTRAINTS,
        show_default=False,
        help="The graph must have the arc from A to B. Repeatable.",
    ),
]
Tier = Annotated[
    list[str] | None,
    typer.Option(
        "--tier",
        metavar="A,B,...",
        rich_help_panel=CONSTRAINTS,
        show_default=False,
        help="Variables of a tier: no arc points from a later --tier to an earlier one. Repeatable.",
    ),
]
Edges = Annotated[
    Path | None,
    typer.Option(
        "--edges",
        metavar="CSV",
        rich_help_panel=UNCERTAINTY,
        show_default=False,
        help="File to write: the probability of every arc, link and path.",
    ),
]
Draw = Annotated[
    Path | None,
    typer.Option(
        "--draw",
        metavar="PATH",
        rich_help_panel=UNCERTAINTY,
        show_default=False,
        help="File to draw the probabilities of the arcs into, .svg or .html.",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        metavar="P",
        min=0.0,
        max=1.0,
        rich_help_panel=UNCERTAINTY,
        show_default=False,
        help="Write the network of the arcs with a probability above P, not that of the best graph.",
    ),
]
Tolerance = Annotated[
    float,
    typer.Option(
        "--tolerance",
        metavar="X",
        rich_help_panel=UNCERTAINTY,
        help="Largest standard error of a probability, at which Markov chains stop.",
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--time",
        metavar="SECONDS",
        rich_help_panel=UNCERTAINTY,
        show_default=False,
        help="Time that Markov chains may run.",
    ),
]
Chains = Annotated[
    int | None,
    typer.Option(
        "--chains",
        metavar="N",
        min=4,
        rich_help_panel=UNCERTAINTY,
        show_default=False,
        help="Number of chains. Default: 8.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="PATH",
        rich_help_panel=UNCERTAINTY,
        show_default=False,
        help="File that holds the state of the chains; they continue from it if it exists.",
    ),
]


@command
def learn(  # noqa: PLR0913 (a Typer command)
    data: Data,
    output: Output = None,
    method: Method = "auto",
    score: Score = "bdeu",
    ess: Annotated[float, typer.Option("--ess", metavar="X", help="Equivalent sample size of bdeu and bds.")] = 1.0,
    prior: Prior = "uniform",
    max_parents: Annotated[int, typer.Option("--max-parents", metavar="N", min=0, help="Most parents.")] = 4,
    candidates: Annotated[
        int | None,
        typer.Option(
            "--candidates",
            metavar="N",
            min=1,
            show_default=False,
            help="Candidate parents of each variable. Default: 16, or fewer if memory is short.",
        ),
    ] = None,
    forbid: Forbid = None,
    require: Require = None,
    tier: Tier = None,
    states: States = None,
    missing: Missing = "error",
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed of the search.")] = 0,
    threads: Threads = None,
    memory_limit: MemoryLimit = None,
    edges: Edges = None,
    draw: Draw = None,
    threshold: Threshold = None,
    tolerance: Tolerance = 0.01,
    time: Seconds = None,
    chains: Chains = None,
    checkpoint: Checkpoint = None,
    progress: Progress = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Find the network that explains a table of cases best, and how certain its arcs are.

    The graph has the highest score among all graphs (up to 18 variables, or --method exact), or among those that a
    search over orders of the variables finds. CPTs are estimated from the same cases. With --edges or --draw, the
    probability of every arc is computed: exactly up to 13 variables, by Markov chains beyond.
    """
    wanted = Wanted(edges, draw, threshold, tolerance, time, chains, checkpoint, progress)
    _check(output, wanted, method, prior, force)
    table = _read(data, states, missing)
    names = table.names
    options: dict[str, Any] = {
        "method": method,
        "score": score,
        "ess": ess,
        "prior": prior,
        "max_parents": max_parents,
        "candidates": "auto" if candidates is None else candidates,
        "forbidden": _arcs(forbid, names, "--forbid"),
        "required": _arcs(require, names, "--require"),
        "tiers": None if tier is None else [split_names([text], names, "column") for text in tier],
        "seed": seed,
        "memory_limit": memory_limit,
        "threads": threads,
    }
    if wanted.is_posterior:
        report_posterior(table, options, wanted, output, data if json else None)
        return
    best = structure(table, **options)
    if output is not None:
        write(best.network(), output)
    _report(best, table, data if json else None, output)


def _check(output: str | None, wanted: Wanted, method: str, prior: str, force: bool) -> None:
    """What can fail before the data are read."""
    if output is not None:
        writer_of(output)
        check_output(output, force)
    check_files(wanted, force)
    if method not in (POSTERIOR_METHODS if wanted.is_posterior else METHODS):
        which = "without" if wanted.is_posterior else "with"
        raise typer.BadParameter(f"{method} is a method {which} --edges, --draw or --threshold", param_hint="--method")
    if prior == "order" and not wanted.is_posterior:
        raise typer.BadParameter(
            "'order' weighs orders, not graphs: it requires --edges or --draw", param_hint="--prior"
        )


def _read(data: str, states: str | None, missing: str) -> CodedTable:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            table = code_table(data, states=_declared(states), missing=missing)
        except DataError as error:
            raise DataError(_with_options(str(error))) from None
    for found in caught:
        warn(str(found.message))
    return table


def _with_options(message: str) -> str:
    """A message with options of the command line in place of arguments."""
    declared = "declare its states by a network file with --states"
    message = re.sub(r"declare its states as states=\{.*\}", declared, message)
    return re.sub(r"missing='(\w+)'", r"--missing \1", message)


def _report(best: Structure, table: CodedTable, data: str | None, output: str | None) -> None:
    """Print the graph; as JSON if there is a name of the data."""
    if data is not None:
        print_json(
            {
                "data": data,
                "cases": table.n_cases,
                "dropped": table.dropped,
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
    dropped = f", {table.dropped:,} rows left out" if table.dropped else ""
    arcs = f"{len(best.arcs):,} arc{'' if len(best.arcs) == 1 else 's'}"
    typer.echo(f"{table.n_cases:,} cases{dropped}, {arcs}, ln score {best.score:.3f}: {found_by}", err=True)


def _declared(file: str | None) -> BayesianNetwork | None:
    """The network that declares the states."""
    if file is None:
        return None
    net = read_network(file)
    if not isinstance(net, BayesianNetwork):
        raise NetworkError(f"{file} is not a Bayesian network")
    return net


def _arcs(given: Sequence[str] | None, names: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Arcs written as A,B."""
    found = []
    for text in given or ():
        pair = split_names([text], names, "column")
        if len(pair) != 2:
            raise typer.BadParameter(f"{text!r} is not an arc A,B", param_hint=option)
        found.append((pair[0], pair[1]))
    return found
