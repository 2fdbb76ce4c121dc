"""Networks made by hypothesis: zeros, one-state variables, disconnected parts, many parents; and evidence on them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from jtgpu.model.states import StateNumber

MOST_CONFIGURATIONS = 3000  # what the oracle sums in reasonable time


@st.composite
def cardinalities(draw: st.DrawFn, most: int = 8) -> list[int]:
    """Numbers of states, one included, whose product the oracle can sum."""
    cards: list[int] = []
    size = 1
    for c in draw(st.lists(st.sampled_from([1, 2, 2, 2, 3, 3, 4, 5]), min_size=1, max_size=most)):
        if size * c <= MOST_CONFIGURATIONS:
            cards.append(c)
            size *= c
    return cards


def _row_numbers(
    rng: np.random.Generator, shape: tuple[int, ...], zeros: float, sixteenths: bool
) -> NDArray[np.float64]:
    """Rows that sum to 1; multiples of 1/16 make sums and products of a few of them exact."""
    n = shape[-1]
    rows = int(np.prod(shape[:-1], dtype=int))
    if sixteenths:
        table = rng.multinomial(16, np.full(n, 1 / n), size=rows) / 16.0
    else:
        table = rng.dirichlet(np.full(n, 0.7), size=rows)
        table[rng.random(table.shape) < zeros] = 0.0
        dead = table.sum(axis=1) == 0
        table[dead, rng.integers(0, n, int(dead.sum()))] = 1.0
        table /= table.sum(axis=1, keepdims=True)
    return np.asarray(table.reshape(shape), np.float64)


@st.composite
def bayesian_networks(draw: st.DrawFn, most: int = 8) -> BayesianNetwork:
    """A Bayesian network of at most `most` variables."""
    cards = draw(cardinalities(most))
    names = [f"v{i}" for i in range(len(cards))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    zeros = draw(st.sampled_from([0.0, 0.3, 0.7]))
    sixteenths = draw(st.booleans())
    parents: dict[str, list[str]] = {}
    cpts = {}
    for i, name in enumerate(names):
        chosen = draw(st.lists(st.integers(0, i - 1), unique=True, max_size=min(i, 5))) if i else []
        parents[name] = [names[p] for p in chosen]
        cpts[name] = _row_numbers(rng, (*(cards[p] for p in chosen), cards[i]), zeros, sixteenths)
    declared = draw(st.permutations(names))  # children may be declared before their parents
    states = {n: [f"s{k}" for k in range(cards[names.index(n)])] for n in declared}
    return BayesianNetwork(states, parents, cpts, name="made").with_codes("index")


@st.composite
def markov_networks(draw: st.DrawFn, most: int = 7) -> MarkovNetwork:
    """Plain factors: empty scopes, repeated scopes, variables in no factor."""
    cards = draw(cardinalities(most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    factors = []
    for _ in range(draw(st.integers(0, 8))):
        scope = draw(st.lists(st.integers(0, len(cards) - 1), unique=True, max_size=3))
        table = rng.random(tuple(cards[v] for v in scope)) * 10.0 ** rng.integers(-3, 4)
        table = np.where(rng.random(table.shape) < 0.15, 0.0, table)
        factors.append((scope, table))
    states = {f"v{i}": [f"s{k}" for k in range(c)] for i, c in enumerate(cards)}
    return MarkovNetwork(states, factors, name="made").with_codes("index")


@st.composite
def evidence_weights(draw: st.DrawFn, model: DiscreteModel) -> tuple[dict[int, int], dict[int, NDArray[np.float64]]]:
    """Hard findings and likelihood vectors, as numbers; possible or not."""
    hard: dict[int, int] = {}
    soft: dict[int, NDArray[np.float64]] = {}
    for v, card in enumerate(model.cardinality.tolist()):
        kind = draw(st.sampled_from(["none", "none", "none", "hard", "soft", "set"]))
        if kind == "hard":
            hard[v] = StateNumber(draw(st.integers(0, card - 1)))
        elif kind == "soft":
            soft[v] = np.array(draw(st.lists(st.floats(0.015625, 1.0), min_size=card, max_size=card)))
        elif kind == "set":
            chosen = draw(st.sets(st.integers(0, card - 1), min_size=1))
            soft[v] = np.array([float(k in chosen) for k in range(card)])
    return hard, soft


def all_weights(
    model: DiscreteModel, hard: dict[int, int], soft: dict[int, NDArray[np.float64]]
) -> dict[int, NDArray[np.float64]]:
    """Both kinds of evidence as the oracle takes them."""
    return soft | {v: np.eye(int(model.cardinality[v]))[k] for v, k in hard.items()}
