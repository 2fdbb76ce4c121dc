"""Diagnosis with noisy-OR findings: 600 causes, 4,000 findings, 100 of them absent and 8 to 20 present.

    python bench/bench_noisy.py            cases of every size, to bench/results
    python bench/bench_noisy.py --smoke    8 present findings, two cases, nothing kept

The network is seeded (``tests/support/diagnosis.py``). Present findings are drawn at random (``active`` 0), or are
those that one or two active causes produce, which then share causes. ``median`` is the time of the posteriors of all
causes for new findings, ``again_s`` for the same ones, ``error`` the largest relative
difference of P(findings), or of a signed posterior, from a positive recursion over all subsets. The peer is Quickscore
(Heckerman, UAI 1989) in NumPy: a signed sum over subsets of the present findings, of P(findings) alone.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

import numpy as np
from rows import ROOT, parser_of, row, store

from jtgpu.timing import Spread

sys.path.insert(0, str(ROOT))

from tests.support.diagnosis import Recursion, case, diagnosis

SIZES = ((8, 0), (12, 0), (16, 0), (20, 0), (12, 1), (16, 2), (20, 2))  # present findings, active causes
MOST_OF_RECURSION = 16  # present findings
CASES = 9


def quickscore(oracle: Recursion) -> float:
    """P(findings) by the signed sum over subsets of the present ones."""
    k = len(oracle.leaks)
    total = np.ones(1)
    for leak in oracle.leaks:
        total = np.concatenate([total, -(1 - leak) * total])
    for v, p in oracle.priors.items():
        none = np.ones(1)
        links = dict(oracle.links[v])
        for f in range(k):
            none = np.concatenate([none, (1 - links[f] if f in links else 1.0) * none])
        total = total * (1 - p + p * oracle.none[v] * none) if links else total * (1 - p + p * oracle.none[v])
    return float(total.sum()) * oracle.absent


def rows_of(net: Any, present: int, active: int, n_cases: int) -> list[dict[str, Any]]:
    """The rows of one size."""
    cases = [case(net, present, 100, seed, active) for seed in range(n_cases)]
    new: list[float] = []
    again: list[float] = []
    signed, errors, wrong = [], [0.0], [0.0]
    with net.compile("cpu", threads=1) as tree:
        causes = [v for v in net if v not in net.noisy]
        tree.posteriors(case(net, 2, 2), targets=causes)
        for findings in cases:
            begin = time.perf_counter()
            answer = tree.posteriors(findings, targets=causes)
            new.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            tree.posteriors(findings, targets=causes)
            again.append(time.perf_counter() - begin)
            if present <= MOST_OF_RECURSION:
                oracle = Recursion(net, findings)
                exact = oracle.probability()
                errors.append(abs(math.exp(answer.log_evidence) / exact - 1))
                begin = time.perf_counter()
                sum_of_signs = quickscore(oracle)
                signed.append(time.perf_counter() - begin)
                wrong.append(abs(sum_of_signs / exact - 1))
    name = f"diagnosis-600-4000, {present} present"
    rows = [row(
        "noisy", name, "jtgpu cpu", Spread.of(new), again_s=float(np.median(again)), absent=100, active=active,
        error=max(errors) if signed else None,
    )]  # fmt: skip
    if signed:
        rows.append(row(
            "noisy", name, "quickscore in numpy", Spread.of(signed), absent=100, active=active, error=max(wrong)
        ))  # fmt: skip
    return rows


def main() -> None:
    """Run the cases."""
    given = parser_of(__doc__, "noisy.jsonl").parse_args()
    begin = time.perf_counter()
    net = diagnosis()
    print(json.dumps(row("noisy", "diagnosis-600-4000", "jtgpu, making it", None, seconds=time.perf_counter() - begin)))
    for present, active in SIZES[:1] if given.smoke else SIZES:
        rows = rows_of(net, present, active, 2 if given.smoke else CASES)
        for one in rows:
            print(json.dumps(one), flush=True)
        store(given, rows)


if __name__ == "__main__":
    main()
