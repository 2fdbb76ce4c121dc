"""Standard errors against the curvature of the objective, by enumeration of all states, in 20 networks."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest

import jtgpu
from jtgpu.learn import EM, fit

STEP = 2e-3  # of the logits
NAMES = "abcd"


class Case(NamedTuple):
    """Rows with missing cells, and how they are fitted."""

    network: jtgpu.BayesianNetwork
    rows: np.ndarray
    options: dict[str, Any]


def case(seed: int) -> Case:
    """Two to four variables, of which one may be hidden, fixed, or tied to another, or have entries of 0."""
    rng = np.random.default_rng(seed)
    n, kind = 2 + seed % 3, ("holes", "hidden", "tied", "fixed", "zeros")[seed % 5]
    n = {"tied": max(n, 3), "hidden": 4}.get(kind, n)
    cards = [2] * n if kind in ("tied", "hidden") else rng.integers(2, 4, n).tolist()
    above: dict[str, list[str]] = {v: [] for v in NAMES[:n]}
    for i, v in enumerate(NAMES[1:n], 1):
        above[v] = (
            [NAMES[0]] if kind in ("tied", "hidden") else [*rng.choice([*NAMES[:i]], rng.integers(1, i + 1), False)]
        )
    states = {v: [f"s{k}" for k in range(card)] for v, card in zip(NAMES, cards, strict=False)}
    cpts = {v: rng.dirichlet(np.full(len(states[v]), 2.0), [len(states[p]) for p in above[v]]) for v in states}
    if kind == "tied":
        cpts["c"] = cpts["b"]
    if kind == "hidden":  # far from one another, so that the classes are determined
        cpts = {v: np.array([[0.85, 0.15], [0.2, 0.8]]) if above[v] else np.array([0.4, 0.6]) for v in states}
    if kind == "zeros":
        last = cpts[NAMES[n - 1]]
        last[(0,) * (last.ndim - 1)] = [1.0, *[0.0] * (last.shape[-1] - 1)]
    net = jtgpu.BayesianNetwork(states, above, cpts)
    rows = np.array(net.compile("reference").sample(400, seed=seed).states)
    rows[rng.random(rows.shape) < 0.15] = -1
    options: dict[str, Any] = {"pseudo_counts": 1.0 if kind == "zeros" else float(seed % 2)}
    if kind == "hidden":
        rows[:, 0] = -1
        options |= {"hidden": {"a": states["a"]}}
    if kind == "tied":
        options["tied"] = [("b", "c")]
    if kind == "fixed":
        options["fixed"] = ["a"]
    return Case(net, rows, options)


def curvature(found: Any, given: Case) -> dict[str, np.ndarray]:
    """Standard errors by second differences of ln P(rows) + ln prior in the logits of the entries that are free."""
    net, rows, prior = found.network, given.rows, given.options["pseudo_counts"]
    names, cpts = [*net], [np.array(net.cpt(v)) for v in net]
    axes = {v: [names.index(u) for u in (*net.parents(v), v)] for v in names}
    first = {"c": "b"} if "tied" in given.options else {}
    places = []  # of each parameter: the CPT, the row, the entries of the row that are free, and which of them
    for v in names:
        if v not in given.options.get("fixed", ()) and v not in first:
            for k in np.ndindex(*cpts[names.index(v)].shape[:-1]):
                free = np.flatnonzero(cpts[names.index(v)][k])
                places += [(v, k, free, i) for i in range(len(free) - 1)]
    joint = np.array([*itertools.product(*(range(len(net.states(v))) for v in names))])
    agrees = ((rows[:, None] < 0) | (rows[:, None] == joint)).all(axis=2)

    def tables(x: np.ndarray) -> list[np.ndarray]:
        moved = [c.copy() for c in cpts]
        for (v, k, free, i), step in zip(places, x.tolist(), strict=True):
            moved[names.index(v)][k][free[i]] *= np.exp(step)
        moved = [c / c.sum(axis=-1, keepdims=True) for c in moved]
        for v, u in first.items():
            moved[names.index(v)] = moved[names.index(u)]
        return moved

    def objective(x: np.ndarray) -> float:
        own = tables(x)
        p = np.prod([own[i][tuple(joint[:, axes[v]].T)] for i, v in enumerate(names)], axis=0)
        estimated = [own[i] for i, v in enumerate(names) if v in {place[0] for place in places}]
        return float(np.log(agrees @ p).sum()) + prior * sum(float(np.log(t[t > 0]).sum()) for t in estimated)

    n, unit = len(places), np.eye(len(places)) * STEP
    hessian = np.zeros((n, n))
    for i, j in itertools.combinations_with_replacement(range(n), 2):
        corners = [a * b * objective(a * unit[i] + b * unit[j]) for a in (1, -1) for b in (1, -1)]
        hessian[i, j] = hessian[j, i] = sum(corners) / (4 * STEP**2)
    covariance = np.linalg.inv(-hessian)
    slopes = [[(b - a) / (2 * STEP) for a, b in zip(tables(-u), tables(u), strict=True)] for u in unit]
    errors = {}
    for i, v in enumerate(names):
        slope = np.array([s[i] for s in slopes])
        errors[v] = np.sqrt(np.einsum("i...,ij,j...->...", slope, covariance, slope))
    return errors


@pytest.mark.parametrize("seed", range(20))
def test_standard_errors_are_those_of_the_curvature_of_the_objective(seed: int) -> None:
    given = case(seed)
    em = EM(start="given", tolerance=1e-13, iterations=20_000, standard_errors="information")
    cells = [(None if s < 0 else f"s{s}" for s in column) for column in given.rows.T.tolist()]
    table = {v: [*column] for v, column in zip(NAMES, cells, strict=False) if v not in given.options.get("hidden", ())}
    found = fit(given.network, table, em=em, **given.options)
    for v, expected in curvature(found, given).items():
        errors = found.standard_errors(v)
        np.testing.assert_allclose(errors, expected, rtol=2e-3, atol=1e-9)


@pytest.mark.parametrize("is_number", [False, True])
def test_standard_errors_of_hidden_states_of_sequences(is_number: bool) -> None:
    """Against second differences of ln P of the sequences, by the forward recursion."""
    rng, n, length = np.random.default_rng(2), 250, 6
    state = np.cumsum(rng.random((n, length)) < 0.25, axis=1) % 2
    symbol, value = np.where(rng.random((n, length)) < 0.9, state, 1 - state), rng.normal(size=(n, length)) + 3 * state
    gaps = rng.random((n, length)) < 0.1
    table: dict[str, Any] = {"id": np.repeat(np.arange(n), length), "t": np.tile(np.arange(length), n)}
    table["y"] = (
        np.where(gaps, np.nan, value).ravel() if is_number
        else [None if gap else f"s{s}" for s, gap in zip(symbol.ravel().tolist(), gaps.ravel().tolist(), strict=True)]
    )  # fmt: skip
    options: dict[str, Any] = {"continuous": "gaussian"} if is_number else {}
    em = EM(seed=1, tolerance=1e-13, iterations=5000, standard_errors="information")
    found = fit({"h": [("h", 1)], "y": ["h"]}, table, hidden={"h": 2}, keys=jtgpu.learn.Keys(id="id", time="t"), em=em,
                pseudo_counts=0, **options)  # fmt: skip
    net: Any = found.network
    density = net.gaussian("y") if is_number else None
    of_states = [net.start("h")[0][0], *net.cpt("h")[:, 0]]
    theta = np.array([*of_states, *([*density.mean, *density.sd] if is_number else net.cpt("y")[:, 0])])

    def log_likelihood(x: np.ndarray) -> float:
        step = np.stack([x[1:3], 1 - x[1:3]], axis=1)
        if is_number:
            seen = np.exp(-0.5 * ((value[..., None] - x[3:5]) / x[5:]) ** 2) / x[5:]
        else:
            seen = np.stack([x[3:5], 1 - x[3:5]])[symbol]
        seen = np.where(gaps[..., None], 1.0, seen)
        forward, total = np.array([x[0], 1 - x[0]]) * seen[:, 0], 0.0
        for t in range(1, length):
            forward = forward @ step * seen[:, t]
        return total + float(np.log(forward.sum(axis=1)).sum())

    k, step = len(theta), 1e-4
    unit = np.eye(k) * step
    hessian = np.array([[sum(
        a * b * log_likelihood(theta + a * unit[i] + b * unit[j]) for a in (1, -1) for b in (1, -1)
    ) / (4 * step**2) for j in range(k)] for i in range(k)])  # fmt: skip
    expected = np.sqrt(np.diagonal(np.linalg.inv(-hessian)))
    own = found.standard_errors("y")
    errors = [found.standard_errors("h[0]")[0], *found.standard_errors("h")[:, 0]]
    errors += [*own.mean, *own.sd] if is_number else [*own[:, 0]]
    np.testing.assert_allclose(errors, expected, rtol=1e-3)
