"""``jtgpu fit`` of networks with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from click import BadParameter

from ..errors import DataError
from ..learn.parameters.numbers import KINDS
from ..mixed.standard_errors import GaussianErrors
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..options.tables import ReadOptions
from .console import reading
from .networks import split_names

if TYPE_CHECKING:
    from ..mixed.fit_result import MixedFit


def kinds_of(given: Sequence[str], variables: Sequence[str]) -> str | dict[str, str]:
    """The argument `continuous` of `jtgpu.learn.fit` from ``--continuous``."""
    if len(given) == 1 and given[0] in KINDS:
        return given[0]
    kinds: dict[str, str] = {}
    for text in ",".join(given).split(","):
        name, equals, kind = text.rpartition("=")
        if kind.strip() not in KINDS or not equals:
            raise BadParameter(
                f"{text!r} is neither {', '.join(KINDS)}, nor NAME=KIND of these", param_hint="--continuous"
            )
        kinds[split_names([name], variables, "variable")[0]] = kind.strip()
    return kinds


def fit_numbers(
    net: DiscreteModel | MixedNetwork, cases: Sequence[str], numbers: Sequence[str] | None, from_data: bool,
    read: ReadOptions, options: dict[str, Any],
) -> MixedFit:  # fmt: skip
    """Fit the parameters of a network with numbers to one file."""
    # options: keywords of `jtgpu.learn.fit`
    if len(cases) > 1:
        raise DataError(f"networks with numbers are fitted to one file, got {len(cases)}")
    from ..learn.parameters.fit import fit

    reading(cases[0], read)
    structure: Any = net
    states: dict[str, Any] | None = None
    kinds = None if numbers is None else kinds_of(numbers, [*net])
    if not isinstance(net, MixedNetwork):
        parents: Any = net
        structure = {v: parents.parents(v) for v in net}
        if isinstance(kinds, dict) and not from_data:
            states = {v: net.states(v) for v in net if v not in kinds}
    fitted: MixedFit = cast(Any, fit)(
        structure, cases[0], continuous=kinds, states=states, read=read, **options
    )  # fmt: skip
    return fitted


def report_of(fitted: MixedFit, errors: bool) -> dict[str, Any]:
    """The fit as values that JSON can hold."""
    report = {
        "method": fitted.method, "converged": fitted.converged, "iterations": len(fitted.history) - 1,
        "log_likelihood": fitted.log_likelihood, "objective": fitted.objective, "rows": fitted.n_rows,
        "dropped": fitted.n_dropped, "missing": dict(fitted.missing), "empty_rows": dict(fitted.empty_rows),
        "n_empty_rows": dict(fitted.n_empty_rows),
        "numbers": list(fitted.network.numbers), "interrupted": fitted.interrupted,
    }  # fmt: skip
    if errors and not fitted.interrupted:
        report["standard_errors"] = {v: _plain(fitted.standard_errors(v)) for v in fitted.network}
    return report


def _plain(errors: Any) -> Any:
    """Nested lists, with None for infinities."""
    if isinstance(errors, GaussianErrors):
        slopes = {p: _plain(c) for p, c in errors.coefficients.items()}
        return {"mean": _plain(errors.mean), "coefficients": slopes, "sd": _plain(errors.sd)}
    return np.asarray(np.where(np.isinf(errors), None, errors)).tolist()
