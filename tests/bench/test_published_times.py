"""The published times next to this machine's, on an emulated GPU."""

from __future__ import annotations

import sys

import pytest

from jtgpu.errors import BackendUnavailable
from jtgpu.published import outliers
from jtgpu.published.durbin import VERSIONS
from tests.conftest import ROOT
from tests.support.emulated.install import emulated_gpu, needs_compiler

sys.path.insert(0, str(ROOT / "bench"))

import published_times as times

__all__ = ["emulated_gpu"]

@pytest.mark.slow
@pytest.mark.usefixtures("emulated_gpu")
@needs_compiler
def test_the_table_of_selection_kernels() -> None:
    device, rows = times.measure_selection([200], m=3, k=5, runs=1)
    text = times.selection_report(device, rows)
    assert all(name in text for name in outliers.SELECTIONS)
    assert set(times.NAMES) == set(outliers.SELECTIONS)


@pytest.mark.slow
@pytest.mark.usefixtures("emulated_gpu")
@needs_compiler
def test_the_table_of_durbin_has_every_version() -> None:
    steps: list[str] = []
    found = times.measure_durbin([100], 1, steps.append)
    assert [t.version for t in found] == [*VERSIONS, *times.TODAY]
    assert all(t.seconds > 0 for t in found)
    lines = times.durbin_report(found).splitlines()
    assert lines[0].split() == ["N", "version", "published,", "ms", "here,", "ms"]
    assert len(lines) >= 1 + len(found)
    assert "0.040" in times.durbin_report(found)
    assert len(steps) == len(found)


def test_versions_of_the_gpu_are_left_out_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_gpu(*_: object) -> None:
        raise BackendUnavailable("none")

    monkeypatch.setattr("jtgpu.published.durbin.durbin_on_gpu", no_gpu)
    found = times.measure_durbin([3], 1, lambda _: None)
    assert [t.version for t in found] == ["sequential", "reworked", "openmp", "levinson"]
