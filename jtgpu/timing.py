"""Timing of the steps that a network goes through: read, plan, compile, propagate.

Shared by ``jtgpu time`` and the scripts in bench/. Times are wall-clock seconds of `time.perf_counter`. Nothing here
prints.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .errors import ArgumentError, JtgpuError
from .formats import read
from .formats.bundled import order_file, stem
from .model.decisions import DecisionNetwork
from .model.dynamic import DynamicNetwork
from .model.mixed import MixedNetwork
from .model.mixed_dynamic import MixedDynamicNetwork
from .model.network import BayesianNetwork
from .model.states import StateNumber
from .util.options import BackendName
from .util.system import cpu_name

if TYPE_CHECKING:
    from .inference.results.marginals import Posteriors

T = TypeVar("T")

MOST_CASES = 10  # distinct cases that the timed propagations cycle through


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one operation, in seconds."""

    runs: int
    median: float
    minimum: float
    maximum: float
    # low, high: Quartiles; minimum and maximum if there are fewer than four runs
    low: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """Summary of one or more measurements."""
        low, high = min(seconds), max(seconds)
        if len(seconds) >= 4:
            low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(len(seconds), statistics.median(seconds), min(seconds), max(seconds), low, high)


@dataclass(frozen=True)
class NetworkTiming:
    """Result of `time_network`."""

    network: str  # file name without suffixes
    file: str
    # variables, cliques, largest, entries, bytes: Variables; cliques of the junction tree, entries of the largest
    #     clique and of all cliques; memory of one propagation
    variables: int
    cliques: int
    largest: int
    entries: int
    bytes: int
    order: str  # how the elimination order was chosen
    backend: str
    device: str
    observed: int  # number of observed variables in every run
    # read, plan, compile, first: Seconds: file to network; elimination order, tree and plan; backend; first propagation
    #     (in which a backend may still compile)
    read: float
    plan: float
    compile: float
    first: float
    propagate: Spread  # one later propagation, from evidence by name until every posterior has been read as an array
    log_evidence: float = field(default=0.0)  # ln P(e) of the first case

    def as_dict(self) -> dict[str, Any]:
        """Fields as numbers, strings and one nested dict, for JSON."""
        return asdict(self)


def measure(function: Callable[[], object], runs: int) -> Spread:
    """Call `function` `runs` times and time each call."""
    return Spread.of([_timed(function)[1] for _ in range(runs)])


def _timed(function: Callable[[], T]) -> tuple[T, float]:
    """Result of a call, and its duration in seconds."""
    started = time.perf_counter()
    result = function()
    return result, time.perf_counter() - started


def _read(posteriors: Any) -> Any:
    """The posteriors, after every one was read as an array: they are made when they are read."""
    for p in posteriors.values():
        np.asarray(p)
    return posteriors


def sample_cases(net: BayesianNetwork, n_cases: int, share: float, seed: int) -> list[dict[str, int]]:
    """Draw evidence from the network: forward samples of which a share of the variables is observed.

    Every case has positive probability, and all cases observe the same variables.
    """
    # share: Fraction of the variables that are observed, 0 to 1
    # returns list of dict: Variable name to state number.
    random = np.random.default_rng(seed)
    observed = np.sort(random.permutation(len(net))[: round(share * len(net))]).tolist()
    order = [net.index(v) for v in net.topological_order()]
    cases: list[dict[str, int]] = []
    for _ in range(n_cases):
        state: dict[int, int] = {}
        for v in order:
            scope, cpt = net.factors[v]
            row = cpt[tuple(state[p] for p in scope[:-1])]
            drawn = int(np.searchsorted(np.cumsum(row), random.random() * row.sum(), "right"))
            state[v] = min(drawn, int(np.flatnonzero(row)[-1]))  # rounding must not draw a state of probability 0
        cases.append({net.variables[v]: StateNumber(state[v]) for v in observed})
    return cases


def check_answers(posteriors: Posteriors, *, observed: Mapping[str, int] | None = None) -> None:
    """Check that posteriors are distributions and agree with the observed states."""
    # raises JtgpuError: If they do not; the message names the variable.
    if not math.isfinite(posteriors.log_evidence):
        raise JtgpuError(f"wrong result: ln P(evidence) is {posteriors.log_evidence}, expected a finite number")
    for name, posterior in posteriors.items():
        p = np.asarray(posterior)
        if not (np.isfinite(p).all() and p.min() >= 0 and abs(p.sum() - 1) < 1e-9):
            raise JtgpuError(f"wrong result: the posterior of {name!r} is not a distribution: {p.tolist()}")
        if observed and name in observed and abs(p[observed[name]] - 1) > 1e-9:
            raise JtgpuError(
                f"wrong result: {name!r} is observed in state {observed[name]}, but its posterior is {p.tolist()}"
            )


def warm_up(backend: BackendName = "auto") -> None:
    """Import and compile everything, so that the first measured network does not pay for it."""
    # raises BackendUnavailable: If the backend cannot run on this machine.
    from .backends.cpu.engine import warm_up as compile_cpu_kernels  # both import Numba
    from .plans.ordering import warm_up as compile_order_search

    compile_order_search()
    net = BayesianNetwork(
        {"a": ["0", "1"], "b": ["0", "1"]}, {"b": ["a"]}, {"a": [0.5, 0.5], "b": [[0.25, 0.75], [0.5, 0.5]]}
    )
    with net.compile(backend=backend) as tree:
        tree.posteriors({"b": 1})
        if tree.backend == "cpu":
            compile_cpu_kernels(tree.plan.plan)


def time_network(  # noqa: PLR0913
    path: str | os.PathLike[str],
    *,
    order: Any = "auto",
    backend: BackendName = "auto",
    runs: int = 10,
    evidence_share: float = 0.0,
    seed: int = 0,
    order_seed: int = 0,
    compile_options: Mapping[str, Any] | None = None,
    step: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> NetworkTiming:
    """Read, plan, compile and propagate one network, and time each step."""
    # order, **options: See `jtgpu.BayesianNetwork.plan`; ``order="num"`` reads the ``.num`` file of the same name
    # runs: Number of timed propagations, after a first one
    # evidence_share: Fraction of the variables that are observed. If above 0, the runs cycle through up to ten cases.
    # seed, order_seed: Random seeds of the observations and of the order search
    # compile_options: Options of ``compile``, such as ``threads``
    # step: Called with the name of each step as it begins: "read", "plan", "compile", "propagate"
    # raises JtgpuError: Errors of reading, planning, compiling and propagating; also if an answer is not a
    #     distribution.
    step("read")
    net: Any
    net, t_read = _timed(lambda: read(path))
    if isinstance(net, (DynamicNetwork, MixedDynamicNetwork)):
        raise ArgumentError(
            f"{path} is a dynamic network, whose time depends on the sequences: jtgpu dynamic filter ... -o OUTPUT "
            f"prints it, and jtgpu dynamic unroll {path} -o NET --steps 10 writes ten slices as a network to be timed"
        )
    if isinstance(net, DecisionNetwork):
        raise ArgumentError(
            f"{path} has decisions: jtgpu decide finds the best policy, and jtgpu convert --chance-only writes a "
            "Bayesian network, in which decisions are uniform, to be timed"
        )
    step("plan")
    how = order_file(path) if order == "num" else order
    states, more = net.discrete if isinstance(net, MixedNetwork) else net, compile_options or {}

    plan, t_plan = _timed(lambda: states.plan(how, seed=order_seed, **options))
    step("compile")
    with ExitStack() as closed:
        tree: Any
        if isinstance(net, MixedNetwork):  # the plan of its states: those of evidence are made with the first answer
            more = {"order": how, "seed": order_seed, **options, **more}
            tree, t_compile = _timed(lambda: net.compile(backend, **more))
            closed.callback(tree.close)
        else:
            tree, t_compile = _timed(lambda: plan.compile(backend, **more))
            closed.enter_context(tree)
        step("propagate")
        cases = _cases(net, runs, evidence_share, seed)
        answer, t_first = _timed(lambda: _read(tree.posteriors(cases[0])))
        if not isinstance(net, MixedNetwork):
            check_answers(answer, observed=cases[0])
        later = iter([cases[i % len(cases)] for i in range(1, runs + 1)])
        spread = measure(lambda: _read(tree.posteriors(next(later))), runs)
        cost = plan.cost()
        inner = tree.engine(()).tree if isinstance(net, MixedNetwork) else tree
        return NetworkTiming(
            network=stem(path),
            file=os.fspath(path),
            variables=len(net),
            cliques=cost.cliques,
            largest=cost.largest,
            entries=cost.entries,
            bytes=cost.bytes,
            order=os.path.basename(os.fspath(how)) if isinstance(how, (str, os.PathLike)) else "given",
            backend=getattr(inner, "backend", "cpu"),
            device=getattr(inner, "device", None) or cpu_name(),
            observed=len(cases[0]),
            read=t_read,
            plan=t_plan,
            compile=t_compile,
            first=t_first,
            propagate=spread,
            log_evidence=answer.log_evidence,
        )


def _cases(net: Any, runs: int, share: float, seed: int) -> list[dict[str, Any]]:
    if share <= 0:
        return [{}]
    if isinstance(net, MixedNetwork):
        drawn = net.compile("cpu").sample(min(runs, MOST_CASES), seed=seed)
        kept = np.sort(np.random.default_rng(seed).permutation(len(net))[: round(share * len(net))]).tolist()
        return [{v: drawn[v][i] for v in (net.variables[j] for j in kept)} for i in range(len(drawn.states))]
    if not isinstance(net, BayesianNetwork):
        raise JtgpuError("only a Bayesian network can generate evidence; call time_network with evidence_share=0")
    return sample_cases(net, min(runs, MOST_CASES), share, seed)
