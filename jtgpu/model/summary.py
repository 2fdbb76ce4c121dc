"""Models as text: what ``print(net)`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..util.monospace import abridged, display_width
from ..util.text_table import format_table

MAX_WIDTH = 32  # columns of text that a list takes


def summary(
    head: str, variables: Sequence[str], states: Sequence[Sequence[str]], parents: Sequence[Sequence[str]] | None
) -> str:
    """A line about the model and a table of its variables."""
    # head: The first line
    # variables, states, parents: Of each variable; ``parents=None`` leaves the column out
    if not variables:
        return head
    columns: list[Sequence[str]] = [variables, _Lists(states)]
    if parents is not None:
        columns.append(_Lists(parents))
    names = ["variable", "states", "parents"][: len(columns)]
    return f"{head}\n{format_table(names, columns, fixed=1, width=None)}"


class _Lists(Sequence[str]):
    """A column of lists of words."""

    def __init__(self, lists: Sequence[Sequence[str]]):
        self._lists = lists

    def __len__(self) -> int:
        return len(self._lists)

    def __getitem__(self, row: Any) -> Any:
        return _joined(self._lists[row])


def _joined(words: Sequence[str]) -> str:
    """Words separated by commas; as many as fit."""
    text = ", ".join(words)
    if display_width(text) <= MAX_WIDTH:
        return text
    end = f", ... ({len(words)})"
    shown = words[0]
    for word in words[1:]:
        if display_width(f"{shown}, {word}{end}") > MAX_WIDTH:
            break
        shown = f"{shown}, {word}"
    return abridged(shown, MAX_WIDTH) + (end if len(words) > 1 else "")
