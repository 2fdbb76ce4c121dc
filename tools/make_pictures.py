"""Write the pictures of the README and of docs/ to docs/pictures; tests compare them with what this script makes.

    python tools/make_pictures.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jtgpu  # noqa: E402
from jtgpu.draw.html import draw_tornado  # noqa: E402

FOLDER = ROOT / "docs" / "pictures"


def simulated_sensors() -> dict[str, NDArray[np.float64]]:
    """The series of docs/series.rst."""
    rng = np.random.default_rng(1)
    load, heat = np.zeros(5000), np.zeros(5000)
    for t in range(2, 5000):
        load[t] = 0.8 * load[t - 1] + rng.standard_normal()
        heat[t] = 0.5 * heat[t - 1] + 0.4 * heat[t - 2] + 0.5 * load[t - 1] + rng.standard_normal()
    return {"load": load, "heat": heat}


def wildcatter() -> jtgpu.DecisionNetwork:
    """The network of docs/decisions.rst."""
    done = [[0.6, 0.3, 0.1, 0.0], [0.3, 0.4, 0.3, 0.0], [0.1, 0.4, 0.5, 0.0]]
    return jtgpu.DecisionNetwork(
        {
            "oil": ["dry", "wet", "soaking"], "test": ["yes", "no"],
            "seismic": ["none", "open", "closed", "not done"], "drill": ["yes", "no"],
        },
        {"seismic": ["oil", "test"], "drill": ["test", "seismic"], "cost": ["test"], "gain": ["oil", "drill"]},
        {"oil": [0.5, 0.3, 0.2], "seismic": np.array([[row, [0.0, 0.0, 0.0, 1.0]] for row in done])},
        decisions=["test", "drill"], utilities={"cost": [-10, 0], "gain": [[-70, 0], [50, 0], [200, 0]]},
    )  # fmt: skip


def pictures() -> dict[str, str]:
    """Text of each file, by name; the same on every machine."""
    drawings = {}
    plan = jtgpu.load("asia").plan("min-fill")
    with plan.compile("reference") as tree:
        drawings["evidence"] = jtgpu.draw.show(tree, {"xray": "yes", "smoke": ["yes", "no"]}, targets="lung")
        drawings["tree"] = jtgpu.draw.show(plan)
        drawings["kinds"] = jtgpu.draw.show(
            tree, {"xray": "yes"}, likelihood={"dysp": [0.9, 0.2]}, soft={"bronc": [0.5, 0.5]}, do={"tub": "no"}
        )
        drawings["tornado"] = draw_tornado(tree.sensitivity(("lung", "yes"), {"xray": "yes"}))
    drawings["around"] = jtgpu.draw.show(jtgpu.load("munin"), around="R_MEDD2_LD_WD", hops=2)
    drawings["decisions"] = jtgpu.draw.show(wildcatter().compile("reference"), {"test": "yes", "seismic": "open"})
    net = jtgpu.load("asia")
    assert isinstance(net, jtgpu.BayesianNetwork)
    index = {v: i for i, v in enumerate(net.variables)}
    dags = np.zeros((net.n_arcs, len(net), len(net)), bool)  # each arc left out once
    for s, left_out in enumerate(net.arcs):
        for u, v in net.arcs:
            dags[s, index[u], index[v]] = (u, v) != left_out
    drawings["ranks"] = jtgpu.draw.show_ranks(net, jtgpu.graphs.betweenness_posterior(dags, net.variables))
    sensors = simulated_sensors()
    fit = jtgpu.series.ar(sensors, order="bic", backend="reference")
    drawings["series"] = jtgpu.draw.show_series(sensors, fit)
    return {f"{name}.svg": drawing.text(".svg") for name, drawing in drawings.items()}


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name, f"{len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()
