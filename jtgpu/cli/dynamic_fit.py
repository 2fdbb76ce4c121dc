"""``jtgpu dynamic fit``: the tables of a dynamic network from a file of sequences."""

from __future__ import annotations

import time as clock
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import OutputExists
from ..formats import write
from ..formats.registry import format_of_suffix
from ..model.dynamic import DynamicNetwork
from ..model.mixed_dynamic import MixedDynamicNetwork
from ..util.arguments import Option
from ..util.text_table import printable as shown
from . import INTERRUPTED
from .console import format_seconds, print_json, warn
from .fit import EmOptions, ModelOptions, shown_in
from .options import Without
from .tables import status

if TYPE_CHECKING:
    from .planning import RunOptions

WRITTEN = ("XDSL", "dynamic JSON")


@dataclass(frozen=True)
class FitOptions:
    """How the tables are fitted."""

    em: EmOptions
    model: ModelOptions
    weights: str | None
    seed: int


Em = Annotated[EmOptions, Without("seed", "step", "errors")]
Weights = Annotated[str | None, Option(
    "--weights COLUMN", "Of fit: column of the weights of sequences.", panel="Cases")]


def fit_sequences(  # noqa: PLR0913
    net: DynamicNetwork | MixedDynamicNetwork, paths: tuple[str, str], keys: dict[str, Any], options: FitOptions,
    csv: Any, run: RunOptions, resume: tuple[bool, bool], json: bool,
) -> None:  # fmt: skip
    """Estimate the CPTs, and the densities of numbers, and write the network."""
    # paths: of the sequences, and of the output
    # keys: id, time, on_gap and on_impossible of `jtgpu.learn.fit`
    # resume: --resume and --force
    from ..learn.parameters.fit import fit

    path, output = paths
    checkpoint = Path(f"{output}.unfinished")
    known = format_of_suffix(output)
    with_numbers = isinstance(net, MixedDynamicNetwork)
    if known is None or known.name not in WRITTEN[with_numbers:]:
        ends = ".dynamic.json, the format" if with_numbers else ".dynamic.json or .xdsl, the formats"
        what = "networks with numbers" if with_numbers else "networks"
        raise typer.BadParameter(f"{shown(output)!r} must end in {ends} of dynamic {what}", param_hint="--output")
    if with_numbers and resume[0]:
        raise typer.BadParameter("a fit with numbers keeps no intermediate results", param_hint="--resume")
    if checkpoint.exists() and not any(resume):
        raise OutputExists(f"{checkpoint} is that of an interrupted run: --resume continues it, --force starts again")
    em, begun = options.em, clock.perf_counter()
    with status("reading the sequences", run.progress) as step:
        fitted: Any = fit(
            net, path, **keys, weights=options.weights, **options.model.keywords(net.variables),
            start=em.start,  # type: ignore[arg-type]
            restarts=em.restarts, seed=options.seed, iterations=em.iterations, tolerance=em.tolerance,
            accelerate=em.accelerate, backend=run.backend,  # type: ignore[arg-type]
            threads=run.threads, dialect=csv.dialect(), na_values=csv.na_values, progress=shown_in(step),
            checkpoint=None if with_numbers else checkpoint, resume=resume[0],
        )  # fmt: skip
    write(fitted.network, output)
    summary = fitted.report() | {"output": output, "seconds": clock.perf_counter() - begun}
    if json:
        print_json(summary)
    else:
        print("\n".join(map(shown, str(fitted).splitlines())))
        print(f"{shown(output)}: {known.name}, {format_seconds(summary['seconds'])}")
    if not fitted.interrupted:
        checkpoint.unlink(missing_ok=True)
        return
    more = "; the same command with --resume continues" if checkpoint.exists() else ""
    warn(f"interrupted: {output} has the last whole iteration{more}")
    raise typer.Exit(INTERRUPTED)
