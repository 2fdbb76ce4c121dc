"""Measuring: how long a network takes to read, plan, compile and propagate. Shared by ``jtgpu time`` and bench/.

Times are seconds of wall clock from `time.perf_counter`. Nothing here prints.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import JtgpuError
from .model.network import BayesianNetwork, DiscreteModel
from .util.system import cores

if TYPE_CHECKING:
    from .inference.answers import Posteriors
    from .inference.tree import JunctionTree
    from .plans.compiler import NetworkPlan

__all__ = [
    "BENCHMARK",
    "NetworkTiming",
    "Spread",
    "benchmark_files",
    "check_answers",
    "cpu_name",
    "measure",
    "networks_folder",
    "order_beside",
    "peak_memory",
    "sample_cases",
    "stem",
    "time_network",
    "warm_up",
]

# The seven networks of the published table of times, in its order.
BENCHMARK = ("mildew", "diabetes", "barley", "munin4", "water", "munin1", "link")

Findings = Mapping[str, int]  # variable's name -> state's number


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one thing, in seconds.

    Attributes
    ----------
    runs : int
    median, minimum, maximum : float
    low, high : float
        Quartiles; of fewer than four runs the extremes.
    """

    runs: int
    median: float
    minimum: float
    maximum: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """The summary of one or more measurements."""
        low, high = min(seconds), max(seconds)
        if len(seconds) >= 4:
            low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(len(seconds), statistics.median(seconds), min(seconds), max(seconds), low, high)


@dataclass(frozen=True)
class NetworkTiming:
    """What `time_network` found.

    Attributes
    ----------
    network : str
        Name of the file without its suffixes.
    file : str
    variables, cliques, largest, entries, bytes : int
        Variables; cliques of the tree, entries of its largest clique and of all of them; bytes that one
        propagation takes.
    order : str
        How the elimination order was chosen.
    backend, device : str
    observed : int
        Variables observed in every run.
    read, plan, compile, first : float
        Seconds: file to network; order, tree and plan; backend; first propagation (where a backend may still compile).
    propagate : Spread
        One propagation with all posteriors, evidence in, labelled posteriors out; after the first.
    log_evidence : float
        ln P(e) of the first case.
    """

    network: str
    file: str
    variables: int
    cliques: int
    largest: int
    entries: int
    bytes: int
    order: str
    backend: str
    device: str
    observed: int
    read: float
    plan: float
    compile: float
    first: float
    propagate: Spread
    log_evidence: float = field(default=0.0)

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and one nested dict, for JSON."""
        return asdict(self)


# Where the networks are -----------------------------------------------------------------------------------------


def networks_folder() -> Path:
    """The folder of benchmark networks: inside the installed package, or beside it in a checkout.

    Raises
    ------
    JtgpuError
        When neither is there, which means a broken installation.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "nets", package.parent / "nets"):
        if (folder / "asia.net").is_file():
            return folder
    raise JtgpuError(f"the benchmark networks are missing: no nets/asia.net in {package} or beside it")


def benchmark_files(names: Sequence[str] = BENCHMARK) -> list[Path]:
    """Paths of networks that come with jtgpu, by name; default: the seven of the published table.

    Raises
    ------
    JtgpuError
        For a name that is not there.
    """
    folder = networks_folder()
    found = []
    for name in names:
        path = next((p for s in (".net", ".net.gz") if (p := folder / (name + s)).is_file()), None)
        if path is None:
            raise JtgpuError(f"{name!r} is none of the networks in {folder}")
        found.append(path)
    return found


def stem(path: str | os.PathLike[str]) -> str:
    """A network file's name without folder and suffixes: ``"nets/link.net.gz"`` gives ``"link"``."""
    name = os.path.basename(os.fspath(path))
    root, _ = os.path.splitext(name[:-3] if name.lower().endswith(".gz") else name)
    return root or name


def order_beside(path: str | os.PathLike[str]) -> Path:
    """The ``.num`` file that belongs to a network file: same folder, same name."""
    return Path(path).parent / (stem(path) + ".num")


# What it runs on ------------------------------------------------------------------------------------------------


def cpu_name() -> str:
    """The processor's model and the number of cores that this process may use."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    n = cores()
    return f"{model or platform.processor() or platform.machine()}, {n} core{'s' if n != 1 else ''}"


def peak_memory() -> int:
    """The most memory that this process has held so far, in bytes; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(most if sys.platform == "darwin" else most * 1024)


# Measuring ------------------------------------------------------------------------------------------------------


def measure(function: Callable[[], Any], runs: int) -> Spread:
    """Call a function `runs` times and time each call."""
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return Spread.of(seconds)


def sample_cases(net: BayesianNetwork, n_cases: int, share: float, seed: int) -> list[dict[str, int]]:
    """Cases of evidence that the network itself makes: a share of the variables of forward samples.

    Every case is possible, and all observe the same variables.

    Parameters
    ----------
    net : BayesianNetwork
    n_cases : int
    share : float
        Of the variables that are observed, 0 to 1.
    seed : int

    Returns
    -------
    list of dict
        Variable's name to state's number.
    """
    random = np.random.default_rng(seed)
    observed = np.sort(random.permutation(len(net))[: round(share * len(net))]).tolist()
    order = [net.index(v) for v in net.topological_order()]
    cases = []
    for _ in range(n_cases):
        state: dict[int, int] = {}
        for v in order:
            scope, cpt = net.factors[v]
            row = cpt[tuple(state[p] for p in scope[:-1])]
            drawn = int(np.searchsorted(np.cumsum(row), random.random() * row.sum(), "right"))
            state[v] = min(drawn, int(np.flatnonzero(row)[-1]))  # rounding must not draw a state of probability 0
        cases.append({net.variables[v]: state[v] for v in observed})
    return cases


def check_answers(posteriors: Posteriors, *, observed: Findings | None = None) -> None:
    """Refuse answers that cannot be right: no distribution, or an observed variable elsewhere than observed.

    Raises
    ------
    JtgpuError
        Naming the variable.
    """
    if not math.isfinite(posteriors.log_evidence):
        raise JtgpuError(f"ln P(evidence) came out as {posteriors.log_evidence}")
    for name, posterior in posteriors.items():
        p = np.asarray(posterior)
        if not (np.isfinite(p).all() and p.min() >= 0 and abs(p.sum() - 1) < 1e-9):
            raise JtgpuError(f"the posterior of {name!r} came out as {p.tolist()}, which is no distribution")
        if observed and name in observed and abs(p[observed[name]] - 1) > 1e-9:
            raise JtgpuError(f"{name!r} was observed, and its posterior came out as {p.tolist()}")


def warm_up(backend: str = "auto") -> None:
    """Import and compile everything once, so that the first network measured does not pay for it.

    Raises
    ------
    BackendUnavailable
        When the backend cannot run here.
    """
    from .plans.ordering import warm_up as warm_up_search

    warm_up_search()
    net = BayesianNetwork(
        {"a": ["0", "1"], "b": ["0", "1"]}, {"b": ["a"]}, {"a": [0.5, 0.5], "b": [[0.25, 0.75], [0.5, 0.5]]}
    )
    with net.compile(backend=backend) as tree:
        tree.posteriors({"b": 1})
        if tree.backend == "cpu":
            from .backends.cpu.warm import warm_up as warm_up_loops

            warm_up_loops(tree.plan.plan)


def time_network(
    path: str | os.PathLike[str],
    *,
    order: Any = "auto",
    backend: str = "auto",
    runs: int = 10,
    evidence_share: float = 0.0,
    seed: int = 0,
    step: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> NetworkTiming:
    """Read, plan, compile and propagate one network, and time each.

    Parameters
    ----------
    path : path-like
    order, **options
        See `jtgpu.plans.compiler.make_plan`; ``order="num"`` takes the ``.num`` file beside the network.
    backend : str
    runs : int
        Propagations that are timed, after a first one.
    evidence_share : float
        Of the variables that are observed. Above 0, the runs take turns among cases of different states.
    step : callable
        Called with what begins now: "read", "plan", "compile", "propagate".

    Raises
    ------
    JtgpuError
        As reading, planning, compiling and running raise; also for answers that cannot be right.
    """
    from .formats import read

    clock = time.perf_counter
    step("read")
    started = clock()
    net = read(path)
    t_read = clock() - started
    step("plan")
    how = order_beside(path) if order == "num" else order
    started = clock()
    plan: NetworkPlan = net.plan(how, **options)
    t_plan = clock() - started
    step("compile")
    started = clock()
    with plan.compile(backend) as tree:
        t_compile = clock() - started
        step("propagate")
        cases = _cases(net, runs, evidence_share, seed)
        started = clock()
        answer = tree.posteriors(cases[0])
        t_first = clock() - started
        check_answers(answer, observed=cases[0])
        turn = iter([cases[i % len(cases)] for i in range(1, runs + 1)])
        spread = measure(lambda: tree.posteriors(next(turn)), runs)
        cost = plan.cost()
        return NetworkTiming(
            network=stem(path),
            file=os.fspath(path),
            variables=len(net),
            cliques=cost.cliques,
            largest=cost.largest,
            entries=cost.entries,
            bytes=cost.bytes,
            order=os.path.basename(os.fspath(how)) if isinstance(how, (str, os.PathLike)) else "given",
            backend=tree.backend,
            device=device_name(tree),
            observed=len(cases[0]),
            read=t_read,
            plan=t_plan,
            compile=t_compile,
            first=t_first,
            propagate=spread,
            log_evidence=answer.log_evidence,
        )


def _cases(net: DiscreteModel, runs: int, share: float, seed: int) -> list[dict[str, int]]:
    if share <= 0:
        return [{}]
    if not isinstance(net, BayesianNetwork):
        raise JtgpuError("cases can be drawn from a Bayesian network only; leave the evidence out")
    return sample_cases(net, min(runs, 10), share, seed)


def device_name(tree: JunctionTree) -> str:
    """What a tree runs on: the backend's own word for it, or the processor."""
    return str(getattr(tree, "device", "") or cpu_name())
