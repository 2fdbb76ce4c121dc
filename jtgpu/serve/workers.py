"""Several servers of the same plans: processes that share a port, and replicas of a Ray Serve application."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, cast

from ..errors import ArgumentError, JtgpuError
from ..inference.network_plan import NetworkPlan
from ..util.arguments import described, number, text, whole_number
from ..util.options import BackendName
from .server import bind, make_app, run
from .settings import Settings
from .tables import PREFIX, sweep
from .trees import AnyTree

RESTART = 2.0  # seconds before a process that died is replaced
STARTUP = 600.0  # seconds that a process may take to get ready
_log = logging.getLogger("jtgpu.serve")

Compile = Callable[[int], Mapping[str, AnyTree]]  # trees of a worker, by its number


class _Worker(NamedTuple):
    """A process, and the pipe on which it says that it is ready."""

    process: BaseProcess
    pipe: Connection


def run_workers(
    compile_trees: Compile, n: int, host: str, port: int, options: Mapping[str, object], grace: float,
    ready: Callable[[int], None],
) -> None:  # fmt: skip
    """Serve from several processes until SIGINT or SIGTERM; call it in the main thread.

    Parameters
    ----------
    compile_trees : callable
        Makes the trees of a worker, in its process; it is pickled.
    n : int
        Number of processes. One that dies is replaced.
    host, port : str, int
    options : mapping
        See `jtgpu.serve.settings.Settings`; a token off the loopback has to be given.
    grace : float
        Seconds for requests that are under way at the end.
    ready : callable
        Called with the port once all processes accept connections.

    Raises
    ------
    JtgpuError
        If a process cannot start.
    """
    sweep()
    shared = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
    reserved = bind(host, port, shared=True)  # never listens: it keeps the port while processes come and go
    port = int(reserved.getsockname()[1])
    stopping = threading.Event()
    before = {s: signal.signal(s, lambda *_: _on_signal(stopping)) for s in (signal.SIGINT, signal.SIGTERM)}
    workers: list[_Worker] = []
    try:
        metrics = os.path.join(shared, "metrics")
        jobs = os.path.join(shared, "jobs")
        os.mkdir(metrics)
        os.mkdir(jobs)
        more = {**options, "folder": jobs, "metrics_folder": metrics}

        def start(number: int) -> _Worker:
            return _start(number, compile_trees, (host, port), more, grace)

        workers = [start(i) for i in range(n)]
        for worker in workers:
            _wait_until_ready(worker, stopping)
        if not stopping.is_set():
            ready(port)
        while not stopping.is_set():
            wait([w.process.sentinel for w in workers], timeout=0.2)
            for i, worker in enumerate(workers):
                if not worker.process.is_alive() and not stopping.is_set():
                    _log.warning("worker %d ended with code %s; it is replaced", i, worker.process.exitcode)
                    stopping.wait(RESTART)
                    workers[i] = start(i)
    finally:
        _stop(workers, grace)
        reserved.close()
        for s, handler in before.items():
            signal.signal(s, handler)
        shutil.rmtree(shared, ignore_errors=True)


def _on_signal(stopping: threading.Event) -> None:
    if stopping.is_set():
        os._exit(1)
    stopping.set()


def _start(
    number: int, compile_trees: Compile, address: tuple[str, int], options: Mapping[str, object], grace: float
) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_work, args=(number, compile_trees, address, dict(options), grace, theirs),
        name=f"jtgpu-serve-{number}", daemon=True,
    )  # fmt: skip
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _wait_until_ready(worker: _Worker, stopping: threading.Event) -> None:
    """Wait for a process; raises `JtgpuError` if it cannot start."""
    deadline = time.monotonic() + STARTUP
    while not stopping.is_set():
        if worker.pipe.poll(0.1):
            try:
                error = worker.pipe.recv()
            except EOFError:
                raise JtgpuError("a worker ended before it was ready") from None
            if error is not None:
                raise error
            return
        if time.monotonic() > deadline:
            raise JtgpuError(f"a worker was not ready after {STARTUP:.0f} s")


def _stop(workers: list[_Worker], grace: float) -> None:
    for worker in workers:
        with suppress(ValueError):
            if worker.process.is_alive():
                worker.process.terminate()
    deadline = time.monotonic() + grace + 5
    for worker in workers:
        worker.process.join(max(deadline - time.monotonic(), 0.1))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _work(
    number: int, compile_trees: Compile, address: tuple[str, int], options: dict[str, Any], grace: float,
    pipe: Connection,
) -> None:  # fmt: skip
    """The process of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one decides
    host, port = address
    try:
        trees = compile_trees(number)
        app = make_app(trees, host, **options)
        app.warm()
        sock: socket.socket = bind(host, port, shared=True)
    except BaseException as error:
        pipe.send(error if isinstance(error, JtgpuError) else JtgpuError(f"a worker failed: {error!r}"))
        return
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    run(app, sock, grace=grace, ready=lambda: pipe.send(None))
    for tree in trees.values():
        tree.close()


def _end_with_parent(pipe: Connection) -> None:
    """End this process when the first one is gone, however that ended."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGTERM)


# A Ray Serve application. A replica batches its requests as `jtgpu serve` does, without a timer; Ray distributes the
# requests, replaces replicas that die, and starts more of them on request.

AT_ONCE = 5_000_000  # bytes of a table that one replica answers at once
ONGOING = 1024  # requests of a replica


def deployment(
    plans: NetworkPlan | Mapping[str, NetworkPlan], *, token: str, name: str = "jtgpu", backend: BackendName = "auto",
    replicas: int = 1, cpus: float = 1.0, gpus: float = 0.0, **options: object,
) -> Any:  # fmt: skip
    """A Ray Serve application that answers questions about networks; run it by ``ray.serve.run``.

    Parameters
    ----------
    plans : NetworkPlan or mapping of str to NetworkPlan
        Plans by the names that clients use; one plan has the name of its network. A replica receives the plans, never
        plans itself, and compiles them.
    token : str
        Clients send it as ``Authorization: Bearer TOKEN``. Empty: everyone who reaches the cluster has access.
    name : str, default "jtgpu"
        Of the deployment.
    backend : str, default "auto"
    replicas : int, default 1
    cpus, gpus : float
        Cores and GPUs of a replica.
    **options
        See `jtgpu.serve.settings.Settings`. ``allow_hosts`` is ``["*"]`` by default, since Ray's proxies receive the
        requests. Replicas that share no ``folder`` have no jobs: with several of them, tables have at most 5 MB.

    Returns
    -------
    ray.serve.Application

    Raises
    ------
    JtgpuError
        Without ``ray[serve]``.
    ArgumentError
        If an option is invalid.

    Examples
    --------
    >>> import jtgpu, jtgpu.serve
    >>> app = jtgpu.serve.deployment(jtgpu.load("alarm").plan(), token="secret", replicas=2)  # doctest: +SKIP
    >>> ray.serve.run(app, route_prefix="/")  # doctest: +SKIP
    """
    named = _named(plans)
    whole_number("replicas", replicas, least=1)
    number("cpus", cpus, least=0)
    number("gpus", gpus, least=0)
    options = {"allow_hosts": ("*",), **options, "token": text("token", token)}
    if replicas > 1 and not options.get("folder"):
        options.setdefault("max_upload", AT_ONCE)
    Settings(**options)
    serve = _ray_serve()
    resources = {"num_cpus": cpus, "num_gpus": gpus}
    replica = serve.ingress(_builder(named, backend, options))()
    return serve.deployment(
        name=text("name", name), num_replicas=replicas, max_ongoing_requests=ONGOING, ray_actor_options=resources
    )(replica).bind()


def _named(plans: NetworkPlan | Mapping[str, NetworkPlan]) -> dict[str, NetworkPlan]:
    if isinstance(plans, NetworkPlan):
        return {plans.model.name.replace("/", "-") or "network": plans}
    if (
        not isinstance(cast(object, plans), Mapping)
        or not plans
        or not all(isinstance(cast(object, p), NetworkPlan) for p in plans.values())
    ):
        raise ArgumentError(f"plans must be a plan or a mapping such as {{'asia': plan}}, not {described(plans)}")
    return dict(plans)


def _builder(
    plans: Mapping[str, NetworkPlan], backend: BackendName, options: Mapping[str, object]
) -> Callable[[], Any]:
    """A function that a replica calls to make its application."""

    def build() -> Any:
        from .app import App

        app = App({name: plan.compile(backend) for name, plan in plans.items()}, **options)
        app.warm()
        return app

    return build


def _ray_serve() -> Any:
    """Ray Serve, imported on first use."""
    try:
        from ray import serve
    except ImportError as error:
        raise JtgpuError(f"Ray Serve needs {error.name}: pip install '.[serve]' 'ray[serve]' in a checkout") from None
    return serve
