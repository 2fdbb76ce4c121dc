"""Long frames, gaps, ragged lengths, long sequences, and what is wrong with a table."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.dynamic import propagation
from jtgpu.dynamic.posteriors import posteriors
from jtgpu.dynamic.sequences import read_sequences
from jtgpu.dynamic.step import Step
from tests.dynamic.test_posteriors import umbrella

FRAME = {
    "id": ["a", "b", "a", "a", "b"],
    "day": [3, 1, 4, 5, 2],
    "umbrella": ["yes", "no", None, "yes", "no"],
}


def test_a_long_frame_is_answered_like_each_sequence_alone() -> None:
    tree = umbrella().compile("cpu")
    whole = tree.smooth(FRAME, keys=jtgpu.learn.Keys(id="id", time="day"))
    assert whole.lengths.tolist() == [3, 2]
    sequences: list[list[str | None]] = [["yes", None, "yes"], ["no", "no"]]
    for i, days in enumerate(sequences):
        alone = tree.smooth({"umbrella": [days]})
        assert np.allclose(whole["rain"][i, : len(days)], alone["rain"][0], rtol=0, atol=1e-12)
        assert whole.log_evidence[i] == pytest.approx(alone.log_evidence[0], rel=1e-12)
    assert not whole["rain"][1, 2:].any()
    frame = whole.to_frame()
    assert frame["id"].tolist() == ["a", "a", "a", "b", "b"]
    assert frame["day"].tolist() == [3, 4, 5, 1, 2]


def test_gaps_are_errors_or_slices_without_observations() -> None:
    tree = umbrella().compile("cpu")
    rows = {"day": [1, 3], "umbrella": ["yes", "yes"]}
    with pytest.raises(jtgpu.DataError, match="time 2 is missing"):
        tree.filter(rows, keys=jtgpu.learn.Keys(time="day"))
    filled = tree.filter(rows, keys=jtgpu.learn.Keys(time="day", on_gap="empty"))
    assert np.array_equal(filled["rain"], tree.filter({"umbrella": [["yes", None, "yes"]]})["rain"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"day": [2, 1], "umbrella": ["yes", "yes"]}, "comes after 2"),
        ({"day": [1, 1], "umbrella": ["yes", "yes"]}, "occurs twice"),
        ({"day": [1.0, math.nan], "umbrella": ["yes", "yes"]}, "missing or infinite"),
        ({"day": ["x", "y"], "umbrella": ["yes", "yes"]}, "is no number and no date"),
        ({"day": [1, 2], "umbrella[t-1]": ["yes", "yes"]}, "rows of two_slices"),
    ],
)
def test_malformed_frames(rows: dict[str, Any], message: str) -> None:
    with pytest.raises(jtgpu.DataError, match=message):
        umbrella().compile("cpu").smooth(rows, keys=jtgpu.learn.Keys(time="day"))


@pytest.mark.parametrize("joints", ["rain", ["rain"], [("rain",)], [("rain", "rain")], [("rain[t]", "snow")]])
def test_joints_are_sets_of_variables_of_a_slice(joints: Any) -> None:
    with pytest.raises(jtgpu.EvidenceError, match="joints"):
        umbrella().compile("cpu").smooth({"umbrella": [["yes", "no"]]}, joints=joints)


def test_joints_of_neighbouring_slices_are_those_of_the_unrolled_network() -> None:
    dyn, days = umbrella(), ["yes", "no", "yes"]
    found = dyn.compile("cpu").smooth({"umbrella": [days]}, joints=[("rain[t-1]", "rain[t]")])
    whole = dyn.unroll(3).compile("reference")
    seen = {f"umbrella[{t}]": s for t, s in enumerate(days)}
    for t in (1, 2):
        expected = whole.joint([f"rain[{t - 1}]", f"rain[{t}]"], seen)
        np.testing.assert_allclose(found.joint["rain[t-1]", "rain[t]"][0, t], np.asarray(expected), atol=1e-12)


def test_dates_are_times_whose_gaps_do_not_count() -> None:
    pandas = pytest.importorskip("pandas")
    days = pandas.to_datetime(["2026-01-01", "2026-01-05"])
    frame = pandas.DataFrame({"day": days, "umbrella": ["yes", "no"]})
    tree = umbrella().compile("cpu")
    answer = tree.filter(frame, keys=jtgpu.learn.Keys(time="day"))
    np.testing.assert_array_equal(answer["rain"], tree.filter({"umbrella": [["yes", "no"]]})["rain"])
    assert answer.to_frame()["day"].tolist() == days.tolist()


def test_answers_too_large_are_refused_before_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = umbrella().compile("cpu")
    with pytest.raises(jtgpu.TableTooLarge, match="fewer steps"):
        tree.predict({"umbrella": [["yes"]]}, ahead=10**9)
    monkeypatch.setattr("jtgpu.dynamic.posteriors.MOST_ANSWERS", 1 << 21)
    with pytest.raises(jtgpu.TableTooLarge, match=r'2\.3 MiB, more than 2\.0 MiB; use at="last" \(32 B\)'):
        tree.smooth(np.full((1, 75_000, 2), -1, np.int8))


def test_an_impossible_slice_is_named_or_flagged() -> None:
    dyn = umbrella().replace(cpt={"umbrella": [[1.0, 0.0], [1.0, 0.0]]})
    tree = dyn.compile("cpu")
    days = {"umbrella": [["no", "no"], ["no", "yes"]]}
    with pytest.raises(jtgpu.ImpossibleEvidence, match="sequence 1, slice 1"):
        tree.filter(days)
    flagged = tree.filter(days, on_error="flag")
    assert flagged.impossible.tolist() == [False, True]
    assert flagged["rain"][1, 0].sum() == pytest.approx(1.0)
    assert not flagged["rain"][1, 1].any()


def test_predictions_are_powers_of_the_transitions() -> None:
    tree = umbrella().compile("cpu")
    ahead = tree.predict({"umbrella": [["yes", "yes"]]}, ahead=3)["rain"][0]
    now = tree.filter({"umbrella": [["yes", "yes"]]})["rain"][0, -1]
    step = np.array([[0.7, 0.3], [0.3, 0.7]])
    for h in range(3):
        now = now @ step
        assert np.allclose(ahead[h], now, rtol=0, atol=1e-12)


def test_messages_made_again_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(-1, 2, (5, 50, 2))
    codes[:, :, 0] = -1
    tree = umbrella().compile("cpu")
    kept = tree.smooth(codes)
    monkeypatch.setattr(propagation, "KEPT", 0)
    again = tree.smooth(codes)
    assert np.array_equal(kept["rain"], again["rain"])
    assert np.array_equal(kept.log_evidence, again.log_evidence)


def test_ln_p_of_a_long_chain() -> None:
    rng = np.random.default_rng(4)
    seen = rng.integers(0, 2, 3000)
    step, emit = np.array([[0.7, 0.3], [0.3, 0.7]]), np.array([[0.8, 0.2], [0.1, 0.9]])
    state, logs = np.array([0.5, 0.5]), []
    for t, s in enumerate(seen.tolist()):
        state = (state @ step if t else state) * emit[:, s]
        logs.append(math.log(state.sum()))
        state /= state.sum()
    codes = np.stack([np.full(len(seen), -1), seen], axis=-1)[None]
    assert umbrella().compile("cpu").log_likelihood(codes)[0] == pytest.approx(math.fsum(logs), rel=1e-12)


def test_reload_replaces_the_cpts() -> None:
    tree, days = umbrella().compile("cpu"), {"umbrella": [["yes", "no"]]}
    tree.smooth(days)
    tree.mpe(days)
    other = umbrella().replace(cpt={"rain": [[0.9, 0.1], [0.2, 0.8]]})
    with pytest.raises(jtgpu.PlanError, match="not only in numbers"):
        tree.reload(jtgpu.DynamicNetwork({"x": ["a"]}, {"x": [("x", 1)]}, {"x": [[1.0]]}, start={"x": [1.0]}))
    tree.reload(other)
    assert np.array_equal(tree.smooth(days)["rain"], other.compile("cpu").smooth(days)["rain"])
    assert tree.mpe(days).log_joint == other.compile("cpu").mpe(days).log_joint


@pytest.mark.parametrize(
    ("given", "options", "error", "message"),
    [
        (
            {"day": [1, 2]},
            {"keys": jtgpu.learn.Keys(time="day")},
            jtgpu.UnknownVariable,
            "no observations: its only columns are 'day'",
        ),
        (
            {"umbrella": ["no"], "day": [1]},
            {"keys": jtgpu.learn.Keys(id="umbrella", time="day")},
            jtgpu.UnknownVariable,
            "only columns",
        ),
        ([], {}, jtgpu.DataError, "there are no sequences"),
        (
            {"umbrella": [], "day": []},
            {"keys": jtgpu.learn.Keys(time="day")},
            jtgpu.DataError,
            "there are no sequences",
        ),
        ({"umbrella": [["yes", "no"], ["yes"]]}, {}, jtgpu.EvidenceError, "rows of 'umbrella' have different lengths"),
        (
            {"umbrella": ["yes", "no"]},
            {"keys": jtgpu.learn.Keys(on_gap="empty")},
            jtgpu.ArgumentError,
            "which need time=",
        ),
        (
            {"umbrella": ["no"] * 2, "t": [0.5, 1.0]},
            {"keys": jtgpu.learn.Keys(time="t", on_gap="empty")},
            jtgpu.DataError,
            "fractions",
        ),
    ],
)
def test_tables_that_are_no_sequences(given: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        umbrella().compile("reference").filter(given, **options)


def test_gaps_in_a_list_of_frames_and_in_whole_numbers_of_floats() -> None:
    pandas = pytest.importorskip("pandas")
    tree, rows = umbrella().compile("reference"), {"day": [1.0, 3.0], "umbrella": ["yes", "yes"]}
    weights = np.array([[0.3, 0.7], [0.6, 0.4]])
    expected = tree.filter(rows, keys=jtgpu.learn.Keys(time="day", on_gap="empty"), likelihood={"rain": weights})
    assert expected.lengths.tolist() == [3]
    whole = tree.filter(
        pandas.DataFrame(rows), keys=jtgpu.learn.Keys(time="day", on_gap="empty"), likelihood={"rain": weights}
    )
    assert np.array_equal(whole["rain"], expected["rain"])
    both = tree.filter(
        [rows, {"day": [7], "umbrella": ["no"]}],
        keys=jtgpu.learn.Keys(time="day", on_gap="empty"),
        likelihood={"rain": np.concatenate([weights, [[1.0, 2.0]]])},
    )
    assert both.lengths.tolist() == [3, 1]
    assert np.array_equal(both["rain"][0], expected["rain"][0])
    alone = tree.filter({"umbrella": ["no"]}, likelihood={"rain": [[1.0, 2.0]]})
    assert np.array_equal(both["rain"][1, 0], alone["rain"][0, 0])


def test_an_index_of_dates_must_increase_and_uneven_steps_are_noticed() -> None:
    pandas = pytest.importorskip("pandas")
    tree = umbrella().compile("reference")
    days = pandas.to_datetime(["2026-01-03", "2026-01-01", "2026-01-02"])
    frame = pandas.DataFrame({"umbrella": ["yes", "no", "no"]}, index=days)
    with pytest.raises(jtgpu.DataError, match=r"row 1.*the index: the time .* comes after"):
        tree.filter(frame)
    tree.filter(frame.sort_index())
    tree.filter(frame.assign(place=["a", "b", "b"]), keys=jtgpu.learn.Keys(id="place"))  # in order within each sequence
    steps = pandas.to_datetime(["2026-01-01", "2026-01-02", "2026-01-09"])
    uneven = pandas.DataFrame({"umbrella": ["yes"] * 3, "d": steps})
    with pytest.warns(UserWarning, match="7 times its shortest"):
        tree.filter(uneven, keys=jtgpu.learn.Keys(time="d"))
    with pytest.raises(jtgpu.DataError, match="has dates, whose gaps are unknown"):
        tree.filter(uneven, keys=jtgpu.learn.Keys(time="d", on_gap="empty"))


def test_columns_that_are_ignored_are_named_where_id_and_time_are_not() -> None:
    tree, rows = umbrella().compile("reference"), {"who": [1, 2], "day": [1, 1], "umbrella": ["yes", "no"]}
    with pytest.warns(UserWarning, match="columns 'who', 'day', which are ignored; without id="):
        tree.filter(rows)
    assert tree.filter(rows, keys=jtgpu.learn.Keys(id="who", time="day")).lengths.tolist() == [1, 1]


def test_a_long_sequence_among_many_short_ones() -> None:
    tree = umbrella().compile("reference")
    rows = {"who": [0, 1, 1, 1, 2, 2], "umbrella": ["yes", "no", "no", "yes", "yes", "no"]}
    whole, some = (
        tree.smooth(rows, keys=jtgpu.learn.Keys(id="who")),
        tree.smooth(rows, keys=jtgpu.learn.Keys(id="who"), at=[2, 0]),
    )
    frame = some.to_frame()
    assert frame["who"].tolist() == [0, 1, 1, 2]
    expected = [whole["rain"][i, t, 1] for i, t in ((0, 0), (1, 2), (1, 0), (2, 0))]
    assert frame["rain=yes"].tolist() == expected
    lengths = [1_000_000, *[1] * 2_000]
    many = {"who": np.repeat(np.arange(2_001), lengths), "umbrella": np.full(sum(lengths), "no")}
    with pytest.raises(jtgpu.TableTooLarge, match="use long sequences in a call of their own"):
        tree.mpe(many, keys=jtgpu.learn.Keys(id="who"))
    with pytest.raises(jtgpu.TableTooLarge, match="fewer samples, and long sequences alone"):
        tree.sample(1, many, keys=jtgpu.learn.Keys(id="who"))


def test_predictions_go_on_with_the_keys_of_their_sequences() -> None:
    tree = umbrella().compile("reference")
    frame = {"place": ["a", "a", "b"], "day": [3, 4, 7], "umbrella": ["yes", "no", "yes"]}
    made = (
        tree.predict(frame, keys=jtgpu.learn.Keys(id="place", time="day"), ahead=2, targets=["rain"])
        .to_frame("pyarrow")
        .to_pydict()
    )
    assert (made["place"], made["day"]) == (["a", "a", "b", "b"], [5, 6, 8, 9])
    assert tree.predict(frame, keys=jtgpu.learn.Keys(id="place", time="day")).lengths.tolist() == [1, 1]
    uneven = {**frame, "day": [0.5, 1.0, 7.5]}
    made = tree.predict(uneven, keys=jtgpu.learn.Keys(id="place", time="day"), ahead=2).to_frame("pyarrow").to_pydict()
    assert (made["place"], made["step"]) == (["a", "a", "b", "b"], [1, 2, 1, 2])
    made = tree.predict(frame, keys=jtgpu.learn.Keys(id="place"), ahead=2).to_frame("pyarrow").to_pydict()
    assert (made["place"], made["step"]) == (["a", "a", "b", "b"], [1, 2, 1, 2])
    answer = tree.predict([{"umbrella": ["yes", "no"]}, {"umbrella": ["yes"]}], ahead=2)
    assert answer.to_frame("pyarrow").to_pydict()["slice"] == [2, 3, 1, 2]
    assert [line.split()[:2] for line in str(answer).splitlines()[1:3]] == [["sequence", "slice"], ["0", "2"]]


def test_answers_print_the_keys_of_their_rows() -> None:
    frame = {"place": ["a", "a"], "day": [3, 4], "umbrella": ["yes", "no"]}
    tree = umbrella().compile("reference")
    for answer in (
        tree.smooth(frame, keys=jtgpu.learn.Keys(id="place", time="day")),
        tree.mpe(frame, keys=jtgpu.learn.Keys(id="place", time="day")),
    ):
        assert [line.split()[:2] for line in str(answer).splitlines()[1:3]] == [["place", "day"], ["a", "3"]]


def test_answers_about_impossible_sequences_are_null() -> None:
    cpts: Any = {"umbrella": [[1, 0], [0.1, 0.9]], "rain": [[1, 0], [0.3, 0.7]]}
    dyn = umbrella().replace(cpt=cpts, start={"rain": [1, 0]})
    sequences = [{"umbrella": ["no", "yes"]}, {"umbrella": ["no"]}]
    for ask in (dyn.compile("reference").filter, dyn.compile("reference").smooth):
        answer = ask(sequences, on_error="flag")
        assert answer.to_frame("pyarrow").column("rain=no").to_pylist() == [None, None, 1.0]
        assert [len(line.split()) for line in str(answer).splitlines()[2:]] == [2, 2, 6]
        assert answer.modes()["rain"][:, 1].tolist() == [None, None]


def test_cells_may_allow_several_states() -> None:
    dyn = jtgpu.DynamicNetwork(
        {"sex": ["f", "m"], "ill": ["no", "mild", "yes"], "test": ["low", "mid", "high"]},
        {"ill": ["sex", ("ill", 1)], "test": ["ill"]},
        {"sex": [0.4, 0.6], "ill": np.random.default_rng(1).dirichlet(np.ones(3), (2, 3)),
         "test": [[0.8, 0.15, 0.05], [0.3, 0.4, 0.3], [0.1, 0.2, 0.7]]},
        start={"ill": [[0.7, 0.2, 0.1], [0.6, 0.2, 0.2]]}, static=["sex"],
    )  # fmt: skip
    keys: Any = {"keys": jtgpu.learn.Keys(id="p", time="day")}
    tree: Any = dyn.compile("reference")
    cells = [["mid", "high"], None, ("low",), "high", {"low", "mid"}]
    weights = np.array([[0, 1, 1], [1, 1, 1], [1, 0, 0], [0, 0, 1], [1, 1, 0]], float)
    long = {"p": ["a", "a", "a", "b", "b"], "day": [1, 2, 3, 1, 2]}
    expected = tree.smooth({**long, "test": [None] * 5}, **keys, likelihood={"test": weights})
    made = [tree.smooth({**long, "test": cells}, **keys), tree.smooth([{"test": cells[:3]}, {"test": cells[3:]}])]
    assert all(np.array_equal(one[v], expected[v]) for one in made for v in dyn)
    matrix = tree.smooth({"test": [cells[:3]]})
    assert np.array_equal(matrix["ill"][0], expected["ill"][0])
    late, plain = ({"sex": [[None, f]], "test": [["low", "mid"]]} for f in (["f"], "f"))
    for ask in (tree.filter, tree.smooth):  # a filter does not know what is observed later
        np.testing.assert_allclose(ask(late)["ill"], ask(plain)["ill"], rtol=0, atol=1e-15)
    with pytest.raises(jtgpu.UnknownState, match=r"row 0, column 'test': .*'lo'"):
        tree.smooth({**long, "test": [["lo"], *cells[1:]]}, **keys)
    with pytest.raises(jtgpu.EvidenceError, match="row 1, column 'test': the list is empty"):
        tree.smooth({**long, "test": [cells[0], [], *cells[2:]]}, **keys)
    with pytest.raises(jtgpu.EvidenceError, match="different lengths"):
        tree.smooth({"sex": [["f", "f"], ["m", None]], "test": [["low"], ["low", "mid"]]})


def test_times_are_numbers_or_dates_of_any_kind() -> None:
    tree, frame = umbrella().compile("reference"), {"place": ["a", "a", "a"], "umbrella": ["yes", "no", "yes"]}
    keys: Any = {"keys": jtgpu.learn.Keys(id="place", time="day")}
    days = [date(2026, 1, d) for d in (30, 31)] + [date(2026, 2, 1)]
    expected = tree.smooth({**frame, "day": [1, 2, 3]}, **keys)
    for given in (days, [str(d) for d in days], [datetime(d.year, d.month, d.day, 5) for d in days],
                  [f"{d}T05:00:00+01:00" for d in days], np.array(days, "datetime64[D]")):  # fmt: skip
        answer = tree.smooth({**frame, "day": given}, **keys)
        assert np.array_equal(answer["rain"], expected["rain"])
        assert answer.to_frame("pyarrow").column("day").to_pylist() == list(given)
    texts = tree.smooth({**frame, "day": ["9", " 10", "11"]}, **keys)
    assert texts.to_frame("pyarrow").column("day").to_pylist() == [9, 10, 11]
    with pytest.raises(jtgpu.DataError, match="time 10 is missing"):
        tree.smooth({**frame, "day": ["9", "11", "12"]}, **keys)
    with pytest.raises(jtgpu.DataError, match=r"row 1, column 'day': the time 'monday' is no number and no date"):
        tree.smooth({**frame, "day": ["2026-01-30", "monday", "2026-02-01"]}, **keys)
    with pytest.raises(jtgpu.DataError, match="the time 2026-01-30 comes after 2026-01-31; times must increase"):
        tree.smooth({**frame, "day": [days[1], days[0], days[2]]}, **keys)
    with pytest.raises(jtgpu.DataError, match=r"row 1.*the time is missing"):
        tree.smooth({**frame, "day": ["2026-01-30", None, "2026-02-01"]}, **keys)


def test_warnings_name_the_line_of_the_caller() -> None:
    machine = jtgpu.MixedDynamicNetwork(
        {"state": ["calm", "busy"], "load": float}, {"state": [("state", 1)], "load": ["state"]},
        {"state": [[0.9, 0.1], [0.2, 0.8]], "load": jtgpu.Gaussian([1.0, 4.0], sd=1.0)}, start={"state": [0.5, 0.5]},
    )  # fmt: skip
    tree: Any
    for tree, column in ((umbrella().compile("reference"), "umbrella"), (machine.compile("reference"), "load")):
        with pytest.warns(UserWarning, match="longest step") as seen:
            tree.filter({"day": [0.0, 0.5, 4.0], column: [None] * 3}, keys=jtgpu.learn.Keys(time="day"))
        assert seen[0].filename == __file__


def test_joints_with_slices_before_the_first_one_are_zero() -> None:
    tree, days = umbrella().compile("reference"), [{"umbrella": ["yes"]}, {"umbrella": ["no", "yes"]}]
    pair = ("rain[t]", "rain[t-1]")
    found = tree.smooth(days, joints=[pair]).joint[pair]
    np.testing.assert_allclose(found.sum(axis=(2, 3)), [[0, 0], [0, 1]])
    np.testing.assert_allclose(tree.smooth(days, joints=[pair], at="last").joint[pair].sum(axis=(1, 2)), [0, 1])


def test_sets_that_a_slice_keeps_together_are_no_answers() -> None:
    step = Step(umbrella(), "reference", {}, ((0, 1),))
    read = read_sequences(umbrella(), {"umbrella": [["yes", "no"]]})
    made = posteriors((step, step), read, [0], None, None, "error", smooth=True)
    assert (list(made), made.joint) == (["rain"], {})
    assert np.allclose(made["rain"], umbrella().compile("reference").smooth({"umbrella": [["yes", "no"]]})["rain"])


def test_durations_and_levels_of_an_index() -> None:
    pandas = pytest.importorskip("pandas")
    tree = umbrella().compile("reference")
    frame = pandas.DataFrame({"place": ["a", "a"], "day": [1, 2], "umbrella": ["yes", "no"]})
    expected = tree.smooth(frame, keys=jtgpu.learn.Keys(id="place", time="day"))
    for days in (pandas.to_timedelta([1, 2], unit="D"), [timedelta(days=1), timedelta(days=2)]):
        answer = tree.smooth(frame.assign(day=days), keys=jtgpu.learn.Keys(id="place", time="day"))
        assert np.array_equal(answer["rain"], expected["rain"])
    with pytest.raises(jtgpu.DataError, match=r"is no column .* a level of the index: pass frame.reset_index"):
        tree.smooth(frame.set_index(["place", "day"]), keys=jtgpu.learn.Keys(id="place", time="day"))
    with pytest.raises(jtgpu.DataError, match=r"in pandas: \(frame\['day'\] - frame\['day'\].min\(\)\).dt.days"):
        tree.smooth(
            frame.assign(day=pandas.to_datetime(["2026-01-01", "2026-01-03"])),
            keys=jtgpu.learn.Keys(time="day", on_gap="empty"),
        )
