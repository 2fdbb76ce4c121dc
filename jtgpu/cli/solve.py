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
from typing import Any

from click import BadParameter

from ..errors import TableTooLarge, closest
from ..formats import read_evidence_cases, read_query, save_text
from ..inference.competition import TASKS, TaskLimits, solve_text
from ..options.compute import Compute, Planning
from ..util.system import peak_memory
from ..util.text_table import printable as shown
from .console import print_json
from .declared import Solve
from .networks import read_network
from .planning import order_of
from .tables import status


def solve(o: Solve, plan: Planning, run: Compute) -> None:
    """Run ``jtgpu solve``."""
    model, evidence, query, task, output = _problem(o)
    begun = time.perf_counter()
    seconds = _number_of("INF_TIME")
    options: dict[str, Any] = {"seed": plan.order_seed, "cache": not plan.no_cache}
    limits = TaskLimits(_memory(plan.memory_limit), plan.max_table or None, seconds, options)
    with _deadline(seconds), status("reading", o.progress) as step:
        net = read_network(model)
        if plan.order != "auto" or plan.plan is not None:
            options["order"] = order_of(plan, net, model)
        cases = read_evidence_cases(evidence, net) if evidence is not None else []
        targets = read_query(query, net) if query is not None and task == "MMAP" else []
        text = solve_text(net, cases, task, targets, limits=limits, backend=run.backend, step=step)
        if output != "-":
            save_text(text, output)
    if o.json:
        elapsed = round(time.perf_counter() - begun, 6)
        about = {"model": model, "task": task, "output": output, "seconds": elapsed}
        print_json(about | {"solution": text.splitlines()[1:]})
    elif output == "-":
        print(text, end="")


def _problem(o: Solve) -> tuple[str, str | None, str | None, str, str]:
    """The files of model, evidence and query, the task and the output; raises `BadParameter` for an incomplete task."""
    rest, task = [*o.given], o.task
    if task is None:
        if not rest:
            raise BadParameter(f"missing task: {', '.join(TASKS)}")
        task = rest.pop()
    task = task.upper()
    if task not in (*TASKS, "MAP"):
        raise BadParameter(f"{shown(task)!r} is not a task: {', '.join(TASKS)}{closest(task, TASKS)}")
    model, evidence, query = (
        rest.pop(0) if given is None and rest else given for given in (o.model, o.evidence, o.query)
    )
    if model is None:
        raise BadParameter("missing model")
    if rest:
        raise BadParameter(f"unexpected argument {shown(rest[0])!r}: expected model, evidence, query, task")
    if task == "MMAP" and query is None:
        raise BadParameter("MMAP requires a query file")
    output = o.output if o.output is not None else f"{Path(model).name}.{task}"
    if output != "-" and not (folder := Path(output).absolute().parent).is_dir():
        raise BadParameter(f"cannot write the solution: folder {shown(str(folder))!r} does not exist")
    return model, evidence, query, task, output


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
        raise BadParameter(f"environment variable {name} must be a positive number, not {shown(text)!r}")
    return value


def _memory(given: str | float | None) -> float | str | None:
    """Bytes that a propagation may use: the option, or INF_MEMORY minus what the process already uses."""
    if given is not None:
        return given
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
