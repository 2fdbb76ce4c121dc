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

from ..inference.evidence import read_findings
from ..inference.queries.scope import targets_of
from .admission import admit
from .guard import Head, check_type
from .hosted import Hosted
from .metrics import Metrics
from .problems import Refusal
from .questions import QUESTIONS
from .questions.bodies import Posteriors
from .questions.form import Form
from .questions.rounding import rounded
from .requests import JSON, Trace, flag, number, read, read_body, trace_of, unless_gone
from .settings import Settings

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
