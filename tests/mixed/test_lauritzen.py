"""Lauritzen's waste incinerator (JASA 87 (1992) 1098, table p. 1107), to every printed digit."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

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
def test_table(backend: Any) -> None:
    tree = incinerator().compile(backend)
    prior = tree.posteriors()
    for v, (mean, sd) in PRIOR.items():
        assert abs(prior[v].mean - mean) <= 0.5 * 10 ** -(3 if abs(mean) < 1 else 2) + 1e-9
        assert abs(prior[v].sd - sd) <= 0.0005 + 1e-9
    post = tree.posteriors({"W": "industrial", "L": 1.1, "C": -0.9})
    assert post["B"]["stable"] == pytest.approx(0.01225, abs=5e-6)
    assert f"{post['F']['intact']:.4f}" == "0.9995"
    printed = {"E": "-3.90 0.076", "D": "3.61 0.326", "Mout": "4.11 0.344", "Min": "0.50 0.100"}
    for v, line in printed.items():
        assert f"{post[v].mean:.2f} {post[v].sd:.3f}" == line


def test_observed_numbers_and_frames() -> None:
    tree = incinerator().compile("cpu")
    post = tree.posteriors({"L": 1.1})
    assert (post["L"].mean, post["L"].sd) == (1.1, 0.0)
    frame = tree.posteriors_batch({"L": [1.1, None], "W": [None, "household"]}).to_frame(quantiles=[0.05, 0.95])
    assert frame["E.mean"][0] == pytest.approx(post["E"].mean)
    assert list(frame["E.q5"] < frame["E.mean"]) == [True, True]
    assert frame["W=household"].tolist() == [pytest.approx(post["W"]["household"]), 1.0]


def test_categorical_columns_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    tree = incinerator().compile("cpu")
    cells = ["household", None, "industrial"]
    frame = pandas.DataFrame({"L": [1.1, 1.2, None], "W": pandas.Categorical(cells)})
    expected = tree.posteriors_batch({"L": [1.1, 1.2, None], "W": cells})
    assert np.array_equal(tree.posteriors_batch(frame)["B"], expected["B"])
    assert tree.impute(frame, seed=1).to_frame()["W"].tolist()[::2] == cells[::2]


def test_moments_intervals_and_interventions() -> None:
    rho = 0.6
    cpts = {"x": Gaussian(0), "y": Gaussian(0, {"x": rho}, 0.8)}
    net = jtgpu.MixedNetwork({"x": float, "y": float}, {"y": ["x"]}, cpts)
    tree = net.compile("cpu")
    mean, cov = tree.moments(["x", "y"])
    assert mean == pytest.approx([0, 0])
    assert cov == pytest.approx(np.array([[1, rho], [rho, 1]]))
    assert tree.moments(["x", "x"])[1] == pytest.approx(np.ones((2, 2)))
    half = tree.posteriors({"x": (0.0, np.inf)}, targets=["x"])
    assert half.log_evidence == pytest.approx(np.log(0.5))
    assert (half["x"].mean, half["x"].sd) == pytest.approx((np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)))
    assert half["x"].quantiles([0.5]) == pytest.approx([0.6744897501960817])
    with pytest.raises(jtgpu.EvidenceError, match="'y' is not observed"):
        tree.posteriors({"x": (0.0, 1.0)})
    assert tree.posterior("x", do={"y": 3.0}).mean == 0.0
    assert tree.posterior("y", do={"x": 2.0}).mean == pytest.approx(1.2)


def test_trees_are_pickled_and_reload_networks_of_their_structure() -> None:
    net = incinerator()
    with net.compile("reference") as tree:
        copy = pickle.loads(pickle.dumps(tree))
        assert copy.posteriors({"L": 1.1})["B"].as_dict() == tree.posteriors({"L": 1.1})["B"].as_dict()
        with pytest.raises(jtgpu.PlanError):
            tree.reload(jtgpu.MixedNetwork({"x": float}, {}, {"x": Gaussian(0)}))
        assert tree.network is net


def test_no_evidence_of_numbers_is_nan() -> None:
    net = jtgpu.MixedNetwork({"x": float}, {}, {"x": Gaussian(0)})
    tree = net.compile("cpu")
    with pytest.raises(jtgpu.NetworkError, match="'x' is a number; its parameters are gaussian"):
        net.cpt("x")
    with pytest.raises(jtgpu.ImpossibleEvidence, match=r"row 0: the evidence has probability 0: x=1e\+200"):
        tree.posteriors_batch({"x": [1e200]})
    assert tree.log_likelihood({"x": [1e200, 0.0]})[0] == -np.inf  # as of a JunctionTree
    with pytest.raises(jtgpu.ImpossibleEvidence, match=r"the evidence has probability 0: x in \(1e\+200, inf\)"):
        tree.posteriors({"x": (1e200, np.inf)})
    for wrong in (np.nan, "a", [0.0, None]):
        for function in (tree.posterior("x").cdf, tree.posterior("x").density):
            with pytest.raises(jtgpu.ArgumentError, match="x must be a number"):
                function(wrong)


def test_units_do_not_matter() -> None:
    answers = []
    for unit in (1e-12, 1.0, 1e12):
        net = jtgpu.MixedNetwork(
            {"s": ["a", "b"], "x": float, "y": float}, {"x": ["s"], "y": ["x"]},
            {"s": [0.3, 0.7], "x": Gaussian([0, 2 * unit], sd=unit), "y": Gaussian(0, {"x": 1 / unit}, 1)},
        )  # fmt: skip
        post = net.compile("cpu").posteriors({"y": 1.5})
        shared = net.compile("cpu").moments(["x", "y"])[1][0, 1] / unit
        answers.append([post["s"]["a"], post["x"].mean / unit, post["x"].sd / unit, post.log_evidence, shared])
    assert answers[0] == pytest.approx(answers[1], rel=1e-10)
    assert answers[2] == pytest.approx(answers[1], rel=1e-10)


def test_far_values_do_not_make_evidence_impossible() -> None:
    net = jtgpu.MixedNetwork(
        {"s": ["a", "b", "c"], "t": ["a", "b"], "x": float}, {"t": ["s"], "x": ["s"]},
        {"s": [0.2, 0.3, 0.5], "t": [[1, 0], [1, 0], [0, 1]], "x": Gaussian([0, 1, 1000], sd=1)},
    )  # fmt: skip
    post = net.compile("cpu").posteriors({"x": 1000.0, "t": "a"})  # s = c alone fits x, but t excludes it
    assert post["s"]["b"] == pytest.approx(1.0)
    assert post.log_evidence == pytest.approx(np.log(0.3) - 0.5 * 999.0**2 - 0.5 * np.log(2 * np.pi), rel=1e-12)


@pytest.mark.slow
def test_samples_and_imputation() -> None:
    tree = incinerator().compile("cpu")
    drawn = tree.sample(40_000, {"L": 1.1}, seed=3)
    post = tree.posteriors({"L": 1.1})
    assert drawn["E"].mean() == pytest.approx(post["E"].mean, abs=0.02)
    assert drawn["D"].std() == pytest.approx(post["D"].sd, abs=0.02)
    assert np.mean(drawn["B"] == "stable") == pytest.approx(post["B"]["stable"], abs=0.01)
    assert set(drawn["L"]) == {1.1}
    frame = drawn.to_frame()
    frame.loc[:20_000, ["E", "B"]] = None
    filled = tree.impute(frame, seed=4).to_frame()
    assert not filled.isna().any().any()
    assert filled["E"].std() == pytest.approx(drawn["E"].std(), abs=0.02)
    assert (filled.loc[20_001:, "E"] == frame.loc[20_001:, "E"]).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: jtgpu.MixedNetwork({"x": float, "s": ["a", "b"]}, {"s": ["x"]}, {}), "parent of 's', which has"),
        (lambda: jtgpu.MixedNetwork({"x": float}, {}, {"x": [0.5, 0.5]}), "needs a jtgpu.Gaussian"),
        (lambda: jtgpu.MixedNetwork({"s": ["a"]}, {}, {"s": Gaussian(0)}), "needs a CPT, got a Gaussian"),
        (lambda: jtgpu.MixedNetwork({"x": float}, {}, {"x": Gaussian([1, 2])}), "expected \\(\\), a number"),
        (lambda: Gaussian(0, sd=0), "must be > 0"),
        (lambda: Gaussian(float("nan")), "must be finite"),
        (
            lambda: jtgpu.MixedNetwork(
                {"x": float, "y": float}, {"y": ["x"]}, {"x": Gaussian(0), "y": Gaussian(0)}
            ), "no coefficient",
        ),
    ],
)
def test_bad_networks(make: Callable[[], object], words: str) -> None:
    with pytest.raises(jtgpu.NetworkError, match=words):
        make()


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ({"E": "high"}, "'E' is a number"), ({"E": float("inf")}, "must be finite"), ({"E": (2.0, 1.0)}, "is empty"),
        ({"E": (1.0, 2.0, 3.0)}, "low, high"), ({"Q": 1.0}, "no variable 'Q'"), ({"W": 7}, "7"),
    ],
)  # fmt: skip
def test_bad_evidence(evidence: dict[str, object], words: str) -> None:
    with pytest.raises(jtgpu.JtgpuError, match=words):
        incinerator().compile("cpu").posteriors(evidence)


def test_too_many_configurations_are_refused_by_name() -> None:
    names = [f"d{i}" for i in range(12)]
    states = {v: ["a", "b"] for v in names} | {f"x{i}": float for i in range(12)} | {"sum": float}
    cpts = {v: [0.5, 0.5] for v in names} | {f"x{i}": Gaussian([0, 1]) for i in range(12)}
    cpts["sum"] = Gaussian(0, {f"x{i}": 1.0 for i in range(12)})
    parents = {f"x{i}": [f"d{i}"] for i in range(12)} | {"sum": [f"x{i}" for i in range(12)]}
    net = jtgpu.MixedNetwork(states, parents, cpts)
    with pytest.raises(jtgpu.TableTooLarge, match="4,096 configurations of 12 variables"):
        net.compile("cpu", max_configurations=1000).posteriors({"sum": 3.0})


def test_a_table_without_rows_has_no_answers() -> None:
    post = incinerator().compile("cpu").posteriors_batch({"L": []})
    assert len(post.log_evidence) == len(post["E"].mean) == len(post["B"]) == 0


def test_frames_of_floats_are_read_at_once() -> None:
    pandas = pytest.importorskip("pandas")
    cpts = {"x": Gaussian(0), "y": Gaussian(0, {"x": 0.6}, 0.8), "z": Gaussian(1, sd=2)}
    net = jtgpu.MixedNetwork(dict.fromkeys("xyz", float), {"y": ["x"]}, cpts)
    tree = net.compile("cpu")
    columns = {"z": [1.0, 2.5, np.nan], "other": [9.0, 9.0, 9.0], "x": [0.1, np.nan, 0.3]}
    same = tree.posteriors_batch({v: x for v, x in columns.items() if v != "other"})
    for frame in (pandas.DataFrame(columns), pandas.DataFrame(columns | {"note": ["a", "b", "c"]})):
        answers = tree.posteriors_batch(frame)
        assert np.array_equal(answers["y"].mean, same["y"].mean)
        assert answers.to_frame()["z.mean"].tolist() == [1.0, 2.5, 1.0]
    with pytest.raises(jtgpu.DataError, match="row 1, column 'x': the value is infinite"):
        tree.posteriors_batch(pandas.DataFrame(columns | {"x": [0.1, np.inf, 0.3]}))
