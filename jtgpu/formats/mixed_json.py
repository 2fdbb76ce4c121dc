"""JSON of mixed networks, ``.mixed.json``: reader and writer.

An object ``{"format": "jtgpu mixed network", "version": 1, "name": ..., "variables": {...}}``. Each variable has
``parents`` (a list of names), and either ``states`` and ``cpt``, or ``mean``, ``coefficients`` and ``sd``; arrays are
nested lists whose axes are the discrete parents in order, of a CPT also the states of the variable. ``attributes``,
which may be absent, has what other files keep: labels, positions, ends of intervals.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ..errors import NetworkError, ParseError, shown
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork
from .text import json_text, load_json

FORMAT = "jtgpu mixed network"
_START = re.compile(rf'\s*\{{\s*"format"\s*:\s*"{FORMAT}"')
_STATES, _NUMBER = {"parents", "states", "cpt"}, {"parents", "mean", "coefficients", "sd"}


def sniff(text: str) -> bool:
    """Whether a text begins like a file of this format."""
    return _START.match(text) is not None


def parse(text: str, source: str = "<text>", **_: object) -> MixedNetwork:
    """The network of a text; raises `ParseError`."""
    try:
        return _network(load_json(text), source)
    except json.JSONDecodeError as error:
        raise ParseError(f"invalid JSON: {error.msg}", source, error.lineno, error.colno) from None
    except RecursionError:
        raise ParseError("lists nested too deeply", source, None, None) from None
    except NetworkError as error:
        raise ParseError(str(error), source, None, None) from None


def _network(given: object, source: str) -> MixedNetwork:
    def fail(message: str) -> ParseError:
        return ParseError(message, source, None, None)

    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise fail(f'expected an object with "format": "{FORMAT}"')
    version = given.get("version")
    if version != 1:
        raise fail(f"found the version {shown(version)}, expected 1")
    variables = given.get("variables")
    if not isinstance(variables, dict):
        raise fail('expected "variables", an object from names to variables')
    states: dict[str, Any] = {}
    parents: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for v, about in variables.items():
        keys = set(about) if isinstance(about, dict) else set()
        wanted = _STATES if "states" in keys else _NUMBER
        if keys != wanted:
            raise fail(f"variable {v!r} has {sorted(keys)}, expected {sorted(_STATES)} or {sorted(_NUMBER)}")
        parents[v] = about["parents"]
        if not isinstance(parents[v], list) or not all(isinstance(p, str) for p in parents[v]):
            raise fail(f"the parents of {v!r} must be a list of names, got {shown(parents[v])}")
        if wanted is _STATES:
            states[v], parameters[v] = about["states"], about["cpt"]
            if not isinstance(states[v], list) or not all(isinstance(s, str) for s in states[v]):
                raise fail(f"the states of {v!r} must be a list of names, got {shown(states[v])}")
        else:
            states[v] = float
            parameters[v] = Gaussian(about["mean"], about["coefficients"], about["sd"])
    name, attributes = given.get("name", ""), _tuples(given.get("attributes", {}))
    if not isinstance(attributes, dict) or not all(isinstance(x, dict) for x in attributes.values()):
        raise fail(f'"attributes" must be an object of objects, got {shown(attributes)}')
    named = name if isinstance(name, str) else ""
    return MixedNetwork(states, parents, parameters, name=named, attributes=attributes)


def _tuples(value: object) -> Any:
    """Lists of attributes as tuples."""
    if isinstance(value, dict):
        return {key: _tuples(x) for key, x in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def dumps_mixed(net: MixedNetwork) -> str:
    """The text of a file with a mixed network; it reads back equal, bit for bit."""
    variables: dict[str, Any] = {}
    for v in net:
        about: dict[str, Any] = {"parents": list(net.parents(v))}
        if net.is_number(v):
            density = net.gaussian(v)
            coefficients = {p: c.tolist() for p, c in density.coefficients.items()}
            about |= {"mean": density.mean.tolist(), "coefficients": coefficients, "sd": density.sd.tolist()}
        else:
            about |= {"states": list(net.states(v)), "cpt": net.cpt(v).tolist()}
        variables[v] = about
    head = json_text({"format": FORMAT, "version": 1, "name": net.name})[:-1]
    lines = [f"  {json_text(v)}: {json_text(about)}" for v, about in variables.items()]
    kept = {kind: dict(x) for kind, x in net.attributes.items() if x and kind in ("net", "node", "potential")}
    more = f',\n"attributes": {json_text(kept)}' if kept else ""
    return f'{head}, "variables": {{\n' + ",\n".join(lines) + f"\n}}{more}}}\n"
