"""What options and arguments declare for completion by a shell; ``jtgpu --install-completion`` installs it.

A file that cannot be read completes nothing. `shell_request` answers the requests for these values before Typer is
imported; Typer calls these functions where the command line has another form.
"""

from __future__ import annotations

import os

import typer

from .shell_request import SPLIT, match_findings, match_networks, match_variables, read_names


def complete_networks(incomplete: str) -> list[str]:
    """Bundled networks by name, network files and folders."""
    return match_networks(incomplete)


def complete_targets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Variables of the network on the command line."""
    return match_variables(read_names(ctx.params.get("file")), incomplete)


def complete_findings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Findings ``name=state`` of the network on the command line: names first, then the states of one variable."""
    before = os.environ.get(SPLIT, "")
    return [found[len(before) :] for found in match_findings(read_names(ctx.params.get("file")), before + incomplete)]
