"""Entropy, mutual information and value of information with numbers: closed forms, and quadrature by SciPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import Gaussian
from jtgpu.errors import ArgumentError, EvidenceError
from jtgpu.mixed.information import entropy
from jtgpu.mixed.results import Parts
from tests.mixed.test_lauritzen import incinerator

integrate = pytest.importorskip("scipy.integrate")
stats = pytest.importorskip("scipy.stats")


def density(x: Any, w: Any, m: Any, s: Any) -> Any:
    return sum(a * stats.norm.pdf(x, b, c) for a, b, c in zip(w, m, s, strict=True))


@pytest.mark.parametrize(
    ("w", "m", "s"),
    [
        ([1.0], [3.0], [2.0]), ([0.3, 0.7], [0, 0.5], [1, 1]), ([0.5, 0.5], [0, 1e4], [1, 3]),
        ([0.9, 0.1], [0, 0], [1, 1e-4]),
        ([0.2, 0.3, 0.5], [-1, 2, 2.1], [0.1, 2, 0.01]), ([0.5, 0.5, 0.0], [1, 1, 9], [2, 2, 1]),
    ],
)  # fmt: skip
def test_entropy_of_mixtures(w: list[float], m: list[float], s: list[float]) -> None:
    def f(x: float) -> float:
        p = density(x, w, m, s)
        return -p * np.log(p) if p > 0 else 0.0

    ends = sorted({b + c * k for b, c in zip(m, s, strict=True) for k in (-10, -4, -1, 0, 1, 4, 10)})
    expected = sum(integrate.quad(f, a, b, epsabs=1e-13)[0] for a, b in itertools.pairwise(ends))
    assert entropy(Parts(*map(np.array, (w, m, s)))) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_normal_numbers_have_closed_forms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = "abcd"
    parents = {v: [u for u in names[:i] if rng.random() < 0.7] for i, v in enumerate(names)}
    cpts = {v: Gaussian(rng.normal(), {u: rng.normal() for u in p}, rng.uniform(0.5, 2)) for v, p in parents.items()}
    tree = jtgpu.MixedNetwork(dict.fromkeys(names, float), parents, cpts).compile("cpu")
    _, cov = tree.moments([*"abc"], {"d": 1.0})
    gains = tree.mutual_information("a", evidence={"d": 1.0}, unit="nats")
    ranking = tree.value_of_information("a", evidence={"d": 1.0})
    assert tree.entropy("b", {"d": 1.0}) == pytest.approx(0.5 * np.log(2 * np.pi * np.e * cov[1, 1]))
    expected = stats.multivariate_normal([0, 0], cov[:2, :2]).entropy()
    assert tree.entropy(["a", "b"], {"d": 1.0}) == pytest.approx(expected, abs=1e-9)
    for i, v in ((1, "b"), (2, "c")):
        rho = cov[0, i] / np.sqrt(cov[0, 0] * cov[i, i])
        assert gains[v] == pytest.approx(-0.5 * np.log1p(-(rho**2)), abs=1e-10)
        found = next(o for o in ranking if o.variable == v)
        assert found.expected_sd == pytest.approx(np.sqrt(cov[0, 0] * (1 - rho**2)))
        assert found.expected_entropy + found.gain == pytest.approx(tree.entropy("a", {"d": 1.0}))
    assert gains["d"] == 0


def test_states_and_numbers_tell_each_other_the_same() -> None:
    tree, e = incinerator().compile("cpu"), {"L": 1.1, "W": "industrial"}
    p = np.asarray(tree.posterior("B", e))
    given = [tree.posterior("D", {**e, "B": s}) for s in ("stable", "unstable")]
    after = [0.0, 0.0]
    for i, post in enumerate(given):
        ends = np.unique(np.add.outer(tree.posterior("D", e).parts.means, np.arange(-8, 9) * 0.15).ravel())

        def f(x: float, i: int = i) -> Any:
            each = [q.density(x) for q in given]
            return p[i] * each[i] * np.log(each[i] / (p @ each)) if each[i] > 1e-300 else 0.0

        after[i] = sum(integrate.quad(f, a, b, epsabs=1e-12)[0] for a, b in itertools.pairwise(ends))
        assert post.sd > 0
    assert tree.mutual_information("B", ["D"], e)["D"] == pytest.approx(sum(after), abs=1e-7)
    assert tree.mutual_information("D", ["B"], e)["B"] == pytest.approx(sum(after), abs=1e-7)
    (found,) = tree.value_of_information("B", ["D"], e)
    x = np.linspace(-1, 10, 200_001)
    best = np.max([q * post.density(x) for q, post in zip(p, given, strict=True)], axis=0)
    assert found.expected_accuracy == pytest.approx(integrate.simpson(best, x=x), abs=1e-6)
    (of_number,) = tree.value_of_information("D", ["B"], e)
    assert of_number.expected_sd == pytest.approx(np.sqrt(sum(q * g.sd**2 for q, g in zip(p, given, strict=True))))
    both = tree.entropy(["B", "D"], e)
    assert both == pytest.approx(
        tree.entropy("B", e) + sum(q * entropy(g.parts) for q, g in zip(p, given, strict=True))
    )


def test_two_numbers_of_a_mixture() -> None:
    w, mean = np.array([0.3, 0.7]), np.array([[0.0, 1.0], [2.0, -1.0]])
    slope, sx, sy = np.array([1.0, -0.5]), np.array([1.0, 0.6]), np.array([0.5, 1.0])
    net = jtgpu.MixedNetwork(
        {"s": ["a", "b"], "x": float, "y": float}, {"x": ["s"], "y": ["s", "x"]},
        {"s": w, "x": Gaussian(mean[:, 0], sd=sx), "y": Gaussian(mean[:, 1] - slope * mean[:, 0], {"x": slope}, sy)},
    )  # fmt: skip
    tree = net.compile("cpu")
    x, y = np.linspace(-6, 8, 1401), np.linspace(-9, 10, 1901)
    fx = [stats.norm.pdf(x, mean[k, 0], sx[k]) for k in (0, 1)]
    center = [mean[k, 1] + slope[k] * (x - mean[k, 0]) for k in (0, 1)]
    joint = sum(w[k] * fx[k][:, None] * stats.norm.pdf(y, center[k][:, None], sy[k]) for k in (0, 1))
    px, py = integrate.simpson(joint, x=y, axis=1), integrate.simpson(joint, x=x, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(joint > 1e-200, joint * np.log(joint / np.outer(px, py)), 0.0)
    expected = integrate.simpson(integrate.simpson(inner, x=y, axis=1), x=x)
    for target, other in (("x", "y"), ("y", "x")):
        assert tree.mutual_information(target, [other])[other] == pytest.approx(expected, abs=1e-6)
    of_y = integrate.simpson(joint * y, x=y, axis=1) / px
    spread = integrate.simpson(integrate.simpson(joint * (y - of_y[:, None]) ** 2, x=y, axis=1), x=x)
    (found,) = tree.value_of_information("y", ["x"])
    assert found.expected_sd == pytest.approx(np.sqrt(spread), abs=1e-6)


def test_states_alone_are_as_in_the_discrete_network() -> None:
    net = incinerator()
    tree, discrete = net.compile("cpu"), net.discrete.compile("cpu")
    assert tree.mutual_information("B", ["F", "W"]) == pytest.approx(
        discrete.mutual_information("B", ["F", "W"]), abs=1e-12
    )
    assert tree.entropy("W", unit="bits") == pytest.approx(discrete.entropy("W", unit="bits"))
    for one, other in zip(
        tree.value_of_information("B", ["F", "W"]), discrete.value_of_information("B", ["F", "W"]), strict=True
    ):
        assert one.expected_accuracy == pytest.approx(other.expected_accuracy)


def test_observed_and_wrong_variables() -> None:
    tree = incinerator().compile("cpu")
    assert tree.mutual_information("B", ["L", "W"], {"L": 1.1, "W": "industrial"}) == {"L": 0.0, "W": 0.0}
    assert [o.variable for o in tree.value_of_information("B", evidence={"L": 1.1}, do={"Min": 0.2})][-1] != "Min"
    interval = tree.value_of_information("B", ["W", "F"], {"C": (-1.0, 0.0)})
    assert len(interval) == 2
    with pytest.raises(ArgumentError, match="'L' is observed"):
        tree.entropy("L", {"L": 1.1})
    with pytest.raises(EvidenceError, match="in an interval"):
        tree.value_of_information("C", ["B"], {"C": (-1.0, 0.0)})
    with pytest.raises(ArgumentError, match="one or two variables, not 3"):
        tree.entropy(["B", "F", "W"])
    with pytest.raises(EvidenceError, match="must not be among"):
        tree.mutual_information("B", ["B", "W"])
