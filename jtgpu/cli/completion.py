"""Shell completion of networks, variables and states.

``jtgpu --install-completion`` installs it. A file that cannot be read completes nothing.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..model.network import DiscreteModel

__all__ = ["VARIABLE", "complete_findings", "complete_networks", "complete_targets", "join_findings"]

VARIABLE = "_JTGPU_COMPLETE"  # environment variable in which the shell passes its request
_SPLIT = "_JTGPU_FINDING"  # the part of a finding before the word that bash completes


def complete_networks(incomplete: str) -> list[str]:
    """Bundled networks by name, network files and folders."""
    from ..formats import formats
    from ..formats.bundled import networks

    suffixes = tuple(s + z for _, known, _ in formats() for s in known for z in ("", ".gz"))
    found: list[str] = []
    head, _, tail = incomplete.rpartition("/")
    folder = head + "/" if "/" in incomplete else ""
    with suppress(OSError):
        for entry in sorted(os.scandir(Path(folder or ".").expanduser()), key=lambda e: e.name):
            if not entry.name.startswith(tail) or (entry.name.startswith(".") and not tail):
                continue
            if entry.is_dir():
                found.append(f"{folder}{entry.name}/")
            elif entry.name.lower().endswith(suffixes):
                found.append(folder + entry.name)
    if not folder:
        with suppress(Exception):  # an incomplete installation
            found += [n for n in networks() if n.startswith(incomplete)]
    return found


def complete_targets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Variables of the network on the command line."""
    net = _network(ctx)
    return [] if net is None else [v for v in net.variables if v.startswith(incomplete)]


def complete_findings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Findings ``name=state`` of the network on the command line: names first, then the states of one variable."""
    net = _network(ctx)
    if net is None:
        return []
    before = os.environ.get(_SPLIT, "")
    return [found[len(before) :] for found in _findings(net, before + incomplete)]


def _findings(net: DiscreteModel, text: str) -> Iterator[str]:
    matching = [v for v in net.variables if f"{v}=".startswith(text) or text.startswith(f"{v}=")]
    if len(matching) > 1 and not any(text.startswith(f"{v}=") for v in matching):
        yield from (f"{v}=" for v in matching)
        return
    for v in matching:
        yield from (found for s in net.states(v) if (found := f"{v}={s}").startswith(text))


def _network(ctx: typer.Context) -> DiscreteModel | None:
    """The network on the command line; None if there is none or it cannot be read."""
    from .networks import read_network

    file = ctx.params.get("file")
    with suppress(Exception):
        return read_network(file) if file else None
    return None


def join_findings() -> None:
    """Take the name of a finding off bash's command line: bash splits words at ``=`` and replaces the last part."""
    if os.environ.get(VARIABLE) != "complete_bash":
        return
    try:
        words, current = shlex.split(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
    except (KeyError, ValueError):
        return
    if current == len(words):  # the word to complete is empty
        words.append("")
    first = current
    while first > 1 and "=" in (words[first], words[first - 1]):
        first -= 1
    if first == current:
        return
    finding, kept = "".join(words[first : current + 1]), words[:first]
    if finding.startswith("--"):
        option, _, finding = finding.partition("=")
        kept.append(option)
    name, equals, rest = finding.rpartition("=")
    os.environ[_SPLIT] = name + equals
    os.environ["COMP_WORDS"] = shlex.join([*kept, rest])
    os.environ["COMP_CWORD"] = str(len(kept))
