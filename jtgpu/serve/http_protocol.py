"""`Protocol`: HTTP connections with limits for headers, bodies and descriptors."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PATIENCE = 15.0  # seconds for the header of a request
MAX_HEADER = 1 << 16  # bytes
MIN_RATE = 16 << 10  # bytes a second of a body that is under way
CONNECTIONS = 10_000
SPARE_FILES = 64  # descriptors for what is not a connection
SETTLED = 1.0  # seconds after which a connection that sends nothing makes room for a new one


def most_connections() -> int:
    """Connections that the descriptors of this process suffice for."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        used = len(os.listdir("/proc/self/fd"))
    except (ImportError, OSError):
        return CONNECTIONS
    return CONNECTIONS if limit < 0 else max(1, min(CONNECTIONS, limit - used - SPARE_FILES))


class Protocol(HttpToolsProtocol):
    """Closes connections whose headers or bodies take too long, and those whose headers are invalid."""

    body_timeout = 15.0  # seconds
    most_connections = CONNECTIONS

    _timer: asyncio.TimerHandle | None = None
    _header = _received = 0  # bytes of the header that are parsed, and that have been received without an end of it
    _body = 0  # bytes of the body since the timer started
    _state = "header"  # what the client is expected to send: header, body, or nothing
    _since = 0.0  # since when

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for("header", PATIENCE)
        if len(self.connections) > self.most_connections:
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
        cycle: Any = self.cycle  # None before the first request
        if cycle is None or (self._state == "body" and not cycle.response_started):
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
        if not self.flow.read_paused and self._body < MIN_RATE * self.body_timeout:
            self._refuse(b"408 Request Timeout")
            return
        self._body, since = 0, self._since
        self._wait_for("body", self.body_timeout)
        self._since = since

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for("nothing")
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._state == "nothing" or self.transport.is_closing():
            return
        if self._timer is None:  # most requests arrive in one piece and need no timer
            self._wait_for(self._state, PATIENCE if self._state == "header" else self.body_timeout)
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
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise ValueError("HTTP/1.0 and HTTP/1.1 are spoken here")
        if not self.url.startswith((b"/", b"*")):  # the target counts, and not Host: RFC 9112, section 3.2.2
            host = self.url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
            self.headers[:] = [(b"host", host), *(pair for pair in self.headers if pair[0] != b"host")]
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
