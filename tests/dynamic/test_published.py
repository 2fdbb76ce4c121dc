"""Templates of the literature with seeded CPTs equal their unrolled networks.

The arcs are those that the Bayes Net Toolbox has (K. P. Murphy, Computing Science and Statistics 33, 2001).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.dynamic import counts
from jtgpu.dynamic.sequences import read_sequences
from tests.dynamic.random_templates import label, unrolled_cases
from tests.dynamic.test_counts import of_unrolled

# name: arcs inside a slice, and arcs to the next one, a word for each child: "a>b c" are a -> b and a -> c
ARCS = {
    # Forbes, Huang, Kanazawa and Russell, The BATmobile, IJCAI 1995
    "bat": (
        ("LeftClr>LeftClrSens RightClr>RightClrSens LatAct>TurnSignalSens,Xdot Xdot>XdotSens FwdAct>Ydot "
        "Ydot>YdotSens,Stopped EngStatus>Ydot,FYdotDiff,Fclr,BXdot SensorValid>XdotSens,YdotSens "
        "FYdotDiff>FYdotDiffSens,FcloseSlow FcloseSlow>FBStatus Fclr>FclrSens,FcloseSlow BXdot>BXdotSens "
        "Bclr>BclrSens,BXdot,BcloseFast BcloseFast>FBStatus BYdotDiff>BYdotDiffSens,BcloseFast"),
        ("LeftClr>LeftClr,LatAct RightClr>RightClr,LatAct LatAct>LatAct,FwdAct Xdot>Xdot,InLane InLane>InLane,LatAct "
        "FwdAct>FwdAct Ydot>Ydot Stopped>Stopped EngStatus>EngStatus FBStatus>FwdAct,LatAct"),
        10,
    ),
    # Jensen, Kjaerulff, Olesen and Pedersen, an expert system for control of waste water treatment, 1989
    "water": (
        "1>9 3>10 4>11 8>12",
        "1>1,3 2>2,3,7 3>3,4,5 4>3,4,6 5>3,5,6 6>4,5,6 7>7,8 8>6,7,8",
        8,
    ),
    # Kjaerulff, dHugin: a computational system for dynamic time-sliced Bayesian networks, 1995
    "mildew": (
        "Mildew>LAI LAI>Micro,Photo Precip>Micro Temp>Micro,Photo Solar>Photo Photo>Dry",
        "Fungi>Mildew Mildew>Mildew LAI>LAI Micro>Mildew Dry>Dry",
        5,
    ),
    "uffe": ("1>2,3 2>3 3>4", "1>1 4>4", 2),
}  # fmt: skip


def published(name: str, rng: np.random.Generator) -> jtgpu.DynamicNetwork:
    """A template of binary variables with random CPTs."""
    inside, later, _ = ARCS[name]
    parents: dict[str, list[Any]] = {}
    for text, lag in ((inside, 0), (later, 1)):
        for word in text.split():
            tail, _, heads = word.partition(">")
            parents.setdefault(tail, [])
            for head in heads.split(","):
                parents.setdefault(head, []).append((tail, lag))
    rows = {v: rng.dirichlet([1.0, 1.0], 2 ** len(above)).reshape(*[2] * len(above), 2) for v, above in parents.items()}
    start = {
        v: rng.dirichlet([1.0, 1.0], 2 ** len(now)).reshape(*[2] * len(now), 2)
        for v, above in parents.items() if len(now := [p for p in above if not p[1]]) < len(above)
    }  # fmt: skip
    return jtgpu.DynamicNetwork({v: ["0", "1"] for v in parents}, parents, rows, start=start, name=name)


@pytest.mark.parametrize("name", ARCS)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_templates_of_the_literature(name: str, backend: Any) -> None:
    rng = np.random.default_rng(len(name))
    dyn = published(name, rng)
    assert len(dyn.interface) == ARCS[name][2]
    if name == "bat":
        assert len(dyn) == 28
    length, n = 3, 4
    codes = rng.integers(0, 2, (n, length, len(dyn)))
    codes[rng.random(codes.shape) < 0.6] = -1
    net = dyn.unroll(length)
    whole = net.compile("reference").posteriors_batch(unrolled_cases(dyn, net, codes))
    tree: Any = dyn.compile(backend)
    found = tree.smooth(codes)
    np.testing.assert_allclose(found.log_evidence, whole.log_evidence, rtol=1e-12)
    for t in range(length):
        for v in dyn:
            np.testing.assert_allclose(found[v][:, t], whole[label(dyn, v, t)], rtol=0, atol=1e-10)
    weights = rng.random(n) + 0.5
    made = counts.expected_counts(tree.step, read_sequences(dyn, codes), weights)
    cpts, start, _ = of_unrolled(dyn, codes, weights, {})
    for k in range(len(dyn)):
        np.testing.assert_allclose(made.cpts[k], cpts[k], rtol=0, atol=1e-10)
        for mine, theirs in zip(made.start[k], start[k], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-10)
    live = tree.stream()
    filtered = tree.filter(codes[:1])
    for t in range(length):
        step = live.step({v: int(s) for v, s in zip(dyn, codes[0, t], strict=True) if s >= 0})
        for v in dyn:
            np.testing.assert_allclose(step[v].probabilities, filtered[v][0, t], rtol=0, atol=1e-12)
