"""Networks that commands have computed, as files: a name that a format does not allow loses no result."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

from ..errors import FormatError
from ..formats import save_text, writer_of
from ..formats.conversion import carry
from ..formats.registry import Format, cannot_contain, dumps_mixed
from ..model.mixed import MixedNetwork
from .console import warn


@overload
def output_format(path: str, numbers: bool) -> Format: ...
@overload
def output_format(path: None, numbers: bool) -> None: ...
def output_format(path: str | None, numbers: bool) -> Format | None:
    """The format that the suffix of an output selects; raises `FormatError` if it cannot contain numbers."""
    if path is None:
        return None
    chosen = writer_of(path, every=numbers)
    if numbers and not chosen.mixed:
        raise cannot_contain(chosen.name)
    return chosen


def warn_of_changes(notes: Iterable[str], losses: Iterable[str], wanted: Format) -> None:
    """Warn about what was changed for a format, and what it cannot represent."""
    for text in (*notes, *(f"{wanted.name} cannot represent {text}" for text in losses)):
        warn(text)


def save_network(net: Any, output: str | None, wanted: Format | None) -> FormatError | None:
    """Write a network; names are changed where the format needs it, as by ``jtgpu convert``, with warnings."""
    # A network with numbers that the format cannot represent is written as JSON, next to the output.
    # returns the error about that, which commands raise when they have printed their result
    if output is None or wanted is None:
        return None
    if not isinstance(net, MixedNetwork):
        made = carry(net, wanted)
        losses = [f"{x}; .bif and .xdsl files keep them" if "names of" in x else x for x in made.losses]
        warn_of_changes(made.notes, losses, wanted)
        save_text(made.text, output)
        return None
    try:
        text = dumps_mixed(net, wanted.name)
    except FormatError as error:
        spare = f"{output}.mixed.json"
        if Path(spare).exists():
            return error
        save_text(dumps_mixed(net, "JSON"), spare)
        return FormatError(f"{error}; {spare} has the network")
    save_text(text, output)
    return None
