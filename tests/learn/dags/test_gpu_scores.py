"""Scores of families on emulated GPUs against those of the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jtgpu.errors import ArgumentError, TableTooLarge
from jtgpu.learn.dags.scores import gpu_device as device_scores
from jtgpu.learn.dags.scores import gpu_scores as scores
from jtgpu.learn.dags.scores.coded import CodedTable
from jtgpu.learn.dags.scores.rules import ScoreRule
from jtgpu.learn.dags.scores.score_table import score_families, score_table
from jtgpu.options.compute import Compute
from tests.learn.dags.data import random_table, table_of
from tests.support.emulated.install import installed, needs_compiler

pytestmark = needs_compiler
TOLERANCE = 1e-10  # of the largest score


@pytest.fixture(autouse=True, scope="module")
def emulated() -> Iterator[None]:
    with installed():
        yield


def check(table: CodedTable, rule: ScoreRule, k: int, **options: object) -> None:
    expected = score_families(table, rule, k, threads=1).scores
    found = score_families(table, rule, k, backend="gpu", **options).scores  # type: ignore[arg-type]
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))
    finite = np.isfinite(expected)
    assert np.abs(found - expected)[finite].max() <= TOLERANCE * np.abs(expected[finite]).max()


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [1, 31, 33, 513])
def test_gpu_scores_are_those_of_the_cpu(n_rows: int) -> None:
    check(random_table(n_rows, n=7, n_rows=n_rows, most=4), ScoreRule(), 3)


@pytest.mark.slow
@pytest.mark.parametrize("score", ["k2", "bic", "aic", "bdj"])
def test_gpu_computes_scores_of_several_functions(score: str) -> None:
    check(random_table(5, n=6, n_rows=90, most=5), ScoreRule(score), 2)


@pytest.mark.slow
def test_gpu_counts_weighted_rows() -> None:
    table = random_table(6, n=6, n_rows=70, weighted=True)
    assert table.weights is not None
    table.weights[3] = 1000
    check(table, ScoreRule("bdeu", 10.0), 3)


@pytest.mark.slow
@pytest.mark.parametrize("k", [0, 1, 4, 5])
def test_gpu_takes_any_number_of_parents(k: int) -> None:
    check(random_table(7, n=7, n_rows=50, most=3), ScoreRule(), k)


@pytest.mark.parametrize("k", [0, 1, 2, 3, 4, 5])
def test_gpu_scores_numbers(k: int) -> None:
    rng = np.random.default_rng(k)
    x = rng.normal(size=(60, 8)) @ rng.normal(size=(8, 8)) * 10.0 ** rng.integers(-12, 12, 8)
    expected = score_table(x, score="bge", max_parents=k).scores
    found, again = (
        score_table(x, score="bge", max_parents=k, compute=Compute(backend="gpu", devices=d)).scores
        for d in (None, [0, 1])
    )
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()
    np.testing.assert_array_equal(found, again)


def test_gpu_scores_of_numbers_have_limits() -> None:
    x = np.random.default_rng(0).normal(size=(60, 8))
    with pytest.raises(ArgumentError, match="more than 5 parents"):
        score_table(x, score="bge", max_parents=6, compute="gpu")
    with pytest.raises(ArgumentError, match="'bic-cg' runs on the CPU"):
        score_table(x, score="bic-cg", compute="gpu")


@pytest.mark.slow
def test_gpu_scans_the_rows_of_large_tables() -> None:
    rng = np.random.default_rng(0)
    cards = [2, 30, 3, 12, 9, 40]
    codes = np.array([rng.integers(0, r, 80) for r in cards])
    check(table_of(codes, cards), ScoreRule(), 3)
    check(table_of(codes, cards, rng.integers(0, 5, 80)), ScoreRule("k2"), 2)


@pytest.mark.slow
def test_gpu_leaves_out_tables_of_too_many_cells() -> None:
    table = random_table(8, n=6, n_rows=40, most=4)
    functions: Any = {"max_cells": 20}
    expected = score_families(table, ScoreRule(), 3, threads=1, **functions).scores
    found = score_families(table, ScoreRule(), 3, backend="gpu", **functions).scores
    assert np.isneginf(expected).any()
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.slow
def test_gpu_scores_do_not_depend_on_the_number_of_gpus() -> None:
    table = random_table(9, n=8, n_rows=60)
    one = score_families(table, ScoreRule(), 3, backend="gpu").scores
    two = score_families(table, ScoreRule(), 3, backend="gpu", devices=[0, 1]).scores
    np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_words_of_a_prefix_are_loaded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_scores, "TILE_BYTES", 64 * 5)
    monkeypatch.setattr(device_scores, "WARPS", ())
    check(random_table(10, n=6, n_rows=700, weighted=True), ScoreRule(), 3)


@pytest.mark.slow
@pytest.mark.parametrize("warps", [2, 4, 8, 16])
def test_warps_share_the_words(monkeypatch: pytest.MonkeyPatch, warps: int) -> None:
    monkeypatch.setattr(device_scores, "WARPS", ((1, warps),))
    check(random_table(11, n=9, n_rows=700, most=5), ScoreRule(), 3)
    check(random_table(12, n=6, n_rows=300, weighted=True), ScoreRule(), 2)
    check(random_table(13, n=7, n_rows=33, most=3), ScoreRule(), 4, devices=[0, 1])
    rng = np.random.default_rng(0)
    cards = [2, 30, 3, 12, 9, 40]
    check(table_of(np.array([rng.integers(0, r, 80) for r in cards]), cards), ScoreRule(), 3)


def test_gpu_refuses_what_it_cannot_score() -> None:
    table = random_table(1, n=8)
    with pytest.raises(ArgumentError, match="'bds'"):
        score_families(table, ScoreRule("bds"), 2, backend="gpu")
    with pytest.raises(ArgumentError, match="at most 5 parents"):
        score_families(table, ScoreRule(), 6, backend="gpu")


def test_values_that_exceed_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "SHARE", 1e-9)
    with pytest.raises(TableTooLarge, match="lower max_parents"):
        score_families(random_table(1), ScoreRule(), 2, backend="gpu")
