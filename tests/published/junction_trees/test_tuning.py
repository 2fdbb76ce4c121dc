"""Tuning: what is measured, which rules win, and the file that keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jtgpu import errors
from jtgpu.device.context import Device
from jtgpu.published.junction_trees import tuning
from jtgpu.published.junction_trees.rules import Row, Rules, best_rules
from tests.plans.test_plan import chain
from tests.published.junction_trees.test_backend import backend_of


@pytest.mark.slow
def test_tuned_rules_are_chosen_saved_and_read(
    emulated_gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JTGPU_CACHE_DIR", str(tmp_path))
    model = chain(6, 80)
    with pytest.raises(errors.BackendUnavailable, match="tune"):
        backend_of(model, {"thresholds": "tuned"})
    found = tuning.tune(sizes=(6, 10), launches=2)
    assert {r.operation for r in found.rows} >= {"marginalise_m", "marginalise_n", "scatter", "cpu_scatter"}
    path = tuning.save(found)
    assert tuning.saved_rules(emulated_gpu, "each") == found.rules
    backend = backend_of(model, {"thresholds": "tuned", "streams": 2})
    assert backend.rules == Rules(**found.rules, streams=2)
    backend.close()
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(errors.BackendUnavailable, match=r"call save\(tune\(\)\)"):
        tuning.saved_rules(emulated_gpu, "each")


def test_the_winner_loses_least_over_all_tables() -> None:
    rows = [
        *(Row("scatter", 1, m, t, s) for m, t, s in ((8, 64, 1.0), (8, 256, 1.1), (64, 64, 9.0), (64, 256, 2.0))),
        *(Row("marginalise_m", 1, 8, t, 1.0 + t / 1e4) for t in (128, 512)),
        *(Row("marginalise_m_ways", n, 8, 8, n * 1.0) for n in (1, 8, 64, 512)),
        *(Row("marginalise_n_ways", n, 8, 8, 40.0) for n in (1, 8, 64, 512)),
        *(Row("scatter_ways", 1, 8, w, s) for w, s in ((1, 3.0), (-2, 2.0))),
        *(
            Row(f"{d}_scatter", 1, m, 0, s)
            for d, m, s in (("cpu", 8, 1.0), ("gpu", 8, 2.0), ("cpu", 64, 9.0), ("gpu", 64, 2.0))
        ),
    ]
    assert best_rules(rows) == {
        "marginalise_threads": 128, "scatter_threads": 256, "ways": 8, "scatter": "fused", "scatter_ways": 2,
        "split_n": 64, "min_entries": 64,
    }  # fmt: skip
