"""The layout of the jobs that the published kernels process; see cuda/published/job.cuh."""

from __future__ import annotations

import numpy as np

# `struct Job`, field for field
JOB = np.dtype(
    [
        ("from", np.uint64),
        ("index", np.uint64),
        ("other", np.uint64),
        ("to", np.uint64),
        ("total", np.uint64),
        ("n", np.uint32),
        ("n_out", np.uint32),
        ("first_block", np.uint32),
        ("ways", np.uint32),
        ("sum", np.uint64),
    ]
)
MAP = np.dtype(np.uint32)  # block_job: the job of each block
