"""Answer datasets of Ray Data."""

from __future__ import annotations

from typing import Any, Unpack

from ..cases.answer_table import answer_table
from ..cases.options import TableKeywords, TableOptions
from ..cases.query import resolve_query
from ..errors import JtgpuError
from ..inference.network_plan import NetworkPlan
from ..inference.tables.arrow import arrow
from ..inference.tree import JunctionTree
from ..util.options import BackendName
from .connect import Cluster, Share, as_cluster, connect
from .worker_spec import WorkerSpec, plan_of


class _BatchActor:
    """An actor that answers batches of a dataset."""

    def __init__(self, spec: list[Any], kept: list[str]):
        import ray

        received: WorkerSpec = ray.get(spec[0])
        self._solver, self._kept = received.solver(), kept
        self._names = [self._solver.model.variables[v] for v in received.query.evidence]

    def __call__(self, batch: Any) -> Any:
        """Convert an Arrow table of cases to one of answers."""

        def error(row: int, reason: str, kind: type[JtgpuError]) -> JtgpuError:
            return kind(f"{self._row_name(batch, row)}: {reason}")

        rows = self._solver.answer([batch.column(name) for name in self._names], batch.num_rows, error)
        return answer_table(self._solver, rows, [(batch.schema.field(k), batch.column(k)) for k in self._kept])

    def _row_name(self, batch: Any, row: int) -> str:
        """A row by the columns that are copied, because its number in the dataset is unknown."""
        shown = {k: batch.column(k)[row].as_py() for k in self._kept}
        if "path" in batch.column_names:  # of read_parquet(..., include_paths=True)
            shown = {"path": batch.column("path")[row].as_py(), **shown}
        values = ", ".join(f"{k} {v!r}" for k, v in shown.items())
        return f"row {row} of a batch of {batch.num_rows} rows ({values or 'pass keep= with a column that names rows'})"


def answer_dataset(
    plan: NetworkPlan | JunctionTree,
    dataset: Any,
    *,
    cluster: str | Cluster = "auto",
    backend: BackendName = "auto",
    batch_size: int | None = None,
    **keywords: Unpack[TableKeywords],
) -> Any:
    """Convert a Ray dataset of cases to one of answers, lazily: `map_batches` with one actor per worker.

    Parameters
    ----------
    plan : NetworkPlan or JunctionTree
        A plan needs no memory and no GPU in this process.
    dataset : ray.data.Dataset
    cluster : str or Cluster
        The share that each worker uses; see `Cluster`.
    backend : str
        Backend of the workers; ``"auto"``: GPUs, if the cluster has any.
    batch_size : int, optional
        Cases per batch. Default: some tens of megabytes.
    targets, evidence_columns, keep, labels, log_evidence, conflict, mpe, on_error, na_values, do
        See `jtgpu.JunctionTree.predict_proba`.

    Returns
    -------
    ray.data.Dataset
        In the order of the rows if Ray Data preserves it (``execution_options.preserve_order``). Errors of rows are
        raised when the dataset is consumed. They name the row by the columns that are copied, and by the file if the
        dataset has a column ``path``. Ray Data repeats the batches of a lost worker; a sink must be able to discard
        duplicates, as `answer_files` does.
    """
    where, options = as_cluster(cluster), TableOptions(**keywords)
    ray = connect(where)
    plan, chosen, backend_options = plan_of(plan, backend)
    model = plan.model
    query, kept = resolve_query(model, list(dataset.schema().names), options, source="the dataset")
    query.schema(model, [(k, arrow().null()) for k in kept])  # rejects duplicate names before the computation
    share = Share.of(where, ray.cluster_resources(), chosen)
    spec = WorkerSpec(plan, share, share.options(backend_options), query, options)
    answered = dataset.map_batches(
        _BatchActor, fn_constructor_args=([ray.put(spec)], kept), batch_size=batch_size or query.rows_per_call(model),
        batch_format="pyarrow", num_cpus=share.cpus, num_gpus=share.gpus or None,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=share.workers),
    )  # fmt: skip
    answered.context.raise_original_map_exception = True  # ours, which programs can catch, not a wrapper
    return answered
