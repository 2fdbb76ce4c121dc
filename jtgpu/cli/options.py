"""Options that several commands take, and reading the files that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..backends import BACKENDS
from ..errors import closest
from ..model.network import DiscreteModel
from ..util.system import parse_bytes
from .console import shown, warn

__all__ = [
    "Backend",
    "Devices",
    "Dtype",
    "File",
    "Json",
    "MaxTable",
    "MemoryLimit",
    "NoCache",
    "Order",
    "Seed",
    "Slices",
    "TimeLimit",
    "chosen_order",
    "devices_of",
    "dtype_of",
    "network_files",
    "plan_options",
    "read_network",
]


def _backend(name: str) -> str:
    if name not in ("auto", *BACKENDS):
        raise typer.BadParameter(f"{name!r} is none of auto, {', '.join(BACKENDS)}{closest(name, BACKENDS)}")
    return name


def _bytes(size: str | None) -> str | None:
    if size is not None and size != "none":
        try:
            parse_bytes(size)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return size


def _devices(text: str | None) -> str | None:
    if text is not None and text != "all":
        words = [w.strip() for w in text.split(",")]
        if not all(w.isascii() and w.isdigit() for w in words):
            raise typer.BadParameter(f"{text!r} is neither all nor numbers of GPUs with commas between them")
    return text


def _dtype(name: str) -> str:
    if name not in ("float64", "float32"):
        raise typer.BadParameter(f"{name!r} is neither float64 nor float32")
    return name


File = Annotated[str, typer.Argument(metavar="FILE", help="A network file: .net, .bif ..., plain or .gz.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Backend = Annotated[
    str, typer.Option("--backend", callback=_backend, help=f"One of auto, {', '.join(BACKENDS)}.", metavar="NAME")
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="all|0,1",
        callback=_devices,
        show_default=False,
        help="GPUs to use together: tables and slices are dealt out to them. [default: one]",
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="NAME",
        callback=_dtype,
        help="What a GPU computes with: float64, or float32: half the memory, posteriors right to some 1e-6.",
    ),
]
Order = Annotated[
    str,
    typer.Option(
        "--order",
        metavar="HOW",
        help="Elimination order: auto, best (searches for --time seconds), num (the .num file beside the network), "
        "a greedy rule's name, or the path of a .num or .td file.",
    ),
]
TimeLimit = Annotated[
    float | None, typer.Option("--time", metavar="S", min=0.0, help="Seconds that --order best may search.")
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Neither look for an elimination order found before, nor keep this one.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the search.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        callback=_bytes,
        help="Most memory that a propagation may take: 8GiB, 500MB; default: 80 % of what is free; none: no limit.",
    ),
]
MaxTable = Annotated[
    int | None,
    typer.Option(
        "--max-table", metavar="N", min=0, help="Most entries of one table; 0: no limit. [default: 100000000]"
    ),
]

Slices = Annotated[
    list[str] | None,
    typer.Option(
        "--slice",
        metavar="VARIABLE",
        help="Go through this variable's states one by one, for what does not fit otherwise (may be repeated); auto: "
        "find such variables where they are needed.",
    ),
]


def plan_options(
    time_limit: float | None,
    memory_limit: str | None,
    max_table: int | None,
    seed: int,
    no_cache: bool,
    slices: list[str] | None = None,
    backend: str = "auto",
    devices: str | None = None,
) -> dict[str, Any]:
    """Options as `jtgpu.inference.network_plan.make_plan` takes them; what was not given is left to it."""
    options: dict[str, Any] = {"seed": seed, "cache": not no_cache}
    if time_limit is not None:
        options["time_limit"] = time_limit
    if memory_limit is not None:
        options["memory_limit"] = float("inf") if memory_limit == "none" else memory_limit
    if max_table is not None:
        options["max_table"] = max_table or None
    if slices:
        options["slices"] = "auto" if slices == ["auto"] else slices
    if backend != "auto" or devices is not None:  # whose memory it is that the plan has to fit
        options["backend"] = "gpu" if backend == "auto" else backend
        options |= devices_of(devices)
    return options


def dtype_of(name: str) -> dict[str, Any]:
    """What ``--dtype`` says, as ``compile`` takes it; nothing for the usual one."""
    return {} if name == "float64" else {"dtype": name}


def devices_of(text: str | None) -> dict[str, Any]:
    """What ``--devices`` says, as ``compile`` takes it; nothing where it is not given."""
    if text is None:
        return {}
    return {"devices": text if text == "all" else [int(n) for n in text.split(",")]}


def chosen_order(order: str, file: str) -> str | Path:
    """What an ``--order`` means for a network file."""
    from ..formats.bundled import order_file

    return order_file(file) if order == "num" else order


def read_network(file: str) -> DiscreteModel:
    """Read a network and warn of what had to be mended in it."""
    from ..formats import read

    net = read(file)
    report = getattr(net, "row_report", None)
    if report is not None and (report.n_off or report.zero_rows):
        warn(f"{file}: {report}")
    return net


def network_files(given: list[str]) -> list[str]:
    """Files as they are, and the network files in folders, sorted by name."""
    from ..formats import formats

    suffixes = tuple(s + z for _, known, _ in formats() for s in known for z in ("", ".gz"))
    files = []
    for name in given:
        if not Path(name).is_dir():
            files.append(name)
            continue
        found = sorted(str(p) for p in Path(name).iterdir() if p.name.lower().endswith(suffixes) and p.is_file())
        if not found:
            raise typer.BadParameter(f"the folder {shown(name)!r} holds no network file ({', '.join(suffixes)})")
        files += found
    return files
