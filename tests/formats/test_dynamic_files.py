"""Files of dynamic networks: JSON of jtgpu, and what all formats promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu
from jtgpu.errors import FormatError, ParseError
from jtgpu.formats import dynamic_json
from tests.dynamic.random_templates import random_template

TEXT = """{"format": "jtgpu dynamic network", "version": 1, "name": "weather", "variables": {
  "area": {"static": true, "states": ["a", "b"], "parents": [], "cpt": [0.5, 0.5]},
  "rain": {"states": ["no", "yes"], "parents": ["area", ["rain", 1]],
           "cpt": [[[0.7, 0.3], [0.3, 0.7]], [[0.9, 0.1], [0.2, 0.8]]], "start": [[[0.5, 0.5], [0.25, 0.75]]]}
}}
"""


def umbrella(**changes: Any) -> jtgpu.DynamicNetwork:
    """The umbrella network of Russell and Norvig."""
    return jtgpu.DynamicNetwork(
        {"rain": ["no", "yes"], "umbrella": ["no", "yes"]}, {"rain": [("rain", 1)], "umbrella": ["rain"]},
        {"rain": [[0.7, 0.3], [0.3, 0.7]], "umbrella": [[0.8, 0.2], [0.1, 0.9]]}, start={"rain": [0.5, 0.5]}, **changes,
    )  # fmt: skip


@pytest.mark.parametrize("suffix", ["dynamic.json", "dynamic.json.gz", "xdsl", "xdsl.xz"])
def test_templates_read_back_equal(suffix: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for i in range(30):
        dyn = random_template(rng)
        assert jtgpu.write(dyn, tmp_path / f"{i}.{suffix}") == ()
        again = jtgpu.read(tmp_path / f"{i}.{suffix}")
        assert again == dyn
        assert jtgpu.load(tmp_path / f"{i}.{suffix}") == dyn


def test_json_by_hand() -> None:
    dyn = dynamic_json.parse(TEXT)
    assert isinstance(dyn, jtgpu.DynamicNetwork)
    assert (dyn.name, dyn.variables, dyn.static, dyn.order) == ("weather", ("area", "rain"), ("area",), 1)
    assert dyn.parents("rain") == (("area", 0), ("rain", 1))
    assert np.asarray(dyn.start("rain")[0]).tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert dynamic_json.parse(dynamic_json.dumps_dynamic(dyn)) == dyn
    odd = umbrella(name='a "b" é').replace(name='a "b"\n')
    assert dynamic_json.parse(dynamic_json.dumps_dynamic(odd)).name == odd.name


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[0.9, 0.1]", "[0.9, 0.2]", r"f:3:3: variable 'rain\[t\]': .* sums to 1.1"),
        ("[0.9, 0.1]", '[0.9, "x"]', "f:1:1: found 'x' in a table, expected a number"),
        ("[0.9, 0.1]", "[0.9, NaN]", "f:1:1: found NaN, expected a finite number"),
        ("[0.9, 0.1]", "[0.9, 1e999]", "f:3:3: .*'rain"),
        ('["rain", 1]', '["rain", 2]', "f:3:3: variable 'rain': start must be a sequence of 2 tables"),
        ('["rain", 1]', '["rain", 1.0]', "f:3:3: the parents of 'rain' must be a list of names and of pairs"),
        ('["rain", 1]', '["wet", 1]', "f:3:3: variable 'rain' has the parent 'wet', which is not declared"),
        ('["no", "yes"]', '["no", 1]', "f:3:3: the states of 'rain' must be a list of names"),
        ('"static": true', '"static": 1', "f:2:3: static of 'area' must be true or false, got 1"),
        ('"static": true', '"statik": true', "f:2:3: variable 'area' has .*, expected states, parents, cpt"),
        ('"area": {', '"rain": {', "f:1:1: 'rain' occurs twice in an object"),
        ('"version": 1', '"version": 2', "f:1:1: found the version 2, expected 1"),
        ('"name"', '"nam"', "f:1:1: found 'nam' in the network; did you mean 'name'"),
        ("0.5, 0.5]}", "0.5, 0.5}", "f:2:81: invalid JSON"),
        ('"variables": {', '"variables": [', "invalid JSON"),
    ],
)
def test_errors_have_their_place(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(ParseError, match=message):
        dynamic_json.parse(TEXT.replace(old, new, 1), "f")


def test_deep_lists() -> None:
    with pytest.raises(ParseError):
        dynamic_json.parse(TEXT.replace("0.9", "[" * 100_000 + "]" * 100_000, 1))


@pytest.mark.parametrize("suffix", ["net", "bif", "uai", "mixed.json"])
def test_formats_without_slices(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"cannot contain a dynamic network; formats that can are .*\.dynamic\.json"):
        jtgpu.write(umbrella(), tmp_path / f"a.{suffix}")
    with pytest.raises(jtgpu.JtgpuError, match="rename"):
        jtgpu.write(umbrella(), tmp_path / "a.dynamic.json", rename=True)
    with pytest.raises(FormatError, match="no writer for this suffix"):
        jtgpu.write(jtgpu.load("asia"), tmp_path / "a.dynamic.json")
    assert not list(tmp_path.iterdir())
