"""Time of pictures: layouts, pictures with posteriors and evidence, and what a notebook shows.

    python bench/bench_draw.py [alarm munin ...] [--runs 15] [--smoke]

Rows of bench/results/draw.jsonl, seconds of processor time (`time.process_time`), so that other jobs on the machine
matter less. `minimum` is the figure to compare; `bytes` is the size of the SVG or HTML text.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from rows import ROOT, append, row

import jtgpu
from jtgpu import timing
from jtgpu.model.network import BayesianNetwork

NETWORKS = ("asia", "alarm", "hepar2", "andes", "link", "munin")


def measured(make: Callable[[], Any], runs: int) -> tuple[timing.Spread, Any]:
    """Processor time of a function after a first call, and its last result."""
    seconds, made = [], make()
    for _ in range(runs):
        begin = time.process_time()
        made = make()
        seconds.append(time.process_time() - begin)
    return timing.Spread.of(seconds), made


def rows_of(name: str, runs: int, backend: str) -> list[dict[str, Any]]:
    """The rows of one network."""
    net = jtgpu.load(name)
    assert isinstance(net, BayesianNetwork)
    found = []
    spread, layout = measured(lambda: jtgpu.draw.layout(net), runs)
    found.append(row("draw", name, "layout", spread, width=layout.width, height=layout.height))
    with net.compile(backend) as tree:  # type: ignore[arg-type]
        evidence = {net.variables[-1]: int(tree.posterior(net.variables[-1]).probabilities.argmax())}
        tree.posteriors(evidence)
        for what, make in (
            ("show", lambda: jtgpu.draw.show(net).svg),
            ("show posteriors and priors", lambda: jtgpu.draw.show(tree, evidence).svg),
            ("html of posteriors", lambda: tree.posteriors(evidence)._repr_html_()),
            ("html of the plan", lambda: tree.plan._repr_html_()),
        ):
            spread, text = measured(make, runs)
            found.append(row("draw", name, what, spread, bytes=len(text.encode())))
    return found


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--smoke", action="store_true", help="asia, once, nothing stored")
    given = parser.parse_args()
    names, runs, backend = (["asia"], 1, "reference") if given.smoke else (given.networks, given.runs, given.backend)
    for name in names:
        for found in rows_of(name, runs, backend):
            print(f"{name:8} {found['engine']:28} {1e3 * found['minimum']:8.1f} ms  {found.get('bytes', ''):>8}")
            if not given.smoke:
                append(ROOT / "bench" / "results" / "draw.jsonl", [found])


if __name__ == "__main__":
    main()
