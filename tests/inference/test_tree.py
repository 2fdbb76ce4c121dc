"""JunctionTree: evidence by name, labelled posteriors, and error messages with the closest names."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu import errors
from jtgpu.backends import make
from jtgpu.formats import bundled
from jtgpu.model.states import StateNumber
from tests.model.test_network import lawn
from tests.support import oracle


@pytest.fixture(scope="module")
def tree() -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = lawn().compile("reference", order=["wet", "rain", "sprinkler"])
    return made


def test_posteriors_are_a_labelled_mapping(tree: jtgpu.JunctionTree) -> None:
    post = tree.posteriors(evidence={"wet": "wet"})
    assert list(post) == ["rain", "sprinkler", "wet"]
    assert len(post) == 3
    expected = oracle.posteriors(lawn(), {2: np.array([0.0, 0.0, 1.0])})
    np.testing.assert_allclose(np.asarray(post["rain"]), expected[0], atol=1e-15)
    np.testing.assert_allclose(post["rain"], expected[0], atol=1e-15)
    assert post["rain"]["yes"] == pytest.approx(expected[0][1])
    assert post["rain"][1] == post["rain"]["yes"]
    assert post[0]["yes"] == post["rain"]["yes"]
    assert dict(post["rain"]) == post["rain"].as_dict() == {"no": post["rain"][0], "yes": post["rain"][1]}
    assert post["wet"].mode == "wet"
    assert len(post["wet"]) == 3
    assert np.asarray(post["rain"], dtype=np.float32).dtype == np.float32
    assert "no: " in repr(post["rain"])
    assert "3 variables" in repr(post)
    assert math.exp(post.log_evidence) == pytest.approx(oracle.joint(lawn())[:, :, 2].sum())
    with pytest.raises(ValueError, match="read-only"):
        post["rain"].probabilities[0] = 1.0
    with pytest.raises(errors.UnknownState, match="no state 'maybe'"):
        post["rain"]["maybe"]
    with pytest.raises(KeyError):
        post["fog"]


def test_targets(tree: jtgpu.JunctionTree) -> None:
    post = tree.posteriors({"wet": "wet"}, targets=["sprinkler"])
    assert list(post) == ["sprinkler"]
    with pytest.raises(KeyError, match="'rain' is not among the targets"):
        post["rain"]
    assert list(tree.posteriors({"wet": "wet"}, targets="rain")) == ["rain"]
    full = tree.posteriors({"wet": "wet"})
    np.testing.assert_array_equal(tree.posterior("sprinkler", {"wet": "wet"}), full["sprinkler"])
    assert tree.log_evidence({"wet": "wet"}) == full.log_evidence


@pytest.mark.parametrize(
    ("evidence", "likelihood", "weights"),
    [
        ({}, {}, {}),
        (None, None, {}),
        ({"wet": StateNumber(1)}, {}, {2: [0, 1, 0]}),
        ({2: "damp"}, {}, {2: [0, 1, 0]}),
        ({"wet": {"damp", "wet"}}, {}, {2: [0, 1, 1]}),
        ({"wet": ["damp", StateNumber(2)]}, {}, {2: [0, 1, 1]}),
        ({"wet": {"damp"}}, {}, {2: [0, 1, 0]}),
        ({"wet": {"dry", "damp", "wet"}}, {}, {}),
        ({}, {"wet": [0.1, 0.5, 2.0]}, {2: [0.1, 0.5, 2.0]}),
        ({}, {"wet": {"dry": 0.1, "damp": 0.5, "wet": 2}}, {2: [0.1, 0.5, 2.0]}),
        ({"wet": {"damp", "wet"}}, {"wet": [0.1, 0.5, 2.0]}, {2: [0, 0.5, 2.0]}),
        ({"wet": "wet"}, {"wet": [0.1, 0.5, 2.0]}, {2: [0, 0, 2.0]}),
    ],
)
def test_kinds_of_evidence(tree: jtgpu.JunctionTree, evidence: Any, likelihood: Any, weights: Any) -> None:
    found = {v: np.array(w, float) for v, w in weights.items()}
    post = tree.posteriors(evidence, likelihood=likelihood)
    assert post.log_evidence == pytest.approx(oracle.log_evidence(lawn(), found), abs=1e-14)
    for p, q in zip(post.values(), oracle.posteriors(lawn(), found), strict=True):
        np.testing.assert_allclose(p, q, atol=1e-14)


@pytest.mark.parametrize(
    ("evidence", "likelihood", "kind", "says"),
    [
        ({"wett": 1}, {}, errors.UnknownVariable, "did you mean 'wet'"),
        ({"wet": "damped"}, {}, errors.UnknownState, "did you mean 'damp'"),
        ({"wet": 1}, {}, errors.UnknownState, "state number 1 is 'damp'"),
        ({"wet": 1.5}, {}, errors.UnknownState, "no state 1.5"),
        ({"wet": 1j}, {}, errors.UnknownState, "given by name"),
        ({"wet": set()}, {}, errors.ImpossibleEvidence, "empty set of states"),
        ({"wet": {"dry": 0.5}}, {}, errors.EvidenceError, "likelihood="),
        ({"wet": np.array([0.1, 0.2, 0.7])}, {}, errors.EvidenceError, "likelihood="),
        ({"wet": "dry", 2: "dry"}, {}, errors.EvidenceError, "'wet' twice"),
        ([("wet", 1)], {}, errors.EvidenceError, r"evidence must be a mapping such as \{'xray': 'yes'\}, not a list"),
        ({}, {"wet": [1, 2]}, errors.EvidenceError, r"shape \(2,\), expected \(3,\)"),
        ({}, {"wet": [1, 2, -1]}, errors.EvidenceError, "weights >= 0"),
        ({}, {"wet": [1, 2, math.nan]}, errors.EvidenceError, "finite"),
        ({}, {"wet": [0, 0, 0]}, errors.ImpossibleEvidence, "zero in every state"),
        ({}, {"wet": {"dry": 1}}, errors.EvidenceError, "no weight for 'damp', 'wet'"),
        ({}, {"wet": "wet"}, errors.EvidenceError, "must be an array of numbers"),
        ({}, {"wet": [1, 1, 1], 2: [1, 1, 1]}, errors.EvidenceError, "'wet' twice"),
        ({"rain": "no", "sprinkler": "off", "wet": "wet"}, {}, errors.ImpossibleEvidence, "wet = 'wet'"),
    ],
)
def test_invalid_evidence(
    tree: jtgpu.JunctionTree, evidence: Any, likelihood: Any, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind, match=says) as error:
        tree.posteriors(evidence, likelihood=likelihood)
    assert isinstance(error.value, jtgpu.JtgpuError)


def test_impossible_evidence_names_all_of_it(tree: jtgpu.JunctionTree) -> None:
    with pytest.raises(errors.ImpossibleEvidence) as error:
        tree.log_evidence({"rain": "no", "sprinkler": "off", "wet": "wet"})
    for part in ("rain = 'no'", "sprinkler = 'off'", "wet = 'wet'"):
        assert part in str(error.value)
    assert tree.log_evidence({"rain": "yes"}) == pytest.approx(math.log(0.2))  # the tree still answers


def test_trees_close(tree: jtgpu.JunctionTree) -> None:
    with lawn().compile(backend="reference") as other:
        assert other.backend == "reference"
        assert other.model == lawn()
        assert other.plan.cost().cliques == 1
        assert "lawn" in repr(other)
    with pytest.raises(errors.JtgpuError, match="closed"):
        other.posteriors()


def test_the_package_exports_what_it_lists() -> None:
    for name in jtgpu.__all__:
        assert getattr(jtgpu, name) is not None
    packages = {n for n in dir(jtgpu) if isinstance(getattr(jtgpu, n), ModuleType)}
    assert {"cases", "errors", "learn"} <= packages
    assert {*dir(jtgpu)} == {*jtgpu.__all__} | packages
    assert not packages & {"util", "backends", "importlib"}
    with pytest.raises(AttributeError, match="no 'nothing'"):
        _ = jtgpu.nothing


def test_float32_raises_on_backends_without_it() -> None:
    net = jtgpu.read(bundled.benchmark_files(["asia"])[0])
    for name in ("cpu", "reference"):
        with pytest.raises(errors.BackendUnavailable, match="float64"):
            net.compile(name, dtype="float32")
        with pytest.raises(ValueError, match="float16"):
            net.compile(name, dtype="float16")  # type: ignore[arg-type]
        with net.plan().compile(name, dtype="float64") as tree:
            assert tree.dtype == "float64"
            assert "float" not in repr(tree)
            assert tree.posterior("lung")["yes"] == pytest.approx(0.055)


def test_auto_may_choose_a_float64_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "choose", lambda plan: make.Choice("cpu", "for this test"))
    net = jtgpu.read(bundled.benchmark_files(["asia"])[0])
    with net.compile(dtype="float32") as tree:
        assert tree.backend == "cpu"
        assert tree.posterior("lung")["yes"] == pytest.approx(0.055, abs=1e-12)


def test_dtype_on_the_command_line() -> None:
    from click.testing import CliRunner

    from jtgpu.cli import app

    def ask(*more: str) -> tuple[int, str]:
        file = str(bundled.benchmark_files(["asia"])[0])
        done = CliRunner().invoke(app, ["query", file, "-t", "lung", *more])
        return done.exit_code, done.output

    assert ask("--dtype", "float64", "--backend", "cpu") == ask("--backend", "cpu")
    code, said = ask("--dtype", "float32", "--backend", "reference")
    assert code == 1
    assert "float64" in said
    assert ask("--dtype", "half")[0] == 2
