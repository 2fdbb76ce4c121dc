"""The networks distributed with jtgpu, and the names of the files that belong to a network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import JtgpuError

__all__ = ["BENCHMARK", "benchmark_files", "networks_folder", "order_file", "stem"]

# The seven networks of the published table of times, in its order.
BENCHMARK = ("mildew", "diabetes", "barley", "munin4", "water", "munin1", "link")


def networks_folder() -> Path:
    """Folder of the bundled networks: in the installed package, or next to it in a checkout.

    Raises
    ------
    JtgpuError
        If neither folder exists, which means that the installation is broken.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "nets", package.parent / "nets"):
        if (folder / "asia.net").is_file():
            return folder
    raise JtgpuError(
        f"the bundled networks are missing: found no nets/asia.net in {package} or {package.parent}; reinstall jtgpu"
    )


def benchmark_files(names: Sequence[str] = BENCHMARK) -> list[Path]:
    """Paths of bundled networks.

    Parameters
    ----------
    names : sequence of str
        Default: the seven networks of the published table.

    Raises
    ------
    JtgpuError
        If no bundled network has that name.
    """
    folder = networks_folder()
    found = []
    for name in names:
        path = next((p for s in (".net", ".net.gz") if (p := folder / (name + s)).is_file()), None)
        if path is None:
            raise JtgpuError(f"no bundled network is named {name!r}; the networks are in {folder}")
        found.append(path)
    return found


def stem(path: str | os.PathLike[str]) -> str:
    """Name of a network file without folder and suffixes: ``"nets/link.net.gz"`` gives ``"link"``."""
    name = os.path.basename(os.fspath(path))
    root, _ = os.path.splitext(name[:-3] if name.lower().endswith(".gz") else name)
    return root or name


def order_file(path: str | os.PathLike[str]) -> Path:
    """Path of the ``.num`` file that belongs to a network file: same folder, same stem."""
    return Path(path).parent / (stem(path) + ".num")
