"""`VariableElimination` of pgmpy, computed on a junction tree.

The network is compiled once, on construction, not in each query; the elimination order of a query is ignored. Results
are `DiscreteFactor` objects of pgmpy.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from ..interop.pgmpy import read_pgmpy
from ..model.states import StateNumber
from ..util.arrays import Floats
from ..util.options import BackendName

__all__ = ["VariableElimination"]


class VariableElimination:
    """Exact inference in a pgmpy model; a drop-in replacement for `pgmpy.inference.VariableElimination`.

    Parameters
    ----------
    model : DiscreteBayesianNetwork, BayesianNetwork, DiscreteMarkovNetwork or similar
        A model of pgmpy.
    backend : str
        See `jtgpu.BayesianNetwork.compile`.
    **options
        See `jtgpu.BayesianNetwork.plan`: ``order``, ``memory_limit`` ...
    """

    def __init__(self, model: Any, backend: BackendName = "auto", **options: Any):
        self.model = model
        self._read = read_pgmpy(model)
        self._ours = {name: v for v, name in self._read.names.items()}
        self._tree = self._read.model.compile(backend, **options)

    def query(
        self,
        variables: Iterable[Hashable],
        evidence: Mapping[Any, object] | None = None,
        virtual_evidence: Iterable[object] | None = None,
        elimination_order: object = "greedy",
        joint: bool = True,
        show_progress: bool = True,
    ) -> Any:
        """Compute the posterior of variables given evidence.

        Parameters
        ----------
        variables : list
        evidence : dict, optional
            Variable to the name of its state.
        virtual_evidence : list of TabularCPD or DiscreteFactor, optional
            P(observation | state) of one variable each.
        elimination_order, show_progress
            Ignored.
        joint : bool
            Whether to return one joint table of the variables, or a dict with a table for each.

        Returns
        -------
        DiscreteFactor, or dict of variable to DiscreteFactor

        Raises
        ------
        ValueError
            If a variable is not in the model, or is both a query variable and observed.
        KeyError
            If a variable has no such state.
        """
        wanted, findings, weights = self._converted(variables, evidence, virtual_evidence)
        if joint and len(wanted) > 1:
            return self._factor(wanted, np.asarray(self._tree.joint(wanted, findings, likelihood=weights)))
        answer = self._tree.posteriors(findings, likelihood=weights, targets=wanted)
        factors = {self._read.names[v]: self._factor([v], np.asarray(answer[v])) for v in wanted}
        return next(iter(factors.values())) if joint else factors

    def map_query(
        self,
        variables: Iterable[Hashable] | None = None,
        evidence: Mapping[Any, object] | None = None,
        virtual_evidence: Iterable[object] | None = None,
        elimination_order: object = "MinFill",
        show_progress: bool = True,
    ) -> dict[Hashable, Any]:
        """Find the most probable configuration of variables, all others summed out.

        Parameters
        ----------
        variables : list, optional
            Default: all variables that are not observed.
        evidence, virtual_evidence, elimination_order, show_progress
            See `query`.

        Returns
        -------
        dict of variable to state
        """
        observed = set(evidence or {})
        if variables is None:
            variables = [name for name in self._read.names.values() if name not in observed]
        wanted, findings, weights = self._converted(variables, evidence, virtual_evidence)
        rest = len(self._read.model) - len(findings) - len(wanted)
        if rest == 0:
            best = self._tree.mpe(findings, likelihood=weights)
        else:
            best = self._tree.map(wanted, findings, likelihood=weights)
        number = {v: int(best.states[self._read.model.index(v)]) for v in wanted}
        return {self._read.names[v]: self._read.labels[v][number[v]] for v in wanted}

    # Names ----------------------------------------------------------------------------------------------------

    def _variable(self, name: Hashable) -> str:
        if name not in self._ours:
            raise ValueError(f"{name!r} is not a node of the model")
        return self._ours[name]

    def _converted(
        self, variables: Iterable[Hashable], evidence: Mapping[Any, object] | None, virtual: Iterable[object] | None
    ) -> tuple[list[str], dict[str, int], dict[str, Floats]]:
        """Names of the query variables, state numbers of the evidence, and likelihoods, as jtgpu takes them."""
        if isinstance(variables, str):
            raise TypeError("variables must be a list, not a string")
        names = list(variables)
        both = set(names) & set(evidence or {})
        if both:
            raise ValueError(f"query variables must not be observed: {sorted(map(str, both))}")
        if not names:
            raise ValueError("variables must not be empty")
        findings: dict[str, int] = {}
        for name, state in (evidence or {}).items():
            v = self._variable(name)
            if state not in self._read.labels[v]:
                raise KeyError(f"{name!r} has no state {state!r}; its states are {list(self._read.labels[v])}")
            findings[v] = StateNumber(self._read.labels[v].index(state))
        weights: dict[str, Floats] = {}
        for factor in virtual or ():
            v, vector = self._weights(factor)
            weights[v] = weights[v] * vector if v in weights else vector
        return [self._variable(name) for name in names], findings, weights

    def _weights(self, factor: Any) -> tuple[str, Floats]:
        if len(factor.variables) != 1:
            raise ValueError(f"virtual evidence must be on one variable, got {list(factor.variables)}")
        v = self._variable(factor.variables[0])
        values = np.asarray(factor.values, np.float64).ravel()
        labels = self._read.labels[v]
        theirs = list((getattr(factor, "state_names", None) or {}).get(factor.variables[0], labels))
        if len(theirs) != len(labels) or values.size != len(labels):
            raise ValueError(
                f"virtual evidence on {factor.variables[0]!r} must have {len(labels)} numbers, got {values.size}"
            )
        if set(theirs) == set(labels):
            values = values[[theirs.index(s) for s in labels]]
        return v, values

    def _factor(self, variables: list[str], table: Floats) -> Any:
        from pgmpy.factors.discrete import DiscreteFactor

        names = [self._read.names[v] for v in variables]
        labels = {name: list(self._read.labels[v]) for name, v in zip(names, variables, strict=True)}
        return DiscreteFactor(names, list(table.shape), table.ravel().copy(), state_names=labels)
