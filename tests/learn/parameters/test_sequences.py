"""Dynamic networks from sequences: counting, EM with tied slices, options, and bad input."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.dynamic import propagation
from jtgpu.dynamic.sequences import read_sequences
from jtgpu.learn import fit
from jtgpu.learn.parameters.runs import FitRun
from jtgpu.learn.parameters.slices import FirstSlices, SliceExpectation
from tests.dynamic.random_templates import label, random_codes, random_template
from tests.dynamic.test_counts import of_unrolled
from tests.dynamic.test_posteriors import umbrella
from tests.support.examples import some

FRAME = {
    "id": ["a", "b", "a", "a", "b"],
    "day": [3, 1, 4, 5, 2],
    "rain": ["yes", "no", "yes", "no", "no"],
    "umbrella": ["yes", "no", "no", "yes", "no"],
}
KEYS: Any = {"keys": jtgpu.learn.Keys(id="id", time="day")}
DAYS = {"umbrella": [["yes", "yes", "no", None, "no"], ["no", "no", "yes", "yes", "yes"]]}


def cpts_of(dyn: Any) -> list[Any]:
    return [np.asarray(t) for v in dyn.variables for t in (dyn.cpt(v), *dyn.start(v))]


def sampled(dyn: jtgpu.DynamicNetwork, n: int, length: int, seed: int) -> np.ndarray:
    """(n, length, V) states without holes."""
    net = dyn.unroll(length)
    states = net.compile("cpu").sample(n, seed=seed).states
    codes = np.zeros((n, length, len(dyn)), np.int32)
    for t, v in itertools.product(range(length), dyn.variables):
        codes[:, t, dyn.index(v)] = states[:, net.index(label(dyn, v, t))]
    return codes


def test_complete_sequences_are_counted() -> None:
    made: Any = fit(umbrella(), FRAME, pseudo_counts=0.5, **KEYS)
    assert made.method == "counts"
    assert (made.n_sequences, made.n_rows) == (2, 5)
    np.testing.assert_array_equal(made.counts["rain"], [[1, 0], [1, 1]])
    np.testing.assert_array_equal(made.counts["rain[0]"], [1, 1])
    np.testing.assert_array_equal(made.counts["umbrella"], [[2, 1], [1, 1]])
    np.testing.assert_allclose(made.network.cpt("rain"), [[0.75, 0.25], [0.5, 0.5]])
    np.testing.assert_allclose(made.network.cpt("umbrella"), [[2.5 / 4, 1.5 / 4], [0.5, 0.5]])
    likelihood = made.network.compile("cpu").log_likelihood(FRAME, **KEYS).sum()
    assert made.log_likelihood == pytest.approx(likelihood, rel=1e-12)


def test_a_mapping_of_parents_has_states_from_the_data() -> None:
    made: Any = fit({"umbrella": ["rain"], "rain": [("rain", 1)]}, FRAME, **KEYS)
    given: Any = fit(umbrella(), FRAME, **KEYS)
    assert made.network.states("rain") == ("no", "yes")
    np.testing.assert_array_equal(made.network.cpt("rain"), given.network.cpt("rain"))
    with_hidden: Any = fit({"umbrella": ["mood"], "mood": [("mood", 1)]}, FRAME, hidden={"mood": 3}, **KEYS)
    assert with_hidden.network.states("mood") == ("0", "1", "2")
    assert with_hidden.hidden == ("mood",)


@pytest.mark.parametrize("seed", some(40, 8))
def test_one_step_of_em_is_that_of_the_unrolled_network(seed: int) -> None:
    rng = np.random.default_rng([21, seed])
    dyn = random_template(rng)
    length, n = int(rng.integers(1, 7)), 6
    whole = sampled(dyn, n, length, seed)
    codes = np.where(random_codes(rng, dyn, n, length) < 0, whole, -1)
    for v in range(len(dyn)):
        codes[0, 0, v] = whole[0, 0, v]
    weights = rng.random(n) + 0.1
    made: Any = fit(
        dyn,
        codes,
        em=jtgpu.learn.EM(start="given", zeros="free", iterations=1, accelerate=False),
        pseudo_counts=0.1,
        weights=weights,
        compute="cpu" if seed % 2 else "reference",
    )
    if made.method == "counts":
        return
    assert made.method == "em"
    cpts, start, log_evidence = of_unrolled(dyn, codes, weights, {})
    assert made.history[0].log_likelihood == pytest.approx((weights * log_evidence).sum(), rel=1e-10, abs=1e-12)
    for v, name in enumerate(dyn.variables):
        expected = (cpts[v] + 0.1) / (cpts[v] + 0.1).sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(made.network.cpt(name), expected, rtol=0, atol=1e-9)
        for t, table in enumerate(start[v]):
            expected = (table + 0.1) / (table + 0.1).sum(axis=-1, keepdims=True)
            np.testing.assert_allclose(made.network.cpt(name, t), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", some(10, 3))
def test_the_objective_rises(seed: int) -> None:
    rng = np.random.default_rng([22, seed])
    dyn = random_template(rng)
    codes = sampled(dyn, 8, 6, seed)
    codes[rng.random(codes.shape) < 0.4] = -1
    hidden = dyn.variables[int(rng.integers(len(dyn)))]
    codes[:, :, dyn.index(hidden)] = -1
    made: Any = fit(dyn, codes, hidden=hidden, em=jtgpu.learn.EM(iterations=12, seed=seed), pseudo_counts=0.3)
    objectives = [entry.objective for entry in made.history]
    assert all(b >= a - 1e-9 * abs(a) for a, b in itertools.pairwise(objectives))
    likelihood = made.network.compile("cpu").log_likelihood(codes).sum()
    assert made.log_likelihood == pytest.approx(likelihood, rel=1e-9)


def test_one_step_of_em_is_that_of_hmmlearn() -> None:
    hmm = pytest.importorskip("hmmlearn.hmm")
    rng = np.random.default_rng(5)

    def rows(*shape: int) -> np.ndarray:
        table = rng.random(shape) + 0.1
        return np.asarray(table / table.sum(axis=-1, keepdims=True))

    first, step, emit = rows(3), rows(3, 3), rows(3, 4)
    states = {"stage": ["0", "1", "2"], "sign": ["0", "1", "2", "3"]}
    dyn = jtgpu.DynamicNetwork(
        states, {"stage": [("stage", 1)], "sign": ["stage"]}, {"stage": step, "sign": emit}, start={"stage": first}
    )
    signs = rng.integers(0, 4, (7, 20))
    codes = np.stack([np.full(signs.shape, -1), signs], axis=-1)
    mine: Any = fit(dyn, codes, hidden="stage", em=jtgpu.learn.EM(start="given", iterations=1), pseudo_counts=0)
    model = hmm.CategoricalHMM(n_components=3, n_iter=1, init_params="", tol=0)
    model.n_features, model.startprob_, model.transmat_, model.emissionprob_ = 4, first, step, emit
    model.fit(signs.reshape(-1, 1), [20] * 7)
    np.testing.assert_allclose(mine.network.start("stage")[0], model.startprob_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(mine.network.cpt("stage"), model.transmat_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(mine.network.cpt("sign"), model.emissionprob_, rtol=0, atol=1e-10)


def test_threads_give_the_same_bits_and_messages_made_again_the_same_network(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = sampled(umbrella(), 40, 30, 3)
    codes[:, :, 0] = -1
    one: Any = fit(umbrella(), codes, hidden="rain", em=jtgpu.learn.EM(iterations=5), compute=jtgpu.Compute(threads=1))
    two: Any = fit(umbrella(), codes, hidden="rain", em=jtgpu.learn.EM(iterations=5), compute=jtgpu.Compute(threads=2))
    monkeypatch.setattr(propagation, "KEPT", 0)
    again: Any = fit(
        umbrella(), codes, hidden="rain", em=jtgpu.learn.EM(iterations=5), compute=jtgpu.Compute(threads=2)
    )
    assert one.network == two.network
    assert one.history[-1].objective == two.history[-1].objective
    for mine, theirs in zip(cpts_of(one.network), cpts_of(again.network), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-12)


def test_weights_stand_for_repeated_sequences() -> None:
    weighted: Any = fit(umbrella(), DAYS, hidden="rain", weights=[1, 2], em=jtgpu.learn.EM(start="given"))
    days = {"umbrella": [*DAYS["umbrella"], DAYS["umbrella"][1]]}
    repeated: Any = fit(umbrella(), days, hidden="rain", em=jtgpu.learn.EM(start="given"))
    for mine, theirs in zip(cpts_of(weighted.network), cpts_of(repeated.network), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)
    frame = {**FRAME, "weight": [1, 0, 1, 1, 0]}
    alone: Any = fit(umbrella(), frame, weights="weight", fixed="rain[0]", **KEYS)
    assert (alone.n_sequences, alone.n_weightless, alone.n_rows) == (1, 1, 3)
    with pytest.raises(jtgpu.DataError, match="several weights"):
        fit(umbrella(), {**FRAME, "weight": [1, 1, 2, 1, 1]}, weights="weight", **KEYS)
    with pytest.raises(jtgpu.DataError, match=r"expected \(2,\)"):
        fit(umbrella(), FRAME, weights=[1, 2, 3], **KEYS)
    with pytest.raises(jtgpu.DataError, match="at least 0"):
        fit(umbrella(), FRAME, weights=[1, -1], **KEYS)


def test_fixed_and_tied_cpts_and_priors_by_name() -> None:
    dyn = umbrella()
    made: Any = fit(dyn, FRAME, fixed=["umbrella", "rain[0]"], **KEYS)
    np.testing.assert_array_equal(made.network.cpt("umbrella"), dyn.cpt("umbrella"))
    np.testing.assert_array_equal(made.network.start("rain")[0], dyn.start("rain")[0])
    assert set(made.counts) == {"rain"}
    assert made.fixed == ("rain[0]", "umbrella")
    tied: Any = fit(dyn, FRAME, tied=[("rain", "umbrella")], pseudo_counts=0, **KEYS)
    np.testing.assert_array_equal(tied.network.cpt("rain"), tied.network.cpt("umbrella"))
    np.testing.assert_allclose(tied.network.cpt("rain"), [[3 / 4, 1 / 4], [2 / 4, 2 / 4]])
    prior: Any = fit(dyn, FRAME, pseudo_counts={"rain": [[1, 0], [0, 2]], "rain[0]": 3, "umbrella": 1}, **KEYS)
    np.testing.assert_allclose(prior.network.cpt("rain"), np.array([[1, 0], [1 / 4, 3 / 4]]))
    np.testing.assert_allclose(prior.network.start("rain")[0], [0.5, 0.5])
    strong: Any = fit(dyn, FRAME, pseudo_counts="net:1e9", **KEYS)
    for mine, theirs in zip(cpts_of(strong.network), cpts_of(dyn), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6)
    for options in ({"fixed": "snow"}, {"pseudo_counts": {"snow": 1}}, {"tied": [("rain", "snow")]}):
        with pytest.raises(jtgpu.ArgumentError, match="there is no variable 'snow'"):
            fit(dyn, FRAME, **KEYS, **options)


def test_other_starts_and_restarts() -> None:
    first: Any = fit(umbrella(), DAYS, hidden="rain", em=jtgpu.learn.EM(restarts=3, seed=4))
    again: Any = fit(umbrella(), DAYS, hidden="rain", em=jtgpu.learn.EM(restarts=3, seed=4))
    assert first.network == again.network
    assert len(first.restarts) == 3
    assert first.objective == max(first.restarts)
    other = umbrella().replace(cpt={"rain": [[0.6, 0.4], [0.2, 0.8]]})
    by_network: Any = fit(umbrella(), DAYS, hidden="rain", em=jtgpu.learn.EM(start=other, iterations=1))
    by_name: Any = fit(other, DAYS, hidden="rain", em=jtgpu.learn.EM(start="given", iterations=1))
    assert by_network.network == by_name.network


def test_a_run_continues_from_its_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "run"
    whole: Any = fit(umbrella(), DAYS, hidden="rain", em=jtgpu.learn.EM(tolerance=0, iterations=12))

    def stop(entry: Any) -> None:
        if entry.number >= 5:
            raise KeyboardInterrupt

    part: Any = fit(
        umbrella(),
        DAYS,
        hidden="rain",
        em=jtgpu.learn.EM(tolerance=0, iterations=12, checkpoint=file),
        compute=jtgpu.Compute(progress=stop),
    )
    assert part.interrupted
    assert file.exists()
    with pytest.raises(jtgpu.JtgpuError, match="data"):
        fit(umbrella(), {"umbrella": [["yes"]] * 2}, hidden="rain", em=jtgpu.learn.EM(checkpoint=file, resume=True))
    rest: Any = fit(
        umbrella(), DAYS, hidden="rain", em=jtgpu.learn.EM(tolerance=0, iterations=12, checkpoint=file, resume=True)
    )
    assert rest.network == whole.network
    assert not file.exists()


def test_impossible_sequences_are_named_or_left_out() -> None:
    dyn = umbrella().replace(cpt={"umbrella": [[1.0, 0.0], [1.0, 0.0]]})
    days = {"umbrella": [["no", "no"], ["no", "yes"], ["no", "no"]]}
    with pytest.raises(jtgpu.ImpossibleEvidence, match="sequence 1, slice 1"):
        fit(dyn, days, hidden="rain", em=jtgpu.learn.EM(start="given"))
    made: Any = fit(dyn, days, hidden="rain", em=jtgpu.learn.EM(start="given", on_error="flag"))
    assert (made.n_impossible, made.n_sequences) == (1, 2)
    assert "1 sequence of probability 0" in str(made)
    free: Any = fit(dyn, days, hidden="rain", em=jtgpu.learn.EM(start="given", zeros="free"))
    assert free.n_sequences == 3


def test_one_sequence_does_not_determine_its_start() -> None:
    with pytest.warns(UserWarning, match=r"one sequence does not determine.*rain\[0\]"):
        fit(umbrella(), {"umbrella": [["yes", "no"]]}, hidden="rain")
    fit(umbrella(), {"umbrella": [["yes", "no"]]}, hidden="rain", fixed="rain[0]")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"missing": "drop"}, jtgpu.ArgumentError, "missing"),
        ({"em": jtgpu.learn.EM(stepwise=0.7)}, jtgpu.ArgumentError, "stepwise= is not offered with sequences"),
        ({"read": jtgpu.ReadOptions(chunk=5)}, jtgpu.ArgumentError, "chunk= is not offered with sequences"),
        ({"hidden": "snow"}, jtgpu.ArgumentError, "there is no variable 'snow'"),
        ({"hidden": {"rain": 3}}, jtgpu.ArgumentError, "has 2 states in the network"),
        ({"hidden": "umbrella"}, jtgpu.DataError, "declared hidden"),
        ({"states": {"rain": ["a", "b"]}}, jtgpu.ArgumentError, "states"),
        ({"keys": jtgpu.learn.Keys(time="hour")}, jtgpu.DataError, "hour"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fit(umbrella(), FRAME, **{**KEYS, **options})


def test_wrong_cases() -> None:
    with pytest.raises(jtgpu.DataError, match=r"no sequence has a state of 'rain'.*hidden"):
        fit(umbrella(), DAYS)
    with pytest.raises(jtgpu.DataError, match=r"sequence 0, slice 3: the cell of 'umbrella' is missing"):
        fit(umbrella(), DAYS, hidden="rain", missing="error")
    with pytest.raises(jtgpu.ArgumentError, match="DynamicNetwork"):
        fit({"rain": ["umbrella"]}, FRAME, **KEYS)
    with pytest.raises(jtgpu.DataError, match="states of 'rain' are read from a long frame"):
        fit({"rain": [("rain", 1)]}, {"rain": [["yes", "no"]]})
    with pytest.raises(jtgpu.ArgumentError, match="credible"):
        fit(umbrella(), FRAME, **KEYS).credible("rain")


def test_rows_without_counts_are_listed() -> None:
    made: Any = fit(
        umbrella(), {"rain": [["yes", "yes"], ["yes", "no"]], "umbrella": [["no", "no"]] * 2}, pseudo_counts=1
    )
    assert made.empty_rows == {"rain": [{"rain[t-1]": "no"}]}
    assert made.report()["sequences"] == 2
    assert made.report()["parameters"] == 5
    assert "2 sequences, 4 slices" in str(made)
    assert made.unseen == {"umbrella": ("yes",)}


def test_gaps_are_slices_without_observations() -> None:
    rows = {"id": [1, 1, 2, 2], "day": [1, 3, 1, 2], "umbrella": ["yes", "yes", "no", "yes"]}
    made: Any = fit(
        umbrella(),
        rows,
        hidden="rain",
        keys=jtgpu.learn.Keys(id="id", time="day", on_gap="empty"),
        em=jtgpu.learn.EM(start="given", iterations=3),
    )
    assert made.n_rows == 5
    arrays: Any = fit(
        umbrella(),
        [{"umbrella": ["yes", None, "yes"]}, {"umbrella": ["no", "yes"]}],
        hidden="rain",
        em=jtgpu.learn.EM(start="given", iterations=3),
    )
    assert made.network == arrays.network


def test_structure_learning_from_two_slices_then_fit_then_smooth() -> None:
    true = jtgpu.DynamicNetwork(
        {"drug": ["no", "yes"], "ill": ["no", "yes"], "fever": ["no", "yes"]},
        {"drug": [("ill", 1)], "ill": [("ill", 1), "drug"], "fever": ["ill"]},
        {
            "drug": [[0.9, 0.1], [0.3, 0.7]], "ill": [[[0.9, 0.1], [0.95, 0.05]], [[0.1, 0.9], [0.6, 0.4]]],
            "fever": [[0.9, 0.1], [0.2, 0.8]],
        },
        start={"drug": [0.8, 0.2], "ill": [[0.7, 0.3], [0.5, 0.5]]},
    )  # fmt: skip
    codes = sampled(true, 60, 30, 11)
    parts: dict[str, list[Any]] = {}
    for one in codes:
        series = {v: [true.states(v)[s] for s in one[:, i].tolist()] for i, v in enumerate(true.variables)}
        for name, column in jtgpu.series.two_slices(series, lags=1, bins=None).items():
            parts.setdefault(name, []).extend(column)
    before = [name for name in parts if name.endswith("[t-1]")]
    now = [name for name in parts if name.endswith("[t]")]
    net = jtgpu.learn.structure(parts, constraints=jtgpu.learn.Constraints(tiers=[before, now])).network()
    dyn = jtgpu.DynamicNetwork.from_slices(net)
    made: Any = fit(dyn, codes_as_frame(true, codes), keys=jtgpu.learn.Keys(id="patient", time="day"))
    assert made.method == "counts"
    assert set(made.network.parents("fever")) >= {("ill", 0)} or set(made.network.parents("ill")) >= {("fever", 0)}
    hole = codes[:5].copy()
    hole[:, :, true.index("ill")] = -1
    answered = made.network.compile("cpu").smooth(hole)["ill"]
    right = true.compile("cpu").smooth(hole)["ill"]
    assert np.abs(answered - right).max() < 0.15


def codes_as_frame(dyn: jtgpu.DynamicNetwork, codes: np.ndarray) -> dict[str, list[Any]]:
    n, length, _ = codes.shape
    frame: dict[str, list[Any]] = {"patient": np.repeat(np.arange(n), length).tolist()}
    frame["day"] = np.tile(np.arange(length), n).tolist()
    for i, v in enumerate(dyn.variables):
        frame[v] = [dyn.states(v)[s] for s in codes[:, :, i].ravel().tolist()]
    return frame


def test_standard_errors_of_sequences_of_one_slice_are_those_of_rows() -> None:
    rng = np.random.default_rng(5)
    h = rng.random(400) < 0.4
    x = {v: np.where(rng.random(400) < np.where(h, 0.9, 0.2), "yes", "no") for v in "xyz"}
    rows = jtgpu.learn.fit(
        {v: ["h"] for v in "xyz"},
        x,
        hidden={"h": 2},
        pseudo_counts=0,
        em=jtgpu.learn.EM(standard_errors="information", seed=1, tolerance=1e-12, iterations=2000),
    )
    net = rows.network
    cpts = {v: net.cpt(v) for v in "xyz"} | {"h": np.full((2, 2), 0.5)}
    dyn = jtgpu.DynamicNetwork(
        {v: net.states(v) for v in net}, {v: ["h"] for v in "xyz"} | {"h": [("h", 1)]}, cpts,
        start={"h": net.cpt("h")},
    )  # fmt: skip
    found = fit(
        dyn,
        {v: column[:, None] for v, column in x.items()},
        hidden="h",
        pseudo_counts=0,
        em=jtgpu.learn.EM(standard_errors="information", start="given"),
    )
    np.testing.assert_allclose(found.standard_errors("h[0]"), rows.standard_errors("h"), rtol=1e-3)
    for v in "xyz":
        np.testing.assert_allclose(found.standard_errors(v), rows.standard_errors(v), rtol=1e-3)
    assert np.isinf(found.standard_errors("h")).all()  # no sequence has a second slice


def test_passes_depend_on_the_present_tables_alone() -> None:
    dyn = umbrella()
    read = read_sequences(dyn, FRAME, keys=KEYS["keys"], likelihood={})
    run = FitRun(jtgpu.learn.EM(), jtgpu.Compute(threads=1), "cpu", lambda _: None, lambda _: None)
    slices = FirstSlices(dyn)
    engine = SliceExpectation(slices, read, np.ones(2), run)
    given = [np.array(slices.network.cpt(v)) for v in slices.network]
    other = [np.full(t.shape, 1 / t.shape[-1]) for t in given]
    first, second = engine.evaluate(given).log_likelihood, engine.evaluate(other).log_likelihood
    assert first != second
    for table, own in zip(other, given, strict=True):  # written in place: not the tables that were loaded
        table[...] = own
    assert engine.evaluate(other).log_likelihood == first
    assert engine.evaluate(given).log_likelihood == first == dyn.compile("cpu").log_likelihood(FRAME, **KEYS).sum()
    engine.close()
