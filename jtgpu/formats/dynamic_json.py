"""JSON of dynamic networks, ``.dynamic.json``: reader and writer.

An object ``{"format": "jtgpu dynamic network", "version": 1, "name": ..., "variables": {...}}``. Each variable has
``states``, ``parents`` (a name for the same slice, ``["rain", 1]`` for one slice earlier) and ``cpt``, nested lists
whose axes are the parents in order, then the states. Variables with parents in earlier slices also have ``start``, a
list of their CPTs in the first slices, and those that exist once for all slices ``"static": true``. A number has
``parents`` and ``gaussian``, an object with ``mean``, ``coefficients`` and ``sd``, and perhaps ``start``, a list of
such objects; the network is a `jtgpu.MixedDynamicNetwork` then.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ..errors import NetworkError, ParseError, near, shown
from ..model.dynamic import DynamicNetwork
from ..model.gaussian import Gaussian
from ..model.mixed_dynamic import MixedDynamicNetwork
from .text import SourceText, json_text, load_json

FORMAT = "jtgpu dynamic network"
_START = re.compile(rf'\s*\{{\s*"format"\s*:\s*"{FORMAT}"')
_HEAD = ("format", "version", "name", "variables")
_REQUIRED, _ALLOWED = ("states", "parents", "cpt"), ("start", "static")
_NUMBER, _GAUSSIAN = ("parents", "gaussian"), ("mean", "coefficients", "sd")
_QUOTED, _LABEL = re.compile(r"'((?:[^'\\]|\\.)*)'"), re.compile(r"\[t(-\d+)?\]$")


def sniff(text: str) -> bool:
    """Whether a text begins like a file of this format."""
    return _START.match(text) is not None


def parse(text: str, source: str = "<text>", **_: object) -> DynamicNetwork | MixedDynamicNetwork:
    """The network of a text; raises `ParseError`."""
    return _JsonReader(SourceText(text, source)).network()


class _JsonReader:
    """Values of a JSON text, and where its variables are declared, for errors."""

    def __init__(self, source: SourceText):
        self.source = source

    def error(self, message: str, variable: str | None = None) -> ParseError:
        """An error at the declaration of a variable, or at the beginning of the text."""
        at = 0
        for name in () if variable is None else {json.dumps(variable), json_text(variable)}:
            match = re.compile(rf"{re.escape(name)}\s*:\s*\{{").search(self.source.text, self.begin)
            at = match.start() if match else at
        return self.source.error(at, message)

    def network(self) -> DynamicNetwork | MixedDynamicNetwork:
        text = self.source.text
        listed = re.search(r'"variables"\s*:\s*\{', text)
        self.begin = listed.end() if listed else 0
        try:
            return self.make(load_json(text))
        except json.JSONDecodeError as error:
            place = error.lineno, error.colno
            raise ParseError(f"invalid JSON: {error.msg}", self.source.name, *place) from None
        except RecursionError:
            raise self.error("lists nested too deeply") from None
        except NetworkError as error:
            words = (_LABEL.sub("", v) for v in _QUOTED.findall(str(error)))
            raise self.error(str(error), next((v for v in words if v in self.names), None)) from None

    names: frozenset[str] = frozenset()
    begin = 0

    def make(self, given: object) -> DynamicNetwork | MixedDynamicNetwork:
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise self.error(f'expected an object with "format": "{FORMAT}"')
        if given.get("version") != 1:
            raise self.error(f"found the version {shown(given.get('version'))}, expected 1")
        odd = next((key for key in given if key not in _HEAD), None)
        if odd is not None:
            raise self.error(f"found {shown(odd)} in the network{near(odd, _HEAD)}; expected {', '.join(_HEAD)}")
        name, variables = given.get("name", ""), given.get("variables")
        if not isinstance(name, str):
            raise self.error(f"found the name {shown(name)}, expected a string")
        if not isinstance(variables, dict):
            raise self.error('expected "variables", an object from names to variables')
        self.names = frozenset(variables)
        parts: dict[str, dict[str, Any]] = {key: {} for key in ("states", "parents", "cpt", "start")}
        static = []
        for v, about in variables.items():
            self.check(v, about)
            is_number = "gaussian" in about
            tables_of = self.gaussian if is_number else _tables
            parts["states"][v] = float if is_number else about["states"]
            parts["cpt"][v] = tables_of(about["gaussian" if is_number else "cpt"])
            parts["parents"][v] = [tuple(p) if isinstance(p, list) else p for p in about["parents"]]
            if tables := [tables_of(t) for t in about.get("start", [])]:
                m = max((p[1] for p in about["parents"] if isinstance(p, list)), default=0)
                parts["start"][v] = tables[0] if m == len(tables) == 1 else tables
            if about.get("static"):
                static.append(v)
        kind = MixedDynamicNetwork if float in parts["states"].values() else DynamicNetwork
        return kind(
            parts["states"], parts["parents"], parts["cpt"], start=parts["start"], static=static, name=name
        )

    def gaussian(self, about: object) -> Gaussian:
        """The density of a number."""
        if not isinstance(about, dict) or set(about) != {*_GAUSSIAN} or not isinstance(about["coefficients"], dict):
            raise self.error(f"found the gaussian {shown(about)}, expected an object with {', '.join(_GAUSSIAN)}")
        coefficients = {p: _tables(c) for p, c in about["coefficients"].items()}
        return Gaussian(_tables(about["mean"]), coefficients, _tables(about["sd"]))

    def check(self, v: str, about: Any) -> None:
        """Raise unless a variable has the keys that it needs, of the right kinds."""
        keys = set(about) if isinstance(about, dict) else set()
        if "gaussian" in keys and not keys - {*_NUMBER, "start"} and "parents" in keys:
            about = {"states": [], **about}
        elif not keys >= {*_REQUIRED} or not keys <= {*_REQUIRED, *_ALLOWED}:
            raise self.error(
                f"variable {v!r} has {sorted(keys)}, expected {', '.join(_REQUIRED)}, and perhaps "
                f"{' and '.join(_ALLOWED)}", v,
            )  # fmt: skip
        if not _are(about["states"], str):
            raise self.error(f"the states of {v!r} must be a list of names, got {shown(about['states'])}", v)
        pairs = [p for p in about["parents"] if isinstance(p, list)] if isinstance(about["parents"], list) else None
        if pairs is None or not _are(about["parents"], (str, list)) or not all(_is_pair(p) for p in pairs):
            raise self.error(
                f'the parents of {v!r} must be a list of names and of pairs such as ["rain", 1], got '
                f"{shown(about['parents'])}", v,
            )  # fmt: skip
        if not isinstance(about.get("start", []), list):
            raise self.error(f"the start of {v!r} must be a list of tables, got {shown(about['start'])}", v)
        if not isinstance(about.get("static", False), bool):
            raise self.error(f"static of {v!r} must be true or false, got {shown(about['static'])}", v)


def _are(given: Any, kind: Any) -> bool:
    return isinstance(given, list) and all(isinstance(x, kind) for x in given)


def _is_pair(given: Any) -> bool:
    """Whether this is a name and a lag."""
    return len(given) == 2 and isinstance(given[0], str) and isinstance(given[1], int) and type(given[1]) is not bool


def _tables(given: object) -> Any:
    """Nested lists of numbers; anything else is an error of the file."""
    if isinstance(given, list):
        for item in given:
            _tables(item)
    elif isinstance(given, bool) or not isinstance(given, (int, float)):
        raise NetworkError(f"found {shown(given)} in a table, expected a number")
    return given


def dumps_dynamic(net: DynamicNetwork | MixedDynamicNetwork) -> str:
    """The text of a file with a dynamic network; it reads back equal, bit for bit."""
    dyn = net if isinstance(net, DynamicNetwork) else net.discrete
    static = set(dyn.static)
    lines = []
    for v in net:
        about: dict[str, Any] = {"static": True} if v in static else {}
        parents = [[p, lag] if lag else p for p, lag in net.parents(v)]
        if isinstance(net, MixedDynamicNetwork) and v in net.numbers:
            about["parents"] = parents
            *start, about["gaussian"] = (
                {"mean": g.mean.tolist(), "coefficients": {p: c.tolist() for p, c in g.coefficients.items()},
                 "sd": g.sd.tolist()} for g in net.gaussians(v)
            )  # fmt: skip
        else:
            about |= {"states": list(dyn.states(v)), "parents": parents, "cpt": dyn.cpt(v).tolist()}
            start = [table.tolist() for table in dyn.start(v)]
        if start:
            about["start"] = start
        lines.append(f"  {json_text(v)}: {json_text(about)}")
    head = json_text({"format": FORMAT, "version": 1, "name": net.name})[:-1]
    return f'{head}, "variables": {{\n' + ",\n".join(lines) + "\n}}\n"
