"""Commands on dynamic networks with numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jtgpu

from ..formats.test_dynamic_files import umbrella
from .commands import ASIA, REFERENCE, run


def machine(name: str = "machine") -> jtgpu.MixedDynamicNetwork:
    """A hidden state, and a load that is measured."""
    return jtgpu.MixedDynamicNetwork(
        {"state": ["calm", "busy"], "load": float},
        {"state": [("state", 1)], "load": ["state"]},
        {"state": [[0.9, 0.1], [0.2, 0.8]], "load": jtgpu.Gaussian([1.0, 4.0], sd=[0.5, 1.0])},
        start={"state": [0.5, 0.5]}, name=name,
    )  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The network in a file."""
    jtgpu.write(machine(), tmp_path / "m.dynamic.json")
    return str(tmp_path / "m.dynamic.json")


@pytest.fixture
def hours(tmp_path: Path) -> str:
    """Two sequences in a file, one with a hole."""
    (tmp_path / "h.csv").write_text("id,hour,load\na,1,0.8\na,2,3.9\na,3,NA\na,4,4.4\nb,1,1.1\nb,2,1.0\n")
    return str(tmp_path / "h.csv")


KEYS = ("--id", "id", "--time", "hour", *REFERENCE)
DATA = {"load": np.array([[0.8, 3.9, np.nan, 4.4], [1.1, 1.0, np.nan, np.nan]])}


def rows_of(*words: str) -> list[dict[str, Any]]:
    """The answer as JSON."""
    done = run("dynamic", *words, "--json")
    assert done.exit_code == 0, done.output
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made


@pytest.mark.parametrize("what", ["filter", "smooth", "predict", "mpe", "fit"])
def test_a_file_without_rows_is_an_error(what: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("id,hour,load\n")
    more = ("-o", str(tmp_path / "fitted.dynamic.json")) if what == "fit" else ()
    keys = ("--id", "id", "--time", "hour") if what == "fit" else KEYS
    done = run("dynamic", what, file, str(tmp_path / "none.csv"), *keys, *more)
    assert done.exit_code == 2
    assert "no sequences" in done.stderr
    assert not (tmp_path / "fitted.dynamic.json").exists()


def test_answers_are_those_of_python(file: str, hours: str, tmp_path: Path) -> None:
    tree = machine().compile("reference")
    expected = tree.smooth([{"load": [0.8, 3.9, None, 4.4]}, {"load": [1.1, 1.0]}])
    rows = rows_of("smooth", file, hours, *KEYS, "-t", "state,load", "--evidence-columns", "load", "--log-evidence")
    assert [(r["id"], r["hour"]) for r in rows] == [*(("a", t) for t in range(1, 5)), ("b", 1), ("b", 2)]
    for row, (i, t) in zip(rows, [*((0, t) for t in range(4)), (1, 0), (1, 1)], strict=True):
        assert row["state=busy"] == expected["state"][i, t, 1]
        assert (row["load.mean"], row["load.sd"]) == (expected.mean["load"][i, t], expected.sd["load"][i, t])
        assert row["log_evidence"] == expected.log_evidence[i]
    ahead = rows_of("predict", file, hours, *KEYS, "--steps", "2")
    assert ahead[0].keys() == {"id", "hour", "step", "state=calm", "state=busy", "load.mean", "load.sd"}
    assert [r["state"] for r in rows_of("mpe", file, hours, *KEYS)] == ["calm", "busy", "busy", "busy", "calm", "calm"]
    last = rows_of("filter", file, hours, *KEYS, "--at", "last", "--labels", "-t", "load,state",
                   "--evidence-columns", "load")  # fmt: skip
    assert last == [{"id": "a", "hour": 4, "load": 4.4, "state": "busy"},
                    {"id": "b", "hour": 2, "load": 1.0, "state": "calm"}]  # fmt: skip
    output = str(tmp_path / "o.csv")
    assert "2 sequences, 6 rows, 1 target" in run("dynamic", "filter", file, hours, *KEYS, "-o", output).stdout
    assert Path(output).read_text().startswith('"id","hour","state=calm","state=busy"\n"a",1,')


def test_parquet_chunks_and_gaps(file: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    days = [t for _ in range(40) for t in range(9) if t != 4]
    frame = pandas.DataFrame({"id": np.repeat(np.arange(40), 8), "day": days, "load": rng.normal(2, 2, 320)})
    frame.loc[::7, "load"] = np.nan
    frame.to_parquet(tmp_path / "d.parquet")
    frame.to_csv(tmp_path / "d.csv", index=False)
    keys = ("--id", "id", "--time", "day", "--on-gap", "empty", "--chunk", "13", *REFERENCE)
    one, two = (rows_of("smooth", file, str(tmp_path / f"d.{end}"), *keys) for end in ("parquet", "csv"))
    answer = (
        machine()
        .compile("reference")
        .smooth(frame, keys=jtgpu.learn.Keys(id="id", time="day", on_gap="empty"), targets=["state"])
    )
    assert one == answer.to_frame("pyarrow").to_pylist() == [{**row, "id": int(row["id"])} for row in two]
    assert len(one) == 360


@pytest.mark.slow
def test_fit_samples_and_other_files(file: str, hours: str, tmp_path: Path) -> None:
    drawn = str(tmp_path / "drawn.csv")
    assert run("dynamic", "sample", file, "--samples", "40", "--steps", "25", "--seed", "1", "-o", drawn).exit_code == 0
    output = str(tmp_path / "f.dynamic.json")
    keys = ("--id", "sequence", "--time", "slice", *REFERENCE)
    words = ("dynamic", "fit", file, drawn, *keys, "-o", output)
    about = json.loads(run(*words, "--iterations", "5", "--json").stdout)
    assert about["sequences"] == 40
    fitted = jtgpu.read(output, kind=jtgpu.MixedDynamicNetwork)
    assert fitted.gaussian("load").mean == pytest.approx([1.0, 4.0], abs=0.2)
    assert not Path(f"{output}.unfinished").exists()
    assert run(*words, "--resume").exit_code == 0
    assert "of dynamic networks with numbers" in run(*words[:-1], str(tmp_path / "f.xdsl")).stderr.replace("\n", " ")
    again = run(*words[:-1], output, "--force", "--restarts", "2", "--iterations", "1", "--backend", "cpu")
    assert "objectives of 2 starts" in again.stdout
    flat = str(tmp_path / "u.mixed.json")
    assert run("dynamic", "unroll", file, "--steps", "3", "-o", flat).exit_code == 0
    assert jtgpu.read(flat) == machine().unroll(3)
    done = run("convert", file, str(tmp_path / "m.xdsl"))
    assert (done.exit_code, "cannot contain a dynamic network with numbers" in done.stderr) == (5, True)
    assert run("convert", file, str(tmp_path / "n.dynamic.json")).exit_code == 0
    assert jtgpu.read(tmp_path / "n.dynamic.json") == machine()
    about = json.loads(run("info", file, "--json").stdout)
    assert (about["kind"], about["numbers"], about["densities"]) == ("dynamic network with numbers", ["load"], 2)
    assert "load[t]" in run("info", file).stdout


@pytest.mark.parametrize(
    "words", ["query", "plan", "sample * 2", "mpe", "batch * c.csv -o o.csv", "voi * -t state", "fit * c.csv -o f.net",
              "validate * c.csv -t state"]
)  # fmt: skip
def test_other_commands_name_the_command(words: str, file: str) -> None:
    done = run(*(file if w == "*" else w for w in (words if "*" in words else f"{words} *").split()))
    assert done.exit_code == 2
    assert "is a dynamic network with numbers: jtgpu dynamic answers questions" in done.stderr.replace("\n", " ")


def test_networks_without_slices(hours: str, tmp_path: Path) -> None:
    mixed = jtgpu.MixedNetwork({"load": float}, {}, {"load": jtgpu.Gaussian(1.0, sd=1.0)})
    jtgpu.write(mixed, tmp_path / "x.mixed.json")
    for net, kind in ((ASIA, "BayesianNetwork"), (str(tmp_path / "x.mixed.json"), "MixedNetwork")):
        done = run("dynamic", "filter", net, hours, *KEYS)
        assert done.exit_code == 2
        assert f"is a {kind}, without slices: jtgpu query and jtgpu batch answer questions" in done.stderr


WRONG = {
    "a text in a numeric column": ("id,load\na,1.5\na,high\n", ":3: column 'load': expected a number, got 'high'"),
    "a date in a numeric column": ("id,load\na,2024-01-01\n", "expected a number, got '2024-01-01'"),
    "an infinite number": ("id,load\na,1.5\na,inf\n", ":3, column 'load': the value is infinite"),
    "a number of no state": ("id,state\na,calm\na,2.5\n", ":3: column 'state'"),
    "a name with a slip": ("id,laod\na,1\n", "has a column 'laod', but the variable is named 'load'"),
    "no column of the network": ("id,weight\na,1\n", "no column of "),
    "no such key": ("who,load\na,1\n", "--id 'id' is no column; the file has 'who', 'load'"),
    "a density of 0": ("id,load\na,1\na,1e300\n", "sequence 0 ('a'), slice 1: the numbers have density 0"),
}


@pytest.mark.parametrize("what", WRONG)
def test_errors_name_cell_and_line(what: str, file: str, tmp_path: Path) -> None:
    text, expected = WRONG[what]
    (tmp_path / "w.csv").write_text(text)
    done = run("dynamic", "filter", file, str(tmp_path / "w.csv"), "--id", "id", *REFERENCE)
    assert done.exit_code != 0
    assert expected in done.stderr.replace("\n", " ")


def test_time_names_the_command(file: str) -> None:
    assert "whose time depends on the sequences: jtgpu dynamic filter" in run("time", file, *REFERENCE).stderr


def test_impossible_sequences_are_flagged(file: str, tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("id,load\na,1\na,1e300\nb,1\n")
    words = ("--id", "id", *REFERENCE, "--on-error", "flag")
    rows = rows_of("smooth", file, str(tmp_path / "w.csv"), *words)
    assert [r["error"] for r in rows] == ["impossible evidence", "impossible evidence", None]
    assert [r["state=calm"] is None for r in rows] == [True, True, False]
    net = jtgpu.MixedDynamicNetwork(  # a number without parents
        {"s": ["a", "b"], "y": float}, {"s": [("s", 1)]},
        {"s": [[0.9, 0.1], [0.2, 0.8]], "y": jtgpu.Gaussian(0.0, sd=1.0)}, start={"s": [0.5, 0.5]},
    )  # fmt: skip
    answer = net.compile("reference").filter({"y": [[0.0, 1e300], [0.0, 1.0]]}, on_error="flag")
    assert answer.impossible.tolist() == [True, False]
    assert np.isfinite(answer["s"]).all()


def test_targets_and_evidence(file: str, hours: str, tmp_path: Path) -> None:
    done = run("dynamic", "filter", file, hours, *KEYS, "-t", "load")
    assert "the targets are the only columns that are variables" in done.stderr.replace("\n", " ")
    assert run("dynamic", "filter", file, hours, *KEYS, "-t", "laod").exit_code != 0
    lagged = jtgpu.MixedDynamicNetwork(
        {"s": ["a", "b"], "y": float}, {"s": [("s", 1)], "y": ["s", ("y", 1)]},
        {"s": [[0.9, 0.1], [0.2, 0.8]], "y": jtgpu.Gaussian([0.0, 3.0], {"y[t-1]": [0.5, 0.5]}, sd=1.0)},
        start={"s": [0.5, 0.5], "y": jtgpu.Gaussian([0.0, 3.0], sd=1.0)},
    )  # fmt: skip
    jtgpu.write(lagged, tmp_path / "l.dynamic.json")
    (tmp_path / "y.csv").write_text("y\n1\n\n2\n")
    done = run("dynamic", "filter", str(tmp_path / "l.dynamic.json"), str(tmp_path / "y.csv"), *REFERENCE)
    assert "slice 2: 'y' is observed, and its parent 'y[t-1]' is not" in done.stderr.replace("\n", " ")
    (tmp_path / "z.csv").write_text("y\n1\n2\n")
    words = (str(tmp_path / "l.dynamic.json"), str(tmp_path / "z.csv"), *REFERENCE)
    assert [*rows_of("predict", *words)[0]] == ["step", "s=a", "s=b"]
    ahead = lagged.compile("reference").predict({"y": [[1.0, 2.0]]}, targets=["y"])
    expected = {"step": 1, "y.mean": ahead.mean["y"][0, 0], "y.sd": ahead.sd["y"][0, 0]}
    assert rows_of("predict", *words, "-t", "y") == [expected]
    done = run("dynamic", "predict", *words, "-t", "y", "--steps", "2")
    assert "slice 3: 'y' is a target, and a numeric parent of it is not observed" in done.stderr.replace("\n", " ")


@pytest.mark.slow
def test_samples_have_the_moments_of_the_network() -> None:
    tree = machine().compile("reference")
    drawn = tree.sample(4000, length=3, seed=2)
    flat = machine().unroll(3).compile("reference").posteriors()
    for t in range(3):
        assert drawn["load"][:, t].mean() == pytest.approx(flat[f"load[{t}]"].mean, abs=0.1)
        assert drawn["load"][:, t].std() == pytest.approx(flat[f"load[{t}]"].sd, abs=0.1)
    given = {"load": [[0.8, None, 4.4]]}
    some, smooth = tree.sample(4000, given, seed=3), tree.smooth(given)
    assert (some["load"][:, 0, 0] == 0.8).all()
    assert some["load"][:, 0, 1].mean() == pytest.approx(smooth.mean["load"][0, 1], abs=0.1)
    assert (some["state"] == "busy").mean(axis=0)[0] == pytest.approx(smooth["state"][0, :, 1], abs=0.05)
    assert some.to_frame("pyarrow").column_names == ["sample", "sequence", "slice", "state", "load"]
    assert np.array_equal(tree.sample(5, length=3, seed=2)["load"], tree.sample(5, length=3, seed=2)["load"])
    assert "load" in str(some)
    with pytest.raises(jtgpu.ArgumentError, match="with sequences only"):
        tree.sample(2, length=3, keys=jtgpu.learn.Keys(id="who"))


def test_networks_of_states_name_their_evidence_too(tmp_path: Path) -> None:
    jtgpu.write(umbrella(), tmp_path / "w.dynamic.json")
    (tmp_path / "d.csv").write_text("umbrella\nyes\n\nno\n")
    words = (str(tmp_path / "w.dynamic.json"), str(tmp_path / "d.csv"), *REFERENCE, "-t", "umbrella")
    assert run("dynamic", "smooth", *words).exit_code != 0
    rows = rows_of("smooth", *words, "--evidence-columns", "umbrella")
    assert [r["umbrella=yes"] for r in (rows[0], rows[2])] == [1.0, 0.0]
    assert 0 < rows[1]["umbrella=yes"] < 1
