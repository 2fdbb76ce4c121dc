"""How much several GPUs of one machine are worth: cases a second and slices a second by their number; JSON lines.

    python bench/bench_scaling.py                           all questions with 1, 2, 4 and 8 GPUs, as far as there are
    python bench/bench_scaling.py --questions table --only pigs --counts 1 4
    python bench/bench_scaling.py --smoke                   two workers on the CPU's loops, seconds, nothing kept

``targets`` posteriors of three variables for one table by rows (`posteriors_batch`): forward samples, a tenth observed.
            The cards are what it waits for.
``slices``  one case of a grid of binary variables, cut into slices that take turns on the cards.
``table``   posteriors of all variables: gigabytes of answers, which the host has to put into fresh memory.
``frame``   three targets from an Arrow table (`predict_proba`), three in ten variables observed: alarm. The host again.
``memory``  how fast this host's threads fill fresh memory, with nothing else to do: the limit of the two before it.

The work is the same for every number of GPUs. Times are those of whole calls from Python, after one that compiles and
takes the memory; results must be bit-identical for every number. ``speedup`` is against one GPU of the same run,
``efficiency`` that over the number of GPUs (where a run has no row of one, against its first row, a GPU each). What
the cards bound comes first, and 1, 2 and 4 GPUs are meant to take about a minute.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import ROOT, append, network, row

import jtgpu
from jtgpu import timing
from jtgpu.backends import cpu, make
from jtgpu.backends.wrappers.devices import DevicePool
from jtgpu.formats import bundled
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.util import system

RESULTS = ROOT / "bench" / "results" / "scaling.jsonl"
COUNTS = (1, 2, 4, 8)
TARGETED = {"munin2": 262_144, "link": 16_384, "pigs": 524_288}  # cases: about a second of one H200
TABLES = {"munin2": 65_536}  # 2.8 GB of answers
FRAMES = {"alarm": 20_000_000}
TARGETS = 3
SHARE, FRAME_SHARE = 0.1, 0.3
DRAWN, HIDDEN = 2048, 4099  # different samples, and what is hidden of them: no common divisor, so all rows differ
GRID, GRID_SLICES = 26, ("95", "120", "170", "294", "319")  # what slices="auto" finds for memory_limit="500MB"
SMALL_GRID, SMALL_SLICES = 6, ("14", "21")
FRESH, SMALL_FRESH = 2_800_000_000, 1 << 24  # bytes
PIECE = 4 << 20  # that a thread copies at a time
THREADS = 16  # a card, as the backend has them

Rows = Iterator[dict[str, Any]]


class Machine:
    """The workers that there are, and trees on some of them."""

    def __init__(self, smoke: bool):
        self.smoke = smoke
        if smoke:
            self.n, self.name = 2, system.cpu_name()
            return
        device = importlib.import_module("jtgpu.device.context")
        self.n, self.name = len(device.device_numbers("all")), device.open_device(0).name

    def compile(self, plan: Any, count: int) -> Any:
        """A tree on the first so many workers."""
        if not self.smoke:
            return plan.compile("gpu", devices=list(range(count)))
        fakes = DevicePool(cpu.prepare, [(f"worker {i}", {"threads": 1}) for i in range(count)])
        known = make.device_pool
        make.device_pool = lambda name, devices: fakes
        try:
            return plan.compile("gpu", devices="all")
        finally:
            make.device_pool = known


def scaled(
    machine: Machine, plan: Any, options: argparse.Namespace, n: int, ask: Callable[[Any], Any],
    bits: Callable[[Any], Sequence[NDArray[Any]]], *, name: str, **about: Any,
) -> Rows:  # fmt: skip
    """A row for every number of workers; refuses answers that differ."""
    counts = options.counts
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
            seconds: list[float] = []
            while not seconds or (len(seconds) < options.runs and sum(seconds) < options.seconds):
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


def targets(machine: Machine, options: argparse.Namespace) -> Rows:
    return _by_rows(machine, options, TARGETED, "targets", TARGETS)


def tables(machine: Machine, options: argparse.Namespace) -> Rows:
    return _by_rows(machine, options, TABLES, "table", None)


def _by_rows(
    machine: Machine, options: argparse.Namespace, known: dict[str, int], question: str, n_targets: int | None
) -> Rows:
    for path, n in _chosen(machine, options, known):
        net = jtgpu.read(path)
        plan = net.plan(_order(path), cache=False, memory_limit=float("inf"))
        states = np.resize(samples(net, DRAWN), (n, len(net)))
        hidden = np.random.default_rng(5).random((HIDDEN, len(net)), np.float32) >= SHARE
        np.copyto(states, -1, where=np.resize(hidden, states.shape))
        wanted = None
        if n_targets is not None:
            wanted = sorted(np.random.default_rng(1).permutation(len(net))[:n_targets].tolist())

        def ask(tree: Any, states: NDArray[np.int32] = states, wanted: list[int] | None = wanted) -> Any:
            return tree.posteriors_batch(states, targets=wanted)

        def bits(found: Any) -> list[NDArray[Any]]:
            return [found.log_evidence, found.flat[:: max(len(found.flat) // 500, 1)]]

        cells = int(net.cardinality.sum() if wanted is None else net.cardinality[wanted].sum())
        yield from scaled(
            machine, plan, options, n, ask, bits, name=bundled.stem(path), question=question,
            targets="all" if wanted is None else str(n_targets), answer_bytes=8 * n * (cells + 1),
        )  # fmt: skip


def frames(machine: Machine, options: argparse.Namespace) -> Rows:
    pa = importlib.import_module("pyarrow")
    for path, n in _chosen(machine, options, FRAMES):
        net = jtgpu.read(path)
        plan = net.plan(_order(path), cache=False)
        order = np.random.default_rng(1).permutation(len(net))
        k = max(1, round(FRAME_SHARE * len(net)))
        asked = sorted(order[k : k + TARGETS].tolist())
        names = [net.variables[v] for v in asked]
        few = samples(net, min(n, 128 * DRAWN)).astype(np.int8)
        columns = {}
        for v in sorted(order[:k].tolist()):
            cells = np.resize(few[:, v], n)  # rows may come again: nothing looks for that where cases are cheap
            columns[net.variables[v]] = pa.DictionaryArray.from_arrays(pa.array(cells), pa.array(net.states(v)))
        frame = pa.table(columns)

        def ask(tree: Any, frame: Any = frame, names: list[str] = names) -> Any:
            return tree.predict_proba(frame, names)

        def bits(found: Any) -> list[NDArray[Any]]:
            return [c.to_numpy()[::97] for c in found.columns]

        yield from scaled(
            machine, plan, options, n, ask, bits, name=bundled.stem(path), question="frame", targets=str(TARGETS),
            answer_bytes=8 * n * int(net.cardinality[asked].sum()),
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
        machine, plan, options, plan.n_slices, ask, bits, name=f"grid {size}x{size}", question="slices",
        targets="all", flops=cost.flops, bytes=cost.bytes,
    )  # fmt: skip


def memory(machine: Machine, options: argparse.Namespace) -> Rows:
    """Bytes a second that threads copy from memory in use to memory that was not yet touched."""
    n = SMALL_FRESH if machine.smoke else FRESH
    cores = os.cpu_count() or 1
    source = np.ones(PIECE, np.uint8)
    alone = 0.0
    for threads in sorted({min(cores, k * THREADS) for k in options.counts}):

        def fill() -> float:
            begun = time.perf_counter()
            fresh = np.empty(n, np.uint8)

            def copy(first: int, fresh: NDArray[np.uint8] = fresh) -> None:
                part = fresh[first : first + PIECE]
                part[:] = source[: len(part)]

            list(pool.map(copy, range(0, n, PIECE)))
            return time.perf_counter() - begun

        with ThreadPoolExecutor(threads) as pool:
            fill()  # the machine itself may grow
            spread = timing.Spread.of([fill() for _ in range(options.runs)])
        rate = n / spread.median
        alone = alone or rate
        yield row("scaling", "fresh memory", "numpy", spread, question="memory", targets="-", workers=threads, n=n,
                  per_second=rate, answer_bytes=n, speedup=rate / alone) | {"device": machine.name}  # fmt: skip


QUESTIONS = {"targets": targets, "slices": slices, "table": tables, "frame": frames, "memory": memory}


def _chosen(machine: Machine, options: argparse.Namespace, known: dict[str, int]) -> list[tuple[Path, int]]:
    """Networks and how many cases."""
    if machine.smoke:
        return [(network("asia"), 2000)]
    chosen = {name: int(n * options.share) for name, n in known.items() if not options.only or name in options.only}
    return [(network(name), n) for name, n in chosen.items()]


def _order(path: Path) -> Any:
    """The published elimination order where there is one."""
    published = path.parent / (bundled.stem(path) + ".num")
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


def summary(r: dict[str, Any]) -> str:
    """A line for people."""
    of = f"  {100 * r['efficiency']:.0f} %" if "efficiency" in r else ""
    wrote = f"   {r['answer_bytes'] / r['median'] / 1e9:.1f} GB/s of answers" if "answer_bytes" in r else ""
    return (
        f"{r['network']:<13}{r['question']:<8}{r['targets']:>4} {r['workers']:>2} workers{r['per_second']:>16,.0f}/s  "
        f"x{r['speedup']:.2f}{of}   {r['median']:.3f} s ({r['low']:.3f} - {r['high']:.3f}){wrote}"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=list(QUESTIONS))
    parser.add_argument("--only", nargs="+", help="networks")
    parser.add_argument("--counts", nargs="+", type=int, default=list(COUNTS), help="numbers of GPUs")
    parser.add_argument("--runs", type=int, default=3, help="of each row, at most")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a row's runs, after which none is begun")
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
            print(summary(r), flush=True)
            if not options.smoke:
                append(options.out, [r])


if __name__ == "__main__":
    main()
