"""`Rules`: every choice of the published system, as an option."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .indextables import MAX_ENTRIES, padded


@dataclass(frozen=True)
class Rules:
    """Options of the published engine; the defaults are the published values."""
    # raises ValueError: For a value outside of its range.

    # {"each", "resident"}: ``"each"``: every message copies its tables to the device and back, as published.
    #     ``"resident"``: tables stay on the device from the evidence to the posteriors, and the messages of a level
    #     share their launches.
    transfers: str = "each"
    dtype: str = "float64"  # {"float64", "float32"}: Type of the tables
    # Separators of fewer configurations are marginalised in parallel over m, others over n. At most 1025.
    split_n: int = 512
    # marginalise_threads, scatter_threads: Largest block size: a power of two from 32 to 1024
    marginalise_threads: int = 512
    scatter_threads: int = 256
    # Clique tables of fewer entries are marginalised, or multiplied into, on the CPU; the two are decided
    #     independently. None: 5000 with ``transfers="each"``, 0 with ``"resident"``.
    min_entries: int | None = None
    # {"auto", "cublas", "kernel"}: ``"auto"``: cuBLAS with ``transfers="each"`` if scikit-cuda is installed, otherwise
    #     our kernels
    normalise: str = "auto"
    ways: int = 2  # cells that a thread of a marginalisation kernel adds in one launch: 2 (published), 4, 8 or 16
    scatter_ways: int = 1  # cells that a thread of the scattering kernel multiplies: 1 (published), 2, 4 or 8
    # {"syncwarp", "shuffle"}: Kernel that is parallel over m: the published one, or
    #     cuda/published/trials/marginalise_m_shuffle.cu
    marginalise_m: str = "syncwarp"
    # {"two_phase", "fused"}: Scattering kernel: the published one, or cuda/published/trials/scatter_fused.cu
    scatter: str = "two_phase"
    # {"once", "each"}: With ``transfers="each"``: whether every message also copies its index tables, which never
    #     change
    index_transfers: str = "once"
    streams: int = 4  # CUDA streams of ``transfers="each"``, 1 to 64; 1 is the published sequential order
    # ``transfers="resident"``: replay the sweeps as one CUDA graph. Without cuda-bindings, kernels are launched one by
    #     one.
    graph: bool = True
    max_entries: int | None = MAX_ENTRIES  # size limit of a clique table
    device: int | None = None  # device ordinal. None: the device of highest compute capability.

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self, name)!r}")
        for name in ("marginalise_threads", "scatter_threads"):
            threads = getattr(self, name)
            if threads != padded(threads) or not 32 <= threads <= 1024:
                raise ValueError(f"{name} must be a power of two from 32 to 1024, not {threads!r}")
        if not 1 <= self.split_n <= 1025:
            raise ValueError(f"split_n must be from 1 to 1025, not {self.split_n!r}")
        if not 1 <= self.streams <= 64:
            raise ValueError(f"streams must be from 1 to 64, not {self.streams!r}")

    @property
    def threshold(self) -> int:
        """Entries from which the GPU processes a table."""
        if self.min_entries is not None:
            return self.min_entries
        return 5000 if self.transfers == "each" else 0

    @property
    def file_m(self) -> str:
        """Kernel file of the m-parallel marginalisation."""
        return f"published/{'marginalise_m' if self.marginalise_m == 'syncwarp' else 'trials/marginalise_m_shuffle'}"

    @property
    def file_scatter(self) -> str:
        """Kernel file of scattering."""
        return "published/scatter" if self.scatter == "two_phase" else "published/trials/scatter_fused"

    def replaced(self, **changes: Any) -> Rules:
        """A copy with some fields replaced."""
        return replace(self, **changes)


_CHOICES: dict[str, tuple[Any, ...]] = {
    "transfers": ("each", "resident"),
    "dtype": ("float64", "float32"),
    "normalise": ("auto", "cublas", "kernel"),
    "ways": (2, 4, 8, 16),
    "scatter_ways": (1, 2, 4, 8),
    "marginalise_m": ("syncwarp", "shuffle"),
    "scatter": ("two_phase", "fused"),
    "index_transfers": ("once", "each"),
}
