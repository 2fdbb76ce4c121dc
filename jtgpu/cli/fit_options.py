"""Option groups of ``jtgpu fit``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from .completion import complete_targets
from .networks import split_names
from .options import one_of

DATA, MODEL, EM = "Cases", "Model", "EM"

Names = list[str] | None


@dataclass(frozen=True)
class DataOptions:
    """How the cases are read."""

    weights: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", rich_help_panel=DATA, show_default=False, help="Column of case weights."),
    ] = None
    missing: Annotated[
        str,
        typer.Option(
            "--missing", "--incomplete", metavar="HOW", rich_help_panel=DATA,
            callback=one_of("em", "error", "drop", "available"),
            help="Rows with missing cells: em uses them exactly, error, drop, or available counts each table over its "
            "complete rows.",
        ),
    ] = "em"  # fmt: skip
    states: Annotated[
        str | None,
        typer.Option(
            "--states", metavar="given|data", rich_help_panel=DATA, show_default=False,
            callback=one_of("given", "data"),
            help="States of the network, or those in the data, sorted. Default: given; data with --bins.",
        ),
    ] = None  # fmt: skip
    bins: Annotated[
        int | None,
        typer.Option(
            min=2, metavar="N", rich_help_panel=DATA, show_default=False,
            help="Make N intervals of each column of more different numbers.",
        ),
    ] = None  # fmt: skip
    chunk: Annotated[
        int, typer.Option(min=1, metavar="N", rich_help_panel=DATA, help="Rows that are read at a time.")
    ] = 100_000


@dataclass(frozen=True)
class ModelOptions:
    """What is estimated."""

    prior: Annotated[
        str,
        typer.Option(
            metavar="P", rich_help_panel=MODEL,
            help="Added to each count: a number, bdeu:ESS, or net:ESS (the network's distribution). 0: maximum "
            "likelihood.",
        ),
    ] = "1"  # fmt: skip
    hidden: Annotated[
        Names,
        typer.Option(
            "--hidden", metavar="NAME[=N]", rich_help_panel=MODEL, show_default=False,
            help="Variable without a column, and its number of states. Repeatable.",
        ),
    ] = None  # fmt: skip
    fixed: Annotated[
        Names,
        typer.Option(
            "--fixed", metavar="A,B", rich_help_panel=MODEL, show_default=False, autocompletion=complete_targets,
            help="Variables whose tables stay those of the network. Repeatable.",
        ),
    ] = None  # fmt: skip
    tie: Annotated[
        Names,
        typer.Option(
            "--tie", metavar="A,B", rich_help_panel=MODEL, show_default=False,
            help="Variables that share one table. Repeatable.",
        ),
    ] = None  # fmt: skip
    zeros: Annotated[
        str,
        typer.Option(
            metavar="keep|free", rich_help_panel=MODEL, callback=one_of("keep", "free"),
            help="With --start given: whether zeros of the network stay.",
        ),
    ] = "keep"  # fmt: skip

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
            "prior": _number_or_text(self.prior),
            "hidden": hidden,
            "fixed": split_names(self.fixed or [], variables, "variable"),
            "tied": [split_names([group], variables, "variable") for group in self.tie or ()],
            "zeros": self.zeros,
        }


@dataclass(frozen=True)
class EmOptions:
    """How EM runs."""

    start: Annotated[
        str,
        typer.Option(
            metavar="HOW", rich_help_panel=EM, callback=one_of("auto", "given", "counts", "uniform", "random"),
            help="Where EM starts: auto (counts, random tables of hidden variables), given (the network), counts, "
            "uniform, random.",
        ),
    ] = "auto"  # fmt: skip
    restarts: Annotated[
        int, typer.Option(min=1, metavar="N", rich_help_panel=EM, help="Number of starts; the best result counts.")
    ] = 1
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="N", rich_help_panel=EM, help="Random seed.")] = 0
    iterations: Annotated[
        int, typer.Option(min=1, metavar="N", rich_help_panel=EM, help="Passes over the cases, at most.")
    ] = 200
    tolerance: Annotated[
        float,
        typer.Option(min=0.0, metavar="X", rich_help_panel=EM, help="Relative change of the objective that ends EM."),
    ] = 1e-7
    accelerate: Annotated[
        bool, typer.Option("--accelerate/--no-accelerate", rich_help_panel=EM, help="Extrapolate where that helps.")
    ] = True
    step: Annotated[
        float | None,
        typer.Option(
            metavar="X", rich_help_panel=EM, show_default=False,
            help="Stepwise EM: one pass, tables updated after each chunk; 0.5 < X <= 1.",
        ),
    ] = None  # fmt: skip
    errors: Annotated[
        bool, typer.Option("--errors", rich_help_panel=EM, help="Compute standard errors, for --report and --json.")
    ] = False


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
