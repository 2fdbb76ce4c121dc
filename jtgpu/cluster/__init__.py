"""Many machines, by Ray: tables of cases in files and datasets, and slices of a tree too large for one memory.

What is sent to a worker is a plan and tables, once; never a tree, and nothing of a device. What each module knows:
`connect` which cluster and how much of it; `storage` files wherever they lie; `parts` how tables are divided and read;
`folder` a folder of answers that is whole or absent; `files` a table in files from end to end; `datasets` Ray's own
datasets and frames in memory; `slices` how slices go to workers. Ray gives the work out and starts anew what was lost.
"""

from __future__ import annotations

from .connect import Cluster
from .datasets import answer_dataset, solver_on
from .files import ClusterReport, answer_files, columns_of
from .slices import RaySlices

__all__ = ["Cluster", "ClusterReport", "RaySlices", "answer_dataset", "answer_files", "columns_of", "solver_on"]
