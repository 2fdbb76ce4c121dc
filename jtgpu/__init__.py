"""Exact inference in discrete Bayesian networks by junction trees, on NVIDIA GPUs and on a plain CPU.

>>> import jtgpu
>>> net = jtgpu.BayesianNetwork(
...     {"rain": ["no", "yes"], "wet": ["no", "yes"]},
...     {"wet": ["rain"]},
...     {"rain": [0.8, 0.2], "wet": [[0.9, 0.1], [0.2, 0.8]]},
... )
>>> net.compile(backend="reference").posterior("rain", {"wet": "yes"}).mode
'yes'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import (
    ArgumentError,
    BackendUnavailable,
    DataError,
    EvidenceError,
    FileError,
    FormatError,
    ImpossibleEvidence,
    JtgpuError,
    MissingFileError,
    NetworkError,
    OrderError,
    OutputExists,
    ParseError,
    PlanError,
    PlanFileError,
    TableTooLarge,
    UnknownAttribute,
    UnknownState,
    UnknownSuffix,
    UnknownVariable,
)
from .util.late_imports import public_names
from .util.version import __version__

if TYPE_CHECKING:
    from . import cases as cases
    from . import causal as causal
    from . import cluster as cluster
    from . import draw, graphs, learn, published, screen, series
    from . import serve as serve
    from .formats import load, networks, read, read_evidence, write
    from .inference.network_plan import NetworkPlan
    from .inference.results.marginals import CasePosteriors, Posterior, Posteriors
    from .inference.results.tables import Conditional, Joint
    from .inference.session import Session
    from .inference.tree import JunctionTree
    from .interop import from_networkx, from_pgmpy, from_pyagrum, to_pgmpy, to_pyagrum
    from .learn.classifier import JunctionTreeClassifier
    from .model.cpts import RowReport, normalize_rows
    from .model.decisions import DecisionNetwork
    from .model.discrete import DiscreteModel, Factor
    from .model.dynamic import DynamicNetwork
    from .model.gaussian import Gaussian
    from .model.markov import MarkovNetwork
    from .model.mixed import MixedNetwork
    from .model.mixed_dynamic import MixedDynamicNetwork
    from .model.network import BayesianNetwork
    from .model.noisy import NoisyAnd, NoisyMax, NoisyMin, NoisyOr
    from .model.quick import network
    from .options.compute import Compute
    from .options.tables import ReadOptions
    from .plans.arrays import Cost
    from .plans.plan import Plan
    from .serve.widget import widget

__all__ = [
    "ArgumentError", "BackendUnavailable", "BayesianNetwork", "CasePosteriors", "Compute", "Conditional", "Cost",
    "DataError", "DecisionNetwork", "DiscreteModel", "DynamicNetwork", "EvidenceError", "Factor", "FileError",
    "FormatError", "Gaussian", "ImpossibleEvidence", "Joint", "JtgpuError", "JunctionTree", "JunctionTreeClassifier",
    "MarkovNetwork", "MissingFileError", "MixedDynamicNetwork", "MixedNetwork", "NetworkError", "NetworkPlan",
    "NoisyAnd", "NoisyMax", "NoisyMin", "NoisyOr", "OrderError", "OutputExists", "ParseError", "Plan", "PlanError",
    "PlanFileError", "Posterior", "Posteriors", "ReadOptions", "RowReport", "Session", "TableTooLarge",
    "UnknownAttribute", "UnknownState", "UnknownSuffix", "UnknownVariable", "__version__", "draw", "from_networkx",
    "from_pgmpy", "from_pyagrum", "graphs", "learn", "load", "network", "networks", "normalize_rows", "published",
    "read", "read_evidence", "screen", "series", "to_pgmpy", "to_pyagrum", "widget", "write",
]  # fmt: skip

# imported on first use: `import jtgpu` takes a few milliseconds, and a program loads what it uses
__getattr__, __dir__ = public_names(__name__, {
    "formats": "load networks read read_evidence write", "inference.network_plan": "NetworkPlan",
    "inference.results.marginals": "CasePosteriors Posterior Posteriors",
    "inference.results.tables": "Conditional Joint", "inference.session": "Session", "inference.tree": "JunctionTree",
    "interop": "from_networkx from_pgmpy from_pyagrum to_pgmpy to_pyagrum",
    "learn.classifier": "JunctionTreeClassifier", "model.gaussian": "Gaussian", "model.mixed": "MixedNetwork",
    "model.mixed_dynamic": "MixedDynamicNetwork",
    "model.cpts": "RowReport normalize_rows", "model.decisions": "DecisionNetwork",
    "model.discrete": "DiscreteModel Factor", "model.dynamic": "DynamicNetwork", "model.markov": "MarkovNetwork",
    "model.network": "BayesianNetwork", "model.noisy": "NoisyAnd NoisyMax NoisyMin NoisyOr",
    "model.quick": "network",
    "options.compute": "Compute", "options.tables": "ReadOptions",
    "plans.arrays": "Cost", "plans.plan": "Plan", "serve.widget": "widget",
}, "cases causal cluster compat draw errors formats graphs interop learn published screen series serve")  # fmt: skip
