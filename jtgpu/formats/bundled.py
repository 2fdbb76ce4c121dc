"""The networks distributed with jtgpu, and the names of the files that belong to a network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, overload

from ..errors import JtgpuError, MissingFileError, closest
from .files import unpacked_name

if TYPE_CHECKING:
    from ..model.discrete import DiscreteModel
    from ..model.mixed import MixedNetwork
    from ..model.network import BayesianNetwork
    from ..util.options import Decisions, ZeroRows

    Network = DiscreteModel | MixedNetwork
    N = TypeVar("N", bound=Network)

# The folder of the bundled networks and the files there; imports no parser, since shells wait for it at every Tab.

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


# The seven networks of the published table of times, in its order.
BENCHMARK = ("mildew", "diabetes", "barley", "munin4", "water", "munin1", "link")


def networks() -> tuple[str, ...]:
    """Names of the networks that are distributed with jtgpu, sorted; see `load`."""
    return tuple(sorted(bundled_files()))


@overload
def load(
    name: str | os.PathLike[str], *, zero_rows: ZeroRows = "error", decisions: Decisions = "network"
) -> BayesianNetwork: ...
@overload
def load(
    name: str | os.PathLike[str], *, kind: type[N], zero_rows: ZeroRows = "error", decisions: Decisions = "network"
) -> N: ...
def load(
    name: str | os.PathLike[str], *, kind: type[N] | None = None, zero_rows: ZeroRows = "error",
    decisions: Decisions = "network",
) -> Network | N:  # fmt: skip
    """Read a network file, or one of the bundled networks by its name.

    Parameters
    ----------
    name : str or path-like
        The path of a file, as for `jtgpu.read`; or a name of `networks`, such as ``"asia"``. A file or folder of that
        name takes precedence.
    kind : type, optional
    zero_rows : {"error", "uniform"}
    decisions : {"network", "chance"}
        See `jtgpu.read`.

    Returns
    -------
    BayesianNetwork
        See `jtgpu.read`.

    Raises
    ------
    ParseError, FormatError, FileError
        See `jtgpu.read`. If there is neither a file nor a bundled network of that name, the message of the
        `MissingFileError` suggests the closest names.

    Examples
    --------
    >>> import jtgpu
    >>> jtgpu.load("asia")
    BayesianNetwork('asia', 8 variables, 8 arcs)
    """
    from .network_files import read  # shells that complete names of networks need no parser

    if kind is not None:
        return read(network_path(name), kind=kind, zero_rows=zero_rows, decisions=decisions)
    return read(network_path(name), zero_rows=zero_rows, decisions=decisions)


def network_path(name: str | os.PathLike[str]) -> str:
    """The path of the file that `load` reads."""
    # raises MissingFileError: If a name without folder and suffix is neither a file nor a bundled network, or if a
    #     missing file is named like one. Any other missing file is left to the reader.
    given = os.fspath(name)
    if os.path.lexists(given):
        return given
    bundled = bundled_files()
    if given in bundled:
        return str(bundled[given])
    if stem(given) in bundled:
        raise MissingFileError(f"there is no file {given!r}; {stem(given)!r} is a bundled network")
    if os.path.dirname(given) or os.path.splitext(given)[1]:
        return given
    raise MissingFileError(f"there is no file {given!r} and no bundled network of that name{closest(given, bundled)}")


def benchmark_files(names: Sequence[str] = BENCHMARK) -> list[Path]:
    """Paths of bundled networks."""
    # names: sequence of str: Default: the seven networks of the published table
    # raises JtgpuError: If no bundled network has that name.
    bundled = bundled_files()
    for name in names:
        if name not in bundled:
            raise JtgpuError(f"no bundled network is named {name!r}; the networks are in {networks_folder()}")
    return [bundled[name] for name in names]


def order_file(path: str | os.PathLike[str]) -> Path:
    """Path of the ``.num`` file that belongs to a network file: same folder, same stem."""
    return Path(path).parent / (stem(path) + ".num")
