"""The rows of the published table of times, and the figures of 2014."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowSpec:
    """A row of the table."""

    key: str  # key in `Column.values` and `PUBLISHED`
    label: str
    group: str  # {"tree", "total", "cpu", "gpu, without transfers", "gpu, with transfers", "resident", "tuned"}
    kind: str  # {"count", "ms", "ratio"}


_KERNELS, _WITH = "gpu, without transfers", "gpu, with transfers"
ROWS = (
    RowSpec("cliques", "cliques", "tree", "count"),
    RowSpec("largest", "largest clique table", "tree", "count"),
    RowSpec("smallest", "smallest clique table", "tree", "count"),
    RowSpec("average", "average clique table", "tree", "count"),
    RowSpec("entries", "sum of all clique tables", "tree", "count"),
    RowSpec("largest_separator", "largest separator", "tree", "count"),
    RowSpec("smallest_separator", "smallest separator", "tree", "count"),
    RowSpec("average_separator", "average separator", "tree", "count"),
    RowSpec("cpu", "propagation on CPU", "total", "ms"),
    RowSpec("gpu", "propagation on GPU, transfers included", "total", "ms"),
    RowSpec("speedup", "speed-up", "total", "ratio"),
    RowSpec("cpu_marginalise", "marginalisation, CPU", "cpu", "ms"),
    RowSpec("cpu_scatter", "scattering, CPU", "cpu", "ms"),
    RowSpec("kernels_marginalise", "marginalisation, GPU without transfers", _KERNELS, "ms"),
    RowSpec("kernels_scatter", "scattering, GPU without transfers", _KERNELS, "ms"),
    RowSpec("kernels_marginalise_speedup", "speed-up of marginalisation", _KERNELS, "ratio"),
    RowSpec("kernels_scatter_speedup", "speed-up of scattering", _KERNELS, "ratio"),
    RowSpec("gpu_marginalise", "marginalisation, GPU with transfers", _WITH, "ms"),
    RowSpec("gpu_scatter", "scattering, GPU with transfers", _WITH, "ms"),
    RowSpec("gpu_marginalise_speedup", "speed-up of marginalisation", _WITH, "ratio"),
    RowSpec("gpu_scatter_speedup", "speed-up of scattering", _WITH, "ratio"),
    RowSpec("resident", "propagation, tables resident", "resident", "ms"),
    RowSpec("resident_run", "the same with evidence up and all posteriors down", "resident", "ms"),
    RowSpec("resident_marginalise", "marginalisation, resident", "resident", "ms"),
    RowSpec("resident_scatter", "scattering, resident", "resident", "ms"),
    RowSpec("resident_normalise", "normalisation, resident", "resident", "ms"),
    RowSpec("tuned", "propagation, tables resident, tuned rules", "tuned", "ms"),
    RowSpec("tuned_run", "the same with evidence up and all posteriors down", "tuned", "ms"),
    RowSpec("tuned_marginalise", "marginalisation, resident, tuned rules", "tuned", "ms"),
    RowSpec("tuned_scatter", "scattering, resident, tuned rules", "tuned", "ms"),
)

# A. Gottoli, F. Pettenuzzo (2014), table 2; sums of clique tables recomputed from their orders. Rows in this order:
PUBLISHED_ROWS = (
    "cliques", "largest", "smallest", "average", "entries", "largest_separator", "smallest_separator",
    "average_separator", "cpu", "gpu", "speedup", "cpu_marginalise", "cpu_scatter", "kernels_marginalise",
    "kernels_scatter", "kernels_marginalise_speedup", "kernels_scatter_speedup", "gpu_marginalise", "gpu_scatter",
    "gpu_marginalise_speedup", "gpu_scatter_speedup",
)  # fmt: skip
_PUBLISHED_COLUMNS: dict[str, tuple[float, ...]] = {
    "mildew": (29, 1_249_280, 336, 117_257, 3_400_464, 62_464, 72, 3_950, 101, 132, 0.765, 40, 59, 5, 5, 8.0, 11.8,
               39, 83, 1.026, 0.711),
    "diabetes": (337, 84_480, 495, 29_157, 9_825_960, 5_280, 16, 1_698, 275, 780, 0.353, 98, 180, 45, 30, 2.018, 6.0,
                 303, 441, 0.323, 0.408),
    "barley": (36, 7_257_600, 216, 476_133, 17_140_796, 907_200, 7, 38_237, 935, 692, 1.351, 378, 511, 30, 36, 12.6,
               14.194, 279, 402, 1.355, 1.271),
    "munin4": (877, 448_000, 4, 10_102, 8_860_074, 56_000, 2, 1_376, 366, 688, 0.532, 157, 236, 36, 28, 4.361, 8.429,
               214, 394, 0.734, 0.599),
    "water": (21, 589_824, 9, 144_205, 3_028_305, 147_456, 3, 28_527, 152, 140, 1.086, 63, 83, 23, 5, 2.73, 16.6, 47,
              99, 1.34, 0.838),
    "munin1": (162, 38_400_000, 4, 516_887, 83_735_758, 2_400_000, 2, 58_691, 5_976, 3_329, 1.796, 2_554, 3_425, 447,
               295, 5.195, 10.86, 1_458, 1_852, 1.593, 1.73),
    "link": (586, 2_097_152, 4, 40_928, 23_983_962, 262_144, 3, 4_418, 1_122, 853, 1.316, 492, 692, 120, 48, 4.1,
             14.417, 331, 534, 1.487, 1.296),
}  # fmt: skip
PUBLISHED: dict[str, dict[str, float]] = {
    name: dict(zip(PUBLISHED_ROWS, values, strict=True)) for name, values in _PUBLISHED_COLUMNS.items()
}
# Our rows that are compared with a published row of another name: resident tables have no transfers.
AGAINST = {
    "resident": "gpu", "resident_run": "gpu", "resident_marginalise": "kernels_marginalise",
    "resident_scatter": "kernels_scatter", "tuned": "gpu", "tuned_run": "gpu",
    "tuned_marginalise": "kernels_marginalise", "tuned_scatter": "kernels_scatter",
}  # fmt: skip
# Rows that are the ratio of two others.
RATIOS = {
    "speedup": ("cpu", "gpu"),
    "kernels_marginalise_speedup": ("cpu_marginalise", "kernels_marginalise"),
    "kernels_scatter_speedup": ("cpu_scatter", "kernels_scatter"),
    "gpu_marginalise_speedup": ("cpu_marginalise", "gpu_marginalise"),
    "gpu_scatter_speedup": ("cpu_scatter", "gpu_scatter"),
}
