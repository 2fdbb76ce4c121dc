"""Forms of an answer of the server: requests a second of 64 clients, latencies and bytes a response.

    python bench/serve_forms.py [munin ...] [--servers "cpu 1 thread" gpu ...] [--forms json ...] [--clients 8]
                                [--rounds 3] [--seconds 4] [--smoke]

Rows of bench/results/serve.jsonl. One server at a time, whose answers are compared with the reference's first; rounds
of the forms take turns, and the quickest counts. Every client asks for all posteriors (or those of three targets) given
four findings, of which each request replaces one. `cpu_ms` is the smallest of all rounds, of the server and its
workers. `since` asks with three significant digits, as the form `digits` does, only for what has changed, and
`tolerance` for what has changed by more than 0.001. `--clients` processes share the 64 connections.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

from bench_serve import CONNECTIONS, FINDINGS, Connection, cpu_of, percentile, server
from rows import parser_of, row, store

import jtgpu

SERVERS = {
    "cpu": ["--backend", "cpu"],
    "cpu 1 thread": ["--backend", "cpu", "--threads", "1"],
    "cpu 12 workers": ["--backend", "cpu", "--threads", "1", "--workers", "12"],
    "gpu": ["--backend", "gpu"],
    "gpu 2 workers": ["--backend", "gpu", "--workers", "2"],
    "gpu 4 workers": ["--backend", "gpu", "--workers", "4"],
}
PACKED = "application/vnd.msgpack"
# name -> parameters, and the header Accept
FORMS = {
    "json": ("", "application/json"),
    "three targets": ("", "application/json"),
    "msgpack": ("", PACKED),
    "flat json": ("?flat=1", "application/json"),
    "flat msgpack": ("?flat=1", PACKED),
    "digits json": ("?digits=3", "application/json"),
    "since json": ("?digits=3&since=", "application/json"),
    "tolerance json": ("?digits=3&tolerance=0.001&since=", "application/json"),
    "tolerance msgpack": ("?tolerance=0.001&since=", PACKED),
    "since msgpack": ("?digits=3&since=", PACKED),
}
_TAG = re.compile(rb"tag\W+([0-9a-f]{24})")  # JSON and MessagePack


class Load(NamedTuple):
    """What some clients measured."""

    latencies: list[float]  # seconds
    bytes: int  # of all responses


class Client(Connection):
    """A connection that keeps the last response."""

    received = b""

    def data_received(self, data: bytes) -> None:
        """Keep what arrives, then finish the request."""
        self.received += data
        super().data_received(data)

    async def ask(self, request: bytes) -> bytes:
        """The response to a request."""
        self.received = b""
        await self.send(request)
        return self.received


def bodies_of(net: Any, rows: Any, seed: int, n: int, **more: Any) -> list[bytes]:
    """Bodies of requests about a row, each of which replaces one finding of the one before it."""
    rng = random.Random(seed)
    names = rng.sample(net.variables, FINDINGS)
    bodies = []
    for i in range(n):
        bodies.append(json.dumps({"evidence": {v: str(rows[v][seed]) for v in names}, **more}).encode())
        names[i % FINDINGS] = rng.choice([v for v in net.variables if v not in names])
    return bodies


async def drive(port: int, path: str, form: tuple[str, str], bodies: list[list[bytes]], seconds: float) -> Load:
    """Requests of some clients, each as fast as its answers come; the first quarter of the time is not counted."""
    loop = asyncio.get_running_loop()
    made = await asyncio.gather(*(loop.create_connection(Client, "127.0.0.1", port) for _ in bodies))
    begun = time.perf_counter()
    found, received = list[float](), 0

    async def repeat(client: Client, mine: list[bytes]) -> None:
        nonlocal received
        tag, i = "", 0
        while (sent := time.perf_counter()) - begun < seconds:
            body = mine[i % len(mine)]
            head = (
                f"POST {path}{form[0]}{tag} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                f"accept: {form[1]}\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            answer = await client.ask(head.encode() + body)
            if sent - begun >= seconds / 4:
                found.append(time.perf_counter() - sent)
                received += len(answer)
            if form[0].endswith("since="):
                match = _TAG.search(answer[:400]) or _TAG.search(answer)
                assert match is not None, answer[:400]
                tag = match[1].decode()
            i += 1

    await asyncio.gather(*(repeat(client, mine) for (_, client), mine in zip(made, bodies, strict=True)))
    for transport, _ in made:
        transport.close()
    return Load(found, received)


def share(port: int, path: str, form: tuple[str, str], bodies: list[list[bytes]], seconds: float) -> Load:
    """`drive`, in a process of its own."""
    return asyncio.run(drive(port, path, form, bodies, seconds))


def check(url: str, bodies: list[bytes], expected: list[Any]) -> None:
    """Compare the server's answers with the reference's."""
    for body, posteriors in zip(bodies, expected, strict=True):
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            answered = json.load(answer)["posteriors"]
        for v, p in posteriors.items():
            assert all(abs(x - y) < 1e-9 for x, y in zip(p.probabilities, answered[v], strict=True)), v


def cpu_with_workers(process: int) -> float:
    """Seconds of user and system time of a server and of its workers."""
    with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
        return cpu_of(process) + sum(cpu_of(int(word)) for word in file.read().split())


def measure(name: str, engine: str, given: argparse.Namespace, pool: Executor) -> Iterator[dict[str, Any]]:
    """The rows of a network and a server."""
    net = jtgpu.load(name)
    with net.compile("reference") as tree:
        rows, names = tree.sample(CONNECTIONS, seed=1), net.variables
        bodies = [bodies_of(net, rows, i, 40) for i in range(CONNECTIONS)]
        few = [bodies_of(net, rows, i, 40, targets=random.Random(i).sample(names, 3)) for i in range(CONNECTIONS)]
        expected = [tree.posteriors(**json.loads(client[0])) for client in bodies[:5]]
    path, seconds = f"/v1/networks/{name}/posteriors", given.seconds
    with server("-m", "jtgpu", "serve", name, "--port", "0", "--json", *SERVERS[engine]) as (port, process, about):
        check(f"http://127.0.0.1:{port}{path}", [client[0] for client in bodies[:5]], expected)
        rounds: dict[str, list[tuple[float, float, Load]]] = {form: [] for form in given.forms}
        for _ in range(given.rounds):
            for form in given.forms:
                before = cpu_with_workers(process)
                sent = few if form == "three targets" else bodies
                jobs = [pool.submit(share, port, path, FORMS[form], sent[i :: given.clients], seconds)
                        for i in range(given.clients)]  # fmt: skip
                loads = [job.result() for job in jobs]
                load = Load([t for each in loads for t in each.latencies], sum(each.bytes for each in loads))
                spent = (cpu_with_workers(process) - before) * 0.75  # of the time that is counted
                rounds[form].append((len(load.latencies) / (0.75 * seconds), spent / len(load.latencies), load))
        for form, of in rounds.items():
            rate, _, load = max(of, key=lambda each: each[0])
            latencies = sorted(load.latencies)
            yield row(
                "serve", name, f"jtgpu {engine}", None, load=f"{CONNECTIONS} clients", findings="one changes",
                form=form, cpu_ms=1e3 * min(each[1] for each in of), requests_per_second=rate,
                requests_per_second_range=[min(each[0] for each in of), rate],
                p50_ms=percentile(latencies, 0.5), p95_ms=percentile(latencies, 0.95),
                bytes=round(load.bytes / len(latencies)), rounds=given.rounds, ready_seconds=about["seconds"],
            )  # fmt: skip


def main() -> None:
    """Measure, print and store."""
    parser = parser_of(__doc__, "serve.jsonl")
    parser.add_argument("networks", nargs="*", default=["munin"])
    parser.add_argument("--servers", nargs="+", choices=SERVERS, default=["cpu 1 thread"])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=[*FORMS])
    parser.add_argument("--clients", type=int, default=1, help="processes that send the requests")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    given = parser.parse_args()
    if given.smoke:
        given.networks, given.rounds, given.seconds = ["alarm"], 1, 0.4
    with ProcessPoolExecutor(given.clients, get_context("spawn")) as pool:
        for name in given.networks:
            for engine in given.servers:
                for made in measure(name, engine, given, pool):
                    print(f"{name:8} {engine:14} {made['form']:14} {made['requests_per_second']:8.1f}/s "
                          f"p50 {made['p50_ms']:7.2f} p95 {made['p95_ms']:7.2f} ms, {made['cpu_ms']:7.3f} ms of CPU, "
                          f"{made['bytes']:8,} bytes", flush=True)  # fmt: skip
                    store(given, [made])


if __name__ == "__main__":
    main()
