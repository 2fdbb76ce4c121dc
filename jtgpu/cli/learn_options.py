"""Option groups of ``jtgpu learn``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import NetworkError
from ..learn.dags.posterior.posterior import POSTERIOR_METHODS
from ..learn.dags.scores.coded import MISSING_CHOICES
from ..learn.dags.scores.rules import SCORES
from ..learn.dags.search.structure import METHODS
from ..model.network import BayesianNetwork
from .networks import check_output, read_network, split_names
from .options import RUNNING, ClusterAddress, Devices, MemoryLimit, Progress, Threads, one_of

CONSTRAINTS, UNCERTAINTY = "Constraints", "Uncertainty: probabilities of the arcs"
ALL_METHODS = tuple(dict.fromkeys(METHODS + POSTERIOR_METHODS))
SEARCHES = tuple(name for name in METHODS if name not in POSTERIOR_METHODS)
PICTURES = (".svg", ".html", ".htm")

Texts = list[str] | None


def _candidates(text: str | None) -> str | None:
    if text not in (None, "auto", "all") and not (str(text).isascii() and str(text).isdigit() and int(str(text)) > 0):
        raise typer.BadParameter(f"{text!r} is neither a number above 0, nor auto or all")
    return text


def _tempering(text: str | None) -> str | None:
    if text not in (None, "auto") and not (str(text).isascii() and str(text).isdigit() and int(str(text)) > 1):
        raise typer.BadParameter(f"{text!r} is neither a number above 1, nor auto")
    return text


def _threshold(text: str | None) -> str | None:
    if text in (None, "map"):
        return text
    try:
        p = float(str(text))
    except ValueError:
        p = -1.0
    if not 0.0 <= p <= 1.0:
        raise typer.BadParameter(f"{text!r} is neither a number from 0 to 1, nor map")
    return text


@dataclass(frozen=True)
class ModelOptions:
    """What is learned."""

    method: Annotated[
        str,
        typer.Option(
            metavar="NAME", callback=one_of(*ALL_METHODS),
            help=f"Of the best graph: {', '.join(METHODS)}. Of probabilities: {', '.join(POSTERIOR_METHODS)}.",
        ),
    ] = "auto"  # fmt: skip
    score: Annotated[
        str, typer.Option(metavar="NAME", callback=one_of(*SCORES), help=f"One of {', '.join(SCORES)}.")
    ] = "bdeu"
    ess: Annotated[float, typer.Option(metavar="X", help="Equivalent sample size of bdeu and bds.")] = 1.0
    prior: Annotated[
        str,
        typer.Option(
            metavar="NAME", callback=one_of("uniform", "fair", "order"),
            help="Prior weights of graphs: uniform, fair, or order (probabilities only).",
        ),
    ] = "uniform"  # fmt: skip
    max_parents: Annotated[int, typer.Option(metavar="N", min=0, help="Most parents.")] = 4
    candidates: Annotated[
        str,
        typer.Option(
            metavar="N|all", callback=_candidates,
            help="Candidate parents of each variable: more take longer. auto: 16, of chains 12, or as memory allows.",
        ),
    ] = "auto"  # fmt: skip
    missing: Annotated[
        str,
        typer.Option(
            metavar="HOW", callback=one_of(*MISSING_CHOICES),
            help="Rows with missing cells: error, drop, or available (with --score bic: each family by its known "
            "rows).",
        ),
    ] = "error"  # fmt: skip
    states: Annotated[
        str,
        typer.Option(
            metavar="NET|data", help="Network file that declares the variables and states, or data: those that occur."
        ),
    ] = "data"
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Random seed of searches and chains.")] = 0
    start: Annotated[
        str | None,
        typer.Option(metavar="NET", show_default=False, help="Network file with the graph to start from."),
    ] = None

    def declared(self) -> BayesianNetwork | None:
        """The network that declares the states."""
        return None if self.states == "data" else _network(self.states)

    def arguments(self) -> dict[str, Any]:
        """Keywords of `jtgpu.learn.structure` and `jtgpu.learn.posterior`."""
        return {
            "method": self.method, "score": self.score, "ess": self.ess, "prior": self.prior,
            "max_parents": self.max_parents, "seed": self.seed,
            "candidates": self.candidates if self.candidates in ("auto", "all") else int(self.candidates),
            "start": None if self.start is None else _network(self.start),
        }  # fmt: skip


def _network(file: str) -> BayesianNetwork:
    net = read_network(file)
    if not isinstance(net, BayesianNetwork):
        raise NetworkError(f"{file} is not a Bayesian network")
    return net


@dataclass(frozen=True)
class ConstraintOptions:
    """Which graphs are possible."""

    forbid: Annotated[
        Texts,
        typer.Option(
            metavar="A,B", rich_help_panel=CONSTRAINTS, show_default=False,
            help="The graph must not have the arc from A to B. Repeatable.",
        ),
    ] = None  # fmt: skip
    require: Annotated[
        Texts,
        typer.Option(
            metavar="A,B", rich_help_panel=CONSTRAINTS, show_default=False,
            help="The graph must have the arc from A to B. Repeatable.",
        ),
    ] = None  # fmt: skip
    tier: Annotated[
        Texts,
        typer.Option(
            metavar="A,B,...", rich_help_panel=CONSTRAINTS, show_default=False,
            help="Variables of a tier: no arc points from a later --tier to an earlier one. Repeatable.",
        ),
    ] = None  # fmt: skip
    tiers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=CONSTRAINTS, show_default=False,
            help="Text file with a tier on each line: names separated by commas; # begins a comment.",
        ),
    ] = None  # fmt: skip
    within_tiers: Annotated[
        bool,
        typer.Option(rich_help_panel=CONSTRAINTS, help="Whether arcs between variables of the same tier are possible."),
    ] = True

    def arguments(self, names: Sequence[str]) -> dict[str, Any]:
        """Keywords of `jtgpu.learn.structure` and `jtgpu.learn.posterior`."""
        lines = list(self.tier or ())
        if self.tiers is not None:
            if lines:
                raise typer.BadParameter("--tier and --tiers exclude each other", param_hint="--tiers")
            try:
                text = self.tiers.read_text("utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                raise typer.BadParameter(f"{self.tiers}: {error}", param_hint="--tiers") from None
            lines = [line for row in text.splitlines() if (line := row.partition("#")[0].strip())]
        return {
            "forbidden": _arcs(self.forbid, names, "--forbid"),
            "required": _arcs(self.require, names, "--require"),
            "tiers": [split_names([line], names, "column") for line in lines] or None,
            "within_tiers": self.within_tiers,
        }


def _arcs(given: Sequence[str] | None, names: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Arcs written as A,B."""
    found = []
    for text in given or ():
        pair = split_names([text], names, "column")
        if len(pair) != 2:
            raise typer.BadParameter(f"{text!r} is not an arc A,B", param_hint=option)
        found.append((pair[0], pair[1]))
    return found


@dataclass(frozen=True)
class PosteriorOptions:
    """What to compute and write about the probabilities of arcs."""

    edges: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV", rich_help_panel=UNCERTAINTY, show_default=False,
            help="File to write: the probability of every arc, link and path.",
        ),
    ] = None  # fmt: skip
    draw: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", rich_help_panel=UNCERTAINTY, show_default=False,
            help="File for a heat map of the probabilities of all arcs, .svg or .html.",
        ),
    ] = None  # fmt: skip
    draw_network: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", rich_help_panel=UNCERTAINTY, show_default=False,
            help="File for a picture of the network with the probabilities of its arcs, .svg or .html.",
        ),
    ] = None  # fmt: skip
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="NPZ", rich_help_panel=UNCERTAINTY, show_default=False,
            help="File for the whole posterior, which jtgpu.learn.load reads.",
        ),
    ] = None  # fmt: skip
    threshold: Annotated[
        str | None,
        typer.Option(
            metavar="P|map", callback=_threshold, rich_help_panel=UNCERTAINTY, show_default=False,
            help="Network to write: that of the arcs with a probability above P, or map: of the best graph.",
        ),
    ] = None  # fmt: skip
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="X", rich_help_panel=UNCERTAINTY, show_default=False,
            help="Largest standard error of a probability, at which Markov chains stop. Default: 0.01.",
        ),
    ] = None  # fmt: skip
    time: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", rich_help_panel=UNCERTAINTY, show_default=False, help="Time that Markov chains may run."
        ),
    ] = None
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, rich_help_panel=UNCERTAINTY, show_default=False, help="Most steps of a chain."
        ),
    ] = None
    chains: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=4, rich_help_panel=UNCERTAINTY, show_default=False, help="Number of chains. Default: 8."
        ),
    ] = None
    tempering: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto", callback=_tempering, rich_help_panel=UNCERTAINTY, show_default=False,
            help="Replicas of each chain at flatter distributions, for posteriors with several peaks; auto: if needed.",
        ),
    ] = None  # fmt: skip
    cluster: ClusterAddress = None
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", rich_help_panel=UNCERTAINTY, show_default=False,
            help="File for the state of the chains, written every 30 seconds.",
        ),
    ] = None  # fmt: skip
    resume: Annotated[
        bool,
        typer.Option("--resume", rich_help_panel=UNCERTAINTY, help="Continue the run of --checkpoint."),
    ] = False

    def is_wanted(self, model: ModelOptions) -> bool:
        """Whether probabilities are computed, not only the best graph."""
        return model.method == "mcmc" or model.prior == "order" or self.resume or any(
            option is not None
            for option in (
                self.edges, self.draw, self.draw_network, self.save, self.threshold, self.tolerance, self.time,
                self.steps, self.chains, self.checkpoint, self.tempering, self.cluster,
            )
        )  # fmt: skip

    def check(self, model: ModelOptions, force: bool) -> None:
        """Reject contradictions and outputs before anything is computed."""
        if self.is_wanted(model) and model.method in SEARCHES:
            raise typer.BadParameter(
                f"{model.method} finds a graph, not the probabilities of arcs: use auto, exact or mcmc",
                param_hint="--method",
            )
        for path, option in ((self.draw, "--draw"), (self.draw_network, "--draw-network")):
            if path is not None and path.suffix.lower() not in PICTURES:
                raise typer.BadParameter(f"{path.name!r} ends in neither .svg nor .html", param_hint=option)
        outputs = [p for p in (self.edges, self.draw, self.draw_network, self.save) if p is not None]
        for path in outputs:
            check_output(path, force)
        if self.resume and self.checkpoint is None:
            raise typer.BadParameter("--resume requires --checkpoint", param_hint="--resume")
        if self.resume and self.checkpoint is not None and not self.checkpoint.is_file():
            raise typer.BadParameter(f"{self.checkpoint}: there is no run to continue", param_hint="--resume")
        if self.checkpoint is not None and not self.resume:
            check_output(self.checkpoint, force)

    def arguments(self) -> dict[str, Any]:
        """Keywords of `jtgpu.learn.posterior`."""
        return {
            "tolerance": 0.01 if self.tolerance is None else self.tolerance,
            "time": self.time, "steps": self.steps, "chains": "auto" if self.chains is None else self.chains,
            "checkpoint": self.checkpoint, "cluster": self.cluster,
            "tempering": self.tempering if self.tempering == "auto" else int(self.tempering or 0) or False,
        }  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """Where it is computed."""

    backend: Annotated[
        str,
        typer.Option(metavar="NAME", rich_help_panel=RUNNING, callback=one_of("cpu", "gpu"), help="One of cpu, gpu."),
    ] = "cpu"
    threads: Threads = None
    devices: Devices = None
    memory_limit: MemoryLimit = None
    progress: Progress = None

    def arguments(self) -> dict[str, Any]:
        """Keywords of `jtgpu.learn.structure` and `jtgpu.learn.posterior`."""
        devices: Any = self.devices
        if devices not in (None, "all"):
            devices = [int(number) for number in devices.split(",")]
        if devices is not None and self.backend != "gpu":
            raise typer.BadParameter("--devices requires --backend gpu", param_hint="--devices")
        return {
            "backend": self.backend, "devices": devices, "threads": self.threads, "memory_limit": self.memory_limit,
        }  # fmt: skip


