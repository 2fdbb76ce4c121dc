"""Tables of cases by pgmpy and nbn: a script for whatever Python has them; it knows nothing of jtgpu.

    python tables_peer.py pgmpy|pgmpy-loop|nbn network.bif cases.npz answers.npz --runs 3 --threads 2

``cases.npz`` holds `names` (E,) and `states` (n, E) of the columns, by number, and `targets` (T,). Answers and times
come back: `posterior` (n, sum of the targets' cards), `seconds` (runs,), and a line of JSON with the versions. pgmpy is
asked with ``predict_probability``, which answers for every variable that is no column, and in a loop over the rows with
``VariableElimination.query``; nbn with ``query_batch``, once a target.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Answer = Callable[[], NDArray[np.float64]]


def by_pgmpy(bif: str, names: list[str], states: NDArray[np.int64], targets: list[str]) -> Answer:
    """What answers the table."""
    pandas = importlib.import_module("pandas")
    model = importlib.import_module("pgmpy.readwrite").BIFReader(bif).get_model()
    labels = {v: list(model.get_cpds(v).state_names[v]) for v in (*names, *targets)}
    frame = pandas.DataFrame({v: np.array(labels[v], object)[states[:, j]] for j, v in enumerate(names)})

    def answer() -> NDArray[np.float64]:
        found = model.predict_probability(frame)
        return np.column_stack([found[f"{v}_{s}"].to_numpy() for v in targets for s in labels[v]])

    return answer


def by_pgmpy_loop(bif: str, names: list[str], states: NDArray[np.int64], targets: list[str]) -> Answer:
    """What answers the table, row by row."""
    model = importlib.import_module("pgmpy.readwrite").BIFReader(bif).get_model()
    labels = {v: list(model.get_cpds(v).state_names[v]) for v in (*names, *targets)}
    engine = importlib.import_module("pgmpy.inference").VariableElimination(model)
    cases = [{v: labels[v][s] for v, s in zip(names, row, strict=True)} for row in states.tolist()]

    def ask(case: dict[str, str]) -> NDArray[np.float64]:
        found = engine.query(targets, evidence=case, joint=False, show_progress=False)
        order = [[found[v].state_names[v].index(s) for s in labels[v]] for v in targets]
        return np.concatenate([found[v].values[o] for v, o in zip(targets, order, strict=True)])

    return lambda: np.stack([ask(case) for case in cases])


def by_nbn(bif: str, names: list[str], states: NDArray[np.int64], targets: list[str]) -> Answer:
    """What answers the table."""
    torch: Any = importlib.import_module("torch")
    model = importlib.import_module("nbn").NeuralBayesianNetwork.from_bif(bif, device="cpu")
    evidence = {v: torch.from_numpy(np.ascontiguousarray(states[:, j])) for j, v in enumerate(names)}

    def answer() -> NDArray[np.float64]:
        with torch.no_grad():
            return np.concatenate([model.query_batch([v], evidence).double().numpy() for v in targets], axis=1)

    return answer


PEERS = {"pgmpy": by_pgmpy, "pgmpy-loop": by_pgmpy_loop, "nbn": by_nbn}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=sorted(PEERS))
    parser.add_argument("bif")
    parser.add_argument("cases")
    parser.add_argument("answers")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(arguments.threads)
    given = np.load(arguments.cases)
    answer = PEERS[arguments.peer](
        arguments.bif, given["names"].tolist(), given["states"].astype(np.int64), given["targets"].tolist()
    )
    posterior = answer()
    seconds = []
    for _ in range(arguments.runs):
        begun = time.perf_counter()
        answer()
        seconds.append(time.perf_counter() - begun)
    np.savez(arguments.answers, posterior=posterior, seconds=seconds)
    packages = ("nbn", "torch") if arguments.peer == "nbn" else ("pgmpy",)
    print(json.dumps({"version": ", ".join(f"{p} {importlib.metadata.version(p)}" for p in packages)}))


if __name__ == "__main__":
    main()
