"""Cells such as ``[0.4;0.8]`` mean the same in every table, or are refused in the same words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.dynamic.files import SequenceQuestion, answer_file
from jtgpu.errors import JtgpuError, UnknownState
from jtgpu.options.tables import FileOptions
from tests.support.bundled import bundled

from ..formats.test_dynamic_files import umbrella

CELLS = {"xray": ["yes", "[0.4;0.8]", None, " [1;0.25] ", "[0.4;0.8]"], "smoke": ["yes", "no", "no", None, "no"]}
WEIGHTS = np.array([[1, 0], [0.4, 0.8], [1, 1], [1, 0.25], [0.4, 0.8]])
REFUSED = "one state is expected here, not the likelihood"


@pytest.fixture(scope="module", params=["cpu", "reference"])
def tree(request: Any) -> Any:
    return bundled("asia").compile(request.param)


def joint_of(row: int) -> np.ndarray:
    """P(lung, e) of a row, by enumeration."""
    net = bundled("asia")
    table = np.ones([2] * len(net))
    for v in net:
        family = [*net.parents(v), v]
        at = [net.index(x) for x in family]
        cpt = np.asarray(net.cpt(v)).transpose(np.argsort(at))
        table = table * cpt.reshape([2 if i in at else 1 for i in range(len(net))])
    smoke = CELLS["smoke"][row]
    for v, w in (("xray", WEIGHTS[row]), ("smoke", [smoke != "no", smoke != "yes"])):
        table = table * np.reshape(np.array(w, float), [2 if i == net.index(v) else 1 for i in range(len(net))])
    return np.asarray(table.sum(tuple(i for i in range(len(net)) if i != net.index("lung"))))


def write(path: Path, cells: dict[str, list[Any]]) -> Path:
    rows = zip(*cells.values(), strict=True)
    path.write_text("\n".join([",".join(cells), *(",".join("" if x is None else x for x in row) for row in rows)]))
    return path


def test_tables_take_weights(tree: Any) -> None:
    found = tree.posteriors_batch(CELLS)
    for row in range(5):
        joint = joint_of(row)
        assert found["lung"][row] == pytest.approx(joint / joint.sum(), rel=1e-12)
        assert found.log_evidence[row] == pytest.approx(np.log(joint.sum()), rel=1e-12)


def test_cells_are_multiplied_with_likelihoods(tree: Any) -> None:
    found = tree.posteriors_batch(CELLS, likelihood={"xray": [0.5, 0.25]})
    given = tree.posteriors_batch({"smoke": CELLS["smoke"]}, likelihood={"xray": WEIGHTS * [0.5, 0.25]})
    np.testing.assert_allclose(found["lung"], given["lung"], rtol=1e-12)


def test_other_questions_of_tables(tree: Any) -> None:
    plain, given = {"smoke": CELLS["smoke"]}, {"xray": WEIGHTS}
    for ask in ("log_likelihood", "mpe_batch", "expected_counts"):
        found, exact = getattr(tree, ask)(CELLS), getattr(tree, ask)(plain, likelihood=given)
        for name in ("states", "log_joint", "log_evidence"):
            if hasattr(exact, name) and name != "states":
                np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-12)
    filled = tree.impute(CELLS, seed=3)
    own = tree.impute({**CELLS, "xray": ["yes", *[None] * 4]}, likelihood=given, seed=3)
    assert filled.states.tolist() == own.states.tolist()


@pytest.mark.parametrize("options", [{}, {"do": {"bronc": "yes"}}, {"mpe": True}, {"on_error": "flag"}])
def test_frames_and_files(tree: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    pd, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = tree.predict_proba(pd.DataFrame(CELLS), "lung", log_evidence=True, **options)
    out = tmp_path / "out.csv"
    jtgpu.cases.answer_file(tree, write(tmp_path / "c.csv", CELLS), out, targets=["lung"], log_evidence=True, **options)
    read = pd.read_csv(out)
    assert [*frame.columns] == [c for c in read.columns if c in frame.columns]
    if options in ({}, {"on_error": "flag"}):
        for row in range(5):
            joint = joint_of(row)
            for table in (frame, read):
                assert table["lung=yes"][row] == pytest.approx(joint[0] / joint.sum(), rel=1e-9)
                assert table["log_evidence"][row] == pytest.approx(np.log(joint.sum()), rel=1e-9)


def test_conflict_counts_the_weights(tree: Any) -> None:
    pd, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    found = tree.predict_proba(pd.DataFrame(CELLS), "lung", conflict=True)["conflict"]
    assert found[1] == pytest.approx(tree.conflict({"smoke": "no"}, likelihood={"xray": [0.4, 0.8]}), abs=1e-12)
    assert found[3] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [("[0.4;0.8;1]", "has 3 weights, but the variable has 2 states"), ("[0;0]", "not all 0"),
     ("[0.4;-1]", "must be finite, >= 0"), ("[0.4;x]", "parts that are not numbers")],
)  # fmt: skip
def test_wrong_weights_are_errors_of_their_row(tree: Any, tmp_path: Path, cell: str, reason: str) -> None:
    cells = {"xray": ["[0.4;0.8]", cell]}
    with pytest.raises(UnknownState, match=f"row 1, column 'xray': .*{reason}"):
        tree.posteriors_batch(cells)
    pd, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    with pytest.raises(UnknownState, match=f":3: column 'xray': .*{reason}"):
        jtgpu.cases.answer_file(tree, write(tmp_path / "c.csv", cells), tmp_path / "o.csv", targets=["lung"])
    flagged = tree.predict_proba(pd.DataFrame(cells), "lung", on_error="flag")
    assert reason in flagged["error"][1]
    assert flagged["error"].isna()[0]


def test_an_impossible_row_names_its_weights(tree: Any) -> None:
    pd, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    with pytest.raises(JtgpuError, match=r"row 0.*either = 'no'; lung = \[1.0, 0.0\]"):
        tree.predict_proba(pd.DataFrame({"either": ["no"], "lung": ["[1;0]"]}), "bronc")


def test_single_cases_and_questions_without_weights_say_what_to_pass(tree: Any) -> None:
    cell = {"xray": "[0.4;0.8]"}
    asks: list[Callable[[], Any]] = [
        lambda: tree.posteriors(cell), lambda: tree.evidence_function([cell]),
        lambda: jtgpu.learn.validate(tree.model, {**CELLS, "lung": ["no"] * 5}, "xray"),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(UnknownState, match=rf"{REFUSED} '\[0.4;0.8\]'; .*likelihood=\{{'xray': \[0.4, 0.8\]\}}"):
            ask()


def test_validation_and_online_learning(tree: Any) -> None:
    known = {**CELLS, "lung": ["yes", "no", "no", "yes", "no"]}
    checked = jtgpu.learn.validate(tree.model, known, "lung")
    np.testing.assert_allclose(checked.probabilities, tree.posteriors_batch(CELLS)["lung"], rtol=1e-12)
    learner = jtgpu.learn.Online(tree.model, experience=10)
    learner.update(CELLS)
    counts = tree.expected_counts({"smoke": CELLS["smoke"]}, likelihood={"xray": WEIGHTS})
    exact = 10 * np.asarray(tree.model.cpt("xray")) + counts["xray"]
    np.testing.assert_allclose(learner.network.cpt("xray"), exact / exact.sum(axis=-1, keepdims=True), rtol=1e-10)


DAYS: dict[str, list[Any]] = {
    "umbrella": ["yes", "[0.4;0.8]", None, "[1;0.25]"], "place": ["a", "a", "b", "b"], "day": ["1", "3", "1", "2"],
}  # fmt: skip


def test_sequences_in_memory_and_in_files(tmp_path: Path) -> None:
    days, keys = umbrella().compile("reference"), jtgpu.learn.Keys(id="place")
    own = [np.eye(2)[days.network.states("umbrella").index("yes")], [0.4, 0.8], [1, 1], [1, 0.25]]
    plain: Any = {"umbrella": [None] * 4, "place": DAYS["place"]}
    exact = days.smooth(plain, likelihood={"umbrella": own}, keys=keys)
    for given in (
        {v: DAYS[v] for v in ("umbrella", "place")},
        {"umbrella": np.array(DAYS["umbrella"], object).reshape(2, 2)},
    ):
        found = days.smooth(given, keys=keys if "place" in given else jtgpu.learn.Keys())
        np.testing.assert_allclose(found["rain"], exact["rain"], rtol=1e-12)
    pytest.importorskip("pyarrow")
    gaps = days.smooth(DAYS | {"day": [1, 3, 1, 2]}, keys=jtgpu.learn.Keys(id="place", time="day", on_gap="empty"))
    timed: Any = {"time": "day", "on_gap": "empty"}
    for more, answer in (({}, exact), (timed, gaps)):
        out = tmp_path / f"{len(more)}.csv"
        question = SequenceQuestion("smooth", "place", targets=("rain",), **more)
        answer_file(days, write(tmp_path / "days.csv", DAYS), out, question, FileOptions())
        read = np.genfromtxt(out, delimiter=",", names=True, deletechars="")
        rain = np.concatenate(answer["rain"])
        np.testing.assert_allclose(read["rain=no"], rain[rain.any(axis=1), 0], rtol=1e-9)  # padded


def test_networks_with_numbers() -> None:
    net = jtgpu.MixedNetwork(
        {"s": ["a", "b"], "x": float}, {"x": ["s"]}, {"s": [0.25, 0.75], "x": jtgpu.Gaussian([0.0, 1.0], sd=1)}
    )
    tree, x = net.compile("cpu"), [0.5, 2.0, None]
    weights = np.array([[0.4, 0.8], [1, 0], [3, 1]])
    cells: Any = {"s": ["[0.4;0.8]", "a", "[3;1]"], "x": x}
    for answer in ("posteriors_batch", "log_likelihood"):
        found, exact = getattr(tree, answer)(cells), getattr(tree, answer)({"x": x}, likelihood={"s": weights})
        pairs = [(found["s"], exact["s"])] if answer == "posteriors_batch" else [(found, exact)]
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert tree.predict(cells, "s").tolist() == tree.predict({"x": x}, "s").tolist()
    with pytest.raises(jtgpu.DataError, match="predictive checks take states"):
        jtgpu.learn.check(net, {"s": ["a", "[0.4;0.8]"], "x": [1.0, 2.0]}, ["s", "x"])


def test_a_frame_of_weights_is_read_by_the_names_of_states() -> None:
    """Read by position, swapped columns gave a wrong answer without a word."""
    pandas = pytest.importorskip("pandas")
    tree = jtgpu.load("asia").compile("cpu")
    cases, weights = [{"smoke": "yes"}, {}], np.array([[0.9, 0.1], [0.2, 0.7]])
    expected = tree.posteriors_batch(cases, likelihood={"xray": weights})["lung"]
    for frame in (
        pandas.DataFrame({"yes": weights[:, 0], "no": weights[:, 1]}),
        pandas.DataFrame({"no": weights[:, 1], "yes": weights[:, 0]}),
        pandas.DataFrame(weights),
    ):
        found = tree.posteriors_batch(cases, likelihood={"xray": frame})["lung"]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(jtgpu.EvidenceError, match="the columns of 'xray' are 'a', 'b'; expected its states 'yes'"):
        tree.posteriors_batch(cases, likelihood={"xray": pandas.DataFrame(weights, columns=["a", "b"])})


@pytest.mark.parametrize("labels", [["no", "yes"], ["yes", "no"], None])
def test_a_series_of_weights_is_read_by_the_names_of_states(labels: list[str] | None) -> None:
    pandas = pytest.importorskip("pandas")
    net = jtgpu.load("asia")
    tree, known = net.compile("cpu"), {"yes": 0.9, "no": 0.1}
    series = pandas.Series([known[s] for s in labels or ["yes", "no"]], labels)
    for question in ({"likelihood": {"xray": series}}, {"soft": {"xray": series}}, {"do": {"smoke": series}}):
        [(how, given)] = question.items()
        exact: Any = {how: dict.fromkeys(given, known)}
        asked: Any = question
        expected = tree.posteriors({}, **exact)["lung"]
        np.testing.assert_allclose(tree.posteriors({}, **asked)["lung"], expected, rtol=1e-12)
        np.testing.assert_allclose(tree.posteriors_batch([{}], **asked)["lung"], [expected], rtol=1e-12)
    with pytest.raises(jtgpu.EvidenceError, match="the labels of 'xray' are 'a', 'b'; expected its states 'yes'"):
        tree.posteriors({}, likelihood={"xray": pandas.Series([0.9, 0.1], ["a", "b"])})


def test_a_frame_of_a_likelihood_of_two_variables_is_read_by_the_names_of_states() -> None:
    pandas = pytest.importorskip("pandas")
    tree = jtgpu.load("asia").compile("cpu", together=[("lung", "bronc")])
    frame = pandas.DataFrame([[0.1, 0.9], [0.3, 0.7]], index=["no", "yes"], columns=["no", "yes"])
    expected = tree.posteriors({}, likelihood={("lung", "bronc"): [[0.7, 0.3], [0.9, 0.1]]})["lung"]
    np.testing.assert_allclose(tree.posteriors({}, likelihood={("lung", "bronc"): frame})["lung"], expected)
    turned = {("bronc", "lung"): frame.T}
    np.testing.assert_allclose(tree.posteriors_batch([{}], likelihood=turned)["lung"][0], expected)


def test_a_frame_without_names_is_read_by_position() -> None:
    """Its columns 0 and 1 were read as the states of these names."""
    pandas = pytest.importorskip("pandas")
    net = jtgpu.BayesianNetwork(
        {"a": ["1", "0"], "b": ["x", "y"]}, {"b": ["a"]}, {"a": [0.3, 0.7], "b": [[0.2, 0.8], [0.6, 0.4]]}
    )
    tree, weights = net.compile("cpu"), np.array([[0.9, 0.1], [0.2, 0.8]])
    expected = tree.posteriors_batch([{}, {}], likelihood={"a": weights})["b"]
    named = pandas.DataFrame(weights[:, ::-1], columns=pandas.Index([0, 1], dtype=object))
    for frame in (pandas.DataFrame(weights), named):
        np.testing.assert_allclose(tree.posteriors_batch([{}, {}], likelihood={"a": frame})["b"], expected)


def test_gradients_read_weights_by_the_names_of_states() -> None:
    pandas = pytest.importorskip("pandas")
    function = jtgpu.load("asia").compile("cpu").evidence_function([{"smoke": "yes"}])
    frame = pandas.DataFrame({"no": [0.2], "yes": [0.7]})
    found, exact = (function.posterior_gradient({"lung": w}).cpts["lung"] for w in (frame, [[0.7, 0.2]]))
    np.testing.assert_allclose(found, exact)


def test_products_of_weights_that_are_too_large_are_errors() -> None:
    """They were said to have probability 0."""
    cells: Any = ["[1e200;1e200]"]
    mixed = jtgpu.MixedNetwork({"s": ["a", "b"], "x": float}, {}, {"s": [0.5, 0.5], "x": jtgpu.Gaussian(0.0, sd=1)})
    asked: list[Callable[[], Any]] = [
        lambda: jtgpu.load("asia").compile("cpu").posteriors_batch({"xray": cells}, likelihood={"xray": [1e200] * 2}),
        lambda: mixed.compile("cpu").posteriors_batch({"s": cells}, likelihood={"s": [1e200] * 2}),
        lambda: umbrella().compile("cpu").smooth({"umbrella": cells}, likelihood={"umbrella": [1e200] * 2}),
    ]
    for ask in asked:
        with pytest.raises(jtgpu.EvidenceError, match=r"the product of the likelihoods of '.*' is too large"):
            ask()
    with pytest.raises(jtgpu.EvidenceError, match="the variable 's' twice, by name and by number"):
        mixed.compile("cpu").posteriors_batch({"x": [0.5]}, likelihood={"s": [0.1, 0.9], 0: [0.9, 0.1]})


def test_bytes_are_texts_in_tables_and_in_single_cases(tree: Any) -> None:
    expected = tree.posteriors_batch({"xray": ["yes", "[0.4;0.8]"]})["lung"]
    np.testing.assert_allclose(tree.posteriors_batch({"xray": [b"yes", b"[0.4;0.8]"]})["lung"], expected)
    np.testing.assert_allclose(tree.posteriors({"xray": b"yes"})["lung"], expected[0])
    with pytest.raises(UnknownState, match="variable 'xray' has no state 'yse'; did you mean 'yes'"):
        tree.posteriors({"xray": b"yse"})
    with pytest.raises(UnknownState, match="parts that are not numbers"):
        tree.posteriors_batch({"xray": ["[1_0;0.8]"]})  # read as 10
