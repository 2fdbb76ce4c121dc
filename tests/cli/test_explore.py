"""``jtgpu explore``: a table becomes a network with its certainty and accuracy."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

import jtgpu.learn.exploration
from tests.cli.commands import run
from tests.support.patience import patience

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    n = 300
    smoke = rng.random(n) < 0.5
    frame = pandas.DataFrame({
        "id": range(1000, 1000 + n),
        "when": pandas.date_range("2024-01-01", periods=n, freq="h").strftime("%Y-%m-%d %H:%M:%S"),
        "age": rng.normal(50, 15, n).round(1) + 20 * smoke,
        "site": "A",
        "smoke": np.where(smoke, "yes", "no"),
        "ash": np.where(smoke, "much", "none"),  # decided by smoke
    })  # fmt: skip
    frame.loc[rng.random(n) < 0.1, "age"] = None
    path = tmp_path_factory.mktemp("explore") / "messy.csv"
    frame.to_csv(path, index=False)
    return path


def test_a_messy_table(messy: Path, tmp_path: Path) -> None:
    output = tmp_path / "learned.net"
    done = run("explore", str(messy), "--json", "-o", str(output))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {c["name"]: c["kind"] for c in found["columns"]} == {
        "id": "identifier", "when": "dates", "age": "numbers", "site": "constant", "smoke": "categories",
        "ash": "categories",
    }  # fmt: skip
    age = next(c for c in found["columns"] if c["name"] == "age")
    assert 0.05 < age["missing"] < 0.15
    assert found["target"] == "ash"
    assert found["accuracy"]["n"] == 300
    assert found["accuracy"]["accuracy"] == 1.0
    assert found["accuracy"]["baseline"] < 0.7
    assert found["accuracy"]["log_loss"] < 0.05
    assert {frozenset(arc) for arc in found["arcs"]} >= {frozenset(("smoke", "ash"))}
    net = jtgpu.read(output)
    assert set(net.variables) == {"age", "smoke", "ash"}
    assert len(net.states("age")) == 5


def test_options_and_mistakes(messy: Path) -> None:
    done = run(
        "explore", str(messy), "--exclude", "ash,id", "-t", "smoke", "--bins", "3", "--seconds", "0", "--no-serve"
    )
    assert done.exit_code == 0, done.output
    assert "ash\texcluded\t2\t\tleft out" in done.stdout
    assert "up to 3 intervals" in done.stdout
    assert "Accuracy for smoke:" in done.stdout
    assert "P(arc)" not in done.stdout
    wrong = run("explore", str(messy), "-t", "ahs")
    assert wrong.exit_code == 2
    assert "ash" in wrong.output.replace("ahs", "")
    few = run("explore", str(messy), "--exclude", "age,smoke")
    assert few.exit_code == 2
    assert "a network needs two" in few.output
    network = run("explore", "wells.net")
    assert network.exit_code == 2
    assert "wells.net is a network, and explore reads tables" in network.output


@pytest.mark.slow
def test_columns_first_and_all_within_the_time(tmp_path: Path) -> None:
    """T8: gaps, EM and folds had no limit, and nothing was printed before the end."""
    rng = np.random.default_rng(5)
    z = rng.normal(size=(4000, 3))
    frame = pandas.DataFrame({f"c{j}": np.round(z @ rng.normal(size=3) + rng.normal(size=4000), 2) for j in range(30)})
    frame = frame.mask(rng.random(frame.shape) < 0.2)
    path = tmp_path / "gaps.csv"
    frame.to_csv(path, index=False)
    begin = time.monotonic()
    done = run("explore", str(path), "--seconds", "1", "--bins", "20", "--no-serve")
    assert done.exit_code == 0, done.output
    assert time.monotonic() - begin < patience(12.0)
    assert (
        done.stdout.index("Learning from 30 columns: about 1 s at most (--seconds); Ctrl-C ends the current step") > 0
    )
    assert done.stdout.index("c29\tnumbers") < done.stdout.index("Network: ")
    assert "because of the time limit" in done.stderr


def test_ctrl_c_keeps_what_is_there(messy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jtgpu.learn.exploration, "posterior", interrupted)
    done = run("explore", str(messy), "--no-serve")
    assert done.exit_code == 0, done.output
    assert "Network: " in done.stdout
    assert "interrupted" in done.stderr


def test_words_among_numbers_and_states_that_are_nearly_equal(tmp_path: Path) -> None:
    """N8: a column of ages with one word was left out without the word; states were counted, not listed."""
    rng = np.random.default_rng(4)
    n = 400
    frame = pandas.DataFrame({
        "age": rng.normal(50, 15, n).round(2).astype(str), "region": rng.choice(["North", "South"], n),
        "pain": rng.choice(["high", "low", "medium", "very high"], n), "ill": rng.choice(["no", "yes"], n),
        "dose": rng.integers(1, 40, n).astype(str),
    })  # fmt: skip
    frame.loc[7, "age"], frame.loc[9, "region"], frame.loc[3, "dose"] = "unknown", "north ", "?"
    frame.loc[::5, "ill"] = "NA"
    path = tmp_path / "words.csv"
    frame.to_csv(path, index=False)
    done = run("explore", str(path), "--no-serve", "--seconds", "0", "-t", "ill")
    assert done.exit_code == 0, done.output
    assert "different numbers except for 'unknown' (1)" in done.stdout
    assert "4 states: high, low, medium, very high" in done.stdout
    assert "by 320 of 400 rows" in done.stdout
    assert "age: numbers except 'unknown' (1): --na-values 'unknown' reads it as gaps" in done.stderr
    assert "dose: numbers except '?' (1)" in done.stderr
    assert "region: 'North' and 'north' are nearly equal, and two states" in done.stderr
    words = ("--na-values", "unknown", "--na-values", "?")
    done = run("explore", str(path), "--no-serve", "--seconds", "0", "--json", *words)
    assert done.exit_code == 0, done.output
    columns = {c["name"]: c for c in json.loads(done.stdout)["columns"]}
    assert columns["age"]["kind"] == columns["dose"]["kind"] == "numbers"
    assert columns["ill"]["distinct"] == 2  # NA is still a gap


def test_a_file_of_a_spreadsheet(tmp_path: Path) -> None:
    """A Western European CSV: decimal commas and a word, blanks behind a state, rows that are there twice."""
    rng = np.random.default_rng(0)
    rows = [
        [f"P{i}", f"{rng.normal(70, 12):.1f}".replace(".", ","), rng.choice(["Nord", "Nord ", "S\xfcd"]), "jn"[i % 2]]
        for i in range(120)
    ]  # fmt: skip
    rows[4][1] = rows[9][1] = "?"
    lines = ["id;Gewicht;Region;krank", *(";".join(row) for row in [*rows, rows[3], rows[3], rows[7]])]
    path = tmp_path / "klinik.csv"
    path.write_text("\n".join(lines), encoding="latin-1")
    refused = run("explore", str(path), "--no-serve")
    assert refused.exit_code == 5
    assert "klinik.csv:" in refused.stderr
    assert "byte 0xfc is not UTF-8; --encoding cp1252 reads files of Western" in refused.stderr
    words = ("explore", str(path), "--no-serve", "--seconds", "0", "--encoding", "latin-1")
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "different numbers except for '?' (2)" in done.stdout
    assert "Gewicht: numbers except '?' (2): --na-values '?' reads it as gaps" in done.stderr
    assert "3 rows equal to earlier ones in every column, which count again" in done.stderr
    assert "nearly equal" not in done.stderr  # "Nord " is read as "Nord"
    assert "2 states: Nord, S\xfcd" in done.stdout
    assert "up to 5 intervals" in run(*words, "--na-values", "?").stdout
    path.write_text("\n".join(["a,b", *(f'x{i % 2},"{1 + i % 7}.{100 + i},5"' for i in range(30))]))
    done = run("explore", str(path), "--no-serve", "--seconds", "0")
    assert "b: numbers such as 1.100,5: --decimal , --thousands . reads them" in done.stderr
    assert "1 column can be used" in done.stderr
    path.write_text("\n".join(["a,b", *["yes,no", "no,yes", "?,no"] * 20]))
    assert "a: '?' is a state: --na-values '?' reads it as gaps" in run(*words).stderr
    path.write_text("\n".join(["a,b", *["yes,no", "no,yes"] * 20]))
    assert "equal to earlier" not in run("explore", str(path), "--no-serve", "--seconds", "0").stderr


@pytest.mark.slow
def test_numbers_with_little_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    z = rng.normal(size=(500, 2))
    frame = pandas.DataFrame({f"c{j}": np.round(z @ rng.normal(size=2) + rng.normal(size=500), 3) for j in range(12)})
    for gaps in (0.0, 0.01):
        frame.mask(rng.random(frame.shape) < gaps).to_csv(tmp_path / "numbers.csv", index=False)
        done = run("explore", str(tmp_path / "numbers.csv"), "--continuous", "--seconds", "0.3", "--no-serve")
        assert done.exit_code == 0, done.output
        assert "Network: " in done.stdout


def test_files_of_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "lat.csv"
    path.write_bytes(("größe;b\n" + "n;n\nj;j\n" * 30).encode("latin-1"))
    for command in ("explore", "learn"):
        made = run(command, str(path), "--encoding", "latin-1", "-o", str(tmp_path / f"{command}.net"))
        assert "größe" in made.output


def test_states_of_explored_networks_are_in_order(tmp_path: Path) -> None:
    """As text, "[9.3, 12.5)" comes last; NaN is a missing cell; declared categories stay."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    age = rng.normal(12, 5, 400).round(2)
    frame = pd.DataFrame({
        "age": age, "dose": pd.Categorical(np.where(age > 12, "low", "mid"), ["low", "mid", "high"]),
        "flag": np.where(rng.random(400) < 0.1, np.nan, (age > 10) * 1.0),
    })  # fmt: skip
    frame.to_parquet(tmp_path / "c.parquet")
    out = run("explore", str(tmp_path / "c.parquet"), "--seconds", "1", "-o", str(tmp_path / "c.net"))
    assert out.exit_code == 0, out.output
    net = jtgpu.read(tmp_path / "c.net")
    ends = [float(s.strip("[()").split(",")[0]) for s in net.states("age")]
    assert ends == sorted(ends)
    assert net.states("dose")[:2] == ("low", "mid")
    assert set(net.states("flag")) == {"0", "1"}


def test_an_error_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("a,b\nx,y\ny,x\nx,x\n")
    done = run("explore", str(tmp_path / "c.csv"), "--no-serve", "--seconds", "1e-9")
    assert "are left of --seconds, and" in done.stderr
