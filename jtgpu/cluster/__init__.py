"""Clusters by Ray: tables of cases in files, datasets and frames, and slices of a tree too large for one machine.

A worker receives a plan and tables once, never a tree or device data. `connect` and `worker_spec` define the cluster
and the data that a worker receives; `storage`, `find_cases`, `tables`, `parts`, `part_reader`, `part_writer`, `folder`,
`worker` and `files` answer files; `datasets` and `frame_solver` answer Ray's datasets and frames in memory;
`remote_monitor` runs these from outside the cluster; `slices` distributes slices, `counts` the
E-step of a fit, `tasks` the calls of a function. Ray schedules the work and repeats
unfinished work of a lost worker.
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
