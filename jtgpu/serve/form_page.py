"""The form of ``jtgpu serve --page``: which questions a page asks, and which variables it shows the posteriors of.

Who fills in a form needs no picture of the network. The file is JSON: a title, groups of questions, and targets; every
text is optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from ..errors import ArgumentError, JtgpuError
from ..model.discrete import DiscreteModel

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
                model.state_index(entry.variable, state)
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
    found: dict[str, Any] = msgspec.to_builtins(page)
    return found


def _repeated(names: Iterable[str]) -> str | None:
    """The first name that was there before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
