"""``jtgpu fit`` of networks with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from click import BadParameter

from ..errors import DataError
from ..learn.parameters.numbers import KINDS
from ..model.discrete import DiscreteModel
from ..model.mixed import MixedNetwork
from ..options.tables import ReadOptions
from .console import reading
from .networks import split_names

if TYPE_CHECKING:
    from ..learn.parameters.result import Fit


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
) -> Fit[MixedNetwork]:  # fmt: skip
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
    fitted: Fit[MixedNetwork] = cast(Any, fit)(
        structure, cases[0], continuous=kinds, states=states, read=read, **options
    )  # fmt: skip
    return fitted
