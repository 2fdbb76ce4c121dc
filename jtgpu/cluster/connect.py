"""Ray, imported on use: which cluster, and how much of it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import JtgpuError

__all__ = ["Cluster", "Share", "as_cluster", "connect", "connected", "quietly", "the_ray", "understood"]

OF_A_MACHINE = ("threads", "device", "devices", "executor")  # options that say where and with how much
MOST_CPUS = 8  # of a worker with a GPU, where nothing is said: reading, encoding and writing keep no more busy


@dataclass(frozen=True)
class Cluster:
    """A cluster and the share of it that is used; wherever one is asked for, its address alone does.

    Attributes
    ----------
    address : str
        ``"auto"``: the one that this process is connected to or, within a Ray job or beside a node of a cluster, that
        cluster; ``"local"``: one for this call on this machine alone; ``"ray://host:10001"`` or ``"host:6379"``.
    workers : int, optional
        Default: as many as the cluster has room for.
    cpus, gpus : float, optional
        Of each worker. Default: one core, and no GPU; on a backend of GPUs one GPU and its share of the cores.
    """

    address: str = "auto"
    workers: int | None = None
    cpus: float | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "cpus", "gpus"):
            value = getattr(self, name)
            if value is not None and not value > 0 and not (name == "gpus" and value == 0):
                raise ValueError(f"{name} of a cluster is a positive number, not {value!r}")


@dataclass(frozen=True)
class Share:
    """What a run takes of a cluster: so many workers, each with so much; on which backend they run."""

    backend: str
    workers: int
    cpus: float
    gpus: float

    @property
    def threads(self) -> int:
        """Cores that a worker may use."""
        return max(1, int(self.cpus))

    def options(self, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Options of the backend on a worker: those of a tree, but what they say of the machine that it is on."""
        own = {"threads": self.threads} if self.backend == "cpu" else {}
        return {k: v for k, v in (given or {}).items() if k not in OF_A_MACHINE} | own

    @classmethod
    def of(cls, cluster: Cluster, resources: dict[str, float], backend: str, at_most: int) -> Share:
        """Divide a cluster among workers.

        Parameters
        ----------
        cluster : Cluster
        resources : dict
            Of the cluster, as Ray counts them.
        backend : str
            ``"auto"``: on GPUs, where the cluster has any.
        at_most : int
            Pieces of work.

        Raises
        ------
        JtgpuError
            Where the cluster has nothing like it.
        """
        all_cpus, all_gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
        if backend == "auto":
            backend = "gpu" if all_gpus >= (cluster.gpus or 1) and cluster.gpus != 0 else "cpu"
        gpus = cluster.gpus
        if gpus is None:
            gpus = 1.0 if backend in ("gpu", "indexed") else 0.0
        cpus = cluster.cpus
        if cpus is None:
            cpus = float(max(1, min(MOST_CPUS, int(all_cpus * gpus / all_gpus)))) if gpus and all_gpus else 1.0
        room = min(all_cpus // cpus, all_gpus // gpus if gpus else float("inf"))
        if room < 1 and cluster.workers is None:  # a number that is given may be what the cluster is to grow to
            each = f"{cpus:g} cores" + (f" and {gpus:g} GPUs" if gpus else "")
            raise JtgpuError(
                f"this cluster has {all_cpus:g} cores and {all_gpus:g} GPUs, a worker takes {each}; for a cluster that "
                "grows say how many workers"
            )
        return cls(backend, max(1, min(cluster.workers or int(room), at_most)), float(cpus), float(gpus))


def as_cluster(cluster: str | Cluster) -> Cluster:
    """A cluster by its address, or as it is."""
    if isinstance(cluster, Cluster):
        return cluster
    if cluster and isinstance(cluster, str):
        return Cluster(cluster)
    raise ValueError(f"cluster is 'auto', 'local', an address of Ray or a jtgpu.cluster.Cluster, not {cluster!r}")


def the_ray() -> Any:
    """The package ray with Ray Data.

    Raises
    ------
    JtgpuError
        Where it is not installed, naming the extra that brings it.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody, unless the user wants it
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise JtgpuError(f"clusters need Ray, which is not installed ({error}): pip install 'jtgpu[ray]'") from None
    return ray


def connect(cluster: Cluster) -> Any:
    """Ray, connected.

    Raises
    ------
    JtgpuError
        Where there is no such cluster.
    """
    ray = the_ray()
    if ray.is_initialized():
        return ray
    more = {"include_dashboard": False} if cluster.address == "local" else {}
    on_term = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR, **more)
    except (ConnectionError, ValueError, RuntimeError, ImportError) as error:
        brief = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        hint = "; 'local' starts one on this machine" if cluster.address == "auto" else ""
        raise JtgpuError(f"no cluster at {cluster.address!r}: {brief}{hint}") from None
    if callable(on_term) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_term)  # Ray has put its own in its place
    return ray


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """`connect`; what was not connected before is disconnected afterwards, and a cluster of our own ends."""
    before = the_ray().is_initialized()
    ray = connect(cluster)
    try:
        yield ray
    finally:
        if not before:
            ray.shutdown()


@contextmanager
def quietly(ray: Any) -> Iterator[None]:
    """Datasets made within keep their blocks in order and write nothing to the terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of settings that nobody here has made
        mine = ray.data.DataContext.get_current().copy()
    mine.enable_progress_bars = False
    mine.print_on_execution_start = False
    mine.execution_options.preserve_order = True
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with ray.data.DataContext.current(mine):
            yield
    finally:
        logger.setLevel(level)


def understood(error: BaseException, otherwise: type[JtgpuError] = JtgpuError) -> BaseException:
    """The error of ours within one of Ray's, or one of ours that says what Ray says."""
    cause: BaseException | None = error
    while cause is not None:
        inner = getattr(cause, "cause", None)  # Ray's error is of our kind as well, but speaks of where it came from
        if inner is None and isinstance(cause, JtgpuError):
            return cause
        cause = inner if isinstance(inner, BaseException) else cause.__cause__
    brief = str(error).strip().splitlines()
    return otherwise(f"the cluster gave up ({type(error).__name__}): {brief[-1] if brief else 'no reason given'}")
