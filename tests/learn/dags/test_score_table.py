"""Scores of families: the reference against the formulas, the loops against the reference."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import ArgumentError, FormatError, TableTooLarge, UnknownVariable
from jtgpu.learn.dags.scores.coded import CodedTable
from jtgpu.learn.dags.scores.rules import SCORES, ScoreRule
from jtgpu.learn.dags.scores.score_table import ScoreTable, score_families
from tests.learn.dags import oracle
from tests.learn.dags.data import random_table, table_of
from tests.support import structures_reference as reference

ROWS = [1, 63, 64, 65, 511, 513]


def largest_gap(table: CodedTable, rule: ScoreRule, k: int, found: ScoreTable) -> float:
    names = table.names
    return max(
        abs(found.score(names[v], [names[p] for p in parents]) - x)
        for (v, parents), x in reference.score_all(table, rule, k).items()
    )


@pytest.mark.parametrize("name", SCORES)
def test_reference_is_the_formula(name: str) -> None:
    table = random_table(3, n=4, n_rows=40, weighted=True)
    assert table.weights is not None
    cards = table.cardinality.tolist()
    for v, parents in reference.all_families(4, 3):
        family = [*parents, v]
        counts = oracle.counts_of(
            [table.codes[u].tolist() for u in family], [cards[u] for u in family], table.weights.tolist()
        )
        assert reference.family_counts(table, v, parents).tolist() == counts
        score = reference.family_score(np.array(counts), ScoreRule(name, 2.5), table.n_cases)
        assert score == pytest.approx(oracle.score(counts, name, 2.5, table.n_cases), abs=1e-11)


def test_score_of_a_tiny_table_by_hand() -> None:
    # BDeu, ess 1, no parents, counts 1 and 1: G(1)/G(3) * (G(1.5)/G(.5))^2 = 1/2 * 1/4
    table = score_families(table_of([[0, 1], [0, 0]], [2, 2]), ScoreRule(), 0)
    assert table.score("a") == pytest.approx(math.log(1 / 8), abs=1e-14)


@pytest.mark.parametrize("name", SCORES)
def test_table_is_the_reference(name: str) -> None:
    for seed, (n_rows, k) in enumerate(zip(ROWS, [3, 2, 4, 1, 3, 0], strict=True)):
        table = random_table(seed, n_rows=n_rows, weighted=seed % 2 == 1)
        found = score_families(table, ScoreRule(name, 1.7), k)
        assert largest_gap(table, ScoreRule(name, 1.7), k, found) < 1e-10
        assert found.n_left_out == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_planes_scan_and_reference_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_rows, k = int(rng.choice(ROWS)), int(rng.integers(1, 4))
    table = random_table(1000 + seed, n=4, n_rows=n_rows, most=9)
    rule = ScoreRule([*SCORES][seed % len(SCORES)], 0.3)
    planes = score_families(table, rule, k)
    weighted = CodedTable(table.names, table.states, table.codes, np.ones(n_rows, np.int64))  # counted row by row
    assert (planes.scores == score_families(weighted, rule, k).scores).all()
    assert largest_gap(table, rule, k, planes) < 1e-9


def test_weights_are_repeated_rows() -> None:
    table = random_table(5, n_rows=30, weighted=True)
    assert table.weights is not None
    repeated = CodedTable(table.names, table.states, np.repeat(table.codes, table.weights, axis=1))
    for name in SCORES:
        weighted = score_families(table, ScoreRule(name), 3)
        assert (weighted.scores == score_families(repeated, ScoreRule(name), 3).scores).all()


def test_threads_give_the_same_bits() -> None:
    table = random_table(6, n=16, n_rows=100)
    first, *others = (score_families(table, ScoreRule(), 3, threads=t).scores for t in (1, 2, 3))
    assert all((first == other).all() for other in others)


def test_equivalent_graphs_have_equal_scores() -> None:
    table = random_table(7, n=4, n_rows=80)
    for name in SCORES:
        scores = score_families(table, ScoreRule(name), 3)

        def total(graph: oracle.Graph, scores: ScoreTable = scores) -> float:
            return sum(scores.score("abcd"[v], ["abcd"[p] for p in parents]) for v, parents in enumerate(graph))

        classes: dict[tuple[frozenset[frozenset[int]], frozenset[tuple[int, ...]]], list[float]] = {}
        for graph in oracle.all_graphs(4):
            skeleton = frozenset(frozenset((u, v)) for v, parents in enumerate(graph) for u in parents)
            colliders = frozenset(
                (u, v, w)
                for v, parents in enumerate(graph)
                for u, w in itertools.combinations(parents, 2)
                if frozenset((u, w)) not in skeleton
            )
            classes.setdefault((skeleton, colliders), []).append(total(graph))
        assert len(classes) == 185
        spread = max(max(c) - min(c) for c in classes.values())
        assert (spread < 1e-9) == (name in ("bdeu", "bic", "aic"))


def test_many_states_and_families_that_are_too_large() -> None:
    rng = np.random.default_rng(8)
    table = table_of(rng.integers(0, 2, (4, 300)) * [[1], [1], [200], [254]], [2, 2, 201, 255])
    found = score_families(table, ScoreRule(), 2)
    assert largest_gap(table, ScoreRule(), 1, score_families(table, ScoreRule(), 1)) < 1e-10
    assert found.n_left_out == 0
    few = score_families(table, ScoreRule(), 2, max_cells=1000)
    assert few.score("c", ["d"]) == -math.inf
    assert few.score("a", ["c"]) == found.score("a", ["c"])
    # c and d together, 51,255 cells, are in 2 families of two variables and 3 * 2 of three; a, b and d have 1,020 cells
    assert few.n_left_out == 2 + 6 + 3


@pytest.mark.slow
def test_large_counts_against_mpmath() -> None:
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(9)
    codes = rng.integers(0, 3, (3, 1_000_000))
    codes[2] = (codes[0] + codes[1] + (rng.random(1_000_000) < 0.1)) % 3
    found = score_families(table_of(codes, [3, 3, 3]), ScoreRule(), 2)
    counts = np.zeros((3, 3, 3), np.int64)
    np.add.at(counts, tuple(codes), 1)
    with mpmath.workdps(40):
        a = mpmath.mpf(1) / 27
        exact = sum(
            mpmath.loggamma(3 * a) - mpmath.loggamma(3 * a + int(row.sum()))
            + sum(mpmath.loggamma(a + int(n)) - mpmath.loggamma(a) for n in row)
            for row in counts.reshape(9, 3)
        )  # fmt: skip
    # ln Gamma(1e6) is 1.3e7, of which the last bit is 2e-9
    assert found.score("c", ["a", "b"]) == pytest.approx(float(exact), abs=5e-8)


def test_table_is_saved_and_loaded(tmp_path: Path) -> None:
    table = score_families(random_table(1), ScoreRule("bds", 3.0), 2)
    table.save(tmp_path / "a.npz")
    table.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    found = ScoreTable.load(tmp_path / "a.npz")
    assert (found.names, found.states, found.rule) == (table.names, table.states, table.rule)
    assert (found.n_cases, found.digest, found.max_parents) == (table.n_cases, table.digest, 2)
    assert (found.scores == table.scores).all()
    (tmp_path / "c.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:500])
    for bad in ("c.npz", "d.npz"):
        (tmp_path / "d.npz").write_text("rain,wet\n")
        with pytest.raises(FormatError, match="not a score table"):
            ScoreTable.load(tmp_path / bad)


def test_best_parent_sets() -> None:
    data = {"cause": [0, 1] * 20, "noise": [0, 0, 1, 1] * 10, "effect": [0, 1] * 20}
    with pytest.warns(UserWarning, match="equal up to"):
        table = jtgpu.learn.score_table(data, max_parents=2)
    (first, score), (second, _) = table.best("effect", 2)
    assert first == ("cause",)
    assert score == table.score("effect", ["cause"])
    assert second == ("cause", "noise")
    assert len(table) == 12
    assert "12 families" in repr(table)


def test_wrong_arguments() -> None:
    table = score_families(random_table(1), ScoreRule(), 1)
    with pytest.raises(UnknownVariable, match="no variable 'z'"):
        table.score("z")
    with pytest.raises(ArgumentError, match="own parent"):
        table.score("a", ["a"])
    with pytest.raises(ArgumentError, match="2 parents"):
        table.score("a", ["b", "c"])
    with pytest.raises(ArgumentError, match="k must be an integer of at least 1, not -1"):
        table.best("a", -1)
    data = {"x": [0, 1, 1], "y": [0, 0, 1]}
    for options, message in (
        ({"score": "bdue"}, "score must be 'bdeu', .* did you mean 'bdeu'"),
        ({"ess": 0.0}, "ess must be"),
        ({"ess": math.nan}, "ess must be"),
        ({"max_parents": -1}, "max_parents"),
        ({"max_parents": 1.5}, "max_parents"),
        ({"missing": "keep"}, "missing must be"),
    ):
        with pytest.raises(ValueError, match=message):
            jtgpu.learn.score_table(data, **options)
    with pytest.raises(TableTooLarge, match="lower max_parents"):
        jtgpu.learn.score_table(data, compute=jtgpu.Compute(memory_limit=10))
