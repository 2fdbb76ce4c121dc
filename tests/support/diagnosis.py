"""Networks of the shape of QMR-DT: independent causes and findings that are noisy-OR children, and their oracle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jtgpu import BayesianNetwork, NoisyOr

LABELS = ["no", "yes"]


def diagnosis(n_causes: int = 600, n_findings: int = 4000, mean: float = 11.0, seed: int = 0) -> BayesianNetwork:
    """Causes d0, d1, ... with priors of .001 to .05; findings f0, f1, ... of about `mean` causes, with leaks."""
    rng = np.random.default_rng(seed)
    priors = np.exp(rng.uniform(np.log(0.001), np.log(0.05), n_causes))
    cpts: dict[str, Any] = {f"d{i}": [1 - p, p] for i, p in enumerate(priors.tolist())}
    parents = {}
    for f in range(n_findings):
        causes = np.sort(rng.choice(n_causes, int(np.clip(rng.geometric(1 / mean), 1, n_causes)), replace=False))
        parents[f"f{f}"] = [f"d{i}" for i in causes]
        links = rng.uniform(0.025, 0.985, len(causes)).tolist()
        cpts[f"f{f}"] = NoisyOr(dict(zip(parents[f"f{f}"], links, strict=True)), float(rng.uniform(1e-4, 0.01)))
    return BayesianNetwork(dict.fromkeys(cpts, LABELS), parents, cpts)


def case(net: BayesianNetwork, present: int, absent: int, seed: int = 0, n_active: int = 0) -> dict[str, str]:
    """Findings drawn at random; with `n_active`, the present ones from those that so many causes produce."""
    rng = np.random.default_rng(seed)
    findings = [f for f in net if f in net.noisy]
    if not n_active:
        drawn = rng.choice(findings, present + absent, replace=False).tolist()
        return {**dict.fromkeys(drawn[:present], "yes"), **dict.fromkeys(drawn[present:], "no")}
    while True:
        causes = [v for v in net if v not in net.noisy]
        active = {*rng.choice(causes, n_active, replace=False).tolist()}
        links = {f: [1 - p for v, p in _links(net, f)[0] if v in active] for f in findings}
        on = [f for f in findings if rng.random() > (1 - _links(net, f)[1]) * math.prod(links[f])]
        if len(on) >= present:
            off = sorted({*findings} - {*on})
            yes, no = rng.choice(on, present, replace=False), rng.choice(off, absent, replace=False)
            return {**dict.fromkeys(yes.tolist(), "yes"), **dict.fromkeys(no.tolist(), "no")}
        n_active += 1


def _links(net: BayesianNetwork, f: str) -> tuple[list[tuple[str, float]], float]:
    noisy = net.noisy[f]
    return [(v, float(r[1, 1])) for v, r in zip(net.parents(f), noisy.effects, strict=True)], float(noisy.leak_row[1])


class Recursion:
    """P(findings) by cause after cause: f[S] = P(of the present findings exactly S have been produced so far).

    No number is subtracted from another one, so no digits are lost.
    """

    def __init__(self, net: BayesianNetwork, findings: dict[str, str]):
        self.priors = {v: float(np.asarray(net.cpt(v))[1]) for v in net if v not in net.noisy}
        self.links: dict[str, list[tuple[int, float]]] = {v: [] for v in self.priors}
        self.none = dict.fromkeys(self.priors, 1.0)  # P(no absent finding is produced | the cause)
        self.absent, self.leaks = 1.0, []
        for f, state in findings.items():
            links, leak = _links(net, f)
            if state == "yes":
                self.leaks.append(leak)
            else:
                self.absent *= 1 - leak
            for v, p in links:
                if state == "yes":
                    self.links[v].append((len(self.leaks) - 1, p))
                else:
                    self.none[v] *= 1 - p

    def probability(self, known: dict[str, int] | None = None) -> float:
        """P(findings, causes in known states)."""
        start = np.zeros(1 << len(self.leaks))
        start[0] = 1.0
        f = self.produced(start, list(enumerate(self.leaks)))
        scale = self.absent
        for v, p in self.priors.items():
            off, on = 1.0 - p, p * self.none[v]
            if known and v in known:
                off, on = (0.0, on) if known[v] else (off, 0.0)
            if self.links[v]:
                f = off * f + on * self.produced(f, self.links[v])
            else:
                scale *= off + on
        return float(f[-1]) * scale

    @staticmethod
    def produced(f: np.ndarray, links: list[tuple[int, float]]) -> np.ndarray:
        """The sets after a cause has acted."""
        for i, p in links:
            halves = f.reshape(-1, 2, 1 << i)
            f = np.stack([halves[:, 0] * (1 - p), halves[:, 1] + halves[:, 0] * p], axis=1).reshape(-1)
        return f
