"""Forms of an answer of the server: requests a second of 64 clients, and bytes a response, in one run.

    python bench/serve_forms.py [munin ...] [--rounds 3] [--seconds 4] [--smoke]

Rows of bench/results/serve.jsonl. One server on one thread of the CPU; rounds of the forms take turns. Every
client asks for all posteriors given four findings, of which each request replaces one. `cpu_ms` is the smallest of all
rounds. `since` asks with three significant digits, as the form `digits` does, only for what has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import time
from typing import Any

from bench_serve import CONNECTIONS, FINDINGS, Connection, cpu_of, server
from rows import ROOT, append, row

import jtgpu

PACKED = "application/vnd.msgpack"
# name -> parameters, and the header Accept
FORMS = {
    "json": ("", "application/json"),
    "msgpack": ("", PACKED),
    "flat json": ("?flat=1", "application/json"),
    "flat msgpack": ("?flat=1", PACKED),
    "digits json": ("?digits=3", "application/json"),
    "since json": ("?digits=3&since=", "application/json"),
    "since msgpack": ("?digits=3&since=", PACKED),
}
_TAG = re.compile(rb"tag\W+([0-9a-f]{24})")  # JSON and MessagePack


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


def bodies_of(net: Any, tree: Any, seed: int, n: int) -> list[bytes]:
    """Bodies of requests, each of which replaces one finding of the one before it."""
    rng, case = random.Random(seed), tree.sample(1, seed=seed)
    names = rng.sample(net.variables, FINDINGS)
    bodies = []
    for i in range(n):
        bodies.append(json.dumps({"evidence": {v: str(case[v][0]) for v in names}}).encode())
        names[i % FINDINGS] = rng.choice([v for v in net.variables if v not in names])
    return bodies


async def drive(
    port: int, process: int, path: str, form: tuple[str, str], bodies: list[list[bytes]], seconds: float
) -> dict[str, float]:
    """Requests as fast as the answers come."""
    loop = asyncio.get_running_loop()
    made = await asyncio.gather(*(loop.create_connection(Client, "127.0.0.1", port) for _ in bodies))
    before, begun = cpu_of(process), time.perf_counter()
    sizes: list[int] = []

    async def repeat(client: Client, mine: list[bytes]) -> None:
        tag, i = "", 0
        while time.perf_counter() - begun < seconds:
            body = mine[i % len(mine)]
            head = (
                f"POST {path}{form[0]}{tag} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                f"accept: {form[1]}\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            answer = await client.ask(head.encode() + body)
            sizes.append(len(answer))
            if form[0].endswith("since="):
                match = _TAG.search(answer)
                assert match is not None, answer[:400]
                tag = match[1].decode()
            i += 1

    await asyncio.gather(*(repeat(client, mine) for (_, client), mine in zip(made, bodies, strict=True)))
    spent, cpu = time.perf_counter() - begun, cpu_of(process) - before
    for transport, _ in made:
        transport.close()
    n = len(sizes)
    return {"requests_per_second": n / spent, "cpu_ms": 1e3 * cpu / n, "bytes": sum(sizes) / n}


def measure(name: str, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """The rows of one network."""
    net = jtgpu.load(name)
    with net.compile("cpu") as tree:
        bodies = [bodies_of(net, tree, seed, 40) for seed in range(CONNECTIONS)]
    results: dict[str, list[dict[str, float]]] = {form: [] for form in FORMS}
    words = ["-m", "jtgpu", "serve", name, "--port", "0", "--json", "--threads", "1"]
    with server(*words) as (port, process, _):
        for _ in range(rounds):
            for form, how in FORMS.items():
                path = f"/v1/networks/{name}/posteriors"
                results[form].append(asyncio.run(drive(port, process, path, how, bodies, seconds)))
    made = []
    for form, of in results.items():
        best = max(of, key=lambda r: r["requests_per_second"])
        made.append(
            row(
                "serve", name, "jtgpu cpu 1 thread", None, load=f"{CONNECTIONS} clients", findings="one changes",
                form=form, cpu_ms=min(r["cpu_ms"] for r in of), requests_per_second=best["requests_per_second"],
                bytes=round(of[-1]["bytes"]), rounds=rounds,
            )
        )  # fmt: skip
    return made


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--smoke", action="store_true", help="one short round of alarm; stores nothing")
    options = parser.parse_args()
    if options.smoke:
        options.networks, options.rounds, options.seconds = ["alarm"], 1, 0.2
    for name in options.networks or ["munin"]:
        for made in measure(name, options.rounds, options.seconds):
            print(f"{name:10} {made['form']:14} {made['requests_per_second']:8.1f}/s {made['cpu_ms']:7.3f} ms of CPU "
                  f"{made['bytes']:8,} bytes")  # fmt: skip
            if not options.smoke:
                append(ROOT / "bench" / "results" / "serve.jsonl", [made])


if __name__ == "__main__":
    main()
