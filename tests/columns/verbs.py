"""What every verb makes of a column: of its own accord (`LEARN`), and known to a network (the others).

Each answer is brought to one form: the states of column ``x`` in order, or the state that a cell is.
"""

from __future__ import annotations

import csv
import functools
import json
import re
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import jtgpu
from jtgpu import learn, series
from jtgpu.columns import open_table
from tests.cli.commands import run
from tests.columns.table import Error


def answer(ask: Callable[[], Any], expected: Any) -> Any:
    """The answer; for an error that is expected, the expected one if the message fits, else the message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return ask()
    except jtgpu.JtgpuError as error:
        fits = isinstance(expected, Error) and re.search(expected, str(error))
        return expected if fits else f"error: {error}"


Learner = Callable[[Any, Path], tuple[str, ...]]


def explored(table: Any, folder: Path) -> tuple[str, ...]:
    output = folder / "explored.net"
    done = run("explore", str(table), "--seconds", "0", "--no-serve", "--json", "--force", "-o", str(output))
    if done.exit_code:
        raise jtgpu.DataError(done.stderr)
    return jtgpu.read(output).states("x")


LEARN: dict[str, Learner] = {
    "structure": lambda t, _: learn.structure(t, missing="drop").network().states("x"),
    "posterior": lambda t, _: learn.posterior(t, missing="drop").network().states("x"),
    "fit": lambda t, _: learn.fit({"y": ["x"]}, t).network.states("x"),
    "explore": explored,  # only files
}


def classified(table: Any, folder: Path) -> tuple[str, ...]:
    classes = ["uv"[i % 2] for i in range(open_table(None, table).n)]
    net: jtgpu.BayesianNetwork = learn.JunctionTreeClassifier().fit(table, classes).network_
    return net.states("x")


def shifted(table: Any, folder: Path) -> tuple[str, ...]:
    made = open_table(None, series.two_slices(table, bins=None)).column("x[t]")
    return LEARN["fit"]({"x": made, "y": ["uv"[i % 2] for i in range(len(made))]}, folder)


LEARN_TABLES: dict[str, Learner] = {"classifier": classified, "two_slices": shifted}  # only in memory


class Known:
    """A network of ``x``, with these states, and its child ``y``, whose distribution tells the state."""

    def __init__(self, states: tuple[str, ...]):
        n = len(states)
        self.up = [(k + 1) / (n + 1) for k in range(n)]  # of y = u given x; what x not observed gives is no other's
        self.states = states
        prior = np.arange(1.0, n + 1) / sum(range(1, n + 1))
        given_x = [[p, 1 - p] for p in self.up]
        self.net = jtgpu.BayesianNetwork({"x": list(states), "y": ["u", "v"]}, {"y": ["x"]}, {"x": prior, "y": given_x})
        self.tree = self.net.compile("cpu")
        self.slices = jtgpu.DynamicNetwork(
            {"x": list(states), "y": ["u", "v"]}, {"x": [("x", 1)], "y": ["x"]},
            {"x": [[1 / n] * n] * n, "y": given_x}, start={"x": prior},
        ).compile("cpu")  # fmt: skip
        self.mixed = jtgpu.MixedNetwork(
            {"x": list(states), "z": float}, {"z": ["x"]},
            {"x": prior, "z": jtgpu.Gaussian([float(k) for k in range(n)])},
        ).compile("cpu")  # fmt: skip

    def by_up(self, p: float) -> str | None:
        """The state at which y = u has this probability."""
        k = int(np.argmin(np.abs(np.array(self.up) - p)))
        return self.states[k] if abs(self.up[k] - p) < 1e-9 else None

    def by_weights(self, weights: Any) -> str | None:
        """The state that has all, or nearly all, of the weight."""
        found = np.asarray(weights, dtype=float)
        k = int(found.argmax())
        return self.states[k] if found[k] > 0.99 * found.sum() else None


known = functools.cache(Known)


def first(path: Path, column: str) -> float:
    """The first number of a column of a CSV file."""
    with path.open(encoding="utf-8") as file:
        return float(next(csv.DictReader(file))[column])


def batch(net: Known, table: Path, folder: Path) -> str | None:
    jtgpu.cases.answer_file(net.tree, table, folder / "answers.csv", targets="y", force=True)
    return net.by_up(first(folder / "answers.csv", "y=u"))


def filtered_file(net: Known, table: Path, folder: Path) -> str | None:
    path, output = folder / "known.dynamic.json", folder / "slices.csv"
    jtgpu.write(net.slices.network, path)
    columns = ("--id", "id", "--time", "t", "-t", "y")
    done = run("dynamic", "filter", str(path), str(table), *columns, "-o", str(output), "--force", "--no-progress")
    if done.exit_code:
        raise jtgpu.EvidenceError(done.stderr)
    return net.by_up(first(output, "y=u"))


def fitted(net: Known, table: Any, folder: Path) -> str | None:
    fit = learn.fit(net.net, table, pseudo_counts=1e-6)
    return None if fit.missing.cells.get("x") else net.by_weights(fit.network.cpt("x"))


def validated(net: Known, table: Any, folder: Path) -> str | None:
    return net.by_up(float(np.exp(-learn.validate(net.tree, table, "y").log_loss)))


def checked(net: Known, table: Any, folder: Path) -> str | None:
    return net.by_weights(learn.check(net.net, table, "x").observed)


def updated(net: Known, table: Any, folder: Path) -> str | None:
    online = learn.Online(net.net, experience=1e-6)
    online.update(table)
    return net.by_weights(online.network.cpt("x"))


def filtered(net: Known, table: Any, folder: Path) -> str | None:
    return net.by_up(
        float(net.slices.filter(table, keys=jtgpu.learn.Keys(id="id", time="t"), targets="y")["y"][0, 0, 0])
    )


def predicted(net: Known, table: Any, folder: Path) -> str | None:
    found = net.tree.predict_proba(table, "y")
    return net.by_up(found[0]["y=u"] if isinstance(found, list) else float(np.asarray(found["y=u"])[0]))


def by_numbers(net: Known, table: Any, folder: Path) -> str | None:
    place = float(net.mixed.posteriors_batch(table, targets="z")["z"].mean[0])
    return net.states[round(place)] if abs(place - round(place)) < 1e-9 else None


Reader = Callable[[Known, Any, Path], str | None]
BOTH: dict[str, Reader] = {"fit": fitted, "validate": validated, "check": checked}  # files and tables in memory
FILES: dict[str, Reader] = {"batch": batch, "sequence file": filtered_file}
TABLES: dict[str, Reader] = {
    "posteriors_batch": lambda net, table, _: net.by_weights(net.tree.posteriors_batch(table)["x"][0]),
    "predict_proba": predicted,
    "Online": updated,
    "filter": filtered,
    "mixed": by_numbers,
}


def by_option(net: Known, cell: str, folder: Path) -> str | None:
    path = folder / "known.net"
    jtgpu.write(net.net, path)
    done = run("query", str(path), "-e", f"x={cell}", "-t", "y", "--json", "--backend", "reference")
    if done.exit_code:
        raise jtgpu.EvidenceError(done.stderr)
    return net.by_up(json.loads(done.stdout)["posteriors"]["y"]["probabilities"][0])


CASES: dict[str, Reader] = {  # of a cell alone
    "posterior": lambda net, cell, _: net.by_weights([*net.tree.posterior("x", {"x": cell}).values()]),
    "mixed posterior": lambda net, cell, _: net.by_weights([*net.mixed.posterior("x", {"x": cell}).values()]),
    "-e": by_option,
}


APPS: list[Any] = []  # to be closed


@functools.cache
def served(net: Known) -> Any:
    """A client of an application with the network."""
    from jtgpu.serve import App
    from tests.serve.client import Client

    APPS.append(App({"x": net.tree}))
    return Client(APPS[-1])


def posted(net: Known, table: Path, folder: Path) -> str | None:
    kind = {".csv": "text/csv", ".tsv": "text/tab-separated-values"}.get(table.suffix, "application/octet-stream")
    found = served(net).request(
        "POST", "/v1/networks/x/table?targets=y&format=csv", content=table.read_bytes(), headers={"content-type": kind}
    )
    if found.status_code != 200:
        raise jtgpu.EvidenceError(found.json()["detail"])
    return net.by_up(float(next(csv.DictReader(found.text.splitlines()))["y=u"]))


def asked(net: Known, cell: Any, folder: Path) -> str | None:
    body = {"evidence": {"x": cell}, "targets": ["y"]}
    found = served(net).request("POST", "/v1/networks/x/posteriors", json=body)
    if found.status_code != 200:
        raise jtgpu.EvidenceError(found.json()["detail"])
    return net.by_up(found.json()["posteriors"]["y"][0])


if not [n for n in ("starlette", "msgspec", "prometheus_client", "httpx") if find_spec(n) is None]:
    FILES["HTTP table"] = posted
    CASES["HTTP evidence"] = asked
