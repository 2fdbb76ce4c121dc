"""``backend="auto"`` on a machine with a GPU: measured once, kept, and right about what is far from the border."""

from __future__ import annotations

from pathlib import Path

import pytest

import jtgpu
from jtgpu.backends import make
from tests.on_gpu.conftest import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]


@pytest.mark.alone
def test_auto_measures_once_and_keeps_what_it_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path))
    make._rates.cache_clear()
    tiny, huge = (jtgpu.read(ROOT / "nets" / name).plan() for name in ("asia.net", "munin1.net"))
    assert make.choose(tiny.plan).backend == "cpu"
    chosen = make.choose(huge.plan)
    assert chosen.backend == "gpu"
    assert "on the cpu" in chosen.reason
    assert len(list(tmp_path.glob("rates-*.json"))) == 1
    first = make._rates()
    make._rates.cache_clear()
    monkeypatch.setattr(make, "measure", lambda backend: pytest.fail("measured a second time"))
    assert make._rates() == first
    assert chosen.reason in huge.describe()
    with tiny.compile() as tree:
        assert tree.backend == "cpu"
    make._rates.cache_clear()
