"""Every class of result: what prints is what its data frame has, and a notebook shows it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import jtgpu
from jtgpu.draw.html import PICTURES
from jtgpu.inference.results.result import Result
from jtgpu.util.text_table import configurations

pd = pytest.importorskip("pandas", reason="pandas is not installed")


def classes(of: type[Any]) -> Iterator[type[Any]]:
    for cls in of.__subclasses__():
        yield cls
        yield from classes(cls)


def test_every_class_names_a_picture_and_formats_nothing_itself() -> None:
    for name in ("decisions", "dynamic", "graphs", "inference", "learn", "mixed"):
        package: Any = importlib.import_module(f"jtgpu.{name}")
        for public in package.__all__:
            getattr(package, public)
    found = {cls.__name__: cls for cls in classes(Result)}
    assert {"Posteriors", "Policy", "SequencePosteriors", "MixedSamples", "Validation", "GraphComparison"} <= {*found}
    for cls in found.values():
        assert cls._picture in PICTURES, cls
        assert not {"__str__", "_repr_html_"} & {*vars(cls)}, cls


def test_rows_of_cases_print_their_index_and_nothing_where_impossible() -> None:
    net = jtgpu.MixedNetwork(
        {"d": ["a", "b"], "x": float}, {"x": ["d"]}, {"d": [1.0, 0.0], "x": jtgpu.Gaussian([0.0, 3.0], sd=[1.0, 2.0])}
    )
    cases = pd.DataFrame({"d": ["a", "b"], "x": [0.5, None]}, index=["ann", "bob"])
    found = net.compile("cpu").posteriors_batch(cases, on_error="flag")
    lines = str(found).splitlines()
    assert lines[1].split() == [*found.to_frame().columns]
    assert [line.split()[0] for line in lines[2:]] == ["ann", "bob"]
    assert lines[3].split()[1:] == ["-inf"]


def test_explanations_of_cases_print_their_probability() -> None:
    best = jtgpu.load("asia").compile("cpu").mpe_batch([{"xray": "yes"}])
    assert str(best).splitlines()[1].split() == [*best.to_frame().columns]


def test_samples_of_sequences_print_their_number() -> None:
    dyn = jtgpu.DynamicNetwork(
        {"s": ["a", "b"]}, {"s": [("s", 1)]}, {"s": [[0.7, 0.3], [0.3, 0.7]]}, start={"s": [0.5, 0.5]}
    )
    drawn = dyn.compile("reference").sample(1, {"s": [["a", "b"]]}, seed=1)
    assert str(drawn).splitlines()[1].split() == [*drawn.to_frame().columns] == ["sample", "sequence", "slice", "s"]
    answer = dyn.compile("reference").smooth({"s": [["a", "b"]]})
    assert str(answer).splitlines()[2].split() == ["0", "0", "1.000000", "0.000000"]


def test_validations_have_html() -> None:
    data = jtgpu.load("asia").compile("cpu").sample(50, seed=1)
    found = jtgpu.learn.validate(jtgpu.load("asia"), data, "dysp", seed=1)
    assert "precision" in found._repr_html_()
    assert found.to_frame().columns.tolist()[:3] == ["dysp", "rows", "precision"]
    assert found.to_frame()["rows"].sum() == 50


def test_configurations_vary_the_last_variable_fastest() -> None:
    first, second = configurations([["a", "b"], ["x", "y", "z"]])
    assert [*zip(first, second, strict=True)] == [(a, b) for a in "ab" for b in "xyz"]
    assert (first.whole().tolist(), second.whole().tolist()) == ([*first], [*second])
    assert configurations([]) == []
