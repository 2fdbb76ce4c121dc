"""Many clients at once: everybody gets their own answer; queues are bounded; clients that leave cost nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import httpx
import numpy as np
import pytest

import jtgpu
from jtgpu.backends.base import Evidence
from jtgpu.errors import EvidenceError, TableTooLarge
from jtgpu.inference.tree import JunctionTree
from jtgpu.serve import App
from jtgpu.serve.batching import INLINE, Batcher, _Waiting
from jtgpu.serve.registry import AnswerRates
from tests.serve.client import LOCAL, Client, posts, together
from tests.support.examples import slow

SLOW = AnswerRates(10 * INLINE, 1e-3, 1e-3, 4)  # answered by the thread
ALONE, TOGETHER = AnswerRates(1e-4, 0, 1e-5, 1 << 30), AnswerRates(1e-4, 0, 1e-5, 1)


def mixed(alarm: JunctionTree, n: int) -> list[dict[str, Any]]:
    """Bodies with various findings and targets; some are impossible or malformed."""
    rng = np.random.default_rng(5)
    names = alarm.model.variables
    found: list[dict[str, Any]] = []
    for i in range(n):
        some = rng.choice(len(names), 1 + i % 5, replace=False)
        row = alarm.sample(1, seed=i)
        evidence: dict[str, Any] = {names[v]: row[names[v]][0] for v in some}
        body: dict[str, Any] = {"evidence": evidence}
        if i % 3:
            body["targets"] = [names[v] for v in rng.choice(len(names), 1 + i % 4, replace=False)]
        if i % 7 == 1:
            body["likelihood"] = {"CO": [0.2, 0.5, 0.9]}
        if i % 7 == 2:
            evidence["HISTORY"] = ["TRUE", "FALSE"]
        if i % 11 == 3:
            evidence["CO"] = "NOWHERE"
        if i % 11 == 5:
            body["targets"] = "nobody"
        if i % 13 == 6:
            body["do"] = {"HYPOVOLEMIA": "TRUE"}
            evidence.pop("HYPOVOLEMIA", None)
        found.append(body)
    return found


@pytest.mark.parametrize(
    "rates",
    [
        None,
        SLOW,
        ALONE._replace(small=TOGETHER),
        *slow((TOGETHER,), (ALONE,), (SLOW._replace(small=ALONE),), (TOGETHER._replace(small=ALONE),)),
    ],
)
def test_64_requests_at_once(alarm: JunctionTree, rates: AnswerRates | None) -> None:
    app = App({"alarm": alarm})
    app.warm()
    if rates is not None:
        hosted = app.networks["alarm"]
        hosted.rates = hosted.batcher.rates = rates
    bodies = mixed(alarm, 64)
    sends = posts("/v1/networks/alarm/posteriors", bodies)
    for body, response in zip(bodies, together(app, sends), strict=True):
        expected, reason = None, ""
        try:
            expected = alarm.posteriors(**body)
        except EvidenceError as error:
            reason = str(error)
        if expected is None:
            assert response.status_code == 422, body
            assert response.json()["detail"] == reason
            continue
        found = response.json()
        assert response.status_code == 200, found
        assert found["log_evidence"] == pytest.approx(expected.log_evidence, abs=1e-12)
        assert list(found["posteriors"]) == list(expected)
        for name, p in expected.items():
            np.testing.assert_allclose(found["posteriors"][name], p.probabilities, atol=1e-12)
    app.close()


def test_exact_answers_have_the_same_bits_in_any_company(alarm: JunctionTree) -> None:
    app = App({"alarm": alarm}, exact=True)
    bodies = [b for b in mixed(alarm, 30) if "do" not in b]
    sends = posts("/v1/networks/alarm/posteriors", bodies)
    crowd = [r.json() for r in together(app, sends)]
    for alone, found in zip((together(app, [s])[0].json() for s in sends), crowd, strict=True):
        assert alone.get("posteriors") == found.get("posteriors")
    app.close()


def test_a_question_that_is_too_large_is_its_own_error() -> None:
    """It was that of all requests of its batch."""
    tree = jtgpu.network("a->d<-b; c->d", "{n|y}", seed=1).compile("cpu", max_table=4, memory_limit=2000)
    batcher = Batcher(tree, TOGETHER, max_batch=9)
    codes = np.array([[0, -1, 0, -1], [-1, 1, -1, -1], [1, 1, -1, 0]], np.int32)  # of a, d, b, c
    answers = batcher._answer([_Waiting(Evidence(row), [0], str, None) for row in codes])
    assert not tree.whole
    assert [isinstance(a, TableTooLarge) for a in answers] == [False, True, False]
    batcher.close()


class Gate:
    """Lets the thread of posteriors wait until it is opened."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch):
        self.open, self.entered = threading.Event(), threading.Event()
        batcher = app.networks["asia"].batcher
        batcher.rates = SLOW
        answer = batcher._answer
        self.sizes: list[int] = []

        def waiting(items: Any) -> Any:
            self.entered.set()
            assert self.open.wait(20)
            self.sizes.append(len(items))
            return answer(items)

        monkeypatch.setattr(batcher, "_answer", waiting)


def test_requests_that_wait_are_answered_together(asia: JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App({"asia": asia})
    app.warm()
    gate = Gate(app, monkeypatch)

    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=LOCAL, timeout=60) as client:
            first = asyncio.create_task(client.post("/v1/networks/asia/posteriors", json={}))
            await asyncio.to_thread(gate.entered.wait, 20)
            rest = [asyncio.create_task(client.post("/v1/networks/asia/posteriors", json={})) for _ in range(20)]
            while app.networks["asia"].waiting < 20:
                await asyncio.sleep(0.01)
            # other questions are not held up
            assert (await client.post("/v1/networks/asia/mpe", json={})).status_code == 200
            gate.open.set()
            for task in (first, *rest):
                assert (await task).status_code == 200

    asyncio.run(run())
    assert gate.sizes == [1, 20]
    app.close()


def test_a_full_queue_is_a_503(asia: JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App({"asia": asia}, queue=5)
    app.warm()
    gate = Gate(app, monkeypatch)

    async def run() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=LOCAL, timeout=60) as client:
            first = asyncio.create_task(client.post("/v1/networks/asia/posteriors", json={}))
            await asyncio.to_thread(gate.entered.wait, 20)
            rest = [asyncio.create_task(client.post("/v1/networks/asia/posteriors", json={})) for _ in range(9)]
            await asyncio.wait(rest, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            gate.open.set()
            return [await t for t in (first, *rest)]

    found = asyncio.run(run())
    assert sorted(r.status_code for r in found) == [200] * 6 + [503] * 4
    busy = next(r for r in found if r.status_code == 503)
    assert busy.headers["retry-after"] == "1"
    assert busy.json()["type"] == "/errors/busy"
    app.close()


def test_a_late_answer_is_a_504(asia: JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App({"asia": asia}, timeout=0.05)
    app.warm()
    gate = Gate(app, monkeypatch)
    found = Client(app).ask("asia", "posteriors", {}, 504)
    assert found["type"] == "/errors/timeout"
    gate.open.set()
    app.close()


def test_a_client_that_is_gone_is_dropped_from_the_queue(asia: JunctionTree, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App({"asia": asia})
    app.warm()
    gate = Gate(app, monkeypatch)

    def request(gone: asyncio.Event) -> Any:
        messages = [{"type": "http.request", "body": b"{}"}]
        sent: list[Any] = []

        async def receive() -> Any:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/v1/networks/asia/posteriors", "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }  # fmt: skip
        return app(scope, receive, send), sent

    async def run() -> None:
        leaves, never = asyncio.Event(), asyncio.Event()
        first, _ = request(never)
        tasks = [asyncio.create_task(first)]
        await asyncio.to_thread(gate.entered.wait, 20)
        left, answered = request(leaves)
        stays, kept = request(never)
        tasks += [asyncio.create_task(left), asyncio.create_task(stays)]
        while app.networks["asia"].waiting < 2:
            await asyncio.sleep(0.01)
        leaves.set()
        await tasks[1]
        assert answered == []
        gate.open.set()
        await asyncio.gather(*tasks)
        assert kept[0]["status"] == 200

    asyncio.run(run())
    assert gate.sizes == [1, 1]
    app.close()


@pytest.mark.slow
def test_10_000_requests_leave_the_memory_flat(alarm: JunctionTree) -> None:
    import resource

    app = App({"alarm": alarm})
    app.warm()
    bodies = mixed(alarm, 64)
    rows = alarm.sample(2000, seed=1)
    names = alarm.model.variables

    async def run(n: int) -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=LOCAL, timeout=60) as client:
            for first in range(0, n, 50):
                batch = []
                for i in range(first, first + 50):
                    body = bodies[i % len(bodies)]
                    if i % 2:  # findings that nobody had before
                        some = {names[v]: rows[names[v]][i % 2000] for v in ((7 * i) % 37, (11 * i + 3) % 37)}
                        body = {"evidence": some}
                    batch.append(client.post("/v1/networks/alarm/posteriors", json=body))
                await asyncio.gather(*batch)

    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    asyncio.run(run(3000))
    before = resident()
    asyncio.run(run(10_000))
    assert resident() - before < 12 << 20
    app.close()


def test_the_batcher_ends_with_the_application(asia: JunctionTree) -> None:
    before = threading.active_count()
    for _ in range(3):
        app = App({"asia": asia})
        Client(app).ask("asia", "mpe", {})
        app.close()
    deadline = time.monotonic() + 10
    while threading.active_count() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before + 1
