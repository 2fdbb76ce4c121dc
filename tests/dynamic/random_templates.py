"""Random dynamic networks and sequences, and their answers by the unrolled network."""

from __future__ import annotations

from typing import Any

import numpy as np

import jtgpu


def random_template(rng: np.random.Generator) -> jtgpu.DynamicNetwork:
    """Two to four variables of two or three states, lags up to 3, sometimes static ones."""
    n, order = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    names = [f"v{i}" for i in range(n)]
    card = rng.integers(2, 4, n)
    static = [names[0]] if n > 2 and rng.random() < 0.4 else []
    states = {v: [f"s{k}" for k in range(card[i])] for i, v in enumerate(names)}
    rank = rng.permutation(n)
    parents: dict[str, list[tuple[str, int]]] = {}
    cpts: dict[str, Any] = {}
    start: dict[str, Any] = {}
    for i, v in enumerate(names):
        if v in static:
            above = []
        else:
            above = [(names[j], 0) for j in range(n) if j != i and (names[j] in static or rank[j] < rank[i])]
            above += [(names[j], lag) for j in range(n) for lag in range(1, order + 1) if names[j] not in static]
            above = [above[j] for j in rng.permutation(len(above))[: int(rng.integers(0, 4))]]
            lags = [lag for a in (*parents.values(), above) for _, lag in a]
            if i == n - 1 and not any(lags):
                above.append((v, 1))
        parents[v] = above

        def table(given: list[tuple[str, int]], i: int = i) -> Any:
            shape = [card[names.index(p)] for p, _ in given] + [card[i]]
            made = rng.random(shape) * (rng.random(shape) < 0.85) + 1e-3
            return made / made.sum(axis=-1, keepdims=True)

        cpts[v] = table(above)
        m = max((lag for _, lag in above), default=0)
        if m:
            first = [table([p for p in above if p[1] <= t]) for t in range(m)]
            start[v] = first[0] if m == 1 else first
    return jtgpu.DynamicNetwork(states, parents, cpts, start=start, static=static)


def random_codes(rng: np.random.Generator, dyn: jtgpu.DynamicNetwork, n: int, length: int) -> np.ndarray:
    """(n, length, V) states with holes; a static variable has the same state wherever it is observed."""
    codes = np.stack([rng.integers(0, len(dyn.states(v)), (n, length)) for v in dyn.variables], axis=-1)
    for v in dyn.static:
        codes[:, :, dyn.index(v)] = codes[:, :1, dyn.index(v)]
    codes[rng.random(codes.shape) < 0.6] = -1
    return codes


def label(dyn: jtgpu.DynamicNetwork, v: str, t: int) -> str:
    """The name of a variable in the unrolled network."""
    return v if v in dyn.static else f"{v}[{t}]"


def unrolled_cases(dyn: jtgpu.DynamicNetwork, net: jtgpu.BayesianNetwork, codes: np.ndarray) -> np.ndarray:
    """(n, length, V) states as cases of the unrolled network."""
    cases = np.full((len(codes), len(net)), -1, np.int32)
    for t in range(codes.shape[1]):
        for i, v in enumerate(dyn.variables):
            seen = codes[:, t, i] >= 0
            cases[seen, net.index(label(dyn, v, t))] = codes[seen, t, i]
    return cases


def random_question(
    rng: np.random.Generator, dyn: jtgpu.DynamicNetwork, seed: int, n: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A long frame of n sequences, and options of a call on it; the seed chooses the kinds of evidence."""
    length = int(rng.integers(2, 9))
    codes, lengths = random_codes(rng, dyn, n, length), rng.integers(1, length + 1, n)
    if seed % 3 == 0:
        codes[:, :, int(rng.integers(len(dyn)))] = 0  # observed in every row
    frame: dict[str, Any] = {v: [] for v in ("id", *dyn)}
    for i in range(n):
        for row in codes[i, : lengths[i]].tolist():
            frame["id"].append(i)
            for v, s in zip(dyn, row, strict=True):
                frame[v].append(None if s < 0 else dyn.states(v)[s])
    if seed % 4 == 2:
        v = dyn.variables[0]  # static in some templates
        frame[v][1::3] = [list(dyn.states(v)[1:])] * len(frame[v][1::3])
    v = dyn.variables[int(rng.integers(len(dyn)))]
    options: dict[str, Any] = {"keys": jtgpu.learn.Keys(id="id"), "on_error": "flag"}
    if seed % 2:
        options["likelihood"] = {v: rng.random((int(lengths.sum()), len(dyn.states(v)))) + 0.01}
    if seed % 4 == 1:
        options["do"] = {v: dyn.states(v)[0] if v in dyn.static else {0: dyn.states(v)[0]}}
    return frame, options
