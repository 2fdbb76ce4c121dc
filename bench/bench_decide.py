"""Decision networks compared with pyAgrum, in the same run.

    python bench/bench_decide.py            everything
    python bench/bench_decide.py --smoke    small networks, one run, nothing stored

CPU seconds of compiling and solving, of runs that alternate between the engines; expected utilities are compared before
anything is timed, and stand in the rows.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rows import ROOT, cpu_seconds, parser_of, row, store

sys.path.insert(0, str(ROOT))
from jtgpu.decisions.solve import PolicyCase
from jtgpu.timing import Spread
from tests.decisions.test_policies import pigs
from tests.support.diagrams import pyagrum_diagram, pyagrum_value


def compared(name: str, works: dict[str, Callable[[], float]], runs: int) -> list[dict[str, Any]]:
    """Rows of some engines that solve the same network."""
    values = {engine: work() for engine, work in works.items()}
    seconds: dict[str, list[float]] = {engine: [] for engine in works}
    for _ in range(runs):
        for engine, work in works.items():
            gc.collect()  # none collects the garbage of another one
            begin = time.process_time()
            work()
            seconds[engine].append(time.process_time() - begin)
    for engine, value in values.items():
        if engine.startswith("jtgpu") and "pyagrum" in values:
            assert value >= values["pyagrum"] - 1e-6, (name, values)
        print(f"{name:14} {engine:20} {value:12.6f} {Spread.of(seconds[engine]).median * 1e3:9.2f} ms")
    return [
        row("decide", name, engine, Spread.of(spent), expected_utility=values[engine])
        for engine, spent in seconds.items()
    ]


def tables(runs: int) -> list[dict[str, Any]]:
    """Options of 1,000 cases of a network of 19 variables and 7 utilities, and an update of one of 100 months."""
    net, rng = pigs(7), np.random.default_rng(0)
    tree = net.compile(threads=1)
    cases = {f"t{t}": rng.choice(net.states(f"t{t}"), 1000).tolist() for t in range(1, 7)}
    first = cpu_seconds(lambda: tree.options_batch("d1", cases), runs)
    evaluator = pigs(100).compile(threads=1)._solver.evaluator
    case, tables = PolicyCase(evaluator, None), (np.eye(2), np.eye(2)[::-1].copy())
    d = min(evaluator.scopes)

    def updates() -> None:
        for i in range(100):
            case.worth(d)
            case.set(d, tables[i % 2])

    second = cpu_seconds(updates, runs)
    worth = cpu_seconds(lambda: tree.value_of_information("d6"), max(1, runs // 3))
    print(f"options of 1,000 cases {first.median * 1e3:.2f} ms, 100 updates {second.median * 1e3:.2f} ms")
    print(f"value of information, 11 candidates {worth.median * 1e3:.2f} ms")
    return [row("decide", "pigs-7", "jtgpu options of 1,000 cases", first),
            row("decide", "pigs-7", "jtgpu value of information, all candidates", worth),
            row("decide", "pigs-100", "jtgpu 100 updates", second)]  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__, "decide.jsonl")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for months in (4,) if arguments.smoke else (30, 100):
        net = pigs(months)
        works: dict[str, Callable[[], float]] = {
            "jtgpu": lambda net=net: net.compile(threads=1).policy(restarts=0).expected_utility  # type: ignore[misc]
        }
        tree = net.compile(threads=1)
        solver = tree._solver
        works["jtgpu, 10 restarts"] = lambda net=net: net.compile(threads=1).policy().expected_utility  # type: ignore[misc]
        works["jtgpu compiled"] = lambda solver=solver: solver.solve(restarts=0).expected_utility  # type: ignore[misc]
        diagram = pyagrum_diagram(net)
        if diagram is not None:
            works["pyagrum"] = lambda diagram=diagram: pyagrum_value(diagram)  # type: ignore[misc]
        rows += compared(f"pigs-{months}", works, 1 if arguments.smoke else 15)
    recalled = pigs(3 if arguments.smoke else 10).no_forgetting()
    works = {"jtgpu": lambda: recalled.compile(threads=1).policy().expected_utility}
    diagram = pyagrum_diagram(recalled)
    if diagram is not None:
        works["pyagrum"] = lambda: pyagrum_value(diagram)
    rows += compared(f"recall-{len(recalled.decisions) + 1}", works, 1 if arguments.smoke else 7)
    rows += tables(1 if arguments.smoke else 15)
    store(arguments, rows)


if __name__ == "__main__":
    main()
