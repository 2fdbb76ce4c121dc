"""Several processes that share a port: each compiles the plans that the first one made."""

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
from typing import Any, NamedTuple

from ..errors import JtgpuError
from ..inference.tree import JunctionTree
from .jobs import PREFIX
from .server import bind, make_app, run

RESTART = 2.0  # seconds before a process that died is replaced
STARTUP = 600.0  # seconds that a process may take to get ready
_log = logging.getLogger("jtgpu.serve")

Compile = Callable[[int], Mapping[str, JunctionTree]]  # trees of a worker, by its number


class _Worker(NamedTuple):
    """A process, and the pipe on which it says that it is ready."""

    process: BaseProcess
    pipe: Connection


def run_workers(
    compile_trees: Compile, n: int, host: str, port: int, options: Mapping[str, Any], grace: float,
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
    number: int, compile_trees: Compile, address: tuple[str, int], options: Mapping[str, Any], grace: float
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
