"""The command line: what it prints, where, and the code it ends with; bad input of every kind, never a traceback."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import jtgpu
from jtgpu.cli import app
from jtgpu.cli.answers import BAR, bar
from jtgpu.cli.console import exit_code, format_seconds, shown
from jtgpu.device.context import open_device
from jtgpu.errors import (
    BackendUnavailable,
    EvidenceError,
    FormatError,
    ImpossibleEvidence,
    JtgpuError,
    OrderError,
    ParseError,
    TableTooLarge,
    UnknownState,
    UnknownVariable,
)
from jtgpu.formats.bundled import BENCHMARK, benchmark_files, order_file, stem
from jtgpu.model.findings import parse_finding, parse_findings
from jtgpu.model.network import BayesianNetwork
from jtgpu.timing import (
    Spread,
    check_answers,
    measure,
    sample_cases,
    time_network,
)
from tests.conftest import ROOT

NETS = ROOT / "nets"
ASIA, ALARM = str(NETS / "asia.net"), str(NETS / "alarm.net")
REFERENCE = ("--backend", "reference")


def run(*words: str) -> Any:
    """One command within this process; a traceback is a failure, whatever was expected."""
    result = CliRunner().invoke(app, [*words])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    return result


def process(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """One command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "jtgpu", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


# What is printed ------------------------------------------------------------------------------------------------


def test_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"jtgpu {jtgpu.__version__}\n")


def test_help_of_every_command() -> None:
    assert all(word in run("--help").stdout for word in ("time", "info", "plan", "query"))
    for command in ("time", "info", "plan", "query"):
        assert "--json" in run(command, "--help").stdout


def test_info() -> None:
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


def test_plan() -> None:
    found = json.loads(run("plan", ASIA, "--order", "min-fill", "--json").stdout)
    plan = jtgpu.read(ASIA).plan("min-fill")
    assert found["cost"]["entries"] == plan.cost().entries
    assert sorted(found["elimination_order"]) == sorted(plan.model.variables)
    assert "clique tables: " in run("plan", ASIA).stdout


@pytest.mark.parametrize(
    "words", [("tune",), ("time", ASIA, "--backend", "indexed"), ("query", ASIA, "--backend", "gpu")]
)
def test_without_a_gpu_one_line_says_so(words: tuple[str, ...]) -> None:
    with suppress(BackendUnavailable):
        open_device()
        pytest.skip("this machine has a GPU")
    result = run(*words)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("jtgpu: error: ")
    assert result.stderr.count("\n") == 1


def test_the_published_table_is_no_table_of_other_backends(tmp_path: Path) -> None:
    for words in (("--plot", str(tmp_path)), ("--save", str(tmp_path)), ("--backend", "indexed", "--evidence", "5")):
        assert run("time", ASIA, *words).exit_code == 2


def test_plan_shows_and_draws_how_the_cost_fell(tmp_path: Path) -> None:
    picture = tmp_path / "fall.png"
    result = run("plan", ALARM, "--order", "best", "--time", "1", "--no-cache", "--plot", str(picture))
    assert result.exit_code == 0
    assert "improvements during the search:" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert run("plan", ALARM, "--plot", str(tmp_path / "fall.xyz")).exit_code == 5
    order = tmp_path / "alarm.num"
    order.write_text(" ".join(jtgpu.read(ALARM).variables))
    assert run("plan", ALARM, "--order", str(order), "--plot", str(picture)).exit_code == 2
    found = json.loads(run("plan", ALARM, "--order", "best", "--time", "1", "--json").stdout)["search"]
    assert found["optimal"] is True or found["lower_bound"] < found["trace"][-1]["cost"]


def test_plan_is_saved_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "asia.plan"
    assert run("plan", ASIA, "--order", "min-fill", "--save", str(path)).exit_code == 0
    net = jtgpu.read(ASIA)
    assert jtgpu.NetworkPlan.load(path, net).plan == net.plan("min-fill").plan
    result = run("plan", ASIA, "--save", str(tmp_path / "nowhere" / "asia.plan"))
    assert result.exit_code == 1
    assert "nowhere" in result.stderr


def test_order_from_a_num_file(tmp_path: Path) -> None:
    net = jtgpu.read(ASIA)
    copy = tmp_path / "asia.net"
    copy.write_bytes(Path(ASIA).read_bytes())
    order = tmp_path / "asia.num"
    order.write_text(" ".join(reversed(net.variables)), encoding="latin-1")
    beside = json.loads(run("plan", str(copy), "--order", "num", "--json").stdout)
    named = json.loads(run("plan", ASIA, "--order", str(order), "--json").stdout)
    assert beside["elimination_order"] == named["elimination_order"] == list(reversed(net.variables))
    order.write_text("asia tub nobody", encoding="latin-1")
    result = run("plan", str(copy), "--order", "num")
    assert result.exit_code == 5
    assert "nobody" in result.stderr
    order.unlink()
    result = run("plan", str(copy), "--order", "num")
    assert result.exit_code == 2
    assert "asia.num" in result.stderr


def test_query_in_json_and_in_columns() -> None:
    net = jtgpu.read(ASIA)
    truth = net.compile("reference").posteriors({"xray": "yes", "smoke": "no"})
    words = ("query", ASIA, "-e", "xray=yes", "-e", "smoke=no", "-t", "lung", "-t", "bronc", *REFERENCE)
    found = json.loads(run(*words, "--json").stdout)
    assert list(found["posteriors"]) == ["lung", "bronc"]
    assert found["posteriors"]["lung"] == {"states": ["yes", "no"], "probabilities": list(truth["lung"])}
    assert found["log_evidence"] == pytest.approx(truth.log_evidence)
    lines = [line.split("\t") for line in run(*words).stdout.splitlines()]
    assert lines[0] == ["lung", "yes", repr(truth["lung"]["yes"])]
    assert float(lines[-1][2]) == pytest.approx(truth.log_evidence)


def test_query_without_anything_gives_all_priors() -> None:
    found = json.loads(run("query", ASIA, "--json", *REFERENCE).stdout)
    assert list(found["posteriors"]) == list(jtgpu.read(ASIA).variables)
    assert found["log_evidence"] == pytest.approx(0, abs=1e-12)


def test_query_one_of_several_states() -> None:
    found = json.loads(run("query", ASIA, "-e", "xray=yes,no", "-t", "lung", "--json", *REFERENCE).stdout)
    assert found["evidence"] == {"xray": [0, 1]}
    assert found["posteriors"]["lung"]["probabilities"] == pytest.approx([0.055, 0.945])


def test_bars_on_a_terminal() -> None:
    assert bar(1.0) == "█" * BAR
    assert bar(0.0) == ""
    assert bar(0.5 / BAR) == "▌"
    found = on_terminal("query", ASIA, "-e", "xray=yes", "-t", "lung", *REFERENCE)
    assert "█" in found
    assert "0.488711" in found


def on_terminal(*words: str) -> str:
    """What a command shows on a terminal (stdout and stderr on one)."""
    import pty

    parent, child = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.Popen(
        [sys.executable, "-m", "jtgpu", *words], cwd=ROOT, stdin=child, stdout=child, stderr=child, env=environment
    )
    os.close(child)
    text = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        text += piece
    os.close(parent)
    assert done.wait(60) == 0
    return text.decode("utf-8")


def test_time_in_three_forms() -> None:
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


def test_time_of_a_folder_with_evidence(tmp_path: Path) -> None:
    (tmp_path / "b.net.gz").write_bytes(gzip.compress(Path(ASIA).read_bytes()))
    (tmp_path / "a.NET").write_bytes(Path(ASIA).read_bytes())
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "c.net").mkdir()
    found = json.loads(run("time", str(tmp_path), "--runs", "3", "--evidence", "25", "--json", *REFERENCE).stdout)
    assert [(n["network"], n["observed"]) for n in found["networks"]] == [("a", 2), ("b", 2)]
    assert all(n["log_evidence"] < 0 for n in found["networks"])


def test_one_failure_does_not_stop_the_others(tmp_path: Path) -> None:
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


# Codes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TableTooLarge("x"), 3),
        (MemoryError(), 3),
        (ImpossibleEvidence("x"), 4),
        (ParseError("x"), 5),
        (FormatError("x"), 5),
        (UnknownVariable("x"), 2),
        (UnknownState("x"), 2),
        (EvidenceError("x"), 2),
        (OrderError("x"), 2),
        (JtgpuError("x"), 1),
        (OSError("x"), 1),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("info", "no/such.net"), 2, "no/such.net"),
        (("info", "nets/asai.net"), 2, "asia.net"),  # the closest name
        (("info", "nets"), 2, "nets"),  # a folder
        (("info",), 2, "FILE"),
        (("nothing",), 2, "nothing"),
        (("time", "tests/on_gpu"), 2, "no network file"),
        (("time", ASIA, "--json", "--csv"), 2, "exclude"),
        (("time", ASIA, "--runs", "0"), 2, "runs"),
        (("time", ASIA, "--backend", "cpo"), 2, "cpu"),
        (("time", ASIA, "--memory-limit", "much"), 2, "8GiB"),
        (("plan", ASIA, "--order", "worst"), 2, "worst"),
        (("plan", ASIA, "--order", "no/such.num"), 2, "no/such.num"),
        (("plan", ASIA, "--time", "-1"), 2, "time"),
        (("plan", ASIA, "--max-table", "3"), 3, "max_table"),
        (("plan", ASIA, "--memory-limit", "10"), 3, "memory_limit"),
        (("query", ASIA, "-e", "xray"), 2, "name=state"),
        (("query", ASIA, "-e", "xrai=yes"), 2, "'xray'"),
        (("query", ASIA, "-e", "xray=ye"), 2, "'yes'"),
        (("query", ASIA, "-e", "xray=7"), 2, "0 to 1"),
        (("query", ASIA, "-e", "xray=yes", "-e", "xray=no"), 2, "twice"),
        (("query", ASIA, "-t", "lungs"), 2, "'lung'"),
        (("query", ASIA, "-e", "lung=yes", "-e", "either=no", *REFERENCE), 4, "lung"),
        (("query", ASIA, "-e", "lung=yes", "-e", "either=no", "--backend", "cpu"), 4, "lung"),
    ],
    ids=lambda x: " ".join(Path(w).name for w in x) if isinstance(x, tuple) else "",
)
def test_bad_usage(words: tuple[str, ...], code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = run(*words)
    assert result.exit_code == code, result.output
    assert said in " ".join(result.stderr.split())  # usage errors are wrapped in a box
    assert not result.stdout


GARBAGE = {
    "empty": (b"", 5),
    "binary": (bytes(range(256)) * 40, 5),
    "zeros": (bytes(10_000), 5),
    "cut gzip": (gzip.compress(b"net {}")[:-6], 5),
    "cut network": (Path(ASIA).read_bytes()[:700], 5),
    "a cycle": (
        b'net{} node a {states=("0" "1");} node b {states=("0" "1");}'
        + b"".join(b"potential (%c|%c) {data=((.5 .5)(.5 .5));}" % tuple(pair) for pair in (b"ab", b"ba")),
        5,
    ),
    "deep": (b"net {} node a { states = " + b"(" * 100_000, 5),
    "another format": (b"<?xml version='1.0'?><BIF/>", 5),
}


@pytest.mark.parametrize("what", GARBAGE)
@pytest.mark.parametrize("command", ["info", "plan", "query", "time"])
def test_files_that_are_no_networks(what: str, command: str, tmp_path: Path) -> None:
    data, code = GARBAGE[what]
    path = tmp_path / "it.net"
    path.write_bytes(data)
    result = run(command, str(path))
    assert result.exit_code == code, result.output
    assert "it.net" in result.stderr
    assert not result.stdout


def test_a_file_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:  # by hand: root may read every file
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("builtins.open", refuse)
    result = run("info", ASIA)
    monkeypatch.undo()
    assert result.exit_code == 2
    assert "permission denied" in result.stderr
    assert run("info", f"{ASIA}/x.net").exit_code == 2  # a file where a folder should be


def test_out_of_memory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(BayesianNetwork, "plan", plan)
    result = run("plan", ASIA)
    assert result.exit_code == 3
    assert "out of memory" in result.stderr


# As a process: streams, signals, terminals ----------------------------------------------------------------------


def test_results_on_stdout_and_nothing_else() -> None:
    done = process("query", ASIA, "-t", "lung", *REFERENCE)
    assert done.stdout.startswith("lung\t")
    assert done.stderr == ""  # no progress: stderr is no terminal


def test_mended_rows_are_told_on_stderr(tmp_path: Path) -> None:
    path = tmp_path / "off.net"
    path.write_text('net{} node a {states=("0" "1");} potential (a) {data=(30 70);}')
    done = process("query", str(path), "--json", *REFERENCE)
    assert json.loads(done.stdout)["posteriors"]["a"]["probabilities"] == pytest.approx([0.3, 0.7])
    assert "warning" in done.stderr
    assert "100" in done.stderr


def test_closed_pipe() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "jtgpu", "query", ALARM, *REFERENCE],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()  # nobody reads
        said = child.stderr.read()
    assert child.returncode == 141
    assert said == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_below_stdout() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "jtgpu", "info", ASIA],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "space" in done.stderr.lower()


def test_interrupted() -> None:
    """Ctrl-C while networks are timed: what is done is printed, the code is 130."""
    names = [ASIA] * 2000
    child = subprocess.Popen(
        [sys.executable, "-m", "jtgpu", "time", *names, "--runs", "100", *REFERENCE],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted" in err
    assert out == "" or out.startswith("network")


def test_names_that_would_command_a_terminal(tmp_path: Path) -> None:
    assert shown("a\x1b[31mb\n\udc80") == "a\\x1b[31mb\\n\\udc80"
    path = tmp_path / "bad.net"
    name = "\x1b]0;title\x07 [bold red]"
    states = {"a": [name, "[/]"]}
    jtgpu.write(BayesianNetwork(states, {}, {"a": [0.5, 0.5]}, name=name), path)
    for words in (("info",), ("plan",), ("query", *REFERENCE), ("time", "--runs", "1", *REFERENCE)):
        result = run(words[0], str(path), *words[1:])
        assert result.exit_code == 0, result.output
        assert "\x1b]0;" not in result.output
    assert "[bold red]" in run("query", str(path), *REFERENCE).stdout


def test_a_terminal_that_has_no_such_letters(tmp_path: Path) -> None:
    path = tmp_path / "letters.net"
    jtgpu.write(BayesianNetwork({"größe": ["klein", "groß"]}, {}, {"größe": [0.5, 0.5]}), path)
    done = process("query", str(path), *REFERENCE, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.startswith("gr\\xf6\\xdfe\tklein\t0.5")


# Evidence as it is typed ----------------------------------------------------------------------------------------


def odd_net() -> BayesianNetwork:
    """Names and states that hold the characters which separate them."""
    states = {
        "a": ["yes", "no", "b=c"],
        "a=b": ["c", "d", "c,d"],
        "n": ["1", "0", "2"],
        " s ": ["x", " y"],
        "twice": ["same", "same", "other"],
        "a:b": ["0:1", "1:2"],
    }
    return BayesianNetwork(states, {}, {v: [1 / len(s)] * len(s) for v, s in states.items()})


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("a=yes", "a", 0),
        ("a = yes", "a", 0),
        ("a=b=c", "a=b", 0),  # the longest name that fits, before a's state "b=c"
        ("a=b=d", "a=b", 1),
        ("a=b=c,d", "a=b", 2),  # a state of that very name, before a list
        ("a=b=c,1", "a=b", frozenset({0, 1})),
        ("a=yes,no", "a", frozenset({0, 1})),
        ("a=yes,b=c", "a", frozenset({0, 2})),
        ("n=1", "n", 0),  # a name before a number
        ("n=2", "n", 2),
        ("a=2", "a", 2),
        (" s =x", " s ", 0),
        (" s = y", " s ", 1),
        ("twice=other", "twice", 2),
        ("twice=0", "twice", 0),
        ("a:b=0:1", "a:b", 0),
        ("a=yes,yes", "a", frozenset({0})),
    ],
)
def test_findings(text: str, name: str, value: int | frozenset[int]) -> None:
    assert parse_finding(odd_net(), text) == (name, value)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("a", EvidenceError, "name=state"),
        ("", EvidenceError, "name=state"),
        ("=", UnknownVariable, "''"),
        ("b=c", UnknownVariable, "'b'"),
        ("a=ye", UnknownState, "'yes'"),
        ("a=", UnknownState, "''"),
        ("a=3", UnknownState, "number 3"),
        ("a=-1", UnknownState, "'-1'"),
        ("a=yes,nein", UnknownState, "'nein'"),
        ("a=yes,", UnknownState, "''"),
        ("twice=same", UnknownState, "2 states named 'same'"),
        ("a=" + "9" * 5000, UnknownState, "no state"),
    ],
)
def test_findings_that_are_refused(text: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as caught:
        parse_finding(odd_net(), text)
    assert said in str(caught.value)


def test_findings_together() -> None:
    assert parse_findings(odd_net(), ["a=yes", "n=0"]) == {"a": 0, "n": 1}
    with pytest.raises(EvidenceError, match="twice"):
        parse_findings(odd_net(), ["a=yes", "a=no"])


@given(st.text(max_size=30))
def test_any_text_is_a_finding_or_an_error_of_ours(text: str) -> None:
    net = odd_net()
    try:
        name, value = parse_finding(net, text)
    except EvidenceError:
        return
    chosen = value if isinstance(value, frozenset) else {value}
    assert chosen <= set(range(len(net.states(name))))


@given(st.data())
def test_every_state_can_be_typed(data: st.DataObject) -> None:
    """Whatever names hold, writing a variable's name, "=" and a state's name means that state of that variable,
    unless a longer name fits too."""
    text = st.text("ab=, 01", min_size=1, max_size=4)
    names = data.draw(st.lists(text, min_size=1, max_size=4, unique=True))
    states = {v: data.draw(st.lists(text, min_size=1, max_size=3, unique=True)) for v in names}
    net = BayesianNetwork(states, {}, {v: [1 / len(s)] * len(s) for v, s in states.items()})
    variable = data.draw(st.sampled_from(names))
    i = data.draw(st.integers(0, len(states[variable]) - 1))
    name, value = parse_finding(net, f"{variable}={states[variable][i]}")
    assert (name, value) == (variable, i) or len(name) > len(variable.strip())


# Measuring ------------------------------------------------------------------------------------------------------


def test_spread() -> None:
    s = Spread.of([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (s.runs, s.median, s.minimum, s.maximum, s.low, s.high) == (5, 3.0, 1.0, 5.0, 2.0, 4.0)
    assert Spread.of([2.0]) == Spread(1, 2.0, 2.0, 2.0, 2.0, 2.0)
    calls: list[int] = []
    assert measure(lambda: calls.append(1), 3).runs == len(calls) == 3


def test_sampled_cases_are_possible_and_of_one_pattern() -> None:
    net = jtgpu.read(ALARM)
    assert isinstance(net, BayesianNetwork)
    cases = sample_cases(net, 5, 0.3, seed=7)
    assert cases == sample_cases(net, 5, 0.3, seed=7)
    assert len({tuple(c) for c in cases}) == 1
    assert len(cases[0]) == round(0.3 * len(net))
    tree = net.compile("reference")
    assert all(tree.log_evidence(c) < 0 for c in cases)


def test_answers_that_cannot_be_right_are_refused() -> None:
    net = jtgpu.read(ASIA)
    good = net.compile("reference").posteriors({"xray": 0})
    check_answers(good, observed={"xray": 0})
    with pytest.raises(JtgpuError, match="'xray' is observed"):
        check_answers(good, observed={"xray": 1})
    import numpy as np

    wrong = jtgpu.Posteriors(net, np.full(16, 0.4), np.arange(0, 18, 2), 0.0)
    with pytest.raises(JtgpuError, match="not a distribution"):
        check_answers(wrong)


def test_time_network_takes_its_steps_in_order() -> None:
    steps: list[str] = []
    found = time_network(ASIA, backend="reference", runs=1, step=steps.append)
    assert steps == ["read", "plan", "compile", "propagate"]
    assert found.variables == 8
    assert order_file("nets/link.net.gz") == Path("nets/link.num")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 us"),
        (1.234e-5, "12.3 us"),
        (9.999e-4, "1.00 ms"),
        (0.0456, "45.6 ms"),
        (1.0, "1.00 s"),
        (123.4, "123 s"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
