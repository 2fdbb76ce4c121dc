"""Where and how to compute: `Compute`, and `Planning`, how a network is planned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from ..errors import ArgumentError
from ..util.arguments import choice, having
from ..util.options import BackendName
from .record import Opt, Record, fields_of, require_only


def memory_size(text: str) -> str | float:
    """A size of memory as it is written, or infinity for ``none``."""
    if text == "none":
        return math.inf
    from ..util.system import parse_bytes  # help and completion need no facts about the machine

    parse_bytes(text)
    return text


def gpu_numbers(text: str) -> str | list[int]:
    """``all``, or the numbers of GPUs."""
    words = [w.strip() for w in text.split(",")]
    if text != "all" and not all(w.isascii() and w.isdigit() for w in words):
        raise ArgumentError(f"{text!r} is neither 'all' nor a comma-separated list of GPU numbers")
    return text if text == "all" else [int(w) for w in words]


MemoryLimit = Annotated[str | float | None, Opt(
    "Memory that propagation may use: 8GiB, 500MB, or none for no limit. Default: 80 % of the free memory.",
    "--memory-limit SIZE", check=memory_size)]
Threads = Annotated[int | None, Opt(
    "Number of CPU cores to use; selects the CPU unless --backend does. Default: all.", least=1, front=True)]
Devices = Annotated[Literal["all"] | Sequence[int] | None, Opt(
    "GPUs to use; cases and slices are distributed among them. Default: one.", "--devices all|0,1", check=gpu_numbers)]
Progress = Annotated[bool | Callable[..., Any] | None, Opt(
    "Show progress on stderr. Default: if it is a terminal.", "--progress/--no-progress")]


class Compute(Record, title="Computation"):
    """Where and how to compute; functions also take the name of a backend in its place: ``compute="gpu"``."""

    backend: Annotated[BackendName, Opt("Where to compute.", "--backend NAME", front=True)] = "auto"
    threads: Threads = None
    dtype: Annotated[Literal["float64", "float32"], Opt(
        "GPU precision: float64, or for tables of cases float32 (half the memory, posteriors accurate to about 1e-6).",
        "--dtype NAME")] = "float64"
    devices: Devices = None
    # jtgpu.cluster.Cluster, or its address
    cluster: Annotated[Any, Opt(
        "Run on a Ray cluster: auto (the cluster of this job), local, ray://host:10001 or host:6379.",
        "--cluster ADDRESS", check=str)] = None
    memory_limit: MemoryLimit = None
    progress: Progress = None

    @classmethod
    def of(cls, given: Compute | str, used: str, what: str) -> Compute:
        """The argument ``compute`` of a function, which uses some fields; a text is the name of the backend."""
        # used, what: See `require_only`
        if isinstance(given, str):
            return cls(backend=choice("compute", given, fields_of(cls)["backend"].choices))  # type: ignore[arg-type]
        having("compute", given, "compile_options", "a jtgpu.Compute, or the name of a backend")
        require_only(given, used, what)
        return given

    def device_option(self) -> dict[str, Any]:
        """The keyword ``devices`` of ``plan`` and ``compile``; empty if it was not given."""
        return {} if self.devices is None else {"devices": self.devices}

    def threads_option(self) -> dict[str, Any]:
        """The keyword ``threads`` of ``compile``; empty if it was not given."""
        return {} if self.threads is None else {"threads": self.threads}

    def compile_options(self) -> dict[str, Any]:
        """Keywords of ``compile`` apart from the backend and its threads; empty for the defaults."""
        return self.device_option() | ({} if self.dtype == "float64" else {"dtype": self.dtype})

    def compile(self, made: Any, step: Callable[[str], None]) -> Any:
        """Compile a plan; ``threads`` without a backend or devices select the CPU."""
        # step: Shows the steps of a long compilation
        backend, options = self.backend, self.compile_options()
        if self.threads and self.devices is None and backend in ("auto", "cpu"):
            backend, options = "cpu", options | {"threads": self.threads}
        return made.compile(backend, progress=step, **options)


class Planning(Record, title="Planning"):
    """How a network is planned."""

    order: Annotated[str, Opt(
        "Elimination order: auto, best (searches for --order-time seconds and saves the order), saved (what best "
        "saved), num (the .num file next to the network), the name of a greedy rule, or the path of a .num or .td "
        "file.", "--order HOW")] = "auto"
    plan: Annotated[str | None, Opt(
        "Use a plan that 'jtgpu plan -o FILE' saved for this network.", "--plan FILE")] = None
    order_time: Annotated[float | None, Opt(
        "Time limit of --order best in seconds.", "--order-time S", least=0)] = None
    memory_limit: MemoryLimit = None
    max_table: Annotated[int | None, Opt(
        "Maximum number of entries in one table; 0 for no limit. Default: 100,000,000.", least=0)] = None
    order_seed: Annotated[int, Opt("Random seed of the order search.", least=0)] = 0
    no_cache: Annotated[bool, Opt("Do not read or write saved elimination orders.")] = False

    def keywords(self, compute: Compute | None = None) -> dict[str, Any]:
        """Keywords of ``net.plan`` except the order; those that were not given are left to its defaults."""
        # compute: The plan has to fit in the memory of the devices named here
        options: dict[str, Any] = {"seed": self.order_seed, "cache": not self.no_cache}
        if self.order_time is not None:
            options["time_limit"] = self.order_time
        if self.memory_limit is not None:
            options["memory_limit"] = self.memory_limit
        if self.max_table is not None:
            options["max_table"] = self.max_table or None
        if compute is not None and (compute.backend != "auto" or compute.devices is not None):
            options["backend"] = "gpu" if compute.backend == "auto" else compute.backend
            options |= compute.device_option()
        return options


class CutPlanning(Planning, title="Planning"):
    """How a network is planned that may be cut into pieces."""

    cut: Annotated[tuple[str, ...], Opt(
        "Condition on this variable, one state at a time, for networks that do not fit in memory. Repeatable; auto "
        "chooses the variables if any are needed.", "--slice VARIABLE")] = ()

    def keywords(self, compute: Compute | None = None) -> dict[str, Any]:
        """The same with ``slices``."""
        slices = {"slices": "auto" if self.cut == ("auto",) else self.cut} if self.cut else {}
        return super().keywords(compute) | slices
