"""Endpoints of the questions: from a body to its answer.

`QuestionEndpoints.question` is a handler of starlette's. Posteriors of one case, by far the most frequent question, are
also answered by `QuestionEndpoints.quick` without starlette's routes, requests, responses and middleware, which take
longer than the answer of a small network does.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import JtgpuError
from ..inference.evidence import read_findings
from ..inference.queries.posteriors import as_list, targets_of
from ..inference.tree import JunctionTree
from .batching import Rates
from .metrics import Metrics
from .networks import Hosted
from .questions import QUESTIONS, bodies
from .questions.bodies import Posteriors, rounded
from .questions.cases import Form, known_of
from .requests import JSON, Refusal, Trace, flag, number, read, read_body, trace_of, unless_gone
from .settings import Head, Settings, check_type

# Whether a question is answered: its cost is predicted before any work is done.

RATE = 5e8  # operations a second that any machine does


def admit(tree: JunctionTree, rates: Rates, body: Any, timeout: float) -> None:
    """Refuse a question that would take longer than the timeout."""
    # raises Refusal: With the predicted seconds.
    # raises JtgpuError: If the question is invalid.
    seconds = _seconds(tree, rates, body)
    if seconds > timeout:
        raise Refusal(
            "too-slow",
            f"this question would take about {seconds:,.0f} s; the limit is {timeout:g} s (--timeout)",
            predicted=round(seconds, 3), limit=timeout,
        )  # fmt: skip


def _seconds(tree: JunctionTree, rates: Rates, body: Any) -> float:
    """Predicted seconds."""
    if isinstance(body, bodies.Posteriors):
        if body.cases is None:
            return rates.seconds(1)
        hard = sum(1 for case in body.cases if case.soft or case.do)
        return rates.seconds(len(body.cases) - hard) + 3 * hard * rates.single
    if isinstance(body, bodies.Map):
        variables = as_list(body.variables, "variables")
        return tree.map_cost(variables, **known_of(body)).operations / _rate(tree, rates)
    if isinstance(body, bodies.Joint):
        variables = as_list(body.variables, "variables")
        return tree.joint_cost(variables, **known_of(body)).operations / _rate(tree, rates)
    if isinstance(body, bodies.Mpe):
        return max(body.k, 1) * rates.single
    if isinstance(body, (bodies.Voi, bodies.Mi)):
        card = int(tree.model.cardinality[tree.model.index(body.target)])
        return rates.seconds(card)
    return rates.single


def _rate(tree: JunctionTree, rates: Rates) -> float:
    """Operations a second."""
    try:
        flops = tree.plan.cost().flops
    except JtgpuError:
        return RATE
    return max(RATE, flops / rates.single if rates.single else RATE)


COMPRESSED = 2048  # bytes of a body from which it is compressed
LOCAL = ("127.0.0.1", "::1")
_encode = msgspec.json.Encoder().encode
_JSON = JSON.encode()
_PLAIN = Form()


class QuestionEndpoints:
    """Answers the questions of all networks."""

    def __init__(self, networks: Mapping[str, Hosted], settings: Settings, metrics: Metrics):
        self._networks, self._settings, self._metrics = networks, settings, metrics
        self._of_path = {f"/v1/networks/{name}/posteriors": hosted for name, hosted in networks.items()}

    def refuse_if_full(self) -> None:
        """Raise `Refusal` if too many requests are waiting."""
        waiting = sum(h.waiting for h in self._networks.values())
        if waiting >= self._settings.queue:
            raise Refusal("busy", f"{waiting:,} requests are waiting; try again later")

    async def quick(self, path: str, scope: Scope, receive: Receive, send: Send, headers: Head) -> bool:
        """Answer posteriors of one case."""
        # returns False for any other request. Then its body may have been read; see `Trace.body`.
        hosted = self._of_path.get(path)
        if hosted is None or scope["query_string"] or headers.get(b"content-type") != _JSON:
            return False
        trace: Trace = scope["jtgpu"]
        trace.network, trace.question = hosted.name, "posteriors"
        trace.body = await read_body(receive, headers.get(b"content-length", b""), self._settings.max_body)
        body: Any = hosted.decoders["posteriors"].decode(trace.body or b"{}")
        if not _is_single(body):
            return False
        self.refuse_if_full()
        found = await self._posteriors(hosted, body, _PLAIN, receive, trace)
        fields = [(b"content-type", _JSON)]
        if len(found) >= COMPRESSED:
            fields.append((b"vary", b"Accept-Encoding"))
            if _pays(scope, headers) and _accepts_gzip(headers.get(b"accept-encoding", b"")):
                found = gzip.compress(found, 1, mtime=0)
                fields.append((b"content-encoding", b"gzip"))
        fields.append((b"content-length", b"%d" % len(found)))
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": found})
        return True

    async def question(self, request: Request, hosted: Hosted) -> Response:
        """Answer any question."""
        check_type(request.headers, (JSON,))
        trace, settings = trace_of(request), self._settings
        question = trace.question
        body: Any = hosted.decoders[question].decode(await read(request, settings.max_body) or b"{}")
        self.refuse_if_full()
        form = _form(request)
        if question == "posteriors" and _is_single(body):
            return Response(await self._posteriors(hosted, body, form, request.receive, trace), media_type=JSON)
        if question == "posteriors" and body.cases is not None and len(body.cases) > settings.max_cases:
            raise Refusal(
                "too-many-cases", f"{len(body.cases):,} cases are more than {settings.max_cases:,}; use table",
                needed=len(body.cases), limit=settings.max_cases,
            )  # fmt: skip
        arrived = time.perf_counter()

        def compute() -> bytes:
            begun = time.perf_counter()
            admit(hosted.tree, hosted.rates, body, settings.timeout)
            found = QUESTIONS[question](hosted.tree, body, form)
            computed = time.perf_counter() - begun
            found["ms"] = _milliseconds(begun - arrived, computed)
            return _encode(rounded(found, form.digits))

        answer = await unless_gone(request.receive, hosted.submit(compute), settings.timeout)
        trace.cases = len(body.cases) if question == "posteriors" and body.cases is not None else 1
        self._metrics.record_cases(trace.cases, trace.cases)
        return Response(answer, media_type=JSON)

    async def _posteriors(self, hosted: Hosted, body: Posteriors, form: Form, receive: Receive, trace: Trace) -> bytes:
        """Posteriors of one case, as JSON."""
        model = hosted.tree.model
        case = read_findings(model, body.evidence or {}, body.likelihood)
        targets = None if body.targets is None else targets_of(model, body.targets)
        future = hosted.batcher.submit(case, targets)
        if hosted.batcher.is_inline:
            answered = await future
        else:
            answered = await unless_gone(receive, future, self._settings.timeout)
        trace.cases = answered.cases
        self._metrics.record_cases(1, answered.cases)
        found: dict[str, Any] = {
            "log_evidence": answered.log_evidence,
            "posteriors": hosted.named(answered.flat, targets, form),
            "ms": _milliseconds(answered.queued, answered.computed),
        }
        return _encode(found if form.digits is None else rounded(found, form.digits))


def _is_single(body: Posteriors) -> bool:
    """Whether a batch of posteriors can include a question."""
    return body.cases is None and not body.soft and not body.do


def _pays(scope: Scope, headers: Head) -> bool:
    """Whether compression saves time: not for a client on this machine, unless that is a proxy."""
    client = scope.get("client")
    return not client or client[0] not in LOCAL or b"x-forwarded-for" in headers


def _accepts_gzip(accepted: bytes) -> bool:
    """Whether the header Accept-Encoding has gzip, with a quality that is not zero."""
    for part in accepted.lower().split(b","):
        name, _, quality = part.partition(b";")
        if name.strip() == b"gzip":
            return quality.strip().rstrip(b"0") not in (b"q=", b"q=0.", b"q=.")
    return False


def _milliseconds(queued: float, computed: float) -> dict[str, float]:
    return {"queued": round(1000 * queued, 3), "computed": round(1000 * computed, 3)}


def _form(request: Request) -> Form:
    if not request.scope.get("query_string"):
        return _PLAIN
    return Form(flag(request, "labels"), number(request, "digits", None, 1, 17))
