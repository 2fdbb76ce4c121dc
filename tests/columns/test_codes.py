"""``codes=`` wherever a table of cases is given, of every kind of network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.cases.query import query_fingerprint, resolve_query
from jtgpu.options.tables import TableOptions
from tests.decisions.test_policies import oil

YES = {1: "yes", 0: "no"}
CODES: Any = dict.fromkeys(jtgpu.load("asia"), YES)
RIGHT = 0.4887


def coded(rows: int = 400) -> tuple[dict[str, Any], dict[str, Any]]:
    """Cases of asia by name, and with 0 and 1 for no and yes."""
    samples = jtgpu.load("asia").compile("cpu").sample(rows, seed=1)
    named = {v: samples[v].tolist() for v in samples}
    return named, {v: [int(s == "yes") for s in column] for v, column in named.items()}


def test_every_question_about_a_table_of_states_takes_codes() -> None:
    tree, (named, numbers) = jtgpu.load("asia").compile("cpu"), coded()
    own = {v: column for v, column in numbers.items() if v not in ("lung", "bronc")}
    by_name = {v: named[v] for v in own}
    assert tree.posteriors_batch({"xray": [1]}, codes=CODES)["lung"][0, 0] == pytest.approx(RIGHT, abs=1e-4)
    questions: list[Callable[..., Any]] = [
        lambda cases, **codes: tree.posteriors_batch(cases, **codes).flat,
        lambda cases, **codes: tree.posteriors_batch(cases, do={"bronc": 1 if codes else "yes"}, **codes).flat,
        lambda cases, **codes: tree.log_likelihood(cases, **codes),
        lambda cases, **codes: tree.mpe_batch(cases, **codes).states,
        lambda cases, **codes: tree.impute(cases, seed=1, **codes).states,
        lambda cases, **codes: tree.predict_proba(cases, "lung", log_evidence=True, mpe=True, **codes)["lung=yes"],
        lambda cases, **codes: tree.predict(cases, "lung", **codes)["lung"],
        lambda cases, **codes: tree.expected_counts(cases, **codes)["lung"],
        lambda cases, **codes: tree.evidence_function(cases, **codes).log_evidence(),
        lambda cases, **codes: jtgpu.cases.frame_states(tree.model, cases, **codes),
        lambda cases, **codes: jtgpu.screen.surprise(tree, cases, n=3, **codes)["cell"],
    ]  # fmt: skip
    for ask in questions:
        expected = np.asarray(ask(by_name))
        np.testing.assert_array_equal(np.asarray(ask(own, codes=CODES)), expected)
        with pytest.raises(jtgpu.JtgpuError, match=r"with_codes|codes"):
            ask(own)
    index = {v: [int(s == "no") for s in column] for v, column in by_name.items()}
    np.testing.assert_array_equal(questions[0](index, codes="index"), questions[0](by_name))
    for wrong, message in [
        ({"xray": {1: "ja"}}, "'ja' is not one state"), ({"xry": YES}, "did you mean 'xray'"), ("indx", "'index'"),
        ([1], "codes"),
    ]:  # fmt: skip
        with pytest.raises(jtgpu.JtgpuError, match=message):
            tree.posteriors_batch({"xray": [1]}, codes=wrong)  # type: ignore[arg-type]


def test_files_and_their_continuation_know_the_codes(tmp_path: Path) -> None:
    tree, cases, output = jtgpu.load("asia").compile("cpu"), tmp_path / "c.csv", tmp_path / "o.csv"
    cases.write_text("xray\n1\n0\n")
    jtgpu.cases.answer_file(tree, cases, output, targets="lung", codes={"xray": YES})
    assert output.read_text().splitlines()[1].startswith("0.4887")
    with pytest.raises(jtgpu.UnknownState, match=r"c\.csv:2: column 'xray': '1'"):
        jtgpu.cases.answer_file(tree, cases, tmp_path / "p.csv")
    runs = []
    for net, codes in [(tree.model, None), (tree.model, {"xray": YES}), (tree.model.with_codes({"xray": YES}), None)]:
        options = TableOptions(targets="lung", codes=codes)
        runs.append(query_fingerprint(net, resolve_query(net, ["xray"], options)[0], [], options))
    assert runs[0] != runs[1] == runs[2]


def test_fits_learn_from_codes_and_keep_them(tmp_path: Path) -> None:
    net, (named, numbers) = jtgpu.load("asia"), coded()
    expected = jtgpu.learn.fit(net, named).network
    fitted = jtgpu.learn.fit(net, numbers, read=jtgpu.ReadOptions(codes=CODES)).network
    assert fitted == expected
    assert fitted.compile("cpu").posterior("xray", {"xray": 1})["yes"] == 1.0
    file = tmp_path / "c.csv"
    rows = [",".join(map(str, row)) for row in zip(*numbers.values(), strict=True)]
    file.write_text("\n".join([",".join(numbers), *rows]))
    assert jtgpu.learn.fit(net, str(file), read=jtgpu.ReadOptions(codes=CODES)).network == expected
    structure = {"xray": ["lung"]}
    codes: Any = {"xray": YES, "lung": YES}
    alone = jtgpu.learn.fit(structure, numbers, read=jtgpu.ReadOptions(codes=codes)).network
    assert alone.states("xray") == ("yes", "no")
    assert alone == jtgpu.learn.fit(structure, named, states={"xray": ["yes", "no"], "lung": ["yes", "no"]}).network
    with pytest.raises(jtgpu.ArgumentError, match="codes: there is no variable 'xry'; did you mean 'xray'"):
        jtgpu.learn.fit(structure, numbers, read=jtgpu.ReadOptions(codes={"xry": YES}))
    check = jtgpu.learn.check(net, numbers, ["lung", "xray"], read=jtgpu.ReadOptions(codes=CODES))
    assert check.observed.tolist() == jtgpu.learn.check(net, named, ["lung", "xray"]).observed.tolist()
    right = jtgpu.learn.validate(net, named, "bronc")
    model: Any
    for model in (net, net.compile("cpu")):
        assert (
            jtgpu.learn.validate(model, numbers, "bronc", read=jtgpu.ReadOptions(codes=CODES)).log_loss
            == right.log_loss
        )
    assert jtgpu.learn.validate(net.with_codes(CODES), numbers, "bronc").log_loss == right.log_loss
    for model in (net, {"bronc": ["smoke"]}):
        own = {v: CODES[v] for v in ("bronc", "smoke")} if isinstance(model, dict) else CODES
        tables = ((numbers, own), (named, None))
        folds = [
            jtgpu.learn.validate(model, table, "bronc", folds=2, read=jtgpu.ReadOptions(codes=c)).accuracy
            for table, c in tables
        ]
        assert folds[0] == folds[1]
    online = jtgpu.learn.Online(net.with_codes(CODES))
    for _ in range(2):  # the second time with the CPTs of the first
        online.update({"xray": 1, "lung": 1})
    assert online.n_cases == 2


def test_networks_with_numbers_decisions_and_time_take_codes() -> None:
    mixed = jtgpu.MixedNetwork(
        {"w": ["a", "b"], "x": float}, {"x": ["w"]}, {"w": [0.5, 0.5], "x": jtgpu.Gaussian([0.0, 9.0])}
    )
    w: Any = {"w": {1: "a", 2: "b"}}
    tree = mixed.compile("cpu")
    assert tree.posteriors_batch({"w": [2]}, codes=w)["x"].mean.tolist() == pytest.approx([9.0])
    assert tree.predict({"w": [1, 2]}, "x", codes=w).tolist() == pytest.approx([0.0, 9.0])
    assert tree.log_likelihood({"w": [1]}, codes=w).tolist() == pytest.approx([np.log(0.5)])
    assert tree.impute({"w": [2], "x": [1.0]}, seed=1, codes=w)["w"].tolist() == ["b"]
    rows = {"w": [1, 2, 1, 2] * 9, "x": np.random.default_rng(1).normal(size=36)}
    fitted: Any = jtgpu.learn.fit(mixed, rows, read=jtgpu.ReadOptions(codes=w))
    assert fitted.network.compile("cpu").posterior("w", {"w": 2})["b"] == 1.0
    parents = jtgpu.learn.fit({"x": ["w"]}, rows, continuous={"x": "gaussian"}, read=jtgpu.ReadOptions(codes=w))
    assert parents.network.states("w") == ("a", "b")
    with pytest.raises(jtgpu.UnknownState, match="with_codes"):
        tree.posteriors_batch({"w": [1]})

    solved = oil().compile()
    seismic: Any = {"seismic": {1: "open"}, "test": {1: "yes"}}
    expected = solved.options_batch("drill", {"test": ["yes"], "seismic": ["open"]})
    np.testing.assert_array_equal(solved.options_batch("drill", {"test": [1], "seismic": [1]}, codes=seismic), expected)

    states = {"rain": ["no", "yes"], "wet": ["no", "yes"]}
    parents_of: Any = {"rain": [("rain", 1)], "wet": ["rain"]}
    cpts = {"rain": [[0.7, 0.3], [0.3, 0.7]], "wet": [[0.8, 0.2], [0.1, 0.9]]}
    net = jtgpu.DynamicNetwork(states, parents_of, cpts, start={"rain": [0.5, 0.5]})
    loads = jtgpu.MixedDynamicNetwork(
        {"rain": ["no", "yes"], "load": float, "wet": ["no", "yes"]}, {**parents_of, "load": ["rain"]},
        {**cpts, "load": jtgpu.Gaussian([0.0, 2.0])}, start={"rain": [0.5, 0.5]},
    )  # fmt: skip
    wet: Any = {"wet": YES, "rain": YES}
    for dynamic in (net, loads):
        seen: Any = {"wet": [["yes", "no", None]]}
        numbers: Any = {"wet": [[1, 0, None]]}
        over = dynamic.compile("cpu")
        for kind in ("filter", "smooth", "predict"):
            answer, right = (getattr(over, kind)(x, codes=c)["rain"] for x, c in ((numbers, wet), (seen, None)))
            np.testing.assert_array_equal(answer, right)
        assert over.log_likelihood(numbers, codes=wet).tolist() == over.log_likelihood(seen).tolist()
        assert over.mpe(numbers, codes=wet)["rain"].tolist() == over.mpe(seen)["rain"].tolist()
        drawn = [over.sample(3, x, seed=1, codes=c)["rain"].tolist() for x, c in ((numbers, wet), (seen, None))]
        assert drawn[0] == drawn[1]
        with pytest.raises(jtgpu.UnknownState, match="with_codes"):
            over.filter(numbers)
    table = {"id": [1, 1, 2, 2, 3, 3], "t": [0, 1] * 3, "rain": [1, 0, 0, 1, 1, 0], "wet": [1, 0, 0, 1, 1, 1]}
    named = {**table, **{v: ["yes" if x else "no" for x in table[v]] for v in ("rain", "wet")}}
    for structure in (net, parents_of):
        fits: list[Any] = [
            jtgpu.learn.fit(
                structure, t, keys=jtgpu.learn.Keys(id="id", time="t"), read=jtgpu.ReadOptions(codes=c),
                states=None if c else declared,
            )
            for t, c, declared in ((table, wet, None), (named, None, {v: ["yes", "no"] for v in wet}))
            if c or structure is not net
        ]  # fmt: skip
        assert all(f.network == fits[0].network for f in fits)
        assert fits[0].network.state_index("wet", 1) == fits[0].network.state_index("wet", "yes")


@pytest.mark.parametrize(
    ("states", "codes"),
    [
        (["0", "1"], {0: "1", 1: "0"}), (["0", "1"], {"0": "1"}), (["1", "2", "3"], {0: "1", 1: "2", 2: "3"}),
        (["y", "n"], {1: "y", "1": "n"}), (["y", "n"], {"1": "y", 1.0: "n"}),
    ],
)  # fmt: skip
def test_a_code_has_one_meaning_in_every_kind_of_table(states: list[str], codes: dict[Any, str]) -> None:
    net = jtgpu.BayesianNetwork({"v": states}, {}, {"v": np.full(len(states), 1 / len(states))})
    with pytest.raises(jtgpu.ArgumentError, match=r"has two meanings|is the name of another state"):
        net.with_codes({"v": codes})


def test_truth_values_are_names_before_they_are_codes() -> None:
    net = jtgpu.BayesianNetwork({"v": ["yes", "no"]}, {}, {"v": [0.5, 0.5]}).with_codes({"v": {1: "yes", 0: "no"}})
    assert [net.state_index("v", x) for x in (True, False, 1.0, "0")] == [0, 1, 0, 1]
    same = jtgpu.BayesianNetwork({"v": ["a", "a"]}, {}, {"v": [0.5, 0.5]}).with_codes({"v": {7: "#1"}})
    assert same.state_index("v", 7) == same.state_index("v", "#1") == 1
