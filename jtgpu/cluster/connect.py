"""Ray, imported on first use: which cluster, and which share of it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import ArgumentError, JtgpuError

S = TypeVar("S")
T = TypeVar("T")
MACHINE_OPTIONS = ("threads", "device", "devices", "executor")  # backend options that describe the local machine
PATIENCE = 10.0  # seconds until a cluster's machine must answer
MAX_CPUS = 8  # default of a worker with a GPU: reading, encoding and writing use no more


@dataclass(frozen=True)
class Cluster:
    """A cluster and the share of it to use. Functions that take a cluster also accept its address alone.

    Attributes
    ----------
    address : str
        ``"auto"``: the cluster that this process is connected to, the cluster of this job, or the one on this machine;
        ``"local"``: a temporary one on this machine; ``"ray://host:10001"`` or ``"host:6379"``.
    workers : int, optional
        Number of workers. Default: as many as fit.
    cpus, gpus : float, optional
        Cores and GPUs of each worker. Default: one core and no GPU; with a GPU backend, one GPU and its share of the
        cores.
    """

    address: str = "auto"
    workers: int | None = None
    cpus: float | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "cpus", "gpus"):
            value = getattr(self, name)
            if value is not None and not value > 0 and not (name == "gpus" and value == 0):
                raise ValueError(f"{name} of a cluster must be a positive number, not {value!r}")


@dataclass(frozen=True)
class Share:
    """The resources that a run uses: a number of workers with cores and GPUs each, and their backend."""

    backend: str
    workers: int
    cpus: float
    gpus: float

    @property
    def threads(self) -> int:
        """Cores that a worker may use."""
        return max(1, int(self.cpus))

    def options(self, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Options of the backend on a worker: those of a tree, except for the ones that describe its machine."""
        own = {"threads": self.threads} if self.backend == "cpu" else {}
        return {k: v for k, v in (given or {}).items() if k not in MACHINE_OPTIONS} | own

    @classmethod
    def of(cls, cluster: Cluster, resources: dict[str, float], backend: str, max_workers: int = 2**31) -> Share:
        """Divide a cluster among workers."""
        # resources: Resources of the cluster, as Ray counts them
        # backend: ``"auto"``: GPUs, if the cluster has any
        # max_workers: Number of pieces of work
        # raises JtgpuError: If no worker fits.
        all_cpus, all_gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
        if backend == "auto":
            backend = "gpu" if all_gpus >= (cluster.gpus or 1) and cluster.gpus != 0 else "cpu"
        gpus = cluster.gpus
        if gpus is None:
            gpus = 1.0 if backend in ("gpu", "indexed") else 0.0
        cpus = cluster.cpus
        if cpus is None:
            cpus = float(max(1, min(MAX_CPUS, int(all_cpus * gpus / all_gpus)))) if gpus and all_gpus else 1.0
        fitting = min(all_cpus // cpus, all_gpus // gpus if gpus else float("inf"))
        if fitting < 1 and cluster.workers is None:  # an explicit number may be for a cluster that grows
            each = f"{cpus:g} cores" + (f" and {gpus:g} GPUs" if gpus else "")
            raise JtgpuError(
                f"this cluster has {all_cpus:g} cores and {all_gpus:g} GPUs, but a worker needs {each}; set the number "
                "of workers if the cluster will grow"
            )
        return cls(backend, max(1, min(cluster.workers or int(fitting), max_workers)), float(cpus), float(gpus))


def as_cluster(cluster: str | Cluster) -> Cluster:
    """A `Cluster` from an address; a `Cluster` is returned unchanged."""
    if isinstance(cluster, Cluster):
        return cluster
    given: object = cluster
    if isinstance(given, str) and given:
        return Cluster(given)
    raise ArgumentError(
        "cluster must be 'auto', 'local', an address of Ray or a jtgpu.cluster.Cluster, not "
        f"{textwrap.shorten(repr(cluster), 60)}"
    )


def import_ray() -> Any:
    """The package ray with Ray Data."""
    # raises JtgpuError: If it is not installed, naming the extra that provides it.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry, unless the user enables it
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise JtgpuError(f"clusters require Ray ({error}): pip install '.[ray]' in a checkout") from None
    return ray


def connect(cluster: Cluster) -> Any:
    """Ray, connected."""
    # raises JtgpuError: If there is no such cluster.
    ray = import_ray()
    if ray.is_initialized():
        return ray
    _reject_unreachable(cluster.address)
    more = {"include_dashboard": False} if cluster.address == "local" else {}
    on_term = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR, **more)
    except (ConnectionError, ValueError, RuntimeError, ImportError) as error:
        brief = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        hint = "; use 'local' to start one on this machine" if cluster.address == "auto" else ""
        raise JtgpuError(f"no cluster at {cluster.address[:100]!r}: {brief[:500]}{hint}") from None
    if callable(on_term) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_term)  # Ray has replaced it
    return ray


def _reject_unreachable(address: str) -> None:
    """Raise if nothing listens at ``host:port``: Ray tries that for minutes, and then ends the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isascii() and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
        except (OSError, OverflowError, UnicodeError) as error:
            raise JtgpuError(f"no cluster at {address[:100]!r}: {getattr(error, 'strerror', None) or error}") from None


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """`connect` for a block; disconnects afterwards, unless the process was connected before."""
    before = import_ray().is_initialized()
    ray = connect(cluster)
    try:
        yield ray
    finally:
        if not before:
            ray.shutdown()


@contextmanager
def quiet(ray: Any) -> Iterator[None]:
    """Datasets created in the block preserve the order of rows and print nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of settings that are not ours
        context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with ray.data.DataContext.current(context):
            yield
    finally:
        logger.setLevel(level)


def completed(
    ray: Any, slots: Iterable[S], submit: Callable[[S, T], object], tasks: Iterable[T],
    error_type: type[JtgpuError] = JtgpuError,
) -> Iterator[tuple[int, Any]]:  # fmt: skip
    """Number and result of each task when it is completed; each slot, such as an actor, has one task at a time."""
    # submit: Starts a task in a slot; returns Ray's reference to its result
    # error_type: Of the error if the cluster fails
    coming = enumerate(tasks)
    running: dict[Any, tuple[int, S]] = {}

    def start(slot: S) -> None:
        task = next(coming, None)
        if task is not None:
            running[submit(slot, task[1])] = task[0], slot

    try:
        for slot in slots:
            start(slot)
        while running:
            ready, _ = ray.wait(list(running), num_returns=1)
            number, slot = running.pop(ready[0])
            result = ray.get(ready[0])
            start(slot)
            yield number, result
    except ray.exceptions.RayError as error:
        raise translate_error(error, error_type) from None
    finally:
        for reference in running:
            ray.cancel(reference)


def translate_error(error: BaseException, default: type[JtgpuError] = JtgpuError) -> BaseException:
    """The `JtgpuError` that one of Ray's errors wraps, or an error of type `default` with Ray's message."""
    cause: BaseException | None = error
    while cause is not None:
        # Ray's wrapper has our type as well, but its message is a remote traceback
        inner = getattr(cause, "cause", None)
        if inner is None and isinstance(cause, JtgpuError):
            return cause
        cause = inner if isinstance(inner, BaseException) else cause.__cause__
    brief = str(error).strip().splitlines()
    return default(f"the cluster failed ({type(error).__name__}): {brief[-1] if brief else 'no reason given'}")
