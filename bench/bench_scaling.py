"""How much several GPUs of one machine are worth: cases a second and slices a second by their number; JSON lines.

    python bench/bench_scaling.py                           all questions with 1, 2, 4 and 8 GPUs, as far as there are
    python bench/bench_scaling.py --questions table --only pigs --counts 1 4
    python bench/bench_scaling.py --smoke                   two workers on the CPU's loops, seconds, nothing kept

``table``   posteriors of all variables for one table by rows (`posteriors_batch`): forward samples, a tenth observed.
``frame``   three targets from an Arrow table (`predict_proba`), three in ten variables observed: alarm.
``slices``  one case of a grid of binary variables, cut into slices that take turns on the cards.

The work is the same for every number of GPUs. Times are those of whole calls from Python, after one that compiles and
takes the memory; answers have to have the same bits for every number. ``speedup`` is against one GPU of the same run,
``efficiency`` that over the number of GPUs (where a run has no row of one, against its first row, a GPU each).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import ROOT, append, network, row

import jtgpu
from jtgpu import backends, timing
from jtgpu.backends import cpu
from jtgpu.backends.several import OnDevices
from jtgpu.network import BayesianNetwork, MarkovNetwork

RESULTS = ROOT / "bench" / "results" / "scaling.jsonl"
COUNTS = (1, 2, 4, 8)
TABLES = {"munin2": 65_536, "link": 12_288, "pigs": 262_144}  # cases: about a second of one H200
FRAMES = {"alarm": 20_000_000}
TARGETS = 3
SHARE, FRAME_SHARE = 0.1, 0.3
DRAWN = 2048  # different samples
GRID, GRID_SLICES = 26, ("230", "240", "253", "278", "284")  # what slices="auto" finds for memory_limit="500MB"
SMALL_GRID, SMALL_SLICES = 6, ("14", "21")

Rows = Iterator[dict[str, Any]]


class Machine:
    """The workers that there are, and trees on some of them."""

    def __init__(self, smoke: bool):
        self.smoke = smoke
        if smoke:
            self.n, self.name = 2, timing.cpu_name()
            return
        device = importlib.import_module("jtgpu.backends.device")
        self.n, self.name = len(device.device_numbers("all")), device.open_device(0).name

    def compile(self, plan: Any, count: int) -> Any:
        """A tree on the first so many workers."""
        if not self.smoke:
            return plan.compile("gpu", devices=list(range(count)))
        fakes = OnDevices(cpu.prepare, [(f"worker {i}", {"threads": 1}) for i in range(count)])
        known = backends.on_devices
        backends.on_devices = lambda name, devices: fakes
        try:
            return plan.compile("gpu", devices="all")
        finally:
            backends.on_devices = known


def scaled(
    machine: Machine, plan: Any, counts: Sequence[int], runs: int, n: int, ask: Callable[[Any], Any],
    bits: Callable[[Any], Sequence[NDArray[Any]]], *, name: str, **about: Any,
) -> Rows:  # fmt: skip
    """A row for every number of workers; refuses answers that differ."""
    alone = 0.0
    expected: list[NDArray[Any]] = []
    for count in counts:
        with machine.compile(plan, count) as tree:
            begun = time.perf_counter()
            found = ask(tree)
            first = time.perf_counter() - begun
            here = [x.copy() for x in bits(found)]
            expected = expected or here
            if not all(np.array_equal(a, b) for a, b in zip(expected, here, strict=True)):
                raise SystemExit(f"{name}: {count} workers give other bits than {counts[0]}")
            seconds = []
            for _ in range(runs):
                del found
                begun = time.perf_counter()
                found = ask(tree)
                seconds.append(time.perf_counter() - begun)
            del found
        spread = timing.Spread.of(seconds)
        rate = n / spread.median
        alone = alone or rate / count
        engine = "jtgpu cpu" if machine.smoke else "jtgpu gpu"
        yield row("scaling", name, engine, spread, **about, workers=count, n=n, per_second=rate, first_call=first,
                  speedup=rate / alone, efficiency=rate / alone / count) | {"device": machine.name}  # fmt: skip


def tables(machine: Machine, options: argparse.Namespace) -> Rows:
    for path, n in _chosen(machine, options, TABLES):
        net = jtgpu.read(path)
        plan = net.plan(_order(path), cache=False, memory_limit=float("inf"))
        states = np.resize(samples(net, min(n, DRAWN)), (n, len(net)))
        states[np.random.default_rng(5).random(states.shape, np.float32) >= SHARE] = -1  # hardly two rows are equal

        def ask(tree: Any, states: NDArray[np.int32] = states) -> Any:
            return tree.posteriors_batch(states)

        def bits(found: Any) -> list[NDArray[Any]]:
            return [found.log_evidence, found.flat[:: max(len(found.flat) // 500, 1)]]

        yield from scaled(
            machine, plan, options.counts, options.runs, n, ask, bits, name=timing.stem(path), question="table",
            targets="all",
        )  # fmt: skip


def frames(machine: Machine, options: argparse.Namespace) -> Rows:
    pa = importlib.import_module("pyarrow")
    for path, n in _chosen(machine, options, FRAMES):
        net = jtgpu.read(path)
        plan = net.plan(_order(path), cache=False)
        order = np.random.default_rng(1).permutation(len(net))
        k = max(1, round(FRAME_SHARE * len(net)))
        targets = [net.variables[v] for v in sorted(order[k : k + TARGETS].tolist())]
        few = samples(net, min(n, 128 * DRAWN)).astype(np.int8)
        columns = {}
        for v in sorted(order[:k].tolist()):
            cells = np.resize(few[:, v], n)  # rows may come again: nothing looks for that where cases are cheap
            columns[net.variables[v]] = pa.DictionaryArray.from_arrays(pa.array(cells), pa.array(net.states(v)))
        frame = pa.table(columns)

        def ask(tree: Any, frame: Any = frame, targets: list[str] = targets) -> Any:
            return tree.predict_proba(frame, targets)

        def bits(found: Any) -> list[NDArray[Any]]:
            return [c.to_numpy() for c in found.columns]

        yield from scaled(
            machine, plan, options.counts, options.runs, n, ask, bits, name=timing.stem(path), question="frame",
            targets=str(TARGETS),
        )  # fmt: skip


def slices(machine: Machine, options: argparse.Namespace) -> Rows:
    size, fixed = (SMALL_GRID, SMALL_SLICES) if machine.smoke else (GRID, GRID_SLICES)
    plan = grid(size).plan("min-fill", cache=False, memory_limit=float("inf"), max_table=None, slices=fixed)

    def ask(tree: Any) -> Any:
        return tree.posteriors({"0": "1"})

    def bits(found: Any) -> list[NDArray[Any]]:
        return [np.array(found.log_evidence), *(np.asarray(found[v]) for v in found)]

    cost = plan.cost()
    yield from scaled(
        machine, plan, options.counts, options.runs, plan.n_slices, ask, bits, name=f"grid {size}x{size}",
        question="slices", targets="all", flops=cost.flops, bytes=cost.bytes,
    )  # fmt: skip


QUESTIONS = {"table": tables, "frame": frames, "slices": slices}


def _chosen(machine: Machine, options: argparse.Namespace, known: dict[str, int]) -> list[tuple[Path, int]]:
    """Networks and how many cases."""
    if machine.smoke:
        return [(network("asia"), 2000)]
    chosen = {name: int(n * options.share) for name, n in known.items() if not options.only or name in options.only}
    return [(network(name), n) for name, n in chosen.items()]


def _order(path: Path) -> Any:
    """The published elimination order where there is one."""
    published = path.parent / (timing.stem(path) + ".num")
    return published if published.is_file() else "min-fill"


def samples(net: Any, n: int) -> NDArray[np.int32]:
    """Forward samples: (n, V)."""
    assert isinstance(net, BayesianNetwork)
    rng = np.random.default_rng(3)
    states = np.zeros((n, len(net)), np.int32)
    for name in net.topological_order():
        v, parents = net.index(name), [net.index(p) for p in net.parents(name)]
        table = np.cumsum(net.cpt(name), axis=-1)
        rows = table[tuple(states[:, p] for p in parents)] if parents else table[None]
        drawn = (rng.random(n)[:, None] * rows[:, -1:] >= rows).sum(axis=1)
        states[:, v] = np.minimum(drawn, table.shape[-1] - 1)
    return states


def grid(n: int) -> MarkovNetwork:
    """n x n binary variables of which neighbours interact."""
    rng = np.random.default_rng(n)
    pairs = [(i * n + j, i * n + j + 1) for i in range(n) for j in range(n - 1)]
    pairs += [(i * n + j, (i + 1) * n + j) for i in range(n - 1) for j in range(n)]
    return MarkovNetwork(
        {str(v): ["0", "1"] for v in range(n * n)},
        [([str(a), str(b)], rng.uniform(0.1, 1.0, (2, 2))) for a, b in pairs],
    )


def told(r: dict[str, Any]) -> str:
    """A line for people."""
    return (
        f"{r['network']:<12}{r['question']:<8}{r['targets']:>4} {r['workers']:>2} workers{r['per_second']:>15,.0f}/s  "
        f"x{r['speedup']:.2f}  {100 * r['efficiency']:.0f} %   {r['median']:.3f} s ({r['low']:.3f} - {r['high']:.3f})"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--only", nargs="+", help="networks")
    parser.add_argument("--counts", nargs="+", type=int, default=list(COUNTS), help="numbers of GPUs")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the usual numbers of cases")
    parser.add_argument("--within", type=float, default=1e9, help="seconds after which no other question is begun")
    parser.add_argument("--out", type=Path, default=RESULTS, help="JSON lines are appended to this file")
    parser.add_argument("--smoke", action="store_true", help="shortest run, no GPU; nothing is kept")
    options = parser.parse_args()
    machine = Machine(options.smoke)
    options.counts = [c for c in options.counts if c <= machine.n]
    begun = time.monotonic()
    for question in options.questions:
        if time.monotonic() - begun > options.within:
            print(f"{question}: not begun, {options.within:.0f} s are over", file=sys.stderr)
            continue
        for r in QUESTIONS[question](machine, options):
            print(told(r), flush=True)
            if not options.smoke:
                append(options.out, [r])


if __name__ == "__main__":
    main()
