"""`Server`: an `App` behind a socket, in a thread of this process; `run` serves in the calling thread."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import uvicorn

from ..errors import ArgumentError
from ..util.arguments import check_keywords, check_keywords_of, number, text, whole_number
from .app import App
from .settings import EVERYWHERE, is_loopback, url_of
from .trees import AnyTree, network_of

# `Listener`: uvicorn with our timeouts, size limits and graceful shutdown.

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
        connected: list[socket.socket] = []  # by the system: closing the listening socket would reset them
        for sock in sockets or []:
            sock.setblocking(False)
            with contextlib.suppress(OSError):  # there are no more
                while True:
                    connected.append(sock.accept()[0])
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        for sock in connected:
            sock.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, sock)
        deadline = asyncio.get_running_loop().time() + LINGER
        while self.server_state.connections and asyncio.get_running_loop().time() < deadline and not self.force_exit:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)

    def _protocol(self) -> Any:
        make: Any = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

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

    def _on_signal(self, *_: object) -> None:
        if self.should_exit:
            os._exit(1)
        self.should_exit = True


def make_app(
    trees: Mapping[str, AnyTree], host: str, *, with_token: bool = True, **options: object
) -> App:
    """Create the application of a server that listens at `host`.

    Off this machine's loopback a token is required: it is made if none is given.

    Raises
    ------
    ArgumentError
        If `with_token` is False and other machines reach the server.
    """
    text("host", host)
    if not is_loopback(host) and not options.get("token"):
        if not with_token:
            raise ArgumentError(f"a server that other machines reach ({host!r}) needs a token")
        options["token"] = secrets.token_urlsafe(32)
    app = App(trees, **options)
    if host in EVERYWHERE:
        name = socket.gethostname()
        app.use_hosts(host or "0.0.0.0", name, name.partition(".")[0])
    else:
        app.use_hosts(f"[{host}]" if ":" in host else host)
    return app


@check_keywords_of()
def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Bind a socket; port 0: a free one.

    Parameters
    ----------
    host : str
    port : int
    shared : bool
        Let other processes bind the same port, too.

    Raises
    ------
    ArgumentError
        If the port is taken, or the address is not one of this machine.
    """
    whole_number("port", port, least=0, most=65535)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ArgumentError(f"cannot listen at {host!r}: {reason}") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        advice = "; port 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
        raise ArgumentError(f"cannot listen at {host} port {port}: {error.strerror or error}{advice}") from None
    return sock


@check_keywords_of()
def run(app: App, sock: socket.socket, *, grace: float = 10.0, ready: Callable[[], None] = lambda: None) -> None:
    """Serve in the calling thread until SIGINT or SIGTERM, which have an effect in the main thread only.

    Parameters
    ----------
    app : App
        Warm.
    sock : socket
        From `bind`; closed at the end.
    grace : float
        Seconds for requests that are under way at the end.
    ready : callable
        Called once the server accepts connections.
    """
    listener = Listener(app, grace, ready)
    # what lives as long as the process is not looked at by the garbage collector at every request again
    gc.collect()
    gc.freeze()
    try:
        listener.run([sock])
    finally:
        app.close()


@check_keywords()
class Server:
    """A server in a thread; created by ``tree.serve()`` and `jtgpu.serve.serve`. Use it as a context manager.

    Attributes
    ----------
    url : str
        The address for a browser, with the token if there is one.
    host, port : str, int
    token : str
    """

    def __init__(self, app: App, host: str, port: int, grace: float):
        sock = bind(host, port)
        self.host, self.port, self.token = host, int(sock.getsockname()[1]), app.settings.token
        self.url = url_of(host, self.port, self.token)
        self.app = app
        ready = threading.Event()
        self._error: BaseException | None = None
        self._listener = Listener(app, grace, ready.set)

        def target() -> None:
            try:
                app.warm()
                self._listener.run([sock])
            except BaseException as error:  # reported by the constructor
                self._error = error
            finally:
                app.close()
                sock.close()
                ready.set()

        self._thread = threading.Thread(target=target, name="jtgpu-serve", daemon=True)
        self._thread.start()
        ready.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Finish the requests that are under way, and stop. The trees stay open."""
        self._listener.stop()
        self._thread.join()

    def wait(self) -> None:
        """Wait until the server stops."""
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(self.app.networks)
        return f"Server({names}; {self.url if self._thread.is_alive() else 'stopped'})"


def serve(
    trees: AnyTree | Mapping[str, AnyTree], *, host: str = "127.0.0.1",
    port: int = 0, grace: float = 10.0, **options: Any,
) -> Server:  # fmt: skip
    """Serve one or several compiled networks over HTTP, in a thread.

    Parameters
    ----------
    trees : JunctionTree, DynamicTree, MixedTree, MixedDynamicTree or DecisionTree, or mapping of str to these
        Networks by the names that clients use. A single one gets the name of its model.
    host : str, default "127.0.0.1"
        The address to listen at. Anything but an address of the loopback requires a token, which is made if none is
        given.
    port : int, default 0
        0: a free one.
    grace : float, default 10
        Seconds for requests that are under way when the server is closed.
    **options
        See `jtgpu.serve.settings.Settings`: ``token``, ``allow_hosts``, ``allow_origins``, ``embed``, ``api_only``,
        ``read_only``, ``max_body``, ``max_upload``, ``max_cases``, ``max_batch``, ``queue``, ``timeout``,
        ``body_timeout``, ``exact``, ``log``.

    Returns
    -------
    Server
        Ready: with ``.url`` and ``.close()``.

    Raises
    ------
    ArgumentError
        If an option is invalid, or the port is taken.

    Examples
    --------
    >>> import jtgpu, jtgpu.serve
    >>> tree = jtgpu.load("asia").compile("reference")
    >>> with jtgpu.serve.serve(tree) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """
    number("grace", grace, least=0)
    if isinstance(trees, AnyTree):
        trees = {network_of(trees).name.replace("/", "-") or "network": trees}
    return Server(make_app(trees, host, **options), host, port, grace)
