"""BGe scores of columns of numbers on one GPU.

    python bench/mixed_gpu.py            rows to bench/results/mixed.jsonl, or to the file that --out names
    python bench/mixed_gpu.py --smoke    small data, nothing stored

Times come from events on the device.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from rows import ROOT, append, row

from jtgpu import timing
from jtgpu.device.context import Device, open_device
from jtgpu.learn.dags.scores.gpu_numbers import DeviceNumberScores
from jtgpu.learn.dags.scores.numeric_scores import bge_constants
from jtgpu.learn.dags.scores.ranks import n_parent_sets

RESULTS = ROOT / "bench" / "results" / "mixed.jsonl"
RUNS = 7


def scores(n: int, k: int, device: Device) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    matrix = np.corrcoef((rng.normal(size=(1000, n)) @ rng.normal(size=(n, n))).T) * 999 + 0.5 * np.eye(n)
    n_scores, seconds = n * n_parent_sets(n, k), []
    with device.active():
        worker = DeviceNumberScores(device, matrix, bge_constants(1000, k))
        address = worker.memory.empty(8 * n_scores)
        for _ in range(RUNS + 1):
            worker.microseconds = 0.0
            worker.fill(address, 0, n)
            seconds.append(worker.microseconds * 1e-6)
        worker.close()
    spread = timing.Spread.of(seconds[1:])
    more = {"families": n_scores, "parents": k, "device": device.name}
    return row("bge_scores", f"{n} columns", "jtgpu gpu kernels", spread, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small data, nothing stored")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    device, smoke = open_device(), options.smoke
    results = [scores(n, k, device) for n, k in ([(8, 3)] if smoke else [(37, 3), (100, 4), (60, 5)])]
    for result in results:
        print(result)
    if not smoke:
        append(options.out, results)


if __name__ == "__main__":
    main()
