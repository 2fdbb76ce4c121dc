"""Networks full of zeros, most of whose trees do not fit: the first answer to a question, and the same one again.

    python bench/bench_zeros.py                     every case of ../shared/nets/zeros/answers.json, to bench/results
    python bench/bench_zeros.py fs-04 qmr-60-10-1   some networks
    python bench/bench_zeros.py --smoke             the smallest two, one run, nothing kept

Answers are compared with the known ones first. ``compile_s`` and ``first_s`` are seconds of ``net.compile`` and of the
first question after it (plans and reductions included; compiled loops are loaded before), ``median`` that of later
ones; ``left`` is the number of variables that the findings leave. Where at most five variables are observed and one is
queried, pyAgrum answers the same question with a new engine, and again with that.

Three cases have no known answers: their findings are drawn forward, and a posterior is compared with
P(findings and target) / P(findings). Two of them are searched (`jtgpu.plans.search`); fs-29, with 76,212 variables and
25,288 findings, is reduced, and all posteriors are computed.
"""

from __future__ import annotations

import functools
import json
import time
from typing import Any

import numpy as np
from peers import pyagrum_engine
from rows import ROOT, parser_of, row, store, timed

import jtgpu

FOLDER = ROOT.parent / "shared" / "nets" / "zeros"
SMALL = ("fs-04", "qmr-60-10-1")
DRAWN = {"mastermind_10_08_03": None, "blockmap_10_02": 5, "fs-29": None}  # leaves that are observed; None: all
ALL = "fs-29"  # the network whose variables are all queried
MOST_OF_PEER = 5  # findings: with many, it takes a minute or all the memory
TOLERANCE = 1e-9


def answered(tree: Any, case: dict[str, Any], findings: dict[str, Any], targets: list[int] | None) -> float:
    """Seconds of the first answer, which has to be the known one."""
    begin = time.perf_counter()
    post = tree.posteriors(findings, targets=targets)
    seconds = time.perf_counter() - begin
    if "log_evidence" in case:
        worst = max(float(np.abs(np.asarray(post[v]) - case["targets"][str(v)]).max()) for v in targets or ())
        worst = max(worst, abs(post.log_evidence - case["log_evidence"]) * 1e-3)
        if worst > TOLERANCE:
            raise SystemExit(f"{case['name']}: the answer differs from the known one by {worst}")
    return seconds


def drawn(name: str) -> dict[str, Any]:
    """A case whose answers are not known: leaves of a forward sample, eight other variables."""
    net: Any = jtgpu.read(FOLDER / f"{name}.uai.xz")
    rng = np.random.default_rng(1)
    states: dict[str, int] = {}
    for v in net.topological_order():
        row = np.asarray(net.cpt(v))[tuple(states[u] for u in net.parents(v))]
        states[v] = int(rng.choice(len(row), p=row / row.sum()))
    inner = {u for v in net.variables for u in net.parents(v)}
    leaves = rng.permutation([v for v in net.variables if v not in inner])[: DRAWN[name]].tolist()
    others = [i for i, v in enumerate(net.variables) if v not in leaves]
    return {
        "name": name, "evidence": {net.index(v): states[v] for v in leaves},
        "targets": rng.permutation(others)[:8].tolist(),
    }  # fmt: skip


def check_ratio(tree: Any, findings: dict[str, Any], target: int) -> None:
    """Compare a posterior with the ratio of two probabilities, each of a search of its own."""
    post = tree.posteriors(findings, targets=[target])
    state = post[target].mode
    ratio = tree.log_evidence(findings | {tree.model.variables[target]: state}) - post.log_evidence
    if abs(float(np.exp(ratio)) - post[target][state]) > TOLERANCE:
        raise SystemExit(f"{target}: the posterior is not the ratio of probabilities")


def peer_row(net: Any, case: dict[str, Any], target: int, budget: float) -> dict[str, Any] | None:
    """pyAgrum's seconds for one target."""
    if "log_evidence" not in case or not pyagrum_engine.available() or len(case["evidence"]) > MOST_OF_PEER:
        return None
    peer = pyagrum_engine.Peer(net)
    findings = {net.variables[int(v)]: s for v, s in case["evidence"].items()}
    name = net.variables[target]
    begin = time.perf_counter()
    solve = peer.kept(1, [name])
    answer = solve(findings)[name]
    first = time.perf_counter() - begin
    if np.abs(answer - case["targets"][str(target)]).max() > TOLERANCE:
        raise SystemExit(f"{case['name']}: pyAgrum's answer differs")
    spread = timed(solve, [findings, dict(reversed(findings.items()))], budget, 1, 20)
    return row(
        "zeros", case["name"], f"pyagrum {pyagrum_engine.version()}", spread, first_s=first,
        observed=len(findings), targets=1,
    )  # fmt: skip


def rows_of(case: dict[str, Any], budget: float) -> list[dict[str, Any]]:
    """The rows of a case: its targets, and the first of them alone."""
    net: Any = jtgpu.read(FOLDER / f"{case['name']}.uai.xz")
    findings = {net.variables[int(v)]: net.states(int(v))[s] for v, s in case["evidence"].items()}
    targets = [int(v) for v in case["targets"]]
    rows = []
    for asked in (None if case["name"] == ALL else targets, targets[:1]):
        begin = time.perf_counter()
        with net.compile("cpu", threads=1) as tree:
            compiled = time.perf_counter() - begin
            first = answered(tree, case, findings, asked)
            if "log_evidence" not in case:
                check_ratio(tree, findings, targets[0])
            spread = timed(functools.partial(tree.posteriors, targets=asked), [findings], budget, 1)
            cost = tree.question_cost(findings, targets=asked)
            rows.append(row(
                "zeros", case["name"], "jtgpu cpu", spread, compile_s=compiled, first_s=first, whole=tree.whole,
                observed=len(findings), left=cost.left, largest=cost.largest,
                targets=len(net.variables) - len(findings) if asked is None else len(asked),
            ))  # fmt: skip
    try:
        peer = peer_row(net, case, targets[0], budget)
    except Exception as error:  # std::bad_alloc
        peer = row("zeros", case["name"], "pyagrum", None, observed=len(findings), targets=1, error=str(error))
    if peer is not None:
        rows.append(peer)
    return rows


def main() -> None:
    """Run the cases."""
    parser = parser_of(__doc__, "zeros.jsonl", budget=2)
    parser.add_argument("names", nargs="*", help="networks; default: all that have known answers")
    given = parser.parse_args()
    path = FOLDER / "answers.json"
    if not path.exists():
        print("../shared/nets/zeros, whose networks may not be copied into the project, is absent")
        return
    with jtgpu.load("asia").compile("cpu") as tree:  # loads the compiled loops
        tree.posteriors()
    names = given.names or (SMALL if given.smoke else None)
    others = [drawn(name) for name in DRAWN if names is None or name in names]
    for case in [*json.loads(path.read_text()), *others]:
        if names is None or case["name"] in names:
            rows = rows_of(case, 0 if given.smoke else given.budget)
            for one in rows:
                print(json.dumps(one), flush=True)
            store(given, rows)


if __name__ == "__main__":
    main()
