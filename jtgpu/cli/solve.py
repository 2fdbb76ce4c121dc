"""``jtgpu solve``: the command line of the UAI inference competitions."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..errors import TableTooLarge, closest
from ..formats import read_evidence_cases, read_query, save_text
from ..inference.competition import TASKS, Limits, solve_text
from ..model.discrete import DiscreteModel
from ..util.arguments import Option
from ..util.system import peak_memory
from ..util.text_table import printable as shown
from .console import command, print_json
from .networks import read_network
from .options import PLANNING, Backend, Json, Progress, Without
from .planning import PlanOptions
from .tables import status

if TYPE_CHECKING:
    from ..util.options import BackendName

EXAMPLES = ("jtgpu solve model.uai evidence.evid MAR", "jtgpu solve -f model.uai -e evidence.evid -t MPE -o -")


@dataclass(frozen=True)
class TaskFiles:
    """The files of a task, by their letters."""

    model: Annotated[str | None, Option("-f, --model FILE", "Model file.")] = None
    evidence: Annotated[str | None, Option("-e, --evidence FILE", "Evidence file. Default: no evidence.")] = None
    query: Annotated[str | None, Option("-q, --query FILE", "Query file: the variables of MMAP.")] = None
    task: Annotated[str | None, Option("-t, --task TASK", f"{', '.join(TASKS)}.")] = None
    output: Annotated[str | None, Option(
        "-o, --output FILE", "Solution file, replaced if it exists; - for stdout. Default: ./MODEL.TASK.")] = None


@command
def solve(
    given: Annotated[list[str] | None, Option(
        "MODEL [EVIDENCE [QUERY]] TASK",
        f"Files and the task: {', '.join(TASKS)}. Each can be given as an option instead.")] = None,
    *,
    files: TaskFiles,
    order: Annotated[str | None, Option(
        "--order HOW", "Elimination order, as for the other commands.", panel=PLANNING)] = None,
    plan: Annotated[PlanOptions, Without("order", "time_limit")],
    backend: Backend = "auto",
    progress: Progress = None,
    json: Json = False,
) -> None:
    """Solve a task of the UAI competitions and write the competitions' solution file.

    The tasks are PR (in log10), MAR, MPE and MMAP. Solutions are exact. If a model does not fit in memory, the command
    reports its width, writes no file and exits with code 3. The environment variables INF_TIME (seconds) and INF_MEMORY
    (gigabytes) set limits.
    """
    problem = _problem(given or [], files)
    begun = time.perf_counter()
    seconds = _number_of("INF_TIME")
    options: dict[str, Any] = {"seed": plan.order_seed, "cache": not plan.no_cache}
    limits = Limits(_memory(plan.memory_limit), plan.max_table or None, seconds, options)
    with _deadline(seconds), status("reading", progress) as step:
        net = read_network(problem.model)
        if order is not None or plan.saved is not None:
            options["order"] = replace(plan, order=order or "auto").how(net, problem.model)
        text = _solve(problem, net, limits, backend, step)
    if json:
        elapsed = round(time.perf_counter() - begun, 6)
        print_json({
            "model": problem.model, "task": problem.task, "output": problem.output, "seconds": elapsed,
            "solution": text.splitlines()[1:],
        })  # fmt: skip
    elif problem.output == "-":
        print(text, end="")


@dataclass(frozen=True)
class _Problem:
    """A complete task."""

    model: str
    evidence: str | None
    query: str | None
    task: str
    output: str  # "-" for stdout


def _solve(problem: _Problem, net: DiscreteModel, limits: Limits, backend: str, step: Callable[[str], None]) -> str:
    """Solve a task and write its solution file; returns the solution's text."""
    cases = read_evidence_cases(problem.evidence, net) if problem.evidence is not None else []
    targets = read_query(problem.query, net) if problem.query is not None and problem.task == "MMAP" else []
    text = solve_text(net, cases, problem.task, targets, limits=limits, backend=cast("BackendName", backend), step=step)
    if problem.output != "-":
        save_text(text, problem.output)
    return text


def _problem(given: list[str], files: TaskFiles) -> _Problem:
    """The task from positional arguments and options; raises `typer.BadParameter` for an incomplete one."""
    rest = list(given)
    task = files.task
    if task is None:
        if not rest:
            raise typer.BadParameter(f"missing task: {', '.join(TASKS)}")
        task = rest.pop()
    task = task.upper()
    if task not in (*TASKS, "MAP"):
        raise typer.BadParameter(f"{shown(task)!r} is not a task: {', '.join(TASKS)}{closest(task, TASKS)}")
    model, evidence, query = files.model, files.evidence, files.query
    if model is None:
        if not rest:
            raise typer.BadParameter("missing model")
        model = rest.pop(0)
    if evidence is None and rest:
        evidence = rest.pop(0)
    if query is None and rest:
        query = rest.pop(0)
    if rest:
        raise typer.BadParameter(f"unexpected argument {shown(rest[0])!r}: expected model, evidence, query, task")
    if task == "MMAP" and query is None:
        raise typer.BadParameter("MMAP requires a query file")
    output = files.output if files.output is not None else f"{Path(model).name}.{task}"
    if output != "-" and not (folder := Path(output).absolute().parent).is_dir():
        raise typer.BadParameter(f"cannot write the solution: folder {shown(str(folder))!r} does not exist")
    return _Problem(model, evidence, query, task, output)


def _number_of(name: str) -> float | None:
    """A positive number from an environment variable; None if it is not set."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise typer.BadParameter(f"environment variable {name} must be a positive number, not {shown(text)!r}")
    return value


def _memory(given: str | None) -> float | str | None:
    """Bytes that a propagation may use: the option, or INF_MEMORY minus what the process already uses."""
    if given is not None:
        return math.inf if given == "none" else given
    gigabytes = _number_of("INF_MEMORY")
    return None if gigabytes is None else max(1.0, 0.9 * (gigabytes * 1e9 - peak_memory()))


class _OutOfTime(BaseException):
    """Not an `Exception`, so that no error handler intercepts it."""


@contextmanager
def _deadline(seconds: float | None) -> Iterator[None]:
    """Raise `TableTooLarge` after so many seconds of wall-clock or CPU time, whichever comes first."""
    if seconds is None or not hasattr(signal, "setitimer"):
        yield
        return

    def end(_: int, __: FrameType | None) -> None:
        raise _OutOfTime

    timers = ((signal.ITIMER_REAL, signal.SIGALRM), (signal.ITIMER_PROF, signal.SIGPROF))
    before = [signal.signal(number, end) for _, number in timers]
    try:
        for timer, _ in timers:
            signal.setitimer(timer, seconds)
        yield
    except _OutOfTime:
        raise TableTooLarge(f"not finished within INF_TIME ({seconds:g} s); nothing is written") from None
    finally:
        for timer, _ in timers:
            signal.setitimer(timer, 0)
        for (_, number), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)
