"""Networks whose names a format does not allow: no command loses what it has computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jtgpu
from jtgpu.cli.saving import output_format
from tests.cli import commands

pytest.importorskip("pyarrow")
REFUSED = "the variable 'is ill' cannot be written to a Hugin .net file"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    pressure = rng.normal(120, 10, 200).round(1)
    rows = [f"{'yes' if x > 125 else 'no'},{x}" for x in pressure.tolist()]
    path = tmp_path / "cases.csv"
    path.write_text("\n".join(["is ill,blood pressure", *rows]) + "\n", encoding="utf-8")
    return path


def test_outputs_of_networks_with_numbers() -> None:
    assert output_format("a.mixed.json.gz", True).mixed
    with pytest.raises(jtgpu.errors.UnknownSuffix):
        output_format("a.oobn", True)


@pytest.mark.parametrize("more", [(), ("--edges",)])
def test_names_of_states_are_changed_with_a_warning(table: Path, more: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "learned.net"
    files = [str(tmp_path / "edges.csv")] if more else []
    done = commands.run("learn", str(table), "--bins", "2", "-o", str(out), *more, *files)
    assert done.exit_code == 0, done.output
    assert "'blood pressure' is 'blood_pressure'" in done.stderr
    assert "blood pressure" in done.stdout
    assert set(jtgpu.read(out).variables) == {"is_ill", "blood_pressure"}


@pytest.mark.parametrize("words", [("learn", "--score", "bic-cg"), ("explore", "--continuous", "--no-serve")])
def test_numbers_are_reported_and_written_as_json(table: Path, words: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "learned.net"
    done = commands.run(words[0], str(table), *words[1:], "-o", str(out))
    assert done.exit_code == 5, done.output
    assert REFUSED in done.stderr
    assert "learned.net.mixed.json has the network" in done.stderr
    assert "blood pressure" in done.stdout
    assert not out.exists()
    spare = tmp_path / "learned.net.mixed.json"
    net = jtgpu.read(spare, kind=jtgpu.MixedNetwork)
    assert net.numbers == ("blood pressure",)
    fitted = commands.run("fit", str(spare), str(table), "-o", str(tmp_path / "fitted.net"))
    assert fitted.exit_code == 5
    assert jtgpu.read(tmp_path / "fitted.net.mixed.json") == jtgpu.learn.fit(net, str(table)).network
