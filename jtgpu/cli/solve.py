"""``jtgpu solve``: the command line of the UAI inference competitions."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from ..errors import TableTooLarge, closest
from ..inference.competition import TASKS, Limits, solve_text
from ..util.system import peak_memory
from .console import guarded, print_json, shown, status
from .options import Backend, Json, MaxTable, MemoryLimit, NoCache, Seed, chosen_order, plan_options, read_network

__all__ = ["solve"]


@guarded
def solve(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL [EVIDENCE [QUERY]] TASK",
            help=f"Files, and the task: {', '.join(TASKS)}. Each may be given by its letter instead.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[str | None, typer.Option("-f", "--model", metavar="FILE", help="The model.")] = None,
    evidence: Annotated[
        str | None, typer.Option("-e", "--evidence", metavar="FILE", help="What is observed. [default: nothing]")
    ] = None,
    query: Annotated[
        str | None, typer.Option("-q", "--query", metavar="FILE", help="The variables that MMAP asks for.")
    ] = None,
    task: Annotated[str | None, typer.Option("-t", "--task", metavar="TASK", help=f"{', '.join(TASKS)}.")] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="The solution; -: stdout. [default: ./MODEL.TASK]"),
    ] = None,
    order: Annotated[
        str | None, typer.Option("--order", metavar="HOW", help="Elimination order, as other commands take it.")
    ] = None,
    memory_limit: MemoryLimit = None,
    max_table: MaxTable = None,
    seed: Seed = 0,
    no_cache: NoCache = False,
    backend: Backend = "auto",
    json: Json = False,
) -> None:
    """Answer a task of the UAI competitions: PR (log10), MAR, MPE, MMAP, into the competitions' solution file.

    Exact, or nothing: a model that does not fit ends with exit code 3 and its width, and no file is written. Honours
    INF_TIME (seconds) and INF_MEMORY (gigabytes) of the environment.
    """
    model, evidence, query, task = _arguments(given or [], model, evidence, query, task)
    if task == "MMAP" and query is None:
        raise typer.BadParameter("MMAP needs a query file")
    begun = time.perf_counter()
    seconds = _number_of("INF_TIME")
    options: dict[str, Any] = plan_options(None, None, None, seed, no_cache)
    if order is not None:
        options["order"] = chosen_order(order, model)
    target = output if output is not None else f"{Path(model).name}.{task}"
    if target != "-" and not (folder := Path(target).absolute().parent).is_dir():  # now, not after hours
        raise typer.BadParameter(f"the solution cannot be written: the folder {shown(str(folder))!r} is not there")
    limits = Limits(_memory(memory_limit), max_table or None, seconds, options)
    with _deadline(seconds), status("reading") as now:
        from ..formats import read_evidence_cases, read_query, save_text

        net = read_network(model)
        cases = read_evidence_cases(evidence, net) if evidence is not None else []
        asked = read_query(query, net) if query is not None and task == "MMAP" else []
        text = solve_text(net, cases, task, asked, limits=limits, backend=backend, step=now)
        if target != "-":
            save_text(text, target)
    if json:
        took = round(time.perf_counter() - begun, 6)
        print_json({"model": model, "task": task, "output": target, "seconds": took, "solution": text.splitlines()[1:]})
    elif target == "-":
        print(text, end="")


def _arguments(
    given: list[str], model: str | None, evidence: str | None, query: str | None, task: str | None
) -> tuple[str, str | None, str | None, str]:
    """Files and task, from their places and from their letters."""
    rest = list(given)
    if task is None:
        if not rest:
            raise typer.BadParameter(f"the task is missing: {', '.join(TASKS)}")
        task = rest.pop()
    task = task.upper()
    if task not in (*TASKS, "MAP"):
        raise typer.BadParameter(f"{shown(task)!r} is no task: {', '.join(TASKS)}{closest(task, TASKS)}")
    if model is None:
        if not rest:
            raise typer.BadParameter("the model is missing")
        model = rest.pop(0)
    if evidence is None and rest:
        evidence = rest.pop(0)
    if query is None and rest:
        query = rest.pop(0)
    if rest:
        raise typer.BadParameter(f"{shown(rest[0])!r} is too much: model, evidence, query, task is all there is")
    return model, evidence, query, task


def _number_of(name: str) -> float | None:
    """A positive number of the environment."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise typer.BadParameter(f"the environment's {name} is {shown(text)!r}, which is no positive number")
    return value


def _memory(given: str | None) -> float | str | None:
    """Bytes that a propagation may take: what was given, or INF_MEMORY less what is taken already."""
    if given is not None:
        return math.inf if given == "none" else given
    gigabytes = _number_of("INF_MEMORY")
    return None if gigabytes is None else max(1.0, 0.9 * (gigabytes * 1e9 - peak_memory()))


class _TimeIsOver(BaseException):
    """No `Exception`: whoever handles errors on the way has nothing to do with it."""


@contextmanager
def _deadline(seconds: float | None) -> Iterator[None]:
    """`TableTooLarge` when the time is over, of the clock or of the processors, whichever is first."""
    if seconds is None or not hasattr(signal, "setitimer"):
        yield
        return

    def end(_: int, __: FrameType | None) -> None:
        raise _TimeIsOver

    timers = ((signal.ITIMER_REAL, signal.SIGALRM), (signal.ITIMER_PROF, signal.SIGPROF))
    before = [signal.signal(number, end) for _, number in timers]
    try:
        for timer, _ in timers:
            signal.setitimer(timer, seconds)
        yield
    except _TimeIsOver:
        raise TableTooLarge(f"not done within the {seconds:g} s of INF_TIME; nothing is written") from None
    finally:
        for timer, _ in timers:
            signal.setitimer(timer, 0)
        for (_, number), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)
