"""The result of fitting a mixed network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..model.mixed import MixedNetwork
from ..util import late_imports
from ..util.arguments import check_keywords
from .standard_errors import GaussianErrors, errors_of_number, errors_of_states

if TYPE_CHECKING:
    from ..util.arrays import Floats
    from ..util.iteration import Iteration


@check_keywords()
@dataclass(frozen=True, eq=False)
class MixedFit:
    """The result of `jtgpu.learn.fit` with numbers.

    Attributes
    ----------
    network : MixedNetwork
    log_likelihood : float
        Sum of ln P of the rows (densities in the units of the columns), weighted.
    objective : float
        `log_likelihood` plus the ln prior, up to a constant: what was maximised.
    history : tuple of Iteration
    converged : bool
    method : {"counts", "em"}
    n_rows : int
        Rows that were fitted.
    n_dropped : int
        Rows that were left out because of missing cells (``missing="drop"``).
    empty_rows : dict
        Number or variable to the configurations of its discrete parents without any row: their parameters are those
        of the prior. At most 1,000 are listed.
    n_empty_rows : dict
        How many these are.
    n_impossible : int
        Rows that were left out because their probability was 0 at the start.
    restarts : tuple of float
        The objective that each start of EM reached.
    hidden, fixed : tuple of str
    missing : dict
        Missing cells of each column that has some.
    interrupted : bool
        Whether Ctrl-C ended EM: the network is that of the last whole iteration.
    """

    network: MixedNetwork
    log_likelihood: float
    objective: float
    history: tuple[Iteration, ...]
    converged: bool
    method: str
    n_rows: int
    n_dropped: int = 0
    empty_rows: Mapping[str, list[dict[str, str]]] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    interrupted: bool = False
    n_empty_rows: Mapping[str, int] = field(default_factory=dict)
    n_impossible: int = 0
    restarts: tuple[float, ...] = ()
    hidden: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    _rows: tuple[Any, ...] | None = field(default=None, repr=False)  # weighted cases, prior, and what was estimated
    _errors: dict[str, GaussianErrors | Floats] = field(default_factory=dict, repr=False)  # of EM, once computed

    def standard_errors(self, variable: str) -> GaussianErrors | Floats:
        """Standard errors of the parameters of a variable; infinite where the rows do not determine them.

        With missing cells they come from the observed information of all parameters together: the curvature of the
        objective, by differences of the expected score, a pass over incomplete rows for each parameter.

        Parameters
        ----------
        variable : str

        Returns
        -------
        GaussianErrors or ndarray
            Of a number: ``.mean``, ``.coefficients`` and ``.sd`` with the axes of its `jtgpu.Gaussian`. Else an array
            of the shape of the CPT.

        Raises
        ------
        ArgumentError
            If EM stopped far from a peak of the objective, or the network has more than 2,000 parameters.
        """
        net = self.network
        name = net.variables[net.index(variable)]
        if self._rows is None:
            raise ArgumentError("this fit has no rows, so it has no standard errors")
        if self.method == "counts":
            return (errors_of_number if net.is_number(name) else errors_of_states)(net, name, *self._rows[:2])
        if not self._errors:
            self._errors.update(late_imports.number_fits().errors_after_em(net, *self._rows))
        return self._errors[name]

    def __str__(self) -> str:
        how = "by counting" if self.method == "counts" else f"by EM in {self.history[-1].number} iterations"
        end = "" if self.converged else ", interrupted" if self.interrupted else ", not converged"
        return f"Fit of {self.n_rows:,} rows {how}{end}: log_likelihood={self.log_likelihood:.6g}\n{self.network}" + (
            f"\nWithout data, from the prior: {', '.join(f'{v} ({n:,})' for v, n in self.n_empty_rows.items())}"
            if self.n_empty_rows
            else ""
        )

    __repr__ = __str__
