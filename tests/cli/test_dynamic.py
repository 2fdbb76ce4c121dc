"""Commands on files of dynamic networks."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import jtgpu

from ..formats.test_dynamic_files import umbrella
from .commands import ASIA, REFERENCE, run


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The umbrella network in a file."""
    jtgpu.write(umbrella(name="weather"), tmp_path / "w.dynamic.json")
    return str(tmp_path / "w.dynamic.json")


def test_info_and_convert(file: str, tmp_path: Path) -> None:
    about = json.loads(run("info", file, "--json").stdout)
    assert (about["kind"], about["order"], about["between_slices"]) == ("dynamic network", 1, ["rain[t-1]"])
    text = run("info", file).stdout
    assert "rain[t]" in text
    assert "dynamic JSON" in text
    for name in ("w.xdsl", "w.dynamic.json.xz"):
        assert run("convert", file, str(tmp_path / name)).exit_code == 0
        assert jtgpu.read(tmp_path / name) == jtgpu.read(file)
    done = run("convert", file, str(tmp_path / "w.net"))
    assert done.exit_code == 5
    assert "a dynamic network; formats that can are XDSL (.xdsl) and dynamic JSON (.dynamic.json)" in done.stderr
    assert run("convert", ASIA, str(tmp_path / "a.dynamic.json")).exit_code != 0
    assert not (tmp_path / "a.dynamic.json").exists()


@pytest.mark.parametrize(
    "words", [("query",), ("plan",), ("sample", "2"), ("mpe",), ("batch", "cases.csv", "-o", "o.csv")]
)
def test_other_commands_name_the_command(words: tuple[str, ...], file: str) -> None:
    done = run(words[0], file, *words[1:])
    assert done.exit_code == 2
    assert "is a dynamic network: jtgpu dynamic answers questions about sequences" in done.stderr.replace("\n", " ")


@pytest.fixture
def days(tmp_path: Path) -> str:
    """Two sequences in a file."""
    (tmp_path / "days.csv").write_text("place,day,umbrella\na,1,yes\na,2,yes\nb,1,no\nb,2,\nb,3,yes\n")
    return str(tmp_path / "days.csv")


KEYS = ("--id", "place", "--time", "day", *REFERENCE)


def test_answers(file: str, days: str, tmp_path: Path) -> None:
    lines = [line.split("\t") for line in run("dynamic", "filter", file, days, *KEYS).stdout.splitlines()]
    assert lines[0] == ["place", "day", "rain=no", "rain=yes"]
    assert [float(x[3]) for x in lines[1:3]] == pytest.approx([0.8181818, 0.8833570])  # Russell and Norvig
    assert [x[:2] for x in lines[1:]] == [["a", "1"], ["a", "2"], ["b", "1"], ["b", "2"], ["b", "3"]]
    output = str(tmp_path / "o.csv")
    done = run("dynamic", "smooth", file, days, *KEYS, "-o", output)
    assert "2 sequences, 5 rows, 1 target" in done.stdout
    assert float(Path(output).read_text().splitlines()[1].split(",")[3]) == pytest.approx(0.8833570)
    assert run("dynamic", "smooth", file, days, *KEYS, "-o", output).exit_code == 6
    about = json.loads(run("dynamic", "smooth", file, days, *KEYS, "-o", output, "--force", "--json").stdout)
    assert (about["sequences"], about["rows"], about["targets"]) == (2, 5, ["rain"])
    rows = json.loads(run("dynamic", "predict", file, days, *KEYS, "--steps", "2", "-t", "rain", "--json").stdout)
    assert [(r["place"], r["step"]) for r in rows] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    last = run("dynamic", "filter", file, days, *KEYS, "--at", "last", "--labels").stdout.splitlines()
    assert last == ["place\tday\train", "a\t2\tyes", "b\t3\tyes"]


def test_explanations_and_samples(file: str, days: str, tmp_path: Path) -> None:
    lines = run("dynamic", "mpe", file, days, *KEYS, "--log-evidence").stdout.splitlines()
    best = umbrella().compile("reference").mpe({"umbrella": [["yes", "yes", None], ["no", None, "yes"]]})
    assert lines[0] == "place\tday\train\tumbrella\tlog_mpe"
    assert [line.split("\t")[2] for line in lines[3:]] == best["rain"][1].tolist()
    words = ("dynamic", "sample", file, "--samples", "3", "--steps", "4", "--seed", "1")
    drawn = run(*words).stdout.splitlines()
    assert drawn[0] == "sequence\tslice\train\tumbrella"
    assert [line.split("\t")[:2] for line in drawn[1:]] == [[str(i), str(t)] for i in range(3) for t in range(4)]
    assert run(*words).stdout.splitlines() == drawn
    for output in ("s.csv", "s.parquet"):
        done = run(*words, "-o", str(tmp_path / output))
        assert "3 sequences, 12 rows" in done.stdout
    keys = ("--id", "sequence", "--time", "slice", *REFERENCE)
    again = run("dynamic", "smooth", file, str(tmp_path / "s.csv"), *keys)
    assert len(again.stdout.splitlines()) == 13
    assert run("dynamic", "smooth", file, str(tmp_path / "s.parquet"), *keys).stdout == again.stdout


def test_unroll_and_info(file: str, tmp_path: Path) -> None:
    done = run("dynamic", "unroll", file, "--steps", "3", "-o", str(tmp_path / "u.net"))
    assert done.exit_code == 0
    assert "'rain[0]' is 'rain_0'" in done.stderr
    assert jtgpu.read(tmp_path / "u.net").variables[:2] == ("rain_0", "umbrella_0")
    assert run("dynamic", "info", file, "--json").stdout == run("info", file, "--json").stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("filter", "FILE"), 2, "filter needs a file of sequences"),
        (("filter", ASIA, "DAYS"), 2, "is a BayesianNetwork, without slices: jtgpu query and jtgpu batch answer"),
        (("unroll", "FILE"), 2, "unroll writes a network: name its file by -o"),
        (("unroll", "FILE", "DAYS", "-o", "OUT.net"), 2, "unroll takes a network only"),
        (("filter", "FILE", "DAYS", "--steps", "3"), 2, "only predict, sample and unroll take a number"),
        (("sample", "FILE"), 2, "sample needs the number of slices"),
        (("sample", "FILE", "DAYS", "--steps", "2"), 2, "sample draws sequences of the network, and reads none"),
        (("filt", "FILE", "DAYS"), 2, "'filt' is not one of filter, smooth"),
        (("filter", "FILE", "DAYS", "-t", "rian"), 2, "there is no variable 'rian'; did you mean 'rain'"),
        (("filter", "FILE", "DAYS", "--id", "plaice"), 2, "--id 'plaice' is no column"),
        (("filter", "FILE", "DAYS", "--time", "day"), 2, "the time 1 comes after 2"),
        (("filter", "FILE", "DAYS", "-o", "OUT.txt"), 2, "must be .parquet, .csv or .tsv"),
        (("filter", "FILE", "NONE.csv"), 2, "NONE.csv"),
    ],
)
def test_mistakes(words: tuple[str, ...], code: int, message: str, file: str, days: str, tmp_path: Path) -> None:
    given = {"FILE": file, "DAYS": days, "OUT.net": str(tmp_path / "o.net"), "OUT.txt": str(tmp_path / "o.txt")}
    done = run("dynamic", *[given.get(w, w) for w in words])
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert done.exit_code == code
    assert not (tmp_path / "o.net").exists()


def test_gaps_are_explained_by_options(file: str, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("place,day,umbrella\na,1,yes\na,4,no\n")
    done = run("dynamic", "filter", file, str(tmp_path / "s.csv"), *KEYS)
    assert "sequence 0 ('a'), " in done.stderr
    assert "s.csv:3, column 'day': time 2 is missing" in done.stderr
    assert "--on-gap empty takes missing times as slices without observations" in done.stderr
    done = run("dynamic", "filter", file, str(tmp_path / "s.csv"), *KEYS, "--on-gap", "empty")
    assert len(done.stdout.splitlines()) == 5
    (tmp_path / "s.csv").write_text("place,day,umbrella\na,2026-01-01,yes\na,2026-01-02,no\na,2026-01-05,no\n")
    done = run("dynamic", "filter", file, str(tmp_path / "s.csv"), *KEYS)
    assert done.stderr.startswith("jtgpu: warning: column 'day' is unevenly spaced: its longest step")
    assert done.stderr.count("\n") == 1
    (tmp_path / "s.csv").write_text("place,place,day,umbrella\na,b,1,yes\n")
    assert "s.csv has 2 columns named 'place'" in run("dynamic", "filter", file, str(tmp_path / "s.csv"), *KEYS).stderr


@pytest.mark.slow
def test_fit(file: str, tmp_path: Path) -> None:
    data, output = str(tmp_path / "s.csv"), str(tmp_path / "f.dynamic.json")
    run("dynamic", "sample", file, "--samples", "40", "--steps", "6", "--seed", "3", "-o", data)
    keys = ("--id", "sequence", "--time", "slice", *REFERENCE)
    done = run("dynamic", "fit", file, data, *keys, "-o", output, "--pseudo-counts", "0.5")
    assert done.exit_code == 0, done.stderr
    frame = pd.read_csv(data)
    expected = jtgpu.learn.fit(
        umbrella(name="weather"), frame, keys=jtgpu.learn.Keys(id="sequence", time="slice"), pseudo_counts=0.5
    )
    assert jtgpu.read(output) == expected.network
    seen = str(tmp_path / "seen.csv")
    frame.drop(columns="rain").to_csv(seen, index=False)
    words = ("dynamic", "fit", file, seen, *keys, "-o", output, "--force", "--iterations", "3", "--seed", "2")
    about = json.loads(run(*words, "--hidden", "rain", "--json").stdout)
    assert (about["sequences"], about["slices"]) == (40, 240)
    assert run("dynamic", "fit", file, data, *keys, "-o", str(tmp_path / "f.net")).exit_code == 2
    assert "fit writes a network" in run("dynamic", "fit", file, data, *keys).stderr


def test_words_that_are_states_are_no_missing_cells(tmp_path: Path) -> None:
    parents, start = {"u": [("u", 1)]}, {"u": [0.5, 0.5]}
    for states in (["NA", "yes"], ["2026-01-01", "2026-01-02"], ["0x1", "1"]):
        dyn = jtgpu.DynamicNetwork({"u": states}, parents, {"u": [[0.5, 0.5], [0.5, 0.5]]}, start=start)
        rows = [f"{i},{t},{states[t % 3 > 0]}" for i in range(2) for t in range(9)]
        (tmp_path / "s.csv").write_text("\n".join(["i,t,u", *rows]))
        for structure, known in ((dyn, None), (parents, {"u": states})):
            fit = jtgpu.learn.fit(
                structure, tmp_path / "s.csv", keys=jtgpu.learn.Keys(id="i", time="t"), states=known, pseudo_counts=0
            )
            assert fit.network.cpt("u").tolist() == [[0, 1], [0.4, 0.6]]
