"""The server behind a socket: a thread, a process, several processes; its end under load; clients that are slow."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import httpx
import pytest

from jtgpu.errors import ArgumentError
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App, Server, bind, serve
from jtgpu.serve.server import Listener
from tests.cli.commands import run
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and SO_REUSEPORT")


def test_a_server_in_a_thread(asia: JunctionTree) -> None:
    with asia.serve(token="secret") as server:
        assert server.url == f"http://127.0.0.1:{server.port}/#token=secret"
        base = f"http://127.0.0.1:{server.port}"
        assert httpx.get(f"{base}/v1/networks").status_code == 401
        with httpx.Client(base_url=base, headers={"authorization": "Bearer secret"}) as client:
            found = client.post("/v1/networks/asia/posteriors", json={"targets": ["lung"]}).json()
            assert found["posteriors"]["lung"] == pytest.approx([0.055, 0.945])
            assert client.get("/readyz").json()["status"] == "ready"
            assert client.get("/v1/networks/asia", headers={"if-none-match": "x"}).status_code == 200
            tag = client.get("/v1/networks/asia").headers["etag"]
            assert client.get("/v1/networks/asia", headers={"if-none-match": tag}).status_code == 304
            assert client.options("/v1/networks").status_code == 405
        with pytest.raises(ArgumentError, match="listen"):
            serve(asia, port=server.port)
    assert "stopped" in repr(server)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{base}/healthz")
    assert asia.posterior("lung")["yes"] == pytest.approx(0.055)  # the tree stays open


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": None}, "host must be a string, not None"),
        ({"host": 5}, "host must be a string"),
        ({"port": "x"}, "port"),
        ({"port": -1}, "port"),
        ({"grace": None}, "grace"),
        ({"soft": {}}, "serve.. has no argument 'soft'"),
        ({"token": 5}, "token must be a string"),
        ({"allow_hosts": 5}, "allow_hosts must be a list of strings, not the int 5"),
        ({"allow_origins": [None]}, "allow_origins must be a string"),
        ({"allow_origins": ["example.org"]}, "allow_origins must be origins such as .*, not 'example.org'"),
        ({"queue": 0}, "queue"),
    ],
)
def test_wrong_arguments(asia: JunctionTree, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        asia.serve(**options)


def test_ports(asia: JunctionTree) -> None:
    with closing(bind("127.0.0.1", 0)) as sock:
        sock.listen()
        port = sock.getsockname()[1]
        with pytest.raises(ArgumentError, match=r"cannot listen .*port 0 takes a free one"):
            bind("127.0.0.1", port)
    with pytest.raises(ArgumentError, match="cannot listen"):
        bind("no.such.host.invalid", 0)
    with pytest.raises(ArgumentError, match="port"):
        bind("127.0.0.1", 70_000)


def test_malformed_http(asia: JunctionTree) -> None:
    with asia.serve() as server:
        for raw in (b"\x16\x03\x01\x00\xa5\x01", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"x" * 70_000):
            with closing(socket.create_connection((server.host, server.port), timeout=20)) as sock:
                sock.sendall(raw)
                sock.shutdown(socket.SHUT_WR)
                assert b"500" not in sock.recv(4096)[:12]
        assert httpx.get(f"{server.url}healthz").status_code == 200


def test_slow_headers_and_large_headers(asia: JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httptools", reason="limits of headers need httptools")
    monkeypatch.setattr("jtgpu.serve.http_protocol.PATIENCE", 0.1)
    with asia.serve() as server:
        with closing(socket.create_connection((server.host, server.port), timeout=20)) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: ")
            assert sock.recv(10) == b""  # closed
        with closing(socket.create_connection((server.host, server.port), timeout=20)) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            time.sleep(0.25)  # idle connections stay open
            sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        with closing(socket.create_connection((server.host, server.port), timeout=20)) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\n")
            with pytest.raises(OSError):
                send_headers(sock, 40)


POST = b"POST /v1/networks/asia/posteriors HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


@contextmanager
def connection(server: Server) -> Iterator[socket.socket]:
    with closing(socket.create_connection((server.host, server.port), timeout=20)) as sock:
        yield sock


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"host: localhost\r\n" + b"x: " + b"y" * 60_000, b"200"),
        (b"host: localhost\r\n" + b"x: " + b"y" * 66_000, b"400"),
        (b"host: localhost\r\nhost: localhost", b"400"),
        (b"host: localhost\r\nHost: other.example", b"400"),
    ],
)
def test_headers_are_limited_and_name_one_host(asia: JunctionTree, head: bytes, status: bytes) -> None:
    with asia.serve() as server, connection(server) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\n" + head + b"\r\n\r\n")
        assert sock.recv(4096)[9:12] == status


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET http://evil.example/v1/networks HTTP/1.1", b"421"),
        (b"GET http://localhost/v1/networks HTTP/1.1", b"200"),
        (b"GET /v1/networks HTTP/0.9", b"400"),
    ],
)
def test_the_host_of_a_target_counts(asia: JunctionTree, line: bytes, status: bytes) -> None:
    pytest.importorskip("httptools", reason="the target is checked where httptools is installed")
    with asia.serve() as server, connection(server) as sock:
        sock.sendall(line + b"\r\nhost: localhost\r\n\r\n")
        assert sock.recv(4096)[9:12] == status


@pytest.mark.slow
def test_slow_bodies_are_cut_off(asia: JunctionTree) -> None:
    pytest.importorskip("httptools", reason="limits of bodies need httptools")
    with asia.serve(body_timeout=0.3) as server:
        for first in (b"", b"{"):
            with connection(server) as sock:
                sock.sendall(POST + b"content-length: 1900000\r\n\r\n" + first)
                assert sock.recv(4096).startswith(b"HTTP/1.1 408")
                assert sock.recv(4096) == b""
        with connection(server) as sock:  # slow, but fast enough
            sock.sendall(POST + b"content-length: 20000\r\n\r\n")
            for _ in range(4):
                time.sleep(0.1)
                sock.sendall(b" " * 5_000)
            assert sock.recv(4096).startswith(b"HTTP/1.1 400")  # not JSON


@pytest.mark.slow
def test_a_server_without_free_descriptors_drops_the_slowest_client(
    asia: JunctionTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("httptools", reason="limits of bodies need httptools")
    monkeypatch.setattr("jtgpu.serve.http_protocol.most_connections", lambda: 4)
    with asia.serve() as server, ExitStack() as stack:
        slow = [stack.enter_context(connection(server)) for _ in range(4)]
        for sock in slow:
            sock.sendall(POST + b"content-length: 1900000\r\n\r\n{")
        with connection(server) as sock:  # none has been silent for long
            assert sock.recv(4096).startswith(b"HTTP/1.1 503")
        monkeypatch.setattr("jtgpu.serve.http_protocol.SETTLED", 0.0)
        for _ in range(3):
            assert httpx.get(f"{server.url}healthz", headers={"connection": "close"}).status_code == 200
        assert slow[0].recv(4096).startswith(b"HTTP/1.1 408")


def send_headers(sock: socket.socket, n: int) -> None:
    """Send headers without an end."""
    for _ in range(n):
        sock.sendall(b"x-filler: " + b"x" * 4000 + b"\r\n")
        time.sleep(0.005)


@contextmanager
def command(*words: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """``jtgpu serve`` in a process of its own, ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "jtgpu", "serve", *words, "--port", "0", "--json"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("}"):
                break
        assert lines, process.stderr.read() if process.stderr else ""
        yield process, json.loads("".join(lines))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class Load:
    """Threads that ask one question after another, each on a connection of its own, until the server is gone.

    Attributes
    ----------
    answered : int
    lost : list
        Requests that were sent and got no answer.
    """

    def __init__(self, port: int, threads: int):
        self.answered, self.lost = 0, list[str]()
        self._port, self._lock = port, threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        body = json.dumps({"evidence": {"xray": "yes" if number % 2 else "no"}, "targets": ["lung"]})
        connection: http.client.HTTPConnection | None = None
        while True:
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
                try:
                    connection.connect()
                except OSError:
                    return  # nothing was accepted
            try:
                connection.request("POST", "/v1/networks/asia/posteriors", body, {"content-type": "application/json"})
                response = connection.getresponse()
                found = json.loads(response.read())
                assert response.status == 200, found
                expected = 0.4887114 if number % 2 else 0.0012364
                assert abs(found["posteriors"]["lung"][0] - expected) < 1e-6
            except (OSError, http.client.HTTPException, AssertionError) as error:
                with self._lock:
                    self.lost.append(repr(error))
                return
            with self._lock:
                self.answered += 1
            if response.headers.get("connection") == "close":
                connection.close()
                connection = None

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


def test_a_connection_that_the_system_has_accepted_is_served_at_the_end(asia: JunctionTree) -> None:
    listener = Listener(App({"asia": asia}), 1.0, lambda: None)
    listener.config.load()
    listener.lifespan, listener.servers = listener.config.lifespan_class(listener.config), []
    sock = bind("127.0.0.1", 0)
    sock.listen()
    with socket.create_connection(sock.getsockname()) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        asyncio.run(listener.shutdown([sock]))
        assert client.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("asia",), ("asia", "--workers", "2")])
def test_sigterm_under_load_loses_nothing(words: tuple[str, ...]) -> None:
    with command(*words) as (process, about):
        port = int(about["url"].rpartition(":")[2].strip("/"))
        load = Load(port, 8)
        deadline = time.monotonic() + 60
        while load.answered < 200 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        load.join()
        assert process.wait(30) == 0
    assert load.answered >= 200
    assert load.lost == []


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced() -> None:
    with command("asia", "--workers", "2", "--token", "secret") as (process, about):
        base = about["url"].partition("#")[0]
        children = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        headers = {"authorization": "Bearer secret"}
        assert httpx.get(f"{base}v1/networks", headers=headers).status_code == 200
        text = httpx.get(f"{base}metrics", headers=headers).text
        assert "jtgpu_requests_total" in text
        workers = [int(c) for c in children if b"spawn_main" in open(f"/proc/{c}/cmdline", "rb").read()]  # noqa: SIM115
        os.kill(workers[0], signal.SIGKILL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            again = subprocess.run(
                ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False
            ).stdout.split()
            if len(again) >= len(children) and str(workers[0]) not in again:
                break
            time.sleep(0.2)
        assert httpx.get(f"{base}v1/networks", headers=headers).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.slow
def test_the_command(tmp_path: Any) -> None:
    (tmp_path / "token").write_text("secret\n")
    with command("asia", "--name", "other=asia", "--token-file", str(tmp_path / "token"), "--log", "json") as (
        p,
        about,
    ):
        assert about["networks"] == ["asia", "other"]
        assert about["url"].endswith("/#token=secret")
        base = about["url"].partition("#")[0]
        headers = {"authorization": "Bearer secret"}
        found = httpx.post(f"{base}v1/networks/other/posteriors", json={"evidence": {"xray": "yes"}}, headers=headers)
        assert found.status_code == 200
        p.send_signal(signal.SIGTERM)
        _, err = p.communicate(timeout=30)
        assert p.returncode == 0
    [line] = [json.loads(text) for text in err.splitlines() if text.startswith("{")]
    assert (line["network"], line["question"], line["status"]) == ("other", "posteriors", 200)
    assert "xray" not in err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["nosuch", "--port", "0"], 2, "nosuch"),
        ([], 2, "name a network"),
        (["asia", "asia"], 2, "same name"),
        (["asia", "--name", "x"], 2, "NAME=FILE"),
        (["asia", "--host", "0.0.0.0", "--no-token"], 2, "token"),
        (["asia", "--token", "a b"], 2, "ASCII"),
        (["asia", "--max-body", "many"], 2, "many"),
        (["asia", "--token-file", "nowhere"], 2, "nowhere: No such file"),
        (["asia", "--host", "no.such.host.invalid"], 2, "cannot listen"),
        (["asia", "--token-file", "/nonexistent"], 2, "nonexistent"),
        (["asia", "--log", "jsn"], 2, "json"),
    ],
)
def test_wrong_commands(words: list[str], code: int, text: str) -> None:
    done = run("serve", *words)
    assert done.exit_code == code
    assert text in " ".join(done.stderr.replace("│", " ").split())
