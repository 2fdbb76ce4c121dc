"""Tables of cases: uploads of CSV, Parquet and Arrow, answered at once if they are small and as a job otherwise."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..cases import answer_file
from ..errors import UnknownVariable
from ..inference.tables.arrow import arrow, arrow_parquet
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from .exchange import JSON, Exchange, Gone
from .guard import Guard
from .hosted import Hosted
from .jobs import FINISHED, Cancelled, Job, JobFolder
from .problems import Refusal, closest_names, kind_of, problem
from .settings import Settings

__all__ = ["Tables"]

AT_ONCE = 5_000_000  # bytes of a table that is answered at once
PREVIEW = 1 << 20  # bytes of the part of a table whose columns are shown
ROWS = 20  # of a preview
PART = 1 << 18  # bytes of a response that are sent at a time
POLL = 0.2  # seconds between looks at a job
ARROW = ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file")
UPLOADS = ("text/csv", "text/tab-separated-values", "application/vnd.apache.parquet", *ARROW,
           "application/octet-stream")  # fmt: skip
OUTPUTS = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}
FLAGS = ("labels", "log_evidence", "conflict", "mpe")


class Tables:
    """Answers tables, one after another, in a thread of its own."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._jobs = JobFolder(settings.folder)
        self._pool = ThreadPoolExecutor(1, "jtgpu-tables")

    def close(self) -> None:
        """Cancel all jobs and remove their files."""
        self._jobs.cancel_all()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._jobs.close()

    # Uploads --------------------------------------------------------------------------------------------------

    async def serve(self, exchange: Exchange, hosted: Hosted, question: str) -> None:
        """Respond to ``table`` and ``columns``."""
        if self._settings.read_only:
            raise Refusal("read-only", "this server accepts no uploads (--read-only)")
        kind = Guard.check_type(exchange.headers, UPLOADS)
        if question == "columns":
            await exchange.json(_columns(hosted.tree.model, await exchange.read(PREVIEW)))
            return
        options, output = _options(exchange, hosted.tree.model)
        job = await asyncio.to_thread(self._jobs.new, hosted.name)
        try:
            size = await self._save(exchange, job.cases)
            running = asyncio.get_running_loop().run_in_executor(
                self._pool, lambda: _run(job, hosted.tree, kind, options, output)
            )
            if size > AT_ONCE:
                running.add_done_callback(lambda done: done.cancelled() or done.exception())
                await exchange.json({"job": job.id, "url": f"/v1/jobs/{job.id}"}, 202)
                return
        except BaseException:
            await asyncio.to_thread(job.remove)
            raise
        try:
            await exchange.unless_gone(running, self._settings.timeout)
            state = await asyncio.to_thread(job.read)
            if state is None:
                raise Refusal("stopping", "the server stops")
            if state["error"] is not None:
                raise Refusal(state["error"]["type"].rpartition("/")[2], state["error"]["detail"])
            await self._send_file(exchange, job, state)
        finally:
            job.cancel()
            await asyncio.to_thread(job.remove)

    async def _save(self, exchange: Exchange, path: Path) -> int:
        """Write the body to a file; its size."""
        limit, size = self._settings.max_upload, 0
        with path.open("wb") as file:
            async for part in exchange.chunks():
                size += len(part)
                if size > limit:
                    raise Refusal("too-large-body", f"the table has more than {limit:,} bytes", limit=limit)
                await asyncio.to_thread(file.write, part)
        return size

    async def _send_file(self, exchange: Exchange, job: Job, state: dict[str, Any]) -> None:
        path = job.output(state["format"])
        size = path.stat().st_size
        headers = [
            (b"content-type", OUTPUTS[state["format"]].encode()),
            (b"content-length", str(size).encode()),
            (b"content-disposition", f'attachment; filename="answers.{state["format"]}"'.encode()),
            (b"x-jtgpu-report", json.dumps(state["report"]).encode()),
            *exchange.more_headers,
        ]
        exchange.status = 200
        await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
        with path.open("rb") as file:
            more = exchange.method != "HEAD"
            while more:
                part = await asyncio.to_thread(file.read, PART)
                more = len(part) == PART
                await exchange.send({"type": "http.response.body", "body": part, "more_body": more})
            if exchange.method == "HEAD":
                await exchange.send({"type": "http.response.body"})

    # Jobs -----------------------------------------------------------------------------------------------------

    async def serve_job(self, exchange: Exchange, name: str, part: str) -> None:
        """Respond to ``/v1/jobs/{name}``, ``/events`` and ``/file``."""
        job = self._jobs.find(name)
        state = None if job is None else await asyncio.to_thread(job.read)
        if job is None or state is None or part not in ("", "events", "file"):
            raise Refusal("not-found", f"there is no job {name[:60]!r}")
        if exchange.method == "DELETE":
            job.cancel()
            if state["state"] in FINISHED:
                await asyncio.to_thread(job.remove)
            await exchange.respond(b"", JSON, 204)
        elif part == "events":
            await self._send_events(exchange, job)
        elif part == "":
            await exchange.json(state)
        elif state["state"] != "done":
            raise Refusal("not-found", f"the job is {state['state']}: there is no file", state=state["state"])
        else:
            await self._send_file(exchange, job, state)

    async def _send_events(self, exchange: Exchange, job: Job) -> None:
        """Server-sent events: the state whenever it changes, until the job is finished."""
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), *exchange.more_headers]
        exchange.status = 200
        await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(_disconnected(exchange))
        try:
            before = None
            while not gone.done():
                state = await asyncio.to_thread(job.read)
                if state is None:
                    break
                if state != before:
                    name = state["state"] if state["state"] in FINISHED else "progress"
                    data = f"event: {name}\ndata: {json.dumps(state)}\n\n".encode()
                    await exchange.send({"type": "http.response.body", "body": data, "more_body": True})
                    before = state
                if state["state"] in FINISHED:
                    break
                await asyncio.wait((gone,), timeout=POLL)
            if gone.done():
                raise Gone
            await exchange.send({"type": "http.response.body"})
        finally:
            gone.cancel()


async def _disconnected(exchange: Exchange) -> None:
    while (await exchange.receive())["type"] != "http.disconnect":
        pass


def _run(job: Job, tree: JunctionTree, kind: str, options: dict[str, Any], output: str) -> None:
    """Answer the table of a job; in the thread of tables."""
    try:
        if job.is_cancelled:
            raise Cancelled
        job.write(state="running")
        if kind in ARROW or _is_arrow(job.cases):
            _as_parquet(job.cases)
        report = answer_file(tree, job.cases, job.output(output), progress=job.progress, **options)
        found = {k: v for k, v in report.as_dict().items() if k not in ("output", "resumed")}
        job.write(state="done", done=report.cases, format=output, report=found)
    except Cancelled:
        job.write(state="cancelled")
    except Exception as error:
        job.write(state="failed", error=_problem_of(error, job))
    finally:
        job.cases.unlink(missing_ok=True)


def _problem_of(error: Exception, job: Job) -> dict[str, Any]:
    """The problem that an error is, without names of our files."""
    kind = kind_of(error)
    if kind == "internal" and type(error).__module__.startswith("pyarrow"):
        kind = "invalid-table"
    if kind == "internal":
        return problem(error)
    detail = str(error).replace(f"{job.folder}/", "").replace(job.cases.name, "the table")
    row = re.search(r"\brow (\d{1,12})\b", detail)
    return problem(Refusal(kind, detail, **({"row": int(row[1])} if row else {})))


def _is_arrow(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(6) == b"ARROW1"


def _as_parquet(path: Path) -> None:
    """Replace an Arrow stream or file by a Parquet file."""
    pa, parquet = arrow(), arrow_parquet()
    try:
        is_file = _is_arrow(path)
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
            other = path.with_suffix(".parquet")
            parquet.write_table(reader.read_all(), other)
    except pa.ArrowException as error:
        raise Refusal("invalid-table", f"the table is not valid Arrow: {str(error)[:200]}") from None
    other.replace(path)


def _options(exchange: Exchange, model: DiscreteModel) -> tuple[dict[str, Any], str]:
    """Options of `answer_file` from the query string, and the format of the output."""
    known = {"targets", "keep", "evidence_columns", "on_error", "format", "delimiter", *FLAGS}
    for name in exchange.query:
        if name not in known:
            raise Refusal("invalid-argument", f"there is no option {name[:60]!r}; known: {', '.join(sorted(known))}")
    output = exchange.parameter("format", "csv")
    if output not in OUTPUTS:
        raise Refusal("invalid-argument", f"format must be csv or parquet, not {output[:60]!r}", field="format")
    on_error = exchange.parameter("on_error", "error")
    if on_error not in ("error", "flag"):
        raise Refusal("invalid-argument", f"on_error must be error or flag, not {on_error[:60]!r}", field="on_error")
    options: dict[str, Any] = {"on_error": on_error, **{name: exchange.flag(name) for name in FLAGS}}
    if "targets" in exchange.query:
        options["targets"] = [v for text in exchange.query["targets"] for v in _names(model, text)]
    for name in ("keep", "evidence_columns"):
        if name in exchange.query:
            options[name] = [part for text in exchange.query[name] for part in text.split(",")]
    if exchange.parameter("delimiter"):
        options["delimiter"] = exchange.parameter("delimiter")
    return options, output


def _names(model: DiscreteModel, text: str) -> list[str]:
    """A variable, or several that commas separate."""
    names = [text] if text in model or "," not in text else text.split(",")
    for name in names:
        if name not in model:
            raise UnknownVariable(f"there is no variable {name[:60]!r}")
    return names


def _columns(model: DiscreteModel, body: bytes) -> dict[str, Any]:
    """Columns of a CSV file and the variables that they are, and the first rows."""
    text = body.decode("utf-8-sig", "replace")
    if not text.endswith("\n") and "\n" in text:
        text = text[: text.rindex("\n")]  # the last line may be cut
    head = text.partition("\n")[0]
    known = set(model.variables)
    delimiter = max(",;\t|", key=lambda d: (sum(c.strip() in known for c in head.split(d)), head.count(d)))
    try:
        rows = []
        for row in csv.reader(io.StringIO(text), delimiter=delimiter):
            rows.append(row)
            if len(rows) > ROWS:
                break
    except csv.Error as error:
        raise Refusal("invalid-table", f"the table is not valid CSV: {error}") from None
    if not rows:
        raise Refusal("invalid-table", "the table is empty")
    columns = [
        {
            "name": name,
            "variable": model.index(name) if name in known else None,
            "closest": [] if name in known else closest_names(name, model.variables),
        }
        for name in rows[0]
    ]
    return {"columns": columns, "delimiter": delimiter, "rows": rows[1:]}
