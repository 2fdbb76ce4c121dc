"""Frames of cases: every kind of frame and of column, cells that cannot be read, and the answers themselves."""

from __future__ import annotations

import datetime
import decimal
import re
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cases import NA_VALUES, frame_states
from jtgpu.cases.query import resolve_query
from jtgpu.cases.solver import CaseSolver
from jtgpu.columns.coded import Encoder
from jtgpu.columns.column import Column
from jtgpu.model.discrete import DiscreteModel
from jtgpu.model.network import BayesianNetwork
from jtgpu.model.states import StateLookup
from jtgpu.options.tables import TableOptions
from jtgpu.util.cells import na_words
from tests.conftest import ROOT

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("narwhals", reason="narwhals is not installed")

COLUMNS: dict[str, list[Any]] = {
    "xray": ["yes", "no", None, "yes", "no"],
    "smoke": ["yes", None, "no", "no", "yes"],
    "dysp": [None, None, None, "yes", "no"],
}
TARGETS = ["lung", "bronc"]


@pytest.fixture(scope="module")
def asia() -> BayesianNetwork:
    net = jtgpu.read(ROOT / "nets" / "asia.net")
    assert isinstance(net, BayesianNetwork)
    return net


@pytest.fixture(scope="module")
def tree(asia: BayesianNetwork) -> jtgpu.JunctionTree:
    made: jtgpu.JunctionTree = asia.compile(backend="reference")
    return made


@pytest.fixture(scope="module")
def numbers() -> BayesianNetwork:
    """States that are called by numbers, by truth values, and by words."""
    return BayesianNetwork(
        {
            "n": ["1", "2", "3"], "t": ["false", "true"], "w": ["low", "mid", "high"], "x": ["0.5", "1.5"],
            "b": ["0", "1"],
        },
        {"t": ["n"]},
        {
            "n": [0.2, 0.3, 0.5], "t": [[0.1, 0.9], [0.5, 0.5], [0.8, 0.2]], "w": [0.1, 0.2, 0.7], "x": [0.4, 0.6],
            "b": [0.3, 0.7],
        },
    )  # fmt: skip


def singly(tree: jtgpu.JunctionTree, columns: dict[str, list[Any]], targets: list[str]) -> np.ndarray:
    """The answers by `posteriors`, a case at a time: (n, all the targets' states)."""
    rows = []
    for i in range(len(next(iter(columns.values())))):
        post = tree.posteriors({v: c[i] for v, c in columns.items() if c[i] is not None})
        rows.append(np.concatenate([np.asarray(post[t]) for t in targets]))
    return np.array(rows)


def polars() -> Any:
    return pytest.importorskip("polars", reason="Polars is not installed")


def frame_of(kind: str, columns: dict[str, list[Any]]) -> Any:
    if kind == "pandas":
        return pd.DataFrame(columns)
    if kind == "pandas object":
        return pd.DataFrame({k: pd.Series(c, dtype=object) for k, c in columns.items()})
    if kind == "pandas categorical":
        return pd.DataFrame({k: pd.Categorical(c) for k, c in columns.items()})
    if kind == "pandas pyarrow":
        return pd.DataFrame({k: pd.Series(c, dtype=pd.ArrowDtype(pa.string())) for k, c in columns.items()})
    if kind == "polars":
        return polars().DataFrame(columns)
    if kind == "polars categorical":
        pl = polars()
        return pl.DataFrame(columns).with_columns(pl.all().cast(pl.Categorical))
    if kind == "polars enum":
        pl = polars()
        return pl.DataFrame(columns).with_columns(pl.all().cast(pl.Enum(["no", "yes"])))
    table = pa.table({k: pa.array(c, pa.string()) for k, c in columns.items()})
    if kind == "arrow batch":
        return table.to_batches()[0]
    if kind == "arrow dictionary":
        return pa.table({k: table[k].combine_chunks().dictionary_encode() for k in columns})
    if kind == "arrow chunks":  # dictionaries that differ from chunk to chunk
        parts = [table.slice(i, 2) for i in range(0, len(table), 2)]
        return pa.table(
            {k: pa.chunked_array([p[k].combine_chunks().dictionary_encode() for p in parts]) for k in columns}
        )
    if kind == "arrow large":
        return table.cast(pa.schema([(k, pa.large_string()) for k in columns]))
    if kind == "arrow view":
        return table.cast(pa.schema([(k, pa.string_view()) for k in columns]))
    return table


KINDS = [
    "pandas", "pandas object", "pandas categorical", "pandas pyarrow", "polars", "polars categorical", "polars enum",
    "arrow", "arrow batch", "arrow dictionary", "arrow chunks", "arrow large", "arrow view",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_gives_the_answers_of_single_cases(tree: jtgpu.JunctionTree, kind: str) -> None:
    frame = frame_of(kind, COLUMNS)
    answer = tree.predict_proba(frame, TARGETS, log_evidence=True)
    assert type(answer) is type(frame)
    names = ["lung=yes", "lung=no", "bronc=yes", "bronc=no", "log_evidence"]
    assert [*(answer.schema.names if kind.startswith("arrow") else answer.columns)] == names
    found = np.column_stack([np.asarray(answer[n]) for n in names])
    np.testing.assert_allclose(found[:, :4], singly(tree, COLUMNS, TARGETS), rtol=0, atol=1e-12)
    for i in range(5):
        case = {v: c[i] for v, c in COLUMNS.items() if c[i] is not None}
        assert found[i, 4] == pytest.approx(tree.log_evidence(case), abs=1e-12)


def test_pandas_preserves_the_index_and_the_kept_columns(tree: jtgpu.JunctionTree) -> None:
    frame = pd.DataFrame(
        {**COLUMNS, "when": pd.date_range("2026-01-01", periods=5, tz="Europe/Vienna")}, index=list("edcba")
    )
    answer = tree.predict_proba(frame, "lung", keep="when")
    assert list(answer.index) == list("edcba")
    assert list(answer.columns) == ["when", "lung=yes", "lung=no"]
    assert answer["when"].dtype == frame["when"].dtype
    assert (answer["when"] == frame["when"]).all()
    twice = frame.set_axis([1, 1, 2, 2, 2])
    assert list(tree.predict(twice, "lung", keep=["when"]).index) == [1, 1, 2, 2, 2]
    two = frame.set_index([pd.Index([0, 0, 1, 1, 1]), pd.Index(list("abcde"))])
    assert tree.predict(two, "lung").index.equals(two.index)


def test_polars_keeps_columns(tree: jtgpu.JunctionTree) -> None:
    pl = polars()
    frame = pl.DataFrame({**COLUMNS, "id": [5, 4, 3, 2, 1]})
    answer = tree.predict_proba(frame, "lung", keep=["id", "smoke"])
    assert answer.columns == ["id", "smoke", "lung=yes", "lung=no"]
    assert answer["id"].to_list() == [5, 4, 3, 2, 1]
    with pytest.raises(jtgpu.EvidenceError, match="collect"):
        tree.predict_proba(frame.lazy(), "lung")


def test_predict_names_the_most_probable_states(tree: jtgpu.JunctionTree) -> None:
    frame = pd.DataFrame(COLUMNS)
    answer = tree.predict(frame, "bronc")
    expected = [
        tree.posterior("bronc", {v: c[i] for v, c in COLUMNS.items() if c[i] is not None}).mode for i in range(5)
    ]
    assert answer["bronc"].tolist() == expected
    rest = tree.predict(frame)
    assert list(rest.columns) == ["asia", "tub", "lung", "bronc", "either"]  # whatever is no column


def test_a_table_of_all_variables_is_filled_up(tree: jtgpu.JunctionTree, asia: BayesianNetwork) -> None:
    frame = pd.DataFrame({v: ["no", None] for v in asia.variables})
    filled = tree.predict(frame)
    assert list(filled.columns) == list(asia.variables)
    assert filled.iloc[0].tolist() == ["no"] * 8


def test_a_target_is_not_its_own_evidence_unless_it_is_said_so(tree: jtgpu.JunctionTree) -> None:
    frame = pd.DataFrame({"lung": ["yes", "no"], "xray": ["no", "no"]})
    without = tree.predict_proba(frame, "lung")["lung=yes"]
    assert without[0] == without[1] == tree.posterior("lung", {"xray": "no"})["yes"]
    assert tree.predict_proba(frame, "lung", evidence_columns=["lung", "xray"])["lung=yes"].tolist() == [1.0, 0.0]
    with pytest.raises(jtgpu.EvidenceError, match="no evidence"):
        tree.predict_proba(frame[["lung"]], "lung")
    nothing = tree.predict_proba(frame, "lung", evidence_columns=[])
    assert nothing["lung=yes"].tolist() == [tree.posterior("lung")["yes"]] * 2


def test_conflict_and_explanations(tree: jtgpu.JunctionTree) -> None:
    frame = pd.DataFrame(COLUMNS)
    answer = tree.predict_proba(frame, ["lung", "asia"], conflict=True, mpe=True)
    for i in range(5):
        case = {v: c[i] for v, c in COLUMNS.items() if c[i] is not None}
        assert answer["conflict"][i] == pytest.approx(tree.conflict(case), abs=1e-9)
        best = tree.mpe(case)
        assert (answer["mpe:lung"][i], answer["mpe:asia"][i]) == (best["lung"], best["asia"])
        assert answer["log_mpe"][i] == pytest.approx(best.log_joint, abs=1e-12)


def test_interventions_hold_in_every_row(tree: jtgpu.JunctionTree) -> None:
    answer = tree.predict_proba(pd.DataFrame({"dysp": ["yes", None]}), "lung", do={"smoke": "no"})
    assert answer["lung=yes"][0] == pytest.approx(tree.posterior("lung", {"dysp": "yes"}, do={"smoke": "no"})["yes"])
    assert answer["lung=yes"][1] == pytest.approx(tree.posterior("lung", do={"smoke": "no"})["yes"])


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_tables_without_rows_and_with_one(tree: jtgpu.JunctionTree, kind: str) -> None:
    for n in (0, 1):
        frame = frame_of(kind, {k: c[:n] for k, c in COLUMNS.items()})
        answer = tree.predict_proba(frame, TARGETS, on_error="flag")
        assert len(answer) == n
        assert answer.shape[1] == 5


def test_posteriors_batch_takes_frames(tree: jtgpu.JunctionTree, asia: BayesianNetwork) -> None:
    frame = pd.DataFrame({**COLUMNS, "id": range(5)})
    states = frame_states(asia, frame)
    assert states.dtype == np.int32
    found = tree.posteriors_batch(frame, targets=TARGETS)
    np.testing.assert_array_equal(found.flat, tree.posteriors_batch(states, targets=TARGETS).flat)
    with pytest.raises(jtgpu.UnknownState, match="row 1"):
        tree.posteriors_batch(pd.DataFrame({"xray": ["yes", "jes"]}))


# Cells ----------------------------------------------------------------------------------------------------------


def test_rows_that_cannot_be_read_are_named(tree: jtgpu.JunctionTree) -> None:
    frame = pd.DataFrame({"xray": ["yes", "no", "yess"], "smoke": ["no", "ja", None]}, index=["p1", "p2", "p3"])
    with pytest.raises(jtgpu.UnknownState, match=r"row 1 \(index 'p2'\), column 'smoke': 'ja'"):
        tree.predict_proba(frame, "lung")
    with pytest.raises(jtgpu.UnknownState, match=r"row 1 \(index 6\), column 'smoke'"):
        tree.predict_proba(frame.set_axis([5, 6, 7]), "lung")
    answer = tree.predict_proba(frame, "lung", on_error="flag")
    assert answer["error"].isna().tolist() == [True, False, False]
    assert "did you mean 'yes'" in answer["error"].iloc[2]
    assert answer["lung=yes"].isna().tolist() == [False, True, True]
    assert answer["lung=yes"].iloc[0] == tree.posterior("lung", {"xray": "yes", "smoke": "no"})["yes"]


def test_rows_of_probability_zero(tree: jtgpu.JunctionTree) -> None:
    frame = pd.DataFrame({"either": ["no", "yes"], "tub": ["yes", "yes"]})
    with pytest.raises(jtgpu.ImpossibleEvidence, match=r"row 0: .*either = 'no'"):
        tree.predict_proba(frame, "lung")
    answer = tree.predict_proba(frame, "lung", on_error="flag", log_evidence=True, conflict=True, mpe=True)
    assert "probability 0" in answer["error"][0]
    assert answer.drop(columns="error").iloc[0].isna().all()
    assert not answer.drop(columns="error").iloc[1].isna().any()


def test_columns_that_are_not_there(tree: jtgpu.JunctionTree) -> None:
    frame = pd.DataFrame({"xray": ["yes"], "id": [1]})
    with pytest.raises(jtgpu.UnknownVariable, match="'smoke'"):
        tree.predict_proba(frame, "lung", evidence_columns=["smoke"])
    with pytest.raises(jtgpu.UnknownVariable, match="'id'"):
        tree.predict_proba(frame, "lung", evidence_columns=["id"])
    with pytest.raises(jtgpu.UnknownVariable, match="lung"):
        tree.predict_proba(frame, "lungs")
    with pytest.raises(jtgpu.UnknownVariable, match="no column of the table"):
        tree.predict_proba(frame[["id"]], "lung")
    with pytest.raises(jtgpu.UnknownVariable, match=r"'Smoke '.*'smoke'"):
        tree.predict_proba(frame.assign(**{"Smoke ": "yes"}), "lung")
    with pytest.raises(jtgpu.UnknownVariable, match="'idd'"):
        tree.predict_proba(frame, "lung", keep="idd")
    with pytest.raises(jtgpu.EvidenceError, match="two columns named 'lung'"):
        tree.predict(frame.assign(lung="no"), "lung", keep="lung")
    with pytest.raises(jtgpu.EvidenceError):
        tree.predict_proba(frame.iloc[:, [0, 0]], "lung")
    with pytest.raises(ValueError, match="on_error"):
        tree.predict_proba(frame, "lung", on_error="ignore")  # type: ignore[call-overload]
    nothing: Any
    for nothing in ([1, 2], "xray", 5):
        with pytest.raises(jtgpu.JtgpuError):
            tree.predict_proba(nothing, "lung")


def lookup_of(model: DiscreteModel, v: int, words: frozenset[str] = frozenset()) -> StateLookup:
    """The states of a variable by cells."""
    return StateLookup(model.variables[v], model.state_values(v), words)


CELLS: list[tuple[str, Any, int]] = [
    ("n", 1, 0), ("n", 3, 2), ("n", 0, -2), ("n", 1.0, 0), ("n", "1", 0), ("n", "1.0", 0), ("n", " 2 ", 1),
    ("n", True, 0), ("n", False, -2), ("n", -1, -2), ("n", float("nan"), -1), ("n", None, -1), ("n", "", -2),
    ("n", "?", -2), ("n", 1.5, -2), ("n", float("inf"), -2), ("n", 10**30, -2), ("n", np.int8(2), 1),
    ("t", True, 1), ("t", False, 0), ("t", "True", 1), ("t", "FALSE", 0), ("t", 1, 1), ("t", 2, -2), ("t", "1", 1),
    ("w", "mid", 1), ("w", " mid", 1), ("w", "Mid", -2), ("w", 2, -2), ("w", "2", -2), ("w", 3, -2), ("w", -1, -2),
    ("w", "-1", -2), ("w", 1.0, -2), ("w", 1.5, -2), ("w", True, -2), ("w", "NA", -2), ("w", "1_0", -2),
    ("w", np.float32(2.0), -2), ("x", 0.5, 0), ("x", 1.5, 1), ("x", "1.50", 1), ("x", 1, -2), ("x", 0.50000001, -2),
    ("b", True, 1), ("b", False, 0), ("b", 1, 1), ("b", "0", 0), ("b", "0.0", 0), ("b", decimal.Decimal(1), 1),
    ("b", [1], -2),
]  # fmt: skip


@pytest.mark.parametrize(("variable", "cell", "state"), CELLS)
def test_the_rules_of_cells(numbers: BayesianNetwork, variable: str, cell: Any, state: int) -> None:
    lookup = lookup_of(numbers, numbers.index(variable))
    assert lookup.number(cell) == state
    assert lookup.number(cell) == state  # from memory
    if state == -2:
        assert str(cell)[:5] in lookup.reason(cell)


def test_words_for_nothing_give_way_to_states() -> None:
    model = DiscreteModel({"v": ["None", "NA", "x"], "w": ["", "y"]})
    words = na_words(None, is_text=True)
    assert [lookup_of(model, 0, words).number(c) for c in ("None", "NA", "null", "")] == [0, 1, -1, -1]
    assert lookup_of(model, 1, words).number("") == 0
    assert [lookup_of(model, 0).number(c) for c in ("None", "NA", "null", "")] == [0, 1, -2, -2]
    assert [lookup_of(model, 0, na_words("-9", is_text=False)).number(c) for c in ("-9", "")] == [-1, -2]
    assert [lookup_of(model, 0, na_words(["-9"], is_text=True)).number(c) for c in ("-9", "", "NA", "null")] == [
        -1, -1, 1, -1,
    ]  # fmt: skip
    assert na_words([], is_text=True) == na_words("", is_text=True) == {""}


def test_the_words_are_those_of_pandas() -> None:
    parsers = pytest.importorskip("pandas._libs.parsers", reason="pandas is not installed")
    assert set(NA_VALUES) == parsers.STR_NA_VALUES


@pytest.mark.parametrize(
    ("cell", "hint"),
    [("?", "for a missing cell, use None"), ("None", "for a missing cell, use None"), ("Yes", "did you mean 'yes'")],
)
def test_a_word_in_a_frame_is_no_missing_cell(cell: str, hint: str) -> None:
    with jtgpu.load("asia").compile("reference") as tree:
        with pytest.raises(jtgpu.UnknownState, match=f"row 1.*'xray'.*{re.escape(cell)}.*{hint}"):
            tree.predict_proba({"xray": ["yes", cell]}, "lung")
        if cell != "Yes":
            assert tree.predict_proba({"xray": ["yes", cell]}, "lung", na_values=cell)["lung=yes"][1] == pytest.approx(
                tree.posterior("lung")["yes"]
            )


def test_states_that_share_a_name_go_by_number() -> None:
    model = DiscreteModel({"v": ["a", "a", "b"], "n": ["1", "1.0", "2"]})
    assert [lookup_of(model, 0).number(c) for c in ("a", "b", 0, 1, 2)] == [-2, 2, -2, -2, -2]
    by_index = model.with_codes("index")
    assert [lookup_of(by_index, 0).number(c) for c in ("a", "b", 0, 1, 2)] == [-2, 2, 0, 1, 2]
    assert "2 states are named 'a'" in lookup_of(model, 0).reason("a")
    assert [lookup_of(model, 1).number(c) for c in ("1", "1.0", 1, 2.0)] == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("variable", "array"),
    [
        ("n", pa.array([1, None, 3], pa.int8())),
        ("n", pa.array([1, None, 3], pa.uint64())),
        ("n", pa.array([1.0, float("nan"), 3.0])),
        ("n", pa.array([1.0, None, 3.0], pa.float32())),
        ("n", pa.array([1.0, None, 3.0]).cast(pa.float16())),
        ("n", pa.array([decimal.Decimal(1), None, decimal.Decimal(3)])),
        ("n", pa.array(["1", None, "3"])),
        ("n", pa.array([b"1", None, b"3"])),
        ("n", pa.array([b"1", None, b"3"], pa.binary(1))),
        ("n", pa.array([1, None, 3]).dictionary_encode()),
        ("n", pa.DictionaryArray.from_arrays(pa.array([1, 0, 2], pa.uint8()), pa.array([None, "1", "3"]))),
        ("n", pa.chunked_array([["1"], [], [None, "3"]])),
        ("n", [1, None, "3"]),
        ("n", Column(np.array([1, -1, 0]), [3, 1])),
        ("w", pa.array(["low", None, "high"])),
    ],
    ids=lambda x: str(getattr(x, "type", type(x).__name__)) if not isinstance(x, str) else x,
)
def test_every_type_of_column(numbers: BayesianNetwork, variable: str, array: Any) -> None:
    encoded = Encoder(numbers, [numbers.index(variable)]).encode([array], 3)
    assert encoded.codes.tolist() == [[0, -1, 2]]
    assert not encoded.rejected


def test_truth_values_and_nothing(numbers: BayesianNetwork) -> None:
    encoder = Encoder(numbers, [numbers.index("t"), numbers.index("b"), numbers.index("w")])
    found = encoder.encode([pa.array([True, None, False]), pa.array([False, True, None]), pa.nulls(3)], 3)
    assert found.codes.tolist() == [[1, -1, 0], [0, 1, -1], [-1, -1, -1]]


def test_intervals_of_pandas_are_called_as_they_are_shown() -> None:
    cut = pd.cut([0.5, 1.5, float("nan"), 0.7], [0, 1, 2])
    net = BayesianNetwork({"v": [str(c) for c in cut.categories]}, {}, {"v": [0.5, 0.5]})
    assert frame_states(net, pd.DataFrame({"v": cut})).ravel().tolist() == [0, 1, -1, 0]


@pytest.mark.parametrize(
    "array", [pa.array([datetime.date(2026, 1, 1)]), pa.array([[1]]), pa.array([{"a": 1}]), pa.array([b"\xff"])]
)
def test_types_that_name_no_states(numbers: BayesianNetwork, array: Any) -> None:
    with pytest.raises(jtgpu.EvidenceError, match="column 'n'"):
        Encoder(numbers, [0]).encode([array], 1)


def test_nullable_and_mixed_columns_of_pandas(numbers: BayesianNetwork) -> None:
    frame = pd.DataFrame(
        {
            "n": pd.Series([1, None, 3], dtype="Int64"),
            "t": pd.Series([True, None, False], dtype="boolean"),
            "w": pd.Series(["low", "mid", float("nan")], dtype=object),
            "b": pd.Series([0, pd.NA, "1"], dtype=object),
        }
    )
    assert frame_states(numbers, frame)[:, [0, 1, 2, 4]].tolist() == [[0, 1, 0, 0], [-1, -1, 1, -1], [2, 0, -1, 1]]


# Several calls of the backend -----------------------------------------------------------------------------------


def test_many_rows_in_several_calls_keep_their_order(asia: BayesianNetwork) -> None:
    random = np.random.default_rng(7)
    n = 30_000
    columns = {
        v: np.array([*asia.states(v), None], object)[random.choice(3, n, p=[0.4, 0.3, 0.3])]
        for v in ("asia", "smoke", "xray", "dysp")
    }
    with asia.compile(backend="cpu") as tree:
        whole = tree.predict_proba(pd.DataFrame(columns), ["lung", "tub"], log_evidence=True)
        rows = random.integers(0, n, 200)
        some = tree.predict_proba(
            pd.DataFrame({k: c[rows] for k, c in columns.items()}), ["lung", "tub"], log_evidence=True
        )
        np.testing.assert_allclose(whole.to_numpy()[rows], some.to_numpy(), rtol=0, atol=1e-12)
        query, _ = resolve_query(asia, ["smoke", "xray"], TableOptions(targets=["lung"]))
        codes = random.integers(-1, 2, (2, n)).astype(np.int32)
        answers = CaseSolver(tree, query).solve(codes)
        assert len(answers.posterior) == 9  # of 30,000 cases
