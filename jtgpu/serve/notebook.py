"""`NetworkWidget`: the page as a widget of notebooks, with evidence as traits."""

from __future__ import annotations

import logging
from typing import Any

import anywidget
import msgspec
import traitlets

from ..errors import ArgumentError, JtgpuError
from ..inference.evidence import read_known
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from .map_layout import map_layout, overview
from .networks import cpt, description
from .page_module import page_module, page_style
from .questions import answer
from .requests import problem

NAME = "network"  # of the only network that the page of a notebook has
KINDS = ("evidence", "likelihood", "soft", "do")

_log = logging.getLogger("jtgpu.serve")


class NetworkWidget(anywidget.AnyWidget):
    """A live page of a compiled network; see `jtgpu.widget`."""

    _esm = page_module()
    _css = page_style()
    evidence = traitlets.Dict().tag(sync=True)
    likelihood = traitlets.Dict().tag(sync=True)
    soft = traitlets.Dict().tag(sync=True)
    do = traitlets.Dict().tag(sync=True)
    targets: Any = traitlets.List().tag(sync=True)
    height = traitlets.Int(620).tag(sync=True)

    def __init__(self, tree: JunctionTree, **traits: Any):
        self._tree = tree
        super().__init__(**traits)
        self.on_msg(self._receive)

    @traitlets.validate(*KINDS)
    def _checked(self, proposal: Any) -> Any:
        kind, value, model = proposal["trait"].name, proposal["value"], self._tree.model
        read_known(model, **{kind: value})
        if kind in ("evidence", "do"):  # numbers mean what they mean in Python: the page gets the names
            return {v: _named(model, v, given, kind == "evidence") for v, given in value.items()}
        return value

    @traitlets.validate("targets")
    def _checked_targets(self, proposal: Any) -> Any:
        return [self._tree.model.variables[self._tree.model.index(name)] for name in proposal["value"]]

    def _receive(self, _widget: object, message: object, _buffers: object) -> None:
        """Answer a message of the page."""
        if isinstance(message, dict) and "id" in message:
            self.send(self.reply(message))

    def reply(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message, or the problem."""
        # message: ``id``, ``method`` (a method of ``page/api.js``) and ``arguments``
        try:
            answered = _answer(self._tree, str(message.get("method")), list(message.get("arguments") or []))
        except Exception as error:
            if not isinstance(error, (JtgpuError, msgspec.MsgspecError)):
                _log.exception("a question of the page failed")
            return {"id": message["id"], "problem": problem(error, self._tree.model)}
        return {"id": message["id"], "answer": answered}


def _named(model: DiscreteModel, v: str, given: object, are_states: bool) -> Any:
    """A number, or each of a list of states, as the name of its state; as its number if states share the name."""
    if isinstance(given, list):
        return [_named(model, v, state, are_states) for state in given] if are_states else given
    if not isinstance(given, (int, float)):
        return given
    number = model.state_index(v, given)
    name = model.states(v)[number]
    return name if model.states(v).count(name) == 1 else int(number)


def _answer(tree: JunctionTree, method: str, arguments: list[Any]) -> Any:
    match method, arguments:
        case "network", []:
            return description(NAME, tree)
        case "layout", [nodes, [width, height]]:
            return map_layout(tree.model, nodes, (width, height))
        case "overview", []:
            return overview(tree.model)
        case "cpt", [str(name)]:
            return cpt(tree, name)
        case "ask", [str(question), dict(body)]:
            return answer(tree, question, body)
    raise ArgumentError(f"the page has no question {method!r} with {len(arguments)} arguments")
