"""The modules of the page as one: a browser sends one request for it, and a notebook takes only one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from ..errors import ArgumentError, JtgpuError
from ..model.discrete import DiscreteModel

# The form of ``jtgpu serve --page``: which questions a page asks, and which variables it shows the posteriors of.
#
# Who fills in a form needs no picture of the network. The file is JSON: a title, groups of questions, and targets;
# every text is optional.

MOST = 1 << 20  # bytes of a file
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors write it


class FormQuestion(Struct, forbid_unknown_fields=True, kw_only=True):
    """A variable that the reader may observe."""

    variable: str
    text: str = ""  # the question; default: the label or the name of the variable
    help: str = ""
    states: dict[str, str] = field(default_factory=dict)  # mapping of str to str: Texts in place of the names of states


class FormGroup(Struct, forbid_unknown_fields=True, kw_only=True):
    """Questions under a title."""

    title: str = ""
    text: str = ""
    questions: list[FormQuestion]


class FormTarget(Struct, forbid_unknown_fields=True, kw_only=True):
    """A variable whose posterior is shown."""

    variable: str
    text: str = ""
    states: dict[str, str] = field(default_factory=dict)
    shown: list[str] | None = None  # list of str: Names of the states that are shown, at least one. Default: all.


class FormPage(Struct, forbid_unknown_fields=True, kw_only=True):
    """A form."""

    title: str
    network: str = ""  # name of the network, as the server names it. Default: the first one.
    # text, note: Above the questions, and below the targets
    text: str = ""
    note: str = ""
    # groups, targets: A variable may be in both: until the question is answered, the target shows its posterior
    groups: list[FormGroup]
    targets: list[FormTarget]


def read_form(path: str, models: Mapping[str, DiscreteModel]) -> dict[str, Any]:
    """Read a form and check it against the networks."""
    # models: By the names of the networks
    # returns What the page reads.
    # raises ArgumentError: If the file cannot be read, has an unknown field, names what the network does not have, or
    #     has a question or a target twice.
    try:
        with open(path, "rb") as file:
            data = file.read(MOST + 1)
        if len(data) > MOST:
            raise OSError(f"more than {MOST:,} bytes")
        page = msgspec.json.decode(data.removeprefix(BYTE_ORDER_MARK), type=FormPage)
    except (OSError, ValueError, msgspec.MsgspecError) as error:  # ValueError: NUL in the path, text that is not UTF-8
        raise ArgumentError(f"page {path!r}: {getattr(error, 'strerror', None) or error}") from None
    page.network = page.network or next(iter(models))
    if page.network not in models:
        raise ArgumentError(f"page {path!r}: there is no network {page.network!r}; there is {', '.join(models)}")
    if not page.targets:
        raise ArgumentError(f"page {path!r} has no targets")
    model = models[page.network]
    questions = [question for group in page.groups for question in group.questions]
    try:
        entries: list[FormQuestion | FormTarget] = [*questions, *page.targets]
        for entry in entries:
            model.index(entry.variable)
            shown = entry.shown or [] if isinstance(entry, FormTarget) else []
            for state in (*entry.states, *shown):
                name = model.states(entry.variable)[model.state_index(entry.variable, state)]
                if name != state and not state.startswith("#"):
                    raise ArgumentError(f"the state {name!r} of {entry.variable!r} is written {state!r}")
    except JtgpuError as error:
        raise ArgumentError(f"page {path!r}: {error}") from None
    for doing, variables in (
        ("asks for", [question.variable for question in questions]),
        ("shows", [target.variable for target in page.targets]),
    ):
        if (twice := _repeated(variables)) is not None:
            raise ArgumentError(f"page {path!r} {doing} {twice!r} twice")
    for target in page.targets:
        if target.shown == []:
            raise ArgumentError(f"page {path!r} shows no state of {target.variable!r}; without 'shown', all are")
    form: dict[str, Any] = msgspec.to_builtins(page)
    return form


def _repeated(names: Iterable[str]) -> str | None:
    """The first name that was there before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


# The folder of the page.

FOLDER = Path(__file__).resolve().parent / "page"


_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=class|function|const|async)", re.MULTILINE)


@lru_cache
def page_module(entry: str = "widget.js") -> str:
    """The modules of the page as one module: imports are dropped, and what a module needs stands before it.

    The modules import names without renaming and have distinct names at their top level, which a test checks.
    """
    order: dict[str, str] = {}

    def add(name: str) -> None:
        if name in order:
            return
        text = (FOLDER / name).read_text(encoding="utf-8")
        order[name] = ""  # circular imports are an error of the page
        for needed in _IMPORT.findall(text):
            add(needed)
        del order[name]
        order[name] = _IMPORT.sub("", text)

    add(entry)
    *before, last = order.values()
    return "\n".join([*(_EXPORT.sub("", text) for text in before), last])


def page_style() -> str:
    """The style of the page, which changes nothing outside of it."""
    return (FOLDER / "page.css").read_text(encoding="utf-8")
