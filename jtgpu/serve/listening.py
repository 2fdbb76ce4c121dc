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
MIN_RATE = 16 << 10  # bytes a second of a body that is under way
CONNECTIONS = 10_000
SPARE_FILES = 64  # descriptors for what is not a connection
SETTLED = 1.0  # seconds after which a connection that sends nothing makes room for a new one
KEEP_ALIVE = 75  # seconds that an idle connection stays open


def _most_connections() -> int:
    """Connections that the descriptors of this process suffice for."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        used = len(os.listdir("/proc/self/fd"))
    except (ImportError, OSError):
        return CONNECTIONS
    return CONNECTIONS if limit < 0 else max(1, min(CONNECTIONS, limit - used - SPARE_FILES))


def _protocol(body_timeout: float) -> Any:
    """The protocol class: httptools' with limits for requests where it is installed, uvicorn's choice elsewhere."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        return "auto"
    most = _most_connections()

    class Protocol(HttpToolsProtocol):
        """Closes connections whose headers or bodies take too long, and those whose headers are invalid."""

        _timer: asyncio.TimerHandle | None = None
        _header = _received = 0  # bytes of the header that are parsed, and that have been received without an end of it
        _body = 0  # bytes of the body since the timer started
        _state = "header"  # what the client is expected to send: header, body, or nothing
        _since = 0.0  # since when

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait_for("header", PATIENCE)
            if len(self.connections) > most:
                self._make_room()

        def _make_room(self) -> None:
            """Close the connection that has waited longest for its client, else this one."""
            others: Any = self.connections - {self}
            waiting = [p for p in others if p._state != "nothing" and not p.transport.is_closing()]
            oldest = min(waiting, key=lambda p: p._since, default=None)
            if oldest is None or self.loop.time() - oldest._since < SETTLED:
                self._refuse(b"503 Service Unavailable")
            else:
                oldest._refuse(b"408 Request Timeout")

        def _refuse(self, status: bytes) -> None:
            if self.cycle is None or (self._state == "body" and not self.cycle.response_started):
                head = b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                self.transport.write(head)
            self.transport.close()

        def _wait_for(self, state: str, seconds: float = 0.0) -> None:
            self._state, self._since = state, self.loop.time()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if seconds:
                check = self._check_body if state == "body" else self.transport.close
                self._timer = self.loop.call_later(seconds, check)

        def _check_body(self) -> None:
            """Close the connection unless the body arrives, or waits here to be read."""
            if not self.flow.read_paused and self._body < MIN_RATE * body_timeout:
                self._refuse(b"408 Request Timeout")
                return
            self._body, since = 0, self._since
            self._wait_for("body", body_timeout)
            self._since = since

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_for("nothing")
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._state == "nothing" or self.transport.is_closing():
                return
            if self._timer is None:  # most requests arrive in one piece and need no timer
                self._wait_for(self._state, PATIENCE if self._state == "header" else body_timeout)
            if self._state == "header":
                self._received += len(data)
                if self._received > MAX_HEADER:
                    self.send_400_response("The header is too large.")

        def on_message_begin(self) -> None:
            self._state, self._header = "header", 0
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            self._header += len(url)
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._header += len(name) + len(value) + len(b": \r\n")
            if self._header > MAX_HEADER:
                raise ValueError("the header is too large")  # httptools makes it an invalid request
            super().on_header(name, value)
            if name.lower() == b"host" and sum(known == b"host" for known, _ in self.headers) > 1:
                raise ValueError("two headers Host")  # RFC 9112, section 3.2

        def on_headers_complete(self) -> None:
            self._body = self._received = 0
            self._wait_for("body")
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._body += len(body)
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._wait_for("header" if self.cycle.response_complete else "nothing")
            super().on_message_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self._state == "nothing" and not self.transport.is_closing():
                self._state, self._since = "header", self.loop.time()  # uvicorn closes it after KEEP_ALIVE

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
                app, http=_protocol(app.settings.body_timeout), ws="none", lifespan="off", log_config=None, access_log=False,
                server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=max(1, round(grace)), limit_concurrency=CONNECTIONS + 1, backlog=2048,
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
