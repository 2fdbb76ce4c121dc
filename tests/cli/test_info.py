"""`jtgpu info`: what a file really holds, for people and as JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import jtgpu
from jtgpu.cli import app, info
from jtgpu.cli.info import facts
from jtgpu.formats import FORMATS, read, write
from jtgpu.formats.conversion import carry
from jtgpu.model.markov import MarkovNetwork
from jtgpu.model.network import BayesianNetwork
from tests.conftest import ROOT

DATA = Path(__file__).parent / "data"
ODD = """% Odd things
% Licence: CC BY-SA 4.0
net { name = "odd"; node_size = (80 60); }
node a { states = ("x" "x" ""); label = "A"; }
node b { states = ("only"); }
node c { states = ("y" "n"); }
node d { states = ("y" "n"); }
node e { states = ("y" "n"); }
potential (a) { data = (1 2 1); }
potential (c | a) { data = ((1 0) (0 1) (50 50)); }
potential (d) { data = (0.5 0.5); } % by J. Doe (c) 1999
potential (b) { data = (1); }
"""


def run(*words: str) -> Any:
    result = CliRunner().invoke(app, ["info", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result


@pytest.fixture
def odd(tmp_path: Path) -> str:
    (tmp_path / "odd.net").write_text(ODD)
    return str(tmp_path / "odd.net")


def test_everything_that_is_odd(odd: str) -> None:
    result = run(odd, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    wanted = {
        "file": odd,
        "format": "Hugin net",
        "file_bytes": len(ODD),
        "name": "odd",
        "variables": 5,
        "arcs": 1,
        "empty_states": ["a"],
        "equal_states": ["a"],
        "odd_states": ["a"],
        "one_state": ["b"],
        "isolated": ["b", "d", "e"],
        "attributes": {"net": ["name", "node_size"], "node": ["label"], "potential": []},
    }
    assert {k: found[k] for k in wanted} == wanted
    assert found["row_repairs"] == {
        "rows": 7,
        "normalised": 2,
        "variables": ["a", "c"],
        "worst_variable": "c",
        "worst_sum": 100.0,
        "zero_rows": {},
    }
    assert found["comments"] == {
        "n": 3,
        "head": ["Odd things", "Licence: CC BY-SA 4.0"],
        "legal": ["Licence: CC BY-SA 4.0", "by J. Doe (c) 1999"],
    }
    assert len(found["notes"]) == 1  # e has no potential
    assert "'e' has no numbers: uniform" in found["notes"][0]


def test_for_people(odd: str) -> None:
    result = run(odd)
    lines = {line.split("  ")[0]: line for line in result.stdout.splitlines()}
    for name, text in (
        ("format", "Hugin net, 507 B of text"),
        ("rows", "2 of 7 CPT rows in 2 variables did not sum to 1"),
        ("empty state names", "a"),
        ("equal state names", "a"),
        ("single state", "b"),
        ("isolated", "b, d, e"),
        ("notes", "'e' has no numbers: uniform"),
        ("attributes", "net: name, node_size; node: label"),
        ("comments", "3"),
    ):
        assert text.replace("507", str(len(ODD))) in lines[name]
    assert "Licence: CC BY-SA 4.0" in result.stdout
    assert "by J. Doe (c) 1999" in result.stdout
    assert "warning: " in result.stderr  # rows that had to be repaired


def test_a_network_without_anything_odd() -> None:
    result = run(str(ROOT / "nets" / "alarm.net"))
    assert not result.stderr
    for name in ("empty state names", "single state", "isolated", "notes"):
        assert name not in result.stdout
    assert "CC BY-SA 3.0" in result.stdout


def test_every_format_is_named(tmp_path: Path) -> None:
    net = read(ROOT / "nets" / "asia.net")
    for target in (f for f in FORMATS if f.writer):
        path = tmp_path / f"a{target.suffixes[0]}.gz"
        path.write_bytes(gzip.compress(carry(net, target).text.encode()))
        found = json.loads(run(str(path), "--json").stdout)
        assert found["format"] == target.name
        assert found["file_bytes"] == len(gzip.decompress(path.read_bytes()))
        assert found["isolated"] == []


def test_long_lists_are_cut_for_people_and_whole_as_json(tmp_path: Path) -> None:
    names = [f"v{i}" for i in range(40)]
    net = BayesianNetwork({v: ["x"] for v in names}, {}, {v: [1.0] for v in names})
    write(net, tmp_path / "a.bif")
    assert "v11, ... and 28 more" in run(str(tmp_path / "a.bif")).stdout
    found = json.loads(run(str(tmp_path / "a.bif"), "--json").stdout)
    assert found["one_state"] == found["isolated"] == names


def test_markov_networks() -> None:
    states = {"a": ["x"], "b": ["x", "y"], "c": ["x", "y"]}
    found = facts(MarkovNetwork(states, [(["a"], [2]), (["c", "b"], [[1, 2], [0, 1]])]))
    assert (found["kind"], found["isolated"], found["one_state"]) == ("Markov network", ["a"], ["a"])
    assert "arcs" not in found


def test_markup_and_controls_in_comments_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    bif = "network n { } variable a { type discrete { x }; } probability (a) { table 1; }"
    (tmp_path / "a.bif").write_text(f"// [red]author \x1b[2J[/red]\n{bif}")
    text = run(str(tmp_path / "a.bif")).stdout
    assert "[red]author \\x1b[2J[/red]" in text
    assert "\x1b" not in text


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.xdsl").write_text("<smile>")
    result = run(str(tmp_path / "a.xdsl"))
    assert result.exit_code == 5
    assert "a.xdsl:1:8: found XML that is not well-formed" in result.stderr


def test_the_installation_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path))
    found = json.loads(CliRunner().invoke(app, ["info", "--system", "--json"]).stdout)
    assert found["jtgpu"] == jtgpu.__version__
    assert found["packages"]["numpy"] == np.__version__
    assert found["environment"]["JTGPU_CACHE_DIR"] == found["cache"] == str(tmp_path)
    text = CliRunner().invoke(app, ["info", "--system"]).stdout
    assert text.split()[:2] == ["jtgpu", jtgpu.__version__]


def test_missing_packages_are_named_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "_version", lambda package: None if package == "pyarrow" else "1.0")
    rows = dict(info.system_rows(info.system_facts()))
    assert rows["data frames"] == "missing: pyarrow; pip install '.[frames]' in a checkout"
    assert rows["plots"] == "installed"


def test_gpus_are_read_from_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "NVIDIA H100 80GB HBM3, 81559 MiB, 570.86.10, 9.0"
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(info, "_output", lambda *command: line if "smi" in command[0] else "")
    rows = [value for name, value in info.system_rows(info.system_facts()) if name == "GPU"]
    assert rows[0] == "NVIDIA H100 80GB HBM3, 81559 MiB, compute capability 9.0, driver 570.86.10"


@pytest.mark.parametrize("words", [[], ["nets/asia.net", "--system"]])
def test_info_takes_a_file_or_the_system(words: list[str]) -> None:
    assert CliRunner().invoke(app, ["info", *words]).exit_code == 2


def test_noisy_nodes_have_strengths(tmp_path: Path) -> None:
    """A table of 2^41 entries is not made."""
    names = [f"d{i}" for i in range(40)]
    cpts: dict[str, Any] = {v: [0.9, 0.1] for v in names}
    net = BayesianNetwork(
        {v: ["no", "yes"] for v in [*names, "f", "g"]}, {"f": names, "g": names[:2]},
        {**cpts, "f": jtgpu.NoisyOr(dict.fromkeys(names, 0.5)), "g": jtgpu.NoisyOr(dict.fromkeys(names[:2], 0.5))},
    )  # fmt: skip
    write(net, tmp_path / "a.xdsl")
    about = json.loads(run(str(tmp_path / "a.xdsl"), "--json").stdout)
    assert about["noisy"]["f"] == {"parents": 40, "strengths": 162, "expanded": 1 << 41}
    assert about["entries"] == 80 + 162 + 8
    assert about["parameters"] == net.n_parameters == 40 + 81 + 4
    text = run(str(tmp_path / "a.xdsl")).stdout
    assert "noisy nodes    f, 162 strengths for 2^41 entries\n" in text
    assert "g, 10 strengths for 8 entries" in text
