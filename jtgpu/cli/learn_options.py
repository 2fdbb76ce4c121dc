"""Option groups of ``jtgpu learn``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import NetworkError
from ..learn.dags.posterior.posterior import POSTERIOR_METHODS
from ..learn.dags.scores.coded import CONSTANT_CHOICES, MISSING_CHOICES
from ..learn.dags.scores.rules import NUMERIC_SCORES, SCORES
from ..learn.dags.structure import METHODS
from ..model.network import BayesianNetwork
from ..util.arguments import Option
from .networks import check_output, read_network, split_names
from .options import RUNNING, ClusterAddress, Devices, MemoryLimit, Progress, Threads

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
    """The model to learn."""

    method: Annotated[str, Option(
        "--method NAME", f"Of the best graph: {', '.join(METHODS)}. Of probabilities: {', '.join(POSTERIOR_METHODS)}.",
        choices=ALL_METHODS)] = "auto"
    score: Annotated[str, Option(
        "--score NAME", f"One of {', '.join(SCORES)}; of numbers: {', '.join(NUMERIC_SCORES)}.",
        choices=(*SCORES, *NUMERIC_SCORES))] = "bdeu"
    ess: Annotated[float, Option("--ess X", "Equivalent sample size of bdeu and bds.")] = 1.0
    prior: Annotated[str, Option(
        "--prior NAME", "Prior weights of graphs: uniform, fair, or order (probabilities only).",
        choices=("uniform", "fair", "order"))] = "uniform"
    max_parents: Annotated[int, Option("--max-parents N", "Most parents.", least=0)] = 4
    candidates: Annotated[str, Option(
        "--candidates N|all",
        "Candidate parents of each variable: more take longer. auto: 16, of chains 12, or as memory allows.",
        check=_candidates)] = "auto"
    missing: Annotated[str, Option(
        "--missing HOW",
        "Rows with missing cells: error, drop, or available (with --score bic: each family by its known rows).",
        choices=MISSING_CHOICES)] = "error"
    constant: Annotated[str, Option(
        "--constant HOW", "Columns with only one value: error, or drop, with a note.", choices=CONSTANT_CHOICES,
    )] = "error"
    states: Annotated[str, Option(
        "--states NET|data", "Network file that declares the variables and states, or data: those that occur.",
    )] = "data"
    exclude: Annotated[Texts, Option(
        "--exclude NAME", "Column to leave out, or several separated by commas. Repeatable.")] = None
    columns: Annotated[Texts, Option(
        "--columns NAME", "Column to keep, or several separated by commas; others are left out. Repeatable.")] = None
    numbers: Annotated[Texts, Option(
        "--numbers NAME|all",
        "Column of numbers, or several separated by commas, for --score bge or bic-cg. Default: all, but those of few "
        "whole numbers. Repeatable.")] = None
    bins: Annotated[int | None, Option(
        "--bins N", "Make N intervals of each column of more different numbers.", least=2)] = None
    seed: Annotated[int, Option("--seed N", "Random seed of searches and chains.", least=0)] = 0
    start: Annotated[str | None, Option("--start NET", "Network file with the graph to start from.")] = None

    def declared(self) -> BayesianNetwork | None:
        """The network that declares the states."""
        return None if self.states == "data" else _network(self.states)

    def numeric(self, names: Sequence[str]) -> bool | list[str] | None:
        """The argument `numbers` for a table with these columns."""
        return True if self.numbers == ["all"] else self.numbers and split_names(self.numbers, names, "column")

    def kept(self, names: Sequence[str]) -> list[str]:
        """The columns that are learned from."""
        out = set(split_names(self.exclude or [], names, "column"))
        chosen = set(names) if self.columns is None else set(split_names(self.columns, names, "column"))
        return [name for name in names if name in chosen and name not in out]

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

    forbid: Annotated[Texts, Option(
        "--forbid A,B", "The graph must not have the arc from A to B. Repeatable.", panel=CONSTRAINTS)] = None
    require: Annotated[Texts, Option(
        "--require A,B", "The graph must have the arc from A to B. Repeatable.", panel=CONSTRAINTS)] = None
    tier: Annotated[Texts, Option(
        "--tier A,B,...", "Variables of a tier: no arc points from a later --tier to an earlier one. Repeatable.",
        panel=CONSTRAINTS)] = None
    tiers: Annotated[Path | None, Option(
        "--tiers FILE", "Text file with a tier on each line: names separated by commas; # begins a comment.",
        panel=CONSTRAINTS)] = None
    within_tiers: Annotated[bool, Option(
        "--within-tiers/--no-within-tiers", "Whether arcs between variables of the same tier are possible.",
        panel=CONSTRAINTS)] = True

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
            "forbidden": _arcs(self.forbid, names, "--forbid"), "required": _arcs(self.require, names, "--require"),
            "tiers": [split_names([line], names, "column") for line in lines] or None,
            "within_tiers": self.within_tiers,
        }


def _arcs(given: Sequence[str] | None, names: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Arcs written as A,B."""
    arcs = []
    for text in given or ():
        pair = split_names([text], names, "column")
        if len(pair) != 2:
            raise typer.BadParameter(f"{text!r} is not an arc A,B", param_hint=option)
        arcs.append((pair[0], pair[1]))
    return arcs


@dataclass(frozen=True)
class PosteriorOptions:
    """Probabilities of arcs: how they are computed, and files for them."""

    edges: Annotated[Path | None, Option(
        "--edges CSV", "File to write: the probability of every arc, link and path.", panel=UNCERTAINTY)] = None
    draw: Annotated[Path | None, Option(
        "--draw PATH", "File for a heat map of the probabilities of all arcs, .svg or .html.", panel=UNCERTAINTY,
    )] = None
    draw_network: Annotated[Path | None, Option(
        "--draw-network PATH", "File for a picture of the network with the probabilities of its arcs, .svg or .html.",
        panel=UNCERTAINTY)] = None
    save: Annotated[Path | None, Option(
        "--save NPZ", "File for the whole posterior, which jtgpu.learn.load reads.", panel=UNCERTAINTY)] = None
    threshold: Annotated[str | None, Option(
        "--threshold P|map",
        "Network to write: that of the arcs with a probability above P, or map: of the best graph.", check=_threshold,
        panel=UNCERTAINTY)] = None
    tolerance: Annotated[float | None, Option(
        "--tolerance X", "Largest standard error of a probability, at which Markov chains stop. Default: 0.01.",
        panel=UNCERTAINTY)] = None
    time: Annotated[float | None, Option(
        "--time SECONDS", "Time that all of it should take at most; with --checkpoint, that Markov chains may run.",
        panel=UNCERTAINTY)] = None
    steps: Annotated[int | None, Option("--steps N", "Most steps of a chain.", least=1, panel=UNCERTAINTY)] = None
    chains: Annotated[int | None, Option(
        "--chains N", "Number of chains. Default: 8.", least=4, panel=UNCERTAINTY)] = None
    tempering: Annotated[str | None, Option(
        "--tempering N|auto",
        "Replicas of each chain at flatter distributions, for posteriors with several peaks; auto: if needed.",
        check=_tempering, panel=UNCERTAINTY)] = None
    cluster: ClusterAddress = None
    checkpoint: Annotated[Path | None, Option(
        "--checkpoint PATH", "File for the state of the chains, written every 30 seconds.", panel=UNCERTAINTY)] = None
    resume: Annotated[bool, Option("--resume", "Continue the run of --checkpoint.", panel=UNCERTAINTY)] = False

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

    backend: Annotated[str, Option("--backend NAME", "One of cpu, gpu.", choices=("cpu", "gpu"), panel=RUNNING)] = "cpu"
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


