"""Files of cases, CSV or Parquet, read in chunks."""

from __future__ import annotations

from .open_cases import open_cases
from .source import CaseChunk, RowLocation, Source

__all__ = ["CaseChunk", "RowLocation", "Source", "open_cases"]
