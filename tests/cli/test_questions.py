"""Commands on networks whose tree does not fit: questions are planned one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import jtgpu
from tests.cli.commands import run
from tests.inference.test_questions import case, diagnosis
from tests.serve.client import Client

NET = diagnosis()
FINDINGS = case(NET)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("diagnosis") / "diagnosis.bif"
    jtgpu.write(NET, path)
    return path


def test_plan_and_info_say_so(file: Path, tmp_path: Path) -> None:
    result = run("plan", str(file))
    assert result.exit_code == 0
    assert "the whole tree does not fit" in result.stdout
    assert "one by one" in result.stdout
    assert json.loads(run("plan", str(file), "--json").stdout)["whole"] is False
    assert json.loads(run("plan", "asia", "--json").stdout)["whole"] is True
    assert run("plan", str(file), "-o", str(tmp_path / "diagnosis.plan")).exit_code != 0
    assert "does not fit" in run("info", str(file)).stdout
    assert "whole tree" not in run("info", "asia").stdout


def test_query_mpe_and_sample(file: Path) -> None:
    given = [word for v, s in FINDINGS.items() for word in ("-e", f"{v}={s}")]
    with NET.compile("cpu") as tree:
        expected = tree.posterior("d0", FINDINGS)["yes"]
    found: Any = json.loads(run("query", str(file), "P(d0)", *given, "--json").stdout)
    assert found["questions"][0]["probabilities"][1] == pytest.approx(expected, abs=1e-12)
    assert run("mpe", str(file), *given).exit_code == 0
    positive = [word for v in FINDINGS for word in ("-e", f"{v}=yes")]
    refused = run("query", str(file), *positive)
    assert refused.exit_code == 3
    assert "question is too large" in refused.stderr


@pytest.mark.slow
def test_batch(file: Path, tmp_path: Path) -> None:
    cases, out = tmp_path / "cases.csv", tmp_path / "answers.csv"
    rows = [case(NET, seed) for seed in range(3)]
    cases.write_text("\n".join([",".join(FINDINGS), *(",".join(r.values()) for r in rows)]) + "\n")
    assert run("batch", str(file), str(cases), "-o", str(out), "--target", "d0,d1", "--log-evidence").exit_code == 0
    lines = out.read_text().splitlines()
    assert len(lines) == 4
    with NET.compile("cpu") as tree:
        for line, findings in zip(lines[1:], rows, strict=True):
            cells = dict(zip(lines[0].replace('"', "").split(","), line.split(","), strict=True))
            assert float(cells["d0=yes"]) == pytest.approx(tree.posterior("d0", findings)["yes"], abs=1e-9)


def test_solve(file: Path, tmp_path: Path) -> None:
    numbers = [len(FINDINGS)]
    for v, state in FINDINGS.items():
        numbers += [NET.index(v), ["no", "yes"].index(state)]
    evidence = tmp_path / "diagnosis.evid"
    evidence.write_text(" ".join(map(str, numbers)))
    model = tmp_path / "diagnosis.uai"
    jtgpu.write(NET, model)
    with NET.compile("cpu") as tree:
        log10 = tree.log_evidence(FINDINGS) / 2.302585092994046
    found = run("solve", str(model), str(evidence), "PR", "-o", "-")
    assert float(found.stdout.split()[1]) == pytest.approx(log10, abs=1e-6)
    for task in ("MAR", "MPE"):
        assert run("solve", str(model), str(evidence), task, "-o", "-").exit_code == 0


@pytest.mark.slow
def test_server() -> None:
    from jtgpu.serve import App

    with NET.compile("cpu") as tree:
        client = Client(App({"diagnosis": tree}))
        assert len(client.get("/v1/networks/diagnosis").json()["variables"]) == len(NET)
        answer = client.ask("diagnosis", "posteriors", {"evidence": FINDINGS})
        assert answer["log_evidence"] == pytest.approx(tree.log_evidence(FINDINGS), abs=1e-9)
        client.ask("diagnosis", "posteriors", {"evidence": dict.fromkeys(FINDINGS, "yes")}, 422)
