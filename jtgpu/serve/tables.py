"""Tables of cases: uploads of CSV, Parquet and Arrow, answered at once if they are small and as a job otherwise."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, defstruct, field, structs
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from ..cases import answer_file
from ..columns.arrow import arrow, arrow_parquet
from ..columns.csv_file import CsvFile
from ..columns.files import open_cases
from ..errors import JtgpuError, UnknownVariable
from ..inference.tree import JunctionTree
from ..model.discrete import DiscreteModel
from ..model.quick import parse_codes
from ..options.record import fields_of
from ..options.tables import CsvDialect, TableOptions
from ..util.atomic_file import write_text
from .hosted import Hosted
from .requests import Refusal, closest_names, json_response, kind_of, parameters, problem, read, trace_of, unless_gone
from .settings import Settings, check_type
from .trees import core_of, network_kind

AT_ONCE = 5_000_000  # bytes of a table that is answered at once
PREVIEW = 1 << 20  # bytes of the part of a table whose columns are shown
ROWS = 20  # of a preview
MOST_COMPARED = 200  # columns of a preview that are compared with the names of variables: each takes up to 10 ms
POLL = 0.2  # seconds between looks at a job
ARROW = ("application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file")
ARROW_FILE, ARROW_STREAM = b"ARRO", b"\xff\xff\xff\xff"  # how they begin
UPLOADS = ("text/csv", "text/tab-separated-values", "application/vnd.apache.parquet", *ARROW,
           "application/octet-stream")  # fmt: skip
OUTPUTS = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


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

    async def columns(self, request: Request, hosted: Hosted) -> Response:
        """The columns of a CSV file."""
        self._check(request, hosted)
        options, _ = _options(request, hosted.states)
        body = await read(request, PREVIEW)
        job = await asyncio.to_thread(self._jobs.new, hosted.name)
        try:
            job.cases.write_bytes(body[: body.rfind(b"\n") + 1] or body)  # the last line may be cut
            return json_response(await asyncio.to_thread(_columns, hosted.states, job.cases, options))
        except JtgpuError as error:
            problem = _problem_of(error, job)
            raise Refusal(problem["type"].rpartition("/")[2], problem["detail"]) from None
        finally:
            job.cancel()
            await asyncio.to_thread(job.remove)

    async def table(self, request: Request, hosted: Hosted) -> Response:
        """Answer a table: with a file, or with a job if it is large."""
        kind = self._check(request, hosted)
        options, output = _options(request, hosted.states)
        job = await asyncio.to_thread(self._jobs.new, hosted.name)
        tree: Any = core_of(hosted.tree)
        stays = False
        try:
            size = await self._save(request, job.cases)
            running = asyncio.get_running_loop().run_in_executor(
                self._pool, lambda: _run(job, tree, kind, options, output)
            )
            if size > AT_ONCE:
                stays = True
                running.add_done_callback(lambda done: done.cancelled() or done.exception())
                return json_response({"job": job.id, "url": f"/v1/jobs/{job.id}"}, 202)
            await unless_gone(request.receive, running, self._settings.timeout)
            state = await asyncio.to_thread(job.read)
            if state is None:
                raise Refusal("stopping", "the server stops")
            if state["error"] is not None:
                raise Refusal(state["error"]["type"].rpartition("/")[2], state["error"]["detail"])
            stays = True  # until it is sent
            return _file_response(job, state, BackgroundTask(job.remove))
        finally:
            if not stays:
                job.cancel()
                await asyncio.to_thread(job.remove)

    def _check(self, request: Request, hosted: Hosted) -> str:
        """The media type of an upload; raises `Refusal` if there must be none."""
        if self._settings.read_only:
            raise Refusal("read-only", "this server accepts no uploads (--read-only)")
        if not hosted.is_batched:
            of = network_kind(hosted.network)
            raise Refusal("unsupported", f"tables are not answered for {of} networks: use jtgpu batch or jtgpu dynamic")
        return check_type(trace_of(request).headers, UPLOADS)

    async def _save(self, request: Request, path: Path) -> int:
        """Write the body to a file; its size."""
        limit, size = self._settings.max_upload, 0
        with path.open("wb") as file:
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise Refusal("too-large-body", f"the table has more than {limit:,} bytes", limit=limit)
                await asyncio.to_thread(file.write, part)
        return size

    # Jobs -----------------------------------------------------------------------------------------------------

    async def serve_job(self, request: Request) -> Response:
        """``/v1/jobs/{job}``, ``/events`` and ``/file``."""
        name, part = request.path_params["job"], request.path_params.get("part", "")
        trace_of(request).question = "job"
        job = self._jobs.find(name)
        state = None if job is None else await asyncio.to_thread(job.read)
        if job is None or state is None or part not in ("", "events", "file"):
            raise Refusal("not-found", f"there is no job {name[:60]!r}")
        if request.method == "DELETE":
            job.cancel()
            if state["state"] in FINISHED:
                await asyncio.to_thread(job.remove)
            return Response(status_code=204)
        if part == "events":
            return StreamingResponse(
                _events(job), media_type="text/event-stream", headers={"cache-control": "no-store"}
            )
        if part == "":
            return json_response(state)
        if state["state"] != "done":
            raise Refusal("not-found", f"the job is {state['state']}: there is no file", state=state["state"])
        return _file_response(job, state)


def _file_response(job: FolderJob, state: dict[str, Any], after: BackgroundTask | None = None) -> FileResponse:
    """The answers of a job."""
    suffix = state["format"]
    headers = {"x-jtgpu-report": json.dumps(state["report"])}
    return FileResponse(
        job.output(suffix), headers=headers, media_type=OUTPUTS[suffix], filename=f"answers.{suffix}", background=after
    )


async def _events(job: FolderJob) -> AsyncIterator[str]:
    """Server-sent events: the state whenever it changes, until the job is finished."""
    before = None
    while True:
        state = await asyncio.to_thread(job.read)
        if state is None:
            return
        if state != before:
            name = state["state"] if state["state"] in FINISHED else "progress"
            yield f"event: {name}\ndata: {json.dumps(state)}\n\n"
            before = state
        if state["state"] in FINISHED:
            return
        await asyncio.sleep(POLL)


def _run(job: FolderJob, tree: JunctionTree, kind: str, options: dict[str, Any], output: str) -> None:
    """Answer the table of a job; in the thread of tables."""
    try:
        if job.is_cancelled:
            raise Cancelled
        job.write(state="running")
        if kind in ARROW or _first_bytes(job.cases) in (ARROW_FILE, ARROW_STREAM):
            _as_parquet(job.cases)
        report = answer_file(tree, job.cases, job.output(output), progress=job.progress, **options)
        summary = {k: v for k, v in report.as_dict().items() if k not in ("output", "resumed")}
        job.write(state="done", done=report.cases, format=output, report=summary)
    except Cancelled:
        job.write(state="cancelled")
    except Exception as error:
        job.write(state="failed", error=_problem_of(error, job))
    finally:
        job.cases.unlink(missing_ok=True)


def _problem_of(error: Exception, job: FolderJob) -> dict[str, Any]:
    """The problem that an error is, without names of our files."""
    kind = kind_of(error)
    if kind == "internal" and type(error).__module__.startswith("pyarrow"):
        kind = "invalid-table"
    if kind == "internal":
        return problem(error)
    detail = str(error).replace(f"{job.folder}/", "").replace(job.cases.name, "the table")
    row = re.search(r"\brow (\d{1,12})\b", detail)
    return problem(Refusal(kind, detail, **({"row": int(row[1])} if row else {})))


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _as_parquet(path: Path) -> None:
    """Replace an Arrow stream or file by a Parquet file."""
    pa, parquet = arrow(), arrow_parquet()
    try:
        is_file = _first_bytes(path) == ARROW_FILE
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
            other = path.with_suffix(".parquet")
            parquet.write_table(reader.read_all(), other)
    except pa.ArrowException as error:
        raise Refusal("invalid-table", f"the table is not valid Arrow: {str(error)[:200]}") from None
    other.replace(path)


def _query_fields() -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of the parameters of the query string, from the options of tables."""
    for name, option in fields_of(TableOptions).items():
        typed: Any = bool if option.kind is bool else Literal[option.choices] if option.choices else list[str]
        default: Any = field(default_factory=list) if typed == list[str] else option.default
        yield name, Annotated[typed, Meta(description=option.opt.help)], default
    codes = "What codes in cells mean: index, or xray:1=yes,0=no. Repeatable."
    yield "codes", Annotated[list[str], Meta(description=codes)], field(default_factory=list)
    for name in DIALECT:
        yield name, Annotated[str, Meta(description=fields_of(CsvDialect)[name].opt.help)], ""
    yield "format", Annotated[Literal[tuple(OUTPUTS)], Meta(description="Of the answer.")], "csv"


DIALECT = tuple(fields_of(CsvDialect))
TableQuery = defstruct("TableQuery", [*_query_fields()], forbid_unknown_fields=True, kw_only=True)


def _options(request: Request, model: DiscreteModel) -> tuple[dict[str, Any], str]:
    """Options of `answer_file` from the query string, and the format of the output."""
    query = parameters(request.query_params, TableQuery)
    options = {name: value for name, value in structs.asdict(query).items() if value}
    output = options.pop("format")
    if "targets" in options:
        options["targets"] = [v for text in options["targets"] for v in _names(model, text)]
    for name in ("keep", "evidence_columns"):
        if name in options:
            options[name] = [part for text in options[name] for part in text.split(",")]
    for name in DIALECT:
        if name in options and (check := fields_of(CsvDialect)[name].opt.check) is not None:
            options[name] = check(options[name])
    if "codes" in options:
        options["codes"] = parse_codes(model.variables, options["codes"])
    return options, output


def _names(model: DiscreteModel, text: str) -> list[str]:
    """A variable, or several that commas separate."""
    names = [text] if text in model or "," not in text else text.split(",")
    for name in names:
        if name not in model:
            raise UnknownVariable(f"there is no variable {name[:60]!r}")
    return names


def _columns(model: DiscreteModel, path: Path, options: Mapping[str, Any]) -> dict[str, object]:
    """Columns of a CSV file and the variables that they are, and the first rows."""
    source = open_cases(path, model, CsvDialect(**{name: options[name] for name in DIALECT if name in options}))
    if not isinstance(source, CsvFile):
        raise Refusal("invalid-table", "only columns of CSV files are shown")
    rows: list[list[str]] = []
    for chunk in islice(source.chunks([], source.columns, ROWS), 1):
        chunk.load()
        rows += map(list, zip(*(column[:ROWS].fill_null("").to_pylist() for column in chunk.columns), strict=True))
    unknown = iter(range(MOST_COMPARED))
    columns = [
        {
            "name": name, "variable": model.index(name) if name in model else None,
            "closest": [] if name in model or next(unknown, None) is None else closest_names(name, model.variables),
        }
        for name in source.columns
    ]
    return {"columns": columns, "delimiter": source.delimiter, "rows": rows}


# Jobs: tables that are answered while their clients wait elsewhere. Their state is in files, for all workers.

FINISHED = ("done", "failed", "cancelled")
MOST = 100  # jobs
AGE = 3600.0  # seconds after which a finished job is removed
INTERVAL = 0.2  # seconds between reports of progress
PREFIX = "jtgpu-serve-"
_ID = re.compile(r"[A-Za-z0-9_-]{22}\Z")


class Cancelled(Exception):
    """The client has cancelled the job, or the server stops."""


class FolderJob:
    """A table, its answer, and the state of the computation, in a folder."""

    def __init__(self, folder: Path):
        self.id, self.folder = folder.name, folder
        self.cases = folder / "cases"
        self._state: dict[str, Any] = {}
        self._reported = 0.0

    def output(self, suffix: str) -> Path:
        """The file of the answers."""
        return self.folder / f"answers.{suffix}"

    def read(self) -> dict[str, Any] | None:
        """The state; None for a job that has been removed."""
        try:
            state: dict[str, Any] = json.loads((self.folder / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return state

    def write(self, **changes: object) -> None:
        """Change the state."""
        self._state.update(changes)
        if self._state["state"] == "done":
            self._state["url"] = f"/v1/jobs/{self.id}/file"
        with suppress(OSError):  # the folder has been removed
            write_text(self.folder / "state.json", json.dumps(self._state), durable=False)

    def progress(self, cases: int, read: Any, total: Any) -> None:
        """Report progress; raises `Cancelled` if the job has been cancelled."""
        now = time.monotonic()
        if now - self._reported >= INTERVAL:
            self._reported = now
            if self.is_cancelled:
                raise Cancelled
            self.write(done=int(cases), read=int(read), total=int(total))

    @property
    def is_cancelled(self) -> bool:
        """Whether the job is to end."""
        return (self.folder / "cancel").exists() or not self.folder.exists()

    def cancel(self) -> None:
        """End the job soon."""
        with suppress(OSError):
            (self.folder / "cancel").touch()

    def remove(self) -> None:
        """Remove all files."""
        shutil.rmtree(self.folder, ignore_errors=True)


class JobFolder:
    """The folder of all jobs."""
    # folder: An existing folder that several workers share. Default: a private one, removed by `close`, and at the
    #     start of another server if this process dies.

    def __init__(self, folder: str = ""):
        sweep()
        self._folder = Path(folder) if folder else None
        self._is_own = not folder
        self._jobs: list[FolderJob] = []

    @property
    def path(self) -> Path:
        """The folder, made on first use."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        return self._folder

    def new(self, network: str) -> FolderJob:
        """Create a job."""
        # raises Refusal: If there are too many.
        self._remove_old()
        if sum(1 for _ in self.path.iterdir()) >= MOST:
            raise Refusal("busy", f"{MOST} tables are waiting or have not been fetched; try again later")
        folder = self.path / secrets.token_urlsafe(16)
        folder.mkdir(mode=0o700)
        job = FolderJob(folder)
        job.write(
            job=job.id, network=network, state="waiting", done=0, read=0, total=0, url=None, report=None, error=None,
            format="csv",
        )  # fmt: skip
        self._jobs.append(job)
        return job

    def find(self, name: str) -> FolderJob | None:
        """The job of a name."""
        if not _ID.match(name) or self._folder is None:
            return None
        folder = self.path / name
        return FolderJob(folder) if folder.is_dir() else None

    def cancel_all(self) -> None:
        """End the jobs of this process."""
        for job in self._jobs:
            job.cancel()

    def _remove_old(self) -> None:
        now = time.time()
        self._jobs = [job for job in self._jobs if job.folder.exists()]
        for folder in self.path.iterdir():
            job = FolderJob(folder)
            state = job.read()
            with suppress(OSError):
                if state and state["state"] in FINISHED and now - (folder / "state.json").stat().st_mtime > AGE:
                    job.remove()

    def close(self) -> None:
        """Remove the folder."""
        if self._is_own and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def sweep() -> None:
    """Remove the folders of servers that died: those of tables, of workers, and of networks that were opened."""
    for folder in Path(tempfile.gettempdir()).glob("jtgpu-*-*-*"):
        kind, _, rest = folder.name.removeprefix("jtgpu-").partition("-")
        owner = rest.partition("-")[0] if kind in ("serve", "open") else ""
        with suppress(OSError):
            if owner.isdigit() and folder.stat().st_uid == os.getuid() and not _is_alive(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
