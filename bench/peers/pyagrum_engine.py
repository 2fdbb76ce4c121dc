"""pyAgrum's LazyPropagation as a peer.

It gets its CPTs through its API (its readers round) and labels by number (ours may repeat, it wants them unique). Its
answers stay from call to call, and a second call with nothing changed computes nothing: without evidence there are
therefore two ways to make it work, and the better one counts. `fresh` makes a new engine, tree included. `weighed`
keeps the engine and changes a constant likelihood on every variable without children, which leaves every posterior as
it is and every message to be made again.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jtgpu.model.network import BayesianNetwork

Solve = Callable[[dict[str, int]], dict[str, NDArray[np.float64]]]


def available() -> bool:
    """Is pyAgrum installed?"""
    return importlib.util.find_spec("pyagrum") is not None


def version() -> str:
    """Which one."""
    return importlib.metadata.version("pyagrum")


class Peer:
    """A network in pyAgrum."""

    def __init__(self, net: BayesianNetwork):
        self._library: Any = importlib.import_module("pyagrum")  # it has no types
        self.net = net
        self._theirs = theirs = self._library.BayesNet(net.name)
        for v in net.variables:
            theirs.add(self._library.LabelizedVariable(v, "", [f"s{i}" for i in range(len(net.states(v)))]))
        for v in net.variables:
            for p in net.parents(v):
                theirs.addArc(p, v)
            table = theirs.cpt(v)
            axes = [net.parents(v).index(n) if n != v else len(net.parents(v)) for n in reversed(table.names)]
            table.fillWith(np.transpose(net.cpt(v), axes).ravel().tolist())

    def _engine(self, threads: int | None, targets: list[str] | None = None) -> Any:
        engine = self._library.LazyPropagation(self._theirs)
        if threads is not None:
            engine.setNumberOfThreads(threads)
        if targets is not None:
            engine.eraseAllTargets()
            for v in targets:
                engine.addTarget(v)
        return engine

    def kept(self, threads: int | None = None, targets: list[str] | None = None) -> Solve:
        """One engine for all cases. Threads: those that pyAgrum takes by itself, as in all methods."""
        engine = self._engine(threads, targets)
        asked = self.net.variables if targets is None else tuple(targets)

        def solve(case: dict[str, int]) -> dict[str, NDArray[np.float64]]:
            engine.setEvidence(case)  # replaces what was set before
            engine.makeInference()
            return {v: engine.posterior(v).toarray() for v in asked}

        return solve

    def fresh(self, threads: int | None = None) -> Solve:
        """A new engine for every case."""

        def solve(case: dict[str, int]) -> dict[str, NDArray[np.float64]]:
            return self.kept(threads)(case)

        return solve

    def weighed(self, threads: int | None = None) -> Solve:
        """One engine; with no evidence, likelihoods that say nothing make it compute."""
        engine = self._engine(threads)
        net = self.net
        has_children = {p for v in net.variables for p in net.parents(v)}
        leaves = [(v, len(net.states(v))) for v in net.variables if v not in has_children]
        turn = 0

        def solve(case: dict[str, int]) -> dict[str, NDArray[np.float64]]:
            nonlocal turn
            turn += 1
            weight = 0.25 if turn % 2 else 0.5
            engine.setEvidence({**case, **{v: [weight] * n for v, n in leaves if v not in case}})
            engine.makeInference()
            return {v: engine.posterior(v).toarray() for v in net.variables}

        return solve

    def changing(self, case: dict[str, int], threads: int | None = None) -> Callable[[tuple[str, int]], Any]:
        """One engine with evidence, of which one finding is changed a call."""
        engine = self._engine(threads)
        engine.setEvidence(case)
        engine.makeInference()

        def solve(finding: tuple[str, int]) -> dict[str, NDArray[np.float64]]:
            engine.chgEvidence(*finding)
            engine.makeInference()
            return {v: engine.posterior(v).toarray() for v in self.net.variables}

        return solve
