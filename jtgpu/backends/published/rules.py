"""`Rules`: every choice of the published system, as an option."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .indextables import MAX_ENTRIES, padded

__all__ = ["Rules"]


@dataclass(frozen=True)
class Rules:
    """Options of the published engine; the defaults are the published values.

    Attributes
    ----------
    transfers : {"each", "resident"}
        ``"each"``: every message copies its tables to the device and back, as published. ``"resident"``: tables stay
        on the device from the evidence to the posteriors, and the messages of a level share their launches.
    dtype : {"float64", "float32"}
        Type of the tables.
    split_n : int
        Separators of fewer configurations are marginalised in parallel over m, others over n. At most 1025.
    marginalise_threads, scatter_threads : int
        Largest block size: a power of two from 32 to 1024.
    min_entries : int or None
        Clique tables of fewer entries are marginalised, or multiplied into, on the CPU; the two are decided
        independently. None: 5000 with ``transfers="each"``, 0 with ``"resident"``.
    normalise : {"auto", "cublas", "kernel"}
        ``"auto"``: cuBLAS with ``transfers="each"`` if scikit-cuda is installed, otherwise our kernels.
    ways : int
        Cells that a thread of a marginalisation kernel adds in one launch: 2 (published), 4, 8 or 16.
    scatter_ways : int
        Cells that a thread of the scattering kernel multiplies: 1 (published), 2, 4 or 8.
    marginalise_m : {"syncwarp", "shuffle"}
        Kernel that is parallel over m: the published one, or cuda/published/trials/marginalise_m_shuffle.cu.
    scatter : {"two_phase", "fused"}
        Scattering kernel: the published one, or cuda/published/trials/scatter_fused.cu.
    index_transfers : {"once", "each"}
        With ``transfers="each"``: whether every message also copies its index tables, which never change.
    streams : int
        CUDA streams of ``transfers="each"``, 1 to 64; 1 is the published sequential order.
    graph : bool
        ``transfers="resident"``: replay the sweeps as one CUDA graph. Without cuda-bindings, kernels are launched
        one by one.
    max_entries : int or None
        Size limit of a clique table.
    device : int or None
        Device ordinal. None: the device of highest compute capability.

    Raises
    ------
    ValueError
        For a value outside of its range.
    """

    transfers: str = "each"
    dtype: str = "float64"
    split_n: int = 512
    marginalise_threads: int = 512
    scatter_threads: int = 256
    min_entries: int | None = None
    normalise: str = "auto"
    ways: int = 2
    scatter_ways: int = 1
    marginalise_m: str = "syncwarp"
    scatter: str = "two_phase"
    index_transfers: str = "once"
    streams: int = 4
    graph: bool = True
    max_entries: int | None = MAX_ENTRIES
    device: int | None = None

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
