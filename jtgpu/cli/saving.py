"""Networks that commands have computed, as files: a name that a format does not allow loses no result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import FormatError
from ..formats import save_text
from ..formats.conversion import carry
from ..formats.registry import Format, dumps_mixed
from ..model.mixed import MixedNetwork
from .console import warn


def save_network(net: Any, output: str, wanted: Format) -> None:
    """Write a network; names are changed where the format needs it, as by ``jtgpu convert``, with warnings."""
    # A network with numbers that the format cannot represent is written as JSON, next to the output.
    if not isinstance(net, MixedNetwork):
        made = carry(net, wanted)
        for text in (*made.notes, *(f"{wanted.name} cannot represent {text}" for text in made.losses)):
            warn(text)
        save_text(made.text, output)
        return
    try:
        text = dumps_mixed(net, wanted.name)
    except FormatError as error:
        spare = f"{output}.mixed.json"
        if Path(spare).exists():
            raise
        save_text(dumps_mixed(net, "JSON"), spare)
        raise FormatError(f"{error}; {spare} has the network") from None
    save_text(text, output)
