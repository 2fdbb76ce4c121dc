"""The folder of the bundled networks and the files there; imports no parser, since shells wait for it at every Tab."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import JtgpuError
from .common.files import unpacked_name


def networks_folder() -> Path:
    """Folder of the bundled networks: in the installed package, or next to it in a checkout."""
    # raises JtgpuError: If neither folder exists, which means that the installation is broken.
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "nets", package.parent / "nets"):
        if (folder / "asia.net").is_file():
            return folder
    raise JtgpuError(
        f"the bundled networks are missing: found no nets/asia.net in {package} or {package.parent}; reinstall jtgpu"
    )


def bundled_files() -> dict[str, Path]:
    """The file of every bundled network, by its name."""
    return {stem(p): p for p in networks_folder().iterdir() if unpacked_name(p.name).endswith(".net")}


def stem(path: str | os.PathLike[str]) -> str:
    """Name of a network file without folder and suffixes: ``"nets/munin.net.xz"`` gives ``"munin"``."""
    name = os.path.basename(os.fspath(path))
    root, _ = os.path.splitext(unpacked_name(name))
    return root or name
