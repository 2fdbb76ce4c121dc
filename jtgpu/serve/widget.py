"""The page in a notebook: `widget`, through anywidget."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..draw import show
from ..errors import ArgumentError, JtgpuError
from ..inference.evidence import Findings, read_known
from ..inference.tree import JunctionTree
from ..model.directed import DirectedModel
from ..util.arguments import described
from .map_layout import map_layout, overview

__all__ = ["page_module", "widget"]

PAGE = Path(__file__).resolve().parent / "page"
KINDS = ("evidence", "likelihood", "soft", "do")
NAME = "network"  # of the only network that the page of a notebook knows
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w]+\.js)";\n', re.MULTILINE)


def widget(tree: JunctionTree, evidence: Findings | None = None, *, height: int = 620, **more: Any) -> Any:
    """Show a compiled network as a live page in a notebook: click a state to observe it.

    Parameters
    ----------
    tree : JunctionTree
    evidence, likelihood, soft, do : mapping, optional
        The evidence to start with; see `jtgpu.JunctionTree.posteriors`.
    height : int, default 620
        Pixels.

    Returns
    -------
    anywidget.AnyWidget or Drawing
        A widget with the traits ``evidence``, ``likelihood``, ``soft`` and ``do`` (dicts) and ``targets`` (a list of names).
        They follow the page, and the page follows them. Without the packages anywidget and msgspec
        (``pip install 'jtgpu[notebook]'``), a picture: see `jtgpu.draw.show`.

    Raises
    ------
    ArgumentError
        If `tree` is not a compiled network.
    EvidenceError
        If the evidence is not that of the network.

    Examples
    --------
    >>> import jtgpu
    >>> tree = jtgpu.load("asia").compile("reference")
    >>> page = jtgpu.widget(tree, {"xray": "yes"})  # doctest: +SKIP
    >>> page.evidence  # after a click on "yes" of smoke  # doctest: +SKIP
    {'xray': 'yes', 'smoke': 'yes'}
    """
    if not isinstance(tree, JunctionTree):
        raise ArgumentError(f"widget shows a compiled model (jtgpu.JunctionTree), not {described(tree)}")
    unknown = more.keys() - set(KINDS)
    if unknown:
        raise ArgumentError(f"unexpected argument {min(unknown)!r}")
    read_known(tree.model, evidence, **more)
    try:
        import anywidget  # noqa: F401 (is it there?)
        import msgspec  # noqa: F401
    except ImportError:
        return show(tree, evidence, **more)
    given = {kind: _plain(part) for kind, part in {"evidence": evidence, **more}.items()}
    return _widget_class()(tree=tree, height=int(height), **given)


def _plain(part: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Evidence as JSON: sets and arrays become lists."""

    def plain(value: Any) -> Any:
        if isinstance(value, (set, frozenset)):
            return sorted(value, key=str)
        if isinstance(value, Mapping):
            return {str(k): plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        return value.tolist() if hasattr(value, "tolist") else value

    return {str(name): plain(value) for name, value in dict(part or {}).items()}


@lru_cache(1)
def page_module(entry: str = "widget.js") -> str:
    """The modules of the page as one module: imports are dropped, and what a module needs stands before it.

    The modules import names without renaming and have distinct names at their top level, which a test checks.
    """
    order: dict[str, str] = {}

    def add(name: str) -> None:
        if name in order:
            return
        text = (PAGE / name).read_text(encoding="utf-8")
        order[name] = ""  # circular imports are an error of the page
        for needed in _IMPORT.findall(text):
            add(needed)
        del order[name]
        order[name] = _IMPORT.sub("", text)

    add(entry)
    *before, last = order.values()
    return "\n".join(
        [re.sub(r"^export (?=class|function|const|async)", "", text, flags=re.MULTILINE) for text in before] + [last]
    )


class _Answers:
    """Answers to the messages of the page, which are those of the HTTP API."""

    def __init__(self, tree: JunctionTree):
        self._tree = tree

    def answer(self, method: str, arguments: list[Any]) -> Any:
        """The answer to a call of `api.js`; errors are raised."""
        from .networks import description
        from .questions import answer

        if method == "network":
            return description(NAME, self._tree)
        if method == "layout":
            return map_layout(self._tree.model, arguments[0])
        if method == "overview":
            return overview(self._tree.model)
        if method == "cpt":
            return self._cpt(str(arguments[0]))
        if method == "ask":
            question, body = arguments
            cases = body.pop("cases", None)
            if cases is None:
                return answer(self._tree, str(question), body)
            return {"results": [self._case(str(question), {**body, **case}) for case in cases]}
        raise ArgumentError(f"there is no question {method!r}")

    def _case(self, question: str, body: dict[str, Any]) -> dict[str, Any]:
        from .problems import problem
        from .questions import answer

        try:
            return answer(self._tree, question, body)
        except JtgpuError as error:
            return {"error": problem(error, self._tree.model, body)}

    def _cpt(self, name: str) -> dict[str, Any]:
        model = self._tree.model
        if not isinstance(model, DirectedModel):
            raise ArgumentError("a Markov network has no CPTs")
        table = model.cpt(name)
        parents = list(model.parents(name))
        return {
            "variable": name,
            "parents": parents,
            "shape": list(table.shape),
            "probabilities": table.ravel().tolist(),
        }


@lru_cache(1)
def _widget_class() -> Any:
    """The class of widgets, made once: anywidget is imported on first use."""
    import anywidget
    import traitlets

    class NetworkWidget(anywidget.AnyWidget):  # type: ignore[misc]
        """A live page of a compiled network."""

        _esm = page_module()
        _css = (PAGE / "page.css").read_text(encoding="utf-8")
        evidence = traitlets.Dict().tag(sync=True)
        likelihood = traitlets.Dict().tag(sync=True)
        soft = traitlets.Dict().tag(sync=True)
        do = traitlets.Dict().tag(sync=True)
        targets = traitlets.List().tag(sync=True)
        height = traitlets.Int(620).tag(sync=True)

        def __init__(self, tree: JunctionTree, **traits: Any):
            super().__init__(**traits)
            self._tree, self._answers = tree, _Answers(tree)
            self.on_msg(self._reply)

        @traitlets.validate(*KINDS)
        def _checked(self, proposal: Any) -> Any:
            tree = getattr(self, "_tree", None)
            if tree is not None:
                read_known(tree.model, **{proposal["trait"].name: proposal["value"]})
            return proposal["value"]

        def _reply(self, _widget: Any, message: Any, _buffers: Any) -> None:
            if not isinstance(message, dict) or "id" not in message:
                return
            from .problems import problem

            reply: dict[str, Any] = {"id": message["id"]}
            try:
                reply["answer"] = self._answers.answer(message["method"], message["arguments"])
            except Exception as error:
                reply["problem"] = problem(error, self._tree.model)
                if not isinstance(error, (JtgpuError, ValueError)):
                    traceback.print_exc()
            self.send(reply)

    return NetworkWidget
