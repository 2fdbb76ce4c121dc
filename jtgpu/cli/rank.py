"""``jtgpu rank``: the variables or edges with the most shortest paths through them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..columns.files import read_file
from ..graphs.centrality import betweenness
from ..model.discrete import DiscreteModel
from ..util.arguments import Option
from ..util.atomic_file import write_text
from .batch import CsvInput, CsvOptions
from .console import command, print_json
from .networks import check_picture, read_network
from .options import OUTPUT, Force, Json, Threads
from .tables import print_rows, status

EXAMPLES = (
    "jtgpu rank alarm --skeleton --top 5",
    "jtgpu rank munin --skeleton -o munin.svg",
    "jtgpu rank roads.csv --weight km --edges --samples 500",
)
TABLES = (".csv", ".tsv", ".parquet")

File = Annotated[str, Option(
    "FILE", "A network (its arcs), or a .csv, .tsv (.gz) or .parquet file with an edge in each row: columns from and "
    "to, or else the first two.")]


@command
def rank(  # noqa: PLR0913 (a Typer command)
    file: File,
    edges: Annotated[bool, Option("--edges", "Rank edges instead of variables.")] = False,
    skeleton: Annotated[bool, Option("--skeleton", "Ignore the direction of a network's arcs.")] = False,
    directed: Annotated[bool, Option("--directed", "Edges of a table have a direction.")] = False,
    weight: Annotated[str | None, Option("--weight COLUMN", "Column of a table with the lengths of the edges.")] = None,
    samples: Annotated[int | None, Option(
        "--samples K", "Estimate from K random sources instead of all.", least=2)] = None,
    seed: Annotated[int, Option("--seed N", "Seed of the random sources.", least=0)] = 0,
    published: Annotated[bool, Option(
        "--published", "Time Wolonciej's GPU program (streams, neighbours, blocks) next to this one instead.")] = False,
    top: Annotated[int, Option("--top N", "Rows to print.", least=1)] = 20,
    threads: Threads = None,
    output: Annotated[Path | None, Option(
        "-o, --output PATH", "Draw the network to an .svg or .html file, with circles of the size of the betweenness.",
        panel=OUTPUT)] = None,
    force: Force = False,
    *,
    csv: CsvInput,
    json: Json = False,
) -> None:
    """Rank the variables of a network by betweenness: the share of shortest paths through each.

    Betweenness of an edge (--edges) is the share of shortest paths along it. All values are exact unless --samples is
    given.
    """
    graph = _read(file, csv)
    if published:
        _print_published(graph)
        return
    is_network = isinstance(graph, DiscreteModel)
    if is_network and directed:
        raise typer.BadParameter("the arcs of a network have a direction already", param_hint="--directed")
    if not is_network and skeleton:
        raise typer.BadParameter("edges of a table have no direction unless --directed", param_hint="--skeleton")
    if output is not None:
        _check_picture(output, is_network and not edges, force)
    with status("ranking") as report:
        values: dict[Any, float] = betweenness(
            graph, directed=False if skeleton else directed or None, weight=weight, k=samples, seed=seed, edges=edges,
            threads=threads, progress=lambda done, total, _: report(f"{done:,} of {total:,} sources"),
        )  # fmt: skip
    if output is not None:
        from ..draw import show_ranks

        write_text(output, show_ranks(graph, values).text(output.suffix))
    ranked = sorted(values.items(), key=lambda item: -item[1])  # stable: ties in the order of the file
    ranks = {x: i for i, (_, x) in reversed([*enumerate(ranked, 1)])}
    if json:
        names = ("from", "to") if edges else ("variable",)
        rows = [
            dict(zip((*names, "rank", "betweenness"), (*_cells(key, edges), ranks[x], x), strict=True))
            for key, x in ranked[:top]
        ]
        print_json({"file": file, "edges" if edges else "variables": len(ranked), "ranking": rows})
        return
    header = ("rank", "from", "to", "betweenness") if edges else ("rank", "variable", "betweenness")
    print_rows(header, [(str(ranks[x]), *_cells(key, edges), x) for key, x in ranked[:top]])


def _print_published(graph: Any) -> None:
    """The published program over its parameters."""
    from ..published.betweenness import measure

    with status("timing") as report:
        rows = [
            r.cells() for r in measure(graph, progress=lambda done, total, _: report(f"{done} of {total} settings"))
        ]
    print_rows(("program", "streams", "neighbours", "block", "seconds", "sources measured"), rows)


def _read(file: str, csv: CsvOptions) -> Any:
    """A network, or a table of edges."""
    is_table = file.lower().removesuffix(".gz").endswith(TABLES)
    return read_file(file, dialect=csv.dialect(), na_values=csv.na_values) if is_table else read_network(file)


def _cells(key: Any, edges: bool) -> list[str]:
    return [str(part) for part in key] if edges else [str(key)]


def _check_picture(output: Path, can_be_drawn: bool, force: bool) -> None:
    if not can_be_drawn:
        raise typer.BadParameter("only the variables of a network can be drawn", param_hint="--output")
    check_picture(output, force)
