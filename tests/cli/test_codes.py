"""``--codes`` of every command that reads cases or evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from jtgpu.model.quick import parse_codes
from tests.cli.commands import ASIA, run
from tests.decisions.test_policies import oil

CODES = ("--codes", "xray:1=yes,0=no", "--codes", "lung:1=yes,0=no", "--codes", "bronc:1=yes,0=no")


def test_codes_as_text() -> None:
    assert parse_codes(["a"], ["index"]) == "index"
    odd = parse_codes(["a:b", "c"], ["a:b:1=0:1, 2 =1:2", "c:x=one, or two,y=three"])
    assert odd == {"a:b": {"1": "0:1", "2": "1:2"}, "c": {"x": "one, or two", "y": "three"}}
    for text, message in [
        ("xray", "expected index"), ("xray:1", "expected index"), ("xry:1=yes", "did you mean 'xray'"),
        ("xray:1=yes,1=no", "two meanings"), (":1=yes", "expected index"),
    ]:  # fmt: skip
        with pytest.raises(jtgpu.JtgpuError, match=message):
            parse_codes(["xray"], [text])


def test_commands_of_evidence_take_codes(tmp_path: Path) -> None:
    for command in (
        ["query", ASIA, "--json"], ["query", ASIA, "P(lung | bronc=1)", "--json"], ["mpe", ASIA, "--json"],
        ["voi", ASIA, "-t", "lung", "--json"], ["sensitivity", ASIA, "-t", "lung=yes", "--json"],
        ["sample", ASIA, "3", "--seed", "1"],
    ):  # fmt: skip
        by_name = [word.replace("bronc=1", "bronc=yes") for word in command]
        coded = run(*command, "-e", "xray=1", *CODES)
        assert coded.exit_code == 0, coded.output
        assert coded.output.replace("bronc=1", "bronc=yes") == run(*by_name, "-e", "xray=yes").output
    assert run("show", ASIA, "-e", "xray=1", *CODES, "-o", str(tmp_path / "a.svg")).exit_code == 0
    jtgpu.write(oil(), tmp_path / "oil.net")
    decided = [
        run("decide", str(tmp_path / "oil.net"), "-e", f"test={x}", "--codes", "test:1=yes", "--json").output
        for x in ("1", "yes")
    ]
    assert decided[0] == decided[1]
    assert run("query", ASIA, "-e", "xray=1", "--codes", "index", "--json").output == run(
        "query", ASIA, "-e", "xray=no", "--json").output  # fmt: skip
    refused = run("query", ASIA, "-e", "xray=1", "--codes", "xray:1=ja")
    assert refused.exit_code == 2
    assert "'ja' is not one state" in refused.output


def test_commands_of_cases_take_codes(tmp_path: Path) -> None:
    samples = jtgpu.load("asia").compile("cpu").sample(60, seed=1)
    columns: dict[str, Any] = {v: samples[v].tolist() for v in samples}
    rows = {"named": columns, "coded": {
        v: [int(s == "yes") for s in c] if v in ("xray", "lung", "bronc") else c for v, c in columns.items()
    }}  # fmt: skip
    for name, table in rows.items():
        lines = [",".join(map(str, row)) for row in zip(*table.values(), strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join([",".join(table), *lines]))
    outputs: dict[str, list[str]] = {}
    for name, codes in (("named", ()), ("coded", CODES)):
        file, made = str(tmp_path / f"{name}.csv"), [str(tmp_path / f"{name}{end}") for end in (".out.csv", ".net")]
        outputs[name] = []
        for command in (
            ["batch", ASIA, file, "-o", made[0], "-t", "smoke"], ["validate", ASIA, file, "-t", "bronc", "--json"],
            ["fit", ASIA, file, "-o", made[1], "--json"],
            ["screen", file, "--net", ASIA, "-n", "3", "--surprise", "--json"],
        ):  # fmt: skip
            found = run(*command, *codes)
            assert found.exit_code == 0, found.output
            outputs[name] += [found.output] if command[0] in ("validate",) else []
        outputs[name] += [Path(m).read_text() for m in made]
    assert outputs["named"] == outputs["coded"]
    (tmp_path / "days.csv").write_text("day,wet\n0,1\n1,0\n")
    net = jtgpu.DynamicNetwork(
        {"rain": ["no", "yes"], "wet": ["no", "yes"]}, {"rain": [("rain", 1)], "wet": ["rain"]},
        {"rain": [[0.7, 0.3], [0.3, 0.7]], "wet": [[0.8, 0.2], [0.1, 0.9]]}, start={"rain": [0.5, 0.5]},
    )  # fmt: skip
    jtgpu.write(net, tmp_path / "d.dynamic.json")
    words = ("dynamic", "filter", str(tmp_path / "d.dynamic.json"), str(tmp_path / "days.csv"), "--time", "day")
    answer = run(*words, "--codes", "wet:1=yes,0=no", "--json")
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.output)
    refused = run(*words)
    assert refused.exit_code != 0
    assert "--codes wet:1=yes,0=no" in " ".join(refused.output.split())
