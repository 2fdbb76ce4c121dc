"""A new structure score is a class and an entry of `SCORES`: score tables, searches and posteriors then take it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jtgpu.learn import ScoreTable, posterior, score_table, structure
from jtgpu.learn.dags.scores.coded import CodedTable
from jtgpu.learn.dags.scores.rules import AIC, SCORES, ScoreRule, StructureScore
from tests.learn.dags.data import random_table
from tests.support import structures_reference as reference
from tests.support.emulated.install import installed, needs_compiler


class HannanQuinn(AIC):
    """Log-likelihood minus ln ln N for each free parameter."""

    def penalty(self, n_cases: int) -> float:
        return math.log(math.log(n_cases))


def regret(n: int, r: int) -> float:
    """ln of the normalising constant of the maximum likelihood of n cases and r states (Kontkanen, Myllymaki 2007)."""
    if n == 0:
        return 0.0
    terms = [math.comb(n, h) * (h / n) ** h * (1 - h / n) ** (n - h) for h in range(n + 1)]
    now, before = math.fsum(terms), 1.0
    for states in range(3, r + 1):
        now, before = now + n / (states - 2) * before, now
    return math.log(now if r > 1 else before)


class FactorisedNML(StructureScore):
    """Normalised maximum likelihood by configuration of the parents (Silander et al. 2008)."""

    def of_cell(self, counts: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array([n * math.log(n) if n else 0.0 for n in counts.tolist()])

    def of_parents(self, counts: NDArray[np.int64], r: int) -> NDArray[np.float64]:
        return self.of_cell(counts) + [regret(n, r) for n in counts.tolist()]


def by_definition(name: str, counts: NDArray[np.int64], n_cases: int) -> float:
    """The score of a family's table, row by row."""
    rows = [row for row in counts.tolist() if sum(row)]
    likelihood: float = math.fsum(n * math.log(n / sum(row)) for row in rows for n in row if n)
    if name == "hq":
        return float(likelihood - math.log(math.log(n_cases)) * counts.shape[0] * (counts.shape[1] - 1))
    return float(likelihood - math.fsum(regret(sum(row), counts.shape[1]) for row in rows))


@pytest.fixture(params=["hq", "fnml"])
def score(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The name of a score that is registered for one test."""
    monkeypatch.setitem(SCORES, "hq", HannanQuinn())
    monkeypatch.setitem(SCORES, "fnml", FactorisedNML())
    return request.param


def best_weight(table: ScoreTable, n: int, max_parents: int) -> float:
    """The highest score of a graph, over all orders of the variables."""
    names, best = table.names, -math.inf
    for order in itertools.permutations(range(n)):
        total = 0.0
        for i, v in enumerate(order):
            sets = itertools.chain.from_iterable(itertools.combinations(order[:i], k) for k in range(max_parents + 1))
            total += max(table.score(names[v], [names[u] for u in members]) for members in sets)
        best = max(best, total)
    return best


def score_of(table: ScoreTable, arcs: list[tuple[str, str]]) -> float:
    return math.fsum(table.score(v, [a for a, b in arcs if b == v]) for v in table.names)


@pytest.mark.parametrize("weighted", [False, True])
def test_score_table_is_the_definition(score: Any, weighted: bool) -> None:
    data = random_table(3, n=4, n_rows=90, weighted=weighted)
    table = score_table(data, score=score, max_parents=3)
    for v, parents in reference.all_families(4, 3):
        expected = by_definition(score, reference.family_counts(data, v, parents), data.n_cases)
        assert table.score(data.names[v], [data.names[u] for u in parents]) == pytest.approx(expected, abs=1e-9)
    assert table.rule == ScoreRule(score)


@pytest.mark.parametrize("method", ["exact", "order", "greedy", "tabu"])
def test_every_search_takes_it(score: Any, method: Any) -> None:
    data = random_table(8, n=4, n_rows=120)
    table = score_table(data, score=score, max_parents=2)
    best = structure(data, score=score, method=method, max_parents=2)
    assert best.score == pytest.approx(score_of(table, best.arcs), abs=1e-9)
    if method in ("exact", "order"):
        assert best.score == pytest.approx(best_weight(table, 4, 2), abs=1e-9)
    assert best.network(ess=1.0).variables == data.names


def test_posterior_takes_it(score: Any) -> None:
    data = random_table(8, n=2, n_rows=15)
    table = score_table(data, score=score, max_parents=1)
    exact = posterior(data, score=score)
    weights = [score_of(table, arcs) for arcs in ([], [("a", "b")], [("b", "a")])]
    shares = np.exp(np.array(weights) - max(weights))
    assert exact.edge("a", "b") == pytest.approx(shares[1] / shares.sum(), abs=1e-12)


def test_parents_of_many_states(score: Any) -> None:
    """The function of a configuration belongs to the child's number of states."""
    codes = np.random.default_rng(4).integers(0, [[2], [3], [5]], (3, 60)).astype(np.uint8)
    data = CodedTable(("a", "b", "c"), (("0", "1"), tuple("012"), tuple("01234")), codes)
    greedy, exact = (structure(data, score=score, method=m, max_parents=2) for m in ("greedy", "exact"))
    assert greedy.score <= exact.score + 1e-9


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_gpus_take_it(score: Any, weighted: bool) -> None:
    data = random_table(6, n=6, n_rows=80, weighted=weighted)
    expected = score_table(data, score=score, max_parents=3).scores
    with installed():
        scores = score_table(data, score=score, max_parents=3, compute="gpu").scores
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
