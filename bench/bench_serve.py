"""The server: CPU time a request, requests a second and latencies, next to a hello world of the same stack.

    python bench/bench_serve.py [alarm munin ...] [--rounds 3] [--seconds 2] [--smoke]

Rows of bench/results/serve.jsonl. Rounds of the server and of the hello world take turns. `cpu_ms` is user and system
time of the server's process over the requests, the smallest of all rounds, which other processes disturb little;
latencies on a shared machine say as much about the machine, so those of the hello world are next to them. Requests ask
for all posteriors given four findings. The client uses loopback only, and stops by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from rows import ROOT, parser_of, row, store

import jtgpu

CONNECTIONS = 64
RATE = 1000.0  # requests a second of the open loop
FINDINGS = 4
BODIES = 4000
MANY = 10_000  # requests after which memory is compared
TICKS = os.sysconf("SC_CLK_TCK")


class Round(NamedTuple):
    """One round of requests."""

    requests: int
    seconds: float
    cpu: float  # seconds of the server's process
    latencies: list[float]  # seconds from the time that a request was due, in the open loop


class Connection(asyncio.Protocol):
    """A connection that sends one request at a time and reads responses with a content length."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = b""
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Finish the request when its response is complete."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        at = head.find(b"content-length: ")
        length = int(head[at + 16 :].partition(b"\r")[0])
        if len(self._buffer) >= end + 4 + length and self._done is not None:
            assert head.startswith((b"http/1.1 200", b"http/1.1 422")), head
            self._buffer = b""
            self._done.set_result(None)
            self._done = None

    async def send(self, request: bytes) -> None:
        """Send a request and wait for its response."""
        self._done = asyncio.get_running_loop().create_future()
        assert self.transport is not None
        self.transport.write(request)
        await self._done


def requests_of(name: str, path: str, repeated: bool, targets: int | None = None) -> list[bytes]:
    """Requests with findings of sampled cases, for all variables or some targets."""
    net = jtgpu.load(name)
    rng = random.Random(1)
    with net.compile("cpu") as tree:
        rows = tree.sample(BODIES, seed=1)
    names = net.variables
    found = []
    for i in range(8 if repeated else BODIES):
        some = rng.sample(names, min(FINDINGS, len(names)))
        wanted = {} if targets is None else {"targets": rng.sample(names, targets)}
        body = json.dumps({"evidence": {v: str(rows[v][i]) for v in some}, **wanted}).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        )
        found.append(head.encode() + b"\r\n\r\n" + body)
    return found


def cpu_of(process: int) -> float:
    """Seconds of user and system time of a process."""
    with open(f"/proc/{process}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident(process: int) -> float:
    """Resident memory of a process, in MB."""
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


async def drive(
    port: int, process: int, requests: list[bytes], seconds: float, rate: float, connections: int = CONNECTIONS
) -> Round:
    """One round: an open loop with Poisson arrivals, or as fast as the answers come if `rate` is 0."""
    loop = asyncio.get_running_loop()
    made = await asyncio.gather(*(loop.create_connection(Connection, "127.0.0.1", port) for _ in range(connections)))
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _, connection in made:
        free.put_nowait(connection)
    rng, latencies, n = random.Random(2), list[float](), 0
    before, begun = cpu_of(process), time.perf_counter()
    if rate:
        running: set[asyncio.Task[None]] = set()
        due = begun

        async def one(due: float, request: bytes) -> None:
            connection = await free.get()
            await connection.send(request)
            free.put_nowait(connection)
            latencies.append(time.perf_counter() - due)

        while due - begun < seconds:
            due += rng.expovariate(rate)
            wait = due - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            task = asyncio.create_task(one(due, requests[n % len(requests)]))
            running.add(task)
            task.add_done_callback(running.discard)
            n += 1
        await asyncio.gather(*running)
    else:

        async def repeat(connection: Connection, first: int) -> None:
            i = first
            while time.perf_counter() - begun < seconds:
                sent = time.perf_counter()
                await connection.send(requests[i % len(requests)])
                latencies.append(time.perf_counter() - sent)
                i += connections

        await asyncio.gather(*(repeat(connection, i) for i, (_, connection) in enumerate(made)))
    spent = time.perf_counter() - begun
    cpu = cpu_of(process) - before
    for transport, _ in made:
        transport.close()
    return Round(len(latencies), spent, cpu, sorted(latencies))


@contextmanager
def server(*words: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """A process that prints JSON with its address: its port, its number and the JSON."""
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line
            if line.startswith("}"):
                break
        about = json.loads(text)
        yield int(about["url"].rstrip("/").rpartition(":")[2]), process.pid, about
    finally:
        process.terminate()
        process.wait(30)


def hello() -> None:
    """Serve 1.3 kB of JSON with the same server, for every path."""
    from jtgpu.serve import bind
    from jtgpu.serve.server import Listener
    from jtgpu.serve.settings import Settings

    body = json.dumps({"x": [0.123456789] * 100}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]

    class Hello:
        settings = Settings()

        def stop(self) -> None:
            pass

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": body})

    sock = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}/"
    Listener(Hello(), 1.0, lambda: print(json.dumps({"url": url}, indent=2), flush=True)).run([sock])  # type: ignore[arg-type]


def percentile(values: list[float], share: float) -> float:
    """A percentile of sorted values, in milliseconds."""
    return 1e3 * values[min(int(share * len(values)), len(values) - 1)]


def measure(name: str, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """The rows of one network."""
    path = f"/v1/networks/{name}/posteriors"
    plain = ["-m", "jtgpu", "serve", name, "--port", "0", "--json"]
    found = []
    with server(*plain) as (port, process, about), server(__file__, "--hello") as (other, hello_process, _):
        loads = [("new findings", RATE, False), ("new findings", 0.0, False), ("repeated findings", 0.0, True)]
        if name == "munin":
            loads = [("new findings", 20.0, False), ("repeated findings", 20.0, True), ("repeated findings", 0.0, True)]
        requests: list[bytes] = []
        for what, rate, repeated in loads:
            requests = requests_of(name, path, repeated)
            results: dict[str, list[Round]] = {"jtgpu": [], "hello world": []}
            for _ in range(rounds):
                for engine, at, number in (("jtgpu", port, process), ("hello world", other, hello_process)):
                    results[engine].append(asyncio.run(drive(at, number, requests, seconds, rate)))
            for engine, of in results.items():
                made = row(
                    "serve", name, engine, None, load=f"{rate:g}/s" if rate else "saturation", findings=what,
                    cpu_ms=1e3 * min(r.cpu / r.requests for r in of),
                    cpu_ms_median=1e3 * statistics.median(r.cpu / r.requests for r in of),
                    requests_per_second=max(r.requests / r.seconds for r in of),
                    requests_per_cpu_second=max(r.requests / max(r.cpu, 1e-9) for r in of),
                    p50_ms=[round(percentile(r.latencies, 0.5), 3) for r in of],
                    p99_ms=[round(percentile(r.latencies, 0.99), 3) for r in of],
                    load_average=round(os.getloadavg()[0], 2), ready_seconds=about["seconds"], rounds=rounds,
                )  # fmt: skip
                made["rss_mb"] = resident(process)
                found.append(made)
        before, n = resident(process), 0
        while n < MANY:
            last = asyncio.run(drive(port, process, requests, seconds, 0.0))
            n += last.requests
        found[-2]["rss_mb_growth"] = round(resident(process) - before, 1)
        found[-2]["rss_requests"] = n
    return found


def main() -> None:
    """Measure, print and store."""
    parser = parser_of(__doc__, "serve.jsonl")
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--hello", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.hello:
        hello()
        return
    names = ["asia"] if given.smoke else given.networks or ["alarm", "munin"]
    rounds, seconds = (1, 0.5) if given.smoke else (given.rounds, given.seconds)
    for name in names:
        for made in measure(name, rounds, seconds):
            print(
                f"{name:8} {made['engine']:12} {made['load']:10} {made['findings']:18} {made['cpu_ms']:7.3f} ms CPU "
                f"{made['requests_per_second']:7.0f}/s  p50 {min(made['p50_ms']):7.2f}  "
                f"p99 {min(made['p99_ms']):7.2f} ms"
                + (f"  memory {made['rss_mb_growth']:+} MB" if "rss_mb_growth" in made else "")
            )
            store(given, [made])


if __name__ == "__main__":
    main()
