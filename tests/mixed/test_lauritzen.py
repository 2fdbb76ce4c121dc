"""Lauritzen's waste incinerator (JASA 87 (1992) 1098, table p. 1107), to every printed digit."""

from __future__ import annotations

import numpy as np
import pytest

import jtgpu
from jtgpu import Gaussian


def incinerator() -> jtgpu.MixedNetwork:
    return jtgpu.MixedNetwork(
        {
            "F": ["intact", "defect"], "W": ["industrial", "household"], "B": ["stable", "unstable"],
            "E": float, "C": float, "D": float, "L": float, "Min": float, "Mout": float,
        },
        {"E": ["F", "W"], "D": ["B", "W", "E"], "C": ["B"], "L": ["D"], "Min": ["W"], "Mout": ["D", "Min"]},
        {
            "F": [0.95, 0.05], "W": [2 / 7, 5 / 7], "B": [0.85, 0.15],
            "E": Gaussian([[-3.9, -3.2], [-0.4, -0.5]], sd=np.sqrt([[2e-5, 2e-5], [1e-4, 1e-4]])),
            "D": Gaussian([[6.5, 6.0], [7.5, 7.0]], {"E": 1.0}, sd=np.sqrt([[0.03, 0.04], [0.1, 0.1]])),
            "C": Gaussian([-2, -1], sd=np.sqrt([0.1, 0.3])),
            "L": Gaussian(3, {"D": -0.5}, sd=0.5),
            "Min": Gaussian([0.5, -0.5], sd=np.sqrt([0.01, 0.005])),
            "Mout": Gaussian(0, {"D": 1, "Min": 1}, sd=np.sqrt(0.002)),
        },
    )  # fmt: skip


PRIOR = {
    "E": (-3.25, 0.709), "D": (3.04, 0.770), "C": (-1.85, 0.507), "L": (1.48, 0.631), "Min": (-0.214, 0.459),
    "Mout": (2.83, 0.860),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_table(backend: str) -> None:
    tree = incinerator().compile(backend)
    prior = tree.posteriors()
    for v, (mean, sd) in PRIOR.items():
        assert abs(prior[v].mean - mean) <= 0.5 * 10 ** -(3 if abs(mean) < 1 else 2) + 1e-9
        assert abs(prior[v].sd - sd) <= 0.0005 + 1e-9
    post = tree.posteriors({"W": "industrial", "L": 1.1, "C": -0.9})
    assert post["B"]["stable"] == pytest.approx(0.01225, abs=5e-6)
    assert f"{post['F']['intact']:.4f}" == "0.9995"
    printed = {"E": ("-3.90", "0.076"), "D": ("3.61", "0.326"), "Mout": ("4.11", "0.344"), "Min": ("0.50", "0.100")}
    for v, (mean, sd) in printed.items():
        assert (f"{post[v].mean:.2f}", f"{post[v].sd:.3f}") == (mean, sd)


def test_observed_numbers_and_frames() -> None:
    tree = incinerator().compile("cpu")
    post = tree.posteriors({"L": 1.1})
    assert (post["L"].mean, post["L"].sd) == (1.1, 0.0)
    frame = tree.posteriors_batch({"L": [1.1, None], "W": [None, "household"]}).to_frame(quantiles=[0.05, 0.95])
    assert frame["E.mean"][0] == pytest.approx(post["E"].mean)
    assert list(frame["E.q5"] < frame["E.mean"]) == [True, True]
    assert frame["W=household"].tolist() == [pytest.approx(post["W"]["household"]), 1.0]
