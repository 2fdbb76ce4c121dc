"""Other packages that learn structures, on the rows of bench_learn.py: pyAgrum, pgmpy, causal-learn.

What is not installed is left out. sumu 0.1.2, which samples posteriors, installs with NumPy 1 but ends in a TypeError
on Python 3.11 when it allocates its scores.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rows import cpu_seconds

from jtgpu import timing
from jtgpu.learn.dags.scores.coded import CodedTable

Arcs = NDArray[np.bool_]
Learn = Callable[[], Arcs]


def peer_graphs(table: CodedTable, runs: int, *, slow: bool) -> Iterator[tuple[str, Arcs, timing.Spread]]:
    """Graphs that other packages learn from the same rows, and their CPU seconds.

    Parameters
    ----------
    table : CodedTable
    runs : int
    slow : bool
        Also those that take minutes beyond ten variables.
    """
    makers: list[tuple[str, str, Callable[[], Learn]]] = [
        ("pyagrum", "tabu", lambda: _pyagrum(table, "useLocalSearchWithTabuList")),
        ("pyagrum", "hill climbing", lambda: _pyagrum(table, "useGreedyHillClimbing")),
        ("pgmpy", "hill climbing, BIC", lambda: _pgmpy(table)),
    ]
    if slow:
        makers.append(("causal-learn", "BOSS, BDeu", lambda: _causal_learn(table)))
    for package, engine, make in makers:
        try:
            learn = make()
        except ImportError:
            continue
        found = learn()
        yield f"{package} {metadata.version(package)}, {engine}", found, cpu_seconds(learn, min(runs, 3))


def bootstrapped(table: CodedTable, samples: int) -> NDArray[np.float64] | None:
    """Share of each arc among the graphs that pyAgrum's hill climbing finds for resampled rows; None without it."""
    rng, total = np.random.default_rng(0), np.zeros((len(table.names),) * 2)
    for _ in range(samples):
        rows = rng.integers(0, table.codes.shape[1], table.codes.shape[1])
        resampled = CodedTable(table.names, table.states, np.ascontiguousarray(table.codes[:, rows]))
        try:
            total += _pyagrum(resampled, "useGreedyHillClimbing")()
        except ImportError:
            return None
    return total / samples


def _frame(table: CodedTable) -> Any:
    pandas = importlib.import_module("pandas")
    return pandas.DataFrame({v: np.array(table.states[i])[table.codes[i]] for i, v in enumerate(table.names)})


def _arcs(table: CodedTable, pairs: Any) -> Arcs:
    arcs = np.zeros((len(table.names),) * 2, np.bool_)
    for u, v in pairs:
        arcs[table.names.index(u), table.names.index(v)] = True
    return arcs


def _pyagrum(table: CodedTable, choose: str) -> Learn:
    """BDeu, ess 1, up to three parents."""
    pyagrum, frame = importlib.import_module("pyagrum"), _frame(table)
    template = pyagrum.BayesNet()
    for v, states in zip(table.names, table.states, strict=True):
        template.add(pyagrum.LabelizedVariable(v, "", list(states)))

    def learn() -> Arcs:
        learner = pyagrum.BNLearner(frame, template)
        learner.setNumberOfThreads(1)
        learner.useScoreBDeu()
        learner.setMaxIndegree(3)
        getattr(learner, choose)()
        bn = learner.learnBN()
        return _arcs(table, ((bn.variable(u).name(), bn.variable(v).name()) for u, v in bn.arcs()))

    return learn


def _pgmpy(table: CodedTable) -> Learn:
    """BIC, its default score for discrete data, up to three parents."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimators, frame = importlib.import_module("pgmpy.estimators"), _frame(table)

    def learn() -> Arcs:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            search = estimators.HillClimbSearch(frame)
            return _arcs(table, search.estimate(scoring_method="bic-d", max_indegree=3, show_progress=False).edges())

    return learn


def _causal_learn(table: CodedTable) -> Learn:
    """BOSS by BDeu; its undirected edges are arcs from the first variable to the second."""
    boss = importlib.import_module("causallearn.search.PermutationBased.BOSS").boss
    rows = table.codes.T.astype(np.int64)

    def learn() -> Arcs:
        with contextlib.redirect_stdout(io.StringIO()):
            found = boss(rows, score_func="local_score_BDeu", verbose=False, node_names=list(table.names))
        graph = found.graph  # [j, i] = 1 and [i, j] = -1: i -> j
        names = [node.get_name() for node in found.get_nodes()]
        pairs = [
            (names[i], names[j])
            for i in range(len(graph)) for j in range(len(graph))
            if graph[i, j] == -1 and (graph[j, i] == 1 or i < j)
        ]  # fmt: skip
        return _arcs(table, pairs)

    return learn
