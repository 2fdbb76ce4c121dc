"""Arrow and narwhals, imported on first use. Frames and files become Arrow columns before they are encoded."""

from __future__ import annotations

from typing import Any

from ...errors import JtgpuError

_NEEDS = "tables of cases require {0}, which is not installed: pip install 'jtgpu[frames]'"


def arrow() -> Any:
    """The package pyarrow."""
    # raises JtgpuError: If it is not installed, naming the extra that provides it; likewise for the other functions
    #     here.
    try:
        import pyarrow
    except ImportError:
        raise JtgpuError(_NEEDS.format("pyarrow")) from None
    return pyarrow


def compute() -> Any:
    """The module pyarrow.compute."""
    arrow()
    import pyarrow.compute

    return pyarrow.compute


def arrow_csv() -> Any:
    """The module pyarrow.csv."""
    arrow()
    import pyarrow.csv

    return pyarrow.csv


def arrow_parquet() -> Any:
    """The module pyarrow.parquet."""
    arrow()
    import pyarrow.parquet

    return pyarrow.parquet


def narwhals() -> Any:
    """The package narwhals."""
    try:
        import narwhals.stable.v1 as nw
    except ImportError:
        raise JtgpuError(_NEEDS.format("narwhals")) from None
    return nw
