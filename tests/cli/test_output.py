"""What each command prints."""

from __future__ import annotations

import csv
import gzip
import io
import json
from contextlib import suppress
from pathlib import Path

import pytest

import jtgpu
from jtgpu.device.context import open_device
from jtgpu.errors import (
    BackendUnavailable,
    JtgpuError,
)
from jtgpu.formats.bundled import BENCHMARK, benchmark_files, stem
from tests.cli.commands import ALARM, ASIA, REFERENCE, on_terminal, run


def test_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"jtgpu {jtgpu.__version__}\n")


def test_help_of_every_command() -> None:
    assert all(word in run("--help").stdout for word in ("time", "info", "plan", "query"))
    for command in ("time", "info", "plan", "query"):
        assert "--json" in run(command, "--help").stdout


def test_info_prints_the_size_of_a_network() -> None:
    found = json.loads(run("info", ALARM, "--json").stdout)
    wanted = {
        "name": "alarm",
        "kind": "Bayesian network",
        "variables": 37,
        "arcs": 46,
        "parameters": 509,
        "entries": 752,
    }
    assert {k: found[k] for k in wanted} == wanted  # 37, 46 and 509: as the bnlearn repository says
    assert "37, with 2 to 4 states" in run("info", ALARM).stdout


def test_plan_prints_the_cost() -> None:
    found = json.loads(run("plan", ASIA, "--order", "min-fill", "--json").stdout)
    plan = jtgpu.read(ASIA).plan("min-fill")
    assert found["cost"]["entries"] == plan.cost().entries
    assert sorted(found["elimination_order"]) == sorted(plan.model.variables)
    assert "clique tables: " in run("plan", ASIA).stdout


@pytest.mark.parametrize("words", [("time", ASIA, "--backend", "indexed"), ("query", ASIA, "--backend", "gpu")])
def test_commands_that_need_a_gpu_fail_with_one_line(words: tuple[str, ...]) -> None:
    with suppress(BackendUnavailable):
        open_device()
        pytest.skip("this machine has a GPU")
    result = run(*words)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("jtgpu: error: ")
    assert result.stderr.count("\n") == 1


def test_options_of_the_published_table_require_the_indexed_backend(tmp_path: Path) -> None:
    for words in (("--plot", str(tmp_path)), ("--save", str(tmp_path)), ("--backend", "indexed", "--observed", "5")):
        assert run("time", ASIA, *words).exit_code == 2


def test_plan_lists_and_plots_the_search(tmp_path: Path) -> None:
    picture = tmp_path / "fall.png"
    result = run("plan", ALARM, "--order", "best", "--order-time", "1", "--no-cache", "--plot", str(picture))
    assert result.exit_code == 0
    assert "improvements during the search:" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert run("plan", ALARM, "--plot", str(tmp_path / "fall.xyz")).exit_code == 5
    order = tmp_path / "alarm.num"
    order.write_text(" ".join(jtgpu.read(ALARM).variables))
    assert run("plan", ALARM, "--order", str(order), "--plot", str(picture)).exit_code == 2
    found = json.loads(run("plan", ALARM, "--order", "best", "--order-time", "1", "--json").stdout)["search"]
    assert found["optimal"] is True or found["lower_bound"] < found["trace"][-1]["cost"]


def test_plan_is_saved_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "asia.plan"
    assert run("plan", ASIA, "--order", "min-fill", "-o", str(path)).exit_code == 0
    net = jtgpu.read(ASIA)
    assert jtgpu.NetworkPlan.load(path, net).plan == net.plan("min-fill").plan
    result = run("plan", ASIA, "-o", str(tmp_path / "nowhere" / "asia.plan"))
    assert result.exit_code == 2
    assert "nowhere" in "".join(result.stderr.split()).replace("│", "")


def test_the_order_can_be_read_from_a_num_file(tmp_path: Path) -> None:
    net = jtgpu.read(ASIA)
    copy = tmp_path / "asia.net"
    copy.write_bytes(Path(ASIA).read_bytes())
    order = tmp_path / "asia.num"
    order.write_text(" ".join(reversed(net.variables)), encoding="latin-1")
    by_name = json.loads(run("plan", str(copy), "--order", "num", "--json").stdout)
    named = json.loads(run("plan", ASIA, "--order", str(order), "--json").stdout)
    assert by_name["elimination_order"] == named["elimination_order"] == list(reversed(net.variables))
    order.write_text("asia tub nobody", encoding="latin-1")
    result = run("plan", str(copy), "--order", "num")
    assert result.exit_code == 5
    assert "nobody" in result.stderr
    order.unlink()
    result = run("plan", str(copy), "--order", "num")
    assert result.exit_code == 2
    assert "asia.num" in result.stderr


def test_query_prints_json_or_columns() -> None:
    net = jtgpu.read(ASIA)
    truth = net.compile("reference").posteriors({"xray": "yes", "smoke": "no"})
    words = ("query", ASIA, "-e", "xray=yes", "-e", "smoke=no", "-t", "lung", "-t", "bronc", *REFERENCE)
    found = json.loads(run(*words, "--json").stdout)
    assert list(found["posteriors"]) == ["lung", "bronc"]
    assert found["posteriors"]["lung"] == {
        "states": ["yes", "no"],
        "probabilities": truth["lung"].probabilities.tolist(),
    }
    assert found["log_evidence"] == pytest.approx(truth.log_evidence)
    lines = [line.split("\t") for line in run(*words).stdout.splitlines()]
    assert lines[0] == ["lung", "yes", repr(truth["lung"]["yes"])]
    assert float(lines[-1][2]) == pytest.approx(truth.log_evidence)


def test_query_without_evidence_prints_all_priors() -> None:
    found = json.loads(run("query", ASIA, "--json", *REFERENCE).stdout)
    assert list(found["posteriors"]) == list(jtgpu.read(ASIA).variables)
    assert found["log_evidence"] == pytest.approx(0, abs=1e-12)


def test_evidence_can_allow_several_states() -> None:
    found = json.loads(run("query", ASIA, "-e", "xray=yes,no", "-t", "lung", "--json", *REFERENCE).stdout)
    assert found["evidence"] == {"xray": [0, 1]}
    assert found["posteriors"]["lung"]["probabilities"] == pytest.approx([0.055, 0.945])


def test_query_draws_bars_on_a_terminal() -> None:
    found = on_terminal("query", ASIA, "-e", "xray=yes", "-t", "lung", *REFERENCE)
    assert "█" in found
    assert "0.488711" in found


def test_time_prints_json_csv_or_a_table() -> None:
    words = ("time", ASIA, ALARM, "--runs", "2", *REFERENCE)
    found = json.loads(run(*words, "--json").stdout)
    first = found["networks"][0]
    cost = jtgpu.read(ASIA).plan().cost()
    assert (first["network"], first["cliques"], first["entries"]) == ("asia", cost.cliques, cost.entries)
    assert first["backend"] == "reference"
    assert first["propagate"]["runs"] == 2
    assert 0 < first["propagate"]["minimum"] <= first["propagate"]["median"] <= first["propagate"]["maximum"]
    assert not found["failed"]
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv").stdout)))
    assert [r["network"] for r in rows] == ["asia", "alarm"]
    assert float(rows[0]["propagate_median"]) > 0
    table = run(*words).stdout.splitlines()
    assert table[0].split() == [
        "network",
        "cliques",
        "largest",
        "total",
        "read",
        "plan",
        "compile",
        "first",
        "propagate",
        "spread",
    ]
    assert table[1].split()[:4] == ["asia", str(cost.cliques), str(cost.largest), str(cost.entries)]
    assert "backend reference on " in table[-1]


def test_time_reads_folders_and_samples_evidence(tmp_path: Path) -> None:
    (tmp_path / "b.net.gz").write_bytes(gzip.compress(Path(ASIA).read_bytes()))
    (tmp_path / "a.NET").write_bytes(Path(ASIA).read_bytes())
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "c.net").mkdir()
    found = json.loads(run("time", str(tmp_path), "--runs", "3", "--observed", "25", "--json", *REFERENCE).stdout)
    assert [(n["network"], n["observed"]) for n in found["networks"]] == [("a", 2), ("b", 2)]
    assert all(n["log_evidence"] < 0 for n in found["networks"])


def test_a_network_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    broken = tmp_path / "broken.net"
    broken.write_text("net {} node a { states = (")
    result = run("time", str(broken), ASIA, "--runs", "1", "--json", *REFERENCE)
    assert result.exit_code == 5
    found = json.loads(result.stdout)
    assert [n["network"] for n in found["networks"]] == ["asia"]
    assert [f["error"] for f in found["failed"]] == ["ParseError"]
    assert f"{broken}:1:" in result.stderr


def test_the_seven_networks_are_the_default() -> None:
    assert BENCHMARK == ("mildew", "diabetes", "barley", "munin4", "water", "munin1", "link")
    assert [stem(p) for p in benchmark_files()] == list(BENCHMARK)
    with pytest.raises(JtgpuError, match="nobody"):
        benchmark_files(["nobody"])


def test_samples_as_json_are_written_line_by_line(tmp_path: Path) -> None:
    words = ("sample", ASIA, "3", "--seed", "1", "--json", *REFERENCE)
    text = run(*words).stdout
    found = json.loads(text)
    rows = list(csv.reader(io.StringIO(run("sample", ASIA, "3", "--seed", "1", *REFERENCE).stdout)))
    assert [found["variables"], *found["samples"]] == rows
    assert len(text.splitlines()) == 3 + 8
    assert json.loads(run("sample", ASIA, "0", "--json", *REFERENCE).stdout)["samples"] == []
    assert run(*words, "-o", str(tmp_path / "a.json")).exit_code == 0
    assert (tmp_path / "a.json").read_text() == text
