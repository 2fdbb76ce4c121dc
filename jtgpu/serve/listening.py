"""`Listener`: uvicorn with the patience, limits and shutdown that a server of ours needs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from .app import App

LINGER = 0.3  # seconds in which requests on open connections are still accepted after the end has been announced
KEEP_ALIVE = 75  # seconds that an idle connection stays open


def _protocol(body_timeout: float) -> Any:
    """The protocol class: httptools' with limits for requests where it is installed, uvicorn's choice elsewhere."""
    try:
        from . import http_protocol
    except ImportError:
        return "auto"
    limits = {"body_timeout": body_timeout, "most_connections": http_protocol.most_connections()}
    return type("Protocol", (http_protocol.Protocol,), limits)


class Listener(uvicorn.Server):
    """Serves an application until it is stopped."""
    # grace: Seconds for requests that are under way at the end
    # ready: Called once connections are accepted

    def __init__(self, app: App, grace: float, ready: Callable[[], None]):
        super().__init__(
            uvicorn.Config(
                app, http=_protocol(app.settings.body_timeout), ws="none", lifespan="off", log_config=None,
                access_log=False,
                server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=max(1, round(grace)), limit_concurrency=10_000, backlog=2048,
            )
        )  # fmt: skip
        self._app, self._ready = app, ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, answer the requests that have been sent, and close.

        Responses announce the end (``Connection: close``), so that clients on busy connections leave by themselves: a
        request that is sent just when its connection is closed would be lost.
        """
        self._app.stop()
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        deadline = asyncio.get_running_loop().time() + LINGER
        while self.server_state.connections and asyncio.get_running_loop().time() < deadline and not self.force_exit:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)

    def stop(self) -> None:
        """Stop; from any thread."""
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop the server; a second one ends the process at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # a worker ignores Ctrl-C, which its parent handles
        handled = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) != signal.SIG_IGN]
        before = {sig: signal.signal(sig, self._on_signal) for sig in handled}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)

    def _on_signal(self, *_: Any) -> None:
        if self.should_exit:
            os._exit(1)
        self.should_exit = True
