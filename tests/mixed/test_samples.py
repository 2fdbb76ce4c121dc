"""Samples of networks with numbers: interventions, intervals, and draws of truncated normal distributions."""

from __future__ import annotations

import numpy as np
import pytest

import jtgpu
from jtgpu import Gaussian
from jtgpu.mixed.truncated import draw_truncated

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (-np.inf, np.inf),
        (-1, 1),
        (-0.2, 5),
        (0.5, np.inf),
        (3, 3.1),
        (-9, -8),
        (-np.inf, -30),
        (0, 0.4),
        (-3, 0),
        (2, 7),
    ],
)
def test_truncated_draws(a: float, b: float) -> None:
    n = 20_000
    drawn = draw_truncated(np.full(n, float(a)), np.full(n, float(b)), np.random.default_rng(1))
    assert ((drawn >= a) & (drawn <= b)).all()
    assert stats.kstest(drawn, stats.truncnorm(a, b).cdf).pvalue > 1e-3


def chain() -> jtgpu.MixedNetwork:
    y, z = Gaussian(1, {"x": 2}, 3), Gaussian(0, {"y": 1}, 1)
    return jtgpu.MixedNetwork(
        {"s": ["a", "b"], "x": float, "y": float, "z": float}, {"x": ["s"], "y": ["x"], "z": ["y"]},
        {"s": [0.3, 0.7], "x": Gaussian([0, 4], sd=[1, 2]), "y": y, "z": z},
    )  # fmt: skip


def test_interventions_tell_nothing_about_causes() -> None:
    tree = chain().compile("cpu")
    drawn, post = tree.sample(20_000, do={"y": 30.0}, seed=1), tree.posteriors(do={"y": 30.0})
    for v in ("x", "z"):
        assert drawn[v].mean() == pytest.approx(post[v].mean, abs=0.05)
        assert drawn[v].std() == pytest.approx(post[v].sd, abs=0.05)
    assert np.mean(drawn["s"] == "b") == pytest.approx(0.7, abs=0.01)


@pytest.mark.parametrize(
    "evidence", [{"x": (3.0, np.inf)}, {"x": (-1.0, 0.5), "y": 8.0}, {"z": (25, 26), "y": 8.0, "s": "a"}]
)
def test_samples_given_an_interval(evidence: dict[str, object]) -> None:
    tree = chain().compile("cpu")
    # y and z are drawn given x, of which posteriors have no closed form
    targets = ["s", "x"] if len(evidence) == 1 else None
    drawn, post = tree.sample(30_000, evidence, seed=2), tree.posteriors(evidence, targets=targets)
    assert np.mean(drawn["s"] == "b") == pytest.approx(post["s"]["b"], abs=0.01)
    for v in [v for v in post if v != "s"]:
        assert drawn[v].mean() == pytest.approx(post[v].mean, abs=0.05)
        assert drawn[v].std() == pytest.approx(post[v].sd, abs=0.05)
    low, high = next(x for x in evidence.values() if isinstance(x, tuple))
    inside = drawn[next(v for v, x in evidence.items() if isinstance(x, tuple))]
    assert inside.min() >= low
    assert inside.max() <= high
