"""Time of pictures: layouts, pictures with posteriors and evidence, and what a notebook shows.

    python bench/bench_draw.py [alarm munin ...] [--runs 15] [--smoke]

Rows of bench/results/draw.jsonl, CPU seconds, which other processes disturb little. `minimum` is the figure to
compare; `bytes` is the size of the SVG or HTML text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rows import cpu_seconds, parser_of, row, store

import jtgpu
from jtgpu.model.network import BayesianNetwork
from jtgpu.model.states import StateNumber

NETWORKS = ("asia", "alarm", "hepar2", "andes", "link", "munin")


def rows_of(name: str, runs: int, backend: str) -> list[dict[str, Any]]:
    """The rows of one network."""
    net = jtgpu.load(name)
    assert isinstance(net, BayesianNetwork)
    found = []
    layout = jtgpu.draw.layout(net)
    spread = cpu_seconds(lambda: jtgpu.draw.layout(net), runs)
    found.append(row("draw", name, "layout", spread, width=layout.width, height=layout.height))
    with net.compile(backend) as tree:  # type: ignore[arg-type]
        evidence = {net.variables[-1]: StateNumber(tree.posterior(net.variables[-1]).probabilities.argmax())}
        tree.posteriors(evidence)
        texts: dict[str, Callable[[], str]] = {
            "show": lambda: jtgpu.draw.show(net).svg,
            "show posteriors and priors": lambda: jtgpu.draw.show(tree, evidence).svg,
            "html of posteriors": lambda: tree.posteriors(evidence)._repr_html_(),
            "html of the plan": lambda: tree.plan._repr_html_(),
        }
        for what, make in texts.items():
            found.append(row("draw", name, what, cpu_seconds(make, runs), bytes=len(make().encode())))
    return found


def main() -> None:
    """Measure, print and store."""
    parser = parser_of(__doc__, "draw.jsonl", runs=15)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--backend", default="cpu")
    given = parser.parse_args()
    names, runs, backend = (["asia"], 1, "reference") if given.smoke else (given.networks, given.runs, given.backend)
    for name in names:
        for found in rows_of(name, runs, backend):
            print(f"{name:8} {found['engine']:28} {1e3 * found['minimum']:8.1f} ms  {found.get('bytes', ''):>8}")
            store(given, [found])


if __name__ == "__main__":
    main()
