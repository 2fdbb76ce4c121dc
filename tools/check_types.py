"""Check a user's file against an installed jtgpu with mypy and pyright: what type checkers see of a wheel.

    python tools/check_types.py BIN      # the bin folder of an environment with jtgpu, mypy and pyright

Lazy names (``jtgpu.read``, ``jtgpu.learn``) must resolve, results have their classes, and errors be found.
tests/test_typing.py runs it on the checkout, with the code blocks of some pages.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

# each line that reveals a type has the expected type as a comment, each line that is wrong the expected error
SCRIPT = """\
import jtgpu

net = jtgpu.load("asia")
reveal_type(net)  # BayesianNetwork
reveal_type(net.cpt("lung"))  # Cpt
reveal_type((net.arcs, net.children("lung"), net.markov_blanket("lung"), net.d_separated("asia", "smoke")))
reveal_type(net.replace(name="b").parents("lung"))  # tuple[str, ...]
reveal_type(jtgpu.read("asia.net").parents("lung"))  # tuple[str, ...]
model = jtgpu.read("pairs.uai")
if isinstance(model, jtgpu.MarkovNetwork):
    reveal_type(model.factors[0].scope)  # tuple[int, ...]
reveal_type(jtgpu.read("heights.net", kind=jtgpu.MixedNetwork).numbers)  # tuple[str, ...]
reveal_type(jtgpu.load("wildcatter.net", kind=jtgpu.DecisionNetwork))  # DecisionNetwork
reveal_type(jtgpu.read("pairs.uai", kind=jtgpu.MarkovNetwork))  # MarkovNetwork
tree = net.compile("cpu")
reveal_type(tree)  # JunctionTree
reveal_type(tree.posterior("lung", {"xray": "yes"}))  # Posterior
reveal_type(tree.posteriors({"xray": "yes"}))  # Posteriors
reveal_type(tree.log_evidence())  # float
reveal_type(tree.posteriors({"xray": "yes"})["lung"])  # Posterior
reveal_type(tree.posterior("lung").mode)  # str
reveal_type(net.plan())  # NetworkPlan
reveal_type(net.plan().cost().entries)  # int
reveal_type(net.plan("min-fill", memory_limit="2GiB").compile("cpu", threads=2))  # JunctionTree
reveal_type(net.compile(backend="reference", order="auto", seed=1))  # JunctionTree
reveal_type(jtgpu.BayesianNetwork({"a": ["n", "y"]}, {}, {"a": [0.5, 0.5]}).compile())  # JunctionTree
reveal_type(jtgpu.learn.fit(net, "cases.csv"))  # Fit[Any]
reveal_type(jtgpu.learn.structure("cases.csv").network())  # BayesianNetwork
reveal_type(jtgpu.draw.show(tree))  # Drawing
reveal_type(jtgpu.screen.top_outliers({"a": [1.0, 2.0]}, n=1))  # Outliers
reveal_type(jtgpu.learn.structure({"a": [0, 1]}, score="bic", graph_prior=("edge", 0.1)))  # Structure
reveal_type(jtgpu.learn.posterior([{"a": "x"}, {"a": "y"}], method="exact"))  # StructurePosterior
net.childern("lung")  # wrong
jtgpu.learn.structure("cases.csv", score="bdue")  # wrong
jtgpu.learn.posterior("cases.csv", method="mcmcm")  # wrong
jtgpu.learn.score_table("cases.csv", missing="dorp")  # wrong
jtgpu.learn.fit(net, 3)  # wrong
jtgpu.learn.fit(net, "cases.csv", compute="gpus")  # wrong
jtgpu.screen.top_outliers({"a": [1.0, 2.0]}, metric="euclid")  # wrong
tree.predict_proba(3)  # wrong
tree.posterior("lung").to_frame(3)  # wrong
net.compile("cpus")  # wrong
net.plan(memory=3)  # wrong
net.plan(tim_limit=3)  # wrong
net.compile(thread=2)  # wrong
net.plan().compile("cpu", treads=2)  # wrong
tree.posteriors(evidence=3)  # wrong
tree.posteriors_batch({"xray": ["yes"]}, on_error="ignore")  # wrong
jtgpu.read("x.net", zero_rows="keep")  # wrong
jtgpu.read("x.net", kind=dict)  # wrong
"""


def problems(bin_folder: Path, folder: Path) -> list[str]:
    """What type checkers of an environment see that differs from what `SCRIPT` says; a line each."""
    script = folder / "user.py"
    script.write_text(SCRIPT, encoding="utf-8")
    found = []
    cache = ["--cache-dir", str(folder / "cache")]
    python = str(bin_folder / "python")
    for name, command in {
        "mypy": [python, "-m", "mypy", "--strict", *cache, script.name],
        "pyright": [python, "-m", "pyright", "--pythonpath", python, script.name],
    }.items():
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        found += [f"{name}: {line}" for line in _differences(done.stdout)]
        if "user.py" not in done.stdout:
            found.append(f"{name} did not run: {done.stdout[-500:]}{done.stderr[-500:]}")
    return found


def _differences(output: str) -> list[str]:
    """Compare the messages of a type checker with the comments of the script, line by line."""
    messages: dict[int, list[str]] = {}
    for line in output.splitlines():
        if place := re.search(r"user\.py:(\d+):(?:\d+ -|\d+:)? *(.*)", line):
            messages.setdefault(int(place[1]), []).append(place[2])
    found = []
    for n, line in enumerate(SCRIPT.splitlines(), 1):
        said, wanted = " ".join(messages.get(n, [])), line.partition("  # ")[2]
        if wanted == "wrong":
            if "error" not in said:
                found.append(f"line {n}: no error: {line}")
        elif wanted:
            if not re.search(rf'"(?:[\w.]*\.)?{re.escape(wanted)}"', said):
                found.append(f"line {n}: {wanted} expected: {said}")
        elif "error" in said:
            found.append(f"line {n}: {said}")
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="jtgpu-types-") as temporary:
        wrong = problems(Path(sys.argv[1]).absolute(), Path(temporary))
    print("\n".join(wrong) or "mypy and pyright see the types of jtgpu")
    sys.exit(bool(wrong))
