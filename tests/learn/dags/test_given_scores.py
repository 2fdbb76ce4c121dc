"""Scores of a function and of score files: learning takes them as its own, files are read back, errors have places."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jtgpu
from jtgpu.learn import ScoreTable, posterior, score_table, structure
from tests.learn.dags.data import random_table

DATA = random_table(8, n=5, n_rows=120)


def bic(counts: Any, child: str, parents: tuple[str, ...]) -> float:
    """The definition, from the counts."""
    q, r = counts.shape
    rows = counts.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(counts > 0, counts * np.log(counts / rows), 0.0)
    return float(terms.sum() - math.log(DATA.n_cases) / 2 * q * (r - 1))


@pytest.mark.parametrize("weighted", [False, True])
def test_function_is_the_score(weighted: bool) -> None:
    data = random_table(3, n=4, n_rows=90, weighted=weighted)

    def counted(counts: Any, child: str, parents: tuple[str, ...]) -> float:
        assert counts.dtype == np.int64
        assert counts.sum() == data.n_cases
        return jtgpu.learn.score_table(data, score="k2").score(child, parents)

    own = score_table(data, score=counted, max_parents=3)
    np.testing.assert_array_equal(own.scores, score_table(data, score="k2", max_parents=3).scores)
    assert own.rule.name == "given"


@pytest.mark.parametrize("method", ["exact", "order"])
def test_structures(method: Any) -> None:
    expected = structure(DATA, score="bic", method=method, max_parents=3)
    found = structure(DATA, score=bic, method=method, max_parents=3)
    assert found.score == pytest.approx(expected.score, abs=1e-9)
    assert sorted(found.cpdag.edges) == sorted(expected.cpdag.edges)
    table = score_table(DATA, score=bic, max_parents=3)
    assert (
        structure(DATA, score="given", search=jtgpu.learn.Search(scores=table), method=method, max_parents=3).arcs
        == found.arcs
    )
    assert structure(DATA, score=bic, method=method, max_parents=3).arcs == found.arcs


def test_posteriors() -> None:
    expected, found = (posterior(DATA, score=s, max_parents=3, method="exact") for s in ("bic", bic))
    np.testing.assert_allclose(found.edge_probabilities.values, expected.edge_probabilities.values, rtol=0, atol=1e-9)
    chains = [
        posterior(
            DATA,
            score=s,
            max_parents=3,
            method="mcmc",
            chains=jtgpu.learn.Chains(steps=20_000),
            seed=1,
            compute=jtgpu.Compute(threads=1),
        )
        for s in ("bic", bic)
    ]
    first, second = (chain.edge_probabilities.values for chain in chains)
    np.testing.assert_allclose(second, first, rtol=0, atol=0.05)


def test_each_family_once() -> None:
    seen: list[tuple[str, tuple[str, ...]]] = []

    def score(counts: Any, child: str, parents: tuple[str, ...]) -> float:
        seen.append((child, parents))
        return -float(len(parents))

    assert structure(DATA, score=score, max_parents=2).arcs == []
    assert len(seen) == len(set(seen)) == 5 * (1 + 4 + 6)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(0, 3), st.sampled_from(["jkl", "jaa"]))
def test_files_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, most: int, suffix: str
) -> None:
    rng = np.random.default_rng(seed)
    data = random_table(seed % 1000, n=n, n_rows=20)
    table = score_table(data, score="bic", max_parents=most)
    left_out = rng.random(table.scores.shape) < 0.3
    table.scores[left_out] = -np.inf
    table.scores[:, 0] = -1.5  # no variable without a family, and the largest sets below
    table.scores[0, -1] = -rng.random()
    path = tmp_path_factory.mktemp("scores") / f"scores.{suffix}"
    table.save(path)
    again = ScoreTable.load(path)
    assert (again.names, again.max_parents, again.rule.name) == (table.names, table.max_parents, "given")
    np.testing.assert_array_equal(again.scores, table.scores)
    again.save(path.with_name(f"again.{suffix}"))
    assert path.with_name(f"again.{suffix}").read_bytes() == path.read_bytes()


# the example of BBMarkov's page, in the form that GOBNILP reads
EXAMPLE = """3
0 4
-195.673828 2 1 2
-194.647797 1 2
-189.098404 1 1
-193.265869 0
1 4
-517.531555 1 2
-587.681213 1 0
-518.557739 2 0 2
-591.848389 0
2 4
-562.807800 2 0 1
-556.232178 1 1
-631.931213 1 0
-630.549072 0
"""


def test_published_example(tmp_path: Path) -> None:
    path = tmp_path / "example.jkl"
    path.write_text(EXAMPLE)
    table = ScoreTable.load(path)
    assert table.names == ("0", "1", "2")
    assert table.score("1", ["0", "2"]) == -518.557739
    data = {name: ["a", "b", "a", "b"] for name in table.names}
    best = structure(data, score="given", search=jtgpu.learn.Search(scores=table))
    assert best.score == pytest.approx(-189.098404 - 591.848389 - 556.232178)
    with pytest.raises(jtgpu.DataError, match=r"variables '0', '1', '2'; .* are 'a', 'b', 'c'"):
        structure({v: ["a", "b"] for v in "abc"}, score="given", search=jtgpu.learn.Search(scores=table))


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "1:1", "ends where the number of variables"),
        ("x\n", "1:1", "expected the number of variables, got 'x'"),
        ("2\na 1\n-1 0\n", "3:4", "ends where the name of a variable"),
        ("2\na 1\n-1 0\na 1\n", "4:1", "two variables 'a'"),
        ("2\na 1\nnan 0\n", "3:1", "expected a score, got 'nan'"),
        ("2\na 1\n-1 1 c\nb 1\n-1 0\n", "3:6", "no variable 'c'"),
        ("2\na 1\n-1 1 a\nb 1\n-1 0\n", "3:6", "its own parent"),
        ("2\na 2\n-1 0\n-2 0\nb 1\n-1 0\n", "4:1", "given twice"),
        ("2\na 1\n-1 0\nb 1\n-1 0\n 7\n", "6:2", "expected the end of the file, got '7'"),
        ("1\na 1\n-1 0\n", "3:4", "expected at least two"),
    ],
)
def test_places_of_errors(tmp_path: Path, text: str, place: str, message: str) -> None:
    path = tmp_path / "scores.jkl"
    path.write_text(text)
    with pytest.raises(jtgpu.ParseError, match=f"scores.jkl:{place}: .*{message}"):
        ScoreTable.load(path)


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(jtgpu.ArgumentError, match=r"the score of P\(a\) is nan"):
        score_table(DATA, score=lambda *_: math.nan)
    with pytest.raises(jtgpu.ArgumentError, match=r"the score of P\(a\) must be a number, got 'x'"):
        score_table(DATA, score=lambda *_: "x")  # type: ignore[arg-type]
    with pytest.raises(jtgpu.ArgumentError, match=r"pass Search\(scores=...\)"):
        structure(DATA, score="given")
    with pytest.raises(jtgpu.ArgumentError, match="method='exact', 'order' or 'mcmc'"):
        structure(DATA, score=bic, method="greedy")
    with pytest.raises(jtgpu.ArgumentError, match="give one of them"):
        structure(DATA, score=bic, search=jtgpu.learn.Search(scores=score_table(DATA, score="bic")))
    with pytest.raises(jtgpu.ArgumentError, match="in this process"):
        score_table(DATA, score=bic, compute=jtgpu.Compute(cluster="local"))
    table = score_table({"a b": ["x", "y", "x"], "c": ["x", "y", "y"]}, max_parents=1)
    with pytest.raises(jtgpu.FormatError, match="'a b'"):
        table.save(tmp_path / "scores.jkl")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("function", [score_table, structure, posterior])
def test_gpus_of_a_computation_on_the_cpu(function: Any) -> None:
    with pytest.raises(jtgpu.ArgumentError, match=r"devices=\[0, 1\] are GPUs, but backend='cpu'"):
        function(DATA, compute=jtgpu.Compute(backend="cpu", devices=[0, 1]))
