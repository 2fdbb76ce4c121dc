"""Workers in this process in place of a cluster, and files of cases for them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jtgpu.cluster import worker as worker_module
from jtgpu.cluster.parts import FilePart
from jtgpu.errors import JtgpuError

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


NAMES = ["smoke", "xray", "dysp", "asia"]

N = 2000

ASK: dict[str, Any] = {"targets": "lung", "keep": "id", "log_evidence": True, "chunk": 100}


def table(n: int = N, seed: int = 5, first: int = 0) -> Any:
    """Cases with empty cells, numbered."""
    random = np.random.default_rng(seed)
    kinds = np.array(["yes", "no", None], object)
    columns = {v: pa.array(kinds[random.choice(3, n, p=[0.4, 0.4, 0.2])], pa.string()) for v in NAMES}
    return pa.table({"id": np.arange(first, first + n), **columns})


class LocalWorkers:
    """Workers of this process in place of Ray's: some parts are answered twice, some after others, one may fail."""

    def __init__(self, fail: int | None = None, error: Exception | None = None):
        self.fail, self.error = fail, error
        self.answered: list[int] = []

    def results(self, ray: Any, job: Any, parts: Sequence[FilePart]) -> Iterator[dict[str, Any]]:
        job = pickle.loads(pickle.dumps(job))
        worker = worker_module.PartWorker(job)
        done = {}
        for part in reversed(parts):
            if part.number == self.fail:
                done[part.number] = {"number": part.number, "rows": 0, "flagged": 0, "error": pickle.dumps(self.error)}
                continue
            self.answered.append(part.number)
            line = {"number": part.number, "rows": 0, "flagged": 0, "error": b""}
            for _ in range(2 if part.number % 3 == 0 else 1):
                try:
                    line["rows"], line["flagged"] = worker.answer_with_retries(part)
                except (JtgpuError, OSError) as wrong:
                    line["error"] = pickle.dumps(wrong)
            done[part.number] = line
        yield from (done[p.number] for p in parts)


class _NoRay:
    @staticmethod
    def cluster_resources() -> dict[str, float]:
        return {"CPU": 2.0}


def files_of(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def read_parts(folder: Path) -> Any:
    """A folder of answers, read by the names of its files."""
    return pa.concat_tables([pq.read_table(p) for p in sorted(folder.glob("part-*.parquet"))])
