"""Text in: `network`, a Bayesian network from a line of text, and findings, ``name=state``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from ..errors import ArgumentError, EvidenceError, NetworkError, TableTooLarge, UnknownState, UnknownVariable, closest
from ..util.arguments import described, whole_number
from ..util.cells import GROUPED, POINT, UNDECIDED
from .discrete import DiscreteModel
from .network import BayesianNetwork
from .network_text import parse_network, parse_states
from .states import CodesByVariable, StateNumber

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Findings as text: ``name=state``.

def parse_finding(model: DiscreteModel, text: str) -> tuple[str, int | frozenset[int]]:
    """Parse a finding, ``name=state`` or ``name=state,state`` (one of these states).

    Names and states may contain ``=``, ``,`` and spaces. Of all positions of ``=``, the one with the longest variable
    name that is followed by one of its states is used. The state is matched as a name first, then as a number (see
    `jtgpu.model.states`), then as a comma-separated list of either. Spaces around names and states are dropped
    if the text does not match with them.
    """
    # returns Name of the variable.
    # returns int or frozenset of int: Number of the state, or of several states one of which holds.
    # raises EvidenceError: If the text contains no ``=``.
    # raises UnknownVariable, UnknownState: If the model has no such name; the message suggests the closest ones.
    cuts = [i for i, c in enumerate(text) if c == "="]
    if not cuts:
        name, _, state = map(str.strip, text.partition(":"))
        hint = "" if text in model.variables else closest(text, model.variables)
        if state and name in model.variables:
            hint = f"; did you mean '{name}={state}'?"
        raise EvidenceError(f"expected evidence as name=state, got {text!r}{hint}")
    known = set(model.variables)
    refused: UnknownState | None = None
    for cut in reversed(cuts):
        for name in dict.fromkeys((text[:cut], text[:cut].strip())):
            if name not in known:
                continue
            try:
                return name, _states(model, name, text[cut + 1 :])
            except UnknownState as error:
                refused = refused or error
    if refused is not None:
        raise refused
    name = text[: cuts[0]].strip()
    raise UnknownVariable(f"there is no variable {name!r}{closest(name, model.variables)}")


def parse_findings(model: DiscreteModel, texts: Iterable[str]) -> dict[str, int | frozenset[int]]:
    """Parse several findings into the argument `evidence` of `jtgpu.JunctionTree.posteriors`."""
    # raises EvidenceError: As `parse_finding`; also if a variable is given twice.
    # raises UnknownVariable, UnknownState: See `parse_finding`.
    findings: dict[str, int | frozenset[int]] = {}
    for text in texts:
        name, value = parse_finding(model, text)
        if name in findings:
            raise EvidenceError(f"evidence on {name!r} is given twice; write {name}=a,b for several states")
        findings[name] = value
    return findings


def parse_codes(variables: Sequence[str], texts: Sequence[str]) -> CodesByVariable:
    """Parse codes of states: ``index``, or ``xray:1=yes,0=no`` for each variable, for `DiscreteModel.with_codes`."""
    # raises ArgumentError: If a text has another form, or a code is given twice.
    # raises UnknownVariable: If there is no such variable; the message suggests the closest ones.
    if len(texts) == 1 and texts[0] in ("index", "names"):
        return cast(Literal["index", "names"], texts[0])
    codes: dict[str, dict[Any, str]] = {}
    for text in texts:
        cuts = [i for i, c in enumerate(text) if c == ":"]
        at = next((i for i in reversed(cuts) if text[:i].strip() in variables), min(cuts, default=0))
        name, pairs = text[:at].strip(), [p.partition("=") for p in re.split(",(?=[^,=]*=)", text[at + 1 :])]
        if not at or not all(equals and code.strip() for code, equals, _ in pairs):
            raise ArgumentError(f"codes: expected index, or name:code=state such as xray:1=yes,0=no, got {text!r}")
        if name not in variables:
            raise UnknownVariable(f"codes: there is no variable {name!r}{closest(name, variables)}")
        for code, _, state in pairs:
            if codes.setdefault(name, {}).setdefault(code.strip(), state.strip()) != state.strip():
                raise ArgumentError(f"codes: the code {code.strip()!r} of {name!r} has two meanings")
    return codes


def _states(model: DiscreteModel, name: str, text: str) -> int | frozenset[int]:
    values = model.state_values(model.index(name))
    # of intervals, a decimal comma before a list of numbers
    whole = values.find_text(text, POINT if values.intervals is None else UNDECIDED)
    if whole is not None:
        return StateNumber(whole)
    if values.intervals is not None and GROUPED.fullmatch(text.strip()):
        raise EvidenceError(f"{name}={text.strip()} may be {text.replace(',', '').strip()} or "
                            f"{text.replace(',', '.').strip()}; write one of these")  # fmt: skip
    parts = text.split(",")
    states = [values.find_text(part) for part in parts]
    if None not in states:
        return frozenset(StateNumber(cast(int, state)) for state in states)
    # report the part that is wrong, not the whole list
    return model.state_index(name, parts[states.index(None)].strip())  # raises


MAX_CPT = 100_000_000  # entries of a CPT that is filled here


def network(
    structure: str,
    domain: int | str | Sequence[str] = 2,
    *,
    cpts: Mapping[str, ArrayLike | Mapping[Any, object]] | Literal["random", "uniform"] = "random",
    seed: int = 0,
    name: str = "",
) -> BayesianNetwork:
    """Create a Bayesian network from a line of text, in the syntax of pyAgrum's ``fastBN``.

    Parameters
    ----------
    structure : str
        Chains of arcs, separated by ``;`` or newlines: ``"smoke->lung->xray<-tub; smoke->bronc"``. A node without
        arcs stands alone. The parents of a variable are in the order of the arcs. The states follow a name, at any one
        of its occurrences:

        ============== ====================================================================
        ``a[3]``       three states, ``0``, ``1``, ``2``
        ``a[1,5]``     the integers from 1 to 5
        ``a{yes|no}``  these states
        ``a{0:1:5}``   five numbers from 0 to 1: ``0``, ``0.25``, ... ``1``
        ``a[0,18,65]`` the intervals between these limits: ``[0;18[``, ``[18;65]``
        ``a[0:10:5]``  five intervals of equal length from 0 to 10
        ============== ====================================================================

        Names may contain spaces; a name that contains ``- < > , ; = | [ ] { }`` is written in quotes.
    domain : int, str or sequence of str
        States of the other variables: their number, text such as ``"{yes|no}"``, or their names.
    cpts : mapping, "random" or "uniform"
        The CPT of each variable, as an array or by the names of states (see `jtgpu.BayesianNetwork`).
        ``"random"`` draws each row from the uniform distribution over all distributions.
    seed : int
        Seed of the random CPTs: the same structure and seed give the same network.
    name : str, optional

    Returns
    -------
    BayesianNetwork
        The variables are in the order in which they occur.

    Raises
    ------
    ParseError
        If the text has an error; the message has line and column.
    NetworkError
        If the arcs form a cycle, or a CPT is missing or invalid.
    TableTooLarge
        If a CPT to be filled has more than 100,000,000 entries.

    See Also
    --------
    BayesianNetwork.replace : the same network with other CPTs, states or names

    Examples
    --------
    >>> import jtgpu
    >>> net = jtgpu.network(
    ...     "smoke->lung; smoke->bronc",
    ...     "{yes|no}",
    ...     cpts={
    ...         "smoke": [0.5, 0.5],
    ...         "lung": {"yes": [0.1, 0.9], "no": [0.01, 0.99]},
    ...         "bronc": {"yes": {"yes": 0.6, "no": 0.4}, "no": {"yes": 0.3, "no": 0.7}},
    ...     },
    ... )
    >>> print(net)
    Bayesian network: 3 variables, 2 arcs, 5 parameters
    variable  states   parents
    smoke     yes, no
    lung      yes, no  smoke
    bronc     yes, no  smoke
    >>> len(jtgpu.network("a[3]->b<-c; c->d{low|mid|high}", seed=1))
    4
    """
    if not isinstance(structure, str):
        raise ArgumentError(f"structure must be text such as 'a->b<-c', not {described(structure)}")
    states, parents = parse_network(structure, _default_states(domain))
    if isinstance(cpts, Mapping):
        _check_complete(states, cpts)
        return BayesianNetwork(states, parents, cpts, name=name)
    filling: Any = cpts
    if not isinstance(filling, str) or filling not in ("random", "uniform"):
        raise ArgumentError(f'cpts must be a mapping, "random" or "uniform", not {described(cpts)}')
    shapes = {v: [len(states[u]) for u in (*parents.get(v, ()), v)] for v in states}
    for v, shape in shapes.items():
        if math.prod(shape) > MAX_CPT:
            raise TableTooLarge(
                f"the CPT of {v!r} has {math.prod(shape):,} entries ({len(shape) - 1} parents); the limit is "
                f"{MAX_CPT:,}",
                entries=math.prod(shape),
            )
    filled = _uniform(shapes) if cpts == "uniform" else _random(shapes, whole_number("seed", seed, least=0))
    return BayesianNetwork(states, parents, filled, name=name)


def _default_states(domain: int | str | Sequence[str]) -> tuple[str, ...]:
    """States of the variables for which the text gives none."""
    if isinstance(domain, str):
        return parse_states(domain)
    if isinstance(domain, Sequence):
        return tuple(str(s) for s in domain)
    try:
        return parse_states(f"[{operator.index(domain)}]")
    except TypeError:
        raise ArgumentError(
            f"domain must be a number of states, text such as '{{yes|no}}', or names, not {described(domain)}"
        ) from None


def _check_complete(states: Mapping[str, object], cpts: Mapping[str, object]) -> None:
    missing = [v for v in states if v not in cpts]
    if missing and len(missing) < len(states):
        unknown = [v for v in cpts if v not in states]
        if unknown:
            raise NetworkError(f"a CPT given for {unknown[0]!r}, which is not in the text{closest(unknown[0], states)}")
        listed = ", ".join(map(repr, missing[:12])) + (", ..." if len(missing) > 12 else "")
        raise NetworkError(
            f"no CPT is given for {listed}; to fill the others at random, create the network without cpts= and use "
            "net.replace(cpt={...})"
        )


def _uniform(shapes: Mapping[str, Sequence[int]]) -> dict[str, NDArray[np.float64]]:
    return {v: np.full(shape, 1.0 / shape[-1]) for v, shape in shapes.items()}


def _random(shapes: Mapping[str, Sequence[int]], seed: int) -> dict[str, NDArray[np.float64]]:
    """CPTs whose rows are drawn from the uniform distribution over all distributions."""
    rng = np.random.default_rng(seed)
    cpts = {}
    for v, shape in shapes.items():
        table = rng.standard_exponential(shape)
        cpts[v] = table / table.sum(axis=-1, keepdims=True)
    return cpts
