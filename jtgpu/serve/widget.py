"""`widget`: the page in a notebook, or a picture where the packages for it are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..draw import show
from ..errors import ArgumentError
from ..inference.evidence import Findings, one_case, read_known
from ..inference.tree import JunctionTree
from ..util.arguments import described, unknown_keyword, whole_number

KINDS = ("evidence", "likelihood", "soft", "do")


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
        A widget with the traits ``evidence``, ``likelihood``, ``soft`` and ``do`` (dicts) and ``targets`` (a list of
        names). They follow the page, and the page follows them. Without the packages anywidget and msgspec
        (``pip install '.[notebook]'`` in a checkout), a picture: see `jtgpu.draw.show`.

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
        raise unknown_keyword("widget", min(unknown), {"tree", "evidence", "height", *KINDS})
    evidence = one_case(tree.model, evidence)
    read_known(tree.model, evidence, **more)
    try:
        from .notebook import NetworkWidget  # needs anywidget and msgspec
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("jtgpu"):
            raise
        return show(tree, evidence, **more)
    given = {kind: _plain(part) for kind, part in {"evidence": evidence, **more}.items()}
    return NetworkWidget(tree=tree, height=whole_number("height", height, least=100), **given)


def _plain(part: Mapping[Any, object] | None) -> dict[str, Any]:
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
