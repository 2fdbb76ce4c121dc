"""``jtgpu time``: sizes and times of networks, in a table."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..errors import JtgpuError, format_bytes
from ..formats.bundled import benchmark_files, stem
from ..timing import NetworkTiming, time_network, warm_up
from ..util.system import peak_memory
from ..util.text_table import printable as shown
from .console import command, exit_code, format_seconds, print_error, print_json
from .networks import network_files, read_network
from .options import Without
from .planning import PlanOptions, RunOptions
from .process import INTERRUPTED
from .published import TableOutput, measure_published_table
from .tables import print_report, status

if TYPE_CHECKING:
    from ..util.options import BackendName

EXAMPLES = ("jtgpu time nets --runs 10 --json > times.json", "jtgpu time munin1 --observed 10 --threads 1")


@command
def time(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|FOLDER",
            help="Network files, or folders of them. Default: the seven networks of the published table.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[int, typer.Option(metavar="N", min=1, help="Timed propagations, after one that is not timed.")] = 5,
    observed: Annotated[
        float,
        typer.Option("--observed", metavar="PERCENT", min=0.0, max=100.0, help="Share of the variables to observe."),
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed of the observations.")] = 0,
    *,
    plan: PlanOptions,
    run: Annotated[RunOptions, Without("dtype", "devices")],
    output: TableOutput,
) -> None:
    """Time reading, planning, compiling and propagating.

    One propagation takes one case and computes the posteriors of all variables. A network that fails is reported on
    stderr and the others continue; the exit code is that of the first failure.

    With --backend indexed, measure every row of the published table of times and print it next to the published
    figures.
    """
    output.check(run.backend)
    names = network_files(files) if files else [str(p) for p in benchmark_files()]
    if run.backend == "indexed":
        if observed:
            raise typer.BadParameter("the published table is measured without evidence")
        with status("opening the device", run.progress) as step:
            table = measure_published_table(names, plan, runs, step)
        output.write(table)
        return
    timings = _measure(names, plan, run, _Runs(runs, observed / 100, seed))
    if output.json:
        print_json(timings.as_dict())
    elif output.as_csv:
        print_csv(timings.done)
    elif timings.done:
        print_times(timings.done)
    if timings.interrupted:
        print(f"jtgpu: interrupted after {len(timings.done)} of {len(names)} networks", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if timings.failed:
        raise typer.Exit(exit_code(timings.failed[0][1]))


@dataclass
class _Timings:
    """Times of several networks, and the networks that failed."""

    done: list[NetworkTiming] = field(default_factory=list)
    failed: list[tuple[str, JtgpuError | MemoryError]] = field(default_factory=list)
    interrupted: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "networks": [t.as_dict() for t in self.done],
            "failed": [{"file": n, "error": type(e).__name__, "message": str(e)} for n, e in self.failed],
            "peak_memory": peak_memory(),
        }


@dataclass(frozen=True)
class _Runs:
    """How the propagations are timed."""

    runs: int
    evidence_share: float
    seed: int


def _measure(names: Sequence[str], plan: PlanOptions, run: RunOptions, runs: _Runs) -> _Timings:
    """Time one network after the other; Ctrl-C keeps the times measured so far."""
    found = _Timings()
    options = plan.keywords()
    options |= asdict(runs) | {"order_seed": options.pop("seed"), "compile_options": run.threads_option()}
    if plan.saved is not None and len(names) != 1:
        raise typer.BadParameter("a saved plan belongs to one network", param_hint="--plan")
    with status("compiling CPU kernels (takes longer the first time on a machine)", run.progress) as now:
        backend = cast("BackendName", run.backend)
        warm_up(backend)
        for i, name in enumerate(names):
            step = _step_of(now, f"{stem(name)} ({i + 1} of {len(names)})")
            try:
                order = plan.order if plan.saved is None else plan.how(read_network(name), name)
                found.done.append(time_network(name, order=order, backend=backend, step=step, **options))
            except (JtgpuError, MemoryError) as error:
                print_error(error)
                found.failed.append((name, error))
            except KeyboardInterrupt:
                found.interrupted = True
                break
    return found


def _step_of(now: Callable[[str], None], network: str) -> Callable[[str], None]:
    return lambda what: now(f"{network}: {what}")


def print_times(done: list[NetworkTiming]) -> None:
    """Print one row per network, and below the table what all rows have in common."""
    head = ("network", "cliques", "largest", "total", "read", "plan", "compile", "first", "propagate", "spread")
    rows = []
    for t in done:
        seconds = (t.read, t.plan, t.compile, t.first, t.propagate.median)
        spread = f"{format_seconds(t.propagate.low)} - {format_seconds(t.propagate.high)}"
        sizes = (t.cliques, t.largest, t.entries)
        rows.append((t.network, *(f"{n:,}" for n in sizes), *map(format_seconds, seconds), spread))
    print_report(head, rows, "l" + "r" * (len(head) - 1))
    t = done[0]
    most = max(x.observed for x in done)
    runs = f"{t.propagate.runs} run{'s' if t.propagate.runs != 1 else ''}"
    print(f"\nlargest, total: entries of the largest clique and of all; propagate: median, spread: quartiles of {runs}")
    print(
        shown(f"backend {t.backend} on {t.device}; {_orders(done)}; ")
        + (f"up to {most} variables observed; " if most else "")
        + f"peak memory {format_bytes(peak_memory())}"
    )


def _orders(done: list[NetworkTiming]) -> str:
    """The elimination orders of all rows; order files by name if they differ."""
    orders = list(dict.fromkeys(t.order for t in done))
    return f"order{'s' if len(orders) > 1 else ''} {', '.join(orders)}"


def print_csv(done: list[NetworkTiming]) -> None:
    """Print one row per network, with times in seconds."""
    rows: list[dict[str, Any]] = []
    for t in done:
        row = t.as_dict()
        spread = row.pop("propagate")
        rows.append(row | {f"propagate_{k}": v for k, v in spread.items()})
    if not rows:
        return
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
