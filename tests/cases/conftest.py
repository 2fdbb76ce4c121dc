"""Fixtures of the tests of files: a network, a tree, rows and their answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.model.network import BayesianNetwork
from tests.cases.asia_files import ASIA, NAMES, N

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


@pytest.fixture(scope="module")
def asia() -> BayesianNetwork:
    net = jtgpu.read(ASIA)
    assert isinstance(net, BayesianNetwork)
    return net


@pytest.fixture(scope="module")
def tree(asia: BayesianNetwork) -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = asia.compile(backend="reference")
    return made


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    """Cases as text: an id, and four variables of which some are empty."""
    random = np.random.default_rng(11)
    kinds = np.array(["yes", "no", ""])
    cells = kinds[random.choice(3, (N, 4), p=[0.4, 0.4, 0.2])]
    return [[f"r{i}", *row] for i, row in enumerate(cells.tolist())]


@pytest.fixture(scope="module")
def expected(tree: jtgpu.JunctionTree, rows: list[list[str]]) -> dict[str, list[Any]]:
    """The answers of `rows`, each different case by `posteriors`."""
    found: dict[tuple[str, ...], Any] = {}
    for _, *case in rows:
        if tuple(case) not in found:
            post = tree.posteriors({v: s for v, s in zip(NAMES[1:], case, strict=True) if s})
            found[tuple(case)] = post["lung"]["yes"], post["lung"]["no"], post.log_evidence
    answer = [found[tuple(case)] for _, *case in rows]
    return {
        "id": [r[0] for r in rows],
        "lung=yes": [a[0] for a in answer],
        "lung=no": [a[1] for a in answer],
        "log_evidence": [a[2] for a in answer],
    }
