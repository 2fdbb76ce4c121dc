"""The search over states against the product of all tables, entry by entry."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from jtgpu import ImpossibleEvidence, TableTooLarge
from jtgpu.plans import search
from jtgpu.plans.reduction import Reducer, Reduction
from jtgpu.plans.search import Search
from tests.support.examples import some

ENOUGH = 1 << 28
Tables = list[tuple[tuple[int, ...], Any]]


def model(seed: int, n: int = 7, zeros: float = 0.6) -> tuple[Any, Tables]:
    """Cardinalities and tables, most of whose entries are zero; some are deterministic."""
    rng = np.random.default_rng(seed)
    cards = rng.choice([1, 2, 2, 3, 4], n)
    tables: Tables = []
    for v in range(n):
        scope = (*sorted(rng.choice(v, min(v, int(rng.integers(0, 4))), replace=False).tolist()), v) if v else (v,)
        table = rng.random(cards[list(scope)])
        if rng.random() < 0.3:
            table = (table == table.max(axis=-1, keepdims=True)).astype(float)
        elif rng.random() < 0.8:
            table = table * (rng.random(table.shape) > zeros)
        tables.append((scope, table))
    return cards, tables


def product(cards: Any, tables: Tables) -> Any:
    """The product of all tables."""
    whole = np.ones(cards)
    for scope, table in tables:
        axes = np.argsort(scope)
        shape = [c if v in scope else 1 for v, c in enumerate(cards)]
        whole = whole * table.transpose(axes).reshape(shape)
    return whole


def reduced(
    cards: Any, tables: Tables, sets: Any = (), state: dict[int, int] | None = None, more: Tables | None = None
) -> Reduction:
    """All variables and tables, but what findings fix."""
    seen = np.full(len(cards), -1, np.int32)
    for v, s in (state or {}).items():
        seen[v] = s
    reducer = Reducer(np.asarray(cards, np.int64), [s for s, _ in tables], [t for _, t in tables])
    return reducer.reduce(seen, more or (), None, sets)


def posteriors(left: Reduction, found: Search) -> list[Any]:
    """The posterior of every variable of the model."""
    inner = found.posterior[: int(left.n_possible[left.free].sum())]
    return np.split(left.posterior(inner), left.first[1:-1])


@pytest.mark.parametrize("seed", some(300, 40))
def test_answers_are_those_of_the_product_of_all_tables(seed: int) -> None:
    cards, tables = model(seed)
    rng = np.random.default_rng(seed)
    observed = {int(v): int(rng.integers(cards[v])) for v in rng.permutation(len(cards))[: seed % 3]}
    u, v = sorted(rng.permutation(len(cards))[:2].tolist())
    weights: Tables = [((u,), rng.random(cards[u]) * (rng.random(cards[u]) < 0.7))] if seed % 2 else []
    whole = product(cards, [*tables, *weights])
    for w, s in observed.items():
        whole = whole * (np.arange(cards[w]) == s).reshape([-1 if i == w else 1 for i in range(len(cards))])
    total = float(whole.sum())
    try:
        left = reduced(cards, tables, [(u, v)], observed, weights)
        found = Search(left, ENOUGH, ENOUGH)
    except ImpossibleEvidence:
        assert total == 0
        return
    assert total > 0
    assert found.log_evidence + left.log_constant == pytest.approx(math.log(total), abs=1e-12)
    for w, probabilities in enumerate(posteriors(left, found)):
        exact = whole.sum(axis=tuple(x for x in range(len(cards)) if x != w)) / total
        np.testing.assert_allclose(probabilities, exact, rtol=1e-12, atol=1e-13)
    if left.sets:
        pair = whole.sum(axis=tuple(x for x in range(len(cards)) if x not in (u, v))) / total
        joint = found.posterior[-int(found.cards[-1]) :]
        np.testing.assert_allclose(left.table((u, v), joint), pair, rtol=1e-12, atol=1e-13)
    states, log_value = found.best()
    assert log_value + left.log_constant == pytest.approx(math.log(whole.max()), abs=1e-12)
    assert whole[tuple(left.expanded(states[None])[0])] == pytest.approx(whole.max(), rel=1e-12)
    drawn = left.expanded(found.draw(rng.random((50, len(left.free)))))
    assert (whole[tuple(drawn.T)] > 0).all()


def test_samples_have_the_posterior() -> None:
    cards, tables = model(8, zeros=0.1)
    left = reduced(cards, tables)
    found = Search(left, ENOUGH, ENOUGH)
    drawn = left.expanded(found.draw(np.random.default_rng(0).random((20_000, len(left.free)))))
    for v, probabilities in enumerate(posteriors(left, found)):
        np.testing.assert_allclose(np.bincount(drawn[:, v], minlength=cards[v]) / 20_000, probabilities, atol=0.02)


@pytest.mark.parametrize("seed", range(4))
def test_probabilities_far_below_doubles(seed: int) -> None:
    """Tables of 1e-200: ln P is below -10,000."""
    rng = np.random.default_rng(seed)
    n, shift = 60, 200 * math.log(10)
    cards = np.full(n, 2)
    tables: Tables = [((v - 1, v), rng.random((2, 2))) for v in range(1, n)]
    tables += [((v,), rng.random(2)) for v in range(n)]
    plain, tiny = (
        Search(left, ENOUGH, ENOUGH)
        for left in (reduced(cards, tables), reduced(cards, [(s, 1e-200 * t) for s, t in tables]))
    )
    logs = [reduced(cards, some).log_constant for some in (tables, [(s, 1e-200 * t) for s, t in tables])]
    assert tiny.log_evidence + logs[1] == pytest.approx(plain.log_evidence + logs[0] - len(tables) * shift, rel=1e-12)
    np.testing.assert_allclose(tiny.posterior, plain.posterior, rtol=1e-12)
    assert plain.best()[0].tolist() == tiny.best()[0].tolist()


def test_weights_far_below_doubles() -> None:
    """Powers of two beyond those of doubles decide between states that the tables favour and others."""
    cards, tables = np.array([3, 2]), [((0, 1), np.array([[0.5, 0.1], [0.2, 0.2], [0.3, 0.7]])), ((1,), np.ones(2))]
    left = reduced(cards, tables)
    half, powers = np.full(3, 0.5), np.array([-5000, 0, -5000])
    weights = [(0, half, powers), (1, half[:2], np.array([0, 2500]))]
    found = Search(left, ENOUGH, ENOUGH, weights)
    assert found.log_evidence + left.log_constant == pytest.approx(math.log(0.05) + 2500 * math.log(2), rel=1e-14)
    assert found.posterior.tolist() == [0, 1, 0, 0, 1]
    contrary = Search(left, ENOUGH, ENOUGH, [*weights, (0, half, -powers)])
    np.testing.assert_allclose(contrary.posterior[:3], [0.1, 0.2, 0.7], atol=1e-15)


def test_a_large_table_and_many_states() -> None:
    """Masks of several words, and a variable of 70 states."""
    rng = np.random.default_rng(1)
    cards = np.array([70, 3, 5, 70])
    tables: Tables = [((0, 3), np.eye(70) + 0.01)]
    tables += [(s, rng.random(cards[list(s)]) * (rng.random(cards[list(s)]) < 0.2)) for s in ((0, 1, 2), (2, 3))]
    whole = product(cards, tables)
    left = reduced(cards, tables)
    found = Search(left, ENOUGH, ENOUGH)
    assert found.log_evidence + left.log_constant == pytest.approx(math.log(whole.sum()), abs=1e-12)
    np.testing.assert_allclose(posteriors(left, found)[3], whole.sum(axis=(0, 1, 2)) / whole.sum(), atol=1e-13)


def parity(n: int, width: int = 4, seed: int = 0) -> tuple[Any, Tables]:
    """Random parities of coins, each a chain of two-coin parities: nothing but counting helps."""
    rng = np.random.default_rng(seed)
    odd = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    cards = [2] * n
    tables: Tables = [((v,), rng.random(2)) for v in range(n)]
    for _ in range(n):
        last, *others = rng.choice(n, width, replace=False).tolist()
        for u in others:
            cards.append(2)
            tables.append(((last, u, len(cards) - 1), odd))
            last = len(cards) - 1
        tables.append(((last,), rng.random(2)))
    return np.array(cards), tables


def test_the_limits() -> None:
    left = reduced(*parity(40))
    with pytest.raises(TableTooLarge, match=r"given up after 3,000,000 steps, with \d[\d,]* parts solved"):
        Search(left, ENOUGH, 3_000_000)
    with pytest.raises(TableTooLarge, match=r"given up after 1\.0 MiB of memory"):
        Search(left, 1 << 20, 1 << 40)
    left = reduced(np.array([50, 50]), [((0, 1), np.eye(50) + 1e-3)], [(0, 1)])
    with pytest.raises(TableTooLarge, match="6,250,000 entries"):
        Search(left, 1 << 20, ENOUGH)


def test_longer_arrays_do_not_change_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    left = reduced(*parity(12))
    expected = Search(left, ENOUGH, ENOUGH)
    monkeypatch.setattr(search, "START", 4)
    monkeypatch.setattr(search, "STEPS", 50)
    again = Search(left, ENOUGH, ENOUGH)
    assert again.log_evidence == expected.log_evidence
    assert again.posterior.tolist() == expected.posterior.tolist()


def test_control_c_ends_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python runs between the steps."""
    calls = []
    plain = search._loops.search

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(search, "STEPS", 10_000)
    monkeypatch.setattr(search._loops, "search", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Search(reduced(*parity(40)), ENOUGH, ENOUGH)
