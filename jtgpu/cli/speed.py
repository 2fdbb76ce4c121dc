"""``jtgpu time`` and ``warmup``: times of networks, loops compiled in advance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import strftime
from typing import TYPE_CHECKING, Any

from click import BadParameter
from click.exceptions import Exit

from ..errors import BackendUnavailable, JtgpuError, format_bytes
from ..formats.bundled import benchmark_files, stem
from ..options.compute import Compute, Planning
from ..timing import NetworkTiming, time_network, warm_up
from ..util.loops import compile_loops
from ..util.system import cpu_name, peak_memory
from ..util.text_table import counted
from ..util.text_table import printable as shown
from . import INTERRUPTED
from .console import csv_text, exit_code, format_seconds, print_error, print_json, print_stderr
from .declared import Time, Warmup
from .networks import network_files, read_network
from .planning import make_plan, order_of
from .tables import print_report, status

if TYPE_CHECKING:
    from ..published.junction_trees.timetable import TimeTable


def measure_published_table(
    files: Sequence[str], options: Planning, runs: int, step: Callable[[str], None]
) -> TimeTable:
    """Measure the published table of times, one column per network."""
    # raises BackendUnavailable: Without a GPU.
    from ..device.context import open_device
    from ..plans.compiler import model_factors
    from ..published.junction_trees.measure import measure
    from ..published.junction_trees.timetable import TimeTable

    device = open_device()
    columns = []
    for i, file in enumerate(files):
        at = f"{stem(file)} ({i + 1} of {len(files)})"
        step(f"{at}: reading and planning")
        net = read_network(file)
        plan = make_plan(options, net, file).plan
        factors = [f.table for f in model_factors(net)]

        def report(what: str, at: str = at) -> None:
            step(f"{at}: {what}")

        columns.append(measure(stem(file), plan, factors, runs=runs, step=report))
    machine = {
        "device": device.name, "driver": device.driver, "cpu": cpu_name(), "date": strftime("%Y-%m-%d"),
        "order": options.order, "runs": runs,
    }
    return TimeTable(columns, machine)


def _write_published(o: Time, table: TimeTable) -> None:
    """Save, draw and print the published table."""
    # raises BackendUnavailable: For figures without matplotlib.
    if o.save is not None:
        o.save.mkdir(parents=True, exist_ok=True)
        for suffix, text in (("json", table.to_json()), ("csv", table.to_csv()), ("rst", table.to_rst())):
            (o.save / f"times.{suffix}").write_text(text, encoding="utf-8")
    if o.plot is not None:
        try:
            from ..published.junction_trees.measure import draw
        except ImportError as error:
            raise BackendUnavailable(f"--plot requires matplotlib ({error}): pip install matplotlib") from None
        draw(table, o.plot)
    if o.json or o.csv:
        print(table.to_csv(), end="") if o.csv else print_json(table.as_dict())
        return
    head, *rows = table.rows()
    print_report(head, rows, "l" + "r" * (len(head) - 1))
    print(
        "\nmilliseconds here (published, GTX 680), speedup; " + ", ".join(f"{k} {v}" for k, v in table.machine.items())
    )


def time(o: Time, plan: Planning, run: Compute) -> None:
    """Run ``jtgpu time``."""
    if o.json and o.csv:
        raise BadParameter("--json and --csv exclude each other")
    if (o.save is not None or o.plot is not None) and run.backend != "indexed":
        raise BadParameter("--save and --plot require --backend indexed")
    names = network_files(o.files) if o.files else [str(p) for p in benchmark_files()]
    if run.backend == "indexed":
        if o.observed:
            raise BadParameter("the published table is measured without evidence")
        with status("opening the device", run.progress) as step:
            table = measure_published_table(names, plan, o.runs, step)
        _write_published(o, table)
        return
    timings = _measure(names, plan, run, runs=o.runs, evidence_share=o.observed / 100, seed=o.seed)
    if o.json:
        print_json(timings.as_dict())
    elif o.csv:
        print_csv(timings.done)
    elif timings.done:
        print_times(timings.done)
    if timings.interrupted:
        print_stderr(f"interrupted after {len(timings.done)} of {counted(len(names), 'network')}")
        raise Exit(INTERRUPTED)
    if timings.failed:
        raise Exit(exit_code(timings.failed[0][1]))


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


def _measure(names: Sequence[str], plan: Planning, run: Compute, **runs: float) -> _Timings:
    """Time one network after the other; Ctrl-C keeps the times measured so far."""
    timings = _Timings()
    options = plan.keywords()
    options |= runs | {"order_seed": options.pop("seed"), "compile_options": run.threads_option()}
    if plan.plan is not None and len(names) != 1:
        raise BadParameter("a saved plan belongs to one network", param_hint="--plan")
    with status("compiling CPU kernels (takes longer the first time on a machine)", run.progress) as now:
        warm_up(run.backend)
        for i, name in enumerate(names):
            step = _step_of(now, f"{stem(name)} ({i + 1} of {len(names)})")
            try:
                order = plan.order if plan.plan is None else order_of(plan, read_network(name), name)
                timings.done.append(time_network(name, order=order, backend=run.backend, step=step, **options))
            except (JtgpuError, MemoryError) as error:
                print_error(error)
                timings.failed.append((name, error))
            except KeyboardInterrupt:
                timings.interrupted = True
                break
    return timings


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
    runs = counted(t.propagate.runs, "run")
    print(f"\nlargest, total: entries of the largest clique and of all; propagate: median, spread: quartiles of {runs}")
    print(
        shown(f"backend {t.backend} on {t.device}; {_orders(done)}; ")
        + (f"up to {counted(most, 'variable')} observed; " if most else "")
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
    if rows:
        print(csv_text(rows[0], (row.values() for row in rows)), end="")


def warmup(o: Warmup) -> None:
    """Run ``jtgpu warmup``."""
    with status("compiling", o.progress) as now:
        done = compile_loops(now)
    if o.json:
        print_json(done._asdict())
    elif not done.reason:
        print(f"Nothing to do: the loops are part of this installation ({done.place}).")
    elif done.compiled:
        print(f"Compiled {counted(done.compiled, 'loop')} in {format_seconds(done.seconds)}; cached in {done.place}.")
        print(f"The extension module is not used: {done.reason}.")
    else:
        print(f"Nothing to do: all loops are cached in {done.place}.")
