"""The workers of a run on files: Ray Data's actors answer parts and write each one to its own file."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..cases.pipeline import default_concurrency, run_chunks
from ..cases.writing import NO_SPACE
from ..columns.arrow import arrow
from ..errors import JtgpuError
from ..inference.tree import JunctionTree
from .connect import Cluster, connected, import_ray, quiet, translate_error
from .parts import FilePart, PartReader, PartTarget, PartWriter, RowCounts, WorkerSpec

MAX_ATTEMPTS = 3  # for a part whose storage fails
FIRST_PAUSE = 0.5  # seconds before the second attempt


@dataclass(frozen=True)
class WorkerJob:
    """Everything that a worker needs to know; pickled and sent once."""

    spec: WorkerSpec
    reader: PartReader
    target: PartTarget


class PartWorker:
    """Answers one part after the other with a tree that is compiled once."""

    def __init__(self, job: WorkerJob):
        self.job = job
        arrow().set_cpu_count(job.spec.share.threads)
        self._tree: JunctionTree | None = None

    def tree(self) -> JunctionTree:
        """The tree for a part.

        The last digits of an adaptive tree's answers depend on the queries before. A part must not depend on other
        parts, so each one gets a new tree in this case.
        """
        if self._tree is not None and self._tree.is_adaptive:
            self._tree.close()
            self._tree = None
        if self._tree is None:
            self._tree = self._compile()
        return self._tree

    def _compile(self) -> JunctionTree:
        return self.job.spec.compile()

    def answer(self, part: FilePart) -> RowCounts:
        """Answer a part and write its file."""
        job = self.job
        solver = job.spec.solver(self.tree())
        fields = [job.target.schema.field(i) for i in range(len(job.reader.kept))]
        concurrency = default_concurrency(solver.tree, job.spec.share.threads)
        with job.reader.open(part) as chunks:
            writer = PartWriter(job.target, part.number)
            try:
                run_chunks(chunks, solver, fields, writer, concurrency=concurrency)
                writer.finish()
            except BaseException:
                writer.discard()
                raise
        return RowCounts(writer.rows, writer.flagged)

    def answer_with_retries(self, part: FilePart) -> RowCounts:
        """`answer`, repeated if the storage fails, unless the disk is full."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                return self.answer(part)
            except OSError as error:
                if isinstance(error, JtgpuError) or error.errno in NO_SPACE or attempt == MAX_ATTEMPTS:
                    raise
                time.sleep(FIRST_PAUSE * 2 ** (attempt - 1))
        raise AssertionError("unreachable")


class _PartActor:
    """`PartWorker` as Ray Data calls it: a batch of parts in, a batch of results out."""

    def __init__(self, job: Any):
        import ray

        self._worker = PartWorker(ray.get(job[0]))

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        results: dict[str, list[Any]] = {"number": [], "rows": [], "flagged": [], "error": []}
        for pickled in batch["part"].tolist():
            part: FilePart = pickle.loads(pickled)
            counts, error = RowCounts(0, 0), b""
            try:
                counts = self._worker.answer_with_retries(part)
            except (JtgpuError, OSError, MemoryError) as raised:  # raised again in the process that leads the run
                error = pickle.dumps(raised)
            values = (part.number, counts.rows, counts.flagged, error)
            for name, value in zip(results, values, strict=True):
                results[name].append(value)
        return results


def answer_parts(ray: object, job: WorkerJob, parts: Sequence[FilePart]) -> Iterator[tuple[int, int]]:
    """Answer parts on a cluster."""
    # yields (int, int): Number of each part and its rows, in the order of the parts.
    # raises JtgpuError, OSError, MemoryError: The error of the first part, in order, that has one.
    if not parts:
        return
    for result in _results(ray, job, parts):
        if result["error"]:
            raise pickle.loads(result["error"])
        yield int(result["number"]), int(result["rows"])


def _results(ray: Any, job: WorkerJob, parts: Sequence[FilePart]) -> Iterator[dict[str, Any]]:
    """The result of each part, in order: a dataset of parts, mapped by a pool of actors."""
    share, data = job.spec.share, ray.data
    # in a list: Ray would fetch an argument that is itself a reference in every process that it passes through
    reference = [ray.put(job)]
    with quiet(ray):
        items = [{"part": pickle.dumps(p)} for p in parts]
        results = data.from_items(items, override_num_blocks=len(items)).map_batches(
            _PartActor, fn_constructor_args=(reference,), batch_size=1, batch_format="numpy", num_cpus=share.cpus,
            num_gpus=share.gpus or None, compute=data.ActorPoolStrategy(size=share.workers),
        )  # fmt: skip
        rows = iter(results.iter_rows())
        try:
            yield from rows
        except ray.exceptions.RayError as error:
            raise translate_error(error) from None
        finally:
            close = getattr(rows, "close", None)
            if close is not None:
                with suppress(Exception):  # the error that ends the run is raised above
                    close()


# Run a function within a cluster and monitor it from outside, through Ray's client.
#
# Ray Data works only within a cluster, so a process there leads the run and publishes its progress.

POLL_INTERVAL = 0.5  # seconds
Progress = Callable[[int, int, int], None]
Numbers = tuple[int, int, int]


class _ProgressActor:
    """An actor that holds the latest progress."""

    def __init__(self) -> None:
        self._latest: Numbers | None = None

    def publish(self, *numbers: int) -> None:
        self._latest = (numbers[0], numbers[1], numbers[2])

    def latest(self) -> Numbers | None:
        return self._latest


def is_client(cluster: Cluster) -> bool:
    """Whether this process is outside of the cluster and connected to it through Ray's client."""
    if cluster.address.startswith("ray://"):
        return True
    client = getattr(import_ray().util, "client", None)
    return bool(client is not None and client.ray.is_connected())


def run_in_cluster(run: Callable[..., object], cluster: Cluster, progress: Progress | None, **options: object) -> Any:
    """Call a function in a process of the cluster and return what it returns, or raise what it raises."""
    # run: From an installed module; called with the options, ``cluster=`` and ``progress=``
    # progress: Called in this process, about twice a second, with the progress published by `run`
    with connected(cluster) as ray:
        actor = ray.remote(num_cpus=0)(_ProgressActor).remote()
        inside = replace(cluster, address="auto")

        def lead(options: Mapping[str, object]) -> Any:
            def publish(*numbers: int) -> None:
                actor.publish.remote(*numbers)

            return run(**options, cluster=inside, progress=publish)

        task = ray.remote(num_cpus=0, max_retries=0)(lead).remote(options)
        reported: Numbers | None = None
        try:
            while not ray.wait([task], timeout=POLL_INTERVAL)[0]:
                reported = _report(ray.get(actor.latest.remote()), reported, progress)
            result = ray.get(task)
            _report(ray.get(actor.latest.remote()), reported, progress)
        except ray.exceptions.RayError as error:
            raise translate_error(error) from None
        except BaseException:  # Ctrl-C
            ray.cancel(task)
            time.sleep(POLL_INTERVAL)  # the request must leave before the connection is closed
            raise
        return result


def _report(latest: Numbers | None, before: Numbers | None, progress: Progress | None) -> Numbers | None:
    if progress is not None and latest is not None and latest != before:
        progress(*latest)
    return latest
