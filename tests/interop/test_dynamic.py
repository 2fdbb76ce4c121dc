"""Dynamic networks of pgmpy and pyAgrum: both ways, with their own answers."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import FormatError, NetworkError

from ..dynamic.random_templates import label, random_codes, random_template, unrolled_cases
from ..formats.test_dynamic_files import umbrella
from ..support.examples import some


def same(a: jtgpu.DynamicNetwork, b: jtgpu.DynamicNetwork, length: int = 5) -> bool:
    """Whether two templates have the same distribution; the order of variables and parents may differ."""
    rng = np.random.default_rng(7)
    full, other = a.unroll(length), b.unroll(length)
    cases = unrolled_cases(a, full, random_codes(rng, a, 30, length))
    order = [full.index(label(a, v, t)) for v, t in _copies(b, length)]
    known = other.variables
    assert sorted(known) == sorted(full.variables[i] for i in order)
    columns = np.stack([cases[:, full.index(v)] for v in known], axis=1)
    x = full.compile("cpu").posteriors_batch(cases, targets=[], on_error="flag").log_evidence
    y = other.compile("cpu").posteriors_batch(columns, targets=[], on_error="flag").log_evidence
    return np.allclose(x, y, atol=1e-10)


def _copies(dyn: jtgpu.DynamicNetwork, length: int) -> list[tuple[str, int]]:
    return [(v, 0) for v in dyn.static] + [(v, t) for t in range(length) for v in dyn if v not in dyn.static]


def templates(n: int, most: int = 3) -> list[jtgpu.DynamicNetwork]:
    rng = np.random.default_rng(11)
    made = (random_template(rng) for _ in range(10_000))
    return [*islice((dyn for dyn in made if dyn.order <= most), n)]


@pytest.mark.parametrize("part", some(5, 1))
def test_ktbn(part: int) -> None:
    pytest.importorskip("pyagrum.ktbn")
    for dyn in templates(20)[part::5]:
        theirs = jtgpu.to_pyagrum(dyn)
        assert theirs.k() == dyn.order + 1
        assert set(theirs.atemporalVarNames()) == set(dyn.static)
        assert set(theirs.temporalVarNames()) == set(dyn.variables) - set(dyn.static)
        again: Any = jtgpu.from_pyagrum(theirs)
        assert isinstance(again, jtgpu.DynamicNetwork)
        assert (set(again.static), again.order) == (set(dyn.static), dyn.order)
        assert same(dyn, again)
        unrolled = jtgpu.from_pyagrum(theirs.unroll(6))
        assert sorted(unrolled.variables) == sorted(dyn.unroll(6).variables)


def test_ktbn_answers_alike() -> None:
    gum = pytest.importorskip("pyagrum")
    pytest.importorskip("pyagrum.ktbn")
    theirs = jtgpu.to_pyagrum(umbrella())
    engine = gum.LazyPropagation(theirs.unroll(4))
    engine.setEvidence({f"umbrella[{t}]": "yes" for t in range(4)})
    smooth = umbrella().compile("reference").smooth({"umbrella": [["yes"] * 4]})["rain"][0]
    for t in range(4):
        assert np.allclose(engine.posterior(f"rain[{t}]").tolist(), smooth[t], atol=1e-12)


@pytest.mark.parametrize("part", some(5, 1))
def test_answers_are_those_of_ktbn(part: int) -> None:
    gum = pytest.importorskip("pyagrum")
    pytest.importorskip("pyagrum.ktbn")
    for dyn in templates(20)[part::5]:
        rng, length = np.random.default_rng(part), 5
        codes = dyn.compile("reference").sample(1, length=length, seed=part).states
        codes[rng.random(codes.shape) < 0.6] = -1
        engine = gum.LazyPropagation(jtgpu.to_pyagrum(dyn).unroll(length))
        seen = [(v, t, int(codes[0, t, i])) for i, v in enumerate(dyn) for t in range(length) if codes[0, t, i] >= 0]
        engine.setEvidence({label(dyn, v, t): s for v, t, s in seen})
        found = dyn.compile("cpu").smooth(codes)
        assert np.isclose(found.log_evidence[0], np.log(engine.evidenceProbability()), rtol=1e-9)
        for v in dyn:
            for t in range(length):
                assert np.allclose(engine.posterior(label(dyn, v, t)).tolist(), found[v][0, t], atol=1e-10)


def test_dynamic_networks_of_others_are_structures_of_fits() -> None:
    pytest.importorskip("pgmpy")
    pytest.importorskip("pyagrum.ktbn")
    days = {"umbrella": [["yes", "no", "yes"], ["no", "no", "yes"]]}
    options: Any = {"hidden": "rain", "em": jtgpu.learn.EM(start="given", iterations=3)}
    expected: Any = jtgpu.learn.fit(umbrella(), days, **options)
    for theirs in (jtgpu.to_pyagrum(umbrella()), jtgpu.to_pgmpy(umbrella())):
        made: Any = jtgpu.learn.fit(theirs, days, **options)
        np.testing.assert_allclose(made.network.cpt("rain"), expected.network.cpt("rain"), atol=1e-12)


def test_ktbn_by_hand() -> None:
    """A k-TBN whose first slices have other parents and other tables than later ones."""
    gum, ktbn = pytest.importorskip("pyagrum"), pytest.importorskip("pyagrum.ktbn")
    model = ktbn.KTBN(2)
    for v in "xy":
        model.addTemporal(gum.LabelizedVariable(v, "", ["a", "b"]))
    model.addAtemporal(gum.LabelizedVariable("c", "", ["u", "v", "w"]))
    for tail, head in [("x[0]", "x[1]"), ("c", "x[0]"), ("x[1]", "y[1]"), ("c", "y[0]")]:
        model.addArc(tail, head)
    gum.initRandom(5)
    model.generateCPTs()
    dyn: Any = jtgpu.from_pyagrum(model)
    assert dyn.static == ("c",)
    full = jtgpu.from_pyagrum(model.unroll(5))
    ours = dyn.unroll(5)
    rng = np.random.default_rng(2)
    cases = np.stack([rng.integers(-1, len(ours.states(v)), 40) for v in ours.variables], axis=1).astype(np.int32)
    columns = np.stack([cases[:, ours.index(v)] for v in full.variables], axis=1)
    a = ours.compile("reference").posteriors_batch(cases).log_evidence
    assert np.allclose(a, full.compile("reference").posteriors_batch(columns).log_evidence, atol=1e-10)


@pytest.mark.parametrize("part", some(5, 1))
def test_two_slices(part: int) -> None:
    pytest.importorskip("pyagrum")
    for dyn in templates(15, most=1)[part::5]:
        theirs = jtgpu.to_pyagrum(dyn, two_slices=True)
        assert {v if v in dyn.static else v[:-1] for v in theirs.names()} == set(dyn.variables)
        again: Any = jtgpu.from_pyagrum(theirs, two_slices=True)
        assert same(dyn, again)
    with pytest.raises(NetworkError, match="'rain0' and 'raint'"):
        jtgpu.from_pyagrum(jtgpu.to_pyagrum(jtgpu.load("asia")), two_slices=True)
    late = next(dyn for dyn in templates(50) if dyn.order == 2)
    with pytest.raises(FormatError, match=r"a 2-TBN has parents one slice earlier at most, and .* 2 slices"):
        jtgpu.to_pyagrum(late, two_slices=True)


@pytest.mark.parametrize("part", some(4, 1))
def test_pgmpy(part: int) -> None:
    pytest.importorskip("pgmpy")
    for dyn in templates(12, most=1)[part::4]:
        theirs = jtgpu.to_pgmpy(dyn)
        assert theirs.check_model()
        again: Any = jtgpu.from_pgmpy(theirs)
        assert isinstance(again, jtgpu.DynamicNetwork)
        assert again.static == ()
        if not dyn.static:
            assert same(dyn, again)
            continue
        # a static variable keeps its state: equal if it is observed in the first slice only
        full, other = dyn.unroll(4), again.unroll(4)
        prior = other.compile("reference").posteriors({"v1[3]": "s0"})
        expected = full.compile("reference").posteriors({"v1[3]": "s0"})
        for v in full.variables:
            name = f"{v}[2]" if v in dyn.static else v
            assert np.allclose(prior[name].probabilities, expected[v].probabilities, atol=1e-12)
    late = next(dyn for dyn in templates(50) if dyn.order == 2)
    with pytest.raises(FormatError, match="pgmpy's DynamicBayesianNetwork has parents one slice earlier at most"):
        jtgpu.to_pgmpy(late)


@pytest.mark.slow
def test_pgmpy_answers_alike() -> None:
    pytest.importorskip("pgmpy")
    from pgmpy.inference import DBNInference

    theirs = jtgpu.to_pgmpy(umbrella())
    theirs.initialize_initial_state()
    got = DBNInference(theirs).forward_inference([("rain", 2)], {("umbrella", t): "yes" for t in range(3)})
    ours = umbrella().compile("reference").filter({"umbrella": [["yes"] * 3]}, at="last")["rain"][0]
    assert np.allclose(got["rain", 2].values, ours, atol=1e-8)


def test_pgmpy_by_hand() -> None:
    """CPDs of one slice hold in the other; states in another order; what is missing is named."""
    pytest.importorskip("pgmpy")
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DynamicBayesianNetwork

    model = DynamicBayesianNetwork([(("d", 0), ("g", 0)), (("d", 0), ("d", 1))])
    names = {("d", 0): ["x", "y"], ("d", 1): ["x", "y"], ("g", 0): ["p", "q", "r"]}
    g = TabularCPD(("g", 0), 3, [[0.1, 0.2], [0.3, 0.3], [0.6, 0.5]], [("d", 0)], [2],
                   {**names, ("d", 0): ["y", "x"]})  # fmt: skip
    d0 = TabularCPD(("d", 0), 2, [[0.4], [0.6]], state_names=names)
    d1 = TabularCPD(("d", 1), 2, [[0.7, 0.2], [0.3, 0.8]], [("d", 0)], [2], names)
    model.add_cpds(d0, g)
    with pytest.raises(NetworkError, match="'d' has no CPD in slice 1, and other parents than in slice 0"):
        jtgpu.from_pgmpy(model)
    model.add_cpds(d1)
    dyn: Any = jtgpu.from_pgmpy(model)
    assert dyn.variables == ("d", "g")
    assert dyn.parents("g") == (("d", 0),)
    assert np.asarray(dyn.cpt("g")).tolist() == [[0.2, 0.3, 0.5], [0.1, 0.3, 0.6]]
    assert np.asarray(dyn.cpt("d")).tolist() == [[0.7, 0.3], [0.2, 0.8]]
    assert dyn.start("d")[0].tolist() == [0.4, 0.6]
