"""Imports on first use: of a package's public names, and of higher layers.

All other modules of jtgpu import from their own layer or a lower one.

Some methods need modules of higher layers: ``net.plan()``, ``net.compile()`` (with ``plan.compile()``),
``tree.predict_proba()`` (with ``tree.predict()``, and on a cluster), ``cases.answer_file()`` with numbers,
``tree.serve()``, ``_repr_html_()``, and ``draw()`` of a posterior over structures. The functions of this module
import these on the first call, so a program that only reads networks never imports the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..errors import UnknownAttribute
from .arguments import check_keywords_of
from .attributes import other_way

if TYPE_CHECKING:  # what these methods return; pyproject.toml exempts these imports from the layers
    from ..decisions.tree import DecisionTree as DecisionTree
    from ..draw.drawing import Drawing as Drawing
    from ..dynamic.numbers import MixedDynamicTree as MixedDynamicTree
    from ..dynamic.tree import DynamicTree as DynamicTree
    from ..inference.network_plan import NetworkPlan as NetworkPlan
    from ..inference.tree import JunctionTree as JunctionTree
    from ..mixed.tree import MixedTree as MixedTree
    from ..serve import Server as Server

PACKAGE = __name__.partition(".")[0]
# function -> the module that it imports
MODULES = {
    "planning": "inference.planning", "compiling": "inference.tree", "cases": "cases", "cluster": "cluster",
    "causal": "causal", "decisions": "decisions.tree", "relevance": "decisions.relevance",
    "dynamic": "dynamic.tree", "dynamic_numbers": "dynamic.numbers",
    "html": "draw.html", "number_fits": "learn.parameters.value_steps",
    "mixed": "mixed.tree", "mixed_files": "mixed.files", "serving": "serve", "structures": "draw.structures",
    "validations": "draw.validation",
}  # fmt: skip


def public_names(
    package: str, homes: Mapping[str, str], modules: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package that imports its public names on first use."""
    # homes: a module of the package -> the names that it defines, separated by spaces
    # modules: public modules of the package, separated by spaces
    home = {name: module for module, names in homes.items() for name in names.split()}
    public = modules.split()

    def get(name: str) -> Any:
        if name in public:
            return import_module(f".{name}", package)
        if name not in home:
            raise UnknownAttribute(f"the package {package} has no {name!r}{other_way(name, [*home, *public])}")
        module = import_module(f".{home[name]}", package)
        value = getattr(module, name)
        if isinstance(value, FunctionType) and not hasattr(value, "__wrapped__"):
            value = check_keywords_of()(value)
            setattr(sys.modules[value.__module__], name, value)  # where pickle looks for it
        vars(sys.modules[package])[name] = value
        return value

    def listed() -> list[str]:
        return sorted({*sys.modules[package].__all__, *home, *public})

    return get, listed


def planning() -> Any:
    """``net.plan()``: the module `jtgpu.inference.planning`."""
    return _open("planning")


def dynamic() -> Any:
    """``dyn.compile()`` of a dynamic network: the module `jtgpu.dynamic.tree`."""
    return _open("dynamic")


def dynamic_numbers() -> Any:
    """``dyn.compile()`` of a dynamic network with numbers: the module `jtgpu.dynamic.numbers`."""
    return _open("dynamic_numbers")


def compiling() -> Any:
    """``net.compile()``: the module `jtgpu.inference.tree`."""
    return _open("compiling")


def cases() -> Any:
    """``tree.predict_proba()``: the package `jtgpu.cases`."""
    return _open("cases")


def causal() -> Any:
    """``tree.ask("ADJUST(...)")``: the package `jtgpu.causal`."""
    return _open("causal")


def cluster() -> Any:
    """``tree.predict_proba(cluster=...)``: the package `jtgpu.cluster`, which answers parts of a table elsewhere."""
    return _open("cluster")


def decisions() -> Any:
    """``net.compile()`` of a decision network: the module `jtgpu.decisions.tree`."""
    return _open("decisions")


def relevance() -> Any:
    """``net.no_forgetting()`` and ``net.requisite()``: the module `jtgpu.decisions.relevance`."""
    return _open("relevance")


def mixed() -> Any:
    """``net.compile()`` of a mixed network: the module `jtgpu.mixed.tree`."""
    return _open("mixed")


def mixed_files() -> Any:
    """``cases.answer_file()`` of a mixed network: the module `jtgpu.mixed.files`."""
    return _open("mixed_files")


def number_fits() -> Any:
    """``fit.standard_errors()`` of a mixed network: the module `jtgpu.learn.parameters.value_steps`."""
    return _open("number_fits")


def serving() -> Any:
    """``tree.serve()``: the package `jtgpu.serve`."""
    return _open("serving")


def structures() -> Any:
    """``posterior.draw()``: the module `jtgpu.draw.structures`."""
    return _open("structures")


def validations() -> Any:
    """``validation.draw()``: the module `jtgpu.draw.validation`."""
    return _open("validations")


def waterfall(thing: object) -> Drawing:
    """``contributions.draw()``: a picture by the module `jtgpu.draw.html`."""
    drawing: Drawing = _open("html").draw_waterfall(thing)
    return drawing


def html(thing: object) -> str:
    """``_repr_html_()`` of an object: what a notebook shows, from the module `jtgpu.draw.html`."""
    text: str = _open("html").html(thing)
    return text


class Shown:
    """An object that a notebook shows as a picture, a table, or both."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return html(self)


def _open(name: str) -> Any:
    return import_module(f"{PACKAGE}.{MODULES[name]}")
