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

__all__ = ["Listener"]

LINGER = 0.3  # seconds in which requests on open connections are still accepted after the end has been announced
PATIENCE = 15.0  # seconds for the header of a request
MAX_HEADER = 1 << 16  # bytes
CONNECTIONS = 10_000
KEEP_ALIVE = 75  # seconds that an idle connection stays open


def _protocol() -> Any:
    """The protocol class: httptools' with limits for headers where it is installed, uvicorn's choice elsewhere."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        return "auto"

    class Protocol(HttpToolsProtocol):
        """Closes connections whose headers take too long or are too large."""

        _timer: asyncio.TimerHandle | None = None
        _header = 0  # bytes
        _in_header = True

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._timer = self.loop.call_later(PATIENCE, transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_of_header()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._header += len(data)
            super().data_received(data)
            if not self._in_header:
                self._header = 0
                return
            if self._timer is None:  # most headers arrive in one piece and need no timer
                self._timer = self.loop.call_later(PATIENCE, self.transport.close)
            if self._header > MAX_HEADER:
                self.send_400_response("The header is too large.")

        def on_message_begin(self) -> None:
            if not self._in_header:
                self._in_header, self._header = True, 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_header = False
            self._end_of_header()
            super().on_headers_complete()

        def _end_of_header(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Protocol


class Listener(uvicorn.Server):
    """Serves an application until it is stopped.

    Parameters
    ----------
    app : App
    grace : float
        Seconds for requests that are under way at the end.
    ready : callable
        Called once connections are accepted.
    """

    def __init__(self, app: App, grace: float, ready: Callable[[], None]):
        super().__init__(
            uvicorn.Config(
                app, http=_protocol(), ws="none", lifespan="off", log_config=None, access_log=False,
                server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=max(1, round(grace)), limit_concurrency=CONNECTIONS, backlog=2048,
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
