"""Options are spelt the same in every command; earlier spellings are accepted; help fits 80 columns."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest

import jtgpu
from jtgpu.backends import BACKENDS
from jtgpu.cli import app
from jtgpu.cli.commands import offered
from jtgpu.cli.declared import COMMANDS
from tests.cli.commands import ASIA, REFERENCE, run

OTHER = [name for name in COMMANDS if name != "solve"]  # its letters are those of the UAI competitions
SHORT = {
    "-e": {"--evidence"}, "-t": {"--target"}, "-o": {"--output"}, "-f": {"--force"},
    "-c": {"--candidate"},
}  # fmt: skip


def context(name: str, *words: str) -> Any:
    """The context of a command for these words; resilient, so that missing arguments are no error."""
    command: Any = app.get_command(click.Context(app), name)
    return command.make_context(name, list(words), resilient_parsing=True)


@pytest.mark.parametrize("name", OTHER)
def test_short_options_mean_the_same(name: str) -> None:
    for parameter in context(name).command.params:
        for short in set(parameter.opts) & set(SHORT):
            assert set(parameter.opts) - {short} <= SHORT[short]


def test_every_command_prints_json() -> None:
    for name in COMMANDS:
        options = {o for p in context(name).command.params for o in p.opts}
        assert "--json" in options or name == "show"  # which writes a picture
        assert "--targets" not in options


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_80_columns_without_broken_lines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(*([name] if name else []), "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    lines = shown[: shown.index(":\n")].splitlines()  # the description: a line ends where the next word does not fit
    for line, following in pairwise(lines):
        if line.strip() and following.strip():
            assert len(line.rstrip()) + 1 + len(following.split()[0]) > 78, line


@pytest.mark.parametrize("name", COMMANDS)
def test_all_options_are_in_the_whole_help_and_few_in_the_short_one(name: str) -> None:
    whole, short = run(name, "--help-all").stdout, run(name, "--help").stdout
    for parameter in context(name).command.params:
        if parameter.name not in ("help", "help_all") and parameter.param_type_name == "option":
            assert f"{parameter.opts[-1]} " in whole or f"{parameter.opts[-1]}/" in whole, parameter.name
    assert short.count("\n  -") <= whole.count("\n  -")
    assert ("--help-all" in short) == (short.count("\n  -") < whole.count("\n  -"))


def test_the_exit_codes_are_in_the_help_and_in_the_documentation() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "commands.rst").read_text()
    for text in (run("--help").stdout, guide):
        for code in (
            "2 usage",
            "3 does not fit",
            "4 impossible evidence",
            "5 ",
            "6 the output exists",
            "130 interrupted",
        ):
            assert code in re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_are_valid(name: str) -> None:
    examples = COMMANDS[name].record.examples
    assert examples
    shown = re.sub(r"\s+", " ", run(name, "--help").stdout)
    for line in examples:
        assert line in shown
        program, command, *words = shlex.split(line.partition(" > ")[0])
        assert (program, command) == ("jtgpu", name)
        made: Any = app.get_command(click.Context(app), name)
        made.make_context(name, words)


def test_targets_are_separated_by_commas_or_repeated() -> None:
    commas = run("query", ASIA, "-t", "lung,bronc", *REFERENCE).stdout
    assert commas == run("query", ASIA, "-t", "lung", "-t", "bronc", *REFERENCE).stdout
    for words in (("voi", ASIA, "lung"), ("voi", ASIA, "-t", "lung"), ("sensitivity", ASIA, "-t", "lung=yes")):
        assert run(*words, *REFERENCE).exit_code == 0
    assert run("voi", ASIA, "lung", "-t", "lung").exit_code == 2
    assert run("voi", ASIA).exit_code == 2


def test_one_exit_code_for_an_output_that_exists(tmp_path: Path) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text("xray\nyes\n")
    for words in (
        ("sample", ASIA, "3", "-o", str(tmp_path / "a.csv"), *REFERENCE),
        ("plan", ASIA, "-o", str(tmp_path / "a.plan")),
        ("convert", ASIA, "-o", str(tmp_path / "a.bif")),
        ("batch", ASIA, str(cases), "-o", str(tmp_path / "out.csv"), *REFERENCE),
    ):
        output = Path(words[words.index("-o") + 1])
        output.write_text("mine")
        refused = run(*words)
        assert refused.exit_code == 6, words
        assert f"{output} exists; pass --force" in refused.stderr
        assert output.read_text() == "mine"
        assert run(*words, "--force").exit_code == 0
        assert output.read_bytes() != b"mine"
        elsewhere = [str(tmp_path / "no" / output.name) if w == str(output) else w for w in words]
        if words[0] != "batch":
            assert run(*elsewhere).exit_code == 2


def test_saved_plans_are_taken_by_every_command_with_a_network(tmp_path: Path) -> None:
    path, order = str(tmp_path / "asia.plan"), tmp_path / "asia.num"
    order.write_text(" ".join(reversed(jtgpu.read(ASIA).variables)))
    assert run("plan", ASIA, "--order", str(order), "-o", path).exit_code == 0
    shown = json.loads(run("plan", ASIA, "--plan", path, "--json").stdout)
    assert shown["elimination_order"] == list(reversed(jtgpu.read(ASIA).variables))
    commands: tuple[tuple[str, ...], ...] = (
        ("query", ASIA, "-t", "lung"), ("mpe", ASIA), ("voi", ASIA, "-t", "lung"), ("sample", ASIA, "2"),
        ("sensitivity", ASIA, "-t", "lung=yes"), ("time", ASIA, "--runs", "1"),
    )  # fmt: skip
    for words in commands:
        assert run(*words, "--plan", path, *REFERENCE).exit_code == 0, words
    for words, code in (
        (("query", ASIA, "--plan", path, "--order", "min-fill"), 2),
        (("query", ASIA, "--plan", path, "--slice", "auto"), 2),
        (("query", ASIA, "--plan", str(tmp_path / "none.plan")), 2),
        (("query", ASIA, "--plan", str(order)), 5),
        (("query", path), 2),
        (("query", ASIA.replace("asia", "alarm"), "--plan", path), 5),
        (("time", ASIA, ASIA, "--plan", path), 2),
    ):
        assert run(*words).exit_code == code, words


def test_threads_select_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}

    def compile(self: Any, backend: str, **options: Any) -> Any:
        found.update(options, backend=backend)
        return made(self, "reference")

    made = jtgpu.NetworkPlan.compile
    monkeypatch.setattr(jtgpu.NetworkPlan, "compile", compile)
    assert run("query", ASIA, "--threads", "1").exit_code == 0
    assert (found["backend"], found["threads"]) == ("cpu", 1)


def test_progress_in_a_log() -> None:
    said = run("query", ASIA, "-t", "lung", "--progress", *REFERENCE).stderr.splitlines()
    assert said == ["jtgpu: planning", "jtgpu: compiling (takes longer the first time on a machine)",
                    "jtgpu: propagating"]  # fmt: skip
    assert run("query", ASIA, "-t", "lung", "--no-progress", *REFERENCE).stderr == ""


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("lung", "expected a target as name=state, got 'lung'; for example lung=yes"),
        ("lungs", "expected a target as name=state, got 'lungs'; did you mean 'lung'?"),
        ("lung=yes,no", "the target must be one state, not several: 'lung=yes,no'"),
    ],
)
def test_sensitivity_names_the_target(target: str, said: str) -> None:
    found = run("sensitivity", ASIA, target)
    assert (found.exit_code, found.stderr) == (2, f"jtgpu: error: {said}\n")


def test_time_names_every_order_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.net").write_bytes(Path(ASIA).read_bytes())
        (tmp_path / f"{name}.num").write_text(" ".join(jtgpu.read(ASIA).variables))
    shown = run("time", str(tmp_path), "--order", "num", "--runs", "1", *REFERENCE).stdout
    assert "orders a.num, b.num; " in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("learn c.csv --time 3", "there is no option --time; it is --seconds"),
        ("fit asia c.csv --numbers x", "there is no option --numbers; it is --continuous"),
        ("fit asia c.csv --prior 1", "there is no option --prior; it is --pseudo-counts"),
        ("learn c.csv --prior fair", "there is no option --prior; it is --graph-prior"),
        ("plan asia --file x", "there is no option --file; it is the argument FILE"),
        ("batch asia c.csv --evidnce-columns x", "did you mean --evidence-columns?"),
        ("fit asia c.csv --id x", "there is no option --id; it is an option of jtgpu dynamic, jtgpu validate"),
        ("query asia --steps 3", "there is no option --steps; it is an option of jtgpu dynamic, jtgpu learn"),
        # words of other commands, and former ones, are not taken for slips
        ("query asia --seconds 3", "there is no option --seconds; it is an option of jtgpu learn, jtgpu explore"),
        ("fit asia c.csv --time t", "it is an option of jtgpu dynamic, jtgpu validate, jtgpu whiten"),
        ("query asia --targets lung", "there is no option --targets; did you mean --target?"),
        ("plan asia --slices x", "there is no option --slices; did you mean --slice?"),
        ("batch asia c.csv --time-limit 3", "there is no option --time-limit"),
        ("query asia --progres", "did you mean --progress or --no-progress?"),
        ("query asia -a", "there is no option -a"),
        ("quer asia", "there is no command 'quer'; did you mean 'query'?"),
    ],
)
def test_an_unknown_option_names_the_one_that_is_meant(words: str, said: str) -> None:
    done = run(*words.split())
    assert done.exit_code == 2
    assert done.stderr.rstrip().endswith(said)


def test_a_command_offers_the_choices_that_it_takes() -> None:
    for name, field in ((name, offered(command).get("backend")) for name, command in COMMANDS.items()):
        if field is not None:
            refused = {"learn": {"reference", "indexed"}, "fit": {"indexed"}}.get(name, set())
            assert set(field.choices) == {"auto", *BACKENDS} - refused
    done = run("learn", "c.csv", "--backend", "indexed")
    assert (done.exit_code, "'indexed' is not one of auto, cpu, gpu" in done.stderr) == (2, True)
    assert "in Python" not in run("fit", "--help-all").stdout


def test_errors_of_python_name_options(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("a,b\n1,2\n3,4\n")
    done = run("whiten", str(tmp_path / "c.csv"), "--thousands", ".")
    assert (done.exit_code, "--decimal gives the other one" in done.stderr) == (2, True)


def test_choices_that_are_characters_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("a,b\n1,2\n")
    said = "'x' is not one of ',', '.', ' ', \"'\", '_'"
    assert said in run("learn", str(tmp_path / "c.csv"), "--thousands", "x").stderr
