"""How networks are learned: `EM`, of parameters; `Search`, `Constraints` and `Chains`, of structures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from ..errors import ArgumentError
from .record import Opt, Record

MAX_ENTRIES = 100_000_000  # of a CPT


class Keys(Record, title="Sequences"):
    """How the rows of a table form sequences."""

    id: Annotated[str | None, Opt(
        "Column that names the sequence of each row. Default: all rows are one sequence.", "--id COLUMN",
        front=True)] = None
    time: Annotated[str | None, Opt(
        "Column of times, numbers or dates, which increase in each sequence. Default: the rows are in order.",
        "--time COLUMN", front=True)] = None
    on_gap: Annotated[Literal["error", "empty"], Opt(
        "Whether a missing time (of whole numbers) is an error or a slice without observations.")] = "error"


class EM(Record, title="EM"):
    """How EM runs."""

    start: Annotated[Literal["auto", "given", "counts", "uniform", "random"] | Any, Opt(
        "Where EM starts: auto (counts, random tables of hidden variables), given (the network), counts, uniform, "
        "random.", "--start HOW", python="Or another network of the structure.")] = "auto"
    zeros: Annotated[Literal["keep", "free"], Opt(
        "With start given: whether entries of 0 stay 0 whatever is added to the counts, or may change.")] = "keep"
    restarts: Annotated[int, Opt("Number of starts; the best result counts.", least=1, front=True)] = 1
    seed: Annotated[int, Opt("Random seed.", least=0)] = 0
    iterations: Annotated[int, Opt("Passes over the cases, at most.", least=1, front=True)] = 200
    tolerance: Annotated[float, Opt("Relative change of the objective that ends EM.", least=0)] = 1e-7
    accelerate: Annotated[bool, Opt("Extrapolate where that helps.", "--accelerate/--no-accelerate")] = True
    stepwise: Annotated[float | None, Opt(
        "Stepwise EM, in one pass: chunk k has the share (k + 2) ** -X, 0.5 < X <= 1.", above=0.5, most=1)] = None
    standard_errors: Annotated[Literal["information", "scores"] | None, Opt(
        "Compute standard errors: from the curvature of the objective, a pass for each parameter of incomplete "
        "families; or, right where the model is, from outer products of the scores of cases, one pass.")] = None
    on_error: Annotated[Literal["error", "flag"], Opt(
        "Rows of probability 0 at the start: error, or flag, which leaves them out and counts them.")] = "error"
    order: Annotated[Any, Opt("Elimination order of the passes.")] = "auto"
    max_cpt: Annotated[int, Opt("Entries of the largest CPT.", least=1)] = MAX_ENTRIES
    checkpoint: Annotated[Path | str | None, Opt("File that is written between iterations.")] = None
    resume: Annotated[bool, Opt(
        "Continue from the checkpoint if it exists and has the same data and options.")] = False


def _count(above: int, *words: str) -> Any:
    def check(text: str) -> int | str:
        if text in words:
            return text
        if not (text.isascii() and text.isdigit() and int(text) > above):
            raise ArgumentError(f"{text!r} is neither a number above {above}, nor {' or '.join(words)}")
        return int(text)

    return check


class Search(Record, title="Search"):
    """Where the search for a graph begins, and which parents it considers."""

    candidates: Annotated[int | Literal["auto", "all"] | Mapping[str, Any], Opt(
        "Candidate parents of each variable: more take longer. auto: 16, of chains 12, or as memory allows.",
        "--candidates N|all", check=_count(0, "auto", "all"), python="Or a mapping from names to parents.")] = "auto"
    start: Annotated[Any, Opt(
        "Network file with the graph to start from.", "--start NET",
        python="Or a network, a graph, a mapping from child to parents, or arcs (parent, child).")] = None
    restarts: Annotated[int, Opt(
        "Of greedy and tabu: how often to search again, from the best graph after random moves.", least=0)] = 0
    # of the same data with the same score, from `jtgpu.learn.score_table` or a score file
    scores: Annotated[Any, Opt("Scores of the families; they are computed otherwise.")] = None


class Constraints(Record, title="Constraints"):
    """Which graphs are possible."""

    forbidden: Annotated[Iterable[Any], Opt(
        "The graph must not have the arc from A to B. Repeatable.", "--forbid A,B")] = ()
    required: Annotated[Iterable[Any], Opt(
        "The graph must have the arc from A to B. Repeatable.", "--require A,B")] = ()
    tiers: Annotated[Sequence[Any] | None, Opt(
        "Variables of a tier: no arc points from a later --tier to an earlier one. Repeatable.",
        "--tier A,B,...")] = None
    within_tiers: Annotated[bool, Opt(
        "Whether arcs between variables of the same tier are possible.", "--within-tiers/--no-within-tiers")] = True


class Chains(Record, title="Markov chains"):
    """How probabilities of arcs are computed, by Markov chains beyond 13 variables."""

    tolerance: Annotated[
        float, Opt("Largest standard error of a probability, at which Markov chains stop.", above=0)
    ] = 0.01
    steps: Annotated[int | None, Opt("Maximum number of steps of a chain.", least=1)] = None
    n_chains: Annotated[int | Literal["auto"], Opt(
        "Number of chains. Default: 8.", "--chains N", check=_count(3, "auto"))] = "auto"
    tempering: Annotated[bool | int | Literal["auto"], Opt(
        "Replicas of each chain at flatter distributions, for posteriors with several peaks; auto: if needed.",
        "--tempering N|auto", check=_count(1, "auto"))] = False
    blocks: Annotated[int, Opt(
        "Blocks of 4 variables whose parents are drawn together, exactly, in each chain after 1,000 steps, such as 50: "
        "for chains that stay apart in graphs with several arcs turned.", "--blocks N", least=0)] = 0
    checkpoint: Annotated[Path | str | None, Opt(
        "File for the state of the chains, written every 30 seconds.")] = None
