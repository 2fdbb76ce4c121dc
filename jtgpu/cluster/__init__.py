"""Clusters by Ray: tables of cases in files, datasets and frames, and slices of a tree too large for one machine.

A worker receives a plan and tables once, never a tree or device data. `connect` defines the cluster; `tables` (files,
local or remote), `parts`, `folder`, `worker` and `files` answer files; `datasets` answers Ray's datasets, frames in
memory and slices; `tasks` distributes the E-step of a fit and the calls of a function. Ray schedules the work and
repeats unfinished work of a lost worker.
"""

from __future__ import annotations

from .connect import Cluster, as_cluster
from .datasets import RaySlices, answer_dataset, solver_on
from .files import ClusterReport, answer_files, columns_of
from .tasks import ClusterCounts, TaskRunner, run_tasks

__all__ = [
    "Cluster", "ClusterCounts", "ClusterReport", "RaySlices", "TaskRunner", "answer_dataset", "answer_files",
    "as_cluster", "columns_of", "run_tasks", "solver_on",
]  # fmt: skip
